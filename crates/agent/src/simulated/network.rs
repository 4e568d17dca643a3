//! The network of simulated machines: it loses, doubles and delays messages, and cuts machines off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use barograph_fabric::FabricNode;
use barograph_fabric::transport::{
    HELLO_VERSION, Hello, MemoryNetwork, MemoryTransport, Peer, Refusal, SendFault, Transport,
    TransportCounts, TransportEvent,
};
use barograph_model::{Clock, NS_PER_S};
use barograph_recorder::World;
use barograph_stream::{RunDir, SegmentReader};

use super::Random;
use crate::Config;
use crate::aggregator::NodeHistories;
use crate::node_past::ArchivedPast;

/// Time without a sign of life after which a machine counts as gone, in ns.
const DEATH_NS: i64 = 2 * NS_PER_S;
/// Time until a message can be taken in by its receiver, in ns.
const HOP_NS: i64 = NS_PER_S / 1_000;

/// The faults of a network.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NetworkFaults {
    /// Messages that are lost, in percent.
    pub lost: u64,
    /// Messages that arrive twice, in percent.
    pub doubled: u64,
    /// Longest delay of a message, in ms.
    pub delay_ms_max: u64,
}

/// A network; clones are the same one.
#[derive(Clone)]
pub(crate) struct SimulatedNetwork {
    inner: MemoryNetwork,
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<NetworkState>>,
}

struct NetworkState {
    faults: NetworkFaults,
    /// The machines that are cut off, with the time since which they are, ns since the epoch.
    cut: BTreeMap<String, i64>,
    random: Random,
}

impl SimulatedNetwork {
    pub(crate) fn new(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Self {
            inner: MemoryNetwork::default(),
            clock,
            state: Arc::new(Mutex::new(NetworkState {
                faults: NetworkFaults::default(),
                cut: BTreeMap::new(),
                random: Random(seed),
            })),
        }
    }

    pub(crate) fn set_faults(&self, faults: NetworkFaults) {
        self.state().faults = faults;
    }

    /// Cuts a machine off, or connects it again.
    pub(crate) fn cut(&self, node: &str, is_cut: bool) {
        let now_ns = self.clock.now_ns();
        let mut state = self.state();
        match is_cut {
            true => _ = state.cut.insert(node.to_owned(), now_ns),
            false => _ = state.cut.remove(node),
        }
    }

