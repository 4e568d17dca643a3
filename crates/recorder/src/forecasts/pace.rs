//! The forecast step of a stream whose program puts to it at no known interval.

use std::ops::RangeInclusive;

use barograph_model::Sample;

/// Number of puts after which the step is chosen.
const PUTS: usize = 32;
/// Range of a step in ns: a millisecond to a minute.
const STEP_NS: RangeInclusive<i64> = 1_000_000..=60_000_000_000;

/// The first puts of a stream, kept until the step is known; then they are observed.
#[derive(Debug, Default)]
pub(super) struct FirstPuts {
    puts: Vec<Sample>,
}

impl FirstPuts {
    /// Keeps one more put. Once there are enough, returns the step, which is the median of the
    /// gaps, and all puts so far.
    pub(super) fn put(&mut self, sample: &Sample) -> Option<(i64, Vec<Sample>)> {
        self.puts.push(sample.clone());
        if self.puts.len() < PUTS {
            return None;
        }
        let puts = std::mem::take(&mut self.puts);
        let gap = |pair: &[Sample]| pair[1].ts.saturating_sub(pair[0].ts);
        let mut gaps: Vec<i64> = puts.windows(2).map(gap).collect();
        let middle = gaps.len() / 2;
        let (_, median_ns, _) = gaps.select_nth_unstable(middle);
        Some(((*median_ns).clamp(*STEP_NS.start(), *STEP_NS.end()), puts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(ts: impl Fn(i64) -> i64, expect: i64) {
        let mut pace = FirstPuts::default();
        let mut told = (0..).filter_map(|at| pace.put(&Sample::measured(ts(at), at)));
        let (step_ns, puts) = told.next().unwrap();
        assert_eq!((step_ns, puts.len()), (expect, PUTS));
    }

    #[test]
    fn the_median_of_gaps_is_the_step() {
        check(|at| at * 250_000_000, 250_000_000);
        // Now and then there is no put for an hour, or there are two at once.
        check(|at| at * 2_000_000 + at / 9 * 3_600_000_000_000, 2_000_000);
        check(|at| (at - at % 4 / 3) * 5_000_000, 5_000_000);
        // The step is bounded.
        check(|at| at, 1_000_000);
        check(|_| 7, 1_000_000);
        check(|at| -at, 1_000_000);
        check(|at| at * 600_000_000_000, 60_000_000_000);
        check(
            |at| if at % 2 == 0 { i64::MIN } else { i64::MAX },
            60_000_000_000,
        );
    }
}
