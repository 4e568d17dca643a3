//! The forecaster of one stream: it converts looks to steps, and predicts the values between and
//! after them.

use std::sync::{Arc, LazyLock};

use crate::delphi::Weights;
use crate::members::{Member, Members};
use crate::predictor::Predictor;
use crate::select::{HorizonLevel, bounded};
use crate::shape::{MeasuredValue, Shape, ValueTrack};
use crate::steps::{Advance, GAP_STEPS_MAX, Steps};

/// The horizons of a forecaster, in steps. Each has its own losses, credit and calibration.
pub const LEVELS: [u32; 4] = [1, 4, 16, 64];

/// Approximate number of scores that each level remembers.
const MEMORIES: [f64; 4] = [64.0, 48.0, 32.0, 24.0];

const PATH_MAX: usize = GAP_STEPS_MAX as usize;

/// Weight of the upper of the two levels around each step, see [`share_of_upper`]: a table, since
/// logarithms are expensive.
static SHARES: LazyLock<[f64; PATH_MAX + 1]> = LazyLock::new(|| {
    std::array::from_fn(|step| {
        let upper = LEVELS[1..].iter().position(|level| step <= *level as usize);
        share_of_upper(step as f64, upper.unwrap_or(LEVELS.len() - 2))
    })
});

/// The configuration of a forecaster for a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecasterConfig {
    /// The base interval of the stream, which is one step, in ns. At least 1.
    pub step_ns: i64,
    /// The share of true values that should lie within the half width, 0.5 to 0.99.
    pub confidence: f64,
    /// The values that the stream can have.
    pub shape: Shape,
}

impl Default for ForecasterConfig {
    fn default() -> Self {
        Self {
            step_ns: 1_000_000_000,
            confidence: 0.9,
            shape: Shape::Gauge,
        }
    }
}

/// The predicted value of a stream at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// The predicted value: finite, and within the stream's shape.
    pub value: f64,
    /// The true value lies within this distance of `value`, with the configured confidence.
    /// Infinite while it is not calibrated yet; 0 at the time of the newest look.
    pub half_width: f64,
    /// Name of the predictor that is followed.
    pub by: &'static str,
}

/// The effect of a look on a forecaster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookEffect {
    /// The look advanced the forecaster by one or more steps.
    Fed,
    /// The look is in the same step as the one before, and replaces it as the start of the next
    /// forecasts.
    SameStep,
    /// The look is not later than the newest one. Nothing changed.
    Late,
    /// The value is not finite. Nothing changed.
    NotFinite,
    /// The counter was reset. That does not count as an error of the predictors.
    Reset,
    /// The look is more than 64 steps after the newest one: the values before are forgotten,
    /// learned parameters are not.
    Gap,
}

/// The forecaster of one stream. `docs/design/0005-forecast.md` describes the method.
pub struct Forecaster {
    pub(crate) shape: Shape,
    pub(crate) steps: Steps,
    pub(crate) track: ValueTrack,
    pub(crate) members: Members,
    pub(crate) levels: [HorizonLevel; 4],
    /// Number of steps since the first look.
    pub(crate) now: u64,
    /// The newest value, in the form that predictors see.
    pub(crate) last: f64,
}

impl Forecaster {
    /// Creates a forecaster with the default predictors.
    pub fn new(config: ForecasterConfig) -> Self {
        Self::with_delphi(config, None)
    }

    /// Creates a forecaster with the default predictors, and with the repaired Delphi if there are
    /// weights for it.
    pub fn with_delphi(config: ForecasterConfig, delphi: Option<Arc<Weights>>) -> Self {
        Self::of(config, Members::default_set(delphi))
    }

    /// Creates a forecaster with persistence and the given predictors, of which at most eleven with
    /// different names are used.
    pub fn with_predictors(
        config: ForecasterConfig,
        predictors: Vec<Box<dyn Predictor + Send>>,
    ) -> Self {
        Self::of(
            config,
            Members::new(predictors.into_iter().map(Member::Other)),
        )
    }

    fn of(config: ForecasterConfig, members: Members) -> Self {
        let level = |at: usize| HorizonLevel::new(LEVELS[at], MEMORIES[at], config.confidence);
        Self {
            shape: config.shape,
            steps: Steps::new(config.step_ns),
            track: ValueTrack::new(config.shape),
            members,
            levels: std::array::from_fn(level),
            now: 0,
            last: 0.0,
        }
    }

