//! Compares three ways to compute the half width of a forecast, over the errors of persistence on
//! synthetic families: ours (adaptive conformal inference over the newest errors), quantile
//! tracking with a step of the errors' size, and that with an integrator (conformal PID without its
//! model). For each it prints the coverage, the least coverage of 500 looks in a row, and the mean
//! width relative to ours. `cargo run --release -p barograph-forecast --example calibration`.

use barograph_forecast::{Forecaster, ForecasterConfig};

#[path = "../tests/it/families.rs"]
#[expect(dead_code, reason = "coverage alone")]
mod families;

use families::{Errors, FAMILIES};

const STEP_NS: i64 = 1_000_000_000;
const SAMPLES: usize = 20_000;
const BLOCK: usize = 500;
const MISS: f64 = 0.1;

/// Angelopoulos, Candès and Tibshirani, Conformal PID Control for Time Series Prediction (NeurIPS
/// 2023): quantile tracking with a step of a tenth of the greatest recent error; with `integrator`,
/// corrected by the tangent of the sum of misses.
struct Tracking {
    quantile: f64,
    recent: Vec<f64>,
    integrator: bool,
    misses: f64,
    count: f64,
}

impl Tracking {
    fn new(integrator: bool) -> Self {
        Self {
            quantile: 0.0,
            recent: Vec::new(),
            integrator,
            misses: 0.0,
            count: 0.0,
        }
    }

    fn half_width(&self) -> f64 {
        let correction = if self.integrator && self.count > 0.0 {
            let of = self.misses * (self.count + 1.0).ln() / (2.0 * (self.count + 1.0));
            self.greatest() * of.clamp(-1.5, 1.5).tan()
        } else {
            0.0
        };
        (self.quantile + correction).max(0.0)
    }

    fn greatest(&self) -> f64 {
        self.recent.iter().copied().fold(0.0, f64::max)
    }

    fn score(&mut self, error: f64, said: f64) {
        let miss = f64::from(error > said) - MISS;
        self.misses += miss;
        self.count += 1.0;
        self.quantile += 0.1 * self.greatest() * miss;
        self.recent.push(error);
        if self.recent.len() > 64 {
            self.recent.remove(0);
        }
    }
}

#[derive(Default)]
struct Sum {
    covered: Vec<bool>,
    width: f64,
}

impl Sum {
    fn add(&mut self, error: f64, said: f64) {
        self.covered.push(error <= said);
        self.width += said;
    }

    fn text(&self, ours: f64) -> String {
        let share = |of: &[bool]| {
            100.0 * of.iter().filter(|covered| **covered).count() as f64 / of.len() as f64
        };
        let least = self
            .covered
            .chunks_exact(BLOCK)
            .map(share)
            .fold(100.0, f64::min);
        format!(
            "{:5.1} {least:5.1} {:5.2}",
            share(&self.covered),
            self.width / ours
        )
    }
}

fn main() {
    println!(
        "{:<20} ours              tracking          with integrator",
        ""
    );
    for family in FAMILIES {
        let mut ours = Forecaster::with_predictors(ForecasterConfig::default(), Vec::new());
        let mut others = [Tracking::new(false), Tracking::new(true)];
        let mut sums: [Sum; 3] = Default::default();
        let mut last = f64::NAN;
        for (at, value) in family.values(4, SAMPLES).into_iter().enumerate() {
            let error = (value - last).abs();
            let said = ours.half_width(STEP_NS);
            if at > 100 {
                sums[0].add(error, said);
            }
            for (other, sum) in others.iter_mut().zip(&mut sums[1..]) {
                let said = other.half_width();
                if at > 100 {
                    sum.add(error, said);
                }
                if at > 0 {
                    other.score(error, said);
                }
            }
            ours.observe(at as i64 * STEP_NS, value);
            last = value;
        }
        let width = sums[0].width;
        println!(
            "{:<20} {}{}",
            family.name,
            sums.map(|sum| sum.text(width)).join("  "),
            if family.errors == Errors::Alike {
                " *"
            } else {
                ""
            },
        );
    }
    println!("* many errors are alike");
}
