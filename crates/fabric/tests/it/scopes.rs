//! Publications of applications that cross nodes: each scope is a feed and a mirror of its own,
//! guarded as on its node.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use barograph_fabric::transport::MemoryNetwork;
use barograph_fabric::{DurableHistories, HistoryOpening};
use barograph_model::{NS_PER_S, Sample, Value};
use barograph_stream::{
    DirectoryEntry, Incarnation, LatestSample, RunDir, ScopeChoice, Segment, SegmentConfig,
    SegmentFollower, SegmentPart, StreamWriter,
};

use crate::cluster::{Member, START_NS, descriptor};
use crate::histories::SharedDisk;

/// Streams that applications have published in one scope of a node.
struct Publications {
    segment: Segment,
    writers: Vec<StreamWriter>,
}

impl Publications {
    fn new(node: &Member, scope: &str, streams: usize, (life, now_ns): (u8, i64)) -> Self {
        let dir = RunDir::new(node.dir.path()).scope(scope);
        std::fs::create_dir_all(dir.path()).unwrap();
        let config = SegmentConfig {
            incarnation: Some(Incarnation([life; 16])),
            ..SegmentConfig::new("b")
        };
        let mut segment = Segment::create(&dir.segment(), config, now_ns).unwrap();
        let writers = (0..streams)
            .map(|i| segment.register(&descriptor(i), Some(256), now_ns).unwrap())
            .collect();
        Self { segment, writers }
    }

    fn put(&mut self, now_ns: i64, value: i64) {
        for writer in &mut self.writers {
            writer.append(&Sample::measured(now_ns, value)).unwrap();
        }
        self.segment.heartbeat(now_ns);
    }
}

/// The parts that a reader on the node sees, by path.
fn parts(node: &Member, now_ns: i64) -> Vec<Arc<SegmentPart<DirectoryEntry>>> {
    let run_dir = RunDir::new(node.dir.path());
    let follower = SegmentFollower::open(&run_dir, ScopeChoice::Readable, 0, now_ns).unwrap();
    let follower = follower.with_mirrors(now_ns).unwrap();
    follower.parts().to_vec()
}

/// Number and newest values of the streams of a scope of node b, as a reader on this node sees
/// them.
fn mirrored(node: &Member, scope: &str, now_ns: i64) -> Option<(usize, Vec<Value>)> {
    let path = format!("nodes/b/applications/{scope}");
    let parts = parts(node, now_ns);
    let part = parts.iter().find(|part| *part.id.scope == *path)?;
    assert_eq!((&*part.id.node, part.id.is_mirror), ("b", true));
    assert!(!part.id.is_mirror_of_node());
    let newest = |entry: &Arc<DirectoryEntry>| match part.segment.stream(entry).latest() {
        LatestSample::Sample { sample, .. } => Some(sample.value),
        LatestSample::Empty | LatestSample::Gone => None,
    };
    let values = part.streams.iter().filter_map(newest);
    Some((part.streams.len(), values.collect()))
}

#[test]
fn publications_are_mirrored_for_those_who_may_read_them() {
    let network = MemoryNetwork::default();
    let mut now_ns = START_NS;
    let mut a = Member::new(&network, "a", 1, now_ns);
    let mut b = Member::new(&network, "b", 2, now_ns);
    let mut step = |a: &mut Member, b: &mut Member, all: &mut [&mut Publications], value| {
        for _ in 0..60 {
            now_ns += NS_PER_S / 10;
            b.put(now_ns, value);
            all.iter_mut().for_each(|one| one.put(now_ns, value));
            b.node.step(now_ns);
            a.node.step(now_ns);
        }
        now_ns
    };
    let now_ns = step(&mut a, &mut b, &mut [], 1);
    assert_eq!(
        (a.peer("b").streams, mirrored(&a, "all", now_ns)),
        (3, None)
    );
    let mut public = Publications::new(&b, "all", 1, (3, now_ns));
    let mut of_user = Publications::new(&b, "u71", 2, (4, now_ns));
    // No pattern of the configuration names it.
    let mut of_group = Publications::new(&b, "g5", 1, (5, now_ns));
    let now_ns = step(
        &mut a,
        &mut b,
        &mut [&mut public, &mut of_user, &mut of_group],
        2,
    );
    assert_eq!(mirrored(&a, "all", now_ns), Some((1, vec![Value::Int(2)])));
    assert_eq!(
        mirrored(&a, "u71", now_ns),
        Some((2, vec![Value::Int(2); 2]))
    );
    assert_eq!(mirrored(&a, "g5", now_ns), None);
    assert_eq!((a.peer("b").streams, a.peer("b").missed), (6, 0));
    let rows = b.node.sent_to();
    let scopes: Vec<&str> = rows.iter().map(|row| &*row.scope).collect();
    assert_eq!(scopes, ["", "all", "u71"]);
    // The mirror is guarded as the scope is.
    let mirror = RunDir::new(a.dir.path()).mirror("b");
    let others = |scope: &str| {
        let mode = std::fs::metadata(mirror.scope(scope).path()).unwrap();
        mode.permissions().mode() & 0o007
    };
    assert_eq!((others("all"), others("u71")), (0o5, 0));

    // Another segment in its place, as after a restart, and a scope that goes.
    public.segment.close();
    let mut again = Publications::new(&b, "all", 1, (6, now_ns));
    drop(of_user);
    let of_user = RunDir::new(b.dir.path()).scope("u71");
    std::fs::remove_dir_all(of_user.path()).unwrap();
    let now_ns = step(&mut a, &mut b, &mut [&mut again], 7);
    assert_eq!(mirrored(&a, "all", now_ns), Some((1, vec![Value::Int(7)])));
    assert_eq!(mirrored(&a, "u71", now_ns), None);
    assert!(!mirror.scope("u71").path().exists());
    assert_eq!(a.peer("b").streams, 4);
    assert!(
        parts(&a, now_ns)
            .iter()
            .any(|part| part.id.is_mirror_of_node())
    );
}

