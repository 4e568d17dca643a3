//! Starting the parts of an agent, and stopping them, each in a fixed order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_model::{Clock, ConfigError, SqlLimits};
use barograph_query::{PastReader, PoolConfig, QueryPool, ScopeChoice};
use barograph_server::{
    Exporter, Exports, IngestConfig, NodeInfo, RequestCounts, Server, ServerConfig, ServerLimits,
};
use barograph_source::Poller;
use barograph_statement::StatementKind;
use barograph_stream::{AGENT_DOCUMENT, AgentLock, RunDir};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value as Json;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::actions::{AgentHost, EventActions, MarkBox};
use crate::agreement::{Agreement, AgreementDesk, AgreementParts, LeaderQuestions};
use crate::assemble::{AgentDirectories, agent_document};
use crate::cluster_insights::{ApplyInsights, SharedInsights};
use crate::cluster_watch::ClusterState;
use crate::control::{LoopControl, ReadConfig};
use crate::controllers::Controllers;
use crate::event_columns::RecordFields;
use crate::event_feeds::event_feeds;
use crate::event_loop::{self, Event, EventLoop, LoopParts};
use crate::fabric::{Fabric, NodeServices};
use crate::io_schedules::IoSchedules;
use crate::node_calls::NodeCalls;
use crate::node_queries::{ClientSql, NodeSql};
use crate::node_questions::NodeQuestions;
use crate::query_nodes::QueryNodes;
use crate::rules::{DeclaredRules, ProgramCalls};
use crate::server_maps::ServerMaps;
use crate::statements::StatementStore;
use crate::watches::Watches;
use crate::{AgentError, Config, StagingConfig};
use barograph_intake::{Applications, IngestCounts, IntakeConfig, ScopeShared};
use barograph_recorder::{ArchiveConfig, History, World};

/// Longest time that a start waits for the first round of sources.
pub(crate) const FIRST_ROUND_WAIT: Duration = Duration::from_secs(5);

/// Most files that the agent wants to have open at a time.
const DESCRIPTORS_MAX: u64 = 1 << 18;

/// A running agent. Dropping it stops it.
pub struct Agent {
    node: String,
    state_dir: PathBuf,
    run_dir: RunDir,
    events: SyncSender<Event>,
    sampler: Option<JoinHandle<()>>,
    /// Closed when the sampling thread has ended.
    sampling: watch::Receiver<()>,
    server: Option<Server>,
    exporter: Option<Exporter>,
    applications: Option<Applications>,
    watches: Option<Arc<Watches>>,
    actions: Option<Arc<EventActions>>,
    rules: Option<DeclaredRules>,
    controllers: Option<Arc<Controllers>>,
    fabric: Option<Fabric>,
    /// The controllers that agree with those of other nodes, and the desk to which the fabric
    /// brings their words, until the fabric has it.
    agreement: Option<(Agreement, Option<AgreementDesk>)>,
    control: Option<Arc<LoopControl>>,
    history: Arc<History>,
    /// Paths of the volumes whose I/O is scheduled.
    schedules: Vec<PathBuf>,
    staging: StagingConfig,
    _lock: AgentLock,
}

impl Agent {
    /// Starts an agent on this machine with a configuration that does not change; see
    /// [`Agent::start_with`].
    pub fn start(config: Config) -> Result<Self, AgentError> {
        Self::start_with(move || Ok(config.clone()), World::real())
    }

