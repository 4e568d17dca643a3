//! The repaired Delphi: the same idea, frozen features and a sum weighted by confidence, without
//! the causes of its errors.
//!
//! Values are seen as differences from the newest, in units of the mean step within the window: so
//! a constant is predicted exactly, and shifting or scaling a stream shifts or scales its
//! predictions. The confidence of a feature is its recent accuracy, and persistence is one of the
//! features: so where nothing can be predicted, the prediction moves little. Each horizon has its
//! own weights.

use std::sync::Arc;

use super::weights::{EXPERTS, FILTERS, HEADS, HORIZONS, PERIODIC, PERSISTENCE, WINDOW, Weights};
use crate::Predictor;

/// Steps and predictions are cut to this, in mean steps of the window; its differences are 16 at
/// most.
const CUT: f32 = 256.0;
/// Losses are cut to this smaller number: one jump must not decide for a hundred steps.
const LOSS_CUT: f32 = 8.0;
/// Share of a new loss in the recent loss.
const LOSS_RATE: f32 = 1.0 / 20.0;
/// Share of a new error of a period in its recent error.
const LAG_RATE: f32 = 1.0 / 12.0;
/// Steps are periodic if those a period ago differ from the new one by less than this share of the
/// difference between the newest and the new one.
const PERIODIC_BELOW: f32 = 0.5;
/// Added to losses, so that a loss of 0 does not silence all others because of a rounding error.
const LOSS_FLOOR: f32 = 0.01;
/// Range of mean steps; smaller ones count as 0, larger ones cannot be divided by.
const SCALE_MIN: f64 = 1e-290;
const SCALE_MAX: f64 = 1e290;

