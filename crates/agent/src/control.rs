//! The control side: statements from sockets to the loop, and what of them survives a restart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_insight::{InsightError, Question};
use barograph_model::{ArchiveVerb, Asker, Clock, ControlFault, ControlFaultKind};
use barograph_server::Control;
use serde_json::{Value as Json, json};

use crate::documents;
use crate::event_loop::Event;
use crate::triggers::DeclaredTriggers;
use barograph_call::{Board, FireRequest};
use barograph_recorder::{History, ScopeHistories};

/// How long a control statement may wait for the loop.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How often the loop copies what tests read. Tests beyond it wait, so that they take a few
/// hundredths of the loop's time at most, whoever asks however often.
const GROUND_EVERY: Duration = Duration::from_millis(50);

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
    archives: (Arc<History>, ScopeHistories),
    board: Option<Arc<Board>>,
    triggers: DeclaredTriggers,
    clock: Arc<dyn Clock>,
    /// When the loop may be asked for the next copy, by the monotonic clock.
    next_ground_ns: Mutex<i64>,
}

impl LoopControl {
    /// Over the loop's channel; what concerns archives (the node's, and those of scopes), programs or triggers alone passes the loop by.
    /// Without applications there is no board.
    pub fn new(
        events: SyncSender<Event>,
        archives: (Arc<History>, ScopeHistories),
        board: Option<Arc<Board>>,
        triggers: DeclaredTriggers,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            events,
            archives,
            board,
            triggers,
            clock,
            next_ground_ns: Mutex::new(0),
        }
    }

    /// Waits for the next moment at which the loop may be asked for a copy.
    fn wait_for_ground(&self) {
        let now_ns = self.clock.monotonic_ns();
        let every_ns = i64::try_from(GROUND_EVERY.as_nanos()).unwrap_or(i64::MAX);
        let at_ns = {
            // Nothing panics while it holds the lock.
            let mut next_ns = self
                .next_ground_ns
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let at_ns = now_ns.max(*next_ns);
            *next_ns = at_ns.saturating_add(every_ns);
            at_ns
        };
        std::thread::sleep(Duration::from_nanos((at_ns - now_ns).unsigned_abs()));
    }

    fn carry_out(
        &self,
        event: impl FnOnce(SyncSender<Answer>) -> Event,
    ) -> Result<Json, ControlFault> {
        self.ask(event)?.map_err(fault_of)
    }

    fn ask<T>(&self, event: impl FnOnce(SyncSender<T>) -> Event) -> Result<T, ControlFault> {
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
        answer.recv_timeout(ANSWER_WAIT).map_err(|_| {
            fault(
                ControlFaultKind::Busy,
                "the agent did not answer in time: look before you try again",
            )
        })
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
        self.carry_out(|reply| Event::Execute(sql.to_owned(), reply))
    }

    /// The loop only copies what the statement reads; the work is done here, on the asker's thread.
    fn test(&self, sql: &str, cancel: &AtomicBool) -> Result<Json, ControlFault> {
        let refused = |error: InsightError| fault_of(error.into());
        let question = Question::parse(sql).map_err(refused)?;
        self.wait_for_ground();
        let go_on = || !cancel.load(Ordering::Relaxed);
        let tables = question.tables().to_vec();
        let ground = self.ask(|reply| Event::Ground(tables, reply))?;
        let rows = ground.test(&question, &go_on).map_err(refused)?;
        let rows: Vec<Json> = rows.iter().map(documents::test_row).collect();
        Ok(json!({ "rows": rows }))
    }

    fn declare_policy(&self, sql: &str) -> Result<Json, ControlFault> {
        self.carry_out(|reply| Event::Policy(sql.to_owned(), reply))
    }

    fn archive(&self, verb: ArchiveVerb) -> Result<Json, ControlFault> {
        let (node, scopes) = &self.archives;
        scopes.command(node, verb)
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
