//! Tests of requests about another node: its mirror is read, which is a segment in the run
//! directory.

use barograph_model::{Clock as _, Sample, ValueType};
use barograph_stream::{PEERS_DOCUMENT, PeersRow, Segment, SegmentConfig, StreamWriter};
use serde_json::{Value as Json, json};

use crate::client::{Events, unix};
use crate::fixture::{Fixture, S, T0, descriptor, is_demanded, until};

const LATEST: &str = "/api/v1/latest?match=disk.*";

/// The mirror of another node, with one stream.
struct Mirror {
    segment: Segment,
    writer: StreamWriter,
}

impl Mirror {
    fn open(fixture: &Fixture, node: &str) -> Self {
        let dir = fixture.run_dir.mirror(node);
        std::fs::create_dir_all(dir.path()).unwrap();
        let config = SegmentConfig {
            streams_max: 8,
            ..SegmentConfig::new(node)
        };
        let mut segment = Segment::create(&dir.segment(), config, T0).unwrap();
        let of = descriptor("disk.read.bytes", "vdb", ValueType::Int);
        let writer = segment.register(&of, None, T0).unwrap();
        Self { segment, writer }
    }

    /// Takes in a value, as if it came of the owner now.
    fn put(&mut self, fixture: &Fixture, value: i64) {
        let now_ns = fixture.clock.now_ns();
        self.writer.look(&Sample::measured(now_ns, value)).unwrap();
        self.segment.heartbeat(now_ns);
    }
}

/// A node that has another one as b.
fn cluster() -> (Fixture, StreamWriter, Mirror) {
    let mut fixture = Fixture::new();
    let of = descriptor("disk.read.bytes", "vda", ValueType::Int);
    let mut own = fixture.register(&of);
    own.look(&Sample::measured(T0, 1)).unwrap();
    let mut mirror = Mirror::open(&fixture, "b");
    mirror.put(&fixture, 2);
    (fixture, own, mirror)
}

/// The fields of the first element.
fn first<const N: usize>(answer: &Json, fields: [&str; N]) -> [Json; N] {
    fields.map(|field| answer[0][field].clone())
}

#[test]
fn another_node_is_read_by_its_name() {
    let (fixture, _own, mut mirror) = cluster();
    let fields = ["value", "age_ns", "stale"];
    let values = |query: &str| first(&fixture.get(&format!("{LATEST}{query}")), fields);
    assert_eq!(values(""), [json!(1), json!(0), json!(false)]);
    assert_eq!(values("&node=n1"), values(""));
    assert_eq!(values("&node=b"), [json!(2), json!(0), json!(false)]);
    fixture.clock.advance(2 * S);
    assert_eq!(values("&node=b"), [json!(2), json!(2 * S), json!(false)]);
    mirror.put(&fixture, 3);
    assert_eq!(values("&node=b"), [json!(3), json!(0), json!(false)]);
    let streams = fixture.get("/api/v1/streams?node=b");
    assert_eq!(streams.as_array().unwrap().len(), 1);
    assert_eq!(streams[0]["labels"], json!({ "device": "vdb" }));
    let path = "/api/v1/history?match=disk.*";
    let past = fixture.get(&format!("{path}&node=b"));
    assert_eq!(first(&past, ["node", "value"]), [json!("b"), json!([2, 3])]);
    let buckets = fixture.get(&format!("{path}&step=1s&node=b"));
    assert_eq!(buckets[0]["node"], json!("b"));
    for query in ["", "&node=n1"] {
        let past = fixture.get(&format!("{path}{query}"));
        assert_eq!(first(&past, ["node", "value"]), [json!("n1"), json!([1])]);
    }
}

#[test]
fn a_node_that_is_not_heard_is_stale() {
    let (fixture, _own, mut mirror) = cluster();
    let is_stale = |query: &str| fixture.get(&format!("{LATEST}{query}"))[0]["stale"].clone();
    fixture.clock.advance(6 * S);
    fixture.segment.heartbeat(T0 + 6 * S);
    assert_eq!(
        (is_stale("&node=b"), is_stale("")),
        (json!(true), json!(false))
    );
    mirror.put(&fixture, 3);
    assert_eq!(is_stale("&node=b"), json!(false));
    // It is heard, and the next look at the resource is overdue.
    mirror.segment.expect_interval(&mirror.writer, S);
    fixture.clock.advance(4 * S);
    mirror.segment.heartbeat(T0 + 10 * S);
    assert_eq!(is_stale("&node=b"), json!(true));
    mirror.put(&fixture, 4);
    mirror.segment.close();
    assert_eq!(is_stale("&node=b"), json!(true));
}

#[test]
fn another_node_is_watched_over_its_silence_and_its_next_life() {
    let (fixture, mut own, mut mirror) = cluster();
    let mut events = fixture.watch("match=disk.*&node=b&every_ms=50");
    let streams = events.next_named("streams");
    let told = |list: &Json| (list.as_array().unwrap().len(), list[0]["labels"].clone());
    assert_eq!(told(&streams.data), (1, json!({ "device": "vdb" })));
    assert_eq!(next_value(&mut events), json!([0, T0, 2, "measured", 0.0]));
    // What this node writes is not told, and its heartbeat is not that of the other node.
    own.look(&Sample::measured(T0 + 1, 7)).unwrap();
    mirror.put(&fixture, 3);
    assert_eq!(next_value(&mut events)[2], json!(3));
    fixture.clock.advance(6 * S);
    fixture.segment.heartbeat(T0 + 6 * S);
    assert_eq!(events.next_named("stale").data, json!({ "since": T0 }));
    mirror.put(&fixture, 4);
    assert_eq!(next_value(&mut events)[2], json!(4));
    // The mirror is gone, and begins anew.
    let before = streams.id;
    std::fs::remove_dir_all(fixture.run_dir.path().join("nodes")).unwrap();
    mirror.segment.close();
    events.next_named("stale");
    mirror = Mirror::open(&fixture, "b");
    mirror.put(&fixture, 5);
    assert_ne!(events.next_named("streams").id, before);
    assert_eq!(next_value(&mut events)[2], json!(5));
    // The name of this node is this node.
    let mut events = fixture.watch("match=disk.*&node=n1&every_ms=50");
    let streams = events.next_named("streams");
    assert_eq!(told(&streams.data), (1, json!({ "device": "vda" })));
}

