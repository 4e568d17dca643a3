//! Bounds: what a peer can make grow, and what becomes of peers that break them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use barograph_fabric::frame::{
    FeedReach, FrameFault, FrameHeader, FrameKind, HEADER_BYTES, POSITIONS_MAX, Position,
    Subscription, empty_frame,
};
use barograph_fabric::transport::{
    Peer, Refusal, SendFault, Transport, TransportCounts, TransportEvent,
};
use barograph_fabric::{FabricNode, POSITIONS_TOTAL_MAX, Publisher, SUBSCRIBERS_MAX};
use barograph_model::{
    Descriptor, Kind, Labels, NS_PER_S, Name, Sample, SeriesId, Unit, ValueType,
};
use barograph_stream::{Incarnation, RunDir, Segment, SegmentConfig, StreamWriter};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::exercise::{config, receive};

const SELECTORS: [&str; 3] = ["*", "disk.*", "disk.read.bytes{device=vd*}"];
pub(crate) const START_NS: i64 = 1_700_000_000 * NS_PER_S;

pub(crate) fn header(kind: FrameKind, feed: u64, number: u64) -> FrameHeader {
    FrameHeader {
        kind,
        incarnation: Incarnation([1; 16]),
        feed,
        number,
        sent_ns: START_NS,
    }
}

pub(crate) fn subscription(window_bytes: u64, streams_max: u64) -> Subscription {
    Subscription {
        selectors: vec!["*".into()],
        window_bytes,
        streams_max,
        positions: Vec::new(),
        reach: FeedReach::Rings,
        scope: "".into(),
        newest_life_ns: 0,
    }
}

/// A segment with streams of whole numbers, and its publisher.
pub(crate) fn owner(streams: usize) -> (tempfile::TempDir, Segment, Vec<StreamWriter>, Publisher) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    let mut segment = Segment::create(&path, SegmentConfig::new("owner"), START_NS).unwrap();
    let descriptor = |i: usize| Descriptor {
        name: Name::new("test.value").unwrap(),
        labels: Labels::new([("i", i.to_string())]).unwrap(),
        value_type: ValueType::Int,
        unit: Unit::new("").unwrap(),
        kind: Kind::Gauge,
        help: String::new(),
    };
    let register = |i| segment.register(&descriptor(i), Some(1 << 14), START_NS);
    let writers = (0..streams)
        .map(register)
        .collect::<Result<_, _>>()
        .unwrap();
    let publisher = Publisher::new(Arc::new(segment.reader().unwrap()));
    (dir, segment, writers, publisher)
}

pub(crate) fn subscribe(
    publisher: &mut Publisher,
    node: &str,
    feed: u64,
    wanted: &Subscription,
) -> bool {
    let frame = wanted.write(&header(FrameKind::Subscribe, feed, 0));
    publisher.receive(&node.into(), &frame, START_NS).unwrap()
}

#[test]
fn a_window_bounds_what_is_on_the_way() {
    let (_dir, _segment, mut writers, mut publisher) = owner(1);
    for i in 0..16_000i64 {
        let value = i.wrapping_mul(0x9E37_79B9_7F4A_7C15u64 as i64);
        writers[0]
            .append(&Sample::measured(START_NS + i, value))
            .unwrap();
    }
    subscribe(&mut publisher, "slow", 1, &subscription(1 << 16, 8));
    let mut sent = 0;
    let mut newest = 0;
    while let Some((_, frame)) = publisher.due(START_NS) {
        sent += frame.len();
        newest += 1;
    }
    assert!(
        (1 << 16..1 << 18).contains(&sent),
        "{sent} bytes on the way"
    );
    assert_eq!(
        publisher.due(START_NS + NS_PER_S),
        None,
        "the window is full"
    );
    let acknowledge = empty_frame(&header(FrameKind::Acknowledge, 1, newest));
    assert!(
        publisher
            .receive(&"slow".into(), &acknowledge, START_NS)
            .unwrap()
    );
    assert!(publisher.due(START_NS).is_some());
}

#[test]
fn no_more_streams_are_sent_than_there_is_room_for() {
    let (_dir, _segment, _writers, mut publisher) = owner(20);
    subscribe(&mut publisher, "small", 1, &subscription(1 << 16, 8));
    while publisher.due(START_NS).is_some() {}
    assert_eq!(publisher.counts().unsent_streams, 12);
}

