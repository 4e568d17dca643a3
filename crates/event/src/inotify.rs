//! A collector of file events by inotify: without privileges, with a watch for each directory.
//!
//! A directory is watched before it is read, so that nothing is missed between, and the names that
//! were told when it was read are known until the queue of the kernel is past that moment, so that
//! nothing is told twice. Where events are lost, or watches are too few, the tree is compared with
//! what is known of it.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::inotify::{CreateFlags, WatchFlags, init};
use rustix::io::Errno;

use crate::collector::{Collected, Collector, CollectorFault, CollectorStatus};
use crate::event::{EventKind, FileEvent};
use crate::scan::{Core, EventKinds, Mode, Name, TreeConfig, Walked};

mod handle;
mod moves;
mod queue;
mod watches;

use handle::Handler;
use moves::Moves;
use watches::Watches;

/// Events that are told before directories that were found have their turn.
const EVENTS_AT_ONCE: usize = 1_024;
/// Steps of the walk before events have their turn.
const STEPS_AT_ONCE: usize = 64;
/// Names that could not be seen before they are looked at again.
const UNSEEN_MAX: usize = 4_096;

/// What an inotify collector is told to do, with its bounds.
#[derive(Clone, Debug)]
pub struct InotifyConfig {
    /// What it shares with other collectors of a tree.
    pub tree: TreeConfig,
    /// Most watches. Directories beyond are compared at an interval.
    pub watches_max: usize,
}

impl InotifyConfig {
    /// The defaults, with this file of the snapshot: as many watches as the kernel allows.
    pub fn new(snapshot: impl Into<PathBuf>) -> Self {
        Self {
            tree: TreeConfig::new(snapshot),
            watches_max: usize::MAX,
        }
    }
}

/// A collector of file events by inotify.
pub struct InotifyCollector {
    core: Core,
    watches: Watches,
    moves: Moves,
    unseen: BTreeSet<Name>,
    /// Time of the monotonic clock at which directories without a watch are compared, in ns.
    compare_ns: i64,
    is_more: bool,
}

impl InotifyCollector {
    /// A collector of the trees below these directories.
    ///
    /// # Errors
    ///
    /// There is no root, the snapshot cannot be read, or the kernel has no inotify instance left.
    pub fn open(roots: &[PathBuf], config: InotifyConfig) -> Result<Self, CollectorFault> {
        let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC);
        let fd = fd.map_err(|error| CollectorFault::Unusable(instance_trouble(error)))?;
        let flags = flags_of(config.tree.kinds);
        Ok(Self {
            core: Core::open(roots, config.tree)?,
            watches: Watches::new(fd, flags, config.watches_max),
            moves: Moves::default(),
            unseen: BTreeSet::new(),
            compare_ns: i64::MAX,
            is_more: true,
        })
    }

    fn handler(&mut self, monotonic_ns: i64) -> Handler<'_> {
        Handler {
            core: &mut self.core,
            watches: &mut self.watches,
            moves: &mut self.moves,
            unseen: &mut self.unseen,
            monotonic_ns,
        }
    }

    /// Tells events that were read; true if all were told.
    fn tell(&mut self, events_max: usize, monotonic_ns: i64) -> bool {
        for _ in 0..EVENTS_AT_ONCE {
            if self.core.tree.out.len() >= events_max {
                return false;
            }
            // A directory that is being read is told before what happened since.
            if self.core.walk.is_within() {
                return false;
            }
            let Some(raw) = self.watches.queue.pop() else {
                return true;
            };
            // Names of a time before the next event are known until it is told.
            self.handler(monotonic_ns).handle(&raw);
            if self.unseen.len() >= UNSEEN_MAX {
                self.handler(monotonic_ns).look_again();
            }
        }
        false
    }

    fn walk(&mut self, events_max: usize) -> Walked {
        for _ in 0..STEPS_AT_ONCE {
            if self.core.tree.out.len() >= events_max {
                return Walked::More;
            }
            match self.core.step(&mut self.watches) {
                Walked::More => {}
                walked => return walked,
            }
        }
        Walked::More
    }

    /// Has directories without a watch compared when their time has come.
    fn compare_unwatched(&mut self, monotonic_ns: i64) {
        if self.watches.unwatched.is_empty() {
            self.watches.refused = None;
            self.compare_ns = i64::MAX;
            return;
        }
        if self.compare_ns <= monotonic_ns && !self.core.walk.is_busy() {
            for dir in &self.watches.unwatched {
                let mode = Mode::Compare { is_deep: false };
                self.core.walk.read(&self.core.tree, *dir, mode);
            }
            self.compare_ns = i64::MAX;
        }
        if self.compare_ns == i64::MAX {
            let interval_ns = self.core.config.compare_interval_ns;
            self.compare_ns = monotonic_ns.saturating_add(interval_ns);
        }
    }
}

