//! Maps of servers over several nodes: they change while programs do operations, also when leaders,
//! nodes and servers die in between.

mod homes;
mod removal;
mod scale;
mod seeds;

use std::collections::{BTreeMap, BTreeSet};

use barograph_intake::{MapDesk as _, MapReport, MapRole, MapSample, PhaseProcess};
use barograph_stream::Incarnation;
use barograph_stream::ingest::{MapWords, ServerSet};

use super::Cluster;
use crate::agreement::core::{LeaderAnswer, LeaderQuestion};
use crate::agreement::led_maps::{LedMaps, MapOutput};
use crate::controller_words::{MapChange, MapKey, MapWord, ServerWord, process_text, servers_text};

/// A program with one slot: what it does, and what it was told.
struct Program {
    node: usize,
    process: u8,
    /// The number of its server; `None` for a member.
    server: Option<u32>,
    /// Operations that run, and the oldest epoch of those that a server serves.
    running: u64,
    oldest_epoch: Option<u64>,
    /// The greatest fence by which a member was refused.
    refused: u64,
    /// Operations that have ended so far, and how many more each report has.
    ended: u64,
    more: u64,
    /// Seconds that it takes to serve a request.
    service_s: f64,
    told: Option<(u64, MapWords)>,
}

struct Programs(Vec<Program>);

const USER: u32 = 1_000;

impl Programs {
    /// Two members on different nodes, and four servers on two.
    fn new() -> Self {
        let members = [Program::idle(3, 1, None), Program::idle(4, 2, None)];
        let mut programs = Self(members.into());
        for server in 0..4 {
            programs.begin(3 + server as usize % 2, 10 + server as u8, server);
        }
        programs
    }

    fn begin(&mut self, node: usize, process: u8, server: u32) {
        self.0.push(Program::idle(node, process, Some(server)));
    }

    fn run(&mut self, cluster: &mut Cluster, ms: i64) {
        for _ in 0..ms / 50 {
            for node in 0..cluster.nodes.len() {
                self.hear(cluster, node);
            }
            for program in &mut self.0 {
                program.ended += program.more;
                program.report(cluster);
            }
            cluster.run(50);
        }
    }

    fn hear(&mut self, cluster: &Cluster, node: usize) {
        let Some((_, _, maps)) = &cluster.nodes[node].agent else {
            return;
        };
        for outcome in maps.take_outcomes() {
            let mut programs = self.0.iter_mut();
            let program = programs.find(|it| Incarnation([it.process; 16]) == outcome.incarnation);
            if let Some(program) = program {
                program.told = Some((outcome.number, outcome.words));
            }
        }
    }

    fn end(&mut self, cluster: &Cluster, process: u8, is_certain: bool) {
        let at = self.0.iter().position(|it| it.process == process).unwrap();
        let program = self.0.remove(at);
        if let Some((_, _, maps)) = &cluster.nodes[program.node].agent {
            maps.leave(Incarnation([process; 16]), is_certain);
        }
    }

    fn epochs(&self) -> BTreeMap<u8, u64> {
        let told = self.0.iter();
        told.filter_map(|it| Some((it.process, it.told?.1.epoch)))
            .collect()
    }

    fn of(&mut self, process: u8) -> &mut Program {
        self.0.iter_mut().find(|it| it.process == process).unwrap()
    }
}

impl Program {
    /// One that does nothing yet.
    fn idle(node: usize, process: u8, server: Option<u32>) -> Self {
        Self {
            node,
            process,
            server,
            running: 0,
            oldest_epoch: None,
            refused: 0,
            ended: 0,
            more: 0,
            service_s: 0.001,
            told: None,
        }
    }

    /// Requests that it has served, if it is a server of the map in force.
    fn samples(&self) -> Vec<MapSample> {
        let number = self.server.unwrap_or_default();
        let serves = self
            .told
            .is_some_and(|(_, words)| words.servers.contains(number));
        let sample = MapSample {
            load: 1_000,
            service_s: self.service_s * (1.0 + f64::from(number) / 100.0),
            requests: 0,
        };
        vec![sample; usize::from(serves)]
    }

