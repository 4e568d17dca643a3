//! The one loop that samples. [`EventLoop::step`] does the work that is due and returns the time of
//! the next, [`EventLoop::apply`] applies one event, and neither waits. [`run`] is the shell that
//! waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use barograph_archive::ArchiveStatus;
use barograph_insight::{Graph, TableSnapshot};
use barograph_model::{Clock, NS_PER_S};
use barograph_server::ExportStatus;
use barograph_source::Poller;
use barograph_statement::{StatementHead, StatementKind, StatementOutcome};
use barograph_stream::{
    ARCHIVE_DOCUMENT, FORECASTS_DOCUMENT, INSIGHTS_DOCUMENT, INTERFERENCE_DOCUMENT,
    POLICIES_DOCUMENT, RunDir, SOURCES_DOCUMENT, STATEMENTS_DOCUMENT, Segment,
};
use serde_json::{Value as Json, json};
use tracing::{info, warn};

use crate::archive_watch::ArchiveWatch;
use crate::cluster_inputs::ClusterInputs;
use crate::cluster_watch::{ClusterState, ClusterWatch};
use crate::control_events::{ControlEventStreams, ControlEvents};
use crate::documents::{self, RenderedInsights, RenderedSources};
use crate::export::ExportWatch;
use crate::facts::FactSink;
use crate::interference::BandwidthWatch;
use crate::io_schedules::IoSchedules;
use crate::outlook::{FREE, Outlook};
use crate::policies::{Policies, Policy, PolicyChanger, statement};
use crate::refusal::StatementAnswer;
use crate::saturation::DiskSaturation;
use crate::self_watch::{EVENT_KINDS, SelfState, SelfWatch};
use crate::statements::StatementTroubles;
use barograph_intake::IngestCounts;
use barograph_recorder::World;
use barograph_recorder::{
    DOCUMENTS_NS, Forecasts, History, Outputs, PROJECT_NS, Streams, name_archive, publish,
    publish_rendered,
};

/// Most events that wait for the loop.
pub(crate) const EVENTS_MAX: usize = 64;
/// Most events that are applied before the loop checks again for due work. Sampling comes first; a
/// client that sends many events waits.
const EVENTS_A_TURN_MAX: usize = 4;
/// Interval in which the agent renews its heartbeat and updates the streams about itself.
const BEAT_NS: i64 = NS_PER_S;
/// Longest wait for the first round of sources: then the agent is ready without the slow ones.
const FIRST_ROUND_NS: i64 = NS_PER_S;

/// Everything that can happen to the loop, apart from the passing of time.
pub(crate) enum Event {
    /// A pressure trigger of the kernel has fired.
    Wake,
    /// A statement on an insight or a policy, with the sender for the answer.
    Execute(StatementKind, String, SyncSender<StatementAnswer>),
    /// The insights and policies that are wanted from now on, with the sender for the reasons why
    /// insights could not be changed.
    Reload(DesiredStatements, SyncSender<BTreeMap<String, String>>),
    /// A request to copy the contents of these tables of the graph, for the test of a statement
    /// outside the loop.
    Snapshot(Vec<String>, SyncSender<TableSnapshot>),
    /// The request to stop.
    Stop,
}

impl Event {
    /// The place of the event's kind in [`EVENT_KINDS`]; the stop is not counted.
    fn kind(&self) -> Option<usize> {
        match self {
            Self::Wake => Some(0),
            Self::Execute(..) => Some(1),
            Self::Reload(..) => Some(2),
            Self::Snapshot(..) => Some(3),
            Self::Stop => None,
        }
    }
}

/// The insights and policies that the configuration and the kept statements ask for.
#[derive(Default)]
pub(crate) struct DesiredStatements {
    /// Statements that make insights, by name.
    pub insights: BTreeMap<String, String>,
    pub policies: Vec<Policy>,
}

