//! `quantile`: exact, over every sample of a span.

use std::sync::Arc;

use barograph_model::Quality;
use rusqlite::Result;

use super::{identities, matching, selector, span};
use crate::feed::apart;
use crate::listing::{Arguments, Batches};
use crate::live::Live;

pub(super) fn quantile(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let q = arguments.real(1)?;
    if !(0.0..=1.0).contains(&q) {
        return Err(arguments.wrong(1, "between 0 and 1"));
    }
    let span = span(live, arguments, 2)?;
    let reading = Arc::new(matching(live, &selector(arguments)?, span)?);
    let identities = identities(&reading);
    let memory = Arc::clone(&live.memory);
    let found = apart(live, move |cancel| {
        let mut numbers: Vec<Vec<f64>> = vec![Vec::new(); reading.series.len()];
        let (mut claim, mut held) = (memory.claim(), 0);
        let mut fault = None;
        reading.each(span, cancel, &mut |chunk| {
            let values = &chunk.columns.values;
            let quality = &chunk.columns.quality;
            // A last look repeats the sample before it.
            let looks = (0..values.len()).filter(|row| quality[*row] != Quality::Ended);
            let known = looks.filter_map(|row| values.number(row));
            let before = numbers[chunk.series].capacity();
            numbers[chunk.series].extend(known.filter(|v| !v.is_nan()));
            held += (numbers[chunk.series].capacity() - before) * size_of::<f64>();
            fault = claim.set(held).err();
            Ok(fault.is_none())
        })?;
        let found = numbers.into_iter().map(|mut numbers| {
            let count = numbers.len();
            (nearest_quantile(&mut numbers, q), count)
        });
        // The fault is SQLite's to carry: it says that memory is short.
        Ok(fault.map_or_else(|| Ok(found.collect::<Vec<_>>()), Err))
    })??;
    let rows = identities.into_iter().zip(found);
    let row = |(identity, (value, count)): (super::Identity, (Option<f64>, usize))| {
        let [name, labels, node] = identity.cells();
        Some(vec![
            name,
            labels,
            value?.into(),
            (count as i64).into(),
            node,
        ])
    };
    Ok(Box::new(std::iter::once(Ok(rows
        .filter_map(row)
        .collect()))))
}

/// The quantile between the two nearest values, linearly.
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
    // Without the case of equality the difference of two infinities would be NaN.
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
