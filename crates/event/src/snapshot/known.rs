//! What is known of a tree: a snapshot, and the changes since in memory. When the changes are many,
//! a new snapshot is written from both, in steps and without a walk.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use super::{Item, Snapshot, SnapshotFault, SnapshotWriter, TreeEntry, fault};
use crate::event::ObjectId;

/// Bounds of what is kept in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownLimits {
    /// Number of changes from which on the snapshot is written anew.
    pub(crate) changes_max: usize,
    /// Number of changes from which on changes of files are no longer taken in, because the
    /// snapshot cannot be written: comparing will find them again.
    pub(crate) changes_limit: usize,
}

/// Changes of a directory since the snapshot.
#[derive(Debug, Default)]
struct DirChanges {
    /// Whether what older layers have of the directory does not hold any more.
    is_cleared: bool,
    names: BTreeMap<Box<[u8]>, Option<TreeEntry>>,
}

#[derive(Debug, Default)]
struct Layer {
    dirs: BTreeMap<ObjectId, DirChanges>,
    count: usize,
}

/// Names of a directory with what is known of them.
pub(crate) type KnownNames = Vec<(Box<[u8]>, TreeEntry)>;

/// Outcome of looking into a layer.
enum Found {
    Here(Option<TreeEntry>),
    Below,
}

impl Layer {
    fn find(&self, dir: ObjectId, name: &[u8]) -> Found {
        let Some(changes) = self.dirs.get(&dir) else {
            return Found::Below;
        };
        match changes.names.get(name) {
            Some(entry) => Found::Here(*entry),
            None if changes.is_cleared => Found::Here(None),
            None => Found::Below,
        }
    }

    fn set(&mut self, dir: ObjectId, name: &[u8], entry: Option<TreeEntry>) {
        let changes = self.dirs.entry(dir).or_default();
        match changes.names.get_mut(name) {
            Some(old) => *old = entry,
            None => {
                changes.names.insert(name.into(), entry);
                self.count += 1;
            }
        }
    }

    fn clear(&mut self, dir: ObjectId) {
        let changes = self.dirs.entry(dir).or_default();
        self.count -= changes.names.len();
        self.count += usize::from(!changes.is_cleared);
        *changes = DirChanges {
            is_cleared: true,
            names: BTreeMap::new(),
        };
    }

    fn is_cleared(&self, dir: ObjectId) -> bool {
        self.dirs
            .get(&dir)
            .is_some_and(|changes| changes.is_cleared)
    }
}

/// A new snapshot that is being written.
#[derive(Debug)]
struct Merge {
    writer: SnapshotWriter,
    /// The last place that was written or passed over.
    last: Option<(ObjectId, Box<[u8]>)>,
    index_next: u64,
}

/// What is known of a tree.
#[derive(Debug)]
pub(crate) struct Known {
    path: PathBuf,
    limits: KnownLimits,
    base: Option<Snapshot>,
    /// Changes that are being merged into the snapshot.
    frozen: Layer,
    changes: Layer,
    merge: Option<Merge>,
    /// Number of the next event of a new snapshot that has its final name only when all events
    /// before are durable.
    uncommitted: Option<u64>,
    fault: Option<SnapshotFault>,
    refused: u64,
}

