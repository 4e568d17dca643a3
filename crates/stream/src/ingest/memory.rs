//! The mapping of an ingest file, shared by its producer and its rings. There is no descriptor
//! behind it: a program that closes descriptors which are not its own cannot close ours.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::cursors::{CursorsMark, RingCursors};
use super::fault::WatchedRegion;
use super::layout::{header, state};
use super::make::allocate;
use crate::map::{FileMap, MapAccess};

/// Device and inode, which identify a file.
type Identity = (u64, u64);

/// The mapped file with its cursors. It closes the file when the last owner drops it.
///
/// The file stays locked as long as this mapping exists, so that the agent knows which processes
/// live, whatever the name space of their process ids. Children do not inherit the mapping.
#[derive(Debug)]
pub(super) struct IngestMemory {
    map: ManuallyDrop<FileMap>,
    cursors: ManuallyDrop<RingCursors>,
    region: Option<WatchedRegion>,
    path: PathBuf,
    identity: Identity,
    pid: u32,
}

impl IngestMemory {
    /// Maps a file that this process has created and that will be at `path`. The descriptor is not
    /// needed afterwards.
    pub(super) fn new(file: &File, path: PathBuf, bytes: usize, rings: u32) -> io::Result<Self> {
        let map = FileMap::new(file, bytes, MapAccess::Write)?;
        let cursors = RingCursors::new(rings)?;
        if cursors.is_wiped_on_fork() {
            // A child that finds its cursor wiped does not access the file.
            map.keep_from_children();
        }
        let metadata = file.metadata()?;
        Ok(Self {
            region: WatchedRegion::watch(map.address()..map.address() + bytes, cursors.address()),
            map: ManuallyDrop::new(map),
            cursors: ManuallyDrop::new(cursors),
            path,
            identity: (metadata.dev(), metadata.ino()),
            pid: std::process::id(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn cursors(&self) -> &RingCursors {
        &self.cursors
    }

    /// Whether the mapping exists: false in a forked child.
    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.cursors.mark() != CursorsMark::Wiped
    }

    /// Whether the mapping exists, and its file was not given up.
    #[inline]
    pub(super) fn is_usable(&self) -> bool {
        !matches!(
            self.cursors.mark(),
            CursorsMark::Wiped | CursorsMark::Retired
        )
    }

    /// Whether this process created the mapping: a forked child does not have it, and a child that
    /// shares our memory, as after `vfork`, must leave it alone.
    pub(super) fn is_ours(&self) -> bool {
        self.is_here() && self.pid == std::process::id()
    }

    pub(super) fn is_retired(&self) -> bool {
        self.cursors.mark() == CursorsMark::Retired
    }

    /// Gives up the mapping in a child, right after a fork.
    pub(super) fn abandon(&self) {
        if let Some(region) = &self.region {
            region.free();
        }
        self.cursors.wipe();
        if !self.cursors.is_wiped_on_fork() {
            // The child has inherited the mapping, and with it the parent's lock.
            self.map.replace();
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still names this file.
    pub(super) fn is_in_place(&self) -> bool {
        let identity = |m: fs::Metadata| (m.dev(), m.ino());
        fs::symlink_metadata(&self.path).is_ok_and(|m| identity(m) == self.identity)
    }

    /// Makes the file system allocate the bytes, so that a full file system is an error here, and
    /// not a fault at a store. Opens the path for that where the kernel has no other way (before
    /// Linux 5.14).
    pub(super) fn reserve(&self, at: usize, bytes: usize) -> io::Result<()> {
        match self.map.populate(at, bytes) {
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.reserve_by_path(at, bytes)
            }
            // A store would have been a fault: there is no memory left, or the file was cut short.
            Err(e) if e.raw_os_error() == Some(Errno::FAULT.raw_os_error()) => {
                Err(io::ErrorKind::StorageFull.into())
            }
            other => other,
        }
    }

    fn reserve_by_path(&self, at: usize, bytes: usize) -> io::Result<()> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags.bits() as i32)
            .open(&self.path)?;
        let metadata = file.metadata()?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        allocate(&file, at, bytes)
    }
}

impl Deref for IngestMemory {
    type Target = FileMap;

    #[inline(always)]
    fn deref(&self) -> &FileMap {
        &self.map
    }
}

impl Drop for IngestMemory {
    fn drop(&mut self) {
        if !self.is_ours() {
            // A child has no such mapping, and one that shares our memory must leave it to this
            // process.
            std::mem::forget(self.region.take());
            return;
        }
        self.map
            .set(header::STATE, state::CLOSED, Ordering::Release);
        drop(self.region.take());
        drop_both(&mut self.map, &mut self.cursors);
    }
}

#[expect(
    unsafe_code,
    reason = "the two are dropped once, by their owner's drop"
)]
fn drop_both(map: &mut ManuallyDrop<FileMap>, cursors: &mut ManuallyDrop<RingCursors>) {
    // SAFETY: called once, at the end of the owner's `drop`: nobody uses them afterwards.
    unsafe {
        ManuallyDrop::drop(map);
        ManuallyDrop::drop(cursors);
    }
}
