//! The transport over zenoh. No other file knows zenoh.
//!
//! A node declares a liveliness token whose key is its hello, and subscribes to the messages whose
//! key names it. Zenoh's callbacks only put what has come into the roster.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S};
use ring::rand::{SecureRandom as _, SystemRandom};
use zenoh::Wait as _;
use zenoh::liveliness::LivelinessToken;
use zenoh::pubsub::Subscriber;
use zenoh::qos::CongestionControl;
use zenoh::sample::SampleKind;

use super::keys::{ROOT, message_key};
use super::network::{ZenohConfig, ZenohFault, network_of};
use super::roster::{DATA, PING, PONG, REVOKED, Roster, Security};
use super::{
    Hello, Peer, Refusal, SendFault, Transport, TransportCounts, TransportEvent, check_name,
};
use crate::frame::FRAME_BYTES_MAX;
use crate::security::{Channel, Credentials, Identity, Verifier};

/// Time between two measurements of round-trip times, in ns.
const PING_NS: i64 = NS_PER_S;
/// Most nodes whose round-trip time is measured at a time. Of more, each has its turn: otherwise
/// the pings of a large cluster would be most of its messages.
const PINGED_MAX: usize = 8;
/// Number of times that a node whose certificate was revoked is told so, at intervals of
/// [`PING_NS`]: a link that has just broken, or is busy, loses messages.
const FAREWELLS: u32 = 5;

/// A node's end of a zenoh network. The node leaves when it is dropped.
pub struct ZenohTransport {
    /// `None` while a new session could not be opened.
    session: Option<Session>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    config: ZenohConfig,
    /// Time of the next ping, in ns of the monotonic clock.
    ping_ns: i64,
    /// Number of nodes that were pinged so far.
    pinged: usize,
    /// Whether the session must be opened again, because certificates were revoked.
    is_outdated: bool,
    /// The nodes that are still told that their certificates were revoked, and the channels to
    /// them.
    dismissed: Vec<(Arc<str>, Arc<Channel>)>,
    /// Number of times that they are still to be told.
    farewells_left: u32,
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
#[derive(Debug)]
struct Shared {
    roster: Mutex<Roster>,
    news: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session of zenoh, and what this node has declared in it.
struct Session {
    session: zenoh::Session,
    _messages: Subscriber<()>,
    _hellos: Subscriber<()>,
    _token: LivelinessToken,
}

impl Session {
    fn open(
        config: &ZenohConfig,
        shared: &Arc<Shared>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ZenohFault> {
        let (own_key, revoked) = {
            let mut roster = shared.lock();
            let own_key = roster.own_key();
            let security = roster.security();
            let revoked = security.map(|security| security.verifier.revoked_serials().to_vec());
            (own_key, revoked.unwrap_or_default())
        };
        let network = network_of(config, &revoked)?;
        let network = zenoh::Config::from_json5(&network).map_err(told)?;
        let session = zenoh::open(network).wait().map_err(told)?;
        let (to, read) = (Arc::clone(shared), Arc::clone(clock));
        let hellos = session
            .liveliness()
            .declare_subscriber(format!("{ROOT}/node/**"))
            .history(true)
            .callback(move |sample| {
                let key = sample.key_expr().as_str();
                match sample.kind() {
                    SampleKind::Put => to.lock().came(key, read.now_ns()),
                    SampleKind::Delete => to.lock().went(key),
                }
                to.news.notify_one();
            })
            .wait()
            .map_err(told)?;
        let (to, read) = (Arc::clone(shared), Arc::clone(clock));
        let Hello { cluster, node, .. } = &config.hello;
        let messages = session
            .declare_subscriber(format!("{ROOT}/to/{cluster}/{node}/*/*/*"))
            .callback(move |sample| {
                let (key, bytes) = (sample.key_expr().as_str(), sample.payload().to_bytes());
                to.lock().message(key, &bytes, read.monotonic_ns());
                to.news.notify_one();
            })
            .wait()
            .map_err(told)?;
        let token = session.liveliness().declare_token(own_key);
        let token = token.wait().map_err(told)?;
        Ok(Self {
            session,
            _messages: messages,
            _hellos: hellos,
            _token: token,
        })
    }
}

impl ZenohTransport {
    /// Joins the cluster. It waits for the addresses to listen at, and for no other node.
    pub fn open(config: &ZenohConfig, clock: Arc<dyn Clock>) -> Result<Self, ZenohFault> {
        let hello = config.hello.clone();
        check_name(&hello.cluster)?;
        check_name(&hello.node)?;
        let security = config.credentials.as_ref();
        let security = security.map(|credentials| secured(config, credentials, clock.now_ns()));
        let shared = Arc::new(Shared {
            roster: Mutex::new(Roster::new(hello, security.transpose()?)),
            news: Condvar::new(),
        });
        Ok(Self {
            session: Some(Session::open(config, &shared, &clock)?),
            shared,
            ping_ns: clock.monotonic_ns(),
            pinged: 0,
            clock,
            config: config.clone(),
            is_outdated: false,
            dismissed: Vec::new(),
            farewells_left: 0,
        })
    }

