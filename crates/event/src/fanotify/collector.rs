//! The collector: reads the group, holds events during walks, and gives file events.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;

use crate::collector::{Collected, Collector, CollectorFault, CollectorStatus};
use crate::event::{EventFlags, EventKind, FileEvent};
use crate::fanotify::parse::{self, RawEvent, RawFault, mask};
use crate::fanotify::tell::Teller;
use crate::fanotify::tree::Tree;
use crate::fanotify::{FanotifyConfig, FanotifyGroup};

/// Most bytes that are read from the group at once.
const READ_BYTES: usize = 128 << 10;
/// Most steps of a walk in one call.
const STEPS_PER_CALL: usize = 64;
/// Time to wait for the second half of a rename.
const HALF_NS: i64 = 100_000_000;

/// A collector of the events of a file system that has a fanotify mark.
///
/// Events are told for paths below the roots. The kernel merges events of one object while they
/// wait; merged ones are told as several with [`EventFlags::MERGED`], in an order that may have
/// been. Where the queue was so long that merging has hidden where an object ended, the object is
/// looked at, and the rest is told with [`EventFlags::RECONCILED`].
///
/// What comes into the roots from elsewhere in the file system is told as `create`, `mkdir` and so
/// on with [`EventFlags::BEYOND`], a directory with all that is in it; what leaves them as `unlink`
/// or `rmdir`, a directory without what was in it.
pub struct FanotifyCollector {
    group: OwnedFd,
    base: PathBuf,
    lacks: Vec<String>,
    teller: Teller,
    held: HeldBytes,
    held_bytes_max: usize,
    /// Events that the next call gives: gaps, and what comparing has found.
    waiting: VecDeque<FileEvent>,
    monotonic_ns: i64,
    half_due_ns: i64,
    gaps: u64,
    /// Number of the walk during which there was a gap.
    gap_walk: u64,
    is_compare_due: bool,
    /// The last error of the file system, and how many there were.
    error: Option<(i32, u64)>,
}

/// Bytes that were read and are still to be parsed.
#[derive(Default)]
struct HeldBytes {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of the first chunk that are done with.
    done: usize,
    bytes: usize,
    spare: Vec<u8>,
}

impl FanotifyCollector {
    /// A collector that reads an open group. The walk that learns the directories is done by the
    /// first calls of [`Collector::collect`].
    ///
    /// # Errors
    ///
    /// A root is not below the base, or is on another file system; or there is no `/proc`.
    pub fn new(group: FanotifyGroup, config: &FanotifyConfig) -> Result<Self, CollectorFault> {
        let tree = Tree::open(group.base, config)?;
        let mut collector = Self {
            group: group.group,
            base: config.base.clone(),
            lacks: group.lacks,
            teller: Teller::new(tree, config),
            held: HeldBytes::default(),
            held_bytes_max: config.held_bytes_max,
            waiting: VecDeque::new(),
            monotonic_ns: 0,
            half_due_ns: i64::MAX,
            gaps: 0,
            gap_walk: 0,
            is_compare_due: false,
            error: None,
        };
        if config.starts_with_gap {
            collector.note_gap();
        }
        Ok(collector)
    }

    /// Whether events were lost, so that the tree is to be compared with what was known. What is
    /// found is given to [`Self::tell_reconciled`], and [`Self::note_compared`] ends it.
    pub fn compare_due(&self) -> bool {
        self.is_compare_due
    }

    /// Takes events that comparing has found. The next calls of [`Collector::collect`] give them,
    /// numbered and marked as reconciled.
    pub fn tell_reconciled(&mut self, found: impl IntoIterator<Item = FileEvent>) {
        self.waiting.extend(found.into_iter().map(|event| FileEvent {
            flags: event.flags.with(EventFlags::RECONCILED),
            ..event
        }));
    }

    /// Takes in that comparing has ended: an event `reconciled` follows.
    pub fn note_compared(&mut self) {
        self.is_compare_due = false;
        self.waiting.push_back(FileEvent::new(EventKind::Reconciled, 0, 0));
    }

