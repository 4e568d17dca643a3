//! Policies of I/O scheduling on the simulated storage.

use barograph_control::{AdaptiveConfig, SchedulePolicy};
use barograph_lab::storage::{Backlog, StorageCase, StorageUsers, simulate};

const ALL: [SchedulePolicy; 9] = [
    SchedulePolicy::Fcfs,
    SchedulePolicy::RoundRobin { turn_s: 5.0 },
    SchedulePolicy::Fair { most: 4 },
    SchedulePolicy::ShortestFirst,
    SchedulePolicy::LeastLeft { ageing_s: 100.0 },
    SchedulePolicy::Priority,
    SchedulePolicy::WorstSlowdown { turn_s: 1.0 },
    SchedulePolicy::Set10 {
        most: 4,
        by_left: false,
    },
    SchedulePolicy::Set10 {
        most: 4,
        by_left: true,
    },
];

fn adaptive() -> SchedulePolicy {
    SchedulePolicy::Adaptive(AdaptiveConfig::default())
}

#[test]
fn an_application_alone_is_never_slowed_down() {
    let case = StorageCase {
        periods_s: vec![20.0],
        seconds: 1_000.0,
        ..StorageCase::mixed(0.4, 0.5)
    };
    for policy in ALL.into_iter().chain([adaptive()]) {
        let quality = simulate(&policy, &case, 1);
        let worst = quality.slowdown_worst.max(quality.stretch_worst);
        assert!(worst < 1.0 + 1e-6, "{policy:?}: {quality:?}");
        let expect = 0.6;
        assert!((quality.utilisation - expect).abs() < 0.05, "{quality:?}");
    }
}

#[test]
fn a_seed_gives_the_same_each_time() {
    let case = StorageCase {
        seconds: 500.0,
        ..StorageCase::mixed(0.8, 0.1)
    };
    for policy in ALL {
        assert_eq!(simulate(&policy, &case, 7), simulate(&policy, &case, 7));
    }
    assert_ne!(simulate(&ALL[0], &case, 7), simulate(&ALL[0], &case, 8));
}

#[test]
fn nobody_starves_in_overload_under_a_policy_that_ages() {
    let case = StorageCase {
        seconds: 10_000.0,
        ..StorageCase::mixed(1.2, 0.0)
    };
    for policy in [ALL[0], ALL[1], ALL[4], ALL[6], adaptive()] {
        let quality = simulate(&policy, &case, 3);
        assert_eq!(quality.starved, 0, "{policy:?}: {quality:?}");
    }
    let (fcfs, adaptive) = (simulate(&ALL[0], &case, 3), simulate(&adaptive(), &case, 3));
    assert!(adaptive.slowdown_worst < fcfs.slowdown_worst / 2.0);
}

#[test]
fn the_adaptive_policy_is_ahead_of_first_come_first_served() {
    let quality = |policy: &SchedulePolicy, interference| {
        simulate(policy, &StorageCase::mixed(0.8, interference), 5)
    };
    for interference in [0.0, 0.1] {
        let (fcfs, adaptive) = (
            quality(&ALL[0], interference),
            quality(&adaptive(), interference),
        );
        assert!(
            adaptive.utilisation > fcfs.utilisation + 0.05,
            "{adaptive:?} {fcfs:?}"
        );
        assert!(
            adaptive.slowdown < fcfs.slowdown / 1.8,
            "{adaptive:?} {fcfs:?}"
        );
    }
}

#[test]
fn shares_of_users_cost_nothing_where_each_has_one_application() {
    for load in [0.8, 1.2] {
        let one = StorageCase::mixed(load, 0.0);
        let each = StorageCase {
            users: StorageUsers::Each,
            ..one.clone()
        };
        let (one, each) = (
            simulate(&adaptive(), &one, 5),
            simulate(&adaptive(), &each, 5),
        );
        assert!(
            (one.utilisation - each.utilisation).abs() < 0.002,
            "{one:?} {each:?}"
        );
        assert!(
            (one.slowdown / each.slowdown - 1.0).abs() < 0.01,
            "{one:?} {each:?}"
        );
        assert_eq!(each.starved, 0);
    }
}

#[test]
fn a_user_with_many_open_phases_is_not_many_users() {
    let case = |applications, users| StorageCase {
        users,
        backlog: Some(Backlog {
            applications,
            alone_s: 5.0,
        }),
        seconds: 3_000.0,
        ..StorageCase::mixed(0.5, 0.0)
    };
    for policy in [ALL[0], ALL[4], ALL[6], adaptive()] {
        let few = simulate(&policy, &case(1, StorageUsers::Each), 2);
        let many = simulate(&policy, &case(50, StorageUsers::Each), 2);
        let unshared = simulate(&policy, &case(50, StorageUsers::One), 2);
        assert!(
            many.slowdown < 1.6 * few.slowdown,
            "{policy:?}: {few:?} {many:?}"
        );
        assert!(
            many.utilisation > unshared.utilisation,
            "{policy:?}: {many:?} {unshared:?}"
        );
    }
}

#[test]
fn cases_without_applications_or_time_have_a_quality() {
    for case in [
        StorageCase {
            periods_s: Vec::new(),
            ..StorageCase::mixed(0.8, 0.0)
        },
        StorageCase {
            seconds: 0.0,
            ..StorageCase::mixed(0.8, 0.0)
        },
    ] {
        let quality = simulate(&adaptive(), &case, 1);
        assert!(quality.slowdown.is_finite() && quality.utilisation.is_finite());
    }
}
