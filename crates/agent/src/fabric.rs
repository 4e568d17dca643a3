//! The agent's part in a cluster: its configuration, and the threads that step the fabric.
//!
//! It is apart from the fabric so that the fabric knows neither threads nor files of configuration.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_call::Board;
use barograph_fabric::security::{CREDENTIALS_DIR, Credentials, REVOCATION_LIST};
use barograph_fabric::transport::{
    HELLO_VERSION, Hello, Transport as _, ZenohConfig, ZenohFault, ZenohTransport, ZenohWaker,
    check_name,
};
use barograph_fabric::{FabricNode, MirrorBounds, NodeConfig};
use barograph_model::{Clock, ConfigError, NS_PER_S, Pattern};
use barograph_recorder::{ArchiveConfig, World};
use barograph_stream::{
    CLUSTER_DOCUMENT, CLUSTER_INSIGHTS_DOCUMENT, Incarnation, PEERS_DOCUMENT, RunDir, SCOPE_OF_ALL,
    SUBSCRIBERS_DOCUMENT, SegmentReader, SegmentTicks,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::AgentError;
use crate::actions::EventActions;
use crate::aggregator::{AggregatorConfig, NodeHistories};
use crate::agreement::{AgreementDesk, check_leaders};
use crate::cluster_insights::{ApplyInsights, ClusterInsightsDesk, SharedInsights};
use crate::cluster_watch::ClusterState;
use crate::node_calls::{NodeCallWorker, TakeAction};
use crate::node_past::ArchivedPast;
use crate::node_queries::{ClientSql, NodeQueryWorker};
use crate::node_questions::{NodeQuestionDesk, NodeQuestions};
use crate::revocation_file::RevocationFile;

/// Shortest time between two wakes of the fabric because of new samples of this node.
const NEWS_PAUSE: Duration = Duration::from_micros(500);
/// Longest wait for new samples of this node.
const NEWS_WAIT: Duration = Duration::from_millis(500);

/// Shortest time between two versions of the documents, in ns.
const PUBLISH_NS_MIN: i64 = NS_PER_S / 10;

/// The cluster that this node takes part in. Without a name, it takes part in none.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Name of the cluster. Empty: this node is alone. Only nodes of the same cluster work
    /// together.
    pub name: String,
    /// Addresses at which other nodes reach this one, such as `10.0.0.1:7447` or `0.0.0.0:7447`. If
    /// this node has no certificate (`baro cluster init`, `baro cluster join`), they must be of
    /// this machine, because nothing is encrypted then.
    pub listen: Vec<String>,
    /// Addresses of other nodes, or of zenoh routers, such as `login1:7447`. One is enough: nodes
    /// tell each other of those that they know.
    pub peers: Vec<String>,
    /// Streams of other nodes that are mirrored into memory of this one.
    pub mirror: Vec<String>,
    /// Publications of applications that other nodes may mirror, and that are mirrored from them,
    /// by who may read them: `all`, the users as `u1000`, the groups as `g100`, and patterns such
    /// as `u*`. Only `all` is possible without certificates. Numbers of users and groups must mean
    /// the same on all nodes. `cluster.mirror` chooses the streams.
    pub publications: Vec<String>,
    /// Names of the nodes that are mirrored, as patterns such as `rack1-*`.
    pub mirror_nodes: Vec<String>,
    /// Most nodes that are mirrored.
    pub mirrors_max: usize,
    /// Most mirrored streams of each node.
    pub streams_max: usize,
    /// Most samples of each mirrored stream that are kept in memory.
    pub depth_max: u32,
    /// Most memory of the rings of each mirrored node, in bytes.
    pub ring_bytes_max: usize,
    /// Most bytes on the way from each node.
    pub window_bytes: u64,
    /// Nodes whose calls into programs of this one are made, as patterns such as `login*`, with the
    /// rights that they say their callers have. This node must have a certificate then. Empty:
    /// none.
    pub calls_from: Vec<String>,
    /// The nodes that may lead the controllers of all nodes, in this order; three or five of them,
    /// since a leader needs more than half. The list must be the same on all nodes. The leader
    /// gives programs of all nodes their turns on shared volumes (`schedule.volumes`). Nodes with
    /// such a list must have certificates. Empty: none leads.
    pub controllers: Vec<String>,
    /// Nodes whose insights of the cluster (`CREATE INSIGHT … ON CLUSTER`) this node takes, and
    /// computes if it has most of their inputs, as patterns such as `login*`; `[]` for none.
    /// Without this key they are taken from all nodes if this node has a certificate, and from none
    /// otherwise, because then any user of the machine can be a node.
    pub insights_from: Option<Vec<String>>,
    /// Longest wait, in seconds, for the answers of other nodes to a statement or a call, 0.1 to
    /// 600.
    pub query_seconds: f64,
    /// Seconds without a sign of life after which a node counts as gone, 0.1 to 3600.
    pub death_seconds: f64,
    /// The history of other nodes that this node keeps.
    pub aggregator: AggregatorConfig,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        let mirror = [
            "node.*",
            "tier.*",
            "disk.*",
            "filesystem.*",
            "pressure.*",
            "memory.*",
            "network.*",
            "control.event.*",
            "app.control.event.*",
        ];
        Self {
            name: String::new(),
            listen: Vec::new(),
            peers: Vec::new(),
            mirror: mirror.map(str::to_owned).to_vec(),
            publications: vec![SCOPE_OF_ALL.to_owned()],
            mirror_nodes: vec!["*".to_owned()],
            mirrors_max: 64,
            streams_max: 4_096,
            depth_max: 1_024,
            ring_bytes_max: 64 << 20,
            window_bytes: 512 << 10,
            calls_from: Vec::new(),
            controllers: Vec::new(),
            insights_from: None,
            query_seconds: 5.0,
            death_seconds: 2.0,
            aggregator: AggregatorConfig::default(),
        }
    }
}

