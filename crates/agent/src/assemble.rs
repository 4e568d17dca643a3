//! Assembling an agent: the parts of its sampling loop, none of which runs yet, and what the scopes
//! of applications share with them. Nothing here waits or starts a thread.
//!
//! It is apart from the start, which gives the loop its thread and then makes the parts that take
//! requests and values, so that whole agents can be put together and run in one thread.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use barograph_insight::{Graph, GraphLimits};
use barograph_model::{Clock, Name};
use barograph_server::ExportStatus;
use barograph_stream::{AgentLock, Incarnation, RunDir, Segment, SegmentConfig, StreamError};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::cluster_inputs::ClusterInputs;
use crate::cluster_insights::SharedInsights;
use crate::cluster_watch::ClusterState;
use crate::control::wanted;
use crate::control_events::ControlEvents;
use crate::decisions::ControllerSwitches;
use crate::event_loop::{EVENTS_MAX, Event, LoopParts};
use crate::interference::BandwidthWatch;
use crate::io_schedules::IoSchedules;
use crate::policies::{Policies, WakeLoop};
use crate::server_maps::{MapControl, ServerMaps};
use crate::statements::{StatementStore, StatementTroubles};
use crate::{AgentError, Config};
use barograph_intake::{IngestCounts, MapDesk, PhaseDesk, ScopeShared};
use barograph_recorder::{ForecastRoom, Forecasts, History, ScopeHistories, World, take_over};

/// The directories of an agent, taken and read: nobody else has them.
pub(crate) struct AgentDirectories {
    run_dir: RunDir,
    lock: AgentLock,
    troubles: StatementTroubles,
    statements: Arc<StatementStore>,
    graph: Graph,
}

pub(crate) struct AgentParts {
    /// The lock of the run directory.
    pub lock: AgentLock,
    /// The statements that users made at run time.
    pub statements: Arc<StatementStore>,
    /// The state that the scopes of applications share with each other and the node.
    pub shared: ScopeShared,
    /// The maps of servers that programs use.
    pub maps: Arc<ServerMaps>,
    /// The channel of the sampling loop.
    pub events: SyncSender<Event>,
    /// The other end of it.
    pub receiver: Receiver<Event>,
    /// The insights of the cluster; `None` if this node is in none.
    pub cluster_insights: Option<Arc<SharedInsights>>,
    /// The parts of the sampling loop.
    pub sampling: LoopParts,
    /// Time at which the agent began, in ns since the epoch.
    pub started_ns: i64,
}

impl LoopParts {
    /// The counts of the intake and the schedulers of volumes: other parts of the agent share them
    /// with the loop.
    pub(crate) fn intake(&self) -> (Arc<IngestCounts>, Arc<IoSchedules>) {
        (Arc::clone(&self.ingest), Arc::clone(&self.schedules))
    }
}

impl AgentDirectories {
    /// Takes the run directory and reads the statements. This comes before the archive is opened.
    pub(crate) fn prepare(config: &Config, world: &World) -> Result<Self, AgentError> {
        let run_dir = RunDir::new(&config.run_dir);
        let lock = run_dir.occupy()?;
        let troubles = StatementTroubles::new(world);
        let statements = StatementStore::open(&config.state_dir, &troubles)?;
        Ok(Self {
            run_dir,
            lock,
            troubles,
            statements: Arc::new(statements),
            graph: graph(config, &world.clock),
        })
    }

