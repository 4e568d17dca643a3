//! The whole system with node controllers: programs that count in memory, the node controllers of
//! the agent ([`EpochNode`]) that read these counts, leaders that hear reports of nodes and order,
//! and a network between nodes and leaders that loses, doubles, delays and reorders their messages.
//! Programs, node controllers and leaders die and begin anew.
//!
//! Servers come back on the node on which they were, or on another one. One thing is as in the
//! agent, and needed: the next leader begins a while after the one before has heard its last
//! report, which is longer than a node waits for an acknowledgement. The times of elections see to
//! that.

mod leaders;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{
    ChangeEnd, EpochNode, EpochOrder, EpochRecord, EpochUse, EpochUseId, NodeTell, NodeWord,
    ProcessId, ServerAnswer, ServerMap,
};

use super::lead::Lead;
use super::programs::{Ended, Member, Server, use_of};
use super::{FAULTS_NS, MS, Outcome, QUIET_NS, SERVERS};
use crate::random::Random;

const NODES: u64 = 3;
/// Nodes of the members.
const MEMBERS: [u64; 5] = [0, 0, 1, 1, 2];
/// Names of nodes that may lead.
const LEADERS: u64 = 3;
/// Time after which a report that was not heard is replaced by another one.
const REPEAT_NS: i64 = 100 * MS;
/// Time after which a node reports, though nothing has changed.
const REPORT_NS: i64 = 250 * MS;
/// Time without orders after which another leader is looked for.
const SILENCE_NS: i64 = 300 * MS;
/// Time from the last report that a leader hears to the begin of the next one.
const ELECTION_NS: i64 = REPEAT_NS + 20 * MS;

#[derive(Clone, Debug)]
enum Parcel {
    Report {
        node: u64,
        name: u64,
        life: u64,
        sequence: u64,
        word: NodeWord,
    },
    Orders {
        node: u64,
        name: u64,
        term: u64,
        heard: u64,
        /// With the servers whose home is the node.
        order: Option<(EpochOrder, BTreeSet<ProcessId>)>,
    },
    Request {
        member: usize,
        operation: u64,
        server: ProcessId,
        epoch: u64,
    },
    Answer {
        member: usize,
        operation: u64,
        answer: ServerAnswer,
    },
    Saved {
        term: u64,
        is_taken: bool,
    },
}

/// A node, with what its agent does around the controller.
#[derive(Default)]
struct Node {
    controller: EpochNode,
    life: u64,
    sequence: u64,
    /// The name and the term of the leader that it follows.
    leader: Option<(u64, u64)>,
    in_flight: Option<(u64, NodeWord, i64)>,
    /// The newest word that the leader has heard, and its number.
    heard: Option<(u64, NodeWord)>,
    reported_ns: i64,
    leader_ns: i64,
    down_until_ns: i64,
    /// The time until which it is cut off from leaders.
    cut_until_ns: i64,
    /// What is to be written into the memory of programs.
    untold: BTreeMap<EpochUseId, (u64, EpochOrder)>,
    /// Processes that this life has reported.
    known: BTreeSet<u128>,
}

/// How often something goes wrong, in a thousand; each system has its own.
struct Faults {
    lost: u64,
    slow: u64,
    leaders: u64,
    nodes: u64,
    cuts: u64,
    servers: u64,
    /// How often a server that begins anew is on another node than before.
    moves: u64,
    members: u64,
    /// How often a node looks whether a process has ended.
    looks: u64,
}

impl Faults {
    fn new(random: &mut Random) -> Self {
        let mut one_of = |rates: [u64; 3]| rates[random.below(3) as usize];
        Self {
            lost: one_of([10, 60, 200]),
            slow: one_of([10, 50, 300]),
            leaders: one_of([0, 1, 3]),
            nodes: one_of([0, 1, 4]),
            cuts: one_of([0, 0, 2]),
            servers: one_of([0, 1, 5]),
            moves: one_of([0, 100, 500]),
            members: one_of([0, 0, 1]),
            looks: one_of([5, 20, 100]),
        }
    }
}

