//! Streams of applications: scopes that appear, are replaced and disappear, beside the node's own
//! segment.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use barograph_client::{ClientError, Observer, Woken};
use barograph_model::{Clock as _, NS_PER_S, Sample, ValueType};
use barograph_stream::{Segment, SegmentConfig, StreamWriter};

use crate::node::{Node, descriptor, selector};

const VDA: &str = "disk.read.bytes{device=vda}";
const RESIDUAL: &str = "app.lulesh.residual{user=1000}";
const FRAME: &str = "app.lulesh.frame{user=1000}";
const SHORT: Duration = Duration::from_millis(30);
const LONG: Duration = Duration::from_secs(20);

/// A scope whose agent is the test.
struct Scope {
    segment: Segment,
    writers: HashMap<String, StreamWriter>,
}

impl Scope {
    /// Opens the scope; makes it again if it exists already.
    fn open(node: &Node, name: &str, streams: &[&str]) -> Self {
        let run_dir = node.run_dir().scope(name);
        fs::create_dir_all(run_dir.path()).unwrap();
        let config = SegmentConfig {
            streams_max: 8,
            ..SegmentConfig::new("n1")
        };
        let segment = Segment::create(&run_dir.segment(), config, node.clock.now_ns()).unwrap();
        let mut scope = Self {
            segment,
            writers: HashMap::new(),
        };
        streams.iter().for_each(|s| scope.add(node, s));
        scope
    }

    fn add(&mut self, node: &Node, stream: &str) {
        let descriptor = descriptor(stream, ValueType::Float);
        let now_ns = node.clock.now_ns();
        let writer = self.segment.register(&descriptor, Some(16), now_ns);
        self.writers.insert(stream.into(), writer.unwrap());
    }

    fn put(&mut self, node: &Node, stream: &str, value: f64) {
        let writer = self.writers.get_mut(stream).unwrap();
        let sample = Sample::measured(node.clock.now_ns(), value);
        writer.append(&sample).unwrap();
        self.segment.wake(writer.wake_bit());
    }
}

/// Lets a second pass, in which the agent lives, so that scopes are searched again.
fn a_second_later(node: &Node) {
    node.clock.advance(NS_PER_S);
    node.segment.heartbeat(node.clock.now_ns());
}

fn streams(observer: &Observer) -> Vec<String> {
    let all = observer.streams(&selector("*"));
    all.iter().map(|s| s.descriptor.to_string()).collect()
}

fn values(observer: &Observer, pattern: &str) -> Vec<(Option<f64>, bool)> {
    let all = observer.latest(&selector(pattern));
    let value = |v: &barograph_client::LatestValue| v.sample.as_ref()?.value.as_f64();
    all.iter().map(|v| (value(v), v.stale)).collect()
}

#[test]
fn streams_of_all_scopes_are_beside_the_nodes() {
    let mut node = Node::with(&[VDA]);
    let mut own = Scope::open(&node, "u1000", &[RESIDUAL, FRAME]);
    let mut all = Scope::open(&node, "all", &["app.solver.step{user=7}"]);
    node.put(VDA, 1.0);
    own.put(&node, RESIDUAL, 2.0);
    all.put(&node, "app.solver.step{user=7}", 3.0);
    let observer = node.observer();
    let expect = [FRAME, RESIDUAL, "app.solver.step{user=7}", VDA];
    assert_eq!(streams(&observer), expect);
    let expect = [None, Some(2.0), Some(3.0), Some(1.0)].map(|v| (v, false));
    assert_eq!(values(&observer, "*"), expect);
    let mut held = observer.stream(&selector("app.lulesh.residual")).unwrap();
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(2.0));
    own.put(&node, RESIDUAL, 4.0);
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(4.0));
    assert_eq!(observer.near("app.lulesh.frames"), ["app.lulesh.frame"]);
    let status = observer.status().unwrap();
    assert_eq!(
        (status.streams, status.streams_max, status.samples),
        (4, 64 + 8 + 8, 4)
    );
}

