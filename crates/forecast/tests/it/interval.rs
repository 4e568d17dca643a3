//! Policies that know the error: bounds hold, surprises are learned from, no mistake lasts for
//! ever.

use barograph_forecast::interval::{
    AssumedValue, BoundedConfig, ComparedLook, ErrorBound, ErrorBounded, INTERVAL_NS_MAX,
    INTERVAL_NS_MIN, LookPlan, PublishedAimd, Sentinel, SentinelStep, ValueBasis,
};
use barograph_model::NS_PER_S;
use proptest::prelude::*;

const CONFIG: BoundedConfig = BoundedConfig {
    bound: ErrorBound::Absolute(0.5),
    confidence: 0.99,
    min_ns: NS_PER_S,
    max_ns: 60 * NS_PER_S,
    looks_per_s_max: f64::INFINITY,
};

fn look(policy: &mut ErrorBounded, tick: usize, value: f64) -> LookPlan {
    let looked = ComparedLook {
        ts_ns: tick as i64 * NS_PER_S,
        value,
        forecast: None,
        derived: None,
    };
    policy.look(&looked, |_| f64::INFINITY)
}

/// Returns the ticks with a look, and the ticks at which the last seen value was not the true one.
fn run(config: BoundedConfig, values: &[f64]) -> (Vec<usize>, Vec<usize>) {
    let mut policy = ErrorBounded::new(config);
    let (mut looks, mut wrong, mut due, mut held) = (Vec::new(), Vec::new(), 0, f64::NAN);
    for (tick, value) in values.iter().enumerate() {
        if tick >= due {
            looks.push(tick);
            due = tick + (look(&mut policy, tick, *value).wait_ns / NS_PER_S) as usize;
            held = *value;
        } else if held != *value {
            wrong.push(tick);
        }
    }
    (looks, wrong)
}

/// A value that grows by one after each of `gaps`.
fn steps(gaps: impl IntoIterator<Item = usize>) -> Vec<f64> {
    let mut values = Vec::new();
    for (level, gap) in (0..).zip(gaps) {
        values.extend(std::iter::repeat_n(f64::from(level), gap));
    }
    values
}

fn in_range(ticks: &[usize], from: usize) -> usize {
    ticks.iter().filter(|tick| **tick >= from).count()
}

#[test]
fn a_constant_is_looked_at_ever_more_seldom() {
    let (looks, wrong) = run(CONFIG, &[7.0; 4000]);
    assert!(wrong.is_empty());
    let early = looks.iter().filter(|tick| **tick < 400).count();
    assert!(
        in_range(&looks, 3600) * 4 < early,
        "{early} {}",
        in_range(&looks, 3600)
    );
}

#[test]
fn what_changes_regularly_is_looked_at_when_it_changes() {
    let (looks, wrong) = run(CONFIG, &steps([7; 400]));
    // One look in 16 comes early, which adds this much to 1 in 7.
    assert!(in_range(&looks, 1400) < 260, "{}", in_range(&looks, 1400));
    assert!(in_range(&wrong, 1400) < 15, "{wrong:?}");
}

#[test]
fn a_period_that_grows_shorter_is_noticed() {
    let (_, wrong) = run(CONFIG, &steps(std::iter::repeat_n(8, 100).chain([7; 300])));
    assert!(in_range(&wrong, 2000) < 30, "{wrong:?}");
}

#[test]
fn what_was_constant_for_long_is_learned_anew() {
    let values = steps(std::iter::once(3000).chain([4; 300]));
    let (_, wrong) = run(CONFIG, &values);
    let late = in_range(&wrong, 3600);
    assert!(
        late < 24,
        "{late} of 600 ticks wrong, long after it began to change"
    );
}

#[test]
fn what_stopped_is_looked_at_less() {
    let values = steps(std::iter::repeat_n(4, 300).chain([4000]));
    let (looks, _) = run(CONFIG, &values);
    assert!(in_range(&looks, 4700) < 60, "{}", in_range(&looks, 4700));
}

#[test]
fn no_more_is_spent_than_allowed() {
    let config = BoundedConfig {
        looks_per_s_max: 0.1,
        ..CONFIG
    };
    let (looks, _) = run(config, &steps([1; 3000]));
    assert!(looks.len() <= 308, "{}", looks.len());
    assert!(looks.len() >= 290, "{}", looks.len());
}