impl Known {
    /// What the snapshot at this path says, with `each` called for each of its entries, or
    /// nothing. The fault is that for which a file that is there was not used.
    pub(crate) fn open(path: &Path, limits: KnownLimits, each: impl FnMut(Item<'_>)) -> Self {
        let (base, fault) = match Snapshot::open(path, each) {
            Ok(base) => (base, None),
            Err(fault) => (None, Some(fault)),
        };
        Self {
            path: path.to_owned(),
            limits,
            base,
            frozen: Layer::default(),
            changes: Layer::default(),
            merge: None,
            uncommitted: None,
            fault,
            refused: 0,
        }
    }

    /// Number of the next event when the snapshot was made; `None` if there is none.
    pub(crate) fn index_next(&self) -> Option<u64> {
        self.base.as_ref().map(Snapshot::index_next)
    }

    /// Time at which the snapshot was written, in ns since the epoch; the earliest if that is
    /// unknown.
    pub(crate) fn made_ns(&self) -> i64 {
        self.base.as_ref().map_or(i64::MIN, Snapshot::made_ns)
    }

    /// What is wrong with the snapshot.
    pub(crate) fn fault(&self) -> Option<&SnapshotFault> {
        self.fault.as_ref()
    }

    /// Number of changes that were not taken in.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether something has changed since the snapshot.
    pub(crate) fn is_changed(&self) -> bool {
        self.changes.count > 0
    }

    pub(crate) fn get(&mut self, dir: ObjectId, name: &[u8]) -> Option<TreeEntry> {
        for layer in [&self.changes, &self.frozen] {
            if let Found::Here(entry) = layer.find(dir, name) {
                return entry;
            }
        }
        let found = self.base.as_mut()?.get(dir, name);
        self.trusted(found)?
    }

    pub(crate) fn put(&mut self, dir: ObjectId, name: &[u8], entry: TreeEntry) {
        if self.changes.count >= self.limits.changes_limit && !entry.is_directory() {
            self.refused += 1;
            return;
        }
        self.changes.set(dir, name, Some(entry));
    }

    pub(crate) fn remove(&mut self, dir: ObjectId, name: &[u8]) {
        self.changes.set(dir, name, None);
    }

    /// Forgets all names of a directory.
    pub(crate) fn clear(&mut self, dir: ObjectId) {
        self.changes.clear(dir);
    }

    /// About `max` names of a directory after this one, or the first ones, and the name after
    /// which to go on.
    pub(crate) fn names(
        &mut self,
        dir: ObjectId,
        after: Option<&[u8]>,
        max: usize,
    ) -> (KnownNames, Option<Box<[u8]>>) {
        let mut found: BTreeMap<Box<[u8]>, Option<TreeEntry>> = BTreeMap::new();
        let mut next = None;
        let is_cleared = self.changes.is_cleared(dir) || self.frozen.is_cleared(dir);
        if let Some(base) = self.base.as_mut().filter(|_| !is_cleared) {
            let read = base.after(dir, after, |item| {
                if item.dir != dir {
                    return false;
                }
                found.insert(item.name.into(), Some(item.entry));
                if found.len() >= max {
                    next = Some(item.name.into());
                }
                next.is_none()
            });
            self.trusted(read);
        }
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let to = next.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let skips_frozen = self.changes.is_cleared(dir);
        for layer in [(!skips_frozen).then_some(&self.frozen), Some(&self.changes)] {
            let changes = layer.and_then(|layer| layer.dirs.get(&dir));
            for (name, entry) in changes
                .iter()
                .flat_map(|of| of.names.range::<[u8], _>((from, to)))
            {
                found.insert(name.clone(), *entry);
            }
        }
        let entries = found
            .into_iter()
            .filter_map(|(name, entry)| Some((name, entry?)));
        (entries.collect(), next)
    }

    /// Whether a new snapshot has to be written because changes are many.
    pub(crate) fn is_full(&self) -> bool {
        self.changes.count >= self.limits.changes_max
    }

    /// Whether a new snapshot is being written.
    pub(crate) fn is_saving(&self) -> bool {
        self.merge.is_some()
    }

    /// Begins to write a new snapshot of what is known now. `index_next` is the number of the
    /// first event that is not in it.
    pub(crate) fn save(&mut self, index_next: u64) {
        if self.merge.is_some() {
            return;
        }
        // The snapshot that waits for its name is superseded, and loses its temporary one.
        self.uncommitted = None;
        match SnapshotWriter::create(&self.temporary(), index_next) {
            Ok(writer) => {
                self.merge = Some(Merge {
                    writer,
                    last: None,
                    index_next,
                });
                self.frozen = std::mem::take(&mut self.changes);
            }
            Err(fault) => self.fault = Some(fault),
        }
    }

    /// Writes about `max` entries of the new snapshot.
    pub(crate) fn step(&mut self, max: usize) {
        let Some(mut merge) = self.merge.take() else {
            return;
        };
        match self.advance(&mut merge, max) {
            Ok(false) => self.merge = Some(merge),
            Ok(true) => match merge.writer.finish() {
                Ok(snapshot) => {
                    self.base = Some(snapshot);
                    self.frozen = Layer::default();
                    self.uncommitted = Some(merge.index_next);
                    self.fault = None;
                }
                Err(fault) => self.give_up(fault),
            },
            Err(fault) => self.give_up(fault),
        }
    }

    /// Takes in that all events up to this one are durable: a snapshot that has no later ones gets
    /// its name.
    pub(crate) fn acknowledge(&mut self, index: u64) -> Result<(), SnapshotFault> {
        if self
            .uncommitted
            .is_none_or(|next| next > index.saturating_add(1))
        {
            return Ok(());
        }
        std::fs::rename(self.temporary(), &self.path).map_err(fault("rename", &self.path))?;
        self.uncommitted = None;
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = File::open(dir.unwrap_or(Path::new(".")));
        let sync = dir.and_then(|dir| dir.sync_all());
        sync.map_err(fault("make durable", &self.path))
    }

    fn temporary(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".new");
        path.into()
    }