    /// Handle that ends a wait in [`Transport::receive`], from any thread.
    pub fn waker(&self) -> ZenohWaker {
        ZenohWaker(Arc::clone(&self.shared))
    }

    /// Takes a list of revoked certificates, if it is the authority's and newer than the last one.
    /// The nodes of these certificates are dismissed, and all others are sent the list. Returns
    /// whether it was taken.
    pub fn revoke(&mut self, list: &[u8]) -> bool {
        let now_ns = self.clock.now_ns();
        let mut roster = self.shared.lock();
        let security = roster.security();
        if !security.is_some_and(|security| security.verifier.revoke(list, now_ns)) {
            return false;
        }
        let fallen = roster.fallen(now_ns);
        let channels = fallen.iter().filter_map(|(node, _)| {
            let channel = roster.channel(node)??;
            Some((Arc::clone(node), channel))
        });
        self.dismissed.extend(channels);
        drop(roster);
        self.dismiss(fallen);
        self.farewells_left = FAREWELLS;
        self.bid_farewell();
        self.is_outdated = true;
        true
    }

    /// Tells nodes that their certificates were revoked, so that their administrators learn why. It
    /// is the last that they hear of this node.
    fn bid_farewell(&mut self) {
        if let Some(list) = self.revocation_list() {
            for (node, channel) in &self.dismissed {
                let _ = self.put_through(Some(channel), node, REVOKED, list.to_vec());
            }
        }
        self.farewells_left = self.farewells_left.saturating_sub(1);
        if self.farewells_left == 0 {
            self.dismissed.clear();
        }
    }

    /// The newest list of revoked certificates.
    pub fn revocation_list(&self) -> Option<Arc<[u8]>> {
        let mut roster = self.shared.lock();
        roster.security()?.verifier.revocation_list()
    }

    /// Time at which this node's certificate expires, ns since the epoch; `None` if it has none.
    pub fn certificate_expires_ns(&self) -> Option<i64> {
        self.shared.lock().security()?.verifier.own_expires_ns()
    }

    /// The reason why other nodes do not believe this one, if its certificate no longer holds.
    pub fn own_fault(&self) -> Option<String> {
        let now_ns = self.clock.now_ns();
        let mut roster = self.shared.lock();
        let fault = roster.security()?.verifier.own_fault(now_ns)?;
        Some(format!("other nodes do not work with this one: {fault}"))
    }

    /// Sends a message, sealed if this node has certificates.
    fn put(&self, to: &str, kind: &str, message: Vec<u8>) -> Result<(), SendFault> {
        let channel = self.shared.lock().channel(to).ok_or(SendFault::Unknown)?;
        self.put_through(channel.as_deref(), to, kind, message)
    }

    /// Sends a message through this channel.
    fn put_through(
        &self,
        channel: Option<&Channel>,
        to: &str,
        kind: &str,
        message: Vec<u8>,
    ) -> Result<(), SendFault> {
        let session = self.session.as_ref().ok_or(SendFault::Unknown)?;
        let bytes = match channel {
            Some(channel) => channel.seal(kind, &message).ok_or(SendFault::Unknown)?,
            None => message,
        };
        let key = message_key(&self.config.hello, to, kind);
        let put = session.session.put(key, bytes);
        // Zenoh waits for a link at most for a few milliseconds, and drops the message then.
        let put = put.congestion_control(CongestionControl::Drop);
        put.wait().map_err(|_| SendFault::Unknown)
    }

    /// Does what is due beside messages: answers pings, sends those that are due, reads lists of
    /// revoked certificates, and dismisses nodes whose certificates have expired.
    fn tend(&mut self) {
        let (pings, lists) = {
            let mut roster = self.shared.lock();
            let pings = std::mem::take(&mut roster.pings);
            (pings, std::mem::take(&mut roster.lists))
        };
        for list in lists {
            self.revoke(&list);
        }
        let own_list = self.list_number();
        for ping in pings {
            let _ = self.put(&ping.from, PONG, ping.sent.to_vec());
            let newer = self.revocation_list().filter(|_| ping.list < own_list);
            if let Some(list) = newer {
                let _ = self.put(&ping.from, REVOKED, list.to_vec());
            }
        }
        let now_ns = self.clock.monotonic_ns();
        if now_ns < self.ping_ns {
            return;
        }
        self.ping_ns = now_ns.saturating_add(PING_NS);
        self.renew();
        let fallen = self.shared.lock().fallen(self.clock.now_ns());
        self.dismiss(fallen);
        let peers: Vec<Peer> = self.shared.lock().peers().collect();
        let ping = [now_ns.to_le_bytes(), own_list.to_le_bytes()].concat();
        for peer in turn(&peers, self.pinged) {
            let _ = self.put(&peer.node, PING, ping.clone());
            self.pinged = self.pinged.wrapping_add(1);
        }
    }

