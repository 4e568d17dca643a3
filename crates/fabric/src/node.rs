//! A node of a cluster: it publishes its own streams to other nodes, and mirrors streams of theirs.
//!
//! It is a step that a shell repeats, over any transport. The segments of mirrors are files of the
//! run directory; all else is memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_model::NS_PER_S;
use barograph_stream::{NODES_DIR, PeersRow, RunDir, SegmentReader, SubscribersRow};
use serde::Serialize;

use crate::config::NodeConfig;
use crate::control_words::{ControlWords, is_word, word_message};
use crate::demand::{StreamDemand, selectors_of};
use crate::frame::is_of_samples;
use crate::history::{DurableHistories, HistoryOpening};
use crate::mirror::Received;
use crate::node_mirror::NodeMirror;
use crate::own_scopes::OwnScopes;
use crate::past::PastSource;
use crate::publisher::Publisher;
use crate::question::{NodeAnswers, Questions};
use crate::question_bytes::{AskedQuestion, QuestionKind, is_of_questions};
use crate::transport::{Transport, TransportEvent};

/// Most events that one step takes in, so that feeds are served between them.
const EVENTS_MAX: usize = 4_096;
/// Time for which the mirror of a node that has gone is kept, in ns.
const KEEP_NS: i64 = 600 * NS_PER_S;
/// Most nodes that are known at a time.
const NODES_MAX: usize = 4_096;
/// Most refusals that are told at a time.
const REFUSALS_MAX: usize = 64;
/// Longest time between two steps, in ns.
const STEP_NS_MAX: i64 = NS_PER_S;

/// A node of a cluster.
#[derive(Debug)]
pub struct FabricNode<T> {
    transport: T,
    config: NodeConfig,
    /// The streams that somebody on this node needs beside those that the configuration wants.
    demanded: Vec<StreamDemand>,
    publisher: Publisher,
    own_scopes: OwnScopes,
    nodes: BTreeMap<Arc<str>, OtherNode>,
    /// Frames that broke a rule, or were of a newer version.
    refused_frames: u64,
    changes: u64,
    tidied_ns: i64,
    /// Number of the next feed: no two feeds of this node have the same.
    next_feed: u64,
    questions: Questions,
    words: ControlWords,
    /// The histories of other nodes; `None` if this node keeps none.
    histories: Option<Box<dyn DurableHistories>>,
}

/// Another node, for as long as it is connected and a while after.
#[derive(Debug)]
struct OtherNode {
    is_connected: bool,
    /// Time of the newest frame, or of the connection, by this node's clock, ns since the epoch.
    heard_ns: i64,
    /// `None` if nothing of this node is mirrored. Most of many nodes are only known, so it is
    /// apart.
    mirror: Option<Box<NodeMirror>>,
    /// Why nothing is mirrored, or a frame was refused.
    fault: Option<String>,
}

/// Counts of what a node has sent, for the document `cluster.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FabricStatus {
    /// Number of nodes to which streams are sent.
    pub subscribers: usize,
    /// Samples sent.
    pub samples: u64,
    /// Bytes of frames sent.
    pub bytes: u64,
    /// Samples among them that came from this node's archive, because its rings had overwritten
    /// them.
    pub past: u64,
    /// Samples that this node's rings had overwritten before they could be sent, and that its
    /// archive did not have or was not asked for.
    pub lost: u64,
    /// Messages that were not sent.
    pub unsent: u64,
    /// Messages that came and were not taken in.
    pub unreceived: u64,
    /// Subscriptions that were refused because there were too many, or too many positions in them.
    pub refused: u64,
    /// Number of subscribers that catch up from this node's archive.
    pub catching_up: usize,
    /// Number of subscribers that wait until others have caught up.
    pub waiting: usize,
    /// Number of nodes whose history is kept here.
    pub kept: usize,
    /// Number of scopes of applications on other nodes that are mirrored without the history that
    /// they should have, for lack of room or because it could not be opened.
    pub unkept_scopes: usize,
    /// Selectors of streams that are demanded and for which the subscription to one node has no
    /// room, at most.
    pub selectors_left_out: usize,
    /// Hellos of nodes that do not work with this one, or for which there was no room, each time
    /// that one came.
    pub refused_hellos: u64,
    /// Why nodes that are there now do not work with this one, each reason once.
    pub refusals: Vec<String>,
}

