//! Recursive least squares over past differences.

use super::lags::{Lags, dot};
use super::{ERROR_MIN, moved};
use crate::Predictor;

/// The share of a step's weight that is left a step later: some two hundred steps are remembered.
const FORGETTING: f64 = 0.995;
/// The ridge, in samples of mean power: it pulls every weight towards 0 like this number of
/// samples.
const RIDGE: f64 = 0.03;
/// Number of samples between ridge steps, each for one weight after the other.
const RIDGE_EVERY: u32 = 4;
/// Largest error that counts in full, in mean errors.
const OUTLIER: f64 = 8.0;
/// Weight of a new error or difference in their means: some sixty steps are remembered.
const RECENT: f64 = 1.0 / 64.0;
/// Largest information of a sample, relative to all before it: beyond it, the matrix has no digits
/// left and starts anew.
const NOVELTY_MAX: f64 = 1e9;

/// Predicts the next difference as the weighted sum of the last `LAGS` that had the least squared
/// error, with old errors counting less and less (Haykin, Adaptive Filter Theory, 4th edition,
/// 9.3).
///
/// The recursion of the textbook winds up: if the lags span few directions (a ramp, a period), the
/// matrix grows without bound in all others. Here a ridge puts information back as fast as it is
/// forgotten, one weight at a time (the leakage of Gay, Dynamically Regularized Fast RLS, ICASSP
/// 1996): the matrix stays below `1 / ridge`, and weights without evidence return to 0, which is
/// persistence. Errors are clipped, as in M-estimators (Zou, Chan and Ng, Least Mean M-Estimate
/// Algorithms, 2000). If a sample is too large for the digits left, the matrix starts anew and the
/// weights stay.
#[derive(Clone, Debug)]
pub struct Rls<const LAGS: usize = 8> {
    lags: Lags<LAGS>,
    weights: [f64; LAGS],
    /// The inverse of the lags' weighted correlation: symmetric to the bit, since `g gᵀ` is
    /// subtracted.
    inverse: [[f64; LAGS]; LAGS],
    /// Mean square of a difference; 0 before the first one.
    power: f64,
    /// Mean absolute error of the next difference.
    error: f64,
    /// Number of learned differences, as far as the means remember.
    seen: f64,
    /// Counter of learned differences, for the ridge.
    turn: u32,
}

impl<const LAGS: usize> Default for Rls<LAGS> {
    fn default() -> Self {
        Self {
            lags: Lags::default(),
            weights: [0.0; LAGS],
            inverse: [[0.0; LAGS]; LAGS],
            power: 0.0,
            error: 0.0,
            seen: 0.0,
            turn: 0,
        }
    }
}

impl<const LAGS: usize> Rls<LAGS> {
    /// Starts the matrix with the ridge as the only information.
    fn begin(&mut self, power: f64) {
        self.power = power;
        self.inverse = [[0.0; LAGS]; LAGS];
        let most = 1.0 / (RIDGE * power);
        for lag in 0..LAGS {
            self.inverse[lag][lag] = most;
        }
    }

    fn learn(&mut self, difference: f64) {
        let lags = *self.lags.differences();
        self.seen += 1.0 - RECENT * self.seen;
        let share = 1.0 / self.seen;
        if self.power == 0.0 {
            self.begin(dot(&lags, &lags) / LAGS as f64);
        }
        self.power = moved(self.power, difference * difference, share);
        let error = difference - dot(&self.weights, &lags);
        let mut gain = [0.0; LAGS];
        for (gain, row) in gain.iter_mut().zip(&self.inverse) {
            *gain = dot(row, &lags);
        }
        let novelty = dot(&gain, &lags);
        if !(0.0..NOVELTY_MAX).contains(&novelty) || !error.is_finite() {
            self.recover(&lags);
            return;
        }
        let total = 1.0 / (FORGETTING + novelty);
        let clipped = error.clamp(-OUTLIER * self.error, OUTLIER * self.error);
        self.error = moved(self.error, error.abs(), share);
        add_scaled(&mut self.weights, &gain, clipped * total);
        self.subtract_square(&gain, total.sqrt(), 1.0 / FORGETTING);
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(RIDGE_EVERY) {
            self.lean((self.turn / RIDGE_EVERY) as usize % LAGS);
        }
    }

    /// Takes in a sample of the ridge: this weight is 0.
    fn lean(&mut self, lag: usize) {
        let between = f64::from(RIDGE_EVERY) * LAGS as f64;
        let information = (1.0 - FORGETTING) * between * RIDGE * self.power;
        let gain = self.inverse[lag];
        let total = 1.0 / (1.0 / information + gain[lag]);
        if gain[lag] > 0.0 && total > 0.0 {
            let towards_zero = -self.weights[lag] * total;
            add_scaled(&mut self.weights, &gain, towards_zero);
            self.subtract_square(&gain, total.sqrt(), 1.0);
        } else {
            self.recover(&[0.0; LAGS]);
        }
    }

