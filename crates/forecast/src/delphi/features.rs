//! The training data of Delphi: the synthetic series of its authors, and the families of series
//! that the repaired version adds.

use crate::Random;

/// Length of each of the ten segments of a set of the authors.
pub(super) const SEGMENT_LEN: usize = 100;

/// The features in the authors' code. Their paper names eight (3.4.2); 50 parameters leave room for
/// six.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesFeature {
    /// `a ln x + b`.
    Concave,
    /// `-a ln x + b`.
    Convex,
    /// `a sin(2 pi b l)`, for `l` from 0 to 1.
    Sine,
    /// `a`.
    Constant,
    /// `a x + b`.
    TrendUp,
    /// `-a x + b`.
    TrendDown,
}

impl SeriesFeature {
    /// All features, in the order of the authors' stack.
    pub const ALL: [Self; 6] = [
        Self::Concave,
        Self::Convex,
        Self::Sine,
        Self::Constant,
        Self::TrendUp,
        Self::TrendDown,
    ];

    /// The name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Concave => "concave",
            Self::Convex => "convex",
            Self::Sine => "sine",
            Self::Constant => "constant",
            Self::TrendUp => "trend-up",
            Self::TrendDown => "trend-down",
        }
    }

    /// The `(a, b)` of the ten segments, as in the script that trained the released models.
    fn segments(self) -> [(f64, f64); 10] {
        const LINES: [(f64, f64); 10] = [
            (1.0, 2.0),
            (2.0, 3.0),
            (3.0, 4.0),
            (4.0, 5.0),
            (5.0, 6.0),
            (6.0, 7.0),
            (7.0, 8.0),
            (1.0, 9.0),
            (10.0, 10.0),
            (5.0, 1.0),
        ];
        const WAVES: [(f64, f64); 10] = [
            (11.0, 1.0),
            (5.0, 4.0),
            (3.0, 6.0),
            (2.0, 1.0),
            (10.0, 8.0),
            (24.0, 3.0),
            (4.0, 7.0),
            (3.0, 2.0),
            (88.0, 4.0),
            (13.0, 8.0),
        ];
        match self {
            Self::Sine => WAVES,
            Self::Constant => {
                [80.0, 30.0, 50.0, 100.0, 60.0, 110.0, 40.0, 20.0, 40.0, 50.0].map(|a| (a, 0.0))
            }
            _ => LINES,
        }
    }

    fn segment(self, (a, b): (f64, f64)) -> impl Iterator<Item = f64> {
        let last = (SEGMENT_LEN - 1) as f64;
        (0..SEGMENT_LEN).map(move |step| {
            let x = step as f64;
            match self {
                // At 0, which has no logarithm, the authors use `b`.
                Self::Concave | Self::Convex if step == 0 => b,
                Self::Concave => a * x.ln() + b,
                Self::Convex => -a * x.ln() + b,
                Self::Sine => a * (std::f64::consts::TAU * b * x / last).sin(),
                Self::Constant => a,
                Self::TrendUp => a * x + b,
                Self::TrendDown => -a * x + b,
            }
        })
    }

    /// The 1000 values on which the neuron of this feature is trained.
    pub fn set(self) -> Vec<f64> {
        self.segments()
            .into_iter()
            .flat_map(|segment| self.segment(segment))
            .collect()
    }
}

/// The 1000 values on which the stack is trained.
pub(super) fn stack_set() -> Vec<f64> {
    use SeriesFeature::{Concave, Convex, Sine, TrendDown, TrendUp};
    [
        (Sine, (11.0, 5.0)),
        (Convex, (2.0, 10.0)),
        (TrendUp, (0.2, 3.0)),
        (TrendDown, (0.2, 8.0)),
        (Concave, (8.0, 6.0)),
        (Convex, (2.0, 3.0)),
        (Convex, (2.0, 3.0)),
        (Sine, (3.0, 2.0)),
        (Sine, (88.0, 4.0)),
        (Sine, (13.0, 8.0)),
    ]
    .into_iter()
    .flat_map(|(feature, segment)| feature.segment(segment))
    .collect()
}

