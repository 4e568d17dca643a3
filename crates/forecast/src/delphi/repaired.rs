//! Delphi repaired: the same idea, frozen features and a sum by confidence, without what made it lose.
//!
//! Values are seen as differences to the newest, in units of the mean step within the window: so a constant is
//! predicted as it is, and whoever moves or stretches a stream moves or stretches what is said of it. A feature is
//! as confident as it was right of late, and "it stays as it is" is one of them: so where nothing can be predicted,
//! little is. Each horizon has weights of its own.

use std::sync::{Arc, OnceLock};

use super::repaired_weights::WEIGHTS;
use super::weights::{EXPERTS, FILTERS, HEADS, HORIZONS, PERIODIC, PERSISTENCE, WINDOW, Weights};
use crate::Predictor;

/// Steps and what is said of them are cut here, in mean steps of the window, whose differences are 16 at most.
const CUT: f32 = 256.0;
/// Losses are cut earlier: one jump must not decide for a hundred steps.
const LOSS_CUT: f32 = 8.0;
/// Of a new loss within the recent one.
const LOSS_RATE: f32 = 1.0 / 20.0;
/// Of a new error of a period within its recent one.
const LAG_RATE: f32 = 1.0 / 12.0;
/// Steps are periodic where those a period ago are this much more like the new one than the newest was.
const PERIODIC_BELOW: f32 = 0.5;
/// What is added to losses, so that one which is 0 does not silence all others for a rounding error.
const LOSS_FLOOR: f32 = 0.01;
/// Mean steps that are taken for none, or for too large to divide by.
const SCALE_MIN: f64 = 1e-290;
const SCALE_MAX: f64 = 1e290;