impl OtherNode {
    /// Whether the history of the node is kept here.
    fn is_kept(&self) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.is_kept())
    }

    /// Number of scopes that are mirrored without the history that they should have.
    fn unkept_scopes(&self) -> usize {
        let mirror = self.mirror.as_ref();
        mirror.map_or(0, |mirror| mirror.scopes.unkept().count())
    }
}

impl<T: Transport> FabricNode<T> {
    /// Makes a node that publishes this segment. Mirrors of an earlier life are removed.
    pub fn new(transport: T, segment: Arc<SegmentReader>, config: NodeConfig, now_ns: i64) -> Self {
        remove_mirrors(&config.run_dir);
        Self {
            transport,
            demanded: Vec::new(),
            config,
            publisher: Publisher::new(segment),
            own_scopes: OwnScopes::default(),
            nodes: BTreeMap::new(),
            refused_frames: 0,
            changes: 0,
            tidied_ns: now_ns,
            next_feed: now_ns.unsigned_abs(),
            questions: Questions::new(now_ns.unsigned_abs()),
            words: ControlWords::default(),
            histories: None,
        }
    }

    /// Has this node keep the history of other nodes. Call it before the first step.
    pub fn keep_histories(&mut self, histories: Box<dyn DurableHistories>) {
        self.histories = Some(histories);
    }

    /// Has feeds read from this source what the rings no longer hold, for nodes that keep the
    /// history of this one. Call it before the first step.
    pub fn read_past_from(&mut self, source: Arc<dyn PastSource>) {
        self.publisher.read_past_from(source);
    }

    /// Mirrors these streams beside the configured ones, for as long as somebody here needs them.
    /// Those for which a subscription has no room are left out, the last ones first.
    pub fn demand(&mut self, demands: Vec<StreamDemand>) {
        if self.demanded == demands {
            return;
        }
        self.demanded = demands;
        for (node, other) in &mut self.nodes {
            if let Some(mirror) = &mut other.mirror {
                let (selectors, _) = selectors_of(node, &self.config.wanted, &self.demanded);
                mirror.set_selectors(&selectors);
            }
        }
    }

    /// The names of the connected nodes.
    pub fn connected(&self) -> impl Iterator<Item = &Arc<str>> {
        let connected = self.nodes.iter().filter(|(_, other)| other.is_connected);
        connected.map(|(node, _)| node)
    }