/// The parts that a loop is made of, apart from the sources.
pub(crate) struct LoopParts {
    /// The run directory, for the documents.
    pub run_dir: RunDir,
    /// An empty segment.
    pub segment: Segment,
    /// The built-in insights, with no input yet.
    pub graph: Graph,
    /// The insights and policies to begin with.
    pub wanted: DesiredStatements,
    /// Problems with the files of statements.
    pub troubles: StatementTroubles,
    /// The archive.
    pub history: Arc<History>,
    /// Age of the newest sample at which an unchanged value is appended again, in ns.
    pub repeat_ns: i64,
    /// The forecasters, with no stream yet.
    pub forecasts: Forecasts,
    /// The forecasts of bandwidths, with no stream yet.
    pub bandwidths: BandwidthWatch,
    /// The policies, with no stream yet.
    pub policies: Policies,
    /// Counts of the intake of ingest files.
    pub ingest: Arc<IngestCounts>,
    /// The schedulers of volumes.
    pub schedules: Arc<IoSchedules>,
    /// The agent's own control events.
    pub control_events: Arc<ControlEvents>,
    /// The success of the exports, if there are any.
    pub exports: Option<ExportStatus>,
    /// The state of the cluster as the fabric knows it.
    pub cluster: ClusterState,
    /// The inputs of insights over the cluster, if this node is in one.
    pub cluster_inputs: Option<ClusterInputs>,
}

/// The loop, with everything that it owns.
pub(crate) struct EventLoop<'c> {
    clock: &'c dyn Clock,
    run_dir: RunDir,
    poller: Poller,
    streams: Streams<'c>,
    graph: Graph,
    insights: RenderedInsights,
    sources: RenderedSources,
    troubles: StatementTroubles,
    outlook: Outlook,
    forecasts: Forecasts,
    bandwidths: BandwidthWatch,
    policies: Policies,
    self_watch: SelfWatch,
    control_events: Arc<ControlEvents>,
    control_event_streams: ControlEventStreams,
    exports: Option<ExportWatch>,
    cluster: ClusterWatch,
    cluster_inputs: Option<ClusterInputs>,
    saturation: DiskSaturation,
    history: Arc<History>,
    archive_watch: Option<ArchiveWatch>,
    archive: Option<ArchiveStatus>,
    next_beat_ns: i64,
    next_documents_ns: i64,
    /// Time at which the projections that had to wait are published; `i64::MAX` if none wait.
    next_project_ns: i64,
    /// Whether [`Event::Wake`] came since the last step.
    is_woken: bool,
    event_counts: [u64; EVENT_KINDS.len()],
}

impl<'c> EventLoop<'c> {
    /// Puts the parts together. No source has been read yet.
    pub(crate) fn new(world: &'c World, poller: Poller, parts: LoopParts) -> Self {
        let LoopParts {
            run_dir,
            segment,
            graph,
            wanted,
            troubles,
            history,
            repeat_ns,
            forecasts,
            bandwidths,
            policies,
            ingest,
            schedules,
            control_events,
            exports,
            cluster,
            cluster_inputs,
        } = parts;
        let clock = &*world.clock;
        // Beats and documents are due when sources are: the loop wakes once for all of them.
        let begin_ns = poller.next_deadline_ns().min(clock.monotonic_ns());
        let mut streams = Streams::new(segment, clock, history.journal(), repeat_ns);
        let meter = Arc::clone(&world.meter);
        let self_watch = SelfWatch::new(&mut streams, BEAT_NS, meter, (ingest, schedules));
        let archive = history.status();
        let archive_watch = archive
            .is_some()
            .then(|| ArchiveWatch::new(&mut streams, BEAT_NS));
        let cluster = ClusterWatch::new(cluster, BEAT_NS);
        let exports = exports.map(|s| ExportWatch::new(s, &mut streams, BEAT_NS));
        let mut event_loop = Self {
            clock,
            run_dir,
            poller,
            streams,
            graph,
            insights: RenderedInsights::default(),
            sources: RenderedSources::default(),
            troubles,
            outlook: Outlook::default(),
            forecasts,
            bandwidths,
            policies,
            self_watch,
            control_events,
            control_event_streams: ControlEventStreams::default(),
            exports,
            cluster,
            cluster_inputs,
            saturation: DiskSaturation::new(BEAT_NS),
            history,
            archive_watch,
            archive,
            next_beat_ns: begin_ns,
            next_documents_ns: begin_ns,
            next_project_ns: i64::MAX,
            is_woken: true,
            event_counts: [0; EVENT_KINDS.len()],
        };
        event_loop.become_these(wanted);
        event_loop
    }

