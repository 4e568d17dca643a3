//! The desk of phases: volumes, grants, decisions about them, and modes.

use super::*;
use barograph_model::{ManualClock, NS_PER_S, RequestSender};

use crate::decisions::{Controller, KeptDecision};

fn schedules(volumes: &[(&str, &str)]) -> Arc<IoSchedules> {
    at_a_time(volumes).0
}

/// The schedulers, and their clock.
fn at_a_time(volumes: &[(&str, &str)]) -> (Arc<IoSchedules>, Arc<ManualClock>) {
    let volume = |path: &str| VolumeConfig {
        path: path.into(),
        bandwidth: 1e6,
        policy: PolicyName::Fcfs,
        ..VolumeConfig::default()
    };
    let volumes = volumes.iter();
    let config = ScheduleConfig {
        volumes: volumes
            .map(|(name, path)| ((*name).to_owned(), volume(path)))
            .collect(),
        ..ScheduleConfig::default()
    };
    config.check().unwrap();
    let manual = Arc::new(ManualClock::at(1_000 * NS_PER_S));
    let clock: Arc<dyn Clock> = Arc::clone(&manual) as _;
    let dir = tempfile::tempdir().unwrap();
    let switches = ControllerSwitches::of_test(dir.path(), &clock);
    let told = (ControlEvents::new(&clock, 1), switches);
    (IoSchedules::new(&config, &clock, told), manual)
}

fn process(number: u8, application: &str, job: &str) -> PhaseProcess {
    PhaseProcess {
        incarnation: Incarnation([number; 16]),
        pid: number.into(),
        start_ticks: 1,
        uid: 1_000,
        application: application.into(),
        job: job.into(),
    }
}

fn report(volume: &str, phase: u64, stage: PhaseStage) -> PhaseReport {
    PhaseReport {
        phase,
        volume: volume.into(),
        stage,
        bytes: Some(1_000_000),
        bytes_done: 0,
        priority: 5,
        lease_ns: None,
    }
}

#[test]
fn a_volume_is_meant_by_its_name_or_by_the_longest_path() {
    let schedules = schedules(&[("deep", "/a/b"), ("root", "/"), ("all", "/a")]);
    let desk = schedules.desk();
    let names = schedules_names(&desk);
    for (said, expect) in [
        ("deep", Some("deep")),
        ("/a/b/c", Some("deep")),
        ("/a/bc", Some("all")),
        ("/x", Some("root")),
        ("a/b", None),
        ("", None),
    ] {
        let found = desk.volume_of(said).map(|at| names[at].as_str());
        assert_eq!(found, expect, "{said}");
    }
}

fn schedules_names(desk: &Desk) -> Vec<String> {
    desk.volumes.iter().map(|it| it.name.clone()).collect()
}

#[test]
fn ranks_of_a_job_go_together_and_others_wait() {
    let schedules = schedules(&[("scratch", "/scratch")]);
    assert!(schedules.schedules());
    let waits = |phase| [report("/scratch/x", phase, PhaseStage::Waiting)];
    schedules.report(&process(1, "solver", "7"), &waits(1));
    schedules.report(&process(2, "solver", "7"), &waits(1));
    schedules.report(&process(3, "solver", "8"), &waits(1));
    let elsewhere = [report("/home", 2, PhaseStage::Waiting)];
    schedules.report(&process(3, "solver", "8"), &elsewhere);
    let told = |outcomes: Vec<PhaseOutcome>| -> Vec<_> {
        let told = outcomes.into_iter();
        told.map(|it| (it.incarnation.0[0], it.phase, it.state))
            .collect()
    };
    let (go, wait) = (GrantState::Granted, GrantState::Waiting);
    schedules.step();
    assert_eq!(
        told(schedules.take_outcomes()),
        [
            (3, 2, GrantState::Unscheduled),
            (1, 1, go),
            (2, 1, go),
            (3, 1, wait)
        ]
    );
    let [state] = schedules.states()[..] else {
        panic!("one volume");
    };
    assert_eq!((state.granted, state.waiting), (1, 1));
    schedules.leave(Incarnation([1; 16]));
    let ends = [report("/scratch/x", 1, PhaseStage::Ended)];
    schedules.report(&process(2, "solver", "7"), &ends);
    schedules.step();
    assert_eq!(told(schedules.take_outcomes()), [(3, 1, go)]);
    assert_eq!(schedules.states()[0].counts.ended, 1);
    assert_eq!(schedules.events.kinds(), [""; 0]);
    let alone = [report("/scratch/x", 1, PhaseStage::Alone)];
    schedules.report(&process(4, "reader", ""), &alone);
    schedules.step();
    schedules.step();
    assert_eq!(schedules.events.kinds(), ["io.alone"], "told once");
}

