//! The controllers of a node, as a step over messages and times: the election if the node may lead,
//! what it relays to the leader, and what it orders when it leads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_control::{
    LeaderElection, LeaderReplica, LeaderTimes, LeadershipState, MemberAnswer, MemberId,
};
use barograph_model::{NS_PER_MS, NS_PER_S};
use barograph_stream::Incarnation;
use tracing::{info, warn};

use super::led_maps::{LedMapRow, LedMaps, MapChange, MapOutput};
use super::replica_file::ReplicaFile;
use super::words::{ANSWERS_MAX, AgreementWord, NodeOrders, NodeReport, process_of};
use crate::io_schedules::{IoSchedules, RelayBatch, answer_word};
use crate::server_maps::{MapBatch, MapKey, ServerMaps};

/// Time after which a report that was not heard is sent again.
const REPEAT_NS: i64 = 300 * NS_PER_MS;
/// Time between two reports of a node that has phases, also if nothing has changed.
const REPORT_NS: i64 = 500 * NS_PER_MS;
/// Time without orders after which another leader is looked for.
const SILENCE_NS: i64 = NS_PER_S;
/// Time without orders after which the programs of a node go on alone.
const ALONE_NS: i64 = 2 * NS_PER_S;
/// Time without reports after which the phases of a node are not waited for any more.
const NODE_NS: i64 = 5 * NS_PER_S;
/// Most nodes whose reports a leader takes in.
const NODES_MAX: usize = 16_384;

/// The controllers of a node.
pub(crate) struct AgreementCore {
    own: String,
    /// The nodes that may lead, in their order.
    leaders: Vec<String>,
    /// `None` if this node may not lead, or may not because its replica cannot be used.
    candidate: Option<Candidate>,
    schedules: Arc<IoSchedules>,
    maps: Arc<ServerMaps>,
    relay: NodeRelay,
    lead: Option<Lead>,
    outputs: Vec<(String, AgreementWord)>,
    answers: Vec<(u64, LeaderAnswer)>,
    /// A process of this node that is to be told an answer.
    awaited: Option<Incarnation>,
    /// Words that made no sense.
    senseless: u64,
}

struct Candidate {
    election: LeaderElection,
    replica: LeaderReplica,
    file: ReplicaFile,
    /// Why the replica is not written, so that nothing is promised.
    fault: Option<String>,
}

/// The way from this node to the leader.
struct NodeRelay {
    life: u64,
    sequence: u64,
    /// The leader and its term.
    leader: Option<(String, u64)>,
    begins: bool,
    in_flight: Option<InFlight>,
    reported_ns: i64,
    asked_ns: i64,
    /// Since when this leader is followed, or the time of its newest orders.
    leader_ns: i64,
    /// The time of the newest orders of any leader, or since which they are awaited.
    heard_ns: Option<i64>,
    is_alone: bool,
}

struct InFlight {
    sequence: u64,
    batch: RelayBatch,
    maps: MapBatch,
    sent_ns: i64,
}

/// What this node knows of others while it leads.
struct Lead {
    term: u64,
    nodes: BTreeMap<String, LedNode>,
    /// The newest answer to each phase.
    told: BTreeMap<MemberId, MemberAnswer>,
    /// The node of each process.
    homes: BTreeMap<u128, String>,
    maps: LedMaps,
}

#[derive(Default)]
struct LedNode {
    life: u64,
    sequence: u64,
    heard_ns: i64,
    /// Phases and maps of which it is to be told.
    untold: BTreeSet<MemberId>,
    untold_maps: BTreeSet<MapKey>,
    /// Whether it is to be told that a report was heard.
    is_awaited: bool,
}

/// A question to the leader.
#[derive(Clone, Debug)]
pub(crate) enum LeaderQuestion {
    /// A map is to be changed.
    Change {
        id: u64,
        of: MapKey,
        change: MapChange,
    },
    /// Which maps are there, of one user or of all?
    Maps { id: u64, user: Option<u32> },
}

/// The answer of the leader.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LeaderAnswer {
    /// The epoch that was begun, or why none was.
    Changed(Result<u64, String>),
    /// The maps.
    Maps(Vec<LedMapRow>),
}

/// What is known of the leader, for those who look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgreementStatus {
    /// The node that leads; `None` if none is heard.
    pub leader: Option<String>,
    /// Its term.
    pub term: u64,
    /// Why there is none, or why this node may not lead.
    pub fault: Option<String>,
    /// Nodes that report to this one.
    pub nodes: usize,
}

