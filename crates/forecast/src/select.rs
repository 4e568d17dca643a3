//! Whom to follow at one level of horizon, and how far.
//!
//! The predictor whose absolute errors were least of late is followed; how far, is bounded by credit: the sum of
//! the errors of what was said is at most [`WORST`] times that of persistence, on every sequence of values and
//! whatever predictors do. With `e0` the error of persistence, `e` that of what was said, `g` = [`CREDIT_KEPT`] and
//!
//! ```text
//! c' = g c + WORST e0 - e            after each score; c starts at 0
//! |said - last| <= g c               before each score
//! ```
//!
//! the triangle inequality gives `e <= e0 + |said - last|`, so `c' >= (WORST - 1) e0 >= 0`. As each `c'` is
//! `g c + x` with `x = WORST e0 - e`, the sum of all `x` is the newest `c` plus `1 - g` times the sum of those
//! before: not negative, which is the bound.

use crate::conformal::Calibration;
use crate::explain::Reason;
use crate::members::{MEMBERS_MAX, Members};

/// So many times the error of persistence, at most.
pub const WORST: f64 = 1.01;

/// What is left of credit at the next score.
const CREDIT_KEPT: f64 = 0.99;

/// Another is followed when its loss is less than so much of the loss of who was.
const BETTER: f64 = 0.97;

/// Scores before anybody but persistence is followed.
const SCORES_MIN: u64 = 4;

/// What is less is none: such losses would be denormal numbers, which cost.
const NONE: f64 = 1e-290;

/// Errors are cut here, so that no sum of them overflows.
const ERROR_MAX: f64 = 1e300;

/// A forecast that was said, until its time comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Said {
    /// The step it is of.
    pub(crate) due: u64,
    /// What it was said after.
    last: f64,
    value: f64,
    half_width: f64,
}

impl Said {
    /// How far from what was the last value.
    pub(crate) fn moved(&self) -> f64 {
        self.value - self.last
    }
}

/// One level: a horizon of so many steps.
#[derive(Debug, Clone)]
pub(crate) struct Level {
    pub(crate) steps: u32,
    kept: f64,
    said: Option<Said>,
    /// What each member says of the step that `said` is of.
    members_said: [f64; MEMBERS_MAX],
    /// Sums of absolute errors, the older the less.
    losses: [f64; MEMBERS_MAX],
    pub(crate) followed: usize,
    /// The step since which it is followed.
    pub(crate) since: u64,
    pub(crate) switches: u64,
    pub(crate) scores: u64,
    credit: f64,
    pub(crate) calibration: Calibration,
}

impl Level {
    /// `memory` scores: what is older counts less than a third.
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

    /// How far from the last value anything may be said to be.
    pub(crate) fn reach(&self) -> f64 {
        CREDIT_KEPT * self.credit
    }

    pub(crate) fn said(&self) -> Option<Said> {
        self.said
    }

    /// What was said is not to be scored.
    pub(crate) fn drop_said(&mut self) {
        self.said = None;
    }

    /// Each member's loss, as a multiple of persistence's. None where persistence has none.
    pub(crate) fn relative_loss(&self, member: usize) -> Option<f64> {
        let persistence = self.losses[0];
        let loss = self.losses.get(member)?;
        (persistence > 0.0).then(|| loss / persistence)
    }

    /// Why `followed` is.
    pub(crate) fn reason(&self, members: usize) -> Reason {
        if self.scores < SCORES_MIN {
            Reason::Start
        } else if self.followed == 0 {
            Reason::NoneBetter
        } else if self
            .losses
            .iter()
            .take(members)
            .all(|loss| *loss >= self.losses[self.followed])
        {
            Reason::Least
        } else {
            Reason::NearLeast
        }
    }

    /// The step that was said has come, and is `value`.
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
        // Nobody is followed who is not better than persistence.
        if self.losses[best] < BETTER * followed || (best == 0 && persistence <= followed) {
            if best != self.followed {
                self.followed = best;
                self.since = now;
                self.switches += 1;
            }
        }
    }

    /// Asks all of them of the value `steps` from now, and says it.
    pub(crate) fn say(
        &mut self,
        members: &Members,
        last: f64,
        now: u64,
        possible: impl Fn(f64) -> f64,
    ) {
        members.predict(self.steps, &mut self.members_said);
        let off = bounded(self.members_said[self.followed] - last, self.reach());
        self.said = Some(Said {
            due: now.saturating_add(u64::from(self.steps)),
            last,
            value: possible(last + off),
            half_width: self.calibration.half_width(),
        });
    }
}

/// `off`, not farther than `reach`; what is not a number goes nowhere.
pub(crate) fn bounded(off: f64, reach: f64) -> f64 {
    if off.is_nan() {
        0.0
    } else {
        off.clamp(-reach, reach)
    }
}

fn error(value: f64, said: f64) -> f64 {
    (value - said).abs().min(ERROR_MAX)
}
