//! `topk`: the series with the largest values, now or over a span.

use std::sync::Arc;

use barograph_model::{NS_PER_S, Sample, Span, Value};
use rusqlite::Result;

use super::span;
use crate::cell::CellRow;
use crate::cell::SeriesCells;
use crate::feed::apart;
use crate::held;
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::matching::{matching, selector};
use crate::reading::{KnownSeries, Reading, around};

/// Length of the buckets from which means over a span are made, in ns: they come from a tier if the
/// series has it.
const STEP_NS: i64 = 3_600 * NS_PER_S;

pub(super) fn topk(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let k = arguments.int(1)?.and_then(|k| usize::try_from(k).ok());
    let k = k.ok_or_else(|| arguments.wrong(1, "a number of rows"))?;
    let span = span(live, arguments, 2)?;
    let is_spanned = span != Span::ALL;
    let selector = selector(arguments)?;
    let ranked = if is_spanned {
        let reading = Arc::new(matching(live, &selector, around(span))?);
        let of = Arc::clone(&reading);
        let threads = live.threads();
        let budget = live.memory.budget();
        let means = apart(live, move |cancel| {
            let all = of.buckets(span, STEP_NS, threads, cancel, &budget)?;
            Ok(all.iter().map(mean).collect::<Vec<_>>())
        })?;
        rank(&reading, means, k)
    } else if live.is_archive_alone() {
        let reading = Arc::new(matching(live, &selector, span)?);
        let of = Arc::clone(&reading);
        let newest = apart(live, move |cancel| held::newest(&of, cancel))?;
        let newest = newest.into_iter().map(|held| Some(held?.sample)).collect();
        rank(&reading, newest, k)
    } else {
        newest_of_rings(live, &selector, k)?
    };
    Ok(Box::new(std::iter::once(Ok(ranked))))
}

/// The mean over the time in which values held, with the time of the last bucket; the mean over
/// samples if no such time is known.
fn mean(buckets: &barograph_model::Buckets) -> Option<Sample> {
    let weighted = |weights: &[u64]| {
        let known = buckets.mean.iter().zip(weights);
        let known = known.filter(|(mean, weight)| !mean.is_nan() && **weight > 0);
        let of = |(sum, all), (mean, weight): (&f64, &u64)| {
            let weight = *weight as f64;
            (sum + mean * weight, all + weight)
        };
        let (sum, all) = known.fold((0.0, 0.0), of);
        (all > 0.0).then(|| sum / all)
    };
    let mean = weighted(&buckets.held_ns).or_else(|| weighted(&buckets.count))?;
    Some(Sample::derived(*buckets.ts.last()?, mean))
}

fn rank(reading: &Reading, samples: Vec<Option<Sample>>, k: usize) -> Vec<CellRow> {
    let found = reading.series.iter().zip(samples);
    let mut found: Vec<(f64, Sample, &KnownSeries)> = found
        .filter_map(|(known, sample)| {
            let sample = sample?;
            Some((number(&sample.value)?, sample, known))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(k);
    let row = |(_, sample, known): &(f64, Sample, &KnownSeries)| {
        row_of(sample, &known.cells(), known.descriptor.unit.as_str())
    };
    found.iter().map(row).collect()
}

/// The newest values are in the rings, so the archive is not read.
fn newest_of_rings(
    live: &Live,
    selector: &barograph_model::Selector,
    k: usize,
) -> Result<Vec<CellRow>> {
    let snapshot = live.current().map_err(crate::error::failed)?;
    let mut found: Vec<_> = snapshot
        .streams
        .iter()
        .filter(|s| selector.matches(s.name(), &s.entry.descriptor.labels))
        .filter_map(|stream| {
            let (sample, _) = stream.latest()?;
            Some((number(&sample.value)?, sample, stream))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.truncate(k);
    let row = |(_, sample, stream): &(f64, Sample, &Arc<crate::stream::SnapshotStream>)| {
        row_of(sample, &stream.cells(), stream.unit())
    };
    Ok(found.iter().map(row).collect())
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| !number.is_nan())
}

fn row_of(sample: &Sample, identity: &SeriesCells, unit: &str) -> CellRow {
    let [name, labels, node] = identity.cells();
    let value = (&sample.value).into();
    vec![name, labels, sample.ts.into(), value, unit.into(), node]
}
