//! The end of an ingest file's life: whether its process is gone, and removing the file.
//!
//! It is a module of its own because it deals with the file and its lock, not with the file's
//! content.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::super::layout::{DECLARATIONS_BYTES, HEAD_BYTES, HEADER_BYTES, head, header, state};
use super::super::make::start_ticks;
use super::{Header, IngestFile, with_scratch};
use crate::StreamError;

/// The state of a file's writer, by the file's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// The writer, or a fork of it, has the lock.
    Lives,
    /// Nobody has the lock.
    IsGone,
    /// The file system has no locks.
    Unknown,
}

/// The changes since the last look.
struct Changes {
    /// New records or rings.
    in_rings: bool,
    /// New declarations, or the file was closed.
    in_header: bool,
}

impl IngestFile {
    /// Whether the process is gone and left nothing that the last look did not see. A process holds
    /// the lock of its file for life, so if the lock can be taken, its process is gone, or runs
    /// another program by now. Only where the file system has no locks, the process's id and start
    /// time decide; a process that cannot be examined counts as living.
    pub fn is_orphan(&self) -> bool {
        let is_gone = match self.writer() {
            Writer::Lives => false,
            Writer::IsGone => true,
            Writer::Unknown => self.is_pid_gone(),
        };
        is_gone && !self.changes().is_ok_and(|changes| changes.in_rings)
    }

    /// Whether the kernel says that the process is gone: its lock is free. Unlike
    /// [`Self::is_orphan`], it is never a guess by the process's id, and what was put does not
    /// matter.
    pub fn has_surely_ended(&self) -> bool {
        self.writer() == Writer::IsGone
    }

    /// Whether there is anything that the last look did not see: one read, for files that seem to
    /// be idle. A file that cannot be read is worth a look.
    pub fn has_news(&self) -> bool {
        let changes = self.changes();
        changes.map_or(true, |changes| changes.in_rings || changes.in_header)
    }

    fn writer(&self) -> Writer {
        match flock(&self.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                let _ = flock(&self.file, FlockOperation::Unlock);
                Writer::IsGone
            }
            Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL) => Writer::Unknown,
            Err(_) => Writer::Lives,
        }
    }

    fn is_pid_gone(&self) -> bool {
        match start_ticks(&self.pid.to_string()) {
            Some(ticks) => self.start_ticks != 0 && ticks != self.start_ticks,
            None => !Path::new("/proc").join(self.pid.to_string()).exists(),
        }
    }

    fn changes(&self) -> Result<Changes, StreamError> {
        with_scratch(|scratch| {
            let bytes = &mut scratch.heads;
            bytes.resize(HEADER_BYTES + self.rings.len() * HEAD_BYTES, 0);
            self.read(bytes, 0)?;
            let (first, heads) = bytes.split_at(HEADER_BYTES);
            let now = Header(first);
            let declared = now.word(header::DECLARED).min(DECLARATIONS_BYTES as u64);
            let is_closed = now.word(header::STATE) == state::CLOSED;
            let has_rings = self.used_of(now.word(header::RINGS_USED)) > self.rings.len();
            let mut heads = heads.chunks_exact(HEAD_BYTES).zip(&self.rings);
            let has_records = heads.any(|(head, ring)| {
                let committed = Header(head).word(head::COMMITTED);
                committed.max(ring.position) != ring.committed
            });
            Ok(Changes {
                in_rings: has_rings || has_records,
                in_header: declared > self.declared as u64 || is_closed != self.is_closed,
            })
        })
    }

    /// Removes the file, if its name still leads to it: a file that another process has put in its
    /// place stays. The file's memory is freed when this is dropped.
    pub fn remove(&self) -> Result<(), StreamError> {
        let found = fs::symlink_metadata(&self.path).map_err(|e| self.io("look at", e))?;
        if (found.dev(), found.ino()) != self.place || found.uid() != self.owner.0 {
            return Err(self.corrupt("another file has its name by now"));
        }
        fs::remove_file(&self.path).map_err(|e| self.io("remove", e))
    }
}
