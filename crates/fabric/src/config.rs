//! Configuration of a node's part in its cluster.

use barograph_model::Pattern;
use barograph_stream::{Incarnation, RunDir};

use crate::mirror_room::MirrorBounds;

/// Configuration of a node's part in its cluster.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The run directory, which gets the mirrors.
    pub run_dir: RunDir,
    /// Incarnation of the node's segment.
    pub incarnation: Incarnation,
    /// Names of the nodes that are mirrored, as patterns.
    pub nodes: Vec<Pattern>,
    /// Selectors of the streams that are mirrored, of each of these nodes.
    pub wanted: Vec<String>,
    /// Patterns of the scopes whose publications cross nodes, in both directions.
    pub scopes: Vec<Pattern>,
    /// Most nodes that are mirrored.
    pub mirrors_max: usize,
    /// The bounds of each mirror.
    pub bounds: MirrorBounds,
    /// Most bytes on the way from each node.
    pub window_bytes: u64,
}

impl NodeConfig {
    /// Whether the publications of a scope cross nodes.
    pub(crate) fn takes_scope(&self, scope: &str) -> bool {
        self.scopes.iter().any(|pattern| pattern.matches(scope))
    }

    /// Whether streams of the node are mirrored, if any are wanted.
    pub(crate) fn mirrors(&self, node: &str) -> bool {
        self.nodes.iter().any(|pattern| pattern.matches(node))
    }
}
