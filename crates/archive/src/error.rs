//! What can go wrong with the archive's files.

use std::io;
use std::path::PathBuf;

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
    #[error("{}: format {found} is newer than {known}, the newest that this version reads", path.display())]
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
    /// A target for copies that cannot be used.
    #[error("the target {url} is refused: {reason}")]
    Target {
        /// The target, as given.
        url: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The reader asked for an end.
    #[error("the read was cancelled")]
    Cancelled,
}
