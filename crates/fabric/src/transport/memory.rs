//! A transport in memory: nodes of one process, without threads, clocks and losses, so that a test
//! is the same each time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inbox::Inbox;
use super::{
    Hello, HelloFault, Peer, Refusal, SendFault, Transport, TransportCounts, TransportEvent,
    check_name,
};
use crate::frame::FRAME_BYTES_MAX;

/// A network in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryNetwork(Arc<Mutex<Nodes>>);

/// A node's end of a [`MemoryNetwork`]. The node leaves when it is dropped.
#[derive(Debug)]
pub struct MemoryTransport {
    network: MemoryNetwork,
    id: u64,
}

/// The nodes of a network, in the order in which they joined.
#[derive(Debug, Default)]
struct Nodes {
    joined: BTreeMap<u64, JoinedNode>,
    next_id: u64,
}

#[derive(Debug)]
struct JoinedNode {
    hello: Hello,
    /// The nodes that this one works with, by name.
    peers: BTreeMap<Arc<str>, u64>,
    inbox: Inbox,
}

impl MemoryNetwork {
    /// Adds a node. It and the others are told of each other, unless they refuse each other. A node
    /// whose name is taken works with nobody.
    pub fn join(&self, hello: Hello) -> Result<MemoryTransport, HelloFault> {
        check_name(&hello.cluster)?;
        check_name(&hello.node)?;
        let mut nodes = self.nodes();
        let id = nodes.next_id;
        nodes.next_id += 1;
        let is_namesake = |other: &JoinedNode| {
            other.hello.cluster == hello.cluster && other.hello.node == hello.node
        };
        let is_name_taken = nodes.joined.values().any(is_namesake);
        let mut newcomer = JoinedNode::new(hello);
        for (other_id, other) in &mut nodes.joined {
            match newcomer.hello.refusal(&other.hello) {
                Some(_) => {
                    newcomer.inbox.counts.refused += 1;
                    other.inbox.counts.refused += 1;
                }
                None if is_name_taken => {}
                None => {
                    newcomer.meet(*other_id, &other.hello);
                    other.meet(id, &newcomer.hello);
                }
            }
        }
        nodes.joined.insert(id, newcomer);
        let network = self.clone();
        Ok(MemoryTransport { network, id })
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JoinedNode {
    fn new(hello: Hello) -> Self {
        Self {
            hello,
            peers: BTreeMap::new(),
            inbox: Inbox::default(),
        }
    }

    fn meet(&mut self, id: u64, hello: &Hello) {
        self.peers.insert(Arc::clone(&hello.node), id);
        self.inbox
            .report(TransportEvent::Appeared(Arc::clone(&hello.node)));
    }
}

impl Nodes {
    fn send(&mut self, from: u64, to: &str, message: Vec<u8>) -> Result<(), SendFault> {
        if message.len() > FRAME_BYTES_MAX {
            return Err(SendFault::Large);
        }
        let sender = self.joined.get(&from).ok_or(SendFault::Unknown)?;
        let to = *sender.peers.get(to).ok_or(SendFault::Unknown)?;
        let from = Arc::clone(&sender.hello.node);
        let receiver = self.joined.get_mut(&to).ok_or(SendFault::Unknown)?;
        receiver.inbox.take_in(from, message)
    }
}

impl Transport for MemoryTransport {
    fn send(&mut self, to: &str, message: Vec<u8>) -> Result<(), SendFault> {
        let mut nodes = self.network.nodes();
        let result = nodes.send(self.id, to, message);
        if let Some(own) = nodes.joined.get_mut(&self.id) {
            match result {
                Ok(()) => own.inbox.counts.sent += 1,
                Err(_) => own.inbox.counts.unsent += 1,
            }
        }
        result
    }

    fn receive(&mut self, _: i64) -> Option<TransportEvent> {
        let mut nodes = self.network.nodes();
        nodes.joined.get_mut(&self.id)?.inbox.next()
    }

    fn peers(&self) -> Vec<Peer> {
        let nodes = self.network.nodes();
        let names = nodes.joined.get(&self.id).into_iter();
        let names = names.flat_map(|own| own.peers.keys().cloned());
        let round_trip_ns = None;
        names
            .map(|node| Peer {
                node,
                round_trip_ns,
            })
            .collect()
    }

    fn refusals(&self) -> Vec<Refusal> {
        let nodes = self.network.nodes();
        let Some(own) = nodes.joined.get(&self.id) else {
            return Vec::new();
        };
        let others = nodes.joined.iter().filter(|(id, _)| **id != self.id);
        others
            .filter_map(|(_, other)| own.hello.refusal(&other.hello))
            .collect()
    }

    fn counts(&self) -> TransportCounts {
        let nodes = self.network.nodes();
        nodes
            .joined
            .get(&self.id)
            .map_or_else(TransportCounts::default, |own| own.inbox.counts)
    }
}

impl Drop for MemoryTransport {
    fn drop(&mut self) {
        let mut nodes = self.network.nodes();
        let Some(own) = nodes.joined.remove(&self.id) else {
            return;
        };
        for id in own.peers.values() {
            if let Some(peer) = nodes.joined.get_mut(id) {
                peer.peers.remove(&own.hello.node);
                peer.inbox
                    .report(TransportEvent::Gone(Arc::clone(&own.hello.node)));
            }
        }
    }
}
