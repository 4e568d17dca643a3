//! The controllers of a node, as a step over messages and times: the election if the node may lead,
//! what it relays to the leader, and what it orders when it leads.

mod lead;
mod node;

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_control::{LeaderElection, LeaderReplica, LeaderTimes, LeaderWord, LeadershipState};
use barograph_model::NS_PER_S;
use barograph_stream::Incarnation;
use tracing::{info, warn};

use super::led_maps::LedMaps;
use super::replica_file::ReplicaFile;
use crate::controller_words::{AgreementWord, LedMapRow, MapChange, MapKey};
use crate::io_schedules::IoSchedules;
use crate::server_maps::ServerMaps;
use lead::Lead;
use node::NodeRelay;

/// The controllers of a node.
pub(crate) struct AgreementCore {
    own: String,
    /// The nodes that may lead, in their order.
    leaders: Vec<String>,
    /// Whether there is no list of them, so that this node leads for itself alone.
    is_by_itself: bool,
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
    /// Whether somebody asks for the leader, and the time until which one is looked for if no
    /// program here needs it.
    is_asked: bool,
    asked_until_ns: i64,
}

struct Candidate {
    election: LeaderElection,
    replica: LeaderReplica,
    file: ReplicaFile,
    /// Why the replica is not known, so that nothing is promised.
    fault: Option<String>,
    /// The time at which it was read last.
    read_ns: i64,
}

/// Time for which the leader is looked for after somebody has asked for it.
const ASKED_NS: i64 = 10 * NS_PER_S;
/// Time after which a replica that could not be read is read again: a passing error passes.
const READ_AGAIN_NS: i64 = 10 * NS_PER_S;

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
    /// The maps that were asked for.
    Maps(Vec<LedMapRow>),
}

/// What is known of the leader, for those who look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgreementStatus {
    /// The node that leads; `None` if none is heard.
    pub leader: Option<String>,
    /// The term of that node.
    pub term: u64,
    /// Why there is none, or why this node may not lead.
    pub fault: Option<String>,
    /// Nodes that report to this one.
    pub nodes: usize,
    /// Words that made no sense, and maps that were not kept, here or by this node as the leader.
    pub refused: u64,
}

impl AgreementCore {
    /// The controllers of a node of this name, with the list of nodes that may lead; `life` is
    /// greater than that of every earlier life.
    pub(crate) fn new(
        (own, list): (&str, &[String]),
        file: ReplicaFile,
        (schedules, maps): (&Arc<IoSchedules>, &Arc<ServerMaps>),
        (life, now_ns): (u64, i64),
    ) -> Self {
        let is_by_itself = list.is_empty();
        let alone = [own.to_owned()];
        let leaders = if is_by_itself { &alone[..] } else { list };
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
                read_ns: now_ns,
            }
        });
        Self {
            own: own.to_owned(),
            leaders: leaders.to_vec(),
            is_by_itself,
            candidate,
            schedules: Arc::clone(schedules),
            maps: Arc::clone(maps),
            relay: NodeRelay {
                life,
                // Above those of earlier lives: what a leader has heard of them is none of these.
                sequence: life,
                leader: None,
                begins: true,
                in_flight: None,
                reported_ns: i64::MIN,
                repeated_ns: i64::MIN,
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
            is_asked: false,
            asked_until_ns: i64::MIN,
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
            refused: self.senseless
                + self.maps.refused()
                + self.lead.as_ref().map_or(0, |lead| lead.maps.refused),
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

    /// Takes in a word of another node. A node that leads itself listens to none: without a list of
    /// nodes that may lead, nobody has to prove which node it is.
    pub(crate) fn hear(&mut self, from: &str, text: &str, now_ns: i64) {
        if self.is_by_itself {
            self.senseless += 1;
            return;
        }
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
        if std::mem::take(&mut self.is_asked) {
            self.asked_until_ns = now_ns.saturating_add(ASKED_NS);
        }
        // Alone, this node leads for those of its programs that have maps, and who asks for them.
        let is_needed = self.leaders.len() > 1
            || self.lead.is_some()
            || self.maps.are_used()
            || now_ns < self.asked_until_ns;
        if let Some(candidate) = self.candidate.as_mut().filter(|it| it.fault.is_some()) {
            candidate.read_again(&self.own, &self.leaders, now_ns);
            next_ns = next_ns.min(candidate.read_ns.saturating_add(READ_AGAIN_NS));
        }
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
                    Some(lead) => lead.maps.change(&(user, name), &change, from, now_ns),
                    None => Err("the leader has changed: try again".to_owned()),
                };
                let word = AgreementWord::Changed { id, outcome };
                self.outputs.push((from.to_owned(), word));
            }
            AgreementWord::Maps { id, user } => {
                let Some(lead) = &self.lead else {
                    return self.tell_leader(from);
                };
                let maps = lead.maps.rows(user, now_ns);
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
        self.is_asked = true;
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
                maps: LedMaps::take_over(term, self.maps.control(), &records, now_ns),
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
}

impl Candidate {
    /// Reads a replica again that could not be read, if it is time to.
    fn read_again(&mut self, own: &str, leaders: &[String], now_ns: i64) {
        if now_ns.saturating_sub(self.read_ns) < READ_AGAIN_NS {
            return;
        }
        self.read_ns = now_ns;
        match self.file.read() {
            Err(error) => self.fault = Some(error.to_string()),
            Ok(replica) => {
                let from = (LeaderTimes::default(), replica.term());
                self.election = LeaderElection::new(own, leaders, from, now_ns);
                (self.replica, self.fault) = (replica, None);
            }
        }
    }

    /// Has the replica hear a word; the answer, if there is one that was kept.
    fn hear(
        &mut self,
        from: &str,
        word: &LeaderWord,
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
