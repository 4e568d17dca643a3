//! Errors of starting the intake or opening a scope.

use std::io;
use std::path::PathBuf;

use barograph_stream::StreamError;
use thiserror::Error;

/// An error of starting the intake or opening a scope.
#[derive(Debug, Error)]
pub enum IntakeError {
    /// A directory cannot be made, or cannot be opened to its readers.
    #[error("cannot make {}: {source}", path.display())]
    Directory {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The thread that opened a scope has panicked.
    #[error("its opening has failed: see the log of the agent")]
    Panicked,
    /// An error of the scope's segment or run directory.
    #[error(transparent)]
    Stream(#[from] StreamError),
}