impl AgreementCore {
    /// The controllers of a node of this name; `life` is greater than that of every earlier life.
    pub(crate) fn new(
        (own, leaders): (&str, &[String]),
        file: ReplicaFile,
        (schedules, maps): (&Arc<IoSchedules>, &Arc<ServerMaps>),
        (life, now_ns): (u64, i64),
    ) -> Self {
        let may_lead = leaders.iter().any(|node| node == own);
        let candidate = may_lead.then(|| {
            let (replica, fault) = match file.read() {
                Ok(replica) => (replica, None),
                Err(error) => (LeaderReplica::default(), Some(error.to_string())),
            };
            if let Some(fault) = &fault {
                let path = file.path().display();
                warn!(%path, fault, "this node cannot lead: what it has promised is not known");
            }
            let from = (LeaderTimes::default(), replica.term());
            Candidate {
                election: LeaderElection::new(own, leaders, from, now_ns),
                replica,
                file,
                fault,
            }
        });
        Self {
            own: own.to_owned(),
            leaders: leaders.to_vec(),
            candidate,
            schedules: Arc::clone(schedules),
            maps: Arc::clone(maps),
            relay: NodeRelay {
                life,
                sequence: 0,
                leader: None,
                begins: true,
                in_flight: None,
                reported_ns: i64::MIN,
                asked_ns: i64::MIN,
                leader_ns: now_ns,
                heard_ns: None,
                is_alone: false,
            },
            lead: None,
            outputs: Vec::new(),
            answers: Vec::new(),
            awaited: None,
            senseless: 0,
        }
    }

    /// What is known of the leader.
    pub(crate) fn status(&self) -> AgreementStatus {
        let candidate = self.candidate.as_ref();
        let differing = candidate.map(|it| it.election.differing());
        let differing = differing.filter(|nodes| !nodes.is_empty()).map(|nodes| {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            let nodes = nodes.join(", ");
            format!("cluster.controllers is another list on {nodes}: it must be the same on all")
        });
        let fault = candidate.and_then(|it| it.fault.clone());
        let leader = self.relay.leader.clone();
        AgreementStatus {
            term: leader.as_ref().map_or(0, |(_, term)| *term),
            leader: leader.map(|(node, _)| node),
            fault: fault.or(differing),
            nodes: self.lead.as_ref().map_or(0, |lead| lead.nodes.len()),
        }
    }

    /// The words to be sent since the last call, each with the node to which it goes.
    pub(crate) fn take_outputs(&mut self) -> Vec<(String, AgreementWord)> {
        std::mem::take(&mut self.outputs)
    }

    /// A process of this node that is to be told an answer, if there are any.
    pub(crate) fn take_awaited(&mut self) -> Option<Incarnation> {
        self.awaited.take()
    }

    /// Takes in a word of another node.
    pub(crate) fn hear(&mut self, from: &str, text: &str, now_ns: i64) {
        match serde_json::from_str(text) {
            Ok(word) => self.hear_word(from, word, now_ns),
            // It may be of a later version.
            Err(_) => self.senseless += 1,
        }
        self.settle(now_ns);
    }

    /// Does what is due; returns the time of the next call.
    pub(crate) fn step(&mut self, now_ns: i64) -> i64 {
        let mut next_ns = i64::MAX;
        // Alone, this node leads for those of its programs that have maps.
        let is_needed = self.leaders.len() > 1 || self.lead.is_some() || self.maps.are_used();
        let candidate = self.candidate.as_mut();
        if let Some(candidate) = candidate.filter(|it| is_needed && it.fault.is_none()) {
            next_ns = next_ns.min(candidate.election.step(now_ns));
        }
        self.settle(now_ns);
        next_ns = next_ns.min(self.step_lead(now_ns));
        next_ns = next_ns.min(self.step_relay(now_ns));
        self.settle(now_ns);
        let has_untold = |lead: &Lead| {
            let mut nodes = lead.nodes.values();
            nodes.any(|node| node.is_awaited || !node.untold_maps.is_empty())
        };
        match self.lead.as_ref().is_some_and(has_untold) {
            true => now_ns,
            false => next_ns,
        }
    }

