//! The error of this crate: failures of segments and run directories.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Failures of segments and run directories.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The system refused an operation on a file.
    #[error("cannot {what} {}: {source}{}", path.display(), advice(source))]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The size limit for files of this process is too low.
    #[error(
        "cannot make a file in {}: it needs {needed} bytes, and files of this process may have {max} (raise ulimit -f)",
        path.display()
    )]
    FileSize {
        /// The directory.
        path: PathBuf,
        /// Bytes of the smallest file that would suffice.
        needed: u64,
        /// The limit, in bytes.
        max: u64,
    },
    /// A directory of another user, whose agent cannot be granted access.
    #[error(
        "files in {} cannot be shown to user {owner} alone: its file system has no access-control lists (choose a \
         --run-dir in /dev/shm)", path.display()
    )]
    NoAccessLists {
        /// The directory.
        path: PathBuf,
        /// The uid of its owner.
        owner: u32,
    },
    /// A file that is not a segment, or a damaged one.
    #[error("{} is not a usable segment: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The check that failed.
        reason: String,
    },
    /// A segment of another format version.
    #[error(
        "{} has segment format {major}.{minor}, this program reads {}.x: use the same barograph \
         for agent and readers", path.display(), crate::VERSION_MAJOR
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// Another agent serves this run directory.
    #[error(
        "another agent (pid {pid}) serves {}: stop it, or give this one another --run-dir",
        path.display()
    )]
    Occupied {
        /// The run directory.
        path: PathBuf,
        /// The process id of the agent that holds it.
        pid: String,
    },
    /// The run directory belongs to another user.
    #[error("{} belongs to user {owner}, not to {us}: choose another --run-dir", path.display())]
    Foreign {
        /// The run directory.
        path: PathBuf,
        /// The uid of its owner.
        owner: u32,
        /// The uid of this process.
        us: u32,
    },
    /// A directory, file or socket belongs to a user who is not trusted.
    #[error(
        "{} belongs to user {owner}, not to {whose}, and is not read: name the run directory of an \
         agent that you trust (--run-dir, BAROGRAPH_RUN_DIR)", path.display()
    )]
    Untrusted {
        /// The directory, file or socket.
        path: PathBuf,
        /// The uid of its owner.
        owner: u32,
        /// The users who may own it.
        whose: &'static str,
    },
    /// Users other than its owner may write to the run directory, or to something in it.
    #[error(
        "{} may be written by others than its owner (mode {mode:o}): choose another --run-dir, or \
         take that right away with chmod go-w", path.display()
    )]
    Exposed {
        /// The directory or file.
        path: PathBuf,
        /// Its mode bits.
        mode: u32,
    },
    /// No agent has ever served this run directory.
    #[error("no agent serves {}: start one with `baro up`, or name its --run-dir", path.display())]
    NoAgent {
        /// The run directory.
        path: PathBuf,
    },
    /// The segment holds as many streams as it may.
    #[error("{stream} is refused: the segment is full at {max} streams (raise streams.max)")]
    Full {
        /// The refused stream.
        stream: String,
        /// The limit, in streams.
        max: u32,
    },
    /// The rings of all streams together are as large as they may be.
    #[error(
        "{stream} is refused: its ring of {bytes} bytes does not fit beside the others in {max} \
         bytes (lower streams.depth)"
    )]
    RingsFull {
        /// The refused stream.
        stream: String,
        /// Bytes of its ring.
        bytes: usize,
        /// The limit for all rings, in bytes.
        max: usize,
    },
    /// A stream of this name and these labels already has a writer.
    #[error("{stream} already has a writer")]
    Duplicate {
        /// The stream.
        stream: String,
    },
    /// A ring depth outside the limits.
    #[error("depth {depth} of {stream} is not between 2 and {}", crate::DEPTH_MAX)]
    Depth {
        /// The stream.
        stream: String,
        /// The refused depth.
        depth: u32,
    },
    /// A call that does not fit into a slot.
    #[error("the call {name:?} cannot be made: {reason}")]
    Call {
        /// The name of the call, cut.
        name: String,
        /// The part that is too long or missing.
        reason: String,
    },
    /// A value of another type than the stream was declared with.
    #[error("a {found} was written to a stream of {declared}")]
    Type {
        /// The stream's type.
        declared: &'static str,
        /// The value's type.
        found: &'static str,
    },
    /// Bytes, JSON or an array that are longer than the stream's values may be.
    #[error(
        "{declared} of {bytes} bytes do not fit a stream of at most {bytes_max} bytes a value (declare a larger size)"
    )]
    TooLong {
        /// The stream's type.
        declared: &'static str,
        /// Bytes of the value.
        bytes: usize,
        /// Most bytes of a value of this stream.
        bytes_max: usize,
    },
}

impl StreamError {
    /// Whether the error may pass: the system refused the operation, and may allow it the next
    /// time. Errors in the content of a file do not pass.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                source.raw_os_error().is_some() && source.kind() != io::ErrorKind::NotFound
            }
            _ => false,
        }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull => " (free space there, or choose another --run-dir)",
        io::ErrorKind::PermissionDenied => " (choose a --run-dir that this user may write)",
        _ => "",
    }
}
