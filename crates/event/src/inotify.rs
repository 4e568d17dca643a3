//! A collector of file events by inotify: without privileges, with a watch for each directory.
//!
//! A directory is watched before it is read, so that nothing is missed between, and the names that
//! were told when it was read are known until all events of before that moment are told, so that
//! nothing is told twice. The module `queue` describes how these events are told from later ones.
//!
//! The events of the kernel are moved into memory before and between all pieces of work that may
//! take long, so that its queue does not run over meanwhile. Where events are lost nevertheless, or
//! watches are too few, the tree is compared with what is known of it.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use rustix::fs::inotify::{CreateFlags, WatchFlags, init};
use rustix::io::Errno;

use crate::collector::{Collected, Collector, CollectorFault, CollectorStatus};
use crate::event::{EventKind, FileEvent};
use crate::scan::{Core, EventKinds, Mode, TreeConfig, Walked, Watcher};

mod handle;
mod id_set;
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
/// Names that could not be seen before they are looked at again, at some 100 bytes each.
const UNSEEN_MAX: usize = 65_536;
/// Bytes of events that are told before directories are looked for again that were not where they
/// are known to be, unless there are no more events before.
const MISSED_BYTES: u64 = 512 << 10;
/// Bytes of events of the kernel that wait in memory by default. An event with a short name takes
/// 32 bytes, so that half a million events have room.
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// What an inotify collector is told to do, with its bounds.
#[derive(Clone, Debug)]
pub struct InotifyConfig {
    /// What it shares with other collectors of a tree.
    pub tree: TreeConfig,
    /// Most watches. Directories beyond are compared at an interval.
    pub watches_max: usize,
    /// Most bytes of events of the kernel that wait in memory, in whole blocks of 64 KiB. Beyond
    /// it, events stay in the queue of the kernel.
    pub queue_bytes_max: usize,
}

impl InotifyConfig {
    /// The defaults, with this file of the snapshot: as many watches as the kernel allows.
    pub fn new(snapshot: impl Into<PathBuf>) -> Self {
        Self {
            tree: TreeConfig::new(snapshot),
            watches_max: usize::MAX,
            queue_bytes_max: QUEUE_BYTES_MAX,
        }
    }
}

/// A collector of file events by inotify.
pub struct InotifyCollector {
    core: Core,
    watches: Watches,
    moves: Moves,
    /// Time of the monotonic clock at which directories without a watch are compared, in ns.
    compare_ns: i64,
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
        let watches = Watches::new(fd, flags_of(config.tree.kinds), &config);
        Ok(Self {
            core: Core::open(roots, config.tree)?,
            watches,
            moves: Moves::default(),
            compare_ns: i64::MAX,
        })
    }

    fn handler(&mut self, monotonic_ns: i64) -> Handler<'_> {
        Handler {
            core: &mut self.core,
            watches: &mut self.watches,
            moves: &mut self.moves,
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
            self.watches.before_work();
            let Some(raw) = self.watches.queue.pop() else {
                return true;
            };
            // It counts as told only afterwards, because the names of directories that were read
            // since it happened have to be known meanwhile.
            self.handler(monotonic_ns).handle(&raw);
            self.watches.queue.tell(&raw);
            self.read_missed(MISSED_BYTES);
            if self.watches.unseen.len() >= UNSEEN_MAX {
                self.handler(monotonic_ns).look_again();
                if self.watches.unseen.len() > UNSEEN_MAX / 2 {
                    self.watches.unseen.clear();
                    self.core.walk.is_unsure = true;
                }
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

    /// Moves events of the kernel into memory.
    fn drain(&mut self) -> Result<(), CollectorFault> {
        self.watches.drain();
        match self.watches.queue.take_fault() {
            Some(error) => Err(CollectorFault::Unusable(format!(
                "cannot read the inotify instance: {error}"
            ))),
            None => Ok(()),
        }
    }

    /// Whether there are events in memory that can be told now.
    fn has_events(&self) -> bool {
        !self.watches.queue.is_empty() && !self.core.walk.is_within()
    }

    /// Does what has to wait until all events up to now are told; true if there is more to tell.
    fn end_of_events(&mut self, monotonic_ns: i64) -> bool {
        while let Some(moved) = self.moves.overdue(monotonic_ns) {
            self.handler(monotonic_ns).overdue(moved);
        }
        self.watches.expire();
        if self.core.walk.is_busy() || self.moves.due_ns() != i64::MAX {
            return false;
        }
        self.read_missed(0);
        if !self.watches.unseen.is_empty() {
            self.handler(monotonic_ns).look_again();
            // What cannot be seen now is told by an event that is still to come.
            self.watches.unseen.clear();
            return true;
        }
        let is_unsure = std::mem::take(&mut self.core.walk.is_unsure);
        if is_unsure {
            let mode = Mode::Compare { is_deep: true };
            self.core.walk.begin(&mut self.core.tree, mode, None);
        }
        is_unsure || self.core.walk.is_busy()
    }

    /// Has directories read that were missed before events of this many bytes were told.
    fn read_missed(&mut self, bytes: u64) {
        for (dir, mode) in self.watches.take_missed(bytes) {
            if self.core.tree.table.has(dir) {
                self.core.walk.read(&self.core.tree, dir, mode);
            }
        }
    }

    /// Has directories without a watch compared when their time has come.
    fn compare_unwatched(&mut self, monotonic_ns: i64) {
        if self.watches.unwatched.is_empty() {
            self.watches.refused = None;
            self.compare_ns = i64::MAX;
            return;
        }
        if self.compare_ns <= monotonic_ns && !self.core.walk.is_busy() {
            for dir in self.watches.unwatched.sorted() {
                let mode = Mode::Compare { is_deep: false };
                self.core.walk.read(&self.core.tree, dir, mode);
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
        self.drain()?;
        while self.core.tree.out.len() < events_max {
            let is_told = self.tell(events_max, monotonic_ns);
            let walked = self.walk(events_max);
            self.drain()?;
            let is_waiting = self.core.walk.is_within() && walked != Walked::More;
            if is_waiting {
                // A directory is told in part, and its other names can be looked at later.
                break;
            }
            if !is_told || !self.watches.queue.is_dry() {
                continue;
            }
            if !self.end_of_events(monotonic_ns) && walked != Walked::More {
                break;
            }
        }
        let is_cut = self.core.tree.out.len() >= events_max;
        let collected = self.core.end(events);
        // Writing the snapshot and what the caller does now take their time.
        self.drain()?;
        match is_cut || self.has_events() || collected == Collected::More {
            true => Ok(Collected::More),
            false => Ok(Collected::All),
        }
    }

    fn hold(&mut self) {
        self.watches.drain();
    }

    fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault> {
        // Putting a new snapshot in its place may take long.
        self.watches.drain();
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
        let queue_ns = if self.has_events() { 0 } else { i64::MAX };
        let due_ns = self.core.due_ns().min(self.moves.due_ns());
        due_ns.min(compare_ns).min(queue_ns)
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
