//! Tests of inotify.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use barograph_event::{
    Collected, Collector, EventFlags, EventKind, EventKinds, FileEvent, InotifyCollector,
    InotifyConfig, ObjectId,
};

use crate::conformance::{Place, conforms, conforms_at_the_same_time, conforms_late};
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

#[test]
fn inotify_conforms_while_the_tree_changes() {
    let state = tempfile::tempdir().unwrap();
    let mut count = 0;
    let mut make = |root: &Path| {
        count += 1;
        let snapshot = state.path().join(count.to_string());
        open(root, InotifyConfig::new(snapshot))
    };
    conforms_at_the_same_time(&mut make);
    conforms_late(&mut make);
}

/// Number of events that the kernel keeps.
fn kernel_limit() -> usize {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    limit.trim().parse().unwrap()
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
    let limit = kernel_limit();
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

/// A file may be closed when nobody looks, and nothing but an event shows that.
#[test]
fn a_file_whose_closing_was_not_seen_is_told_as_closed() {
    let (place, state) = (Place::new("/tmp"), tempfile::tempdir().unwrap());
    let mut config = InotifyConfig::new(state.path().join("snapshot"));
    let mut first = replica(&place, config.clone());
    fs::write(place.root.join("closed"), b"1").unwrap();
    let mut file = fs::File::create(place.root.join("open")).unwrap();
    file.write_all(b"1").unwrap();
    first.settle("an open file");
    config.tree.index_next = first.told.last().unwrap().index + 1;
    let nothing = InotifyConfig::new(state.path().join("other"));
    let first = first.with(open(&place.outside, nothing));
    drop(file);
    let mut collector = open(&place.root, config);
    let (from, _) = collector.learns_from().unwrap();
    for event in first.told.iter().filter(|event| event.index >= from) {
        collector.learn(event);
    }
    let mut second = first.with(collector);
    second.told.clear();
    second.settle("the second life");
    let kinds = [EventKind::Gap, EventKind::CloseWrite, EventKind::Reconciled];
    let told: Vec<_> = second.told.iter().map(|event| event.kind).collect();
    assert_eq!(told, kinds, "{:?}", second.told);
    assert_eq!(
        second.count(EventKind::CloseWrite, &place.root.join("open")),
        1
    );
    assert!(second.told[1].flags.has(EventFlags::RECONCILED));
}

/// An event of a directory that was gone before anybody could look at it has no number. Such events
/// of an earlier life must not lead the walk of the next one astray.
#[test]
fn a_directory_that_nobody_has_seen_ends_no_watch() {
    let (place, state) = (Place::new("/tmp"), tempfile::tempdir().unwrap());
    let snapshot = state.path().join("snapshot");
    let mut config = InotifyConfig::new(&snapshot);
    config.tree.snapshot_interval_ns = 1;
    fs::create_dir(place.root.join("a")).unwrap();
    let mut first = Replica::new(&place.root, open(&place.root, config.clone()));
    first.settle("the start");
    first.until("the snapshot", |_| snapshot.exists());
    fs::create_dir(place.root.join("a/b")).unwrap();
    first.settle("a directory");
    let seen = first.told.last().unwrap().clone();
    let idle = InotifyConfig::new(state.path().join("idle"));
    let first = first.with(open(&place.outside, idle));
    let mut collector = open(&place.root, config);
    let (from, _) = collector.learns_from().unwrap();
    for event in first.told.iter().filter(|event| event.index >= from) {
        collector.learn(event);
    }
    for (more, kind) in [(1, EventKind::Mkdir), (2, EventKind::Rename)] {
        let mut unseen = seen.clone();
        (unseen.kind, unseen.index) = (kind, seen.index + more);
        unseen.target = ObjectId::NONE;
        unseen.path.extend(format!("unseen{more}").as_bytes());
        unseen.old_path = seen.path.clone();
        unseen.old_path.extend(b"before");
        assert!(unseen.flags.has(EventFlags::DIRECTORY));
        collector.learn(&unseen);
    }
    let mut second = first.with(collector);
    second.told.clear();
    second.settle("the second life");
    assert_eq!(second.told.first().unwrap().kind, EventKind::Gap);
    assert_eq!(second.told.last().unwrap().kind, EventKind::Reconciled);
    fs::write(place.root.join("a/b/file"), b"1").unwrap();
    second.settle("after the gap");
    assert_eq!(
        second.count(EventKind::Create, &place.root.join("a/b/file")),
        1
    );
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

/// A collector with all events that it has given.
struct Stepped {
    collector: Box<dyn Collector>,
    events: Vec<FileEvent>,
    start: Instant,
}

impl Stepped {
    fn new(place: &Place, config: InotifyConfig) -> Self {
        let mut stepped = Self {
            collector: open(&place.root, config),
            events: Vec::new(),
            start: Instant::now(),
        };
        stepped.settle(|_| true);
        stepped
    }

    fn collect(&mut self, events_max: usize) -> Collected {
        let now_ns = self.start.elapsed().as_nanos() as i64;
        let mut events = Vec::new();
        let collected = self
            .collector
            .collect(&mut events, events_max, (now_ns, now_ns));
        if let Some(last) = events.last() {
            self.collector.acknowledge(last.index).unwrap();
        }
        self.events.append(&mut events);
        collected.unwrap()
    }

    /// Collects until nothing is left and the condition holds.
    fn settle(&mut self, holds: impl Fn(&[FileEvent]) -> bool) {
        let begin = Instant::now();
        loop {
            let is_all = self.collect(1_000) == Collected::All;
            let status = self.collector.status();
            if is_all && !status.is_walking && holds(&self.events) {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "{status:?}");
        }
    }

    /// Number of events of a kind by their paths.
    fn by_path(&self, kind: EventKind) -> BTreeMap<PathBuf, usize> {
        let mut counts = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.kind == kind) {
            *counts.entry(path_of(event)).or_default() += 1;
        }
        counts
    }
}

fn path_of(event: &FileEvent) -> PathBuf {
    std::ffi::OsStr::from_bytes(&event.path).into()
}

/// More is made in new directories than the kernel keeps events of, while the collector works. What
/// is made between two calls has room in the kernel's queue, so that only a call that leaves events
/// there may lose any.
#[test]
fn a_burst_in_new_directories_loses_nothing() {
    let limit = kernel_limit();
    let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
    let mut stepped = Stepped::new(&place, InotifyConfig::new(state.path().join("snapshot")));
    let file = |at: usize| place.root.join(format!("{}/below/{at}", at / 500));
    let (files, ahead) = (4 * limit, limit / 8);
    let (made, allowed) = (AtomicUsize::new(0), AtomicUsize::new(ahead));
    std::thread::scope(|scope| {
        let burst = scope.spawn(|| {
            for at in 0..files {
                while at >= allowed.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let path = file(at);
                if at % 500 == 0 {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                }
                // Three events of each file.
                fs::write(path, b"123").unwrap();
                made.store(at + 1, Ordering::Release);
            }
        });
        while !burst.is_finished() {
            stepped.collect(1_000);
            allowed.store(made.load(Ordering::Acquire) + ahead, Ordering::Release);
        }
    });
    stepped.settle(|events| {
        let creates = events
            .iter()
            .filter(|event| event.kind == EventKind::Create);
        creates.count() >= files
    });
    let status = stepped.collector.status();
    assert_eq!(status.gaps, 0, "{status:?}");
    let creates = stepped.by_path(EventKind::Create);
    assert_eq!(creates.len(), files);
    // What was found in a new directory is marked, so that every file is seen as written.
    let written = stepped.events.iter().filter(|event| match event.kind {
        EventKind::CloseWrite => true,
        kind => kind == EventKind::Create && event.flags.has(EventFlags::RECONCILED),
    });
    let written: BTreeSet<_> = written.map(path_of).collect();
    assert_eq!(written.len(), files);
    let twice: Vec<_> = creates.iter().filter(|(_, count)| **count > 1).collect();
    assert!(
        twice.is_empty(),
        "{} are told twice: {twice:?}",
        twice.len()
    );
    let directories = stepped.by_path(EventKind::Mkdir);
    assert_eq!(directories.len(), 2 * files.div_ceil(500));
    assert!(directories.values().all(|count| *count == 1));
    let sized = stepped.events.iter().filter(|event| event.size.is_some());
    let sizes: BTreeMap<_, _> = sized.map(|event| (path_of(event), event.size)).collect();
    assert!((0..files).all(|at| sizes[&file(at)] == Some(3)));
}

/// Names that cannot be seen because a directory above them was renamed are looked at when that is
/// told. If they are too many, comparing finds them.
#[test]
fn a_directory_that_is_renamed_before_its_new_names_are_told_is_known_in_the_end() {
    for (files, is_compared) in [(20_000, false), (70_000, true)] {
        let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
        fs::create_dir_all(place.root.join("a/b")).unwrap();
        let mut stepped = Stepped::new(&place, InotifyConfig::new(state.path().join("snapshot")));
        for at in 0..100 {
            let dir = place.root.join(format!("a/b/d{at}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("f"), b"1").unwrap();
        }
        for at in 0..files {
            fs::write(place.root.join(format!("a/b/{at}")), b"").unwrap();
            if at % 1_000 == 0 {
                // Events are taken in, and none are told.
                assert_eq!(stepped.collect(0), Collected::More);
            }
        }
        fs::rename(place.root.join("a"), place.root.join("c")).unwrap();
        stepped.settle(|events| !events.is_empty());
        let status = stepped.collector.status();
        assert_eq!(
            (status.gaps, status.reconciled > 100),
            (0, is_compared),
            "{status:?}"
        );
        let creates = stepped.by_path(EventKind::Create);
        for at in 0..100 {
            let path = place.root.join(format!("c/b/d{at}/f"));
            assert_eq!(creates.get(&path), Some(&1), "{path:?}");
        }
        assert!(creates.values().all(|count| *count == 1));
        // What was found in new directories, and names that were given up, which comparing tells.
        stepped
            .events
            .retain(|event| !event.flags.has(EventFlags::RECONCILED));
        let creates = stepped.by_path(EventKind::Create).len();
        assert_eq!(creates, files);
        stepped.events.clear();
        fs::write(place.root.join("c/b/d7/g"), b"1").unwrap();
        stepped.settle(|events| events.iter().any(|event| event.name() == b"g"));
        assert_eq!(stepped.by_path(EventKind::Create).len(), 1);
    }
}

/// Memory for events has a maximum; what has no room, and none in the kernel either, is a gap.
#[test]
fn events_that_have_no_room_are_a_gap() {
    let limit = kernel_limit();
    let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
    let mut config = InotifyConfig::new(state.path().join("snapshot"));
    config.queue_bytes_max = 64 << 10;
    let mut replica = replica(&place, config);
    let write = |replica: &mut Replica, count: usize| {
        for at in 0..count {
            // Three events of 32 bytes, and one if the file is there already.
            fs::write(place.root.join((at % 200).to_string()), b"123").unwrap();
            if at % 1_000 == 0 {
                let collected = replica.collector.collect(&mut Vec::new(), 0, (1, 1));
                assert_eq!(collected.unwrap(), Collected::More);
            }
        }
    };
    write(&mut replica, limit / 8);
    replica.settle("events that have room");
    assert_eq!(replica.collector.status().gaps, 0);
    write(&mut replica, limit);
    fs::write(place.root.join("last"), b"1").unwrap();
    replica.settle("events that have none");
    assert_eq!(count(&replica, EventKind::Gap), 1);
    assert_eq!(count(&replica, EventKind::Reconciled), 1);
    assert_eq!(replica.collector.status().gaps, 1);
}
