//! The insights of the cluster, between the parts of this agent: clients make and drop them, the
//! fabric's thread exchanges them with other nodes and decides which ones this node computes, and a
//! job has the sampling loop compute these.
//!
//! `barograph_insight::ClusterInsights` decides what they are and where they run; this module has
//! what that needs from an agent: a file, the loop, and the way to other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use barograph_fabric::transport::{Transport, ZenohWaker};
use barograph_fabric::{
    AskedQuestion, FabricNode, NodeAnswer, NodeAnswers, NodeReply, QuestionKind,
};
use barograph_insight::{ClusterInsight, ClusterInsightReport, ClusterInsights};
use barograph_model::{NS_PER_MS, NS_PER_S, Pattern};
use barograph_recorder::{World, publish};
use barograph_stream::{CLUSTER_INSIGHTS_DOCUMENT, ClusterInsightsRow, RunDir};
use serde_json::json;
use tracing::{info, warn};

use crate::AgentError;
use crate::cluster_demand::ClusterDemand;
use crate::refusal::StatementRefusal;
use crate::statements::{StatementFile, StatementTroubles};

/// The file in the state directory.
const FILE: &str = "cluster_insights.json";
/// Time for which answers of other nodes are waited for, in ns.
const PATIENCE_NS: i64 = 2 * NS_PER_S;
/// Time between two steps if nothing has changed, in ns.
const STEP_NS: i64 = NS_PER_S;
/// Time between two counts of the streams that insights read, in ns. Counts change while other
/// nodes start, and each change is told to all nodes.
const COUNT_NS: i64 = 5 * NS_PER_S;

/// The counts that the sampling loop makes of the streams over all nodes.
#[derive(Default)]
pub(crate) struct ClusterInputNews {
    /// Number of these streams in memory by table, and the number of this node's own among them.
    counts: Mutex<BTreeMap<String, (u64, u64)>>,
    /// The streams that this node needs of others.
    pub(crate) demand: Arc<ClusterDemand>,
}

impl ClusterInputNews {
    /// Sets the numbers of streams by table: all, and this node's own.
    pub(crate) fn set_counts(&self, counts: BTreeMap<String, (u64, u64)>) {
        *lock(&self.counts) = counts;
    }

    /// The numbers that were set last.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> BTreeMap<String, (u64, u64)> {
        lock(&self.counts).clone()
    }
}

/// Statements, or the reasons why they are not carried out, by the names of insights.
type ByName = BTreeMap<String, String>;

/// The insights that the cluster wants of this node, and the reasons why some of them are not
/// computed.
pub(crate) type AppliedInsights = (ByName, ByName);

/// Has the sampling loop compute the insights that the cluster wants of this node.
pub(crate) type ApplyInsights =
    Arc<dyn Fn() -> Result<AppliedInsights, StatementRefusal> + Send + Sync>;

/// The insights of the cluster, for all threads of the agent.
pub(crate) struct SharedInsights {
    insights: Mutex<ClusterInsights>,
    /// Locked while a file is written, and before `insights`.
    file: Mutex<StatementFile<ClusterInsight>>,
    inputs: Arc<ClusterInputNews>,
    world: World,
    waker: OnceLock<ZenohWaker>,
}

impl SharedInsights {
    /// Reads the insights that an earlier agent kept in `state_dir`.
    pub(crate) fn open(
        node: &str,
        state_dir: &Path,
        troubles: &StatementTroubles,
        inputs: Arc<ClusterInputNews>,
        world: &World,
    ) -> Result<Self, AgentError> {
        let file = StatementFile::open(&state_dir.join(FILE), troubles)?;
        let insights = ClusterInsights::new(node, file.statements().clone());
        Ok(Self {
            insights: Mutex::new(insights),
            file: Mutex::new(file),
            inputs,
            world: world.clone(),
            waker: OnceLock::new(),
        })
    }

