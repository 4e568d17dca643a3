//! What a node does in its cluster.

use barograph_stream::{Incarnation, RunDir};

use crate::mirror_segment::MirrorBounds;

/// What a node does in its cluster.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The run directory, which gets the mirrors.
    pub run_dir: RunDir,
    /// Incarnation of the node's segment.
    pub incarnation: Incarnation,
    /// Selectors of the streams that are mirrored, of every other node.
    pub wanted: Vec<String>,
    /// Most nodes that are mirrored.
    pub mirrors_max: usize,
    /// The bounds of each mirror.
    pub bounds: MirrorBounds,
    /// Most bytes on the way from each node.
    pub window_bytes: u64,
}
