//! Delphi repaired: the same idea, frozen features and a sum by confidence, without what made it lose.
//!
//! Values are seen as differences to the newest, in units of the mean step within the window: so a constant is
//! predicted as it is, and whoever moves or stretches a stream moves or stretches what is said of it. A feature is
//! as confident as it was right of late, and "it stays as it is" is one of them: so where nothing can be predicted,
//! little is. Each horizon has weights of its own.

use std::sync::{Arc, OnceLock};

use super::repaired_weights::WEIGHTS;
use super::weights::{
    EXPERTS, FILTERS, HEADS, HORIZONS, PERIODIC, PERSISTENCE, SPIKE, WINDOW, Weights,
};
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
/// A difference that is noise to the spike feature.
const SPIKE_FROM: f32 = 2.0;
/// Mean steps that are taken for none, or for too large to divide by.
const SCALE_MIN: f64 = 1e-290;
const SCALE_MAX: f64 = 1e290;

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
    /// Differences to the newest, in mean steps; that of the newest, 0, first.
    differences: [f32; WINDOW + 1],
    /// The same, without what is noise to the spike feature.
    large: [f32; WINDOW + 1],
    /// What each feature says of the next value.
    said: [f32; EXPERTS],
    /// Recent mean error of each feature, in mean steps.
    losses: [f32; EXPERTS],
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
        let mut losses = [1.0; EXPERTS];
        losses[PERSISTENCE] = 0.5;
        Self {
            weights,
            ring: [0.0; 2 * RING],
            head: 0,
            empty: true,
            scale: 0.0,
            inverse: 0.0,
            differences: [0.0; WINDOW + 1],
            large: [0.0; WINDOW + 1],
            said: [0.0; EXPERTS],
            losses,
            lags: [1.0; WINDOW],
            period: 2,
            periodic: false,
        }
    }

    fn newest(&self) -> f64 {
        self.ring[self.head]
    }

    /// Learns from how far off each feature was about `value`.
    fn score(&mut self, value: f64) {
        let step = self.steps_to(value) as f32;
        for (loss, said) in self.losses.iter_mut().zip(&self.said) {
            *loss += LOSS_RATE * (cut((said - step).abs()) - *loss);
        }
        let mut keys = [0; WINDOW];
        for (at, lag) in self.lags.iter_mut().enumerate() {
            let then = self.differences[at] - self.differences[at + 1];
            *lag += LAG_RATE * (cut((then - step).abs()) - *lag);
            // Floats that are not negative have the order of their bits; the lowest of these make room for the lag.
            keys[at] = (lag.to_bits() & !0xf) | at as u32;
        }
        let least = keys[1..].iter().fold(u32::MAX, |least, key| least.min(*key));
        self.period = (least & 0xf) as usize + 1;
        self.periodic = self.lags[self.period - 1] < PERIODIC_BELOW * self.lags[0];
    }

    fn push(&mut self, value: f64) {
        if self.empty {
            self.ring = [value; 2 * RING];
            self.empty = false;
        }
        self.head = (self.head + RING - 1) % RING;
        self.ring[self.head] = value;
        self.ring[self.head + RING] = value;
    }

    /// The window in units of its own.
    fn normalise(&mut self) {
        let window: &[f64; WINDOW + 1] = self.ring[self.head..]
            .first_chunk()
            .expect("the ring has room after any head");
        let mut sum = 0.0;
        for at in 0..WINDOW {
            sum += (window[at] - window[at + 1]).abs();
        }
        let scale = sum / WINDOW as f64;
        let usable = (SCALE_MIN..SCALE_MAX).contains(&scale);
        self.scale = if usable { scale } else { 0.0 };
        self.inverse = if usable { 1.0 / scale } else { 0.0 };
        let newest = window[0];
        for at in 0..=WINDOW {
            self.differences[at] = ((window[at] - newest) * self.inverse) as f32;
        }
        for at in 0..=WINDOW {
            let difference = self.differences[at];
            self.large[at] = difference - difference.clamp(-SPIKE_FROM, SPIKE_FROM);
        }
    }

    /// What each feature says, in mean steps, for one of the horizons that have weights.
    fn say(&self, head: usize) -> [f32; EXPERTS] {
        let filters = &self.weights.filters[head];
        let mut sums = [0.0f32; FILTERS];
        let mut spike = 0.0;
        for at in 0..WINDOW {
            for lane in 0..FILTERS {
                sums[lane] += self.differences[at + 1] * filters[at][lane];
            }
            spike += self.large[at + 1] * filters[at][SPIKE];
        }
        sums[SPIKE] = spike;
        let mut said = [0.0; EXPERTS];
        for lane in 0..FILTERS {
            said[lane] = sums[lane].clamp(LOWEST[lane], HIGHEST[lane]);
        }
        said[PERIODIC] = self.repeated(HORIZONS[head]);
        said
    }

    /// What was a period ago, moved by what a period changes.
    fn repeated(&self, steps: u32) -> f32 {
        let periods = (steps as usize).div_ceil(self.period);
        let ago = periods * self.period - steps as usize;
        self.differences[ago] - periods as f32 * self.differences[self.period]
    }

    /// How confident each feature is.
    fn sure(&self) -> [f32; EXPERTS] {
        let mut sure = self.losses.map(confidence);
        if !self.periodic {
            sure[PERIODIC] = 0.0;
        }
        sure
    }

    /// The sum of what features say, by their confidence; in mean steps.
    fn combine(&self, head: usize, said: &[f32; EXPERTS]) -> f32 {
        let trust = &self.weights.trust[head];
        let sure = self.sure();
        let (mut sum, mut whole) = (0.0, 0.0);
        for at in 0..EXPERTS {
            let confidence = trust[at] * sure[at];
            sum += confidence * said[at];
            whole += confidence;
        }
        sum / whole
    }

    /// What training learns filters from: differences to the newest, and the large ones; none without a scale.
    pub(super) fn inputs(&self) -> Option<(&[f32; WINDOW + 1], &[f32; WINDOW + 1])> {
        (self.scale > 0.0).then_some((&self.differences, &self.large))
    }

    /// What training learns trust from: what features say, and their confidence without trust.
    pub(super) fn opinions(&self, head: usize) -> ([f32; EXPERTS], [f32; EXPERTS]) {
        (self.say(head), self.sure())
    }

    /// A value that came later, in mean steps from the newest.
    pub(super) fn steps_to(&self, value: f64) -> f64 {
        ((value - self.newest()) * self.inverse).clamp(-f64::from(CUT), f64::from(CUT))
    }

    /// The value that many mean steps from the newest.
    fn value(&self, steps: f32) -> f64 {
        self.newest() + self.scale * f64::from(steps)
    }

    fn head(&self, head: usize) -> f64 {
        if self.scale == 0.0 {
            return self.newest();
        }
        let said = if head == 0 { self.said } else { self.say(head) };
        self.value(self.combine(head, &said))
    }
}

fn cut(loss: f32) -> f32 {
    if loss > LOSS_CUT { LOSS_CUT } else { loss }
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
        self.normalise();
        if self.scale > 0.0 {
            self.said = self.say(0);
        }
    }

    fn predict(&self, steps: u32) -> f64 {
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