impl ClusterConfig {
    /// Checks names, addresses and ranges. `node` is the name of this node.
    pub(crate) fn check(&self, node: &str) -> Result<(), AgentError> {
        let refuse = |key, value: &dyn ToString, reason: String| {
            Err(AgentError::from(ConfigError {
                key,
                value: value.to_string(),
                reason,
            }))
        };
        if !(0.1..=3_600.0).contains(&self.death_seconds) {
            let reason = "it must be 0.1 to 3600".to_owned();
            return refuse("cluster.death_seconds", &self.death_seconds, reason);
        }
        if !(0.1..=600.0).contains(&self.query_seconds) {
            let reason = "it must be 0.1 to 600".to_owned();
            return refuse("cluster.query_seconds", &self.query_seconds, reason);
        }
        if self.depth_max < 2 {
            return refuse(
                "cluster.depth_max",
                &self.depth_max,
                "it must be 2 or more".into(),
            );
        }
        self.aggregator.check()?;
        check_leaders(&self.controllers, &self.name)?;
        for text in &self.mirror {
            if let Err(error) = barograph_model::Selector::parse(text) {
                return refuse("cluster.mirror", text, error.to_string());
            }
        }
        if self.name.is_empty() {
            return Ok(());
        }
        if let Err(error) = check_name(&self.name) {
            return refuse("cluster.name", &self.name, error.to_string());
        }
        if let Err(error) = check_name(node) {
            return refuse("node", &node, error.to_string());
        }
        Ok(())
    }
}

impl ClusterConfig {
    /// Configuration of the node's part in the cluster.
    pub(crate) fn node(&self, run_dir: &RunDir, incarnation: Incarnation) -> NodeConfig {
        let kept = match self.aggregator.streams.is_empty() {
            true => &[],
            false => &self.aggregator.nodes[..],
        };
        let nodes = self.mirror_nodes.iter().chain(kept);
        NodeConfig {
            run_dir: run_dir.clone(),
            incarnation,
            nodes: nodes.map(Pattern::new).collect(),
            wanted: [&self.mirror[..], &self.aggregator.streams[..]].concat(),
            scopes: self.publications.iter().map(Pattern::new).collect(),
            mirrors_max: self.mirrors_max,
            bounds: MirrorBounds {
                streams_max: self.streams_max,
                depth_max: self.depth_max,
                ring_bytes_max: self.ring_bytes_max,
            },
            window_bytes: self.window_bytes,
        }
    }

    /// The nodes whose insights are taken.
    fn insights_from(&self, transport: &ZenohTransport) -> Vec<String> {
        let is_proven = transport.certificate_expires_ns().is_some();
        let all = || is_proven.then(|| "*".to_owned()).into_iter().collect();
        self.insights_from.clone().unwrap_or_else(all)
    }

