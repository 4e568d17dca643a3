//! The table of locations against a plain map: what a watcher has is what the table has, whatever
//! was forgotten on the way.

use std::collections::BTreeMap;

use barograph_placement::{LocationChanges, Locations, ReadCosts, Replica, TargetTier};
use proptest::prelude::*;

fn replica(node: u64, version: u64) -> Replica {
    Replica {
        node,
        tier: TargetTier::BurstBuffer,
        bytes: 10,
        version,
        epoch: 1,
    }
}

/// The nodes that hold each key, as the table says.
fn asked(table: &Locations, key: u8) -> Vec<u64> {
    let answer = table.locate(&[&[key]], 0, &ReadCosts::default(), 0);
    let mut nodes: Vec<u64> = answer.keys[0]
        .replicas
        .iter()
        .map(|it| it.replica.node)
        .collect();
    nodes.sort_unstable();
    nodes
}

proptest! {
    #[test]
    fn a_watcher_keeps_up(
        steps in prop::collection::vec((0_u8..12, 0_u64..4, 0_u8..8, 0_u64..3), 0..200),
        keys_max in 1_usize..16, keys_at_once in 1_usize..5,
    ) {
        let mut table = Locations::new(keys_max);
        let mut copy: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        let mut known = 0;
        for (key, node, what, version) in steps {
            match what {
                0 | 1 => { table.remove(&[key], node, TargetTier::BurstBuffer); }
                2 => { table.remove_node(node); }
                _ => { table.put(&[key], replica(node, version), 0); }
            }
            if what % 2 == 0 {
                continue;
            }
            loop {
                match table.changed_since(known, keys_at_once) {
                    LocationChanges::Since { keys, next, is_more } => {
                        for (_, key) in keys {
                            copy.insert(key[0], asked(&table, key[0]));
                        }
                        known = next;
                        if !is_more { break }
                    }
                    LocationChanges::TooOld { since_min } => {
                        copy = (0..12).map(|key| (key, asked(&table, key))).collect();
                        prop_assert!(since_min <= table.change());
                        known = table.change();
                        break;
                    }
                }
            }
            for key in 0..12 {
                let held = asked(&table, key);
                // What was forgotten to make room is still in the copy: it is not wrong, only old.
                let copied = copy.get(&key).cloned().unwrap_or_default();
                prop_assert!(held.is_empty() || held == copied, "{key}: {held:?} {copied:?}");
            }
        }
    }
}
