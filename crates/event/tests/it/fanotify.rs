//! Tests of the collector by fanotify. Marking a file system needs CAP_SYS_ADMIN, without which
//! they say so and check nothing but that refusal.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use barograph_event::{
    Collected, Collector, EventKind, FanotifyCollector, FanotifyConfig, FanotifyGroup,
    FanotifyQueue, FileEvent,
};

use crate::conformance::{conforms, conforms_at_the_same_time};
use crate::replica::Replica;

/// Seeds that have once ended with a wrong size, or with a file that was told as a directory: trees
/// move in and out of the root, and events are read late.
pub(crate) const FURTHER_SEEDS: [u64; 7] = [7, 13, 16, 20, 26, 28, 29];

/// The limit of every wait: it is reached only if something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// A group for the file system of a directory; `None` if this process may not open one.
pub(crate) fn group(base: &Path) -> Option<FanotifyGroup> {
    match FanotifyGroup::open(base) {
        Ok(group) => {
            assert!(group.lacks.is_empty(), "{:?}", group.lacks);
            Some(group)
        }
        Err(fault) => {
            let fault = fault.to_string();
            assert!(fault.contains("CAP_SYS_ADMIN"), "{fault}");
            eprintln!("not tested: {fault}");
            None
        }
    }
}

/// A collector of the group.
pub(crate) fn boxed(group: FanotifyGroup, config: &FanotifyConfig) -> Box<dyn Collector> {
    Box::new(FanotifyCollector::new(group, config).unwrap())
}

#[test]
fn it_conforms() {
    if group(Path::new("/tmp")).is_some() {
        conforms(&FURTHER_SEEDS, |root| {
            boxed(group(root).unwrap(), &FanotifyConfig::new(root))
        });
    }
}

#[test]
fn it_conforms_while_the_tree_is_changed_by_another_thread() {
    if group(Path::new("/tmp")).is_some() {
        conforms_at_the_same_time(|root| boxed(group(root).unwrap(), &FanotifyConfig::new(root)));
    }
}

#[test]
fn after_a_restart_there_is_a_gap_and_numbers_go_on() {
    each_base(|dir| {
        let first = boxed(group(dir).unwrap(), &FanotifyConfig::new(dir));
        let mut replica = Replica::new(dir, first);
        fs::create_dir(dir.join("d")).unwrap();
        replica.settle("the first life");
        let mut config = FanotifyConfig::new(dir);
        config.index_next = replica.told.last().unwrap().index + 1;
        config.starts_with_gap = true;
        let mut replica = replica.with(boxed(group(dir).unwrap(), &config));
        replica.told.clear();
        fs::write(dir.join("d/f"), b"1").unwrap();
        replica.settle("the second life");
        assert_eq!(replica.told[0].kind, EventKind::Gap);
        assert_eq!(replica.count(EventKind::Create, &dir.join("d/f")), 1);
    });
}

/// A collector of its own type, and what it has told.
struct Told {
    collector: FanotifyCollector,
    events: Vec<FileEvent>,
    start: Instant,
}

impl Told {
    fn new(group: FanotifyGroup, config: &FanotifyConfig) -> Self {
        let mut told = Self {
            collector: FanotifyCollector::new(group, config).unwrap(),
            events: Vec::new(),
            start: Instant::now(),
        };
        told.until("the first walk", |told| !told.collector.status().is_walking);
        told
    }