/// A kind of series that a stream may be for a while. The repaired Delphi has a feature for each of
/// the first eight; the others must not mislead it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesFamily {
    /// Grows, slower and slower, like a cache that fills.
    Concave,
    /// Falls, slower and slower, like a queue that drains.
    Convex,
    /// Rises and falls smoothly.
    Sine,
    /// A level with noise around it.
    Level,
    /// Grows evenly, like bytes written.
    TrendUp,
    /// Falls evenly, like bytes left.
    TrendDown,
    /// Short bursts from a constant level: the "big event" of the authors, which they wrote and did
    /// not use.
    Spike,
    /// A step of the same size every few looks: HACC, checkpoints, anything with a timer.
    PeriodicStep,
    /// A random walk: no prediction is better than the last value.
    RandomWalk,
    /// Levels that hold until they jump.
    Jumps,
    /// Noise that depends on its last value.
    Autoregressive,
    /// A random walk with observation noise.
    NoisyWalk,
}

impl SeriesFamily {
    /// All families, those with a feature first.
    pub const ALL: [Self; 12] = [
        Self::Concave,
        Self::Convex,
        Self::Sine,
        Self::Level,
        Self::TrendUp,
        Self::TrendDown,
        Self::Spike,
        Self::PeriodicStep,
        Self::RandomWalk,
        Self::Jumps,
        Self::Autoregressive,
        Self::NoisyWalk,
    ];

    /// The name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Concave => "concave",
            Self::Convex => "convex",
            Self::Sine => "sine",
            Self::Level => "level",
            Self::TrendUp => "trend-up",
            Self::TrendDown => "trend-down",
            Self::Spike => "spike",
            Self::PeriodicStep => "periodic-step",
            Self::RandomWalk => "random-walk",
            Self::Jumps => "jumps",
            Self::Autoregressive => "autoregressive",
            Self::NoisyWalk => "noisy-walk",
        }
    }

    /// Returns `len` values of a random member of the family. Their unit does not matter: the
    /// repaired Delphi sees windows in units of their own.
    pub fn series(self, random: &mut Random, len: usize) -> Vec<f64> {
        let mut values = match self {
            Self::Concave => logarithm(random, len, 1.0),
            Self::Convex => logarithm(random, len, -1.0),
            Self::Sine => sine(random, len),
            Self::Level => (0..len).map(|_| random.normal()).collect(),
            Self::TrendUp => (0..len).map(|step| step as f64).collect(),
            Self::TrendDown => (0..len).map(|step| -(step as f64)).collect(),
            Self::Spike => spikes(random, len),
            Self::PeriodicStep => periodic_steps(random, len),
            Self::RandomWalk => walk(random, len, 1.0),
            Self::Jumps => jumps(random, len),
            Self::Autoregressive => {
                let memory = random.between(0.3, 0.95);
                walk(random, len, memory)
            }
            Self::NoisyWalk => {
                let noise = random.between(0.3, 3.0);
                let mut values = walk(random, len, 1.0);
                for value in &mut values {
                    *value += noise * random.normal();
                }
                values
            }
        };
        if matches!(
            self,
            Self::Concave | Self::Convex | Self::Sine | Self::TrendUp | Self::TrendDown
        ) {
            add_noise(random, &mut values);
        }
        values
    }
}

/// Adds noise: none for a third of the series, else a hundredth to three times the mean step.
fn add_noise(random: &mut Random, values: &mut [f64]) {
    let step = values
        .windows(2)
        .map(|pair| (pair[1] - pair[0]).abs())
        .sum::<f64>()
        / values.len().max(1) as f64;
    let noise = if random.chance(1.0 / 3.0) {
        0.0
    } else {
        step * log_between(random, 0.01, 3.0)
    };
    for value in values {
        *value += noise * random.normal();
    }
}

