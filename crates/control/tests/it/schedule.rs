//! Plans of I/O schedules: each policy on a few phases, and all on absurd ones.

use barograph_control::{
    AdaptiveConfig, IoPhase, PhasePeriod, SchedulePlan, SchedulePolicy, ScheduleState, UserShares,
};
use proptest::prelude::*;

const S: i64 = 1_000_000_000;
const MB: u64 = 1_000_000;
/// One megabyte takes a second alone.
const BANDWIDTH: f64 = 1e6;

fn phase(id: u64, begun_s: i64, megabytes: u64) -> IoPhase {
    IoPhase {
        id,
        application: id,
        user: 0,
        begun_ns: begun_s * S,
        bytes: Some(megabytes * MB),
        bytes_done: 0,
        granted_ns: None,
        waiting_ns: begun_s * S,
        priority: 5,
        period: None,
    }
}

fn with_period(id: u64, begun_s: i64, seconds: f64) -> IoPhase {
    let variation = 0.1;
    IoPhase {
        period: Some(PhasePeriod { seconds, variation }),
        ..phase(id, begun_s, 4)
    }
}

fn plan(policy: SchedulePolicy, now_s: i64, phases: &[IoPhase]) -> SchedulePlan {
    policy.plan(&ScheduleState {
        now_ns: now_s * S,
        bandwidth: BANDWIDTH,
        phases,
        users: &UserShares::default(),
        offered_load: None,
    })
}

fn granted(plan: &SchedulePlan) -> Vec<u64> {
    plan.grants.iter().map(|grant| grant.id).collect()
}

#[test]
fn policies_that_serve_one_at_a_time() {
    let mut important = phase(4, 3, 50);
    important.priority = 9;
    let phases = [phase(1, 0, 40), phase(2, 1, 3), phase(3, 2, 30), important];
    let table = [
        (SchedulePolicy::Fcfs, 1),
        (SchedulePolicy::ShortestFirst, 2),
        (SchedulePolicy::LeastLeft { ageing_s: 100.0 }, 2),
        (SchedulePolicy::Priority, 4),
        (SchedulePolicy::RoundRobin { turn_s: 5.0 }, 1),
        // 3 s of I/O that have waited for 9 s.
        (SchedulePolicy::WorstSlowdown { turn_s: 1.0 }, 2),
    ];
    for (policy, expect) in table {
        let plan = plan(policy, 10, &phases);
        assert_eq!(granted(&plan), [expect], "{policy:?}");
        assert_eq!((plan.grants[0].share, plan.by), (1.0, policy.name()));
        assert_eq!(granted(&self::plan(policy, 10, &[])), [0; 0], "{policy:?}");
    }
}

#[test]
fn turns_end_and_the_next_has_waited_longest() {
    let policy = SchedulePolicy::RoundRobin { turn_s: 5.0 };
    let mut phases = [phase(1, 0, 40), phase(2, 1, 40), phase(3, 2, 40)];
    let mut turns = Vec::new();
    for now_s in 2..23 {
        let plan = plan(policy, now_s, &phases);
        phases.iter_mut().for_each(|it| it.follow(&plan, now_s * S));
        turns.push(plan.grants[0].id);
        assert_eq!(plan.until_ns, Some((now_s - (now_s - 2) % 5 + 5) * S));
    }
    let expect = [[1; 5], [2; 5], [3; 5], [1; 5]].concat();
    assert_eq!(turns[..20], expect);
    // Alone, a phase has no turn to wait for.
    assert_eq!(plan(policy, 30, &phases[..1]).until_ns, None);
}

#[test]
fn a_phase_that_was_begun_goes_on_where_nothing_is_interrupted() {
    let mut phases = [phase(1, 0, 40), phase(2, 1, 3)];
    phases[0].granted_ns = Some(0);
    assert_eq!(
        granted(&plan(SchedulePolicy::ShortestFirst, 5, &phases)),
        [1]
    );
    let least_left = SchedulePolicy::LeastLeft { ageing_s: 1e9 };
    assert_eq!(granted(&plan(least_left, 5, &phases)), [2]);
}

#[test]
fn who_says_too_little_is_not_served_first_for_ever() {
    let mut liar = phase(1, 0, 1);
    let honest = phase(2, 0, 10);
    let policy = SchedulePolicy::LeastLeft { ageing_s: 100.0 };
    assert_eq!(
        granted(&plan(policy, 1, &[liar.clone(), honest.clone()])),
        [1]
    );
    liar.bytes_done = 20 * MB;
    assert_eq!(liar.left_s(BANDWIDTH), 20.0);
    assert_eq!(granted(&plan(policy, 1, &[liar, honest])), [2]);
}

#[test]
fn a_long_phase_ages_past_short_ones() {
    let policy = SchedulePolicy::LeastLeft { ageing_s: 10.0 };
    for (now_s, expect) in [(50, 2), (100, 1)] {
        let phases = [phase(1, 0, 40), phase(2, now_s, 5)];
        assert_eq!(granted(&plan(policy, now_s, &phases)), [expect], "{now_s}");
    }
}

