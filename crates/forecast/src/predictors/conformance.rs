//! Tests of the properties of all predictors, and of their errors on series of known kinds,
//! relative to persistence.

use proptest::prelude::*;

use super::{Holt, Kalman, Nlms, Persistence, Rls, STEPS_MAX, Spectral, series};
use crate::Predictor;

fn all() -> Vec<Box<dyn Predictor>> {
    vec![
        Box::new(Persistence::default()),
        Box::new(Holt::default()),
        Box::new(Kalman::default()),
        Box::new(Nlms::<8>::default()),
        Box::new(Nlms::<16>::default()),
        Box::new(Rls::<8>::default()),
        Box::new(Rls::<16>::default()),
        Box::new(Spectral::default()),
    ]
}

/// Sum of absolute errors `ahead` steps ahead over the second half, relative to persistence.
fn relative_error(predictor: &mut dyn Predictor, values: &[f64], ahead: usize) -> f64 {
    let (mut error, mut persistence) = (0.0, 0.0);
    for (at, value) in values.iter().enumerate() {
        predictor.observe(*value);
        if at >= values.len() / 2
            && let Some(truth) = values.get(at + ahead)
        {
            error += (predictor.predict(ahead as u32) - truth).abs();
            persistence += (value - truth).abs();
        }
    }
    if persistence == 0.0 {
        error
    } else {
        error / persistence
    }
}

/// The greatest allowed error of each predictor, one step and eight steps ahead, as a multiple of
/// that of persistence: `holt`, `kalman`, `nlms-8`, `rls-8`, `spectral`. The bounds are generous:
/// these are random series.
#[test]
fn errors_relative_to_persistence() {
    type Row = (fn(usize) -> Vec<f64>, usize, [f64; 5]);
    let table: [Row; 28] = [
        (series::hacc_regular, 1, [1.30, 1.55, 0.01, 0.01, 0.01]),
        (series::hacc_regular, 8, [1.05, 0.25, 0.01, 0.01, 0.01]),
        (series::hacc_writes, 1, [1.05, 1.05, 0.01, 0.01, 0.01]),
        (series::hacc_writes, 8, [0.95, 0.95, 0.01, 0.01, 0.01]),
        (series::hacc_irregular, 1, [1.35, 2.15, 1.45, 1.30, 1.20]),
        (series::hacc_irregular, 8, [1.20, 0.90, 1.20, 1.20, 1.20]),
        (series::ramp, 1, [0.10, 0.01, 0.01, 0.01, 1.20]),
        (series::ramp, 8, [0.15, 0.01, 0.01, 0.01, 1.20]),
        (series::noisy_ramp, 1, [0.40, 0.30, 0.35, 0.35, 1.20]),
        (series::noisy_ramp, 8, [0.25, 0.10, 0.15, 0.10, 1.20]),
        (series::sine, 1, [0.60, 0.65, 0.01, 0.01, 0.01]),
        (series::sine, 8, [1.55, 1.65, 0.01, 0.01, 0.01]),
        (series::noisy_sine, 1, [1.20, 1.20, 1.05, 1.00, 0.80]),
        (series::noisy_sine, 8, [1.25, 1.70, 0.70, 0.75, 0.20]),
        (series::checkpoints, 1, [1.20, 1.25, 1.85, 1.20, 0.30]),
        (series::checkpoints, 8, [1.25, 1.25, 1.30, 1.20, 0.10]),
        (series::autoregression, 1, [1.20, 1.20, 1.10, 1.10, 1.20]),
        (series::autoregression, 8, [1.25, 1.15, 1.00, 1.00, 1.20]),
        (series::swings, 1, [0.85, 1.00, 0.45, 0.40, 1.15]),
        (series::swings, 8, [2.25, 2.50, 0.60, 0.55, 1.15]),
        (series::walk, 1, [1.20, 1.20, 1.20, 1.20, 1.20]),
        (series::walk, 8, [1.25, 1.25, 1.20, 1.20, 1.20]),
        (series::noise, 1, [0.90, 0.90, 0.95, 0.90, 1.20]),
        (series::noise, 8, [0.90, 0.90, 0.90, 0.90, 1.20]),
        (series::constant, 1, [0.01, 0.01, 0.01, 0.01, 0.01]),
        (series::constant, 8, [0.01, 0.01, 0.01, 0.01, 0.01]),
        (series::spikes, 1, [1.55, 1.35, 1.30, 1.25, 1.25]),
        (series::spikes, 8, [1.70, 1.60, 1.25, 1.20, 1.25]),
    ];
    for (row, (values, ahead, bounds)) in table.into_iter().enumerate() {
        let named = all().into_iter().filter(|predictor| {
            ["holt", "kalman", "nlms-8", "rls-8", "spectral"].contains(&predictor.name())
        });
        for (mut predictor, bound) in named.zip(bounds) {
            let name = predictor.name();
            let error = relative_error(&mut *predictor, &values(3000), ahead);
            assert!(
                error <= bound,
                "row {row}, {ahead} ahead, {name}: {error} > {bound}"
            );
        }
    }
}