    /// Writes entries until all are written (`true`) or `max` were.
    fn advance(&mut self, merge: &mut Merge, max: usize) -> Result<bool, SnapshotFault> {
        let (dir, name) = match &merge.last {
            Some((dir, name)) => (*dir, Some(&**name)),
            None => (ObjectId::NONE, None),
        };
        let mut old = Vec::new();
        if let Some(base) = &mut self.base {
            base.after(dir, name, |item| {
                old.push((item.dir, Box::<[u8]>::from(item.name), item.entry));
                old.len() < max
            })?;
        }
        // Beyond the last old entry nothing is known of the old ones yet.
        let end = (old.len() == max).then(|| old.last().map(|(dir, name, _)| (*dir, name.clone())));
        let end = end.flatten();
        let is_within = |dir: ObjectId, name: &[u8]| {
            end.as_ref()
                .is_none_or(|(end_dir, end_name)| (dir, name) <= (*end_dir, &**end_name))
        };
        let mut old = old.into_iter().peekable();
        let start = name;
        let new = self.frozen.dirs.range(dir..).flat_map(|(of, changes)| {
            let from = match start {
                Some(name) if *of == dir => Bound::Excluded(name),
                _ => Bound::Unbounded,
            };
            let names = changes.names.range::<[u8], _>((from, Bound::Unbounded));
            names.map(move |(name, entry)| (*of, name, *entry))
        });
        let mut count = 0;
        let mut last = None;
        let mut push = |dir, name: &[u8], entry| merge.writer.push(Item { dir, name, entry });
        for (dir, name, entry) in new.take_while(|(dir, name, _)| is_within(*dir, name)) {
            while let Some((d, n, e)) = old.next_if(|(d, n, _)| (*d, n) < (dir, name)) {
                if !self.frozen.is_cleared(d) {
                    push(d, &n, e)?;
                }
            }
            old.next_if(|(d, n, _)| (*d, n) == (dir, name));
            if let Some(entry) = entry {
                push(dir, name, entry)?;
            }
            count += 1;
            if count >= max {
                last = Some((dir, name.clone()));
                break;
            }
        }
        if let Some(last) = last {
            merge.last = Some(last);
            return Ok(false);
        }
        for (d, n, e) in old {
            if !self.frozen.is_cleared(d) {
                push(d, &n, e)?;
            }
        }
        let is_done = end.is_none();
        merge.last = end.or(merge.last.take());
        Ok(is_done)
    }

    /// Puts the changes that were to be merged back under those since.
    fn give_up(&mut self, fault: SnapshotFault) {
        if matches!(fault, SnapshotFault::Damaged { .. }) {
            self.base = None;
        }
        self.fault = Some(fault);
        let newer = std::mem::replace(&mut self.changes, std::mem::take(&mut self.frozen));
        for (dir, changes) in newer.dirs {
            if changes.is_cleared {
                self.changes.clear(dir);
            }
            for (name, entry) in changes.names {
                self.changes.set(dir, &name, entry);
            }
        }
    }

