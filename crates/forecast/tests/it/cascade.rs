//! Forecasts of hours from looks of seconds, and the time at which a capacity is full.

use barograph_forecast::{Cascade, ForecasterConfig, LookEffect, Shape};

use crate::families::Random;

const STEP_NS: i64 = 1_000_000_000;

fn cascade(shape: Shape) -> Cascade {
    Cascade::new(ForecasterConfig {
        step_ns: STEP_NS,
        confidence: 0.9,
        shape,
    })
}

#[test]
fn coarser_forecasters_go_on_where_the_finer_end() {
    let mut cascade = cascade(Shape::Counter);
    assert_eq!(cascade.at(0), None);
    let count = 64 * 64 * 40;
    for at in 0..=count {
        // The counter starts again about once an hour.
        let value = (at % 4000) * 10;
        let taken = cascade.observe_int(at * STEP_NS, value);
        assert_eq!(taken == LookEffect::Reset, at > 0 && value == 0);
    }
    assert_eq!(cascade.explain().len(), 3);
    let now_ns = count * STEP_NS;
    let now = (count % 4000) as f64 * 10.0;
    for after in [1, 60, 70, 600, 4000, 5000i64] {
        let said = cascade.at(now_ns + after * STEP_NS).unwrap();
        let expect = now + 10.0 * after as f64;
        assert!(
            (said.value / expect - 1.0).abs() < 0.02,
            "{after}: {} {expect}",
            said.value
        );
        let (int, _) = cascade.at_int(now_ns + after * STEP_NS).unwrap();
        assert!((int as f64 - said.value).abs() <= 1.0);
        let width = cascade.half_width(after * STEP_NS);
        assert!(width.is_finite() == said.half_width.is_finite());
    }
    // For days, there were too few hours to predict anything but persistence.
    let days = cascade.at(now_ns + 200_000 * STEP_NS).unwrap();
    assert!(days.value >= now && days.half_width == f64::INFINITY);
    assert_eq!(cascade.at(now_ns + 300_000 * STEP_NS), None);
    assert_eq!(cascade.half_width(300_000 * STEP_NS), f64::INFINITY);
    assert_eq!(cascade.at(now_ns - 1), None);
}

#[test]
fn a_disk_that_fills_is_full_when_it_is_said_to_be() {
    let total = 1e12;
    let bounded = Shape::Bounded {
        min: 0.0,
        max: total,
    };
    for shape in [Shape::Gauge, bounded] {
        let mut cascade = cascade(shape);
        let mut random = Random(3);
        let mut free = total;
        let (mut within, mut known, mut asked) = (0, 0, 0);
        // About 20 MB per step: full after 50,000 steps.
        for at in 0..49_900i64 {
            free -= 4e7 * random.uniform();
            cascade.observe(at * STEP_NS, free);
            if at % 100 != 0 {
                continue;
            }
            let projection = cascade.project();
            let reach = projection.reaches(0.0).unwrap();
            let truth_s = free / 2e7;
            let Some(expected_s) = reach.expected_s else {
                // This is at, or nearly at, the end of the projection.
                let horizon_s = projection.horizon_s().unwrap_or(0.0);
                assert!(truth_s > horizon_s * 0.9, "{at}: {truth_s} {horizon_s}");
                assert_eq!(reach.late_s, None);
                continue;
            };
            let off = (expected_s / truth_s - 1.0).abs();
            assert!(off < 0.1, "{shape:?} {at}: {reach:?} {truth_s}");
            let is_early = reach.early_s.is_none_or(|early_s| early_s <= truth_s);
            within += i32::from(is_early && reach.late_s.is_none_or(|late_s| late_s >= truth_s));
            known += i32::from(reach.early_s.is_some() && reach.late_s.is_some());
            asked += 1;
        }
        let found = format!("{shape:?}: {within}, {known} of {asked}");
        assert!(
            asked >= 10 && within * 10 >= asked * 9 && known > 0,
            "{found}"
        );
    }
}

#[test]
fn what_goes_nowhere_may_be_reached_at_the_earliest_alone() {
    let mut cascade = cascade(Shape::Gauge);
    let mut random = Random(8);
    for at in 0..5000 {
        cascade.observe(at * STEP_NS, random.normal());
    }
    let projection = cascade.project();
    let reach = projection.reaches(10.0).unwrap();
    assert_eq!((reach.expected_s, reach.late_s), (None, None));
    // The level is within the usual noise, so it may be reached at the next step.
    let now = projection.at(0.0).unwrap().value;
    let reach = projection.reaches(now + 0.5).unwrap();
    assert!(
        reach
            .early_s
            .is_some_and(|early_s| early_s > 0.0 && early_s <= 1.0),
        "{reach:?}"
    );
}

#[test]
fn what_does_not_move_never_gets_there() {
    let shape = Shape::Bounded {
        min: 0.0,
        max: 100.0,
    };
    let mut cascade = cascade(shape);
    assert_eq!(cascade.project().reaches(1.0), None);
    for at in 0..2000 {
        cascade.observe(at * STEP_NS, 50.0);
    }
    let projection = cascade.project();
    let nowhere = projection.reaches(0.0).unwrap();
    assert_eq!(
        (nowhere.early_s, nowhere.expected_s, nowhere.late_s),
        (None, None, None)
    );
    assert_eq!(projection.reaches(f64::NAN), None);
    let there = projection.reaches(50.0).unwrap();
    assert_eq!((there.early_s, there.late_s), (Some(0.0), Some(0.0)));
}
