//! From records to samples: their order, their streams, their values.

use barograph_archive::Mark;
use barograph_model::{StreamKey, Value};
use barograph_stream::Incarnation;
use barograph_stream::ingest::{Payload, Record};

use super::super::value::value_of;
use super::{Publication, Target};

/// A ring's records are in order, whatever the clocks say; and what follows a frame is later than it.
pub fn in_order(reached: &mut Vec<i64>, ring: usize, ts: i64, is_frame: bool) -> i64 {
    if reached.len() <= ring {
        reached.resize(ring + 1, i64::MIN);
    }
    let ts = ts.max(reached[ring]);
    reached[ring] = ts.saturating_add(i64::from(is_frame));
    ts
}

/// Where a record goes, and as what; `None` when it makes no sense.
pub fn place(
    record: &Record<'_>,
    publications: &[Publication],
    targets: &[Target],
) -> Option<(usize, StreamKey, Value)> {
    if let Payload::Frame(number) = record.payload {
        let at = record.series as usize;
        let key = publications.get(at)?.frames?;
        return Some((at, key, Value::Int(number as i64)));
    }
    let target = targets.get(record.series as usize)?;
    let value = value_of(record.payload, target.value_type, target.bytes_max)?;
    Some((target.publication, target.key?, value))
}

/// How far the ring was read with a record.
pub fn mark_of(record: &Record<'_>, incarnation: Incarnation) -> Mark {
    Mark {
        incarnation,
        ring: record.ring,
        position: record.next,
    }
}
