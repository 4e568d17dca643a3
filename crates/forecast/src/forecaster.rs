//! One stream's forecaster: makes steps of looks, and says what comes between and after them.

use std::sync::{Arc, LazyLock};

use crate::delphi::Weights;
use crate::members::{Member, Members};
use crate::predictor::Predictor;
use crate::select::{Level, bounded};
use crate::shape::{Raw, Shape, Track};
use crate::steps::{Advance, GAP_STEPS_MAX, Steps};

/// The horizons of a forecaster, in steps. Each has losses, credit and calibration of its own.
pub const LEVELS: [u32; 4] = [1, 4, 16, 64];

/// How many scores a level remembers, about.
const MEMORIES: [f64; 4] = [64.0, 48.0, 32.0, 24.0];

const PATH_MAX: usize = GAP_STEPS_MAX as usize;

/// How much the upper of the two levels around each step counts, see [`share_of_upper`]: logarithms are dear.
static SHARES: LazyLock<[f64; PATH_MAX + 1]> = LazyLock::new(|| {
    std::array::from_fn(|step| {
        let upper = LEVELS[1..].iter().position(|level| step <= *level as usize);
        share_of_upper(step as f64, upper.unwrap_or(LEVELS.len() - 2))
    })
});

/// What a forecaster has to know of a stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ForecasterConfig {
    /// The base interval of the stream: one step. At least 1.
    pub step_ns: i64,
    /// Which share of true values is to be within the half width, 0.5 to 0.99.
    pub confidence: f64,
    /// What values the stream can have.
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

/// What a stream is at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// Finite, and what the stream's shape allows.
    pub value: f64,
    /// The true value is within so much of `value`, as often as the confidence says. Infinite while that is not
    /// known yet; 0 at the time of the newest look.
    pub half_width: f64,
    /// The predictor that is followed.
    pub by: &'static str,
}

/// What became of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It made steps.
    Fed,
    /// It is in the step of the one before, in whose place it is now what comes next is said from.
    SameStep,
    /// It is not later than the newest. Nothing changed.
    Late,
    /// Nothing changed.
    NotFinite,
    /// The counter began again. That is no error of who predicted it.
    Reset,
    /// More than 64 steps after the newest: what was before is forgotten, what was learned is not.
    Gap,
}

/// Follows one stream. `docs/design/0005-forecast.md` says how.
pub struct Forecaster {
    pub(crate) shape: Shape,
    pub(crate) steps: Steps,
    pub(crate) track: Track,
    pub(crate) members: Members,
    pub(crate) levels: [Level; 4],
    /// Steps since the first look.
    pub(crate) now: u64,
    /// The newest look, as predictors see it.
    pub(crate) last: f64,
}

impl Forecaster {
    /// With the default predictors.
    pub fn new(config: ForecasterConfig) -> Self {
        Self::with_delphi(config, None)
    }

    /// With the default predictors, and Delphi repaired beside them where there are weights for it.
    pub fn with_delphi(config: ForecasterConfig, delphi: Option<Arc<Weights>>) -> Self {
        Self::of(config, Members::default_set(delphi))
    }

