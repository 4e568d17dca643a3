//! The control side: statements and other requests, from the server to whoever executes them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_insight::{InsightError, Question};
use barograph_model::{ArchiveVerb, Asker, Clock, ControlFault, ControlFaultKind};
use barograph_server::Control;
use barograph_statement::{StatementError, StatementHead, StatementKind};
use serde_json::{Value as Json, json};
use thiserror::Error;
use tracing::info;

use crate::event_loop::{Event, Wanted};
use crate::policies::statement;
use crate::rules::DeclaredRules;
use crate::statements::StatementStore;
use crate::{AgentError, Config, documents};
use barograph_call::{Board, FireRequest};
use barograph_recorder::{History, ScopeHistories};

/// How long a control statement may wait for the loop.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How often the loop copies what tests read. Tests beyond it wait, so that they take a few
/// hundredths of the loop's time at most, whoever asks however often.
const GROUND_EVERY: Duration = Duration::from_millis(50);

/// The reason why a statement was not executed.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The statement is wrong.
    #[error("{0}")]
    Statement(String),
    /// There is no such thing to drop.
    #[error("{0}")]
    Absent(String),
    /// There is too much to do, and the statement was not taken.
    #[error("{0}")]
    Busy(String),
    /// The statement was taken, and its answer did not come in time.
    #[error("{0}")]
    Late(String),
    /// The agent failed.
    #[error("{0}")]
    Internal(String),
}

impl From<InsightError> for Refusal {
    fn from(error: InsightError) -> Self {
        match error {
            InsightError::UnknownInsight { .. } => Self::Absent(error.to_string()),
            error => Self::Statement(error.to_string()),
        }
    }
}

impl From<StatementError> for Refusal {
    fn from(error: StatementError) -> Self {
        Self::Statement(error.to_string())
    }
}

impl From<Refusal> for ControlFault {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Statement(_) | Refusal::Absent(_) => ControlFaultKind::Statement,
            Refusal::Busy(_) | Refusal::Late(_) => ControlFaultKind::Busy,
            Refusal::Internal(_) => ControlFaultKind::Internal,
        };
        Self {
            kind,
            message: refusal.to_string(),
        }
    }
}

/// What the loop answers.
pub type Answer = Result<Json, Refusal>;

/// Reads the configuration again, as it was read at the start.
pub type ReadConfig = Arc<dyn Fn() -> Result<Config, AgentError> + Send + Sync>;

/// The way from the server's threads to the loop, to the archives and to programs.
pub struct LoopControl {
    /// The loop's channel.
    pub events: SyncSender<Event>,
    /// The statements that were made at run time.
    pub statements: Arc<StatementStore>,
    /// The archives of the node and of the scopes.
    pub archives: (Arc<History>, ScopeHistories),
    /// The calls into programs; none where no applications are taken in.
    pub board: Option<Arc<Board>>,
    /// The rules, which have a thread of their own.
    pub rules: DeclaredRules,
    /// The way to read the configuration again, and the one that is in force.
    pub config: (ReadConfig, Mutex<Config>),
    /// The clock that copies of the graph are spaced by.
    pub clock: Arc<dyn Clock>,
    /// The time before which no copy is made, in ns of the monotonic clock.
    pub next_ground_ns: Mutex<i64>,
}

impl LoopControl {
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

    fn ask<T>(&self, event: impl FnOnce(SyncSender<T>) -> Event) -> Result<T, Refusal> {
        let (reply, answer) = sync_channel(1);
        self.events.try_send(event(reply)).map_err(|e| match e {
            TrySendError::Full(_) => Refusal::Busy("too many statements wait: try again".into()),
            TrySendError::Disconnected(_) => Refusal::Internal("the agent is stopping".into()),
        })?;
        answer.recv_timeout(ANSWER_WAIT).map_err(|_| {
            Refusal::Late("the agent did not answer in time: look before you try again".into())
        })
    }

    fn apply(&self, kind: StatementKind, sql: &str) -> Answer {
        match kind {
            StatementKind::Rule => self.rules.execute(sql),
            _ => self.ask(|reply| Event::Execute(kind, sql.to_owned(), reply))?,
        }
    }

    /// Reads the configuration again, and brings insights and policies to it. Returns what could not
    /// be, and what only a new start changes.
    pub fn reload(&self) -> Answer {
        let (read, in_force) = &self.config;
        let config = read().map_err(|error| Refusal::Statement(error.to_string()))?;
        let mut in_force = in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = wanted(&config, &self.statements);
        let left_out = self.ask(|reply| Event::Reload(wanted, reply))??;
        let restart = in_force.differs_in(&config);
        in_force.insights = config.insights;
        in_force.policy = config.policy;
        info!(?restart, "the configuration was read again");
        Ok(json!({ "left_out": left_out, "needs_restart": restart }))
    }
}

/// The insights and policies that a configuration and the statements that were kept want.
pub fn wanted(config: &Config, statements: &StatementStore) -> Wanted {
    let mut insights = config.insights_by_name();
    insights.extend(statements.of(StatementKind::Insight));
    let policies = statements.of(StatementKind::Policy);
    Wanted {
        insights,
        policies: statement::wanted(&config.policy, &policies),
    }
}

impl Control for LoopControl {
    fn execute(&self, sql: &str) -> Result<Json, ControlFault> {
        let apply = |head: &StatementHead| self.apply(head.kind, sql);
        Ok(self.statements.execute(sql, apply)?)
    }

    /// The loop only copies what the statement reads; the work is done here, on the asker's thread.
    fn test(&self, sql: &str, cancel: &AtomicBool) -> Result<Json, ControlFault> {
        let question = Question::parse(sql).map_err(Refusal::from)?;
        self.wait_for_ground();
        let go_on = || !cancel.load(Ordering::Relaxed);
        let tables = question.tables().to_vec();
        let ground = self.ask(|reply| Event::Ground(tables, reply))?;
        let rows = ground.test(&question, &go_on).map_err(Refusal::from)?;
        let rows: Vec<Json> = rows.iter().map(documents::test_row).collect();
        Ok(json!({ "rows": rows }))
    }

    fn reload(&self) -> Result<Json, ControlFault> {
        Ok(Self::reload(self)?)
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
}
