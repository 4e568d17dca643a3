//! The control side: statements and other requests of the server, on their way to the part that
//! executes them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_insight::TestQuery;
use barograph_model::{ArchiveVerb, Clock, ControlFault, ControllerVerb, RequestSender, Selector};
use barograph_server::{Control, HeldDemand};
use barograph_statement::{
    StatementAction, StatementHead, StatementKind, StatementWords, statement_head,
};
use serde_json::{Value as Json, json};
use tracing::info;

use crate::actions::EventActions;
use crate::agreement::{LeaderQuestions, map_requests};
use crate::cluster_insights::{AppliedInsights, SharedInsights};
use crate::controllers::Controllers;
use crate::event_loop::{DesiredStatements, Event};
use crate::node_calls::NodeCalls;
use crate::node_queries::NodeSql;
use crate::policies::statement;
use crate::refusal::{StatementAnswer, StatementRefusal};
use crate::rules::DeclaredRules;
use crate::statements::StatementStore;
use crate::watches::Watches;
use crate::{AgentError, Config, documents};
use barograph_recorder::{History, ScopeHistories};

/// Longest wait of a request for the loop's answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Shortest time between two copies of the graph that the loop makes for tests of statements.
/// Further tests wait, so that copies take a few hundredths of the loop's time at most, however
/// many clients ask.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(50);

/// Reads the configuration again, in the same way as at the start.
pub(crate) type ReadConfig = Arc<dyn Fn() -> Result<Config, AgentError> + Send + Sync>;

/// The path from the server's threads to the loop, the archives and the applications.
pub(crate) struct LoopControl {
    /// Sender of the loop's channel.
    pub events: SyncSender<Event>,
    /// The statements that users made at run time.
    pub statements: Arc<StatementStore>,
    /// The archives of the node and of the scopes.
    pub archives: (Arc<History>, ScopeHistories),
    /// Statements on the nodes of the cluster.
    pub nodes: NodeSql,
    /// Calls into programs on the nodes of the cluster.
    pub calls: Arc<NodeCalls>,
    /// The insights of the cluster; `None` if this node is in none.
    pub cluster: Option<Arc<SharedInsights>>,
    /// The rules, which have a thread of their own.
    pub rules: DeclaredRules,
    /// The watches of trees; `None` if applications are off.
    pub watches: Option<Arc<Watches>>,
    /// Actions of rules on events.
    pub actions: Arc<EventActions>,
    /// The controllers, which readers of arrays ask.
    pub controllers: Arc<Controllers>,
    /// The way to the leader of the cluster's controllers.
    pub leader: LeaderQuestions,
    /// The function that reads the configuration again, and the configuration in force.
    pub config: (ReadConfig, Mutex<Config>),
    /// The clock that spaces the copies of the graph.
    pub clock: Arc<dyn Clock>,
    /// Earliest time of the next copy of the graph, in ns of the monotonic clock.
    pub next_snapshot_ns: Mutex<i64>,
}