    /// Whether the cluster has an insight of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        lock(&self.insights).has(name)
    }

    /// The streams that this node needs of others.
    pub(crate) fn demand(&self) -> Arc<ClusterDemand> {
        Arc::clone(&self.inputs.demand)
    }

    /// The insights that this node should compute.
    pub(crate) fn wanted(&self) -> ByName {
        lock(&self.insights).wanted()
    }

    /// Makes or replaces an insight, or drops it if there is no statement. `apply` changes what the
    /// loop computes, unless the statement is refused here. What cannot be kept is not made.
    pub(crate) fn change<T>(
        &self,
        (name, sql): (&str, Option<&str>),
        apply: impl FnOnce() -> Result<T, StatementRefusal>,
    ) -> Result<T, StatementRefusal> {
        let now_ns = self.world.clock.now_ns();
        let change = |insights: &mut ClusterInsights| match sql {
            Some(sql) => insights.create(name, sql, now_ns),
            None => insights.drop(name, now_ns),
        };
        let mut file = lock(&self.file);
        let mut changed = lock(&self.insights).clone();
        change(&mut changed)?;
        let written = file.prepare_all(changed.kept().clone())?;
        let done = apply()?;
        // What another node has told meanwhile stays, and is kept a moment later.
        change(&mut lock(&self.insights))?;
        file.commit(written)?;
        info!(
            name,
            made = sql.is_some(),
            "an insight of the cluster was changed"
        );
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
        Ok(done)
    }

    /// Keeps what other nodes have told.
    fn keep(&self) -> Result<(), StatementRefusal> {
        let mut file = lock(&self.file);
        let kept = lock(&self.insights).kept().clone();
        let written = file.prepare_all(kept)?;
        file.commit(written)
    }
}

/// The work that the jobs beside the fabric's thread have done.
#[derive(Default)]
struct Applied {
    is_under_way: AtomicBool,
    /// The insights that the loop computes; `None` if they are not known.
    computed: Mutex<Option<ByName>>,
    /// The number of news up to which insights are kept on disk.
    kept: Mutex<Option<u64>>,
}

/// The part of the fabric's thread in the insights of the cluster.
pub(crate) struct ClusterInsightsDesk {
    shared: Arc<SharedInsights>,
    apply: ApplyInsights,
    applied: Arc<Applied>,
    run_dir: RunDir,
    /// Nodes whose insights are taken.
    from: Vec<Pattern>,
    /// The questions that wait for answers, with the number of their news.
    asked: BTreeMap<u64, u64>,
    next_step_ns: i64,
    next_count_ns: i64,
    /// The changes of the fabric and the news that the last step has seen.
    seen: Option<(u64, u64)>,
    published: Option<Vec<ClusterInsightReport>>,
}

impl ClusterInsightsDesk {
    /// A desk that takes insights from these nodes. `waker` is what clients wake it with.
    pub(crate) fn new(
        (shared, apply): (Arc<SharedInsights>, ApplyInsights),
        run_dir: &RunDir,
        from: &[String],
        waker: ZenohWaker,
    ) -> Self {
        lock(&shared.insights).set_willing(!from.is_empty());
        // An agent has one fabric.
        let _ = shared.waker.set(waker);
        Self {
            shared,
            apply,
            applied: Arc::default(),
            run_dir: run_dir.clone(),
            from: from.iter().map(Pattern::new).collect(),
            asked: BTreeMap::new(),
            next_step_ns: i64::MIN,
            next_count_ns: i64::MIN,
            seen: None,
            published: None,
        }
    }

    /// Decides what this node computes, and asks other nodes. Returns the time of the next step.
    pub(crate) fn step<T: Transport>(&mut self, fabric: &mut FabricNode<T>, now_ns: i64) -> i64 {
        let shared = Arc::clone(&self.shared);
        let mut insights = lock(&shared.insights);
        let has_news = self.seen != Some((fabric.changes(), insights.news()));
        if now_ns < self.next_step_ns && !has_news {
            return self.next_step_ns;
        }
        self.next_step_ns = now_ns.saturating_add(STEP_NS);
        insights.set_connected(fabric.connected());
        if now_ns >= self.next_count_ns || has_news {
            self.next_count_ns = now_ns.saturating_add(COUNT_NS);
            let counts = lock(&shared.inputs.counts);
            insights.set_inputs(|table| counts.get(table).copied().unwrap_or_default());
        }
        insights.decide(now_ns);
        shared.inputs.demand.set_of_cluster(demand(&insights));
        fabric.demand(shared.inputs.demand.all());
        let news = insights.news();
        for (nodes, text) in insights.due(now_ns) {
            let nodes: Vec<String> = nodes.iter().map(|node| node.to_string()).collect();
            let times = (now_ns, now_ns.saturating_add(PATIENCE_NS));
            if let Some(number) = fabric.ask((QuestionKind::Insights, &text), &nodes, times) {
                self.asked.insert(number, news);
            }
        }
        self.seen = Some((fabric.changes(), news));
        self.publish(insights.reports());
        let is_applied = lock(&self.applied.computed).as_ref() == Some(&insights.wanted());
        let is_kept = *lock(&self.applied.kept) == Some(news);
        drop(insights);
        if !is_applied || !is_kept {
            self.begin_to_apply(!is_applied);
        }
        self.next_step_ns
    }

