//! Seeded runs of maps over nodes in memory, with all that the agents have for them: the leader's
//! translation of words, the relay and its bounds, the store on disk. Leaders and nodes are killed,
//! cut off and restarted, words are lost, servers end and come back, also on other nodes.

use std::collections::BTreeMap;

use barograph_control::{EpochStart, ServerAnswer, ToldEpochs};
use barograph_intake::MapDesk as _;
use barograph_stream::Incarnation;

use super::super::{Cluster, Node};
use super::{Programs, USER};
use crate::agreement::core::{LeaderAnswer, LeaderQuestion};
use crate::controller_words::MapChange;
use crate::simulated::Random;

const FAULTS_MS: u64 = 30_000;
const QUIET_MS: u64 = 15_000;
const STEP_MS: u64 = 10;
const PATIENCE_MS: u64 = 7_000;
/// The nodes with programs.
const HOMES: [usize; 2] = [3, 4];
const SEEDS: u64 = 12;

/// An operation that a server serves.
struct Serving {
    member: u8,
    server: u8,
    epoch: u64,
    until_ms: u64,
}

struct System {
    cluster: Cluster,
    programs: Programs,
    random: Random,
    now_ms: u64,
    serving: Vec<Serving>,
    highest: u64,
    served: u64,
    /// The greatest fence by which each member was refused, and since when it waits for an epoch.
    refused: BTreeMap<u8, u64>,
    waits: BTreeMap<u8, (u64, u64)>,
    /// Processes that have ended, their nodes, and when these see it.
    ended: Vec<(u8, usize, u64)>,
    processes: u8,
    /// When nodes that are down begin again.
    down: BTreeMap<usize, u64>,
    switched: u64,
}

impl System {
    fn new(seed: u64) -> Self {
        Self {
            cluster: Cluster::new(5, 3),
            programs: Programs::new(),
            random: Random(seed),
            now_ms: 0,
            serving: Vec::new(),
            highest: 0,
            served: 0,
            refused: BTreeMap::new(),
            waits: BTreeMap::new(),
            ended: Vec::new(),
            processes: 100,
            down: BTreeMap::new(),
            switched: 0,
        }
    }

    fn below(&mut self, count: u64) -> u64 {
        self.random.below(count)
    }

    /// Whether something happens that happens once in so many milliseconds.
    fn once_in(&mut self, ms: u64) -> bool {
        self.below(ms / STEP_MS) == 0
    }

    fn run(&mut self) {
        while self.now_ms < FAULTS_MS + QUIET_MS {
            self.now_ms += STEP_MS;
            match self.now_ms < FAULTS_MS {
                true => self.fail(),
                false => self.mend(),
            }
            self.see_ends();
            self.ask();
            self.operate();
            for node in 0..self.cluster.nodes.len() {
                self.programs.hear(&self.cluster, node);
            }
            for at in 0..self.programs.0.len() {
                if self.below(3) == 0 {
                    self.count(at);
                }
            }
            self.cluster.run(STEP_MS as i64);
        }
    }

    /// What a program counts is read by its node.
    fn count(&mut self, at: usize) {
        let program = &mut self.programs.0[at];
        let process = program.process;
        let mine = self.serving.iter();
        let mine = mine.filter(|it| [it.member, it.server].contains(&process));
        let epochs: Vec<u64> = mine.map(|it| it.epoch).collect();
        program.running = epochs.len() as u64;
        program.oldest_epoch = epochs.iter().copied().min();
        program.refused = self.refused.get(&process).copied().unwrap_or(0);
        program.report(&self.cluster);
    }

    fn fail(&mut self) {
        if self.once_in(4_000) {
            let node = self.below(5) as usize;
            let until_ms = self.now_ms + 100 + self.below(4_000);
            self.stop(node);
            self.down.insert(node, until_ms);
        }
        if self.once_in(3_000) {
            let node = self.below(5) as usize;
            self.cluster.cut_off.insert(node);
        }
        if self.once_in(1_000) {
            self.cluster.cut_off.clear();
        }
        if self.once_in(2_000) {
            self.cluster.loses = !self.cluster.loses;
        }
        if self.once_in(2_500) {
            self.replace_server();
        }
        self.start_those_due();
    }

    fn mend(&mut self) {
        self.cluster.loses = false;
        self.cluster.cut_off.clear();
        self.down.values_mut().for_each(|until_ms| *until_ms = 0);
        self.start_those_due();
    }

    fn stop(&mut self, node: usize) {
        self.cluster.nodes[node].agent = None;
        // Of processes that end before it is there again, nobody sees anything.
        self.ended.retain(|(_, at, _)| *at != node);
    }

    fn start_those_due(&mut self) {
        let now_ms = self.now_ms;
        let due = self.down.extract_if(.., |_, until_ms| *until_ms <= now_ms);
        for (node, _) in due.collect::<Vec<_>>() {
            self.cluster.start(node);
        }
    }

    /// A server ends, and its next process begins here or elsewhere.
    fn replace_server(&mut self) {
        let servers = self.programs.0.iter();
        let servers: Vec<u8> = servers
            .filter(|it| it.server.is_some())
            .map(|it| it.process)
            .collect();
        let process = servers[self.below(servers.len() as u64) as usize];
        let at = self.programs.0.iter().position(|it| it.process == process);
        let old = self.programs.0.remove(at.unwrap());
        // What it was serving is not done.
        self.serving.retain(|it| it.server != process);
        if self.cluster.nodes[old.node].agent.is_some() {
            let seen_ms = self.now_ms + [0, 200, 2_000][self.below(3) as usize];
            self.ended.push((process, old.node, seen_ms));
        }
        let node = HOMES[self.below(2) as usize];
        self.processes += 1;
        self.programs
            .begin(node, self.processes, old.server.unwrap());
    }

