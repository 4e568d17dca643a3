//! From records to samples: time, order, stream and value of each.

use barograph_model::{NS_PER_S, StreamKey, Value};
use barograph_stream::ingest::{IngestFile, IngestRecord, RecordPayload, TimeSource};

use super::super::age::{AFTER_NS_MAX, AGE_NS_MAX};
use super::super::timing::TickClock;
use super::super::value::value_of;
use super::{Publication, Target};

/// A put is at most this long before its process began.
const BEFORE_NS_MAX: i64 = NS_PER_S;

/// The times of the records of one look; times outside of the range of a put are moved to its ends.
pub(super) struct RecordTimes<'t> {
    timing: &'t TickClock,
    source: TimeSource,
    oldest: i64,
    latest: i64,
    /// Greatest error of the times so far, in ns; none if there were no valid times.
    pub error_ns: Option<i64>,
}

impl<'t> RecordTimes<'t> {
    pub(super) fn new(file: &IngestFile, timing: &'t TickClock, now_ns: i64) -> Self {
        // Puts go on while they are read, and clocks differ a little.
        let latest = now_ns.saturating_add(AFTER_NS_MAX);
        let oldest = file.created_ns().saturating_sub(BEFORE_NS_MAX);
        Self {
            timing,
            source: file.time_source(),
            oldest: oldest.clamp(latest.saturating_sub(AGE_NS_MAX), latest),
            latest,
            error_ns: None,
        }
    }

    /// The time of a record. A time that is out of range is moved, and does not count for the
    /// error.
    pub(super) fn of(&mut self, time: u64) -> i64 {
        let ts = self.timing.ns_of(self.source, time);
        if (self.oldest..=self.latest).contains(&ts) {
            let error_ns = self.timing.error_ns(self.source, time);
            self.error_ns = self.error_ns.max(Some(error_ns));
        }
        ts.clamp(self.oldest, self.latest)
    }
}

/// Makes the times of a ring's records ascend, whatever the clocks did; a record after a frame is
/// later than it.
pub(super) fn in_order(reached: &mut Vec<i64>, ring: usize, ts: i64, is_frame: bool) -> i64 {
    if reached.len() <= ring {
        reached.resize(ring + 1, i64::MIN);
    }
    let ts = ts.max(reached[ring]);
    reached[ring] = ts.saturating_add(i64::from(is_frame));
    ts
}

/// The destination of a record.
pub(super) enum RecordPlace {
    /// Publication, stream and value.
    At(usize, StreamKey, Value),
    /// The record belongs to a declaration that was refused.
    Refused,
    /// The record is malformed.
    None,
}

/// The destination of a record.
#[inline]
pub(super) fn place(
    record: &IngestRecord<'_>,
    publications: &[Publication],
    targets: &[Target],
) -> RecordPlace {
    let at = record.series as usize;
    let (publication, key, value) = if let RecordPayload::Frame(number) = record.payload {
        let Some(publication) = publications.get(at) else {
            return RecordPlace::None;
        };
        (at, publication.frames, Value::Int(number as i64))
    } else {
        let Some(target) = targets.get(at) else {
            return RecordPlace::None;
        };
        let Some(value) = value_of(record.payload, target.value_type, target.bytes_max) else {
            return RecordPlace::None;
        };
        (target.publication, target.key, value)
    };
    key.map_or(RecordPlace::Refused, |key| {
        RecordPlace::At(publication, key, value)
    })
}
