//! Errors of publishing, each with its remedy.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_model::ModelError;
use barograph_stream::{ControlEventFault, StreamError};
use thiserror::Error;

/// Errors of publishing. None of them harms the program: a declaration that failed does nothing.
#[derive(Clone, Debug, Error)]
pub enum PublishError {
    /// The user has switched publishing off.
    #[error("publishing is switched off (BAROGRAPH=off)")]
    Off,
    /// The directory for the file does not exist and cannot be made.
    #[error("cannot use {} to publish: {source}", path.display())]
    Place {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The directory belongs to another user.
    #[error("{} belongs to user {owner}: name another with BAROGRAPH_RUN_DIR", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The file could not be made.
    #[error("{0}")]
    File(Arc<StreamError>),
    /// The process publishes in another directory already: one process has one file.
    #[error("this process publishes in {} already: close that first", path.display())]
    Elsewhere {
        /// The directory in which it publishes.
        path: PathBuf,
    },
    /// A name, label or unit is refused.
    #[error(transparent)]
    Name(#[from] ModelError),
    /// A name has another meaning already.
    #[error("{name} is {taken}: choose another name")]
    Taken {
        /// The name.
        name: String,
        /// Its present meaning.
        taken: &'static str,
    },
    /// The declarations of this process are full.
    #[error("{name} is refused: the declarations of this process are full")]
    Full {
        /// Name of the declaration that did not fit.
        name: String,
    },
    /// The bounds of a knob are invalid.
    #[error("the knob {name} is refused: {why}")]
    Knob {
        /// Name of the knob.
        name: String,
        /// The fault of the bounds.
        why: &'static str,
    },
    /// The use of a map of servers is refused.
    #[error("the map of servers {name} is refused: {why}")]
    Map {
        /// Name of the map.
        name: String,
        /// The fault.
        why: &'static str,
    },
    /// The thread of `listen` could not be started.
    #[error("no thread that listens can be started: {0}; poll() instead")]
    Thread(Arc<io::Error>),
    /// This is a child process that shares its parent's memory, or that was made while another
    /// thread was publishing.
    #[error(
        "this child process publishes nothing: it was not made by fork(), which lets it have a file of its own"
    )]
    Borrowed,
    /// Bytes, JSON or an array are longer than the value may be.
    #[error(
        "{bytes} bytes are given up: the value takes at most {bytes_max} (declare it with a larger size, of at \
         most 65,536, or put less)"
    )]
    TooLong {
        /// Length of the put in bytes.
        bytes: usize,
        /// Greatest length in bytes.
        bytes_max: usize,
    },
    /// The type of a put is not that of the value.
    #[error("the put is given up: the value was declared with another type")]
    Type,
    /// There was no room for a put, or no ring for it.
    #[error("the put is given up: there is no room for it")]
    NoRoom,
    /// There can be no such control event.
    #[error(transparent)]
    Event(#[from] ControlEventFault),
    /// The publisher is closed.
    #[error("the publisher was closed")]
    Closed,
}

impl From<StreamError> for PublishError {
    fn from(error: StreamError) -> Self {
        Self::File(Arc::new(error))
    }
}