    fn report(&self, cluster: &Cluster) {
        let Some((_, _, maps)) = &cluster.nodes[self.node].agent else {
            return;
        };
        let process = PhaseProcess {
            incarnation: Incarnation([self.process; 16]),
            pid: self.process.into(),
            start_ticks: 1,
            uid: USER,
            application: "solver".into(),
            job: "7".into(),
        };
        let role = match self.server {
            None => MapRole::Member {
                running: self.running,
                waiting: 0,
                refused: self.refused,
                ended: self.ended,
                declared: (0..4).collect::<ServerSet>(),
            },
            Some(number) => MapRole::Server {
                number,
                running: self.running,
                oldest_epoch: self.oldest_epoch,
                samples: self.samples(),
            },
        };
        let report = MapReport {
            slot: 0,
            map: "io".into(),
            role,
            seen: self.told.map_or(0, |(number, _)| number),
            told: None,
        };
        maps.report(&process, &[report]);
    }
}

/// Has a map changed by a question of a node; the answer.
fn change(
    cluster: &mut Cluster,
    programs: &mut Programs,
    change: MapChange,
) -> Result<u64, String> {
    let question = LeaderQuestion::Change {
        id: 5,
        of: (USER, "io".into()),
        change,
    };
    let (core, _, _) = cluster.nodes[4].agent.as_mut().unwrap();
    assert!(core.ask(question));
    programs.run(cluster, 200);
    let (core, _, _) = cluster.nodes[4].agent.as_mut().unwrap();
    match &core.take_answers()[..] {
        [(5, LeaderAnswer::Changed(outcome))] => outcome.clone(),
        other => panic!("{other:?}"),
    }
}

fn remove(server: u32) -> MapChange {
    MapChange {
        remove: vec![server],
        ..MapChange::default()
    }
}

fn start() -> (Cluster, Programs) {
    let mut cluster = Cluster::new(5, 3);
    let mut programs = Programs::new();
    programs.run(&mut cluster, 4_000);
    let epochs = programs.epochs();
    assert_eq!(epochs.len(), 6, "all are told: {epochs:?}");
    assert!(epochs.values().all(|epoch| *epoch == 1));
    (cluster, programs)
}

#[test]
fn a_server_is_taken_out_and_added_again() {
    let (mut cluster, mut programs) = start();
    assert_eq!(change(&mut cluster, &mut programs, remove(2)), Ok(2));
    programs.run(&mut cluster, 1_000);
    assert!(programs.epochs().values().all(|epoch| *epoch == 2));
    let (_, words) = programs.of(1).told.unwrap();
    assert_eq!(words.servers.iter().collect::<Vec<_>>(), [0, 1, 3]);
    assert_eq!((words.prepare, words.fence), (0, 2));
    let add = MapChange {
        add: vec![2],
        ..MapChange::default()
    };
    assert_eq!(change(&mut cluster, &mut programs, add), Ok(3));
    programs.run(&mut cluster, 1_000);
    let (_, words) = programs.of(12).told.unwrap();
    assert_eq!((words.epoch, words.fence, words.servers.len()), (3, 3, 4));
    for nonsense in [
        MapChange {
            add: vec![9],
            ..MapChange::default()
        },
        MapChange {
            remove: vec![0, 1, 2, 3],
            ..MapChange::default()
        },
        remove(7),
    ] {
        assert!(change(&mut cluster, &mut programs, nonsense).is_err());
    }
}

#[test]
fn operations_that_run_are_waited_for_and_one_that_never_ends_aborts_the_change() {
    let (mut cluster, mut programs) = start();
    programs.of(2).running = 1;
    assert_eq!(change(&mut cluster, &mut programs, remove(0)), Ok(2));
    programs.run(&mut cluster, 1_000);
    let (_, words) = programs.of(1).told.unwrap();
    assert_eq!((words.prepare, words.epoch), (2, 1));
    programs.of(2).running = 0;
    programs.run(&mut cluster, 1_000);
    let (_, words) = programs.of(1).told.unwrap();
    assert_eq!((words.prepare, words.epoch), (0, 2));
    programs.of(2).running = 1;
    assert_eq!(change(&mut cluster, &mut programs, remove(1)), Ok(3));
    programs.run(&mut cluster, 7_000);
    let (_, words) = programs.of(1).told.unwrap();
    assert_eq!((words.prepare, words.epoch, words.fence), (0, 2, 2));
}

