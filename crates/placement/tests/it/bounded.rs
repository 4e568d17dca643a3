//! Bounded load: the bound holds, all keys have a place, and the order of keys does not matter.

use barograph_placement::{BoundedLoad, Rendezvous, TargetId, bounded_assignment};
use proptest::prelude::*;

use crate::hashing::{keys, targets};

fn bound(weights: &[f64], target: usize, keys: usize, factor: f64) -> u64 {
    let share = weights[target] / weights.iter().sum::<f64>();
    // A rounding error of the last digit may be worth one key more.
    (share * keys as f64 * factor * (1.0 + 1e-12)).ceil() as u64
}

proptest! {
    #[test]
    fn no_target_is_above_its_bound(
        weights in prop::collection::vec(0.01..10.0, 1..12), factor in 1.0..2.0,
        count in 1_u64..400, salt: u64,
    ) {
        let map = Rendezvous::new(&targets(&weights)).unwrap();
        let keys = keys(count, salt);
        let placed = bounded_assignment(&map, factor, &keys).unwrap();
        prop_assert_eq!(placed.len(), keys.len());
        let mut arriving = BoundedLoad::new(map.clone(), factor).unwrap();
        for (index, key) in keys.iter().enumerate() {
            let placement = arriving.place(*key).unwrap();
            let ranked = map.ranked(*key);
            prop_assert_eq!(ranked[placement.skipped].id, placement.target);
            prop_assert_eq!(ranked[placed[index].skipped].id, placed[index].target);
        }
        for target in 0..weights.len() {
            let most = bound(&weights, target, keys.len(), factor);
            let id = TargetId(target as u64);
            let together = placed.iter().filter(|it| it.target == id).count() as u64;
            prop_assert!(together <= most, "{together} of {most}");
            prop_assert!(arriving.load(id) <= most, "{} of {most}", arriving.load(id));
        }
    }

    #[test]
    fn the_order_of_keys_does_not_matter(
        weights in prop::collection::vec(0.01..10.0, 1..12), factor in 1.0..2.0, salt: u64,
    ) {
        let map = Rendezvous::new(&targets(&weights)).unwrap();
        let mut keys = keys(200, salt);
        let placed = bounded_assignment(&map, factor, &keys).unwrap();
        keys.reverse();
        let mut reversed = bounded_assignment(&map, factor, &keys).unwrap();
        reversed.reverse();
        prop_assert_eq!(placed, reversed);
    }
}

#[test]
fn few_keys_move_when_a_target_comes() {
    let keys = keys(20_000, 3);
    let assigned = |targets_n: usize| {
        let map = Rendezvous::new(&targets(&vec![1.0; targets_n])).unwrap();
        bounded_assignment(&map, 1.02, &keys).unwrap()
    };
    let (before, after) = (assigned(16), assigned(17));
    let pairs = before.iter().zip(&after);
    let moved = pairs.filter(|(a, b)| a.target != b.target).count();
    assert!(moved as f64 / 20_000.0 < 0.08, "{moved}");
}
