//! Looking at files and opening directories, so that a name that has become something else in the
//! meantime is noticed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::{Errno, Result};

use crate::directories::{DirectoryTable, PathOf};
use crate::event::ObjectId;
use crate::snapshot::{EntryKind, TreeEntry};

/// Directories that are kept open while there is work.
const OPEN_MAX: usize = 32;
/// Most pieces of a long path, each as long as a path may be.
const PIECES_MAX: usize = 64;

/// What is at a name now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) entry: TreeEntry,
    pub(crate) links: u32,
    /// Whether another file system, or another part of one, is mounted here.
    pub(crate) is_mount: bool,
}

/// Looks at a name in a directory, or at the directory itself if the name is empty.
pub(crate) fn look(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Seen> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let of = rustix::fs::statx(dir, name, flags, mask)?;
    let time = |time: rustix::fs::StatxTimestamp| {
        let second = time.tv_sec.saturating_mul(1_000_000_000);
        second.saturating_add(time.tv_nsec.into())
    };
    let kind = match FileType::from_raw_mode(of.stx_mode.into()) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    let device = rustix::fs::makedev(of.stx_dev_major, of.stx_dev_minor);
    let is_born = of.stx_mask & StatxFlags::BTIME.bits() != 0;
    let entry = TreeEntry {
        id: ObjectId::of(device, of.stx_ino),
        kind,
        size: of.stx_size,
        mtime_ns: time(of.stx_mtime),
        ctime_ns: time(of.stx_ctime),
        born_ns: if is_born { time(of.stx_btime) } else { 0 },
        mode: of.stx_mode & 0o7777,
        uid: of.stx_uid,
        gid: of.stx_gid,
        is_open: false,
    };
    let is_mount = of.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
    Ok(Seen {
        entry,
        links: of.stx_nlink,
        is_mount,
    })
}

/// Looks at a name with these identities.
fn look_as(identify: Option<&dyn Identify>, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Seen> {
    let mut seen = look(dir, name)?;
    if let Some(identify) = identify {
        let inode = seen.entry.id.0[8..].first_chunk().copied();
        let inode = inode.map_or(0, u64::from_be_bytes);
        seen.entry.id = identify.identity(dir, name, inode)?;
    }
    Ok(seen)
}

/// Opens a directory by its name in another one, to be read.
pub(crate) fn open_to_read(dir: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::empty())
}

/// A finder of identities, for a collector whose events have others than device and inode.
pub(crate) trait Identify: std::fmt::Debug + Send {
    /// The identity of what is at a name in a directory, or of the directory itself if the name is
    /// empty. `inode` is the inode number that was seen there a moment ago.
    ///
    /// # Errors
    ///
    /// There is nothing now, or something else (`ESTALE`).
    fn identity(&self, dir: BorrowedFd<'_>, name: &[u8], inode: u64) -> Result<ObjectId>;
}

/// Directories that were used last, open. They are closed when there is nothing to do, so that file
/// systems can be unmounted and removed directories go.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: Vec<(ObjectId, OwnedFd)>,
    /// What finds identities if they are not device and inode.
    pub(crate) identify: Option<Box<dyn Identify>>,
}

impl Handles {
    /// Looks at a name in a directory, or at the directory itself if the name is empty.
    pub(crate) fn look(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Seen> {
        look_as(self.identify.as_deref(), dir, name)
    }

    /// Looks at a name in a directory of the table.
    pub(crate) fn look_in(
        &mut self,
        table: &DirectoryTable,
        id: ObjectId,
        name: &[u8],
    ) -> Result<Seen> {
        self.get(table, id)?;
        let (_, dir) = self.open.last().ok_or(Errno::STALE)?;
        self.look(dir.as_fd(), name)
    }

    /// The directory, opened by its path in the table. If something else is there now, it is an
    /// error (`ESTALE`).
    pub(crate) fn get(&mut self, table: &DirectoryTable, id: ObjectId) -> Result<BorrowedFd<'_>> {
        if let Some(at) = self.open.iter().position(|(of, _)| *of == id) {
            let last = self.open.len() - 1;
            self.open[at..=last].rotate_left(1);
        } else {
            let dir = open(table, id, PIECES_MAX)?;
            if self.look(dir.as_fd(), b"")?.entry.id != id {
                return Err(Errno::STALE);
            }
            if self.open.len() >= OPEN_MAX {
                self.open.remove(0);
            }
            self.open.push((id, dir));
        }
        let last = self.open.last().ok_or(Errno::STALE)?;
        Ok(last.1.as_fd())
    }

    pub(crate) fn close(&mut self) {
        self.open.clear();
    }
}

/// Opens a directory as a place from which to go on, whatever the length of its path.
fn open(table: &DirectoryTable, id: ObjectId, pieces: usize) -> Result<OwnedFd> {
    match table.path(id) {
        PathOf::Whole(path) => open_at(rustix::fs::CWD, &path),
        PathOf::From(above, rest) if pieces > 0 && above != id && table.has(above) => {
            let above = open(table, above, pieces - 1)?;
            open_at(above.as_fd(), &rest)
        }
        PathOf::From(..) => Err(Errno::STALE),
    }
}

/// Opens a path in two halves if it is too long for one call.
fn open_at(dir: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let middle = path.len() / 2;
    let slash = path[middle..].iter().position(|byte| *byte == b'/');
    match slash {
        Some(at) if path.len() > 2_048 => {
            let above = open_at(dir, &path[..middle + at])?;
            open_at(above.as_fd(), &path[middle + at + 1..])
        }
        _ => rustix::fs::openat(dir, path, flags, Mode::empty()),
    }
}
