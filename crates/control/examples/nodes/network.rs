//! A simulated network between a controller, aggregators, their processes, and servers.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use barograph_control::{
    ChangeEnd, ControllerMessage, ControllerOutput, ControllerWord, EpochController, EpochMember,
    EpochRecord, EpochServer, EpochTimes, ProcessWord, ServerMap,
};

use crate::aggregator::{Aggregator, AggregatorOutput, AggregatorTimes};

const US: i64 = 1_000;
const MS: i64 = 1_000 * US;
const S: i64 = 1_000 * MS;
const BETWEEN_NODES_NS: f64 = 50e3;
const WITHIN_NODE_NS: f64 = 10e3;
const DEVIATION: f64 = 0.5;
const HANDLE_NS: i64 = 5 * US;
const SAVE_NS: i64 = MS;
const HEARTBEAT_NS: i64 = 10 * S;
const MESSAGE_BYTES: u64 = 48;
const SERVER_BYTES: u64 = 8;
const DRAIN_NS: i64 = 8 * S;
const PATIENCE_NS: i64 = 20 * S;
const SILENCE_NS: i64 = 4 * S;
/// Node controllers of the upper level have this many nodes each.
const FAN_OUT: usize = 100;

/// Who answers for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Direct,
    Nodes,
    TwoLevels,
}

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nodes => "node controllers",
            Self::TwoLevels => "two levels",
        }
    }

    /// The time after which who has not answered is told again: longer than all answers take.
    pub(crate) fn repeat_ns(self) -> i64 {
        match self {
            Self::Direct => 1_000 * MS,
            Self::Nodes => 250 * MS,
            Self::TwoLevels => 25 * MS,
        }
    }
}

/// What is simulated.
pub(crate) struct Case {
    pub(crate) shape: Shape,
    pub(crate) nodes: usize,
    pub(crate) members_of_node: usize,
    pub(crate) servers: u64,
    pub(crate) lost_per_million: u64,
}

/// What a process has sent and heard.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traffic {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

/// What came of a change.
pub(crate) struct Outcome {
    pub(crate) drained_ms: f64,
    pub(crate) last_ms: f64,
    pub(crate) controller: Traffic,
    pub(crate) node_messages: f64,
    pub(crate) node_bytes: f64,
}

/// The controller, or a number in the tables of others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Process {
    Controller,
    Relay(usize),
    Member(usize),
    Server(u64),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A message is there, and waits for its receiver.
    Arrived(Process, Box<Event>),
    Told(Process, ControllerMessage),
    Said(Process, Process, ProcessWord),
    Saved,
    Tick,
    RelayTick(usize),
    Heartbeat(Process),
}

struct Network<'a> {
    case: &'a Case,
    random: Random,
    now_ns: i64,
    events: BinaryHeap<Reverse<(i64, u64, Event)>>,
    numbers: u64,
    controller: EpochController,
    /// Node controllers: of nodes, and above them those of many.
    relays: Vec<Aggregator>,
    members: Vec<EpochMember>,
    servers: Vec<EpochServer>,
    /// The time until which a process is busy with messages.
    busy_ns: [Vec<i64>; 3],
    controller_busy_ns: i64,
    traffic: Traffic,
    between_nodes: Traffic,
    behind: usize,
    drained_ns: i64,
    tick_ns: Option<i64>,
    is_ended: bool,
}

/// Runs one change from its begin until all processes are in the new epoch.
pub(crate) fn run(case: &Case, seed: u64) -> Outcome {
    let servers: BTreeSet<u64> = (0..case.servers).collect();
    let map = ServerMap { epoch: 1, servers };
    let record = EpochRecord {
        term: 1,
        map: map.clone(),
        last_epoch: 1,
        change: None,
        homes: (0..case.servers).map(|server| (server, 0)).collect(),
    };
    let members = case.nodes * case.members_of_node;
    let relays = match case.shape {
        Shape::Direct => 0,
        Shape::Nodes => case.nodes,
        Shape::TwoLevels => case.nodes + case.nodes.div_ceil(FAN_OUT),
    };
    let children = match case.shape {
        Shape::Direct => 0..members,
        Shape::Nodes => 0..case.nodes,
        Shape::TwoLevels => case.nodes..relays,
    };
    let children = children.map(|child| child as u64);
    let repeat_ns = case.shape.repeat_ns();
    let times = EpochTimes {
        drain_ns: DRAIN_NS,
        repeat_ns,
    };
    let (mut controller, _) = EpochController::take_over(2, record, children.clone(), times);
    controller.saved(true, 0);
    for child in children {
        controller.hear_member(child, &ProcessWord::Uses { epoch: 1 });
    }
    let relay_times = AggregatorTimes {
        silence_ns: SILENCE_NS,
        repeat_ns,
    };
    let member = EpochMember::new(map.clone(), PATIENCE_NS);
    let mut network = Network {
        case,
        random: Random(seed),
        now_ns: 0,
        events: BinaryHeap::new(),
        numbers: 0,
        controller,
        relays: vec![Aggregator::new(map, relay_times); relays],
        members: vec![member; members],
        servers: vec![EpochServer::new(1); case.servers as usize],
        busy_ns: [
            vec![0; relays],
            vec![0; members],
            vec![0; case.servers as usize],
        ],
        controller_busy_ns: 0,
        traffic: Traffic::default(),
        between_nodes: Traffic::default(),
        behind: members,
        drained_ns: 0,
        tick_ns: None,
        is_ended: false,
    };
    network.introduce();
    network.change();
    while network.behind > 0 {
        network.step();
    }
    network.outcome()
}