    fn note_gap(&mut self) {
        self.gaps += 1;
        self.is_compare_due = true;
        self.waiting.push_back(FileEvent::new(EventKind::Gap, 0, 0));
    }

    /// Notes a gap, one at most for each walk.
    fn note_gap_of_walk(&mut self) {
        let walks = self.teller.tree.walks();
        if self.gap_walk != walks {
            self.gap_walk = walks;
            self.note_gap();
        }
    }

    fn tell_waiting(&mut self, events: &mut Vec<FileEvent>, events_max: usize) {
        while events.len() < events_max
            && let Some(mut event) = self.waiting.pop_front()
        {
            if event.ts == 0 {
                event.ts = self.teller.ts;
            }
            self.teller.push_own(event, events);
        }
    }

    /// Goes on with a walk.
    fn walk(&mut self, events: &mut Vec<FileEvent>, events_max: usize) {
        let mut found = Vec::new();
        for _ in 0..STEPS_PER_CALL {
            if self.teller.tree.due_ns() > self.monotonic_ns || events.len() >= events_max {
                break;
            }
            self.teller.tree.step(&mut found, self.monotonic_ns);
            self.teller.tell_found(std::mem::take(&mut found), events);
        }
    }

    /// Ends a run of events: the queue is empty.
    fn settle(&mut self, events: &mut Vec<FileEvent>) {
        let has_halves = self.teller.has_halves();
        self.teller.settle(events);
        self.half_due_ns = match has_halves {
            true => self.monotonic_ns.saturating_add(HALF_NS),
            false => i64::MAX,
        };
    }

    /// Whether there is more to do, when nothing can be read.
    fn outcome(&self) -> Collected {
        match self.teller.tree.due_ns() <= self.monotonic_ns {
            true => Collected::More,
            false => Collected::All,
        }
    }

    /// Reads once. Returns whether there was something.
    fn read(&mut self) -> Result<bool, CollectorFault> {
        let mut chunk = std::mem::take(&mut self.held.spare);
        chunk.resize(READ_BYTES, 0);
        let count = loop {
            match rustix::io::read(&self.group, &mut chunk) {
                Ok(count) => break count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break 0,
                Err(errno) => {
                    return Err(CollectorFault::Io {
                        what: "read the fanotify group of",
                        path: self.base.clone(),
                        source: errno.into(),
                    });
                }
            }
        };
        if count == 0 {
            self.held.spare = chunk;
            return Ok(false);
        }
        chunk.truncate(count);
        self.held.bytes += count;
        self.held.chunks.push_back(chunk);
        Ok(true)
    }

    /// Whether events wait for the end of a walk.
    fn is_held(&self) -> bool {
        self.teller.tree.is_walking() && self.held.bytes < self.held_bytes_max
    }

    /// Tells the events of the first chunk, until a walk has to be made.
    fn tell_chunk(&mut self, events: &mut Vec<FileEvent>, max: usize) -> Result<(), CollectorFault> {
        let Some(mut chunk) = self.held.chunks.pop_front() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        let (is_walking, unresolved) = (self.teller.tree.is_walking(), self.teller.unresolved);
        while self.held.done < chunk.len() && events.len() < max && outcome.is_ok() {
            let (raw, length) = parse::first(&chunk[self.held.done..]);
            self.held.done += length;
            self.held.bytes -= length;
            outcome = self.tell(raw, events);
            if self.is_held() {
                break;
            }
        }
        if is_walking && self.teller.unresolved > unresolved {
            // There was no room to hold events until their directories are known.
            self.note_gap_of_walk();
        }
        if self.held.done < chunk.len() {
            self.held.chunks.push_front(chunk);
        } else {
            self.held.done = 0;
            chunk.clear();
            self.held.spare = chunk;
        }
        outcome
    }