#[test]
fn a_process_with_two_files_does_not_wait_for_itself() {
    let schedules = schedules(&[("scratch", "/scratch")]);
    let of_one = |number, application| PhaseProcess {
        pid: 7,
        ..process(number, application, "")
    };
    let waits = [report("scratch", 1, PhaseStage::Waiting)];
    schedules.report(&of_one(1, "preloaded"), &waits);
    schedules.report(&process(3, "other", ""), &waits);
    schedules.report(&of_one(2, "program"), &waits);
    // Files of another user, of a process before it and of one that began at an unknown time are
    // of others, whatever they say.
    let stranger = PhaseProcess {
        uid: 2_000,
        ..of_one(4, "stranger")
    };
    let before = PhaseProcess {
        start_ticks: 2,
        ..of_one(5, "before")
    };
    let unknown = PhaseProcess {
        start_ticks: 0,
        ..of_one(6, "unknown")
    };
    for other in [&stranger, &before, &unknown] {
        schedules.report(other, &waits);
    }
    let mut answers = told(&schedules);
    answers.sort_unstable_by_key(|(number, _)| *number);
    let expected = [(1, GO), (2, GO), (3, WAIT), (4, WAIT), (5, WAIT), (6, WAIT)];
    assert_eq!(answers, expected);
    // The next phase of the preloaded library begins while the program's goes on.
    let ends = [report("scratch", 1, PhaseStage::Ended)];
    schedules.report(&of_one(1, "preloaded"), &ends);
    let next = [report("scratch", 2, PhaseStage::Waiting)];
    schedules.report(&of_one(1, "preloaded"), &next);
    assert_eq!(told(&schedules), [(1, GO)]);
    // When both are gone nothing is kept of them.
    for number in [1, 2] {
        schedules.leave(Incarnation([number; 16]));
    }
    assert_eq!(told(&schedules), [(3, GO)]);
    for number in [3, 4, 5, 6] {
        schedules.leave(Incarnation([number; 16]));
    }
    let hosts = format!("{:?}", schedules.desk().hosts);
    assert_eq!(hosts, "Hosts { files: {}, hosts: {} }");
}

#[test]
fn other_users_have_no_more_than_their_priority() {
    let schedules = schedules(&[("scratch", "/scratch")]);
    let ours = rustix::process::geteuid().as_raw();
    for (number, uid) in [(1, ours), (2, ours + 1), (3, 0)] {
        let process = PhaseProcess {
            uid,
            ..process(number, &format!("application {number}"), "")
        };
        let report = PhaseReport {
            priority: 10,
            ..report("scratch", 1, PhaseStage::Waiting)
        };
        schedules.report(&process, &[report]);
    }
    let desk = schedules.desk();
    let phases = desk.volumes[0].scheduler.phases();
    let priorities: Vec<u8> = phases.map(|it| it.phase.priority).collect();
    assert_eq!(priorities, [10, 5, 10]);
}

#[test]
fn names_of_applications_are_bounded() {
    let schedules = schedules(&[("scratch", "/scratch")]);
    for n in 0..NAMES_MAX + 10 {
        let process = process(1, &format!("application {n}"), "");
        schedules.report(&process, &[report("scratch", 1, PhaseStage::Waiting)]);
        schedules.report(&process, &[report("scratch", 1, PhaseStage::Ended)]);
    }
    assert!(schedules.desk().names.len() <= NAMES_MAX);
}

const GO: GrantState = GrantState::Granted;
const WAIT: GrantState = GrantState::Waiting;
const OFF: GrantState = GrantState::Unscheduled;

/// What processes were told, with the first byte of their names.
fn told(schedules: &IoSchedules) -> Vec<(u8, GrantState)> {
    schedules.step();
    let outcomes = schedules.take_outcomes().into_iter();
    outcomes.map(|it| (it.incarnation.0[0], it.state)).collect()
}