    fn see_ends(&mut self) {
        let now_ms = self.now_ms;
        let due = self
            .ended
            .extract_if(.., |(_, _, seen_ms)| *seen_ms <= now_ms);
        for (process, node, _) in due.collect::<Vec<_>>() {
            if let Node {
                agent: Some((_, _, maps)),
                ..
            } = &self.cluster.nodes[node]
            {
                maps.leave(Incarnation([process; 16]), true);
            }
        }
    }

    /// Changes are asked for, and it is said of servers that have moved that they have ended where
    /// they were, which is true.
    fn ask(&mut self) {
        let wants = self.once_in(900) && self.now_ms < FAULTS_MS;
        let looks = self.once_in(700);
        let server = self.below(4) as u32;
        let adds = self.below(2) == 0;
        let from = HOMES[self.below(2) as usize];
        let Some((core, _, _)) = &mut self.cluster.nodes[from].agent else {
            return;
        };
        if wants {
            let mut change = MapChange::default();
            match adds {
                true => change.add.push(server),
                false => change.remove.push(server),
            }
            let of = (USER, "io".into());
            core.ask(LeaderQuestion::Change { id: 1, of, change });
        }
        if looks {
            core.ask(LeaderQuestion::Maps { id: 2, user: None });
        }
        for (_, answer) in core.take_answers() {
            match answer {
                LeaderAnswer::Changed(outcome) => self.switched += u64::from(outcome.is_ok()),
                LeaderAnswer::Maps(maps) => {
                    let moved = maps.iter().flat_map(|it| &it.moved_servers);
                    let live = |server: u32, node: &str| {
                        let mut all = self.programs.0.iter();
                        let of = all.find(|it| it.server == Some(server));
                        of.is_some_and(|it| self.cluster.nodes[it.node].name == node)
                    };
                    let gone: Vec<u32> = moved
                        .filter(|(server, node, _)| live(*server, node))
                        .map(|(server, ..)| *server)
                        .collect();
                    let change = MapChange {
                        gone,
                        ..MapChange::default()
                    };
                    let of = (USER, "io".into());
                    let Some((core, _, _)) = &mut self.cluster.nodes[from].agent else {
                        return;
                    };
                    core.ask(LeaderQuestion::Change { id: 3, of, change });
                }
            }
        }
    }

    /// Members begin operations, which servers serve or refuse.
    fn operate(&mut self) {
        let now_ms = self.now_ms;
        self.serving.retain(|it| it.until_ms > now_ms);
        for member in [1, 2] {
            let mine = self.serving.iter().filter(|it| it.member == member);
            if mine.count() < 2 && self.below(4) == 0 {
                self.begin(member);
            }
        }
    }

    fn begin(&mut self, member: u8) {
        let Some((_, words)) = self.programs.of(member).told else {
            return;
        };
        let (prepare, epoch, fence) = (words.prepare, words.epoch, words.fence);
        let waits = self.waits.entry(member).or_default();
        if prepare > epoch && waits.0 != prepare {
            *waits = (prepare, self.now_ms);
        }
        let has_patience = self.now_ms - waits.1 < PATIENCE_MS;
        let refused = self.refused.get(&member).copied().unwrap_or(0);
        let told = ToldEpochs {
            prepare,
            epoch,
            fence,
        };
        if epoch == 0 || told.start(refused, has_patience) != EpochStart::Now {
            return;
        }
        let numbers: Vec<u32> = words.servers.iter().collect();
        let number = numbers[self.below(numbers.len() as u64) as usize];
        let mut all = self.programs.0.iter();
        let Some(server) = all.find(|it| it.server == Some(number)) else {
            return;
        };
        let Some((_, words)) = server.told.filter(|(_, words)| words.fence > 0) else {
            // It waits for its agent.
            return;
        };
        let fences = ToldEpochs {
            fence: words.fence,
            ..ToldEpochs::default()
        };
        let process = server.process;
        match fences.serve(epoch) {
            ServerAnswer::Fenced { fence } => {
                let refused = self.refused.entry(member).or_default();
                *refused = (*refused).max(fence);
            }
            ServerAnswer::Served => {
                let oldest = self.serving.iter().map(|it| it.epoch).min();
                assert!(
                    epoch >= self.highest && oldest.is_none_or(|it| it >= epoch),
                    "epoch {epoch} is served after {} and beside {oldest:?}",
                    self.highest
                );
                self.highest = epoch;
                self.served += 1;
                let took_ms = [20, 100, 1_000][self.below(3) as usize];
                let until_ms = self.now_ms + took_ms;
                self.serving.push(Serving {
                    member,
                    server: process,
                    epoch,
                    until_ms,
                });
            }
        }
    }
}

/// `BAROGRAPH_EPOCH_SEEDS=1000` tries as many.
#[test]
fn whatever_fails_no_operation_of_an_epoch_is_served_after_one_of_a_later_epoch() {
    let seeds = std::env::var("BAROGRAPH_EPOCH_SEEDS").ok();
    let seeds = seeds.map_or(SEEDS, |text| text.parse().unwrap());
    let (mut served, mut switched) = (0, 0);
    for seed in 0..seeds {
        let mut system = System::new(seed);
        system.run();
        let epochs = system.programs.epochs();
        let all: std::collections::BTreeSet<u64> = epochs.values().copied().collect();
        assert_eq!((all.len(), epochs.len()), (1, 6), "seed {seed}: {epochs:?}");
        served += system.served;
        switched += system.switched;
    }
    println!("{seeds} seeds: {served} operations, {switched} answers to changes");
    assert!(served > 100 * seeds && switched > 5 * seeds);
}
