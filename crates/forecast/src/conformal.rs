//! Half widths with a calibrated coverage, whatever the stream does.
//!
//! Adaptive conformal inference (Gibbs and Candès, 2021): the half width is a quantile of the
//! newest errors. Each error beyond it raises the level of the quantile, each error within it
//! lowers the level, so that in the long run the requested share lies within it.
//! `examples/calibration.rs` compares it with other methods.

/// Most errors of which the quantile is taken.
const ERRORS_MAX: usize = 64;

/// The change of the quantile's level per error.
const RATE: f64 = 0.02;

/// Largest distance of the level from the confidence: a stream that is covered more often than
/// requested (as its errors are all alike) does not have to make up for it later.
const LEVEL_OFF_MAX: f64 = 0.25;

/// Growth of the width beyond the greatest error: a factor for each hundredth of the level.
const BEYOND: f64 = 1.2;

/// Number of looks over which the coverage is averaged, in the long run.
const COVERAGE_LOOKS: f64 = 512.0;

/// The errors of the forecasts of one level, and the half width that follows from them.
#[derive(Debug, Clone)]
pub(crate) struct Calibration {
    confidence: f64,
    /// Level of the quantile.
    level: f64,
    half_width: f64,
    /// The newest errors in order of arrival, as a ring that starts at `oldest`.
    errors: [f64; ERRORS_MAX],
    /// The same errors in ascending order.
    sorted: [f64; ERRORS_MAX],
    count: usize,
    oldest: usize,
    covered: f64,
    looks: f64,
}

impl Calibration {
    /// Creates a calibration; `confidence` is the share of errors that the width is to cover, 0.5
    /// to 0.99.
    pub(crate) fn new(confidence: f64) -> Self {
        let confidence = if confidence.is_nan() {
            0.9
        } else {
            confidence.clamp(0.5, 0.99)
        };
        Self {
            confidence,
            level: confidence,
            half_width: f64::INFINITY,
            errors: [0.0; ERRORS_MAX],
            sorted: [0.0; ERRORS_MAX],
            count: 0,
            oldest: 0,
            covered: 0.0,
            looks: 0.0,
        }
    }

    /// The present half width. Infinite until there are enough errors.
    pub(crate) fn half_width(&self) -> f64 {
        self.half_width
    }

    /// The share of the newest errors that lay within their half width. `None` until one could be
    /// compared.
    pub(crate) fn coverage(&self) -> Option<f64> {
        (self.looks > 0.0).then_some(self.covered)
    }

    /// Number of forecasts over which the coverage is taken; in the long run, only the newest
    /// count.
    pub(crate) fn compared(&self) -> f64 {
        self.looks
    }

    /// Takes in `error`, finite and not negative, of a forecast whose half width was `said`.
    pub(crate) fn score(&mut self, error: f64, said: f64) {
        if said.is_finite() {
            self.looks = (self.looks + 1.0).min(COVERAGE_LOOKS);
            let within = if error <= said { 1.0 } else { 0.0 };
            self.covered += (within - self.covered) / self.looks;
            // An error equal to the width does not show on which side of it errors lie.
            if error < said {
                self.level -= RATE * (1.0 - self.confidence);
            } else if error > said {
                self.level += RATE * self.confidence;
            }
            let off = self.level - self.confidence;
            self.level = self.confidence + off.clamp(-LEVEL_OFF_MAX, LEVEL_OFF_MAX);
        }
        self.keep(error);
        self.half_width = self.quantile();
    }

    /// Keeps the newest errors sorted: the room of the oldest moves to the place of the new one.
    fn keep(&mut self, error: f64) {
        if self.count < ERRORS_MAX {
            let to = self.sorted[..self.count].partition_point(|kept| *kept < error);
            self.sorted.copy_within(to..self.count, to + 1);
            self.sorted[to] = error;
            self.count += 1;
        } else {
            let oldest = self.errors[self.oldest];
            let from = below(&self.sorted, oldest);
            let to = below(&self.sorted, error);
            if from < to {
                self.sorted.copy_within(from + 1..to, from);
                self.sorted[to - 1] = error;
            } else {
                self.sorted.copy_within(to..from, to + 1);
                self.sorted[to] = error;
            }
        }
        self.errors[self.oldest] = error;
        self.oldest = (self.oldest + 1) % ERRORS_MAX;
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "ranks of at most 64"
    )]
    fn quantile(&self) -> f64 {
        let count = self.count as f64;
        // The number that exchangeable errors need for a bound at this confidence (split
        // conformal).
        if self.count < ERRORS_MAX && (count + 1.0) * self.confidence > count {
            return f64::INFINITY;
        }
        let rank = self.level * (count + 1.0) - 1.0;
        let most = self.sorted[self.count - 1];
        if rank >= count - 1.0 {
            let over = (rank - (count - 1.0)) / (count + 1.0);
            return (most * BEYOND.powf(over * 100.0)).min(f64::MAX);
        }
        let below = rank.max(0.0).floor();
        let (low, high) = (self.sorted[below as usize], self.sorted[below as usize + 1]);
        low + (high - low) * (rank.max(0.0) - below)
    }
}

/// The number of errors less than `error`. Without branches, as its position is unpredictable.
fn below(sorted: &[f64; ERRORS_MAX], error: f64) -> usize {
    sorted.iter().map(|kept| usize::from(*kept < error)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_errors_are_enough_for_nine_of_ten() {
        let mut calibration = Calibration::new(0.9);
        for at in 0..8 {
            calibration.score(f64::from(at), calibration.half_width());
            assert_eq!(calibration.half_width(), f64::INFINITY);
            assert_eq!(calibration.coverage(), None);
        }
        calibration.score(3.5, calibration.half_width());
        assert_eq!(calibration.half_width(), 7.0);
        calibration.score(9.0, calibration.half_width());
        assert_eq!(calibration.coverage(), Some(0.0));
    }

    #[test]
    fn the_sorted_are_the_newest() {
        let mut calibration = Calibration::new(0.9);
        let mut all = Vec::new();
        let mut state = 7u64;
        for _ in 0..1000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let error = ((state >> 60) as f64) * 0.5;
            all.push(error);
            calibration.score(error, calibration.half_width());
            let mut newest = all[all.len().saturating_sub(ERRORS_MAX)..].to_vec();
            newest.sort_by(f64::total_cmp);
            assert_eq!(calibration.sorted[..calibration.count], newest[..]);
        }
    }

    #[test]
    fn what_never_errs_has_width_zero_and_does_not_pay_later() {
        let mut calibration = Calibration::new(0.9);
        for _ in 0..10_000 {
            calibration.score(0.0, calibration.half_width());
        }
        assert_eq!(calibration.half_width(), 0.0);
        assert_eq!(calibration.coverage(), Some(1.0));
        assert_eq!(calibration.level, 0.9);
    }

    #[test]
    fn any_confidence_and_any_error_is_defined() {
        for confidence in [f64::NAN, -1.0, 0.0, 0.9, 1.0, f64::INFINITY] {
            let mut calibration = Calibration::new(confidence);
            for at in 0..300 {
                let error = [0.0, 5e-324, 1.0, f64::MAX][at % 4];
                calibration.score(error, calibration.half_width());
                assert!(!calibration.half_width().is_nan());
            }
            assert!(calibration.half_width().is_finite());
        }
    }
}
