//! Tests of what fanotify finds after a gap, by comparing the tree with what it has told.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use barograph_event::{
    Collector, EventFlags, EventKind, FanotifyCollector, FanotifyConfig, FanotifyGroup,
    FanotifyQueue, TreeConfig,
};

use crate::conformance::{Place, conforms};
use crate::fanotify::{FURTHER_SEEDS, boxed, group};
use crate::operations::Operations;
use crate::replica::Replica;

/// Settings that keep what was told in a file.
fn keeping(root: &Path, snapshot: &Path) -> FanotifyConfig {
    let mut config = FanotifyConfig::new(root);
    config.tree = Some(TreeConfig::new(snapshot));
    config
}

/// The places to test at; none if this process may not open a group.
fn bases() -> &'static [&'static str] {
    match group(Path::new("/tmp")) {
        Some(_) => &["/dev/shm", "/tmp"],
        None => &[],
    }
}

fn count(replica: &Replica, kind: EventKind) -> usize {
    let of = replica.told.iter().filter(|event| event.kind == kind);
    of.count()
}

#[test]
fn it_conforms_while_it_keeps_what_was_told() {
    if bases().is_empty() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut opened = 0;
    conforms(&FURTHER_SEEDS, |root| {
        opened += 1;
        let snapshot = state.path().join(opened.to_string());
        boxed(group(root).unwrap(), &keeping(root, &snapshot))
    });
}

/// Ends the life of a collector: its place is taken by one of a directory in which nothing happens.
fn put_away(replica: Replica, place: &Place) -> Replica {
    let idle = place.root.parent().unwrap().join("idle");
    fs::create_dir_all(&idle).unwrap();
    replica.with(boxed(group(&idle).unwrap(), &FanotifyConfig::new(&idle)))
}

/// Begins another life, which learns what was recorded since the snapshot.
fn call_back(replica: Replica, place: &Place, config: &mut FanotifyConfig) -> Replica {
    config.index_next = replica.told.last().unwrap().index + 1;
    config.starts_with_gap = true;
    let group = group(&place.root).unwrap();
    let mut collector = FanotifyCollector::new(group, config).unwrap();
    let (first, _) = collector.learns_from().unwrap();
    for event in replica.told.iter().filter(|event| event.index >= first) {
        collector.learn(event);
    }
    replica.with(Box::new(collector))
}

/// Makes a file with contents and leaves it open.
fn written(path: &Path) -> fs::File {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(b"1").unwrap();
    file
}

#[test]
fn what_happened_while_the_collector_was_away_is_told_as_reconciled() {
    for base in bases() {
        let (place, state) = (Place::new(base), tempfile::tempdir().unwrap());
        let root = &place.root;
        let snapshot = state.path().join("snapshot");
        for name in ["a", "b", "c"] {
            fs::create_dir_all(root.join(name).join("in")).unwrap();
            fs::write(root.join(name).join("f"), name).unwrap();
        }
        let mut config = keeping(root, &snapshot);
        config.tree.as_mut().unwrap().snapshot_interval_ns = 1;
        let mut replica = Replica::new(root, boxed(group(root).unwrap(), &config));
        replica.settle("the start");
        fs::write(root.join("later"), b"1").unwrap();
        replica.settle("a file");
        replica.until("the snapshot", |_| snapshot.exists());
        let open = written(&root.join("open"));
        replica.settle("an open file");
        let last = replica.told.last().unwrap().index;
        let replica = put_away(replica, &place);
        drop(open);
        fs::rename(root.join("a"), root.join("c/a")).unwrap();
        fs::remove_dir_all(root.join("b")).unwrap();
        fs::write(root.join("c/f"), b"more").unwrap();
        fs::rename(root.join("later"), root.join("c/a/in/moved")).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/new"), b"1").unwrap();
        let mut replica = call_back(replica, &place, &mut config);
        replica.told.clear();
        replica.settle("the second life");
        let told = &replica.told;
        assert!(told.iter().all(|event| event.index > last));
        assert_eq!(told.first().unwrap().kind, EventKind::Gap);
        assert_eq!(told.last().unwrap().kind, EventKind::Reconciled);
        let between = &told[1..told.len() - 1];
        let is_marked = |flags: EventFlags| flags.has(EventFlags::RECONCILED);
        assert!(
            between.iter().all(|event| is_marked(event.flags)),
            "{told:?}"
        );
        for (kind, name) in [
            (EventKind::Rename, "c/a"),
            (EventKind::Rename, "c/a/in/moved"),
            // A rename changes the file's time of change.
            (EventKind::Attrib, "c/a/in/moved"),
            (EventKind::Rmdir, "b"),
            (EventKind::Rmdir, "b/in"),
            (EventKind::Unlink, "b/f"),
            (EventKind::Write, "c/f"),
            (EventKind::CloseWrite, "open"),
            (EventKind::Mkdir, "d"),
            (EventKind::Create, "d/new"),
        ] {
            assert_eq!(
                replica.count(kind, &root.join(name)),
                1,
                "{kind} {name}: {told:?}"
            );
        }
        let shown = |e: &barograph_event::FileEvent| {
            let path = String::from_utf8_lossy(&e.path).into_owned();
            format!("{} {path}", e.kind)
        };
        let shown: Vec<_> = between.iter().map(shown).collect();
        assert_eq!(shown.len(), 10, "{shown:#?}");
        assert_eq!(replica.collector.status().trouble, "");
        // Directories that were found are known.
        replica.told.clear();
        fs::write(root.join("d/more"), b"1").unwrap();
        fs::write(root.join("c/a/in/more"), b"1").unwrap();
        replica.settle("after the gap");
        assert_eq!(count(&replica, EventKind::Create), 2);
    }
}

