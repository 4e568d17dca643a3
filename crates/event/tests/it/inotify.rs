//! Tests of inotify.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use barograph_event::{
    Collector, EventFlags, EventKind, EventKinds, InotifyCollector, InotifyConfig,
};

use crate::conformance::{Place, conforms};
use crate::replica::Replica;

fn open(root: &Path, config: InotifyConfig) -> Box<dyn Collector> {
    Box::new(InotifyCollector::open(&[root.to_owned()], config).unwrap())
}

#[test]
fn inotify_conforms() {
    let state = tempfile::tempdir().unwrap();
    let mut count = 0;
    conforms(&[], |root| {
        count += 1;
        open(
            root,
            InotifyConfig::new(state.path().join(count.to_string())),
        )
    });
}

fn replica(place: &Place, config: InotifyConfig) -> Replica {
    let mut replica = Replica::new(&place.root, open(&place.root, config));
    replica.settle("the start");
    replica
}

fn count(replica: &Replica, kind: EventKind) -> usize {
    let of = replica.told.iter().filter(|event| event.kind == kind);
    of.count()
}

/// Everything between a gap and its end is marked as reconciled, and nothing else is missing.
#[test]
fn what_a_full_queue_has_lost_is_told_as_reconciled() {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
    for at in 0..500 {
        fs::write(place.root.join(format!("old{at}")), b"1").unwrap();
    }
    fs::create_dir_all(place.root.join("deep/a/b")).unwrap();
    fs::write(place.root.join("deep/a/b/f"), b"1").unwrap();
    fs::create_dir_all(place.root.join("gone/a/b")).unwrap();
    fs::write(place.root.join("gone/a/b/f"), b"1").unwrap();
    let mut replica = replica(&place, InotifyConfig::new(state.path().join("snapshot")));
    replica.told.clear();
    for at in 0..limit {
        fs::write(place.root.join(format!("new{}", at % 7_000)), b"1").unwrap();
    }
    // All of this is lost.
    fs::rename(place.root.join("deep/a"), place.root.join("moved")).unwrap();
    fs::remove_dir_all(place.root.join("gone")).unwrap();
    for at in 0..100 {
        let old = place.root.join(format!("old{at}"));
        match at % 4 {
            0 => fs::rename(old, place.root.join(format!("deep/o{at}"))).unwrap(),
            1 => fs::remove_file(old).unwrap(),
            2 => fs::write(old, b"longer").unwrap(),
            _ => fs::rename(old, place.root.join(format!("old{}", at + 200))).unwrap(),
        }
    }
    fs::create_dir(place.root.join("dir")).unwrap();
    fs::write(place.root.join("dir/f"), b"1").unwrap();
    replica.settle("the gap");
    assert_eq!(
        (
            count(&replica, EventKind::Gap),
            count(&replica, EventKind::Reconciled)
        ),
        (1, 1)
    );
    let status = replica.collector.status();
    assert!(status.gaps == 1 && status.reconciled > 100, "{status:?}");
    assert_eq!(
        replica.count(EventKind::Rename, &place.root.join("moved")),
        1
    );
    assert_eq!(
        replica.count(EventKind::Rename, &place.root.join("deep/o0")),
        1
    );
    assert_eq!(
        replica.count(EventKind::Rmdir, &place.root.join("gone/a/b")),
        1
    );
    let of = |name: &str| {
        let path = place.root.join(name);
        let path = path.as_os_str().as_bytes();
        replica
            .told
            .iter()
            .find(|event| event.path == path)
            .cloned()
            .unwrap()
    };
    for name in ["moved", "deep/o4", "old1", "old2", "dir", "dir/f", "gone"] {
        assert!(of(name).flags.has(EventFlags::RECONCILED), "{:?}", of(name));
    }
    // Directories that were found are watched.
    replica.told.clear();
    fs::write(place.root.join("dir/g"), b"1").unwrap();
    fs::write(place.root.join("moved/b/g"), b"1").unwrap();
    replica.settle("after the gap");
    assert_eq!(count(&replica, EventKind::Create), 2);
    assert_eq!(replica.collector.status().gaps, 1);
}

