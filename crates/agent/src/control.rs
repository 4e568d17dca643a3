//! The control side: statements from sockets to the loop, and what of them survives a restart.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use barograph_insight::InsightError;
use barograph_server::{ArchiveVerb, Asker, Control, ControlFault, ControlFaultKind};
use serde_json::Value as Json;

use crate::AgentError;
use crate::applications::{Board, FireRequest};
use crate::event_loop::Event;
use crate::history::History;
use crate::triggers::DeclaredTriggers;

/// How long a control statement may wait for the loop.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Where insights made at run time are kept, one JSON object of name to statement.
const INSIGHTS_FILE: &str = "insights.json";

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

/// The insights that people made at run time; they come back after a restart.
pub struct Insights {
    path: PathBuf,
    statements: BTreeMap<String, String>,
}

impl Insights {
    /// Reads what an earlier agent kept in `state_dir`, which is made if needed.
    pub fn open(state_dir: &Path) -> Result<Self, AgentError> {
        Self::open_file(state_dir, INSIGHTS_FILE)
    }

    /// The same for statements of another kind, in a file of their own.
    pub fn open_file(state_dir: &Path, file: &str) -> Result<Self, AgentError> {
        let path = state_dir.join(file);
        let state = |what| {
            let path = path.clone();
            move |source| AgentError::State { what, path, source }
        };
        fs::create_dir_all(state_dir).map_err(state("make the directory of"))?;
        let statements = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|e| state("understand")(io::Error::new(io::ErrorKind::InvalidData, e)))?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(state("read")(e)),
        };
        let insights = Self {
            path: path.clone(),
            statements,
        };
        // Noticed now rather than when the first insight is made.
        insights.write().map_err(state("write"))?;
        Ok(insights)
    }

    /// Name and statement of each.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.statements
            .iter()
            .map(|(name, sql)| (name.as_str(), sql.as_str()))
    }

    /// Keeps a statement for the next start, or with `None` no longer; gives what was kept before.
    /// When it cannot be written nothing has changed.
    pub fn keep(&mut self, name: &str, statement: Option<&str>) -> Result<Option<String>, Refusal> {
        let before = self.set(name, statement.map(str::to_owned));
        if before.as_deref() != statement
            && let Err(error) = self.write()
        {
            self.set(name, before);
            let path = self.path.display();
            return Err(Refusal::Internal(format!(
                "nothing was changed, since it would not survive a restart: cannot write {path}: {error}"
            )));
        }
        Ok(before)
    }

    fn set(&mut self, name: &str, statement: Option<String>) -> Option<String> {
        match statement {
            Some(statement) => self.statements.insert(name.to_owned(), statement),
            None => self.statements.remove(name),
        }
    }

    /// Whole or not at all: written beside, synced, renamed.
    fn write(&self) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&serde_json::to_vec_pretty(&self.statements)?)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insights_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut insights = Insights::open(dir.path()).unwrap();
        let first = "CREATE INSIGHT a.b AS SELECT 1";
        assert_eq!(insights.keep("a.b", Some(first)).unwrap(), None);
        insights
            .keep("c", Some("CREATE INSIGHT c AS SELECT 2"))
            .unwrap();
        assert!(insights.keep("c", None).unwrap().is_some());
        let again = Insights::open(dir.path()).unwrap();
        let all: Vec<_> = again.iter().collect();
        assert_eq!(all, [("a.b", "CREATE INSIGHT a.b AS SELECT 1")]);
    }

    #[test]
    fn a_damaged_file_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(INSIGHTS_FILE), "{").unwrap();
        let error = Insights::open(dir.path()).err().unwrap().to_string();
        assert!(error.contains("insights.json"), "{error}");
    }
}