/// The next sample that a watch tells.
fn next_value(events: &mut Events) -> Json {
    loop {
        let tick = events.next_named("tick").data;
        if let Some(sample) = tick["samples"].get(0) {
            return sample.clone();
        }
    }
}

#[test]
fn a_node_that_is_not_mirrored_is_unknown() {
    let (fixture, _own, mirror) = cluster();
    let check = |node: &str, status: u16, part: &str| {
        for path in [
            "latest?",
            "streams?",
            "watch?",
            "history?",
            "history?start=1&stop=1&",
        ] {
            let line = format!("GET /api/v1/{path}node={node}");
            let response = fixture.ask(&line, &[], b"");
            assert_eq!(response.status, status, "{line}: {}", response.text());
            assert!(
                response.text().contains(part),
                "{line}: {}",
                response.text()
            );
        }
    };
    check(
        "x",
        404,
        "no node x is mirrored here (mirrored: b): `baro node list`",
    );
    check("B", 404, "did you mean b?");
    for name in ["", "..", "../nodes/b", "b/../b", "%2e%2e%2fnodes%2fb"] {
        check(name, 404, "is mirrored here (mirrored: b)");
    }
    check("b&node=b", 400, "node is given twice");
    check("b&macht=x", 400, "unknown parameter");
    // The agent has forgotten it.
    std::fs::remove_dir_all(fixture.run_dir.path().join("nodes")).unwrap();
    drop(mirror);
    check("b", 404, "(mirrored: none)");
}

#[test]
fn a_watch_of_another_node_demands_its_streams() {
    let (fixture, _own, _mirror) = cluster();
    let mut events = fixture.watch("match=disk.*&match=a.of.watch&node=b&every_ms=50");
    assert_eq!(events.next().unwrap().name, "streams");
    let demand = "disk.* a.of.watch of b";
    assert!(is_demanded(demand));
    drop(events);
    until(|| !is_demanded(demand));
    let _own = fixture.watch("match=a.of.own&node=n1&every_ms=50");
    assert!(!is_demanded("a.of.own of n1"));
    let _mirrored = fixture.watch("match=a.of.page&node=b&demand=0");
    assert!(!is_demanded("a.of.page of b"));
    // Without room for it, the watch shows what is mirrored, and says so once.
    let mut events = fixture.watch("match=disk.*&match=refused&node=b&every_ms=50");
    let told = events.next().unwrap();
    assert_eq!(told.name, "demand");
    let uid = rustix::process::getuid().as_raw();
    let reason = format!("no room for disk.* refused of b of Some({uid})");
    assert_eq!(told.data, json!({ "held": false, "reason": reason }));
    assert_eq!(events.next().unwrap().name, "streams");
    assert_eq!(events.next().unwrap().name, "tick");
    assert_eq!(events.next().unwrap().name, "tick");
}

#[test]
fn a_node_of_which_nothing_is_mirrored_yet_is_waited_for() {
    let (fixture, _own, _mirror) = cluster();
    let peer = |state: &str| {
        let peers = json!([PeersRow {
            node: "c".into(),
            state: state.into(),
            ..PeersRow::default()
        }]);
        let bytes = peers.to_string();
        fixture
            .run_dir
            .publish(PEERS_DOCUMENT, bytes.as_bytes(), 0o644)
            .unwrap();
    };
    let line = "GET /api/v1/watch?match=disk.*&node=c";
    peer("gone");
    assert_eq!(fixture.ask(line, &[], b"").status, 404);
    peer("connected");
    let mut events = fixture.watch("match=disk.*&node=c&every_ms=50");
    let mut mirror = Mirror::open(&fixture, "c");
    mirror.put(&fixture, 7);
    let streams = events.next_named("streams");
    assert_eq!(streams.data.as_array().unwrap().len(), 1);
    assert_eq!(next_value(&mut events)[2], json!(7));
}

#[test]
fn a_demand_carries_nothing_and_ends_with_its_request() {
    let (fixture, _own, _mirror) = cluster();
    let open = |query: &str| {
        let path = format!("/api/v1/demand?{query}");
        Events::open(unix(&fixture.run_dir.read_socket()), &path)
    };
    let mut events = open("match=a.of.demand&node=b");
    let told = events.next().unwrap();
    assert_eq!(
        (&*told.name, told.data),
        ("demand", json!({ "held": true, "reason": null }))
    );
    assert!(is_demanded("a.of.demand of b"));
    drop(events);
    until(|| !is_demanded("a.of.demand of b"));
    let told = open("match=refused&node=b").next().unwrap();
    assert_eq!(told.data["held"], json!(false));
    for (query, status) in [("", 400), ("node=n1", 400), ("node=x", 404)] {
        let line = format!("GET /api/v1/demand?{query}");
        assert_eq!(fixture.ask(&line, &[], b"").status, status, "{query}");
    }
}
