//! Which servers have a block.

use barograph_placement::{DomainId, KeyHash, Rendezvous, RendezvousTarget, TargetId};

use crate::key::BlockKey;

/// Sorts servers (given in ascending order) by how much a block belongs to them.
pub type Placement = dyn Fn(&BlockKey, &[u64]) -> Vec<u64> + Send + Sync;

/// Rendezvous hashing with equal weights, as `barograph_placement` has it (Thaler and Ravishankar
/// 1998): its hash never changes. When a server goes, only its blocks move. A list that has a
/// server twice is none, and has no block.
pub fn rendezvous(key: &BlockKey, servers: &[u64]) -> Vec<u64> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    let targets = servers.iter().map(|server| RendezvousTarget {
        id: TargetId(*server),
        domain: DomainId(*server),
        weight: 1.0,
    });
    let map = Rendezvous::new(&targets.collect::<Vec<_>>());
    let ranked = map.map_or_else(|_| Vec::new(), |map| map.ranked(KeyHash::of(&bytes)));
    ranked.into_iter().map(|target| target.id.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_spread_and_only_those_of_a_lost_server_move() {
        let servers: Vec<u64> = (0..16).collect();
        let less: Vec<u64> = (0..15).collect();
        let (mut held, mut moved) = ([0_u32; 16], 0);
        for block in 0..16_000 {
            let key = BlockKey::numbered("d", block).expect("a key");
            let [with, without] = [&servers, &less].map(|servers| rendezvous(&key, servers)[0]);
            held[with as usize] += 1;
            moved += u32::from(with != without);
        }
        assert!(
            held.iter().all(|held| (850..1_150).contains(held)),
            "{held:?}"
        );
        assert_eq!(moved, held[15]);
    }
}
