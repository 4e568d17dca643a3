//! The cost of a sample for each predictor: one value observed, one step predicted. `cargo run
//! --release -p barograph-forecast --example predictor_cost` prints, in ns, the minimum and the
//! median of many rounds (other work on the machine only adds), and the most expensive single
//! sample in the cheapest round.

use std::hint::black_box;
use std::time::Duration;

use barograph_forecast::predictors::{Holt, Kalman, Nlms, Persistence, Rls, Spectral};
use barograph_forecast::{Predictor, Random};

const ROUNDS: usize = 200;
const SAMPLES: usize = 4096;

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn time(of: impl FnOnce()) -> Duration {
    let begin = std::time::Instant::now();
    of();
    begin.elapsed()
}

/// All predictors, as the forecaster of one stream has them.
#[derive(Default)]
struct Default6 {
    persistence: Persistence,
    holt: Holt,
    kalman: Kalman,
    nlms: Nlms,
    rls: Rls,
    spectral: Spectral,
}

impl Predictor for Default6 {
    fn name(&self) -> &'static str {
        "all of these"
    }

    fn observe(&mut self, value: f64) {
        self.persistence.observe(value);
        self.holt.observe(value);
        self.kalman.observe(value);
        self.nlms.observe(value);
        self.rls.observe(value);
        self.spectral.observe(value);
    }

    fn predict(&self, steps: u32) -> f64 {
        self.persistence.predict(steps)
            + self.holt.predict(steps)
            + self.kalman.predict(steps)
            + self.nlms.predict(steps)
            + self.rls.predict(steps)
            + self.spectral.predict(steps)
    }

    fn forget(&mut self) {}
}

fn measure<P: Predictor + Default>(series: &str, values: &[f64]) {
    let mut predictor = P::default();
    let mut rounds = Vec::new();
    let mut dearest = vec![Duration::MAX; values.len()];
    for round in 0..ROUNDS {
        let spent = time(|| {
            for value in values {
                predictor.observe(black_box(*value));
                black_box(predictor.predict(1));
            }
        });
        rounds.push(spent.as_nanos() as f64 / values.len() as f64);
        if round % 10 == 0 {
            predictor = P::default();
            for (value, least) in values.iter().zip(&mut dearest) {
                let spent = time(|| {
                    predictor.observe(black_box(*value));
                    black_box(predictor.predict(1));
                });
                *least = spent.min(*least);
            }
        }
    }
    rounds.sort_by(f64::total_cmp);
    let dearest = dearest.iter().max().copied().unwrap_or_default();
    println!(
        "{:12} {series:9} {:7.1} ns  median {:7.1}  dearest sample {:6} ns",
        predictor.name(),
        rounds[0],
        rounds[ROUNDS / 2],
        dearest.as_nanos()
    );
}

fn main() {
    let mut random = Random::new(1);
    let mut at = 0.0;
    let walk: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            at += random.normal();
            at
        })
        .collect();
    let periodic: Vec<f64> = (0..SAMPLES)
        .map(|n| 500.0 + 100.0 * (n as f64 / 4.0).sin() + random.normal())
        .collect();
    let constant = vec![250e9; SAMPLES];
    for (series, values) in [
        ("walk", &walk),
        ("periodic", &periodic),
        ("constant", &constant),
    ] {
        measure::<Persistence>(series, values);
        measure::<Holt>(series, values);
        measure::<Kalman>(series, values);
        measure::<Nlms>(series, values);
        measure::<Rls>(series, values);
        measure::<Spectral>(series, values);
        measure::<Default6>(series, values);
    }
}