#[test]
fn the_number_of_subscribers_is_bounded_and_silent_ones_are_forgotten() {
    let (_dir, _segment, _writers, mut publisher) = owner(1);
    let wanted = subscription(1 << 16, 8);
    for i in 0..SUBSCRIBERS_MAX {
        assert!(subscribe(&mut publisher, &format!("node{i}"), 1, &wanted));
    }
    assert!(!subscribe(&mut publisher, "one.more", 1, &wanted));
    assert!(
        subscribe(&mut publisher, "node7", 2, &wanted),
        "a known node may ask again"
    );
    assert_eq!(publisher.subscribers(), SUBSCRIBERS_MAX);
    assert_eq!(publisher.refused(), 1);
    while publisher.due(START_NS + 11 * NS_PER_S).is_some() {}
    assert_eq!(publisher.subscribers(), 0);
}

#[test]
fn positions_of_all_subscribers_together_are_bounded() {
    let (_dir, _segment, _writers, mut publisher) = owner(1);
    let position = |i: usize| Position {
        series: SeriesId((i as u128).to_le_bytes()),
        life_ns: START_NS,
        number: 1,
    };
    let wanted = Subscription {
        positions: (0..POSITIONS_MAX).map(position).collect(),
        ..subscription(1 << 16, 8)
    };
    let room = POSITIONS_TOTAL_MAX / POSITIONS_MAX;
    for i in 0..room {
        assert!(subscribe(&mut publisher, &format!("node{i}"), 1, &wanted));
    }
    assert!(!subscribe(&mut publisher, "one.more", 1, &wanted));
    assert_eq!(publisher.refused(), 1);
    assert!(subscribe(
        &mut publisher,
        "small",
        1,
        &subscription(1 << 16, 8)
    ));
    assert!(
        subscribe(&mut publisher, "node7", 2, &wanted),
        "its own feed makes room"
    );
    assert_eq!(publisher.subscribers(), room + 1);
}