    fn tell(
        &mut self,
        raw: Result<RawEvent<'_>, RawFault>,
        events: &mut Vec<FileEvent>,
    ) -> Result<(), CollectorFault> {
        let raw = match raw {
            Ok(raw) => raw,
            Err(RawFault::Record) => {
                self.teller.senseless += 1;
                return Ok(());
            }
            // What follows in these bytes is lost.
            Err(fault) => {
                self.teller.senseless += 1;
                self.lose(events);
                return Err(CollectorFault::Unusable(format!("{fault}: is it a fanotify group?")));
            }
        };
        if raw.has_descriptor {
            return Err(CollectorFault::Unusable(
                "the fanotify group gives descriptors: open it with FAN_REPORT_DFID_NAME_TARGET"
                    .to_owned(),
            ));
        }
        if raw.has(mask::Q_OVERFLOW) {
            self.lose(events);
        } else if raw.has(mask::FS_ERROR) {
            let (error, count) = raw.error.unwrap_or_default();
            let before = self.error.map_or(0, |(_, count)| count);
            self.error = Some((error, before + u64::from(count.max(1))));
        } else {
            self.teller.tell(&raw, events);
        }
        Ok(())
    }

    /// Takes in that events were lost.
    fn lose(&mut self, events: &mut Vec<FileEvent>) {
        self.note_gap();
        self.tell_waiting(events, usize::MAX);
        self.teller.begin_anew();
    }

    fn trouble(&self) -> String {
        let tree = &self.teller.tree;
        let mut parts = self.lacks.clone();
        if let Some((error, count)) = self.error {
            let error = std::io::Error::from_raw_os_error(error);
            parts.push(format!(
                "the file system has reported {count} errors, the last one `{error}`: see the \
                 kernel's log, and check the file system"
            ));
        }
        for root in tree.missing_roots() {
            parts.push(format!("{} is not there: it is found when it is made", root.display()));
        }
        if tree.unreadable > 0 {
            parts.push(format!(
                "{} directories cannot be read, so that events in them are not seen: grant \
                 CAP_DAC_READ_SEARCH",
                tree.unreadable
            ));
        }
        if tree.is_full {
            parts.push(
                "there are more directories than allowed, so that events in some are not seen: \
                 raise directories_max"
                    .to_owned(),
            );
        }
        parts.join("; ")
    }
}

impl Collector for FanotifyCollector {
    fn collect(
        &mut self,
        events: &mut Vec<FileEvent>,
        events_max: usize,
        now: (i64, i64),
    ) -> Result<Collected, CollectorFault> {
        (self.teller.ts, self.monotonic_ns) = now;
        let max = events.len().saturating_add(events_max);
        self.tell_waiting(events, max);
        let mut has_walked = false;
        loop {
            if events.len() >= max {
                return Ok(Collected::More);
            }
            if self.teller.tree.is_walking() && !has_walked {
                // The queue of the kernel takes more memory than what is held here.
                while self.is_held() && self.read()? {}
                self.walk(events, max);
                has_walked = true;
            }
            if self.is_held() {
                return Ok(self.outcome());
            }
            if self.held.chunks.is_empty() && !self.read()? {
                self.settle(events);
                return Ok(self.outcome());
            }
            self.tell_chunk(events, max)?;
        }
    }

    fn acknowledge(&mut self, _index: u64) -> Result<(), CollectorFault> {
        // The kernel forgets an event when it is read.
        Ok(())
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.group.as_fd())
    }

    fn due_ns(&self) -> i64 {
        match self.waiting.is_empty() {
            true => self.teller.tree.due_ns().min(self.half_due_ns),
            false => 0,
        }
    }

    fn status(&self) -> CollectorStatus {
        CollectorStatus {
            directories: self.teller.tree.len() as u64,
            watches: 1,
            events: self.teller.events,
            gaps: self.gaps,
            reconciled: self.teller.reconciled,
            unresolved: self.teller.unresolved,
            senseless: self.teller.senseless,
            is_walking: self.teller.tree.is_walking(),
            trouble: self.trouble(),
        }
    }
}
