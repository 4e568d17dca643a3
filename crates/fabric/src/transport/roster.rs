//! The nodes that a transport knows, and what has come from them. A network's callbacks write it.
//!
//! It knows no network, so that what strangers send is judged in one place and without one.

use std::collections::BTreeMap;
use std::sync::Arc;

use barograph_model::NS_PER_S;
use ring::digest::{SHA256, digest};

use super::inbox::Inbox;
use super::keys::words_of;
use super::{Hello, Peer, Refusal, TransportEvent};
use crate::frame::FRAME_BYTES_MAX;
use crate::security::{
    Channel, Identity, ProofFault, Proven, REVOCATION_LIST_BYTES_MAX, Verifier, identity_uri,
};

/// Most nodes whose hellos are taken in at a time, and most sessions of the network. How many of
/// them the node takes part with is bounded where it is decided.
pub(super) const HELLOS_MAX: usize = 16_384;
/// Most refused hellos that are remembered at a time. Further ones are refused as well, and
/// counted.
const REFUSED_HELLOS_MAX: usize = 256;
/// Most hellos that are remembered of nodes with the same name.
const NAMESAKES_MAX: usize = 16;
/// Most pings that wait to be answered.
const PINGS_MAX: usize = 4_096;
/// Most lists of revoked certificates that wait to be read.
const LISTS_MAX: usize = 16;
/// Longer round trips are not believed, in ns.
const ROUND_TRIP_NS_MAX: i64 = 60 * NS_PER_S;
/// Kinds of messages, as a word of their keys.
pub(super) const DATA: &str = "data";
pub(super) const PING: &str = "ping";
pub(super) const PONG: &str = "pong";
pub(super) const REVOKED: &str = "revoked";

/// The nodes that are known, and what has come from them.
#[derive(Debug)]
pub(super) struct Roster {
    own: Hello,
    security: Option<Security>,
    pub(super) inbox: Inbox,
    nodes: BTreeMap<Arc<str>, KnownNode>,
    /// Pings that are not answered yet.
    pub(super) pings: Vec<Ping>,
    /// Lists of revoked certificates that were not read yet.
    pub(super) lists: Vec<Vec<u8>>,
    /// Number of questions for the list of revoked certificates that are still answered before the
    /// next ping.
    pub(super) answers_left: u32,
    /// Whether a waker was used since the last wait.
    pub(super) is_woken: bool,
    /// The hellos that are there now, of nodes that this one does not work with.
    refused: BTreeMap<HelloId, Refusal>,
}

/// A hello with its proof: the hash of its key. Whoever shows the hello of another node with
/// another proof, or without one, has another key, and says nothing about that node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HelloId([u8; 32]);

impl HelloId {
    fn of(key: &str) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
        Self(bytes)
    }
}

/// Proofs that a node with certificates makes and checks.
#[derive(Debug)]
pub(super) struct Security {
    pub(super) identity: Identity,
    pub(super) verifier: Verifier,
}

/// A ping that came.
#[derive(Debug)]
pub(super) struct Ping {
    pub(super) from: Arc<str>,
    /// The time that the sender wants to have back.
    pub(super) sent: [u8; 8],
    /// Number of the sender's newest list of revoked certificates; 0 if it has none.
    pub(super) list: u64,
}

/// A node with which this one works.
#[derive(Debug)]
struct KnownNode {
    live: LiveNode,
    round_trip_ns: Option<i64>,
    /// Hellos of other lives or other nodes with the same name, of which the next is taken when
    /// this one goes.
    namesakes: Vec<LiveNode>,
}

/// One life of a node.
#[derive(Clone, Debug)]
struct LiveNode {
    id: HelloId,
    hello: Hello,
    /// `None` if this node has no certificates.
    secured: Option<Secured>,
}

/// Results of the proof of a node.
#[derive(Clone, Debug)]
struct Secured {
    channel: Arc<Channel>,
    serial: Arc<str>,
    expires_ns: i64,
}