#[test]
fn every_subscriber_has_its_turn() {
    let (_dir, _segment, mut writers, mut publisher) = owner(1);
    for node in ["a", "b", "c"] {
        subscribe(&mut publisher, node, 1, &subscription(1 << 20, 8));
    }
    for i in 0..16_000i64 {
        let value = i.wrapping_mul(0x9E37_79B9_7F4A_7C15u64 as i64);
        writers[0]
            .append(&Sample::measured(START_NS + i, value))
            .unwrap();
    }
    let served: Vec<Arc<str>> = (0..6).map(|_| publisher.due(START_NS).unwrap().0).collect();
    let served: Vec<&str> = served.iter().map(|node| &**node).collect();
    assert_eq!(served, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn messages_of_other_feeds_change_nothing() {
    let (_dir, _segment, _writers, mut publisher) = owner(1);
    let node: Arc<str> = "a".into();
    subscribe(&mut publisher, "a", 5, &subscription(1 << 16, 8));
    for kind in [FrameKind::Acknowledge, FrameKind::Unsubscribe] {
        let stray = empty_frame(&header(kind, 4, 1));
        assert!(!publisher.receive(&node, &stray, START_NS).unwrap());
    }
    let samples = empty_frame(&header(FrameKind::Samples, 5, 1));
    let refused = publisher.receive(&node, &samples, START_NS);
    assert_eq!(refused, Err(FrameFault::Kind { kind: 1 }));
    assert_eq!(publisher.subscribers(), 1);
    let end = empty_frame(&header(FrameKind::Unsubscribe, 5, 0));
    assert!(publisher.receive(&node, &end, START_NS).unwrap());
    assert_eq!(publisher.subscribers(), 0);
}

#[test]
fn a_subscription_that_arrives_late_changes_nothing() {
    let (_dir, _segment, _writers, mut publisher) = owner(1);
    let node: Arc<str> = "a".into();
    let wanted = subscription(1 << 16, 8);
    assert!(subscribe(&mut publisher, "a", 6, &wanted));
    assert!(!subscribe(&mut publisher, "a", 5, &wanted));
    let (_, frame) = publisher.due(START_NS).unwrap();
    assert_eq!(FrameHeader::read(&frame).unwrap().0.feed, 6);

    let restarted = FrameHeader {
        incarnation: Incarnation([2; 16]),
        ..header(FrameKind::Subscribe, 5, 0)
    };
    let frame = wanted.write(&restarted);
    assert!(publisher.receive(&node, &frame, START_NS).unwrap());
    let (_, frame) = publisher.due(START_NS).unwrap();
    assert_eq!(FrameHeader::read(&frame).unwrap().0.feed, 5);
}

const REACHES: [FeedReach; 3] = [FeedReach::Newest, FeedReach::Rings, FeedReach::Archive];

/// A network on which many nodes are connected.
#[derive(Default)]
struct Crowd {
    nodes: BTreeSet<Arc<str>>,
    events: VecDeque<TransportEvent>,
}

impl Transport for Crowd {
    fn send(&mut self, _: &str, _: Vec<u8>) -> Result<(), SendFault> {
        Ok(())
    }

    fn receive(&mut self, _: i64) -> Option<TransportEvent> {
        self.events.pop_front()
    }

    fn peers(&self) -> Vec<Peer> {
        let peer = |node: &Arc<str>| Peer {
            node: Arc::clone(node),
            round_trip_ns: None,
        };
        self.nodes.iter().map(peer).collect()
    }

    fn refusals(&self) -> Vec<Refusal> {
        Vec::new()
    }

    fn counts(&self) -> TransportCounts {
        TransportCounts::default()
    }
}

#[test]
fn a_node_for_which_there_was_no_room_is_taken_in_when_there_is() {
    const NODES_MAX: usize = 4_096;
    let (dir, segment, ..) = owner(1);
    let config = config(&RunDir::new(dir.path()));
    let name = |number: usize| -> Arc<str> { format!("n{number:04}").into() };
    let crowd = Crowd {
        nodes: (0..=NODES_MAX).map(name).collect(),
        events: (0..=NODES_MAX)
            .map(|n| TransportEvent::Appeared(name(n)))
            .collect(),
    };
    let reader = Arc::new(segment.reader().unwrap());
    let mut node = FabricNode::new(crowd, reader, config, START_NS);
    node.step(START_NS);
    node.step(START_NS);
    assert_eq!(node.connected().count(), NODES_MAX);
    let refusals = node.status().refusals;
    assert!(
        refusals.len() == 1 && refusals[0].contains("n4096: 4096 nodes"),
        "{refusals:?}"
    );
    let crowd = node.transport();
    crowd.nodes.pop_first();
    crowd.events.push_back(TransportEvent::Gone(name(0)));
    node.step(START_NS + NS_PER_S);
    node.step(START_NS + 2 * NS_PER_S);
    assert_eq!(node.connected().count(), NODES_MAX, "the last one is known");
    assert!(node.connected().any(|known| *known == name(NODES_MAX)));
    // All places are taken, and nobody is left out.
    assert_eq!(node.status().refusals, Vec::<String>::new());
}

proptest! {
    #[test]
    fn subscriptions_return(
        selectors in vec(prop::sample::select(SELECTORS.to_vec()), 0..5),
        numbers in (any::<u64>(), any::<u64>()),
        reach in prop::sample::select(REACHES.to_vec()),
        positions in vec((any::<[u8; 16]>(), any::<i64>(), any::<u64>()), 0..20),
        newest_life_ns in any::<i64>(),
        scope in prop::sample::select(vec!["", "all", "u1000", "g4294967295"]),
    ) {
        let position = |(series, life_ns, number)| Position {
            series: SeriesId(series),
            life_ns,
            number,
        };
        let wanted = Subscription {
            selectors: selectors.into_iter().map(String::from).collect(),
            window_bytes: numbers.0,
            streams_max: numbers.1,
            reach,
            newest_life_ns,
            scope: scope.into(),
            positions: positions.into_iter().map(position).collect(),
        };
        let frame = wanted.write(&header(FrameKind::Subscribe, 1, 0));
        let (_, body) = FrameHeader::read(&frame).unwrap();
        let (read, parsed) = Subscription::read(body).unwrap();
        prop_assert_eq!(parsed.len(), wanted.selectors.len());
        prop_assert_eq!(read, wanted);
    }

    #[test]
    fn any_subscription_is_read_or_refused(body in vec(any::<u8>(), 0..200)) {
        let _ = Subscription::read(&body);
    }

    #[test]
    fn any_message_of_a_peer_is_taken_or_refused(
        choice in 0u8..8,
        body in vec(any::<u8>(), 0..200),
    ) {
        receive(&[&[choice], &body[..]].concat());
    }

    #[test]
    fn any_message_is_read_or_refused(frame in vec(any::<u8>(), 0..2 * HEADER_BYTES)) {
        let _ = FrameHeader::read(&frame);
    }
}
