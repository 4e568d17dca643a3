//! Watches: every sample once, over streams that come and go and agents that restart.

use std::time::Duration;

use barograph_client::Watch;
use barograph_model::ValueType;

use crate::node::{Node, selector};

const VDA: &str = "disk.read.bytes{device=vda}";
const VDB: &str = "disk.read.bytes{device=vdb}";
const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(20);

/// Streams, values and losses of the next answer.
fn next(watch: &mut Watch, timeout: Duration) -> Vec<(String, f64, u64)> {
    let updates = watch.next(timeout).unwrap_or_default();
    let names: Vec<String> = watch.streams().map(|d| d.to_string()).collect();
    updates
        .into_iter()
        .map(|u| {
            assert_eq!(names[u.index], u.descriptor.to_string());
            (
                u.descriptor.to_string(),
                u.sample.value.as_f64().unwrap(),
                u.lost,
            )
        })
        .collect()
}

fn expect(list: &[(&str, f64, u64)]) -> Vec<(String, f64, u64)> {
    list.iter()
        .map(|(name, value, lost)| ((*name).into(), *value, *lost))
        .collect()
}

#[test]
fn every_sample_once() {
    let mut node = Node::with(&[VDA, VDB, "memory.free.bytes"]);
    for value in [1.0, 2.0, 3.0] {
        node.put(VDA, value);
    }
    let mut watch = node.observer().watch(&selector("disk.*"));
    assert_eq!(next(&mut watch, SHORT), expect(&[(VDA, 3.0, 0)]));
    assert_eq!(watch.next(SHORT), None);
    for value in [4.0, 5.0] {
        node.put(VDA, value);
        node.put(VDB, value);
        node.put("memory.free.bytes", value);
    }
    let all = [(VDA, 4.0, 0), (VDA, 5.0, 0), (VDB, 4.0, 0), (VDB, 5.0, 0)];
    assert_eq!(next(&mut watch, LONG), expect(&all));
    assert_eq!(watch.next(Duration::ZERO), None);
}

#[test]
fn what_the_ring_lost_is_counted() {
    let mut node = Node::with(&[VDA]);
    node.put(VDA, 0.0);
    let mut watch = node.observer().watch(&selector(VDA));
    assert_eq!(next(&mut watch, SHORT).len(), 1);
    for value in 1..=100 {
        node.put(VDA, f64::from(value));
    }
    // A ring of 16 has 15 whole samples; 85 of 100 are gone.
    let found = next(&mut watch, SHORT);
    assert_eq!(
        (found.len(), found[0].clone()),
        (15, (VDA.to_owned(), 86.0, 85))
    );
    assert!(found[1..].iter().all(|(_, _, lost)| *lost == 0));
}

#[test]
fn a_writer_that_overtakes_whole_looks_loses_nothing_uncounted() {
    const SAMPLES: u32 = 300_000;
    let mut node = Node::with(&[VDA]);
    node.put(VDA, 0.0);
    let mut watch = node.observer().watch(&selector(VDA));
    let writer = std::thread::spawn(move || {
        (1..=SAMPLES).for_each(|value| node.put(VDA, f64::from(value)));
        node
    });
    let mut following = 0.0;
    while following <= f64::from(SAMPLES) {
        for (_, value, lost) in next(&mut watch, LONG) {
            assert_eq!(value, following + lost as f64);
            following = value + 1.0;
        }
    }
    drop(writer.join().unwrap());
}

#[test]
fn streams_come_and_go() {
    let mut node = Node::with(&[VDB]);
    node.put(VDB, 1.0);
    let mut watch = node.observer().watch(&selector("disk.*"));
    assert_eq!(next(&mut watch, SHORT), expect(&[(VDB, 1.0, 0)]));
    let changes = watch.changes();
    node.add("memory.free.bytes", ValueType::Float);
    assert_eq!(watch.next(SHORT), None);
    assert_eq!(
        watch.changes(),
        changes,
        "the set that is watched is the same"
    );
    node.add(VDA, ValueType::Float);
    node.put(VDA, 5.0);
    node.put(VDA, 6.0);
    node.put(VDB, 2.0);
    let all = [(VDA, 5.0, 0), (VDA, 6.0, 0), (VDB, 2.0, 0)];
    assert_eq!(next(&mut watch, LONG), expect(&all));
    node.retire(VDB);
    assert_eq!(watch.next(SHORT), None);
    assert_eq!(watch.streams().len(), 1);
    assert_eq!(watch.changes(), changes + 2);
}

#[test]
fn a_watch_crosses_a_restart() {
    let mut node = Node::with(&[VDA]);
    node.put(VDA, 1.0);
    let mut watch = node.observer().watch(&selector("disk.*"));
    assert_eq!(next(&mut watch, SHORT), expect(&[(VDA, 1.0, 0)]));
    let told = std::thread::spawn(move || {
        let first = next(&mut watch, LONG);
        (first, next(&mut watch, LONG))
    });
    std::thread::sleep(SHORT);
    node.restart(&[]);
    std::thread::sleep(SHORT);
    node.add(VDA, ValueType::Float);
    node.put(VDA, 1.0);
    std::thread::sleep(4 * SHORT);
    node.put(VDA, 2.0);
    let expected = (expect(&[(VDA, 1.0, 0)]), expect(&[(VDA, 2.0, 0)]));
    assert_eq!(told.join().unwrap(), expected);
}

#[test]
fn nothing_to_watch_yet() {
    let mut node = Node::with(&[]);
    let mut watch = node.observer().watch(&selector(VDA));
    assert_eq!(watch.next(SHORT), None);
    let told = std::thread::spawn(move || next(&mut watch, LONG));
    std::thread::sleep(SHORT);
    node.add(VDA, ValueType::Float);
    node.put(VDA, 4.0);
    assert_eq!(told.join().unwrap(), expect(&[(VDA, 4.0, 0)]));
}
