//! What may go wrong in a read. A fault is data: it never keeps the readable rest from its streams.

use std::path::PathBuf;

use rustix::io::Errno;
use thiserror::Error;

use crate::util::parse::escape;

/// Longest excerpt of a bad line in an error, in bytes.
const EXCERPT_BYTES_MAX: usize = 80;

/// Why a source could not read all there is.
#[derive(Debug, Error)]
pub enum SourceError {
    /// A file that cannot be opened or read.
    #[error("{}: {}", path.display(), std::io::Error::from(*errno))]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        errno: Errno,
    },
    /// A file that is larger than any the kernel should give.
    #[error("{}: larger than {bytes_max} bytes, not read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound.
        bytes_max: usize,
    },
    /// Lines that are not what the kernel documents, or cut.
    #[error("{}: lines that cannot be understood were left out: {count}, the first is {first:?}", path.display())]
    BadLines {
        /// The file.
        path: PathBuf,
        /// How many.
        count: u64,
        /// The beginning of the first one.
        first: String,
    },
    /// A program that a source asks.
    #[error("{program}: {reason}")]
    Command {
        /// Its name.
        program: String,
        /// Why it gave nothing.
        reason: String,
    },
    /// What a program or a file said, which is not what its documentation has.
    #[error("{what}: {reason}")]
    Format {
        /// What said it.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More things than a source follows.
    #[error("{refused} {what} were left out: the limit is {max}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many were left out.
        refused: usize,
        /// The limit.
        max: usize,
    },
    /// Labels or names that a stream cannot carry.
    #[error("{what} has no streams: {reason}")]
    Unnameable {
        /// What was to be described.
        what: String,
        /// Why it cannot be.
        reason: String,
    },
    /// A value in the configuration.
    #[error("sources.{key}: {reason}")]
    Config {
        /// The key.
        key: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A value of the configuration's budget.
    #[error("budget.{key}: {reason}")]
    Budget {
        /// The key.
        key: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Several faults in one read.
    #[error("{first}; and {more} more faults")]
    Several {
        /// The first.
        first: Box<SourceError>,
        /// How many followed.
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

/// Whether the kernel says so of what this machine does not have.
pub(crate) fn is_absent(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO | Errno::OPNOTSUPP
    )
}

/// The faults of one read, kept as the first and a count.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    first: Option<SourceError>,
    more: u32,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: SourceError) {
        match self.first {
            None => self.first = Some(fault),
            Some(_) => self.more = self.more.saturating_add(1),
        }
    }

    /// Takes the value, or notes the fault.
    pub(crate) fn take<T>(&mut self, result: Result<T, SourceError>) -> Option<T> {
        result.map_err(|fault| self.add(fault)).ok()
    }

    pub(crate) fn finish(self) -> Result<(), SourceError> {
        match (self.first, self.more) {
            (None, _) => Ok(()),
            (Some(first), 0) => Err(first),
            (Some(first), more) => Err(SourceError::Several {
                first: Box::new(first),
                more,
            }),
        }
    }
}

/// The lines of one file that were not understood.
#[derive(Debug, Default)]
pub(crate) struct BadLines {
    count: u64,
    first: String,
}

impl BadLines {
    pub(crate) fn add(&mut self, line: &[u8]) {
        if self.count == 0 {
            self.first = escape(&line[..line.len().min(EXCERPT_BYTES_MAX)]);
        }
        self.count += 1;
    }

    pub(crate) fn any(&self) -> bool {
        self.count > 0
    }

    /// Notes them as one fault of `path`.
    pub(crate) fn report(self, path: &std::path::Path, faults: &mut Faults) {
        if self.count > 0 {
            let Self { count, first } = self;
            faults.add(SourceError::BadLines {
                path: path.to_owned(),
                count,
                first,
            });
        }
    }
}
