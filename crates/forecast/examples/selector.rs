//! The forecaster on synthetic families of streams: error relative to persistence and coverage at
//! each level, time and memory. `cargo run --release -p barograph-forecast --example selector`.

use std::time::Instant;

use barograph_forecast::delphi::RepairedDelphi;
use barograph_forecast::predictors::{Holt, Kalman, Nlms, Rls, Spectral};
use barograph_forecast::{Forecaster, ForecasterConfig, LEVELS, Predictor};

#[path = "../tests/it/families.rs"]
mod families;

use families::{FAMILIES, SeriesFamily};

const STEP_NS: i64 = 1_000_000_000;
const SAMPLES: usize = 20_000;
const SEEDS: u64 = 3;

/// Sums of one level: number of due forecasts, their error, that of persistence, number of
/// calibrated ones, and of covered ones.
#[derive(Default, Clone, Copy)]
struct Sum {
    said: f64,
    persistence: f64,
    calibrated: f64,
    covered: f64,
}

impl Sum {
    fn ratio(&self) -> f64 {
        if self.persistence == 0.0 && self.said == 0.0 {
            return 1.0;
        }
        self.said / self.persistence
    }

    fn coverage(&self) -> f64 {
        100.0 * self.covered / self.calibrated
    }
}

/// Creates a forecaster with the predictors of the command line: letters, see below. Without
/// letters: the default ones.
fn made(letters: &str) -> Forecaster {
    let config = ForecasterConfig::default();
    if letters.is_empty() {
        return Forecaster::new(config);
    }
    let predictors = letters
        .chars()
        .filter_map(|letter| -> Option<Box<dyn Predictor + Send>> {
            Some(match letter {
                'h' => Box::new(Holt::default()),
                'k' => Box::new(Kalman::default()),
                'n' => Box::new(Nlms::<8>::default()),
                'r' => Box::new(Rls::<8>::default()),
                'R' => Box::new(Rls::<4>::default()),
                's' => Box::new(Spectral::default()),
                'd' => Box::new(RepairedDelphi::default()),
                _ => return None,
            })
        });
    Forecaster::with_predictors(config, predictors.collect())
}

fn run(letters: &str, family: &SeriesFamily) -> ([Sum; 4], String) {
    let mut sums = [Sum::default(); 4];
    let mut by = String::new();
    for seed in 0..SEEDS {
        let values = family.values(seed + 1, SAMPLES);
        let mut forecaster = made(letters);
        for (at, value) in values.iter().enumerate() {
            forecaster.observe(at as i64 * STEP_NS, *value);
            for ((steps, forecast), sum) in LEVELS.iter().zip(forecaster.levels()).zip(&mut sums) {
                // As often as the forecaster scores itself: errors at every step would repeat the
                // same information.
                let there = at + *steps as usize;
                if at % *steps as usize != 0 || there >= values.len() {
                    continue;
                }
                let Some(forecast) = forecast else { continue };
                let error = (values[there] - forecast.value).abs();
                sum.said += error;
                sum.persistence += (values[there] - value).abs();
                if forecast.half_width.is_finite() {
                    sum.calibrated += 1.0;
                    sum.covered += f64::from(error <= forecast.half_width);
                }
            }
        }
        by = forecaster
            .explain()
            .levels
            .map(|level| level.follows)
            .join(" ");
    }
    (sums, by)
}

#[expect(clippy::disallowed_methods, reason = "measures time")]
fn nanoseconds(letters: &str, family: &SeriesFamily) -> (f64, f64) {
    let values = family.values(9, SAMPLES);
    let mut least = [f64::INFINITY; 2];
    for _ in 0..15 {
        let mut forecaster = made(letters);
        let mut sum = 0.0;
        let start = Instant::now();
        for (at, value) in values.iter().enumerate() {
            forecaster.observe(at as i64 * STEP_NS, *value);
        }
        let observed = start.elapsed();
        let mut forecaster = made(letters);
        let start = Instant::now();
        for (at, value) in values.iter().enumerate() {
            let ts_ns = at as i64 * STEP_NS;
            forecaster.observe(ts_ns, *value);
            sum += forecaster
                .at(ts_ns + STEP_NS / 2)
                .map_or(0.0, |said| said.value);
        }
        let both = start.elapsed();
        std::hint::black_box(sum);
        for (least, took) in least.iter_mut().zip([observed, both]) {
            *least = least.min(took.as_nanos() as f64 / SAMPLES as f64);
        }
    }
    (least[0], least[1])
}

fn main() {
    let letters = std::env::args().nth(1).unwrap_or_default();
    println!(
        "error / persistence at 1, 4, 16, 64 steps; coverage of 90 % there; ns of observe, and with at"
    );
    let mut logs = [0.0; 4];
    let mut predictable = 0.0;
    let mut worst = [0.0f64; 4];
    for family in FAMILIES {
        let (sums, by) = run(&letters, family);
        let ratios = sums.map(|sum| sum.ratio());
        for level in 0..4 {
            worst[level] = worst[level].max(ratios[level]);
            logs[level] += if family.predictable {
                ratios[level].max(1e-3).ln()
            } else {
                0.0
            };
        }
        predictable += f64::from(family.predictable);
        let coverage = sums.map(|sum| format!("{:5.1}", sum.coverage())).join(" ");
        let (observe, both) = if std::env::var_os("FAST").is_some() {
            (0.0, 0.0)
        } else {
            nanoseconds(&letters, family)
        };
        println!(
            "{:<20} {}  {coverage} {} {observe:4.0} {both:4.0}  {by}",
            family.name,
            ratios.map(|ratio| format!("{ratio:6.3}")).join(" "),
            if family.errors == families::Errors::Continuous {
                ' '
            } else {
                '*'
            },
        );
    }
    println!(
        "worst                {}",
        worst.map(|ratio| format!("{ratio:6.3}")).join(" ")
    );
    println!(
        "mean, predictable    {}",
        logs.map(|log: f64| format!("{:6.3}", (log / predictable).exp()))
            .join(" ")
    );
    println!(
        "bytes                {} and its predictors",
        size_of::<Forecaster>()
    );
    println!("* many errors are alike: the coverage can be anything above");
}
