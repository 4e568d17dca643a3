//! The reasons why an operation of the queue fails.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use thiserror::Error;

/// The reason why the queue could not do something. Nothing of the operation was done.
#[derive(Debug, Error)]
pub enum QueueFault {
    /// Another process has the queue.
    #[error("the queue {path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A newer version of this program has made the file.
    #[error("the queue {path} has schema {found}, and this program knows {known}: use a newer one")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema that this program knows.
        known: i64,
    },
    /// The file is damaged. It is set aside when the queue is opened again.
    #[error("the queue {path} is damaged ({reason}): open it again to set it aside")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// So many damaged files are beside the queue that no further one is set aside.
    #[error("the queue {path} is damaged, and {count} damaged files are beside it: remove them")]
    SetAsideFull {
        /// The file.
        path: PathBuf,
        /// Number of the damaged files.
        count: usize,
    },
    /// The file system has refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// SQLite has failed: no space, no memory, or an error of the disk. It may pass.
    #[error("cannot {what} the queue {path}: {source}")]
    Sqlite {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: rusqlite::Error,
    },
}

impl QueueFault {
    pub(super) fn io(what: &'static str, path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            what,
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn sqlite(what: &'static str, path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged {
                path,
                reason: source.to_string(),
            },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse { path },
            _ => Self::Sqlite { what, path, source },
        }
    }
}
