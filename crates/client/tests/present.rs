//! Newest values, selectors, names near a mistaken one, history, and the JSON of the interface.

use std::sync::Arc;

use barograph_client::{
    ClientError, HistoryRange, Observer, RunDir, latest_json, status_json, streams_json,
};
use barograph_model::{ManualClock, NS_PER_S, ValueType};

use crate::node::{Node, START_NS, selector};

const VDA: &str = "disk.read.bytes{device=vda}";
const VDB: &str = "disk.read.bytes{device=vdb}";

#[test]
fn selectors_find_their_streams() {
    let mut node = Node::with(&[
        VDB,
        "disk.write.bytes{device=vda}",
        VDA,
        "memory.free.bytes",
    ]);
    node.put(VDA, 1.0);
    node.put(VDB, 2.0);
    node.put("memory.free.bytes", 3.0);
    let observer = node.observer();
    let check = |pattern: &str, expect: &[(&str, Option<f64>)]| {
        let found = observer.latest(&selector(pattern));
        let found: Vec<(String, Option<f64>)> = found
            .iter()
            .map(|v| {
                (
                    v.descriptor.to_string(),
                    v.sample.as_ref().and_then(|s| s.value.as_f64()),
                )
            })
            .collect();
        let expect: Vec<(String, Option<f64>)> = expect
            .iter()
            .map(|(name, value)| ((*name).into(), *value))
            .collect();
        assert_eq!(found, expect, "{pattern}");
    };
    check("disk.read.bytes", &[(VDA, Some(1.0)), (VDB, Some(2.0))]);
    check("disk.read.bytes{device=vdb}", &[(VDB, Some(2.0))]);
    check(
        "disk.*{device=vda}",
        &[(VDA, Some(1.0)), ("disk.write.bytes{device=vda}", None)],
    );
    check("*.bytes{device=*b}", &[(VDB, Some(2.0))]);
    check("memory.free.bytes", &[("memory.free.bytes", Some(3.0))]);
    check("disk.read", &[]);
    check("zzz", &[]);
    check("aaa", &[]);
}

#[test]
fn age_and_staleness() {
    let mut node = Node::with(&[VDA, VDB]);
    node.expect_interval(VDA, NS_PER_S / 2);
    node.put(VDA, 1.0);
    node.put(VDB, 1.0);
    let observer = node.observer();
    let mut held = observer.stream(&selector(VDA)).unwrap();
    let mut check = |after_ns: i64, age_ns: i64, stale: [bool; 2]| {
        node.clock.advance(after_ns);
        let found = observer.latest(&selector("disk.read.bytes"));
        assert_eq!([found[0].stale, found[1].stale], stale, "after {after_ns}");
        assert_eq!(found[0].age_ns, age_ns);
        assert_eq!(held.latest().unwrap(), found[0]);
    };
    check(0, 0, [false, false]);
    check(3 * NS_PER_S / 2, 3 * NS_PER_S / 2, [false, false]);
    // Three intervals are over; the interval of the other stream is not known.
    check(1, 3 * NS_PER_S / 2 + 1, [true, false]);
    node.segment.heartbeat(START_NS + 2 * NS_PER_S);
    check(6 * NS_PER_S, 15 * NS_PER_S / 2 + 1, [true, true]);
    assert!(!observer.status().unwrap().alive);
}

/// Times from a clock that was set back since prove neither that the agent lives nor that a value
/// is fresh.
#[test]
fn times_of_the_future_prove_nothing() {
    let mut node = Node::with(&[VDA]);
    node.expect_interval(VDA, NS_PER_S / 2);
    let ahead_ns = 3_600 * NS_PER_S;
    node.clock.advance(ahead_ns);
    node.put(VDA, 1.0);
    node.segment.heartbeat(START_NS + ahead_ns);
    node.clock.advance(-ahead_ns);
    let observer = node.observer();
    let seen = |node: &Node, heartbeat_ns: i64| {
        node.segment.heartbeat(heartbeat_ns);
        let value = observer.latest(&selector(VDA)).remove(0);
        (observer.status().unwrap().alive, value.stale)
    };
    assert_eq!(seen(&node, START_NS + ahead_ns), (false, true));
    // The agent lives on, and has not looked again.
    assert_eq!(seen(&node, START_NS), (true, true));
    node.put(VDA, 2.0);
    assert_eq!(seen(&node, START_NS), (true, false));
}

