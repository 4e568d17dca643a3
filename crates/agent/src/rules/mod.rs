//! The rules that people make (`CREATE RULE …`): their statements, which survive a restart, and the
//! thread that evaluates them (docs/design/0004-applications.md).
//!
//! They are apart from the loop that samples: their thread reads the segments as any process does,
//! and there is no thread while there is no rule.

mod backfill;
mod calling;
mod follow;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use barograph_model::Clock;
use barograph_rule::{Firing, RuleLimits, RuleReport, Rules};
use barograph_statement::{Executed, StatementAction, StatementHead};
use barograph_stream::{RULES_DOCUMENT, RunDir};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::AgentError;
use crate::control::{Answer, Refusal};
pub(crate) use calling::ToPrograms;
use watch::Watch;

/// Makes the call of a rule that has fired.
pub(crate) trait Fire: Send + Sync {
    /// Hands the call over. `scope` is that of the subject's stream (`u1000`, `all`), empty for the
    /// node's own. May take as long as a call is synced to disk; gives why there is no call.
    fn fire(&self, firing: &Firing, scope: &str) -> Result<(), String>;
}

/// The rules of a node. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DeclaredRules {
    shared: Arc<Shared>,
}

/// What statements and the thread share.
struct Shared {
    run_dir: RunDir,
    clock: Arc<dyn Clock>,
    fire: Arc<dyn Fire>,
    state: Mutex<State>,
}

struct State {
    rules: Rules,
    thread: Option<JoinHandle<()>>,
    /// Whether the thread works; one that has found nothing to do has ended, or is about to.
    is_running: bool,
    /// The agent is stopping.
    is_over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, document: &Json) {
        let bytes = document.to_string();
        if let Err(error) = self
            .run_dir
            .publish(RULES_DOCUMENT, bytes.as_bytes(), 0o644)
        {
            warn!(%error, "the document of rules is not up to date");
        }
    }
}

impl DeclaredRules {
    /// Takes up the rules of these statements, by name. One that does not hold is left out with a
    /// warning.
    pub(crate) fn start(
        kept: &BTreeMap<String, String>,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        fire: Arc<dyn Fire>,
    ) -> Result<Self, AgentError> {
        let state = State {
            rules: Rules::new(RuleLimits::default()),
            thread: None,
            is_running: false,
            is_over: false,
        };
        let rules = Self {
            shared: Arc::new(Shared {
                run_dir: run_dir.clone(),
                clock: Arc::clone(clock),
                fire,
                state: Mutex::new(state),
            }),
        };
        let mut state = rules.shared.lock();
        let now_ns = clock.now_ns();
        for (name, sql) in kept {
            if let Err(error) = state.rules.execute(sql, now_ns) {
                warn!(%error, name, sql, "a rule is left out");
            }
        }
        rules.attend(&mut state)?;
        let document = document(&state);
        drop(state);
        rules.shared.publish(&document);
        Ok(rules)
    }

    /// Executes a statement, and returns the rule as it is, or was.
    pub(crate) fn execute(&self, sql: &str) -> Answer {
        let mut state = self.shared.lock();
        if state.is_over {
            return Err(Refusal::Internal("the agent is stopping".into()));
        }
        let StatementHead { name, action, .. } = StatementHead::read(sql)?;
        let is_drop = matches!(action, StatementAction::Drop { .. });
        let dropped = rule(&state, &name);
        let now_ns = self.shared.clock.now_ns();
        let executed = state.rules.execute(sql, now_ns);
        let executed = executed.map_err(|error| match dropped {
            Json::Null if is_drop => Refusal::Absent(error.to_string()),
            _ => Refusal::Statement(error.to_string()),
        })?;
        if let Err(error) = self.attend(&mut state) {
            return Err(Refusal::Internal(error.to_string()));
        }
        let answer = match executed {
            Executed::Created(name) => rule(&state, &name),
            Executed::Dropped(_) => dropped,
        };
        let document = document(&state);
        drop(state);
        self.shared.publish(&document);
        Ok(answer)
    }

    /// Ends the thread, and waits for it.
    pub(crate) fn stop(&self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        let thread = state.thread.take();
        drop(state);
        if thread.is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread of rules had panicked");
        }
    }

    /// Starts the thread if there is something to do and it does not run.
    fn attend(&self, state: &mut State) -> Result<(), AgentError> {
        if state.rules.is_empty() || state.is_running {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name("baro-rules".into())
            .spawn(move || Watch::new(&shared).run())
            .map_err(AgentError::Thread)?;
        // The one before, if any, has left its loop.
        state.thread = Some(thread);
        state.is_running = true;
        Ok(())
    }
}

/// The whole of `rules.json`.
fn document(state: &State) -> Json {
    state.rules.reports().iter().map(json).collect()
}

/// One rule; null when there is none of this name.
fn rule(state: &State, name: &str) -> Json {
    let reports = state.rules.reports();
    reports
        .iter()
        .find(|r| r.name == name)
        .map_or(Json::Null, json)
}

fn json(report: &RuleReport) -> Json {
    json!({
        "name": report.name,
        "call": report.call,
        "sql": report.sql,
        "help": report.help,
        "state": report.state.as_str(),
        "reason": report.reason,
        "subjects": report.subjects,
        "holding": report.holding,
        "beyond": report.beyond,
        "left_out": report.left_out,
        "fired": report.fired,
        "suppressed": report.suppressed,
        "failed": report.failed,
        "missed": report.missed,
        "evaluations": report.evaluations,
        "made_ts": report.made_ns,
        "last_fired_ts": report.last_fired_ns,
    })
}
