//! Following an agent's segments: restarts, kills, and scopes that come and go.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::{NS_PER_S, Sample, ValueType};
use barograph_stream::{
    DirectoryEntry, HEARTBEAT_AGE_NS_MAX, LOOK_NS, RunDir, ScopeChoice, Segment, SegmentConfig,
    SegmentFollower, SegmentTicks, StreamError,
};

use crate::pattern::descriptor;

/// The time of all beginnings, ns since the epoch.
const T0: i64 = 1_000 * NS_PER_S;

type Follower = SegmentFollower<DirectoryEntry>;

/// A segment of the node or of a scope, with these streams.
fn write(run_dir: &RunDir, streams: &[&str]) -> Segment {
    fs::create_dir_all(run_dir.path()).unwrap();
    let mut segment = Segment::create(&run_dir.segment(), SegmentConfig::new("n1"), T0).unwrap();
    for stream in streams {
        add(&mut segment, stream);
    }
    segment
}

fn add(segment: &mut Segment, stream: &str) {
    let stream = descriptor(stream, ValueType::Int);
    segment.register(&stream, Some(2), T0).unwrap();
}

fn open(run_dir: &RunDir, scopes: ScopeChoice) -> Follower {
    Follower::open(run_dir, scopes, LOOK_NS, T0).unwrap()
}

/// The names of scopes and streams, such as `/a.count u1/b.count`.
fn followed(follower: &Follower) -> String {
    let parts = follower.parts().iter();
    let names = parts.flat_map(|part| {
        let streams = part.streams.iter();
        streams.map(|entry| format!("{}/{}", part.id.scope, entry.descriptor.name.as_str()))
    });
    names.collect::<Vec<_>>().join(" ")
}

fn check(follower: &mut Follower, now_ns: i64, expect: &str) {
    follower.follow(now_ns).unwrap();
    assert_eq!(followed(follower), expect);
}

#[test]
fn a_run_directory_that_is_absent() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path().join("none"));
    let opened = Follower::open(&run_dir, ScopeChoice::Readable, LOOK_NS, T0);
    assert!(matches!(opened, Err(StreamError::NoAgent { .. })));
    let _segment = write(&run_dir, &["a.count"]);
    let mut follower = open(&run_dir, ScopeChoice::Readable);
    // If it goes later, what was mapped stays.
    fs::remove_dir_all(run_dir.path()).unwrap();
    check(&mut follower, T0 + 100 * NS_PER_S, "/a.count");
}

#[test]
fn streams_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let mut segment = write(&run_dir, &["b.count"]);
    let retired = descriptor("c.count", ValueType::Int);
    let retired = segment.register(&retired, Some(2), T0).unwrap();
    let mut follower = open(&run_dir, ScopeChoice::None);
    assert_eq!(followed(&follower), "/b.count /c.count");
    let (before, changes) = (Arc::clone(follower.own()), follower.changes());
    check(&mut follower, T0, "/b.count /c.count");
    assert!(follower.is_settled());
    assert!(Arc::ptr_eq(&before, follower.own()), "nothing has changed");
    assert_eq!(follower.changes(), changes);

    add(&mut segment, "a.count");
    segment.retire(retired);
    assert!(!follower.is_settled());
    check(&mut follower, T0, "/a.count /b.count");
    assert_eq!(follower.changes(), changes + 1);
    let own = follower.own();
    assert!(Arc::ptr_eq(&before.segment, &own.segment));
    assert!(Arc::ptr_eq(&before.streams[0], &own.streams[1]), "b lives");
    assert_eq!(before.id, own.id);
    assert_eq!((&*own.id.node, &*own.id.scope), ("n1", ""));
}

#[test]
fn a_new_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let first = write(&run_dir, &["a.count"]);
    let mut follower = open(&run_dir, ScopeChoice::None);
    let before = Arc::clone(follower.own());
    drop(first);
    // The agent has ended and has no successor yet.
    assert!(!follower.is_settled());
    check(&mut follower, T0, "/a.count");
    assert!(!follower.own().segment.is_alive(T0));
    let _second = write(&run_dir, &["a.count"]);
    check(&mut follower, T0, "/a.count");
    let own = follower.own();
    assert!(own.segment.is_alive(T0) && follower.is_settled());
    assert_ne!(before.segment.incarnation(), own.segment.incarnation());
    assert!(!Arc::ptr_eq(&before.streams[0], &own.streams[0]));
    assert_eq!(before.id, own.id);
}

#[test]
fn a_successor_that_no_reader_understands() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let first = write(&run_dir, &["a.count"]);
    let scope = write(&run_dir.scope("u1"), &["b.count"]);
    let mut follower = open(&run_dir, ScopeChoice::Readable);
    replace_by_garbage(&run_dir);
    replace_by_garbage(&run_dir.scope("u1"));
    drop((first, scope));
    let error = follower.follow(T0).unwrap_err();
    assert!(matches!(error, StreamError::Corrupt { .. }), "{error}");
    assert_eq!(followed(&follower), "/a.count");
    let _second = write(&run_dir, &["c.count"]);
    check(&mut follower, T0, "/c.count");
}

