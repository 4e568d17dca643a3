//! The life of a forecaster: first looks, gaps, resets, looks that are not steps, and its
//! explanation of itself.

use barograph_forecast::{FollowReason, Forecaster, ForecasterConfig, LookEffect, Shape};

use crate::simple;

const STEP_NS: i64 = 1000;

fn forecaster(shape: Shape) -> Forecaster {
    let config = ForecasterConfig {
        step_ns: STEP_NS,
        confidence: 0.9,
        shape,
    };
    Forecaster::with_predictors(config, simple::all())
}

/// A forecaster after 100 steps of a ramp of 2 per step.
fn ramp(shape: Shape) -> Forecaster {
    let mut forecaster = forecaster(shape);
    for at in 0..100 {
        let taken = forecaster.observe_int(at * STEP_NS, 2 * at);
        assert_eq!(taken, LookEffect::Fed);
    }
    forecaster
}

fn value(forecaster: &Forecaster, after_ns: i64) -> f64 {
    let newest_ns = forecaster.newest_ns().expect("it was looked at");
    forecaster
        .at(newest_ns + after_ns)
        .expect("within the last level")
        .value
}

#[test]
fn nothing_is_said_before_the_first_look_and_it_stays_after_one() {
    let mut forecaster = forecaster(Shape::Gauge);
    assert_eq!(forecaster.at(0), None);
    assert_eq!(forecaster.levels(), [None; 4]);
    assert_eq!(forecaster.half_width(1), f64::INFINITY);
    assert_eq!(forecaster.observe(5, 3.5), LookEffect::Fed);
    let first = forecaster.at(5).unwrap();
    assert_eq!(
        (first.value, first.half_width, first.by),
        (3.5, 0.0, "persistence")
    );
    assert_eq!(forecaster.at(4), None);
    for after_ns in [1, 500, 1000, 1001, 64_000] {
        let said = forecaster.at(5 + after_ns).unwrap();
        assert_eq!((said.value, said.half_width), (3.5, f64::INFINITY));
    }
    assert_eq!(forecaster.at(5 + 64_001), None);
    assert_eq!(forecaster.explain().levels[0].reason, FollowReason::Start);
}

#[test]
fn a_ramp_is_believed_after_some_ten_steps_and_lies_on_a_line() {
    let mut forecaster = forecaster(Shape::Gauge);
    for at in 0..14i64 {
        forecaster.observe(at * STEP_NS, at as f64);
    }
    assert_eq!(value(&forecaster, STEP_NS), 14.0);
    let forecaster = ramp(Shape::Gauge);
    for (after_ns, expect) in [(0, 198.0), (250, 198.5), (1000, 200.0), (4500, 207.0)] {
        assert_eq!(value(&forecaster, after_ns), expect, "{after_ns}");
    }
    assert_eq!(forecaster.at(99 * STEP_NS + 1).unwrap().by, "linear");
    assert_eq!(forecaster.half_width(STEP_NS), 0.0);
}

#[test]
fn what_is_late_or_no_number_changes_nothing() {
    let mut forecaster = ramp(Shape::Gauge);
    let before = format!("{:?}", forecaster.explain());
    let levels = forecaster.levels();
    assert_eq!(forecaster.observe(99 * STEP_NS, 7.0), LookEffect::Late);
    assert_eq!(forecaster.observe(3, 7.0), LookEffect::Late);
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(
            forecaster.observe(200 * STEP_NS, value),
            LookEffect::NotFinite
        );
    }
    assert_eq!(format!("{:?}", forecaster.explain()), before);
    assert_eq!(forecaster.levels(), levels);
}

#[test]
fn a_second_look_in_a_step_moves_what_comes_next() {
    let mut forecaster = ramp(Shape::Gauge);
    let steps = forecaster.explain().steps;
    assert_eq!(
        forecaster.observe(99 * STEP_NS + 300, 198.5),
        LookEffect::SameStep
    );
    assert_eq!(forecaster.explain().steps, steps);
    assert_eq!(value(&forecaster, 0), 198.5);
    assert_eq!(value(&forecaster, STEP_NS), 200.5);
    assert_eq!(value(&forecaster, 3 * STEP_NS), 204.5);
    assert_eq!(forecaster.observe(100 * STEP_NS, 200.0), LookEffect::Fed);
    assert_eq!(value(&forecaster, STEP_NS), 202.0);
}

