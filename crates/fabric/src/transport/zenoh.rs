//! The transport over zenoh. No other file knows zenoh.
//!
//! A node declares a liveliness token whose key is its hello, and subscribes to the messages whose
//! key names it. Zenoh's callbacks only put what has come into the inbox.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_MS, NS_PER_S};
use barograph_stream::Incarnation;
use serde_json::json;
use thiserror::Error;
use zenoh::Wait as _;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::qos::CongestionControl;
use zenoh::sample::{Sample, SampleKind};

use super::inbox::Inbox;
use super::{
    Hello, HelloFault, Peer, Refusal, SendFault, Transport, TransportCounts, TransportEvent,
    check_name,
};
use crate::frame::FRAME_BYTES_MAX;

/// First word of all keys.
const ROOT: &str = "barograph";
/// Most nodes that are known at a time.
const NODES_MAX: usize = 16_384;
/// Time between two measurements of round-trip times, in ns.
const PING_NS: i64 = NS_PER_S;
/// Most hellos that are remembered of nodes with the same name.
const NAMESAKES_MAX: usize = 16;
/// Most pings that wait to be answered.
const PINGS_MAX: usize = 4_096;
/// Batches of 64 KiB that may wait for one link, the most that zenoh allows.
const QUEUE_BATCHES: usize = 16;
/// Longer round trips are not believed, in ns.
const ROUND_TRIP_NS_MAX: i64 = 60 * NS_PER_S;
/// Kinds of messages, as a word of their keys.
const DATA: &str = "data";
const PING: &str = "ping";
const PONG: &str = "pong";

/// How a node takes part in a cluster.
#[derive(Clone, Debug)]
pub struct ZenohConfig {
    /// What the node says of itself.
    pub hello: Hello,
    /// Addresses, such as `127.0.0.1:7447`, at which other nodes reach this one.
    pub listen: Vec<String>,
    /// Addresses of nodes or of zenoh routers. Those that do not answer are tried again for ever.
    pub peers: Vec<String>,
    /// Time without a sign of life after which a node counts as gone, in ns.
    pub death_ns: i64,
}

/// The reason why a node cannot take part in a cluster.
#[derive(Debug, Error)]
pub enum ZenohFault {
    /// A name breaks the rules of names.
    #[error(transparent)]
    Name(#[from] HelloFault),
    /// An address is not allowed.
    #[error(
        "{address} is no address of this machine, like 127.0.0.1:7447: messages between nodes are \
         not encrypted yet, so they may not leave the machine"
    )]
    Address {
        /// The address.
        address: String,
    },
    /// Zenoh refused.
    #[error("the fabric cannot be opened: {0}")]
    Zenoh(String),
}

/// A node's end of a zenoh network. The node leaves when it is dropped.
pub struct ZenohTransport {
    session: zenoh::Session,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    hello: Hello,
    /// Time of the next ping, in ns of the monotonic clock.
    ping_ns: i64,
    _messages: Subscriber<()>,
    _hellos: Subscriber<()>,
    _token: LivelinessToken,
}

/// Ends the wait of a [`ZenohTransport`] for its next event.
#[derive(Clone, Debug)]
pub struct ZenohWaker(Arc<Shared>);

impl ZenohWaker {
    /// Ends the present wait, or else the next one.
    pub fn wake(&self) {
        self.0.lock().is_woken = true;
        self.0.news.notify_one();
    }
}

/// The state that zenoh's callbacks write.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inbox: Inbox,
    nodes: BTreeMap<Arc<str>, KnownNode>,
    /// Senders of pings that are not answered yet, with the bytes of each.
    pings: Vec<(Arc<str>, Vec<u8>)>,
    /// Whether [`ZenohWaker::wake`] was called since the last wait.
    is_woken: bool,
    /// Hellos of nodes that this one does not work with.
    refused: BTreeMap<String, Refusal>,
}

/// A node with which this one works.
#[derive(Debug)]
struct KnownNode {
    hello: Hello,
    round_trip_ns: Option<i64>,
    /// Hellos of other nodes with the same name, of which the next is taken when this one goes.
    namesakes: Vec<Hello>,
}

