//! Streams about the other nodes of the cluster, as the fabric knows them.
//!
//! The fabric's thread leaves what it knows; the sampling loop writes it, as it writes what sources
//! measure, so that insights and forecasts have it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use barograph_fabric::FabricStatus;
use barograph_model::{
    Descriptor, Kind, Labels, NS_PER_S, Sample, Sink, StreamKey, Value, ValueType,
};
use barograph_stream::PeersRow;

use crate::self_watch::descriptor;

/// Most other nodes that have streams here: whoever shows many nodes must not take the room of the
/// node's own streams. The table `peers` has them all.
const PEERS_MAX: usize = 256;

/// Streams of each other node: name, type, unit, kind, help.
const OF_PEER: [(&str, ValueType, &str, Kind, &str); 5] = [
    (
        "fabric.connected.flag",
        ValueType::Bool,
        "",
        Kind::State,
        "Whether the node is connected; the stream ends when the node is forgotten",
    ),
    (
        // The name of the source `peer`, so that the insight `network.health.seconds` has both.
        "peer.round_trip.seconds",
        ValueType::Float,
        "seconds",
        Kind::Gauge,
        "Time from the question to the peer's answer.",
    ),
    (
        "fabric.clock.ahead.seconds",
        ValueType::Float,
        "seconds",
        Kind::Gauge,
        "How far the node's clock is ahead of this node's, if a frame is on the way for half of a round trip",
    ),
    (
        "fabric.mirrored.samples",
        ValueType::Int,
        "samples",
        Kind::Counter,
        "Samples of the node that were taken into its mirror here",
    ),
    (
        "fabric.missed.samples",
        ValueType::Int,
        "samples",
        Kind::Counter,
        "Samples of the node that its rings had overwritten before they could be sent, or for which its mirror had no room",
    ),
];

/// Streams about what this node has sent: name, unit, kind, help.
const OF_NODE: [(&str, &str, Kind, &str); 5] = [
    (
        "fabric.connected.count",
        "count",
        Kind::Gauge,
        "Other nodes that are connected",
    ),
    (
        "fabric.sent.samples",
        "samples",
        Kind::Counter,
        "Samples of this node that were sent to other nodes; each node counts",
    ),
    (
        "fabric.sent.bytes",
        "bytes",
        Kind::Counter,
        "Bytes of the frames with these samples",
    ),
    (
        "fabric.lost.samples",
        "samples",
        Kind::Counter,
        "Samples that the rings of this node had overwritten before they could be sent",
    ),
    (
        "fabric.refused.messages",
        "messages",
        Kind::Counter,
        "Messages that came and were not taken in: nobody vouched for the sender, too much waited, or they broke a rule",
    ),
];

/// The state of the cluster as the fabric knows it. It is shared by the fabric's thread and the
/// sampling loop.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterState(Arc<Mutex<Option<ClusterView>>>);

#[derive(Debug)]
struct ClusterView {
    peers: Vec<PeersRow>,
    status: FabricStatus,
}

impl ClusterState {
    /// Leaves what is known now.
    pub(crate) fn set(&self, peers: Vec<PeersRow>, status: FabricStatus) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = Some(ClusterView { peers, status });
    }

    /// Takes what was left since the last time. It never waits.
    fn take(&self) -> Option<ClusterView> {
        self.0.try_lock().ok()?.take()
    }
}

/// The streams about the cluster. They exist while this node is in one.
pub(crate) struct ClusterWatch {
    state: ClusterState,
    interval_ns: i64,
    of_node: Option<[Option<StreamKey>; OF_NODE.len()]>,
    of_peer: BTreeMap<String, [Option<StreamKey>; OF_PEER.len()]>,
}

impl ClusterWatch {
    /// Streams that are looked at every `interval_ns`. None is declared before the fabric knows
    /// something.
    pub(crate) fn new(state: ClusterState, interval_ns: i64) -> Self {
        Self {
            state,
            interval_ns,
            of_node: None,
            of_peer: BTreeMap::new(),
        }
    }

    /// Appends what the fabric has left. Streams of nodes that it has forgotten end.
    pub(crate) fn look(&mut self, now_ns: i64, sink: &mut impl Sink) {
        let Some(ClusterView { peers, status }) = self.state.take() else {
            return;
        };
        let interval_ns = self.interval_ns;
        let of_node = *self.of_node.get_or_insert_with(|| {
            OF_NODE.map(|(name, unit, kind, help)| {
                let descriptor = descriptor(name, ValueType::Int, unit, kind, help);
                declare(sink, &descriptor, interval_ns)
            })
        });
        let connected = peers
            .iter()
            .filter(|peer| peer.state == "connected")
            .count();
        let counts = [
            connected as u64,
            status.samples,
            status.bytes,
            status.lost,
            status.unreceived,
        ];
        for (key, count) in of_node.into_iter().zip(counts) {
            put(sink, key, now_ns, Some(int(count)));
        }
        let known: BTreeSet<&str> = peers.iter().map(|peer| &*peer.node).collect();
        let is_over = |name: &String| !known.contains(name.as_str());
        for (_, keys) in self.of_peer.extract_if(.., |name, _| is_over(name)) {
            keys.into_iter().flatten().for_each(|key| sink.retire(key));
        }
        for peer in &peers {
            if self.of_peer.len() >= PEERS_MAX && !self.of_peer.contains_key(&peer.node) {
                continue;
            }
            let keys = *self
                .of_peer
                .entry(peer.node.clone())
                .or_insert_with(|| declare_peer(sink, &peer.node, interval_ns));
            let is_connected = peer.state == "connected";
            let seconds = |ns: Option<i64>| {
                let ns = ns.filter(|_| is_connected);
                ns.map(|ns| Value::Float(ns as f64 / NS_PER_S as f64))
            };
            let values = [
                Some(Value::Bool(is_connected)),
                seconds(peer.round_trip_ns),
                seconds(peer.ahead_ns),
                Some(int(peer.samples)),
                Some(int(peer.missed)),
            ];
            for (key, value) in keys.into_iter().zip(values) {
                put(sink, key, now_ns, value);
            }
        }
    }
}

