//! Trains Delphi and measures it: `cargo run --release -p barograph-forecast --example delphi --
//! COMMAND`. `train` writes the committed weights, `figures` prints the numbers that documents
//! quote, `speed` measures times.

use std::hint::black_box;
use std::ops::ControlFlow;

use barograph_forecast::delphi::{
    EPOCHS_MAX, HORIZONS, PublishedDelphi, PublishedTraining, PublishedWeights, RepairedDelphi,
    SeriesFamily, SeriesFeature, TrainingOptions, Weights, train, train_published,
};
use barograph_forecast::{Predictor, Random};

/// Number of trainings of the published model; the one with the least error on the set of its stack
/// is committed.
const SEEDS: u64 = 40;

fn main() -> std::io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("train") => train_all(),
        Some("figures") => {
            figures_published();
            figures_repaired();
            Ok(())
        }
        Some("speed") => {
            speed();
            Ok(())
        }
        _ => {
            eprintln!("one of: train, figures, speed");
            Ok(())
        }
    }
}

fn train_repaired() -> Weights {
    train(&[], TrainingOptions::default(), |progress| {
        eprintln!("{}/{} {:.3}", progress.done, progress.of, progress.error);
        ControlFlow::Continue(())
    })
    .expect("nothing stops it")
}

fn train_all() -> std::io::Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/delphi");
    let head = "//! Made by `cargo run --release -p barograph-forecast --example delphi -- train`: do not edit.\n";
    let (seed, training) = best_published();
    let neurons: String = training
        .weights
        .neurons
        .iter()
        .map(|neuron| format!("        {neuron:?},\n"))
        .collect();
    let text = format!(
        "{head}\nuse super::PublishedWeights;\n\n/// The best of {SEEDS}, by the error of the stack.\n\
         #[cfg(test)]\npub const SEED: u64 = {seed};\n\n/// What training with that seed gives.\n\
         #[rustfmt::skip]\npub const WEIGHTS: PublishedWeights = PublishedWeights {{\n    neurons: [\n{neurons}    ],\n    stack: {:?},\n}};\n",
        training.weights.stack
    );
    std::fs::write(format!("{folder}/published/committed.rs"), text)?;
    let weights = train_repaired();
    let row = |row: &[f32]| format!("            {row:?},\n");
    let filters: String = weights
        .filters
        .iter()
        .map(|head| {
            format!(
                "        [\n{}        ],\n",
                head.iter().map(|line| row(line)).collect::<String>()
            )
        })
        .collect();
    let trust: String = weights.trust.iter().map(|line| row(line)).collect();
    let text = format!(
        "{head}\nuse super::Weights;\n\n/// What training with the default options and no series gives.\n\
         #[rustfmt::skip]\npub const WEIGHTS: Weights = Weights {{\n    filters: [\n{filters}    ],\n    trust: [\n{trust}    ],\n}};\n"
    );
    std::fs::write(format!("{folder}/weights/committed.rs"), text)
}

fn best_published() -> (u64, PublishedTraining) {
    (0..SEEDS)
        .map(|seed| (seed, train_published(seed, EPOCHS_MAX)))
        .min_by(|one, other| one.1.errors[6].total_cmp(&other.1.errors[6]))
        .expect("there are seeds")
}

