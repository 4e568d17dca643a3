//! A disk for tests that forgets what was not synced when its power fails.
//!
//! This module stands alone because tests of other crates run whole agents on it; no product has
//! it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{DiskStorage, FileAccess, OutFile, Storage};

/// A disk in a directory of the real file system, which is as if its power failed at times.
///
/// Until then every program sees all files as they were written. When the power fails, what was not
/// synced is lost or not, each piece by the seed: the end of a file behind its last sync (or zeros
/// instead of it), and each name that was made, renamed or deleted since its directory was synced.
/// Operations on directories keep their order, but any of them may be missing.
///
/// The directory must be empty at first; files that are made without the disk, such as locks, stay
/// as they are. A clone is the same disk.
#[derive(Clone)]
pub struct ForgettingDisk {
    root: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Number of operations since the power came on.
    operations: u64,
    /// Number of operations that are done before the power fails.
    power_until: u64,
    /// Number of power failures: files that were opened before one cannot be written after it.
    failures: u64,
    next_id: Id,
    /// The directories as programs see them, and as the disk has them for certain.
    seen: Tree,
    kept: Tree,
    /// Changes of directories that were not synced, oldest first.
    changes: Vec<Change>,
    files: BTreeMap<Id, FileState>,
}

type Id = u64;
type Tree = BTreeMap<Id, BTreeMap<OsString, Node>>;
/// A name in a directory.
type Place = (Id, OsString);

/// The directory that the disk is in.
const ROOT: Id = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(Id),
    Dir(Id),
}

/// A change of directories: all of it is kept, or nothing.
struct Change(Vec<Moved>);

/// A place, its node before and its node after.
type Moved = (Place, Option<Node>, Option<Node>);

#[derive(Default)]
struct FileState {
    bytes: u64,
    /// Number of bytes from the beginning that are on the disk for certain.
    synced: u64,
    /// The content before a change that is no append and was not synced.
    before: Option<Vec<u8>>,
    /// The content, once no name leads to the file that programs see.
    unlinked: Option<Vec<u8>>,
}

