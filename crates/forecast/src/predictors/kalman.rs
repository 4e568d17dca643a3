//! The local linear trend, by Kalman filters; the one with the likeliest noise ratios is followed.

use super::{JUMP_MAX, finite_or, least, moved, without_dust};
use crate::Predictor;

/// Filters that run side by side, each with noise ratios of its own.
const FILTERS: usize = 4;
/// Variance of the level's disturbance, in variances of the observation noise: a walk that drifts,
/// and three smooth trends without a disturbance of the level.
const LEVEL_NOISE: [f64; FILTERS] = [8.0, 0.0, 0.0, 0.0];
/// Variance of the slope's disturbance, in the same unit: from a trend that hardly turns to one
/// that turns freely.
const SLOPE_NOISE: [f64; FILTERS] = [1e-3, 1e-4, 1e-2, 1.0];
/// Variance of an unknown state, in variances of the observation noise.
const DIFFUSE: f64 = 1e7;
/// Weight of a new innovation in the mean: some sixty steps are remembered.
const RECENT: f64 = 1.0 / 64.0;

/// The local linear trend model (Durbin and Koopman, Time Series Analysis by State Space Methods,
/// 2nd edition, 3.2): a level that moves by a slope, a slope that wanders, and observation noise.
///
/// The ratios of variances decide what a filter does, the variance itself only scales its error. It
/// is therefore concentrated out of the likelihood (Harvey, Forecasting, Structural Time Series
/// Models and the Kalman Filter, 3.4): with innovations `v` of variance `σ² F`, the estimate of
/// `σ²` is the mean of `v² / F`, and the likeliest ratios have the least `σ² F`. Here the mean
/// forgets, since streams change.
#[derive(Clone, Debug)]
pub struct Kalman {
    level: [f64; FILTERS],
    slope: [f64; FILTERS],
    /// Covariance of level and slope, in variances of the observation noise.
    level_level: [f64; FILTERS],
    level_slope: [f64; FILTERS],
    slope_slope: [f64; FILTERS],
    /// The estimate of `σ²`.
    noise: [f64; FILTERS],
    /// Number of innovations in [`Kalman::noise`], as far as it remembers.
    seen: f64,
    followed: usize,
    last: f64,
    /// Number of values since the beginning or the last gap: two make a slope.
    values: u8,
}

impl Default for Kalman {
    fn default() -> Self {
        Self {
            level: [0.0; FILTERS],
            slope: [0.0; FILTERS],
            level_level: [0.0; FILTERS],
            level_slope: [0.0; FILTERS],
            slope_slope: [DIFFUSE; FILTERS],
            noise: [0.0; FILTERS],
            seen: 0.0,
            followed: 0,
            last: 0.0,
            values: 0,
        }
    }
}

impl Kalman {
    /// The variance of the error of [`Predictor::predict`] by the model, with the noise of the
    /// observation. 0 before the third value. It is as right as the model.
    pub fn variance(&self, steps: u32) -> f64 {
        let at = self.followed;
        let h = f64::from(steps.max(1));
        // Sums over the disturbances of the steps between (Harvey, 4.6: forecast mean square
        // error).
        let state = self.level_level[at]
            + 2.0 * h * self.level_slope[at]
            + h * h * self.slope_slope[at]
            + h * LEVEL_NOISE[at]
            + h * (h - 1.0) * (2.0 * h - 1.0) / 6.0 * SLOPE_NOISE[at];
        let variance = self.noise[at] * (state + 1.0);
        if variance.is_finite() {
            variance.max(0.0)
        } else {
            f64::MAX
        }
    }

    /// Starts at a level that is `value` up to its noise. The slope is the earlier one, if there
    /// was one, with the variance of an unknown state.
    fn begin(&mut self, value: f64) {
        self.level = [value; FILTERS];
        self.level_level = [1.0; FILTERS];
        self.level_slope = [0.0; FILTERS];
        self.slope_slope = [DIFFUSE; FILTERS];
        self.values = 1;
    }

    /// Advances all filters by one step; returns `F` of each filter.
    fn filter(&mut self, value: f64) -> [f64; FILTERS] {
        let mut spread = [0.0; FILTERS];
        // Until the slope is known, an innovation gives no information about the noise.
        let counts = if self.values > 2 { 1.0 } else { 0.0 };
        self.seen += counts * (1.0 - RECENT * self.seen);
        // A plain mean at first, so that the start is not weighted as if there had been zeros
        // before.
        let share = counts / self.seen.max(1.0);
        for at in 0..FILTERS {
            let expected = self.level[at] + self.slope[at];
            let innovation = without_dust(value - expected);
            let (slope_slope, level_slope) = (self.slope_slope[at], self.level_slope[at]);
            let level_level =
                self.level_level[at] + 2.0 * level_slope + slope_slope + LEVEL_NOISE[at];
            let level_slope = level_slope + slope_slope;
            let slope_slope = slope_slope + SLOPE_NOISE[at];
            let f = level_level + 1.0;
            let inverse = 1.0 / f;
            let (gain_level, gain_slope) = (level_level * inverse, level_slope * inverse);
            self.level[at] = expected + gain_level * innovation;
            self.slope[at] = without_dust(self.slope[at] + gain_slope * innovation);
            // With an observation noise of 1, (1 - gain) P equals the gain.
            self.level_level[at] = gain_level;
            self.level_slope[at] = gain_slope;
            self.slope_slope[at] = slope_slope - gain_slope * level_slope;
            self.noise[at] = moved(self.noise[at], innovation * innovation * inverse, share);
            spread[at] = f;
        }
        spread
    }
}