    /// Length of one step, in ns.
    pub fn step_ns(&self) -> i64 {
        self.steps.step_ns()
    }

    /// Sets the values that the stream can have from now on, as its bounds may change. A counter
    /// stays one, and no other shape becomes one.
    pub fn set_shape(&mut self, shape: Shape) {
        if self.shape != Shape::Counter && shape != Shape::Counter {
            self.shape = shape;
        }
    }

    /// Time of the newest look, in ns. `None` before the first.
    pub fn newest_ns(&self) -> Option<i64> {
        self.steps.newest_ns()
    }

    /// Takes in a look at the stream: its value at `ts_ns` was `value`.
    pub fn observe(&mut self, ts_ns: i64, value: f64) -> LookEffect {
        if !value.is_finite() {
            return LookEffect::NotFinite;
        }
        self.look(ts_ns, MeasuredValue::Float(value))
    }

    /// Takes in a look at a stream of integers. Counters keep all their digits.
    pub fn observe_int(&mut self, ts_ns: i64, value: i64) -> LookEffect {
        self.look(ts_ns, MeasuredValue::Int(value))
    }

    fn look(&mut self, ts_ns: i64, value: MeasuredValue) -> LookEffect {
        let advance = self.steps.look(ts_ns);
        let reset =
            !matches!(advance, Advance::First | Advance::Late) && self.track.is_reset(value);
        let taken = match advance {
            Advance::Late => return LookEffect::Late,
            Advance::First => {
                self.last = self.track.start(value);
                self.members.observe(self.last);
                LookEffect::Fed
            }
            Advance::Same => {
                if reset {
                    self.track.reset(value, self.last);
                } else {
                    self.last = self.track.see(value);
                }
                LookEffect::SameStep
            }
            Advance::Steps(steps) => {
                match (steps, reset) {
                    (1, false) => self.next_step(value),
                    _ => self.later_step(steps, value, reset),
                }
                LookEffect::Fed
            }
            Advance::Gap => {
                if reset {
                    self.track.reset(value, self.last);
                } else {
                    self.last = self.track.see(value);
                }
                self.levels.iter_mut().for_each(HorizonLevel::drop_said);
                self.now = self.now.saturating_add(u64::from(GAP_STEPS_MAX));
                self.members.forget();
                self.members.observe(self.last);
                LookEffect::Gap
            }
        };
        self.steps.take(ts_ns, advance);
        if taken != LookEffect::SameStep {
            self.say();
        }
        if reset { LookEffect::Reset } else { taken }
    }

    /// Takes in the value of the next step.
    fn next_step(&mut self, value: MeasuredValue) {
        let before = self.last;
        self.last = self.track.see(value);
        self.score(before, 1);
        self.members.observe(self.last);
    }

    /// Takes in the value `steps` steps later.
    #[inline(never)]
    fn later_step(&mut self, steps: u32, value: MeasuredValue, reset: bool) {
        let mut path = [0.0; PATH_MAX];
        let path = &mut path[..steps as usize];
        self.path(path);
        if reset {
            self.continue_as_said(value, path);
            return;
        }
        let before = self.last;
        self.last = self.track.see(value);
        self.score(before, steps);
        bend(path, before, self.last, self.shape == Shape::Counter);
        path[steps as usize - 1] = self.last;
        path.iter().for_each(|step| self.members.observe(*step));
    }

    /// Scores the forecasts of the steps up to now, against the line from `before` to the seen
    /// value.
    fn score(&mut self, before: f64, steps: u32) {
        let came = self.now.saturating_add(u64::from(steps));
        for level in &mut self.levels {
            let Some(said) = level.said().filter(|said| said.due <= came) else {
                continue;
            };
            // A line that is too long gives no information about the time between its ends.
            if steps > level.steps * 3 / 2 {
                level.drop_said();
                continue;
            }
            let there = if said.due == came {
                self.last
            } else {
                let share = fraction(said.due.saturating_sub(self.now), steps);
                before * (1.0 - share) + self.last * share
            };
            level.score(there, came, self.members.count());
        }
        self.now = came;
    }

    /// Continues after the counter was reset to `value`: the forecast replaces the values that it
    /// would have had without the reset.
    fn continue_as_said(&mut self, value: MeasuredValue, path: &[f64]) {
        self.now = self.now.saturating_add(path.len() as u64);
        for level in &mut self.levels {
            if level.said().is_some_and(|said| said.due <= self.now) {
                level.drop_said();
            }
        }
        for step in path {
            self.members.observe(*step);
            self.last = *step;
        }
        self.track.reset(value, self.last);
    }

