//! The transport: messages between the named nodes of one cluster.
//!
//! The trait stands alone because the rest of the fabric takes bytes and gives bytes. What carries
//! them is exchanged: a network of the agent, or memory in tests and simulations.

mod hello;
mod inbox;
mod keys;
mod memory;
mod network;
mod redial;
mod roster;
mod zenoh;

use std::sync::Arc;

use thiserror::Error;

use crate::frame::FRAME_BYTES_MAX;

pub use hello::{HELLO_VERSION, Hello, HelloFault, Refusal, check_name};
pub use memory::{MemoryNetwork, MemoryTransport};
pub use network::{ZenohConfig, ZenohFault};
pub use zenoh::{ZenohTransport, ZenohWaker};

/// Most messages that wait at a node to be received.
pub const MESSAGES_WAITING_MAX: usize = 1_024;
/// Most bytes of the messages that wait at a node to be received.
pub const BYTES_WAITING_MAX: usize = 64 << 20;
/// Most events other than messages that wait at a node to be received.
pub const EVENTS_WAITING_MAX: usize = 4_096;

/// A carrier of messages between this node and the other nodes of its cluster.
///
/// Messages may be lost, doubled and reordered. Nothing here blocks except [`Self::receive`].
pub trait Transport {
    /// Hands over a message of at most [`FRAME_BYTES_MAX`] bytes for a node. It never waits: a
    /// message for which there is no room is refused and counted.
    fn send(&mut self, to: &str, message: Vec<u8>) -> Result<(), SendFault>;

    /// Takes the next event. It waits for one until `deadline_ns`, ns since the epoch; a transport
    /// on virtual time does not wait.
    fn receive(&mut self, deadline_ns: i64) -> Option<TransportEvent>;

    /// The nodes that can be sent messages now, by name.
    fn peers(&self) -> Vec<Peer>;

    /// Why nodes that are there now do not work with this one. Both of the two nodes know the
    /// reason. The nodes that are told of are bounded; [`TransportCounts::refused`] counts all.
    fn refusals(&self) -> Vec<Refusal>;

    /// Counts of what was carried so far.
    fn counts(&self) -> TransportCounts;
}

/// Event that a transport reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransportEvent {
    /// A node can be sent messages from now on.
    Appeared(Arc<str>),
    /// A node cannot be sent messages any more.
    Gone(Arc<str>),
    /// A message has come. The transport vouches for the name of its sender.
    Message {
        /// Name of the sender.
        from: Arc<str>,
        /// Bytes of the message, as they were handed over.
        bytes: Vec<u8>,
    },
}

/// A node that can be sent messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the node.
    pub node: Arc<str>,
    /// The newest round-trip time in ns; `None` if none was measured.
    pub round_trip_ns: Option<i64>,
}

/// The reason why a message was not sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum SendFault {
    /// No peer has this name.
    #[error("no node of this name is connected")]
    Unknown,
    /// Too much waits for the node already.
    #[error("the node does not keep up: the queue of its messages is full")]
    Full,
    /// The message has more bytes than allowed.
    #[error("the message has more than {FRAME_BYTES_MAX} bytes")]
    Large,
}

/// Counts of what a transport has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportCounts {
    /// Messages that were handed over to be sent.
    pub sent: u64,
    /// Messages that were not sent: see [`SendFault`].
    pub unsent: u64,
    /// Messages that were received.
    pub received: u64,
    /// Messages that came and were not taken in: too much waited, or nobody vouched for the sender.
    pub unreceived: u64,
    /// Hellos that were refused, or for which there was no room, each time that one came.
    pub refused: u64,
    /// Events other than messages that nobody took in time: read [`Transport::peers`] again.
    pub events_lost: u64,
}
