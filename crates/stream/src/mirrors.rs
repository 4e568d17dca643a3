//! The error for a node that is not mirrored in a run directory. It stands alone because the client
//! and the server tell their users the same.

use std::fmt;

use barograph_model::near;

use crate::RunDir;

/// Most nodes that the error for an unknown node lists.
const NODES_SHOWN_MAX: usize = 8;

/// No node of this name is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownNode {
    /// The name.
    pub node: String,
    /// Names of nodes that may have been meant, best first: of the node itself and of those that
    /// are mirrored.
    pub near: Vec<String>,
    /// The nodes that are mirrored, sorted.
    pub mirrored: Vec<String>,
}

impl RunDir {
    /// Makes the error for a node that has no mirror here; `own` is the name of this node.
    pub fn unknown_node(&self, node: &str, own: &str) -> UnknownNode {
        let mirrors = self.mirrors().into_iter();
        let mirrored: Vec<String> = mirrors.map(|(name, _)| name).collect();
        let known = mirrored.iter().map(String::as_str).chain([own]);
        let near = near(node, known).into_iter().map(str::to_owned).collect();
        UnknownNode {
            node: node.to_owned(),
            near,
            mirrored,
        }
    }
}

impl fmt::Display for UnknownNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.mirrored[..self.mirrored.len().min(NODES_SHOWN_MAX)];
        let (mirrored, dots) = match shown {
            [] => ("none".to_owned(), ""),
            shown if shown.len() < self.mirrored.len() => (shown.join(", "), ", …"),
            shown => (shown.join(", "), ""),
        };
        let node = &self.node;
        write!(
            f,
            "no node {node} is mirrored here (mirrored: {mirrored}{dots}):"
        )?;
        if !self.near.is_empty() {
            write!(f, " did you mean {}?", self.near.join(", "))?;
        }
        f.write_str(
            " `baro node list` shows the nodes that are known; cluster.mirror_nodes and cluster.mirror \
             choose what of them is mirrored",
        )
    }
}

impl std::error::Error for UnknownNode {}