#[test]
fn one_stream_or_an_error_that_helps() {
    let node = Node::with(&[VDA, VDB, "disk.write.bytes{device=vda}"]);
    let observer = node.observer();
    let check = |pattern: &str, expect: &str| match observer.stream(&selector(pattern)) {
        Ok(_) => panic!("{pattern} is no stream"),
        Err(error) => assert_eq!(error.to_string(), expect),
    };
    check(
        "disk.read.bytes",
        "disk.read.bytes matches 2 streams (disk.read.bytes{device=vda}, \
         disk.read.bytes{device=vdb}): name one by its labels, as name{label=value}",
    );
    check(
        "disk.raed.bytes{device=vda}",
        "no stream matches disk.raed.bytes{device=vda}: did you mean disk.read.bytes, \
         disk.write.bytes?",
    );
    check(
        "disk_write_bytes",
        "no stream matches disk_write_bytes: did you mean disk.write.bytes, disk.read.bytes?",
    );
    check(
        "disk.write.bytes{device=sda}",
        "no stream matches disk.write.bytes{device=sda}: did you mean \
         disk.write.bytes{device=vda}?",
    );
    check(
        "zebra",
        "no stream matches zebra (`baro streams` lists what there is)",
    );
    assert_eq!(observer.near("Disk.Write.Byte"), ["disk.write.bytes"]);
}

#[test]
fn no_agent_and_no_segment() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Observer::open(RunDir::new(dir.path()), Arc::new(ManualClock::at(0)));
    let Err(error @ ClientError::NoAgent { .. }) = open() else {
        panic!("there is no agent")
    };
    let text = error.to_string();
    assert!(
        text.contains(dir.path().to_str().unwrap()) && text.contains("baro up"),
        "{text}"
    );
    std::fs::write(dir.path().join("segment"), [7u8; 8192]).unwrap();
    assert!(matches!(open(), Err(ClientError::Segment(_))));
}

#[test]
fn history_is_what_the_ring_holds() {
    let mut node = Node::with(&[VDA, VDB]);
    for second in 0..40 {
        node.put(VDA, f64::from(second));
        node.put(VDB, f64::from(second / 20));
        node.clock.advance(NS_PER_S);
    }
    let observer = node.observer();
    let at = |s: i64| START_NS + s * NS_PER_S;
    let check = |window: HistoryRange, expect: [(&[f64], usize); 2]| {
        let found = observer.history(&selector("disk.*"), &window);
        for (history, (values, left_out)) in found.iter().zip(expect) {
            let found: Vec<f64> = history
                .samples
                .iter()
                .map(|s| s.value.as_f64().unwrap())
                .collect();
            assert_eq!(
                (found.as_slice(), history.left_out),
                (values, left_out),
                "{window:?}"
            );
        }
        assert_eq!(found.len(), 2);
    };
    let all: Vec<f64> = (25..40).map(f64::from).collect();
    check(HistoryRange::default(), [(&all, 0), (&[0.0, 1.0], 0)]);
    let window = HistoryRange {
        start_ns: at(30),
        stop_ns: at(33),
        ..HistoryRange::default()
    };
    check(window, [(&[30.0, 31.0, 32.0], 0), (&[], 0)]);
    let window = HistoryRange {
        samples_max: 3,
        ..HistoryRange::default()
    };
    check(window, [(&[37.0, 38.0, 39.0], 12), (&[], 2)]);
}

#[test]
fn json_of_the_contract() {
    let mut node = Node::with(&[VDA]);
    node.add("disk.tier.name{device=vda}", ValueType::Text);
    node.put(VDA, f64::NAN);
    node.clock.advance(5);
    let observer = node.observer();
    let latest = latest_json(&observer.latest(&selector("*")));
    let expect = serde_json::json!([
        {"name": "disk.read.bytes", "labels": {"device": "vda"}, "unit": "bytes",
         "ts": START_NS, "value": null, "quality": "measured", "error": 0.0,
         "age_ns": 5, "looked_ts": START_NS, "stale": false},
        {"name": "disk.tier.name", "labels": {"device": "vda"}, "unit": "bytes",
         "ts": null, "value": null, "quality": null, "error": null,
         "age_ns": null, "looked_ts": null, "stale": false},
    ]);
    assert_eq!(latest, expect);
    let streams = streams_json(&observer.streams(&selector("disk.tier.name")));
    let id = streams[0]["id"].as_str().unwrap().to_owned();
    let expect = serde_json::json!([
        {"name": "disk.tier.name", "labels": {"device": "vda"}, "type": "string",
         "unit": "bytes", "kind": "gauge", "help": "what it is", "id": id, "depth": 16,
         "samples": 0, "interval_ns": 0},
    ]);
    assert_eq!(streams, expect);
    let status = status_json(&observer.status().unwrap());
    let text = |key: &str| status[key].to_string();
    assert_eq!(
        [
            text("node"),
            text("alive"),
            text("streams"),
            text("samples"),
            text("heartbeat_age_ns")
        ],
        ["\"n1\"", "true", "2", "1", "5"]
    );
}