    /// Opens the session again if certificates were revoked: access control is decided when a
    /// session begins. It is tried until it succeeds. The nodes of these certificates are told so
    /// before, since nothing reaches them afterwards.
    fn renew(&mut self) {
        if self.session.is_some() && !self.dismissed.is_empty() {
            self.bid_farewell();
            return;
        }
        if !self.is_outdated && self.session.is_some() {
            return;
        }
        self.session = None;
        self.shared.lock().clear();
        self.session = Session::open(&self.config, &self.shared, &self.clock).ok();
        self.is_outdated = false;
    }

    fn dismiss(&self, fallen: Vec<(Arc<str>, crate::security::ProofFault)>) {
        let mut roster = self.shared.lock();
        for (node, fault) in fallen {
            roster.dismiss(&node, fault);
        }
    }

    /// Number of the newest list of revoked certificates; 0 if there is none.
    fn list_number(&self) -> u64 {
        let mut roster = self.shared.lock();
        let security = roster.security();
        let number = security.and_then(|security| security.verifier.revocation_number());
        number.unwrap_or_default()
    }
}

impl Transport for ZenohTransport {
    fn send(&mut self, to: &str, message: Vec<u8>) -> Result<(), SendFault> {
        let result = match message.len() {
            bytes if bytes > FRAME_BYTES_MAX => Err(SendFault::Large),
            _ => self.put(to, DATA, message),
        };
        let mut roster = self.shared.lock();
        match result {
            Ok(()) => roster.inbox.counts.sent += 1,
            Err(_) => roster.inbox.counts.unsent += 1,
        }
        result
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the trait says that this waits for the next event"
    )]
    fn receive(&mut self, deadline_ns: i64) -> Option<TransportEvent> {
        loop {
            self.tend();
            let until_ping_ns = self.ping_ns.saturating_sub(self.clock.monotonic_ns());
            let mut roster = self.shared.lock();
            if let Some(event) = roster.inbox.next() {
                return Some(event);
            }
            let left_ns = deadline_ns.saturating_sub(self.clock.now_ns());
            if left_ns <= 0 {
                return None;
            }
            if std::mem::take(&mut roster.is_woken) {
                return None;
            }
            if roster.pings.is_empty() && roster.lists.is_empty() {
                let wait_ns = left_ns.min(until_ping_ns).max(0);
                let wait = Duration::from_nanos(wait_ns.unsigned_abs());
                let woken = self.shared.news.wait_timeout(roster, wait);
                drop(woken.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn peers(&self) -> Vec<Peer> {
        self.shared.lock().peers().collect()
    }

    fn refusals(&self) -> Vec<Refusal> {
        self.shared.lock().refusals().cloned().collect()
    }

    fn counts(&self) -> TransportCounts {
        self.shared.lock().inbox.counts
    }
}

/// The nodes whose turn it is to be pinged, after so many.
fn turn<T>(all: &[T], pinged: usize) -> impl Iterator<Item = &T> {
    let first = pinged.checked_rem(all.len()).unwrap_or_default();
    all.iter()
        .cycle()
        .skip(first)
        .take(all.len().min(PINGED_MAX))
}

/// Proofs that this life of a node makes and checks.
fn secured(
    config: &ZenohConfig,
    credentials: &Credentials,
    now_ns: i64,
) -> Result<Security, ZenohFault> {
    let mut random = [0; 32];
    let filled = SystemRandom::new().fill(&mut random);
    filled.map_err(|_| ZenohFault::Random)?;
    let mut verifier = Verifier::new(credentials, now_ns)?;
    if let Some(list) = &config.revocation_list {
        verifier.revoke(list, now_ns);
    }
    Ok(Security {
        identity: Identity::new(credentials, &config.hello.write(), random),
        verifier,
    })
}

fn told(error: zenoh::Error) -> ZenohFault {
    ZenohFault::Zenoh(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_nodes_each_has_its_turn() {
        assert_eq!(turn::<usize>(&[], 7).count(), 0);
        assert_eq!(turn(&[1, 2, 3], 4).collect::<Vec<_>>(), [&2, &3, &1]);
        let many: Vec<usize> = (0..PINGED_MAX * 2 + 5).collect();
        let mut pinged = Vec::new();
        for _ in 0..3 {
            pinged.extend(turn(&many, pinged.len()).copied());
        }
        assert_eq!(pinged.len(), 3 * PINGED_MAX);
        pinged.sort_unstable();
        pinged.dedup();
        assert_eq!(pinged, many);
    }
}
