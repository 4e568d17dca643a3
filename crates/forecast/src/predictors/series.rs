//! Series for tests of predictors: the same numbers in every run.

use crate::random::Random;

/// Apollo's regular HACC: 38000 bytes written every five steps, as a sum.
pub(super) fn hacc_regular(length: usize) -> Vec<f64> {
    (1..=length).map(|n| (n / 5) as f64 * 38_000.0).collect()
}

/// Apollo's regular HACC, as the bytes written in each step.
pub(super) fn hacc_writes(length: usize) -> Vec<f64> {
    let writes = |n: usize| if n.is_multiple_of(5) { 38_000.0 } else { 0.0 };
    (1..=length).map(writes).collect()
}

/// Apollo's irregular HACC: 19000 to 38000 bytes, 5 to 20 steps apart.
pub(super) fn hacc_irregular(length: usize) -> Vec<f64> {
    let mut random = Random::new(11);
    let (mut at, mut wait) = (0.0, 5);
    (0..length)
        .map(|_| {
            wait -= 1;
            if wait == 0 {
                wait = 5 + random.below(16);
                at += random.between(19_000.0, 38_000.0);
            }
            at
        })
        .collect()
}

pub(super) fn ramp(length: usize) -> Vec<f64> {
    (0..length).map(|n| 1e9 + 1234.5 * n as f64).collect()
}

pub(super) fn noisy_ramp(length: usize) -> Vec<f64> {
    let mut random = Random::new(12);
    (0..length)
        .map(|n| 20.0 * n as f64 + 5.0 * random.normal())
        .collect()
}

/// A sine of period 24.
pub(super) fn sine(length: usize) -> Vec<f64> {
    (0..length)
        .map(|n| 500.0 + 100.0 * (std::f64::consts::TAU * n as f64 / 24.0).sin())
        .collect()
}

/// A sine of period 24, with noise of a fifth of the amplitude.
pub(super) fn noisy_sine(length: usize) -> Vec<f64> {
    let mut random = Random::new(13);
    sine(length)
        .into_iter()
        .map(|value| value + 20.0 * random.normal())
        .collect()
}

/// The rate of a job that writes for ten steps of each sixty, with noise.
pub(super) fn checkpoints(length: usize) -> Vec<f64> {
    let mut random = Random::new(14);
    (0..length)
        .map(|n| {
            let burst = if n % 60 < 10 { 1000.0 } else { 0.0 };
            burst + 20.0 * random.normal().abs()
        })
        .collect()
}

/// Values around 100; each distance from it is half the one before, plus noise.
pub(super) fn autoregression(length: usize) -> Vec<f64> {
    let mut random = Random::new(15);
    let mut at = 0.0;
    (0..length)
        .map(|_| {
            at = 0.5 * at + random.normal();
            100.0 + at
        })
        .collect()
}

/// An autoregression with two roots near the unit circle: swings that lose their phase.
pub(super) fn swings(length: usize) -> Vec<f64> {
    let mut random = Random::new(16);
    let (mut at, mut before) = (0.0, 0.0);
    (0..length)
        .map(|_| {
            let next = 1.8 * at - 0.95 * before + random.normal();
            before = at;
            at = next;
            at
        })
        .collect()
}

pub(super) fn walk(length: usize) -> Vec<f64> {
    let mut random = Random::new(17);
    let mut at = 1e6;
    (0..length)
        .map(|_| {
            at += random.normal();
            at
        })
        .collect()
}

pub(super) fn noise(length: usize) -> Vec<f64> {
    let mut random = Random::new(18);
    (0..length).map(|_| 10.0 + random.normal()).collect()
}

pub(super) fn constant(length: usize) -> Vec<f64> {
    vec![250e9; length]
}

/// Noise with rare, single spikes of any size.
pub(super) fn spikes(length: usize) -> Vec<f64> {
    let mut random = Random::new(19);
    (0..length)
        .map(|_| {
            if random.chance(0.02) {
                1000.0 * random.unit()
            } else {
                random.unit()
            }
        })
        .collect()
}
