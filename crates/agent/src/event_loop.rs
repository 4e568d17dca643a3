//! The one loop that samples: it waits for the next deadline or event, and applies one at a time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use barograph_archive::Status;
use barograph_insight::{Executed, Graph, Ground};
use barograph_model::{Clock, NS_PER_S};
use barograph_server::ExportStatus;
use barograph_source::{Poller, with_those_that_are_off};
use barograph_stream::{
    ARCHIVE_DOCUMENT, FORECASTS_DOCUMENT, INSIGHTS_DOCUMENT, POLICIES_DOCUMENT, RunDir,
    SOURCES_DOCUMENT, STATEMENTS_DOCUMENT, Segment,
};
use serde_json::{Value as Json, json};
use tracing::info;

use crate::archive_watch::ArchiveWatch;
use crate::control::{Answer, Refusal};
use crate::documents;
use crate::export::ExportWatch;
use crate::facts::Facts;
use crate::outlook::{FREE, Outlook};
use crate::policies::{Carrier, Policies};
use crate::policy_statements::PolicyStatements;
use crate::saturation::Saturation;
use crate::self_watch::SelfWatch;
use crate::statements::{Statements, Troubles};
use barograph_intake::IngestCounts;
use barograph_recorder::{Forecasts, History, Outputs, PROJECT_NS, Streams, name_archive, publish};

/// Events that may wait for the loop.
pub const EVENTS_MAX: usize = 64;
/// Events that are applied between two looks at what is due: sampling comes first, and whoever asks
/// often waits.
const EVENTS_A_TURN_MAX: usize = 4;
/// How often the agent says that it lives, and looks at itself.
const BEAT_NS: i64 = NS_PER_S;
/// How often the documents are written anew though nothing in them is news (their counters are).
const DOCUMENTS_NS: i64 = 5 * NS_PER_S;
/// How long the first round of sources may take before the agent calls itself ready without the
/// slow ones.
const FIRST_ROUND_NS: i64 = NS_PER_S;

/// All that can happen to the loop, besides time passing.
pub enum Event {
    /// A slow source has a batch ready.
    Wake,
    /// A control statement.
    Execute(String, SyncSender<Answer>),
    /// A statement on policies.
    Policy(String, SyncSender<Answer>),
    /// A copy of what these tables of the graph hold, for a test of a statement beside the loop.
    Ground(Vec<String>, SyncSender<Ground>),
    /// The end.
    Stop,
}

/// How a turn of events ended.
enum Turn {
    /// There are no more, or no more may be taken now.
    Over,
    /// A slow source has a batch ready.
    Woken,
    /// The loop is to end.
    Ended,
}

/// What the loop is made of.
pub struct Parts {
    /// Where the documents lie.
    pub run_dir: RunDir,
    /// The sources.
    pub poller: Poller,
    /// An empty segment.
    pub segment: Segment,
    /// The insights, with no input yet.
    pub graph: Graph,
    /// Those of them that were made at run time.
    pub insights: Statements,
    /// What is wrong with the files of statements.
    pub troubles: Troubles,
    /// The archive.
    pub history: Arc<History>,
    /// When a value that holds is appended again, in ns.
    pub repeat_ns: i64,
    /// Policies that were made at run time.
    pub policy_statements: PolicyStatements,
    /// What comes next, of no stream yet.
    pub forecasts: Forecasts,
    /// When to look again, at no stream yet.
    pub policies: Policies,
    /// What becomes of files of programs.
    pub ingest: Arc<IngestCounts>,
}

/// What the loop owns.
pub struct EventLoop<'c> {
    clock: &'c dyn Clock,
    run_dir: RunDir,
    events: Receiver<Event>,
    poller: Poller,
    streams: Streams<'c>,
    graph: Graph,
    insights: Statements,
    troubles: Troubles,
    outlook: Outlook,
    forecasts: Forecasts,
    policies: Policies,
    policy_statements: PolicyStatements,
    self_watch: SelfWatch,
    exports: Option<ExportWatch>,
    saturation: Saturation,
    history: Arc<History>,
    archive_watch: Option<ArchiveWatch>,
    archive: Option<Status>,
    next_beat_ns: i64,
    next_documents_ns: i64,
    /// When what could not be said of streams is, if there is anything.
    next_project_ns: i64,
}