impl LoopControl {
    /// Waits until the loop may be asked for the next copy of the graph.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client's thread waits for the loop's answer, and for its turn to copy the graph"
    )]
    fn wait_for_snapshot(&self) {
        let now_ns = self.clock.monotonic_ns();
        let every_ns = i64::try_from(SNAPSHOT_EVERY.as_nanos()).unwrap_or(i64::MAX);
        let at_ns = {
            // Nothing panics while it holds this lock.
            let mut next_ns = self
                .next_snapshot_ns
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let at_ns = now_ns.max(*next_ns);
            *next_ns = at_ns.saturating_add(every_ns);
            at_ns
        };
        std::thread::sleep(Duration::from_nanos((at_ns - now_ns).unsigned_abs()));
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a client's thread waits for the loop's answer, and for its turn to copy the graph"
    )]
    fn ask<T>(&self, event: impl FnOnce(SyncSender<T>) -> Event) -> Result<T, StatementRefusal> {
        let (reply, answer) = sync_channel(1);
        self.events.try_send(event(reply)).map_err(|e| match e {
            TrySendError::Full(_) => {
                StatementRefusal::Busy("too many statements wait: try again".into())
            }
            TrySendError::Disconnected(_) => {
                StatementRefusal::Internal("the agent is stopping".into())
            }
        })?;
        answer.recv_timeout(ANSWER_WAIT).map_err(|_| {
            StatementRefusal::Late(
                "the agent did not answer in time: look before you try again".into(),
            )
        })
    }

    fn apply(&self, kind: StatementKind, sql: &str) -> StatementAnswer {
        match kind {
            StatementKind::Rule => {
                let answer = self.rules.execute(sql)?;
                let attended = self.rules.attend();
                attended.map_err(|error| StatementRefusal::Internal(error.to_string()))?;
                Ok(answer)
            }
            StatementKind::Watch => {
                let off =
                    "applications are off in the configuration, and events are kept with them";
                let watches = self.watches.as_ref();
                let watches = watches.ok_or_else(|| StatementRefusal::Statement(off.into()))?;
                watches.execute(sql)
            }
            _ => self.ask(|reply| Event::Execute(kind, sql.to_owned(), reply))?,
        }
    }

    /// Has the loop compute the insights that the cluster wants of this node.
    pub(crate) fn apply_cluster(&self) -> Result<AppliedInsights, StatementRefusal> {
        let Some(cluster) = &self.cluster else {
            return Ok(Default::default());
        };
        let in_force = self.config.1.lock().unwrap_or_else(PoisonError::into_inner);
        let _pause = self.statements.pause();
        let of_cluster = cluster.wanted();
        let all = wanted(&in_force, &self.statements, Some(cluster));
        let own = |(name, sql): &(&String, &String)| all.insights.get(*name) != Some(*sql);
        let taken = of_cluster.iter().filter(own);
        let taken = taken.map(|(name, _)| {
            (
                name.clone(),
                "this node has an insight of that name of its own".to_owned(),
            )
        });
        let mut faults: BTreeMap<String, String> = taken.collect();
        let left_out = self.ask(|reply| Event::Reload(all, reply))?;
        faults.extend(left_out);
        Ok((of_cluster, faults))
    }

    /// Makes or drops an insight of the cluster.
    fn execute_on_cluster(&self, head: &StatementHead, sql: &str) -> StatementAnswer {
        let cluster = self.cluster.as_deref().ok_or_else(|| {
            StatementRefusal::Statement(
                "this node is in no cluster: `baro up --cluster NAME …`".into(),
            )
        })?;
        let name = &head.name;
        let in_force = self.config.1.lock().unwrap_or_else(PoisonError::into_inner);
        let _pause = self.statements.pause();
        let is_own = self
            .statements
            .of(StatementKind::Insight)
            .contains_key(name)
            || in_force.insights_by_name().contains_key(name);
        match head.action {
            StatementAction::Create { .. } if is_own => {
                let reason = format!(
                    "{name} is an insight of this node: drop it first, or choose another name"
                );
                Err(StatementRefusal::Statement(reason))
            }
            StatementAction::Create { or_replace: false } if cluster.has(name) => {
                let reason = format!(
                    "{name} is an insight of the cluster already: CREATE OR REPLACE INSIGHT replaces it"
                );
                Err(StatementRefusal::Statement(reason))
            }
            StatementAction::Create { .. } => {
                let apply = || self.apply(StatementKind::Insight, sql);
                cluster.change((name, Some(sql)), apply)
            }
            StatementAction::Drop { if_exists } if !cluster.has(name) => match if_exists {
                true => Ok(Json::Null),
                false => Err(StatementRefusal::Absent(format!(
                    "the cluster has no insight {name}"
                ))),
            },
            // The node that computes the insight stops when it hears that it was dropped, as this
            // one does.
            StatementAction::Drop { .. } => cluster.change((name, None), || Ok(Json::Null)),
        }
    }

    /// Fails if an insight of the cluster has the name of this node's.
    fn check_own(&self, head: &StatementHead) -> Result<(), StatementRefusal> {
        let is_of_cluster = |cluster: &Arc<SharedInsights>| cluster.has(&head.name);
        if head.kind != StatementKind::Insight || !self.cluster.as_ref().is_some_and(is_of_cluster)
        {
            return Ok(());
        }
        let name = &head.name;
        let reason =
            format!("{name} is an insight of the cluster: DROP INSIGHT {name} ON CLUSTER drops it");
        Err(StatementRefusal::Statement(reason))
    }

    /// Reads the configuration again, and makes insights and policies match it. Returns the
    /// insights that could not be changed, and the keys that take effect only after a restart.
    pub(crate) fn reload(&self) -> StatementAnswer {
        let (read, in_force) = &self.config;
        let config = read().map_err(|error| StatementRefusal::Statement(error.to_string()))?;
        let mut in_force = in_force.lock().unwrap_or_else(PoisonError::into_inner);
        // A statement between the two would be applied and then undone by the older list.
        let _pause = self.statements.pause();
        let wanted = wanted(&config, &self.statements, self.cluster.as_deref());
        let left_out = self.ask(|reply| Event::Reload(wanted, reply))?;
        let left_out = left_out.iter();
        let left_out: Vec<String> = left_out
            .map(|(name, error)| format!("insight {name}: {error}"))
            .collect();
        let restart = in_force.differs_in(&config);
        in_force.insights = config.insights;
        in_force.policy = config.policy;
        info!(?restart, "the configuration was read again");
        Ok(json!({ "left_out": left_out, "needs_restart": restart }))
    }
}

