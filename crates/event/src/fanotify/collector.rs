//! The collector: reads the group, holds events during walks, and gives file events.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;

use crate::collector::{Collected, Collector, CollectorFault, CollectorStatus};
use crate::event::{EventKind, FileEvent};
use crate::fanotify::known;
use crate::fanotify::parse::{self, RawEvent, RawFault, mask};
use crate::fanotify::tell::Teller;
use crate::fanotify::tree::Tree;
use crate::fanotify::{FanotifyConfig, FanotifyGroup};
use crate::scan::Core;

/// Most bytes that are read from the group at once.
const READ_BYTES: usize = 128 << 10;
/// Most steps of a walk in one call.
const STEPS_PER_CALL: usize = 64;

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
///
/// Where what was told is kept ([`FanotifyConfig::tree`]), a gap is followed by what was missing,
/// found by comparing, and by `reconciled`.
///
/// [`EventFlags::MERGED`]: crate::EventFlags::MERGED
/// [`EventFlags::RECONCILED`]: crate::EventFlags::RECONCILED
/// [`EventFlags::BEYOND`]: crate::EventFlags::BEYOND
pub struct FanotifyCollector {
    group: OwnedFd,
    base: PathBuf,
    lacks: Vec<String>,
    has_begun: bool,
    teller: Teller,
    held: HeldBytes,
    held_bytes_max: usize,
    /// Events that the next call gives: gaps, and what comparing has found.
    waiting: VecDeque<FileEvent>,
    monotonic_ns: i64,
    gaps: u64,
    /// Number of the walk during which there was a gap.
    gap_walk: u64,
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
    /// A root is not below the base, or is on another file system; there is no `/proc`; or what was
    /// told before cannot be read.
    pub fn new(group: FanotifyGroup, config: &FanotifyConfig) -> Result<Self, CollectorFault> {
        let tree = Tree::open(group.base, config)?;
        let known = config.tree.as_ref().map(|kept| {
            let reader = tree.reader().map_err(|source| CollectorFault::Io {
                what: "find the file handle of",
                path: config.base.clone(),
                source,
            });
            known::open(config, kept, reader?)
        });
        let known = known.transpose()?;
        let is_gap = config.starts_with_gap && !known.as_ref().is_some_and(Core::is_known);
        let mut collector = Self {
            group: group.group,
            base: config.base.clone(),
            lacks: group.lacks,
            has_begun: false,
            teller: Teller::new(tree, known, config),
            held: HeldBytes::default(),
            held_bytes_max: config.held_bytes_max,
            waiting: VecDeque::new(),
            monotonic_ns: 0,
            gaps: 0,
            gap_walk: 0,
            error: None,
        };
        if is_gap {
            collector.tell_gap();
        }
        Ok(collector)
    }

    /// Tells a gap that nothing ends, since nothing is known to compare with.
    fn tell_gap(&mut self) {
        self.gaps += 1;
        self.waiting.push_back(FileEvent::new(EventKind::Gap, 0, 0));
    }

    /// Tells a gap, and has the tree compared with what was told of it.
    fn note_gap(&mut self, detail: &str, events: &mut Vec<FileEvent>) {
        if !self.teller.begin_comparing(detail, events) {
            self.tell_gap();
            self.tell_waiting(events, usize::MAX);
        }
    }

