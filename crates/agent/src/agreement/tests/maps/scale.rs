//! Slow servers are taken out by decisions, which are judged by their effect, paused, tried in dry
//! runs and taken back.

use std::sync::Arc;

use barograph_control::{Decision, DecisionOutcome};
use barograph_model::RequestSender;

use super::{Cluster, Programs, USER, remove, start};
use crate::decisions::Controller as _;
use crate::server_maps::{MAP_CONTROLLER, MapControl};

/// The server that becomes slow, and its process.
const SLOW: u32 = 2;
const PROCESS: u8 = 12;

fn leader(cluster: &Cluster) -> usize {
    let led = cluster.leader(4).unwrap();
    cluster.nodes.iter().position(|it| it.name == led).unwrap()
}

fn control(cluster: &Cluster) -> Arc<MapControl> {
    let (_, _, maps) = cluster.nodes[leader(cluster)].agent.as_ref().unwrap();
    Arc::clone(maps.control())
}

fn decisions(control: &MapControl) -> Vec<Decision> {
    control.with_book(|book| book.of(None).map(|kept| kept.decision.clone()).collect())
}

fn servers(programs: &mut Programs) -> (u64, Vec<u32>) {
    let (_, words) = programs.of(1).told.unwrap();
    (words.epoch, words.servers.iter().collect())
}

/// A map whose members end so many operations in each report, and whose server 2 is slow.
fn slow(operations: u64) -> (Cluster, Programs) {
    let (mut cluster, mut programs) = start();
    programs.of(1).more = operations;
    programs.of(2).more = operations;
    programs.run(&mut cluster, 25_000);
    assert_eq!(servers(&mut programs).0, 1, "all are sound");
    programs.of(PROCESS).service_s = 0.02;
    (cluster, programs)
}

#[test]
fn a_slow_server_is_taken_out_and_tried_again() {
    let (mut cluster, mut programs) = slow(0);
    programs.run(&mut cluster, 30_000);
    assert_eq!(servers(&mut programs), (2, vec![0, 1, 3]), "once");
    programs.of(PROCESS).service_s = 0.001;
    programs.run(&mut cluster, 65_000);
    assert_eq!(servers(&mut programs), (3, vec![0, 1, 2, 3]));
    // What a person takes out then, the leader does not add again.
    assert_eq!(
        super::change(&mut cluster, &mut programs, remove(SLOW)),
        Ok(4)
    );
    programs.run(&mut cluster, 150_000);
    assert_eq!(servers(&mut programs), (4, vec![0, 1, 3]));
    let control = control(&cluster);
    let [out, again, _] = &decisions(&control)[..] else {
        panic!("{:?}", decisions(&control));
    };
    assert_eq!((&*out.controller, &*out.subject), (MAP_CONTROLLER, "io"));
    assert_eq!(
        (&out.outcome, out.number()),
        (&DecisionOutcome::Done, Some(3.0))
    );
    assert_eq!(out.inputs["server"], 2.0.into());
    assert_eq!(out.inputs["servers"], "0, 1, 2, 3".into());
    assert_eq!(out.effect, None, "nobody did operations");
    assert_eq!(
        (&again.outcome, again.number()),
        (&DecisionOutcome::Done, Some(4.0))
    );
    assert!(again.reason.contains("tried again"));
}

#[test]
fn one_whose_absence_gives_nothing_is_taken_back_and_left_alone_for_a_while() {
    let (mut cluster, mut programs) = slow(5);
    programs.run(&mut cluster, 50_000);
    let control = control(&cluster);
    assert_eq!(servers(&mut programs), (3, vec![0, 1, 2, 3]));
    let all = decisions(&control);
    let DecisionOutcome::Reverted { reason } = &all[0].outcome else {
        panic!("{all:?}");
    };
    assert!(reason.contains("no effect"), "{reason}");
    assert!(all[0].effect.is_some() && all[0].inputs.contains_key("chance_of_no_effect"));
    programs.run(&mut cluster, 300_000);
    assert_eq!(servers(&mut programs).0, 3, "though it is slow");
    let held = control.held_off();
    assert_eq!(held.len(), 1);
    assert!(!held[0].is_whole && held[0].reason.contains("operations/s"));
    // Somebody wants it to go on.
    assert!(control.end_hold_off());
    programs.run(&mut cluster, 8_000);
    assert_eq!(servers(&mut programs), (4, vec![0, 1, 3]));
}

