//! What it costs to read a replica: the time of the storage that has it, and of the link between.

use std::collections::BTreeMap;

use crate::target::TargetTier;

use super::replica::Replica;

/// Most pairs of nodes, and of nodes and tiers, whose costs are kept.
pub const READ_COSTS_MAX: usize = 1 << 16;

/// What is measured of a tier of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierCost {
    /// Seconds until the first byte.
    pub latency_s: f64,
    /// Bytes/s that it reads.
    pub bytes_per_s: f64,
    /// Bytes that wait to be read or written.
    pub queue_bytes: f64,
}

/// What is measured of a link between two nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// Seconds until the first byte.
    pub latency_s: f64,
    /// Bytes/s of it.
    pub bytes_per_s: f64,
}

/// The costs of reading, as far as they are measured.
#[derive(Clone, Debug, Default)]
pub struct ReadCosts {
    tiers: BTreeMap<(u64, TargetTier), TierCost>,
    links: BTreeMap<(u64, u64), LinkCost>,
    /// The cost of a link that was not measured; without it reads over such links have no cost.
    pub link_default: Option<LinkCost>,
}

impl ReadCosts {
    /// Takes in what was measured of a tier of a node; `false` if there is no room.
    pub fn set_tier(&mut self, node: u64, tier: TargetTier, cost: TierCost) -> bool {
        let key = (node, tier);
        let has_room = self.tiers.len() < READ_COSTS_MAX || self.tiers.contains_key(&key);
        if has_room {
            self.tiers.insert(key, cost);
        }
        has_room
    }

    /// Takes in what was measured of the way from a node to a reader; `false` if there is no room.
    pub fn set_link(&mut self, reader: u64, node: u64, cost: LinkCost) -> bool {
        let key = (reader, node);
        let has_room = self.links.len() < READ_COSTS_MAX || self.links.contains_key(&key);
        if has_room {
            self.links.insert(key, cost);
        }
        has_room
    }

    /// Expected seconds until a reader has a replica whole: bytes flow through storage and link
    /// at once, so the slower one counts. `None` if one of them is unknown.
    pub fn read_s(&self, reader: u64, replica: &Replica) -> Option<f64> {
        let tier = self.tiers.get(&(replica.node, replica.tier))?;
        let bytes = replica.bytes as f64;
        let mut bytes_per_s = tier.bytes_per_s;
        let mut latency_s = tier.latency_s + tier.queue_bytes / tier.bytes_per_s;
        if reader != replica.node {
            let link = self.links.get(&(reader, replica.node));
            let link = link.or(self.link_default.as_ref())?;
            bytes_per_s = bytes_per_s.min(link.bytes_per_s);
            latency_s += link.latency_s;
        }
        let seconds = latency_s + bytes / bytes_per_s;
        (seconds.is_finite() && seconds >= 0.0).then_some(seconds)
    }
}