    /// With persistence and these, of which the first eleven names count.
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
        let level = |at: usize| Level::new(LEVELS[at], MEMORIES[at], config.confidence);
        Self {
            shape: config.shape,
            steps: Steps::new(config.step_ns),
            track: Track::new(config.shape),
            members,
            levels: std::array::from_fn(level),
            now: 0,
            last: 0.0,
        }
    }

    /// One step, ns.
    pub fn step_ns(&self) -> i64 {
        self.steps.step_ns()
    }

    /// What values the stream can have from now on, as its bounds may change. A counter stays one, and nothing else
    /// becomes one.
    pub fn set_shape(&mut self, shape: Shape) {
        if self.shape != Shape::Counter && shape != Shape::Counter {
            self.shape = shape;
        }
    }

    /// The time of the newest look. None before the first.
    pub fn newest_ns(&self) -> Option<i64> {
        self.steps.newest_ns()
    }

    /// A look at the stream: at `ts_ns` it was `value`.
    pub fn observe(&mut self, ts_ns: i64, value: f64) -> Taken {
        if !value.is_finite() {
            return Taken::NotFinite;
        }
        self.look(ts_ns, Raw::Float(value))
    }

    /// The same of an integer. Counters keep all its digits.
    pub fn observe_int(&mut self, ts_ns: i64, value: i64) -> Taken {
        self.look(ts_ns, Raw::Int(value))
    }

    fn look(&mut self, ts_ns: i64, value: Raw) -> Taken {
        let advance = self.steps.look(ts_ns);
        let reset =
            !matches!(advance, Advance::First | Advance::Late) && self.track.is_reset(value);
        let taken = match advance {
            Advance::Late => return Taken::Late,
            Advance::First => {
                self.last = self.track.start(value);
                self.members.observe(self.last);
                Taken::Fed
            }
            Advance::Same => {
                if reset {
                    self.track.reset(value, self.last);
                } else {
                    self.last = self.track.see(value);
                }
                Taken::SameStep
            }
            Advance::Steps(steps) => {
                match (steps, reset) {
                    (1, false) => self.next_step(value),
                    _ => self.later_step(steps, value, reset),
                }
                Taken::Fed
            }
            Advance::Gap => {
                if reset {
                    self.track.reset(value, self.last);
                } else {
                    self.last = self.track.see(value);
                }
                self.levels.iter_mut().for_each(Level::drop_said);
                self.now = self.now.saturating_add(u64::from(GAP_STEPS_MAX));
                self.members.forget();
                self.members.observe(self.last);
                Taken::Gap
            }
        };
        self.steps.take(ts_ns, advance);
        if taken != Taken::SameStep {
            self.say();
        }
        if reset { Taken::Reset } else { taken }
    }

    /// The next step is `value`.
    fn next_step(&mut self, value: Raw) {
        let before = self.last;
        self.last = self.track.see(value);
        self.score(before, 1);
        self.members.observe(self.last);
    }

    /// So many steps on, it is `value`.
    #[inline(never)]
    fn later_step(&mut self, steps: u32, value: Raw, reset: bool) {
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

    /// What was said of the next steps is compared with what they were: on the line from `before` to what was seen.
    fn score(&mut self, before: f64, steps: u32) {
        let came = self.now.saturating_add(u64::from(steps));
        for level in &mut self.levels {
            let Some(said) = level.said().filter(|said| said.due <= came) else {
                continue;
            };
            // Too long a line says nothing of what was between.
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

    /// The counter began again at `value`: where it would be, had it not, is what was said.
    fn continue_as_said(&mut self, value: Raw, path: &[f64]) {
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

    /// Each level whose last forecast's time came says the next.
    fn say(&mut self) {
        let (last, shape) = (self.last, self.shape);
        for (at, level) in (0..).zip(&mut self.levels) {
            // They begin one step after another, so that no step has to ask for all levels.
            if level.said().is_none() && self.now >= at {
                level.say(&self.members, last, self.now, |said| {
                    shape.possible(last, said)
                });
            }
        }
    }

    /// What is said of the next steps, as predictors see them. At most 64.
    pub(crate) fn path(&self, path: &mut [f64]) {
        if let [next] = path {
            // Said already, unless a look within the step moved all of it.
            if let Some(said) = self.levels[0].said() {
                let moved = said.moved();
                *next = self.shape.possible(self.last, self.last + moved);
                return;
            }
        }
        self.path_within(self.shape, path);
    }

    /// The same, but what has bounds goes on beyond them: so it is seen when between two steps it meets one.
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

/// The same at a whole number of steps, 1 to 64, with the two levels around it.
pub(crate) fn share_at(step: usize) -> f64 {
    SHARES.get(step).copied().unwrap_or(1.0)
}

/// How much the upper of two levels counts at a horizon between them: by its logarithm.
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

/// `part` of `whole` steps.
#[expect(clippy::cast_precision_loss, reason = "at most 64")]
fn fraction(part: u64, whole: u32) -> f64 {
    part as f64 / f64::from(whole)
}

/// Bends what was said of the steps since `before` so that it ends at what was seen. What was right stays.
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
