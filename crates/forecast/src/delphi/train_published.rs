//! Training of Delphi as its authors did it: mean squared error, Adam at 0.001, one window at a
//! time.

use super::adam::Adam;
use super::features::{SeriesFeature, stack_set};
use super::published::{Neuron, PublishedWeights, WINDOW, linear, rectified};
use crate::Random;

const RATE: f64 = 1e-3;
/// Most rounds over a set.
pub const EPOCHS_MAX: u32 = 100;
/// Number of rounds without a smaller error after which training ends.
pub(super) const PATIENCE: u32 = 10;

/// The result of a training.
#[derive(Clone, Debug)]
pub struct PublishedTraining {
    /// The weights of all neurons.
    pub weights: PublishedWeights,
    /// Mean squared error of each feature's neuron on its set, and of the stack on its own, in the
    /// last round.
    pub errors: [f64; 7],
    /// The share of the windows of its set (of the stack's, for the seventh) for which a neuron's
    /// output is 0. At 1 it is dead: its weights were negative by chance, and no training changes
    /// it.
    pub silent: [f64; 7],
    /// Number of rounds of each of these trainings.
    pub epochs: [u32; 7],
}

/// Trains all neurons. The authors set no effective seed, so the weights depend on chance; see
/// `silent`.
pub fn train_published(seed: u64, epochs_max: u32) -> PublishedTraining {
    let mut random = Random::new(seed);
    let mut training = PublishedTraining {
        weights: PublishedWeights {
            neurons: [[0.0; WINDOW + 1]; 7],
            stack: [0.0; 8],
        },
        errors: [0.0; 7],
        silent: [0.0; 7],
        epochs: [0; 7],
    };
    for (at, feature) in SeriesFeature::ALL.into_iter().enumerate() {
        let windows = windows(&feature.set());
        let mut neuron = first_neuron(&mut random);
        let mut adam = Adam::new(RATE);
        let (epochs, error) = rounds(&mut random, &windows, epochs_max, |window, truth| {
            neuron_step(&mut neuron, &mut adam, window, truth)
        });
        training.weights.neurons[at] = neuron;
        training.errors[at] = error;
        training.epochs[at] = epochs;
        training.silent[at] = silent_share(&neuron, &windows);
    }
    train_stack(&mut training, &mut random, epochs_max);
    training
}

fn train_stack(training: &mut PublishedTraining, random: &mut Random, epochs_max: u32) {
    let windows = windows(&stack_set());
    let weights = &mut training.weights;
    weights.neurons[6] = first_neuron(random);
    let reach = (6.0f64 / 8.0).sqrt();
    for weight in &mut weights.stack[..7] {
        *weight = random.between(-reach, reach);
    }
    let mut adam = Adam::<14>::new(RATE);
    let (epochs, error) = rounds(random, &windows, epochs_max, |window, truth| {
        stack_step(weights, &mut adam, window, truth)
    });
    training.errors[6] = error;
    training.epochs[6] = epochs;
    training.silent[6] = silent_share(&weights.neurons[6], &windows);
}

/// The uniform weights of Glorot and Bengio, without bias: the initial weights of Keras.
fn first_neuron(random: &mut Random) -> Neuron {
    let reach = (6.0 / (WINDOW as f64 + 1.0)).sqrt();
    let mut neuron = [0.0; WINDOW + 1];
    for weight in &mut neuron[..WINDOW] {
        *weight = random.between(-reach, reach);
    }
    neuron
}

type Example = ([f64; WINDOW], f64);

fn windows(series: &[f64]) -> Vec<Example> {
    series
        .windows(WINDOW + 1)
        .map(|values| {
            let mut window = [0.0; WINDOW];
            window.copy_from_slice(&values[..WINDOW]);
            (window, values[WINDOW])
        })
        .collect()
}

fn silent_share(neuron: &Neuron, windows: &[Example]) -> f64 {
    let silent = windows
        .iter()
        .filter(|(window, _)| rectified(neuron, window) == 0.0)
        .count();
    silent as f64 / windows.len() as f64
}

