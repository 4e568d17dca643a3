//! The errors of staging, which are codes with a text between processes.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// The kind of an error, as programs tell it apart. Its number is in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum FaultCode {
    /// There is no such block, and the server would know it.
    NotFound = 1,
    /// There is no such block here, but the server may have lost it: it was killed, or was not in
    /// the map of servers for a time.
    NotKnown = 2,
    /// The version is older than the one that is stored, or another block has the same version.
    OldVersion = 3,
    /// The bytes do not have their checksum, in no copy that the server has.
    Corrupt = 4,
    /// The block may be older than one that was acknowledged.
    Unconfirmed = 5,
    /// The epoch is before the fence of the server.
    Fenced = 6,
    /// No tier takes the block: bounds, or disks that are full or gone.
    Full = 7,
    /// Flushing did not make room within the time that the put could wait.
    Busy = 8,
    /// The request is not allowed to this user.
    Denied = 9,
    /// The request makes no sense, or is beyond a bound of the protocol.
    BadRequest = 10,
    /// A disk of the server failed.
    Disk = 11,
    /// The server stops.
    Stopping = 12,
    /// The server cannot be reached, does not answer in time or answers nonsense.
    Unreachable = 13,
    /// Fewer servers have acknowledged a put or a deletion than were demanded.
    TooFew = 14,
    /// The block is longer than the memory of its reader.
    TooLong = 15,
}

/// All codes, by which a number of the protocol is found.
const CODES: [FaultCode; 15] = [
    FaultCode::NotFound,
    FaultCode::NotKnown,
    FaultCode::OldVersion,
    FaultCode::Corrupt,
    FaultCode::Unconfirmed,
    FaultCode::Fenced,
    FaultCode::Full,
    FaultCode::Busy,
    FaultCode::Denied,
    FaultCode::BadRequest,
    FaultCode::Disk,
    FaultCode::Stopping,
    FaultCode::Unreachable,
    FaultCode::TooFew,
    FaultCode::TooLong,
];

impl FaultCode {
    /// The name of the kind, for programs: lower-case words, joined by `_`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::NotKnown => "not_known",
            Self::OldVersion => "old_version",
            Self::Corrupt => "corrupt",
            Self::Unconfirmed => "unconfirmed",
            Self::Fenced => "fenced",
            Self::Full => "full",
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::BadRequest => "bad_request",
            Self::Disk => "disk",
            Self::Stopping => "stopping",
            Self::Unreachable => "unreachable",
            Self::TooFew => "too_few",
            Self::TooLong => "too_long",
        }
    }

    pub(crate) fn of_number(number: u16) -> Option<Self> {
        CODES.into_iter().find(|code| *code as u16 == number)
    }
}

/// An error of a store, a server or a client.
#[derive(Debug, Error)]
pub enum StagingError {
    /// What a store or a server refuses, or a client could not do.
    #[error("{text}")]
    Fault {
        /// The kind.
        code: FaultCode,
        /// A number that belongs to the kind: the stored version of [`FaultCode::OldVersion`] and
        /// [`FaultCode::Unconfirmed`], the fence of [`FaultCode::Fenced`], the bytes of
        /// [`FaultCode::TooLong`]; 1 for [`FaultCode::Unreachable`] if another replica of a read
        /// would know the block and has none; 0 for others.
        number: u64,
        /// What happened, for people.
        text: String,
    },
    /// A file, a directory or a socket of the configuration cannot be used.
    #[error("{what} {path}: {source}", path = path.display())]
    Path {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(String),
}

impl StagingError {
    pub(crate) fn fault(code: FaultCode, text: impl Into<String>) -> Self {
        Self::numbered(code, 0, text)
    }

    pub(crate) fn numbered(code: FaultCode, number: u64, text: impl Into<String>) -> Self {
        let text = text.into();
        Self::Fault { code, number, text }
    }

    /// The kind of the error; `None` for errors of the configuration.
    pub fn code(&self) -> Option<FaultCode> {
        match self {
            Self::Fault { code, .. } => Some(*code),
            Self::Path { .. } | Self::Config(_) => None,
        }
    }

    /// The number that belongs to the kind, or 0.
    pub fn number(&self) -> u64 {
        match self {
            Self::Fault { number, .. } => *number,
            Self::Path { .. } | Self::Config(_) => 0,
        }
    }
}
