//! The control side: statements from sockets to the loop, and what of them survives a restart.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use barograph_insight::InsightError;
use barograph_server::{ArchiveVerb, Asker, Control, ControlFault, ControlFaultKind};
use serde_json::Value as Json;

use crate::applications::{Board, FireRequest};
use crate::event_loop::Event;
use crate::history::History;
use crate::triggers::DeclaredTriggers;

/// How long a control statement may wait for the loop.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Why a statement was not carried out.
#[derive(Debug)]
pub enum Refusal {
    /// The statement's fault.
    Statement(String),
    /// Ours.
    Internal(String),
}

impl From<InsightError> for Refusal {
    fn from(error: InsightError) -> Self {
        Self::Statement(error.to_string())
    }
}

/// What the loop answers.
pub type Answer = Result<Json, Refusal>;

/// The way from the server's threads to the loop and to the archive.
pub struct LoopControl {
    events: SyncSender<Event>,
    history: Arc<History>,
    board: Option<Arc<Board>>,
    triggers: DeclaredTriggers,
}

impl LoopControl {
    /// Over the loop's channel; what concerns the archive, programs or triggers alone passes the loop by.
    /// Without applications there is no board.
    pub fn new(
        events: SyncSender<Event>,
        history: Arc<History>,
        board: Option<Arc<Board>>,
        triggers: DeclaredTriggers,
    ) -> Self {
        Self {
            events,
            history,
            board,
            triggers,
        }
    }

    fn ask(&self, event: impl FnOnce(SyncSender<Answer>) -> Event) -> Result<Json, ControlFault> {
        let fault = |kind, message: &str| ControlFault {
            kind,
            message: message.into(),
        };
        let (reply, answer) = sync_channel(1);
        self.events.try_send(event(reply)).map_err(|e| match e {
            TrySendError::Full(_) => fault(
                ControlFaultKind::Busy,
                "too many statements wait: try again",
            ),
            TrySendError::Disconnected(_) => {
                fault(ControlFaultKind::Internal, "the agent is stopping")
            }
        })?;
        match answer.recv_timeout(ANSWER_WAIT) {
            Ok(Ok(json)) => Ok(json),
            Ok(Err(refusal)) => Err(fault_of(refusal)),
            Err(_) => Err(fault(
                ControlFaultKind::Busy,
                "the agent did not answer in time: look before you try again",
            )),
        }
    }
}

fn fault_of(refusal: Refusal) -> ControlFault {
    let (kind, message) = match refusal {
        Refusal::Statement(message) => (ControlFaultKind::Statement, message),
        Refusal::Internal(message) => (ControlFaultKind::Internal, message),
    };
    ControlFault { kind, message }
}

impl Control for LoopControl {
    fn execute(&self, sql: &str) -> Result<Json, ControlFault> {
        self.ask(|reply| Event::Execute(sql.to_owned(), reply))
    }

    fn test(&self, sql: &str) -> Result<Json, ControlFault> {
        self.ask(|reply| Event::Test(sql.to_owned(), reply))
    }

    fn declare_policy(&self, sql: &str) -> Result<Json, ControlFault> {
        self.ask(|reply| Event::Policy(sql.to_owned(), reply))
    }

    fn archive(&self, verb: ArchiveVerb) -> Result<Json, ControlFault> {
        self.history.command(verb)
    }

    fn fire(&self, request: &Json, asker: &Asker) -> Result<Json, ControlFault> {
        let (request, wait) = FireRequest::parse(request, asker)?;
        let board = self.board.as_ref().ok_or_else(|| ControlFault {
            kind: ControlFaultKind::Unknown,
            message: "this agent takes in no applications (applications.enabled)".into(),
        })?;
        let (fired, outcome) = board.fire_and_wait(&request, wait)?;
        Ok(fired.json(outcome))
    }

    fn declare_trigger(&self, sql: &str) -> Result<Json, ControlFault> {
        self.triggers.execute(sql).map_err(fault_of)
    }
}
