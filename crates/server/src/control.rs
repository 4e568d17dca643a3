//! The seam through which the server passes control statements to the agent's loop.

use std::any::Any;
use std::sync::atomic::AtomicBool;

use barograph_model::{
    ArchiveVerb, ControlFault, ControllerVerb, RequestSender, Selector, StatementKind,
};

/// Something that is done for as long as this is not dropped.
pub type HeldDemand = Box<dyn Any + Send>;

/// Executes the requests that change something. Its methods block until the request is done; the
/// server calls them from threads that may wait.
pub trait Control: Send + Sync {
    /// Executes CREATE or DROP of an insight, a policy or a rule, and returns a description of the
    /// result. A statement of another kind than this one is refused.
    fn execute(
        &self,
        sql: &str,
        kind: Option<StatementKind>,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Returns the rows that the statement would give now, as `{"rows": […]}`, and changes nothing.
    /// They are computed on the caller's thread, until `cancel` is set.
    fn test(&self, sql: &str, cancel: &AtomicBool) -> Result<serde_json::Value, ControlFault>;
    /// Seals or compacts the archive and waits for it, for minutes if need be; returns what was
    /// done.
    fn archive(&self, verb: ArchiveVerb) -> Result<serde_json::Value, ControlFault>;
    /// Shows, retries or drops an action of a rule on events, as `{"show": 7}` asks, and returns
    /// all that is known of it.
    fn action(&self, request: &serde_json::Value) -> Result<serde_json::Value, ControlFault>;
    /// Calls a handler or sets a knob of running programs: those of the sender's user, or any
    /// program if the sender has the right to control. It may wait for answers, at most
    /// [`barograph_model::FIRE_WAIT_MAX`].
    fn fire(
        &self,
        request: &serde_json::Value,
        asker: &RequestSender,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Plans how much a reader reads, and with which weight of its control group.
    fn plan(
        &self,
        request: &serde_json::Value,
        asker: &RequestSender,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Advises where blocks of the sender's user go.
    fn advise(
        &self,
        request: &serde_json::Value,
        asker: &RequestSender,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Takes in what came of a plan, or of an advice, of the same user.
    fn report(
        &self,
        request: &serde_json::Value,
        asker: &RequestSender,
    ) -> Result<serde_json::Value, ControlFault>;
    /// The newest decisions of the sender's user; of all users if the sender has the right to
    /// control.
    fn decisions(
        &self,
        request: &serde_json::Value,
        asker: &RequestSender,
    ) -> Result<serde_json::Value, ControlFault>;
    /// The phases of I/O of the sender's user on scheduled volumes; of all users if the sender has
    /// the right to control.
    fn phases(
        &self,
        request: &serde_json::Value,
        asker: &RequestSender,
    ) -> Result<serde_json::Value, ControlFault>;
    /// The maps of servers of the sender's user, and a change of one of them; of all users if the
    /// sender has the right to control. It waits for the leader of the cluster's controllers.
    fn maps(
        &self,
        request: &serde_json::Value,
        asker: &RequestSender,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Lists or explains controllers and decisions; or pauses or resumes a controller, puts it in a
    /// dry run, or takes a decision back. A controller is changed by those who have the right to
    /// control, a decision is taken back by its user as well.
    fn controllers(
        &self,
        verb: ControllerVerb,
        request: &serde_json::Value,
        asker: &RequestSender,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Runs a read-only statement on nodes of the cluster, and waits for them for a bounded time.
    /// No name: all nodes that are known, this one included. Returns
    /// `{"columns": […], "rows": [[…]], "nodes": […]}`: the first column is the node, and `nodes`
    /// says what has come of each. If the nodes are to be combined, the rows are those of one
    /// SELECT over all of them.
    fn ask_nodes(
        &self,
        sql: &str,
        nodes: &[String],
        is_combined: bool,
    ) -> Result<serde_json::Value, ControlFault>;
    /// Has these streams of another node mirrored here until the result is dropped, or gives the
    /// reason why they are not, for people. Requests of one `user` count together, and so do all of
    /// those whose user is `None`.
    fn demand(
        &self,
        node: &str,
        selectors: &[Selector],
        user: Option<u32>,
    ) -> Result<HeldDemand, String>;
    /// Reads the configuration again, and returns the result.
    fn reload(&self) -> Result<serde_json::Value, ControlFault>;
}