    /// What was read of the snapshot; a snapshot that cannot be read is not used any more.
    fn trusted<T>(&mut self, read: Result<T, SnapshotFault>) -> Option<T> {
        match read {
            Ok(read) => Some(read),
            Err(fault) => {
                self.base = None;
                self.fault = Some(fault);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::EntryKind;
    use super::*;

    fn entry(n: u64) -> TreeEntry {
        TreeEntry {
            id: ObjectId::of(1, n),
            kind: EntryKind::File,
            size: n,
            mtime_ns: 0,
            ctime_ns: 0,
            born_ns: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            is_open: false,
        }
    }

    const LIMITS: KnownLimits = KnownLimits {
        changes_max: 10,
        changes_limit: 1_000,
    };

    #[derive(Clone, Debug)]
    enum Change {
        Put(u64, String, u64),
        Remove(u64, String),
        Clear(u64),
        Save,
        Step(usize),
        Reopen,
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let name = "[a-e]{1,2}";
        prop_oneof![
            6 => (0u64..4, name, 0u64..99).prop_map(|(d, n, v)| Change::Put(d, n, v)),
            2 => (0u64..4, name).prop_map(|(d, n)| Change::Remove(d, n)),
            1 => (0u64..4).prop_map(Change::Clear),
            2 => Just(Change::Save),
            4 => (1usize..4).prop_map(Change::Step),
            1 => Just(Change::Reopen),
        ]
    }

    fn all(known: &mut Known, dir: ObjectId, max: usize) -> Vec<(String, u64)> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (names, next) = known.names(dir, after.as_deref(), max);
            all.extend(
                names
                    .into_iter()
                    .map(|(name, entry)| (String::from_utf8(name.into()).unwrap(), entry.size)),
            );
            match next {
                Some(next) => after = Some(next),
                None => return all,
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_as_a_map(changes in proptest::collection::vec(any_change(), 0..120)) {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path().join("snapshot");
            let mut known = Known::open(&path, LIMITS, |_| ());
            let mut model: BTreeMap<(u64, String), u64> = BTreeMap::new();
            let dir = |n: u64| ObjectId::of(2, n);
            for change in changes {
                match change {
                    Change::Put(d, name, value) => {
                        known.put(dir(d), name.as_bytes(), entry(value));
                        model.insert((d, name), value);
                    }
                    Change::Remove(d, name) => {
                        known.remove(dir(d), name.as_bytes());
                        model.remove(&(d, name));
                    }
                    Change::Clear(d) => {
                        known.clear(dir(d));
                        model.retain(|(of, _), _| *of != d);
                    }
                    Change::Save => known.save(5),
                    Change::Step(max) => {
                        known.step(max);
                        known.acknowledge(4).unwrap();
                    }
                    Change::Reopen => {
                        while known.is_saving() {
                            known.step(3);
                        }
                        known.save(9);
                        while known.is_saving() {
                            known.step(2);
                        }
                        known.acknowledge(7).unwrap();
                        prop_assert!(known.uncommitted.is_some());
                        known.acknowledge(8).unwrap();
                        let mut count = 0;
                        known = Known::open(&path, LIMITS, |_| count += 1);
                        prop_assert!(known.fault().is_none());
                        prop_assert_eq!(count, model.len());
                        prop_assert_eq!(known.index_next(), Some(9));
                    }
                }
                prop_assert!(known.fault().is_none());
                for d in 0..4 {
                    let of = model.iter().filter(|((of, _), _)| *of == d);
                    let expected: Vec<_> = of.map(|((_, name), n)| (name.clone(), *n)).collect();
                    prop_assert_eq!(all(&mut known, dir(d), 3), expected);
                }
                let found = known.get(dir(1), b"a").map(|entry| entry.size);
                prop_assert_eq!(found, model.get(&(1, "a".into())).copied());
            }
        }
    }

    #[test]
    fn a_snapshot_that_cannot_be_written_loses_nothing_that_is_known() {
        let scratch = tempfile::tempdir().unwrap();
        let mut known = Known::open(&scratch.path().join("no/where"), LIMITS, |_| ());
        known.put(ObjectId::of(1, 1), b"a", entry(1));
        known.save(1);
        assert!(known.fault().is_some() && !known.is_saving());
        assert_eq!(known.get(ObjectId::of(1, 1), b"a"), Some(entry(1)));
        for n in 0..2_000u64 {
            known.put(ObjectId::of(1, 2), &n.to_le_bytes(), entry(n));
        }
        assert_eq!(known.refused(), 2_000 - 999);
    }
}