    /// Fails if calls of other nodes are to be made although nobody can prove which node it is.
    fn check_callers(&self, transport: &ZenohTransport) -> Result<(), AgentError> {
        if self.calls_from.is_empty() || transport.certificate_expires_ns().is_some() {
            return Ok(());
        }
        Err(AgentError::from(ConfigError {
            key: "cluster.calls_from",
            value: self.calls_from.join(", "),
            reason:
                "it needs certificates, because without them any user of the machine can be such \
                     a node: `baro cluster init` and `baro cluster join` make them"
                    .into(),
        }))
    }

    /// Fails if the nodes that may lead make no list, or nobody can prove to be one of them.
    fn check_leaders(&self, transport: &ZenohTransport) -> Result<(), AgentError> {
        if self.controllers.is_empty() || transport.certificate_expires_ns().is_some() {
            return Ok(());
        }
        Err(AgentError::from(ConfigError {
            key: "cluster.controllers",
            value: self.controllers.join(", "),
            reason:
                "it needs certificates, because without them any user of the machine can be such \
                     a node: `baro cluster init` and `baro cluster join` make them"
                    .into(),
        }))
    }

    /// Fails if publications that only some users may read are to cross nodes although any user of
    /// the machine can be a node.
    fn check_publications(&self, transport: &ZenohTransport) -> Result<(), AgentError> {
        let is_public = |scope: &String| scope == SCOPE_OF_ALL;
        if self.publications.iter().all(is_public) || transport.certificate_expires_ns().is_some() {
            return Ok(());
        }
        Err(AgentError::from(ConfigError {
            key: "cluster.publications",
            value: self.publications.join(", "),
            reason: "without certificates only `all` can be in it, because any user of the machine can be a \
                     node and read what is sent: `baro cluster init` and `baro cluster join` make them"
                .into(),
        }))
    }

    /// Joins the cluster, with the certificates in this directory if there are any.
    fn join(
        &self,
        hello: Hello,
        credentials: &Path,
        revocation_list: Option<Vec<u8>>,
        clock: &Arc<dyn Clock>,
    ) -> Result<ZenohTransport, AgentError> {
        let credentials = Credentials::load(credentials, &hello.cluster, &hello.node);
        let credentials = credentials.map_err(ZenohFault::from)?;
        let config = ZenohConfig {
            hello,
            listen: self.listen.clone(),
            peers: self.peers.clone(),
            death_ns: (self.death_seconds * NS_PER_S as f64) as i64,
            credentials: credentials.map(Arc::new),
            revocation_list,
        };
        Ok(ZenohTransport::open(&config, Arc::clone(clock))?)
    }
}

/// Services that answer other nodes on this one, and the way to ask them.
pub(crate) struct NodeServices {
    /// The insights of the cluster, and the way to have them computed; `None` if this node is in
    /// none.
    pub insights: Option<(Arc<SharedInsights>, ApplyInsights)>,
    pub questions: NodeQuestions,
    /// Runs the statements of other nodes.
    pub engine: ClientSql,
    /// Makes the calls of other nodes; `None` if this node takes in no applications.
    pub board: Option<Arc<Board>>,
    /// Takes the actions of other nodes in.
    pub actions: Option<Arc<EventActions>>,
    /// The controllers of this node; `None` if it agrees on nothing with others.
    pub agreement: Option<AgreementDesk>,
}

/// The threads of the fabric. Dropping it ends this node's part in the cluster.
pub(crate) struct Fabric {
    is_over: Arc<AtomicBool>,
    waker: ZenohWaker,
    threads: Vec<JoinHandle<()>>,
}

