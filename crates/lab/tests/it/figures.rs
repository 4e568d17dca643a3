//! Reproduces the published figures of Apollo's intervals, and checks those of our policies.

use barograph_forecast::Shape;
use barograph_forecast::interval::{BoundedConfig, ErrorBound, IntervalPolicy, PublishedAimd};
use barograph_lab::replay::{
    BoundedPolicy, HoldingPolicy, Outcome, Policy, ReplayedStream, replay,
};
use barograph_lab::{
    Family, Hacc, Trace, forgetful_frontier, frontier, generate, hacc, is_ahead, renewal_frontier,
};
use barograph_model::NS_PER_S;

/// Half an hour, as in the paper.
const SECONDS: usize = 1800;
const SEEDS: u64 = 10;

fn stream(trace: &Trace) -> ReplayedStream<'_> {
    ReplayedStream {
        interval_ns: trace.interval_ns,
        values: &trace.columns[0].values,
        counter: trace.columns.get(1).map_or(&[], |column| &column.values),
        bound: ErrorBound::Absolute(100.0),
    }
}

fn config() -> BoundedConfig {
    BoundedConfig {
        bound: ErrorBound::Absolute(100.0),
        confidence: 0.99,
        min_ns: NS_PER_S,
        max_ns: 60 * NS_PER_S,
        looks_per_s_max: f64::INFINITY,
    }
}

fn fixed(ticks: i64) -> Box<dyn Policy> {
    Box::new(HoldingPolicy::new(IntervalPolicy::Fixed {
        interval_ns: ticks * NS_PER_S,
    }))
}

fn published(window: usize) -> Box<dyn Policy> {
    Box::new(HoldingPolicy::published(PublishedAimd::new(
        0.1,
        window,
        5 * NS_PER_S,
    )))
}

/// Mean cost and share of exact ticks.
fn mean(kind: Hacc, policy: impl Fn() -> Box<dyn Policy>) -> (f64, f64) {
    let outcomes: Vec<Outcome> = (1..=SEEDS)
        .map(|seed| replay(&stream(&hacc(kind, SECONDS, seed)), policy().as_mut()))
        .collect();
    let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / SEEDS as f64;
    (mean(|outcome| outcome.cost), mean(|outcome| outcome.exact))
}

fn check(is: (f64, f64), cost: f64, accuracy: f64) {
    let near = |is: f64, expect: f64| (is - expect).abs() <= 0.01;
    assert!(
        near(is.0, cost) && near(is.1, accuracy),
        "{is:?}, not {cost} {accuracy}"
    );
}

#[test]
fn the_published_policy_comes_to_its_published_figures() {
    check(mean(Hacc::Regular, || published(10)), 0.357, 0.621);
    check(mean(Hacc::Unaligned, || published(10)), 0.193, 0.718);
    check(mean(Hacc::Unaligned, || published(1)), 0.680, 0.898);
    let constant = generate(Family::Constant, SECONDS, 1);
    let outcome = replay(&stream(&constant), published(10).as_mut());
    check((outcome.cost, outcome.exact), 0.837, 1.0);
}

#[test]
fn fixed_intervals_come_to_their_published_figures() {
    check(mean(Hacc::Regular, || fixed(5)), 0.200, 1.000);
    check(mean(Hacc::Regular, || fixed(2)), 0.500, 0.900);
    check(mean(Hacc::Unaligned, || fixed(5)), 0.200, 0.838);
    check(mean(Hacc::Unaligned, || fixed(2)), 0.500, 0.961);
}

#[test]
fn a_fixed_interval_costs_its_inverse_and_all_is_right_at_1() {
    for family in Family::ALL {
        let trace = generate(family, 3600, 3);
        for ticks in [1, 2, 3, 4, 5, 6, 10, 60] {
            let outcome = replay(&stream(&trace), fixed(ticks).as_mut());
            assert!(
                (outcome.cost - 1.0 / ticks as f64).abs() < 1e-12,
                "{outcome:?}"
            );
            assert!(outcome.exact <= outcome.right && outcome.right <= 1.0);
            assert!(ticks > 1 || outcome.exact == 1.0);
        }
    }
}

#[test]
fn a_sentinel_calls_for_a_tenth_and_is_right_for_99_hundredths() {
    for kind in [Hacc::Regular, Hacc::Irregular, Hacc::Unaligned] {
        for seed in 1..=SEEDS {
            let trace = hacc(kind, SECONDS, seed);
            let outcome = replay(
                &stream(&trace),
                &mut BoundedPolicy::sentinel(config(), Some(Shape::Gauge)),
            );
            assert!(outcome.cost <= 0.05, "{kind:?} {seed} {outcome:?}");
            assert!(outcome.exact >= 0.99, "{kind:?} {seed} {outcome:?}");
        }
    }
}

/// The same on recorded traces, where metadata moves the counter and not the value.
#[test]
fn a_sentinel_calls_for_a_tenth_of_recorded_seconds() {
    for name in ["hacc-regular-1s", "hacc-irregular-1s"] {
        for half in ["train", "test"] {
            let path = format!("{}/traces/{name}-{half}.csv.gz", env!("CARGO_MANIFEST_DIR"));
            let trace = Trace::parse(name, &std::fs::read(path).unwrap()).unwrap();
            let stream = ReplayedStream {
                interval_ns: trace.interval_ns,
                values: &trace.column("available").unwrap().values,
                counter: &trace.column("write_bytes").unwrap().values,
                bound: ErrorBound::Absolute(20_000.0),
            };
            let config = BoundedConfig {
                bound: stream.bound,
                ..config()
            };
            let outcome = replay(
                &stream,
                &mut BoundedPolicy::sentinel(config, Some(Shape::Gauge)),
            );
            assert!(outcome.cost <= 0.10, "{name} {half} {outcome:?}");
            assert!(outcome.right >= 0.99, "{name} {half} {outcome:?}");
        }
    }
}