    /// Adds a machine.
    pub(crate) fn join(&self, hello: Hello) -> FaultyTransport {
        FaultyTransport {
            network: self.clone(),
            node: hello.node.to_string(),
            inner: self.inner.join(hello).unwrap(),
            delayed: Vec::new(),
            running: BTreeSet::new(),
            seen: BTreeSet::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, NetworkState> {
        self.state.lock().unwrap()
    }
}

/// A machine's end of the network.
pub(crate) struct FaultyTransport {
    network: SimulatedNetwork,
    inner: MemoryTransport,
    node: String,
    /// Messages on the way, with the time of their arrival, ns since the epoch.
    delayed: Vec<(i64, String, Vec<u8>)>,
    /// The other machines that run.
    running: BTreeSet<Arc<str>>,
    /// Machines among them that this one knows to be there.
    seen: BTreeSet<Arc<str>>,
}

impl FaultyTransport {
    /// Hands over the delayed messages that arrive by now.
    fn deliver(&mut self) {
        let now_ns = self.network.clock.now_ns();
        let due = self.delayed.extract_if(.., |(at_ns, ..)| *at_ns <= now_ns);
        for (_, to, message) in due {
            // The receiver may have gone.
            let _ = self.inner.send(&to, message);
        }
    }

    /// Time since which messages to this machine are lost, ns since the epoch.
    fn cut_since(&self, other: &str) -> Option<i64> {
        let state = self.network.state();
        let since = [self.node.as_str(), other].map(|node| state.cut.get(node).copied());
        since.into_iter().flatten().min()
    }

    /// Whether a sign of life of this machine came lately.
    fn is_near(&self, other: &str) -> bool {
        let now_ns = self.network.clock.now_ns();
        let since_ns = self.cut_since(other);
        since_ns.is_none_or(|since_ns| now_ns - since_ns < DEATH_NS)
    }

    /// The next machine that has come or gone.
    fn next_change(&mut self) -> Option<TransportEvent> {
        let is_there = |node: &&Arc<str>| self.running.contains(*node) && self.is_near(node);
        if let Some(gone) = self.seen.iter().find(|node| !is_there(node)).cloned() {
            self.seen.remove(&gone);
            return Some(TransportEvent::Gone(gone));
        }
        let mut there = self.running.iter().filter(is_there);
        let appeared = there.find(|node| !self.seen.contains(*node)).cloned()?;
        self.seen.insert(Arc::clone(&appeared));
        Some(TransportEvent::Appeared(appeared))
    }
}

impl Transport for FaultyTransport {
    fn send(&mut self, to: &str, message: Vec<u8>) -> Result<(), SendFault> {
        self.deliver();
        if !self.seen.contains(to) {
            return Err(SendFault::Unknown);
        }
        if self.cut_since(to).is_some() {
            return Ok(());
        }
        let now_ns = self.network.clock.now_ns();
        let mut delays_ns = Vec::new();
        {
            let mut state = self.network.state();
            let NetworkFaults {
                lost,
                doubled,
                delay_ms_max,
            } = state.faults;
            if state.random.below(100) < lost {
                return Ok(());
            }
            let copies = 1 + u64::from(state.random.below(100) < doubled);
            for _ in 0..copies {
                let delay_ms = state.random.below(delay_ms_max + 1) as i64;
                delays_ns.push(delay_ms * NS_PER_S / 1_000);
            }
        }
        for delay_ns in delays_ns {
            match delay_ns {
                0 => self.inner.send(to, message.clone())?,
                _ => self
                    .delayed
                    .push((now_ns + delay_ns, to.to_owned(), message.clone())),
            }
        }
        Ok(())
    }

    fn receive(&mut self, deadline_ns: i64) -> Option<TransportEvent> {
        self.deliver();
        loop {
            if let Some(change) = self.next_change() {
                return Some(change);
            }
            match self.inner.receive(deadline_ns)? {
                TransportEvent::Appeared(node) => drop(self.running.insert(node)),
                TransportEvent::Gone(node) => drop(self.running.remove(&node)),
                TransportEvent::Message { from, .. } if !self.seen.contains(&from) => {}
                event => return Some(event),
            }
        }
    }

    fn peers(&self) -> Vec<Peer> {
        let peers = self.inner.peers().into_iter();
        peers.filter(|p| self.seen.contains(&p.node)).collect()
    }

    fn refusals(&self) -> Vec<Refusal> {
        self.inner.refusals()
    }

    fn counts(&self) -> TransportCounts {
        self.inner.counts()
    }
}

/// An agent's part in a simulated cluster.
pub(crate) struct SimulatedFabric {
    pub node: FabricNode<FaultyTransport>,
    clock: Arc<dyn Clock>,
}

impl SimulatedFabric {
    /// Joins the cluster that the configuration names. The agent runs.
    pub(crate) fn join(network: &SimulatedNetwork, config: &Config, world: &World) -> Self {
        let run_dir = RunDir::new(&config.run_dir);
        let segment = Arc::new(SegmentReader::of(&run_dir).unwrap());
        let (incarnation, now_ns) = (segment.incarnation(), world.clock.now_ns());
        let hello = Hello {
            version: HELLO_VERSION,
            incarnation,
            start_ns: now_ns,
            cluster: config.cluster.name.as_str().into(),
            node: config.node.as_str().into(),
        };
        let transport = network.join(hello);
        let cluster = config.cluster.node(&run_dir, incarnation);
        let mut node = FabricNode::new(transport, segment, cluster, now_ns);
        let aggregator = (&config.cluster.aggregator, config.cluster.window_bytes);
        let dirs = (&run_dir, config.state_dir.as_path());
        let histories = NodeHistories::of(aggregator, &config.archive, dirs, world);
        if let Some(histories) = histories.unwrap() {
            node.keep_histories(Box::new(histories));
        }
        let dirs = (config.archive.dir.clone(), &run_dir);
        let past = ArchivedPast::new(dirs, &config.node, &world.work, Arc::new(|| ()));
        node.read_past_from(Arc::new(past));
        let clock = Arc::clone(&world.clock);
        Self { node, clock }
    }

    /// Takes in what has come, does what is due, and returns the time of the next step by the
    /// monotonic clock.
    pub(crate) fn step(&mut self) -> i64 {
        step_node(&mut self.node, &*self.clock)
    }

    /// The counts of the fabric.
    pub(crate) fn status(&self) -> barograph_fabric::FabricStatus {
        self.node.status()
    }

    /// Counts of what was sent to each of the other machines.
    pub(crate) fn sent_to(&self) -> Vec<barograph_stream::SubscribersRow> {
        self.node.sent_to()
    }

    /// Rows of the other machines, as the table of peers has them.
    pub(crate) fn peers(&self) -> Vec<barograph_stream::PeersRow> {
        self.node.peers()
    }
}

/// Takes in what has come to a node, does what is due, and returns the time of the next step by the
/// monotonic clock.
pub(crate) fn step_node(node: &mut FabricNode<FaultyTransport>, clock: &dyn Clock) -> i64 {
    // The fabric goes by the wall clock of its machine, and the network by the time of the
    // simulation.
    let (now_ns, monotonic_ns) = (clock.now_ns(), clock.monotonic_ns());
    let sent = node.transport().counts().sent;
    while let Some(event) = node.transport().receive(now_ns) {
        node.take_in(event, now_ns);
    }
    let wait_ns = node.step(now_ns).saturating_sub(now_ns);
    let transport = node.transport();
    let delayed = transport.delayed.iter().map(|(at_ns, ..)| *at_ns).min();
    let has_sent = transport.counts().sent > sent;
    // The others are to have a look.
    let answer_ns = if has_sent {
        monotonic_ns + HOP_NS
    } else {
        i64::MAX
    };
    let deadline_ns = monotonic_ns.saturating_add(wait_ns);
    let next_ns = deadline_ns.min(answer_ns).min(delayed.unwrap_or(i64::MAX));
    next_ns.max(monotonic_ns + HOP_NS)
}
