//! Why the intake does not start, or a scope does not open.

use std::io;
use std::path::PathBuf;

use barograph_stream::StreamError;
use thiserror::Error;

/// Failures of starting the intake and of opening a scope.
#[derive(Debug, Error)]
pub enum IntakeError {
    /// A directory cannot be made, or not opened to those who may read it.
    #[error("cannot make {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The segment or run directory of a scope.
    #[error(transparent)]
    Stream(#[from] StreamError),
}