/// Number that replaces the lowest bits of a lag's error. The first lag, which is no period, is
/// never the least.
const KEYS: [i32; WINDOW] = [i32::MAX, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// A ring twice as long as needed, written in two places: the window is always contiguous.
const RING: usize = 32;

/// The predictor of the repaired Delphi.
#[derive(Clone, Debug)]
pub struct RepairedDelphi {
    weights: Arc<Weights>,
    ring: [f64; 2 * RING],
    /// Index of the newest value; older ones follow it.
    head: usize,
    empty: bool,
    /// Mean step within the window; 0 if there is none, or if it cannot be divided by.
    scale: f64,
    /// The reciprocal of the scale.
    inverse: f64,
    /// Differences of older values from the newest, in mean steps; newest first.
    differences: [f32; WINDOW],
    /// Differences from each value to the next, in mean steps; newest first.
    steps: [f32; WINDOW],
    /// The prediction of the next value by each filter, in mean steps.
    said: [f32; FILTERS],
    said_periodic: f32,
    /// Recent mean error of each filter, in mean steps. These and `lags` are apart from fields that
    /// are written one by one: reading a register of which a part was just written has to wait.
    losses: [f32; FILTERS],
    loss_periodic: f32,
    loss_persistence: f32,
    /// Recent mean difference of steps that are 1, 2, … apart.
    lags: [f32; WINDOW],
    /// The lag at which steps repeat best.
    period: usize,
    /// Whether they repeat far better at that lag than from one step to the next: otherwise a slow
    /// curve would have a period.
    periodic: bool,
}

impl Default for RepairedDelphi {
    /// Creates the predictor with the weights of our training.
    fn default() -> Self {
        Self::new(Weights::built_in())
    }
}

impl RepairedDelphi {
    /// Creates the predictor with other weights: those trained on a machine's archive.
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

    /// Learns from the error of each feature about `value`.
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
            // Floats that are not negative have the order of their bits; the lowest bits are
            // replaced by the lag.
            keys[at] = (lag.to_bits().cast_signed() & !0xf) | KEYS[at];
        }
        self.period = (least_of(&keys) & 0xf) as usize + 1;
        self.periodic = self.lags[self.period - 1] < PERIODIC_BELOW * self.lags[0];
    }

    /// Puts a value into the window, and computes the window's own units.
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

    /// The prediction of each filter, in mean steps, for one of the horizons that have weights.
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

    /// The value a period ago, shifted by the change per period.
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

    /// The confidence of the periodic step.
    fn sure_periodic(&self) -> f32 {
        if self.periodic {
            confidence(self.loss_periodic)
        } else {
            0.0
        }
    }

    /// The sum of the features' predictions, weighted by their confidence; in mean steps.
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

    /// The inputs from which training learns filters: differences from the newest; `None` without a
    /// scale.
    pub(super) fn inputs(&self) -> Option<&[f32; WINDOW]> {
        (self.scale > 0.0).then_some(&self.differences)
    }

    /// The inputs from which training learns trust: the features' predictions, and their confidence
    /// without trust.
    pub(super) fn opinions(&self, head: usize) -> ([f32; EXPERTS], [f32; EXPERTS]) {
        let (mut said, mut sure) = ([0.0; EXPERTS], [0.0; EXPERTS]);
        said[..FILTERS].copy_from_slice(&self.say(head));
        said[PERIODIC] = self.repeated(HORIZONS[head]);
        sure[..FILTERS].copy_from_slice(&self.losses.map(confidence));
        sure[PERIODIC] = self.sure_periodic();
        sure[PERSISTENCE] = confidence(self.loss_persistence);
        (said, sure)
    }

    /// Converts a later value to mean steps from the newest.
    pub(super) fn steps_to(&self, value: f64) -> f64 {
        ((value - self.newest()) * self.inverse).clamp(-f64::from(CUT), f64::from(CUT))
    }

    /// Converts mean steps from the newest to a value.
    fn value(&self, steps: f32) -> f64 {
        (self.newest() + self.scale * f64::from(steps)).clamp(f64::MIN, f64::MAX)
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

/// The sum, in four parts that do not wait for each other.
fn sum_of(values: [f64; WINDOW]) -> f64 {
    let mut sums = [0.0; 4];
    for four in values.chunks_exact(4) {
        for lane in 0..4 {
            sums[lane] += four[lane];
        }
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Scales four values at a time: as many as are written at once are later read at once.
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

/// Updates a recent mean error with a new error.
fn learned(loss: f32, off: f32, rate: f32) -> f32 {
    let off = off.abs();
    loss + rate * (if off > LOSS_CUT { LOSS_CUT } else { off } - loss)
}

/// The confidence for a recent error: a feature with half the error counts 256 times as much.
fn confidence(loss: f32) -> f32 {
    let loss = loss + LOSS_FLOOR;
    let fourth = (loss * loss) * (loss * loss);
    1.0 / (fourth * fourth)
}

/// The predictions at the horizons, and on the line between two of them; beyond the last, the same
/// as there.
fn along(steps: u32, head: impl Fn(usize) -> f64) -> f64 {
    match HORIZONS.iter().position(|&horizon| steps <= horizon) {
        None => head(HEADS - 1),
        Some(0) => head(0),
        Some(at) if HORIZONS[at] == steps => head(at),
        Some(at) => {
            let (low, high) = (HORIZONS[at - 1], HORIZONS[at]);
            let share = f64::from(steps - low) / f64::from(high - low);
            let (low, high) = (head(at - 1), head(at));
            low + (high - low) * share
        }
    }
}

/// Bounds of features that know one direction only: they predict no move in the other.
const LOWEST: [f32; FILTERS] = [0.0, -CUT, -CUT, -CUT, 0.0, -CUT, -CUT, -CUT];
/// Smaller predictions count as 0: the spike feature predicts returns, not drifts.
pub(super) const SILENT_BELOW: [f32; FILTERS] = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];
const HIGHEST: [f32; FILTERS] = [CUT, 0.0, CUT, CUT, CUT, 0.0, CUT, CUT];

impl Predictor for RepairedDelphi {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use crate::delphi::{PublishedDelphi, SeriesFamily};
    use proptest::prelude::*;

    fn after(values: impl IntoIterator<Item = f64>) -> RepairedDelphi {
        let mut predictor = RepairedDelphi::default();
        for value in values {
            predictor.observe(value);
        }
        predictor
    }

    #[test]
    fn a_constant_is_predicted_as_it_is_whatever_its_size() {
        for value in [0.0, -0.0, 1.0, 250e9, -1e-300, 5e-324, f64::MAX, f64::MIN] {
            let predictor = after([value; 40]);
            for steps in [1, 2, 4, 16, 64, 1000] {
                assert_eq!(predictor.predict(steps), value);
            }
        }
        assert_eq!(RepairedDelphi::default().predict(1), 0.0);
        assert_eq!(after([3.5]).predict(64), 3.5);
    }

    #[test]
    fn a_ramp_goes_on() {
        for (from, slope) in [(1000.0, 1.0), (0.0, 1e9), (5e11, -1e-3)] {
            let predictor = after((0..100).map(|at| from + slope * f64::from(at)));
            for (steps, tolerance) in [(1, 0.02), (4, 0.05), (16, 0.1), (64, 0.3)] {
                let truth = from + slope * f64::from(99 + steps);
                let off =
                    (predictor.predict(steps) - truth).abs() / (slope.abs() * f64::from(steps));
                println!("slope {slope:e}, {steps} steps: {off:.4} of the way");
                assert!(off < tolerance, "{slope} {steps} {off}");
            }
        }
    }

    /// HACC as in Apollo, 4.1.2: 38,000 bytes each 5 s, looked at each second.
    #[test]
    fn writes_of_a_period_are_foreseen_at_each_horizon() {
        let left = |at: i32| 1e9 - f64::from(at / 5) * 38_000.0;
        let mut predictor = after((0..200).map(left));
        for at in 200..230 {
            predictor.observe(left(at));
            for steps in [1, 4, 16, 64] {
                let off = (predictor.predict(steps) - left(at + steps as i32)).abs() / 38_000.0;
                assert!(off < 0.1, "at {at}, {steps} steps: off by {off} of a write");
            }
        }
    }

    #[test]
    fn a_burst_is_seen_to_end() {
        let rate = |at: usize| {
            if at % 23 == 7 {
                900.0
            } else {
                10.0 + (at % 3) as f64
            }
        };
        let predictor = after((0..=23 * 20 + 7).map(rate));
        assert_eq!(predictor.newest(), 900.0);
        assert!(predictor.predict(1) < 450.0, "{}", predictor.predict(1));
    }

    #[test]
    fn a_gap_is_not_taken_for_a_step() {
        let mut predictor = after((0..100).map(f64::from));
        predictor.forget();
        predictor.observe(-5e9);
        assert_eq!(predictor.predict(16), -5e9);
        predictor.observe(-5e9 + 1.0);
        assert!((predictor.predict(1) + 5e9).abs() < 3.0);
    }

    /// Sums of absolute errors one step ahead, as multiples of those of the last value.
    #[test]
    fn families_are_predicted_no_worse_than_by_the_last_value() {
        let bound = |family: SeriesFamily| match family {
            SeriesFamily::RandomWalk | SeriesFamily::Jumps => 1.05,
            SeriesFamily::PeriodicStep | SeriesFamily::TrendUp | SeriesFamily::TrendDown => 0.6,
            SeriesFamily::Concave | SeriesFamily::Convex | SeriesFamily::Sine => 0.75,
            SeriesFamily::Level => 0.85,
            _ => 1.02,
        };
        for family in SeriesFamily::ALL {
            let mut sums = [0.0; 3];
            for seed in 0..40 {
                let series = family.series(&mut Random::new(9_000_000 + seed), 400);
                let (mut published, mut repaired) =
                    (PublishedDelphi::default(), RepairedDelphi::default());
                for pair in series.windows(2) {
                    published.observe(pair[0]);
                    repaired.observe(pair[0]);
                    let said = [published.predict(1), repaired.predict(1), pair[0]];
                    for (sum, said) in sums.iter_mut().zip(said) {
                        *sum += (pair[1] - said).abs();
                    }
                }
            }
            let (published, repaired) = (sums[0] / sums[2], sums[1] / sums[2]);
            println!(
                "{:15} published {published:8.3}  repaired {repaired:.3}",
                family.name()
            );
            assert!(repaired < bound(family), "{} {repaired}", family.name());
        }
    }

    proptest! {
        /// Whole numbers and powers of two, so that there is no rounding.
        #[test]
        fn a_stream_that_is_moved_and_stretched_is_predicted_so(
            values in prop::collection::vec(-1000..1000i32, 1..60),
            shift in -1_000_000..1_000_000i32,
            power in -20..20i32,
            steps in 1..80u32,
        ) {
            let factor = 2f64.powi(power);
            let moved = |value: f64| (value + f64::from(shift)) * factor;
            let plain = after(values.iter().map(|value| f64::from(*value))).predict(steps);
            let other = after(values.iter().map(|value| moved(f64::from(*value)))).predict(steps);
            prop_assert!((other - moved(plain)).abs() <= 1e-6 * factor, "{} {}", other, moved(plain));
        }

        #[test]
        fn any_finite_input_is_answered(
            values in prop::collection::vec(any::<f64>().prop_filter("finite", |v| v.is_finite()), 0..60),
            steps in any::<u32>(),
        ) {
            let predictor = after(values.iter().copied());
            let said = predictor.predict(steps);
            prop_assert!(!said.is_nan());
            prop_assert_eq!(said, after(values).predict(steps), "the same of the same");
        }

        #[test]
        fn what_is_of_one_size_stays_finite(
            values in prop::collection::vec(-1e280..1e280f64, 0..60),
            steps in 1..100u32,
        ) {
            prop_assert!(after(values).predict(steps).is_finite());
        }

        #[test]
        fn a_path_is_what_each_step_says(values in prop::collection::vec(-1e6..1e6f64, 0..60)) {
            let predictor = after(values);
            let mut path = [0.0; 100];
            predictor.path(&mut path);
            for (steps, value) in (1..).zip(path) {
                prop_assert_eq!(value, predictor.predict(steps));
            }
        }

        /// With gaps, and with magnitudes that change within a window.
        #[test]
        fn nothing_sticks(
            values in prop::collection::vec(prop_oneof![
                Just(f64::NAN), Just(f64::MAX), Just(f64::MIN), Just(0.0), Just(1e-310), -1e3..1e3f64,
            ], 0..200),
        ) {
            let mut predictor = RepairedDelphi::default();
            for value in values {
                if value.is_nan() { predictor.forget() } else { predictor.observe(value) }
            }
            for at in 0..400 {
                predictor.observe(f64::from(at));
            }
            prop_assert!((predictor.predict(1) - 400.0).abs() < 0.1, "{}", predictor.predict(1));
        }
    }
}