impl ForgettingDisk {
    /// Returns a disk in an empty directory.
    pub fn new(root: &Path) -> Self {
        let state = State {
            power_until: u64::MAX,
            next_id: ROOT + 1,
            seen: Tree::from([(ROOT, BTreeMap::new())]),
            kept: Tree::from([(ROOT, BTreeMap::new())]),
            ..State::default()
        };
        Self {
            root: root.to_owned(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Lets the power fail after so many more operations: all later ones fail and do nothing.
    pub fn fail_after(&self, operations: u64) {
        let mut state = self.lock();
        state.power_until = state.operations.saturating_add(operations);
    }

    /// Whether an operation was refused since the power failed.
    pub fn is_off(&self) -> bool {
        let state = self.lock();
        state.operations > state.power_until
    }

    /// Returns the number of operations since the power came on.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Turns the power on again, after a failure now or before: what was not synced is there or
    /// not, by the seed. Files that are open cannot be written any more.
    pub fn restart(&self, seed: u64) -> io::Result<()> {
        let mut state = self.lock();
        let state = &mut *state;
        let mut random = Random(seed);
        for Change(places) in std::mem::take(&mut state.changes) {
            let applies = |((dir, name), before, _): &Moved| {
                state.kept.get(dir).and_then(|dir| dir.get(name)).copied() == *before
            };
            if random.below(2) == 0 && places.iter().all(applies) {
                keep(&mut state.kept, places);
            }
        }
        let contents = state.contents_after(&self.root, &mut random)?;
        let (old, mut files) = (paths(&state.seen), BTreeMap::new());
        for (path, node) in old.iter().rev() {
            let path = self.root.join(path);
            match node {
                Node::File(_) => DiskStorage.unlink(&path)?,
                Node::Dir(_) => DiskStorage.remove_dir(&path)?,
            }
        }
        for (path, node) in paths(&state.kept) {
            let path = self.root.join(path);
            match node {
                Node::Dir(_) => DiskStorage.make_dir(&path)?,
                Node::File(id) => {
                    let content = &contents[&id];
                    DiskStorage.overwrite(&path, content)?;
                    let bytes = content.len() as u64;
                    let kept = FileState {
                        bytes,
                        synced: bytes,
                        ..FileState::default()
                    };
                    files.insert(id, kept);
                }
            }
        }
        state.drop_unreachable();
        *state = State {
            power_until: u64::MAX,
            failures: state.failures + 1,
            next_id: state.next_id,
            seen: state.kept.clone(),
            kept: std::mem::take(&mut state.kept),
            files,
            ..State::default()
        };
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation; an error if the power is off.
    fn operate(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        state.operations += 1;
        if state.operations > state.power_until {
            return Err(io::Error::other("the power is off"));
        }
        Ok(state)
    }

    /// Returns the place of a path of this disk.
    fn place(&self, state: &State, path: &Path) -> io::Result<Place> {
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.dir(state, parent)?, name.to_owned()))
    }

    fn dir(&self, state: &State, path: &Path) -> io::Result<Id> {
        let inner = path.strip_prefix(&self.root).map_err(io::Error::other)?;
        inner.components().try_fold(ROOT, |dir, component| {
            match state.seen[&dir].get(component.as_os_str()) {
                Some(Node::Dir(id)) => Ok(*id),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        })
    }
}

impl State {
    fn node(&self, (dir, name): &Place) -> Option<Node> {
        self.seen.get(dir)?.get(name).copied()
    }

    fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Puts nodes at places, as one change.
    fn put(&mut self, places: Vec<(Place, Option<Node>)>) {
        let change = places.into_iter().map(|(place, after)| {
            let before = self.node(&place);
            (place, before, after)
        });
        let change: Vec<_> = change.collect();
        keep(&mut self.seen, change.clone());
        self.changes.push(Change(change));
    }

    fn file(&mut self, path: &Path, place: &Place) -> io::Result<(Id, &mut FileState)> {
        match self.node(place) {
            Some(Node::File(id)) => Ok((id, self.files.entry(id).or_default())),
            _ => Err(io::Error::new(
                io::ErrorKind::NotFound,
                path.display().to_string(),
            )),
        }
    }

    /// Remembers the content of a file whose last name is about to go.
    fn save_content(&mut self, path: &Path, place: &Place) -> io::Result<()> {
        let Some(Node::File(id)) = self.node(place) else {
            return Ok(());
        };
        let dirs = self.seen.values();
        let names = dirs.flat_map(BTreeMap::values);
        if names.filter(|node| **node == Node::File(id)).count() == 1 {
            self.file(path, place)?.1.unlinked = Some(std::fs::read(path)?);
        }
        Ok(())
    }

    /// Forgets the contents of files that no power failure can bring back.
    fn drop_unreachable(&mut self) {
        let changed = self.changes.iter().flat_map(|Change(places)| places);
        let changed = changed.flat_map(|(_, before, after)| [*before, *after]);
        let trees = self.seen.values().chain(self.kept.values());
        let named = trees.flat_map(|dir| dir.values().copied().map(Some));
        let reachable: BTreeSet<Id> = named
            .chain(changed)
            .filter_map(|node| match node {
                Some(Node::File(id)) => Some(id),
                _ => None,
            })
            .collect();
        self.files.retain(|id, _| reachable.contains(id));
    }

    /// Returns what is left of each file that the disk has a name for.
    fn contents_after(
        &self,
        root: &Path,
        random: &mut Random,
    ) -> io::Result<BTreeMap<Id, Vec<u8>>> {
        let seen: BTreeMap<Id, PathBuf> = paths(&self.seen)
            .into_iter()
            .filter_map(|(path, node)| match node {
                Node::File(id) => Some((id, root.join(path))),
                Node::Dir(_) => None,
            })
            .collect();
        let mut contents = BTreeMap::new();
        for node in paths(&self.kept).into_values() {
            let Node::File(id) = node else {
                continue;
            };
            let file = &self.files[&id];
            let mut content = match (&file.unlinked, seen.get(&id)) {
                (Some(content), _) => content.clone(),
                (None, Some(path)) => std::fs::read(path)?,
                (None, None) => Vec::new(),
            };
            if let Some(before) = file.before.as_ref().filter(|_| random.below(2) == 0) {
                content.clone_from(before);
            } else if file.synced < content.len() as u64 {
                let lost = content.len() as u64 - file.synced;
                let left = (file.synced + random.below(lost + 1)) as usize;
                match random.below(3) {
                    0 => content[left..].fill(0),
                    _ => content.truncate(left),
                }
            }
            contents.insert(id, content);
        }
        Ok(contents)
    }
}

/// Puts the nodes after a change into a tree.
fn keep(tree: &mut Tree, places: Vec<Moved>) {
    for ((dir, name), _, after) in places {
        if let Some(Node::Dir(id)) = after {
            tree.entry(id).or_default();
        }
        let dir = tree.entry(dir).or_default();
        match after {
            Some(node) => dir.insert(name, node),
            None => dir.remove(&name),
        };
    }
}

/// Returns every path of a tree with its node; a directory comes before what is in it.
fn paths(tree: &Tree) -> BTreeMap<PathBuf, Node> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![(PathBuf::new(), ROOT)];
    while let Some((path, dir)) = dirs.pop() {
        for (name, node) in tree.get(&dir).into_iter().flatten() {
            let path = path.join(name);
            if let Node::Dir(id) = node {
                dirs.push((path.clone(), *id));
            }
            found.insert(path, *node);
        }
    }
    found
}

impl Storage for ForgettingDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        DiskStorage.make_dir(path)?;
        let inner = path.strip_prefix(&self.root).map_err(io::Error::other)?;
        let mut dir = ROOT;
        for component in inner.components() {
            let place = (dir, component.as_os_str().to_owned());
            dir = match state.node(&place) {
                Some(Node::Dir(id)) => id,
                _ => {
                    let id = state.new_id();
                    state.put(vec![(place, Some(Node::Dir(id)))]);
                    id
                }
            };
        }
        Ok(())
    }

