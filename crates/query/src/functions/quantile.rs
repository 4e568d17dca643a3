//! `quantile`: exact quantiles over the time of a span, and over its samples.

use std::sync::Arc;

use barograph_archive::SampleChunk;
use barograph_archive::aggregate::hour_of;
use barograph_model::{Quality, Span};
use rusqlite::Result;

use super::{identities, span};
use crate::cell::SeriesCells;
use crate::feed::apart;
use crate::listing::{Arguments, Batches};
use crate::live::Live;
use crate::matching::{matching, selector};
use crate::reading::around;

/// The values of a series within a span, and how long each held.
struct Held {
    span: Span,
    /// Values with the ns that each held.
    values: Vec<(f64, u64)>,
    /// The values of its samples.
    samples: Vec<f64>,
    /// Life, time and value of the newest sample, unless nobody looked after it.
    newest: Option<(i64, i64, f64)>,
}

/// The quantile over time, the quantile over samples, the number of samples, and the time in ns.
type Found = (Option<f64>, Option<f64>, usize, u64);

pub(super) fn quantile(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let q = arguments.real(1)?;
    if !(0.0..=1.0).contains(&q) {
        return Err(arguments.wrong(1, "between 0 and 1"));
    }
    let span = span(live, arguments, 2)?;
    let reading = Arc::new(matching(live, &selector(arguments)?, around(span))?);
    let identities = identities(&reading);
    let memory = Arc::clone(&live.memory);
    let found = apart(live, move |cancel| {
        let mut all: Vec<Held> = reading.series.iter().map(|_| Held::new(span)).collect();
        let (mut claim, mut bytes) = (memory.claim(), 0);
        let mut fault = None;
        reading.each(around(span), cancel, &mut |chunk| {
            let held = &mut all[chunk.series];
            let before = held.bytes();
            held.add(&chunk);
            bytes += held.bytes() - before;
            fault = claim.set(bytes).err();
            Ok(fault.is_none())
        })?;
        for (known, held) in reading.series.iter().zip(&mut all) {
            if let Some(stream) = &known.stream {
                held.until(stream.life(), stream.looked_ns(i64::MIN));
            }
        }
        // SQLite carries the fault: memory is short.
        let found = all.into_iter().map(|held| held.quantiles(q));
        Ok(fault.map_or_else(|| Ok(found.collect::<Vec<_>>()), Err))
    })??;
    let rows = identities.into_iter().zip(found);
    let row = |(identity, found): (SeriesCells, Found)| {
        let (value, sample_value, count, held_ns) = found;
        let [name, labels, node] = identity.cells();
        Some(vec![
            name,
            labels,
            value?.into(),
            (count as i64).into(),
            node,
            i64::try_from(held_ns).unwrap_or(i64::MAX).into(),
            sample_value.into(),
        ])
    };
    Ok(Box::new(std::iter::once(Ok(rows
        .filter_map(row)
        .collect()))))
}

impl Held {
    fn new(span: Span) -> Self {
        Self {
            span,
            values: Vec::new(),
            samples: Vec::new(),
            newest: None,
        }
    }

    fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<(f64, u64)>()
            + self.samples.capacity() * size_of::<f64>()
    }

    /// Adds samples, which must be of one life and in order.
    fn add(&mut self, chunk: &SampleChunk) {
        let columns = &chunk.columns;
        for (row, ts) in columns.ts.iter().enumerate() {
            self.until(chunk.life, *ts);
            // A last look repeats the sample before it.
            let is_last_look = columns.quality.get(row) == Some(&Quality::Ended);
            let value = columns.values.number(row).filter(|_| !is_last_look);
            self.newest = value.map(|value| (chunk.life, *ts, value));
            let known = value.filter(|value| self.span.holds(*ts) && !value.is_nan());
            self.samples.extend(known);
        }
    }

    /// Adds the time that the newest sample held until `ts`, within the span, if it is of this
    /// life.
    fn until(&mut self, life: i64, ts: i64) {
        let Some((of, since, value)) = self.newest else {
            return;
        };
        let from = since.max(self.span.from);
        let to = ts.min(self.span.to.saturating_add(1));
        // A value does not hold from one hour to the next, as in buckets.
        let is_its = of == life && ts < hour_of(since).to;
        if is_its && from < to && !value.is_nan() {
            self.values.push((value, to.abs_diff(from)));
        }
    }

    fn quantiles(mut self, q: f64) -> Found {
        let count = self.samples.len();
        let of_samples = nearest_quantile(&mut self.samples, q);
        let held_ns = self.values.iter().map(|(_, ns)| ns).sum();
        let over_time = quantile_over_time(&mut self.values, q);
        (over_time.or(of_samples), of_samples, count, held_ns)
    }
}

/// The least value that, together with those below it, held for the share `q` of the time.
fn quantile_over_time(values: &mut [(f64, u64)], q: f64) -> Option<f64> {
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let all: u128 = values.iter().map(|(_, ns)| u128::from(*ns)).sum();
    let wanted = q * all as f64;
    let mut passed = 0_u128;
    let mut of_values = values.iter();
    let found = of_values.find(|(_, ns)| {
        passed += u128::from(*ns);
        passed as f64 >= wanted
    });
    // The last value, if rounding of doubles keeps the sum from being reached.
    found.or(values.last()).map(|(value, _)| *value)
}

/// The quantile, interpolated linearly between the two nearest values.
fn nearest_quantile(values: &mut [f64], q: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let at = q * last as f64;
    let (_, low, above) = values.select_nth_unstable_by(at.floor() as usize, f64::total_cmp);
    let low = *low;
    let high = if at.fract() == 0.0 {
        low
    } else {
        above.iter().copied().min_by(f64::total_cmp)?
    };
    // If both are the same infinity, their difference would be NaN.
    Some(if low == high {
        low
    } else {
        low + (high - low) * at.fract()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_over_time() {
        let check = |values: &[(f64, u64)], q: f64, expect: Option<f64>| {
            let found = quantile_over_time(&mut values.to_vec(), q);
            assert_eq!(found, expect, "{values:?} {q}");
        };
        check(&[], 0.5, None);
        check(&[(3.0, 1)], 0.0, Some(3.0));
        // A burst of one second in ten.
        let burst = [(100.0, 1), (0.0, 9)];
        check(&burst, 0.5, Some(0.0));
        check(&burst, 0.9, Some(0.0));
        check(&burst, 0.91, Some(100.0));
        check(&burst, 1.0, Some(100.0));
    }

    #[test]
    fn what_held_within_a_span() {
        let mut held = Held::new(Span { from: 10, to: 29 });
        held.newest = Some((1, 4, 5.0));
        held.until(2, 20);
        assert_eq!(held.values, [], "another life");
        held.until(1, 20);
        held.newest = Some((1, 20, 7.0));
        held.until(1, 99);
        assert_eq!(held.values, [(5.0, 10), (7.0, 10)]);
        assert_eq!(held.quantiles(0.5), (Some(5.0), None, 0, 20));
    }

    #[test]
    fn quantiles() {
        let check = |values: &[f64], q: f64, expect: Option<f64>| {
            assert_eq!(
                nearest_quantile(&mut values.to_vec(), q),
                expect,
                "{values:?} {q}"
            );
        };
        check(&[], 0.5, None);
        check(&[3.0], 0.9, Some(3.0));
        check(&[4.0, 1.0, 2.0, 3.0], 0.0, Some(1.0));
        check(&[4.0, 1.0, 2.0, 3.0], 0.5, Some(2.5));
        check(&[4.0, 1.0, 2.0, 3.0], 1.0, Some(4.0));
        check(&[f64::INFINITY, f64::INFINITY], 0.5, Some(f64::INFINITY));
    }
}
