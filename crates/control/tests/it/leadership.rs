//! Elections of leaders over a network that loses, doubles, delays and reorders words, with nodes
//! that are killed at any step and restarted with what their disks have.

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{
    LeaderElection, LeaderReplica, LeaderTimes, LeaderWord, LeadershipState, RECORDS_MAX,
};

use crate::random::Random;

const MS: i64 = 1_000_000;
const TIMES: LeaderTimes = LeaderTimes {
    silence_ns: 1_200 * MS,
    repeat_ns: 100 * MS,
};

/// A node: its disk, and what a kill takes away.
struct Node {
    disk: LeaderReplica,
    life: Option<Life>,
}

struct Life {
    replica: LeaderReplica,
    election: LeaderElection,
    /// The number that the leader has read or saved last.
    value: Option<u64>,
    /// The save under way, and the number in it.
    saving: Option<(u64, u64)>,
}

struct System {
    random: Random,
    names: Vec<String>,
    nodes: Vec<Node>,
    /// By time of arrival: from, to, word.
    network: Vec<(i64, usize, usize, LeaderWord)>,
    now_ns: i64,
    /// Words get lost, nodes are killed and cut off.
    has_faults: bool,
    cut_off: Option<usize>,
    /// The number that was saved last, by any leader.
    saved: u64,
    saves: u64,
    leaders: BTreeMap<u64, usize>,
}

impl System {
    fn new(nodes: usize, seed: u64) -> Self {
        let names: Vec<String> = (0..nodes).map(|n| format!("node-{n}")).collect();
        let mut system = Self {
            random: Random(seed),
            nodes: Vec::new(),
            names,
            network: Vec::new(),
            now_ns: 0,
            has_faults: true,
            cut_off: None,
            saved: 0,
            saves: 0,
            leaders: BTreeMap::new(),
        };
        for node in 0..nodes {
            system.nodes.push(Node {
                disk: LeaderReplica::default(),
                life: None,
            });
            system.start(node);
        }
        system
    }

    fn start(&mut self, node: usize) {
        let replica = self.nodes[node].disk.clone();
        let from = (TIMES, replica.term());
        let election = LeaderElection::new(&self.names[node], &self.names, from, self.now_ns);
        self.nodes[node].life = Some(Life {
            replica,
            election,
            value: None,
            saving: None,
        });
    }

    fn send(&mut self, from: usize, to: usize, word: LeaderWord) {
        let is_cut = from != to && (self.cut_off == Some(from) || self.cut_off == Some(to));
        if is_cut || (self.has_faults && from != to && self.random.is(150)) {
            return;
        }
        let late_ms = match self.has_faults && self.random.is(50) {
            true => self.random.below(3_000),
            false => self.random.below(20),
        };
        let at_ns = self.now_ns + MS + late_ms as i64 * MS;
        if self.has_faults && self.random.is(50) {
            self.network.push((at_ns + 70 * MS, from, to, word.clone()));
        }
        self.network.push((at_ns, from, to, word));
    }

    fn round(&mut self) {
        self.now_ns += MS;
        let now_ns = self.now_ns;
        let due: Vec<_> = self.network.extract_if(.., |it| it.0 <= now_ns).collect();
        for (_, from, to, word) in due {
            self.arrive(from, to, &word);
        }
        for node in 0..self.nodes.len() {
            self.work(node);
        }
        if !self.has_faults {
            self.cut_off = None;
            return;
        }
        if self.random.is(2) {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            match self.nodes[node].life.take() {
                Some(_) => {}
                None => self.start(node),
            }
        }
        if self.random.is(2) {
            let node = self.random.below(2 * self.nodes.len() as u64) as usize;
            self.cut_off = (node < self.nodes.len()).then_some(node);
        }
    }

    fn arrive(&mut self, from: usize, to: usize, word: &LeaderWord) {
        let node = &mut self.nodes[to];
        let Some(life) = &mut node.life else { return };
        let sender = self.names[from].as_str();
        life.election.hear(sender, word, self.now_ns);
        let answer = life.replica.hear(sender, word, &self.names, self.now_ns);
        let Some(answer) = answer else { return };
        if answer.must_keep {
            // It may be killed before it has written, and after that before it answers.
            if self.has_faults && self.random.is(5) {
                node.life = None;
                return;
            }
            let kept = serde_json::to_string(&life.replica).unwrap();
            node.disk = serde_json::from_str(&kept).unwrap();
            assert_eq!(node.disk.check(), Ok(()));
            if self.has_faults && self.random.is(5) {
                node.life = None;
                return;
            }
        }
        self.send(to, from, answer.word);
    }