impl Collector for InotifyCollector {
    fn collect(
        &mut self,
        events: &mut Vec<FileEvent>,
        events_max: usize,
        now: (i64, i64),
    ) -> Result<Collected, CollectorFault> {
        let monotonic_ns = now.1;
        self.core.begin(now);
        self.compare_unwatched(monotonic_ns);
        let mut is_drained = false;
        while self.core.tree.out.len() < events_max {
            let is_told = self.tell(events_max, monotonic_ns);
            let walked = self.walk(events_max);
            if !is_told {
                if self.core.walk.is_within() && walked != Walked::More {
                    break;
                }
                continue;
            }
            let read = self.watches.queue.read(&self.watches.fd);
            is_drained = !read.map_err(|error| {
                CollectorFault::Unusable(format!("cannot read the inotify instance: {error}"))
            })?;
            if is_drained {
                while let Some(moved) = self.moves.overdue(monotonic_ns) {
                    self.handler(monotonic_ns).left(moved);
                }
                self.watches.expire();
                let is_told = !self.core.walk.is_busy() && self.moves.due_ns() == i64::MAX;
                if is_told && !self.unseen.is_empty() {
                    self.handler(monotonic_ns).look_again();
                    continue;
                }
                if walked != Walked::More {
                    break;
                }
            }
        }
        let collected = self.core.end(events);
        self.is_more = !is_drained || collected == Collected::More;
        match self.is_more && self.core.walk.obstacle.is_none() {
            true => Ok(Collected::More),
            false => Ok(Collected::All),
        }
    }

    fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault> {
        self.core.acknowledge(index)
    }

    fn learns_from(&self) -> Option<(u64, i64)> {
        self.core.learns_from()
    }

    fn learn(&mut self, event: &FileEvent) {
        self.core.learn(event);
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.watches.fd.as_fd())
    }

    fn due_ns(&self) -> i64 {
        let compare_ns = match self.watches.unwatched.is_empty() {
            true => i64::MAX,
            false => self.compare_ns,
        };
        self.core.due_ns().min(self.moves.due_ns()).min(compare_ns)
    }

    fn status(&self) -> CollectorStatus {
        let unwatched = self.watches.unwatched.len();
        let trouble = match self.watches.refused {
            Some(error) if unwatched > 0 => watch_trouble(error, unwatched),
            _ => String::new(),
        };
        self.core.status(self.watches.table.len() as u64, trouble)
    }
}

fn watch_trouble(error: Errno, count: usize) -> String {
    let remedy = match error {
        Errno::NOSPC => "raise the sysctl fs.inotify.max_user_watches".to_owned(),
        error => format!("the kernel says: {error}"),
    };
    format!("{count} directories have no watch and are compared at an interval: {remedy}")
}

fn instance_trouble(error: Errno) -> String {
    match error {
        Errno::MFILE => "there is no inotify instance left: raise the sysctl \
             fs.inotify.max_user_instances, or the limit of open files"
            .to_owned(),
        error => format!("cannot make an inotify instance: {error}"),
    }
}

/// What the kernel has to tell for these kinds. Names are followed in any case.
fn flags_of(kinds: EventKinds) -> WatchFlags {
    let always = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
    let watch = always | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR | WatchFlags::EXCL_UNLINK;
    let by_kind = [
        (EventKind::Write, WatchFlags::MODIFY),
        (EventKind::CloseWrite, WatchFlags::CLOSE_WRITE),
        (EventKind::Attrib, WatchFlags::ATTRIB),
        (EventKind::Open, WatchFlags::OPEN),
        (EventKind::Close, WatchFlags::CLOSE_NOWRITE),
    ];
    let wanted = by_kind.iter().filter(|(kind, _)| kinds.has(*kind));
    wanted.fold(watch, |flags, (_, flag)| flags | *flag)
}