    /// Sends what the election says, takes in what this node says to itself, and looks whether it
    /// leads.
    fn settle(&mut self, now_ns: i64) {
        loop {
            if let Some(candidate) = &mut self.candidate {
                let words = candidate.election.take_outputs().into_iter();
                let words = words.map(|(to, word)| (to, AgreementWord::Leader(word)));
                self.outputs.extend(words);
            }
            self.look_at_election(now_ns);
            let is_own = |(to, _): &mut (String, AgreementWord)| *to == self.own;
            let own: Vec<_> = self.outputs.extract_if(.., is_own).collect();
            if own.is_empty() {
                return;
            }
            let name = self.own.clone();
            for (_, word) in own {
                self.hear_word(&name, word, now_ns);
            }
        }
    }

    fn hear_word(&mut self, from: &str, word: AgreementWord, now_ns: i64) {
        match word {
            AgreementWord::Leader(word) => {
                let Some(candidate) = self.candidate.as_mut().filter(|it| it.fault.is_none())
                else {
                    return;
                };
                if !self.leaders.iter().any(|node| node == from) {
                    self.senseless += 1;
                    return;
                }
                candidate.election.hear(from, &word, now_ns);
                if let Some(answer) = candidate.hear(from, &word, &self.leaders, now_ns) {
                    self.outputs.push((from.to_owned(), answer));
                }
            }
            AgreementWord::Who => self.tell_leader(from),
            AgreementWord::LedBy { leader, term } => self.hear_led(from, leader, term, now_ns),
            AgreementWord::Report(report) => self.hear_report(from, &report, now_ns),
            AgreementWord::Orders(orders) => self.hear_orders(from, &orders, now_ns),
            AgreementWord::Change {
                id,
                user,
                name,
                change,
            } => {
                let outcome = match &mut self.lead {
                    Some(lead) => lead.maps.change(&(user, name), &change, now_ns),
                    None => Err("the leader has changed: try again".to_owned()),
                };
                let word = AgreementWord::Changed { id, outcome };
                self.outputs.push((from.to_owned(), word));
            }
            AgreementWord::Maps { id, user } => {
                let maps = self.lead.as_ref().map(|lead| lead.maps.rows(user, now_ns));
                let maps = maps.unwrap_or_default();
                let word = AgreementWord::MapsAre { id, maps };
                self.outputs.push((from.to_owned(), word));
            }
            AgreementWord::Changed { id, outcome } => {
                self.answers.push((id, LeaderAnswer::Changed(outcome)));
            }
            AgreementWord::MapsAre { id, maps } => {
                self.answers.push((id, LeaderAnswer::Maps(maps)));
            }
        }
    }

    /// Asks the leader, whose answer is among [`Self::take_answers`] if it comes. False if no
    /// leader is known.
    pub(crate) fn ask(&mut self, question: LeaderQuestion) -> bool {
        let Some((leader, _)) = self.relay.leader.clone() else {
            return false;
        };
        let word = match question {
            LeaderQuestion::Change {
                id,
                of: (user, name),
                change,
            } => AgreementWord::Change {
                id,
                user,
                name,
                change,
            },
            LeaderQuestion::Maps { id, user } => AgreementWord::Maps { id, user },
        };
        self.outputs.push((leader, word));
        true
    }

    /// Answers of the leader since the last call, with the numbers of their questions.
    pub(crate) fn take_answers(&mut self) -> Vec<(u64, LeaderAnswer)> {
        std::mem::take(&mut self.answers)
    }

    fn tell_leader(&mut self, to: &str) {
        let state = self.candidate.as_ref().map(|it| it.election.state());
        let (leader, term) = match state {
            Some(LeadershipState::Leads { term }) => (Some(self.own.clone()), term),
            Some(LeadershipState::Led { leader, term }) => (Some(leader), term),
            _ => (None, 0),
        };
        let word = AgreementWord::LedBy { leader, term };
        self.outputs.push((to.to_owned(), word));
    }

    /// Begins or ends to lead, as the election says.
    fn look_at_election(&mut self, now_ns: i64) {
        let Some(candidate) = &mut self.candidate else {
            return;
        };
        let state = candidate.election.state();
        let records = candidate.election.take_records();
        let ends = candidate.election.take_ends();
        let term = match &state {
            LeadershipState::Leads { term } => Some(*term),
            _ => None,
        };
        if term != self.lead.as_ref().map(|lead| lead.term) {
            let records = records.unwrap_or_default();
            self.lead = term.map(|term| Lead {
                term,
                nodes: BTreeMap::new(),
                told: BTreeMap::new(),
                homes: BTreeMap::new(),
                maps: LedMaps::take_over(term, &records),
            });
            self.schedules.lead(term.is_some());
            match term {
                Some(term) => info!(term, "this node leads the controllers of the cluster"),
                None => info!("this node does not lead any more"),
            }
        }
        if let Some(lead) = &mut self.lead {
            for end in ends {
                lead.maps.saved(end.sequence, end.is_saved, now_ns);
            }
            lead.settle_maps(candidate);
        }
        let known = match state {
            LeadershipState::Leads { term } => Some((self.own.clone(), term)),
            LeadershipState::Led { leader, term } => Some((leader, term)),
            LeadershipState::Unknown => None,
        };
        match known {
            Some(known) => self.relay.follow(known, now_ns),
            None if self.relay.is_led_by(&self.own) => self.relay.lose(),
            None => {}
        }
    }

