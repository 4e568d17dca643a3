//! How the life of an ingest file ends: whose process is gone, and what is removed.
//!
//! It stands alone because it is about the file and its lock, not about what is in it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::super::layout::{DECLARATIONS_BYTES, HEAD_BYTES, HEADER_BYTES, head, header, state};
use super::super::make::start_ticks;
use super::{Header, IngestFile, with_scratch};
use crate::StreamError;

/// What the lock of a file says of its writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    /// It has the lock, or a fork of it has.
    Lives,
    /// Nobody has the lock.
    IsGone,
    /// The file system has no locks.
    Unknown,
}

/// What is other than at the last look.
struct Changes {
    /// Records, or rings.
    in_rings: bool,
    /// Declarations, or a goodbye.
    in_header: bool,
}

impl IngestFile {
    /// Whether the process is gone, and left nothing that the last look did not see. A process holds the lock
    /// of its file for life, so where the lock can be had its process is gone, or runs another program by now.
    /// Only where the file system has no locks the process's number and beginning tell; one that cannot be
    /// looked at counts as living.
    pub fn is_orphan(&self) -> bool {
        let is_gone = match self.writer() {
            Writer::Lives => false,
            Writer::IsGone => true,
            Writer::Unknown => self.is_pid_gone(),
        };
        is_gone && !self.changes().is_ok_and(|changes| changes.in_rings)
    }

    /// Whether there is anything that the last look did not see: one read, for files that are thought to sleep.
    /// A file that cannot be read is worth a look.
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

    /// Removes the file, if its name still leads to it: what another has put in its place stays. What the file
    /// takes is free when this is dropped.
    pub fn remove(&self) -> Result<(), StreamError> {
        let found = fs::symlink_metadata(&self.path).map_err(|e| self.io("look at", e))?;
        if (found.dev(), found.ino()) != self.place || found.uid() != self.owner.0 {
            return Err(self.corrupt("another file has its name by now"));
        }
        fs::remove_file(&self.path).map_err(|e| self.io("remove", e))
    }
}