    /// Makes the next forecast of each level whose last forecast is due.
    fn say(&mut self) {
        let (last, shape) = (self.last, self.shape);
        for (at, level) in (0..).zip(&mut self.levels) {
            // The levels start one step after another, so that no step has to predict for all
            // levels.
            if level.said().is_none() && self.now >= at {
                level.say(&self.members, last, self.now, |said| {
                    shape.possible(last, said)
                });
            }
        }
    }

    /// Fills `path` (at most 64 steps) with the forecasts of the next steps, in the form that
    /// predictors see.
    pub(crate) fn path(&self, path: &mut [f64]) {
        if let [next] = path {
            // This forecast exists already, unless a look within the step moved the whole path.
            if let Some(said) = self.levels[0].said() {
                let moved = said.moved();
                *next = self.shape.possible(self.last, self.last + moved);
                return;
            }
        }
        self.path_within(self.shape, path);
    }

    /// Like [`Self::path`], but goes on beyond the bounds of a bounded stream: so it shows where
    /// between two steps a bound is met.
    pub(crate) fn unbounded_path(&self, path: &mut [f64]) {
        match self.shape.bounds(self.last) {
            Some(_) => self.path_within(Shape::Gauge, path),
            None => self.path(path),
        }
    }

    fn path_within(&self, shape: Shape, path: &mut [f64]) {
        let mut moves = [[0.0; PATH_MAX]; 2];
        let mut highest = self.last;
        let (mut low, mut followed) = (0, [usize::MAX; 2]);
        let steps = path.len().min(PATH_MAX);
        let shares = &*SHARES;
        for step in 1..=steps {
            while low + 2 < LEVELS.len() && step > LEVELS[low + 1] as usize {
                low += 1;
            }
            let pair = [&self.levels[low], &self.levels[low + 1]];
            if followed != [pair[0].followed, pair[1].followed] {
                followed = [pair[0].followed, pair[1].followed];
                self.members.moves(followed[0], &mut moves[0][..steps]);
                if followed[0] == followed[1] {
                    moves[1] = moves[0];
                } else {
                    self.members.moves(followed[1], &mut moves[1][..steps]);
                }
            }
            let upper = shares[step];
            let mix = |a: f64, b: f64| a * (1.0 - upper) + b * upper;
            let off = mix(moves[0][step - 1], moves[1][step - 1]);
            let off = bounded(off, mix(pair[0].reach(), pair[1].reach()));
            let value = shape.possible(self.last, self.last + off);
            highest = highest.max(value);
            path[step - 1] = if shape == Shape::Counter {
                highest
            } else {
                value
            };
        }
    }
}

/// The weight of the upper level at a whole number of steps, 1 to 64, between the two levels around
/// it.
pub(crate) fn share_at(step: usize) -> f64 {
    SHARES.get(step).copied().unwrap_or(1.0)
}

/// The weight of the upper of two levels at a horizon between them, by the logarithm of the
/// horizon.
pub(crate) fn share_of_upper(steps: f64, low: usize) -> f64 {
    let (a, b) = (f64::from(LEVELS[low]), f64::from(LEVELS[low + 1]));
    if steps <= a {
        0.0
    } else if steps >= b {
        1.0
    } else {
        (steps / a).ln() / (b / a).ln()
    }
}

/// The quotient of `part` and `whole` steps.
#[expect(clippy::cast_precision_loss, reason = "at most 64")]
fn fraction(part: u64, whole: u32) -> f64 {
    part as f64 / f64::from(whole)
}

/// Bends the forecast of the steps since `before` so that it ends at the seen value. A correct
/// forecast is not changed.
fn bend(path: &mut [f64], before: f64, seen: f64, ascending: bool) {
    let steps = path.len() as u32;
    let Some(end) = path.last().copied() else {
        return;
    };
    let miss = seen - end;
    let mut least = before;
    for (at, step) in (1..).zip(path) {
        let share = fraction(at, steps);
        *step = if miss.is_finite() {
            (*step + miss * share).clamp(f64::MIN, f64::MAX)
        } else {
            before * (1.0 - share) + seen * share
        };
        if ascending {
            *step = step.max(least).min(seen);
            least = *step;
        }
    }
}
