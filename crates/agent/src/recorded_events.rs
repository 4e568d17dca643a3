//! The events of a source that its archive has already: the source goes on after the last of them,
//! and its collector may have to know those that it told shortly before it ended.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::ArchiveReader;
use barograph_event::{EventRecord, FileEvent, decode};
use barograph_model::{Descriptor, NS_PER_S, Sample, Span, Value};

/// Time before the end of a series in which its last event is looked for first, in ns.
const LAST_NS: i64 = 60 * NS_PER_S;

/// The recorded events of one source.
pub(crate) struct RecordedEvents<'a> {
    /// Directory of the archive.
    pub dir: &'a Path,
    /// Name of this node.
    pub node: &'a str,
    /// The stream of the source.
    pub stream: &'a Descriptor,
}

impl RecordedEvents<'_> {
    /// The greatest number of an event; 0 if there is none.
    ///
    /// # Errors
    ///
    /// The archive cannot be read now: a source that began anew would count its events twice.
    pub(crate) fn last_index(&self) -> Result<u64, String> {
        let mut last = 0;
        // Times of events may go back; the last minute nearly always has the last one.
        for from in [self.end()?.saturating_sub(LAST_NS), i64::MIN] {
            self.each_since(from, |sample| last = last.max(index_of(sample)))?;
            if last > 0 {
                break;
            }
        }
        Ok(last)
    }

    /// The events from a number on, in the order of their numbers. None of them is earlier than
    /// `from_ns`, in ns since the epoch.
    ///
    /// # Errors
    ///
    /// The archive cannot be read now.
    pub(crate) fn since(&self, from: u64, from_ns: i64) -> Result<Vec<FileEvent>, String> {
        let mut events = Vec::new();
        self.each_since(from_ns, |sample| {
            if index_of(sample) >= from
                && let Value::Bytes(record) = &sample.value
            {
                events.extend(decode(record, sample.ts));
            }
        })?;
        events.sort_by_key(|event| event.index);
        // What was recorded again is the same.
        events.dedup_by_key(|event| event.index);
        Ok(events)
    }

    /// The events with the smallest numbers of a range, at most so many, in the order of their
    /// numbers. None of them is earlier than `from_ns`, in ns since the epoch. Times of events may
    /// go back, so all of the log from there on is read.
    ///
    /// # Errors
    ///
    /// The archive cannot be read now.
    pub(crate) fn first_of(
        &self,
        numbers: RangeInclusive<u64>,
        from_ns: i64,
        count_max: usize,
    ) -> Result<Vec<FileEvent>, String> {
        let mut first: BTreeMap<u64, (i64, Arc<[u8]>)> = BTreeMap::new();
        self.each_since(from_ns, |sample| {
            let index = index_of(sample);
            let is_full = first.len() >= count_max;
            let last = first.last_key_value().map_or(0, |(last, _)| *last);
            if !numbers.contains(&index) || (is_full && index >= last) {
                return;
            }
            if let Value::Bytes(record) = &sample.value {
                first.insert(index, (sample.ts, Arc::clone(record)));
                if first.len() > count_max {
                    first.pop_last();
                }
            }
        })?;
        let records = first.values();
        Ok(records
            .filter_map(|(ts, record)| decode(record, *ts).ok())
            .collect())
    }

    /// Time of the last event, in ns since the epoch; the earliest if there is none.
    fn end(&self) -> Result<i64, String> {
        let view = ArchiveReader::open(self.dir).view();
        let view = view.map_err(|error| cannot(&error))?;
        let id = self.stream.series_id();
        let mut series = view.series().iter();
        let found = series.find(|one| one.id == id && *one.node == *self.node);
        Ok(found.map_or(i64::MIN, |one| one.known.to))
    }

    fn each_since(&self, from: i64, mut each: impl FnMut(&Sample)) -> Result<(), String> {
        let view = ArchiveReader::open(self.dir).view();
        let view = view.map_err(|error| cannot(&error))?;
        let id = self.stream.series_id();
        let mut series = view.series().iter();
        let Some(place) = series.position(|one| one.id == id && *one.node == *self.node) else {
            return Ok(());
        };
        let (span, places) = (Span { from, ..Span::ALL }, [place]);
        for chunk in view.scan(&places, span, &AtomicBool::new(false)) {
            let columns = chunk.map_err(|error| cannot(&error))?.columns;
            (0..columns.len())
                .filter_map(|row| columns.sample(row))
                .for_each(|sample| each(&sample));
        }
        Ok(())
    }
}

fn cannot(error: &dyn ToString) -> String {
    format!("its history cannot be read: {}", error.to_string())
}

fn index_of(sample: &Sample) -> u64 {
    match &sample.value {
        Value::Bytes(record) => EventRecord::read(record).map_or(0, |record| record.index),
        _ => 0,
    }
}
