//! Golden values of the built-in insights over the nodes of a cluster, computed by hand.

use barograph_insight::{GraphLimits, curated_inputs_of_cluster, curated_of_cluster};
use barograph_model::{Name, Value};

use crate::curated::{check_file, measured};
use crate::rig::Rig;

/// A node of a cluster, with its built-in insights over all nodes.
fn node() -> Rig {
    let mut rig = Rig::with(GraphLimits {
        node: "a".into(),
        is_clustered: true,
        ..GraphLimits::default()
    });
    for input in curated_inputs_of_cluster() {
        rig.graph.know_metric(&Name::new(input).unwrap());
    }
    for (_, sql) in curated_of_cluster() {
        rig.graph.create(sql, true).unwrap();
    }
    rig
}

#[test]
fn files_are_named_after_their_insight_and_say_what_they_mean() {
    let mut rig = node();
    for (file, sql) in curated_of_cluster() {
        check_file(&mut rig, file, sql);
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/curated_of_cluster");
    let files = std::fs::read_dir(folder).unwrap().count();
    assert_eq!(files, curated_of_cluster().len(), "every file is embedded");
    assert_eq!(measured(&rig), curated_inputs_of_cluster());
}

/// The cluster of Apollo's Figure 2: two compute nodes with two fast tiers each, one storage node;
/// and a parallel file system that two of them mount.
#[test]
fn capacity_is_that_of_all_nodes_and_what_is_shared_counts_once() {
    let mut rig = node();
    for (node, tier, available, total) in [
        ("a", "nvme", 10, 100),
        ("b", "nvme", 30, 100),
        ("a", "ssd", 5, 50),
        ("b", "ssd", 6, 50),
        ("c", "hdd", 700, 1_000),
        ("a", "memory", 3, 4),
        ("a", "pfs", 9_000, 90_000),
        ("c", "pfs", 9_001, 90_000),
    ] {
        let labels = format!("node={node},tier={tier}");
        rig.stream(
            &format!("cluster.tier.available.bytes{{{labels}}}"),
            available,
        );
        rig.stream(&format!("cluster.tier.total.bytes{{{labels}}}"), total);
    }
    rig.run();
    let value = |name: &str| rig.newest(name).value;
    let of_tier = |tier: &str| value(&format!("nodes.tier.available.bytes{{tier={tier}}}"));
    assert_eq!(of_tier("nvme"), Value::Int(40));
    assert_eq!(of_tier("ssd"), Value::Int(11));
    assert_eq!(of_tier("hdd"), Value::Int(700));
    assert_eq!(of_tier("pfs"), Value::Int(9_001));
    assert_eq!(value("nodes.tier.total.bytes{tier=nvme}"), Value::Int(200));
    assert_eq!(
        value("nodes.tier.total.bytes{tier=pfs}"),
        Value::Int(90_000)
    );
    let all = 40 + 11 + 700 + 9_001;
    assert_eq!(value("nodes.storage.available.bytes"), Value::Int(all));
}

#[test]
fn load_health_and_availability_are_those_of_all_nodes() {
    let mut rig = node();
    for (node, read, write, busy) in [("a", 300.0, 100.0, 0.25), ("b", 0.0, 1_200.0, 0.75)] {
        let rate = |way: &str| format!("cluster.node.{way}.bytes_per_second{{node={node}}}");
        rig.stream(&rate("read"), read);
        rig.stream(&rate("write"), write);
        rig.stream(&format!("cluster.node.busiest.ratio{{node={node}}}"), busy);
    }
    for (node, peer, seconds) in [("a", "b", 0.001), ("b", "a", 0.003)] {
        let labels = format!("node={node},peer={peer}");
        rig.stream(
            &format!("cluster.network.health.seconds{{{labels}}}"),
            seconds,
        );
    }
    rig.stream("fabric.connected.count", 1);
    rig.run();
    let value = |name: &str| rig.newest(name).value;
    assert_eq!(value("nodes.read.bytes_per_second"), Value::Float(300.0));
    assert_eq!(value("nodes.write.bytes_per_second"), Value::Float(1_300.0));
    assert_eq!(value("nodes.load.ratio{of_node=a}"), Value::Float(0.25));
    assert_eq!(value("nodes.load.ratio{of_node=b}"), Value::Float(0.75));
    assert_eq!(value("nodes.busiest.ratio"), Value::Float(0.75));
    assert_eq!(value("nodes.network.health.seconds"), Value::Float(0.003));
    assert_eq!(value("nodes.available.count"), Value::Int(2));
}
