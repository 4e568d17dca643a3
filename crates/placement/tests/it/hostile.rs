//! Readings of any kind: no panic, and weights and scores that are numbers.

use barograph_placement::{
    BlockRequest, CachedSegment, ClusterState, DataHolder, DomainId, IoDirection, KeyHash,
    LocalityConfig, LocationPlace, LocationStrength, NodeState, PlaceConfig, PlaceRequest,
    PlacementAction, PlacementLedger, PredictedSegment, PrefetchConfig, PrefetchRequest, Reading,
    ReadingForecast, ReplicaConfig, ReplicaRequest, SplitRule, TargetId, TargetState, TargetTier,
    TaskRequest, WeightConfig, advise_place, advise_prefetch, advise_replicas, place_task,
    target_weights,
};
use proptest::prelude::*;

fn any_number() -> impl Strategy<Value = f64> {
    (0_usize..10, 0.0..1.0).prop_map(|(kind, unit)| {
        let fixed = [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            0.0,
            -1.0,
            f64::MAX,
            f64::MIN_POSITIVE,
        ];
        let scale = if kind % 2 == 0 { 1e12 } else { 1.0 };
        fixed.get(kind).copied().unwrap_or(unit * scale)
    })
}

/// On the heap, since a target has many of them.
fn any_reading() -> BoxedStrategy<Option<Reading>> {
    let numbers = prop::array::uniform5(any_number());
    let reading = (numbers, any::<bool>()).prop_map(|(numbers, is_forecast)| Reading {
        value: numbers[0],
        error: numbers[1],
        age_s: numbers[2],
        forecast: is_forecast.then_some(ReadingForecast {
            value: numbers[3],
            error: numbers[4],
        }),
    });
    prop::option::of(reading).boxed()
}

fn any_target() -> impl Strategy<Value = TargetState> {
    let readings = prop::array::uniform8(any_reading());
    let tier = prop::sample::select(vec![
        TargetTier::Memory,
        TargetTier::Nvme,
        TargetTier::BurstBuffer,
        TargetTier::Pfs,
    ]);
    (0_u64..6, 0_u64..3, tier, any_number(), readings).prop_map(
        |(id, domain, tier, static_weight, readings)| TargetState {
            id: TargetId(id),
            domain: DomainId(domain),
            tier,
            static_weight,
            capacity_bytes: readings[0],
            free_bytes: readings[1],
            queue_bytes: readings[2],
            read_bytes_per_s: readings[3],
            write_bytes_per_s: readings[4],
            latency_s: readings[5],
            health: readings[6],
            energy_j_per_byte: readings[7],
        },
    )
}

fn any_targets() -> impl Strategy<Value = Vec<TargetState>> {
    prop::collection::vec(any_target(), 0..8)
}

fn any_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), 0_u64..1 << 40]
}

fn any_node() -> impl Strategy<Value = NodeState> {
    (
        0_u64..6,
        any::<bool>(),
        any_reading(),
        any_reading(),
        any_reading(),
    )
        .prop_map(
            |(node, is_open, queue_s, link_bytes_per_s, link_latency_s)| NodeState {
                node,
                is_open,
                queue_s,
                link_bytes_per_s,
                link_latency_s,
            },
        )
}

proptest! {
    #[test]
    fn weights_are_numbers(
        targets in any_targets(), bytes in any_bytes(),
        tau_s in any_number(), exponents in prop::array::uniform3(any_number()),
    ) {
        let block = BlockRequest { bytes, direction: IoDirection::Write };
        let config = WeightConfig {
            tau_s,
            capacity: exponents[0],
            load: exponents[1],
            energy: exponents[2],
        };
        for weight in target_weights(&targets, &block, &config) {
            prop_assert!(weight.weight.is_finite() && weight.weight >= 0.0, "{weight:?}");
            prop_assert!(weight.weight > 0.0 || weight.exclusion.is_some(), "{weight:?}");
        }
    }

    #[test]
    fn blocks_are_placed_whole_where_they_fit_or_not_at_all(
        targets in any_targets(), bytes in any_bytes(), key: u64, tolerance in any_number(),
        piece in prop::option::of(any_bytes()),
    ) {
        let split = match piece {
            Some(bytes_min) => SplitRule::Pieces { bytes_min },
            None => SplitRule::Whole,
        };
        let request = PlaceRequest {
            key: KeyHash::from(key),
            block: BlockRequest { bytes, direction: IoDirection::Write },
            split,
            now_ns: i64::MAX,
        };
        let config = PlaceConfig { tolerance, ..PlaceConfig::default() };
        let decision = advise_place(&request, &targets, &config);
        prop_assert!(!decision.reason.is_empty());
        if let PlacementAction::Place { pieces } = decision.action {
            let sum: u128 = pieces.iter().map(|piece| u128::from(piece.bytes)).sum();
            prop_assert_eq!(sum, u128::from(bytes));
            prop_assert!(split != SplitRule::Whole || pieces.len() == 1);
        }
        let mut ledger = PlacementLedger::new(i64::MAX, u32::MAX);
        ledger.placed(i64::MIN, TargetId(0), bytes);
        ledger.placed(i64::MAX, TargetId(1), bytes);
        prop_assert_eq!(ledger.applied(&targets, 0, 30.0).len(), targets.len());
    }

    #[test]
    fn prefetch_and_replicas_take_anything(
        targets in any_targets(), bytes in any_bytes(), origin in any_target(),
        numbers in prop::array::uniform4(any_number()),
    ) {
        let request = PrefetchRequest {
            predicted: PredictedSegment { segment: 1, probability: numbers[0], ahead: 1 },
            bytes,
            until_s: Some(numbers[1]),
            now_ns: i64::MIN,
        };
        let cached = [0, 1].map(|id| CachedSegment {
            segment: id,
            target: TargetId(id),
            bytes,
            probability: numbers[2],
        });
        let config = PrefetchConfig::default();
        let fetched = advise_prefetch(&request, &origin, &targets, &cached, &config);
        prop_assert!(!fetched.reason.is_empty());
        let request = ReplicaRequest {
            key: KeyHash::from(bytes),
            bytes,
            have: &[TargetId(0)],
            reads_per_s: numbers[0],
            for_s: numbers[3],
            now_ns: 0,
        };
        let replicated = advise_replicas(&request, &targets, &ReplicaConfig::default());
        if let PlacementAction::Replicate { targets } = replicated.action {
            prop_assert!(!targets.contains(&TargetId(0)) && targets.len() <= 2);
        }
    }

    #[test]
    fn tasks_go_to_open_nodes(
        nodes in prop::collection::vec(any_node(), 0..8), bytes in any_bytes(), key: u64,
        numbers in prop::array::uniform2(any_number()), is_hard: bool,
    ) {
        let strength = match is_hard {
            true => LocationStrength::Hard,
            false => LocationStrength::Soft { cost_s: numbers[0], wait_s_max: numbers[1] },
        };
        let holders = [DataHolder { node: 1, bytes }];
        for place in [LocationPlace::Data, LocationPlace::Node(2), LocationPlace::Rank(0)] {
            let request = TaskRequest {
                key: KeyHash::from(key),
                place,
                strength,
                bytes,
                holders: &holders,
                now_ns: 0,
            };
            let cluster = ClusterState { nodes: &nodes, rank_nodes: &[3] };
            let decision = place_task(&request, &cluster, &LocalityConfig::default());
            let is_open = |node| nodes.iter().any(|it| it.node == node && it.is_open);
            prop_assert!(decision.node.is_none_or(is_open), "{decision:?}");
            prop_assert!(!decision.record(&request, &cluster).reason.is_empty());
        }
    }
}
