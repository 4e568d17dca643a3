//! Properties of every sequence: bounds against persistence, finite results, no panic.

use barograph_forecast::{
    Cascade, Forecast, Forecaster, ForecasterConfig, LEVELS, LookEffect, Predictor, Shape, WORST,
};
use proptest::prelude::*;

use crate::simple::{self, Liar};

const STEP_NS: i64 = 1_000_000_000;

/// Numbers of all kinds, equal more often than by chance.
fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -10.0..10.0f64,
        2 => (-5i32..5).prop_map(f64::from),
        1 => prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
        1 => prop::sample::select(vec![1e308, -1.7e308, f64::MAX, f64::MIN, 5e-324, 0.0, -0.0, 1e12]),
    ]
}

/// Runs of the same kind, which predictors learn before it changes.
fn values() -> impl Strategy<Value = Vec<f64>> {
    let run = prop_oneof![
        prop::collection::vec(number(), 1..40),
        (-1e6..1e6f64, -1e3..1e3f64, 1usize..150).prop_map(|(from, slope, count)| (0..count)
            .map(|at| from + slope * at as f64)
            .collect()),
        (number(), 1usize..80).prop_map(|(value, count)| vec![value; count]),
        (number(), number(), 1usize..10, 1usize..100).prop_map(|(a, b, period, count)| {
            (0..count)
                .map(|at| if at / period % 2 == 0 { a } else { b })
                .collect()
        }),
    ];
    prop::collection::vec(run, 1..6).prop_map(|runs: Vec<Vec<f64>>| runs.concat())
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Gauge),
        Just(Shape::Counter),
        (number(), number()).prop_map(|(min, max)| Shape::Bounded { min, max }),
    ]
}

fn config(shape: Shape) -> ForecasterConfig {
    ForecasterConfig {
        step_ns: STEP_NS,
        confidence: 0.9,
        shape,
    }
}

fn check_forecast(forecast: Forecast) {
    assert!(forecast.value.is_finite(), "{forecast:?}");
    assert!(forecast.half_width >= 0.0, "{forecast:?}");
}

