//! The configuration of a client, and what it counts.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use barograph_model::NS_PER_S;

use super::placement::{Placement, rendezvous};
use crate::block::{BlockInfo, UserId};
use crate::error::StagingError;
use crate::store::PutTarget;

/// The time for a request without data, unless configured: 10 s.
const TIMEOUT_NS_DEFAULT: i64 = 10 * NS_PER_S;
/// The least rate of data, unless configured: 1 MiB/s.
const RATE_DEFAULT: u64 = 1 << 20;
/// How often a request to a server is tried, unless configured.
const TRIES_DEFAULT: u32 = 2;
/// Connections to one server that are kept for the next request.
const IDLE_CONNECTIONS_DEFAULT: usize = 4;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A unix socket, on this node.
    Unix(PathBuf),
    /// An address of TCP.
    Tcp(SocketAddr),
}

/// The servers of an epoch, by their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StagingMap {
    /// The epoch.
    pub epoch: u64,
    /// Where each server listens.
    pub servers: BTreeMap<u64, ServerAddress>,
}

/// Whether bytes that were copied from the memory of a server on this node are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedCheck {
    /// Their checksum is. It takes about as long as the copy.
    Checksum,
    /// Only that they were not overwritten meanwhile: they are as good as memory is.
    Generation,
}

/// The order in which the replicas of a block are sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOrder {
    /// All at once, by threads that end with the put.
    AtOnce,
    /// One after the other, by the thread of the caller: a program gets no threads and its signals
    /// no other receivers.
    InTurn,
}

/// A client.
#[derive(Clone)]
pub struct ClientConfig {
    /// The user, over TCP.
    pub user: UserId,
    /// The token of the user, over TCP.
    pub token: Vec<u8>,
    /// How many servers have each block.
    pub replicas: usize,
    /// Which servers have a block.
    pub placement: Arc<Placement>,
    /// The time for a request without data, in nanoseconds. Before a server answers a read, it may
    /// have to check the block on its slowest tier.
    pub timeout_ns: i64,
    /// The longest time that an operation waits for a newer map after a server has said that its
    /// epoch is over, in nanoseconds.
    pub map_wait_ns: i64,
    /// The least rate of data, in bytes per second, in addition to the timeout.
    pub rate_min: u64,
    /// How often a request to a server is tried if the connection or its disk fails.
    pub tries: u32,
    /// Connections to one server that are kept for the next request.
    pub idle_connections_max: usize,
    /// How blocks are checked that were read from shared memory; `None` to use sockets alone.
    pub mapped: Option<MappedCheck>,
    /// The order in which replicas are sent a block.
    pub put_order: PutOrder,
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            token: Vec::new(),
            replicas: 1,
            placement: Arc::new(rendezvous),
            timeout_ns: TIMEOUT_NS_DEFAULT,
            map_wait_ns: TIMEOUT_NS_DEFAULT,
            rate_min: RATE_DEFAULT,
            tries: TRIES_DEFAULT,
            idle_connections_max: IDLE_CONNECTIONS_DEFAULT,
            mapped: Some(MappedCheck::Generation),
            put_order: PutOrder::AtOnce,
        }
    }
}

impl ClientConfig {
    /// The time for an operation on so many bytes, in nanoseconds.
    pub(super) fn call_ns(&self, bytes: u64) -> i64 {
        let ns = u128::from(bytes) * NS_PER_S as u128 / u128::from(self.rate_min.max(1));
        self.timeout_ns
            .saturating_add(i64::try_from(ns).unwrap_or(i64::MAX))
    }
}

/// How a block is put.
#[derive(Clone, Copy, Debug)]
pub struct PutOptions {
    /// How many servers have to acknowledge it; `None` for all replicas.
    pub acks: Option<usize>,
    /// Where it has to be before it is acknowledged.
    pub target: PutTarget,
    /// The time that its owner needs to have it again, in microseconds, if it may be dropped; 0 if
    /// it must stay.
    pub refetch_us: u32,
    /// The longest time that the put waits for room on a server, in nanoseconds.
    pub wait_ns: i64,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self {
            acks: None,
            target: PutTarget::Fast,
            refetch_us: 0,
            wait_ns: NS_PER_S,
        }
    }
}

/// What came of a put.
#[derive(Debug)]
pub struct PutReport {
    /// The servers that have acknowledged it, with what they know of the block.
    pub acknowledged: Vec<(u64, BlockInfo)>,
    /// The servers that have not, and why.
    pub failed: Vec<(u64, StagingError)>,
}

/// How a block is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetOptions {
    /// Whether a block is taken that may be older than one that was acknowledged, if no replica
    /// knows better.
    pub accept_unconfirmed: bool,
}

/// What has happened in a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Connections that were made.
    pub connections: u64,
    /// Requests that were tried again after the connection or a disk had failed.
    pub retries: u64,
    /// Operations that were refused because their epoch is over.
    pub fenced: u64,
    /// Blocks that were read from shared memory.
    pub gets_mapped: u64,
    /// Blocks that were read over sockets.
    pub gets_socket: u64,
    /// Reads of shared memory that were void because the block had gone meanwhile.
    pub mapped_stale: u64,
    /// Blocks that did not have their checksum when they came.
    pub corrupt: u64,
    /// Replicas that had no good copy, or none, and were sent one.
    pub repaired: u64,
    /// Replicas that could not be repaired.
    pub repairs_failed: u64,
    /// Blocks that were found on servers which are not their replicas by the map in force.
    pub found_elsewhere: u64,
}
