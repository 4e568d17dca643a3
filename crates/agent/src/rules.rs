//! The rules that people make (`CREATE RULE …`): their statements, which survive a restart, and the
//! thread that evaluates them (docs/design/0004-applications.md).
//!
//! They are apart from the loop that samples: their thread reads the segments as any process does,
//! and there is no thread while there is no rule.

mod backfill;
mod calling;
mod follow;
mod past;
mod rule_loop;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use barograph_model::{CLUSTER_PREFIX, Clock, Selector};
use barograph_rule::{
    EventRuleStatement, Firing, RuleLimits, RuleReport, Rules, selectors_of_cluster,
    work_of_condition,
};
use barograph_statement::{StatementAction, StatementHead, StatementOutcome};
use barograph_stream::{
    DirectoryEntry, LOOK_NS, RULES_DOCUMENT, RulesRow, RunDir, ScopeChoice, SegmentFollower,
};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::AgentError;
use crate::actions::EventActions;
use crate::cluster_demand::ClusterDemand;
use crate::refusal::{StatementAnswer, StatementRefusal};
#[cfg(test)]
pub(crate) use backfill::PastEvent;
pub(crate) use calling::ProgramCalls;
#[cfg(test)]
pub(crate) use past::PastReaders;
pub(crate) use rule_loop::RuleLoop;

/// The action of rules that have fired.
pub(crate) trait RuleAction: Send + Sync {
    /// Hands the call over. May take as long as a call is synced to disk; gives why there is no
    /// call.
    fn fire(&self, firing: &Firing) -> Result<(), String>;

    /// Rules whose earlier calls have come to nothing since this was asked last, and why.
    fn failures(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

/// The rules of a node. Cheap to clone.
#[derive(Clone)]
pub(crate) struct DeclaredRules {
    shared: Arc<RulesShared>,
}

/// The parts that statements and the loop share.
struct RulesShared {
    run_dir: RunDir,
    clock: Arc<dyn Clock>,
    action: Arc<dyn RuleAction>,
    /// Gets what rules read of other nodes; `None` if this node is in no cluster.
    demand: Option<Arc<ClusterDemand>>,
    /// The rules on file events; `None` where there are no events.
    events: Option<Arc<EventActions>>,
    state: Mutex<State>,
    publishing: Mutex<()>,
}

struct State {
    rules: Rules,
    thread: Option<JoinHandle<()>>,
    /// Whether the loop is run by somebody; one that has found nothing to do has ended, or is about
    /// to.
    is_running: bool,
    /// The agent is stopping.
    is_over: bool,
}

impl RulesShared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over the call of a rule that fires, or what it does instead.
    fn fire(&self, firing: &Firing) -> Result<(), String> {
        match (&firing.action, &self.events) {
            (None, _) => self.action.fire(firing),
            (Some(action), Some(events)) => events.enqueue(firing, action),
            (Some(_), None) => Err("this agent runs no actions".into()),
        }
    }

    /// Tells the limits of what rules do.
    fn tell_limits(&self, state: &State) {
        if let Some(events) = &self.events {
            let limits = state.rules.actions();
            let limits = limits.map(|(rule, limits)| (rule.to_owned(), limits.clone()));
            events.set_conditions(limits.collect());
        }
    }

    /// Has what rules read of other nodes mirrored.
    fn tell_demand(&self, state: &State) {
        if let Some(demand) = &self.demand {
            demand.set_rules(state.rules.cluster_reads());
        }
    }

    /// Fails if a new rule reads streams of all nodes although this node is in no cluster, and no
    /// stream of this node has such a name.
    fn check_cluster(&self, sql: &str) -> Result<(), StatementRefusal> {
        if self.demand.is_some() {
            return Ok(());
        }
        let selectors = selectors_of_cluster(sql)?;
        if selectors.is_empty() {
            return Ok(());
        }
        let (now_ns, scopes) = (self.clock.now_ns(), ScopeChoice::Readable);
        let follower: Option<SegmentFollower<DirectoryEntry>> =
            SegmentFollower::open(&self.run_dir, scopes, LOOK_NS, now_ns).ok();
        let parts = follower.iter().flat_map(SegmentFollower::parts);
        let streams: Vec<_> = parts.flat_map(|part| &part.streams).collect();
        let is_there = |selector: &&Selector| {
            let streams = streams.iter().map(|stream| &stream.descriptor);
            let mut names = streams.map(|d| (d.name.as_str(), &d.labels));
            names.any(|(name, labels)| selector.matches(name, labels))
        };
        let Some(absent) = selectors.iter().find(|selector| !is_there(selector)) else {
            return Ok(());
        };
        let text = absent.to_string();
        let own = text.strip_prefix(CLUSTER_PREFIX).unwrap_or(&text);
        Err(StatementRefusal::Statement(format!(
            "{text} is a stream of all nodes of a cluster, and this node is in none: join one (`baro up \
             --cluster NAME …`), or read {own} of this node"
        )))
    }

    /// Writes the document of all rules as they are now.
    fn publish(&self) {
        // Whoever comes later writes what is newer.
        let _one_at_a_time = self
            .publishing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let on_streams = document(&self.lock());
        let mut all = on_streams.as_array().cloned().unwrap_or_default();
        let on_events = self.events.iter().flat_map(|events| events.rows());
        all.extend(on_events.map(|row| json!(row)));
        let bytes = Json::Array(all).to_string();
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
    /// warning. No rule is evaluated before [`DeclaredRules::attend`].
    pub(crate) fn new(
        kept: &BTreeMap<String, String>,
        run_dir: &RunDir,
        clock: &Arc<dyn Clock>,
        (action, events): (Arc<dyn RuleAction>, Option<Arc<EventActions>>),
        demand: Option<Arc<ClusterDemand>>,
    ) -> Self {
        let state = State {
            rules: Rules::new(RuleLimits::default()),
            thread: None,
            is_running: false,
            is_over: false,
        };
        let rules = Self {
            shared: Arc::new(RulesShared {
                run_dir: run_dir.clone(),
                clock: Arc::clone(clock),
                action,
                demand,
                events,
                state: Mutex::new(state),
                publishing: Mutex::default(),
            }),
        };
        let mut state = rules.shared.lock();
        let now_ns = clock.now_ns();
        let of_streams = kept
            .iter()
            .filter(|(_, sql)| !EventRuleStatement::is_one(sql));
        for (name, sql) in of_streams {
            if let Err(error) = state.rules.execute(sql, now_ns) {
                warn!(%error, name, sql, "a rule is left out");
            }
        }
        rules.shared.tell_demand(&state);
        rules.shared.tell_limits(&state);
        drop(state);
        rules.shared.publish();
        if let Some(events) = &rules.shared.events {
            // The rules own those on events.
            let shared = Arc::downgrade(&rules.shared);
            events.on_news(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.publish();
                }
            });
        }
        rules
    }

