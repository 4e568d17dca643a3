//! Choice of the node that computes an insight of the cluster. Every node decides this by itself,
//! from what the nodes tell each other, so no node has to be asked and none can be missing.

use std::sync::Arc;

use barograph_model::fnv1a;
use serde::{Deserialize, Serialize};

/// The offer of a node to compute an insight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsightOffer {
    /// Number of streams that the insight reads and that this node has in memory.
    pub inputs: u64,
    /// Number of them that are this node's own.
    pub own: u64,
    /// Whether this node computes the insight now.
    pub runs: bool,
}

impl InsightOffer {
    /// The order of offers for an insight: most inputs first, then most of its own. The node that
    /// computes it already counts for an eighth more, so that an insight does not move for little.
    /// Which of equal nodes is first differs from insight to insight.
    fn rank(&self, insight: &str, node: &str) -> (u64, u64, u64) {
        let stays = match self.runs {
            true => self.inputs / 8 + 1,
            false => 0,
        };
        let chance = fnv1a(format!("{insight} {node}").as_bytes());
        (self.inputs.saturating_add(stays), self.own, chance)
    }
}

/// The node with the best offer for an insight.
pub(crate) fn best<'a>(
    insight: &str,
    offers: impl Iterator<Item = (&'a Arc<str>, InsightOffer)>,
) -> Option<Arc<str>> {
    let best = offers.max_by_key(|(node, offer)| offer.rank(insight, node));
    best.map(|(node, _)| Arc::clone(node))
}
