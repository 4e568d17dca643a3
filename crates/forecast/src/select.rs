//! The selector of one level of horizon: which predictor to follow, and how far.
//!
//! It follows the predictor with the least recent absolute error. How far a forecast may move from
//! the last value is limited by credit: the sum of the errors of the forecasts is at most [`WORST`]
//! times that of persistence, for every sequence of values and whatever the predictors do. With
//! `e0` the error of persistence, `e` that of the forecast, `g` = [`CREDIT_KEPT`] and
//!
//! ```text
//! c' = g c + WORST e0 - e            after each score; c starts at 0
//! |said - last| <= g c               before each score
//! ```
//!
//! the triangle inequality gives `e <= e0 + |said - last|`, so `c' >= (WORST - 1) e0 >= 0`. As each
//! `c'` is `g c + x` with `x = WORST e0 - e`, the sum of all `x` is the newest `c` plus `1 - g`
//! times the sum of those before: it is not negative, which is the bound.

use crate::conformal::Calibration;
use crate::explain::FollowReason;
use crate::members::{MEMBERS_MAX, Members};

/// The greatest error of the forecasts, as a multiple of the error of persistence.
pub const WORST: f64 = 1.01;

/// The share of credit that is left at the next score.
const CREDIT_KEPT: f64 = 0.99;

/// The loss of another predictor must be less than this share of the followed one's loss for a
/// switch.
const BETTER: f64 = 0.97;

/// Scores before any predictor but persistence is followed.
const SCORES_MIN: u64 = 4;

/// Smaller losses count as 0: they would become denormal numbers, which are slow.
const NONE: f64 = 1e-290;

/// Errors are cut to this, so that no sum of them overflows.
const ERROR_MAX: f64 = 1e300;

/// A forecast that was made, until its time comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingForecast {
    /// The step for which it was made.
    pub(crate) due: u64,
    /// The last value when it was made.
    last: f64,
    value: f64,
    half_width: f64,
}

impl PendingForecast {
    /// The distance of the forecast from the last value.
    pub(crate) fn moved(&self) -> f64 {
        self.value - self.last
    }
}

/// One level: the state for one horizon, in steps.
#[derive(Debug, Clone)]
pub(crate) struct HorizonLevel {
    pub(crate) steps: u32,
    kept: f64,
    said: Option<PendingForecast>,
    /// The forecast of each predictor for the step of `said`.
    members_said: [f64; MEMBERS_MAX],
    /// Sums of absolute errors, of which older ones count less.
    losses: [f64; MEMBERS_MAX],
    pub(crate) followed: usize,
    /// The step since which `followed` is followed.
    pub(crate) since: u64,
    pub(crate) switches: u64,
    pub(crate) scores: u64,
    credit: f64,
    pub(crate) calibration: Calibration,
}

impl HorizonLevel {
    /// Creates a level with a memory of `memory` scores: older ones count less than a third.
    pub(crate) fn new(steps: u32, memory: f64, confidence: f64) -> Self {
        Self {
            steps,
            kept: 1.0 - 1.0 / memory,
            said: None,
            members_said: [0.0; MEMBERS_MAX],
            losses: [0.0; MEMBERS_MAX],
            followed: 0,
            since: 0,
            switches: 0,
            scores: 0,
            credit: 0.0,
            calibration: Calibration::new(confidence),
        }
    }

    /// The greatest distance of a forecast from the last value.
    pub(crate) fn reach(&self) -> f64 {
        CREDIT_KEPT * self.credit
    }

    pub(crate) fn said(&self) -> Option<PendingForecast> {
        self.said
    }

    /// Drops the pending forecast, so that it is not scored.
    pub(crate) fn drop_said(&mut self) {
        self.said = None;
    }

    /// The loss of a predictor, as a multiple of that of persistence. `None` if persistence has
    /// none.
    pub(crate) fn relative_loss(&self, member: usize) -> Option<f64> {
        let persistence = self.losses[0];
        let loss = self.losses.get(member)?;
        (persistence > 0.0).then(|| loss / persistence)
    }

    /// The reason why `followed` is followed.
    pub(crate) fn reason(&self, members: usize) -> FollowReason {
        if self.scores < SCORES_MIN {
            FollowReason::Start
        } else if self.followed == 0 {
            FollowReason::NoneBetter
        } else if self
            .losses
            .iter()
            .take(members)
            .all(|loss| *loss >= self.losses[self.followed])
        {
            FollowReason::Least
        } else {
            FollowReason::NearLeast
        }
    }

    /// Scores the pending forecasts: its step has come, and has the value `value`.
    pub(crate) fn score(&mut self, value: f64, now: u64, members: usize) {
        let Some(said) = self.said.take() else {
            return;
        };
        let members = members.min(MEMBERS_MAX);
        for (loss, said) in self.losses[..members].iter_mut().zip(&self.members_said) {
            let sum = self.kept * *loss + error(value, *said);
            *loss = if sum < NONE { 0.0 } else { sum };
        }
        self.scores += 1;
        self.follow(now, members);
        let (persistence, off) = (error(value, said.last), error(value, said.value));
        let credit = CREDIT_KEPT * self.credit + WORST * persistence - off;
        self.credit = if credit < NONE {
            0.0
        } else {
            credit.min(ERROR_MAX)
        };
        self.calibration.score(off, said.half_width);
    }

    fn follow(&mut self, now: u64, members: usize) {
        if self.scores < SCORES_MIN {
            return;
        }
        let persistence = self.losses[0];
        let mut best = 0;
        for member in 1..members {
            let loss = self.losses[member];
            if loss < self.losses[best] && loss < BETTER * persistence {
                best = member;
            }
        }
        let followed = self.losses[self.followed];
        // No predictor is followed that is not better than persistence.
        let is_better =
            self.losses[best] < BETTER * followed || (best == 0 && persistence <= followed);
        if is_better && best != self.followed {
            self.followed = best;
            self.since = now;
            self.switches += 1;
        }
    }

    /// Lets all predictors predict the value `steps` from now, and stores the forecast.
    pub(crate) fn say(
        &mut self,
        members: &Members,
        last: f64,
        now: u64,
        possible: impl Fn(f64) -> f64,
    ) {
        members.predict(self.steps, &mut self.members_said);
        let off = bounded(self.members_said[self.followed] - last, self.reach());
        self.said = Some(PendingForecast {
            due: now.saturating_add(u64::from(self.steps)),
            last,
            value: possible(last + off),
            half_width: self.calibration.half_width(),
        });
    }
}

/// Limits `off` to `reach`; a value that is not finite becomes 0.
pub(crate) fn bounded(off: f64, reach: f64) -> f64 {
    if off.is_finite() {
        off.clamp(-reach, reach)
    } else {
        0.0
    }
}

fn error(value: f64, said: f64) -> f64 {
    (value - said).abs().min(ERROR_MAX)
}
