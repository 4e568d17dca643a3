//! Several nodes in memory: their controllers, with desks at which programs report phases of I/O.

mod maps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_intake::{PhaseDesk as _, PhaseProcess, PhaseReport};
use barograph_model::{Clock, ManualClock, NS_PER_MS};
use barograph_stream::Incarnation;
use barograph_stream::ingest::{GrantState, PhaseStage};

use super::core::AgreementCore;
use super::replica_file::ReplicaFile;
use crate::control_events::ControlEvents;
use crate::decisions::ControllerSwitches;
use crate::io_schedules::{IoSchedules, PolicyName, ScheduleConfig, VolumeConfig};
use crate::server_maps::{MapControl, ServerMaps};

/// A node: its disk, its clock, and the agent as long as it runs.
struct Node {
    name: String,
    dir: tempfile::TempDir,
    agent: Option<(AgreementCore, Arc<IoSchedules>, Arc<ServerMaps>)>,
    lives: u64,
}

struct Cluster {
    clock: Arc<ManualClock>,
    leaders: Vec<String>,
    nodes: Vec<Node>,
    network: Vec<(usize, String, String)>,
    /// Nodes that neither send nor hear.
    cut_off: BTreeSet<usize>,
    /// Whether a third of the words is lost.
    loses: bool,
    /// Random numbers (Knuth's MMIX generator).
    carried: u64,
    /// The newest answer to each process.
    told: BTreeMap<u8, GrantState>,
}

impl Cluster {
    fn new(nodes: usize, leaders: usize) -> Self {
        let names: Vec<String> = (0..nodes).map(|n| format!("node-{n}")).collect();
        let mut cluster = Self {
            clock: Arc::new(ManualClock::at(1_000_000_000)),
            leaders: names[..leaders].to_vec(),
            nodes: Vec::new(),
            network: Vec::new(),
            cut_off: BTreeSet::new(),
            loses: false,
            carried: 1,
            told: BTreeMap::new(),
        };
        for name in names {
            cluster.nodes.push(Node {
                name,
                dir: tempfile::tempdir().unwrap(),
                agent: None,
                lives: 0,
            });
        }
        (0..nodes).for_each(|node| cluster.start(node));
        cluster
    }

    fn start(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.lives += 1;
        let volume = VolumeConfig {
            path: "/scratch".into(),
            bandwidth: 1e6,
            policy: PolicyName::Fcfs,
            shared: true,
            ..VolumeConfig::default()
        };
        let config = ScheduleConfig {
            volumes: [("scratch".to_owned(), volume)].into(),
            ..ScheduleConfig::default()
        };
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let switches = ControllerSwitches::of_test(node.dir.path(), &clock);
        let events = ControlEvents::new(&clock, 1);
        let control = MapControl::new(true, &switches, &events, &clock);
        let schedules = IoSchedules::new(&config, &clock, (events, switches));
        let maps = ServerMaps::new(control);
        let core = AgreementCore::new(
            (&node.name, &self.leaders),
            ReplicaFile::new(node.dir.path()),
            (&schedules, &maps),
            (node.lives, self.clock.monotonic_ns()),
        );
        node.agent = Some((core, schedules, maps));
    }

    fn run(&mut self, ms: i64) {
        for _ in 0..ms / 10 {
            self.clock.advance(10 * NS_PER_MS);
            self.round();
        }
    }

    fn round(&mut self) {
        let now_ns = self.clock.monotonic_ns();
        for (from, to, text) in std::mem::take(&mut self.network) {
            let Some(to) = self.nodes.iter().position(|node| node.name == to) else {
                continue;
            };
            self.carried = self
                .carried
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let is_lost = self.loses && (self.carried >> 33).is_multiple_of(3);
            if is_lost || self.cut_off.contains(&from) || self.cut_off.contains(&to) {
                continue;
            }
            let from = self.nodes[from].name.clone();
            if let Some((core, _, _)) = &mut self.nodes[to].agent {
                core.hear(&from, &text, now_ns);
            }
        }
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let Some((core, schedules, _)) = &mut node.agent else {
                continue;
            };
            core.step(now_ns);
            for (to, word) in core.take_outputs() {
                let text = serde_json::to_string(&word).unwrap();
                self.network.push((at, to, text));
            }
            for outcome in schedules.take_outcomes() {
                self.told.insert(outcome.incarnation.0[0], outcome.state);
            }
        }
    }

    fn report(&self, node: usize, process: u8, application: &str, stage: PhaseStage) {
        let Some((_, schedules, _)) = &self.nodes[node].agent else {
            return;
        };
        let process = PhaseProcess {
            incarnation: Incarnation([process; 16]),
            pid: process.into(),
            start_ticks: 1,
            uid: 1_000,
            application: application.into(),
            job: "7".into(),
        };
        let report = PhaseReport {
            phase: 1,
            volume: "/scratch/out".into(),
            stage,
            bytes: Some(1_000_000),
            bytes_done: 0,
            priority: 5,
            lease_ns: None,
        };
        schedules.report(&process, &[report]);
    }

    fn leader(&self, node: usize) -> Option<String> {
        let (core, _, _) = self.nodes[node].agent.as_ref()?;
        core.status().leader
    }
}