#[test]
fn a_forecast_that_holds_is_said_and_looked_at_seldom() {
    let mut policy = ErrorBounded::new(CONFIG);
    let (mut due, mut looks, mut last) = (0, 0, None);
    for tick in 0..2000 {
        if tick < due {
            continue;
        }
        looks += 1;
        let value = 3.0 * tick as f64;
        let looked = ComparedLook {
            ts_ns: tick as i64 * NS_PER_S,
            value,
            forecast: Some(AssumedValue {
                value,
                half_width: 0.01,
                confidence: 0.9,
            }),
            derived: None,
        };
        let plan = policy.look(&looked, |_| 0.01);
        due = tick + (plan.wait_ns / NS_PER_S) as usize;
        last = Some(plan.said);
    }
    assert_eq!(last, Some(ValueBasis::Forecast));
    assert!(looks < 160, "{looks}");
}

/// Returns the number of calls, and of ticks at which the assumed value was off by more than the
/// bound.
fn watch(counter: &[f64], value: &[f64]) -> (usize, usize) {
    let mut sentinel = Sentinel::new(CONFIG);
    let (mut calls, mut wrong) = (0, 0);
    for (tick, (counter, value)) in counter.iter().zip(value).enumerate() {
        let ts_ns = tick as i64 * NS_PER_S;
        match sentinel.counter(ts_ns, *counter, None) {
            SentinelStep::Call => {
                calls += 1;
                sentinel.called(ts_ns, *counter, *value, None, |_| f64::INFINITY);
            }
            SentinelStep::Say(said) => wrong += usize::from((said.value - value).abs() > 0.5),
        }
    }
    (calls, wrong)
}

#[test]
fn a_counter_that_says_all_spares_the_calls() {
    let counter = steps((0..400).map(|step| 1 + step * 7 % 11));
    let value: Vec<f64> = counter
        .iter()
        .map(|counter| 1000.0 - 3.0 * counter)
        .collect();
    let (calls, wrong) = watch(&counter, &value);
    assert!(calls * 12 < counter.len(), "{calls} of {}", counter.len());
    assert!(wrong * 100 < counter.len(), "{wrong} of {}", counter.len());
}

#[test]
fn a_counter_that_says_nothing_is_not_believed() {
    let counter = steps((0..400).map(|step| 1 + step * 7 % 11));
    let value = steps(std::iter::repeat_n(5, counter.len() / 5));
    let (_, wrong) = watch(&counter, &value);
    assert!(wrong * 20 < counter.len(), "{wrong} of {}", counter.len());
}

#[test]
fn a_counter_that_begins_again_is_a_call() {
    let mut sentinel = Sentinel::new(CONFIG);
    sentinel.called(0, 100.0, 1.0, None, |_| f64::INFINITY);
    assert_eq!(sentinel.counter(1, 99.0, None), SentinelStep::Call);
    assert_eq!(sentinel.counter(1, f64::NAN, None), SentinelStep::Call);
}

#[test]
fn the_published_policy_never_relaxes_on_a_constant() {
    let mut policy = PublishedAimd::new(0.1, 10, NS_PER_S);
    assert!((0..100).all(|_| policy.next(5.0) == NS_PER_S));
}

proptest! {
    #[test]
    fn intervals_keep_their_bounds_whatever_is_seen(
        looks in prop::collection::vec((any::<i64>(), any::<f64>(), any::<f64>(), any::<f64>()), 0..80),
        bound in any::<f64>(), confidence in any::<f64>(), rate in any::<f64>(), min in any::<i64>(), max in any::<i64>(),
    ) {
        let config = BoundedConfig {
            bound: ErrorBound::Relative(bound),
            confidence,
            min_ns: min,
            max_ns: max,
            looks_per_s_max: rate,
        };
        let low = min.clamp(INTERVAL_NS_MIN, INTERVAL_NS_MAX);
        let high = max.clamp(low, INTERVAL_NS_MAX);
        let mut policy = ErrorBounded::new(config);
        let mut sentinel = Sentinel::new(config);
        for (ts_ns, value, said, half_width) in looks {
            let outlook = Some(AssumedValue { value: said, half_width, confidence });
            let looked = ComparedLook { ts_ns, value, forecast: outlook, derived: outlook };
            let plan = policy.look(&looked, |_| half_width);
            prop_assert!((low..=high).contains(&plan.wait_ns), "{plan:?}");
            sentinel.counter(ts_ns, said, outlook);
            let plan = sentinel.called(ts_ns, said, value, outlook, |_| half_width);
            prop_assert!((low..=high).contains(&plan.wait_ns), "{plan:?}");
        }
    }
}
