//! The reader of one log: it scans a device, puts records into the order of their indexes, finds
//! what is missing, and clears what has been acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use super::device::{ChangelogDevice, ChangelogUser, is_passing};
use super::item::{LogContent, LogItem};
use super::record::{ChangelogRecord, RECORD_BYTES_MAX};
use super::survey::FirstNames;
use crate::collector::CollectorFault;

/// Most indexes that a log can jump over: a greater jump is a record that makes no sense.
const JUMP_MAX: u64 = 1 << 40;
/// Longest wait for the next scan after one that took long, in ns.
const SCAN_WAIT_NS_MAX: i64 = 10_000_000_000;
/// Most scans that are begun anew in one call because of records that make no sense.
const RESCANS_MAX: usize = 16;
/// Most buffers that are surveyed in one call.
const SURVEY_READS_MAX: usize = 16;

/// How a log is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderOptions {
    /// Bytes of the buffer for records; at least as many as a record can have.
    pub buffer_bytes: usize,
    /// Time between two scans of a log whose end has been reached, in ns.
    pub poll_ns: i64,
    /// Time that a missing index may come late, in ns. Servers write records in parallel, so that a
    /// lower index can be written after a higher one.
    pub late_ns: i64,
    /// Most records that wait for a missing index.
    pub late_records_max: usize,
    /// What a missing index means.
    pub missing: MissingIndex,
    /// Most records of a backlog that are surveyed before they are read. Where the backlog is
    /// longer, paths of its events can have the names of now.
    pub survey_records_max: usize,
    /// Most names that the survey remembers.
    pub survey_names_max: usize,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            buffer_bytes: 256 << 10,
            poll_ns: 500_000_000,
            late_ns: 2_000_000_000,
            late_records_max: 8_192,
            missing: MissingIndex::Lost,
            survey_records_max: 20_000_000,
            survey_names_max: 500_000,
        }
    }
}

/// What it means that a log has no record with an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingIndex {
    /// The record was purged before it was read.
    Lost,
    /// The client's kernel hands out records of some types only (`OBD_IOC_CHANGELOG_FILTER`).
    Filtered,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadTo {
    /// The scan has come to the end of the log: nothing that was written before this time of the
    /// wall clock is left.
    End(i64),
    /// The device has nothing at present, but the scan goes on, or records wait for one that may
    /// come late.
    Waiting,
    /// There was no room for more.
    Room,
    /// The log is being surveyed.
    Survey,
}

/// The reader of one log.
pub(crate) struct LogReader {
    device: Box<dyn ChangelogDevice>,
    user: Option<ChangelogUser>,
    options: ReaderOptions,
    buffer: Box<[u8]>,
    scan: Scan,
    /// The survey and the number of its records so far; `None` after it.
    survey: Option<(FirstNames, usize)>,
    /// What the survey has found.
    pub(crate) surveyed: Option<FirstNames>,
    /// Index of the next record in order; `None` before the first one, if it may have any index.
    expected: Option<u64>,
    /// The indexes that were last taken for lost, or that are before the first record.
    lost: RangeInclusive<u64>,
    /// Index at which a scan begins at the earliest, because a record before it made no sense.
    skip: u64,
    /// Records that wait for a missing index, and since when they do.
    late: BTreeMap<u64, LogItem>,
    late_since_ns: i64,
    /// Highest index that was handed out.
    handed_out: u64,
    /// Index up to which the user's records were cleared by this reader.
    cleared: u64,
    /// Index of the last event that was durable at the start.
    resumed: u64,
    /// Records that made no sense or came after their index was taken for lost.
    senseless: u64,
}

/// What the device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scan {
    /// No scan is under way; the next one begins at this time of the monotonic clock.
    None { next_ns: i64 },
    /// A scan that began at this time of the wall clock and of the monotonic clock.
    Since(i64, i64),
}

