//! Applications that are mapped to several simulated servers.

use barograph_control::{AdaptiveConfig, SchedulePolicy};
use barograph_lab::mapping::{Mapping, MappingCase, simulate_mapping};

const FCFS: SchedulePolicy = SchedulePolicy::Fcfs;
const ALL_AT_A_TIME: SchedulePolicy = SchedulePolicy::Fair { most: usize::MAX };

fn case(load: f64, interference: f64) -> MappingCase {
    MappingCase {
        work_s: 1_000.0,
        ..MappingCase::mixed(load, interference)
    }
}

#[test]
fn an_application_alone_takes_as_long_under_each_mapping() {
    let case = MappingCase {
        periods_s: vec![20.0],
        ..case(0.05, 0.5)
    };
    let adaptive = SchedulePolicy::Adaptive(AdaptiveConfig::default());
    for policy in [FCFS, ALL_AT_A_TIME, adaptive] {
        for mapping in Mapping::ALL {
            let quality = simulate_mapping(&policy, mapping, &case, 1);
            let worst = quality.slowdown_worst.max(quality.makespan);
            assert!(worst < 1.0 + 1e-6, "{policy:?} {mapping:?}: {quality:?}");
        }
    }
}

#[test]
fn whoever_comes_first_has_the_server_that_is_free_first_as_in_a_pool() {
    for load in [0.5, 1.2] {
        let least = simulate_mapping(&FCFS, Mapping::LeastLoaded, &case(load, 0.0), 3);
        let pool = simulate_mapping(&FCFS, Mapping::Striped, &case(load, 0.0), 3);
        assert!(
            (least.stretch - pool.stretch).abs() < 1e-3,
            "{least:?} {pool:?}"
        );
        assert!(
            (least.slowdown - pool.slowdown).abs() < 1e-2,
            "{least:?} {pool:?}"
        );
    }
}

#[test]
fn a_mapping_by_what_servers_have_to_do_is_ahead_of_one_that_was_drawn() {
    let case = case(0.8, 0.0);
    let lost = |mapping, policy: &SchedulePolicy| {
        let of = |seed| simulate_mapping(policy, mapping, &case, seed).stretch - 1.0;
        (0..3).map(of).sum::<f64>()
    };
    let drawn = lost(Mapping::Random, &FCFS);
    let balanced = lost(Mapping::Balanced, &FCFS);
    let least = lost(Mapping::LeastLoaded, &FCFS);
    assert!(
        balanced < drawn && least < balanced / 2.0,
        "{drawn} {balanced} {least}"
    );
    // What a policy alone gains is less.
    let policy = SchedulePolicy::Set10 {
        most: 4,
        by_left: true,
    };
    assert!(lost(Mapping::Random, &policy) > least);
}

#[test]
fn phases_at_a_time_that_cost_each_other_cost_most_where_all_share_all_servers() {
    let quality = |mapping| simulate_mapping(&ALL_AT_A_TIME, mapping, &case(0.8, 0.1), 2);
    let (striped, balanced) = (quality(Mapping::Striped), quality(Mapping::Balanced));
    assert!(
        striped.stretch > balanced.stretch,
        "{striped:?} {balanced:?}"
    );
}
