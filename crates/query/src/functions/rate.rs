//! `rate`: the change of values per second, from sample to sample or from bucket to bucket.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use barograph_model::{Buckets, Kind, NS_PER_S, Quality, Sample, Span, Value};
use rusqlite::Result;

use super::history::FeedRows;
use super::{OfBuckets, buckets, identities, runs, span, step};
use crate::cell::CellRow;
use crate::cell::SeriesCells;
use crate::feed::BatchFeed;
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::matching::{matching, selector};
use crate::reading::around;

pub(super) fn rate(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let span = span(live, arguments, 1)?;
    let step = step(arguments, 3)?;
    // Whole buckets, and the one before the first: its last value is where the first begins.
    let read = step.map_or(span, |step| Span {
        from: bucket_of(span.from, step).saturating_sub(step),
        to: span.to,
    });
    let reading = step.map_or(read, |_| around(read));
    let reading = Arc::new(matching(live, &selector(arguments)?, reading)?);
    let identities = identities(&reading);
    let is_counter: Vec<bool> = reading
        .series
        .iter()
        .map(|known| known.descriptor.kind == Kind::Counter)
        .collect();
    if let Some(step) = step {
        let (all, budget) = buckets(live, &reading, read, step)?;
        let first = bucket_of(span.from, step);
        let series = identities.into_iter().zip(is_counter).zip(all);
        let rows = series.flat_map(move |((identity, is_counter), buckets)| {
            // The very first bucket has none before it.
            let from = buckets.ts.partition_point(|ts| *ts < first).max(1);
            runs(from.min(buckets.len())..buckets.len())
                .map(move |rows| Ok(between_buckets(&buckets, rows, step, is_counter, &identity)))
        });
        return Ok(Box::new(OfBuckets {
            rows,
            _budget: budget,
        }));
    }
    let feed = BatchFeed::start(live, &reading, span, None)?;
    let mut before: HashMap<usize, Sample> = HashMap::new();
    Ok(Box::new(FeedRows::new(feed, move |chunk, row| {
        let after = chunk.columns.sample(row)?;
        let series = chunk.series;
        let is_again = |before: &Sample| before.ts == after.ts;
        if after.quality == Quality::Ended && before.get(&series).is_some_and(is_again) {
            return None; // The look that found the sample was the last one.
        }
        let before = before.insert(series, after.clone())?;
        let value = per_second(&before, &after, is_counter[series]);
        Some(row_of(after.ts, value, &identities[series]))
    })))
}

/// The start of the bucket that contains a time.
fn bucket_of(ts: i64, step_ns: i64) -> i64 {
    ts.saturating_sub(ts.rem_euclid(step_ns))
}

fn between_buckets(
    buckets: &Buckets,
    rows: Range<usize>,
    step_ns: i64,
    is_counter: bool,
    identity: &SeriesCells,
) -> Vec<CellRow> {
    // The bucket's last value and its time: of a bucket without a successor, only the beginning may
    // be known.
    let last = |row: usize| {
        let value = buckets.last.get(row)?;
        let start = buckets.ts[row];
        let is_followed = buckets.ts.get(row + 1) == start.checked_add(step_ns).as_ref();
        let held_ns = i64::try_from(buckets.held_ns[row]).unwrap_or(step_ns);
        let long_ns = if is_followed {
            step_ns
        } else {
            held_ns.min(step_ns)
        };
        Some(Sample::measured(start.saturating_add(long_ns), value))
    };
    let change = |row: usize| {
        let (before, after) = (last(row - 1)?, last(row)?);
        // With less than half a step too little is known: the time between looks is as long as the
        // time that has passed.
        let is_told = (after.ts - buckets.ts[row]).saturating_mul(2) >= step_ns;
        let value = per_second(&before, &after, is_counter).filter(|_| is_told);
        Some(row_of(buckets.ts[row], value, identity))
    };
    rows.filter_map(change).collect()
}

fn row_of(ts: i64, value: Option<f64>, identity: &SeriesCells) -> CellRow {
    let [name, labels, node] = identity.cells();
    vec![ts.into(), value.into(), name, labels, node]
}

fn per_second(before: &Sample, after: &Sample, is_counter: bool) -> Option<f64> {
    let seconds = after.ts.checked_sub(before.ts).filter(|ns| *ns > 0)? as f64 / NS_PER_S as f64;
    let change = match (&before.value, &after.value) {
        // Subtract as integers if possible: large counters have small differences.
        (Value::Int(a), Value::Int(b)) => b
            .checked_sub(*a)
            .map_or(*b as f64 - *a as f64, |d| d as f64),
        (a, b) => b.as_f64()? - a.as_f64()?,
    };
    (!is_counter || change >= 0.0).then_some(change / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let check =
            |from: (i64, Value), to: (i64, Value), is_counter: bool, expect: Option<f64>| {
                let (a, b) = (
                    Sample::measured(from.0, from.1),
                    Sample::measured(to.0, to.1),
                );
                assert_eq!(per_second(&a, &b, is_counter), expect, "{a:?} {b:?}");
            };
        let s = NS_PER_S;
        check((0, 10.into()), (2 * s, 30.into()), true, Some(10.0));
        check((0, 30.into()), (s, 10.into()), true, None);
        check((0, 30.into()), (s, 10.into()), false, Some(-20.0));
        check((s, 1.into()), (s, 2.into()), true, None);
        check((s, 1.into()), (0, 2.into()), true, None);
        let big = i64::MAX - 8;
        check((0, big.into()), (s, (big + 8).into()), true, Some(8.0));
        check((0, Value::text("a")), (s, Value::text("b")), false, None);
    }
}