/// A constant is looked at every minute after some hundred looks, not after some hundred minutes.
#[test]
fn a_constant_costs_little_from_the_start() {
    let trace = generate(Family::Constant, 750, 1);
    let outcome = replay(&stream(&trace), &mut BoundedPolicy::new(config(), None));
    assert!(outcome.cost <= 0.10, "{outcome:?}");
}

/// Writes every 5 s need one look each, a sixteenth more to see what was missed, and some thirty
/// looks to learn the period.
#[test]
fn regular_writes_cost_little_more_than_a_look_each() {
    let (cost, exact) = mean(Hacc::Regular, || {
        Box::new(BoundedPolicy::new(config(), None))
    });
    assert!(cost <= 0.235 && exact == 1.0, "{cost} {exact}");
}

/// The past of a walk, or of steps without memory, shows nothing of the future: no policy passes
/// the hull of all fixed intervals, and our policy is little below it, including the cost of
/// learning.
#[test]
fn where_nothing_can_be_known_fixed_intervals_are_the_bound_and_nearly_reached() {
    for (family, wrong, slack) in [
        (Family::Walk, walk_wrong as fn(usize) -> f64, 0.006),
        (Family::Steps, steps_wrong, 0.008),
    ] {
        let wrong: Vec<f64> = (1..60).map(wrong).collect();
        let (mut ours, mut bound) = (0.0, 0.0);
        for seed in 1..=SEEDS {
            let trace = generate(family, SECONDS, seed);
            let config = BoundedConfig {
                bound: ErrorBound::Absolute(20.0),
                ..config()
            };
            let stream = ReplayedStream {
                bound: config.bound,
                ..stream(&trace)
            };
            let outcome = replay(&stream, &mut BoundedPolicy::new(config, None));
            ours += outcome.right / SEEDS as f64;
            bound += forgetful_frontier(&wrong, outcome.cost) / SEEDS as f64;
        }
        // The slack is for chance: ten runs have some hundred changes each.
        assert!(ours <= bound + 0.002, "{family:?} {ours} passes {bound}");
        assert!(
            ours >= bound - slack,
            "{family:?} {ours} is far from {bound}"
        );
    }
}

/// The probability that a sum of `ticks` normal steps with a deviation of 5 is off by more than 20
/// (Abramowitz and Stegun, 7.1.26).
fn walk_wrong(ticks: usize) -> f64 {
    let x = 20.0 / (5.0 * (2.0 * ticks as f64).sqrt());
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [
        1.061_405_429,
        -1.453_152_027,
        1.421_413_741,
        -0.284_496_736,
        0.254_829_592,
    ];
    series.iter().fold(0.0, |sum, factor| sum * t + factor) * t * (-x * x).exp()
}

/// A new level comes with a probability of 1/40 each tick; one in fifty is within the bound of the
/// old.
fn steps_wrong(ticks: usize) -> f64 {
    0.98 * (1.0 - 0.975_f64.powi(ticks as i32))
}

#[test]
fn bounded_by_error_beats_fixed_on_what_has_a_memory() {
    for kind in [Hacc::Regular, Hacc::Irregular, Hacc::Unaligned] {
        for seed in 1..=SEEDS {
            let trace = hacc(kind, SECONDS, seed);
            let stream = stream(&trace);
            let outcome = replay(&stream, &mut BoundedPolicy::new(config(), None));
            let ahead = is_ahead(&outcome, &frontier(&stream), |outcome| outcome.exact);
            assert!(ahead >= 0.0, "{kind:?} {seed} {ahead} {outcome:?}");
            assert!(outcome.exact >= 0.98, "{kind:?} {seed} {outcome:?}");
        }
    }
}

/// With gaps of 5 to 20 s, all equally likely, looks alone cannot do better than this. So the
/// sentinel's target (a tenth of the looks, right for 99 hundredths) is beyond any policy without a
/// counter.
#[test]
fn what_looks_alone_can_do_on_irregular_writes_is_known() {
    let gaps: Vec<f64> = (1..=20)
        .map(|gap| if gap >= 5 { 1.0 / 16.0 } else { 0.0 })
        .collect();
    let prices: Vec<f64> = (0..24).map(|step| 0.2 * 1.3_f64.powi(step)).collect();
    let bound = renewal_frontier(&gaps, &prices);
    let least = |accuracy: f64| {
        let reach = bound.iter().filter(|point| point.accuracy >= accuracy);
        reach.map(|point| point.cost).fold(f64::INFINITY, f64::min)
    };
    assert!(least(0.99) > 0.45 && least(0.99) < 0.65, "{bound:?}");
    let tenth = bound
        .iter()
        .filter(|point| point.cost <= 0.12)
        .map(|point| point.accuracy);
    assert!(tenth.fold(0.0, f64::max) < 0.75, "{bound:?}");
    let ours = mean(Hacc::Irregular, || {
        Box::new(BoundedPolicy::new(config(), None))
    });
    assert!(
        ours.0 >= least(ours.1 - 0.002) * 0.98,
        "{ours:?} passes {bound:?}"
    );
    assert!(
        ours.0 <= least(ours.1) * 1.35,
        "{ours:?} is far from {bound:?}"
    );
}
