//! Maps that nobody uses are removed, and what is left of them is no other map.

use barograph_intake::{MapDesk as _, MapReport, MapRole, PhaseProcess};
use barograph_stream::Incarnation;
use barograph_stream::ingest::{MapWords, ServerSet};

use super::{Cluster, MapChange, Programs, USER, change, remove, start};

fn forget() -> MapChange {
    MapChange {
        forget: true,
        ..MapChange::default()
    }
}

/// Has a process on node 3 use a map, or end; what it was told of the map.
fn uses(cluster: &mut Cluster, map: usize, is_there: bool) -> Option<MapWords> {
    let incarnation = Incarnation((1_000 + map as u128).to_le_bytes());
    let process = PhaseProcess {
        incarnation,
        pid: 77,
        start_ticks: 0,
        uid: USER,
        application: "job".into(),
        job: String::new(),
    };
    let report = MapReport {
        slot: 0,
        map: format!("of-job-{map}"),
        role: MapRole::Member {
            running: 0,
            waiting: 0,
            refused: 0,
            ended: 0,
            declared: [0, 1].into_iter().collect::<ServerSet>(),
        },
        seen: 0,
        told: None,
    };
    let mut told = None;
    for _ in 0..10 {
        let (_, _, maps) = cluster.nodes[3].agent.as_ref().unwrap();
        match is_there {
            true => maps.report(&process, std::slice::from_ref(&report)),
            false => maps.leave(incarnation, true),
        }
        let outcomes = maps.take_outcomes().into_iter();
        let mut mine = outcomes.filter(|it| it.incarnation == incarnation);
        told = mine.next_back().map(|it| it.words).or(told);
        cluster.run(100);
    }
    told
}

#[test]
fn a_map_is_removed_when_nobody_uses_it_and_its_epochs_are_not_used_again() {
    let (mut cluster, mut programs) = start();
    assert_eq!(change(&mut cluster, &mut programs, remove(2)), Ok(2));
    let refused = change(&mut cluster, &mut programs, forget());
    assert!(refused.is_err_and(|why| why.contains("use the map")));
    for process in [1, 2, 10, 11, 12, 13] {
        programs.end(&cluster, process, true);
    }
    programs.run(&mut cluster, 1_000);
    assert_eq!(change(&mut cluster, &mut programs, forget()), Ok(2));
    let gone = change(&mut cluster, &mut programs, forget());
    assert!(gone.is_err_and(|why| why.contains("no program")));
    // Also the next leader knows nothing of it but its epochs.
    programs.run(&mut cluster, 1_000);
    let led = cluster.leader(4).unwrap();
    let leader = cluster.nodes.iter().position(|it| it.name == led).unwrap();
    cluster.nodes[leader].agent = None;
    programs.run(&mut cluster, 8_000);
    programs.0 = Programs::new().0;
    programs.run(&mut cluster, 4_000);
    let told: Vec<u64> = programs.epochs().into_values().collect();
    assert_eq!(told, [3; 6]);
    let (_, words) = programs.of(1).told.unwrap();
    assert_eq!(words.servers.len(), 4, "those that its members declare");
}

#[test]
fn a_user_who_names_maps_by_jobs_is_not_refused_for_ever() {
    let mut cluster = Cluster::new(5, 3);
    cluster.run(4_000);
    for map in 0..32 {
        let told = uses(&mut cluster, map, true).unwrap();
        assert_eq!(told.epoch, 1, "map {map}");
        uses(&mut cluster, map, false);
    }
    assert_eq!(uses(&mut cluster, 32, true).map(|it| it.epoch), None);
    uses(&mut cluster, 32, false);
    cluster.run(600_000);
    let told = uses(&mut cluster, 33, true).unwrap();
    assert_eq!((told.epoch, told.servers.len()), (2, 2));
}
