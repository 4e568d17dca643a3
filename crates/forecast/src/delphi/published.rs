//! Delphi as published (Apollo, 3.4.2): for comparison with other predictors, not for use.
//!
//! Six frozen neurons, each trained on one feature, a seventh trained with the stack, and one that
//! adds them up. Values are used unchanged, whatever their unit; predictions of several steps are
//! made of predictions of one. `docs/design/0005-forecast.md` describes the effects.

pub(super) mod committed;

use crate::Predictor;
use committed::WEIGHTS;

/// Number of values that a neuron sees.
pub(super) const WINDOW: usize = 5;
/// Number of parameters of all neurons.
pub const PARAMETERS: usize = 50;
/// Number of parameters of the seventh neuron and the sum; the others are frozen when these are
/// trained.
pub const PARAMETERS_TRAINABLE: usize = 14;
/// The farthest step that is computed; steps beyond it get the same prediction.
pub(super) const STEPS_MAX: u32 = 4096;

/// Five weights, of the oldest to the newest value, and the bias.
pub(super) type Neuron = [f64; WINDOW + 1];

/// All 50 parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedWeights {
    /// The neurons in the order of [`super::Feature::ALL`], then the seventh.
    pub neurons: [Neuron; 7],
    /// The weight of each neuron, and the bias.
    pub stack: [f64; 8],
}

impl PublishedWeights {
    /// Predicts the next value from the five before it, oldest first.
    pub fn apply(&self, window: &[f64; WINDOW]) -> f64 {
        let [weights @ .., bias] = &self.stack;
        self.neurons
            .iter()
            .zip(weights)
            .fold(*bias, |sum, (neuron, weight)| {
                sum + weight * rectified(neuron, window)
            })
    }
}

/// The output of a neuron before it is cut at 0.
pub(super) fn linear(neuron: &Neuron, window: &[f64; WINDOW]) -> f64 {
    let [weights @ .., bias] = neuron;
    weights
        .iter()
        .zip(window)
        .fold(*bias, |sum, (weight, value)| sum + weight * value)
}

/// The output of a neuron. NaN stays NaN, which `max` alone would make 0.
pub(super) fn rectified(neuron: &Neuron, window: &[f64; WINDOW]) -> f64 {
    let linear = linear(neuron, window);
    if linear < 0.0 { 0.0 } else { linear }
}

/// The predictor of the published Delphi.
#[derive(Clone, Debug)]
pub struct PublishedDelphi {
    weights: PublishedWeights,
    /// The last values, oldest first.
    window: [f64; WINDOW],
    seen: usize,
}

impl Default for PublishedDelphi {
    /// Creates the predictor with the weights of our training.
    fn default() -> Self {
        Self::new(WEIGHTS)
    }
}

impl PublishedDelphi {
    /// Creates the predictor with other weights.
    pub fn new(weights: PublishedWeights) -> Self {
        Self {
            weights,
            window: [0.0; WINDOW],
            seen: 0,
        }
    }

    /// Calls `each` with the prediction of one step after another. Until the window is full, each
    /// is the last value.
    fn walk(&self, steps: u32, mut each: impl FnMut(f64)) {
        let mut window = self.window;
        for _ in 0..steps.min(STEPS_MAX) {
            let next = if self.seen < WINDOW {
                window[WINDOW - 1]
            } else {
                self.weights.apply(&window)
            };
            push(&mut window, next);
            each(next);
        }
    }
}

fn push(window: &mut [f64; WINDOW], value: f64) {
    window.rotate_left(1);
    window[WINDOW - 1] = value;
}

