//! What can go wrong outside of a statement; what is wrong with a statement is an
//! [`SqlFault`](barograph_model::SqlFault).

use std::io;

use barograph_archive::ArchiveError;
use barograph_stream::StreamError;
use thiserror::Error;

/// Failures to open or keep a database over the streams.
#[derive(Debug, Error)]
pub enum QueryError {
    /// The segment cannot be read: no agent, another version, damaged.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// SQLite refused what it was asked at start-up.
    #[error("sqlite cannot {what}: {source}")]
    Sqlite {
        /// What was tried.
        what: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// A thread of the pool cannot be started.
    #[error("cannot start query thread {name}: {source} (lower sql.threads)")]
    Thread {
        /// Its name.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

/// An error of a table, for SQLite to carry to the asker.
pub(crate) fn usage(message: impl Into<String>) -> rusqlite::Error {
    rusqlite::Error::ModuleError(message.into())
}

/// As [`usage`], but the fault is on our side: the code tells them apart at the other end.
pub(crate) fn internal(message: impl std::fmt::Display) -> rusqlite::Error {
    sqlite_failure(rusqlite::ffi::SQLITE_CORRUPT_VTAB, message.to_string())
}

/// A failure to read streams or the archive, for SQLite to carry.
pub(crate) fn failed(error: QueryError) -> rusqlite::Error {
    match error {
        QueryError::Archive(ArchiveError::Cancelled) => interrupted(),
        QueryError::Archive(error @ ArchiveError::TooManyBuckets) => too_large(error.to_string()),
        QueryError::Sqlite { source, .. } => source,
        other => internal(other),
    }
}

/// The statement was stopped within a scan, as SQLite itself says it.
pub(crate) fn interrupted() -> rusqlite::Error {
    code(rusqlite::ffi::SQLITE_INTERRUPT)
}

/// A text is longer than texts may be.
#[cfg(feature = "bundled")]
pub(crate) fn too_long() -> rusqlite::Error {
    code(rusqlite::ffi::SQLITE_TOOBIG)
}

/// More than the statement may hold: as SQLite says it of its own heap.
pub(crate) fn out_of_memory() -> rusqlite::Error {
    code(rusqlite::ffi::SQLITE_NOMEM)
}

/// A code alone: where a function gives a message too, the code is lost.
fn code(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

/// As [`usage`], but a bound of this query was reached.
pub(crate) fn too_large(message: impl Into<String>) -> rusqlite::Error {
    sqlite_failure(rusqlite::ffi::SQLITE_NOMEM, message.into())
}

fn sqlite_failure(code: i32, message: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(message))
}