/// Checks the sums of errors of the forecasts and of persistence, at each level, as the forecaster
/// scores itself: the first forecast of each level is one step later than that of the level before.
fn check_worst(mut forecaster: Forecaster, values: &[f64]) {
    let mut said: [Vec<Option<f64>>; 4] = Default::default();
    for (at, value) in values.iter().enumerate() {
        forecaster.observe(at as i64 * STEP_NS, *value);
        for (level, forecast) in forecaster.levels().into_iter().enumerate() {
            said[level].push(forecast.map(|forecast| forecast.value));
        }
    }
    let most = values
        .iter()
        .fold(0.0f64, |most, value| most.max(value.abs()));
    for (level, steps) in LEVELS.into_iter().enumerate() {
        let steps = steps as usize;
        let (mut sum, mut persistence) = (0.0, 0.0);
        for at in (level..values.len()).step_by(steps) {
            let Some(there) = values.get(at + steps) else {
                break;
            };
            sum += (there - said[level][at].expect("it was looked at")).abs();
            persistence += (there - values[at]).abs();
        }
        // If numbers differ by much, the distance added to the last value is rounded to its digits.
        let rounding = most * 1e-12;
        assert!(
            sum <= WORST * persistence + rounding,
            "{steps} steps: {sum} {persistence}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn never_much_worse_than_persistence(values in values()) {
        check_worst(Forecaster::new(config(Shape::Gauge)), &values);
    }

    #[test]
    fn never_much_worse_within_bounds(values in values(), a in number(), b in number()) {
        let shape = Shape::Bounded { min: a.min(b), max: a.max(b) };
        check_worst(Forecaster::new(config(shape)), &values);
    }

    #[test]
    fn never_much_worse_whatever_predictors_say(
        values in values(),
        lies in prop::collection::vec(prop::num::f64::ANY | prop::num::f64::NORMAL, 1..9),
    ) {
        let liar = |lies: Vec<f64>| -> Box<dyn Predictor + Send> { Box::new(Liar { lies, at: 0 }) };
        // One predictor is right until half of the values, another is always wrong.
        let mut half = values.clone();
        half.truncate(values.len() / 2);
        half.push(1e300);
        let mut predictors = simple::all();
        predictors.push(liar(lies));
        check_worst(Forecaster::with_predictors(config(Shape::Gauge), predictors), &values);
        check_worst(
            Forecaster::with_predictors(config(Shape::Gauge), vec![liar(half)]),
            &values,
        );
    }

    #[test]
    fn any_look_at_any_time_is_defined(
        looks in prop::collection::vec((prop::num::f64::ANY, any::<i64>(), any::<bool>(), 0u8..6), 1..200),
        shape in shape(),
        step_ns in prop_oneof![any::<i64>(), 1..5_000_000_000i64],
        confidence in prop::num::f64::ANY,
    ) {
        let mut cascade = Cascade::new(ForecasterConfig { step_ns, confidence, shape });
        let mut newest_ns = None;
        let mut near_ns = 0i64;
        for (value, ts_ns, is_int, kind) in looks {
            // Mostly a few steps on; or any time.
            let ts_ns = if kind == 0 {
                ts_ns
            } else {
                near_ns.saturating_add((ts_ns >> 2).unsigned_abs().cast_signed() % step_ns.saturating_mul(1 << kind).max(1))
            };
            near_ns = ts_ns;
            let taken = if is_int {
                cascade.observe_int(ts_ns, value.to_bits().cast_signed())
            } else {
                cascade.observe(ts_ns, value)
            };
            match taken {
                LookEffect::NotFinite => assert!(!value.is_finite() && !is_int),
                LookEffect::Late => assert!(newest_ns >= Some(ts_ns)),
                _ => newest_ns = newest_ns.max(Some(ts_ns)),
            }
            assert_eq!(cascade.finest().newest_ns(), newest_ns);
            for after_ns in [0, 1, step_ns / 2, step_ns, step_ns.saturating_mul(50), step_ns.saturating_mul(5000), i64::MAX] {
                let at_ns = ts_ns.saturating_add(after_ns);
                cascade.at(at_ns).into_iter().for_each(check_forecast);
                if let Some((_, forecast)) = cascade.at_int(at_ns) {
                    check_forecast(forecast);
                }
                assert!(cascade.half_width(after_ns) >= 0.0);
            }
            cascade.finest().levels().into_iter().flatten().for_each(check_forecast);
            let projection = cascade.project();
            if let Some(reach) = projection.reaches(value) {
                let in_order = |a: Option<f64>, b: Option<f64>| a.zip(b).is_none_or(|(a, b)| a <= b);
                assert!(in_order(reach.early_s, reach.expected_s) && in_order(reach.expected_s, reach.late_s));
                assert!(in_order(Some(0.0), reach.early_s) && in_order(reach.late_s, projection.horizon_s()));
            }
            prop_assert!(!cascade.explain()[0].to_string().is_empty());
        }
    }

    #[test]
    fn counters_never_decrease_and_bounds_are_kept(values in values(), kind in any::<bool>()) {
        let (min, max) = (-5.0, 5.0);
        let shape = if kind { Shape::Counter } else { Shape::Bounded { min, max } };
        let mut forecaster = Forecaster::new(config(shape));
        for (at, value) in values.iter().enumerate() {
            let value = if kind { *value } else { value.clamp(min, max) };
            let now_ns = at as i64 * STEP_NS;
            forecaster.observe(now_ns, value);
            let mut before = forecaster.at(now_ns).unwrap().value;
            prop_assert!((before - value).abs() <= value.abs() * 1e-9);
            for half in 1..128 {
                let next = forecaster.at(now_ns + half * STEP_NS / 2).unwrap().value;
                if kind {
                    // The sum of a base and the increment since is rounded.
                    prop_assert!(next >= before - before.abs().max(next.abs()) * 1e-15, "{before} {next}");
                } else {
                    prop_assert!((min..=max).contains(&next), "{next}");
                }
                before = next;
            }
        }
    }

    #[test]
    fn the_same_looks_say_the_same(values in values()) {
        let run = || {
            let mut forecaster = Forecaster::new(config(Shape::Gauge));
            for (at, value) in values.iter().enumerate() {
                forecaster.observe(at as i64 * STEP_NS, *value);
            }
            format!("{:?} {:?}", forecaster.levels(), forecaster.explain())
        };
        prop_assert_eq!(run(), run());
    }
}