fn declare_peer(
    sink: &mut impl Sink,
    peer: &str,
    interval_ns: i64,
) -> [Option<StreamKey>; OF_PEER.len()] {
    OF_PEER.map(|(name, value_type, unit, kind, help)| {
        let labels = match name.starts_with("peer.") {
            true => Labels::new([("peer", peer), ("method", "cluster")]),
            false => Labels::new([("peer", peer)]),
        };
        // The name of a node is short enough for a label.
        let labels = labels.ok()?;
        let descriptor = Descriptor {
            labels,
            ..descriptor(name, value_type, unit, kind, help)
        };
        declare(sink, &descriptor, interval_ns)
    })
}

fn declare(sink: &mut impl Sink, descriptor: &Descriptor, interval_ns: i64) -> Option<StreamKey> {
    let key = sink.declare(descriptor, None)?;
    sink.expect_interval(key, interval_ns);
    Some(key)
}

fn put(sink: &mut impl Sink, key: Option<StreamKey>, now_ns: i64, value: Option<Value>) {
    if let (Some(key), Some(value)) = (key, value) {
        sink.put(key, &Sample::measured(now_ns, value));
    }
}

fn int(count: u64) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sink that keeps the newest value of each stream.
    #[derive(Default)]
    struct Kept {
        streams: Vec<String>,
        values: BTreeMap<String, Value>,
    }

    impl Sink for Kept {
        fn declare(&mut self, descriptor: &Descriptor, _depth: Option<u32>) -> Option<StreamKey> {
            let name = format!("{}{}", descriptor.name, descriptor.labels);
            self.streams.push(name);
            Some(StreamKey(self.streams.len() as u32 - 1))
        }

        fn retire(&mut self, key: StreamKey) {
            self.values.remove(&self.streams[key.0 as usize]);
        }

        fn put(&mut self, key: StreamKey, sample: &Sample) {
            let name = self.streams[key.0 as usize].clone();
            self.values.insert(name, sample.value.clone());
        }

        fn expect_interval(&mut self, _key: StreamKey, _interval_ns: i64) {}
    }

    fn peer(node: &str, state: &str) -> PeersRow {
        PeersRow {
            node: node.to_owned(),
            state: state.to_owned(),
            heard_ts: 0,
            round_trip_ns: Some(2_000_000),
            ahead_ns: None,
            streams: 3,
            samples: 40,
            missed: 1,
            holes: 0,
            fault: None,
        }
    }

    fn status(samples: u64) -> FabricStatus {
        FabricStatus {
            selectors_left_out: 0,
            subscribers: 1,
            samples,
            bytes: 0,
            past: 0,
            lost: 0,
            unsent: 0,
            unreceived: 0,
            refused: 0,
            catching_up: 0,
            waiting: 0,
            kept: 0,
            unkept_scopes: 0,
            refused_hellos: 0,
            refusals: Vec::new(),
        }
    }

    #[test]
    fn streams_follow_what_the_fabric_knows() {
        let state = ClusterState::default();
        let mut watch = ClusterWatch::new(state.clone(), NS_PER_S);
        let mut kept = Kept::default();
        watch.look(1, &mut kept);
        assert!(kept.streams.is_empty(), "this node is in no cluster");
        state.set(vec![peer("b", "connected"), peer("c", "gone")], status(7));
        watch.look(2, &mut kept);
        let value = |kept: &Kept, name: &str| kept.values.get(name).cloned();
        let round_trip = "peer.round_trip.seconds{method=cluster,peer=b}";
        let expect = [
            ("fabric.connected.count", Value::Int(1)),
            ("fabric.sent.samples", Value::Int(7)),
            ("fabric.connected.flag{peer=b}", Value::Bool(true)),
            ("fabric.connected.flag{peer=c}", Value::Bool(false)),
            ("fabric.missed.samples{peer=c}", Value::Int(1)),
            (round_trip, Value::Float(0.002)),
        ];
        for (name, expected) in expect {
            assert_eq!(
                value(&kept, name),
                Some(expected),
                "{name} of {kept:?}",
                kept = kept.streams
            );
        }
        let of_gone = round_trip.replace("peer=b", "peer=c");
        assert_eq!(value(&kept, &of_gone), None, "nothing is measured of it");
        // Nothing new, and then a node is forgotten.
        watch.look(3, &mut kept);
        state.set(vec![peer("c", "connected")], status(9));
        watch.look(4, &mut kept);
        assert_eq!(value(&kept, round_trip), None);
        assert_eq!(value(&kept, &of_gone), Some(Value::Float(0.002)));
        assert_eq!(kept.streams.len(), OF_NODE.len() + 2 * OF_PEER.len());
        // Somebody shows many nodes.
        let many = |i: usize| peer(&format!("n{i}"), "connected");
        state.set((0..2 * PEERS_MAX).map(many).collect(), status(9));
        watch.look(5, &mut kept);
        assert_eq!(watch.of_peer.len(), PEERS_MAX);
    }
}