const GO: GrantState = GrantState::Granted;
const WAIT: GrantState = GrantState::Waiting;
const OFF: GrantState = GrantState::Unscheduled;

#[test]
fn programs_of_several_nodes_take_turns_and_ranks_of_a_job_go_together() {
    for loses in [false, true] {
        let mut cluster = Cluster::new(5, 3);
        cluster.loses = loses;
        cluster.run(4_000);
        cluster.report(3, 1, "solver", PhaseStage::Waiting);
        cluster.run(1_500);
        cluster.report(4, 2, "other", PhaseStage::Waiting);
        cluster.report(0, 3, "solver", PhaseStage::Waiting);
        cluster.run(1_500);
        assert_eq!(cluster.told, BTreeMap::from([(1, GO), (2, WAIT), (3, GO)]));
        let led = cluster.leader(4).unwrap();
        let leader = cluster.nodes.iter().position(|it| it.name == led).unwrap();
        let (_, schedules, _) = cluster.nodes[leader].agent.as_ref().unwrap();
        let state = schedules.states()[0];
        assert_eq!((state.granted, state.waiting), (1, 1));
        // One rank ends, then the node of the other.
        cluster.report(3, 1, "solver", PhaseStage::Ended);
        cluster.run(1_000);
        assert_eq!(cluster.told[&2], WAIT);
        let (_, schedules, _) = cluster.nodes[0].agent.as_ref().unwrap();
        schedules.leave(Incarnation([3; 16]));
        cluster.run(1_500);
        assert_eq!(cluster.told[&2], GO, "loses: {loses}");
    }
}

#[test]
fn a_node_that_is_gone_holds_nothing() {
    let mut cluster = Cluster::new(5, 3);
    cluster.run(3_000);
    cluster.report(3, 1, "solver", PhaseStage::Waiting);
    cluster.run(500);
    cluster.report(4, 2, "other", PhaseStage::Waiting);
    cluster.run(500);
    assert_eq!((cluster.told[&1], cluster.told[&2]), (GO, WAIT));
    cluster.nodes[3].agent = None;
    for _ in 0..12 {
        // As programs that wait do.
        cluster.report(4, 2, "other", PhaseStage::Waiting);
        cluster.run(500);
    }
    assert_eq!(cluster.told[&2], GO);
}

#[test]
fn another_leader_takes_over_and_holders_go_on() {
    let mut cluster = Cluster::new(5, 3);
    cluster.run(3_000);
    cluster.report(3, 1, "solver", PhaseStage::Waiting);
    cluster.run(500);
    cluster.report(3, 1, "solver", PhaseStage::Granted);
    cluster.report(4, 2, "other", PhaseStage::Waiting);
    cluster.run(500);
    assert_eq!(cluster.leader(4).as_deref(), Some("node-0"));
    cluster.nodes[0].agent = None;
    // Nobody is led for a while: who waits goes on after two seconds, and the new leader knows it.
    for _ in 0..20 {
        let is_waiting = cluster.told[&2] == WAIT;
        let stage = [PhaseStage::Alone, PhaseStage::Waiting][usize::from(is_waiting)];
        cluster.report(4, 2, "other", stage);
        cluster.run(500);
    }
    assert_eq!(cluster.leader(4).as_deref(), Some("node-1"));
    assert_ne!(cluster.told[&2], WAIT);
    cluster.report(4, 3, "third", PhaseStage::Waiting);
    cluster.run(1_000);
    assert_eq!(cluster.told[&3], WAIT, "two are at work");
    cluster.report(3, 1, "solver", PhaseStage::Ended);
    cluster.report(4, 2, "other", PhaseStage::Ended);
    cluster.run(1_000);
    assert_eq!(cluster.told[&3], GO);
    // The first one comes back, and follows.
    cluster.start(0);
    cluster.run(4_000);
    assert_eq!(cluster.leader(0).as_deref(), Some("node-1"));
}

