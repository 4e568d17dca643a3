//! Round-trip times to other nodes: the time of a TCP connect and of an ICMP echo, only to the
//! peers that the configuration names.
//!
//! Documents: `connect(2)` on nonblocking sockets, RFC 792 and RFC 4443 for echo, `icmp(7)`
//! (`ping_group_range`) for echo without privilege.
//!
//! A refused connection is an answer: the host is up, only the service is not. All peers are asked
//! at once and independently; names are looked up on another thread, from time to time.

mod address;
mod icmp;
mod probe;
mod resolve;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use barograph_model::NS_PER_S;
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::{FactSet, facts, int};
use crate::report::counted;
use crate::util::faults::Faults;
use crate::util::file::SysRoot;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use address::{Host, PeerAddress};
use probe::{PeerTarget, ProbeOutcome};
use resolve::Resolver;

/// Most peers that are asked.
const PEERS_MAX: usize = 256;
/// Longest name of a peer, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// After this many questions without an answer, the last round-trip time no longer counts.
const UNANSWERED_MAX: u64 = 3;
/// Greatest timeout: a poll must end before its source counts as hung.
const TIMEOUT_MS_MAX: u64 = 4000;

/// The configuration of the source `peer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PeerConfig {
    /// The peers; at most 256. Nothing is sent to anything else.
    pub peers: Vec<Peer>,
    /// The ways in which the peers are asked: `tcp` those that have a port, `icmp` if the system
    /// permits it to the agent.
    pub methods: Vec<PeerMethod>,
    /// Milliseconds after which a peer that has not answered counts as unreachable; at most 4000.
    pub timeout_ms: u64,
}

impl Default for PeerConfig {
    fn default() -> Self {
        Self {
            peers: Vec::new(),
            methods: vec![PeerMethod::Tcp, PeerMethod::Icmp],
            timeout_ms: 2000,
        }
    }
}

/// One peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Peer {
    /// The name of the peer; the label `peer` of its streams.
    pub name: String,
    /// Name or address of the host, with a port for TCP: `10.0.0.2:22`, `[fd00::2]:22`, `node2`.
    pub address: String,
}

/// A way to ask a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PeerMethod {
    /// A TCP connection, closed as soon as it is established.
    Tcp,
    /// An ICMP echo request.
    Icmp,
}

impl PeerMethod {
    fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Icmp => "icmp",
        }
    }
}

impl PeerConfig {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// The key of the first invalid value, and the reason.
    pub(crate) fn validate(&self) -> Result<(), SourceError> {
        let fault = |key: &str, reason: String| {
            Err(SourceError::Config {
                key: format!("peer.{key}"),
                reason,
            })
        };
        if self.peers.len() > PEERS_MAX {
            return fault("peers", format!("has more than {PEERS_MAX} peers"));
        }
        if !(1..=TIMEOUT_MS_MAX).contains(&self.timeout_ms) {
            let reason = format!("is not between 1 and {TIMEOUT_MS_MAX} milliseconds");
            return fault("timeout_ms", reason);
        }
        if self.methods.is_empty() {
            return fault("methods", "is empty, name tcp, icmp or both".to_owned());
        }
        let mut names = BTreeSet::new();
        for Peer { name, address } in &self.peers {
            if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
                let reason = format!("{name:?} is not a name of 1 to {NAME_BYTES_MAX} bytes");
                return fault("peers.name", reason);
            }
            if !names.insert(name) {
                return fault("peers.name", format!("{name:?} is there twice"));
            }
            let parsed = match PeerAddress::parse(address) {
                Ok(parsed) => parsed,
                Err(why) => return fault("peers.address", format!("{address:?} {why}")),
            };
            if parsed.port.is_none() && !self.methods.contains(&PeerMethod::Icmp) {
                let reason = format!("{address:?} has no port, which tcp needs: {address}:22");
                return fault("peers.address", reason);
            }
        }
        Ok(())
    }
}

