//! A model of a tree that is kept by events alone, so that it can be compared with the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barograph_event::{Collected, Collector, EventFlags, EventKind, FileEvent, ObjectId};

/// The limit of a wait in which nothing is told: it is reached only if something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);
/// The limit of every wait.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(300);
/// Events that are shown of a failure.
const LINES: usize = 60;
/// Events of one call of a collector.
const EVENTS_MAX: usize = 1_000;

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Whether it is a directory.
    pub(crate) is_directory: bool,
    /// Size of a file with one name, if an event had it.
    pub(crate) size: Option<u64>,
    /// The object, if an event had it.
    pub(crate) target: ObjectId,
}

impl Node {
    fn without_size(self) -> Self {
        Self { size: None, ..self }
    }
}

/// A collector and the model of the tree that its events make.
pub(crate) struct Replica {
    /// The collector.
    pub(crate) collector: Box<dyn Collector>,
    /// All events so far.
    pub(crate) told: Vec<FileEvent>,
    root: PathBuf,
    nodes: BTreeMap<Vec<u8>, Node>,
    /// Files that have had several names: what is written by one name is not told of the others.
    pub(crate) linked: BTreeSet<ObjectId>,
    start: Instant,
    last_index: Option<u64>,
}

impl Replica {
    /// A replica that begins with the tree as it is.
    pub(crate) fn new(root: &Path, collector: Box<dyn Collector>) -> Self {
        Self {
            collector,
            told: Vec::new(),
            root: root.to_owned(),
            nodes: walk(root)
                .into_iter()
                .map(|(path, node)| (path, node.without_size()))
                .collect(),
            linked: BTreeSet::new(),
            start: Instant::now(),
            last_index: None,
        }
    }

    /// A replica that begins with an empty tree.
    pub(crate) fn empty(root: &Path, collector: Box<dyn Collector>) -> Self {
        let mut replica = Self::new(root, collector);
        replica.nodes.clear();
        replica
    }

    /// The same model with another collector, as after a restart.
    pub(crate) fn with(self, collector: Box<dyn Collector>) -> Self {
        Self { collector, ..self }
    }

    /// Calls the collector once.
    pub(crate) fn collect(&mut self) -> (usize, Collected) {
        let now_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_nanos() as i64;
        let monotonic_ns = self.start.elapsed().as_nanos() as i64;
        let mut events = Vec::new();
        let collected = self
            .collector
            .collect(&mut events, EVENTS_MAX, (now_ns, monotonic_ns));
        let collected = collected.unwrap();
        let count = events.len();
        for event in events {
            assert!(
                self.last_index < Some(event.index),
                "numbers ascend: {event:?}"
            );
            self.last_index = Some(event.index);
            self.apply(&event);
            self.told.push(event);
        }
        if let Some(index) = self.last_index {
            self.collector.acknowledge(index).unwrap();
        }
        (count, collected)
    }