    /// Executes a statement, and returns the rule as it is, or was.
    pub(crate) fn execute(&self, sql: &str) -> StatementAnswer {
        let StatementHead { name, action, .. } = StatementHead::read(sql)?;
        let is_create = matches!(action, StatementAction::Create { .. });
        if let Some(events) = &self.shared.events
            && (EventRuleStatement::is_one(sql) || (!is_create && events.has(&name)))
        {
            let of_streams = rule(&self.shared.lock(), &name);
            if is_create && !of_streams.is_null() {
                return Err(taken(&name, "streams"));
            }
            let answer = events.execute(sql)?;
            self.shared.publish();
            return Ok(answer);
        }
        if is_create
            && self
                .shared
                .events
                .as_ref()
                .is_some_and(|events| events.has(&name))
        {
            return Err(taken(&name, "events"));
        }
        self.shared.check_cluster(sql)?;
        if let (Some((work, limits)), Some(events)) = (work_of_condition(sql)?, &self.shared.events)
        {
            events
                .check(&work, &limits)
                .map_err(StatementRefusal::Statement)?;
        }
        let mut state = self.shared.lock();
        if state.is_over {
            return Err(StatementRefusal::Internal("the agent is stopping".into()));
        }
        let is_drop = matches!(action, StatementAction::Drop { .. });
        let dropped = rule(&state, &name);
        let now_ns = self.shared.clock.now_ns();
        let executed = state.rules.execute(sql, now_ns);
        let executed = executed.map_err(|error| match dropped {
            Json::Null if is_drop => StatementRefusal::Absent(error.to_string()),
            _ => StatementRefusal::Statement(error.to_string()),
        })?;
        let answer = match executed {
            StatementOutcome::Created(name) => rule(&state, &name),
            StatementOutcome::Dropped(_) => dropped,
        };
        self.shared.tell_demand(&state);
        self.shared.tell_limits(&state);
        drop(state);
        self.shared.publish();
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

    /// Starts the thread of the loop if there is something to do and nobody runs it.
    pub(crate) fn attend(&self) -> Result<(), AgentError> {
        let mut state = self.shared.lock();
        let Some(rule_loop) = self.loop_of(&mut state) else {
            return Ok(());
        };
        let thread = std::thread::Builder::new()
            .name("baro-rules".into())
            .spawn(move || rule_loop::run(rule_loop));
        state.is_running = thread.is_ok();
        // The one before, if any, has left its loop.
        state.thread = Some(thread.map_err(AgentError::Thread)?);
        Ok(())
    }

    /// The loop, for a test that steps it from now on.
    #[cfg(test)]
    pub(crate) fn take_loop(&self) -> Option<RuleLoop> {
        self.loop_of(&mut self.shared.lock())
    }

    /// The loop, for whoever runs it from now on; `None` if there is nothing to do, or somebody
    /// runs it.
    fn loop_of(&self, state: &mut State) -> Option<RuleLoop> {
        let is_wanted = !state.rules.is_empty() && !state.is_running && !state.is_over;
        state.is_running |= is_wanted;
        is_wanted.then(|| RuleLoop::new(Arc::clone(&self.shared)))
    }
}

/// The refusal of a rule whose name is that of a rule of the other kind.
fn taken(name: &str, of: &str) -> StatementRefusal {
    StatementRefusal::Statement(format!(
        "{name} is the name of a rule on {of}: drop it first, or choose another name"
    ))
}

/// The rules on streams, as `rules.json` has them.
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
    json!(RulesRow {
        name: report.name.clone(),
        call: report.call.clone(),
        sql: report.sql.clone(),
        help: report.help.clone(),
        state: report.state.as_str().into(),
        reason: report.reason.clone(),
        subjects: report.subjects,
        holding: report.holding,
        beyond: report.beyond,
        left_out: report.left_out,
        fired: report.fired,
        suppressed: report.suppressed,
        failed: report.failed,
        missed: report.missed,
        evaluations: report.evaluations,
        made_ts: report.made_ns,
        last_fired_ts: report.last_fired_ns,
    })
}
