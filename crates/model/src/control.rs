//! The words of requests that change the system: who asks, for what, and why it was refused.
//!
//! They stand alone because the server, the archive, calls into programs and rules share them.

use std::time::Duration;

use thiserror::Error;

/// How long answers to a call may be waited for.
pub const FIRE_WAIT_MAX: Duration = Duration::from_secs(30);

/// Who asks, as the kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    /// The user at the other end.
    pub uid: Option<u32>,
    /// The process at the other end; over TCP it is not known.
    pub pid: Option<u32>,
    /// The way that it came: `control.sock`, `read.sock` or `http`.
    pub via: &'static str,
    /// Whether it has the right to control.
    pub may_control: bool,
}

/// What the archive can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveVerb {
    /// Turn all of the log into Parquet.
    Seal,
    /// Seal, and merge the files of each hour.
    Compact,
}

/// Why a control statement was not executed.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct ControlFault {
    /// Whose fault.
    pub kind: ControlFaultKind,
    /// For people.
    pub message: String,
}

/// Whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFaultKind {
    /// The statement is wrong.
    Statement,
    /// There is no such thing.
    Unknown,
    /// Whoever asks may not.
    Refused,
    /// The loop has too much to do.
    Busy,
    /// Our side failed.
    Internal,
}