    /// Starts everything, and returns when the first round of sources has been read. `read` reads
    /// the configuration, now and at each reload.
    #[expect(
        clippy::disallowed_methods,
        reason = "a start waits for the first round of sources"
    )]
    pub fn start_with(
        read: impl Fn() -> Result<Config, AgentError> + Send + Sync + 'static,
        world: World,
    ) -> Result<Self, AgentError> {
        let read: ReadConfig = Arc::new(move || read()?.resolve());
        let config = read()?;
        raise_descriptors();
        let exports = config.export.prepare()?;
        let directories = AgentDirectories::prepare(&config, &world)?;
        // The archive starts before the segment exists: it may have much to recover, and readers
        // consider a segment without a heartbeat dead.
        let history = History::start(&config.archive, &config.node, &world);
        let exporting = exports.as_ref().map(Exports::status);
        let parts = directories.assemble(&config, &world, history, exporting)?;
        let (is_sampling, sampling) = watch::channel(());
        let mut agent = Self {
            node: config.node.clone(),
            state_dir: config.state_dir.clone(),
            run_dir: parts.sampling.run_dir.clone(),
            events: parts.events,
            sampler: None,
            sampling,
            server: None,
            exporter: None,
            applications: None,
            watches: None,
            actions: None,
            rules: None,
            controllers: None,
            fabric: None,
            agreement: None,
            control: None,
            history: Arc::clone(&parts.sampling.history),
            schedules: config.schedule.paths(),
            staging: config.staging.clone(),
            _lock: parts.lock,
        };
        let intake = parts.sampling.intake();
        let cluster = parts.sampling.cluster.clone();
        let (ready, first_round) = sync_channel(1);
        agent.sampler = Some(start_sampler(
            &config,
            &world,
            parts.receiver,
            parts.sampling,
            (ready, is_sampling),
        )?);
        // A source that hangs must not keep the others from being served.
        let _ = first_round.recv_timeout(FIRST_ROUND_WAIT);
        let questions = NodeQuestions::default();
        let insights = parts.cluster_insights;
        let control = (parts.statements, read, questions.clone(), insights.clone());
        let started_ns = parts.started_ns;
        let desks = (intake, parts.maps);
        let engine = agent.serve(
            &config,
            &world.clock,
            started_ns,
            parts.shared,
            desks,
            control,
        )?;
        if let Some(exports) = exports {
            let clock = Arc::clone(&world.clock);
            agent.exporter = Some(exports.start(agent.run_dir.clone(), clock)?);
        }
        let services = (insights, questions, engine);
        agent.join_cluster(&config, cluster, services, &world)?;
        agent.publish_addresses(started_ns)?;
        info!(node = config.node, run_dir = %config.run_dir.display(), "ready");
        Ok(agent)
    }

    /// Joins the cluster, if one is configured.
    fn join_cluster(
        &mut self,
        config: &Config,
        cluster: ClusterState,
        (insights, questions, engine): (Option<Arc<SharedInsights>>, NodeQuestions, ClientSql),
        world: &World,
    ) -> Result<(), AgentError> {
        let agreement = self.agreement.as_mut().and_then(|(_, desk)| desk.take());
        self.fabric = Fabric::start(
            &config.cluster,
            &config.node,
            (&self.run_dir, &config.state_dir),
            cluster,
            NodeServices {
                insights: insights.zip(self.apply_insights()),
                questions,
                engine,
                board: self.applications.as_ref().map(|a| Arc::clone(a.board())),
                actions: self.actions.clone(),
                agreement,
            },
            (&with_event_columns(&config.archive), world),
        )?;
        Ok(())
    }

    /// Starts the controllers that agree with those of other nodes. Returns the way to their
    /// leader.
    fn agree(
        &mut self,
        config: &Config,
        (schedules, maps): (&Arc<IoSchedules>, &Arc<ServerMaps>),
        clock: &Arc<dyn Clock>,
    ) -> Result<LeaderQuestions, AgentError> {
        let (agreement, desk) = Agreement::start(&AgreementParts {
            nodes: (&self.node, &config.cluster.controllers),
            state_dir: &self.state_dir,
            run_dir: &self.run_dir,
            schedules,
            maps,
            clock,
        })?;
        let questions = agreement.questions();
        self.agreement = Some((agreement, Some(desk)));
        Ok(questions)
    }

    /// The way to have the loop compute insights of the cluster.
    fn apply_insights(&self) -> Option<ApplyInsights> {
        let control = self.control.clone()?;
        Some(Arc::new(move || control.apply_cluster()))
    }

    /// Starts the parts that take requests and values: applications, rules, the server. Returns the
    /// engine of statements, with their limits.
    fn serve(
        &mut self,
        config: &Config,
        clock: &Arc<dyn Clock>,
        started_ns: i64,
        shared: ScopeShared,
        ((ingest, schedules), maps): ((Arc<IngestCounts>, Arc<IoSchedules>), Arc<ServerMaps>),
        (statements, read, questions, cluster): (
            Arc<StatementStore>,
            ReadConfig,
            NodeQuestions,
            Option<Arc<SharedInsights>>,
        ),
    ) -> Result<ClientSql, AgentError> {
        let run_dir = &self.run_dir;
        let intake = intake_config(config);
        self.applications = Applications::start(&intake, run_dir, clock, ingest, shared.clone());
        let leader = self.agree(config, (&schedules, &maps), clock)?;
        // The document is published once before there are addresses: readers find the archive by
        // it, and so does the server.
        self.publish_addresses(started_ns)?;
        let applications = self.applications.as_ref();
        let mut kept_rules = config.rules_by_name();
        kept_rules.extend(statements.of(StatementKind::Rule));
        let board = applications.map(|a| Arc::clone(a.board()));
        let patience_ns = (config.cluster.query_seconds * 1e9) as i64;
        let calls = Arc::new(NodeCalls {
            node: self.node.clone(),
            board: board.clone(),
            patience_ns,
            others: questions.clone(),
            clock: Arc::clone(clock),
        });
        let ingest = applications.map(|a| IngestConfig {
            to: Arc::clone(a.bridge()),
            over_tcp: config.applications.http_ingest,
        });
        let kept_watches = statements.of(StatementKind::Watch);
        let actions = self.watch_events(config, (&kept_rules, &kept_watches), &calls);
        let run_dir = &self.run_dir;
        let fire = ProgramCalls::new(board, Arc::clone(&calls), &shared.world.work);
        let fire = Arc::new(fire);
        let demand = cluster.as_ref().map(|cluster| cluster.demand());
        let rules = DeclaredRules::new(
            &kept_rules,
            run_dir,
            clock,
            (fire, Some(Arc::clone(&actions))),
            demand,
        );
        rules.attend()?;
        self.rules = Some(rules.clone());
        let places = (&*config.sources.sys_root, &*config.state_dir);
        let door = self.applications.as_ref().map(|it| Arc::clone(it.events()));
        let desks = (schedules, maps);
        let controllers = Controllers::start(&config.control, places, run_dir, clock, desks, door)?;
        self.controllers = Some(Arc::clone(&controllers));
        let engine = client_sql(config, run_dir, clock)?;
        let control = Arc::new(LoopControl {
            events: self.events.clone(),
            statements,
            archives: (Arc::clone(&self.history), shared.histories),
            nodes: NodeSql {
                node: self.node.clone(),
                engine: engine.clone(),
                patience_ns,
                others: questions,
                clock: Arc::clone(clock),
                last: QueryNodes::new(run_dir),
            },
            calls,
            cluster,
            rules,
            watches: self.watches.clone(),
            actions,
            controllers,
            leader,
            config: (read, Mutex::new(config.clone())),
            clock: Arc::clone(clock),
            next_snapshot_ns: Mutex::new(0),
        });
        self.control = Some(Arc::clone(&control));
        let parts = (engine.clone(), control, ingest);
        let server = start_server(config, clock, run_dir, parts, started_ns)?;
        self.server = Some(server);
        Ok(engine)
    }

    /// Starts what collects file events, and what rules have done for them.
    fn watch_events(
        &mut self,
        config: &Config,
        (rules, watches): (&BTreeMap<String, String>, &BTreeMap<String, String>),
        calls: &Arc<NodeCalls>,
    ) -> Arc<EventActions> {
        let place = (&*self.node, &self.run_dir, &*self.state_dir);
        let marks = Arc::new(MarkBox::default());
        let host = Arc::new(AgentHost {
            calls: Arc::clone(calls),
            marks: Arc::clone(&marks),
        });
        let actions = EventActions::new(rules, place, (&config.action, host), &calls.clock);
        let actions = Arc::new(actions);
        if let Some(applications) = &self.applications {
            let to = (applications.events(), &actions);
            let what = (&config.event, &config.sources.helper, watches);
            let watches = Watches::start(what, place, to, &calls.clock);
            let watches = Arc::new(watches);
            watches.take_marks(&marks);
            self.watches = Some(watches);
        }
        self.actions = Some(Arc::clone(&actions));
        actions
    }

    /// Reads the configuration again and applies its insights and policies. The answer names the
    /// keys that take effect only after a restart.
    pub fn reload(&self) -> Result<Json, String> {
        let control = self.control.as_ref();
        let answer = control.map(|control| control.reload());
        answer
            .unwrap_or(Ok(Json::Null))
            .map_err(|refusal| refusal.to_string())
    }

    /// Returns the node's name.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Returns the address of HTTP, if HTTP is on.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.server.as_ref().and_then(Server::http_addr)
    }

    /// Returns the numbers of requests so far.
    pub fn request_counts(&self) -> RequestCounts {
        let server = self.server.as_ref();
        server.map(Server::counts).unwrap_or_default()
    }

    /// Returns the run directory.
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// Returns the server of staging that is to run beside the agent, which the caller starts.
    pub fn staging(&self) -> &StagingConfig {
        &self.staging
    }

    /// Waits until the sampling thread has ended, which it does by itself only if it panics.
    pub fn ended(&self) -> impl Future<Output = ()> + use<> {
        let mut sampling = self.sampling.clone();
        async move { while sampling.changed().await.is_ok() {} }
    }

    /// Stops the parts in order: the fabric, rules, controllers, applications, sources and streams,
    /// exports, archive, server.
    pub fn stop(self) {}

    fn publish_addresses(&self, started_ns: i64) -> Result<(), AgentError> {
        let name = (&*self.node, &*self.state_dir);
        let (schedules, http) = (&self.schedules, self.http_addr());
        let document = agent_document(name, schedules, &self.history, started_ns, http);
        Ok(self
            .run_dir
            .publish(AGENT_DOCUMENT, document.to_string().as_bytes(), 0o644)?)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.fabric.take());
        drop(self.agreement.take());
        if let Some(rules) = self.rules.take() {
            rules.stop();
        }
        // Weights are restored while there is time: nothing else waits for them.
        if let Some(controllers) = self.controllers.take() {
            controllers.stop();
        }
        // Sources stop first: watches, applications, then the machine's.
        if let Some(watches) = self.watches.take() {
            watches.stop();
        }
        if let Some(actions) = self.actions.take() {
            actions.stop();
        }
        drop(self.applications.take());
        // This send may block: the loop empties its channel until it sees this event.
        let _ = self.events.send(Event::Stop);
        if let Some(sampler) = self.sampler.take()
            && sampler.join().is_err()
        {
            warn!("the sampling thread had panicked");
        }
        drop(self.exporter.take());
        self.history.close();
        if let Some(server) = self.server.take() {
            server.stop();
        }
        info!("stopped");
    }
}