impl Roster {
    /// An empty roster of the node with this hello.
    pub(super) fn new(own: Hello, security: Option<Security>) -> Self {
        Self {
            own,
            security,
            inbox: Inbox::default(),
            nodes: BTreeMap::new(),
            pings: Vec::new(),
            lists: Vec::new(),
            answers_left: 0,
            is_woken: false,
            refused: BTreeMap::new(),
        }
    }

    /// The key that says that this node is alive.
    pub(super) fn own_key(&self) -> String {
        let identity = self.security.as_ref().map(|security| &security.identity);
        let proof = identity.map(|identity| &*identity.proof);
        self.own.key(proof)
    }

    /// Takes in that a node has come, at `now_ns`, in ns since the epoch.
    pub(super) fn came(&mut self, key: &str, now_ns: i64) {
        let Some((hello, proof)) = self.foreign_hello(key) else {
            return;
        };
        let id = HelloId::of(key);
        match self.judge(&hello, proof.as_deref(), now_ns) {
            Ok(secured) => self.meet(LiveNode { id, hello, secured }),
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    /// Takes in that a node has gone.
    pub(super) fn went(&mut self, key: &str) {
        let id = HelloId::of(key);
        if self.refused.remove(&id).is_some() {
            return;
        }
        if let Some((hello, _)) = self.foreign_hello(key) {
            self.part(&hello.node, id);
        }
    }

    /// Takes in a message that came at `now_ns` of the monotonic clock.
    pub(super) fn message(&mut self, key: &str, bytes: &[u8], now_ns: i64) {
        if self.take_in(key, bytes, now_ns).is_none() {
            self.inbox.counts.unreceived += 1;
        }
    }

    /// The channel to a node: `None` if it is unknown, and `Some(None)` if messages are not sealed.
    #[expect(
        clippy::option_option,
        reason = "unknown, open, and sealed are three answers"
    )]
    pub(super) fn channel(&self, node: &str) -> Option<Option<Arc<Channel>>> {
        let known = self.nodes.get(node)?;
        let secured = known.live.secured.as_ref();
        Some(secured.map(|secured| Arc::clone(&secured.channel)))
    }