    /// Takes in a question of another node, and answers it.
    pub(crate) fn asked(&self, asked: &AskedQuestion, now_ns: i64) -> Result<Vec<u8>, String> {
        let text = (&*asked.text, self.trusts(&asked.from));
        let answer = lock(&self.shared.insights).asked(&asked.from, text, now_ns);
        answer
            .map(String::into_bytes)
            .map_err(|error| error.to_string())
    }

    /// Takes in the answers to a question, if it is one of this desk.
    pub(crate) fn answered(&mut self, number: u64, answers: &NodeAnswers, now_ns: i64) {
        let Some(news) = self.asked.remove(&number) else {
            return;
        };
        let mut insights = lock(&self.shared.insights);
        for NodeReply { node, answer, .. } in answers {
            // Whoever gives no answer is asked again.
            if let NodeAnswer::Answered(bytes) = answer
                && let Ok(text) = std::str::from_utf8(bytes)
            {
                let text = (text, self.trusts(node));
                let _ = insights.answered(node, text, news, now_ns);
            }
        }
    }

    /// Insights of other nodes that were refused.
    pub(crate) fn refused(&self) -> u64 {
        lock(&self.shared.insights).refused()
    }

    /// Watches whose streams were not demanded for lack of room.
    pub(crate) fn watches_refused(&self) -> u64 {
        self.shared.inputs.demand.refused()
    }

    fn trusts(&self, node: &str) -> bool {
        self.from.iter().any(|pattern| pattern.matches(node))
    }

    fn publish(&mut self, reports: Vec<ClusterInsightReport>) {
        if self.published.as_ref() == Some(&reports) {
            return;
        }
        let rows: Vec<ClusterInsightsRow> = reports.iter().map(row).collect();
        publish(&self.run_dir, CLUSTER_INSIGHTS_DOCUMENT, &json!(rows));
        self.published = Some(reports);
    }

    /// Starts the job that keeps the insights on disk and, if these have changed, has the loop
    /// compute those of this node. It runs beside this thread, which must wait neither for a disk
    /// nor for the loop.
    fn begin_to_apply(&self, has_changed: bool) {
        if self.applied.is_under_way.swap(true, Ordering::AcqRel) {
            return;
        }
        let (shared, applied) = (Arc::clone(&self.shared), Arc::clone(&self.applied));
        let apply = Arc::clone(&self.apply);
        let started = self.shared.world.work.start("baro-insights", move || {
            let news = lock(&shared.insights).news();
            if shared.keep().is_ok() {
                *lock(&applied.kept) = Some(news);
            }
            match has_changed.then(|| apply()) {
                None => {}
                Some(Ok((wanted, faults))) => applied.is_done(&shared, wanted, &faults),
                // The loop has much to do, or the agent is stopping.
                Some(Err(error)) => warn!(%error, "insights of the cluster wait"),
            }
            applied.is_under_way.store(false, Ordering::Release);
        });
        if started.is_err() {
            self.applied.is_under_way.store(false, Ordering::Release);
        }
    }
}

impl Applied {
    fn is_done(&self, shared: &SharedInsights, wanted: ByName, faults: &ByName) {
        let now_ns = shared.world.clock.now_ns();
        lock(&shared.insights).set_running(&wanted, faults, now_ns);
        // An earlier statement of an insight with a fault may still be computed: the next job ends
        // that.
        *lock(&self.computed) = faults.is_empty().then_some(wanted);
        if let Some(waker) = shared.waker.get() {
            waker.wake();
        }
    }
}

/// Selectors of the streams that insights of the cluster read and make: where they are mirrored, an
/// insight can be computed and its values be read. The dots of a name are underscores in the name
/// of its table.
fn demand(insights: &ClusterInsights) -> BTreeSet<String> {
    let mut selectors = BTreeSet::new();
    for (name, tables) in insights.tables() {
        selectors.insert(name.clone());
        let metrics = tables
            .iter()
            .filter_map(|table| table.strip_prefix("cluster_"));
        selectors.extend(metrics.map(|metric| metric.replace('_', "?")));
    }
    selectors
}

fn row(report: &ClusterInsightReport) -> ClusterInsightsRow {
    let changed_ms = i64::try_from(report.insight.version).unwrap_or(i64::MAX);
    ClusterInsightsRow {
        name: report.name.clone(),
        runs_on: report.runs_on.clone(),
        sql: report.insight.sql.clone().unwrap_or_default(),
        changed_by: report.insight.by.clone(),
        changed_ts: changed_ms.saturating_mul(NS_PER_MS),
        inputs: report
            .offers
            .iter()
            .map(|(node, offer)| (node.clone(), offer.inputs))
            .collect(),
        fault: report.fault.clone(),
    }
}

/// Nothing that holds one of these locks can leave half a value behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