struct System {
    random: Random,
    faults: Faults,
    now_ns: i64,
    network: BTreeMap<(i64, u64), Parcel>,
    parcels: u64,
    processes: u128,
    members: Vec<Member>,
    servers: Vec<Server>,
    ended: Vec<Ended>,
    nodes: Vec<Node>,
    /// By term. The newest one hears reports; those before it may not know that they lead no more.
    leads: BTreeMap<u64, Lead>,
    leaders_begun: usize,
    /// The time at which the next leader begins.
    election_ns: Option<i64>,
    store: EpochRecord,
    is_faulty: bool,
    operations: u64,
    done: u64,
    highest_served: u64,
    ends: Vec<ChangeEnd>,
}

impl System {
    fn new(seed: u64) -> Self {
        let map = ServerMap {
            epoch: 1,
            servers: (0..3).collect(),
        };
        let mut random = Random(seed);
        let faults = Faults::new(&mut random);
        let mut system = Self {
            random,
            faults,
            now_ns: 0,
            network: BTreeMap::new(),
            parcels: 0,
            processes: 0,
            members: Vec::new(),
            servers: Vec::new(),
            ended: Vec::new(),
            nodes: (0..NODES).map(|_| Node::default()).collect(),
            leads: BTreeMap::new(),
            leaders_begun: 0,
            election_ns: Some(0),
            store: EpochRecord {
                term: 0,
                map,
                last_epoch: 1,
                change: None,
                homes: BTreeMap::new(),
            },
            is_faulty: true,
            operations: 0,
            done: 0,
            highest_served: 0,
            ends: Vec::new(),
        };
        for node in MEMBERS {
            let process = system.next_process();
            system.members.push(Member::new(node, process));
        }
        for number in 0..SERVERS {
            let process = system.next_process();
            let server = Server::new(number % NODES, number, process, 0);
            system.servers.push(server);
        }
        for node in 0..NODES {
            system.restart_node(node);
        }
        system
    }

    /// Numbers of processes are not in the order in which they begin.
    fn next_process(&mut self) -> u128 {
        self.processes += 1;
        u128::from(self.random.next()) << 64 | self.processes
    }

    fn send(&mut self, parcel: Parcel) {
        // What comes back of the store is lost only with its leader.
        let may_lose = self.is_faulty && !matches!(parcel, Parcel::Saved { .. });
        let node = match &parcel {
            Parcel::Report { node, .. } | Parcel::Orders { node, .. } => Some(*node as usize),
            _ => None,
        };
        let is_cut = node.is_some_and(|node| self.nodes[node].cut_until_ns > self.now_ns);
        if may_lose && (is_cut || self.random.is(self.faults.lost)) {
            return;
        }
        let copies = 1 + u64::from(may_lose && self.random.is(30));
        for _ in 0..copies {
            let is_slow = self.is_faulty && self.random.is(self.faults.slow);
            let slow = if is_slow { 400 } else { 8 };
            let delay_ns = (1 + self.random.below(slow)) as i64 * MS;
            self.parcels += 1;
            let at = (self.now_ns + delay_ns, self.parcels);
            self.network.insert(at, parcel.clone());
        }
    }

