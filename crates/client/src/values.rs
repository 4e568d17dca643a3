//! The reports of an observer: the state of the node, of a stream, and a stream's newest value.

use std::sync::Arc;

use barograph_model::{Descriptor, Sample, SeriesId};
use barograph_stream::Incarnation;

/// State of the node's agent and segment; of the observer of a mirror, the state of the mirror,
/// which the agent of this node writes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeStatus {
    /// The node's name.
    pub node: String,
    /// The agent's incarnation.
    pub incarnation: Incarnation,
    /// The agent's process.
    pub pid: u64,
    /// Time at which it started, ns since the epoch.
    pub started_ns: i64,
    /// Time since the agent's last heartbeat, in ns.
    pub heartbeat_age_ns: i64,
    /// Whether the agent lives: it has not closed its segment, and its heartbeat is at most
    /// [`HEARTBEAT_AGE_NS_MAX`](crate::HEARTBEAT_AGE_NS_MAX) away from now. A mirror has a
    /// heartbeat whenever something is heard of its node.
    pub alive: bool,
    /// Number of living streams. This and the next three fields include the streams of applications
    /// that this process may read.
    pub streams: usize,
    /// Greatest number of streams.
    pub streams_max: usize,
    /// Number of streams that were refused for lack of room.
    pub refused: u64,
    /// Samples appended to the living streams so far.
    pub samples: u64,
}

/// Descriptor and state of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInfo {
    /// Name, labels, type, unit, kind, help.
    pub descriptor: Arc<Descriptor>,
    /// The series: an id that is the same on every node and after every restart.
    pub series: SeriesId,
    /// Number of samples that its ring holds.
    pub depth: u32,
    /// Number of samples so far.
    pub samples: u64,
    /// The interval between two looks at its resource, in ns; 0 if it is not known.
    pub interval_ns: i64,
    /// Time at which it was registered, ns since the epoch.
    pub created_ns: i64,
    /// Time at which its resource was last looked at, ns since the epoch; 0 if never.
    pub looked_ns: i64,
}

/// The newest sample of a stream, with the time of the last look.
#[derive(Clone, Debug, PartialEq)]
pub struct LatestValue {
    /// The stream's descriptor.
    pub descriptor: Arc<Descriptor>,
    /// The newest sample; `None` if there has not been one.
    pub sample: Option<Sample>,
    /// Time since the last look at the resource, in ns (0 without a sample).
    pub age_ns: i64,
    /// The last look at the resource, ns since the epoch (0 without a sample).
    pub looked_ns: i64,
    /// The interval between two looks at the resource, in ns; 0 if it is not known.
    pub interval_ns: i64,
    /// Whether the value is out of date: the next look is overdue (the age is more than
    /// [`STALE_INTERVALS`](crate::STALE_INTERVALS) intervals), or the agent is dead; of another
    /// node also if nothing is heard of it.
    pub stale: bool,
}
