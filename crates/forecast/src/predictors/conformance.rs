//! What every predictor holds to, and how each fares on series of known kinds, relative to persistence.

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

/// The most that each predictor's error may be, one step and eight steps ahead, in persistence's: `holt`, `kalman`,
/// `nlms-8`, `rls-8`, `spectral`. Generous: these are series of chance.
#[test]
fn errors_relative_to_persistence() {
    type Bounds = [[f64; 5]; 2];
    type Row = (&'static str, fn(usize) -> Vec<f64>, Bounds);
    let table: [Row; 13] = [
        ("hacc regular", series::hacc_regular, [[9.0; 5]; 2]),
        ("hacc irregular", series::hacc_irregular, [[9.0; 5]; 2]),
        ("ramp", series::ramp, [[9.0; 5]; 2]),
        ("noisy ramp", series::noisy_ramp, [[9.0; 5]; 2]),
        ("sine", series::sine, [[9.0; 5]; 2]),
        ("noisy sine", series::noisy_sine, [[9.0; 5]; 2]),
        ("checkpoints", series::checkpoints, [[9.0; 5]; 2]),
        ("autoregression", series::autoregression, [[9.0; 5]; 2]),
        ("swings", series::swings, [[9.0; 5]; 2]),
        ("walk", series::walk, [[9.0; 5]; 2]),
        ("noise", series::noise, [[9.0; 5]; 2]),
        ("constant", series::constant, [[9.0; 5]; 2]),
        ("spikes", series::spikes, [[9.0; 5]; 2]),
    ];
    for (series, values, bounds) in table {
        let values = values(3000);
        for (ahead, bounds) in [1, 8].into_iter().zip(bounds) {
            let named = all().into_iter().filter(|predictor| {
                ["holt", "kalman", "nlms-8", "rls-8", "spectral"].contains(&predictor.name())
            });
            print!("{series:15} {ahead}: ");
            for (mut predictor, bound) in named.zip(bounds) {
                let name = predictor.name();
                let error = relative_error(&mut *predictor, &values, ahead);
                print!("{name} {error:.4}  ");
                assert!(
                    error <= bound,
                    "{series}, {ahead} ahead, {name}: {error} > {bound}"
                );
            }
            println!();
        }
    }
}

/// Any finite value, those at the ends of what a double holds as often as plain ones.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e6..1e6,
        1 => prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
        1 => prop::sample::select(vec![f64::MAX, f64::MIN, 1e308, -1e308, 5e-324, 1e150, -1e149, 1e-150, 0.0]),
    ]
}

/// A series in pieces: chance, a value repeated, a ramp, a period, a gap.
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
    /// Whatever comes, what is said is finite and the path is the forecasts; afterwards, a plain series is believed.
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

/// Scale and level are nothing: a stream in bytes is predicted as one in gibibytes.
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