impl ZenohTransport {
    /// Joins the cluster. It waits for the addresses to listen at, and for no other node.
    pub fn open(config: &ZenohConfig, clock: Arc<dyn Clock>) -> Result<Self, ZenohFault> {
        let hello = config.hello.clone();
        check_name(&hello.cluster)?;
        check_name(&hello.node)?;
        let session = zenoh::open(zenoh_config(config)?).wait().map_err(told)?;
        let shared = Arc::<Shared>::default();
        let (to, own) = (Arc::clone(&shared), hello.clone());
        let hellos = session
            .liveliness()
            .declare_subscriber(format!("{ROOT}/node/**"))
            .history(true)
            .callback(move |sample| to.hello(&own, &sample))
            .wait()
            .map_err(told)?;
        let (to, read) = (Arc::clone(&shared), Arc::clone(&clock));
        let messages = session
            .declare_subscriber(format!("{ROOT}/to/{}/{}/*/*/*", hello.cluster, hello.node))
            .callback(move |sample| to.message(&sample, read.monotonic_ns()))
            .wait()
            .map_err(told)?;
        let token = session.liveliness().declare_token(key_of(&hello));
        let token = token.wait().map_err(told)?;
        Ok(Self {
            session,
            shared,
            ping_ns: clock.monotonic_ns(),
            clock,
            hello,
            _messages: messages,
            _hellos: hellos,
            _token: token,
        })
    }

    /// What ends a wait in [`Transport::receive`], from any thread.
    pub fn waker(&self) -> ZenohWaker {
        ZenohWaker(Arc::clone(&self.shared))
    }

    fn put(&self, to: &str, kind: &str, bytes: Vec<u8>) -> Result<(), SendFault> {
        let Hello {
            cluster,
            node,
            incarnation,
            ..
        } = &self.hello;
        let key = format!("{ROOT}/to/{cluster}/{to}/{kind}/{node}/{incarnation}");
        let put = self.session.put(key, bytes);
        // Zenoh waits for a link at most for a few milliseconds, and drops the message then.
        let put = put.congestion_control(CongestionControl::Drop);
        put.wait().map_err(|_| SendFault::Unknown)
    }

    /// Answers pings, and sends those that are due.
    fn ping(&mut self) {
        let pings = std::mem::take(&mut self.shared.lock().pings);
        for (from, bytes) in pings {
            let _ = self.put(&from, PONG, bytes);
        }
        let now_ns = self.clock.monotonic_ns();
        if now_ns < self.ping_ns {
            return;
        }
        self.ping_ns = now_ns.saturating_add(PING_NS);
        let names: Vec<Arc<str>> = self.shared.lock().nodes.keys().cloned().collect();
        for name in names {
            let _ = self.put(&name, PING, now_ns.to_le_bytes().to_vec());
        }
    }
}

