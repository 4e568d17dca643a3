//! Trains Delphi and measures it: `cargo run --release -p barograph-forecast --example delphi -- COMMAND`.
//! `train` writes the committed weights, `figures` prints what documents quote, `speed` times.

use std::hint::black_box;
use std::ops::ControlFlow;
use std::sync::Arc;

use barograph_forecast::delphi::{
    EPOCHS_MAX, Family, Feature, HORIZONS, Published, PublishedTraining, PublishedWeights,
    Repaired, TrainingOptions, Weights, train, train_published,
};
use barograph_forecast::{Predictor, Random};

/// Trainings of the published model; the one with the least error on the set of its stack is committed.
const SEEDS: u64 = 40;

fn main() -> std::io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("train") => train_all(),
        Some("figures") => {
            figures_published();
            figures_repaired(&train_repaired());
            Ok(())
        }
        Some("quick") => {
            figures_repaired(&train_repaired());
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
    let text = format!(
        "{head}\nuse super::published::Weights;\n\n/// The best of {SEEDS}, by the error of the stack.\n\
         #[cfg(test)]\npub const SEED: u64 = {seed};\n\n/// What training with that seed gives.\n\
         pub const WEIGHTS: Weights = Weights {{ neurons: {:?}, stack: {:?} }};\n",
        training.weights.neurons, training.weights.stack
    );
    std::fs::write(format!("{folder}/published_weights.rs"), text)?;
    let weights = train_repaired();
    let text = format!(
        "{head}\nuse super::weights::Weights;\n\n/// What training with the default options and no series gives.\n\
         pub const WEIGHTS: Weights = Weights {{ filters: {:?}, trust: {:?} }};\n",
        weights.filters, weights.trust
    );
    std::fs::write(format!("{folder}/repaired_weights.rs"), text)
}

fn best_published() -> (u64, PublishedTraining) {
    (0..SEEDS)
        .map(|seed| (seed, train_published(seed, EPOCHS_MAX)))
        .min_by(|one, other| one.1.errors[6].total_cmp(&other.1.errors[6]))
        .expect("there are seeds")
}

fn figures_published() {
    println!(
        "seed  250e9 constant  1 constant  ramp 1000+t (truth 1005)  stack error  silent shares"
    );
    for seed in 0..SEEDS {
        let training = train_published(seed, EPOCHS_MAX);
        let after = |values: [f64; 5]| after(&training.weights, values);
        println!(
            "{seed:4} {:>8.4} {:>8.3} {:>8.1} {:>9.3} {:.2?}",
            after([250e9; 5]) / 250e9,
            after([1.0; 5]),
            after(std::array::from_fn(|t| 1000.0 + t as f64)),
            training.errors[6],
            training.silent,
        );
    }
    for feature in Feature::ALL {
        println!("{}", feature.name());
    }
}

fn after(weights: &PublishedWeights, values: [f64; 5]) -> f64 {
    let mut predictor = Published::new(weights.clone());
    for value in values {
        predictor.observe(value);
    }
    predictor.predict(1)
}

/// Absolute errors by those of the last value, on series that no training saw.
fn figures_repaired(weights: &Weights) {
    const SERIES: u64 = 200;
    let weights = Arc::new(weights.clone());
    println!("family          h=1 published  repaired: h=1  h=4  h=16  h=64");
    for family in Family::ALL {
        let mut sums = [[0.0; 4]; 3];
        for seed in 0..SERIES {
            let values = family.series(&mut Random::new(1_000_000 + seed), 512);
            errors(&mut Published::default(), &values, &mut sums[0]);
            errors(&mut Repaired::new(weights.clone()), &values, &mut sums[1]);
            errors(&mut Last(0.0), &values, &mut sums[2]);
        }
        let ratio = |which: usize, head: usize| sums[which][head] / sums[2][head];
        println!(
            "{:15} {:>10.3}  {:>13.3} {:>6.3} {:>6.3} {:>6.3}",
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
    let values = Family::RandomWalk.series(&mut Random::new(7), 4096);
    let mut predictors: Vec<Box<dyn Predictor>> = vec![
        Box::new(Last(0.0)),
        Box::<Published>::default(),
        Box::<Repaired>::default(),
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
