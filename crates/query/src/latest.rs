//! `latest`: the newest sample of each stream, as a table and as a function: `latest('disk.*',
//! allow_predicted => 1)`.
//!
//! It stands alone because it is both: without arguments it returns all streams, as measured.

use std::sync::Arc;

use barograph_model::{Sample, predicted_sample, projections_among};
use rusqlite::Result;

use crate::listing::{Arguments, Batches, per_stream, table};
use crate::live::Live;
use crate::matching::selector;
use crate::shape::age_ns;
use crate::snapshot::StreamsSnapshot;
use crate::stream::SnapshotStream;

/// A row for each stream that matches and has a sample.
pub(crate) fn latest(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let selector = match arguments.int(0) {
        Ok(None) => None,
        _ => Some(selector(arguments)?),
    };
    let allow_predicted = arguments.int(1)?.is_some_and(|allowed| allowed != 0);
    let now_ns = live.now_ns();
    per_stream(live, move |snapshot, stream| {
        let is_meant = selector.as_ref().is_none_or(|selector| {
            selector.matches(stream.name(), &stream.entry.descriptor.labels)
        });
        if !is_meant {
            return None;
        }
        let (measured, _) = stream.latest()?;
        let looked_ns = stream.looked_ns(measured.ts);
        let predicted = (allow_predicted && looked_ns < now_ns)
            .then(|| predicted(snapshot, stream, now_ns))
            .flatten();
        Some(row(
            stream,
            &predicted.unwrap_or(measured),
            looked_ns,
            now_ns,
        ))
    })
}

/// The value that is predicted for now.
pub(crate) fn predicted(
    snapshot: &StreamsSnapshot,
    stream: &SnapshotStream,
    now_ns: i64,
) -> Option<Sample> {
    let descriptor = &stream.entry.descriptor;
    let all = projections_among(&snapshot.streams, |s| &s.entry.descriptor, descriptor);
    let said = all.iter().find(|said| said.node == stream.node)?;
    let (newest, _) = said.latest()?;
    predicted_sample(&newest.value, said.looked_ns(newest.ts), now_ns)
}

table! {
    LATEST_COLUMNS, fn row(stream: &SnapshotStream, sample: &Sample, looked_ns: i64, now_ns: i64),
    "name" "TEXT" = stream.name();
    "labels" "TEXT" = stream.labels_json();
    "ts" "INTEGER" = sample.ts;
    "value" "" = &sample.value;
    "quality" "TEXT" = sample.quality.as_str();
    // Unknown errors are NULL, as in `forecast`.
    "error" "REAL" = (sample.error != f32::INFINITY).then_some(f64::from(sample.error));
    "node" "TEXT" = Arc::clone(&stream.node);
    "looked" "INTEGER" = looked_ns;
    "age_ns" "INTEGER" = age_ns(now_ns, looked_ns);
    "unit" "TEXT" = stream.unit();
}
