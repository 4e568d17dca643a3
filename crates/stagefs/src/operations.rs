//! What programs do with the file system, as functions that give a result or an error number.
//!
//! Order of locks: a file, then the table. The table is never held while servers are asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo};

use crate::entry::{Entry, Kind, Names, TARGET_BYTES_MAX};
use crate::file::{Budget, FileState};
use crate::table::{OpenFile, ROOT, Table};
use crate::volume::{Found, Volume};

/// Permissions of the root.
const ROOT_MODE: u16 = 0o700;

/// A mounted file system.
pub(crate) struct Operations {
    pub(crate) volume: Volume,
    pub(crate) budget: Arc<Budget>,
    table: Mutex<Table>,
    is_stopping: AtomicBool,
    uid: u32,
    gid: u32,
    since_ns: i64,
}

/// Attributes that are to be changed.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) mtime: Option<SystemTime>,
}

impl Operations {
    pub(crate) fn new(volume: Volume, buffer_bytes: u64) -> Self {
        Self {
            since_ns: volume.now_ns(),
            volume,
            budget: Arc::new(Budget::new(buffer_bytes)),
            table: Mutex::new(Table::new()),
            is_stopping: AtomicBool::new(false),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> SystemTime {
        time(self.volume.now_ns())
    }

    pub(crate) fn lookup(&self, parent: u64, name: &[u8]) -> Result<FileAttr, Errno> {
        let (path, open) = {
            let table = self.table();
            let path = table.path_in(parent, name)?;
            let known = table.at(&path);
            let open = known.and_then(|(number, node)| Some((number, node.open.clone()?)));
            (path, open)
        };
        // What is being written is what this mount sees.
        if let Some((number, file)) = open {
            let file = lock(&file);
            if file.is_changed && !file.is_removed && file.path == path {
                self.table().looked_up(number);
                return Ok(self.attributes(number, &file.entry));
            }
        }
        let found = self.volume.find(&path)?;
        let Some(entry) = found.entry else {
            self.table().detach(&path);
            return Err(Errno::ENOENT);
        };
        let number = self.table().place(&path, entry.kind, found.version);
        Ok(self.attributes(number, &entry))
    }

    pub(crate) fn attributes_of(&self, number: u64) -> Result<FileAttr, Errno> {
        let node = self.table().node(number)?.clone();
        if number == ROOT {
            let mode = ROOT_MODE;
            let root = Entry::new(Kind::Directory, mode, self.since_ns, 4_096, 0);
            return Ok(self.attributes(number, &root));
        }
        if let Some(file) = &node.open {
            return Ok(self.attributes(number, &lock(file).entry));
        }
        let entry = self.entry_of(&node.path, node.kind, node.version, node.is_detached)?;
        Ok(self.attributes(number, &entry.1))
    }

    /// The entry of a name that is not open, if it is still what the kernel takes it for.
    fn entry_of(
        &self,
        path: &[u8],
        kind: Kind,
        version: u64,
        is_detached: bool,
    ) -> Result<(u64, Entry), Errno> {
        if is_detached {
            return Err(Errno::ESTALE);
        }
        let found = self.volume.find(path)?;
        let is_same = |entry: &Entry| {
            entry.kind == kind && (found.version == version || kind == Kind::Directory)
        };
        let entry = found.entry.filter(is_same).ok_or(Errno::ESTALE)?;
        Ok((found.version, entry))
    }

    /// Does something with a file: with what is open of it, or for a moment.
    fn with_file<T>(
        &self,
        number: u64,
        act: impl FnOnce(&mut FileState) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let node = self.table().node(number)?.clone();
        if number == ROOT {
            return Err(Errno::EPERM);
        }
        let (file, is_written) = match &node.open {
            Some(file) => (Arc::clone(file), node.writers > 0),
            None => (self.load(number)?, false),
        };
        let mut file = lock(&file);
        let done = act(&mut file)?;
        // Who writes commits it, with the rest.
        if !is_written {
            self.commit(&mut file)?;
        }
        Ok(done)
    }

    fn load(&self, number: u64) -> Result<OpenFile, Errno> {
        let node = self.table().node(number)?.clone();
        let entry = self.entry_of(&node.path, node.kind, node.version, node.is_detached)?;
        let file = FileState::stored(&node.path, entry.1, entry.0, &self.budget);
        Ok(Arc::new(Mutex::new(file)))
    }

    pub(crate) fn commit(&self, file: &mut FileState) -> Result<(), Errno> {
        if !file.is_changed || file.is_removed {
            return Ok(());
        }
        file.commit(&self.volume)?;
        self.table().stored(&file.path, file.version);
        Ok(())
    }

    pub(crate) fn change(&self, number: u64, changes: &Changes) -> Result<FileAttr, Errno> {
        let is_other = changes.uid.is_some_and(|uid| uid != self.uid)
            || changes.gid.is_some_and(|gid| gid != self.gid);
        if is_other {
            return Err(Errno::EPERM);
        }
        self.with_file(number, |file| {
            if let Some(size) = changes.size {
                if file.entry.kind != Kind::File {
                    return Err(Errno::EINVAL);
                }
                self.may_write()?;
                file.truncate(&self.volume, size)?;
            }
            if let Some(mode) = changes.mode {
                file.entry.mode = (mode & 0o7777) as u16;
            }
            if let Some(mtime) = changes.mtime {
                file.entry.mtime_ns = nanoseconds(mtime);
            }
            file.is_changed |= changes.mode.is_some() || changes.mtime.is_some();
            Ok(self.attributes(number, &file.entry))
        })
    }

    /// Opens a file; returns the handle.
    pub(crate) fn open(&self, number: u64, is_writer: bool) -> Result<u64, Errno> {
        let node = self.table().node(number)?.clone();
        let file = match node.open {
            Some(file) => file,
            None => self.load(number)?,
        };
        self.table().open(number, is_writer, file)
    }

    /// Creates a file, which is stored when it is closed; returns its attributes and a handle.
    pub(crate) fn create(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
    ) -> Result<(FileAttr, u64), Errno> {
        self.may_write()?;
        let mut table = self.table();
        let path = table.path_in(parent, name)?;
        self.volume.check_path(&path)?;
        let entry = self.volume.new_entry(Kind::File, mode);
        let file = FileState::created(&path, entry.clone(), &self.budget);
        // A name that is open and not stored yet is one that the kernel has found.
        table.detach(&path);
        let number = table.place(&path, Kind::File, 0);
        let handle = table.open(number, true, Arc::new(Mutex::new(file)))?;
        Ok((self.attributes(number, &entry), handle))
    }

    pub(crate) fn read(&self, handle: u64, from: u64, bytes: u64) -> Result<Vec<u8>, Errno> {
        let file = self.table().file(handle)?;
        lock(&file).read(&self.volume, from, bytes)
    }

    pub(crate) fn write(&self, handle: u64, from: u64, data: &[u8]) -> Result<(), Errno> {
        let file = self.table().file(handle)?;
        let mut file = lock(&file);
        // Asked under the lock: what is written later than the last commit is refused.
        self.may_write()?;
        file.write(&self.volume, from, data)
    }

    /// Stores what a file has that is not stored yet, for who writes it: a reader that closes it
    /// would store a half of what another program is writing.
    pub(crate) fn flush(&self, handle: u64) -> Result<(), Errno> {
        let file = self.table().written(handle);
        file.map_or(Ok(()), |file| self.commit(&mut lock(&file)))
    }

    pub(crate) fn close(&self, handle: u64) {
        // It was flushed before, and that has told of errors.
        let _ = self.flush(handle);
        let last = self.table().close(handle);
        if let Some(file) = last {
            lock(&file).discard(&self.volume);
        }
    }

    /// Makes a directory or a symbolic link.
    pub(crate) fn make(
        &self,
        parent: u64,
        name: &[u8],
        kind: Kind,
        mode: u32,
        target: &[u8],
    ) -> Result<FileAttr, Errno> {
        self.may_write()?;
        if target.len() > TARGET_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let path = self.table().path_in(parent, name)?;
        let found = self.found(&path)?;
        if found.entry.is_some() {
            return Err(Errno::EEXIST);
        }
        let mut entry = self.volume.new_entry(kind, mode);
        entry.target = target.to_vec();
        entry.size = target.len() as u64;
        let version = self.volume.put_entry(&path, &found, &entry)?;
        let number = self.table().place(&path, kind, version);
        Ok(self.attributes(number, &entry))
    }

    /// What is at a path, after what is written there was stored.
    fn found(&self, path: &[u8]) -> Result<Found, Errno> {
        let open = self
            .table()
            .at(path)
            .and_then(|(_, node)| node.open.clone());
        if let Some(file) = open {
            self.commit(&mut lock(&file))?;
        }
        self.volume.find(path)
    }

    pub(crate) fn target(&self, number: u64) -> Result<Vec<u8>, Errno> {
        let node = self.table().node(number)?.clone();
        let entry = self.entry_of(&node.path, node.kind, node.version, node.is_detached)?;
        Ok(entry.1.target)
    }

    pub(crate) fn unlink(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.may_write()?;
        let (path, open) = {
            let table = self.table();
            let path = table.path_in(parent, name)?;
            let open = table.at(&path).and_then(|(_, node)| node.open.clone());
            (path, open)
        };
        let mut file = open.as_ref().map(lock);
        let found = self.volume.find(&path)?;
        let is_new = file.as_ref().is_some_and(|file| !file.is_stored);
        match found.entry {
            Some(entry) if entry.kind == Kind::Directory => return Err(Errno::EISDIR),
            Some(mut entry) => {
                self.volume.settle(&path, &mut entry)?;
                self.volume.remove_entry(&path, found.version)?;
                // The blocks of a file that is open are removed when it is closed.
                let is_open = |file: &MutexGuard<'_, FileState>| file.version == found.version;
                if !file.as_ref().is_some_and(is_open) {
                    self.volume.delete_blocks(entry.blocks.into_values());
                }
            }
            None if is_new => {}
            None => return Err(Errno::ENOENT),
        }
        if let Some(file) = &mut file {
            file.is_removed = true;
        }
        self.table().detach(&path);
        Ok(())
    }

    pub(crate) fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.may_write()?;
        let path = self.table().path_in(parent, name)?;
        let found = self.volume.find(&path)?;
        let entry = found.entry.ok_or(Errno::ENOENT)?;
        if entry.kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if self.volume.has_names(&path)? || !self.new_names(&path).is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.volume.remove_entry(&path, found.version)?;
        self.table().detach(&path);
        Ok(())
    }

    /// Renames a file or a symbolic link: the name that is replaced is the old file or the new one
    /// at each moment. A directory is not renamed, since each name in it would be.
    pub(crate) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<(), Errno> {
        self.may_write()?;
        let (from, to, open) = {
            let table = self.table();
            let from = table.path_in(from.0, from.1)?;
            let to = table.path_in(to.0, to.1)?;
            self.volume.check_path(&to)?;
            let open = table.at(&from).and_then(|(_, node)| node.open.clone());
            (from, to, open)
        };
        if from == to {
            return Ok(());
        }
        let replaced = self.found(&to)?;
        let mut file = open.as_ref().map(lock);
        if let Some(file) = &mut file {
            self.commit(file)?;
        }
        let moved = self.volume.find(&from)?;
        let entry = moved.entry.as_ref().ok_or(Errno::ENOENT)?;
        if entry.kind == Kind::Directory {
            return Err(Errno::EXDEV);
        }
        let is_directory = |entry: &Entry| entry.kind == Kind::Directory;
        if replaced.entry.as_ref().is_some_and(is_directory) {
            return Err(Errno::EISDIR);
        }
        let version = self.volume.move_entry(&from, &moved, &to, &replaced)?;
        if let Some(file) = &mut file {
            file.path.clone_from(&to);
            file.version = version;
            file.entry.moved_from.clear();
        }
        drop(file);
        self.replace(&to, replaced.entry);
        self.table().renamed(&from, &to, version);
        Ok(())
    }

    /// Renames a file to a name that nothing has.
    pub(crate) fn rename_new(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<(), Errno> {
        match self.lookup(to.0, to.1) {
            Ok(found) => {
                self.table().forget(found.ino.0, 1);
                Err(Errno::EEXIST)
            }
            Err(error) if error == Errno::ENOENT => self.rename(from, to),
            Err(error) => Err(error),
        }
    }

    /// Has a file that was replaced by another one end with its last handle, or now.
    fn replace(&self, path: &[u8], entry: Option<Entry>) {
        let open = self
            .table()
            .at(path)
            .and_then(|(_, node)| node.open.clone());
        match (open, entry) {
            (Some(file), _) => lock(&file).is_removed = true,
            (None, Some(entry)) => self.volume.delete_blocks(entry.blocks.into_values()),
            (None, None) => {}
        }
    }

    /// Reads a directory; returns a handle to what it has now.
    pub(crate) fn open_directory(&self, number: u64) -> Result<u64, Errno> {
        let node = self.table().node(number)?.clone();
        if node.is_detached {
            return Err(Errno::ENOENT);
        }
        let mut names = self.volume.list(&node.path)?;
        names.extend(self.new_names(&node.path));
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        names.dedup_by(|a, b| a.0 == b.0);
        let dots = [b".".to_vec(), b"..".to_vec()].map(|name| (name, Kind::Directory));
        let all = dots.into_iter().chain(names).collect();
        Ok(self.table().open_directory(all))
    }

    /// The names of files that are written and are not stored yet.
    fn new_names(&self, directory: &[u8]) -> Names {
        let open = self.table().open_in(directory);
        open.into_iter()
            .filter(|(_, file)| {
                let file = lock(file);
                !file.is_stored && !file.is_removed
            })
            .map(|(name, _)| (name, Kind::File))
            .collect()
    }

    /// Bytes of all tiers of all servers, and those of them that are free.
    pub(crate) fn room(&self) -> (u64, u64) {
        let status = self.volume.status();
        let tiers = || status.iter().flat_map(|status| &status.tiers);
        let all = tiers().map(|tier| tier.held.bytes_max);
        let free = tiers().map(|tier| tier.held.bytes_max.saturating_sub(tier.held.bytes));
        (
            all.fold(0, u64::saturating_add),
            free.fold(0, u64::saturating_add),
        )
    }

    /// Stores what is written, and refuses to write more. Returns how many files could not be
    /// stored.
    pub(crate) fn stop(&self) -> usize {
        self.is_stopping.store(true, Ordering::SeqCst);
        let files = self.table().open_files();
        let stored = files.iter().map(|file| self.commit(&mut lock(file)));
        stored.filter(Result::is_err).count()
    }

    /// Ends all handles when the kernel has gone: it does not tell of the last ones that it closes.
    pub(crate) fn end(&self) {
        self.stop();
        let handles = self.table().open_handles();
        for handle in handles {
            self.close(handle);
        }
    }

    fn may_write(&self) -> Result<(), Errno> {
        match self.is_stopping.load(Ordering::SeqCst) {
            true => Err(Errno::ESHUTDOWN),
            false => Ok(()),
        }
    }

    fn attributes(&self, number: u64, entry: &Entry) -> FileAttr {
        let mtime = time(entry.mtime_ns);
        let stored = (entry.blocks.len() as u64).saturating_mul(entry.block_bytes);
        FileAttr {
            ino: INodeNo(number),
            size: entry.size,
            blocks: stored.min(entry.size).div_ceil(512),
            atime: mtime,
            mtime,
            ctime: mtime,
            crtime: mtime,
            kind: file_type(entry.kind),
            perm: entry.mode,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: entry.block_bytes.min(1 << 20) as u32,
            flags: 0,
        }
    }
}

pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Link => FileType::Symlink,
    }
}

fn lock(file: &OpenFile) -> MutexGuard<'_, FileState> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

fn time(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    match ns >= 0 {
        true => UNIX_EPOCH + distance,
        false => UNIX_EPOCH - distance,
    }
}

fn nanoseconds(time: SystemTime) -> i64 {
    let clamped = |distance: Duration| i64::try_from(distance.as_nanos()).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => clamped(since),
        Err(before) => -clamped(before.duration()),
    }
}
