//! Declared triggers (`CREATE TRIGGER …`): their statements, which survive a restart, and the thread that
//! evaluates them (docs/design/0004-applications.md).
//!
//! It stands apart from the loop that samples: it reads the segments as any process does, and there is no
//! thread while there is no trigger.

mod backfill;
mod calling;
mod follow;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use barograph_insight::{Executed, Firing, TriggerLimits, TriggerReport, Triggers};
use barograph_model::Clock;
use barograph_stream::{RunDir, TRIGGERS_DOCUMENT};
use serde_json::{Value as Json, json};
use tracing::{info, warn};

use crate::AgentError;
use crate::Config;
use crate::control::{Answer, Refusal};
use crate::statements::{Statements, TRIGGERS_FILE, Troubles};
pub use calling::ToPrograms;
use watch::Watch;

/// Makes the call of a trigger that has fired.
pub trait Fire: Send + Sync {
    /// Hands the call over. `scope` is that of the subject's stream (`u1000`, `all`), empty for the
    /// node's own. May take as long as a call is synced to disk; gives why there is no call.
    fn fire(&self, firing: &Firing, scope: &str) -> Result<(), String>;
}

/// The declared triggers of a node. Cheap to clone.
#[derive(Clone)]
pub struct DeclaredTriggers {
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
    triggers: Triggers,
    kept: Statements,
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
            .publish(TRIGGERS_DOCUMENT, bytes.as_bytes(), 0o644)
        {
            warn!(%error, "the document of triggers is not up to date");
        }
    }
}

impl DeclaredTriggers {
    /// Takes up the triggers that an earlier agent kept. One that no longer holds is left out with a word.
    pub fn start(
        config: &Config,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        fire: Arc<dyn Fire>,
        troubles: &Troubles,
    ) -> Result<Self, AgentError> {
        let kept = Statements::open(&config.state_dir, TRIGGERS_FILE, troubles)?;
        let state = State {
            triggers: Triggers::new(TriggerLimits::default()),
            kept,
            thread: None,
            is_running: false,
            is_over: false,
        };
        let triggers = Self {
            shared: Arc::new(Shared {
                run_dir: run_dir.clone(),
                clock: Arc::clone(clock),
                fire,
                state: Mutex::new(state),
            }),
        };
        let mut state = triggers.shared.lock();
        let now_ns = clock.now_ns();
        let State {
            triggers: all,
            kept,
            ..
        } = &mut *state;
        for (name, sql) in kept.iter() {
            if let Err(error) = all.execute(sql, now_ns) {
                warn!(%error, name, sql, "a trigger is left out");
            }
        }
        triggers.attend(&mut state)?;
        let document = document(&state);
        drop(state);
        triggers.shared.publish(&document);
        Ok(triggers)
    }

    /// Carries out a statement. What is to survive a restart is written first: a trigger that cannot be
    /// kept is not made.
    pub fn execute(&self, sql: &str) -> Answer {
        let mut state = self.shared.lock();
        if state.is_over {
            return Err(Refusal::Internal("the agent is stopping".into()));
        }
        let (name, statement) = match state.triggers.intent(sql).map_err(Refusal::from)? {
            Executed::Created(name) => (name, Some(sql)),
            Executed::Dropped(name) => (name, None),
        };
        let dropped = trigger(&state, &name);
        let before = state.kept.keep(&name, statement)?;
        let now_ns = self.shared.clock.now_ns();
        if let Err(error) = state.triggers.execute(sql, now_ns) {
            state.kept.keep(&name, before.as_deref())?;
            return Err(error.into());
        }
        if let Err(error) = self.attend(&mut state) {
            return Err(Refusal::Internal(error.to_string()));
        }
        info!(trigger = name, made = statement.is_some(), "changed");
        let answer = match statement {
            Some(_) => trigger(&state, &name),
            None => dropped,
        };
        let document = document(&state);
        drop(state);
        self.shared.publish(&document);
        Ok(answer)
    }

    /// Ends the thread, and waits for it.
    pub fn stop(&self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        let thread = state.thread.take();
        drop(state);
        if thread.is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread of triggers had panicked");
        }
    }

    /// Starts the thread if there is something to do and it does not run.
    fn attend(&self, state: &mut State) -> Result<(), AgentError> {
        if state.triggers.is_empty() || state.is_running {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name("baro-triggers".into())
            .spawn(move || Watch::new(&shared).run())
            .map_err(AgentError::Thread)?;
        // The one before, if any, has left its loop.
        state.thread = Some(thread);
        state.is_running = true;
        Ok(())
    }
}

/// The whole of `declared_triggers.json`.
fn document(state: &State) -> Json {
    state.triggers.reports().iter().map(json).collect()
}

/// One trigger; null when there is none of this name.
fn trigger(state: &State, name: &str) -> Json {
    let reports = state.triggers.reports();
    reports
        .iter()
        .find(|r| r.name == name)
        .map_or(Json::Null, json)
}

fn json(report: &TriggerReport) -> Json {
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