fn log_between(random: &mut Random, low: f64, high: f64) -> f64 {
    random.between(low.ln(), high.ln()).exp()
}

fn logarithm(random: &mut Random, len: usize, sign: f64) -> Vec<f64> {
    let start = log_between(random, 1.0, 100.0);
    let rate = log_between(random, 0.1, 2.0);
    (0..len)
        .map(|step| sign * (start + rate * step as f64).ln())
        .collect()
}

fn sine(random: &mut Random, len: usize) -> Vec<f64> {
    let turn = std::f64::consts::TAU / log_between(random, 4.0, 200.0);
    let phase = random.between(0.0, std::f64::consts::TAU);
    (0..len)
        .map(|step| (turn * step as f64 + phase).sin())
        .collect()
}

fn spikes(random: &mut Random, len: usize) -> Vec<f64> {
    let often = log_between(random, 0.01, 0.2);
    let noise = if random.chance(0.5) {
        0.0
    } else {
        log_between(random, 0.01, 0.3)
    };
    let lasts = if random.chance(0.7) {
        1
    } else {
        2 + random.below(2)
    };
    let sign = if random.chance(0.8) { 1.0 } else { -1.0 };
    let (mut left, mut height) = (0, 0.0);
    (0..len)
        .map(|_| {
            if left == 0 {
                height = 0.0;
                if random.chance(often) {
                    left = 1 + random.below(lasts);
                    height = sign * random.between(1.0, 5.0);
                }
            }
            left = left.saturating_sub(1);
            height + noise * random.normal()
        })
        .collect()
}

fn periodic_steps(random: &mut Random, len: usize) -> Vec<f64> {
    let period = 2 + random.below(14);
    let returns = random.chance(0.5);
    let high_for = 1 + random.below(period - 1);
    let noise = if random.chance(0.5) {
        0.0
    } else {
        log_between(random, 0.01, 0.3)
    };
    let phase = random.below(period);
    (0..len)
        .map(|step| {
            let (round, at) = ((step + phase) / period, (step + phase) % period);
            let clean = if returns {
                f64::from(u8::from(at < high_for))
            } else {
                -(round as f64)
            };
            clean + noise * random.normal()
        })
        .collect()
}

fn walk(random: &mut Random, len: usize, memory: f64) -> Vec<f64> {
    let mut value = 0.0;
    (0..len)
        .map(|_| {
            value = memory * value + random.normal();
            value
        })
        .collect()
}

fn jumps(random: &mut Random, len: usize) -> Vec<f64> {
    let often = log_between(random, 0.01, 0.2);
    let mut value = 0.0;
    (0..len)
        .map(|_| {
            if random.chance(often) {
                value += random.normal();
            }
            value
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sets_of_the_authors_have_their_size_and_their_first_values() {
        for feature in SeriesFeature::ALL {
            assert_eq!(feature.set().len(), 1000, "{}", feature.name());
        }
        assert_eq!(SeriesFeature::Concave.set()[..2], [2.0, 2.0]);
        assert_eq!(SeriesFeature::TrendDown.set()[99..101], [-97.0, 3.0]);
        assert_eq!(SeriesFeature::Constant.set()[999], 50.0);
        let stack = stack_set();
        assert_eq!(stack.len(), 1000);
        assert_eq!(stack[200..202], [3.0, 3.2]);
    }

    #[test]
    fn families_give_what_was_asked_for_and_the_same_for_a_seed() {
        for family in SeriesFamily::ALL {
            for seed in 0..20 {
                let values = family.series(&mut Random::new(seed), 200);
                assert_eq!(values.len(), 200, "{}", family.name());
                assert!(values.iter().all(|value| value.is_finite()));
                assert_eq!(values, family.series(&mut Random::new(seed), 200));
            }
        }
        assert!(SeriesFamily::Sine.series(&mut Random::new(1), 0).is_empty());
    }
}