impl Predictor for Kalman {
    fn name(&self) -> &'static str {
        "kalman"
    }

    fn observe(&mut self, value: f64) {
        let jump = value - self.last;
        self.last = value;
        if self.values == 0 || jump.abs() >= JUMP_MAX {
            self.begin(value);
            return;
        }
        self.values = self.values.saturating_add(1);
        let spread = self.filter(value);
        let mut misfit = [0.0; FILTERS];
        for at in 0..FILTERS {
            misfit[at] = self.noise[at] * spread[at];
        }
        self.followed = least(&misfit);
        // An innovation is too large to be squared: no state can be trusted any more.
        if !misfit.iter().sum::<f64>().is_finite() {
            *self = Self {
                last: value,
                ..Self::default()
            };
            self.begin(value);
        }
    }

    fn predict(&self, steps: u32) -> f64 {
        let expected =
            self.level[self.followed] + f64::from(steps.max(1)) * self.slope[self.followed];
        finite_or(expected, self.last)
    }

    /// Keeps ratios and noise. The slope starts again at 0, with the variance of an unknown state.
    fn forget(&mut self) {
        if self.values > 0 {
            self.values = 0;
            self.level = [self.last; FILTERS];
            self.slope = [0.0; FILTERS];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn fed(values: impl IntoIterator<Item = f64>) -> Kalman {
        let mut kalman = Kalman::default();
        values.into_iter().for_each(|value| kalman.observe(value));
        kalman
    }

    #[test]
    fn nothing_one_value_two_values() {
        assert_eq!(fed([]).predict(1), 0.0);
        assert_eq!(fed([5.0]).predict(9), 5.0);
        assert!((fed([5.0, 7.0]).predict(1) - 9.0).abs() < 1e-3);
    }

    #[test]
    fn a_ramp_is_exact_at_any_horizon_and_has_no_variance() {
        let kalman = fed((0..100).map(|step| 1000.0 + 7.0 * f64::from(step)));
        assert!((kalman.predict(64) - (1000.0 + 7.0 * 163.0)).abs() < 1e-3);
        assert!(kalman.variance(1) < 1e-3, "{}", kalman.variance(1));
        assert_eq!(fed([3.0; 50]).variance(64), 0.0);
    }

    #[test]
    fn the_ratio_is_that_of_the_noise() {
        let mut random = Random::new(7);
        let noisy_ramp = fed((0..500).map(|step| f64::from(step) + 3.0 * random.normal()));
        assert_eq!(noisy_ramp.followed, 1);
        let (mut at, mut slope) = (0.0, 0.0);
        let turning = fed((0..500).map(|_| {
            slope += random.normal();
            at += slope;
            at
        }));
        assert_eq!(turning.followed, 3);
        let mut at = 0.0;
        let walk = fed((0..500).map(|_| {
            at += random.normal();
            at
        }));
        assert_eq!(walk.followed, 0);
    }

    /// On series of the model itself, the variance equals that of the errors, at one step and at
    /// several.
    #[test]
    fn the_variance_is_the_errors() {
        for (horizon, seed) in [(1, 1), (4, 2), (16, 3)] {
            let mut random = Random::new(seed);
            let mut kalman = Kalman::default();
            let mut level = 0.0;
            let mut asked = Vec::new();
            let (mut said, mut made, mut count) = (0.0, 0.0, 0.0);
            for step in 0..20_000 {
                level += random.normal();
                let value = level + 0.3 * random.normal();
                if step >= 200 + horizon {
                    let (expected, variance): (f64, f64) = asked[step - horizon];
                    said += variance;
                    made += (value - expected) * (value - expected);
                    count += 1.0;
                }
                kalman.observe(value);
                asked.push((
                    kalman.predict(horizon as u32),
                    kalman.variance(horizon as u32),
                ));
            }
            let ratio = said / made;
            assert!((0.7..1.6).contains(&ratio), "{horizon}: {ratio} of {count}");
        }
    }

    #[test]
    fn a_level_that_jumped_out_of_range_begins_anew() {
        let mut kalman = fed([0.0, 1e200, -1e308, 1e308, 5.0, 5.0, 5.0]);
        assert_eq!(kalman.predict(1), 5.0);
        (0..50).for_each(|step| kalman.observe(f64::from(step)));
        assert!((kalman.predict(1) - 50.0).abs() < 1e-3);
    }
}