/// Raises the soft limit of open files to the hard one, at most to [`DESCRIPTORS_MAX`]: ingest
/// files of thousands of processes may be open at a time.
fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit
        .maximum
        .unwrap_or(DESCRIPTORS_MAX)
        .min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            warn!(%error, "the limit of open files stays as it is");
        }
    }
}

/// The configuration of archives of applications and of other nodes, whose sealed files have
/// columns for file events.
fn with_event_columns(archive: &ArchiveConfig) -> ArchiveConfig {
    ArchiveConfig {
        events: Some(Arc::new(RecordFields)),
        ..archive.clone()
    }
}

/// Returns the configuration of the intake.
pub(crate) fn intake_config(config: &Config) -> IntakeConfig {
    IntakeConfig {
        node: config.node.clone(),
        state_dir: config.state_dir.clone(),
        applications: config.applications.clone(),
        archive: with_event_columns(&config.archive),
        forecast: config.forecast.clone(),
    }
}

fn start_sampler(
    config: &Config,
    world: &World,
    receiver: Receiver<Event>,
    parts: LoopParts,
    (ready, is_sampling): (SyncSender<()>, watch::Sender<()>),
) -> Result<JoinHandle<()>, AgentError> {
    let (budget, sources, world) = (config.budget, config.sources.clone(), world.clone());
    std::thread::Builder::new()
        .name("baro-sampler".into())
        .spawn(move || {
            let poller = Poller::new(&sources, Arc::clone(&world.clock)).with_budget(budget);
            let event_loop = EventLoop::new(&world, poller, parts);
            event_loop::run(event_loop, &receiver, || {
                let _ = ready.try_send(());
            });
            drop(is_sampling);
        })
        .map_err(AgentError::Thread)
}

