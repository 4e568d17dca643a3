//! What is known of the directories below the roots, and the walk that learns them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use crate::collector::CollectorFault;
use crate::directories::{DirectoryTable, PathFault, PathOf};
use crate::event::ObjectId;
use crate::fanotify::FanotifyConfig;
use crate::fanotify::handles::{HandleReader, Identity, is_passing};
use crate::fanotify::parse::RawPlace;
use crate::fanotify::roots::{Relation, Roots};
use crate::fanotify::told::Place;

/// Most entries of a directory that one step of a walk takes.
const ENTRIES_PER_STEP: usize = 512;
/// Time after which a walk goes on that lacked descriptors, watches or memory.
const RETRY_NS: i64 = 1_000_000_000;
/// Directories that have moved out of the roots, from which on they are forgotten with all that is
/// below them. Looking for these costs a pass over all directories.
const MOVED_OUT_MAX: usize = 256;
/// Most directories that are looked for again when they were not found.
const ASTRAY_MAX: usize = 65_536;
/// Times that a directory is looked for again.
const MISSES_MAX: u8 = 3;
/// The parent of directories that have moved out of the roots.
const OUTSIDE: ObjectId = ObjectId([0xff; 16]);

/// The directories below the roots.
pub(super) struct Tree {
    base: OwnedFd,
    base_id: ObjectId,
    roots: Roots,
    reader: HandleReader,
    table: DirectoryTable,
    directories_max: usize,
    /// Directories whose contents are still to be learnt.
    todo: VecDeque<WalkItem>,
    current: Option<OpenDirectory>,
    /// Directories that were not where the events so far say: they have moved on, as later events
    /// will say.
    astray: Vec<WalkItem>,
    retry_ns: i64,
    moved_out: usize,
    /// Directories that were forgotten since [`Self::take_forgotten`] was called.
    forgotten: Vec<ObjectId>,
    /// Number of walks so far.
    walks: u64,
    /// Directories that this process may not read.
    pub(super) unreadable: u64,
    /// Whether there are more directories than allowed.
    pub(super) is_full: bool,
}

/// A directory whose contents are to be learnt.
#[derive(Clone, Copy)]
struct WalkItem {
    directory: ObjectId,
    /// Whether what is found in it is told as new.
    tells: bool,
    /// How often it was not found.
    misses: u8,
}

struct OpenDirectory {
    item: WalkItem,
    path: Vec<u8>,
    entries: Dir,
    /// Whether it is known to be the directory that was meant.
    is_it: bool,
}

/// Something in a directory that has moved in, to be told as new.
pub(super) struct FoundEntry {
    pub(super) parent: ObjectId,
    pub(super) path: Vec<u8>,
    pub(super) target: ObjectId,
    pub(super) stat: Stat,
}

/// A path and how it stands to the roots.
pub(super) struct TreePath {
    pub(super) path: Vec<u8>,
    pub(super) relation: Relation,
}

/// What there is at a path.
pub(super) enum PathState {
    /// Nothing.
    Empty,
    /// An object with its attributes.
    There(ObjectId, Stat),
    /// Something that cannot be looked at.
    Hidden,
}

impl Tree {
    /// What is known at first: nothing but the base.
    pub(super) fn open(base: OwnedFd, config: &FanotifyConfig) -> Result<Self, CollectorFault> {
        let roots = Roots::new(&config.base, &config.roots)?;
        let (reader, base_id) =
            HandleReader::open(base.as_fd()).map_err(|source| CollectorFault::Io {
                what: "find the file handle of",
                path: config.base.clone(),
                source,
            })?;
        let mut tree = Self {
            base,
            base_id,
            roots,
            reader,
            table: DirectoryTable::new(config.directories_max),
            directories_max: config.directories_max,
            todo: VecDeque::new(),
            current: None,
            astray: Vec::new(),
            retry_ns: 0,
            moved_out: 0,
            forgotten: Vec::new(),
            walks: 0,
            unreadable: 0,
            is_full: false,
        };
        tree.require_one_file_system()?;
        tree.learn_anew();
        Ok(tree)
    }

    /// Takes the directories from an earlier life, instead of learning them by a walk.
    pub(super) fn take_table(&mut self, table: &mut DirectoryTable) {
        self.todo.clear();
        std::mem::swap(&mut self.table, table);
        let placed = self.table.insert_root(self.base_id, self.roots.base());
        self.is_full = placed == Err(PathFault::Full);
    }

    /// Lends the directories, or takes them back.
    pub(super) fn exchange_table(&mut self, table: &mut DirectoryTable) {
        std::mem::swap(&mut self.table, table);
    }

    /// Another reader of identities.
    pub(super) fn reader(&self) -> io::Result<HandleReader> {
        HandleReader::open(self.base.as_fd()).map(|(reader, _)| reader)
    }