fn says(schedules: &IoSchedules, number: u8, stage: PhaseStage) {
    let process = process(number, &format!("application {number}"), "");
    schedules.report(&process, &[report("scratch", 1, stage)]);
}

fn decisions(schedules: &IoSchedules) -> Vec<KeptDecision> {
    schedules.with_book(|book| book.of(None).cloned().collect())
}

#[test]
fn each_grant_and_each_wait_is_a_decision_with_what_was_expected_and_observed() {
    let (schedules, clock) = at_a_time(&[("scratch", "/scratch")]);
    for number in 1..=3 {
        says(&schedules, number, PhaseStage::Waiting);
    }
    assert_eq!(told(&schedules), [(1, GO), (2, WAIT), (3, WAIT)]);
    clock.advance(3 * NS_PER_S);
    says(&schedules, 1, PhaseStage::Ended);
    assert_eq!(told(&schedules), [(2, GO)]);
    let all = decisions(&schedules);
    let shares: Vec<_> = all.iter().map(|it| it.decision.number().unwrap()).collect();
    assert_eq!(shares, [1.0, 0.0, 0.0, 1.0]);
    let first = &all[0].decision;
    assert_eq!(
        (&*first.controller, &*first.subject),
        ("io-schedule/scratch", "application 1")
    );
    assert_eq!(first.reason, "by fcfs");
    assert_eq!(first.alternatives.len(), 2);
    assert!(
        first.alternatives[0]
            .what
            .starts_with("application 2 does I/O")
    );
    // A second of I/O was expected of it, and it took three.
    let observed = |at: usize| {
        let effect = all[at].decision.effect.as_ref().unwrap();
        (effect.before.clone(), effect.after.clone())
    };
    assert_eq!(observed(0), (1.0.into(), 3.0.into()));
    assert_eq!(observed(1), (1.0.into(), 3.0.into()));
    assert_eq!(all[2].decision.effect, None, "it waits still");
    assert_eq!(all[3].decision.inputs["waited_s"], 3.0.into());
    assert_eq!(all[3].uid, Some(1_000));
    // Names of other users' applications are not told.
    let other = PhaseProcess {
        uid: 2_000,
        ..process(4, "secret", "")
    };
    schedules.report(&other, &[report("scratch", 1, PhaseStage::Waiting)]);
    schedules.step();
    says(&schedules, 2, PhaseStage::Ended);
    schedules.step();
    let last = decisions(&schedules).pop().unwrap().decision;
    assert!(
        last.alternatives[0]
            .what
            .starts_with("an application of another user")
    );
    let tally = schedules.with_book(|book| book.tally("io-schedule/scratch"));
    assert_eq!(tally.outcomes["done"], 6);
}

#[test]
fn a_pause_lets_all_go_and_a_dry_run_decides_without_effect() {
    let (schedules, clock) = at_a_time(&[("scratch", "/scratch")]);
    let name = "io-schedule/scratch";
    let by = ("ada", "maintenance");
    says(&schedules, 1, PhaseStage::Waiting);
    says(&schedules, 2, PhaseStage::Waiting);
    assert_eq!(told(&schedules), [(1, GO), (2, WAIT)]);
    let switches = schedules.switches();
    switches.pause(name, by, Some(30 * NS_PER_S)).unwrap();
    assert_eq!(told(&schedules), [(2, OFF)]);
    says(&schedules, 2, PhaseStage::Alone);
    says(&schedules, 3, PhaseStage::Waiting);
    assert_eq!(told(&schedules), [(3, OFF)]);
    assert_eq!(
        decisions(&schedules).len(),
        2,
        "in a pause nothing is decided"
    );
    let rows = rows_of(&schedules, None, 10);
    let states: Vec<&str> = rows.iter().map(|row| &*row.state).collect();
    assert_eq!(states, ["granted", "alone", "alone"]);
    // The time of the pause is over: who is at work goes on, others wait.
    clock.advance(30 * NS_PER_S);
    says(&schedules, 4, PhaseStage::Waiting);
    assert!(told(&schedules).contains(&(4, WAIT)));
    for number in 1..=4 {
        says(&schedules, number, PhaseStage::Ended);
    }
    told(&schedules);
    switches.dry_run(name, by, true).unwrap();
    says(&schedules, 5, PhaseStage::Waiting);
    says(&schedules, 6, PhaseStage::Waiting);
    assert_eq!(told(&schedules), [(5, OFF), (6, OFF)]);
    let planned = decisions(&schedules);
    let planned = planned.iter().rev().take(2).map(|it| &it.decision);
    let planned: Vec<_> = planned
        .map(|it| (it.number().unwrap(), it.outcome.clone()))
        .collect();
    let dry = barograph_control::DecisionOutcome::DryRun;
    assert_eq!(planned, [(0.0, dry.clone()), (1.0, dry)]);
}