    /// Computes `inverse = (inverse - g gᵀ) * then` with `g = gain * scale`.
    fn subtract_square(&mut self, gain: &[f64; LAGS], scale: f64, then: f64) {
        let scaled = gain.map(|gain| gain * scale);
        for (row, left) in self.inverse.iter_mut().zip(scaled) {
            for (entry, right) in row.iter_mut().zip(scaled) {
                *entry = (*entry - left * right) * then;
            }
        }
    }

    /// Starts the matrix anew for the present magnitude; the weights stay if they are finite.
    fn recover(&mut self, lags: &[f64; LAGS]) {
        let power = (dot(lags, lags) / LAGS as f64).max(self.power);
        self.begin(power.max(ERROR_MIN * ERROR_MIN));
        if !self.weights.iter().sum::<f64>().is_finite() {
            self.weights = [0.0; LAGS];
        }
    }
}

fn add_scaled<const N: usize>(to: &mut [f64; N], of: &[f64; N], scale: f64) {
    for (to, of) in to.iter_mut().zip(of) {
        *to += scale * of;
    }
}

impl<const LAGS: usize> Predictor for Rls<LAGS> {
    fn name(&self) -> &'static str {
        match LAGS {
            8 => "rls-8",
            16 => "rls-16",
            _ => "rls",
        }
    }

    fn observe(&mut self, value: f64) {
        if let Some(difference) = self.lags.lesson(value) {
            self.learn(difference);
        }
        self.lags.push(value);
    }

    fn predict(&self, steps: u32) -> f64 {
        self.lags.predict(&self.weights, steps)
    }

    fn path(&self, expected: &mut [f64]) {
        self.lags.path(&self.weights, expected);
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
    use crate::random::Random;

    fn fed(values: &[f64]) -> Rls<8> {
        let mut rls = Rls::default();
        values.iter().for_each(|value| rls.observe(*value));
        rls
    }

    fn largest(rls: &Rls<8>) -> f64 {
        (0..8).fold(0.0, |most: f64, lag| most.max(rls.inverse[lag][lag]))
    }

    #[test]
    fn nothing_and_one_value() {
        assert_eq!(fed(&[]).predict(3), 0.0);
        assert_eq!(fed(&[5.0]).predict(3), 5.0);
    }

    #[test]
    fn the_coefficients_of_an_autoregression_are_found() {
        let mut random = Random::new(5);
        let (mut at, mut d) = (0.0, [0.0; 3]);
        let values: Vec<f64> = (0..5000)
            .map(|_| {
                let next = 0.5 * d[0] - 0.3 * d[1] + 0.2 * d[2] + random.normal();
                d = [next, d[0], d[1]];
                at += next;
                at
            })
            .collect();
        let weights = fed(&values).weights;
        for (lag, expected) in [0.5, -0.3, 0.2, 0.0, 0.0].into_iter().enumerate() {
            assert!((weights[lag] - expected).abs() < 0.2, "{weights:?}");
        }
    }

    /// A ramp has one direction, a period five: the matrix stays bounded in all others.
    #[test]
    fn the_matrix_is_bounded_and_symmetric_however_long_nothing_is_said() {
        let ramp: Vec<f64> = (0..50_000).map(|step| 3.0 * f64::from(step)).collect();
        for values in [ramp, series::hacc_regular(50_000), vec![4.0; 50_000]] {
            let rls = fed(&values);
            let most = 1.0 / (RIDGE * rls.power.max(1e-9));
            assert!(largest(&rls) <= 1.5 * most, "{} {most}", largest(&rls));
            for row in 0..8 {
                for column in 0..row {
                    assert_eq!(rls.inverse[row][column], rls.inverse[column][row]);
                }
            }
        }
    }

    #[test]
    fn one_outlier_does_not_undo_what_was_learned() {
        let mut rls = fed(&series::hacc_regular(1000));
        let before = rls.weights;
        let last = rls.predict(1);
        rls.observe(last + 1e12);
        let moved = (0..8).fold(0.0, |most: f64, lag| {
            most.max((rls.weights[lag] - before[lag]).abs())
        });
        assert!(moved < 0.01, "{moved}");
    }

    #[test]
    fn sizes_that_differ_by_all_digits_begin_anew() {
        let mut rls = fed(&series::noisy_sine(500));
        for size in [1e100, 1e-100, 1e149, 1.0] {
            let mut random = Random::new(1);
            let mut at = 0.0;
            for _ in 0..500 {
                at += size * (1.0 + 0.1 * random.normal());
                rls.observe(at);
            }
            let expected = (rls.predict(1) - at) / size;
            assert!((0.5..1.5).contains(&expected), "{size}: {expected}");
            assert!(largest(&rls).is_finite() && largest(&rls) > 0.0);
        }
    }
}
