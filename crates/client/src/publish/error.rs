//! Why something is not published, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_model::ModelError;
use barograph_stream::StreamError;
use thiserror::Error;

/// Failures of publishing. None of them harms the program: what could not be declared does nothing.
#[derive(Clone, Debug, Error)]
pub enum PublishError {
    /// The user has said so.
    #[error("publishing is switched off (BAROGRAPH=off)")]
    Off,
    /// There is no directory for the file, and none can be made.
    #[error("cannot use {} to publish: {source}", path.display())]
    Place {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The directory is another user's.
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
    /// One process has one file.
    #[error("this process publishes in {} already: close that first", path.display())]
    Elsewhere {
        /// Where it does.
        path: PathBuf,
    },
    /// A name, label or unit that is refused.
    #[error(transparent)]
    Name(#[from] ModelError),
    /// A name that means something else already.
    #[error("{name} is {taken}: choose another name")]
    Taken {
        /// The name.
        name: String,
        /// What it is.
        taken: &'static str,
    },
    /// No more declarations fit.
    #[error("{name} is refused: the declarations of this process are full")]
    Full {
        /// What did not fit.
        name: String,
    },
    /// A knob whose bounds make no sense.
    #[error("the knob {name} is refused: {why}")]
    Knob {
        /// The knob.
        name: String,
        /// What does not fit.
        why: &'static str,
    },
    /// The thread that listens could not be started.
    #[error("no thread that listens can be started: {0}; poll() instead")]
    Thread(Arc<io::Error>),
    /// A child that shares its parent's memory, or was made while another thread was publishing.
    #[error(
        "this child process publishes nothing: it was not made by fork(), which lets it have a file of its own"
    )]
    Borrowed,
    /// Bytes, JSON or an array that are longer than the value may be.
    #[error(
        "{bytes} bytes are given up: the value takes at most {bytes_max} (declare it with a larger size, of at \
         most 65,536, or put less)"
    )]
    TooLong {
        /// Bytes that were to be put.
        bytes: usize,
        /// Bytes that fit.
        bytes_max: usize,
    },
    /// A put of another type than the value's.
    #[error("the put is given up: the value was declared with another type")]
    Type,
    /// There was no room for it, or nothing to put it into.
    #[error("the put is given up: there is no room for it")]
    NoRoom,
    /// The publisher was closed.
    #[error("the publisher was closed")]
    Closed,
}

impl From<StreamError> for PublishError {
    fn from(error: StreamError) -> Self {
        Self::File(Arc::new(error))
    }
}