#[test]
fn a_queue_that_runs_over_is_told_as_reconciled() {
    let limit = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    for base in bases() {
        let (place, state) = (Place::new(base), tempfile::tempdir().unwrap());
        let (root, snapshot) = (&place.root, state.path().join("snapshot"));
        let mut operations = Operations::new(root, &place.outside, 77);
        (0..200).for_each(|_| operations.step());
        let limited = FanotifyGroup::open_with(root, FanotifyQueue::Limited).unwrap();
        let mut replica = Replica::new(root, boxed(limited, &keeping(root, &snapshot)));
        replica.settle("the start");
        for round in 0..4 {
            (0..50).for_each(|_| operations.step());
            for at in 0..limit {
                fs::write(root.join(format!("full {round} {at}")), b"").unwrap();
            }
            // All of this is lost.
            (0..150).for_each(|_| operations.step());
            let gaps = count(&replica, EventKind::Gap);
            replica.until("the gap", |replica| count(replica, EventKind::Gap) > gaps);
            // And all of this happens while the tree is compared.
            while replica.collector.status().is_walking {
                operations.step();
                replica.collect();
            }
            replica.settle(&format!("round {round} in {base}"));
            // What others do in the file system may fill the queue once more.
            let is_mark = |kind| kind == EventKind::Gap || kind == EventKind::Reconciled;
            let mut marks = replica.told.iter().map(|event| event.kind).rev();
            assert_eq!(
                marks.find(|kind| is_mark(*kind)),
                Some(EventKind::Reconciled)
            );
            // The root keeps its size, so that a look at it is quick.
            for at in 0..limit {
                let _ = fs::remove_file(root.join(format!("full {round} {at}")));
                if at % 1_000 == 0 {
                    replica.collect();
                }
            }
            replica.settle("the removal");
        }
    }
}

#[test]
fn lives_of_random_operations_with_absences() {
    for base in bases() {
        for seed in 40..42 {
            lives(base, seed);
        }
    }
}

fn lives(base: &str, seed: u64) {
    println!("{base}: seed {seed}");
    let (place, state) = (Place::new(base), tempfile::tempdir().unwrap());
    let snapshot = state.path().join("snapshot");
    let mut config = keeping(&place.root, &snapshot);
    // Some snapshots are of long ago when the collector goes away.
    let tree = config.tree.as_mut().unwrap();
    tree.snapshot_interval_ns = [1, 50_000_000, 1_000_000_000][seed as usize % 3];
    tree.held_max = 20 + seed as usize % 2 * 1_000;
    let mut operations = Operations::new(&place.root, &place.outside, seed);
    (0..100).for_each(|_| operations.step());
    let first = boxed(group(&place.root).unwrap(), &config);
    let mut replica = Replica::new(&place.root, first);
    replica.settle("the start");
    replica.until("the snapshot", |_| snapshot.exists());
    for life in 0..6 {
        for _ in 0..5 {
            (0..40).for_each(|_| operations.step());
            replica.settle(&format!("life {life} of seed {seed} in {base}"));
        }
        // What was collected and recorded is known, also in the middle of something.
        (0..20).for_each(|_| operations.step());
        replica.collect();
        replica = put_away(replica, &place);
        (0..60).for_each(|_| operations.step());
        replica = call_back(replica, &place, &mut config);
        let gaps = count(&replica, EventKind::Gap);
        if seed.is_multiple_of(2) {
            (0..10).for_each(|_| operations.step());
        }
        replica.settle(&format!("after life {life} of seed {seed} in {base}"));
        let found = (
            count(&replica, EventKind::Gap),
            count(&replica, EventKind::Reconciled),
        );
        assert_eq!(found, (gaps + 1, gaps + 1), "seed {seed} in {base}");
    }
}
