//! Which servers have a block.

use barograph_model::fnv1a;

use crate::key::BlockKey;

/// Sorts servers (given in ascending order) by how much a block belongs to them.
pub type Placement = dyn Fn(&BlockKey, &[u64]) -> Vec<u64> + Send + Sync;

/// Rendezvous hashing (Thaler and Ravishankar 1998): each pair of a block and a server has a
/// weight, and the servers with the highest ones have the block. When a server goes, only its
/// blocks move.
pub fn rendezvous(key: &BlockKey, servers: &[u64]) -> Vec<u64> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    let block = fnv1a(&bytes);
    let mut order: Vec<_> = servers
        .iter()
        .map(|server| (mixed(block ^ mixed(*server)), *server))
        .collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.into_iter().map(|(_, server)| server).collect()
}

/// The last step of SplitMix64 (Steele, Lea and Flood 2014): each bit depends on all.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
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