#[test]
fn a_grant_is_taken_back_by_its_decision() {
    let (schedules, _) = at_a_time(&[("scratch", "/scratch")]);
    says(&schedules, 1, PhaseStage::Waiting);
    says(&schedules, 2, PhaseStage::Waiting);
    told(&schedules);
    let [grant, wait] = &decisions(&schedules)[..] else {
        panic!("a grant and a wait");
    };
    let (grant, wait) = (grant.decision.id, wait.decision.id);
    let never = schedules.revert(grant, "x").unwrap_err();
    assert!(never.contains("never says how far it is"), "{never}");
    assert!(
        schedules
            .revert(wait, "x")
            .unwrap_err()
            .contains("not in effect")
    );
    says(&schedules, 1, PhaseStage::Granted);
    says(&schedules, 1, PhaseStage::Granted);
    assert_eq!(schedules.revert(grant, "by ada"), Ok(()));
    assert_eq!(told(&schedules), [(1, WAIT), (2, GO)]);
    let reverted = decisions(&schedules)
        .into_iter()
        .find(|it| it.decision.id == grant);
    let reason = "by ada".to_owned();
    assert_eq!(
        reverted.unwrap().decision.outcome,
        barograph_control::DecisionOutcome::Reverted { reason }
    );
    assert!(schedules.revert(grant, "x").is_err());
}

#[test]
fn turns_without_effect_are_held_off_for_a_time() {
    let (schedules, clock) = at_a_time(&[("scratch", "/scratch")]);
    let ends = |number: u8, bytes_done: u64| {
        let process = process(number, &format!("application {number}"), "");
        let ends = PhaseReport {
            bytes_done,
            ..report("scratch", 1, PhaseStage::Ended)
        };
        schedules.report(&process, &[ends]);
        schedules.step();
    };
    // A small phase behind a large one, again and again.
    for n in 0..30 {
        says(&schedules, 1, PhaseStage::Waiting);
        schedules.step();
        clock.advance(NS_PER_S / 10);
        says(&schedules, 2, PhaseStage::Waiting);
        schedules.step();
        clock.advance(10 * NS_PER_S);
        ends(1, 10_000_000);
        clock.advance(NS_PER_S / 100 * (1 + n % 3));
        ends(2, 10_000);
        schedules.take_outcomes();
    }
    let last = decisions(&schedules).pop().unwrap().decision;
    assert_eq!(last.value, "held_off".into());
    assert!(
        last.reason.contains("in 30 busy periods"),
        "{}",
        last.reason
    );
    let controllers: Vec<_> = volume_controllers(&schedules).collect();
    let held = controllers[0].held_off();
    assert!(held[0].is_whole && held[0].until_ns > clock.now_ns());
    says(&schedules, 1, PhaseStage::Waiting);
    says(&schedules, 2, PhaseStage::Waiting);
    assert_eq!(told(&schedules), [(1, OFF), (2, OFF)]);
    let explained = controllers[0].explain(&RequestSender::default());
    assert!(
        explained
            .iter()
            .any(|it| it.contains("at present nobody waits")),
        "{explained:?}"
    );
    ends(1, 1);
    ends(2, 1);
    // Who resumes it has turns at once; otherwise they come back with the time.
    assert!(controllers[0].end_hold_off() && !controllers[0].end_hold_off());
    says(&schedules, 1, PhaseStage::Waiting);
    says(&schedules, 2, PhaseStage::Waiting);
    assert_eq!(told(&schedules), [(1, GO), (2, WAIT)]);
}