    fn deliver(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Report {
                node,
                name,
                life,
                sequence,
                word,
            } => self.hear_report((node, name), (life, sequence), &word),
            Parcel::Orders {
                node,
                name,
                term,
                heard,
                order,
            } => self.hear_orders(node, (name, term), heard, order),
            Parcel::Request {
                member,
                operation,
                server,
                epoch,
            } => self.hear_request((member, operation), server, epoch),
            Parcel::Answer {
                member,
                operation,
                answer,
            } => {
                let is_done = self.members[member].answered(operation, answer);
                self.done += u64::from(is_done);
            }
            Parcel::Saved { term, is_taken } => {
                if let Some(lead) = self.leads.get_mut(&term) {
                    let outputs = lead.controller.saved(is_taken, self.now_ns);
                    self.carry_out(term, outputs);
                }
            }
        }
    }

    fn restart_node(&mut self, id: u64) {
        let life = self.nodes[id as usize].life + 1;
        let down_ns = self.random.below(100) as i64 * MS;
        self.nodes[id as usize] = Node {
            life,
            // Above all of the life before: an acknowledgement of that one is none of this one.
            sequence: life << 32,
            down_until_ns: self.now_ns + down_ns,
            leader_ns: self.now_ns + down_ns,
            ..Node::default()
        };
        // Of processes that have ended before, the next life sees nothing.
        self.ended.retain(|it| it.node != id);
        let members = self.members.iter_mut().filter(|it| it.node == id);
        members.for_each(|it| it.slot.seen = 0);
        let servers = self.servers.iter_mut().filter(|it| it.node == id);
        servers.for_each(|it| it.slot.seen = 0);
    }

    fn hear_orders(
        &mut self,
        id: u64,
        (name, term): (u64, u64),
        heard: u64,
        order: Option<(EpochOrder, BTreeSet<ProcessId>)>,
    ) {
        let now_ns = self.now_ns;
        let node = &mut self.nodes[id as usize];
        let followed = node.leader.filter(|it| it.0 == name && term >= it.1);
        let Some(followed) = followed.filter(|_| now_ns >= node.down_until_ns) else {
            return;
        };
        if followed.1 != term {
            node.follow((name, term));
        }
        node.leader_ns = now_ns;
        if let Some((sequence, word, _)) = node.in_flight.take_if(|it| it.0 <= heard) {
            node.heard = Some((sequence, word));
        }
        if let Some((order, homes)) = order {
            let word = node.heard.as_ref().filter(|it| it.0 <= heard);
            let word = word.map(|(_, word)| (word, &homes));
            let tell = node.controller.hear(term, &order, word);
            node.queue(tell);
        }
    }

    fn work_node(&mut self, id: u64) {
        if self.is_faulty && self.random.is(self.faults.nodes) {
            self.restart_node(id);
        }
        if self.is_faulty && self.random.is(self.faults.cuts) {
            let cut_ns = self.random.below(1_500) as i64 * MS;
            self.nodes[id as usize].cut_until_ns = self.now_ns + cut_ns;
        }
        if self.now_ns < self.nodes[id as usize].down_until_ns {
            return;
        }
        self.read_counts(id);
        self.write_words(id);
        self.see_ends(id);
        self.relay(id);
    }

    /// Reads what programs count, those of ended ones as well.
    fn read_counts(&mut self, id: u64) {
        let members = self.members.iter().filter(|it| it.node == id);
        let members = members.map(|it| (it.process, it.counts(), it.slot.seen));
        let servers = self.servers.iter();
        let servers = servers.filter(|it| it.node == id && it.begins_ns <= self.now_ns);
        let servers = servers.map(|it| (it.process, it.counts(), it.slot.seen));
        let ended = self.ended.iter().filter(|it| it.node == id);
        let ended = ended.map(|it| (it.process, it.counts, it.seen));
        let all: Vec<(u128, EpochUse, u64)> = members.chain(servers).chain(ended).collect();
        for (process, counts, seen) in all {
            if self.random.is(200) {
                let node = &mut self.nodes[id as usize];
                node.known.insert(process);
                let output = node.controller.report(use_of(process), counts, seen);
                node.queue(output.tell);
            }
        }
    }

    /// Writes what is to be told into the memory of programs.
    fn write_words(&mut self, id: u64) {
        if !self.random.is(300) {
            return;
        }
        let untold = std::mem::take(&mut self.nodes[id as usize].untold);
        for (of, (number, order)) in untold {
            let members = self.members.iter_mut().map(|it| (it.process, &mut it.slot));
            let servers = self.servers.iter_mut().map(|it| (it.process, &mut it.slot));
            let mut slots = members.chain(servers);
            if let Some((_, slot)) = slots.find(|(process, _)| *process == of.process) {
                (slot.seen, slot.told) = (number, Some(order));
            } else if let Some(ended) = self.ended.iter_mut().find(|it| it.process == of.process) {
                ended.seen = number;
            }
        }
    }

    /// Sees that processes have ended.
    fn see_ends(&mut self, id: u64) {
        let (random, looks) = (&mut self.random, self.faults.looks);
        let seen = self
            .ended
            .extract_if(.., |it| it.node == id && random.is(looks));
        for ended in seen.collect::<Vec<_>>() {
            self.nodes[id as usize]
                .controller
                .leave(ended.process, true);
        }
    }

    /// Reports what has changed to the leader, or looks for one.
    fn relay(&mut self, id: u64) {
        let now_ns = self.now_ns;
        let looks = self.random.is(50);
        let knows_newest = self.random.is(800);
        let node = &mut self.nodes[id as usize];
        if now_ns - node.leader_ns >= SILENCE_NS && node.leader.is_some() {
            (node.leader, node.in_flight) = (None, None);
        }
        if node.leader.is_none() && looks {
            let mut leads = self.leads.values().rev();
            let lead = leads.nth(usize::from(!knows_newest));
            if let Some(lead) = lead {
                node.follow((lead.name, lead.term));
                node.leader_ns = now_ns;
            }
        }
        let Some((name, _)) = node.leader else {
            return;
        };
        let waits = node.in_flight.as_ref();
        let waits = waits.is_some_and(|(_, _, sent_ns)| now_ns - sent_ns < REPEAT_NS);
        let word = node.controller.word();
        let is_due = now_ns - node.reported_ns >= REPORT_NS;
        let is_heard = node.heard.as_ref().is_some_and(|(_, heard)| *heard == word);
        if waits || (is_heard && !is_due) {
            return;
        }
        node.sequence += 1;
        node.reported_ns = now_ns;
        node.in_flight = Some((node.sequence, word.clone(), now_ns));
        let (life, sequence) = (node.life, node.sequence);
        self.check(id, &word);
        self.send(Parcel::Report {
            node: id,
            name,
            life,
            sequence,
            word,
        });
    }

    /// What a node says is true.
    fn check(&self, id: u64, word: &NodeWord) {
        let known = &self.nodes[id as usize].known;
        let of_node = self.members.iter();
        let of_node = of_node.filter(|it| it.node == id && known.contains(&it.process));
        for runs in of_node.flat_map(Member::running) {
            let may_run = runs.is_late || runs.epoch >= word.prepared;
            assert!(!word.is_drained || may_run, "{word:?} with {runs:?}");
        }
        for said in word.servers.iter().filter(|it| it.fence > 0) {
            let server = &self.servers[said.number as usize];
            if server.node != id {
                // It means a process that has ended, which this node has not seen yet.
                continue;
            }
            let told = server.slot.told.as_ref();
            let mut serving = server.serving.iter();
            let is_fenced = told.is_none_or(|told| told.fence >= said.fence)
                && serving.all(|it| it.epoch >= said.fence);
            let is_this = server.process == said.process;
            assert!(is_fenced || (!is_this && told.is_none()), "{said:?}");
        }
    }

    fn run(&mut self) {
        while self.now_ns < FAULTS_NS + QUIET_NS {
            self.now_ns += MS;
            if self.now_ns == FAULTS_NS {
                self.is_faulty = false;
                // A leader of an earlier term hears that it leads no more, as elections tell.
                let term = self.store.term;
                self.leads.retain(|of, _| *of >= term);
            }
            while let Some(entry) = self.network.first_entry() {
                if entry.key().0 > self.now_ns {
                    break;
                }
                let parcel = entry.remove();
                self.deliver(parcel);
            }
            for member in 0..self.members.len() {
                self.work_member(member);
            }
            for server in 0..self.servers.len() {
                self.work_server(server);
            }
            for node in 0..NODES {
                self.work_node(node);
            }
            self.lead();
        }
    }
}