impl LogReader {
    /// A reader of a log from the record after `start` on, of which the events up to `resume` are
    /// durable; without a start it takes the log from its first record on.
    pub(crate) fn new(
        device: Box<dyn ChangelogDevice>,
        user: Option<ChangelogUser>,
        options: ReaderOptions,
        (start, resume): (Option<u64>, Option<u64>),
    ) -> Self {
        let bytes = options.buffer_bytes.max(RECORD_BYTES_MAX);
        let survey = device.can_go_back().then(Default::default);
        Self {
            device,
            user,
            options,
            buffer: vec![0; bytes].into(),
            scan: Scan::None { next_ns: i64::MIN },
            survey,
            surveyed: None,
            expected: start.map(|index| index.saturating_add(1)),
            lost: 0..=start.unwrap_or(0),
            skip: 0,
            late: BTreeMap::new(),
            late_since_ns: 0,
            handed_out: start.unwrap_or(0),
            cleared: 0,
            resumed: resume.unwrap_or(0),
            senseless: 0,
        }
    }

    /// Reads records until there are `items_max` items, and appends what is in order.
    pub(crate) fn read(
        &mut self,
        items: &mut VecDeque<LogItem>,
        items_max: usize,
        now: (i64, i64),
    ) -> Result<ReadTo, CollectorFault> {
        if let Some((mut names, mut records)) = self.survey.take() {
            let read_to = self.survey(&mut names, &mut records, now);
            if !matches!(read_to, Ok(ReadTo::End(_))) {
                self.survey = Some((names, records));
                return read_to;
            }
            self.surveyed = Some(names);
        }
        let mut rescans = 0;
        let read_to = loop {
            if items.len() >= items_max {
                break ReadTo::Room;
            }
            let Some(since) = self.begin_scan(now)? else {
                break ReadTo::Waiting;
            };
            match self.device.read(&mut self.buffer) {
                Ok(0) => {
                    self.end_scan(now);
                    break ReadTo::End(since);
                }
                Ok(filled) => {
                    let rescan = self.take(filled, items, now.1);
                    let Some(from) = rescan else { continue };
                    rescans += 1;
                    if rescans > RESCANS_MAX {
                        self.end_scan(now);
                        break ReadTo::Waiting;
                    }
                    self.scan_from(from, now)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_passing(error.kind()) => break ReadTo::Waiting,
                Err(error) => {
                    self.end_scan(now);
                    return Err(self.fault("read", error));
                }
            }
        };
        self.give_up_late(items, now.1);
        match read_to {
            // Records that wait for a missing index are before the end.
            ReadTo::End(_) if !self.late.is_empty() => Ok(ReadTo::Waiting),
            read_to => Ok(read_to),
        }
    }

    /// Surveys a part of the log; the result is its end when the survey is done.
    fn survey(
        &mut self,
        names: &mut FirstNames,
        records: &mut usize,
        now: (i64, i64),
    ) -> Result<ReadTo, CollectorFault> {
        for _ in 0..SURVEY_READS_MAX {
            let Some(since) = self.begin_scan(now)? else {
                return Ok(ReadTo::Waiting);
            };
            let filled = match self.device.read(&mut self.buffer) {
                Ok(filled) => filled.min(self.buffer.len()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_passing(error.kind()) => return Ok(ReadTo::Waiting),
                Err(error) => {
                    self.end_scan(now);
                    return Err(self.fault("read", error));
                }
            };
            let mut rest = &self.buffer[..filled];
            while let Ok((record, length)) = ChangelogRecord::parse(rest) {
                names.take(&record);
                *records += 1;
                rest = &rest[length..];
            }
            // Behind a record that makes no sense nothing is known.
            let is_over = filled == 0 || !rest.is_empty();
            let is_full = *records >= self.options.survey_records_max
                || names.len() >= self.options.survey_names_max;
            if is_over || is_full {
                self.scan = Scan::None { next_ns: now.1 };
                return Ok(ReadTo::End(since));
            }
        }
        Ok(ReadTo::Survey)
    }

    /// Number of records that made no sense.
    pub(crate) fn senseless(&self) -> u64 {
        self.senseless + self.device.refused()
    }

    /// Whether the survey is under way.
    pub(crate) fn is_surveying(&self) -> bool {
        self.survey.is_some()
    }

    /// Tells the target that records up to `index` are durable here. It never clears 0, which means
    /// everything, nothing twice, and nothing that was not handed out.
    pub(crate) fn clear(&mut self, index: u64) -> Result<(), CollectorFault> {
        let index = index.min(self.handed_out);
        let Some(user) = self.user.filter(|_| index > self.cleared) else {
            return Ok(());
        };
        match self.device.clear(user, index) {
            Ok(()) => {
                self.cleared = index;
                Ok(())
            }
            // What was durable at the start may have been cleared before: this is the same error.
            Err(error) if error.kind() == io::ErrorKind::NotFound && index <= self.resumed => {
                self.cleared = index;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (user, path) = (user.0, self.device.path().display());
                Err(CollectorFault::Unusable(format!(
                    "changelog user cl{user} of {path} is not registered any more, or another \
                     program clears its records: see lctl get_param mdd.*.changelog_users, and \
                     register a user for barograph alone"
                )))
            }
            Err(error) => Err(self.fault("clear records of", error)),
        }
    }

    pub(crate) fn readable(&self) -> Option<BorrowedFd<'_>> {
        let is_scanning = matches!(self.scan, Scan::Since(..));
        self.device.readable().filter(|_| is_scanning)
    }

    /// When the next scan is due, in ns of the monotonic clock.
    pub(crate) fn due_ns(&self) -> Option<i64> {
        match self.scan {
            Scan::None { next_ns } => Some(next_ns),
            Scan::Since(..) if self.device.readable().is_none() => Some(i64::MIN),
            Scan::Since(..) => None,
        }
    }

    pub(crate) fn poll_ns(&self) -> i64 {
        self.options.poll_ns
    }

    /// The time of the wall clock when the scan began that is under way; `None` if the next one is
    /// not due yet.
    fn begin_scan(&mut self, now: (i64, i64)) -> Result<Option<i64>, CollectorFault> {
        match self.scan {
            Scan::Since(since, _) => Ok(Some(since)),
            Scan::None { next_ns } if now.1 < next_ns => Ok(None),
            Scan::None { .. } => {
                // A missing index is looked for again as long as it may come late.
                self.scan_from(self.expected.unwrap_or(0).max(self.skip), now)?;
                Ok(Some(now.0))
            }
        }
    }

    fn scan_from(&mut self, index: u64, now: (i64, i64)) -> Result<(), CollectorFault> {
        match self.device.scan(index) {
            Ok(()) => {
                self.scan = Scan::Since(now.0, now.1);
                Ok(())
            }
            Err(error) => {
                self.end_scan(now);
                Err(self.fault("open", error))
            }
        }
    }

    /// Ends a scan. The next one waits at least as long as this one took: where another user keeps
    /// many records, old servers have each scan go through all of them.
    fn end_scan(&mut self, now: (i64, i64)) {
        let took_ns = match self.scan {
            Scan::Since(_, start_ns) => now.1.saturating_sub(start_ns),
            Scan::None { .. } => 0,
        };
        let wait_ns = self.options.poll_ns.max(took_ns.min(SCAN_WAIT_NS_MAX));
        let next_ns = now.1.saturating_add(wait_ns);
        self.scan = Scan::None { next_ns };
    }

    fn fault(&self, what: &'static str, source: io::Error) -> CollectorFault {
        CollectorFault::Io {
            what,
            path: self.device.path().into(),
            source,
        }
    }

    /// Takes the records of the buffer. If one makes no sense, the rest of the buffer is lost, and
    /// the result is the index from which the log is to be scanned again.
    fn take(&mut self, filled: usize, items: &mut VecDeque<LogItem>, read_ns: i64) -> Option<u64> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = &buffer[..filled.min(buffer.len())];
        let mut before = None;
        let mut rescan = None;
        while !rest.is_empty() {
            match ChangelogRecord::parse(rest) {
                Ok((record, length)) => {
                    before = Some(record.index);
                    let item = LogItem {
                        index: record.index,
                        time_ns: record.time_ns(),
                        read_ns,
                        content: LogContent::Record(rest[..length].into()),
                    };
                    self.accept(item, items);
                    rest = &rest[length..];
                }
                Err(_) => {
                    self.senseless += 1;
                    self.skip = self.behind_senseless(rest, before);
                    rescan = Some(self.skip);
                    break;
                }
            }
        }
        self.buffer = buffer;
        rescan
    }