    /// Does the work that is due. Returns the time of the next, in ns of the monotonic clock.
    pub(crate) fn step(&mut self) -> i64 {
        if std::mem::take(&mut self.is_woken) || self.is_due() {
            self.tick();
        }
        self.deadline_ns()
    }

    /// Applies one event. Work that becomes due by it is done by the next [`EventLoop::step`].
    pub(crate) fn apply(&mut self, event: Event) {
        if let Some(kind) = event.kind() {
            self.event_counts[kind] += 1;
        }
        match event {
            Event::Wake => self.is_woken = true,
            Event::Execute(kind, sql, reply) => {
                let answer = match kind {
                    StatementKind::Policy => self.execute_policy(&sql),
                    _ => self.execute_insight(&sql),
                };
                // The client may be gone; then nobody needs the answer.
                let _ = reply.try_send(answer);
            }
            Event::Reload(wanted, reply) => {
                let faults = self.become_these(wanted);
                self.evaluate(self.clock.now_ns());
                self.streams.finish();
                self.write_documents();
                let _ = reply.try_send(faults);
            }
            Event::Snapshot(tables, reply) => {
                let _ = reply.try_send(self.graph.snapshot(&tables));
            }
            Event::Stop => {}
        }
    }

    /// Stops the sources, and closes the segment.
    pub(crate) fn stop(mut self) {
        info!("stopping: sources first");
        self.poller.stop();
        self.streams.settle_all();
        self.streams.finish();
        self.streams.segment().close();
    }

    /// Returns whether every source has been read.
    pub(crate) fn all_polled(&self) -> bool {
        self.poller.reports().iter().all(|report| report.polls > 0)
    }

    fn deadline_ns(&self) -> i64 {
        let deadline_ns = self.poller.next_deadline_ns().min(self.next_beat_ns);
        deadline_ns
            .min(self.next_project_ns)
            .min(self.next_documents_ns)
    }

    fn is_due(&self) -> bool {
        self.deadline_ns() <= self.clock.monotonic_ns()
    }

    fn tick(&mut self) {
        self.policies.hear();
        let mut facts = FactSink {
            streams: &mut self.streams,
            graph: &mut self.graph,
            outlook: &mut self.outlook,
            forecasts: &mut self.forecasts,
            bandwidths: &mut self.bandwidths,
            policies: &mut self.policies,
        };
        self.poller.run_due(&mut facts);
        let now_ns = self.clock.now_ns();
        self.cluster.look(now_ns, &mut facts);
        let monotonic_ns = self.clock.monotonic_ns();
        if monotonic_ns >= self.next_beat_ns
            && let Some(inputs) = &mut self.cluster_inputs
        {
            inputs.look(now_ns, &mut self.graph);
        }
        let control_events = &mut self.control_event_streams;
        self.control_events.take(control_events, &mut self.streams);
        self.evaluate(now_ns);
        if monotonic_ns >= self.next_beat_ns {
            self.next_beat_ns = next_after(monotonic_ns, self.next_beat_ns, BEAT_NS);
            self.beat(now_ns);
        }
        let waits = self
            .policies
            .project(now_ns, &mut self.forecasts, &mut self.streams);
        self.next_project_ns = match waits {
            true => monotonic_ns.saturating_add(PROJECT_NS),
            false => i64::MAX,
        };
        self.streams.finish();
        if monotonic_ns >= self.next_documents_ns {
            self.next_documents_ns = next_after(monotonic_ns, self.next_documents_ns, DOCUMENTS_NS);
            self.look_at_statements();
            self.write_documents();
        }
    }

