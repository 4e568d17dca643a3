//! The seam through which the server hands control statements to the agent's loop.

use std::sync::atomic::AtomicBool;

use barograph_model::{ArchiveVerb, Asker, ControlFault};

/// Executes what people ask of the agent. Blocking: the server calls it from threads that may wait.
pub trait Control: Send + Sync {
    /// Executes `CREATE …` or `DROP …` of an insight, a policy or a rule; returns what it made.
    fn execute(&self, sql: &str) -> Result<serde_json::Value, ControlFault>;
    /// Says what the statement would give now, as `{"rows": […]}`, and changes nothing. It is
    /// computed on the caller's thread, until `cancel` is set.
    fn test(&self, sql: &str, cancel: &AtomicBool) -> Result<serde_json::Value, ControlFault>;
    /// Works on the archive and waits for it, for minutes if need be; says what was done.
    fn archive(&self, verb: ArchiveVerb) -> Result<serde_json::Value, ControlFault>;
    /// Fires a trigger or sets a knob of running programs: those of the asker's user, or with the right to
    /// control any. May wait for answers, at most [`barograph_model::FIRE_WAIT_MAX`].
    fn fire(
        &self,
        request: &serde_json::Value,
        asker: &Asker,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Reads the configuration again, and returns what came of it.
    fn reload(&self) -> Result<serde_json::Value, ControlFault>;
}
