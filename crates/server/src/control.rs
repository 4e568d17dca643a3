//! The seam through which the server hands control statements to the agent's loop.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thiserror::Error;

/// Executes control statements (`CREATE INSIGHT …`, `DROP INSIGHT …`). Blocking: the agent answers
/// from its loop; the server calls it from threads that may wait.
pub trait Control: Send + Sync {
    /// Changes the system and says what it made.
    fn execute(&self, sql: &str) -> Result<serde_json::Value, ControlFault>;
    /// Says what the statement would give now, as `{"rows": […]}`, and changes nothing. It is
    /// computed on the caller's thread, until `cancel` is set.
    fn test(&self, sql: &str, cancel: &AtomicBool) -> Result<serde_json::Value, ControlFault>;
    /// Works on the archive and waits for it, for minutes if need be; says what was done.
    fn archive(&self, verb: ArchiveVerb) -> Result<serde_json::Value, ControlFault>;
    /// Fires a trigger or sets a knob of running programs: those of the asker's user, or with the right to
    /// control any. May wait for answers, at most [`FIRE_WAIT_MAX`].
    fn fire(
        &self,
        request: &serde_json::Value,
        asker: &Asker,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Carries out `CREATE POLICY …` or `DROP POLICY …` and says what it made.
    fn declare_policy(&self, sql: &str) -> Result<serde_json::Value, ControlFault>;
    /// Carries out `CREATE TRIGGER …` or `DROP TRIGGER …` and says what it made.
    fn declare_trigger(&self, sql: &str) -> Result<serde_json::Value, ControlFault>;
}

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