    fn hear_led(&mut self, from: &str, leader: Option<String>, term: u64, now_ns: i64) {
        let may_say = self.leaders.iter().any(|node| node == from);
        let leader = leader.filter(|leader| self.leaders.contains(leader));
        let (Some(leader), true) = (leader, may_say) else {
            // Who was taken for the leader is none.
            if self.relay.is_led_by(from) {
                self.relay.lose();
            }
            return;
        };
        self.relay.follow((leader, term), now_ns);
    }

    // ---- the leader ----

    fn hear_report(&mut self, from: &str, report: &NodeReport, now_ns: i64) {
        let Some(lead) = &mut self.lead else {
            return self.tell_leader(from);
        };
        if !lead.nodes.contains_key(from) && lead.nodes.len() >= NODES_MAX {
            return;
        }
        let node = lead.nodes.entry(from.to_owned()).or_default();
        let is_other = report.begins || report.life != node.life;
        let is_late = report.life < node.life
            || (report.life == node.life && report.sequence <= node.sequence);
        if is_late {
            return;
        }
        (node.life, node.sequence) = (report.life, report.sequence);
        (node.heard_ns, node.is_awaited) = (now_ns, true);
        if is_other {
            node.untold.clear();
            self.forget_processes(from);
        }
        let Some(lead) = &mut self.lead else {
            return;
        };
        for word in &report.maps {
            lead.maps.hear(from, word, now_ns);
            if let Some(node) = lead.nodes.get_mut(from) {
                node.untold_maps.insert((word.user, word.name.clone()));
            }
        }
        for process in &report.left {
            let process = process_of(process);
            // Only a node on which it is says that it has ended.
            let process = process.filter(|it| lead.homes.get(it).is_some_and(|of| of == from));
            if let Some(process) = process {
                lead.forget(process);
                self.schedules.hear_leave(process);
            }
        }
        for phase in &report.phases {
            let process = process_of(&phase.process);
            let home = process.and_then(|process| lead.homes.get(&process));
            if home.is_some_and(|home| home != from) {
                continue;
            }
            let Some(node) = lead.nodes.get_mut(from) else {
                continue;
            };
            match self.schedules.hear_phase(phase) {
                Some(id) if phase.stage == 0 => {
                    node.untold.remove(&id);
                    lead.end(id);
                }
                Some(id) => {
                    lead.homes.insert(id.process, from.to_owned());
                    node.untold.insert(id);
                }
                // This node has no such volume: its phases are not scheduled.
                None => {
                    let Some(process) = process else { continue };
                    let phase = phase.phase;
                    let id = MemberId { process, phase };
                    lead.told.insert(id, MemberAnswer::Unscheduled);
                    node.untold.insert(id);
                }
            }
        }
    }

