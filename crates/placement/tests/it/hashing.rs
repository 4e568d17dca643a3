//! Rendezvous hashing: minimal movement, distinct replicas, shares by weight.

use std::collections::BTreeSet;

use barograph_placement::{DomainId, KeyHash, Rendezvous, RendezvousTarget, TargetId};
use proptest::prelude::*;

pub(crate) fn target(id: u64, weight: f64) -> RendezvousTarget {
    RendezvousTarget {
        id: TargetId(id),
        domain: DomainId(id / 3),
        weight,
    }
}

pub(crate) fn targets(weights: &[f64]) -> Vec<RendezvousTarget> {
    let ids = 0..weights.len() as u64;
    ids.zip(weights)
        .map(|(id, weight)| target(id, *weight))
        .collect()
}

pub(crate) fn keys(count: u64, salt: u64) -> Vec<KeyHash> {
    let texts = (0..count).map(|key| format!("{salt}/{key}"));
    texts.map(|text| KeyHash::of(text.as_bytes())).collect()
}

proptest! {
    #[test]
    fn keys_move_only_to_a_new_target(
        weights in prop::collection::vec(0.01..10.0, 1..20), more in 0.01..10.0, salt: u64,
    ) {
        let before = Rendezvous::new(&targets(&weights)).unwrap();
        let mut listed = targets(&weights);
        listed.push(target(1_000, more));
        listed.reverse();
        let after = Rendezvous::new(&listed).unwrap();
        for key in keys(200, salt) {
            let (old, new) = (before.first(key), after.first(key));
            prop_assert!(old == new || new == Some(TargetId(1_000)));
            // And the other way: when it goes, its keys go to where they were.
            let ranked = after.ranked(key);
            let rest = ranked.iter().map(|it| it.id).find(|id| *id != TargetId(1_000));
            prop_assert_eq!(rest, old);
        }
    }

    #[test]
    fn a_higher_weight_only_takes_keys_in(
        weights in prop::collection::vec(0.01..10.0, 2..20), factor in 1.0..5.0, salt: u64,
    ) {
        let before = Rendezvous::new(&targets(&weights)).unwrap();
        let mut raised = weights.clone();
        raised[0] *= factor;
        let after = Rendezvous::new(&targets(&raised)).unwrap();
        for key in keys(200, salt) {
            let (old, new) = (before.first(key), after.first(key));
            prop_assert!(old == new || new == Some(TargetId(0)));
        }
    }

    #[test]
    fn replicas_are_distinct_and_domains_are_used_evenly(
        weights in prop::collection::vec(0.0..10.0, 0..20), count in 0_usize..25, salt: u64,
    ) {
        let map = Rendezvous::new(&targets(&weights)).unwrap();
        let able = map.targets().iter().filter(|it| it.weight > 0.0);
        let domains: BTreeSet<DomainId> = able.clone().map(|it| it.domain).collect();
        let able = able.count();
        for key in keys(20, salt) {
            let replicas = map.replicas(key, count);
            let distinct: BTreeSet<_> = replicas.targets.iter().collect();
            prop_assert_eq!(distinct.len(), replicas.targets.len());
            prop_assert_eq!(replicas.targets.len(), count.min(able));
            prop_assert_eq!(replicas.missing, count - replicas.targets.len());
            let used = replicas.targets.len() - replicas.domains_shared;
            prop_assert_eq!(used, replicas.targets.len().min(domains.len()));
            prop_assert_eq!(replicas.targets.first().copied(), map.first(key).filter(|_| count > 0));
        }
    }
}

#[test]
fn shares_are_those_of_weights() {
    let weights = [1.0, 4.0, 1.0, 4.0, 2.0];
    let map = Rendezvous::new(&targets(&weights)).unwrap();
    let mut held = [0_u32; 5];
    for key in keys(60_000, 1) {
        held[map.first(key).unwrap().0 as usize] += 1;
    }
    for (weight, held) in weights.iter().zip(held) {
        let ratio = f64::from(held) / (60_000.0 * weight / 12.0);
        assert!((0.95..1.05).contains(&ratio), "{weight}: {ratio}");
    }
}
