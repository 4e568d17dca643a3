//! Tests of interval policies: the interval grows while a value is constant, shrinks at a change,
//! and stays within bounds.

use barograph_model::NS_PER_S;
use barograph_source::policy::{Aimd, IntervalPolicy, WINDOW};
use proptest::prelude::*;

const AIMD: Aimd = Aimd {
    start_ns: NS_PER_S,
    min_ns: NS_PER_S,
    max_ns: 25 * NS_PER_S,
    add_ns: NS_PER_S,
    multiply: 0.75,
    threshold: 0.1,
};

fn both(aimd: Aimd) -> [IntervalPolicy; 2] {
    [
        IntervalPolicy::AimdSimple(aimd),
        IntervalPolicy::AimdComplex(aimd),
    ]
}

/// The intervals in seconds after each value.
fn run(policy: IntervalPolicy, values: &[f64]) -> Vec<f64> {
    let mut state = policy.start();
    let mut step = |v: &f64| {
        state = policy.next(state, *v);
        state.interval_ns as f64 / NS_PER_S as f64
    };
    values.iter().map(&mut step).collect()
}

#[test]
fn simple_by_share_of_the_last_value() {
    let check = |values: &[f64], expect: &[f64]| {
        assert_eq!(
            run(IntervalPolicy::AimdSimple(AIMD), values),
            expect,
            "{values:?}"
        );
    };
    check(&[0.0, 0.0, 0.0], &[1.0, 2.0, 3.0]);
    check(&[100.0, 110.0, 99.0], &[1.0, 2.0, 3.0]);
    check(&[100.0, 100.0, 100.0, 200.0], &[1.0, 2.0, 3.0, 2.25]);
    check(&[0.0, 0.0, 1.0], &[1.0, 2.0, 1.5]);
    check(&[5.0, f64::NAN, 5.0, f64::INFINITY], &[1.0, 1.0, 2.0, 2.0]);
}

#[test]
fn complex_by_average_change() {
    let check = |threshold: f64, values: &[f64], expect: &[f64]| {
        let policy = IntervalPolicy::AimdComplex(Aimd { threshold, ..AIMD });
        assert_eq!(run(policy, values), expect, "{threshold} {values:?}");
    };
    // The first change has no average to be compared with.
    check(0.1, &[7.0, 7.0, 7.0, 7.0], &[1.0, 1.0, 2.0, 3.0]);
    check(0.1, &[7.0, 7.0, 7.0, 8.0], &[1.0, 1.0, 2.0, 1.5]);
    // A value that bounces as before: the released threshold shortens the interval, one above 1
    // lengthens it.
    check(0.1, &[0.0, 8.0, 0.0, 8.0], &[1.0, 1.0, 1.0, 1.0]);
    check(1.1, &[0.0, 8.0, 0.0, 8.0], &[1.0, 1.0, 2.0, 3.0]);
    check(1.1, &[0.0, 8.0, 0.0, 16.0], &[1.0, 1.0, 2.0, 1.5]);
}

#[test]
fn a_change_is_forgotten_after_the_window() {
    // A change of 5 is small compared with an average that still contains the jump, and large
    // later.
    let last_two = |calm: usize| {
        let mut values = vec![0.0, 1000.0];
        values.extend(vec![1000.0; calm]);
        values.push(1005.0);
        let intervals = run(IntervalPolicy::AimdComplex(AIMD), &values);
        (intervals[calm + 1], intervals[calm + 2])
    };
    let (before, after) = last_two(WINDOW - 1);
    assert!(after > before);
    let (before, after) = last_two(WINDOW);
    assert!(after < before);
}

proptest! {
    #[test]
    fn a_constant_relaxes_to_the_bound(value in -1e300..1e300f64, threshold in 0.0..10.0f64) {
        for policy in both(Aimd { threshold, ..AIMD }) {
            let intervals = run(policy, &[value; 40]);
            prop_assert!(intervals.is_sorted());
            prop_assert_eq!(intervals[39], 25.0);
        }
    }

    #[test]
    fn bounds_hold(
        values in prop::collection::vec(any::<f64>(), 0..60),
        start in any::<i64>(), min in any::<i64>(), max in any::<i64>(), add in any::<i64>(),
        multiply in any::<f64>(), threshold in any::<f64>(),
    ) {
        use barograph_source::policy::{INTERVAL_NS_MAX, INTERVAL_NS_MIN};
        let aimd = Aimd { start_ns: start, min_ns: min, max_ns: max, add_ns: add, multiply, threshold };
        let low = min.clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX);
        let high = max.clamp(low, INTERVAL_NS_MAX);
        for policy in both(aimd) {
            let mut state = policy.start();
            prop_assert!((low..=high).contains(&state.interval_ns));
            for value in &values {
                state = policy.next(state, *value);
                prop_assert!((low..=high).contains(&state.interval_ns));
            }
        }
    }

    #[test]
    fn a_change_after_a_constant_tightens(value in 1.0..1e12f64, times in 1.5..100f64, calm in 5usize..40) {
        for policy in both(AIMD) {
            let mut values = vec![value; calm];
            values.push(value * times);
            let intervals = run(policy, &values);
            prop_assert!(intervals[calm] < intervals[calm - 1]);
        }
    }

    #[test]
    fn fixed_is_fixed(values in prop::collection::vec(any::<f64>(), 0..20)) {
        let policy = IntervalPolicy::Fixed { interval_ns: 3 * NS_PER_S };
        prop_assert!(run(policy, &values).iter().all(|i| *i == 3.0));
    }
}