fn replace_by_garbage(run_dir: &RunDir) {
    let new = run_dir.path().join("new");
    fs::write(&new, "no segment").unwrap();
    fs::rename(new, run_dir.segment()).unwrap();
}

#[test]
fn an_agent_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let killed = write(&run_dir, &["a.count"]);
    let mut follower = open(&run_dir, ScopeChoice::None);
    let last_ns = T0 + HEARTBEAT_AGE_NS_MAX;
    check(&mut follower, last_ns, "/a.count");
    assert!(follower.own().segment.is_alive(last_ns));
    assert!(!follower.own().segment.is_alive(last_ns + 1));
    // Its file was removed, so its successor cannot close it.
    fs::remove_file(run_dir.segment()).unwrap();
    let _second = write(&run_dir, &["b.count"]);
    check(&mut follower, last_ns, "/a.count");
    assert!(follower.is_settled(), "no memory tells it");
    check(&mut follower, last_ns + 1, "/b.count");
    drop(killed);
}

#[test]
fn a_successor_of_an_agent_that_seems_alive() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let first = write(&run_dir, &["a.count"]);
    let mut seldom = open(&run_dir, ScopeChoice::None);
    let mut always = Follower::open(&run_dir, ScopeChoice::None, 0, T0).unwrap();
    fs::remove_file(run_dir.segment()).unwrap();
    let _second = write(&run_dir, &["b.count"]);
    check(&mut always, T0, "/b.count");
    check(&mut seldom, T0 + LOOK_NS - 1, "/a.count");
    check(&mut seldom, T0 + LOOK_NS, "/b.count");
    drop(first);
}

#[test]
fn scopes_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let own = write(&run_dir, &["a.count"]);
    let mut follower = open(&run_dir, ScopeChoice::Readable);
    let mut public = open(&run_dir, ScopeChoice::Public);
    let mut scope = write(&run_dir.scope("u1"), &["b.count"]);
    let _all = write(&run_dir.scope("all"), &["c.count"]);
    check(&mut follower, T0 + LOOK_NS - 1, "/a.count");
    check(
        &mut follower,
        T0 + LOOK_NS,
        "/a.count all/c.count u1/b.count",
    );
    check(&mut public, T0 + LOOK_NS, "/a.count all/c.count");
    // Streams of a scope that is known are there at once, and so is its successor.
    add(&mut scope, "d.count");
    check(
        &mut follower,
        T0 + LOOK_NS,
        "/a.count all/c.count u1/b.count u1/d.count",
    );
    let _scope = write(&run_dir.scope("u1"), &["e.count"]);
    check(
        &mut follower,
        T0 + LOOK_NS,
        "/a.count all/c.count u1/e.count",
    );

    let changes = follower.changes();
    fs::remove_dir_all(run_dir.scope("all").path()).unwrap();
    check(
        &mut follower,
        T0 + 2 * LOOK_NS - 1,
        "/a.count all/c.count u1/e.count",
    );
    check(&mut follower, T0 + 2 * LOOK_NS, "/a.count u1/e.count");
    assert_eq!(follower.changes(), changes + 1);
    // The clock is set back: that is noticed by a look.
    fs::remove_dir_all(run_dir.scope("u1").path()).unwrap();
    check(&mut follower, T0, "/a.count");
    drop(own);
}

#[test]
fn a_new_agent_brings_its_scopes() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let _first = write(&run_dir, &["a.count"]);
    let mut follower = open(&run_dir, ScopeChoice::Readable);
    let _second = write(&run_dir, &["a.count"]);
    let _scope = write(&run_dir.scope("u1"), &["b.count"]);
    check(&mut follower, T0, "/a.count u1/b.count");
}

#[test]
fn news_of_any_segment_end_a_wait() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = RunDir::new(dir.path());
    let own = write(&run_dir, &["a.count"]);
    let mut scope = write(&run_dir.scope("u1"), &[]);
    let stream = descriptor("b.count", ValueType::Int);
    let mut writer = scope.register(&stream, Some(2), T0).unwrap();
    let follower = open(&run_dir, ScopeChoice::Readable);
    let wait = |ticks: SegmentTicks| ticks.wait(Duration::from_secs(600));
    let ticks = follower.ticks();
    writer.append(&Sample::measured(T0, 1)).unwrap();
    scope.wake(writer.wake_bit());
    wait(ticks);
    let ticks = follower.ticks();
    let waiter = std::thread::spawn(move || wait(ticks));
    own.close();
    waiter.join().unwrap();
}