#[test]
fn one_that_held_up_the_others_stays_out_until_it_is_tried() {
    let (mut cluster, mut programs) = slow(5);
    while servers(&mut programs).0 == 1 {
        programs.run(&mut cluster, 500);
    }
    programs.of(1).more = 8;
    programs.of(2).more = 8;
    programs.run(&mut cluster, 40_000);
    assert_eq!(servers(&mut programs), (2, vec![0, 1, 3]));
    let control = control(&cluster);
    let all = decisions(&control);
    assert_eq!((all.len(), &all[0].outcome), (1, &DecisionOutcome::Done));
    let effect = all[0].effect.clone().unwrap();
    assert!(effect.measure.contains("operations/s"));
    assert_eq!(control.held_off(), []);
    // A person takes it back, and then there is nothing to be taken back.
    assert_eq!(control.revert(all[0].id, "by ada"), Ok(()));
    programs.run(&mut cluster, 2_000);
    assert_eq!(servers(&mut programs), (3, vec![0, 1, 2, 3]));
    let all = decisions(&control);
    let reason = "by ada".to_owned();
    let taken_back = |all: &[Decision]| match &all[0].outcome {
        DecisionOutcome::Reverted { reason: why } => why.contains(&reason),
        _ => false,
    };
    assert!(taken_back(&all), "{all:?}");
    assert!(control.revert(all[0].id, "again").is_err());
}

#[test]
fn in_a_dry_run_and_in_a_pause_nothing_is_taken_out() {
    let (mut cluster, mut programs) = slow(5);
    let at = leader(&cluster);
    let (_, schedules, _) = cluster.nodes[at].agent.as_ref().unwrap();
    let switches = Arc::clone(schedules.switches());
    let by = ("ada", "");
    assert!(
        switches
            .dry_run(MAP_CONTROLLER, by, true)
            .unwrap()
            .is_some()
    );
    programs.run(&mut cluster, 40_000);
    let control = control(&cluster);
    assert_eq!(servers(&mut programs).0, 1);
    let all = decisions(&control);
    assert_eq!((all.len(), &all[0].outcome), (1, &DecisionOutcome::DryRun));
    assert!(
        switches
            .dry_run(MAP_CONTROLLER, by, false)
            .unwrap()
            .is_some()
    );
    assert!(switches.pause(MAP_CONTROLLER, by, None).unwrap().is_some());
    programs.run(&mut cluster, 60_000);
    assert_eq!(
        (servers(&mut programs).0, decisions(&control).len()),
        (1, 1)
    );
    switches.resume(MAP_CONTROLLER).unwrap();
    control.end_hold_off();
    programs.run(&mut cluster, 8_000);
    assert_eq!(servers(&mut programs), (2, vec![0, 1, 3]));
    // What it has done is taken back when it is paused.
    assert!(switches.pause(MAP_CONTROLLER, by, None).unwrap().is_some());
    control.paused("paused by ada");
    programs.run(&mut cluster, 10_000);
    assert_eq!(servers(&mut programs), (3, vec![0, 1, 2, 3]));
}

#[test]
fn the_next_leader_tries_the_server_that_is_out() {
    let (mut cluster, mut programs) = slow(0);
    programs.run(&mut cluster, 20_000);
    assert_eq!(servers(&mut programs), (2, vec![0, 1, 3]));
    programs.of(PROCESS).service_s = 0.001;
    let at = leader(&cluster);
    cluster.nodes[at].agent = None;
    programs.run(&mut cluster, 80_000);
    assert_ne!(leader(&cluster), at);
    assert_eq!(servers(&mut programs), (3, vec![0, 1, 2, 3]));
}

#[test]
fn who_asks_hears_of_the_own_maps_and_changes_are_decisions() {
    let (mut cluster, mut programs) = start();
    assert_eq!(
        super::change(&mut cluster, &mut programs, remove(SLOW)),
        Ok(2)
    );
    programs.run(&mut cluster, 2_000);
    let control = control(&cluster);
    let all = decisions(&control);
    assert_eq!((all.len(), &all[0].outcome), (1, &DecisionOutcome::Done));
    assert!(
        all[0].reason.contains("asked for on node node-4"),
        "{all:?}"
    );
    let asker = |uid, may_control| RequestSender {
        uid: Some(uid),
        pid: None,
        via: "read.sock".into(),
        may_control,
    };
    let of = |uid, may_control| control.explain(&asker(uid, may_control)).join("\n");
    assert!(
        of(USER, false).contains("map io has 3 servers"),
        "{}",
        of(USER, false)
    );
    assert!(!of(USER + 1, false).contains("io has"));
    assert!(of(USER + 1, true).contains("map io has 3 servers"));
    let (leads, rows) = control.maps();
    assert!(leads);
    assert_eq!(
        (&*rows[0].name, rows[0].epoch, rows[0].loads.len()),
        ("io", 2, 4)
    );
}