/// Any finite value; those at the ends of a double's range occur as often as plain ones.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e6..1e6,
        1 => prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
        1 => prop::sample::select(vec![f64::MAX, f64::MIN, 1e308, -1e308, 5e-324, 1e150, -1e149, 1e-150, 0.0]),
    ]
}

/// A part of a series: random values, a repeated value, a ramp, a period, a gap.
#[derive(Clone, Debug)]
enum Piece {
    Values(Vec<f64>),
    Repeat(f64, usize),
    Ramp(f64, f64, usize),
    Period(Vec<f64>, usize),
    Gap,
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        prop::collection::vec(value(), 1..40).prop_map(Piece::Values),
        (value(), 1..300usize).prop_map(|(value, times)| Piece::Repeat(value, times)),
        (value(), value(), 1..300usize)
            .prop_map(|(from, step, times)| Piece::Ramp(from, step, times)),
        (prop::collection::vec(value(), 1..12), 1..40usize)
            .prop_map(|(values, times)| Piece::Period(values, times)),
        Just(Piece::Gap),
    ]
}

fn feed(predictor: &mut dyn Predictor, piece: &Piece) {
    let mut observe = |value: f64| {
        if value.is_finite() {
            predictor.observe(value);
        }
    };
    match piece {
        Piece::Values(values) => values.iter().for_each(|value| observe(*value)),
        Piece::Repeat(value, times) => (0..*times).for_each(|_| observe(*value)),
        Piece::Ramp(from, step, times) => {
            (0..*times).for_each(|n| observe(from + step * n as f64));
        }
        Piece::Period(values, times) => {
            let repeated = values.iter().cycle().take(values.len() * times);
            repeated.for_each(|value| observe(*value));
        }
        Piece::Gap => predictor.forget(),
    }
}

fn check(predictor: &dyn Predictor) -> Result<(), TestCaseError> {
    let mut path = [f64::NAN; 20];
    predictor.path(&mut path);
    for (step, expected) in (1..).zip(path) {
        prop_assert!(expected.is_finite(), "{} {step}", predictor.name());
        prop_assert_eq!(
            expected,
            predictor.predict(step),
            "{} {}",
            predictor.name(),
            step
        );
    }
    for step in [0, STEPS_MAX, STEPS_MAX + 1, u32::MAX] {
        prop_assert!(
            predictor.predict(step).is_finite(),
            "{} {step}",
            predictor.name()
        );
    }
    Ok(())
}

proptest! {
    /// Whatever the series is, predictions are finite and the path equals the single predictions;
    /// afterwards, a plain series is predicted.
    #[test]
    fn any_finite_values(pieces in prop::collection::vec(piece(), 1..6)) {
        for mut predictor in all() {
            check(&*predictor)?;
            for piece in &pieces {
                feed(&mut *predictor, piece);
                check(&*predictor)?;
            }
            predictor.forget();
            check(&*predictor)?;
            feed(&mut *predictor, &Piece::Repeat(7.0, 600));
            check(&*predictor)?;
            let expected = predictor.predict(4);
            prop_assert!((expected - 7.0).abs() < 0.01, "{}: {expected}", predictor.name());
        }
    }
}

proptest! {
    #[test]
    fn what_is_said_beside_forecasts(pieces in prop::collection::vec(piece(), 1..6)) {
        let (mut kalman, mut spectral) = (Kalman::default(), Spectral::default());
        for piece in &pieces {
            feed(&mut kalman, piece);
            feed(&mut spectral, piece);
            for steps in [0, 1, 64, u32::MAX] {
                let variance = kalman.variance(steps);
                prop_assert!(variance >= 0.0 && variance.is_finite(), "{steps}: {variance}");
            }
            if let Some(period) = spectral.period() {
                prop_assert!(period.confidence > 0.0 && period.confidence <= 1.0, "{period:?}");
                prop_assert!((2..=85).contains(&period.steps), "{period:?}");
            }
        }
    }
}

#[test]
fn paths_longer_than_the_farthest_step() {
    for mut predictor in all() {
        for value in series::noisy_ramp(300) {
            predictor.observe(value);
        }
        let mut path = vec![0.0; STEPS_MAX as usize + 20];
        predictor.path(&mut path);
        for (step, expected) in (1..).zip(path) {
            assert_eq!(
                expected,
                predictor.predict(step),
                "{} {step}",
                predictor.name()
            );
        }
    }
}

/// Scale and level have no effect: a stream in bytes is predicted like one in gibibytes.
#[test]
fn no_predictor_knows_the_scale() {
    for (mut small, mut large) in all().into_iter().zip(all()) {
        for value in series::noisy_sine(600) {
            small.observe(value);
            large.observe(value * 1_073_741_824.0);
        }
        let (small_next, large_next) = (small.predict(3), large.predict(3) / 1_073_741_824.0);
        assert!(
            (small_next - large_next).abs() <= 1e-6 * small_next.abs(),
            "{}: {small_next} {large_next}",
            small.name()
        );
    }
}