/// The result of a training depends on chance: prints all of them, then the span, then how many
/// have dead neurons.
fn figures_published() {
    println!(
        "seed  constant 250e9, 1, ramp 1000+t (as shares of the truth)  stack error  silent shares"
    );
    let mut gains = Vec::new();
    let (mut with_dead, mut dead) = (0, 0);
    for seed in 0..SEEDS {
        let training = train_published(seed, EPOCHS_MAX);
        let after = |values: [f64; 5]| after(&training.weights, values);
        let gain = after([250e9; 5]) / 250e9;
        println!(
            "{seed:4} {gain:>8.4} {:>8.3} {:>8.4} {:>9.3} {:.2?}",
            after([1.0; 5]),
            after(std::array::from_fn(|t| 1000.0 + t as f64)) / 1005.0,
            training.errors[6],
            training.silent,
        );
        gains.push(gain);
        let now = training.silent[..SeriesFeature::ALL.len()]
            .iter()
            .filter(|share| **share > 0.99)
            .count();
        dead += now;
        with_dead += usize::from(now > 0);
    }
    gains.sort_by(f64::total_cmp);
    println!(
        "gain {:.4} to {:.4}, median {:.4}",
        gains[0],
        gains[gains.len() - 1],
        gains[gains.len() / 2]
    );
    println!(
        "{with_dead} of {SEEDS} trainings have frozen neurons that say 0 to 99 % of their set; {dead} neurons"
    );
    let mut recursed = PublishedDelphi::default();
    for _ in 0..5 {
        recursed.observe(250e9);
    }
    println!(
        "committed: 250e9 after 1, 4, 16, 64 steps {:.4?}",
        HORIZONS.map(|steps| recursed.predict(steps) / 250e9)
    );
}

fn after(weights: &PublishedWeights, values: [f64; 5]) -> f64 {
    let mut predictor = PublishedDelphi::new(weights.clone());
    for value in values {
        predictor.observe(value);
    }
    predictor.predict(1)
}

/// Absolute errors as multiples of those of the last value, on series that training has not seen.
fn figures_repaired() {
    const SERIES: u64 = 200;
    println!("family          h=1 published  repaired: h=1  h=4  h=16  h=64  worst series: h=1");
    for family in SeriesFamily::ALL {
        let mut sums = [[0.0; 4]; 3];
        let mut worst = 0.0f64;
        for seed in 0..SERIES {
            let values = family.series(&mut Random::new(1_000_000 + seed), 512);
            errors(&mut PublishedDelphi::default(), &values, &mut sums[0]);
            let (mut ours, mut theirs) = ([0.0; 4], [0.0; 4]);
            errors(&mut RepairedDelphi::default(), &values, &mut ours);
            errors(&mut Last(0.0), &values, &mut theirs);
            for head in 0..4 {
                sums[1][head] += ours[head];
                sums[2][head] += theirs[head];
            }
            worst = worst.max(ours[0] / theirs[0]);
        }
        let ratio = |which: usize, head: usize| sums[which][head] / sums[2][head];
        println!(
            "{:15} {:>10.3}  {:>13.3} {:>6.3} {:>6.3} {:>6.3}  {worst:.3}",
            family.name(),
            ratio(0, 0),
            ratio(1, 0),
            ratio(1, 1),
            ratio(1, 2),
            ratio(1, 3)
        );
    }
}

struct Last(f64);

impl Predictor for Last {
    fn name(&self) -> &'static str {
        "last"
    }
    fn observe(&mut self, value: f64) {
        self.0 = value;
    }
    fn predict(&self, _: u32) -> f64 {
        self.0
    }
    fn forget(&mut self) {}
}

fn errors(predictor: &mut impl Predictor, values: &[f64], sums: &mut [f64; 4]) {
    for (at, value) in values.iter().enumerate() {
        predictor.observe(*value);
        for (sum, horizon) in sums.iter_mut().zip(HORIZONS) {
            if let Some(truth) = values.get(at + horizon as usize) {
                *sum += (truth - predictor.predict(horizon)).abs();
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is about time")]
fn speed() {
    let values = SeriesFamily::RandomWalk.series(&mut Random::new(7), 4096);
    let mut predictors: Vec<Box<dyn Predictor>> = vec![
        Box::new(Last(0.0)),
        Box::<PublishedDelphi>::default(),
        Box::<RepairedDelphi>::default(),
    ];
    for predictor in &mut predictors {
        let mut best = f64::INFINITY;
        for _ in 0..200 {
            let start = std::time::Instant::now();
            for value in &values {
                predictor.observe(*value);
                black_box(predictor.predict(1));
            }
            best = best.min(start.elapsed().as_nanos() as f64 / values.len() as f64);
        }
        println!("{:20} {best:6.1} ns", predictor.name());
    }
}
