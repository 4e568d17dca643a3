//! `forecast`: the predicted values of streams, evaluated at the present time; and `time_to`: the
//! time until they reach a level.

use std::path::Path;
use std::sync::Arc;

use barograph_model::{
    FORECAST_PREFIX, Knot, Level, NS_PER_S, Pattern, Projection, Quality, Selector, Value,
    duration_ns, seconds,
};
use rusqlite::Result;

use crate::cell::{CellRow, CellValue};
use crate::error::{failed, usage};
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::snapshot::StreamsSnapshot;
use crate::stream::SnapshotStream;

/// The pattern in argument 0. Labels without a name match any name, and a path as `mount` matches
/// the file system that holds it.
fn selector_on(snapshot: &StreamsSnapshot, arguments: &Arguments) -> Result<Selector> {
    let text = arguments.text(0)?;
    let text = match text.trim_start().starts_with('{') {
        true => format!("*{}", text.trim_start()),
        false => text.to_owned(),
    };
    let mut selector = Selector::parse(&text).map_err(|e| usage(e.to_string()))?;
    let streams = snapshot.streams.iter();
    let forecast = streams.filter(|stream| stream.name().starts_with(FORECAST_PREFIX));
    let mounts: Vec<&str> = forecast
        .filter_map(|stream| stream.entry.descriptor.labels.get("mount"))
        .collect();
    for (label, pattern) in &mut selector.labels {
        if label == "mount" && pattern.is_literal() {
            *pattern = Pattern::new(mount_of(pattern.as_str(), &mounts));
        }
    }
    Ok(selector)
}

/// The longest mount that contains the path; the path itself if there is none.
fn mount_of<'a>(path: &'a str, mounts: &[&'a str]) -> &'a str {
    let holding = mounts
        .iter()
        .filter(|mount| Path::new(path).starts_with(mount));
    holding.max_by_key(|mount| mount.len()).unwrap_or(&path)
}

/// A row for each stream that matches, at the horizon, which is counted from now; without a horizon
/// a row for each knot of its projection.
pub(super) fn forecast(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let horizon_ns = horizon(arguments)?;
    let snapshot = live.attend().map_err(failed)?;
    let selector = selector_on(&snapshot, arguments)?;
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
        // A look in the future (the clock was set back) counts as one of now.
        let after_s = seconds(after_ns.max(0));
        rows.extend(projection.at(after_s).map(|knot| said.row(&knot)));
    }
    Ok(Box::new(std::iter::once(Ok(rows))))
}

/// The horizon in ns: an integer, or a duration as text (`30s`, `30 s`, `6h`).
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

/// Time of the last look at the stream, and the projection since then.
fn projection_of(stream: &SnapshotStream) -> Option<(i64, Projection)> {
    let (sample, _) = stream.latest()?;
    let Value::Floats(floats) = &sample.value else {
        return None;
    };
    let looked_ns = stream.looked_ns(sample.ts);
    Some((looked_ns, Projection::from_floats(floats)?))
}

/// A row for each stream that matches: the time from now until it reaches the level.
pub(super) fn time_to(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let level = level(arguments)?;
    let snapshot = live.attend().map_err(failed)?;
    let selector = selector_on(&snapshot, arguments)?;
    let now_ns = live.now_ns();
    let rows = snapshot.streams.iter().filter_map(|stream| {
        let name = stream.name().strip_prefix(FORECAST_PREFIX)?;
        if !selector.matches(name, &stream.entry.descriptor.labels) {
            return None;
        }
        let (looked_ns, projection) =
            projection_of(stream).unwrap_or((now_ns, Projection::default()));
        let elapsed_ns = now_ns.saturating_sub(looked_ns).max(0);
        let now = projection.at(seconds(elapsed_ns));
        let level = level.or_else(|| Level::of_exhaustion(name));
        let total = |total: &str| value_beside(&snapshot, stream, total);
        let level = level.and_then(|level| level.of_stream(name, stream.unit(), total));
        let reach = level.filter(|_| now.is_some());
        let reach = reach.and_then(|level| projection.reaches(level));
        // A level that was to be reached between the look and now counts as reached now.
        let from_now = |after_s: f64| (nanoseconds(after_s).saturating_sub(elapsed_ns)).max(0);
        let cell = |after_s: Option<f64>| CellValue::from(after_s.map(from_now));
        let expected_s = reach.and_then(|reach| reach.expected_s);
        let known_s = projection.known_s().filter(|_| now.is_some());
        let is_calibrated = |after_s: f64| after_s <= known_s.unwrap_or(0.0);
        let basis = expected_s.map(|after_s| match is_calibrated(after_s) {
            true => "calibrated",
            false => "not calibrated",
        });
        let [_, labels, node] = stream.cells().cells();
        Some(vec![
            now_ns.into(),
            name.into(),
            labels,
            level.into(),
            now.map(|now| now.value).into(),
            cell(expected_s),
            cell(reach.and_then(|reach| reach.early_s)),
            cell(reach.and_then(|reach| reach.late_s)),
            basis.map_or(CellValue::Null, CellValue::from),
            cell(known_s),
            stream.unit().into(),
            node,
        ])
    });
    Ok(Box::new(std::iter::once(Ok(rows.collect()))))
}