#[test]
fn what_nodes_are_told_is_said_again_until_it_is_done() {
    // The words to a node are lost at some time, and nothing changes there by itself.
    for lost_ms in (0..100).step_by(10) {
        let (mut cluster, mut programs) = start();
        programs.of(2).running = 1;
        assert_eq!(change(&mut cluster, &mut programs, remove(2)), Ok(2));
        programs.of(2).running = 0;
        programs.of(2).report(&cluster);
        cluster.run(lost_ms);
        cluster.cut_off.insert(3);
        programs.run(&mut cluster, 400);
        cluster.cut_off.clear();
        programs.run(&mut cluster, 1_500);
        let epochs = programs.epochs();
        assert!(
            epochs.values().all(|epoch| *epoch == 2),
            "{lost_ms}: {epochs:?}"
        );
    }
}

#[test]
fn the_next_leader_knows_the_map_and_ends_the_change() {
    let (mut cluster, mut programs) = start();
    programs.of(2).running = 1;
    assert_eq!(change(&mut cluster, &mut programs, remove(0)), Ok(2));
    let led = cluster.leader(4).unwrap();
    let leader = cluster.nodes.iter().position(|it| it.name == led).unwrap();
    cluster.nodes[leader].agent = None;
    programs.run(&mut cluster, 8_000);
    let after = cluster.leader(4).unwrap();
    assert_ne!(after, led);
    let (_, words) = programs.of(1).told.unwrap();
    assert_eq!((words.prepare, words.epoch), (0, 1), "it was aborted");
    programs.of(2).running = 0;
    // The number of the epoch that was aborted is not used again.
    assert_eq!(change(&mut cluster, &mut programs, remove(0)), Ok(3));
    programs.run(&mut cluster, 1_000);
    assert!(programs.epochs().values().all(|epoch| *epoch == 3));
}

#[test]
fn a_leader_that_is_lost_at_any_time_of_a_change_leaves_none_behind() {
    for lost_ms in (0..100).step_by(10) {
        let (mut cluster, mut programs) = start();
        programs.of(2).running = 1;
        assert_eq!(change(&mut cluster, &mut programs, remove(2)), Ok(2));
        programs.of(2).running = 0;
        programs.of(2).report(&cluster);
        cluster.run(lost_ms);
        // No node with programs begins anew, so none of them asks for the map.
        let led = cluster.leader(4).unwrap();
        let leader = cluster.nodes.iter().position(|it| it.name == led).unwrap();
        cluster.nodes[leader].agent = None;
        programs.run(&mut cluster, 8_000);
        let epochs: BTreeSet<u64> = programs.epochs().into_values().collect();
        assert_eq!(epochs.len(), 1, "{lost_ms}: all use one map");
        let next = change(&mut cluster, &mut programs, remove(0));
        assert_eq!(next, Ok(3), "{lost_ms}: nothing is under way");
    }
}

#[test]
fn a_server_that_has_ended_is_not_waited_for_and_one_that_is_silent_is() {
    let (mut cluster, mut programs) = start();
    programs.end(&cluster, 10, true);
    programs.run(&mut cluster, 500);
    assert_eq!(change(&mut cluster, &mut programs, remove(0)), Ok(2));
    programs.run(&mut cluster, 1_000);
    assert!(programs.epochs().values().all(|epoch| *epoch == 2));
    // It has closed its file, and may serve on.
    programs.end(&cluster, 13, false);
    programs.run(&mut cluster, 500);
    let refusal = change(&mut cluster, &mut programs, remove(3));
    assert_eq!(
        refusal,
        Ok(3),
        "the leader has heard of it, and waits for its fence"
    );
    programs.run(&mut cluster, 2_000);
    assert!(programs.epochs().values().all(|epoch| *epoch == 2));
    let gone = MapChange {
        gone: vec![3],
        ..MapChange::default()
    };
    assert_eq!(change(&mut cluster, &mut programs, gone), Ok(3));
    programs.run(&mut cluster, 1_000);
    assert!(programs.epochs().values().all(|epoch| *epoch == 3));
}