    /// Forgets the processes of a node.
    fn forget_processes(&mut self, node: &str) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        let of_node = lead.homes.iter().filter(|(_, home)| *home == node);
        let of_node: Vec<u128> = of_node.map(|(process, _)| *process).collect();
        for process in of_node {
            lead.forget(process);
            self.schedules.hear_leave(process);
        }
    }

    fn step_lead(&mut self, now_ns: i64) -> i64 {
        let Some(lead) = &self.lead else {
            return i64::MAX;
        };
        let silent = lead.nodes.iter();
        let silent = silent.filter(|(_, node)| now_ns.saturating_sub(node.heard_ns) >= NODE_NS);
        let silent: Vec<String> = silent.map(|(name, _)| name.clone()).collect();
        for node in &silent {
            self.forget_processes(node);
        }
        let Some(lead) = &mut self.lead else {
            return i64::MAX;
        };
        for node in &silent {
            lead.nodes.remove(node);
            lead.maps.forget_node(node, now_ns);
        }
        let maps_ns = lead.maps.step(now_ns);
        if let Some(candidate) = &mut self.candidate {
            lead.settle_maps(candidate);
        }
        let (next_ns, answers) = self.schedules.lead_step();
        for (id, answer) in answers {
            lead.told.insert(id, answer);
            let home = lead.homes.get(&id.process);
            if let Some(node) = home.and_then(|home| lead.nodes.get_mut(home)) {
                node.untold.insert(id);
            }
        }
        for (name, node) in &mut lead.nodes {
            while node.is_awaited || !node.untold.is_empty() || !node.untold_maps.is_empty() {
                let rest = node.untold.iter().nth(ANSWERS_MAX).copied();
                let rest = rest.map(|rest| node.untold.split_off(&rest));
                let now = std::mem::replace(&mut node.untold, rest.unwrap_or_default());
                node.is_awaited = false;
                let answers = now.iter().filter_map(|id| {
                    let answer = lead.told.get(id)?;
                    Some(answer_word(*id, *answer))
                });
                let orders = NodeOrders {
                    term: lead.term,
                    heard: node.sequence,
                    answers: answers.collect(),
                    maps: std::mem::take(&mut node.untold_maps)
                        .iter()
                        .filter_map(|key| lead.maps.order(key))
                        .collect(),
                };
                self.outputs
                    .push((name.clone(), AgreementWord::Orders(orders)));
            }
        }
        let oldest = lead.nodes.values().map(|node| node.heard_ns).min();
        let silent_ns = oldest.map_or(i64::MAX, |heard_ns| heard_ns.saturating_add(NODE_NS));
        next_ns.unwrap_or(i64::MAX).min(silent_ns).min(maps_ns)
    }

    // ---- the node ----

    fn hear_orders(&mut self, from: &str, orders: &NodeOrders, now_ns: i64) {
        let is_ours = self
            .relay
            .leader
            .as_ref()
            .is_some_and(|(leader, term)| leader == from && orders.term >= *term);
        if !is_ours {
            return;
        }
        self.relay.leader = Some((from.to_owned(), orders.term));
        (self.relay.heard_ns, self.relay.leader_ns) = (Some(now_ns), now_ns);
        if self.relay.is_alone {
            self.relay.is_alone = false;
            self.schedules.set_alone(false);
            self.schedules.relay_anew();
            self.maps.relay_anew();
        }
        self.maps.relay_orders(&orders.maps);
        let in_flight = self
            .relay
            .in_flight
            .take_if(|it| it.sequence <= orders.heard);
        if let Some(in_flight) = in_flight {
            self.relay.begins = false;
            self.schedules.relay_heard(&in_flight.batch);
            self.maps.relay_heard(in_flight.maps);
        }
        if !orders.answers.is_empty() {
            let awaited = self.schedules.relay_answers(&orders.answers);
            self.awaited = self.awaited.or(awaited);
        }
    }

    fn step_relay(&mut self, now_ns: i64) -> i64 {
        let is_open = self.schedules.relays() || self.maps.are_used();
        let relay = &mut self.relay;
        if !is_open && !relay.is_alone {
            // Nobody waits for the leader.
            (relay.heard_ns, relay.in_flight) = (None, None);
            relay.leader_ns = now_ns;
            return i64::MAX;
        }
        let heard_ns = *relay.heard_ns.get_or_insert(now_ns);
        let silent_ns = now_ns.saturating_sub(heard_ns);
        if silent_ns >= ALONE_NS && !relay.is_alone {
            relay.is_alone = true;
            warn!("no leader of the cluster is heard: shared volumes are not scheduled meanwhile");
            let awaited = self.schedules.set_alone(true);
            self.awaited = self.awaited.or(awaited);
        }
        let relay = &mut self.relay;
        let silent_ns = now_ns.saturating_sub(relay.leader_ns);
        if silent_ns >= SILENCE_NS && relay.leader.is_some() && !relay.is_led_by(&self.own) {
            relay.lose();
        }
        if relay.leader.is_none() {
            let due_ns = relay.asked_ns.saturating_add(REPORT_NS);
            if now_ns < due_ns {
                return due_ns;
            }
            relay.asked_ns = now_ns;
            let others = self.leaders.iter().filter(|node| **node != self.own);
            let asks = others.map(|node| (node.clone(), AgreementWord::Who));
            self.outputs.extend(asks);
            return now_ns.saturating_add(REPORT_NS);
        }
        self.report(now_ns)
    }

    /// Reports what has changed, if the report before was heard, or repeats it.
    fn report(&mut self, now_ns: i64) -> i64 {
        let relay = &mut self.relay;
        let Some((leader, _)) = relay.leader.clone() else {
            return i64::MAX;
        };
        if let Some(in_flight) = &relay.in_flight {
            let due_ns = in_flight.sent_ns.saturating_add(REPEAT_NS);
            if now_ns < due_ns {
                return due_ns;
            }
        }
        if relay.begins && relay.in_flight.is_none() {
            self.schedules.relay_anew();
            self.maps.relay_anew();
        }
        let (batch, maps) = (self.schedules.relay_batch(), self.maps.relay_batch());
        let due_ns = relay.reported_ns.saturating_add(REPORT_NS);
        let is_empty = batch.is_empty() && maps.maps.is_empty();
        if is_empty && now_ns < due_ns && !relay.begins {
            return due_ns;
        }
        relay.sequence += 1;
        relay.reported_ns = now_ns;
        let report = NodeReport {
            life: relay.life,
            sequence: relay.sequence,
            begins: relay.begins,
            phases: batch.phases.clone(),
            left: batch.left.clone(),
            maps: maps.maps.clone(),
        };
        relay.in_flight = Some(InFlight {
            sequence: relay.sequence,
            batch,
            maps,
            sent_ns: now_ns,
        });
        self.outputs.push((leader, AgreementWord::Report(report)));
        now_ns.saturating_add(REPEAT_NS)
    }
}

