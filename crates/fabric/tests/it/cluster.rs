//! Whole nodes over a transport in memory, on virtual time.

use std::sync::Arc;

use barograph_fabric::frame::FrameKind;
use barograph_fabric::transport::{
    HELLO_VERSION, Hello, MemoryNetwork, MemoryTransport, Peer, Refusal, SendFault, Transport,
    TransportCounts, TransportEvent,
};
use barograph_fabric::{FabricNode, MirrorBounds, NodeConfig};
use barograph_model::{
    Descriptor, Kind, Labels, NS_PER_S, Name, Pattern, Sample, Unit, Value, ValueType,
};
use barograph_stream::{
    Incarnation, LatestSample, PeersRow, RunDir, ScopeChoice, Segment, SegmentConfig,
    SegmentFollower, SegmentReader, StreamWriter,
};

use crate::bounds::{header, subscription};
use crate::exercise::sealed;

pub(crate) const START_NS: i64 = 1_700_000_000 * NS_PER_S;

pub(crate) fn hello(cluster: &str, node: &str, number: u8) -> Hello {
    Hello {
        version: HELLO_VERSION,
        incarnation: Incarnation([number; 16]),
        start_ns: START_NS,
        cluster: cluster.into(),
        node: node.into(),
    }
}

/// A node with streams of its own, over a transport in memory.
pub(crate) struct Member<T = MemoryTransport> {
    name: String,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) segment: Segment,
    pub(crate) writers: Vec<StreamWriter>,
    pub(crate) node: FabricNode<T>,
}

impl Member {
    pub(crate) fn new(network: &MemoryNetwork, name: &str, number: u8, now_ns: i64) -> Self {
        Self::with(network, name, number, now_ns, 16, 64)
    }

    pub(crate) fn with(
        network: &MemoryNetwork,
        name: &str,
        number: u8,
        now_ns: i64,
        mirrors_max: usize,
        streams_max: usize,
    ) -> Self {
        let transport = network.join(hello("rack", name, number)).unwrap();
        Member::over(transport, name, number, now_ns, mirrors_max, streams_max)
    }
}

impl<T: Transport> Member<T> {
    pub(crate) fn over(
        transport: T,
        name: &str,
        number: u8,
        now_ns: i64,
        mirrors_max: usize,
        streams_max: usize,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let config = SegmentConfig {
            incarnation: Some(Incarnation([number; 16])),
            ..SegmentConfig::new(name)
        };
        let mut segment = Segment::create(&run_dir.segment(), config, now_ns).unwrap();
        let writers = (0..3)
            .map(|i| segment.register(&descriptor(i), Some(256), now_ns).unwrap())
            .collect();
        let config = NodeConfig {
            run_dir,
            incarnation: Incarnation([number; 16]),
            nodes: vec![Pattern::new("*")],
            wanted: vec!["test.*".into()],
            scopes: vec![Pattern::new("all"), Pattern::new("u7?")],
            mirrors_max,
            bounds: MirrorBounds {
                streams_max,
                depth_max: 256,
                ring_bytes_max: 16 << 20,
            },
            window_bytes: 256 << 10,
        };
        let reader = Arc::new(segment.reader().unwrap());
        let node = FabricNode::new(transport, reader, config, now_ns);
        Self {
            name: name.to_owned(),
            dir,
            segment,
            writers,
            node,
        }
    }

    pub(crate) fn put(&mut self, now_ns: i64, value: i64) {
        for (stream, writer) in self.writers.iter_mut().enumerate() {
            let sample = Sample::measured(now_ns, value + stream as i64);
            writer.append(&sample).unwrap();
        }
        self.segment.heartbeat(now_ns);
    }

    /// The newest values of the mirror of a node, and whether its owner was heard lately.
    fn mirrored(&self, node: &str, now_ns: i64) -> Option<(Vec<Value>, bool)> {
        let run_dir = RunDir::new(self.dir.path());
        let follower: SegmentFollower<barograph_stream::DirectoryEntry> =
            SegmentFollower::open(&run_dir, ScopeChoice::None, 0, now_ns)
                .unwrap()
                .with_mirrors(now_ns)
                .unwrap();
        let part = follower
            .parts()
            .iter()
            .find(|part| part.id.is_mirror && *part.id.node == *node)?;
        let newest = |entry: &Arc<barograph_stream::DirectoryEntry>| {
            let reader = part.segment.stream(entry);
            match reader.latest() {
                LatestSample::Sample { sample, .. } => Some(sample.value),
                LatestSample::Empty | LatestSample::Gone => None,
            }
        };
        let values = part.streams.iter().filter_map(newest).collect();
        Some((values, part.segment.is_alive(now_ns)))
    }