/// Returns the insights and policies that a configuration, the kept statements and the cluster ask
/// for. An insight of this node has precedence over one of the cluster with the same name.
pub(crate) fn wanted(
    config: &Config,
    statements: &StatementStore,
    cluster: Option<&SharedInsights>,
) -> DesiredStatements {
    let mut insights = cluster.map(SharedInsights::wanted).unwrap_or_default();
    insights.extend(config.insights_by_name());
    insights.extend(statements.of(StatementKind::Insight));
    let policies = statements.of(StatementKind::Policy);
    DesiredStatements {
        insights,
        policies: statement::wanted(&config.policy, &policies),
    }
}

impl Control for LoopControl {
    fn execute(&self, sql: &str, kind: Option<StatementKind>) -> Result<Json, ControlFault> {
        if let Some(kind) = kind {
            let words = StatementWords::new(sql);
            let head = words.and_then(|mut words| statement_head(kind, &mut words));
            head.map_err(StatementRefusal::from)?;
        }
        let head = StatementHead::read(sql).map_err(StatementRefusal::from)?;
        if head.on_cluster && head.kind == StatementKind::Insight {
            return Ok(self.execute_on_cluster(&head, sql)?);
        }
        self.check_own(&head)?;
        let apply = |head: &StatementHead| self.apply(head.kind, sql);
        Ok(self.statements.execute(sql, apply)?)
    }

    /// Tests a statement. The loop only copies the tables that the statement reads; the work is
    /// done here, on the client's thread.
    fn test(&self, sql: &str, cancel: &AtomicBool) -> Result<Json, ControlFault> {
        let question = TestQuery::parse(sql).map_err(StatementRefusal::from)?;
        self.wait_for_snapshot();
        let go_on = || !cancel.load(Ordering::Relaxed);
        let tables = question.tables().to_vec();
        let snapshot = self.ask(|reply| Event::Snapshot(tables, reply))?;
        let rows = snapshot
            .test(&question, &go_on)
            .map_err(StatementRefusal::from)?;
        let rows: Vec<Json> = rows.iter().map(documents::test_row).collect();
        Ok(json!({ "rows": rows }))
    }

    fn ask_nodes(
        &self,
        sql: &str,
        nodes: &[String],
        is_combined: bool,
    ) -> Result<Json, ControlFault> {
        self.nodes.ask(sql, nodes, is_combined)
    }

    fn demand(
        &self,
        node: &str,
        selectors: &[Selector],
        user: Option<u32>,
    ) -> Result<HeldDemand, String> {
        let cluster = self.cluster.as_ref();
        let cluster = cluster.ok_or("this node is in no cluster: `baro up --cluster NAME …`")?;
        let demand = cluster.demand().watch(node, selectors, user)?;
        Ok(Box::new(demand))
    }

    fn reload(&self) -> Result<Json, ControlFault> {
        Ok(Self::reload(self)?)
    }

    fn archive(&self, verb: ArchiveVerb) -> Result<Json, ControlFault> {
        let (node, scopes) = &self.archives;
        scopes.command(node, verb)
    }

    fn action(&self, request: &Json) -> Result<Json, ControlFault> {
        Ok(self.actions.command(request)?)
    }

    fn plan(&self, request: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        self.controllers.plan(request, asker)
    }

    fn advise(&self, request: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        self.controllers.advise(request, asker)
    }

    fn report(&self, request: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        self.controllers.report(request, asker)
    }

    fn decisions(&self, request: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        self.controllers.decisions(request, asker)
    }

    fn phases(&self, request: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        Ok(self.controllers.phases(request, asker))
    }

    fn maps(&self, request: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        map_requests::answer(&self.leader, request, asker)
    }

    fn controllers(
        &self,
        verb: ControllerVerb,
        request: &Json,
        asker: &RequestSender,
    ) -> Result<Json, ControlFault> {
        self.controllers.controllers(verb, request, asker)
    }

    fn fire(&self, request: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        self.calls.fire(request, asker)
    }
}
