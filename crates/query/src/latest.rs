//! `latest`: the newest sample of each stream, as a table and as a function: `latest('disk.*',
//! allow_predicted => 1)`.
//!
//! It stands alone because it is both: without arguments it returns all streams, as measured.

use std::sync::Arc;

use barograph_model::{Sample, predicted_sample, projections_among};
use rusqlite::Result;

use crate::cell::{Cell, Row};
use crate::listing::{Arguments, Batches, per_stream};
use crate::live::Live;
use crate::matching::selector;
use crate::snapshot::Snapshot;
use crate::stream::Stream;

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
fn predicted(snapshot: &Snapshot, stream: &Stream, now_ns: i64) -> Option<Sample> {
    let descriptor = &stream.entry.descriptor;
    let all = projections_among(&snapshot.streams, |s| &s.entry.descriptor, descriptor);
    let said = all.iter().find(|said| said.node == stream.node)?;
    let (newest, _) = said.latest()?;
    predicted_sample(&newest.value, said.looked_ns(newest.ts), now_ns)
}

fn row(stream: &Stream, sample: &Sample, looked_ns: i64, now_ns: i64) -> Row {
    // Unknown errors are NULL, as in `forecast`.
    let is_known = sample.error != f32::INFINITY;
    vec![
        stream.name().into(),
        stream.labels_json().into(),
        sample.ts.into(),
        (&sample.value).into(),
        sample.quality.as_str().into(),
        Cell::from(is_known.then_some(f64::from(sample.error))),
        Arc::clone(&stream.node).into(),
        looked_ns.into(),
        now_ns.saturating_sub(looked_ns).into(),
        stream.unit().into(),
    ]
}