#[test]
fn a_scope_that_appears_later() {
    let node = Node::with(&[VDA]);
    let observer = node.observer();
    let changes = observer.directory_changes();
    let unknown = observer.stream(&selector(RESIDUAL)).err().unwrap();
    assert!(matches!(unknown, ClientError::UnknownStream { .. }));
    let mut scope = Scope::open(&node, "u1000", &[RESIDUAL]);
    assert_eq!(streams(&observer), [VDA], "once a second");
    a_second_later(&node);
    assert_eq!(streams(&observer), [RESIDUAL, VDA]);
    assert_eq!(observer.directory_changes(), changes + 1);
    // A stream that is added then is there at once.
    scope.add(&node, FRAME);
    assert_eq!(streams(&observer), [FRAME, RESIDUAL, VDA]);
    let frame = scope.writers.remove(FRAME).unwrap();
    scope.segment.retire(frame);
    assert_eq!(streams(&observer), [RESIDUAL, VDA]);
    assert_eq!(observer.directory_changes(), changes + 3);
    a_second_later(&node);
    assert_eq!(streams(&observer), [RESIDUAL, VDA]);
    assert_eq!(observer.directory_changes(), changes + 3, "nothing is new");
}

#[test]
fn a_scope_that_is_closed_and_made_anew() {
    let mut node = Node::with(&[VDA]);
    let mut scope = Scope::open(&node, "u1000", &[RESIDUAL]);
    node.put(VDA, 1.0);
    scope.put(&node, RESIDUAL, 1.0);
    let observer = node.observer();
    let mut held = observer.stream(&selector(RESIDUAL)).unwrap();
    let mut of_node = observer.stream(&selector(VDA)).unwrap();
    assert!(!held.latest().unwrap().stale);
    scope.segment.close();
    assert!(held.latest().unwrap().stale);
    assert_eq!(
        values(&observer, "*"),
        [(Some(1.0), true), (Some(1.0), false)],
        "a scope that is closed makes nothing else stale"
    );
    let mut scope = Scope::open(&node, "u1000", &[FRAME, RESIDUAL]);
    assert_eq!((held.latest_f64(), held.restarted()), (None, 1));
    scope.put(&node, RESIDUAL, 2.0);
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(2.0));
    assert_eq!(streams(&observer), [FRAME, RESIDUAL, VDA]);
    // The node's own agent restarts and the scope stays.
    node.restart(&[VDA]);
    node.put(VDA, 5.0);
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(2.0));
    assert_eq!(of_node.latest_f64().map(|(_, v)| v), Some(5.0));
    assert_eq!((held.restarted(), of_node.restarted()), (1, 1));
    drop(scope);
    fs::remove_dir_all(node.run_dir().scope("u1000").path()).unwrap();
    a_second_later(&node);
    assert_eq!(streams(&observer), [VDA]);
    assert_eq!((held.latest(), held.wait(SHORT)), (None, Woken::Gone));
}

#[test]
fn a_scope_that_cannot_be_opened_is_not_there() {
    let node = Node::with(&[VDA]);
    let of = |name: &str| node.run_dir().scope(name);
    for name in ["u1", "u2", "u3"] {
        fs::create_dir_all(of(name).path()).unwrap();
    }
    fs::write(of("u2").segment(), "no segment").unwrap();
    fs::create_dir(of("u3").segment()).unwrap();
    let scope = Scope::open(&node, "u1000", &[RESIDUAL]);
    let observer = node.observer();
    assert_eq!(streams(&observer), [RESIDUAL, VDA]);
    // A new scope that no reader understands replaces one that was closed.
    scope.segment.close();
    let new = of("u1000").path().join("new");
    fs::write(&new, "no segment").unwrap();
    fs::rename(new, of("u1000").segment()).unwrap();
    assert_eq!(streams(&observer), [VDA]);
    assert!(observer.status().unwrap().alive);
    let _whole = Scope::open(&node, "u1000", &[FRAME]);
    a_second_later(&node);
    assert_eq!(streams(&observer), [FRAME, VDA]);
}

#[test]
fn modes_say_who_reads_a_scope() {
    if rustix::process::geteuid().is_root() {
        eprintln!("modes do not stop root");
        return;
    }
    let node = Node::with(&[VDA]);
    let _scope = Scope::open(&node, "u1000", &[RESIDUAL]);
    let dir = node.run_dir().scope("u1000");
    let mode = |mode| fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
    mode(0o000);
    let observer = node.observer();
    assert_eq!(streams(&observer), [VDA]);
    mode(0o700);
    a_second_later(&node);
    assert_eq!(streams(&observer), [RESIDUAL, VDA]);
    mode(0o000);
    a_second_later(&node);
    assert_eq!(streams(&observer), [VDA]);
    mode(0o700);
}