    /// Refuses roots on other file systems, which the mark does not see.
    fn require_one_file_system(&self) -> Result<(), CollectorFault> {
        let device = self.stat(self.roots.base()).map(|stat| stat.st_dev);
        for root in self.roots.roots() {
            if self
                .stat(root)
                .is_some_and(|stat| Some(stat.st_dev) != device)
            {
                return Err(CollectorFault::Unusable(format!(
                    "{} is on another file system than {}: watch it by a group of its own",
                    String::from_utf8_lossy(root),
                    String::from_utf8_lossy(self.roots.base())
                )));
            }
        }
        Ok(())
    }

    /// Forgets everything, and begins a walk from the base.
    pub(super) fn learn_anew(&mut self) {
        self.table = DirectoryTable::new(self.directories_max);
        self.todo.clear();
        self.astray.clear();
        self.forgotten.clear();
        (self.current, self.moved_out, self.unreadable) = (None, 0, 0);
        let placed = self.table.insert_root(self.base_id, self.roots.base());
        self.is_full = placed == Err(PathFault::Full);
        self.walk(self.base_id, false);
    }

    /// Number of directories that are known.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether directories may be unknown that are below the roots.
    pub(super) fn is_partial(&self) -> bool {
        self.is_walking() || self.is_full || self.unreadable > 0 || !self.astray.is_empty()
    }

    /// Whether some directories were not found where they should be.
    pub(super) fn is_astray(&self) -> bool {
        !self.astray.is_empty()
    }

    /// The roots that are not there.
    pub(super) fn missing_roots(&self) -> Vec<PathBuf> {
        let is_missing = |root: &&[u8]| {
            let found = rustix::fs::statat(
                &self.base,
                self.roots.relative(root),
                AtFlags::SYMLINK_NOFOLLOW,
            );
            !found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        };
        let missing = self.roots.roots().filter(is_missing);
        missing
            .map(|root| String::from_utf8_lossy(root).into_owned().into())
            .collect()
    }

    /// Whether a directory is below the roots, and its path is not known because this process may
    /// not read it or one above it.
    pub(super) fn is_hidden(&self, directory: ObjectId) -> bool {
        let is_known = self.is_walking() || self.is_full || self.table.has(directory);
        self.has_all() && self.unreadable > 0 && !is_known
    }

    /// Whether the roots are all of the file system.
    pub(super) fn has_all(&self) -> bool {
        self.roots.is_all
    }

    pub(super) fn has(&self, directory: ObjectId) -> bool {
        self.table.has(directory)
    }

    /// Whether the whole path of a directory is known.
    pub(super) fn has_path(&self, directory: ObjectId) -> bool {
        self.table.has(directory) && matches!(self.table.path(directory), PathOf::Whole(_))
    }

    /// The parent of a directory.
    pub(super) fn parent(&self, directory: ObjectId) -> Option<ObjectId> {
        self.table.get(directory)?.0
    }

    /// The place of a directory.
    pub(super) fn place(&self, directory: ObjectId) -> Option<Place> {
        let (parent, name) = self.table.get(directory)?;
        Some(Place {
            directory: parent?,
            name: name.into(),
        })
    }

    /// The length of the path of a directory, as far as it is known.
    pub(super) fn path_bytes(&self, directory: ObjectId) -> usize {
        let (PathOf::Whole(path) | PathOf::From(_, path)) = self.table.path(directory);
        path.len()
    }

    /// The path of a place; `None` if it is not below the base or is not known.
    pub(super) fn path(&self, place: &RawPlace<'_>) -> Option<TreePath> {
        let name = if place.name == b"." { b"" } else { place.name };
        match self.table.path_in(place.directory, name) {
            PathOf::Whole(path) => {
                let relation = self.roots.relation(&path);
                Some(TreePath { path, relation })
            }
            PathOf::From(..) => None,
        }
    }

    /// The roots that are `path` or below it.
    pub(super) fn roots_within(&self, path: &[u8]) -> Vec<Vec<u8>> {
        self.roots.roots_within(path)
    }

    /// Takes in where a directory is.
    pub(super) fn insert(&mut self, directory: ObjectId, place: &RawPlace<'_>) {
        if directory == self.base_id {
            return;
        }
        let mut outcome = self.table.insert(directory, place.directory, place.name);
        if outcome == Err(PathFault::Full) && self.moved_out > 0 {
            self.forget_outside();
            outcome = self.table.insert(directory, place.directory, place.name);
        }
        self.is_full |= outcome == Err(PathFault::Full);
    }

