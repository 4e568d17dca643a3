//! Advisers beside each other on one state: no policy that looks at free bytes chooses a target
//! that is full, and the informed one spreads a burst by bandwidth.

use std::collections::BTreeMap;

use barograph_placement::{
    BaselinePolicy, BlockRequest, IoDirection, KeyHash, PlaceConfig, PlaceRequest, PlacementLedger,
    Reading, SplitRule, TargetId, TargetState, TargetTier, advise_place,
};

const BLOCK: BlockRequest = BlockRequest {
    bytes: 32_000_000,
    direction: IoDirection::Write,
};

fn target(id: u64, tier: TargetTier, free: f64, bandwidth: f64) -> TargetState {
    TargetState {
        free_bytes: Some(Reading::measured(free, 1.0)),
        queue_bytes: Some(Reading::measured(0.0, 1.0)),
        write_bytes_per_s: Some(Reading::measured(bandwidth, 1.0)),
        ..TargetState::unknown(TargetId(id), tier, bandwidth)
    }
}

fn cluster() -> Vec<TargetState> {
    vec![
        target(1, TargetTier::Nvme, 1e9, 2e9),
        target(2, TargetTier::Nvme, 1e6, 2e9),
        target(3, TargetTier::BurstBuffer, 1e12, 4e9),
        target(9, TargetTier::Pfs, 1e15, 1e9),
    ]
}

#[test]
fn full_targets_are_chosen_by_those_that_do_not_look() {
    let targets = cluster();
    for (policy, is_blind) in [
        (BaselinePolicy::PfsOnly, false),
        (BaselinePolicy::RoundRobinBlind, true),
        (BaselinePolicy::RoundRobinAware, false),
        (BaselinePolicy::Hashing, true),
    ] {
        let mut turn = 0;
        let chosen = (0..100_u64).map(|key| {
            let key = KeyHash::of(&key.to_le_bytes());
            policy.choose(&mut turn, key, &BLOCK, &targets)
        });
        let is_full_chosen = chosen.into_iter().any(|id| id == Some(TargetId(2)));
        assert_eq!(is_full_chosen, is_blind, "{}", policy.name());
    }
}

#[test]
fn a_burst_is_spread_by_bandwidth_and_room() {
    let targets = cluster();
    let mut ledger = PlacementLedger::new(60_000_000_000, 1);
    let mut bytes: BTreeMap<u64, f64> = BTreeMap::new();
    for key in 0..700_u64 {
        let request = PlaceRequest {
            key: KeyHash::of(&key.to_le_bytes()),
            block: BLOCK,
            split: SplitRule::Whole,
            now_ns: 0,
        };
        let state = ledger.applied(&targets, 0, 30.0);
        let decision = advise_place(&request, &state, &PlaceConfig::default());
        let chosen = decision.target().unwrap();
        ledger.placed(0, chosen, BLOCK.bytes);
        *bytes.entry(chosen.0).or_default() += BLOCK.bytes as f64;
    }
    assert!(!bytes.contains_key(&2), "it is full");
    assert!(bytes[&1] <= 1e9, "it was filled beyond its end");
    // What target 1 has no room for goes to 3 and 9 by their bandwidths.
    let ratio = bytes[&3] / bytes[&9];
    assert!((3.0..5.5).contains(&ratio), "{ratio}");
}