impl Predictor for PublishedDelphi {
    fn name(&self) -> &'static str {
        "delphi-published"
    }

    fn observe(&mut self, value: f64) {
        push(&mut self.window, value);
        self.seen = (self.seen + 1).min(WINDOW);
    }

    fn predict(&self, steps: u32) -> f64 {
        let mut last = self.window[WINDOW - 1];
        self.walk(steps, |next| last = next);
        last
    }

    fn path(&self, expected: &mut [f64]) {
        let mut at = 0;
        self.walk(u32::try_from(expected.len()).unwrap_or(u32::MAX), |next| {
            expected[at] = next;
            at += 1;
        });
        if let Some(last) = at.checked_sub(1).map(|last| expected[last]) {
            expected[at..].fill(last);
        }
    }

    fn forget(&mut self) {
        self.seen = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delphi::SeriesFeature;
    use proptest::prelude::*;

    fn after(predictor: &mut impl Predictor, values: impl IntoIterator<Item = f64>) -> f64 {
        for value in values {
            predictor.observe(value);
        }
        predictor.predict(1)
    }

    #[test]
    fn parameters_are_as_many_as_the_paper_says() {
        let weights = WEIGHTS;
        let frozen = SeriesFeature::ALL.len() * weights.neurons[0].len();
        let trainable = weights.neurons[6].len() + weights.stack.len();
        assert_eq!((frozen, trainable), (36, PARAMETERS_TRAINABLE));
        assert_eq!(frozen + trainable, PARAMETERS);
    }

    /// If all values are large and positive, the released model is one linear filter, since each
    /// neuron is then either dead or linear. Its numbers were read from the released files.
    #[test]
    fn the_filter_of_the_released_weights_loses_a_constant_and_a_ramp() {
        let mut weights = PublishedWeights {
            neurons: [[0.0; 6]; 7],
            stack: [0.0; 8],
        };
        weights.neurons[0] = [0.0839, 0.1091, -0.5117, -0.4949, 1.7783, 0.101];
        weights.stack[0] = 1.0;
        let constant = after(&mut PublishedDelphi::new(weights.clone()), [250e9; 8]);
        assert!((constant / 241.2e9 - 1.0).abs() < 1e-3, "{constant}");
        let ramp = after(
            &mut PublishedDelphi::new(weights),
            (0..5).map(|t| 1000.0 + f64::from(t)),
        );
        assert!((ramp - 969.0).abs() < 1.0, "{ramp}");
    }

    #[test]
    fn a_constant_is_lost_more_with_each_step() {
        let mut predictor = PublishedDelphi::default();
        let one = after(&mut predictor, [250e9; 8]);
        assert!((one / 250e9 - 1.0).abs() > 0.001, "{one}");
        assert!((predictor.predict(16) / 250e9 - 1.0).abs() > (one / 250e9 - 1.0).abs());
    }

    #[test]
    fn what_is_not_yet_known_is_the_last_value_and_a_gap_makes_it_so_again() {
        let mut predictor = PublishedDelphi::default();
        assert_eq!(predictor.predict(1), 0.0);
        assert_eq!(after(&mut predictor, [1.0, 2.0, 3.0, 4.0]), 4.0);
        assert_ne!(after(&mut predictor, [5.0]), 5.0);
        predictor.forget();
        assert_eq!(after(&mut predictor, [7.0]), 7.0);
    }

    proptest! {
        #[test]
        fn a_path_is_what_each_step_says(values in prop::collection::vec(-1e6..1e6f64, 0..12)) {
            let mut predictor = PublishedDelphi::default();
            after(&mut predictor, values);
            let mut path = [0.0; 20];
            predictor.path(&mut path);
            for (step, value) in (1..).zip(path) {
                prop_assert_eq!(value, predictor.predict(step));
            }
        }

        #[test]
        fn any_finite_input_and_any_horizon_end(
            values in prop::collection::vec(any::<f64>().prop_filter("finite", |v| v.is_finite()), 0..12),
            steps in any::<u32>(),
        ) {
            let mut predictor = PublishedDelphi::default();
            after(&mut predictor, values);
            let first = predictor.predict(steps);
            prop_assert_eq!(first.to_bits(), predictor.predict(steps).to_bits());
        }
    }
}
