//! `forecast`: what the agent expects of streams, evaluated at the asker's own time.

use std::sync::Arc;

use barograph_model::{FORECAST_PREFIX, Knot, NS_PER_S, Projection, Quality, Value, duration_ns};
use rusqlite::Result;

use super::{Identity, selector};
use crate::error::failed;
use crate::listing::{Arguments, Batches, Cell, Row};
use crate::live::Live;
use crate::stream::Stream;

/// A row per stream that matches at the horizon, which is counted from now; without one a row per knot of its projection.
pub(super) fn forecast(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let selector = selector(arguments)?;
    let horizon_ns = horizon(arguments)?;
    let snapshot = live.attend().map_err(failed)?;
    let now_ns = live.now_ns();
    let mut rows = Vec::new();
    for stream in &snapshot.streams {
        let Some(name) = stream.name().strip_prefix(FORECAST_PREFIX) else {
            continue;
        };
        if !selector.matches(name, &stream.entry.descriptor.labels) {
            continue;
        }
        let Some((looked_ns, projection)) = projection_of(stream) else {
            continue;
        };
        let said = Said {
            stream,
            name,
            looked_ns,
        };
        let Some(horizon_ns) = horizon_ns else {
            rows.extend(projection.knots().iter().map(|knot| said.row(knot)));
            continue;
        };
        let after_ns = now_ns.saturating_add(horizon_ns).saturating_sub(looked_ns);
        // A clock that was set back makes a look one of the future: it is as good as now.
        let after_s = after_ns.max(0) as f64 / NS_PER_S as f64;
        rows.extend(projection.at(after_s).map(|knot| said.row(&knot)));
    }
    Ok(Box::new(std::iter::once(Ok(rows))))
}

/// Nanoseconds, or a length of time in words (`30s`, `30 s`, `6h`).
fn horizon(arguments: &Arguments) -> Result<Option<i64>> {
    let wrong = || arguments.wrong(1, "a length of time from now, like '30s', or nanoseconds");
    let horizon_ns = match arguments.int(1) {
        Ok(given) => given,
        Err(_) => {
            let text: String = arguments.text(1)?.split_whitespace().collect();
            Some(duration_ns(&text).map_err(|_| wrong())?)
        }
    };
    match horizon_ns {
        Some(negative) if negative < 0 => Err(wrong()),
        horizon_ns => Ok(horizon_ns),
    }
}

/// When the stream was looked at, and what is expected since.
fn projection_of(stream: &Stream) -> Option<(i64, Projection)> {
    let (sample, _) = stream.latest()?;
    let Value::Floats(floats) = &sample.value else {
        return None;
    };
    Some((sample.ts, Projection::from_floats(floats)?))
}

/// What a stream's rows have in common.
struct Said<'a> {
    stream: &'a Stream,
    name: &'a str,
    looked_ns: i64,
}

impl Said<'_> {
    fn row(&self, knot: &Knot) -> Row {
        let after_ns = (knot.after_s * NS_PER_S as f64) as i64;
        let [_, labels, node] = Identity::of_stream(self.stream).cells();
        let is_known = knot.half_width.is_finite();
        // What was seen is no forecast.
        let quality = if after_ns == 0 {
            Quality::Measured
        } else {
            Quality::Predicted
        };
        vec![
            self.looked_ns.saturating_add(after_ns).into(),
            knot.value.into(),
            is_known.then_some(knot.half_width).into(),
            Cell::from(quality.as_str()),
            self.name.into(),
            labels,
            self.stream.unit().into(),
            after_ns.into(),
            node,
        ]
    }
}