/// What a lag adds to the bits of its error. The first, of no period, is never the least.
const KEYS: [i32; WINDOW] = [i32::MAX, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// A ring twice as long as it need be, written in two places: the window is always in one piece.
const RING: usize = 32;

/// The predictor.
#[derive(Clone, Debug)]
pub struct Repaired {
    weights: Arc<Weights>,
    ring: [f64; 2 * RING],
    /// Where the newest is; older ones follow it.
    head: usize,
    empty: bool,
    /// Mean step within the window; 0 if there is none, or if it cannot be divided by.
    scale: f64,
    /// One by the scale.
    inverse: f64,
    /// Differences of older values to the newest, in mean steps; newest first.
    differences: [f32; WINDOW],
    /// From each value to the next, in mean steps; newest first.
    steps: [f32; WINDOW],
    /// What each filter says of the next value, in mean steps.
    said: [f32; FILTERS],
    said_periodic: f32,
    /// Recent mean error of each filter, in mean steps. These and `lags` are apart from what is written one by one:
    /// a register that is read where a part of it was just written waits for it.
    losses: [f32; FILTERS],
    loss_periodic: f32,
    loss_persistence: f32,
    /// Recent mean difference of steps that are 1, 2, … apart.
    lags: [f32; WINDOW],
    /// The lag that steps repeat best at.
    period: usize,
    /// Whether they do so far better than from one to the next: else a slow curve would have a period.
    periodic: bool,
}

impl Default for Repaired {
    /// With the weights that our training gives.
    fn default() -> Self {
        static COMMITTED: OnceLock<Arc<Weights>> = OnceLock::new();
        Self::new(COMMITTED.get_or_init(|| Arc::new(WEIGHTS)).clone())
    }
}

impl Repaired {
    /// With weights of other training: those of a machine's archive.
    pub fn new(weights: Arc<Weights>) -> Self {
        Self {
            weights,
            ring: [0.0; 2 * RING],
            head: 0,
            empty: true,
            scale: 0.0,
            inverse: 0.0,
            differences: [0.0; WINDOW],
            steps: [0.0; WINDOW],
            said: [0.0; FILTERS],
            said_periodic: 0.0,
            losses: [1.0; FILTERS],
            loss_periodic: 1.0,
            loss_persistence: 0.5,
            lags: [1.0; WINDOW],
            period: 2,
            periodic: false,
        }
    }

    fn newest(&self) -> f64 {
        self.ring[self.head]
    }

    /// Learns from how far off each feature was about `value`.
    #[inline(always)]
    fn score(&mut self, value: f64) {
        let step = self.steps_to(value) as f32;
        for (loss, said) in self.losses.iter_mut().zip(&self.said) {
            *loss = learned(*loss, said - step, LOSS_RATE);
        }
        self.loss_periodic = learned(self.loss_periodic, self.said_periodic - step, LOSS_RATE);
        self.loss_persistence = learned(self.loss_persistence, step, LOSS_RATE);
        let mut keys = [0; WINDOW];
        for at in 0..WINDOW {
            let lag = learned(self.lags[at], self.steps[at] - step, LAG_RATE);
            self.lags[at] = lag;
            // Floats that are not negative have the order of their bits; the lowest of these make room for the lag.
            keys[at] = (lag.to_bits().cast_signed() & !0xf) | KEYS[at];
        }
        self.period = (least_of(&keys) & 0xf) as usize + 1;
        self.periodic = self.lags[self.period - 1] < PERIODIC_BELOW * self.lags[0];
    }

    /// Puts a value into the window, in units of the window's own.
    #[inline(always)]
    fn push(&mut self, value: f64) {
        if self.empty {
            self.ring = [value; 2 * RING];
            self.empty = false;
        }
        let older: [f64; WINDOW] = *self.ring[self.head..]
            .first_chunk()
            .expect("the ring has room after any head");
        let steps: [f64; WINDOW] =
            std::array::from_fn(|at| if at == 0 { value } else { older[at - 1] } - older[at]);
        let scale = sum_of(steps.map(f64::abs)) / WINDOW as f64;
        let usable = (SCALE_MIN..SCALE_MAX).contains(&scale);
        self.scale = if usable { scale } else { 0.0 };
        self.inverse = if usable { 1.0 / scale } else { 0.0 };
        self.steps = scaled(&steps, self.inverse);
        self.differences = scaled(&older.map(|older| older - value), self.inverse);
        self.head = (self.head + RING - 1) % RING;
        self.ring[self.head] = value;
        self.ring[self.head + RING] = value;
    }

    /// What each filter says, in mean steps, for one of the horizons that have weights.
    #[inline(always)]
    fn say(&self, head: usize) -> [f32; FILTERS] {
        let filters = &self.weights.filters[head];
        // Two sums, so that one does not wait for the other.
        let (mut near, mut far) = ([0.0f32; FILTERS], [0.0f32; FILTERS]);
        for at in 0..WINDOW / 2 {
            let after = at + WINDOW / 2;
            for lane in 0..FILTERS {
                near[lane] += self.differences[at] * filters[at][lane];
                far[lane] += self.differences[after] * filters[after][lane];
            }
        }
        std::array::from_fn(|lane| {
            let sum = near[lane] + far[lane];
            let sum = if sum.abs() < SILENT_BELOW[lane] {
                0.0
            } else {
                sum
            };
            sum.clamp(LOWEST[lane], HIGHEST[lane])
        })
    }

    /// What was a period ago, moved by what a period changes.
    #[inline(always)]
    fn repeated(&self, steps: u32) -> f32 {
        let steps = steps as usize;
        let periods = if steps <= self.period {
            1
        } else {
            steps.div_ceil(self.period)
        };
        let ago = periods * self.period - steps;
        let then = if ago == 0 {
            0.0
        } else {
            self.differences[ago - 1]
        };
        then - periods as f32 * self.differences[self.period - 1]
    }

    /// How confident the periodic step is.
    fn sure_periodic(&self) -> f32 {
        if self.periodic {
            confidence(self.loss_periodic)
        } else {
            0.0
        }
    }

    /// The sum of what features say, by their confidence; in mean steps.
    #[inline(always)]
    fn combine(&self, head: usize, said: &[f32; FILTERS], said_periodic: f32) -> f32 {
        let trust = &self.weights.trust[head];
        let sure = self.losses.map(confidence);
        let sure: [f32; FILTERS] = std::array::from_fn(|at| trust[at] * sure[at]);
        let filters = sum_in_fours(std::array::from_fn(|at| sure[at] * said[at]));
        let sure_periodic = trust[PERIODIC] * self.sure_periodic();
        let sure_persistence = trust[PERSISTENCE] * confidence(self.loss_persistence);
        (filters + sure_periodic * said_periodic)
            / (sum_in_fours(sure) + (sure_periodic + sure_persistence))
    }

    /// What training learns filters from: differences to the newest; none without a scale.
    pub(super) fn inputs(&self) -> Option<&[f32; WINDOW]> {
        (self.scale > 0.0).then_some(&self.differences)
    }

    /// What training learns trust from: what features say, and their confidence without trust.
    pub(super) fn opinions(&self, head: usize) -> ([f32; EXPERTS], [f32; EXPERTS]) {
        let (mut said, mut sure) = ([0.0; EXPERTS], [0.0; EXPERTS]);
        said[..FILTERS].copy_from_slice(&self.say(head));
        said[PERIODIC] = self.repeated(HORIZONS[head]);
        sure[..FILTERS].copy_from_slice(&self.losses.map(confidence));
        sure[PERIODIC] = self.sure_periodic();
        sure[PERSISTENCE] = confidence(self.loss_persistence);
        (said, sure)
    }

    /// A value that came later, in mean steps from the newest.
    pub(super) fn steps_to(&self, value: f64) -> f64 {
        ((value - self.newest()) * self.inverse).clamp(-f64::from(CUT), f64::from(CUT))
    }

    /// The value that many mean steps from the newest.
    fn value(&self, steps: f32) -> f64 {
        self.newest() + self.scale * f64::from(steps)
    }

    #[inline]
    fn head(&self, head: usize) -> f64 {
        if self.scale == 0.0 {
            return self.newest();
        }
        let steps = if head == 0 {
            self.combine(0, &self.said, self.said_periodic)
        } else {
            self.combine(head, &self.say(head), self.repeated(HORIZONS[head]))
        };
        self.value(steps)
    }
}

/// In four sums that do not wait for each other.
fn sum_of(values: [f64; WINDOW]) -> f64 {
    let mut sums = [0.0; 4];
    for four in values.chunks_exact(4) {
        for lane in 0..4 {
            sums[lane] += four[lane];
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Four at a time: as many as are written at once are later read at once.
#[inline(always)]
fn scaled(values: &[f64; WINDOW], factor: f64) -> [f32; WINDOW] {
    let mut scaled = [0.0; WINDOW];
    for (scaled, values) in scaled.chunks_exact_mut(4).zip(values.chunks_exact(4)) {
        let four = [
            values[0] * factor,
            values[1] * factor,
            values[2] * factor,
            values[3] * factor,
        ];
        scaled.copy_from_slice(&four.map(|value| value as f32));
    }
    scaled
}

#[inline(always)]
fn least_of(keys: &[i32; WINDOW]) -> i32 {
    let mut least = [i32::MAX; 4];
    for four in keys.chunks_exact(4) {
        for lane in 0..4 {
            least[lane] = least[lane].min(four[lane]);
        }
    }
    least[0].min(least[1]).min(least[2].min(least[3]))
}

fn sum_in_fours(values: [f32; FILTERS]) -> f32 {
    let mut sums = [0.0; 4];
    for four in values.chunks_exact(4) {
        for lane in 0..4 {
            sums[lane] += four[lane];
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// A recent mean error, after an error.
fn learned(loss: f32, off: f32, rate: f32) -> f32 {
    let off = off.abs();
    loss + rate * (if off > LOSS_CUT { LOSS_CUT } else { off } - loss)
}

/// Of who was off by that much of late: who was half as wrong counts 256 times as much.
fn confidence(loss: f32) -> f32 {
    let loss = loss + LOSS_FLOOR;
    let fourth = (loss * loss) * (loss * loss);
    1.0 / (fourth * fourth)
}

/// What the horizons say, and on the line between two of them; beyond the last, as there.
fn along(steps: u32, head: impl Fn(usize) -> f64) -> f64 {
    match HORIZONS.iter().position(|&horizon| steps <= horizon) {
        None => head(HEADS - 1),
        Some(0) => head(0),
        Some(at) if HORIZONS[at] == steps => head(at),
        Some(at) => {
            let (low, high) = (HORIZONS[at - 1], HORIZONS[at]);
            let share = f64::from(steps - low) / f64::from(high - low);
            head(at - 1) * (1.0 - share) + head(at) * share
        }
    }
}

/// Features that know one direction say nothing of the other.
const LOWEST: [f32; FILTERS] = [0.0, -CUT, -CUT, -CUT, 0.0, -CUT, -CUT, -CUT];
/// The spike feature knows returns, not drifts.
pub(super) const SILENT_BELOW: [f32; FILTERS] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
const HIGHEST: [f32; FILTERS] = [CUT, 0.0, CUT, CUT, CUT, 0.0, CUT, CUT];

impl Predictor for Repaired {
    fn name(&self) -> &'static str {
        "delphi"
    }

    fn observe(&mut self, value: f64) {
        if self.scale > 0.0 {
            self.score(value);
        }
        self.push(value);
        if self.scale > 0.0 {
            self.said = self.say(0);
            self.said_periodic = self.repeated(1);
        }
    }

    fn predict(&self, steps: u32) -> f64 {
        if steps <= 1 {
            return self.head(0);
        }
        along(steps, |head| self.head(head))
    }

    fn path(&self, expected: &mut [f64]) {
        let heads: [f64; HEADS] = std::array::from_fn(|at| self.head(at));
        for (steps, expected) in (1..).zip(expected) {
            *expected = along(steps, |head| heads[head]);
        }
    }

    fn forget(&mut self) {
        self.empty = true;
        self.scale = 0.0;
        self.lags = [1.0; WINDOW];
        self.periodic = false;
    }
}
