//! The results of a forecaster: values, half widths, coverage, reasons.

use crate::explain::{Explanation, LevelExplanation, MemberExplanation};
use crate::forecaster::{Forecast, Forecaster, LEVELS, share_at, share_of_upper};
use crate::steps::GAP_STEPS_MAX;

impl Forecaster {
    /// The value of the stream at `ts_ns`: the seen value at the time of the newest look, a
    /// predicted one after it.
    ///
    /// `None` before the newest look, and more than 64 steps after it.
    pub fn at(&self, ts_ns: i64) -> Option<Forecast> {
        let steps = self.steps.after(ts_ns)?;
        let seen = self.seen_after(steps)?;
        Some(self.forecast(steps, self.track.float(seen)))
    }

    /// Like [`Self::at`] for a stream of integers, with all digits of a counter. Also `None` if the
    /// newest look was not an integer, or if the predicted value does not fit in 64 bits.
    pub fn at_int(&self, ts_ns: i64) -> Option<(i64, Forecast)> {
        let steps = self.steps.after(ts_ns)?;
        let seen = self.seen_after(steps)?;
        let value = self.track.int(seen)?;
        Some((value, self.forecast(steps, self.track.float(seen))))
    }

    /// The forecasts 1, 4, 16 and 64 steps after the newest look. `None` before the first look.
    pub fn levels(&self) -> [Option<Forecast>; 4] {
        self.levels_of(Self::path)
    }

    /// Like [`Self::levels`], but goes on beyond the bounds of a bounded stream.
    pub(crate) fn unbounded_levels(&self) -> [Option<Forecast>; 4] {
        self.levels_of(Self::unbounded_path)
    }

    fn levels_of(&self, said: impl Fn(&Self, &mut [f64])) -> [Option<Forecast>; 4] {
        if self.newest_ns().is_none() {
            return [None; 4];
        }
        let mut path = [0.0; GAP_STEPS_MAX as usize];
        said(self, &mut path);
        LEVELS.map(|steps| {
            let seen = path[steps as usize - 1];
            Some(self.forecast(f64::from(steps), self.track.float(seen)))
        })
    }

    /// The half width of a forecast `horizon_ns` after the newest look. 0 at horizon 0, infinite
    /// where it is not known.
    #[expect(clippy::cast_precision_loss, reason = "a horizon in steps")]
    pub fn half_width(&self, horizon_ns: i64) -> f64 {
        self.half_width_after(horizon_ns as f64 / self.step_ns() as f64)
    }

    /// The share of the newest values at each level that lay within the half width of their
    /// forecast. `None` until a forecast was calibrated.
    pub fn coverage(&self) -> [Option<f64>; 4] {
        self.levels
            .each_ref()
            .map(|level| level.calibration.coverage())
    }

    /// Explains which predictor it follows at each level, since when, and why.
    pub fn explain(&self) -> Explanation {
        let levels = self.levels.each_ref().map(|level| {
            let members = (0..self.members.count()).map(|member| MemberExplanation {
                name: self.members.name(member),
                relative_loss: level.relative_loss(member),
            });
            LevelExplanation {
                steps: level.steps,
                follows: self.members.name(level.followed),
                reason: level.reason(self.members.count()),
                since_step: level.since,
                switches: level.switches,
                scores: level.scores,
                credit: level.reach(),
                half_width: level.calibration.half_width(),
                coverage: level.calibration.coverage(),
                members: members.collect(),
            }
        });
        Explanation {
            step_ns: self.step_ns(),
            steps: self.now,
            levels,
        }
    }

    /// Whether there is a forecast for that time.
    pub(crate) fn is_within(&self, ts_ns: i64) -> bool {
        let steps = self.steps.after(ts_ns);
        steps.is_some_and(|steps| steps <= f64::from(GAP_STEPS_MAX))
    }

    /// The value `steps` after the newest look, in the form that predictors see.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1 to 64"
    )]
    fn seen_after(&self, steps: f64) -> Option<f64> {
        if steps > f64::from(GAP_STEPS_MAX) {
            return None;
        }
        let mut path = [0.0; GAP_STEPS_MAX as usize];
        let count = (steps.ceil() as usize).max(1);
        let path = &mut path[..count];
        self.unbounded_path(path);
        let before = if count > 1 {
            path[count - 2]
        } else {
            self.last
        };
        let share = 1.0 - (count as f64 - steps);
        let after = path[count - 1];
        // Computed with two products, as a difference may overflow; the clamp removes rounding
        // errors that leave the line.
        let between = before * (1.0 - share) + after * share;
        let between = between.clamp(before.min(after), before.max(after));
        Some(self.shape.possible(self.last, between))
    }

    fn forecast(&self, steps: f64, value: f64) -> Forecast {
        // The level with the greater weight: half way between two levels, in the logarithm, is at
        // twice the lower one.
        let near = LEVELS
            .iter()
            .position(|level| steps <= f64::from(level * 2));
        let followed = self.levels[near.unwrap_or(LEVELS.len() - 1)].followed;
        Forecast {
            value,
            half_width: self.half_width_after(steps),
            by: self.members.name(followed),
        }
    }

    pub(crate) fn half_width_after(&self, steps: f64) -> f64 {
        if steps <= 0.0 {
            return 0.0;
        }
        if steps > f64::from(GAP_STEPS_MAX) || self.newest_ns().is_none() {
            return f64::INFINITY;
        }
        let upper = LEVELS.iter().position(|level| steps <= f64::from(*level));
        let upper = upper.unwrap_or(LEVELS.len() - 1);
        let share = match upper {
            0 => 1.0,
            _ => share_of_upper(steps, upper - 1),
        };
        mixed(&self.widths(), upper, share)
    }

    /// The half width at each level. A level that was never scored (looks are too rare for it) gets
    /// that of the next one, which is hardly smaller.
    pub(crate) fn widths(&self) -> [f64; LEVELS.len()] {
        let mut widths = self
            .levels
            .each_ref()
            .map(|level| level.calibration.half_width());
        let mut next = f64::INFINITY;
        for width in widths.iter_mut().rev() {
            if !width.is_finite() {
                *width = next;
            }
            next = *width;
        }
        widths
    }
}

/// The half width between the level `upper` and the one below it.
fn mixed(widths: &[f64; LEVELS.len()], upper: usize, share: f64) -> f64 {
    let high = widths[upper];
    if upper == 0 || share >= 1.0 || high.is_infinite() {
        return high;
    }
    widths[upper - 1] * (1.0 - share) + high * share
}

/// The half width after a whole number of steps, 1 to 64, computed from those at the levels.
pub(crate) fn width_at(widths: &[f64; LEVELS.len()], step: usize) -> f64 {
    let upper = LEVELS.iter().position(|level| step <= *level as usize);
    mixed(widths, upper.unwrap_or(LEVELS.len() - 1), share_at(step))
}