    /// Takes in what has come and sends what is due at `now_ns`, in ns since the epoch. Returns the
    /// time of the next step, unless something comes before.
    pub fn step(&mut self, now_ns: i64) -> i64 {
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.transport.receive(now_ns) else {
                break;
            };
            self.take_in(event, now_ns);
        }
        while let Some((to, frame)) = self.publisher.due(now_ns) {
            // A frame that was not sent is a hole, which its subscriber notices.
            let _ = self.transport.send(&to, frame);
        }
        self.send_questions(now_ns);
        let mut deadline_ns = now_ns.saturating_add(STEP_NS_MAX);
        deadline_ns = deadline_ns.min(self.questions.deadline_ns());
        for (node, other) in &mut self.nodes {
            let Some(mirror) = other.mirror.as_mut().filter(|_| other.is_connected) else {
                continue;
            };
            while let Some(message) = mirror.due(now_ns) {
                let _ = self.transport.send(node, message);
            }
            mirror.wake();
            deadline_ns = deadline_ns.min(mirror.deadline_ns());
        }
        self.tidy(now_ns);
        deadline_ns
    }

    /// A number that grows whenever another node subscribes or ends a subscription.
    pub fn subscriptions(&self) -> u64 {
        self.publisher.changes()
    }

    /// The segments to which other nodes subscribe. Each change of a stream in them is a reason for
    /// a step.
    pub fn subscribed(&self) -> Vec<Arc<SegmentReader>> {
        self.publisher.subscribed()
    }

    /// A number that grows whenever a node appears or goes.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The transport, to wait for its next event with.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Takes in an event that came at `now_ns`, in ns since the epoch.
    pub fn take_in(&mut self, event: TransportEvent, now_ns: i64) {
        if !matches!(event, TransportEvent::Message { .. }) {
            self.changes += 1;
        }
        match event {
            TransportEvent::Appeared(node) => {
                // Another life of a node knows nothing of what was asked before.
                self.questions.gone(&node, now_ns);
                self.appeared(node, now_ns);
            }
            TransportEvent::Gone(node) => {
                self.questions.gone(&node, now_ns);
                if let Some(other) = self.nodes.get_mut(&node) {
                    other.is_connected = false;
                }
            }
            TransportEvent::Message { from, bytes } => self.message(&from, &bytes, now_ns),
        }
    }

    /// The other nodes that are known, by name.
    pub fn peers(&self) -> Vec<PeersRow> {
        let peers = self.transport.peers().into_iter();
        let round_trips = peers.map(|peer| (peer.node, peer.round_trip_ns));
        let round_trips: BTreeMap<Arc<str>, Option<i64>> = round_trips.collect();
        let status = |(node, other): (&Arc<str>, &OtherNode)| {
            let mirror = other.mirror.as_ref();
            let counts = mirror.map(|mirror| mirror.counts()).unwrap_or_default();
            let sent_ns = mirror.map_or(0, |mirror| mirror.own.subscriber.mirror().sent_ns());
            let state = match other.is_connected {
                true => "connected",
                false => "gone",
            };
            let round_trip_ns = round_trips.get(node).copied().flatten();
            // A frame is on the way for half of a round trip.
            let way_ns = round_trip_ns.unwrap_or_default() / 2;
            let ahead_ns = sent_ns
                .saturating_add(way_ns)
                .saturating_sub(other.heard_ns);
            PeersRow {
                node: node.to_string(),
                state: state.to_owned(),
                heard_ts: other.heard_ns,
                round_trip_ns,
                ahead_ns: (sent_ns > 0).then_some(ahead_ns),
                streams: mirror.map_or(0, |mirror| mirror.streams() as u64),
                samples: counts.samples,
                missed: counts.missed + counts.unplaced,
                holes: counts.holes,
                fault: other.fault.clone(),
            }
        };
        self.nodes.iter().map(status).collect()
    }

    /// Counts of what was sent so far.
    pub fn status(&self) -> FabricStatus {
        let feeds = self.publisher.counts();
        let carried = self.transport.counts();
        let (catching_up, waiting) = self.publisher.catch_ups();
        FabricStatus {
            subscribers: self.publisher.subscribers(),
            samples: feeds.samples,
            bytes: feeds.bytes,
            past: feeds.past,
            lost: feeds.lost,
            unsent: carried.unsent,
            unreceived: carried.unreceived
                + self.questions.refused()
                + self.words.refused
                + self.refused_frames,
            refused: self.publisher.refused(),
            catching_up,
            waiting,
            selectors_left_out: self.left_out(),
            kept: self.nodes.values().filter(|other| other.is_kept()).count(),
            unkept_scopes: self.nodes.values().map(OtherNode::unkept_scopes).sum(),
            refused_hellos: carried.refused,
            refusals: self.refusals(),
        }
    }

    /// Why nodes that are there now do not work with this one.
    fn refusals(&self) -> Vec<String> {
        let refusals = self.transport.refusals().into_iter();
        let mut told: BTreeSet<String> = refusals.map(|refusal| refusal.to_string()).collect();
        if self.nodes.len() >= NODES_MAX {
            let peers = self.transport.peers().into_iter();
            let unknown = peers.filter(|peer| !self.nodes.contains_key(&peer.node));
            told.extend(unknown.map(|peer| {
                let node = peer.node;
                format!("{node}: {NODES_MAX} nodes are connected already")
            }));
        }
        told.into_iter().take(REFUSALS_MAX).collect()
    }

    fn left_out(&self) -> usize {
        let mirrored = self
            .nodes
            .iter()
            .filter(|(_, other)| other.mirror.is_some());
        let left_out = mirrored.map(|(node, _)| {
            let (_, left_out) = selectors_of(node, &self.config.wanted, &self.demanded);
            left_out
        });
        left_out.max().unwrap_or_default()
    }

    /// Counts of what was sent to each subscriber, and of what was given up.
    pub fn sent_to(&self) -> Vec<SubscribersRow> {
        self.publisher.sent_to()
    }

    /// Sends a statement or a call to other nodes: to these, or to all that are known if none is
    /// named. They are waited for until `until_ns`, in ns since the epoch. Returns the number of
    /// the question; `None` if too many wait.
    pub fn ask(
        &mut self,
        question: (QuestionKind, &str),
        nodes: &[String],
        (now_ns, until_ns): (i64, i64),
    ) -> Option<u64> {
        let is_connected = |node: &str| self.nodes.get(node).is_some_and(|one| one.is_connected);
        let nodes: Vec<(Arc<str>, bool)> = match nodes {
            [] => {
                let known = self.nodes.iter();
                let known = known.map(|(node, other)| (Arc::clone(node), other.is_connected));
                known.collect()
            }
            nodes => {
                let named = nodes.iter();
                let named = named.map(|node| (node.as_str().into(), is_connected(node)));
                named.collect()
            }
        };
        let number = self.questions.ask(question, nodes, (now_ns, until_ns))?;
        self.send_questions(now_ns);
        Some(number)
    }

    /// Sends the questions that are due to the nodes that have not answered them.
    fn send_questions(&mut self, now_ns: i64) {
        while let Some((nodes, message)) = self.questions.due(now_ns) {
            for node in nodes {
                // A node that is not reached is asked again.
                let _ = self.transport.send(&node, message.clone());
            }
        }
    }

    /// The answers to a question, when all have come or its time is over.
    pub fn answers(&mut self, now_ns: i64) -> Option<(u64, NodeAnswers)> {
        self.questions.done(now_ns)
    }

    /// The next question of another node to this one.
    pub fn asked(&mut self, now_ns: i64) -> Option<AskedQuestion> {
        self.questions.asked(now_ns)
    }

    /// Sends the answer to a question to the node that asked, or the reason why there is none.
    pub fn answer(&mut self, asked: &AskedQuestion, outcome: Result<&[u8], &str>, now_ns: i64) {
        let message = self.questions.answer(asked, outcome, now_ns);
        // An answer that is lost is asked for again.
        let _ = self.transport.send(&asked.from, message);
    }

    /// Sends a word of this node's controllers to those of another node. It may be lost; returns
    /// whether it was handed over.
    pub fn send_word(&mut self, to: &str, text: &str) -> bool {
        let message = word_message(text);
        message.is_some_and(|message| self.transport.send(to, message).is_ok())
    }

    /// The next word of the controllers of another node.
    pub fn take_word(&mut self) -> Option<(Arc<str>, String)> {
        self.words.take()
    }

    /// Ends this node's part in the cluster: its mirrors are closed and removed.
    pub fn leave(self) {
        let Self { config, nodes, .. } = self;
        drop(nodes);
        remove_mirrors(&config.run_dir);
    }

    /// Takes in that a node has appeared; returns whether there is room for it.
    fn appeared(&mut self, node: Arc<str>, now_ns: i64) -> bool {
        if let Some(known) = self.nodes.get_mut(&node) {
            known.is_connected = true;
            if let Some(mirror) = &mut known.mirror {
                mirror.ask_again();
            }
            return true;
        }
        if self.nodes.len() >= NODES_MAX && !self.forget_one() {
            return false;
        }
        let other = OtherNode {
            is_connected: true,
            heard_ns: now_ns,
            mirror: None,
            fault: None,
        };
        self.nodes.insert(node, other);
        self.begin_mirrors(now_ns);
        true
    }

    /// Begins the mirrors of connected nodes that have none: there was no room for them, or their
    /// segment could not be made.
    fn begin_mirrors(&mut self, now_ns: i64) {
        let mirrored = self.nodes.values().filter(|other| other.mirror.is_some());
        let mut mirrored = mirrored.count();
        let Self {
            nodes,
            config,
            demanded,
            next_feed,
            histories,
            ..
        } = self;
        let is_wanted = |node: &str| {
            !config.wanted.is_empty() || demanded.iter().any(|demand| demand.is_of(node))
        };
        let awaits = |node: &str, other: &OtherNode| {
            let is_due = other.is_connected && other.mirror.is_none();
            is_due && config.mirrors(node) && is_wanted(node)
        };
        if let Some(histories) = histories.as_mut() {
            let awaits_scope = |other: &OtherNode, scope: &str| {
                let mirror = other.mirror.as_ref();
                mirror.is_some_and(|mirror| mirror.scopes.awaits(scope))
            };
            histories.await_only(&|node, scope| {
                nodes.get(node).is_some_and(|other| match scope {
                    "" => awaits(node, other),
                    scope => awaits_scope(other, scope),
                })
            });
        }
        for (node, other) in nodes.iter_mut().filter(|(node, other)| awaits(node, other)) {
            if mirrored >= config.mirrors_max {
                let most = config.mirrors_max;
                other.fault = Some(format!(
                    "{most} nodes are mirrored already: raise cluster.mirrors_max"
                ));
                continue;
            }
            let history = histories.as_mut().map(|histories| histories.open(node, ""));
            let history = match history {
                None | Some(HistoryOpening::NotKept) => None,
                Some(HistoryOpening::Open(history)) => Some(history),
                Some(HistoryOpening::UnderWay) => {
                    mirrored += 1;
                    continue;
                }
                Some(HistoryOpening::Failed(reason)) => {
                    other.fault = Some(reason);
                    continue;
                }
            };
            *next_feed = next_feed.wrapping_add(1 << 32);
            match NodeMirror::create(config, node, (*next_feed, now_ns), history) {
                Ok(mut mirror) => {
                    let (wanted, _) = selectors_of(node, &config.wanted, demanded);
                    mirror.set_selectors(&wanted);
                    (other.mirror, other.fault) = (Some(Box::new(mirror)), None);
                    mirrored += 1;
                }
                Err(error) => other.fault = Some(error.to_string()),
            }
        }
    }

    /// Forgets the node that has been gone for the longest time; returns whether there was one.
    fn forget_one(&mut self) -> bool {
        let gone = self.nodes.iter().filter(|(_, other)| !other.is_connected);
        let oldest = gone.min_by_key(|(_, other)| other.heard_ns);
        let Some(node) = oldest.map(|(node, _)| Arc::clone(node)) else {
            return false;
        };
        self.nodes.remove(&node);
        self.remove_mirror(&node);
        true
    }

    fn remove_mirror(&self, node: &str) {
        let _ = std::fs::remove_dir_all(self.config.run_dir.mirror(node).path());
    }

    /// Takes in a message: of a feed of ours, or of a subscriber to this node.
    fn message(&mut self, from: &Arc<str>, bytes: &[u8], now_ns: i64) {
        if is_of_questions(bytes) {
            if let Some(answer) = self.questions.receive(from, bytes, now_ns) {
                let _ = self.transport.send(from, answer);
            }
            return;
        }
        if is_word(bytes) {
            return self.words.receive(from, bytes);
        }
        if !is_of_samples(bytes) {
            // A subscriber that sends something else is taken for silent, and forgotten.
            let taken = self.publisher.receive(from, bytes, now_ns);
            self.refused_frames += u64::from(taken.is_err());
            return;
        }
        let Some(other) = self.nodes.get_mut(from) else {
            return;
        };
        let Some(mirror) = &mut other.mirror else {
            return;
        };
        match mirror.receive(bytes, now_ns) {
            Ok(Received::Taken) => {
                other.heard_ns = now_ns;
                other.fault.clone_from(&mirror.trouble);
            }
            Ok(_) => {}
            Err(fault) => {
                self.refused_frames += 1;
                other.fault = Some(format!("a frame was refused: {fault}"));
            }
        }
    }

    /// Once a second: gives memory back, forgets nodes that have long gone, and takes in the nodes
    /// and begins the mirrors for which there is room now.
    fn tidy(&mut self, now_ns: i64) {
        if now_ns.abs_diff(self.tidied_ns) < STEP_NS_MAX as u64 {
            return;
        }
        self.tidied_ns = now_ns;
        self.questions.tidy(now_ns);
        if let Some(scopes) = self.own_scopes.look(&self.config, now_ns) {
            self.publisher.set_scopes(scopes);
        }
        for (node, other) in &mut self.nodes {
            if let Some(mirror) = &mut other.mirror {
                let next_feed = (&mut self.next_feed, now_ns);
                let histories = self.histories.as_mut();
                mirror.follow_scopes((&self.config, node), next_feed, histories);
                mirror.tidy();
                if mirror.trouble.is_some() {
                    other.fault.clone_from(&mirror.trouble);
                }
            }
        }
        let is_over = |other: &OtherNode| {
            !other.is_connected && now_ns.abs_diff(other.heard_ns) >= KEEP_NS as u64
        };
        let over = self.nodes.extract_if(.., |_, other| is_over(other));
        let over: Vec<Arc<str>> = over.map(|(node, _)| node).collect();
        over.iter().for_each(|node| self.remove_mirror(node));
        let mut peers = self.transport.peers().into_iter().map(|peer| peer.node);
        peers.all(|node| self.nodes.contains_key(&node) || self.appeared(node, now_ns));
        self.begin_mirrors(now_ns);
    }
}

/// Removes the directory of mirrors. What cannot be removed is replaced when its node appears.
fn remove_mirrors(run_dir: &RunDir) {
    let _ = std::fs::remove_dir_all(run_dir.path().join(NODES_DIR));
}
