//! The merge of the logs of one file system: each metadata target has a log of its own, and a path
//! is right only if the records of all logs are applied in the order of their times.
//!
//! A record waits until each other log has been read up to its time. The wait has a bound in time
//! and number, so that one log that stands still does not stop the others; what is released early
//! can have a path of before, or one that had to be asked for.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::convert::{Mark, event_of, gap_of};
use super::item::{LogContent, LogItem};
use super::positions::{LogPosition, LogPositions};
use super::reader::ReadTo;
use super::record::ChangelogRecord;
use super::record_type::RecordType;
use super::resolver::{FidPaths, Resolver, ResolverOptions};
use crate::event::{EventFlags, EventKind, FileEvent};

/// How logs are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeOptions {
    /// Most records of a log that are read ahead.
    pub ahead_records_max: usize,
    /// Most events of a log that wait for its collector.
    pub events_max: usize,
    /// Most records for which unknown FIDs are asked at once.
    pub batch_records_max: usize,
    /// Longest time that a record waits for other logs, in ns.
    pub hold_ns: i64,
    /// Longest time that a record waits while another log is surveyed after a start, in ns.
    pub survey_hold_ns: i64,
    /// Most that the clocks of servers and of this node differ, and that a record needs until it
    /// can be read, in ns.
    pub skew_ns: i64,
    /// Longest time that clearing of a log waits until the events of other logs are durable, in ns.
    pub clear_hold_ns: i64,
}

impl Default for MergeOptions {
    fn default() -> Self {
        Self {
            ahead_records_max: 16_384,
            events_max: 8_192,
            batch_records_max: 1_024,
            hold_ns: 5_000_000_000,
            survey_hold_ns: 120_000_000_000,
            skew_ns: 500_000_000,
            clear_hold_ns: 3_600_000_000_000,
        }
    }
}

/// What the collectors of one file system share: its directories, and the merge of its logs.
#[derive(Clone)]
pub struct ChangelogMerge(Arc<Mutex<MergeState>>);

impl ChangelogMerge {
    /// The shared state of a file system; `paths` tells the places of files now.
    pub fn new(options: MergeOptions, resolver: ResolverOptions, paths: Box<dyn FidPaths>) -> Self {
        Self(Arc::new(Mutex::new(MergeState {
            options,
            resolver: Resolver::new(resolver, paths),
            logs: Vec::new(),
            positions: LogPositions::default(),
            awaited_until_ns: None,
        })))
    }