    pub(crate) fn peer(&self, node: &str) -> PeersRow {
        let peers = self.node.peers();
        peers.into_iter().find(|peer| peer.node == node).unwrap()
    }
}

pub(crate) fn descriptor(i: usize) -> Descriptor {
    Descriptor {
        name: Name::new("test.value").unwrap(),
        labels: Labels::new([("i", i.to_string())]).unwrap(),
        value_type: ValueType::Int,
        unit: Unit::new("").unwrap(),
        kind: Kind::Gauge,
        help: String::new(),
    }
}

fn ints(values: [i64; 3]) -> Vec<Value> {
    values.map(Value::Int).to_vec()
}

#[test]
fn a_mirror_follows_its_node_and_says_when_it_is_gone() {
    let network = MemoryNetwork::default();
    let mut now_ns = START_NS;
    let mut a = Member::new(&network, "a", 1, now_ns);
    let mut b = Member::new(&network, "b", 2, now_ns);
    for step in 0..40 {
        now_ns += NS_PER_S / 10;
        b.put(now_ns, step);
        a.node.step(now_ns);
        b.node.step(now_ns);
        a.node.step(now_ns);
    }
    assert_eq!(a.mirrored("b", now_ns), Some((ints([39, 40, 41]), true)));
    assert_eq!(
        b.mirrored("a", now_ns),
        Some((Vec::new(), true)),
        "its streams have no samples"
    );
    let peer = a.peer("b");
    assert_eq!(
        (peer.state.as_str(), peer.streams, peer.samples),
        ("connected", 3, 120)
    );
    assert_eq!((peer.missed, peer.holes, peer.ahead_ns), (0, 0, Some(0)));

    // How often the node looks is known, also when that changes.
    b.segment.expect_interval(&b.writers[0], 7 * NS_PER_S);
    for step in 40..60 {
        now_ns += NS_PER_S / 10;
        b.put(now_ns, step.min(39));
        b.node.step(now_ns);
        a.node.step(now_ns);
    }
    let mirror = SegmentReader::of(&RunDir::new(a.dir.path()).mirror("b")).unwrap();
    let entries = mirror.directory().entries;
    let entry = entries.iter().find(|e| e.descriptor == descriptor(0));
    assert_eq!(mirror.interval_ns(entry.unwrap()), 7 * NS_PER_S);

    // The node goes: what is known stays, and is stale.
    drop(b);
    for _ in 0..80 {
        now_ns += NS_PER_S / 10;
        a.node.step(now_ns);
    }
    assert_eq!(a.mirrored("b", now_ns), Some((ints([39, 40, 41]), false)));
    assert_eq!(a.peer("b").state, "gone");

    // It returns with another life, whose samples replace those of the earlier one.
    let mut b = Member::new(&network, "b", 3, now_ns);
    for step in 0..20 {
        now_ns += NS_PER_S / 10;
        b.put(now_ns, 1_000 + step);
        a.node.step(now_ns);
        b.node.step(now_ns);
        a.node.step(now_ns);
    }
    let expect = ints([1_019, 1_020, 1_021]);
    assert_eq!(a.mirrored("b", now_ns), Some((expect, true)));
    assert_eq!(a.peer("b").state, "connected");

    // A node that has long gone is forgotten.
    drop(b);
    for _ in 0..700 {
        now_ns += NS_PER_S;
        a.node.step(now_ns);
    }
    assert_eq!(a.mirrored("b", now_ns), None);
    assert_eq!(a.node.peers(), []);
}

#[test]
fn refusals_are_told_for_as_long_as_they_are_so() {
    let network = MemoryNetwork::default();
    let mut a = Member::new(&network, "a", 1, START_NS);
    let strangers = [("other", "b"), ("other", "b"), ("rack", "a")];
    let strangers = strangers.map(|(cluster, node)| network.join(hello(cluster, node, 2)).unwrap());
    a.node.step(START_NS);
    let status = a.node.status();
    let [of_b, of_a] = &status.refusals[..] else {
        panic!("each reason is told once: {:?}", status.refusals);
    };
    assert!(of_b.contains("rename one") || of_a.contains("rename one"));
    assert!(of_b.contains("cluster other") || of_a.contains("cluster other"));
    assert_eq!(status.refused_hellos, 3);
    drop(strangers);
    a.node.step(START_NS + 1);
    let status = a.node.status();
    assert!(status.refusals.is_empty(), "{:?}", status.refusals);
    assert_eq!(status.refused_hellos, 3);
}

