//! Tests of the table of locations.

use super::*;

fn replica(node: u64, version: u64, epoch: u64) -> Replica {
    Replica {
        node,
        tier: TargetTier::Nvme,
        bytes: 1_000,
        version,
        epoch,
    }
}

fn keys(changes: &LocationChanges) -> Vec<String> {
    match changes {
        LocationChanges::Since { keys, .. } => {
            let texts = keys.iter().map(|(_, key)| String::from_utf8_lossy(key));
            texts.map(String::from).collect()
        }
        LocationChanges::TooOld { since_min } => vec![format!("too old, {since_min}")],
    }
}

#[test]
fn a_watcher_gets_each_key_once_and_is_told_of_gaps() {
    let mut table = Locations::new(3);
    assert_eq!(table.put(b"a", replica(1, 1, 1), 0), LocationPut::Taken(1));
    assert_eq!(table.put(b"b", replica(1, 1, 1), 0), LocationPut::Taken(2));
    assert_eq!(table.put(b"a", replica(2, 1, 1), 0), LocationPut::Taken(3));
    assert_eq!(table.put(b"a", replica(2, 1, 1), 9), LocationPut::Known);
    assert_eq!(keys(&table.changed_since(0, 9)), ["b", "a"]);
    assert_eq!(keys(&table.changed_since(2, 9)), ["a"]);
    assert_eq!(keys(&table.changed_since(3, 9)), [""; 0]);
    assert_eq!(keys(&table.changed_since(4, 9)), ["too old, 3"]);
    assert_eq!(table.remove(b"b", 1, TargetTier::Nvme), Some(4));
    assert_eq!(table.remove(b"b", 1, TargetTier::Nvme), None);
    assert_eq!(keys(&table.changed_since(2, 9)), ["a", "b"]);
    let LocationChanges::Since { next, is_more, .. } = table.changed_since(0, 1) else {
        panic!("nothing was forgotten yet");
    };
    assert_eq!((next, is_more), (3, true));
    for key in [b"c", b"d"] {
        table.put(key, replica(1, 1, 1), 0);
    }
    assert_eq!(keys(&table.changed_since(0, 9)), ["too old, 3"]);
    assert_eq!(keys(&table.changed_since(3, 9)), ["b", "c", "d"]);
    assert_eq!(table.forgotten(), 1);
}

#[test]
fn servers_of_an_old_epoch_are_refused() {
    let mut table = Locations::new(8);
    table.begin_epoch(3);
    for (epoch, expect) in [
        (2, LocationPut::OldEpoch),
        (3, LocationPut::Taken(1)),
        (5, LocationPut::Taken(2)),
        (4, LocationPut::OldEpoch),
    ] {
        let put = table.put(b"a", replica(epoch, 1, epoch), 0);
        assert_eq!(put, expect, "{epoch}");
    }
    assert_eq!(table.epoch(), 5);
    assert_eq!(table.remove_node(5), 1);
    assert_eq!(table.remove_node(5), 0);
}

#[test]
fn the_newest_and_nearest_replica_is_first() {
    let mut table = Locations::new(8);
    let mut costs = ReadCosts::default();
    let cost = TierCost {
        latency_s: 0.0,
        bytes_per_s: 1_000.0,
        queue_bytes: 0.0,
    };
    for (node, version) in [(1, 7), (2, 7), (3, 6), (4, 7)] {
        table.put(b"a", replica(node, version, 1), 1_000_000_000);
        if node != 4 {
            costs.set_tier(node, TargetTier::Nvme, cost);
        }
    }
    costs.link_default = Some(LinkCost {
        latency_s: 0.5,
        bytes_per_s: 500.0,
    });
    let answer = table.locate(&[b"a", b"z"], 2, &costs, 3_000_000_000);
    let replicas = &answer.keys[0].replicas;
    let rows = replicas.iter().map(|it| (it.replica.node, it.read_s));
    let rows: Vec<_> = rows.collect();
    let expect = [(2, Some(1.0)), (1, Some(2.5)), (4, None), (3, Some(2.5))];
    assert_eq!(rows, expect);
    assert!(replicas[..3].iter().all(|it| it.is_newest) && !replicas[3].is_newest);
    assert_eq!((replicas[0].age_s, answer.epoch), (2.0, 1));
    assert!(answer.keys[1].replicas.is_empty() && answer.keys[1].change == 0);
}

#[test]
fn what_is_too_large_is_refused() {
    let mut table = Locations::new(8);
    let long = vec![0; LOCATION_KEY_BYTES_MAX + 1];
    assert_eq!(table.put(&long, replica(1, 1, 1), 0), LocationPut::NoRoom);
    for node in 0..LOCATION_REPLICAS_MAX as u64 {
        table.put(b"a", replica(node, 1, 1), 0);
    }
    assert_eq!(table.put(b"a", replica(99, 1, 1), 0), LocationPut::NoRoom);
}
