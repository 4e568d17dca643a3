//! Errors outside of a statement; errors in a statement are an
//! [`SqlFault`](barograph_model::SqlFault).

use std::io;

use barograph_archive::ArchiveError;
use barograph_stream::StreamError;
use thiserror::Error;

/// A failure to open or keep a database over the streams.
#[derive(Debug, Error)]
pub enum QueryError {
    /// The segment cannot be read: there is no agent, it has another version, or it is damaged.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The archive cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// SQLite failed at start-up.
    #[error("sqlite cannot {what}: {source}")]
    Sqlite {
        /// The attempted operation.
        what: &'static str,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// A thread of the pool cannot be started.
    #[error("cannot start query thread {name}: {source} (lower sql.threads)")]
    Thread {
        /// Name of the thread.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A usage error of a table, which SQLite passes on to the client.
pub(crate) fn usage(message: impl Into<String>) -> rusqlite::Error {
    rusqlite::Error::ModuleError(message.into())
}

/// Like [`usage`], but for a failure of ours: the error code tells them apart when it is
/// translated.
pub(crate) fn internal(message: impl std::fmt::Display) -> rusqlite::Error {
    sqlite_failure(rusqlite::ffi::SQLITE_CORRUPT_VTAB, message.to_string())
}

/// A failure to read streams or the archive, in a form that SQLite passes on.
pub(crate) fn failed(error: QueryError) -> rusqlite::Error {
    match error {
        QueryError::Archive(ArchiveError::Cancelled) => interrupted(),
        QueryError::Archive(error @ ArchiveError::TooManyBuckets) => too_large(error.to_string()),
        QueryError::Sqlite { source, .. } => source,
        other => internal(other),
    }
}

/// The error of a statement that was stopped within a scan, the same as SQLite's own.
pub(crate) fn interrupted() -> rusqlite::Error {
    code(rusqlite::ffi::SQLITE_INTERRUPT)
}

/// The error of a text that is longer than allowed.
#[cfg(feature = "bundled")]
pub(crate) fn too_long() -> rusqlite::Error {
    code(rusqlite::ffi::SQLITE_TOOBIG)
}

/// The error of a statement that would hold too much memory, the same as for SQLite's own heap.
pub(crate) fn out_of_memory() -> rusqlite::Error {
    code(rusqlite::ffi::SQLITE_NOMEM)
}

/// An error with a code alone: if a function gives a message too, the code is lost.
fn code(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

/// Like [`usage`], but for a bound of this query.
pub(crate) fn too_large(message: impl Into<String>) -> rusqlite::Error {
    sqlite_failure(rusqlite::ffi::SQLITE_NOMEM, message.into())
}

fn sqlite_failure(code: i32, message: String) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(message))
}
