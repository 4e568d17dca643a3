//! Agents that die and restart, devices that go and come back: open handles go on, and report it.

use std::time::Duration;

use barograph_client::Woken;
use barograph_model::NS_PER_S;

use crate::node::{Node, selector};

const VDA: &str = "disk.read.bytes{device=vda}";
const VDB: &str = "disk.read.bytes{device=vdb}";
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(40);

fn value(latest: Option<barograph_client::LatestValue>) -> Option<f64> {
    latest?.sample?.value.as_f64()
}

#[test]
fn a_handle_outlives_its_agent() {
    let mut node = Node::with(&[VDA, VDB]);
    node.put(VDA, 1.0);
    let observer = node.observer();
    let first = observer.status().unwrap();
    let mut held = observer.stream(&selector(VDA)).unwrap();
    assert_eq!(value(held.latest()), Some(1.0));

    // The agent closes its segment: the value stays readable, and is marked as stale.
    node.segment.close();
    let last = held.latest().unwrap();
    assert!(last.stale);
    assert_eq!(last.sample.unwrap().value.as_f64(), Some(1.0));
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(1.0));
    assert!(!observer.status().unwrap().alive);

    // The next agent has the streams in other places.
    node.restart(&[VDB, VDA]);
    assert_eq!((held.latest_f64(), held.restarted()), (None, 1));
    node.put(VDA, 7.0);
    node.put(VDB, 8.0);
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(7.0));
    assert_eq!(value(held.latest()), Some(7.0));
    let second = observer.status().unwrap();
    assert!(second.alive && second.incarnation != first.incarnation);

    // A third agent without the stream, then with it.
    node.restart(&[VDB]);
    assert_eq!(
        (held.latest(), held.latest_f64(), held.restarted()),
        (None, None, 1)
    );
    node.add(VDA, barograph_model::ValueType::Float);
    node.put(VDA, 9.0);
    assert_eq!(
        (held.latest_f64().map(|(_, v)| v), held.restarted()),
        (Some(9.0), 2)
    );
}

#[test]
fn an_agent_that_was_killed_is_seen_by_its_heartbeat() {
    let mut node = Node::with(&[VDA]);
    node.put(VDA, 1.0);
    let observer = node.observer();
    // The agent was killed and its file removed by hand: its segment is not marked as closed.
    std::fs::remove_file(node.run_dir().segment()).unwrap();
    let killed = std::mem::replace(&mut node, Node::with(&[VDA]));
    node.dir = killed.dir;
    node.clock = killed.clock;
    node.restart(&[VDA]);
    node.put(VDA, 2.0);
    assert_eq!(value(observer.latest(&selector(VDA)).pop()), Some(1.0));
    node.clock.advance(6 * NS_PER_S);
    node.segment
        .heartbeat(barograph_model::Clock::now_ns(&*node.clock));
    assert_eq!(value(observer.latest(&selector(VDA)).pop()), Some(2.0));
    drop(killed.segment);
}

#[test]
fn a_device_that_goes_and_comes_back() {
    let mut node = Node::with(&[VDA, VDB]);
    node.put(VDA, 1.0);
    let observer = node.observer();
    let mut held = observer.stream(&selector(VDA)).unwrap();
    node.retire(VDA);
    assert_eq!((held.latest(), held.latest_f64()), (None, None));
    assert_eq!(held.wait(SHORT), Woken::Gone);
    assert_eq!(observer.latest(&selector(VDA)), []);
    // Its slot goes to another stream first.
    node.add(
        "disk.write.bytes{device=vda}",
        barograph_model::ValueType::Float,
    );
    node.put("disk.write.bytes{device=vda}", 5.0);
    assert_eq!((held.latest(), held.latest_f64()), (None, None));
    node.add(VDA, barograph_model::ValueType::Float);
    node.put(VDA, 3.0);
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(3.0));
    assert_eq!(held.restarted(), 1);
}

#[test]
fn a_waiting_handle_is_woken() {
    let mut node = Node::with(&[VDA, VDB]);
    let observer = node.observer();
    let mut held = observer.stream(&selector(VDA)).unwrap();
    assert_eq!(held.wait(SHORT), Woken::TimedOut);
    node.put(VDA, 1.0);
    assert_eq!(held.wait(LONG), Woken::News);
    assert_eq!(held.wait(SHORT), Woken::TimedOut);
    node.put(VDA, 1.0); // Unchanged: a look, and no sample.
    assert_eq!(held.wait(SHORT), Woken::TimedOut);
    node.put(VDA, 2.0);
    assert_eq!(value(held.latest()), Some(2.0));
    assert_eq!(held.wait(SHORT), Woken::TimedOut);

    let waiter = std::thread::spawn(move || {
        let woken = held.wait(LONG);
        (woken, held.latest_f64().map(|(_, v)| v), held.restarted())
    });
    std::thread::sleep(SHORT);
    node.put(VDB, 1.0);
    node.put(VDA, 3.0);
    assert_eq!(waiter.join().unwrap(), (Woken::News, Some(3.0), 0));
}

#[test]
fn a_waiting_handle_crosses_a_restart() {
    let mut node = Node::with(&[VDA]);
    node.put(VDA, 1.0);
    let mut held = node.observer().stream(&selector(VDA)).unwrap();
    held.latest();
    let waiter = std::thread::spawn(move || {
        let woken = held.wait(LONG);
        (woken, held.latest_f64().map(|(_, v)| v), held.restarted())
    });
    std::thread::sleep(SHORT);
    node.restart(&[VDB]);
    std::thread::sleep(SHORT);
    node.add(VDA, barograph_model::ValueType::Float);
    node.put(VDA, 1.0);
    assert_eq!(waiter.join().unwrap(), (Woken::News, Some(1.0), 1));
}
