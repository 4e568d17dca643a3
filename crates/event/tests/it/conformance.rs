//! The tests that every collector passes: a model that is kept by its events alone is equal to the
//! tree in the end, whatever has happened to the tree.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use barograph_event::{Collector, EventFlags, EventKind};
use tempfile::TempDir;

use crate::operations::{Operations, append};
use crate::replica::Replica;

/// Checks a collector. `make` opens it for the directory that it is given; it may keep files of
/// its own elsewhere. `further_seeds` are run beside those of all collectors. Events that were told
/// by comparing are not expected, but allowed.
pub(crate) fn conforms(further_seeds: &[u64], mut make: impl FnMut(&Path) -> Box<dyn Collector>) {
    for base in ["/dev/shm", "/tmp"] {
        let make: &mut dyn FnMut(&Path) -> Box<dyn Collector> = &mut make;
        each_operation_is_told_once(base, make);
        names_are_bytes(base, make);
        a_tree_that_is_made_at_once_is_told_whole(base, make);
        trees_move_within_out_and_in(base, make);
        for seed in seeds(6).chain(further_seeds.iter().copied()) {
            random_operations(base, seed, 1 + seed * 5, make);
        }
    }
}

/// Names of variables of the environment: the first and the last seed of random operations.
const SEEDS: [&str; 2] = ["BAROGRAPH_EVENT_SEED_FIRST", "BAROGRAPH_EVENT_SEED_LAST"];

/// The seeds that the environment names, or those from 1 to `last`.
fn seeds(last: u64) -> std::ops::RangeInclusive<u64> {
    let [first, wanted] =
        SEEDS.map(|name| std::env::var(name).ok().map(|seed| seed.parse().unwrap()));
    first.unwrap_or(1)..=wanted.unwrap_or(last)
}

/// Checks a collector while another thread changes the tree at random.
pub(crate) fn conforms_at_the_same_time(mut make: impl FnMut(&Path) -> Box<dyn Collector>) {
    for base in ["/dev/shm", "/tmp"] {
        for seed in seeds(3) {
            random_operations_meanwhile(base, seed, &mut make);
        }
    }
}

/// Checks a collector that works on events when much has changed since.
pub(crate) fn conforms_late(mut make: impl FnMut(&Path) -> Box<dyn Collector>) {
    for base in ["/dev/shm", "/tmp"] {
        for seed in seeds(3) {
            random_operations_read_late(base, seed, &mut make);
        }
    }
}

pub(crate) type Make<'a> = &'a mut dyn FnMut(&Path) -> Box<dyn Collector>;

/// A watched directory and one beside it that is not watched.
pub(crate) struct Place {
    /// The directory that is watched.
    pub(crate) root: PathBuf,
    /// The directory that is not watched.
    pub(crate) outside: PathBuf,
    _dir: TempDir,
}

impl Place {
    /// A place below `base`.
    pub(crate) fn new(base: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("event")
            .tempdir_in(base)
            .unwrap();
        let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        Self {
            root,
            outside,
            _dir: dir,
        }
    }
}