    /// Notes a gap, one at most for each walk.
    fn note_gap_of_walk(&mut self, events: &mut Vec<FileEvent>) {
        let walks = self.teller.tree.walks();
        if self.gap_walk != walks {
            self.gap_walk = walks;
            self.note_gap("there were too many events during a walk", events);
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

    /// Tells what there is, up to a number of events.
    fn tell_all(
        &mut self,
        events: &mut Vec<FileEvent>,
        max: usize,
    ) -> Result<Collected, CollectorFault> {
        let (mut has_walked, mut has_compared) = (false, false);
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
            if !self.teller.tree.is_walking() && !has_compared {
                has_compared = true;
                if !self.compare(events, max) {
                    // What compares knows when it can go on.
                    return Ok(Collected::All);
                }
            }
            if self.held.chunks.is_empty() && !self.read()? {
                self.teller.settle(events, self.monotonic_ns);
                return Ok(self.outcome());
            }
            self.tell_chunk(events, max)?;
        }
    }

    /// Compares a little. `false` if a directory is compared partly: events that follow are about
    /// names of it that are not told yet.
    fn compare(&mut self, events: &mut Vec<FileEvent>, max: usize) -> bool {
        for _ in 0..STEPS_PER_CALL {
            if events.len() >= max || !self.teller.compare_more(events) {
                break;
            }
        }
        !self.teller.is_within_directory()
    }

    /// Begins a call. The first one takes the directories of an earlier life.
    fn begin(&mut self, now: (i64, i64), events: &mut Vec<FileEvent>) {
        let teller = &mut self.teller;
        if let Some(core) = teller.core.as_mut().filter(|_| !self.has_begun)
            && core.is_known()
        {
            // Of what had left the tree, some may be known still.
            for directory in core.tree.table.astray() {
                core.tree.table.remove(directory);
                core.tree.known.clear(directory);
            }
            teller.tree.take_table(&mut core.tree.table);
            teller.index_next = teller.index_next.max(core.tree.index_next);
        }
        self.has_begun = true;
        teller.begin_call(now, events);
    }

    /// Whether there is more to do, when nothing can be read.
    fn outcome(&self) -> Collected {
        let due_ns = self.teller.tree.due_ns().min(self.teller.due_ns());
        match due_ns <= self.monotonic_ns {
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
    fn tell_chunk(
        &mut self,
        events: &mut Vec<FileEvent>,
        max: usize,
    ) -> Result<(), CollectorFault> {
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
            self.note_gap_of_walk(events);
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
                return Err(CollectorFault::Unusable(format!(
                    "{fault}: is it a fanotify group?"
                )));
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
        self.teller.begin_anew(events);
        self.note_gap("the queue of the kernel was full", events);
    }

    fn trouble(&self, kept: String) -> String {
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
            parts.push(format!(
                "{} is not there: it is found when it is made",
                root.display()
            ));
        }
        if tree.unreadable > 0 {
            let so = match tree.has_all() {
                true => "the paths of events in them are not known",
                false => "events in them are not seen",
            };
            parts.push(format!(
                "{} directories cannot be read, so that {so}: grant CAP_DAC_READ_SEARCH",
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
        if self.gaps > 0 {
            parts.push(format!(
                "events were lost {} times, and are not found again, since nothing is kept to \
                 compare with",
                self.gaps
            ));
        }
        parts.push(kept);
        parts.retain(|part| !part.is_empty());
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
        self.begin(now, events);
        let outcome = self.tell_all(events, max);
        let kept = self.teller.end_call();
        outcome.map(|collected| match kept {
            Collected::More => kept,
            Collected::All => collected,
        })
    }

    fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault> {
        // The kernel forgets an event when it is read; what is known of the tree does not.
        match &mut self.teller.core {
            Some(core) => core.acknowledge(index),
            None => Ok(()),
        }
    }

    fn learns_from(&self) -> Option<(u64, i64)> {
        self.teller.core.as_ref()?.learns_from()
    }

    fn learn(&mut self, event: &FileEvent) {
        if let Some(core) = &mut self.teller.core {
            core.learn(event);
        }
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        Some(self.group.as_fd())
    }

    fn due_ns(&self) -> i64 {
        let due_ns = match self.waiting.is_empty() {
            true => self.teller.tree.due_ns().min(self.teller.due_ns()),
            false => 0,
        };
        let core = self.teller.core.as_ref();
        due_ns.min(core.map_or(i64::MAX, |core| core.due_ns()))
    }

    fn status(&self) -> CollectorStatus {
        let kept = self.teller.core.as_ref();
        let kept = kept
            .map(|core| core.status(0, String::new()))
            .unwrap_or_default();
        CollectorStatus {
            directories: self.teller.tree.len() as u64,
            watches: 1,
            events: self.teller.events,
            gaps: self.gaps + kept.gaps,
            reconciled: self.teller.reconciled,
            unresolved: self.teller.unresolved,
            senseless: self.teller.senseless,
            is_walking: self.teller.tree.is_walking() || kept.is_walking,
            trouble: self.trouble(kept.trouble),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use proptest::prelude::*;
    use rustix::pipe::PipeFlags;

    use super::*;
    use crate::fanotify::parse::FileHandle;
    use crate::fanotify::parse::encode;

    /// A collector that reads a pipe instead of a group, and the other end of the pipe.
    fn piped() -> (FanotifyCollector, File, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (group, to) = rustix::pipe::pipe_with(flags).unwrap();
        let base = File::open(dir.path()).unwrap();
        let group = FanotifyGroup::from_parts(group, base.into());
        let config = FanotifyConfig::new(dir.path());
        let mut collector = FanotifyCollector::new(group, &config).unwrap();
        // Nothing to read is an end for a pipe without writers, and this one has a writer.
        while collector.tree_is_walking() {
            collector.collect(&mut Vec::new(), 10, (1, 1)).unwrap();
        }
        (collector, to.into(), dir)
    }

    impl FanotifyCollector {
        fn tree_is_walking(&self) -> bool {
            self.teller.tree.is_walking()
        }
    }

    fn kinds(collector: &mut FanotifyCollector) -> (Vec<EventKind>, Result<(), String>) {
        let (mut events, mut outcome) = (Vec::new(), Ok(()));
        for _ in 0..20 {
            if let Err(fault) = collector.collect(&mut events, 100, (5, 5)) {
                outcome = Err(fault.to_string());
            }
        }
        (events.iter().map(|event| event.kind).collect(), outcome)
    }

    #[test]
    fn an_error_of_the_file_system_is_trouble() {
        let (mut collector, mut to, _dir) = piped();
        let body = [5i32.to_ne_bytes(), 2i32.to_ne_bytes()].concat();
        let error = encode::event(mask::FS_ERROR, 0, &[encode::headed(5, &body)]);
        to.write_all(&[&error[..], &error].concat()).unwrap();
        assert_eq!(kinds(&mut collector), (Vec::new(), Ok(())));
        let trouble = collector.status().trouble;
        assert!(trouble.contains("reported 4 errors"), "{trouble}");
        assert!(trouble.contains("Input/output error"), "{trouble}");
    }

    #[test]
    fn an_overflow_is_a_gap_and_without_a_snapshot_it_stays_open() {
        let (mut collector, mut to, _dir) = piped();
        let overflow = encode::event(mask::Q_OVERFLOW, 0, &[]);
        to.write_all(&overflow).unwrap();
        assert_eq!(kinds(&mut collector), (vec![EventKind::Gap], Ok(())));
        let status = collector.status();
        assert_eq!(status.gaps, 1);
        assert!(
            status.trouble.contains("lost 1 times"),
            "{}",
            status.trouble
        );
    }

    #[test]
    fn what_is_no_group_of_our_kind_is_refused() {
        let (mut collector, mut to, _dir) = piped();
        let mut event = encode::event(mask::MODIFY, 1, &[]);
        event[16..20].copy_from_slice(&9i32.to_ne_bytes());
        to.write_all(&event).unwrap();
        let (_, outcome) = kinds(&mut collector);
        assert!(outcome.unwrap_err().contains("FAN_REPORT_DFID_NAME_TARGET"));
        to.write_all(&[7; 64]).unwrap();
        let (told, outcome) = kinds(&mut collector);
        assert!(outcome.unwrap_err().contains("version 7"));
        // What was in these bytes is lost.
        assert_eq!(
            (told, collector.status().senseless),
            (vec![EventKind::Gap], 1)
        );
    }

    #[test]
    fn events_elsewhere_are_not_told() {
        let (mut collector, mut to, _dir) = piped();
        let handle = FileHandle {
            kind: 1,
            bytes: &[9; 8],
        };
        let record = encode::record(2, 1, handle, Some(b"f"));
        to.write_all(&encode::event(mask::CREATE, 1, &[record]))
            .unwrap();
        assert_eq!(kinds(&mut collector), (Vec::new(), Ok(())));
        assert_eq!(collector.status().unresolved, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_bytes_are_taken(
            bytes in proptest::collection::vec(any::<u8>(), 1..300),
            mask in any::<u64>(),
            kinds_of in proptest::collection::vec(0u8..14, 0..4),
        ) {
            let (mut collector, mut to, _dir) = piped();
            let handle = FileHandle { kind: 1, bytes: &[9; 8] };
            let records: Vec<_> = kinds_of
                .iter()
                .map(|kind| encode::record(*kind, 1, handle, Some(b"f")))
                .collect();
            to.write_all(&encode::event(mask, 1, &records)).unwrap();
            to.write_all(&bytes).unwrap();
            let (told, _) = kinds(&mut collector);
            prop_assert!(told.iter().all(|kind| *kind == EventKind::Gap));
        }
    }
}