impl Fabric {
    /// Joins the cluster, if one is configured.
    pub(crate) fn start(
        config: &ClusterConfig,
        node: &str,
        (run_dir, state_dir): (&RunDir, &Path),
        state: ClusterState,
        mut services: NodeServices,
        (archive, world): (&ArchiveConfig, &World),
    ) -> Result<Option<Self>, AgentError> {
        let clock = &world.clock;
        let Some(insights) = services.insights.clone() else {
            publish_alone(run_dir);
            return Ok(None);
        };
        let segment = Arc::new(SegmentReader::of(run_dir)?);
        let now_ns = clock.now_ns();
        let credentials = state_dir.join(CREDENTIALS_DIR);
        let mut revocations = RevocationFile::new(credentials.join(REVOCATION_LIST));
        let list = revocations.changed();
        let hello = Hello {
            version: HELLO_VERSION,
            incarnation: segment.incarnation(),
            start_ns: now_ns,
            cluster: config.name.as_str().into(),
            node: node.into(),
        };
        let transport = config.join(hello, &credentials, list, clock)?;
        config.check_callers(&transport)?;
        config.check_leaders(&transport)?;
        config.check_publications(&transport)?;
        revocations.kept = transport.revocation_list();
        let waker = transport.waker();
        let mut fabric = FabricNode::new(
            transport,
            Arc::clone(&segment),
            config.node(run_dir, segment.incarnation()),
            now_ns,
        );
        keep_past(
            &mut fabric,
            (config, node),
            (run_dir, state_dir),
            (archive, world),
        )?;
        let mut started = Self {
            is_over: Arc::default(),
            waker: waker.clone(),
            threads: Vec::new(),
        };
        let from = config.insights_from(fabric.transport());
        let insights = ClusterInsightsDesk::new(insights, run_dir, &from, waker.clone());
        let agreement = services.agreement.take();
        if let Some(agreement) = &agreement {
            agreement.wake_by(waker.clone());
        }
        let desk = started.answer_others(config, node, services, clock)?;
        let shell = FabricShell {
            desk,
            insights,
            agreement,
            fabric,
            cluster: config.name.clone(),
            peer_addresses: json!(config.peers),
            node: node.to_owned(),
            run_dir: run_dir.clone(),
            clock: Arc::clone(clock),
            revocations,
            state,
            subscribed: Arc::default(),
            is_over: Arc::clone(&started.is_over),
        };
        let news = News {
            waker,
            subscribed: Arc::clone(&shell.subscribed),
            is_over: Arc::clone(&started.is_over),
        };
        started.spawn("baro-fabric", move || shell.run())?;
        started.spawn("baro-news", move || news.run())?;
        Ok(Some(started))
    }

    /// Starts the threads that answer other nodes. Returns the desk by which they get questions.
    fn answer_others(
        &mut self,
        config: &ClusterConfig,
        node: &str,
        services: NodeServices,
        clock: &Arc<dyn Clock>,
    ) -> Result<NodeQuestionDesk, AgentError> {
        let NodeServices {
            questions,
            engine,
            board,
            actions,
            ..
        } = services;
        let questions = questions.open(self.waker.clone());
        let (desk, statements, calls) = NodeQuestionDesk::new(questions, &self.waker);
        let queries = NodeQueryWorker {
            asked: statements,
            engine,
            clock: Arc::clone(clock),
            cancel: Arc::clone(&self.is_over),
        };
        self.spawn("baro-asked", move || queries.run())?;
        if let Some(actions) = actions
            && (!config.calls_from.is_empty() || actions.takes_any())
        {
            let take: TakeAction = Box::new(move |from, text| actions.take(from, text));
            let to = (board, take);
            let calls = NodeCallWorker::new(calls, to, (node, &config.calls_from), clock);
            self.spawn("baro-called", move || calls.run())?;
        }
        Ok(desk)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), AgentError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        self.threads.push(thread.map_err(AgentError::Thread)?);
        Ok(())
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.wake();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                warn!("a thread of the fabric had panicked");
            }
        }
    }
}

/// Has a node keep the history of others, if it is to, and read its own past for those that keep
/// its.
fn keep_past(
    fabric: &mut FabricNode<ZenohTransport>,
    (config, node): (&ClusterConfig, &str),
    (run_dir, state_dir): (&RunDir, &Path),
    (archive, world): (&ArchiveConfig, &World),
) -> Result<(), AgentError> {
    let aggregator = (&config.aggregator, config.window_bytes);
    let dirs = (run_dir, state_dir);
    if let Some(histories) = NodeHistories::of(aggregator, archive, dirs, world)? {
        fabric.keep_histories(Box::new(histories));
    }
    if archive.enabled {
        let waker = fabric.transport().waker();
        let wake = Arc::new(move || waker.wake());
        let dirs = (archive.dir.clone(), run_dir);
        let past = ArchivedPast::new(dirs, node, &world.work, wake);
        fabric.read_past_from(Arc::new(past));
    }
    Ok(())
}

/// The thread that steps the fabric.
struct FabricShell {
    desk: NodeQuestionDesk,
    insights: ClusterInsightsDesk,
    agreement: Option<AgreementDesk>,
    fabric: FabricNode<ZenohTransport>,
    cluster: String,
    /// The addresses of `cluster.peers`.
    peer_addresses: Json,
    node: String,
    run_dir: RunDir,
    clock: Arc<dyn Clock>,
    revocations: RevocationFile,
    state: ClusterState,
    subscribed: SubscribedSegments,
    is_over: Arc<AtomicBool>,
}