    /// The index from which to scan on behind bytes that make no sense; `before` is the record
    /// before them in the buffer. Each time it is a greater one.
    fn behind_senseless(&self, rest: &[u8], before: Option<u64>) -> u64 {
        let index = rest.get(8..16).and_then(|bytes| bytes.try_into().ok());
        let index = u64::from_ne_bytes(index.unwrap_or_default());
        let least = self.expected.unwrap_or(1).max(self.skip);
        let least = least.max(before.map_or(0, |before| before.saturating_add(1)));
        match index.checked_sub(least) {
            // The index can be that of the record, whatever else is wrong with it.
            Some(jump) if jump < JUMP_MAX => index.saturating_add(1),
            // Another scan shows whether it is the next record.
            _ if before.is_some() => least,
            _ => least.saturating_add(1),
        }
    }

    /// Hands out a record if it is the next one in order, or keeps it until then.
    fn accept(&mut self, item: LogItem, items: &mut VecDeque<LogItem>) {
        let expected = *self.expected.get_or_insert_with(|| {
            self.lost = 0..=item.index - 1;
            item.index
        });
        if item.index == expected {
            self.hand_out(item, items);
            self.hand_out_late(items);
        } else if item.index < expected {
            // What was handed out before is read again while a missing record is looked for.
            self.senseless += u64::from(self.lost.contains(&item.index));
        } else if item.index - expected > JUMP_MAX {
            self.senseless += 1;
        } else {
            if self.late.is_empty() {
                self.late_since_ns = item.read_ns;
            }
            self.late.entry(item.index).or_insert(item);
            if self.late.len() > self.options.late_records_max {
                self.give_up_first(items);
            }
        }
    }