    fn evaluate(&mut self, now_ns: i64) {
        let mut outputs = Outputs {
            streams: &mut self.streams,
            forecasts: &mut self.forecasts,
        };
        self.graph.evaluate(now_ns, &mut outputs);
    }

    /// Renews the heartbeat, and updates the streams that the agent computes about itself and the
    /// node.
    fn beat(&mut self, now_ns: i64) {
        self.streams.beat(now_ns);
        self.graph.confirm(&mut Outputs {
            streams: &mut self.streams,
            forecasts: &mut self.forecasts,
        });
        self.forecasts.beat(now_ns, &mut self.streams);
        self.bandwidths.beat(now_ns, &mut self.streams);
        self.look_at_archive(now_ns);
        self.outlook.filling(self.forecasts.reaches(FREE, 0.0));
        let sentence = self.outlook.sentence(now_ns);
        let who = self.outlook.who(now_ns);
        let state = SelfState {
            outlook: &sentence,
            who: &who,
            forecasts: self.forecasts.counts(),
            events: &self.event_counts,
        };
        self.self_watch.look(now_ns, &state, &mut self.streams);
        if let Some(exports) = &mut self.exports {
            exports.look(now_ns, &mut self.streams);
        }
        let saturated = self.outlook.saturated(now_ns);
        self.saturation.look(now_ns, saturated, &mut self.streams);
    }

    fn look_at_archive(&mut self, now_ns: i64) {
        if self.history.attend(self.clock.monotonic_ns()) {
            name_archive(&self.run_dir, self.history.readable_dir().as_deref());
        }
        let (Some(watch), Some(status)) = (&self.archive_watch, self.history.status()) else {
            return;
        };
        watch.look(now_ns, &status, &mut self.streams);
        self.outlook.archive(&status.troubles());
        let before = self.archive.replace(status);
        if before.map(|s| s.troubles()) != self.archive.as_ref().map(|s| s.troubles()) {
            self.write_archive_document();
        }
    }

    /// Makes insights and policies match the wanted ones. Returns the errors of the insights that
    /// could not be changed, by name.
    fn become_these(&mut self, wanted: DesiredStatements) -> BTreeMap<String, String> {
        let mut outputs = Outputs {
            streams: &mut self.streams,
            forecasts: &mut self.forecasts,
        };
        let faults = self.graph.become_these(&wanted.insights, &mut outputs);
        let told = faults.into_iter().map(|(name, error)| {
            warn!(%error, name, "an insight is left as it was");
            (name, error.to_string())
        });
        let told = told.collect();
        self.changer().become_these(wanted.policies);
        self.tell_demand();
        told
    }

    fn tell_demand(&self) {
        if let Some(inputs) = &self.cluster_inputs {
            inputs.tell_demand(&self.graph);
        }
    }

    fn changer(&mut self) -> PolicyChanger<'_, 'c> {
        PolicyChanger {
            policies: &mut self.policies,
            forecasts: &mut self.forecasts,
            streams: &mut self.streams,
        }
    }

    fn execute_insight(&mut self, sql: &str) -> StatementAnswer {
        let dropped = StatementHead::read(sql)?.name;
        let dropped = documents::insight(&self.graph, &dropped, &self.poller.reports());
        let mut outputs = Outputs {
            streams: &mut self.streams,
            forecasts: &mut self.forecasts,
        };
        let executed = self.graph.execute(sql, &mut outputs)?;
        self.tell_demand();
        self.evaluate(self.clock.now_ns());
        self.streams.finish();
        self.write_documents();
        Ok(match executed {
            StatementOutcome::Created(name) => {
                documents::insight(&self.graph, &name, &self.poller.reports())
            }
            StatementOutcome::Dropped(_) => dropped,
        })
    }

