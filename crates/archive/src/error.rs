//! The errors of the archive.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Reasons why a part of an archive cannot be read or written.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// An operation on a file failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error that the kernel returned.
        #[source]
        source: io::Error,
    },
    /// Another process is writing this node's archive.
    #[error("{} is held by another agent: stop it, or give --archive-dir", path.display())]
    Occupied {
        /// Path of the lock.
        path: PathBuf,
    },
    /// A directory in which the writer would create and delete files does not belong to it.
    #[error("{} is refused: {reason}; see to it that only the agent writes there, or give --archive-dir", path.display())]
    Foreign {
        /// Path of the directory.
        path: PathBuf,
        /// The reason why it is refused.
        reason: String,
    },
    /// The content of a file is not what its name promises.
    #[error("{}: {reason} (at byte {at}); baro archive verify tells what is affected", path.display())]
    Corrupt {
        /// Path of the file.
        path: PathBuf,
        /// The defect.
        reason: String,
        /// Offset of the damage in the file, in bytes.
        at: u64,
    },
    /// A file was written by a later version of barograph.
    #[error("{}: it was written by a newer barograph (format {found}, this one reads up to {known}): update this one", path.display())]
    Newer {
        /// Path of the file.
        path: PathBuf,
        /// Version of its format.
        found: u32,
        /// Newest version of the format that this program reads.
        known: u32,
    },
    /// A thread could not be started.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// The error that the kernel returned.
        #[source]
        source: io::Error,
    },
    /// A file could not be copied to the object store.
    #[error("cannot copy {} to the target: {reason}", path.display())]
    Copy {
        /// Path of the file, relative to the archive's directory.
        path: PathBuf,
        /// The reason why it was not copied, and the remedy.
        reason: String,
    },
    /// A copy that has been merged into another one could not be deleted from the object store.
    #[error("{} was merged, and its copy stays in the target for now: {reason}", path.display())]
    StaleCopy {
        /// Path of the file, relative to the archive's directory.
        path: PathBuf,
        /// The reason why the copy was not deleted, and the remedy.
        reason: String,
    },
    /// A target for copies cannot be used.
    #[error("the target {url} is refused: {reason}")]
    Target {
        /// The target, as it was configured.
        url: String,
        /// The reason why it is refused, and the remedy.
        reason: String,
    },
    /// The sealer is slower than the writer of the log, or does not run at all.
    #[error(
        "the archive has {bytes} bytes, far more than archive.bytes_max, since the disk or the machine \
         is too slow for what is written"
    )]
    Late {
        /// Bytes of the files that the sealer could delete.
        bytes: u64,
    },
    /// The reader's bound on buckets was reached.
    #[error(
        "there are more buckets than there is room for: ask for a shorter span, fewer series or a longer step"
    )]
    TooManyBuckets,
    /// The reader cancelled the read.
    #[error("the read was cancelled")]
    Cancelled,
}

impl ArchiveError {
    /// Returns a function for `map_err` that adds an operation and a path to an I/O error.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// Returns a `Corrupt` error for the byte `at` of a file.
    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>, at: u64) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            reason: reason.into(),
            at,
        }
    }

    /// Whether the error is that a file does not exist.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether the error is that this user may not read the file.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether the error is that the file system, or this user's quota, is full.
    pub(crate) fn is_full(&self) -> bool {
        let Self::Io { source, .. } = self else {
            return false;
        };
        let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        kinds.contains(&source.kind())
    }
}