    fn hand_out(&mut self, item: LogItem, items: &mut VecDeque<LogItem>) {
        self.expected = Some(item.index.saturating_add(1));
        self.handed_out = item.index;
        items.push_back(item);
    }

    fn hand_out_late(&mut self, items: &mut VecDeque<LogItem>) {
        while let Some(first) = self.late.first_entry() {
            if Some(*first.key()) != self.expected {
                break;
            }
            let item = first.remove();
            self.late_since_ns = item.read_ns.max(self.late_since_ns);
            self.hand_out(item, items);
        }
    }

    /// Takes missing indexes for lost that could have come late for long enough.
    fn give_up_late(&mut self, items: &mut VecDeque<LogItem>, now_ns: i64) {
        let is_waiting = |since: i64| now_ns.saturating_sub(since) < self.options.late_ns;
        if !self.late.is_empty() && !is_waiting(self.late_since_ns) {
            self.late_since_ns = now_ns;
            self.give_up_first(items);
        }
    }

    fn give_up_first(&mut self, items: &mut VecDeque<LogItem>) {
        let (Some(first), Some((index, item))) = (self.expected, self.late.first_key_value())
        else {
            return;
        };
        self.lost = first..=index - 1;
        if self.options.missing == MissingIndex::Lost {
            let gap = LogItem {
                index: index - 1,
                time_ns: item.time_ns,
                read_ns: item.read_ns,
                content: LogContent::Gap { first },
            };
            self.hand_out(gap, items);
        } else {
            self.expected = Some(*index);
        }
        self.hand_out_late(items);
    }
}
