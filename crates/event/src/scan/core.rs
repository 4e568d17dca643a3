//! What collectors of a tree have in common: the tree, its walk and the snapshot, with their rates
//! and intervals.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::config::TreeConfig;
use super::learn::learn;
use super::tree::Tree;
use super::walk::{Mode, Walk, Walked, Watcher};
use crate::collector::{Collected, CollectorFault, CollectorStatus};
use crate::directories::DirectoryTable;
use crate::event::{FileEvent, ObjectId};
use crate::snapshot::{Known, KnownLimits, SnapshotFault};

/// Entries of a new snapshot that are written by one call.
const SAVED_AT_ONCE: usize = 5_000;
/// Names that one call looks at.
const WALKED_AT_ONCE: u64 = 4_096;
/// Longest time that a snapshot takes to be written, in ns.
const MADE_NS: i64 = 3_600_000_000_000;
/// Parts of a second for which names may be looked at that were not before.
const BURST: u64 = 4;

/// What a collector of a tree works with.
pub(crate) struct Core {
    pub(crate) tree: Tree,
    pub(crate) walk: Walk,
    pub(crate) config: TreeConfig,
    /// How the first walk tells what it finds, and the gap before it.
    first: Option<(Mode, Option<&'static str>)>,
    /// Number of names that may be looked at now, and by this call, and when that was counted.
    allowed: u64,
    allowed_by_call: u64,
    counted_ns: i64,
    monotonic_ns: i64,
    acknowledged: u64,
    save_ns: i64,
    retry_ns: i64,
}

impl Core {
    pub(crate) fn open(roots: &[PathBuf], config: TreeConfig) -> Result<Self, CollectorFault> {
        let roots = roots_of(roots)?;
        let limits = KnownLimits {
            changes_max: config.changes_max,
            changes_limit: config.changes_max.saturating_mul(4),
        };
        let mut table = DirectoryTable::new(config.directories_max);
        let known = Known::open(&config.snapshot, limits, |item| {
            if item.entry.is_directory() {
                // A table that is full is said when the directory is read.
                let _ = match item.dir.is_none() {
                    true => table.insert_root(item.entry.id, item.name),
                    false => table.insert(item.entry.id, item.dir, item.name),
                };
            }
        });
        let compare = Mode::Compare { is_deep: true };
        let first = match known.fault() {
            Some(SnapshotFault::Damaged { .. }) => {
                table = DirectoryTable::new(config.directories_max);
                (compare, Some("the snapshot is damaged"))
            }
            Some(fault @ SnapshotFault::Io { .. }) => {
                return Err(CollectorFault::Unusable(fault.to_string()));
            }
            None if known.index_next().is_some() => (compare, Some("the collector was away")),
            None => (Mode::Baseline, None),
        };
        let index_next = known
            .index_next()
            .unwrap_or(1)
            .max(config.index_next)
            .max(1);
        let mut tree = Tree::new(table, known, config.kinds, index_next);
        if let [root] = &roots[..] {
            tree.root.clone_from(root);
        }
        let walk = Walk::new(roots, config.mounts, config.held_max);
        Ok(Self {
            tree,
            walk,
            first: Some(first),
            allowed: u64::from(config.walk_rate).max(WALKED_AT_ONCE),
            allowed_by_call: 0,
            counted_ns: i64::MAX,
            monotonic_ns: 0,
            acknowledged: index_next - 1,
            save_ns: i64::MAX,
            retry_ns: i64::MAX,
            config,
        })
    }

    /// Number of the first event that the snapshot does not have, and a time before which there
    /// is none of them, in ns since the epoch.
    pub(crate) fn learns_from(&self) -> Option<(u64, i64)> {
        let index = self.tree.known.index_next()?;
        Some((index, self.tree.known.made_ns().saturating_sub(MADE_NS)))
    }

    /// Whether an earlier life has left what it knew.
    pub(crate) fn is_known(&self) -> bool {
        self.tree.known.index_next().is_some()
    }

    /// Takes in an event of an earlier life.
    pub(crate) fn learn(&mut self, event: &FileEvent) {
        learn(&mut self.tree, event);
        self.acknowledged = self.acknowledged.max(event.index);
    }

    /// Begins a call.
    pub(crate) fn begin(&mut self, (now_ns, monotonic_ns): (i64, i64)) {
        (self.tree.now_ns, self.monotonic_ns) = (now_ns, monotonic_ns);
        let rate = u64::from(self.config.walk_rate).max(1);
        let passed_ns = monotonic_ns
            .saturating_sub(self.counted_ns)
            .max(0)
            .unsigned_abs();
        let more = u128::from(passed_ns) * u128::from(rate) / 1_000_000_000;
        if more > 0 || self.counted_ns > monotonic_ns {
            let most = (rate / BURST).max(WALKED_AT_ONCE);
            let more = u64::try_from(more).unwrap_or(u64::MAX);
            self.allowed = self.allowed.saturating_add(more).min(most);
            self.counted_ns = monotonic_ns;
        }
        self.allowed_by_call = WALKED_AT_ONCE;
        if let Some((mode, gap)) = self.first.take() {
            self.save_ns = monotonic_ns.saturating_add(self.config.snapshot_interval_ns);
            self.walk.begin(&mut self.tree, mode, gap);
        }
        if monotonic_ns >= self.retry_ns {
            self.retry_ns = i64::MAX;
            for root in self.walk.missing.clone() {
                self.walk.check_root(root);
            }
        }
    }