impl Candidate {
    /// Has the replica hear a word; the answer, if there is one that was kept.
    fn hear(
        &mut self,
        from: &str,
        word: &barograph_control::LeaderWord,
        leaders: &[String],
        now_ns: i64,
    ) -> Option<AgreementWord> {
        let before = self.replica.clone();
        let answer = self.replica.hear(from, word, leaders, now_ns)?;
        if answer.must_keep
            && let Err(error) = self.file.write(&self.replica)
        {
            // What is not on disk is not promised. A disk that is full may have room later.
            let path = self.file.path().display();
            warn!(%path, %error, "a promise to a leader is not kept, so it is not made");
            self.replica = before;
            return None;
        }
        Some(AgreementWord::Leader(answer.word))
    }
}

impl NodeRelay {
    fn is_led_by(&self, node: &str) -> bool {
        let leader = self.leader.as_ref();
        leader.is_some_and(|(leader, _)| leader == node)
    }

    /// Follows a leader of this term, unless a later one is known.
    fn follow(&mut self, (leader, term): (String, u64), now_ns: i64) {
        let known = self.leader.as_ref();
        let is_new = known.is_none_or(|(_, known)| *known < term);
        if !is_new {
            return;
        }
        let is_other = known.is_none_or(|known| *known != (leader.clone(), term));
        self.leader = Some((leader, term));
        if is_other {
            (self.begins, self.in_flight) = (true, None);
            self.leader_ns = now_ns;
        }
    }

    fn lose(&mut self) {
        (self.leader, self.in_flight, self.begins) = (None, None, true);
    }
}

impl Lead {
    /// Saves what the maps have to save, and notes who is to be told of them.
    fn settle_maps(&mut self, candidate: &mut Candidate) {
        for output in self.maps.take_outputs() {
            match output {
                MapOutput::Save(key, name, text) => {
                    let sequence = candidate.election.save(&name, text);
                    self.maps.saving(&key, sequence);
                }
                MapOutput::Tell(key, nodes) => {
                    for node in nodes {
                        if let Some(node) = self.nodes.get_mut(&node) {
                            node.untold_maps.insert(key.clone());
                        }
                    }
                }
            }
        }
    }

    /// A phase has ended, and its process is known for as long as it has others.
    fn end(&mut self, id: MemberId) {
        self.told.remove(&id);
        let first = MemberId { phase: 0, ..id };
        let last = MemberId {
            phase: u64::MAX,
            ..id
        };
        if self.told.range(first..=last).next().is_none() {
            self.homes.remove(&id.process);
        }
    }

    fn forget(&mut self, process: u128) {
        self.homes.remove(&process);
        let first = MemberId { process, phase: 0 };
        let last = MemberId {
            process,
            phase: u64::MAX,
        };
        let of_process: Vec<MemberId> = self.told.range(first..=last).map(|(id, _)| *id).collect();
        for id in of_process {
            self.told.remove(&id);
        }
    }
}