#[test]
fn the_scopes_of_a_node_share_the_room_of_one_mirror() {
    let network = MemoryNetwork::default();
    let mut now_ns = START_NS;
    // A mirror has room for 6 streams; one scope may have half of it.
    let mut a = Member::with(&network, "a", 1, now_ns, 16, 6);
    let mut b = Member::new(&network, "b", 2, now_ns);
    let mut scopes = [("all", 3), ("u71", 4), ("u72", 5)]
        .map(|(scope, life)| Publications::new(&b, scope, 5, (life, now_ns)));
    for _ in 0..60 {
        now_ns += NS_PER_S / 10;
        b.put(now_ns, 1);
        scopes.iter_mut().for_each(|one| one.put(now_ns, 1));
        b.node.step(now_ns);
        a.node.step(now_ns);
    }
    let count = |scope| mirrored(&a, scope, now_ns).map(|(streams, _)| streams);
    assert_eq!(count("all"), Some(3));
    assert_eq!(count("u71"), Some(3));
    assert_eq!(count("u72"), Some(0));
    let peer = a.peer("b");
    assert_eq!(
        peer.streams, 9,
        "the node's own streams have room of their own"
    );
    assert!(peer.missed > 0, "what has no room is counted");
    // What was left out is counted where it is sent from, too.
    let rows = b.node.sent_to();
    let unsent = |scope: &str| {
        rows.iter()
            .find(|row| row.scope == scope)
            .unwrap()
            .unsent_streams
    };
    assert_eq!((unsent(""), unsent("all")), (0, 2));
}

/// Histories of scopes, for which there is no room, or room at the second attempt, or in which
/// something fails.
#[derive(Clone, Debug, Default)]
struct Rooms(Arc<Mutex<RoomState>>);

#[derive(Debug, Default)]
struct RoomState {
    disk: SharedDisk,
    has_room: bool,
    is_broken: bool,
    is_under_way: bool,
    opened: u32,
}

impl DurableHistories for Rooms {
    fn open(&mut self, _: &str, scope: &str) -> HistoryOpening {
        let mut rooms = self.0.lock().unwrap();
        if scope != "u71" {
            return HistoryOpening::NotKept;
        }
        match (rooms.has_room, rooms.is_broken, rooms.is_under_way) {
            (false, ..) => HistoryOpening::Failed("too many are kept".into()),
            (true, true, _) => HistoryOpening::Failed("the disk is broken".into()),
            (true, false, false) => {
                rooms.is_under_way = true;
                HistoryOpening::UnderWay
            }
            (true, false, true) => {
                rooms.opened += 1;
                HistoryOpening::Open(rooms.disk.history())
            }
        }
    }

    fn await_only(&mut self, awaited: &dyn Fn(&str, &str) -> bool) {
        let mut rooms = self.0.lock().unwrap();
        rooms.is_under_way &= awaited("b", "u71");
    }
}

#[test]
fn a_scope_without_room_for_its_history_is_mirrored_and_kept_when_there_is_room() {
    let network = MemoryNetwork::default();
    let mut now_ns = START_NS;
    let mut a = Member::new(&network, "a", 1, now_ns);
    let rooms = Rooms::default();
    a.node.keep_histories(Box::new(rooms.clone()));
    let mut b = Member::new(&network, "b", 2, now_ns);
    let mut of_user = Publications::new(&b, "u71", 2, (3, now_ns));
    let mut step = |a: &mut Member, value| {
        for _ in 0..50 {
            now_ns += NS_PER_S / 10;
            b.put(now_ns, value);
            of_user.put(now_ns, value);
            b.node.step(now_ns);
            a.node.step(now_ns);
            rooms.0.lock().unwrap().disk.sync();
        }
        now_ns
    };
    let expect = |value| Some((2, vec![Value::Int(value); 2]));
    let now_ns = step(&mut a, 1);
    assert_eq!(mirrored(&a, "u71", now_ns), expect(1));
    assert_eq!(a.node.status().unkept_scopes, 1);
    let told = Some("publications of u71: too many are kept".to_owned());
    assert_eq!(a.peer("b").fault, told);
    // A history that fails to open takes nothing away from the mirror that is there.
    rooms.0.lock().unwrap().has_room = true;
    rooms.0.lock().unwrap().is_broken = true;
    let now_ns = step(&mut a, 2);
    assert_eq!(mirrored(&a, "u71", now_ns), expect(2));
    let fault = a.peer("b").fault.unwrap();
    assert!(fault.contains("the disk is broken"), "{fault}");
    assert_eq!(rooms.0.lock().unwrap().disk.count(), 0);
    // There is room: it is kept from now on, with what the rings of its node have.
    rooms.0.lock().unwrap().is_broken = false;
    let now_ns = step(&mut a, 3);
    assert_eq!(mirrored(&a, "u71", now_ns), expect(3));
    assert_eq!(
        (a.peer("b").fault, a.node.status().unkept_scopes),
        (None, 0)
    );
    assert_eq!(rooms.0.lock().unwrap().opened, 1);
    assert!(rooms.0.lock().unwrap().disk.count() > 200);
    assert_eq!(a.peer("b").missed, 0);
}