/// The level: a number in the stream's unit, or a text with a unit; none if it is to be the
/// default.
fn level(arguments: &Arguments) -> Result<Option<Level>> {
    if let Ok(None) = arguments.int(1) {
        return Ok(None);
    }
    let level = match arguments.real(1) {
        Ok(number) if number.is_finite() => Some(Level::Absolute(number)),
        Ok(_) => None,
        Err(_) => Level::parse(arguments.text(1)?).ok(),
    };
    let expected = "a number in the stream's unit, or a text like '10 GiB' or '90 %'";
    level.map_or_else(
        || Err(arguments.wrong(1, expected)),
        |level| Ok(Some(level)),
    )
}

/// The newest value of the stream `name` with the labels and node of stream `beside`.
fn value_beside(snapshot: &StreamsSnapshot, beside: &SnapshotStream, name: &str) -> Option<f64> {
    let labels = &beside.entry.descriptor.labels;
    let order = |stream: &Arc<SnapshotStream>| {
        let (of, has) = stream.sort_key();
        of.as_str().cmp(name).then_with(|| has.cmp(labels))
    };
    let from = snapshot
        .streams
        .partition_point(|stream| order(stream).is_lt());
    let same = snapshot.streams[from..].iter();
    let mut same = same.take_while(|stream| order(stream).is_eq());
    let (sample, _) = same.find(|stream| stream.node == beside.node)?.latest()?;
    sample.value.as_f64()
}

fn nanoseconds(seconds: f64) -> i64 {
    (seconds * NS_PER_S as f64) as i64
}

/// The data that all rows of a stream share.
struct Said<'a> {
    stream: &'a SnapshotStream,
    name: &'a str,
    looked_ns: i64,
}

impl Said<'_> {
    fn row(&self, knot: &Knot) -> CellRow {
        let after_ns = nanoseconds(knot.after_s);
        let [_, labels, node] = self.stream.cells().cells();
        let is_known = knot.half_width.is_finite();
        // The value at the look itself was measured and is no forecast, unless it has an error: a
        // bandwidth is forecast from the first step on.
        let quality = if after_ns == 0 && knot.half_width <= 0.0 {
            Quality::Measured
        } else {
            Quality::Predicted
        };
        vec![
            self.looked_ns.saturating_add(after_ns).into(),
            knot.value.into(),
            is_known.then_some(knot.half_width).into(),
            CellValue::from(quality.as_str()),
            self.name.into(),
            labels,
            self.stream.unit().into(),
            after_ns.into(),
            node,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_that_holds_a_path() {
        let check = |path: &str, expect: &str| {
            assert_eq!(mount_of(path, &["/", "/scratch", "/scratch/a"]), expect);
        };
        check("/scratch/a/b", "/scratch/a");
        check("/scratch/a", "/scratch/a");
        check("/scratch/ab", "/scratch");
        check("/tmp", "/");
        check("tmp", "tmp");
        assert_eq!(mount_of("/tmp", &["/scratch"]), "/tmp");
    }
}