facts! {
    /// Facts of one way to one peer.
    pub(crate) enum Fact in "peer" {
        RoundTrip: Gauge Float "round_trip.seconds" "seconds" "Time from the question to the peer's answer.";
        Reachable: State Bool "reachable.flag" "flag" "Whether the peer answered in time; a refused connection counts as an answer.";
        Failures: Counter Int "failures.count" "count" "Questions that the peer did not answer in time, since the agent began.";
    }
}

/// The source `peer`.
pub struct Peers {
    is_real: bool,
    ways: Vec<Way>,
    timeout: Duration,
    resolver: Resolver,
    unnameable: Vec<MissingPart>,
}

/// One way to one peer.
struct Way {
    peer: String,
    method: PeerMethod,
    address: PeerAddress,
    /// The index of the host's name in the resolver, if the host is given by name.
    name: Option<usize>,
    facts: FactSet<Fact>,
    failures: u64,
    /// Failures since the last answer.
    unanswered: u64,
    newest: Newest,
}

/// The result of the newest question.
#[derive(Clone, Debug)]
enum Newest {
    NotAsked,
    Answered,
    Silent,
    Unreachable(Errno),
    /// The question could not be sent.
    Ours(Errno),
    Unresolved(String),
}

impl Peers {
    /// Creates the source for the configured peers.
    pub fn new(sys_root: &Path, config: &PeerConfig) -> Self {
        Self::with_look_up(sys_root, config, resolve::system())
    }

    /// Creates the source with another function for looking up names, such as one that hangs.
    fn with_look_up(sys_root: &Path, config: &PeerConfig, look_up: resolve::LookUp) -> Self {
        let PeerConfig {
            peers,
            methods,
            timeout_ms,
        } = config;
        let mut resolver = Resolver::new(look_up);
        let mut ways = Vec::new();
        let mut unnameable = Vec::new();
        for peer in peers.iter().take(PEERS_MAX) {
            // The configuration was validated before; an invalid peer is not asked.
            let Ok(address) = PeerAddress::parse(&peer.address) else {
                continue;
            };
            let name = match &address.host {
                Host::Name(name) => Some(resolver.add(name)),
                Host::Ip(_) => None,
            };
            for method in [PeerMethod::Tcp, PeerMethod::Icmp] {
                if !methods.contains(&method)
                    || (method == PeerMethod::Tcp && address.port.is_none())
                {
                    continue;
                }
                let labels = [
                    ("peer", peer.name.clone()),
                    ("method", method.as_str().to_owned()),
                ];
                match FactSet::labelled(labels) {
                    Ok(facts) => ways.push(Way {
                        peer: peer.name.clone(),
                        method,
                        address: address.clone(),
                        name,
                        facts,
                        failures: 0,
                        unanswered: 0,
                        newest: Newest::NotAsked,
                    }),
                    Err(fault) => unnameable.push(MissingPart::new(
                        format!("peer {}", peer.name),
                        fault.to_string(),
                        "give it a shorter name",
                    )),
                }
            }
        }
        Self {
            is_real: SysRoot::new(sys_root).is_real(),
            ways,
            timeout: Duration::from_millis((*timeout_ms).clamp(1, TIMEOUT_MS_MAX)),
            resolver,
            unnameable,
        }
    }
}