#[test]
fn sets_have_one_head_each_and_share_by_their_periods() {
    let phases = [
        with_period(1, 0, 1_000.0),
        with_period(2, 1, 9.0),
        with_period(3, 2, 11.0),
        with_period(4, 3, 110.0),
        // Nothing is known of it: it is with the slowest.
        phase(5, 0, 1),
    ];
    let policy = SchedulePolicy::Set10 {
        most: 8,
        by_left: false,
    };
    let plan = plan(policy, 10, &phases);
    assert_eq!(granted(&plan), [2, 4, 1]);
    let shares: Vec<f64> = plan
        .grants
        .iter()
        .map(|it| (it.share * 111.0).round())
        .collect();
    assert_eq!(shares, [100.0, 10.0, 1.0]);
    // By what is left, the unknown one is before the long one of its set.
    let by_left = SchedulePolicy::Set10 {
        most: 8,
        by_left: true,
    };
    assert_eq!(granted(&self::plan(by_left, 10, &phases)), [2, 4, 5]);
    let few = SchedulePolicy::Set10 {
        most: 2,
        by_left: false,
    };
    assert_eq!(granted(&self::plan(few, 10, &phases)), [2, 4]);
}

#[test]
fn the_adaptive_policy_says_which_one_it_follows() {
    let policy = SchedulePolicy::Adaptive(AdaptiveConfig::default());
    let known = [with_period(1, 0, 10.0), with_period(2, 0, 100.0)];
    let unknown = [phase(1, 0, 5), phase(2, 0, 5), phase(3, 0, 5)];
    let mut irregular = known.clone();
    irregular.iter_mut().for_each(|it| {
        let seconds = 10.0;
        let variation = 3.0;
        it.period = Some(PhasePeriod { seconds, variation });
    });
    let table: [(&[IoPhase], Option<f64>, &str); 5] = [
        (&known, Some(0.8), "set-10-least-left"),
        (&known, None, "set-10-least-left"),
        (&known, Some(1.1), "worst-slowdown"),
        (&unknown, None, "fair"),
        (&irregular, Some(0.5), "fair"),
    ];
    for (phases, offered_load, expect) in table {
        let plan = policy.plan(&ScheduleState {
            now_ns: S,
            bandwidth: BANDWIDTH,
            phases,
            users: &UserShares::default(),
            offered_load,
        });
        assert_eq!(plan.by, expect, "{offered_load:?}");
    }
}

fn any_phase() -> impl Strategy<Value = IoPhase> {
    let times = (
        any::<i64>(),
        any::<i64>(),
        proptest::option::of(any::<i64>()),
    );
    let sizes = (proptest::option::of(any::<u64>()), any::<u64>());
    let period = (proptest::num::f64::ANY, proptest::num::f64::ANY);
    let period = period.prop_map(|(seconds, variation)| PhasePeriod { seconds, variation });
    let period = proptest::option::of(period);
    (times, sizes, any::<u8>(), period, 0..4_u32).prop_map(
        |((begun_ns, waiting_ns, granted_ns), (bytes, bytes_done), priority, period, user)| {
            IoPhase {
                id: 0,
                application: 0,
                user,
                begun_ns,
                bytes,
                bytes_done,
                granted_ns,
                waiting_ns,
                priority,
                period,
            }
        },
    )
}

fn any_policy() -> impl Strategy<Value = SchedulePolicy> {
    let number = proptest::num::f64::ANY;
    prop_oneof![
        Just(SchedulePolicy::Fcfs),
        number.prop_map(|turn_s| SchedulePolicy::RoundRobin { turn_s }),
        any::<usize>().prop_map(|most| SchedulePolicy::Fair { most }),
        Just(SchedulePolicy::ShortestFirst),
        number.prop_map(|ageing_s| SchedulePolicy::LeastLeft { ageing_s }),
        Just(SchedulePolicy::Priority),
        number.prop_map(|turn_s| SchedulePolicy::WorstSlowdown { turn_s }),
        (any::<usize>(), any::<bool>())
            .prop_map(|(most, by_left)| SchedulePolicy::Set10 { most, by_left }),
        Just(SchedulePolicy::Adaptive(AdaptiveConfig::default())),
    ]
}

proptest! {
    #[test]
    fn somebody_is_always_served_and_shares_are_one(
        policy in any_policy(),
        phases in proptest::collection::vec(any_phase(), 0..12),
        now_ns in any::<i64>(),
        bandwidth in prop_oneof![1.0..1e12_f64, proptest::num::f64::ANY],
        offered_load in proptest::option::of(proptest::num::f64::ANY),
        served in proptest::collection::vec((0..4_u32, 0.0..1.0_f64), 0..4),
        served_ns in 0..200 * S,
    ) {
        let mut phases = phases;
        (1..).zip(&mut phases).for_each(|(id, phase)| phase.id = id);
        let mut users = UserShares::default();
        let before_ns = now_ns.saturating_sub(served_ns);
        phases.iter().for_each(|it| users.begin(it.user, it.priority, before_ns));
        users.follow(served);
        users.settle(now_ns);
        let state = ScheduleState {
            now_ns,
            bandwidth,
            phases: &phases,
            users: &users,
            offered_load,
        };
        let plan = policy.plan(&state);
        let mut ids = granted(&plan);
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), plan.grants.len());
        prop_assert!(ids.iter().all(|id| (1..=phases.len() as u64).contains(id)));
        prop_assert_eq!(ids.is_empty(), phases.is_empty());
        let sum: f64 = plan.grants.iter().map(|grant| grant.share).sum();
        prop_assert!(phases.is_empty() || (sum - 1.0).abs() < 1e-9, "{}", sum);
        prop_assert!(plan.grants.iter().all(|grant| grant.share > 0.0));
        prop_assert!(plan.until_ns.is_none_or(|until_ns| until_ns > now_ns || now_ns == i64::MAX));
        phases.iter_mut().for_each(|phase| phase.follow(&plan, now_ns));
        let held = phases.iter().filter(|phase| phase.granted_ns.is_some()).count();
        prop_assert_eq!(held, plan.grants.len());
    }
}