impl<'c> EventLoop<'c> {
    /// Puts the parts together; nothing has been read yet.
    pub fn new(clock: &'c dyn Clock, events: Receiver<Event>, parts: Parts) -> Self {
        let Parts {
            run_dir,
            poller,
            segment,
            graph,
            insights,
            troubles,
            history,
            repeat_ns,
            mut policy_statements,
            mut forecasts,
            mut policies,
            ingest,
        } = parts;
        let mut streams = Streams::new(segment, clock, history.journal(), repeat_ns);
        policy_statements.restore(&mut Carrier {
            policies: &mut policies,
            forecasts: &mut forecasts,
            streams: &mut streams,
        });
        let self_watch = SelfWatch::new(&mut streams, BEAT_NS, ingest);
        let archive = history.status();
        let archive_watch = archive
            .is_some()
            .then(|| ArchiveWatch::new(&mut streams, BEAT_NS));
        Self {
            clock,
            run_dir,
            events,
            poller,
            streams,
            graph,
            insights,
            troubles,
            outlook: Outlook::default(),
            forecasts,
            policies,
            policy_statements,
            self_watch,
            exports: None,
            saturation: Saturation::new(BEAT_NS),
            history,
            archive_watch,
            archive,
            next_beat_ns: 0,
            next_documents_ns: 0,
            next_project_ns: i64::MAX,
        }
    }

    /// Tells what comes of the exports too, where there are any.
    pub fn with_exports(mut self, status: Option<ExportStatus>) -> Self {
        self.exports = status.map(|s| ExportWatch::new(s, &mut self.streams, BEAT_NS));
        self
    }

    /// Samples until told to stop, then closes the segment. `ready` is called once, when every
    /// source has been read or has had its chance.
    pub fn run(mut self, ready: impl FnOnce()) {
        let mut ready = Some(ready);
        let ready_by_ns = self.clock.monotonic_ns() + FIRST_ROUND_NS;
        self.tick();
        loop {
            if ready.is_some() && (self.all_polled() || self.clock.monotonic_ns() >= ready_by_ns) {
                self.write_documents();
                ready.take().into_iter().for_each(|ready| ready());
            }
            match self.take_events() {
                Turn::Ended => break,
                Turn::Woken => self.tick(),
                Turn::Over if self.is_due() => self.tick(),
                Turn::Over => {}
            }
        }
        info!("stopping: sources first");
        self.poller.stop();
        self.streams.settle_all();
        self.streams.finish();
        self.streams.segment().close();
    }

    fn all_polled(&self) -> bool {
        self.poller.reports().iter().all(|report| report.polls > 0)
    }

    fn wait_ns(&self) -> i64 {
        let deadline_ns = self.poller.next_deadline_ns().min(self.next_beat_ns);
        let deadline_ns = deadline_ns.min(self.next_project_ns);
        deadline_ns.saturating_sub(self.clock.monotonic_ns())
    }

    fn is_due(&self) -> bool {
        self.wait_ns() <= 0
    }