    /// Has the merge wait for logs with these names from the start, so that none is ahead of
    /// another one that begins a moment later.
    #[must_use]
    pub fn of_logs<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut merge = self.lock();
        names.into_iter().for_each(|name| _ = merge.log_of(name));
        drop(merge);
        self
    }

    /// Keeps in this file up to where all logs are durable, and takes in what it has. It is to be
    /// called before the first collector is made; another call with the same path does nothing.
    pub fn keep_in(&self, path: &Path) {
        self.lock().positions.keep_in(path);
    }

    /// Number of FIDs whose places were asked for so far.
    pub fn asked(&self) -> u64 {
        self.lock().resolver.asked
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, MergeState> {
        // A panic in another collector leaves paths behind that are incomplete at worst.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state behind the lock.
pub(crate) struct MergeState {
    options: MergeOptions,
    pub(crate) resolver: Resolver,
    logs: Vec<MergedLog>,
    pub(crate) positions: LogPositions,
    /// Time of the monotonic clock up to which others wait for logs that have no collector yet, in
    /// ns; `None` before the first collector.
    awaited_until_ns: Option<i64>,
}

/// A log in the merge.
pub(crate) struct MergedLog {
    name: String,
    /// Whether it has, or had, a collector.
    is_begun: bool,
    /// Index up to which events were told in an earlier life: records up to there change places and
    /// are not told again.
    silent_to: u64,
    position: LogPosition,
    /// Records that were read and not applied.
    pub(crate) queue: VecDeque<LogItem>,
    /// Events that were not collected yet.
    pub(crate) events: VecDeque<FileEvent>,
    /// Time of the events up to which the log has been read, in ns since the epoch.
    read_to_ns: i64,
    /// Whether others wait for it.
    is_live: bool,
    /// Whether others wait for it longer, since it is being surveyed.
    pub(crate) is_surveying: bool,
    /// Whether recording was off before the next record; unknown is as off.
    was_off: bool,
    /// The first record of a rename of an old server, which waits for the second, and the time of
    /// the monotonic clock when it was read.
    half_rename: Option<(i64, Box<[u8]>)>,
    pub(crate) gaps: u64,
    pub(crate) unresolved: u64,
    pub(crate) senseless: u64,
}

impl MergeState {
    /// Begins a log, of which the events up to `resume` are durable. Returns its number and the
    /// index after which it is to be read, which is `None` for its first record.
    pub(crate) fn begin_log(&mut self, name: &str, resume: Option<u64>) -> (usize, Option<u64>) {
        let at = self.log_of(name);
        let log = &mut self.logs[at];
        let was_begun = std::mem::replace(&mut log.is_begun, true);
        log.is_live = true;
        log.is_surveying = false;
        log.was_off = resume.is_some();
        log.half_rename = None;
        log.silent_to = resume.unwrap_or(0);
        if was_begun {
            // Its records were applied here up to that event and further.
            self.positions.note_durable(at, resume.unwrap_or(0));
            return (at, resume);
        }
        let start = self.positions.begin(at, resume);
        log.position = LogPosition {
            applied: start.unwrap_or(0),
            told: log.silent_to,
        };
        (at, start)
    }

    /// The number of the log with this name, which is added if it is not there. A log without a
    /// name is always another one.
    fn log_of(&mut self, name: &str) -> usize {
        let is_it = |log: &MergedLog| log.name == name && !name.is_empty();
        if let Some(at) = self.logs.iter().position(is_it) {
            return at;
        }
        self.positions.add(name);
        self.logs.push(MergedLog {
            name: name.to_owned(),
            is_begun: false,
            silent_to: 0,
            position: LogPosition::default(),
            queue: VecDeque::new(),
            events: VecDeque::new(),
            read_to_ns: i64::MIN,
            is_live: true,
            is_surveying: true,
            was_off: false,
            half_rename: None,
            gaps: 0,
            unresolved: 0,
            senseless: 0,
        });
        self.logs.len() - 1
    }

    pub(crate) fn log(&mut self, log: usize) -> &mut MergedLog {
        &mut self.logs[log]
    }

    /// Number of records of a log that there is room for.
    pub(crate) fn room(&self, log: usize) -> usize {
        let max = self.options.ahead_records_max.max(1);
        max.saturating_sub(self.logs[log].queue.len())
    }

    /// Takes in what was read of a log.
    pub(crate) fn take_in(
        &mut self,
        log: usize,
        items: &mut VecDeque<LogItem>,
        read_to: Option<ReadTo>,
    ) {
        let skew_ns = self.options.skew_ns;
        let log = &mut self.logs[log];
        log.is_live = read_to.is_some();
        if let Some(last) = items.back() {
            log.read_to_ns = log.read_to_ns.max(last.time_ns);
        }
        if let Some(ReadTo::End(since)) = read_to {
            log.read_to_ns = log.read_to_ns.max(since.saturating_sub(skew_ns));
        }
        log.queue.append(items);
    }

    /// Has the others not wait for a log any more.
    pub(crate) fn retire(&mut self, log: usize) {
        let log = &mut self.logs[log];
        log.is_live = false;
        log.queue.clear();
        log.events.clear();
    }

    /// Takes in that the events of a log up to this index are durable.
    pub(crate) fn note_durable(&mut self, log: usize, index: u64) {
        self.positions.note_durable(log, index);
        self.positions.settle();
    }

    /// Notes how far all logs have come, and what of that is durable.
    pub(crate) fn check(&mut self, now_ns: i64) {
        let is_half = |log: &MergedLog| {
            let read_ns = log.half_rename.as_ref().map(|(read_ns, _)| *read_ns);
            read_ns.is_some_and(|read| now_ns.saturating_sub(read) < self.options.hold_ns)
        };
        // Behind the first half of a rename the second one alone would be read.
        if !self.logs.iter().any(is_half) {
            let positions: Vec<LogPosition> = self.logs.iter().map(|log| log.position).collect();
            self.positions.check(&positions, now_ns);
        }
        self.positions.settle();
        self.positions.give_up(self.options.clear_hold_ns, now_ns);
    }

    /// Makes events of all records that need not wait.
    pub(crate) fn advance(&mut self, now_ns: i64) {
        let survey_hold_ns = self.options.survey_hold_ns;
        let awaited_until_ns = *self
            .awaited_until_ns
            .get_or_insert(now_ns.saturating_add(survey_hold_ns));
        if now_ns >= awaited_until_ns {
            let absent = self.logs.iter_mut().filter(|log| !log.is_begun);
            absent.for_each(|log| log.is_live = false);
        }
        loop {
            let batch = self.take_batch(now_ns);
            if batch.is_empty() {
                return;
            }
            let logs = &self.logs;
            let of_batch = || batch.iter().map(|(_, item)| item);
            let ahead = || of_batch().chain(logs.iter().flat_map(|log| &log.queue));
            self.resolver.prepare(of_batch(), ahead);
            for (log, item) in batch {
                self.apply(log, item);
            }
        }
    }

    /// The next records in the order of their times. A record after which places are forgotten
    /// comes alone.
    fn take_batch(&mut self, now_ns: i64) -> Vec<(usize, LogItem)> {
        let mut batch: Vec<(usize, LogItem)> = Vec::new();
        let mut taken = vec![0; self.logs.len()];
        while batch.len() < self.options.batch_records_max.max(1) {
            let has_room = |at: usize| self.has_room(at, taken[at]);
            let fronts = self.logs.iter().enumerate().filter_map(|(at, log)| {
                let front = log.queue.front().filter(|_| has_room(at))?;
                Some((front.time_ns, at))
            });
            let Some((time_ns, at)) = fronts.min() else {
                break;
            };
            let is_alone = self.logs[at].queue.front().is_some_and(is_alone);
            let is_held = !self.may_pass(at, time_ns, now_ns);
            if is_held || (is_alone && !batch.is_empty()) {
                break;
            }
            if let Some(item) = self.logs[at].queue.pop_front() {
                batch.push((at, item));
                taken[at] += 1;
            }
            if is_alone {
                break;
            }
        }
        batch
    }

    fn has_room(&self, log: usize, taken: usize) -> bool {
        self.logs[log].events.len() + taken < self.options.events_max.max(1)
    }

    /// Whether a record at the front of a log need not wait for the others.
    fn may_pass(&self, at: usize, time_ns: i64, now_ns: i64) -> bool {
        let others = self.logs.iter().enumerate();
        let mut others = others.filter(|(other, log)| *other != at && log.is_live);
        let is_next = others.all(|(_, log)| {
            if log.is_surveying {
                return false;
            }
            let read_to_ns = log
                .queue
                .front()
                .map_or(log.read_to_ns, |item| item.time_ns);
            time_ns <= read_to_ns
        });
        let log = &self.logs[at];
        let is_surveying = self.logs.iter().any(|log| log.is_live && log.is_surveying);
        let has_waited = |item: &LogItem| {
            let waited_ns = now_ns.saturating_sub(item.read_ns);
            match is_surveying {
                true => waited_ns >= self.options.survey_hold_ns,
                false => {
                    waited_ns >= self.options.hold_ns
                        || log.queue.len() >= self.options.ahead_records_max
                }
            }
        };
        is_next || log.queue.front().is_some_and(has_waited)
    }

    fn apply(&mut self, at: usize, item: LogItem) {
        let log = &mut self.logs[at];
        log.position.applied = log.position.applied.max(item.index);
        let bytes = match item.content {
            LogContent::Gap { first } => {
                // What was told before it was purged is not missing.
                let first = first.max(log.silent_to.saturating_add(1));
                log.push(gap_of(first, item.index, item.time_ns));
                self.resolver.forget();
                return;
            }
            LogContent::Record(bytes) => bytes,
        };
        // Bytes that do not parse were not taken in.
        let Ok((record, _)) = ChangelogRecord::parse(&bytes) else {
            return;
        };
        let Some(of) = record.record_type() else {
            log.senseless += 1;
            return;
        };
        let is_half = of == RecordType::Rename && record.source.is_none();
        if is_half {
            // Only one rename waits for its second record.
            let before = log.half_rename.replace((item.read_ns, bytes));
            log.senseless += u64::from(before.is_some());
            return;
        }
        let half = log.half_rename.take_if(|_| of == RecordType::RenameTo);
        let half = half
            .as_ref()
            .map(|(_, bytes)| ChangelogRecord::parse(bytes));
        let record = match half {
            Some(Ok((half, _))) => whole_rename(&half, &record),
            _ => record,
        };
        let was_off = log.take_mark(&record);
        let mut paths = self.resolver.paths_of(&record);
        if of == RecordType::RenameTo && record.source.is_none() {
            paths.is_old_whole = false;
        }
        let mut event = event_of(&record, of, paths);
        self.resolver.apply(&record);
        if was_off {
            event.kind = EventKind::Gap;
            self.resolver.forget();
        }
        self.logs[at].push(event);
    }
}

impl MergedLog {
    /// Adds an event, unless it was told in an earlier life.
    fn push(&mut self, event: FileEvent) {
        if event.index <= self.silent_to {
            return;
        }
        self.position.told = self.position.told.max(event.index);
        let incomplete = [EventFlags::PATH_INCOMPLETE, EventFlags::OLD_PATH_INCOMPLETE];
        let is_incomplete = incomplete.iter().any(|flag| event.flags.has(*flag));
        self.unresolved += u64::from(is_incomplete);
        self.gaps += u64::from(event.kind == EventKind::Gap);
        self.events.push_back(event);
    }

    /// Whether a record tells that recording has begun again after it was off. A server that starts
    /// writes the same record, but without one that recording has ended before.
    fn take_mark(&mut self, record: &ChangelogRecord<'_>) -> bool {
        let mark = Mark::of(record);
        let was_off = std::mem::replace(&mut self.was_off, mark == Some(Mark::End));
        was_off && mark == Some(Mark::Start)
    }
}

/// The record of a rename that an old server wrote as two: the first has the file and its old
/// place, the second the file that was replaced and the new place.
fn whole_rename<'a>(
    first: &ChangelogRecord<'a>,
    second: &ChangelogRecord<'a>,
) -> ChangelogRecord<'a> {
    ChangelogRecord {
        type_number: RecordType::Rename as u32,
        source: Some((first.target, first.parent)),
        old_name: first.name,
        ..*second
    }
}

/// Whether places are forgotten after an item, so that none after it may be looked for before.
fn is_alone(item: &LogItem) -> bool {
    match &item.content {
        LogContent::Gap { .. } => true,
        // The type of a record has its place in the header.
        LogContent::Record(bytes) => {
            let of = bytes.get(4..8).and_then(|bytes| bytes.try_into().ok());
            of.map(u32::from_ne_bytes) == Some(RecordType::Mark as u32)
        }
    }
}