    /// The nodes that can be sent messages, by name.
    pub(super) fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.nodes.iter().map(|(node, known)| Peer {
            node: Arc::clone(node),
            round_trip_ns: known.round_trip_ns,
        })
    }

    /// Why nodes whose hellos are there now do not work with this one.
    pub(super) fn refusals(&self) -> impl Iterator<Item = &Refusal> {
        self.refused.values()
    }

    /// Proofs that this node makes and checks; `None` if it has no certificates.
    pub(super) fn security(&mut self) -> Option<&mut Security> {
        self.security.as_mut()
    }

    /// The nodes whose certificates no longer hold at `now_ns`, in ns since the epoch, with the
    /// reason.
    pub(super) fn fallen(&self, now_ns: i64) -> Vec<(Arc<str>, ProofFault)> {
        let revoked = self.security.as_ref();
        let revoked = revoked.map_or(&[][..], |security| security.verifier.revoked_serials());
        let fault = |(node, known): (&Arc<str>, &KnownNode)| {
            let secured = known.live.secured.as_ref()?;
            let fault = if revoked.iter().any(|serial| **serial == *secured.serial) {
                ProofFault::Revoked
            } else if secured.expires_ns <= now_ns {
                ProofFault::Expired
            } else {
                return None;
            };
            Some((Arc::clone(node), fault))
        };
        self.nodes.iter().filter_map(fault).collect()
    }

    /// Stops working with a node, for this reason, which is told for as long as the hello of the
    /// node is there.
    pub(super) fn dismiss(&mut self, node: &Arc<str>, fault: ProofFault) {
        let Some(known) = self.nodes.get(node) else {
            return;
        };
        let id = known.live.id;
        let refusal = Refusal::Unproven {
            node: Arc::clone(node),
            fault,
        };
        self.refuse(id, refusal);
        self.part(node, id);
    }

    /// Forgets all nodes, because the network begins anew: hellos that are still there come again.
    pub(super) fn clear(&mut self) {
        self.refused.clear();
        for node in std::mem::take(&mut self.nodes).into_keys() {
            self.inbox.report(TransportEvent::Gone(node));
        }
        self.pings.clear();
    }

    /// The hello of another node than this one.
    fn foreign_hello(&self, key: &str) -> Option<(Hello, Option<Vec<u8>>)> {
        Hello::of_key(key).filter(|(hello, _)| hello.incarnation != self.own.incarnation)
    }

    /// Decides whether this node works with another one.
    fn judge(
        &self,
        hello: &Hello,
        proof: Option<&[u8]>,
        now_ns: i64,
    ) -> Result<Option<Secured>, Refusal> {
        if let Some(refusal) = self.own.refusal(hello) {
            return Err(refusal);
        }
        let unproven = |fault| Refusal::Unproven {
            node: Arc::clone(&hello.node),
            fault,
        };
        let (security, proof) = match (&self.security, proof) {
            (None, None) => return Ok(None),
            (None, Some(_)) => return Err(unproven(ProofFault::Unasked)),
            (Some(_), None) => return Err(unproven(ProofFault::Missing)),
            (Some(security), Some(proof)) => (security, proof),
        };
        let name = identity_uri(&hello.cluster, &hello.node);
        let proven = security
            .verifier
            .verify((&hello.write(), &name), proof, now_ns);
        let Proven {
            public,
            serial,
            expires_ns,
        } = proven.map_err(unproven)?;
        let channel = security.identity.channel(&public);
        let channel = channel.ok_or_else(|| unproven(ProofFault::Foreign))?;
        Ok(Some(Secured {
            channel: Arc::new(channel),
            serial: serial.into(),
            expires_ns,
        }))
    }

    fn refuse(&mut self, id: HelloId, refusal: Refusal) {
        self.inbox.counts.refused += 1;
        if self.refused.len() < REFUSED_HELLOS_MAX {
            self.refused.insert(id, refusal);
        }
    }

    /// Takes in a message; `None` if its sender is not known, or has not written it.
    fn take_in(&mut self, key: &str, bytes: &[u8], now_ns: i64) -> Option<()> {
        let (kind, from, incarnation) = words_of(key);
        let known = self.nodes.get_mut(from)?;
        if incarnation != known.live.hello.incarnation.to_string() {
            return None;
        }
        let bytes = match &known.live.secured {
            Some(secured) => secured.channel.open(kind, bytes)?,
            None => bytes.to_vec(),
        };
        let from = Arc::clone(&known.live.hello.node);
        match kind {
            DATA if bytes.len() <= FRAME_BYTES_MAX => self.inbox.take_in(from, bytes).ok(),
            PING if self.pings.len() < PINGS_MAX => {
                let (sent, rest) = bytes.split_first_chunk()?;
                let (list, _) = rest.split_first_chunk()?;
                self.pings.push(Ping {
                    from,
                    sent: *sent,
                    list: u64::from_le_bytes(*list),
                });
                Some(())
            }
            PONG => {
                let sent_ns = i64::from_le_bytes(bytes.try_into().ok()?);
                let took_ns = now_ns.saturating_sub(sent_ns);
                (0..ROUND_TRIP_NS_MAX).contains(&took_ns).then_some(())?;
                known.round_trip_ns = Some(took_ns);
                Some(())
            }
            REVOKED => self.take_list(bytes),
            _ => None,
        }
    }

    /// Takes in what may be a list of revoked certificates, from anybody; `None` if it has no room.
    pub(super) fn take_list(&mut self, bytes: Vec<u8>) -> Option<()> {
        let has_room = self.lists.len() < LISTS_MAX && bytes.len() <= REVOCATION_LIST_BYTES_MAX;
        has_room.then(|| self.lists.push(bytes))
    }

    /// The newest list of revoked certificates, for somebody who asks for it; `None` if there is
    /// none, or too many have asked.
    pub(super) fn list_to_answer(&mut self) -> Option<Arc<[u8]>> {
        self.answers_left = self.answers_left.checked_sub(1)?;
        self.security()?.verifier.revocation_list()
    }

    fn meet(&mut self, node: LiveNode) {
        let is_full = self.nodes.len() >= HELLOS_MAX;
        let name = Arc::clone(&node.hello.node);
        match self.nodes.get_mut(&name) {
            Some(known) if known.live.hello == node.hello => {}
            // Only the node itself can prove a later life, and it has only one.
            Some(known)
                if node.secured.is_some() && node.hello.start_ns > known.live.hello.start_ns =>
            {
                let earlier = std::mem::replace(&mut known.live, node);
                known.round_trip_ns = None;
                if known.namesakes.len() < NAMESAKES_MAX {
                    known.namesakes.push(earlier);
                }
                self.inbox.report(TransportEvent::Gone(Arc::clone(&name)));
                self.inbox.report(TransportEvent::Appeared(name));
            }
            Some(known) => {
                let is_new = !known.namesakes.iter().any(|one| one.hello == node.hello);
                if known.namesakes.len() < NAMESAKES_MAX && is_new {
                    known.namesakes.push(node);
                }
            }
            None if is_full => self.inbox.counts.refused += 1,
            None => {
                let known = KnownNode {
                    live: node,
                    round_trip_ns: None,
                    namesakes: Vec::new(),
                };
                self.nodes.insert(Arc::clone(&name), known);
                self.inbox.report(TransportEvent::Appeared(name));
            }
        }
    }

    /// Takes in that a hello of a node has gone, or does not count any more.
    fn part(&mut self, node: &Arc<str>, id: HelloId) {
        let Some(known) = self.nodes.get_mut(node) else {
            return;
        };
        if known.live.id != id {
            known.namesakes.retain(|namesake| namesake.id != id);
            return;
        }
        let namesakes = std::mem::take(&mut known.namesakes);
        self.nodes.remove(node);
        self.inbox.report(TransportEvent::Gone(Arc::clone(node)));
        for namesake in namesakes {
            self.meet(namesake);
        }
    }
}