/// The segments to which other nodes subscribe.
type SubscribedSegments = Arc<Mutex<Vec<Arc<SegmentReader>>>>;

impl FabricShell {
    fn run(mut self) {
        let (mut published_ns, mut published) = (i64::MIN, 0);
        let mut subscriptions = 0;
        while !self.is_over.load(Ordering::Acquire) {
            let now_ns = self.clock.now_ns();
            self.desk.step(&mut self.fabric, &mut self.insights, now_ns);
            let insights_ns = self.insights.step(&mut self.fabric, now_ns);
            if let Some(agreement) = &self.agreement {
                agreement.step(&mut self.fabric);
            }
            let deadline_ns = self.fabric.step(now_ns).min(insights_ns);
            if self.fabric.subscriptions() != subscriptions {
                subscriptions = self.fabric.subscriptions();
                *lock(&self.subscribed) = self.fabric.subscribed();
            }
            let has_changed = self.fabric.changes() != published;
            let pause_ns = if has_changed {
                PUBLISH_NS_MIN
            } else {
                NS_PER_S
            };
            if now_ns.abs_diff(published_ns) >= pause_ns as u64 {
                (published_ns, published) = (now_ns, self.fabric.changes());
                self.revocations.sync(self.fabric.transport());
                self.publish();
            }
            if let Some(event) = self.fabric.transport().receive(deadline_ns) {
                self.fabric.take_in(event, self.clock.now_ns());
            }
        }
        self.fabric.leave();
    }

    fn publish(&mut self) {
        let (peers, status) = (self.fabric.peers(), self.fabric.status());
        publish(&self.run_dir, PEERS_DOCUMENT, &json!(peers));
        let subscribers = json!(self.fabric.sent_to());
        publish(&self.run_dir, SUBSCRIBERS_DOCUMENT, &subscribers);
        let mut cluster = json!(status);
        self.state.set(peers, status);
        cluster["cluster"] = json!(self.cluster);
        cluster["node"] = json!(self.node);
        cluster["peer_addresses"] = self.peer_addresses.clone();
        cluster["insights_refused"] = json!(self.insights.refused());
        cluster["watches_refused"] = json!(self.insights.watches_refused());
        if let Some(agreement) = &self.agreement {
            let status = agreement.status();
            cluster["leader"] = json!(status.leader);
            cluster["leader_term"] = json!(status.term);
            cluster["leader_fault"] = json!(status.fault);
            cluster["nodes_led"] = json!(status.nodes);
            cluster["words_dropped"] = json!(agreement.dropped());
            cluster["words_refused"] = json!(status.refused);
        }
        let transport = self.fabric.transport();
        cluster["certificate_expires_ts"] = json!(transport.certificate_expires_ns());
        cluster["fault"] = json!(transport.own_fault());
        publish(&self.run_dir, CLUSTER_DOCUMENT, &cluster);
    }
}

/// The thread that wakes the fabric when this node's streams have changed and somebody subscribes
/// to them.
struct News {
    waker: ZenohWaker,
    subscribed: SubscribedSegments,
    is_over: Arc<AtomicBool>,
}

impl News {
    #[expect(
        clippy::disallowed_methods,
        reason = "a shell: it waits for the segment, and between two wakes"
    )]
    fn run(self) {
        while !self.is_over.load(Ordering::Acquire) {
            let subscribed = lock(&self.subscribed).clone();
            if subscribed.is_empty() {
                std::thread::sleep(NEWS_WAIT);
                continue;
            }
            let seen = SegmentTicks::of(&subscribed);
            self.waker.wake();
            std::thread::sleep(NEWS_PAUSE);
            seen.wait(NEWS_WAIT);
        }
    }
}

/// Nothing that holds the lock can leave half a list behind.
fn lock(subscribed: &SubscribedSegments) -> MutexGuard<'_, Vec<Arc<SegmentReader>>> {
    subscribed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the documents of a node that is in no cluster.
fn publish_alone(run_dir: &RunDir) {
    publish(run_dir, CLUSTER_DOCUMENT, &Json::Null);
    for name in [
        PEERS_DOCUMENT,
        SUBSCRIBERS_DOCUMENT,
        CLUSTER_INSIGHTS_DOCUMENT,
    ] {
        publish(run_dir, name, &json!([]));
    }
}

fn publish(run_dir: &RunDir, name: &str, document: &Json) {
    if let Err(error) = run_dir.publish(name, document.to_string().as_bytes(), 0o644) {
        warn!(%error, name, "a document is not written");
    }
}