    /// A node does what is due. Who leads counts up what it has found, in a record.
    fn work(&mut self, node: usize) {
        let Some(life) = &mut self.nodes[node].life else {
            return;
        };
        life.election.step(self.now_ns);
        if let Some(records) = life.election.take_records() {
            let found = records
                .get("number")
                .map_or(0, |text| text.parse().unwrap());
            assert!(found >= self.saved, "what was saved is found");
            (life.value, life.saving) = (Some(found), None);
        }
        if let LeadershipState::Leads { term } = life.election.state() {
            let leader = *self.leaders.entry(term).or_insert(node);
            assert_eq!(leader, node, "one leader in term {term}");
        } else {
            life.value = None;
        }
        for end in life.election.take_ends() {
            let Some((sequence, value)) = life.saving else {
                continue;
            };
            if end.sequence != sequence {
                continue;
            }
            life.saving = None;
            if end.is_saved {
                assert!(value > self.saved, "nobody else has saved meanwhile");
                self.saved = value;
                self.saves += 1;
            }
        }
        if let (Some(value), None) = (life.value, life.saving) {
            let sequence = life.election.save("number", (value + 1).to_string());
            life.value = Some(value + 1);
            life.saving = sequence.map(|sequence| (sequence, value + 1));
        }
        for (to, word) in life.election.take_outputs() {
            let to = self.names.iter().position(|name| *name == to).unwrap();
            self.send(node, to, word);
        }
    }

    fn leader(&self) -> Option<usize> {
        let leads = |node: &Node| {
            let life = node.life.as_ref();
            life.is_some_and(|life| matches!(life.election.state(), LeadershipState::Leads { .. }))
        };
        self.nodes.iter().position(leads)
    }
}

#[test]
fn nothing_that_a_leader_has_saved_is_lost_under_faults() {
    let mut saves = 0;
    for seed in 0..300 {
        let mut system = System::new([1, 2, 3, 5][seed as usize % 4], seed);
        for _ in 0..12_000 {
            system.round();
        }
        // When the network and the nodes are sound again, there is a leader, who saves.
        system.has_faults = false;
        for node in 0..system.nodes.len() {
            if system.nodes[node].life.is_none() {
                system.start(node);
            }
        }
        let before = system.saves;
        for _ in 0..12_000 {
            system.round();
        }
        assert!(system.leader().is_some(), "seed {seed}");
        assert!(system.saves > before + 10, "seed {seed}");
        let leader = system.leader();
        let led = system.nodes.iter().filter(|node| {
            let life = node.life.as_ref().unwrap();
            matches!(life.election.state(), LeadershipState::Led { .. })
        });
        assert_eq!(
            led.count() + 1,
            system.nodes.len(),
            "{leader:?} is followed"
        );
        saves += before;
    }
    assert!(saves > 2_000, "faults left something to lose: {saves}");
}

#[test]
fn the_first_node_of_the_list_leads_and_the_next_when_it_is_gone() {
    let mut system = System::new(3, 1);
    system.has_faults = false;
    let run = |system: &mut System, rounds| (0..rounds).for_each(|_| system.round());
    run(&mut system, 1_500);
    assert_eq!(system.leader(), Some(0));
    system.nodes[0].life = None;
    run(&mut system, 3_000);
    assert_eq!(system.leader(), Some(1));
    // Who comes back follows.
    system.start(0);
    run(&mut system, 3_000);
    assert_eq!(system.leader(), Some(1));
    assert_eq!(system.leaders.len(), 2);
    // Without a majority nobody leads.
    (system.nodes[0].life, system.nodes[2].life) = (None, None);
    run(&mut system, 1_500);
    assert_eq!(system.leader(), None);
}

#[test]
fn nodes_with_other_lists_elect_nobody_together() {
    let lists = [["a", "b"], ["b", "a"]].map(|list| list.map(str::to_owned));
    let mut a = LeaderElection::new("a", &lists[0], (TIMES, 0), 0);
    let mut replicas = [LeaderReplica::default(), LeaderReplica::default()];
    let mut now_ns = 0;
    for _ in 0..20 {
        now_ns = a.step(now_ns).max(now_ns + MS);
        for (to, word) in a.take_outputs() {
            let at = usize::from(to == "b");
            let answer = replicas[at].hear("a", &word, &lists[at], now_ns);
            a.hear(&to, &answer.unwrap().word, now_ns);
        }
    }
    assert_eq!(a.state(), LeadershipState::Unknown);
    assert_eq!(a.differing(), &BTreeSet::from(["b".to_owned()]));
}

#[test]
fn a_replica_keeps_no_more_than_it_may() {
    let mut replica = LeaderReplica::default();
    let leaders = ["a".to_owned()];
    let mut save = |key: &str, text: &str, sequence| {
        let record = barograph_control::LeaderRecord {
            term: 1,
            sequence,
            text: text.to_owned(),
        };
        let word = LeaderWord::Save {
            key: key.to_owned(),
            record,
        };
        replica.hear("a", &word, &leaders, 0).is_some()
    };
    for n in 0..RECORDS_MAX {
        assert!(save(&n.to_string(), "x", n as u64));
    }
    assert!(!save("one more", "x", 1_000));
    assert!(save("7", "y", 1_000));
    assert!(!save("7", &"x".repeat(1 << 20), 1_001));
    assert!(!save(&"k".repeat(1 << 10), "x", 1_002));
    assert_eq!(replica.records()["7"].text, "y");
}