    /// Makes the segment and the parts. `config` has been resolved.
    pub(crate) fn assemble(
        self,
        config: &Config,
        world: &World,
        history: History,
        exports: Option<ExportStatus>,
    ) -> Result<AgentParts, AgentError> {
        let started_ns = world.clock.now_ns();
        let path = self.run_dir.segment();
        let incarnation = world.randomness.incarnation();
        let incarnation = incarnation.map_err(|source| StreamError::Io {
            what: "name",
            path: path.clone(),
            source,
        })?;
        take_over(&self.run_dir, &config.node, &history);
        let segment = Segment::create(&path, segment_config(config, incarnation), started_ns)?;
        let (events, receiver) = sync_channel(EVENTS_MAX);
        // Half of the random bits is enough to tell lives apart.
        let life = u128::from_le_bytes(incarnation.0) as u64;
        let control_events = ControlEvents::new(&world.clock, life);
        let wake = waking(events.clone());
        control_events.wake_by(move || wake());
        let switches = ControllerSwitches::open(&config.state_dir, &self.troubles, &world.clock)?;
        let scales_down = config.control.scale_down;
        let map_control = MapControl::new(scales_down, &switches, &control_events, &world.clock);
        let told = (Arc::clone(&control_events), switches);
        let schedules = IoSchedules::new(&config.schedule, &world.clock, told);
        let desk: Arc<dyn PhaseDesk> = Arc::clone(&schedules) as _;
        let maps = ServerMaps::new(map_control);
        let shared = ScopeShared {
            forecasts: ForecastRoom::new(&config.forecast)?,
            histories: ScopeHistories::default(),
            world: world.clone(),
            phases: Some(desk),
            // Programs are told that nobody keeps maps.
            maps: Some(Arc::clone(&maps) as Arc<dyn MapDesk>),
        };
        let is_clustered = !config.cluster.name.is_empty();
        let first_key = segment_config(config, incarnation).streams_max;
        let crossing = &config.cluster.publications;
        let inputs = is_clustered.then(|| ClusterInputs::new(&self.run_dir, first_key, crossing));
        let of_cluster = |inputs: &ClusterInputs| {
            let (dir, news) = (&config.state_dir, inputs.news());
            SharedInsights::open(&config.node, dir, &self.troubles, news, world)
        };
        let cluster_insights = inputs.as_ref().map(of_cluster).transpose()?.map(Arc::new);
        let sampling = LoopParts {
            run_dir: self.run_dir,
            segment,
            graph: self.graph,
            wanted: wanted(config, &self.statements, None),
            troubles: self.troubles,
            history: Arc::new(history),
            repeat_ns: config.repeat_ns()?,
            forecasts: Forecasts::new(&config.forecast, Arc::clone(&shared.forecasts)),
            bandwidths: BandwidthWatch::new(&config.interference, world),
            policies: Policies::new(&config.sources, waking(events.clone())),
            ingest: Arc::default(),
            schedules,
            control_events,
            exports,
            cluster: ClusterState::default(),
            cluster_inputs: inputs,
        };
        Ok(AgentParts {
            maps,
            lock: self.lock,
            statements: self.statements,
            shared,
            events,
            receiver,
            sampling,
            cluster_insights,
            started_ns,
        })
    }
}

/// Returns `agent.json`, by which readers find the archive, and programs the address of HTTP and
/// the volumes whose I/O is scheduled.
pub(crate) fn agent_document(
    (node, state_dir): (&str, &Path),
    schedules: &[PathBuf],
    history: &History,
    started_ns: i64,
    http: Option<SocketAddr>,
) -> Json {
    let mut document = json!({
        "node": node,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "started_ts": started_ns,
        "http": http.map(|address| format!("http://{address}")),
        "state": state_dir,
        "archive": history.readable_dir(),
    });
    if !schedules.is_empty() {
        document["schedules"] = json!(schedules);
    }
    document
}

/// Returns a function that wakes the sampling loop.
pub(crate) fn waking(events: SyncSender<Event>) -> WakeLoop {
    // A full channel means that the loop is about to run anyway.
    Arc::new(move || drop(events.try_send(Event::Wake)))
}

fn segment_config(config: &Config, incarnation: Incarnation) -> SegmentConfig {
    SegmentConfig {
        node: config.node.clone(),
        streams_max: config.streams.max,
        depth_default: config.streams.depth,
        ring_bytes_max: usize::try_from(config.streams.ring_bytes_max).unwrap_or(usize::MAX >> 1),
        incarnation: Some(incarnation),
    }
}

/// Returns the graph with the built-in insights.
pub(crate) fn graph(config: &Config, clock: &Arc<dyn Clock>) -> Graph {
    let limits = GraphLimits {
        node: config.node.clone(),
        is_clustered: !config.cluster.name.is_empty(),
        ..GraphLimits::default()
    };
    let is_clustered = limits.is_clustered;
    let mut graph = Graph::new(limits).with_clock(Arc::clone(clock));
    let facts = barograph_source::all_facts().map(|fact| fact.name);
    let mut inputs: Vec<&str> = facts.chain(barograph_insight::curated_inputs()).collect();
    let mut insights = barograph_insight::curated();
    if is_clustered {
        inputs.extend(barograph_insight::curated_inputs_of_cluster());
        insights.extend(barograph_insight::curated_of_cluster());
    }
    for name in inputs {
        graph.know_metric(&Name::new(name).expect("names of facts are literals"));
    }
    for (file, sql) in insights {
        if let Err(error) = graph.create(sql, true) {
            warn!(%error, file, "a built-in insight is left out");
        }
    }
    graph
}
