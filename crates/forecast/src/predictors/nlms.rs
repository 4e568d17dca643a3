//! Normalized least mean squares over past differences.

use super::lags::{Lags, dot};
use super::{least, moved};
use crate::Predictor;

/// Step sizes of the filters that run side by side: one that adapts within a few periods, two that
/// filter noise.
const STEP_SIZE: [f64; 3] = [0.5, 0.1, 0.02];
const FILTERS: usize = STEP_SIZE.len();
/// Weight of a new error in the mean: some sixty steps are remembered.
const RECENT: f64 = 1.0 / 64.0;

/// Predicts the next difference as a weighted sum of the last `LAGS`. The weights go down the
/// gradient of each error, in steps of a length that does not depend on the scale (Haykin, Adaptive
/// Filter Theory, 4th edition, 6.1). Of a few step sizes, the one with the least recent absolute
/// error is followed.
///
/// An error is limited to the norm of the lags from which it was predicted, so one outlier moves
/// the weights by at most the step size, whatever its size.
#[derive(Clone, Debug)]
pub struct Nlms<const LAGS: usize = 8> {
    lags: Lags<LAGS>,
    weights: [[f64; LAGS]; FILTERS],
    error: [f64; FILTERS],
    followed: usize,
}

impl<const LAGS: usize> Default for Nlms<LAGS> {
    fn default() -> Self {
        Self {
            lags: Lags::default(),
            weights: [[0.0; LAGS]; FILTERS],
            error: [0.0; FILTERS],
            followed: 0,
        }
    }
}

impl<const LAGS: usize> Nlms<LAGS> {
    fn learn(&mut self, difference: f64) {
        let lags = self.lags.differences();
        let power = dot(lags, lags);
        let norm = power.sqrt();
        let inverse = 1.0 / power;
        let filters = self.weights.iter_mut().zip(&mut self.error);
        for ((weights, mean), step_size) in filters.zip(STEP_SIZE) {
            let error = difference - dot(weights, lags);
            let step = step_size * error.clamp(-norm, norm) * inverse;
            for (weight, lag) in weights.iter_mut().zip(lags) {
                *weight += step * lag;
            }
            *mean = moved(*mean, error.abs(), RECENT);
        }
        self.followed = least(&self.error);
        if !self.error.iter().sum::<f64>().is_finite() {
            self.weights = [[0.0; LAGS]; FILTERS];
            self.error = [0.0; FILTERS];
        }
    }
}

impl<const LAGS: usize> Predictor for Nlms<LAGS> {
    fn name(&self) -> &'static str {
        match LAGS {
            8 => "nlms-8",
            16 => "nlms-16",
            _ => "nlms",
        }
    }

    fn observe(&mut self, value: f64) {
        if let Some(difference) = self.lags.lesson(value) {
            self.learn(difference);
        }
        self.lags.push(value);
    }

    fn predict(&self, steps: u32) -> f64 {
        self.lags.predict(&self.weights[self.followed], steps)
    }

    fn path(&self, expected: &mut [f64]) {
        self.lags.path(&self.weights[self.followed], expected);
    }

    /// Keeps the weights: the pattern of differences is a property of the stream.
    fn forget(&mut self) {
        self.lags.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictors::series;

    #[test]
    fn nothing_and_one_value() {
        let mut nlms = Nlms::<8>::default();
        assert_eq!(nlms.predict(3), 0.0);
        nlms.observe(5.0);
        assert_eq!(nlms.predict(3), 5.0);
    }

    #[test]
    fn the_lag_of_the_period_has_the_weight() {
        let mut nlms = Nlms::<8>::default();
        series::hacc_regular(400)
            .iter()
            .for_each(|value| nlms.observe(*value));
        assert!((nlms.weights[nlms.followed][4] - 1.0).abs() < 0.01);
        let mut path = [0.0; 5];
        nlms.path(&mut path);
        // The 400 values end with a step: the next step is five values later.
        assert!((path[3] - path[0]).abs() < 400.0, "{path:?}");
        assert!((path[4] - path[3] - 38_000.0).abs() < 400.0, "{path:?}");
    }

    #[test]
    fn an_outlier_moves_the_weights_by_no_more_than_the_step_size() {
        let mut nlms = Nlms::<8>::default();
        series::noisy_sine(500)
            .iter()
            .for_each(|value| nlms.observe(*value));
        let before = nlms.weights;
        nlms.observe(1e30);
        for filter in 0..FILTERS {
            let moved: f64 = (0..8)
                .map(|lag| (nlms.weights[filter][lag] - before[filter][lag]).powi(2))
                .sum();
            assert!(moved.sqrt() <= STEP_SIZE[filter] * (1.0 + 1e-9));
        }
    }

    /// Slow filters have the least error if there is only noise; fast ones if the pattern is exact
    /// and new.
    #[test]
    fn the_step_size_is_chosen() {
        let mut noise = Nlms::<8>::default();
        let mut random = crate::random::Random::new(3);
        (0..3000).for_each(|_| noise.observe(random.normal()));
        assert!(noise.followed > 0);
        let mut exact = Nlms::<8>::default();
        series::hacc_regular(60)
            .iter()
            .for_each(|value| exact.observe(*value));
        assert_eq!(exact.followed, 0);
    }
}