impl Node {
    fn follow(&mut self, leader: (u64, u64)) {
        // It is to hear of everything.
        (self.leader, self.in_flight, self.heard) = (Some(leader), None, None);
    }

    fn queue(&mut self, tell: Option<NodeTell>) {
        for (id, tell) in tell
            .iter()
            .flat_map(|tell| tell.uses.iter().map(move |id| (id, tell)))
        {
            self.untold.insert(*id, (tell.number, tell.order.clone()));
        }
    }
}

/// What came of a system of this seed.
pub(super) fn run(seed: u64) -> Outcome {
    let mut system = System::new(seed);
    system.run();
    let store = &system.store;
    let members = system.members.iter().map(|it| (it.process, &it.slot));
    let servers = system.servers.iter().map(|it| (it.process, &it.slot));
    for (process, slot) in members.chain(servers) {
        let map = slot.told.as_ref().map(|order| &order.map);
        assert_eq!(map, Some(&store.map), "seed {seed}: {process} is told");
    }
    for member in &system.members {
        let oldest = member.operations.values().map(|it| it.begun_ns).min();
        let node = member.node;
        assert_eq!(
            oldest, None,
            "seed {seed}: a member of {node} has operations left; {store:?}"
        );
    }
    assert_eq!(
        store.change, None,
        "seed {seed}: no change is left under way"
    );
    Outcome::of(&system.ends, system.done, system.leaders_begun)
}