#[test]
fn a_server_that_comes_back_serves_from_the_newest_fence() {
    let (mut cluster, mut programs) = start();
    programs.end(&cluster, 11, true);
    programs.run(&mut cluster, 500);
    assert_eq!(change(&mut cluster, &mut programs, remove(0)), Ok(2));
    programs.run(&mut cluster, 1_000);
    programs.begin(4, 21, 1);
    programs.run(&mut cluster, 1_000);
    let (_, words) = programs.of(21).told.unwrap();
    assert_eq!((words.epoch, words.fence), (2, 2));
}

/// Keeps what a leader saves.
fn keep(led: &mut LedMaps, records: &mut BTreeMap<String, String>) {
    let mut sequence = 0;
    loop {
        let outputs = led.take_outputs();
        if outputs.is_empty() {
            return;
        }
        for output in outputs {
            if let MapOutput::Save(key, name, text) = output {
                sequence += 1;
                records.insert(name, text);
                led.saving(&key.unwrap(), Some(sequence));
                led.saved(sequence, true, 0);
            }
        }
    }
}

#[test]
fn the_next_leader_tells_fences_of_a_change_that_was_committed() {
    let key: MapKey = (USER, "io".into());
    let server = |number: u32| ServerWord {
        number,
        process: process_text(u128::from(number) + 1),
        fence: 0,
    };
    let word = MapWord {
        user: USER,
        name: "io".into(),
        members: 1,
        epoch: 1,
        declared: servers_text(&(0..4).collect()),
        servers: (0..4).map(server).collect(),
        ..MapWord::default()
    };
    let mut records = BTreeMap::new();
    let cluster = Cluster::new(1, 1);
    let (_, _, maps) = cluster.nodes[0].agent.as_ref().unwrap();
    let mut led = LedMaps::take_over(1, maps.control(), &records, 0);
    led.hear("a", &word, 0);
    keep(&mut led, &mut records);
    assert_eq!(led.change(&key, &remove(2), "a", 0), Ok(2));
    keep(&mut led, &mut records);
    let drained = MapWord {
        prepared: 2,
        is_drained: true,
        ..word
    };
    led.hear("a", &drained, 0);
    keep(&mut led, &mut records);
    // No node has heard of the fence when this leader is lost.
    let mut led = LedMaps::take_over(2, maps.control(), &records, 0);
    assert_eq!(led.order(&key, "a"), None, "its term is not saved");
    keep(&mut led, &mut records);
    let order = led.order(&key, "a").unwrap();
    assert_eq!((order.epoch, order.fence), (1, 2));
}

#[test]
fn who_asks_where_no_program_has_a_map_is_answered() {
    // By itself, and a node of a cluster that cannot lead.
    for (nodes, leaders, asker) in [(1, 0, 0), (5, 3, 4)] {
        let mut cluster = Cluster::new(nodes, leaders);
        let mut programs = Programs(Vec::new());
        programs.run(&mut cluster, 4_000);
        for _ in 0..2 {
            let mut answers = Vec::new();
            for _ in 0..60 {
                // As the thread of the controllers does.
                let (core, _, _) = cluster.nodes[asker].agent.as_mut().unwrap();
                answers.extend(core.take_answers());
                if answers.is_empty() {
                    core.ask(LeaderQuestion::Maps { id: 1, user: None });
                }
                programs.run(&mut cluster, 100);
            }
            assert_eq!(answers[0], (1, LeaderAnswer::Maps(Vec::new())));
            programs.run(&mut cluster, 30_000);
        }
    }
}