impl Transport for ZenohTransport {
    fn send(&mut self, to: &str, message: Vec<u8>) -> Result<(), SendFault> {
        let is_known = self.shared.lock().nodes.contains_key(to);
        let result = match (message.len(), is_known) {
            (bytes, _) if bytes > FRAME_BYTES_MAX => Err(SendFault::Large),
            (_, false) => Err(SendFault::Unknown),
            (_, true) => self.put(to, DATA, message),
        };
        let mut state = self.shared.lock();
        match result {
            Ok(()) => state.inbox.counts.sent += 1,
            Err(_) => state.inbox.counts.unsent += 1,
        }
        result
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the trait says that this waits for the next event"
    )]
    fn receive(&mut self, deadline_ns: i64) -> Option<TransportEvent> {
        loop {
            self.ping();
            let until_ping_ns = self.ping_ns.saturating_sub(self.clock.monotonic_ns());
            let mut state = self.shared.lock();
            if let Some(event) = state.inbox.next() {
                return Some(event);
            }
            let left_ns = deadline_ns.saturating_sub(self.clock.now_ns());
            if left_ns <= 0 {
                return None;
            }
            if std::mem::take(&mut state.is_woken) {
                return None;
            }
            if state.pings.is_empty() {
                let wait_ns = left_ns.min(until_ping_ns).max(0);
                let wait = Duration::from_nanos(wait_ns.unsigned_abs());
                let woken = self.shared.news.wait_timeout(state, wait);
                drop(woken.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn peers(&self) -> Vec<Peer> {
        let state = self.shared.lock();
        let peer = |(node, known): (&Arc<str>, &KnownNode)| Peer {
            node: Arc::clone(node),
            round_trip_ns: known.round_trip_ns,
        };
        state.nodes.iter().map(peer).collect()
    }

    fn counts(&self) -> TransportCounts {
        self.shared.lock().inbox.counts
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in that a node has come or gone.
    fn hello(&self, own: &Hello, sample: &Sample) {
        let key = sample.key_expr().as_str();
        let Some(hello) = hello_of(key).filter(|hello| hello.incarnation != own.incarnation) else {
            return;
        };
        let mut state = self.lock();
        match (sample.kind(), own.refusal(&hello)) {
            (SampleKind::Put, Some(refusal)) => {
                let is_new = !state.refused.contains_key(key);
                if is_new && state.refused.len() < NODES_MAX {
                    state.refused.insert(key.to_owned(), refusal.clone());
                    state.inbox.report(TransportEvent::Refused(refusal));
                }
            }
            (SampleKind::Put, None) => state.meet(hello),
            (SampleKind::Delete, Some(_)) => drop(state.refused.remove(key)),
            (SampleKind::Delete, None) => state.part(&hello),
        }
        drop(state);
        self.news.notify_one();
    }

    /// Takes in a message that came at `now_ns` of the monotonic clock.
    fn message(&self, sample: &Sample, now_ns: i64) {
        let mut words = sample.key_expr().as_str().rsplit('/');
        let mut word = || words.next().unwrap_or_default();
        let (incarnation, from, kind) = (word(), word(), word());
        let bytes = sample.payload().to_bytes();
        let mut state = self.lock();
        let State {
            inbox,
            nodes,
            pings,
            ..
        } = &mut *state;
        let sender = nodes.get_mut(from).filter(|known| {
            incarnation == known.hello.incarnation.to_string() && bytes.len() <= FRAME_BYTES_MAX
        });
        let Some(known) = sender else {
            inbox.counts.unreceived += 1;
            return;
        };
        let from = Arc::clone(&known.hello.node);
        let time = <[u8; 8]>::try_from(&*bytes).map(i64::from_le_bytes);
        match (kind, time) {
            (DATA, _) => {
                if inbox.take_in(from, bytes.into_owned()).is_err() {
                    inbox.counts.unreceived += 1;
                }
            }
            (PING, Ok(_)) if pings.len() < PINGS_MAX => pings.push((from, bytes.into_owned())),
            (PONG, Ok(sent_ns)) => {
                let took_ns = now_ns.saturating_sub(sent_ns);
                if (0..ROUND_TRIP_NS_MAX).contains(&took_ns) {
                    known.round_trip_ns = Some(took_ns);
                }
            }
            _ => inbox.counts.unreceived += 1,
        }
        drop(state);
        self.news.notify_one();
    }
}

impl State {
    fn meet(&mut self, hello: Hello) {
        let is_full = self.nodes.len() >= NODES_MAX;
        match self.nodes.get_mut(&hello.node) {
            Some(known) if known.hello == hello => {}
            Some(known) => {
                if known.namesakes.len() < NAMESAKES_MAX && !known.namesakes.contains(&hello) {
                    known.namesakes.push(hello);
                }
            }
            None if is_full => self.inbox.counts.events_lost += 1,
            None => {
                let node = Arc::clone(&hello.node);
                let known = KnownNode {
                    hello,
                    round_trip_ns: None,
                    namesakes: Vec::new(),
                };
                self.nodes.insert(Arc::clone(&node), known);
                self.inbox.report(TransportEvent::Appeared(node));
            }
        }
    }

    fn part(&mut self, hello: &Hello) {
        let Some(known) = self.nodes.get_mut(&hello.node) else {
            return;
        };
        if known.hello != *hello {
            known.namesakes.retain(|namesake| namesake != hello);
            return;
        }
        let namesakes = std::mem::take(&mut known.namesakes);
        self.nodes.remove(&hello.node);
        let gone = TransportEvent::Gone(Arc::clone(&hello.node));
        self.inbox.report(gone);
        for namesake in namesakes {
            self.meet(namesake);
        }
    }
}

fn told(error: zenoh::Error) -> ZenohFault {
    ZenohFault::Zenoh(error.to_string())
}

/// The key of the liveliness token of a node.
fn key_of(hello: &Hello) -> String {
    let Hello {
        version,
        incarnation,
        start_ns,
        cluster,
        node,
    } = hello;
    format!("{ROOT}/node/{version}/{cluster}/{node}/{incarnation}/{start_ns}")
}

/// Reads the key of a liveliness token, which any peer may have made.
fn hello_of(key: &str) -> Option<Hello> {
    let rest = key.strip_prefix(ROOT)?.strip_prefix("/node/")?;
    let words: Vec<&str> = rest.split('/').collect();
    let [version, cluster, node, incarnation, start_ns] = words[..] else {
        return None;
    };
    check_name(cluster).ok()?;
    check_name(node).ok()?;
    let number = u128::from_str_radix(incarnation, 16).ok()?;
    let hello = Hello {
        version: version.parse().ok()?,
        incarnation: Incarnation(number.to_be_bytes()),
        start_ns: start_ns.parse().ok()?,
        cluster: cluster.into(),
        node: node.into(),
    };
    (key_of(&hello) == key).then_some(hello)
}

fn zenoh_config(config: &ZenohConfig) -> Result<zenoh::Config, ZenohFault> {
    let lease_ms = (config.death_ns / NS_PER_MS).max(100);
    let text = json!({
        "mode": "peer",
        "listen": {"endpoints": endpoints(&config.listen)?, "exit_on_failure": true, "timeout_ms": 0},
        "connect": {
            "endpoints": endpoints(&config.peers)?,
            "exit_on_failure": false,
            "timeout_ms": -1,
            "retry": {"period_init_ms": 500, "period_max_ms": 4_000, "period_increase_factor": 2},
        },
        "scouting": {
            "multicast": {"enabled": false},
            "gossip": {"enabled": true},
        },
        "adminspace": {"enabled": false},
        "transport": {
            "unicast": {"max_sessions": NODES_MAX},
            "link": {
                "protocols": ["tcp"],
                "tx": {
                    "lease": lease_ms,
                    "keep_alive": 4,
                    "queue": {"size": {"data": QUEUE_BATCHES}},
                },
                "rx": {"max_message_size": 2 * FRAME_BYTES_MAX},
            },
        },
    });
    zenoh::Config::from_json5(&text.to_string()).map_err(told)
}

/// Zenoh's names of these addresses, which must be of this machine.
fn endpoints(addresses: &[String]) -> Result<Vec<String>, ZenohFault> {
    let endpoint = |address: &String| {
        let parsed = address.parse::<SocketAddr>();
        let is_here = parsed.is_ok_and(|parsed| parsed.ip().is_loopback());
        let fault = || ZenohFault::Address {
            address: address.escape_debug().take(128).collect(),
        };
        is_here.then(|| format!("tcp/{address}")).ok_or_else(fault)
    };
    addresses.iter().map(endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_what_hellos_say() {
        let hello = Hello {
            version: 1,
            incarnation: Incarnation([0x0a; 16]),
            start_ns: -7,
            cluster: "rack.1".into(),
            node: "n_1-b".into(),
        };
        let key = key_of(&hello);
        assert_eq!(hello_of(&key), Some(hello));
        let check = |from: &str, to: &str| assert_eq!(hello_of(&key.replace(from, to)), None);
        check("node/1", "node/300");
        check("node/1", "node/01");
        check("0a0a", "0A0A");
        check("/-7", "");
        check("/-7", "/-7/8");
        check("n_1-b", "-b");
        check("barograph", "barometer");
    }

    #[test]
    fn only_addresses_of_this_machine_are_allowed() {
        let check = |address: &str, expect: Option<&str>| {
            let found = endpoints(&[address.to_owned()]).ok();
            let expect = expect.map(|endpoint| vec![endpoint.to_owned()]);
            assert_eq!(found, expect, "{address}");
        };
        check("127.0.0.1:7447", Some("tcp/127.0.0.1:7447"));
        check("[::1]:0", Some("tcp/[::1]:0"));
        check("0.0.0.0:7447", None);
        check("192.168.0.1:7447", None);
        check("node:7447", None);
        check("127.0.0.1:7447#iface=eth0", None);
    }
}