/// Starts the engine that runs the statements of clients.
fn client_sql(
    config: &Config,
    run_dir: &RunDir,
    clock: &Arc<dyn Clock>,
) -> Result<ClientSql, AgentError> {
    let pool = PoolConfig {
        threads: config.query.threads,
        queue_max: config.query.waiting_max,
    };
    let engine = QueryPool::start(run_dir, ScopeChoice::Public, clock, pool)?;
    Ok(ClientSql {
        engine: Arc::new(engine),
        limits: SqlLimits {
            rows_max: config.query.rows_max,
            bytes_max: config.query.bytes_max,
            time_ns_max: (config.query.seconds_max * 1e9) as i64,
            memory_bytes_max: config.query.memory_bytes_max / 4,
        },
    })
}

fn start_server(
    config: &Config,
    clock: &Arc<dyn Clock>,
    run_dir: &RunDir,
    (sql, control, ingest): (ClientSql, Arc<LoopControl>, Option<IngestConfig>),
    started_ns: i64,
) -> Result<Server, AgentError> {
    let http = match config.http.as_str() {
        "off" => None,
        text => Some(text.parse().map_err(|_| ConfigError {
            key: "http",
            value: text.into(),
            reason: "it must be ADDRESS:PORT on loopback, like 127.0.0.1:7070, or off".into(),
        })?),
    };
    let limits = ServerLimits {
        sql: sql.limits,
        memory_bytes_max: config.query.memory_bytes_max / 2,
        ..ServerLimits::default()
    };
    let server = ServerConfig {
        http,
        limits,
        ingest,
        events: (config.applications.enabled).then(|| event_feeds(run_dir, clock)),
    };
    let info = NodeInfo {
        version: env!("CARGO_PKG_VERSION").into(),
        started_ns,
    };
    Ok(Server::start(
        server,
        run_dir.clone(),
        sql.engine,
        // One thread for each answer, since as many may compute at once as there may be large
        // answers.
        Arc::new(
            PastReader::open(run_dir, ScopeChoice::Public, Arc::clone(clock))?.with_threads(1),
        ),
        control,
        Arc::clone(clock),
        info,
    )?)
}