impl Source for Peers {
    fn name(&self) -> &'static str {
        "peer"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        if !self.is_real || self.ways.is_empty() {
            return Ok(());
        }
        self.resolver.refresh(batch.monotonic_ns());
        let mut asked = Vec::new();
        let mut targets = Vec::new();
        for (place, way) in self.ways.iter_mut().enumerate() {
            match way.target(&self.resolver) {
                Ok(target) => {
                    asked.push(place);
                    targets.push(target);
                }
                Err(newest) => way.newest = newest,
            }
        }
        let mut faults = Faults::default();
        let round = probe::round(&targets, self.timeout).map_err(|errno| SourceError::Format {
            what: "asking the peers".to_owned(),
            reason: std::io::Error::from(errno).to_string(),
        });
        for (place, outcome) in asked
            .into_iter()
            .zip(faults.take(round).unwrap_or_default())
        {
            self.ways[place].put(now_ns, batch, outcome);
        }
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        self.ways.is_empty() && self.unnameable.is_empty()
    }

    fn report(&self) -> SourceCoverage {
        let names: BTreeSet<_> = self.ways.iter().map(|way| &*way.peer).collect();
        let mut missing = self.unnameable.clone();
        if names.is_empty() {
            missing.push(MissingPart::new(
                "round-trip times",
                "no peers are configured",
                "name some: [sources.peer] peers = [{ name = \"node2\", address = \"10.0.0.2:22\" }]",
            ));
            let sees = "no peers".to_owned();
            return SourceCoverage { sees, missing };
        }
        if !self.is_real {
            missing.push(MissingPart::new(
                "round-trip times",
                "below another root nothing is sent",
                "set sources.sys_root to /",
            ));
        }
        missing.extend(self.missing_icmp());
        missing.extend(self.ways.iter().filter_map(Way::missing));
        let is_answered = |way: &&Way| matches!(way.newest, Newest::Answered);
        let answered = self.ways.iter().filter(is_answered).map(|way| &*way.peer);
        let answered: BTreeSet<_> = answered.collect();
        SourceCoverage {
            sees: format!(
                "{}, of which {} answered",
                counted(names.len(), "peer"),
                answered.len()
            ),
            missing,
        }
    }
}

impl Peers {
    /// The report's line for all peers at once, since the reason does not depend on the peer.
    fn missing_icmp(&self) -> Option<MissingPart> {
        let errno = self.ways.iter().find_map(Way::icmp_denied)?;
        Some(MissingPart::new(
            "round-trip times of ICMP echo",
            format!(
                "the agent may open no such socket: {}",
                std::io::Error::from(errno)
            ),
            "set net.ipv4.ping_group_range to the agent's group (sysctl), or leave icmp out of sources.peer.methods",
        ))
    }
}

impl Way {
    fn target(&self, resolver: &Resolver) -> Result<PeerTarget, Newest> {
        let ip = match (&self.address.host, self.name) {
            (Host::Ip(ip), _) => *ip,
            (Host::Name(_), Some(name)) => match resolver.address(name) {
                Some(Ok(ip)) => SocketAddr::new(ip, 0),
                Some(Err(why)) => return Err(Newest::Unresolved(why)),
                None => return Err(Newest::NotAsked),
            },
            (Host::Name(_), None) => return Err(Newest::NotAsked),
        };
        let mut address = ip;
        address.set_port(
            self.address
                .port
                .filter(|_| self.method == PeerMethod::Tcp)
                .unwrap_or(0),
        );
        Ok(PeerTarget {
            method: self.method,
            address,
        })
    }

    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, outcome: ProbeOutcome) {
        let (newest, round_trip) = match outcome {
            ProbeOutcome::Answered(time) => (Newest::Answered, Some(time.as_secs_f64())),
            ProbeOutcome::Silent => (Newest::Silent, None),
            ProbeOutcome::Unreachable(errno) => (Newest::Unreachable(errno), None),
            ProbeOutcome::Ours(errno) => (Newest::Ours(errno), None),
        };
        self.newest = newest;
        // A question that could not be sent says nothing about the peer.
        if matches!(outcome, ProbeOutcome::Ours(_)) {
            return;
        }
        match round_trip {
            Some(seconds) => {
                self.unanswered = 0;
                self.facts.measured(batch, now_ns, Fact::RoundTrip, seconds);
            }
            None => {
                self.failures += 1;
                self.unanswered += 1;
            }
        }
        if self.unanswered == UNANSWERED_MAX {
            self.facts.retire_one(batch, Fact::RoundTrip);
        }
        let reachable = round_trip.is_some();
        self.facts
            .measured(batch, now_ns, Fact::Reachable, reachable);
        self.facts
            .measured(batch, now_ns, Fact::Failures, int(self.failures));
    }

    /// The error if this system does not permit the agent to send an echo.
    fn icmp_denied(&self) -> Option<Errno> {
        match (self.method, &self.newest) {
            (PeerMethod::Icmp, Newest::Ours(errno)) if probe::is_denied(*errno) => Some(*errno),
            _ => None,
        }
    }

    fn missing(&self) -> Option<MissingPart> {
        let (why, remedy) = match &self.newest {
            Newest::NotAsked | Newest::Answered => return None,
            Newest::Ours(_) if self.icmp_denied().is_some() => return None,
            Newest::Silent => (
                "it did not answer in time".to_owned(),
                "look at the peer, and at firewalls between",
            ),
            Newest::Unreachable(errno) => (
                std::io::Error::from(*errno).to_string(),
                "look at the peer, and at the routes to it",
            ),
            Newest::Ours(errno) => (
                std::io::Error::from(*errno).to_string(),
                "let the agent out: IPAddressAllow= and LimitNOFILE= of its unit, firewalls here",
            ),
            Newest::Unresolved(why) => (
                why.clone(),
                "correct its address in sources.peer.peers, or the name service",
            ),
        };
        let what = format!("{} to {}", self.method.as_str(), self.peer);
        Some(MissingPart::new(what, why, remedy))
    }
}