#[test]
fn a_series_of_two_scopes_is_the_later_one() {
    let mut node = Node::with(&[VDA]);
    let mut before = Scope::open(&node, "u1000", &[RESIDUAL, VDA]);
    node.put(VDA, 1.0);
    before.put(&node, RESIDUAL, 1.0);
    before.put(&node, VDA, 2.0);
    let observer = node.observer();
    let mut held = observer.stream(&selector(RESIDUAL)).unwrap();
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(1.0));
    assert_eq!(values(&observer, VDA), [(Some(1.0), false)], "the node's");
    a_second_later(&node);
    // The publication has other readers now.
    let mut after = Scope::open(&node, "all", &[RESIDUAL]);
    after.put(&node, RESIDUAL, 3.0);
    before.segment.close();
    assert_eq!(values(&observer, RESIDUAL), [(Some(3.0), false)]);
    assert_eq!(held.latest_f64().map(|(_, v)| v), Some(3.0));
    assert_eq!(held.restarted(), 1);
    assert!(observer.stream(&selector(RESIDUAL)).is_ok());
}

#[test]
fn a_handle_waits_for_an_application() {
    let node = Node::with(&[]);
    let mut scope = Scope::open(&node, "u1000", &[RESIDUAL]);
    let mut held = node.observer().stream(&selector(RESIDUAL)).unwrap();
    assert_eq!(held.wait(SHORT), Woken::TimedOut);
    let (tell, told) = std::sync::mpsc::sync_channel(2);
    let waiter = std::thread::spawn(move || {
        for _ in 0..2 {
            let seen = (held.wait(LONG), held.latest_f64().map(|(_, v)| v));
            tell.send(seen).unwrap();
        }
        held.restarted()
    });
    std::thread::sleep(SHORT);
    scope.put(&node, RESIDUAL, 1.0);
    // The value is read before its segment is gone.
    assert_eq!(told.recv().unwrap(), (Woken::News, Some(1.0)));
    scope = Scope::open(&node, "u1000", &[]);
    std::thread::sleep(SHORT);
    scope.add(&node, RESIDUAL);
    scope.put(&node, RESIDUAL, 2.0);
    assert_eq!(told.recv().unwrap(), (Woken::News, Some(2.0)));
    assert_eq!(waiter.join().unwrap(), 1);
}

#[test]
fn a_watch_is_told_of_all_segments() {
    let mut node = Node::with(&[VDA]);
    let mut scope = Scope::open(&node, "u1000", &[RESIDUAL]);
    node.put(VDA, 1.0);
    scope.put(&node, RESIDUAL, 0.0);
    scope.put(&node, RESIDUAL, 1.0);
    let mut watch = node.observer().watch(&selector("*"));
    let news = |watch: &mut barograph_client::Watch, timeout| -> Vec<(String, f64)> {
        let updates = watch.next(timeout).unwrap_or_default();
        let of = |u: &barograph_client::Update| (u.descriptor.to_string(), u.sample.value.as_f64());
        updates
            .iter()
            .map(of)
            .map(|(d, v)| (d, v.unwrap()))
            .collect()
    };
    let told = |name: &str, value| (name.to_owned(), value);
    let both = [told(RESIDUAL, 1.0), told(VDA, 1.0)];
    assert_eq!(news(&mut watch, SHORT), both, "the newest of each");
    assert_eq!(watch.next(SHORT), None);
    // Each of them wakes a watch that sleeps.
    let (to, from) = std::sync::mpsc::sync_channel(4);
    let watcher = std::thread::spawn(move || {
        for _ in 0..4 {
            to.send(news(&mut watch, LONG)).unwrap();
        }
        watch
    });
    for value in [2.0, 3.0] {
        std::thread::sleep(SHORT);
        node.put(VDA, value);
        assert_eq!(from.recv_timeout(LONG).unwrap(), [told(VDA, value)]);
        std::thread::sleep(SHORT);
        scope.put(&node, RESIDUAL, value);
        assert_eq!(from.recv_timeout(LONG).unwrap(), [told(RESIDUAL, value)]);
    }
    let mut watch = watcher.join().unwrap();
    // No sample of a scope that appears later is missed.
    let mut later = Scope::open(&node, "all", &["app.solver.step"]);
    later.put(&node, "app.solver.step", 1.0);
    later.put(&node, "app.solver.step", 2.0);
    a_second_later(&node);
    let all = [told("app.solver.step", 1.0), told("app.solver.step", 2.0)];
    assert_eq!(news(&mut watch, LONG), all);
    let changes = watch.changes();
    scope.put(&node, RESIDUAL, 4.0);
    assert_eq!(news(&mut watch, LONG), [told(RESIDUAL, 4.0)]);
    assert_eq!(watch.changes(), changes);
}