#[cfg(test)]
mod tests {
    use barograph_stream::Incarnation;
    use proptest::prelude::*;

    use super::*;

    fn hello(node: &str, number: u8) -> Hello {
        Hello {
            version: 1,
            incarnation: Incarnation([number; 16]),
            start_ns: i64::from(number),
            cluster: "rack".into(),
            node: node.into(),
        }
    }

    fn roster() -> Roster {
        let mut roster = Roster::new(hello("a", 1), None);
        roster.came(&hello("b", 2).key(None), 0);
        roster
    }

    fn names(roster: &Roster) -> Vec<String> {
        let peers = roster.peers();
        peers.map(|peer| peer.node.to_string()).collect()
    }

    #[test]
    fn of_two_nodes_of_one_name_the_first_counts_until_it_goes() {
        let mut roster = roster();
        roster.came(&hello("b", 3).key(None), 0);
        let write = |roster: &mut Roster, number: u8| {
            let key = super::super::keys::message_key(&hello("b", number), "a", DATA);
            let before = roster.inbox.counts.unreceived;
            roster.message(&key, b"frame", 0);
            roster.inbox.counts.unreceived == before
        };
        assert!(write(&mut roster, 2) && !write(&mut roster, 3));
        roster.went(&hello("b", 2).key(None));
        assert!(write(&mut roster, 3) && !write(&mut roster, 2));
        roster.went(&hello("b", 3).key(None));
        assert!(names(&roster).is_empty());
    }

