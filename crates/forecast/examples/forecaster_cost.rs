//! The cost of a sample, by predictor: `cargo run --release -p barograph-forecast --example
//! forecaster_cost`. It prints minima of many rounds, in ns.

use std::time::Instant;

use barograph_forecast::delphi::{RepairedDelphi, Weights};
use barograph_forecast::predictors::{Holt, Kalman, Nlms, Rls, Spectral};
use barograph_forecast::{Cascade, Forecaster, ForecasterConfig, Predictor};

#[path = "../tests/it/families.rs"]
#[expect(dead_code, reason = "the values alone")]
mod families;

const STEP_NS: i64 = 1_000_000_000;
const SAMPLES: usize = 4096;
const ROUNDS: usize = 200;

#[expect(clippy::disallowed_methods, reason = "measures time")]
fn least(mut round: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        round();
        least = least.min(start.elapsed().as_nanos() as f64 / SAMPLES as f64);
    }
    least
}

fn predictor<P: Predictor>(mut predictor: P, values: &[f64]) {
    let observe = least(|| values.iter().for_each(|value| predictor.observe(*value)));
    let mut cost = [1, 4, 16, 64].map(|steps| {
        least(|| {
            for _ in values {
                std::hint::black_box(predictor.predict(std::hint::black_box(steps)));
            }
        })
    });
    let levels = cost[0] + cost[1] / 4.0 + cost[2] / 16.0 + cost[3] / 64.0;
    cost.iter_mut().for_each(|cost| *cost = cost.round());
    println!(
        "{:<12} observe {observe:5.0}, predict 1, 4, 16, 64 steps {cost:?}, all levels {levels:.0}, together {:.0}",
        predictor.name(),
        observe + levels
    );
}

fn forecaster(name: &str, make: impl Fn() -> Forecaster, values: &[f64]) {
    let mut forecaster = make();
    let mut ts_ns = 0;
    let observe = least(|| {
        for value in values {
            ts_ns += STEP_NS;
            forecaster.observe(ts_ns, *value);
        }
    });
    let mut sum = 0.0;
    let both = least(|| {
        for value in values {
            ts_ns += STEP_NS;
            forecaster.observe(ts_ns, *value);
            sum += forecaster
                .at(ts_ns + STEP_NS / 2)
                .map_or(0.0, |said| said.value);
        }
    });
    println!("{name:<12} observe {observe:5.0}, with at {both:5.0}   ({sum:.0})");
}

/// The cost of a look in the agent: the forecasters of all horizons, and the projection for
/// readers.
fn cascade(values: &[f64]) {
    let mut cascade = Cascade::new(ForecasterConfig::default());
    let (mut ts_ns, mut floats) = (0, Vec::new());
    let mut look = |value: f64, ts_ns: &mut i64| {
        *ts_ns += STEP_NS;
        cascade.observe(*ts_ns, value);
    };
    let observe = least(|| values.iter().for_each(|value| look(*value, &mut ts_ns)));
    let mut knots = 0;
    let project = least(|| {
        for _ in values {
            std::hint::black_box(&cascade).project_into(&mut floats);
            knots = std::hint::black_box(&floats).len() / 3;
        }
    });
    let array = least(|| {
        for _ in values {
            cascade.project_into(&mut floats);
            std::hint::black_box(std::sync::Arc::<[f64]>::from(&*floats));
        }
    });
    println!(
        "cascade      observe {observe:5.0}, project {project:5.0}, with an array of its own {array:5.0}   ({knots} knots)"
    );
}

fn main() {
    for name in [
        "sine, noise",
        "random walk",
        "hacc regular",
        "steps",
        "constant",
    ] {
        let Some(family) = families::FAMILIES.iter().find(|family| family.name == name) else {
            continue;
        };
        let values = family.values(1, SAMPLES);
        println!("{name}");
        let config = ForecasterConfig::default();
        forecaster(
            "alone",
            || Forecaster::with_predictors(config, Vec::new()),
            &values,
        );
        forecaster("default", || Forecaster::new(config), &values);
        cascade(&values);
        forecaster(
            "with Delphi",
            || Forecaster::with_delphi(config, Some(Weights::built_in())),
            &values,
        );
        predictor(Holt::default(), &values);
        predictor(Kalman::default(), &values);
        predictor(Nlms::<8>::default(), &values);
        predictor(Rls::<4>::default(), &values);
        predictor(Rls::<8>::default(), &values);
        predictor(Spectral::default(), &values);
        predictor(RepairedDelphi::default(), &values);
    }
}
