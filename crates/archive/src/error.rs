//! What can go wrong with the archive's files.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why something of the archive cannot be read or written.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// An operation on a file failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// Another process writes this node's archive.
    #[error("{} is held by another agent: stop it, or give --archive-dir", path.display())]
    Occupied {
        /// The lock.
        path: PathBuf,
    },
    /// A directory in which the writer would make and remove files is not its own.
    #[error("{} is refused: {reason}; see to it that only the agent writes there, or give --archive-dir", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file is not what its name says.
    #[error("{}: {reason} (at byte {at}); baro archive verify tells what is affected", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// Where.
        at: u64,
    },
    /// A file of a later version of barograph.
    #[error("{}: it was written by a newer barograph (format {found}, this one reads up to {known}): update this one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// A thread cannot be started.
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        /// Its name.
        name: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file could not be copied to the object store.
    #[error("cannot copy {} to the target: {reason}", path.display())]
    Copy {
        /// The file, relative to the archive's directory.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A copy whose rows are in another one by now could not be removed from the object store.
    #[error("{} was merged, and its copy stays in the target for now: {reason}", path.display())]
    StaleCopy {
        /// The file, relative to the archive's directory.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// A target for copies that cannot be used.
    #[error("the target {url} is refused: {reason}")]
    Target {
        /// The target, as given.
        url: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The reader's bound on buckets was reached.
    #[error(
        "there are more buckets than there is room for: ask for a shorter span, fewer series or a longer step"
    )]
    TooManyBuckets,
    /// The reader asked for an end.
    #[error("the read was cancelled")]
    Cancelled,
}

impl ArchiveError {
    /// Wraps what the kernel said; for `map_err`.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    /// A file that is not what its name says.
    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>, at: u64) -> Self {
        Self::Corrupt {
            path: path.to_owned(),
            reason: reason.into(),
            at,
        }
    }

    /// Whether a file was not there.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Whether this user may not read it.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Whether the file system, or this user's share of it, is full.
    pub(crate) fn is_full(&self) -> bool {
        let Self::Io { source, .. } = self else {
            return false;
        };
        let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        kinds.contains(&source.kind())
    }
}
