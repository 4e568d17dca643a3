//! The scheduler of a storage: grants are leases, and nobody is held up for ever.

use barograph_control::{
    AdaptiveConfig, BeginRefusal, IoScheduler, PhaseBegin, PhaseState, SchedulePolicy,
    SchedulerConfig,
};
use proptest::prelude::*;

const S: i64 = 1_000_000_000;
const MB: u64 = 1_000_000;
/// One megabyte takes a second alone.
const BANDWIDTH: f64 = 1e6;

fn scheduler(policy: SchedulePolicy) -> IoScheduler {
    IoScheduler::new(SchedulerConfig::new(policy, BANDWIDTH))
}

fn phase(application: u64, megabytes: u64) -> PhaseBegin {
    PhaseBegin {
        application,
        user: 1_000,
        bytes: Some(megabytes * MB),
        priority: 5,
        yields: true,
    }
}

fn is_granted(scheduler: &IoScheduler, id: u64) -> bool {
    matches!(scheduler.state(id), PhaseState::Granted { .. })
}

#[test]
fn the_next_is_granted_when_one_ends() {
    let mut scheduler = scheduler(SchedulePolicy::Fcfs);
    let first = scheduler.begin(&phase(1, 5), 0).unwrap();
    let second = scheduler.begin(&phase(2, 5), S).unwrap();
    assert!(is_granted(&scheduler, first) && !is_granted(&scheduler, second));
    let granted = scheduler.renew(first, MB, false, 2 * S);
    let until_ns = 12 * S;
    assert_eq!(
        granted,
        PhaseState::Granted {
            share: 1.0,
            until_ns
        }
    );
    scheduler.end(first, 5 * MB, 5 * S);
    assert!(is_granted(&scheduler, second));
    // Ended twice, and one that never was.
    scheduler.end(first, 5 * MB, 6 * S);
    scheduler.end(4_711, 0, 6 * S);
    assert_eq!(scheduler.state(first), PhaseState::Unknown);
    assert_eq!(scheduler.renew(first, 0, false, 6 * S), PhaseState::Unknown);
    scheduler.end(second, 5 * MB, 10 * S);
    let counts = scheduler.counts();
    assert_eq!((counts.begun, counts.ended, counts.expired), (2, 2, 0));
    assert_eq!(scheduler.step(11 * S), None);
}

#[test]
fn a_holder_that_dies_is_forgotten_at_the_end_of_its_lease() {
    let mut scheduler = scheduler(SchedulePolicy::Fcfs);
    let dead = scheduler.begin(&phase(1, 5), 0).unwrap();
    let other = scheduler.begin(&phase(2, 5), 4 * S).unwrap();
    assert_eq!(scheduler.step(4 * S), Some(10 * S));
    scheduler.renew(other, 0, false, 9 * S);
    assert!(!is_granted(&scheduler, other));
    assert_eq!(scheduler.step(10 * S), Some(19 * S));
    assert!(is_granted(&scheduler, other));
    assert_eq!(scheduler.state(dead), PhaseState::Unknown);
    assert_eq!(scheduler.counts().expired, 1);
}

#[test]
fn who_goes_on_alone_shares_with_those_who_have_a_grant() {
    let mut scheduler = scheduler(SchedulePolicy::Fcfs);
    let first = scheduler.begin(&phase(1, 5), 0).unwrap();
    let late = scheduler.begin(&phase(2, 5), 0).unwrap();
    let state = scheduler.renew(late, 0, true, S);
    assert!(
        matches!(state, PhaseState::Granted { share: 0.5, .. }),
        "{state:?}"
    );
    scheduler.renew(late, MB, true, 2 * S);
    let third = scheduler.begin(&phase(3, 5), 3 * S).unwrap();
    for id in [first, late] {
        let state = scheduler.state(id);
        assert!(
            matches!(state, PhaseState::Granted { share: 0.5, .. }),
            "{state:?}"
        );
    }
    assert!(!is_granted(&scheduler, third));
    assert_eq!(scheduler.counts().went_alone, 1);
}

#[test]
fn whom_a_policy_starves_is_served_beside_the_others() {
    let mut scheduler = scheduler(SchedulePolicy::Priority);
    let important = PhaseBegin {
        priority: 10,
        ..phase(1, 1_000_000)
    };
    let important = scheduler.begin(&important, 0).unwrap();
    let starved = scheduler.begin(&phase(2, 1), 0).unwrap();
    for now_s in 1..=100 {
        scheduler.renew(important, 0, false, now_s * S);
        scheduler.renew(starved, 0, false, now_s * S);
        scheduler.step(now_s * S);
        // 100 times as long as the second that it takes alone.
        assert_eq!(is_granted(&scheduler, starved), now_s >= 99, "{now_s}");
        assert!(is_granted(&scheduler, important));
    }
    assert_eq!(scheduler.counts().starved, 1);
    scheduler.end(starved, MB, 101 * S);
    assert!(matches!(
        scheduler.state(important),
        PhaseState::Granted { share: 1.0, .. }
    ));
}