/// Time between two look-ups of a name.
const RESOLVE_NS: i64 = 60 * NS_PER_S;
/// Time until a failed look-up is repeated.
const RESOLVE_AGAIN_NS: i64 = 10 * NS_PER_S;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, TcpListener};
    use std::sync::Arc;
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn an_old_round_trip_does_not_stand_for_the_present_for_long() {
        let config = PeerConfig {
            methods: vec![PeerMethod::Icmp],
            peers: vec![Peer {
                name: "a".to_owned(),
                address: "127.0.0.1".to_owned(),
            }],
            ..PeerConfig::default()
        };
        let mut peers = Peers::new(Path::new("/"), &config);
        let mut batch = SourceBatch::new();
        let mut check = |outcome: ProbeOutcome, facts: usize| {
            batch.begin(0);
            peers.ways[0].put(0, &mut batch, outcome);
            assert_eq!(batch.facts(), facts, "{outcome:?}");
        };
        let answered = ProbeOutcome::Answered(Duration::from_millis(1));
        check(answered, 3);
        check(ProbeOutcome::Silent, 3);
        check(ProbeOutcome::Unreachable(Errno::HOSTUNREACH), 3);
        check(ProbeOutcome::Ours(Errno::MFILE), 3);
        check(ProbeOutcome::Silent, 2);
        check(ProbeOutcome::Silent, 2);
        check(answered, 3);
        assert_eq!((peers.ways[0].failures, peers.ways[0].unanswered), (4, 0));
    }

    /// A name whose look-up hangs does not delay the other peers, nor the end of the source.
    #[test]
    fn a_look_up_that_hangs_holds_up_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let peer = |name: &str, address: &str| Peer {
            name: name.to_owned(),
            address: address.to_owned(),
        };
        let config = PeerConfig {
            methods: vec![PeerMethod::Tcp],
            peers: vec![peer("hung", "hung.test:1"), peer("here", &address)],
            ..PeerConfig::default()
        };
        let (release, held) = sync_channel::<()>(0);
        let held = std::sync::Mutex::new(held);
        let look_up: resolve::LookUp = Arc::new(move |_| {
            let _ = held.lock().map(|held| held.recv());
            Ok(IpAddr::V4(Ipv4Addr::LOCALHOST))
        });
        let mut peers = Peers::with_look_up(Path::new("/"), &config, look_up);
        for round in 0..3 {
            let mut batch = SourceBatch::new();
            batch.begin(round * NS_PER_S);
            peers.read(round, &mut batch).unwrap();
            assert!(matches!(peers.ways[1].newest, Newest::Answered));
            assert!(matches!(peers.ways[0].newest, Newest::NotAsked));
        }
        drop(peers);
        drop(release);
    }
}