    /// Collects until the condition holds.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        let mut last_told = start;
        while !holds(self) {
            let (count, collected) = self.collect();
            if count > 0 {
                last_told = Instant::now();
            }
            // A full queue takes long to read while other tests have the processor.
            if last_told.elapsed() > PATIENCE || start.elapsed() > PATIENCE_IN_ALL {
                let status = self.collector.status();
                for event in &self.told[self.told.len().saturating_sub(LINES)..] {
                    println!("{}", self.line(event));
                }
                panic!(
                    "{what} does not come to hold: {}; {status:?}",
                    self.difference()
                );
            }
            if count == 0 && collected == Collected::All {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Collects until the model is equal to the tree, and the collector has nothing more to tell.
    pub(crate) fn settle(&mut self, what: &str) {
        self.until(what, |replica| {
            let status = replica.collector.status();
            !status.is_walking && replica.difference().is_empty()
        });
        let mut quiet = 0;
        while quiet < 20 {
            match self.collect() {
                (0, Collected::All) => quiet += 1,
                _ => quiet = 0,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.until(what, |replica| replica.difference().is_empty());
    }

    /// The first differences between the model and the tree; empty if there are none.
    pub(crate) fn difference(&self) -> String {
        let real = walk(&self.root);
        let mut found = Vec::new();
        for (path, node) in &real {
            match self.nodes.get(path) {
                None => found.push(format!("{} was not told", show(path))),
                Some(told) if told.is_directory != node.is_directory => {
                    found.push(format!(
                        "{} is {node:?} and was told as {told:?}",
                        show(path)
                    ));
                }
                Some(told) => {
                    let is_linked = self.linked.contains(&told.target);
                    if let (Some(told), Some(size)) = (told.size, node.size)
                        && told != size
                        && !is_linked
                    {
                        let path = show(path);
                        found.push(format!("{path} has {size} bytes, and {told} were told"));
                    }
                }
            }
        }
        let gone = self.nodes.keys().filter(|path| !real.contains_key(*path));
        found.extend(gone.map(|path| format!("{} is gone", show(path))));
        found.truncate(8);
        found.join("; ")
    }

    /// An event as a line.
    fn line(&self, event: &FileEvent) -> String {
        let root = self.root.as_os_str().as_bytes().len();
        let show = |path: &[u8]| {
            let path = path.get(root..).unwrap_or(path);
            String::from_utf8_lossy(path)
                .replace(&"n".repeat(255), "n..")
                .replace('\n', " ")
        };
        let (path, old, low) = (
            show(&event.path),
            show(&event.old_path),
            &event.target.0[12..],
        );
        let (index, kind, flags) = (event.index, event.kind, event.flags.0);
        format!("{index} {kind} {flags:x} {low:02x?} {path} {old}")
    }

    /// Number of events of this kind of the path.
    pub(crate) fn count(&self, kind: EventKind, path: &Path) -> usize {
        let path = path.as_os_str().as_bytes();
        let of = |event: &&FileEvent| event.kind == kind && event.path == path;
        self.told.iter().filter(of).count()
    }

    fn apply(&mut self, event: &FileEvent) {
        if matches!(
            event.kind,
            EventKind::Gap | EventKind::Reconciled | EventKind::Mark
        ) {
            return;
        }
        let root = self.root.as_os_str().as_bytes();
        let is_within = |path: &[u8]| {
            path.starts_with(root) && (path.len() == root.len() || path[root.len()] == b'/')
        };
        assert!(!event.flags.has(EventFlags::PATH_INCOMPLETE), "{event:?}");
        assert!(is_within(&event.path), "it is not of this tree: {event:?}");
        let is_directory = event.flags.has(EventFlags::DIRECTORY);
        let node = Node {
            is_directory,
            size: event.size,
            target: event.target,
        };
        // A name that was gone when it was looked at was told without its object, so that a second
        // name of the object was told as a file of its own.
        let is_other = |(path, node): (&Vec<u8>, &Node)| {
            *path != event.path && *path != event.old_path && node.target == event.target
        };
        let has_other = !event.target.is_none() && self.nodes.iter().any(is_other);
        if event.kind == EventKind::Link || has_other {
            self.linked.insert(event.target);
        }
        match event.kind {
            // The root itself is no name in the tree.
            kind if kind.makes_name() && event.path == root => {}
            kind if kind.makes_name() => {
                let old = self.nodes.get(&event.path);
                if old.is_some_and(|old| old.is_directory && !is_directory) {
                    self.remove(&event.path);
                }
                self.nodes.insert(event.path.clone(), node);
            }
            kind if kind.removes_name() => self.remove(&event.path),
            EventKind::Rename => {
                assert!(
                    is_within(&event.old_path),
                    "it is not of this tree: {event:?}"
                );
                self.rename(event, node);
            }
            _ => {
                if let (Some(node), Some(size)) = (self.nodes.get_mut(&event.path), event.size) {
                    (node.size, node.target) = (Some(size), event.target);
                }
            }
        }
    }

    fn rename(&mut self, event: &FileEvent, node: Node) {
        self.remove_unless_same(event);
        let below: Vec<_> = below(&self.nodes, &event.old_path);
        let mut moved = self.nodes.remove(&event.old_path).unwrap_or(node);
        moved.size = event.size.or(moved.size);
        if !event.target.is_none() {
            moved.target = event.target;
        }
        self.nodes.insert(event.path.clone(), moved);
        for path in below {
            let to = [&event.path[..], &path[event.old_path.len()..]].concat();
            if let Some(node) = self.nodes.remove(&path) {
                self.nodes.insert(to, node);
            }
        }
    }

    fn remove_unless_same(&mut self, event: &FileEvent) {
        if event.path != event.old_path {
            self.remove(&event.path);
        }
    }

    fn remove(&mut self, path: &[u8]) {
        for path in below(&self.nodes, path) {
            self.nodes.remove(&path);
        }
        self.nodes.remove(path);
    }
}

fn below(nodes: &BTreeMap<Vec<u8>, Node>, path: &[u8]) -> Vec<Vec<u8>> {
    let (from, to) = ([path, b"/"].concat(), [path, b"0"].concat());
    nodes
        .range(from..to)
        .map(|(path, _)| path.clone())
        .collect()
}

/// The names below a directory.
fn walk(root: &Path) -> BTreeMap<Vec<u8>, Node> {
    let mut nodes = BTreeMap::new();
    let mut stack = vec![root.to_owned()];
    while let Some(dir) = stack.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else {
            continue;
        };
        for entry in entries.flatten() {
            let (path, Ok(of)) = (entry.path(), entry.metadata()) else {
                continue;
            };
            let size = (of.is_file() && of.nlink() == 1).then(|| of.size());
            let node = Node {
                is_directory: of.is_dir(),
                size,
                target: ObjectId::NONE,
            };
            nodes.insert(path.as_os_str().as_bytes().to_vec(), node);
            if of.is_dir() {
                stack.push(path);
            }
        }
    }
    nodes
}

fn show(path: &[u8]) -> String {
    format!("{:?}", OsStr::from_bytes(path))
}
