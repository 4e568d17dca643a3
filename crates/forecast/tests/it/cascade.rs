//! Forecasts of hours from looks of seconds, and when a capacity is full.

use barograph_forecast::{Cascade, ForecasterConfig, Shape, Taken};

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
        // Each hour or so it begins again.
        let value = (at % 4000) * 10;
        let taken = cascade.observe_int(at * STEP_NS, value);
        assert_eq!(taken == Taken::Reset, at > 0 && value == 0);
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
    // Of days, there were too few hours to believe in more than "it stays".
    let days = cascade.at(now_ns + 200_000 * STEP_NS).unwrap();
    assert!(days.value >= now && days.half_width == f64::INFINITY);
    assert_eq!(cascade.at(now_ns + 300_000 * STEP_NS), None);
    assert_eq!(cascade.half_width(300_000 * STEP_NS), f64::INFINITY);
    assert_eq!(cascade.at(now_ns - 1), None);
}

#[test]
fn a_disk_that_fills_is_full_when_it_is_said_to_be() {
    let total = 1e12;
    let mut cascade = cascade(Shape::Bounded {
        min: 0.0,
        max: total,
    });
    let mut random = Random(3);
    let mut free = total;
    let (mut within, mut asked) = (0, 0);
    // 20 MB a step, more or less: full after 50,000 steps.
    for at in 0..40_000i64 {
        free -= 4e7 * random.uniform();
        cascade.observe(at * STEP_NS, free);
        if at >= 10_000 && at % 1000 == 0 {
            let reach = cascade.reaches(0.0).unwrap();
            let truth = (at + (free / 2e7) as i64) * STEP_NS;
            let expected = reach.expected_ns.unwrap();
            let off = (expected - truth).abs() as f64 / (truth - at * STEP_NS) as f64;
            assert!(off < 0.1, "{at}: {reach:?} {truth}");
            within += i32::from(
                reach.earliest_ns <= truth && reach.latest_ns.is_none_or(|latest| latest >= truth),
            );
            asked += 1;
        }
    }
    assert!(within * 10 >= asked * 9, "{within} of {asked}");
}

#[test]
fn what_goes_nowhere_may_be_reached_at_the_earliest_alone() {
    let mut cascade = cascade(Shape::Gauge);
    let mut random = Random(8);
    for at in 0..5000 {
        cascade.observe(at * STEP_NS, random.normal());
    }
    let reach = cascade.reaches(10.0).unwrap();
    assert!(reach.earliest_ns > 4999 * STEP_NS);
    assert_eq!(reach.latest_ns, None);
}