    /// Waits until something is due or happens, and applies what has happened: at most so many
    /// events that what is due is not late. When something is due at once, as with a source at full
    /// speed, one event still gets its turn.
    fn take_events(&mut self) -> Turn {
        let wait = Duration::from_nanos(self.wait_ns().max(0).unsigned_abs());
        let mut next = match self.events.recv_timeout(wait) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
        };
        for _ in 0..EVENTS_A_TURN_MAX {
            match next {
                None => break,
                Some(Event::Stop) => return Turn::Ended,
                Some(Event::Wake) => return Turn::Woken,
                Some(event) => self.apply(event),
            }
            if self.is_due() {
                break;
            }
            next = self.events.try_recv().ok();
        }
        Turn::Over
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Execute(sql, reply) => {
                let answer = self.execute(&sql);
                // Whoever asked may have gone away: that is theirs.
                let _ = reply.try_send(answer);
            }
            Event::Policy(sql, reply) => {
                let _ = reply.try_send(self.execute_policy(&sql));
            }
            Event::Ground(tables, reply) => {
                let _ = reply.try_send(self.graph.ground(&tables));
            }
            Event::Wake | Event::Stop => {}
        }
    }

    fn tick(&mut self) {
        self.policies.hear();
        let mut facts = Facts {
            streams: &mut self.streams,
            graph: &mut self.graph,
            outlook: &mut self.outlook,
            forecasts: &mut self.forecasts,
            policies: &mut self.policies,
        };
        self.poller.run_due(&mut facts);
        let now_ns = self.clock.now_ns();
        self.evaluate(now_ns);
        let monotonic_ns = self.clock.monotonic_ns();
        if monotonic_ns >= self.next_beat_ns {
            self.next_beat_ns = monotonic_ns + BEAT_NS;
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
            self.next_documents_ns = monotonic_ns + DOCUMENTS_NS;
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

    /// Says that the agent lives, and looks at itself.
    fn beat(&mut self, now_ns: i64) {
        self.streams.beat(now_ns);
        self.graph.confirm(&mut Outputs {
            streams: &mut self.streams,
            forecasts: &mut self.forecasts,
        });
        self.forecasts.beat(now_ns, &mut self.streams);
        self.look_at_archive(now_ns);
        self.outlook.filling(self.forecasts.reaches(FREE, 0.0));
        let sentence = self.outlook.sentence(now_ns);
        let who = self.outlook.who(now_ns);
        let forecasts = self.forecasts.counts();
        self.self_watch
            .look(now_ns, (&sentence, &who), forecasts, &mut self.streams);
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

    /// What is to survive a restart is written first: an insight that cannot be kept is not made.
    fn execute(&mut self, sql: &str) -> Answer {
        let intent = self.graph.intent(sql).map_err(Refusal::from)?;
        let (name, statement) = match &intent {
            Executed::Created(name) => (name, Some(sql)),
            Executed::Dropped(name) => (name, None),
        };
        let dropped = documents::insight(&self.graph, name, &self.poller.reports());
        let before = self.insights.keep(name, statement)?;
        let mut outputs = Outputs {
            streams: &mut self.streams,
            forecasts: &mut self.forecasts,
        };
        if let Err(error) = self.graph.execute(sql, &mut outputs) {
            self.insights.keep(name, before.as_deref())?;
            return Err(error.into());
        }
        info!(insight = name, made = statement.is_some(), "changed");
        self.evaluate(self.clock.now_ns());
        self.streams.finish();
        self.write_documents();
        Ok(match intent {
            Executed::Created(name) => {
                documents::insight(&self.graph, &name, &self.poller.reports())
            }
            Executed::Dropped(_) => dropped,
        })
    }

    fn execute_policy(&mut self, sql: &str) -> Answer {
        let mut carrier = Carrier {
            policies: &mut self.policies,
            forecasts: &mut self.forecasts,
            streams: &mut self.streams,
        };
        let mut done = self.policy_statements.execute(sql, &mut carrier)?;
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

    /// All at once, so that their tables agree.
    fn write_documents(&self) {
        let run_dir = &self.run_dir;
        let sources = &self.poller.reports()[..];
        let graph = &self.graph;
        let insights = documents::Insights { graph, sources };
        let all = with_those_that_are_off(sources);
        publish(run_dir, SOURCES_DOCUMENT, &all);
        publish(run_dir, INSIGHTS_DOCUMENT, &insights);
        let forecasts = self.forecasts.document();
        publish(run_dir, FORECASTS_DOCUMENT, &forecasts);
        let policies = self.policies.document();
        publish(run_dir, POLICIES_DOCUMENT, &policies);
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