/// Makes rounds in random order until the error stops falling; returns their number, and the error
/// of the last.
fn rounds(
    random: &mut Random,
    windows: &[Example],
    epochs_max: u32,
    mut step: impl FnMut(&[f64; WINDOW], f64) -> f64,
) -> (u32, f64) {
    let mut order: Vec<usize> = (0..windows.len()).collect();
    let (mut best, mut since_best, mut error) = (f64::INFINITY, 0, f64::INFINITY);
    for epoch in 1..=epochs_max {
        random.shuffle(&mut order);
        let sum: f64 = order
            .iter()
            .map(|&at| step(&windows[at].0, windows[at].1))
            .sum();
        error = sum / windows.len() as f64;
        since_best = if error < best { 0 } else { since_best + 1 };
        best = best.min(error);
        if since_best >= PATIENCE {
            return (epoch, error);
        }
    }
    (epochs_max, error)
}

/// Learns from one window; returns the squared error before.
fn neuron_step(
    neuron: &mut Neuron,
    adam: &mut Adam<{ WINDOW + 1 }>,
    window: &[f64; WINDOW],
    truth: f64,
) -> f64 {
    let sum = linear(neuron, window);
    let off = sum.max(0.0) - truth;
    let slope = if sum > 0.0 { 2.0 * off } else { 0.0 };
    let mut gradient = [slope; WINDOW + 1];
    for (gradient, value) in gradient.iter_mut().zip(window) {
        *gradient *= value;
    }
    adam.step(neuron, &gradient);
    off * off
}

/// Like [`neuron_step`], for the seventh neuron and the sum.
fn stack_step(
    weights: &mut PublishedWeights,
    adam: &mut Adam<14>,
    window: &[f64; WINDOW],
    truth: f64,
) -> f64 {
    let outputs: [f64; 7] = std::array::from_fn(|at| rectified(&weights.neurons[at], window));
    let off = weights.apply(window) - truth;
    let slope = 2.0 * off;
    let mut gradient = [0.0; 14];
    if linear(&weights.neurons[6], window) > 0.0 {
        let through = slope * weights.stack[6];
        for (gradient, value) in gradient.iter_mut().zip(window) {
            *gradient = through * value;
        }
        gradient[5] = through;
    }
    for (gradient, output) in gradient[6..].iter_mut().zip(outputs) {
        *gradient = slope * output;
    }
    gradient[13] = slope;
    let mut trained = [0.0; 14];
    trained[..6].copy_from_slice(&weights.neurons[6]);
    trained[6..].copy_from_slice(&weights.stack);
    adam.step(&mut trained, &gradient);
    weights.neurons[6].copy_from_slice(&trained[..6]);
    weights.stack.copy_from_slice(&trained[6..]);
    off * off
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delphi::published::committed::{SEED, WEIGHTS};

    /// The result is chaotic in principle, so there is a tolerance: a machine whose logarithm
    /// differs in the last bit is no defect.
    #[test]
    fn the_committed_weights_are_what_their_seed_gives() {
        let training = train_published(SEED, EPOCHS_MAX);
        let trained = training
            .weights
            .neurons
            .iter()
            .flatten()
            .chain(&training.weights.stack);
        let committed = WEIGHTS.neurons.iter().flatten().chain(&WEIGHTS.stack);
        for (trained, committed) in trained.zip(committed) {
            assert!((trained - committed).abs() < 1e-3, "{trained} {committed}");
        }
    }

    #[test]
    fn a_neuron_that_is_negative_by_luck_is_never_trained() {
        let mut neuron = [-0.1, -0.2, -0.3, -0.1, -0.5, 0.0];
        let before = neuron;
        let windows = windows(&SeriesFeature::Constant.set());
        let mut adam = Adam::new(RATE);
        rounds(&mut Random::new(1), &windows, 3, |window, truth| {
            neuron_step(&mut neuron, &mut adam, window, truth)
        });
        assert_eq!(neuron, before);
        assert_eq!(silent_share(&neuron, &windows), 1.0);
    }
}