#[test]
fn frames_of_a_newer_version_are_counted() {
    let network = MemoryNetwork::default();
    let mut a = Member::new(&network, "a", 1, START_NS);
    let mut b = network.join(hello("rack", "b", 2)).unwrap();
    a.node.step(START_NS);
    let subscribe = subscription(1 << 16, 8).write(&header(FrameKind::Subscribe, 1, 0));
    for (refused, mut frame) in [subscribe, sealed(FrameKind::Samples, &[])]
        .into_iter()
        .enumerate()
    {
        let version = &mut frame[4];
        *version += 1;
        b.send("a", frame).unwrap();
        a.node.step(START_NS + 1);
        assert_eq!(a.node.status().unreceived, refused as u64 + 1);
    }
    let fault = a.peer("b").fault.unwrap_or_default();
    assert!(fault.contains("install the newer barograph"), "{fault}");
    assert_eq!(a.node.status().subscribers, 0);
}

#[test]
fn the_number_of_mirrors_and_of_their_streams_is_bounded() {
    let network = MemoryNetwork::default();
    let mut now_ns = START_NS;
    let mut here = Member::with(&network, "here", 1, now_ns, 2, 2);
    let mut others: Vec<Member> = (2..6)
        .map(|n| Member::new(&network, &format!("n{n}"), n, now_ns))
        .collect();
    for step in 0..30 {
        now_ns += NS_PER_S / 10;
        for other in &mut others {
            other.put(now_ns, step);
            other.node.step(now_ns);
        }
        here.node.step(now_ns);
    }
    let peers = here.node.peers();
    assert_eq!(peers.len(), 4);
    let streams: u64 = peers.iter().map(|peer| peer.streams).sum();
    assert_eq!(streams, 4, "two streams of two nodes: {peers:?}");
    let refused = |peer: &&PeersRow| {
        let fault = peer.fault.as_deref();
        fault.is_some_and(|fault| fault.contains("cluster.mirrors_max"))
    };
    assert_eq!(peers.iter().filter(refused).count(), 2, "{peers:?}");

    // Mirrored nodes go and are forgotten: there is room for the others.
    let mirrored = |name: &str| {
        peers
            .iter()
            .any(|peer| peer.node == name && peer.streams > 0)
    };
    others.retain(|other| !mirrored(&other.name));
    for step in 0..700 {
        now_ns += NS_PER_S;
        for other in &mut others {
            other.put(now_ns, step);
            other.node.step(now_ns);
        }
        here.node.step(now_ns);
    }
    let peers = here.node.peers();
    let is_mirrored = |peer: &PeersRow| peer.streams == 2 && peer.fault.is_none();
    assert!(
        peers.len() == 2 && peers.iter().all(is_mirrored),
        "{peers:?}"
    );
}

/// Pseudo-random numbers, the same for the same seed (xorshift).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// A transport that loses, doubles, delays and reorders messages until it is healed.
pub(crate) struct BadTransport {
    inner: MemoryTransport,
    dice: Dice,
    held: Vec<TransportEvent>,
    pub(crate) is_healed: bool,
}

impl BadTransport {
    pub(crate) fn new(inner: MemoryTransport, seed: u64) -> Self {
        Self {
            inner,
            dice: Dice(seed | 1),
            held: Vec::new(),
            is_healed: false,
        }
    }
}

impl Transport for BadTransport {
    fn send(&mut self, to: &str, message: Vec<u8>) -> Result<(), SendFault> {
        self.inner.send(to, message)
    }

    fn receive(&mut self, deadline_ns: i64) -> Option<TransportEvent> {
        if !self.held.is_empty() && (self.is_healed || self.dice.roll(4) == 0) {
            let at = self.dice.roll(self.held.len() as u64) as usize;
            return Some(self.held.swap_remove(at));
        }
        loop {
            let event = self.inner.receive(deadline_ns)?;
            if self.is_healed || !matches!(event, TransportEvent::Message { .. }) {
                return Some(event);
            }
            match self.dice.roll(10) {
                0 => {}
                1 => {
                    self.held.push(event.clone());
                    return Some(event);
                }
                2 | 3 => self.held.push(event),
                _ => return Some(event),
            }
        }
    }

    fn peers(&self) -> Vec<Peer> {
        self.inner.peers()
    }

    fn refusals(&self) -> Vec<Refusal> {
        self.inner.refusals()
    }

