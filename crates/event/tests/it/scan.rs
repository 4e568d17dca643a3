//! Tests of comparing at an interval.

use std::fs;

use barograph_event::{Collector, EventFlags, EventKind, ScanCollector, TreeConfig};

use crate::conformance::Place;
use crate::operations::Operations;
use crate::replica::Replica;

#[test]
fn a_tree_that_is_compared_at_an_interval_is_told_in_the_end() {
    for base in ["/dev/shm", "/tmp"] {
        for seed in 20..23 {
            let (place, state) = (Place::new(base), tempfile::tempdir().unwrap());
            let mut config = TreeConfig::new(state.path().join("snapshot"));
            config.compare_interval_ns = 2_000_000;
            config.changes_max = 1_000;
            config.held_max = 20;
            let collector = ScanCollector::open(std::slice::from_ref(&place.root), config).unwrap();
            let mut replica = Replica::new(&place.root, Box::new(collector));
            replica.settle("the start");
            let mut operations = Operations::new(&place.root, &place.outside, seed);
            for round in 0..15 {
                (0..80).for_each(|_| operations.step());
                replica.settle(&format!("round {round} of seed {seed} in {base}"));
            }
            let is_marked = |kind: EventKind| kind != EventKind::Reconciled;
            let mut told = replica.told.iter().filter(|event| is_marked(event.kind));
            assert!(told.all(|event| event.flags.has(EventFlags::RECONCILED)));
        }
    }
}

#[test]
fn a_walk_is_bounded_per_call() {
    let (place, state) = (Place::new("/dev/shm"), tempfile::tempdir().unwrap());
    for at in 0..20_000 {
        fs::write(place.root.join(at.to_string()), b"").unwrap();
    }
    let mut config = TreeConfig::new(state.path().join("snapshot"));
    config.walk_rate = 1_000;
    let roots = std::slice::from_ref(&place.root);
    let mut collector = ScanCollector::open(roots, config).unwrap();
    let (mut events, mut calls, mut now_ns) = (Vec::new(), 0, 0i64);
    while collector.status().is_walking {
        collector
            .collect(&mut events, 100, (now_ns, now_ns))
            .unwrap();
        calls += 1;
        // The time is that of the call, so that the rate decides how long it takes.
        now_ns += 100_000_000;
    }
    assert!(events.is_empty() && (100..400).contains(&calls), "{calls}");
}
