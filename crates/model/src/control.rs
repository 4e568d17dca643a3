//! The types of requests that change the system: the asker, the request, and the reason for a
//! refusal.
//!
//! They are a module of their own because the server, the archive, calls into programs and rules
//! share them.

use std::borrow::Cow;
use std::time::Duration;

use thiserror::Error;

/// Longest time that a request may wait for the answers to a call.
pub const FIRE_WAIT_MAX: Duration = Duration::from_secs(30);
/// The HTTP path of requests for calls into programs.
pub const FIRE_PATH: &str = "/api/v1/fire";
/// Time until a call expires, if nothing else is asked for.
pub const CALL_EXPIRES_DEFAULT: Duration = Duration::from_secs(60);
/// Shortest time until a call expires.
pub const CALL_EXPIRES_MIN: Duration = Duration::from_secs(1);
/// Longest time until a call expires.
pub const CALL_EXPIRES_MAX: Duration = Duration::from_secs(86_400);
/// Longest payload of a call, in bytes.
pub const CALL_PAYLOAD_BYTES_MAX: usize = 3_072;

/// The sender of a request, as reported by the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestSender {
    /// The user at the other end of the connection; `None` if unknown.
    pub uid: Option<u32>,
    /// The process at the other end; unknown over TCP.
    pub pid: Option<u32>,
    /// The way the request came in: `control.sock`, `read.sock`, `http`, or `node NAME` from
    /// another node.
    pub via: Cow<'static, str>,
    /// Whether the sender has the right to control.
    pub may_control: bool,
}

/// Commands for the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveVerb {
    /// Turn all of the log into Parquet files.
    Seal,
    /// Seal, and merge the files of each hour.
    Compact,
}

/// What is asked about controllers, or done to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerVerb {
    /// List all controllers.
    List,
    /// Explain a controller, or a decision.
    Explain,
    /// Have a controller decide nothing for a time.
    Pause,
    /// End a pause.
    Resume,
    /// Have a controller decide without effect, or with effect again.
    DryRun,
    /// Take one decision back.
    Revert,
}

/// The kind of thing that a statement makes or drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatementKind {
    /// A stream that is computed from others.
    Insight,
    /// The error within which streams are to be known.
    Policy,
    /// A condition with an action. `TRIGGER` is its earlier word.
    Rule,
    /// A tree whose file events are recorded.
    Watch,
}

impl StatementKind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Insight, Self::Policy, Self::Rule, Self::Watch];
}

/// The reason why a control statement was not executed.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct ControlFault {
    /// The party at fault.
    pub kind: ControlFaultKind,
    /// The message for people.
    pub message: String,
}

/// The party at fault, or the kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFaultKind {
    /// The statement is wrong.
    Statement,
    /// There is no object of the given name.
    Unknown,
    /// The asker may not do this.
    Refused,
    /// The event loop has too much to do.
    Busy,
    /// An internal error of barograph.
    Internal,
}
