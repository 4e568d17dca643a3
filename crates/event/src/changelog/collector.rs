//! The collector of one metadata target. The index of its events is that of the target's records;
//! the collectors of a file system share a [`ChangelogMerge`].

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use super::device::{ChangelogDevice, ChangelogUser};
use super::item::LogItem;
use super::merge::ChangelogMerge;
use super::reader::{LogReader, ReadTo, ReaderOptions};
use crate::collector::{Collected, Collector, CollectorFault, CollectorStatus};
use crate::event::FileEvent;

/// Time after which clearing is tried again that has failed, in ns.
const CLEAR_AGAIN_NS: i64 = 1_000_000_000;

/// What a collector of a log begins with.
#[derive(Clone, Debug, Default)]
pub struct ChangelogOptions {
    /// Name of the log among those of its file system, such as that of the metadata target. It is
    /// needed where positions are kept ([`ChangelogMerge::keep_in`]).
    pub name: String,
    /// The registered user whose records are cleared when they are durable here; `None` clears
    /// nothing.
    pub user: Option<ChangelogUser>,
    /// Index of the last event that is durable here; `None` at the first start.
    pub resume: Option<u64>,
    /// How the log is read.
    pub reader: ReaderOptions,
}

/// The collector of the ChangeLog of one metadata target.
///
/// Records that are purged before they are read, and recording that was switched off in between,
/// give an event of kind `gap`. If the log was made anew, with lower indexes than those that were
/// taken before, the device gives no records at all, which cannot be told from a quiet target.
pub struct ChangelogCollector {
    merge: ChangelogMerge,
    /// Number of the log in the merge.
    log: usize,
    reader: LogReader,
    items: VecDeque<LogItem>,
    /// Index of the last event that was handed out.
    index: u64,
    events: u64,
    due_ns: i64,
    /// Whether there is no room for more records.
    is_full: bool,
    trouble: String,
    /// Why records could not be cleared, and the time of the monotonic clock before which clearing
    /// is not tried again, in ns.
    clear_trouble: String,
    clear_ns: i64,
}

impl ChangelogCollector {
    /// The collector of the log that `device` gives.
    pub fn new(
        merge: &ChangelogMerge,
        device: Box<dyn ChangelogDevice>,
        options: ChangelogOptions,
    ) -> Self {
        let ChangelogOptions {
            name,
            user,
            resume,
            reader,
        } = options;
        let (log, start) = merge.lock().begin_log(&name, resume);
        Self {
            merge: merge.clone(),
            log,
            reader: LogReader::new(device, user, reader, (start, resume)),
            items: VecDeque::new(),
            index: resume.unwrap_or(0),
            events: 0,
            due_ns: i64::MIN,
            is_full: false,
            trouble: String::new(),
            clear_trouble: String::new(),
            clear_ns: i64::MIN,
        }
    }

    fn read(&mut self, now: (i64, i64)) -> Result<ReadTo, CollectorFault> {
        let room = self.merge.lock().room(self.log);
        // Other collectors do not wait while this one reads.
        self.reader.read(&mut self.items, room, now)
    }

    /// Clears the log up to where all logs are durable.
    fn clear(&mut self) -> Result<(), CollectorFault> {
        let reached = self.merge.lock().positions.reached(self.log);
        let cleared = self.reader.clear(reached);
        self.clear_trouble = match &cleared {
            Ok(()) => String::new(),
            Err(fault) => fault.to_string(),
        };
        cleared
    }
}

impl Collector for ChangelogCollector {
    fn collect(
        &mut self,
        events: &mut Vec<FileEvent>,
        events_max: usize,
        now: (i64, i64),
    ) -> Result<Collected, CollectorFault> {
        let result = self.read(now);
        let mut merge = self.merge.lock();
        let read_to = result.as_ref().ok().copied();
        merge.log(self.log).is_surveying = self.reader.is_surveying();
        if let Some(names) = self.reader.surveyed.take() {
            merge.resolver.learn(names);
        }
        merge.take_in(self.log, &mut self.items, read_to);
        merge.advance(now.1);
        let log = merge.log(self.log);
        let count = log.events.len().min(events_max);
        events.extend(log.events.drain(..count));
        let has_more = !log.events.is_empty()
            || read_to == Some(ReadTo::Survey)
            || (count > 0 && read_to == Some(ReadTo::Room));
        self.is_full = merge.room(self.log) == 0;
        merge.check(now.1);
        drop(merge);
        // What has become durable in other logs may allow more than the last acknowledgement.
        if now.1 >= self.clear_ns && self.clear().is_err() {
            self.clear_ns = now.1.saturating_add(CLEAR_AGAIN_NS);
        }
        self.events += count as u64;
        if let Some(last) = events.last().filter(|_| count > 0) {
            self.index = last.index;
        }
        let next_ns = now.1.saturating_add(self.reader.poll_ns());
        let due_ns = self.reader.due_ns().filter(|due| *due > now.1);
        self.due_ns = due_ns.unwrap_or(next_ns).min(next_ns);
        match result {
            Ok(_) => {
                self.trouble.clear();
                Ok(if has_more {
                    Collected::More
                } else {
                    Collected::All
                })
            }
            Err(fault) => {
                self.trouble = fault.to_string();
                Err(fault)
            }
        }
    }

    fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault> {
        let index = index.min(self.index);
        self.merge.lock().note_durable(self.log, index);
        self.clear()
    }

    fn has_numbers_of_source(&self) -> bool {
        true
    }

    fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.reader.readable().filter(|_| !self.is_full)
    }

    fn due_ns(&self) -> i64 {
        self.due_ns
    }

    fn status(&self) -> CollectorStatus {
        let mut merge = self.merge.lock();
        let mut trouble = self.trouble.clone();
        if trouble.is_empty() && !merge.resolver.refusal.is_empty() {
            trouble = format!(
                "the places of files cannot be asked for: {}: is the file system mounted here, and \
                 may this program read trusted attributes?",
                merge.resolver.refusal
            );
        }
        if trouble.is_empty() && merge.resolver.is_full {
            trouble = "there are more directories than are kept: raise directories_max".into();
        }
        for other in [&self.clear_trouble, &merge.positions.trouble] {
            if trouble.is_empty() {
                trouble.clone_from(other);
            }
        }
        if trouble.is_empty() && merge.positions.is_apart {
            trouble = "the events of another log of the file system have not become durable for                        long: records are cleared without waiting for it, so that paths can be                        wrong after a kill"
                .into();
        }
        let directories = merge.resolver.directories() as u64;
        let log = merge.log(self.log);
        CollectorStatus {
            directories,
            events: self.events,
            gaps: log.gaps,
            is_walking: self.reader.is_surveying(),
            unresolved: log.unresolved,
            senseless: log.senseless + self.reader.senseless(),
            trouble,
            ..CollectorStatus::default()
        }
    }
}

impl Drop for ChangelogCollector {
    fn drop(&mut self) {
        self.merge.lock().retire(self.log);
    }
}