fn each_operation_is_told_once(base: &str, make: Make<'_>) {
    let place = Place::new(base);
    let root = &place.root;
    fs::write(root.join("before"), b"").unwrap();
    let mut replica = Replica::new(root, make(root));
    replica.settle("the start");
    type Case = (EventKind, &'static str, fn(&Path));
    let cases: [Case; 14] = [
        (EventKind::Create, "a", |r| {
            fs::write(r.join("a"), b"12345").unwrap()
        }),
        (EventKind::Mkdir, "d", |r| {
            fs::create_dir(r.join("d")).unwrap()
        }),
        (EventKind::Create, "d/f", |r| {
            fs::write(r.join("d/f"), b"").unwrap()
        }),
        (EventKind::Symlink, "s", |r| {
            std::os::unix::fs::symlink("a", r.join("s")).unwrap()
        }),
        (EventKind::Mknod, "p", |r| {
            drop(std::os::unix::net::UnixListener::bind(r.join("p")).unwrap());
        }),
        (EventKind::Link, "d/l", |r| {
            fs::hard_link(r.join("a"), r.join("d/l")).unwrap()
        }),
        (EventKind::Rename, "d/g", |r| {
            fs::rename(r.join("d/f"), r.join("d/g")).unwrap()
        }),
        (EventKind::Rename, "e", |r| {
            fs::rename(r.join("d"), r.join("e")).unwrap()
        }),
        (EventKind::Create, "e/new", |r| {
            fs::write(r.join("e/new"), b"1").unwrap()
        }),
        (EventKind::Rename, "a", |r| {
            fs::rename(r.join("e/new"), r.join("a")).unwrap()
        }),
        (EventKind::Unlink, "e/g", |r| {
            fs::remove_file(r.join("e/g")).unwrap()
        }),
        (EventKind::Unlink, "before", |r| {
            fs::remove_file(r.join("before")).unwrap()
        }),
        (EventKind::Unlink, "e/l", |r| {
            fs::remove_file(r.join("e/l")).unwrap()
        }),
        (EventKind::Rmdir, "e", |r| {
            fs::remove_dir(r.join("e")).unwrap()
        }),
    ];
    for (kind, name, act) in cases {
        replica.told.clear();
        act(root);
        is_told_once(root, &mut replica, kind, name);
    }
    contents_and_attributes(root, &mut replica);
}

/// Waits until the event is told, and checks that it is the only one that changes names.
fn is_told_once(root: &Path, replica: &mut Replica, kind: EventKind, name: &str) {
    let path = root.join(name);
    replica.until(name, |replica| replica.count(kind, &path) > 0);
    replica.settle(name);
    assert_eq!(
        replica.count(kind, &path),
        1,
        "{kind} {name}: {:?}",
        replica.told
    );
    let structural =
        |kind: EventKind| kind.makes_name() || kind.removes_name() || kind == EventKind::Rename;
    let count = replica
        .told
        .iter()
        .filter(|event| structural(event.kind))
        .count();
    assert_eq!(count, 1, "{kind} {name}: {:?}", replica.told);
    let event = replica
        .told
        .iter()
        .find(|event| event.kind == kind)
        .unwrap();
    let is_directory = kind == EventKind::Mkdir || kind == EventKind::Rmdir || name == "e";
    assert_eq!(
        event.flags.has(EventFlags::DIRECTORY),
        is_directory,
        "{event:?}"
    );
}

fn contents_and_attributes(root: &Path, replica: &mut Replica) {
    let path = root.join("s and more");
    fs::write(&path, b"1").unwrap();
    replica.settle("a file");
    replica.told.clear();
    append(&path, b"2345").unwrap();
    replica.until("closing", |replica| {
        replica.count(EventKind::CloseWrite, &path) > 0
    });
    assert!(
        replica.count(EventKind::Write, &path) > 0,
        "{:?}",
        replica.told
    );
    let mode = fs::Permissions::from_mode(0o600);
    fs::set_permissions(&path, mode).unwrap();
    replica.until("the mode", |replica| {
        replica.count(EventKind::Attrib, &path) > 0
    });
    assert_eq!(
        replica.count(EventKind::Create, &path),
        0,
        "{:?}",
        replica.told
    );
    replica.settle("the end");
}

fn names_are_bytes(base: &str, make: Make<'_>) {
    let place = Place::new(base);
    fs::create_dir(place.root.join("d")).unwrap();
    let mut replica = Replica::new(&place.root, make(&place.root));
    replica.settle("the start");
    let long = [b'n'; 255];
    let names: [&[u8]; 6] = [
        b"new\nline",
        b"\xff\xfe\x80",
        &long,
        b"  b  ",
        b"a\"\\'$(x)",
        b"\t",
    ];
    for name in names {
        let (file, dir) = (
            place.root.join(OsStr::from_bytes(name)),
            place.root.join("d"),
        );
        fs::write(&file, name).unwrap();
        fs::rename(&file, dir.join(OsStr::from_bytes(name))).unwrap();
        fs::create_dir(&file).unwrap();
        fs::write(file.join("in it"), name).unwrap();
        replica.settle("a name");
        assert_eq!(
            replica.count(EventKind::Rename, &dir.join(OsStr::from_bytes(name))),
            1
        );
    }
}

fn a_tree_that_is_made_at_once_is_told_whole(base: &str, make: Make<'_>) {
    let place = Place::new(base);
    let mut replica = Replica::new(&place.root, make(&place.root));
    replica.settle("the start");
    let mut paths = Vec::new();
    for tree in 0..20 {
        let mut dir = place.root.join(format!("tree{tree}"));
        for depth in 0..30 {
            fs::create_dir(&dir).unwrap();
            let file = dir.join("file");
            fs::write(&file, b"at once").unwrap();
            paths.push(file);
            dir = dir.join(format!("{depth}"));
        }
        if tree % 4 == 0 {
            replica.collect();
        }
    }
    replica.settle("the trees");
    for path in paths {
        assert_eq!(replica.count(EventKind::Create, &path), 1, "{path:?}");
        assert_eq!(
            replica.count(EventKind::Mkdir, path.parent().unwrap()),
            1,
            "{path:?}"
        );
    }
}

fn trees_move_within_out_and_in(base: &str, make: Make<'_>) {
    let place = Place::new(base);
    let (root, outside) = (&place.root, &place.outside);
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::write(root.join("a/b/c/f"), b"1").unwrap();
    let mut replica = Replica::new(root, make(root));
    replica.settle("the start");
    fs::rename(root.join("a"), root.join("moved")).unwrap();
    fs::write(root.join("moved/b/c/g"), b"2").unwrap();
    replica.settle("moved within");
    fs::rename(root.join("moved/b"), outside.join("b")).unwrap();
    fs::write(outside.join("b/c/h"), b"3").unwrap();
    replica.settle("moved out");
    fs::write(outside.join("b/c/i"), b"3").unwrap();
    fs::rename(outside.join("b"), root.join("back")).unwrap();
    fs::write(root.join("back/c/j"), b"4").unwrap();
    replica.settle("moved in");
    // Over an empty directory, and over a file.
    fs::create_dir(root.join("empty")).unwrap();
    fs::rename(root.join("back"), root.join("empty")).unwrap();
    fs::write(root.join("x"), b"12").unwrap();
    fs::rename(root.join("empty/c/f"), root.join("x")).unwrap();
    replica.settle("moved over");
    // A chain, and two that change places.
    for (from, to) in [
        ("moved", "m1"),
        ("m1", "m2"),
        ("empty", "m1"),
        ("m2", "empty"),
    ] {
        fs::rename(root.join(from), root.join(to)).unwrap();
    }
    fs::write(root.join("m1/c/last"), b"5").unwrap();
    fs::write(root.join("empty/other"), b"6").unwrap();
    replica.settle("a chain");
    assert_eq!(replica.count(EventKind::Create, &root.join("m1/c/last")), 1);
}

/// Changes a tree at random, and collects in between, once for every so many changes.
fn random_operations(base: &str, seed: u64, every: u64, make: Make<'_>) {
    println!("{base}: seed {seed}, collected every {every}");
    let place = Place::new(base);
    let mut operations = Operations::new(&place.root, &place.outside, seed);
    (0..100).for_each(|_| operations.step());
    let mut replica = Replica::new(&place.root, make(&place.root));
    replica.settle("the start");
    for round in 0..30 {
        for at in 0..100 {
            operations.step();
            if (seed + at).is_multiple_of(every) {
                replica.collect();
            }
        }
        replica.linked.extend(&operations.linked);
        replica.settle(&format!("round {round} of seed {seed} in {base}"));
    }
}

fn random_operations_meanwhile(base: &str, seed: u64, make: Make<'_>) {
    println!("{base}: seed {seed}, meanwhile");
    let place = Place::new(base);
    let mut operations = Operations::new(&place.root, &place.outside, seed);
    (0..100).for_each(|_| operations.step());
    let mut replica = Replica::new(&place.root, make(&place.root));
    replica.settle("the start");
    for round in 0..6 {
        std::thread::scope(|scope| {
            let steps = scope.spawn(|| (0..400).for_each(|_| operations.step()));
            while !steps.is_finished() {
                replica.collect();
            }
        });
        replica.linked.extend(&operations.linked);
        replica.settle(&format!("round {round} of seed {seed} in {base}"));
    }
}

fn random_operations_read_late(base: &str, seed: u64, make: Make<'_>) {
    println!("{base}: seed {seed}, late");
    let place = Place::new(base);
    let mut operations = Operations::new(&place.root, &place.outside, seed);
    let mut replica = Replica::new(&place.root, make(&place.root));
    replica.settle("the start");
    for round in 0..4 {
        (0..800).for_each(|_| operations.step());
        replica.linked.extend(&operations.linked);
        replica.settle(&format!("round {round} of seed {seed} in {base}"));
    }
}