    fn create(&self, path: &Path, access: FileAccess) -> io::Result<Box<dyn OutFile>> {
        let mut state = self.operate()?;
        let place = self.place(&state, path)?;
        let file = DiskStorage.create(path, access)?;
        let id = state.new_id();
        state.files.insert(id, FileState::default());
        state.put(vec![(place, Some(Node::File(id)))]);
        Ok(Box::new(ForgettingFile {
            file,
            id,
            failures: state.failures,
            disk: self.clone(),
        }))
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.operate()?;
        let place = self.place(&state, path)?;
        let before = std::fs::read(path).ok();
        DiskStorage.overwrite(path, bytes)?;
        if state.node(&place).is_none() {
            let id = state.new_id();
            state.put(vec![(place.clone(), Some(Node::File(id)))]);
        }
        let (_, file) = state.file(path, &place)?;
        file.before.get_or_insert(before.unwrap_or_default());
        file.bytes = file.bytes.max(bytes.len() as u64);
        Ok(())
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let mut state = self.operate()?;
        let place = self.place(&state, path)?;
        DiskStorage.truncate(path, bytes)?;
        let (_, file) = state.file(path, &place)?;
        (file.bytes, file.synced, file.before) = (bytes, bytes, None);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let (old, new) = (self.place(&state, from)?, self.place(&state, to)?);
        state.save_content(to, &new)?;
        DiskStorage.rename(from, to)?;
        let node = state.node(&old);
        state.put(vec![(old, None), (new, node)]);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let (old, new) = (self.place(&state, from)?, self.place(&state, to)?);
        DiskStorage.link(from, to)?;
        let node = state.node(&old);
        state.put(vec![(new, node)]);
        Ok(())
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let (first, second) = (self.place(&state, one)?, self.place(&state, other)?);
        DiskStorage.exchange(one, other)?;
        let nodes = (state.node(&first), state.node(&second));
        state.put(vec![(first, nodes.1), (second, nodes.0)]);
        Ok(())
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let place = match self.place(&state, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            place => place?,
        };
        state.save_content(path, &place)?;
        DiskStorage.unlink(path)?;
        if state.node(&place).is_some() {
            state.put(vec![(place, None)]);
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        DiskStorage.remove_dir(path)?;
        if !path.exists()
            && let Ok(place) = self.place(&state, path)
            && state.node(&place).is_some()
        {
            state.put(vec![(place, None)]);
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.operate()?;
        let dir = self.dir(&state, path)?;
        // Changes of other directories are kept too if a later one that is kept depends on them.
        let mut needed = BTreeSet::new();
        let (mut synced, mut others) = (Vec::new(), Vec::new());
        for Change(places) in std::mem::take(&mut state.changes).into_iter().rev() {
            let is_needed = |(place, _, _): &Moved| place.0 == dir || needed.contains(place);
            if places.iter().any(is_needed) {
                needed.extend(places.iter().map(|(place, _, _)| place.clone()));
                synced.push(places);
            } else {
                others.push(Change(places));
            }
        }
        others.reverse();
        state.changes = others;
        for places in synced.into_iter().rev() {
            keep(&mut state.kept, places);
        }
        state.drop_unreachable();
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        drop(self.operate()?);
        DiskStorage.list(path)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        // The real number would make each run another one.
        self.operate().map(|_| 1 << 40)
    }
}

struct ForgettingFile {
    file: Box<dyn OutFile>,
    id: Id,
    failures: u64,
    disk: ForgettingDisk,
}

impl ForgettingFile {
    /// Does something with the file, if its power never failed.
    fn change(
        &mut self,
        done: impl FnOnce(&mut dyn OutFile, &mut FileState) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.disk.operate()?;
        if state.failures != self.failures {
            return Err(io::Error::other("the power has failed since"));
        }
        done(&mut *self.file, state.files.entry(self.id).or_default())
    }
}

impl OutFile for ForgettingFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.change(|file, state| {
            file.write_all(bytes)?;
            state.bytes += bytes.len() as u64;
            Ok(())
        })
    }

    fn sync(&mut self) -> io::Result<()> {
        self.change(|_, state| {
            state.synced = state.bytes;
            Ok(())
        })
    }

    /// The cut is taken for synced: the tests that use this disk have no failed writes.
    fn rewind(&mut self, bytes: u64) -> io::Result<()> {
        self.change(|file, state| {
            file.rewind(bytes)?;
            (state.bytes, state.synced) = (bytes, state.synced.min(bytes));
            Ok(())
        })
    }
}

impl fmt::Debug for ForgettingDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForgettingDisk")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

/// Random numbers of a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n ^ (n >> 31)) % limit
    }
}