#[test]
fn what_happened_while_the_collector_was_away_is_told_as_reconciled() {
    for is_damaged in [false, true] {
        let (place, state) = (Place::new("/tmp"), tempfile::tempdir().unwrap());
        let snapshot = state.path().join("snapshot");
        for name in ["a", "b", "c"] {
            fs::create_dir(place.root.join(name)).unwrap();
            fs::write(place.root.join(name).join("f"), name).unwrap();
        }
        let mut config = InotifyConfig::new(&snapshot);
        config.tree.snapshot_interval_ns = 1;
        let mut first = replica(&place, config.clone());
        fs::write(place.root.join("later"), b"1").unwrap();
        first.settle("a file");
        first.until("the snapshot", |replica| {
            replica.collector.due_ns() == i64::MAX && snapshot.exists()
        });
        let last = first.told.last().unwrap().index;
        // The old collector goes before the changes come.
        let nothing = InotifyConfig::new(state.path().join("other"));
        let first = first.with(open(&place.outside, nothing));
        fs::rename(place.root.join("a"), place.root.join("c/a")).unwrap();
        fs::remove_dir_all(place.root.join("b")).unwrap();
        fs::write(place.root.join("c/f"), b"more").unwrap();
        fs::write(place.root.join("new"), b"1").unwrap();
        if is_damaged {
            let mut bytes = fs::read(&snapshot).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(&snapshot, bytes).unwrap();
        }
        config.tree.index_next = last + 1;
        let mut second = match is_damaged {
            true => Replica::empty(&place.root, open(&place.root, config)),
            false => first.with(open(&place.root, config)),
        };
        second.told.clear();
        second.settle("the second life");
        assert_eq!(
            (
                count(&second, EventKind::Gap),
                count(&second, EventKind::Reconciled)
            ),
            (1, 1)
        );
        assert!(second.told.iter().all(|event| event.index > last));
        let moved = second.count(EventKind::Rename, &place.root.join("c/a"));
        assert_eq!(moved, usize::from(!is_damaged), "{:?}", second.told);
        // What had not changed is told only if the snapshot is damaged.
        let unchanged = second.count(EventKind::Mkdir, &place.root.join("c"));
        assert_eq!(unchanged, usize::from(is_damaged));
    }
}

#[test]
fn directories_without_a_watch_are_compared() {
    let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
    for at in 0..20 {
        fs::create_dir_all(place.root.join(format!("d{at}/e"))).unwrap();
    }
    let mut config = InotifyConfig::new(state.path().join("snapshot"));
    config.watches_max = 10;
    config.tree.compare_interval_ns = 5_000_000;
    let mut replica = replica(&place, config);
    let status = replica.collector.status();
    assert_eq!((status.watches, status.directories), (10, 41));
    assert!(status.trouble.contains("max_user_watches"), "{status:?}");
    for at in 0..20 {
        fs::write(place.root.join(format!("d{at}/e/f")), b"1").unwrap();
        fs::create_dir_all(place.root.join(format!("d{at}/new/below"))).unwrap();
        fs::write(place.root.join(format!("d{at}/new/below/f")), b"1").unwrap();
    }
    replica.settle("files without a watch");
    fs::rename(place.root.join("d3/e"), place.root.join("d15/other")).unwrap();
    fs::remove_dir_all(place.root.join("d4")).unwrap();
    replica.settle("moves without a watch");
    // When directories with a watch go, others get one.
    for at in 5..20 {
        fs::remove_dir_all(place.root.join(format!("d{at}"))).unwrap();
    }
    replica.settle("fewer directories");
    replica.until("watches for others", |replica| {
        let status = replica.collector.status();
        status.watches == status.directories.min(10)
    });
}

#[test]
fn a_root_that_is_removed_and_made_again_is_found_again() {
    let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
    fs::write(place.root.join("f"), b"1").unwrap();
    let mut config = InotifyConfig::new(state.path().join("snapshot"));
    config.tree.retry_ns = 2_000_000;
    let mut replica = replica(&place, config);
    for round in 0..3 {
        match round {
            0 => fs::remove_dir_all(&place.root).unwrap(),
            _ => fs::rename(&place.root, place.outside.join(round.to_string())).unwrap(),
        }
        replica.until("the root is missed", |replica| {
            replica.collector.status().trouble.contains("is not there")
        });
        replica.settle("no root");
        fs::create_dir(&place.root).unwrap();
        fs::create_dir(place.root.join("d")).unwrap();
        fs::write(place.root.join("d/f"), b"1").unwrap();
        replica.settle("the root again");
        fs::write(place.root.join("d/g"), b"1").unwrap();
        replica.settle("a file in it");
        assert_eq!(replica.collector.status().trouble, "");
    }
}

#[test]
fn symbolic_links_are_not_followed() {
    let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
    std::os::unix::fs::symlink(&place.root, place.root.join("loop")).unwrap();
    std::os::unix::fs::symlink(&place.outside, place.root.join("out")).unwrap();
    let mut replica = replica(&place, InotifyConfig::new(state.path().join("snapshot")));
    fs::write(place.outside.join("f"), b"1").unwrap();
    std::os::unix::fs::symlink("..", place.root.join("up")).unwrap();
    replica.settle("links");
    assert_eq!(replica.count(EventKind::Symlink, &place.root.join("up")), 1);
    assert_eq!(replica.collector.status().directories, 1);
}

#[test]
fn only_kinds_that_are_wanted_are_told() {
    let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
    let mut config = InotifyConfig::new(state.path().join("snapshot"));
    config.tree.kinds = EventKinds::of(&[EventKind::Open, EventKind::Unlink]);
    let mut replica = replica(&place, config);
    let path = place.root.join("f");
    fs::write(&path, b"1").unwrap();
    fs::remove_file(&path).unwrap();
    replica.until("removal", |replica| count(replica, EventKind::Unlink) == 1);
    assert_eq!(count(&replica, EventKind::Open), 1);
    assert_eq!(replica.told.len(), 2);
}

#[test]
fn no_root_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let config = InotifyConfig::new(state.path().join("snapshot"));
    assert!(InotifyCollector::open(&[], config.clone()).is_err());
    assert!(InotifyCollector::open(&["/no/such/place".into()], config).is_err());
}