#[test]
fn steps_without_a_look_are_what_was_said_of_them() {
    let mut forecaster = ramp(Shape::Gauge);
    assert_eq!(forecaster.observe_int(110 * STEP_NS, 220), LookEffect::Fed);
    assert_eq!(forecaster.explain().steps, 110);
    assert_eq!(value(&forecaster, STEP_NS), 222.0);
    assert_eq!(forecaster.explain().levels[0].switches, 1);
}

#[test]
fn after_a_gap_what_was_before_is_forgotten() {
    let mut forecaster = ramp(Shape::Gauge);
    assert_eq!(forecaster.observe(1_000_000, 5.0), LookEffect::Gap);
    assert_eq!(value(&forecaster, STEP_NS), 5.0);
    assert_eq!(forecaster.observe(1_001_000, 7.0), LookEffect::Fed);
    assert_eq!(value(&forecaster, STEP_NS), 9.0);
}

#[test]
fn a_reset_is_no_error() {
    let mut forecaster = ramp(Shape::Counter);
    let scores = forecaster.explain().levels[0].scores;
    assert_eq!(forecaster.observe_int(100 * STEP_NS, 1), LookEffect::Reset);
    assert_eq!(forecaster.explain().levels[0].scores, scores);
    assert_eq!(value(&forecaster, 0), 1.0);
    assert_eq!(value(&forecaster, STEP_NS), 3.0);
    assert_eq!(forecaster.half_width(STEP_NS), 0.0);
    assert_eq!(
        forecaster.observe_int(100 * STEP_NS + 1, 0),
        LookEffect::Reset
    );
    assert_eq!(value(&forecaster, STEP_NS), 2.0);
    assert_eq!(forecaster.observe_int(101 * STEP_NS, 2), LookEffect::Fed);
    assert_eq!(forecaster.observe_int(900 * STEP_NS, 1), LookEffect::Reset);
    assert_eq!(value(&forecaster, 0), 1.0);
}

#[test]
fn a_counter_of_64_bits_keeps_its_digits() {
    let mut forecaster = forecaster(Shape::Counter);
    let base = i64::MAX - 1000;
    for at in 0..100 {
        forecaster.observe_int(at * STEP_NS, base + 3 * at);
    }
    let (next, said) = forecaster.at_int(100 * STEP_NS).unwrap();
    assert_eq!(next, base + 300);
    assert_eq!(said.half_width, 0.0);
}

#[test]
fn what_is_beyond_the_bounds_is_not_said() {
    let shape = Shape::Bounded {
        min: 0.0,
        max: 205.0,
    };
    let forecaster = ramp(shape);
    assert_eq!(value(&forecaster, 3 * STEP_NS), 204.0);
    assert_eq!(value(&forecaster, 4 * STEP_NS), 205.0);
}

#[test]
fn looks_seldomer_than_steps_calibrate_the_levels_they_can() {
    let mut forecaster = forecaster(Shape::Gauge);
    let mut random = crate::families::Random(5);
    for at in 0..400 {
        forecaster.observe(at * 5 * STEP_NS, random.normal());
    }
    let levels = forecaster.explain().levels;
    assert_eq!(levels[0].scores, 0);
    assert!(levels[1].scores > 300);
    // The unknown half width of one step is taken from four steps.
    assert_eq!(forecaster.half_width(STEP_NS), levels[1].half_width);
    assert!(levels[1].half_width.is_finite());
}

#[test]
fn an_explanation_prints_whom_and_why() {
    let text = ramp(Shape::Gauge).explain().to_string();
    let expect = "\
step 1000 ns, 99 steps
1 step: follows linear since step 4: least error of late
";
    assert!(text.starts_with(expect), "{text}");
    assert!(text.contains("persistence              1.000\n"), "{text}");
}