    /// Walks a little; [`Walked::More`] if another step can be made by this call.
    pub(crate) fn step(&mut self, watcher: &mut dyn Watcher) -> Walked {
        if !self.walk.is_busy() {
            return Walked::All;
        }
        if self.tree.known.is_full() && self.tree.known.fault().is_none() {
            // What was found is kept first.
            return Walked::Later;
        }
        let most = self.allowed.min(self.allowed_by_call).min(512) as usize;
        if most == 0 {
            return Walked::Later;
        }
        let mut budget = most;
        let was_pass = self.walk.is_passing();
        let walked = self.walk.step(&mut self.tree, watcher, &mut budget);
        let used = (most - budget) as u64;
        self.allowed -= used;
        self.allowed_by_call -= used;
        if was_pass && !self.walk.is_passing() {
            // What was found with effort is kept.
            self.save_ns = self.monotonic_ns;
        }
        walked
    }

    /// Ends a call: hands out the events and keeps the snapshot.
    pub(crate) fn end(&mut self, events: &mut Vec<FileEvent>) -> Collected {
        events.append(&mut self.tree.out);
        self.keep();
        if self.walk.missing.is_empty() {
            self.retry_ns = i64::MAX;
        } else if self.retry_ns == i64::MAX {
            self.retry_ns = self.monotonic_ns.saturating_add(self.config.retry_ns);
        }
        let may_walk = self.walk.is_busy() && self.walk.obstacle.is_none() && self.allowed > 0;
        match may_walk || self.tree.known.is_saving() {
            true => Collected::More,
            false => {
                self.tree.handles.close();
                Collected::All
            }
        }
    }

    fn keep(&mut self) {
        let known = &mut self.tree.known;
        if known.is_saving() {
            known.step(SAVED_AT_ONCE);
            // A failure is said as trouble, and it is tried again.
            let _ = known.acknowledge(self.acknowledged);
            return;
        }
        let is_due = self.monotonic_ns >= self.save_ns;
        let may_be = known.fault().is_none() || is_due;
        if may_be && (known.is_full() || (is_due && known.is_changed())) {
            known.save(self.tree.index_next);
        }
        if is_due {
            let interval_ns = self.config.snapshot_interval_ns;
            self.save_ns = self.monotonic_ns.saturating_add(interval_ns);
        }
    }

    pub(crate) fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault> {
        self.acknowledged = self.acknowledged.max(index);
        let told = self.tree.known.acknowledge(self.acknowledged);
        told.map_err(|fault| CollectorFault::Unusable(fault.to_string()))
    }

    pub(crate) fn due_ns(&self) -> i64 {
        let second_ns = 1_000_000_000;
        let walk_ns = match self.walk.is_busy() {
            true if self.walk.obstacle.is_some() => self.monotonic_ns.saturating_add(second_ns),
            true if self.allowed == 0 => self.monotonic_ns.saturating_add(second_ns / 100),
            true => self.monotonic_ns,
            false => i64::MAX,
        };
        let save_ns = match self.tree.known.is_changed() {
            true => self.save_ns,
            false => i64::MAX,
        };
        let first_ns = if self.first.is_some() { 0 } else { i64::MAX };
        walk_ns.min(save_ns).min(self.retry_ns).min(first_ns)
    }

    pub(crate) fn status(&self, watches: u64, trouble: String) -> CollectorStatus {
        let counts = self.tree.counts;
        let mut troubles = vec![trouble];
        if let Some(fault) = self.tree.known.fault() {
            troubles.push(fault.to_string());
        }
        if let Some(error) = self.walk.obstacle {
            troubles.push(format!(
                "cannot open a directory: {error}; it is tried again"
            ));
        }
        for root in &self.walk.missing {
            let root = String::from_utf8_lossy(&self.walk.roots[*root]);
            troubles.push(format!("{root} is not there; it is looked for again"));
        }
        if counts.unreadable > 0 {
            let count = counts.unreadable;
            troubles.push(format!(
                "{count} directories cannot be read, or are more than allowed: give the agent \
                 the right to read them, or allow more directories"
            ));
        }
        if self.tree.known.refused() > 0 {
            let count = self.tree.known.refused();
            troubles.push(format!(
                "{count} changes are not remembered, and may be told again"
            ));
        }
        troubles.retain(|trouble| !trouble.is_empty());
        CollectorStatus {
            directories: self.tree.table.len() as u64,
            watches,
            events: counts.events,
            gaps: counts.gaps,
            reconciled: counts.reconciled,
            unresolved: counts.unresolved,
            senseless: 0,
            is_walking: self.walk.is_busy() || self.first.is_some(),
            trouble: troubles.join("; "),
        }
    }
}

/// The roots by their true paths, without those that are below others.
fn roots_of(roots: &[PathBuf]) -> Result<Vec<Box<[u8]>>, CollectorFault> {
    let mut paths = Vec::new();
    for root in roots {
        paths.push(true_path(root).map_err(|source| CollectorFault::Io {
            what: "find",
            path: root.clone(),
            source,
        })?);
    }
    paths.sort();
    paths.dedup_by(|below, above| below.starts_with(above));
    match paths.is_empty() {
        true => Err(CollectorFault::Unusable("no directory is named".into())),
        false => Ok(paths
            .iter()
            .map(|path| path.as_os_str().as_bytes().into())
            .collect()),
    }
}

/// The path without symbolic links, also if its last part is not there yet.
fn true_path(path: &Path) -> std::io::Result<PathBuf> {
    let found = path.canonicalize();
    match (&found, path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            Ok(parent.canonicalize()?.join(name))
        }
        _ => found,
    }
}

/// Whether a directory is a root.
pub(crate) fn is_root(tree: &Tree, dir: ObjectId) -> bool {
    matches!(tree.table.get(dir), Some((None, _)))
}
