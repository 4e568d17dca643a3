//! The last event of a source that its archive has: the source goes on after it.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use barograph_archive::ArchiveReader;
use barograph_event::EventRecord;
use barograph_model::{Descriptor, NS_PER_S, Sample, Span, Value};

/// Time before the end of a series in which its last event is looked for first, in ns.
const LAST_NS: i64 = 60 * NS_PER_S;

/// The greatest number of an event of this stream; 0 if the archive has none.
///
/// # Errors
///
/// The archive cannot be read now: a source that began anew would count its events twice.
pub(super) fn last_index(dir: &Path, node: &str, stream: &Descriptor) -> Result<u64, String> {
    let view = ArchiveReader::open(dir).view();
    let view = view.map_err(|error| format!("its history cannot be read: {error}"))?;
    let id = stream.series_id();
    let mut series = view.series().iter();
    let Some(place) = series.position(|one| one.id == id && *one.node == *node) else {
        return Ok(0);
    };
    let end = view.series()[place].known.to;
    let mut last = 0;
    // Times of events may go back; the last minute nearly always has the last one.
    for from in [end.saturating_sub(LAST_NS), i64::MIN] {
        let (span, places) = (Span { from, ..Span::ALL }, [place]);
        for chunk in view.scan(&places, span, &AtomicBool::new(false)) {
            let columns = chunk.map_err(|error| error.to_string())?.columns;
            let samples = (0..columns.len()).filter_map(|row| columns.sample(row));
            last = samples.map(|sample| index_of(&sample)).fold(last, u64::max);
        }
        if last > 0 {
            break;
        }
    }
    Ok(last)
}

fn index_of(sample: &Sample) -> u64 {
    match &sample.value {
        Value::Bytes(record) => EventRecord::read(record).map_or(0, |record| record.index),
        _ => 0,
    }
}