    #[test]
    fn a_node_with_a_certificate_is_refused_where_there_is_none() {
        let mut roster = roster();
        let key = hello("c", 3).key(Some(&[7; 300]));
        roster.came(&key, 0);
        assert_eq!(names(&roster), ["b"]);
        let fault = ProofFault::Unasked;
        let node = "c".into();
        let refusals: Vec<&Refusal> = roster.refusals().collect();
        assert_eq!(refusals, [&Refusal::Unproven { node, fault }]);
        let events: Vec<_> = std::iter::from_fn(|| roster.inbox.next()).collect();
        assert_eq!(events, [TransportEvent::Appeared("b".into())]);
    }

    #[test]
    fn a_refusal_is_over_when_its_hello_goes() {
        let mut roster = roster();
        let of_other = Hello {
            cluster: "other".into(),
            ..hello("c", 3)
        };
        let keys = [of_other.key(None), hello("a", 4).key(None)];
        for left in [2, 1] {
            keys.iter().for_each(|key| roster.came(key, 0));
            assert_eq!(roster.refusals().count(), 2, "each once");
            roster.went(&keys[left - 1]);
            assert_eq!(roster.refusals().count(), 1);
        }
        roster.went(&keys[1]);
        assert_eq!(roster.refusals().count(), 0);
        assert_eq!(roster.inbox.counts.refused, 4, "each time that one came");
        // A session that is opened again is told of the hellos that are still there.
        keys.iter().for_each(|key| roster.came(key, 0));
        roster.clear();
        assert_eq!(roster.refusals().count(), 0);
    }

    #[test]
    fn a_dismissed_node_is_refused_until_its_hello_goes() {
        let mut roster = roster();
        let node = "b".into();
        roster.dismiss(&node, ProofFault::Expired);
        assert!(names(&roster).is_empty());
        let fault = ProofFault::Expired;
        let refusals: Vec<&Refusal> = roster.refusals().collect();
        assert_eq!(refusals, [&Refusal::Unproven { node, fault }]);
        roster.went(&hello("b", 2).key(None));
        assert_eq!(roster.refusals().count(), 0);
        roster.came(&hello("b", 2).key(None), 0);
        assert_eq!(names(&roster), ["b"]);
    }

    #[test]
    fn a_forged_hello_that_goes_takes_nobody_with_it() {
        let mut roster = roster();
        let forged = hello("b", 2).key(Some(&[7; 300]));
        roster.went(&forged);
        roster.came(&forged, 0);
        roster.went(&forged);
        assert_eq!(names(&roster), ["b"]);
    }

    #[test]
    fn refused_hellos_are_bounded_and_counted() {
        let mut roster = roster();
        let key = |number: usize| {
            let of_other = Hello {
                cluster: "other".into(),
                ..hello(&format!("n{number}"), 3)
            };
            of_other.key(Some(&[7; 1_000]))
        };
        let shown = 3 * REFUSED_HELLOS_MAX;
        (0..shown).for_each(|number| roster.came(&key(number), 0));
        assert_eq!(roster.refusals().count(), REFUSED_HELLOS_MAX);
        assert_eq!(roster.inbox.counts.refused, shown as u64);
        (0..shown).for_each(|number| roster.went(&key(number)));
        assert_eq!(roster.refusals().count(), 0);
        // There is room again for those that come afterwards.
        roster.came(&key(shown), 0);
        assert_eq!(roster.refusals().count(), 1);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_taken_or_refused(
            words in prop::collection::vec("[ -~]{0,20}|rack|a|b|data|ping|revoked|node|1", 0..9),
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut roster = roster();
            let tail = words.join("/");
            let sender = Incarnation([2; 16]);
            for key in [tail.clone(), format!("barograph/node/{tail}"), format!("{tail}/b/{sender}")] {
                roster.came(&key, 0);
                roster.message(&key, &bytes, 0);
                roster.went(&key);
            }
            prop_assert_eq!(names(&roster), ["b"]);
        }
    }
}
