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
use zenoh::query::{ConsolidationMode, QueryTarget, Queryable};
use zenoh::sample::SampleKind;

use super::keys::{ROOT, list_key, message_key};
use super::network::{ZenohConfig, ZenohFault, network_of};
use super::redial::Redial;
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
/// Time between two questions of a node that knows no other for the list of revoked certificates,
/// in ns.
const QUESTION_NS: i64 = 5 * NS_PER_S;
/// Most of these questions that are answered between two pings. Who gets no answer asks again.
const ANSWERS_MAX: u32 = 16;
/// Longest wait for answers to such a question.
const ANSWER_MAX: Duration = Duration::from_secs(5);

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
    /// Time at which the session must be opened again, because certificates were revoked, in ns of
    /// the monotonic clock.
    renew_ns: Option<i64>,
    /// Time of the next question for the list of revoked certificates, in ns of the monotonic
    /// clock.
    question_ns: i64,
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
    _list: Option<Queryable<()>>,
    _token: LivelinessToken,
    /// After the session: it closes what the session was in.
    redial: Redial,
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
        let (session, redial) = Redial::open(network).map_err(told)?;
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
        let answering = config.credentials.is_some();
        let list = answering.then(|| answer_for_list(&session, &config.hello, shared));
        let list = list.transpose().map_err(told)?;
        let token = session.liveliness().declare_token(own_key);
        let token = token.wait().map_err(told)?;
        Ok(Self {
            session,
            _messages: messages,
            _hellos: hellos,
            _list: list,
            _token: token,
            redial,
        })
    }
}

/// Answers questions for the list of revoked certificates. It is signed by the authority, and says
/// nothing but which serial numbers do not hold any more: so who is shut out may read it too.
fn answer_for_list(
    session: &zenoh::Session,
    own: &Hello,
    shared: &Arc<Shared>,
) -> Result<Queryable<()>, zenoh::Error> {
    let from = Arc::clone(shared);
    let key = list_key(&own.cluster, &own.node);
    let answered = key.clone();
    let answering = session.declare_queryable(key).callback(move |query| {
        // The lock is not held while the answer goes out: it may come in at this very node.
        let list = from.lock().list_to_answer();
        if let Some(list) = list {
            // An answer that is lost is asked for again.
            let _ = query.reply(answered.as_str(), list.to_vec()).wait();
        }
    });
    answering.wait()
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
            question_ns: clock.monotonic_ns(),
            pinged: 0,
            clock,
            config: config.clone(),
            renew_ns: None,
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
        drop(roster);
        self.dismiss(fallen);
        let renew_ns = self.clock.monotonic_ns().saturating_add(PING_NS);
        self.renew_ns.get_or_insert(renew_ns);
        true
    }

    /// Asks whoever answers for the list of revoked certificates, if this node knows no other: that
    /// is how a node finds that its own certificate was revoked. Nobody works with it any more, and
    /// access control lets nothing but this question through.
    fn ask_for_list(&mut self, now_ns: i64) {
        let is_alone = self.shared.lock().peers().next().is_none();
        let (Some(session), true) = (&self.session, self.config.credentials.is_some()) else {
            return;
        };
        if !is_alone || now_ns < self.question_ns {
            return;
        }
        self.question_ns = now_ns.saturating_add(QUESTION_NS);
        let to = Arc::clone(&self.shared);
        let asked = session
            .session
            .get(list_key(&self.config.hello.cluster, "*"))
            .target(QueryTarget::All)
            .consolidation(ConsolidationMode::None)
            .timeout(ANSWER_MAX)
            .callback(move |reply| {
                if let Ok(sample) = reply.result() {
                    to.lock()
                        .take_list(sample.payload().to_bytes().into_owned());
                    to.news.notify_one();
                }
            })
            .wait();
        // Who is not answered asks again.
        drop(asked);
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
        self.renew(now_ns);
        if let Some(session) = &mut self.session {
            session.redial.tend(&session.session, now_ns);
        }
        self.ask_for_list(now_ns);
        self.shared.lock().answers_left = ANSWERS_MAX;
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
    /// session begins. It is tried until it succeeds.
    fn renew(&mut self, now_ns: i64) {
        if self.session.is_some() && self.renew_ns.is_none_or(|due_ns| now_ns < due_ns) {
            return;
        }
        self.session = None;
        self.shared.lock().clear();
        self.session = Session::open(&self.config, &self.shared, &self.clock).ok();
        self.renew_ns = None;
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