impl Network<'_> {
    fn outcome(&self) -> Outcome {
        assert!(self.is_ended, "the change has ended");
        let nodes = self.case.nodes as f64;
        Outcome {
            drained_ms: self.drained_ns as f64 / MS as f64,
            last_ms: self.now_ns as f64 / MS as f64,
            controller: self.traffic,
            node_messages: self.between_nodes.messages as f64 / nodes,
            node_bytes: self.between_nodes.bytes as f64 / nodes,
        }
    }

    /// All have said that they are there, before the change.
    fn introduce(&mut self) {
        let uses = ProcessWord::Uses { epoch: 1 };
        for member in 0..self.members.len() {
            if let Process::Relay(relay) = self.parent(Process::Member(member)) {
                self.relays[relay].hear_member(member as u64, &uses);
            }
        }
        for relay in 0..self.relays.len() {
            if let Process::Relay(above) = self.parent(Process::Relay(relay)) {
                self.relays[above].hear_member(relay as u64, &uses);
            }
        }
        let children = match self.case.shape {
            Shape::Direct => (0..self.members.len()).map(Process::Member).collect(),
            _ => (0..self.relays.len())
                .map(Process::Relay)
                .collect::<Vec<_>>(),
        };
        for child in children {
            let at_ns = (self.random.unit() * HEARTBEAT_NS as f64) as i64;
            self.at(at_ns, Event::Heartbeat(child));
        }
    }

    fn change(&mut self) {
        let servers = (1..self.case.servers).collect();
        let outputs = self.controller.change(servers).unwrap();
        self.carry_out(outputs);
    }

    fn parent(&self, process: Process) -> Process {
        match (self.case.shape, process) {
            (Shape::Nodes | Shape::TwoLevels, Process::Member(member)) => {
                Process::Relay(member / self.case.members_of_node)
            }
            (Shape::TwoLevels, Process::Relay(relay)) if relay < self.case.nodes => {
                Process::Relay(self.case.nodes + relay / FAN_OUT)
            }
            _ => Process::Controller,
        }
    }

    fn at(&mut self, at_ns: i64, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((at_ns, self.numbers, event)));
    }

    fn busy(&mut self, process: Process) -> &mut i64 {
        match process {
            Process::Controller => &mut self.controller_busy_ns,
            Process::Relay(number) => &mut self.busy_ns[0][number],
            Process::Member(number) => &mut self.busy_ns[1][number],
            Process::Server(number) => &mut self.busy_ns[2][number as usize],
        }
    }

    /// Sends a message when the sender has time, and delivers it when the receiver has.
    fn send(&mut self, from: Process, to: Process, bytes: u64, event: Event) {
        let now_ns = self.now_ns;
        let busy = self.busy(from);
        *busy = (*busy).max(now_ns) + HANDLE_NS;
        let sent_ns = *busy;
        let is_local = matches!(
            (self.case.shape, from, to),
            (Shape::Nodes | Shape::TwoLevels, Process::Member(_), _)
                | (Shape::Nodes | Shape::TwoLevels, _, Process::Member(_))
        );
        if from == Process::Controller || to == Process::Controller {
            self.traffic.messages += 1;
            self.traffic.bytes += bytes;
        }
        if !is_local {
            self.between_nodes.messages += 1;
            self.between_nodes.bytes += bytes;
            if self.random.below(1_000_000) < self.case.lost_per_million {
                return;
            }
        }
        let median_ns = if is_local {
            WITHIN_NODE_NS
        } else {
            BETWEEN_NODES_NS
        };
        let took_ns = median_ns * (DEVIATION * self.random.normal()).exp();
        let arrived = Event::Arrived(to, Box::new(event));
        self.at(sent_ns + took_ns as i64, arrived);
    }

    fn step(&mut self) {
        let Reverse((at_ns, _, event)) = self.events.pop().unwrap();
        self.now_ns = at_ns;
        match event {
            Event::Arrived(to, message) => {
                let busy = self.busy(to);
                *busy = (*busy).max(at_ns) + HANDLE_NS;
                let handled_ns = *busy;
                self.at(handled_ns, *message);
            }
            Event::Told(to, message) => self.told(to, &message),
            Event::Said(from, to, word) => self.said(from, to, &word),
            Event::Saved => {
                let outputs = self.controller.saved(true, self.now_ns);
                self.carry_out(outputs);
            }
            Event::Tick => {
                let outputs = self.controller.tick(self.now_ns);
                self.carry_out(outputs);
            }
            Event::RelayTick(relay) => {
                let output = self.relays[relay].tick(self.now_ns);
                self.relayed(relay, output);
                self.watch(relay);
            }
            Event::Heartbeat(of) => {
                let word = match of {
                    Process::Relay(relay) => self.relays[relay].heartbeat(),
                    Process::Member(member) => self.members[member].heartbeat(),
                    _ => return,
                };
                self.say(of, Some(word));
                self.at(at_ns + HEARTBEAT_NS, Event::Heartbeat(of));
            }
        }
    }

    fn told(&mut self, to: Process, message: &ControllerMessage) {
        let now_ns = self.now_ns;
        match to {
            Process::Relay(relay) => {
                let output = self.relays[relay].hear(message, now_ns);
                self.relayed(relay, output);
                self.watch(relay);
            }
            Process::Member(number) => {
                let member = &mut self.members[number];
                let before = member.map().epoch;
                let output = member.hear(message, now_ns);
                self.behind -= usize::from(member.map().epoch != before);
                self.say(to, output.says);
            }
            Process::Server(server) => {
                let word = self.servers[server as usize].hear(message);
                self.say(to, word);
            }
            Process::Controller => {}
        }
    }

    fn said(&mut self, from: Process, to: Process, word: &ProcessWord) {
        let number = match from {
            Process::Relay(number) | Process::Member(number) => number as u64,
            Process::Server(number) => number,
            Process::Controller => return,
        };
        match (from, to) {
            (Process::Server(_), _) => {
                let outputs = self.controller.hear_server(number, word);
                self.carry_out(outputs);
            }
            (_, Process::Relay(relay)) => {
                let output = self.relays[relay].hear_member(number, word);
                self.relayed(relay, output);
            }
            _ => {
                let outputs = self.controller.hear_member(number, word);
                self.carry_out(outputs);
            }
        }
    }

    fn relayed(&mut self, relay: usize, output: AggregatorOutput) {
        let from = Process::Relay(relay);
        self.say(from, output.says);
        for (to, message) in output.to_members {
            let to = match relay < self.case.nodes {
                true => Process::Member(to as usize),
                false => Process::Relay(to as usize),
            };
            self.tell(from, to, message);
        }
    }

    /// Has a node controller look again when it is due.
    fn watch(&mut self, relay: usize) {
        if let Some(next_ns) = self.relays[relay].next_ns() {
            self.at(next_ns.max(self.now_ns), Event::RelayTick(relay));
        }
    }

    fn say(&mut self, from: Process, word: Option<ProcessWord>) {
        if let Some(word) = word {
            let to = self.parent(from);
            self.send(from, to, MESSAGE_BYTES, Event::Said(from, to, word));
        }
    }

    fn tell(&mut self, from: Process, to: Process, message: ControllerMessage) {
        let servers = match &message.what {
            ControllerWord::Switch { map } => map.servers.len() as u64,
            _ => 0,
        };
        let bytes = MESSAGE_BYTES + servers * SERVER_BYTES;
        self.send(from, to, bytes, Event::Told(to, message));
    }

    fn carry_out(&mut self, outputs: Vec<ControllerOutput>) {
        for output in outputs {
            match output {
                ControllerOutput::Save(record) => {
                    let is_drained = record.change.as_ref().is_some_and(|it| it.is_committed);
                    if is_drained && self.drained_ns == 0 {
                        self.drained_ns = self.now_ns;
                    }
                    self.at(self.now_ns + SAVE_NS, Event::Saved);
                }
                ControllerOutput::ToMember(to, message) => {
                    let to = match self.case.shape {
                        Shape::Direct => Process::Member(to as usize),
                        _ => Process::Relay(to as usize),
                    };
                    self.tell(Process::Controller, to, message);
                }
                ControllerOutput::ToServer(to, message) => {
                    self.tell(Process::Controller, Process::Server(to), message);
                }
                ControllerOutput::Ended(end) => {
                    assert!(matches!(end, ChangeEnd::Switched(_)), "{end:?}");
                    self.is_ended = true;
                }
            }
        }
        let next_ns = self.controller.next_ns();
        if let Some(next_ns) = next_ns.filter(|_| next_ns != self.tick_ns) {
            self.at(next_ns.max(self.now_ns), Event::Tick);
        }
        self.tick_ns = next_ns;
    }
}

/// Random numbers of a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}