#[test]
fn who_hears_no_leader_does_not_wait() {
    let mut cluster = Cluster::new(4, 3);
    cluster.run(3_000);
    cluster.cut_off = BTreeSet::from([3]);
    cluster.report(3, 1, "solver", PhaseStage::Waiting);
    cluster.run(1_900);
    assert_eq!(cluster.told.get(&1), None);
    cluster.run(300);
    assert_eq!(cluster.told[&1], OFF);
    // The next one does not wait at all.
    cluster.report(3, 2, "solver", PhaseStage::Waiting);
    cluster.round();
    assert_eq!(cluster.told[&2], OFF);
    let (_, schedules, _) = cluster.nodes[3].agent.as_ref().unwrap();
    assert_eq!(schedules.states()[0].counts.went_alone, 2);
    cluster.cut_off.clear();
    cluster.run(1_500);
    cluster.report(3, 4, "solver", PhaseStage::Waiting);
    cluster.run(500);
    assert_eq!(cluster.told[&4], GO);
    // A leader that is cut off from the others leads no more.
    let (core, _, _) = cluster.nodes[0].agent.as_ref().unwrap();
    assert_eq!(core.status().leader.as_deref(), Some("node-0"));
    cluster.cut_off = BTreeSet::from([0]);
    cluster.run(1_700);
    assert_eq!(cluster.leader(0), None);
}

#[test]
fn words_that_make_no_sense_change_nothing() {
    let mut cluster = Cluster::new(3, 3);
    cluster.run(3_000);
    let now_ns = cluster.clock.monotonic_ns();
    for text in [
        "",
        "{}",
        r#"{"kind":"orders"}"#,
        r#"{"kind":"led_by","of":{"leader":"stranger","term":18446744073709551615}}"#,
        r#"{"kind":"leader","of":{"word":"leads","term":9,"beat":1}}"#,
        r#"{"kind":"report","of":{"life":1,"sequence":1,"begins":true,"left":["x"],"phases":[
            {"volume":"none","process":"zz","phase":1,"stage":9,"user":0,"application":"a",
             "job":"","priority":200,"bytes":null,"done":0}]}}"#,
    ] {
        for node in &mut cluster.nodes {
            let (core, _, _) = node.agent.as_mut().unwrap();
            core.hear("stranger", text, now_ns);
        }
    }
    cluster.run(500);
    for node in 0..3 {
        assert_eq!(cluster.leader(node).as_deref(), Some("node-0"));
    }
}

#[test]
fn a_node_by_itself_listens_to_no_other() {
    let mut cluster = Cluster::new(2, 0);
    cluster.run(3_000);
    let now_ns = cluster.clock.monotonic_ns();
    let (core, _, _) = cluster.nodes[0].agent.as_mut().unwrap();
    for text in [
        r#"{"kind":"who"}"#,
        r#"{"kind":"maps","of":{"id":1,"user":null}}"#,
        r#"{"kind":"report","of":{"life":1,"sequence":1,"begins":true,"left":[],"phases":[]}}"#,
    ] {
        core.hear("node-1", text, now_ns);
        core.step(now_ns);
        assert!(core.take_outputs().is_empty(), "{text}");
    }
    assert_eq!(core.status().nodes, 0);
}

#[test]
fn a_replica_that_could_not_be_read_is_read_again() {
    let mut cluster = Cluster::new(1, 1);
    let path = cluster.nodes[0].dir.path().join("leadership.json");
    std::fs::write(&path, "half of a").unwrap();
    cluster.start(0);
    // Alone in its list, it is asked by nobody: a program has it lead.
    cluster.report(0, 1, "solver", PhaseStage::Waiting);
    cluster.run(3_000);
    let (core, _, _) = cluster.nodes[0].agent.as_ref().unwrap();
    assert!(core.status().fault.is_some());
    assert_eq!((cluster.leader(0), cluster.told[&1]), (None, OFF));
    std::fs::remove_file(&path).unwrap();
    cluster.run(9_000);
    let (core, _, _) = cluster.nodes[0].agent.as_ref().unwrap();
    assert_eq!(core.status().fault, None);
}
