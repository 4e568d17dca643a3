//! Families of synthetic streams, generated from a seed.

/// A small generator of pseudorandom numbers (splitmix64).
pub(crate) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform number in (0, 1).
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A normal number with variance 1.
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A number of Student's t distribution with 3 degrees of freedom: heavy tails, variance 3.
    pub(crate) fn student3(&mut self) -> f64 {
        let chi2: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
        self.normal() / (chi2 / 3.0).sqrt()
    }
}

/// The distribution of a family's errors, which decides what its intervals can do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Errors {
    /// No error occurs twice: the requested coverage is possible.
    Continuous,
    /// Many errors are equal, mostly 0: an interval covers all of those or none.
    Alike,
}

pub(crate) struct SeriesFamily {
    pub name: &'static str,
    pub errors: Errors,
    /// Whether something in it can be predicted.
    pub predictable: bool,
    value: fn(&mut State) -> f64,
}

impl SeriesFamily {
    pub(crate) fn values(&self, seed: u64, count: usize) -> Vec<f64> {
        let mut state = State {
            random: Random(seed),
            at: 0,
            a: 0.0,
            b: 0.0,
            left: 0,
        };
        let value = |at| {
            state.at = at;
            (self.value)(&mut state)
        };
        (0..count).map(value).collect()
    }
}

struct State {
    random: Random,
    at: usize,
    a: f64,
    b: f64,
    left: u32,
}

const fn family(
    name: &'static str,
    errors: Errors,
    predictable: bool,
    value: fn(&mut State) -> f64,
) -> SeriesFamily {
    SeriesFamily {
        name,
        errors,
        predictable,
        value,
    }
}

/// Ten times as much for 2,000 steps of each 4,000.
fn regime(at: usize) -> f64 {
    if (at / 2000).is_multiple_of(2) {
        1.0
    } else {
        10.0
    }
}

fn add(sum: &mut f64, more: f64) -> f64 {
    *sum += more;
    *sum
}

use Errors::{Alike, Continuous};

pub(crate) const FAMILIES: &[SeriesFamily] = &[
    family("white noise", Continuous, true, |s| s.random.normal()),
    family("random walk", Continuous, false, |s| {
        add(&mut s.a, s.random.normal())
    }),
    family("sine, noise", Continuous, true, |s| {
        10.0 * (s.at as f64 * 0.1).sin() + s.random.normal()
    }),
    family("sine", Continuous, true, |s| (s.at as f64 * 0.07).sin()),
    family("ar .8", Continuous, true, |s| {
        s.a = 0.8 * s.a + s.random.normal();
        s.a
    }),
    family("ar oscillating", Continuous, true, |s| {
        let next = 1.6 * s.a - 0.8 * s.b + s.random.normal();
        (s.a, s.b) = (next, s.a);
        next
    }),
    family("noise x10 and back", Continuous, true, |s| {
        regime(s.at) * s.random.normal()
    }),
    family("walk x10 and back", Continuous, false, |s| {
        add(&mut s.a, regime(s.at) * s.random.normal())
    }),
    family("student noise", Continuous, true, |s| s.random.student3()),
    family("student walk", Continuous, false, |s| {
        add(&mut s.a, s.random.student3())
    }),
    family("momentum", Continuous, true, |s| {
        s.b = 0.9 * s.b + s.random.normal();
        add(&mut s.a, s.b)
    }),
    family("ramp, noise", Continuous, true, |s| {
        3.0 * s.at as f64 + s.random.normal()
    }),
    family("ramp", Alike, true, |s| 3.0 * s.at as f64),
    family("ramps, turning", Alike, true, |s| {
        let slope = if s.at / 100 % 2 == 0 { 1.0 } else { -1.0 };
        add(&mut s.a, slope)
    }),
    family("steps", Alike, false, |s| {
        if s.random.uniform() < 0.02 {
            s.a = 100.0 * s.random.uniform();
        }
        s.a
    }),
    family("hacc regular", Alike, true, |s| {
        250e9 - 38_000.0 * (s.at / 5) as f64
    }),
    family("hacc irregular", Alike, false, |s| {
        if s.left == 0 {
            s.left = 5 + (s.random.uniform() * 16.0) as u32;
            s.a -= 19_000.0 * (1.0 + s.random.uniform());
        }
        s.left -= 1;
        250e9 + s.a
    }),
    family("square wave", Alike, true, |s| {
        if s.at / 10 % 2 == 0 { 0.0 } else { 1.0 }
    }),
    family("saw, noise", Continuous, true, |s| {
        (s.at % 30) as f64 + 0.3 * s.random.normal()
    }),
    family("bursts", Alike, false, |s| {
        if s.left == 0 {
            s.left = 1 + (s.random.uniform() * 60.0) as u32;
            s.b = 1.0 - s.b;
        }
        s.left -= 1;
        s.b * s.random.normal().abs()
    }),
    family("constant", Alike, false, |_| 7.0),
    family("counter, bursts", Alike, false, |s| {
        if s.at / 40 % 2 == 0 {
            s.a += (s.random.uniform() * 1e6).floor();
        }
        s.a
    }),
];
