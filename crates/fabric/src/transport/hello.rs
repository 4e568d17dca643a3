//! Hellos: what two nodes tell each other before all else, and why they may refuse each other.
//!
//! Each side judges from the same two hellos, so that both know the reason of a refusal.
//! `docs/reference/fabric-format.md` defines the bytes.

use std::sync::Arc;

use barograph_stream::{Incarnation, NODE_NAME_BYTES_MAX, is_node_name};
use thiserror::Error;

use crate::security::ProofFault;

/// Version of the protocol between nodes.
pub const HELLO_VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"BARH";

/// Facts that a node tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Version of the protocol that the node speaks.
    pub version: u8,
    /// Incarnation of the node's segment.
    pub incarnation: Incarnation,
    /// Time at which the node's agent started, by its own clock, ns since the epoch.
    pub start_ns: i64,
    /// Name of the cluster.
    pub cluster: Arc<str>,
    /// Name of the node.
    pub node: Arc<str>,
}

/// The reason why some bytes are no hello, or a name is none.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HelloFault {
    /// The bytes do not begin as a hello does, or end too early.
    #[error("these bytes are no hello of a barograph agent")]
    Foreign,
    /// A name of a node or a cluster breaks the rules of names.
    #[error(
        "`{name}` cannot name a node or a cluster: names have 1 to {NODE_NAME_BYTES_MAX} letters, \
         digits, `.`, `_` and `-` of ASCII, and begin with a letter or digit"
    )]
    Name {
        /// The name, with escapes and cut to an allowed length.
        name: String,
    },
}

/// The reason why two nodes do not work together, as one of them sees it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The other node belongs to another cluster.
    #[error("node {node} is of cluster {theirs}, and this node of {ours}: correct the address")]
    Cluster {
        /// Name of the other node.
        node: Arc<str>,
        /// Name of the other node's cluster.
        theirs: Arc<str>,
        /// The cluster of this node.
        ours: Arc<str>,
    },
    /// The other node speaks a newer protocol.
    #[error(
        "node {node} speaks version {version} of the protocol, and this node {HELLO_VERSION}: \
         install the newer barograph here"
    )]
    Newer {
        /// Name of the other node.
        node: Arc<str>,
        /// Version of the protocol that the other node speaks.
        version: u8,
    },
    /// The other node speaks an older protocol, and refuses this node.
    #[error(
        "node {node} speaks version {version} of the protocol, and this node {HELLO_VERSION}: \
         install the newer barograph there"
    )]
    Older {
        /// Name of the other node.
        node: Arc<str>,
        /// Version of the protocol that the other node speaks.
        version: u8,
    },
    /// The other node has the name of this one.
    #[error("another node is named {node} as well: rename one of the two")]
    SameName {
        /// The name.
        node: Arc<str>,
        /// Time at which the other one started, by its own clock, ns since the epoch.
        start_ns: i64,
    },
    /// The other node does not prove who it is.
    #[error("node {node} is not let in: {fault}")]
    Unproven {
        /// Name of the other node.
        node: Arc<str>,
        /// Fault of its proof.
        fault: ProofFault,
    },
}

impl Hello {
    /// Writes the hello as a message.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(self.version);
        bytes.extend_from_slice(&self.incarnation.0);
        bytes.extend_from_slice(&self.start_ns.to_le_bytes());
        for name in [&self.cluster, &self.node] {
            bytes.push(name.len() as u8);
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes
    }

    /// Reads a hello of any version: later versions may only add bytes at its end.
    pub fn read(bytes: &[u8]) -> Result<Self, HelloFault> {
        let (magic, rest) = bytes.split_first_chunk().ok_or(HelloFault::Foreign)?;
        let (version, rest) = rest.split_first().ok_or(HelloFault::Foreign)?;
        let (incarnation, rest) = rest.split_first_chunk().ok_or(HelloFault::Foreign)?;
        let (start, rest) = rest.split_first_chunk().ok_or(HelloFault::Foreign)?;
        if *magic != MAGIC || *version == 0 {
            return Err(HelloFault::Foreign);
        }
        let (cluster, rest) = read_name(rest)?;
        let (node, _) = read_name(rest)?;
        Ok(Self {
            version: *version,
            incarnation: Incarnation(*incarnation),
            start_ns: i64::from_le_bytes(*start),
            cluster,
            node,
        })
    }

    /// The reason why this node and the other one do not work together; `None` if they do.
    pub fn refusal(&self, other: &Self) -> Option<Refusal> {
        let node = Arc::clone(&other.node);
        let version = other.version;
        if version > self.version {
            return Some(Refusal::Newer { node, version });
        }
        if version < self.version {
            return Some(Refusal::Older { node, version });
        }
        if other.cluster != self.cluster {
            let theirs = Arc::clone(&other.cluster);
            let ours = Arc::clone(&self.cluster);
            return Some(Refusal::Cluster { node, theirs, ours });
        }
        let start_ns = other.start_ns;
        (other.node == self.node).then_some(Refusal::SameName { node, start_ns })
    }
}

/// Checks the name of a node or a cluster, which becomes part of keys and of paths.
pub fn check_name(name: &str) -> Result<(), HelloFault> {
    if is_node_name(name) {
        return Ok(());
    }
    let name = name.chars().take(NODE_NAME_BYTES_MAX);
    Err(HelloFault::Name {
        name: name.flat_map(char::escape_default).collect(),
    })
}

fn read_name(bytes: &[u8]) -> Result<(Arc<str>, &[u8]), HelloFault> {
    let (length, rest) = bytes.split_first().ok_or(HelloFault::Foreign)?;
    let (name, rest) = rest
        .split_at_checked(usize::from(*length))
        .ok_or(HelloFault::Foreign)?;
    let name = std::str::from_utf8(name).map_err(|_| HelloFault::Foreign)?;
    check_name(name)?;
    Ok((name.into(), rest))
}