    fn execute_policy(&mut self, sql: &str) -> StatementAnswer {
        let mut done = statement::execute(sql, &mut self.changer())?;
        self.streams.finish();
        let rows = json!(self.policies.document());
        publish(&self.run_dir, POLICIES_DOCUMENT, &rows);
        if done.is_made {
            let is_its = |row: &&Json| row["name"] == *done.name && !row["stream"].is_null();
            let rows = rows.as_array().into_iter().flatten();
            done.policy["matched"] = rows.filter(is_its).count().into();
        }
        Ok(done.policy)
    }

    /// Writes all documents at once, so that the tables made from them agree.
    fn write_documents(&mut self) {
        let run_dir = &self.run_dir;
        let sources = &self.poller.reports()[..];
        let insights = self.insights.render(&self.graph, sources);
        let rendered = self.sources.render(sources);
        publish_rendered(run_dir, SOURCES_DOCUMENT, rendered);
        publish_rendered(run_dir, INSIGHTS_DOCUMENT, insights);
        let forecasts = self.forecasts.document();
        publish(run_dir, FORECASTS_DOCUMENT, &forecasts);
        let policies = self.policies.document();
        publish(run_dir, POLICIES_DOCUMENT, &policies);
        let bandwidths = self.bandwidths.document();
        publish(run_dir, INTERFERENCE_DOCUMENT, &bandwidths);
        let troubles = self.troubles.document();
        publish(run_dir, STATEMENTS_DOCUMENT, &troubles);
        self.write_archive_document();
    }

    fn look_at_statements(&mut self) {
        self.troubles.attend();
        self.outlook.statements(self.troubles.sentence());
    }

    fn write_archive_document(&self) {
        let archive = self.history.document(self.archive.as_ref());
        publish(&self.run_dir, ARCHIVE_DOCUMENT, &archive);
    }
}

/// The first time after `now_ns` that is a multiple of `every_ns` after `due_ns`.
fn next_after(now_ns: i64, due_ns: i64, every_ns: i64) -> i64 {
    let passed = now_ns.saturating_sub(due_ns) / every_ns;
    due_ns.saturating_add((passed + 1).saturating_mul(every_ns))
}

/// Runs the loop until [`Event::Stop`], then stops it in order. `ready` is called once: when every
/// source has been read or [`FIRST_ROUND_NS`] has passed.
#[expect(clippy::disallowed_methods, reason = "the shell of the sampling loop")]
pub(crate) fn run(mut event_loop: EventLoop<'_>, events: &Receiver<Event>, ready: impl FnOnce()) {
    let clock = event_loop.clock;
    let mut ready = Some(ready);
    let ready_by_ns = clock.monotonic_ns() + FIRST_ROUND_NS;
    loop {
        let deadline_ns = event_loop.step();
        let now_ns = clock.monotonic_ns();
        if ready.is_some() && (event_loop.all_polled() || now_ns >= ready_by_ns) {
            event_loop.write_documents();
            ready.take().into_iter().for_each(|ready| ready());
        }
        let until_ns = match ready {
            Some(_) => deadline_ns.min(ready_by_ns),
            None => deadline_ns,
        };
        let wait_ns = until_ns.saturating_sub(clock.monotonic_ns()).max(0);
        let mut next = match events.recv_timeout(Duration::from_nanos(wait_ns.unsigned_abs())) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
        };
        // The bound on events keeps due work from being late. If something is always due, as with a
        // source at full speed, one event still gets its turn.
        for _ in 0..EVENTS_A_TURN_MAX {
            match next.take() {
                None => break,
                Some(Event::Stop) => return event_loop.stop(),
                Some(event) => event_loop.apply(event),
            }
            if event_loop.is_woken || event_loop.is_due() {
                break;
            }
            next = events.try_recv().ok();
        }
    }
}

#[cfg(test)]
mod tests;
