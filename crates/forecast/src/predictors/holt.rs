//! Exponential smoothing with a damped trend.

use super::{JUMP_MAX, STEPS_MAX, finite_or, least, moved, without_dust};
use crate::Predictor;

/// Filters that run side by side; the one with the least recent absolute error is followed.
const FILTERS: usize = 4;
/// Smoothing factors of the level: for noisy levels, then for exact ones.
const LEVEL: [f64; FILTERS] = [0.15, 0.5, 1.0, 1.0];
/// Smoothing factors of the trend: for a drift that is weak, and for a clear trend.
const TREND: [f64; FILTERS] = [0.05, 0.2, 0.02, 0.5];
/// The share of a trend that is left a step later: within 0.8 to 0.98, the range of the textbook.
const DAMPING: [f64; FILTERS] = [0.98, 0.98, 0.9, 0.98];
/// Weight of a new error in the mean: some thirty steps are remembered.
const RECENT: f64 = 1.0 / 32.0;
/// A trend of which less than this share is left no longer adds anything.
const SPENT: f64 = 1e-9;

/// Holt's linear method with a damped trend (Gardner and McKenzie 1985, Forecasting Trends in Time
/// Series; Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 3rd edition, 8.2).
/// Smoothing and damping are those of the best of a small bank, from sluggish to nervous, instead
/// of a fit.
#[derive(Clone, Debug)]
pub struct Holt {
    level: [f64; FILTERS],
    trend: [f64; FILTERS],
    error: [f64; FILTERS],
    followed: usize,
    last: f64,
    is_begun: bool,
}

impl Default for Holt {
    fn default() -> Self {
        Self {
            level: [0.0; FILTERS],
            trend: [0.0; FILTERS],
            error: [0.0; FILTERS],
            // The middle one, until another is better.
            followed: 2,
            last: 0.0,
            is_begun: false,
        }
    }
}

impl Holt {
    fn begin(&mut self, value: f64) {
        self.level = [value; FILTERS];
        self.trend = [0.0; FILTERS];
        self.is_begun = true;
    }

    /// The forecasts one after the other; both [`Predictor::predict`] and [`Predictor::path`] use
    /// them.
    fn steps(&self) -> impl Iterator<Item = f64> + '_ {
        let damping = DAMPING[self.followed];
        let mut expected = self.level[self.followed];
        let mut trend = self.trend[self.followed];
        let spent = trend.abs() * SPENT;
        std::iter::repeat_with(move || {
            if trend.abs() > spent {
                trend *= damping;
                expected += trend;
            }
            finite_or(expected, self.last)
        })
    }
}

impl Predictor for Holt {
    fn name(&self) -> &'static str {
        "holt"
    }

    fn observe(&mut self, value: f64) {
        let jump = value - self.last;
        self.last = value;
        if !self.is_begun || jump.abs() >= JUMP_MAX {
            self.begin(value);
            return;
        }
        for filter in 0..FILTERS {
            let trend = DAMPING[filter] * self.trend[filter];
            let expected = self.level[filter] + trend;
            let error = value - expected;
            self.level[filter] = expected + LEVEL[filter] * error;
            self.trend[filter] = without_dust(trend + LEVEL[filter] * TREND[filter] * error);
            self.error[filter] = moved(self.error[filter], error.abs(), RECENT);
        }
        self.followed = least(&self.error);
    }

    fn predict(&self, steps: u32) -> f64 {
        let steps = steps.clamp(1, STEPS_MAX) as usize;
        self.steps().nth(steps - 1).unwrap_or(self.last)
    }

    fn path(&self, expected: &mut [f64]) {
        let mut last = self.last;
        let near = self.steps().take(STEPS_MAX as usize).map(Some);
        for (expected, step) in expected.iter_mut().zip(near.chain(std::iter::repeat(None))) {
            last = step.unwrap_or(last);
            *expected = last;
        }
    }

    /// Keeps the followed filter, which was learned from the noise of the stream. The trend is
    /// forgotten with the level.
    fn forget(&mut self) {
        self.is_begun = false;
        self.level = [self.last; FILTERS];
        self.trend = [0.0; FILTERS];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(values: impl IntoIterator<Item = f64>) -> Holt {
        let mut holt = Holt::default();
        values.into_iter().for_each(|value| holt.observe(value));
        holt
    }

    #[test]
    fn nothing_and_one_value() {
        assert_eq!(fed([]).predict(1), 0.0);
        assert_eq!(fed([5.0]).predict(9), 5.0);
    }

    #[test]
    fn a_ramp_is_followed_and_fades_with_the_horizon() {
        let holt = fed((0..200).map(|step| 10.0 + 3.0 * f64::from(step)));
        let (next, far) = (holt.predict(1), holt.predict(STEPS_MAX));
        assert!((next - 610.0).abs() < 1.5, "{next}");
        assert!(far > next && far < 607.0 + 3.0 * f64::from(STEPS_MAX));
        assert_eq!(holt.predict(u32::MAX), far);
    }

    #[test]
    fn noise_around_a_level_is_smoothed_and_a_walk_is_not() {
        let mut random = crate::random::Random::new(4);
        let noise = fed((0..2000).map(|_| 50.0 + random.normal()));
        assert_eq!(noise.followed, 0);
        let mut at = 0.0;
        let walk = fed((0..2000).map(|_| {
            at += random.normal();
            at
        }));
        assert!(walk.followed >= 2, "{}", walk.followed);
    }

    #[test]
    fn after_a_gap_the_level_is_new_and_the_filter_stays() {
        let mut random = crate::random::Random::new(4);
        let mut holt = fed((0..2000).map(|_| 50.0 + random.normal()));
        holt.forget();
        holt.observe(9.0);
        assert_eq!((holt.predict(1), holt.followed), (9.0, 0));
    }
}