    /// Takes in that a directory has moved to where nothing is watched.
    pub(super) fn move_out(&mut self, directory: ObjectId) {
        if directory == self.base_id || !self.table.has(directory) {
            return;
        }
        // It has a place still, so that a pass finds it and all that is below it.
        let _ = self.table.insert(directory, OUTSIDE, b"?");
        self.moved_out += 1;
        if self.moved_out >= MOVED_OUT_MAX {
            self.forget_outside();
        }
    }

    /// Forgets the directories that have moved out, and all that is below them.
    pub(super) fn forget_outside(&mut self) {
        for directory in self.table.below(OUTSIDE) {
            self.table.remove(directory);
            self.forgotten.push(directory);
        }
        self.moved_out = 0;
    }

    /// Forgets a directory and all that is below it, so that all of it is found anew.
    pub(super) fn forget_tree(&mut self, directory: ObjectId) {
        if self.table.has(directory) && directory != self.base_id {
            let _ = self.table.insert(directory, OUTSIDE, b"?");
            self.forget_outside();
        }
    }

    /// Takes the directories that were forgotten since the last call.
    pub(super) fn take_forgotten(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.forgotten)
    }

    /// Takes in that a directory was removed.
    pub(super) fn remove(&mut self, directory: ObjectId) {
        if directory != self.base_id {
            self.table.remove(directory);
        }
    }

    /// Has the contents of a directory learnt, and told as new if wanted.
    pub(super) fn walk(&mut self, directory: ObjectId, tells: bool) {
        self.push(WalkItem {
            directory,
            tells,
            misses: 0,
        });
    }

    /// Number of walks so far.
    pub(super) fn walks(&self) -> u64 {
        self.walks
    }

    pub(super) fn is_walking(&self) -> bool {
        self.current.is_some() || !self.todo.is_empty()
    }

    /// Time of the monotonic clock from which the walk can go on.
    pub(super) fn due_ns(&self) -> i64 {
        if self.is_walking() {
            self.retry_ns
        } else {
            i64::MAX
        }
    }

    /// The attributes of what is at a path.
    pub(super) fn stat(&self, path: &[u8]) -> Option<Stat> {
        let path = self.roots.relative(path);
        rustix::fs::statat(&self.base, path, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// The low half of the inode number of the object with this handle, if it can be told.
    pub(super) fn inode(&self, handle: &[u8]) -> Option<u32> {
        self.reader.inode(handle)
    }

    /// What there is at names in a directory; `None` if the directory is not where it is known to
    /// be, as a later event will say.
    ///
    /// # Errors
    ///
    /// There is no room to look now.
    pub(super) fn look_in(
        &self,
        directory: ObjectId,
        names: &[&[u8]],
    ) -> io::Result<Option<Vec<PathState>>> {
        let PathOf::Whole(path) = self.table.path(directory) else {
            return Ok(None);
        };
        let opened = match self.open_at(&path, OFlags::PATH) {
            Ok(opened) => opened,
            Err(errno) if is_passing(errno) => return Err(errno.into()),
            Err(_) => return Ok(None),
        };
        let wanted: Vec<_> = [&b"."[..]]
            .iter()
            .chain(names)
            .map(|name| name.to_vec())
            .collect();
        let found = self.reader.identities(opened.as_fd(), &wanted)?;
        if found.first().is_none_or(|found| found.id() != directory) {
            return Ok(None);
        }
        let found = wanted.iter().zip(found).skip(1);
        let states = found.map(|(name, identity)| {
            match rustix::fs::statat(&opened, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if identity.is_of(&stat) => PathState::There(identity.id(), stat),
                Err(Errno::NOENT) => PathState::Empty,
                Ok(_) | Err(_) => PathState::Hidden,
            }
        });
        Ok(Some(states.collect()))
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        rustix::fs::openat2(
            &self.base,
            self.roots.relative(path),
            flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        )
    }

    /// Whether an object is at a path.
    pub(super) fn is_at(&self, path: &[u8], target: ObjectId) -> bool {
        let Some(stat) = self.stat(path) else {
            return false;
        };
        let names = [self.roots.relative(path).to_vec()];
        let found = self.reader.identities(self.base.as_fd(), &names);
        let is_it = |found: &Identity| found.id() == target && found.is_of(&stat);
        found.is_ok_and(|found| found.first().is_some_and(is_it))
    }

    /// Goes on with the walk by one directory, or by some entries of a large one. What is to be
    /// told is appended to `found`.
    pub(super) fn step(&mut self, found: &mut Vec<FoundEntry>, monotonic_ns: i64) {
        let mut open = match self.current.take() {
            Some(open) => open,
            None => {
                // The last first, so that few directories wait at a time.
                let Some(item) = self.todo.pop_back() else {
                    return;
                };
                match self.open_directory(item) {
                    Ok(Some(open)) => open,
                    Ok(None) => return,
                    Err(_) => return self.put_off(item, monotonic_ns),
                }
            }
        };
        let item = open.item;
        match self.learn(&mut open, found) {
            Ok(true) => {}
            Ok(false) => self.current = Some(open),
            // It is read anew from its beginning; what was told is known to the caller.
            Err(_) => self.put_off(item, monotonic_ns),
        }
    }

    fn push(&mut self, item: WalkItem) {
        self.walks += u64::from(!self.is_walking());
        self.todo.push_back(item);
    }

    fn note_astray(&mut self, item: WalkItem) {
        if self.astray.len() < ASTRAY_MAX && item.misses < MISSES_MAX {
            let misses = item.misses + 1;
            self.astray.push(WalkItem { misses, ..item });
        }
    }

    /// Looks again for directories that were not found, now that all events are known. Those that
    /// are not found then either are gone.
    pub(super) fn walk_astray(&mut self) {
        for item in std::mem::take(&mut self.astray) {
            if self.table.has(item.directory) {
                self.push(item);
            }
        }
    }

    fn put_off(&mut self, item: WalkItem, monotonic_ns: i64) {
        self.todo.push_back(item);
        self.retry_ns = monotonic_ns.saturating_add(RETRY_NS);
    }

    /// Opens a directory; `None` if it is not there, is not of interest, or cannot be read.
    fn open_directory(&mut self, item: WalkItem) -> io::Result<Option<OpenDirectory>> {
        let PathOf::Whole(path) = self.table.path(item.directory) else {
            return Ok(None);
        };
        if self.roots.relation(&path) == Relation::Beside {
            return Ok(None);
        }
        let opened = self.open_at(&path, OFlags::RDONLY);
        match opened.and_then(Dir::new) {
            Ok(entries) => Ok(Some(OpenDirectory {
                item,
                path,
                entries,
                is_it: false,
            })),
            Err(errno) if is_passing(errno) => Err(errno.into()),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                self.note_astray(item);
                Ok(None)
            }
            Err(_) => {
                self.unreadable += 1;
                Ok(None)
            }
        }
    }

    /// Learns some entries of a directory. Returns whether these were the last.
    fn learn(&mut self, open: &mut OpenDirectory, found: &mut Vec<FoundEntry>) -> io::Result<bool> {
        let mut names = vec![b".".to_vec()];
        let mut is_end = true;
        for count in 1.. {
            let Some(entry) = open.entries.read() else {
                break;
            };
            let Ok(entry) = entry else {
                self.unreadable += 1;
                break;
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let is_wanted = open.item.tells
                    || matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
                let child = child_path(&open.path, name);
                if is_wanted && self.roots.relation(&child) != Relation::Beside {
                    names.push(name.to_vec());
                }
            }
            if count == ENTRIES_PER_STEP {
                is_end = false;
                break;
            }
        }
        let directory = open.entries.fd()?;
        let identities = self.reader.identities(directory, &names)?;
        let is_meant = |found: &Identity| found.id() == open.item.directory;
        if !open.is_it && !identities.first().is_some_and(is_meant) {
            self.note_astray(open.item);
            return Ok(true);
        }
        open.is_it = true;
        for (name, identity) in names.iter().zip(identities).skip(1) {
            let Some(stat) = kind_at(directory, name) else {
                continue;
            };
            self.learn_entry(open.item, &open.path, name, identity, stat, found);
        }
        Ok(is_end)
    }

    fn learn_entry(
        &mut self,
        item: WalkItem,
        parent_path: &[u8],
        name: &[u8],
        identity: Identity,
        stat: Stat,
        found: &mut Vec<FoundEntry>,
    ) {
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let target = match identity {
            Identity::Known(id, _) if identity.is_of(&stat) => id,
            // Another object has come there since, which an event will tell.
            Identity::Known(..) | Identity::Gone => return,
            Identity::Refused => ObjectId::NONE,
        };
        let path = child_path(parent_path, name);
        let is_inside = self.roots.relation(&path) == Relation::Inside;
        if is_directory && target.is_none() {
            self.unreadable += 1;
        } else if is_directory {
            let place = RawPlace {
                directory: item.directory,
                name,
            };
            if self.has_path(target) {
                // Events have told it elsewhere, and further ones will bring it here.
                return;
            }
            // What was known below it was told as gone.
            self.forget_tree(target);
            self.insert(target, &place);
            self.walk(target, item.tells);
        }
        if item.tells && is_inside {
            found.push(FoundEntry {
                parent: item.directory,
                path,
                target,
                stat,
            });
        }
    }
}

fn kind_at(directory: BorrowedFd<'_>, name: &[u8]) -> Option<Stat> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

fn child_path(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let parent = parent.strip_suffix(b"/").unwrap_or(parent);
    [parent, b"/", name].concat()
}