    /// Collects once. Returns whether there is nothing more to do.
    fn collect(&mut self) -> bool {
        let now = self.start.elapsed().as_nanos() as i64;
        let before = self.events.len();
        let collected = self.collector.collect(&mut self.events, 500, (now, now));
        collected.unwrap() == Collected::All && self.events.len() == before
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        loop {
            let is_idle = self.collect();
            if holds(self) {
                return;
            }
            let status = self.collector.status();
            assert!(
                start.elapsed() < PATIENCE,
                "{what}: {:?} {status:?}",
                self.tail()
            );
            if is_idle {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn tail(&self) -> &[FileEvent] {
        &self.events[self.events.len().saturating_sub(10)..]
    }

    /// The events of names, as kind and path below `base`, since the last call.
    fn names(&mut self, base: &Path) -> Vec<(EventKind, String)> {
        let base = base.as_os_str().as_bytes();
        let told = std::mem::take(&mut self.events).into_iter();
        let names = told.filter(|e| {
            e.kind.makes_name() || e.kind.removes_name() || e.kind == EventKind::Rename
        });
        let shown = names.map(|event| {
            let path = event.path.strip_prefix(base).unwrap();
            (event.kind, String::from_utf8_lossy(path).into_owned())
        });
        shown.collect()
    }

    /// Collects until a file is told that is made here as the last one.
    fn until_told(&mut self, path: &Path) {
        fs::write(path, b"").unwrap();
        let bytes = path.as_os_str().as_bytes();
        let is_it = |event: &FileEvent| event.kind == EventKind::Create && event.path == bytes;
        self.until("the last file", |told| told.events.iter().any(is_it));
    }
}

fn each_base(mut check: impl FnMut(&Path)) {
    for base in ["/dev/shm", "/tmp"] {
        let dir = tempfile::Builder::new().prefix("fanotify").tempdir_in(base);
        let dir = dir.unwrap();
        if group(dir.path()).is_some() {
            check(dir.path());
        }
    }
}

#[test]
fn a_queue_that_runs_over_is_a_gap_and_later_paths_are_right() {
    each_base(|dir| {
        let limited = FanotifyGroup::open_with(dir, FanotifyQueue::Limited).unwrap();
        let mut told = Told::new(limited, &FanotifyConfig::new(dir));
        let queued = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
        let queued: u32 = queued.trim().parse().unwrap();
        // An object has two events at least.
        for n in 0..queued {
            fs::write(dir.join(format!("f{n}")), b"").unwrap();
        }
        fs::create_dir(dir.join("lost")).unwrap();
        fs::create_dir(dir.join("lost/too")).unwrap();
        let is_gap = |event: &FileEvent| event.kind == EventKind::Gap;
        told.until("the gap", |told| told.events.iter().any(is_gap));
        told.until("the walk", |told| !told.collector.status().is_walking);
        told.events.clear();
        told.until_told(&dir.join("lost/too/late"));
        assert_eq!(told.collector.status().gaps, 1);
    });
}

#[test]
fn an_unlimited_queue_loses_nothing_however_late_it_is_read() {
    each_base(|dir| {
        let mut told = Told::new(group(dir).unwrap(), &FanotifyConfig::new(dir));
        fs::create_dir_all(dir.join("a")).unwrap();
        fs::create_dir_all(dir.join("b")).unwrap();
        for n in 0..20_000 {
            let (from, to) = (dir.join(format!("a/{n}")), dir.join(format!("b/{n}")));
            fs::write(&from, b"1").unwrap();
            fs::rename(&from, &to).unwrap();
            fs::remove_file(to).unwrap();
        }
        told.until_told(&dir.join("last"));
        let count = |kind| {
            told.events
                .iter()
                .filter(|event| event.kind == kind)
                .count()
        };
        assert_eq!(count(EventKind::Create), 20_001);
        assert_eq!(count(EventKind::Rename), 20_000);
        assert_eq!(count(EventKind::Unlink), 20_000);
        assert_eq!(
            (count(EventKind::Gap), told.collector.status().unresolved),
            (0, 0)
        );
    });
}

#[test]
fn what_merging_hides_is_found() {
    each_base(|dir| {
        let mut told = Told::new(group(dir).unwrap(), &FanotifyConfig::new(dir));
        for name in ["f", "d"] {
            let (a, b) = (dir.join(format!("{name}a")), dir.join(format!("{name}b")));
            match name {
                "f" => fs::write(&a, b"").unwrap(),
                _ => fs::create_dir(&a).unwrap(),
            }
            // The kernel says `a` to `b` and `b` to `a`, once each.
            for (from, to) in [(&a, &b), (&b, &a), (&a, &b)] {
                fs::rename(from, to).unwrap();
            }
        }
        // A name that goes and comes back: it is there in the end.
        fs::write(dir.join("x"), b"").unwrap();
        fs::hard_link(dir.join("x"), dir.join("y")).unwrap();
        told.until_told(&dir.join("first"));
        fs::remove_file(dir.join("y")).unwrap();
        fs::hard_link(dir.join("x"), dir.join("y")).unwrap();
        told.until_told(&dir.join("last"));
        // The queue is empty once more.
        for _ in 0..3 {
            told.collect();
        }
        let mut there = BTreeSet::new();
        for event in &told.events {
            let (path, old) = (event.path.clone(), &event.old_path);
            match event.kind {
                EventKind::Rename => {
                    there.remove(old);
                    there.insert(path);
                }
                kind if kind.makes_name() => {
                    there.insert(path);
                }
                kind if kind.removes_name() => {
                    there.remove(&path);
                }
                _ => {}
            }
        }
        let real: BTreeSet<_> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path().as_os_str().as_bytes().to_vec())
            .collect();
        assert_eq!(there, real);
        told.until_told(&dir.join("db/in it"));
    });
}

#[test]
fn two_groups_and_roots_that_come_and_go() {
    each_base(|dir| {
        let mut config = FanotifyConfig::new(dir);
        config.roots = vec![dir.join("a/b"), dir.join("c")];
        fs::create_dir(dir.join("c")).unwrap();
        let mut some = Told::new(group(dir).unwrap(), &config);
        let mut all = Told::new(group(dir).unwrap(), &FanotifyConfig::new(dir));
        let trouble = some.collector.status().trouble;
        assert!(trouble.contains("a/b is not there"), "{trouble}");
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::create_dir_all(dir.join("a/beside")).unwrap();
        for name in ["a/f", "a/b/f", "a/beside/f", "c/f", "f"] {
            fs::write(dir.join(name), b"").unwrap();
        }
        some.until_told(&dir.join("c/one"));
        let expected = [
            (EventKind::Mkdir, "/a/b"),
            (EventKind::Create, "/a/b/f"),
            (EventKind::Create, "/c/f"),
            (EventKind::Create, "/c/one"),
        ];
        let owned = |told: &[(EventKind, &str)]| -> Vec<(EventKind, String)> {
            told.iter()
                .map(|(kind, path)| (*kind, (*path).to_owned()))
                .collect()
        };
        assert_eq!(some.names(dir), owned(&expected));
        assert_eq!(some.collector.status().trouble, "");
        // The directory above a root is renamed, and renamed back.
        fs::rename(dir.join("a"), dir.join("x")).unwrap();
        fs::write(dir.join("x/b/g"), b"").unwrap();
        some.until_told(&dir.join("c/two"));
        let expected = [(EventKind::Rmdir, "/a/b"), (EventKind::Create, "/c/two")];
        assert_eq!(some.names(dir), owned(&expected));
        fs::rename(dir.join("x"), dir.join("a")).unwrap();
        some.until_told(&dir.join("a/b/h"));
        let mut told = some.names(dir);
        told.sort();
        let expected = [
            (EventKind::Create, "/a/b/f"),
            (EventKind::Create, "/a/b/g"),
            (EventKind::Create, "/a/b/h"),
            (EventKind::Mkdir, "/a/b"),
        ];
        assert_eq!(told, owned(&expected));
        // From one root to another, and out of both.
        fs::rename(dir.join("a/b/f"), dir.join("c/moved")).unwrap();
        fs::rename(dir.join("c/moved"), dir.join("a/gone")).unwrap();
        all.until_told(&dir.join("early"));
        fs::remove_dir_all(dir.join("a")).unwrap();
        some.until_told(&dir.join("c/three"));
        let expected = [
            (EventKind::Rename, "/c/moved"),
            (EventKind::Unlink, "/c/moved"),
        ];
        assert_eq!(some.names(dir)[..2], owned(&expected));
        all.until_told(&dir.join("last"));
        let told = all.names(dir);
        let of = |kind: EventKind| told.iter().filter(|(of, _)| *of == kind).count();
        assert_eq!((of(EventKind::Mkdir), of(EventKind::Rename)), (3, 4));
        assert_eq!((of(EventKind::Create), of(EventKind::Rmdir)), (12, 3));
    });
}

#[test]
fn events_of_ignored_processes_are_not_told_and_their_directories_are_known() {
    each_base(|dir| {
        let mut config = FanotifyConfig::new(dir);
        config.ignored_pids = vec![std::process::id() as i32];
        let mut told = Told::new(group(dir).unwrap(), &config);
        fs::create_dir(dir.join("d")).unwrap();
        fs::write(dir.join("d/own"), b"").unwrap();
        let mut child = Command::new("touch")
            .arg(dir.join("d/other"))
            .spawn()
            .unwrap();
        let pid = child.id();
        assert!(child.wait().unwrap().success());
        let other = dir.join("d/other");
        let is_it = |event: &FileEvent| event.path == other.as_os_str().as_bytes();
        told.until("the other file", |told| told.events.iter().any(is_it));
        assert!(told.events.iter().all(is_it), "{:?}", told.events);
        assert_eq!(*told.events[0].detail, *format!("pid={pid}"));
    });
}

#[test]
fn bounds_are_said() {
    each_base(|dir| {
        for n in 0..20 {
            fs::create_dir_all(dir.join(format!("d{n}/e"))).unwrap();
        }
        let mut config = FanotifyConfig::new(dir);
        config.directories_max = 10;
        let mut told = Told::new(group(dir).unwrap(), &config);
        told.until_told(&dir.join("one"));
        let status = told.collector.status();
        assert_eq!(status.directories, 10);
        assert!(
            status.trouble.contains("directories_max"),
            "{}",
            status.trouble
        );

        // Without room to hold events, those in unknown directories are lost, which is a gap.
        config.directories_max = 1_000;
        config.held_bytes_max = 0;
        let collector = FanotifyCollector::new(group(dir).unwrap(), &config).unwrap();
        let mut told = Told {
            collector,
            events: Vec::new(),
            start: Instant::now(),
        };
        fs::write(dir.join("d3/e/lost"), b"").unwrap();
        told.until("the walk", |told| !told.collector.status().is_walking);
        told.until_told(&dir.join("d3/e/seen"));
        let status = told.collector.status();
        let is_lost = |event: &FileEvent| event.path.ends_with(b"lost");
        let is_told = told.events.iter().any(is_lost);
        assert!(
            is_told || (status.unresolved > 0 && status.gaps > 0),
            "{status:?}"
        );
    });
}

#[test]
fn roots_elsewhere_are_refused() {
    each_base(|dir| {
        let mut config = FanotifyConfig::new("/");
        config.roots = vec!["/dev/shm".into()];
        let fault = FanotifyCollector::new(group(Path::new("/")).unwrap(), &config);
        let text = fault.err().unwrap().to_string();
        assert!(text.contains("another file system"), "{text}");
        config.base = dir.to_owned();
        config.roots = vec!["/etc".into()];
        let fault = FanotifyCollector::new(group(dir).unwrap(), &config);
        assert!(fault.err().unwrap().to_string().contains("not below"));
    });
}