    fn counts(&self) -> TransportCounts {
        self.inner.counts()
    }
}

/// A sample: its number, time and value.
type Numbered = (u64, i64, Value);

/// The samples of the first stream of a segment, oldest first.
fn ring_of(segment: &SegmentReader) -> Vec<Numbered> {
    let directory = segment.directory();
    let Some(entry) = directory
        .entries
        .iter()
        .find(|e| e.descriptor == descriptor(0))
    else {
        return Vec::new();
    };
    let mut samples = Vec::new();
    let scan = segment.stream(entry).scan_some(0, u64::MAX, &mut samples);
    // The numbers of a mirror are those of the owner, and a ring has no hole.
    let first = scan.unwrap().lost + 1;
    let numbered = (first..).zip(samples);
    numbered.map(|(n, s)| (n, s.ts, s.value)).collect()
}

/// Time by which the mirrors go on after the network has healed.
const HEALED_NS: i64 = START_NS + 220 * (NS_PER_S / 20);

/// Three nodes over a bad network, of which one restarts: what a mirror has was written by its
/// owner, in that order and once; after the network has healed it has the newest, and nothing is
/// stale.
fn check_bad_network(seed: u64) {
    let network = MemoryNetwork::default();
    let mut now_ns = START_NS;
    let names = ["a", "b", "c"];
    let member = |at: usize, number: u8, now_ns: i64, dice: u64| {
        let inner = network.join(hello("rack", names[at], number)).unwrap();
        Member::over(
            BadTransport::new(inner, dice),
            names[at],
            number,
            now_ns,
            16,
            64,
        )
    };
    let mut dice = Dice(seed | 1);
    let mut members: Vec<Member<BadTransport>> = (0..3)
        .map(|at| member(at, at as u8 + 1, now_ns, dice.roll(u64::MAX)))
        .collect();
    let mut truth: [Vec<Numbered>; 3] = Default::default();
    let mut value = 0;
    for round in 0..300 {
        now_ns += NS_PER_S / 20;
        if round == 120 {
            // A killed agent: its successor has another life and an empty segment.
            let killed = members.remove(1);
            drop(killed);
            members.insert(1, member(1, 9, now_ns, dice.roll(u64::MAX)));
        }
        if round == 200 {
            members
                .iter_mut()
                .for_each(|m| m.node.transport().is_healed = true);
        }
        // In the last rounds everything arrives.
        let puts = if round < 290 { 4 } else { 1 };
        for (at, member) in members.iter_mut().enumerate() {
            for _ in 0..dice.roll(puts) {
                value += 1;
                member.put(now_ns + value, value);
                let number = member.writers[0].count();
                truth[at].push((number, now_ns + value, Value::Int(value)));
            }
        }
        for _ in 0..=dice.roll(3) {
            let at = dice.roll(3) as usize;
            members[at].node.step(now_ns);
        }
        members.iter_mut().for_each(|m| _ = m.node.step(now_ns));
    }
    for here in &members {
        for (of, owner) in members.iter().enumerate() {
            if owner.name != here.name {
                check_mirror(here, owner, &truth[of], now_ns, seed);
            }
        }
    }
}

/// Checks the mirror of a node after the network has healed.
fn check_mirror(
    here: &Member<BadTransport>,
    owner: &Member<BadTransport>,
    put: &[Numbered],
    now_ns: i64,
    seed: u64,
) {
    let which = format!("seed {seed}: {} at {}", owner.name, here.name);
    let run_dir = RunDir::new(here.dir.path());
    let mirror = SegmentReader::of(&run_dir.mirror(&owner.name)).unwrap();
    assert!(mirror.is_alive(now_ns), "{which}");
    let mirrored = ring_of(&mirror);
    let own = ring_of(&owner.segment.reader().unwrap());
    assert_eq!(mirrored.last(), own.last(), "{which}: the newest");
    // Each once and in order: a subsequence of what was ever put.
    let mut all = put.iter();
    let strange = mirrored
        .iter()
        .find(|sample| !all.any(|put| put == *sample));
    assert_eq!(strange, None, "{which}");
    // Everything since the network has healed is there.
    let since = |ring: Vec<Numbered>| -> Vec<Numbered> {
        let new = ring.into_iter().filter(|(_, ts, _)| *ts > HEALED_NS);
        new.collect()
    };
    assert_eq!(since(mirrored), since(own), "{which}");
}

#[test]
fn mirrors_converge_over_a_bad_network() {
    crate::seeds(40).for_each(check_bad_network);
}
