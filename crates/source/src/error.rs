//! The faults of a read. A fault is data: it never keeps the readable rest from its streams.

use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

/// The reason why a source could not read everything.
#[derive(Debug, Error)]
pub enum SourceError {
    /// A file that cannot be opened or read.
    #[error("{}: {}", path.display(), std::io::Error::from(*errno))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
    /// A file that is larger than any that the kernel should give.
    #[error("{}: larger than {bytes_max} bytes, not read", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// Lines that do not have the format that the kernel documents, or that are cut off.
    #[error("{}: lines that cannot be understood were left out: {count}, the first is {first:?}", path.display())]
    BadLines {
        /// Path of the file.
        path: PathBuf,
        /// Number of such lines.
        count: u64,
        /// Beginning of the first such line.
        first: String,
    },
    /// A program that gave no output.
    #[error("{program}: {reason}")]
    Command {
        /// Name of the program.
        program: String,
        /// The reason why it gave no output.
        reason: String,
    },
    /// Output of a program, or content of a file, that differs from its documentation.
    #[error("{what}: {reason}")]
    Format {
        /// The program or file.
        what: String,
        /// The difference.
        reason: String,
    },
    /// More things (disks, groups…) than a source follows.
    #[error("{refused} {what} were left out: the limit is {max}")]
    TooMany {
        /// The kind of thing, in words.
        what: &'static str,
        /// Number of those that were left out.
        refused: usize,
        /// The largest number that is followed.
        max: usize,
    },
    /// Labels or names that a stream cannot carry.
    #[error("{what} has no streams: {reason}")]
    Unnameable {
        /// The thing that the labels describe.
        what: String,
        /// The reason why the labels are refused.
        reason: String,
    },
    /// An invalid value in the configuration.
    #[error("sources.{key}: {reason}")]
    Config {
        /// The key, below `sources`.
        key: String,
        /// The fault of the value, and a value that would be right.
        reason: String,
    },
    /// An invalid value of the budget in the configuration.
    #[error("budget.{key}: {reason}")]
    Budget {
        /// The key, below `budget`.
        key: &'static str,
        /// The fault of the value.
        reason: String,
    },
    /// Several faults in one read.
    #[error("{first}; and {more} more faults")]
    Several {
        /// The first fault.
        first: Box<SourceError>,
        /// Number of further faults.
        more: u32,
    },
}

impl SourceError {
    /// Whether the fault means that this machine does not have the interface at all.
    pub fn is_absent(&self) -> bool {
        let Self::Read { errno, .. } = self else {
            return false;
        };
        is_absent(*errno)
    }
}

/// Whether this error number means that the machine does not have the interface.
pub(crate) fn is_absent(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO | Errno::OPNOTSUPP
    )
}