#[test]
fn a_phase_that_does_not_stop_keeps_its_grant() {
    for (yields, expect) in [(false, true), (true, false)] {
        let policy = SchedulePolicy::RoundRobin { turn_s: 1.0 };
        let mut scheduler = IoScheduler::new(SchedulerConfig {
            policy,
            lease_ns: 100 * S,
            ..SchedulerConfig::new(policy, BANDWIDTH)
        });
        let begin = PhaseBegin {
            yields,
            ..phase(1, 50)
        };
        let first = scheduler.begin(&begin, 0).unwrap();
        let second = scheduler.begin(&phase(2, 1), S / 2).unwrap();
        scheduler.step(2 * S);
        assert_eq!(is_granted(&scheduler, first), expect);
        assert_eq!(is_granted(&scheduler, second), !expect);
        scheduler.set_yields(first);
        scheduler.step(4 * S);
        scheduler.end(first, 0, 5 * S);
        assert!(is_granted(&scheduler, second));
    }
}

#[test]
fn one_user_does_not_take_the_places_of_others() {
    let config = SchedulerConfig {
        phases_max: 8,
        phases_of_user_max: 5,
        ..SchedulerConfig::new(SchedulePolicy::Fcfs, BANDWIDTH)
    };
    let mut scheduler = IoScheduler::new(config);
    let of = |user: u32| PhaseBegin {
        user,
        ..phase(u64::from(user), 1)
    };
    let mut begun = |user: u32| scheduler.begin(&of(user), 0);
    for _ in 0..5 {
        begun(1).unwrap();
    }
    assert_eq!(begun(1), Err(BeginRefusal::TooManyOfUser));
    for user in 2..5 {
        begun(user).unwrap();
    }
    assert_eq!(begun(5), Err(BeginRefusal::TooMany));
    assert_eq!(scheduler.counts().refused, 2);
}

#[test]
fn applications_are_learnt_and_forgotten_within_bounds() {
    let mut scheduler = scheduler(SchedulePolicy::Fcfs);
    for application in 0..10_000 {
        let id = scheduler.begin(&phase(application, 1), 0).unwrap();
        scheduler.end(id, MB, S);
    }
    assert_eq!(scheduler.counts().ended, 10_000);
    // A clock that goes back, sizes and names that make no sense.
    let odd = PhaseBegin {
        bytes: Some(0),
        priority: 0,
        ..phase(u64::MAX, 0)
    };
    let id = scheduler.begin(&odd, i64::MAX).unwrap();
    scheduler.renew(id, u64::MAX, true, i64::MIN);
    scheduler.step(i64::MIN);
    scheduler.end(id, u64::MAX, i64::MIN);
}

#[test]
fn applications_that_have_ended_are_no_load() {
    let policy = SchedulePolicy::Adaptive(AdaptiveConfig::default());
    let mut scheduler = scheduler(policy);
    let mut now_s = 0;
    // Three that need half of the storage each.
    for _ in 0..6 {
        for application in 1..=3 {
            let id = scheduler.begin(&phase(application, 5), now_s * S).unwrap();
            scheduler.end(id, 5 * MB, now_s * S);
        }
        now_s += 5;
    }
    let first = scheduler.begin(&phase(1, 5), now_s * S).unwrap();
    assert_eq!(scheduler.current().by, "worst-slowdown");
    scheduler.end(first, 5 * MB, now_s * S);
    now_s += 1_000;
    scheduler.begin(&phase(1, 5), now_s * S).unwrap();
    assert_eq!(scheduler.current().by, "set-10-least-left");
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    Begin(u64, u64),
    Renew(usize, bool),
    End(usize),
    Wait(i64),
}

fn any_deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        (0..6_u64, 0..50_u64).prop_map(|(application, size)| Deed::Begin(application, size)),
        (0..8_usize, proptest::bool::weighted(0.1)).prop_map(|(at, alone)| Deed::Renew(at, alone)),
        (0..8_usize).prop_map(Deed::End),
        (0..20_i64).prop_map(Deed::Wait),
    ]
}

proptest! {
    #[test]
    fn as_long_as_there_are_phases_one_is_served(
        deeds in proptest::collection::vec(any_deed(), 0..80),
        which in 0..4_usize,
    ) {
        let policies = [
            SchedulePolicy::Fcfs,
            SchedulePolicy::RoundRobin { turn_s: 3.0 },
            SchedulePolicy::LeastLeft { ageing_s: 100.0 },
            SchedulePolicy::Set10 { most: 2, by_left: true },
        ];
        let mut scheduler = scheduler(policies[which]);
        let (mut ids, mut now_ns) = (Vec::new(), 0);
        for deed in deeds {
            match deed {
                Deed::Begin(application, size) => {
                    ids.push(scheduler.begin(&phase(application, size), now_ns).unwrap());
                }
                Deed::Renew(at, is_alone) => {
                    if let Some(id) = ids.get(at) {
                        scheduler.renew(*id, MB, is_alone, now_ns);
                    }
                }
                Deed::End(at) => {
                    if at < ids.len() {
                        scheduler.end(ids.swap_remove(at), MB, now_ns);
                    }
                }
                Deed::Wait(seconds) => now_ns += seconds * S,
            }
            let next_ns = scheduler.step(now_ns);
            prop_assert!(next_ns.is_none_or(|next_ns| next_ns > now_ns), "{:?}", next_ns);
            let known = |id: &&u64| scheduler.state(**id) != PhaseState::Unknown;
            let known: Vec<u64> = ids.iter().filter(known).copied().collect();
            let grants = &scheduler.current().grants;
            prop_assert_eq!(grants.is_empty(), known.is_empty());
            prop_assert!(grants.iter().all(|grant| known.contains(&grant.id)));
            let sum: f64 = grants.iter().map(|grant| grant.share).sum();
            prop_assert!(known.is_empty() || (sum - 1.0).abs() < 1e-9);
        }
    }
}
