//! Golden values of every built-in insight, computed by hand.

use std::collections::BTreeSet;

use barograph_insight::{InsightState, curated, curated_inputs};
use barograph_model::Name;

use crate::rig::Rig;

/// A node with two disks, one stacked device, and four file systems.
fn node() -> Rig {
    let mut rig = Rig::default();
    for fact in curated_inputs() {
        rig.graph.know_metric(&Name::new(fact).unwrap());
    }
    for (_, sql) in curated() {
        rig.graph.create(sql, true).unwrap();
    }
    rig
}

fn fill(rig: &mut Rig) {
    for (device, read, write, read_rate, write_rate, busy) in [
        ("nvme0n1", 6_000, 2_000, 300.0, 100.0, 0.25),
        ("sda", 500, 500, 50.0, 50.0, 0.75),
        ("dm-0", 500, 500, 50.0, 50.0, 0.5),
    ] {
        rig.stream(&format!("disk.read.bytes{{device={device}}}"), read);
        rig.stream(&format!("disk.write.bytes{{device={device}}}"), write);
        rig.stream(
            &format!("disk.read.bytes_per_second{{device={device}}}"),
            read_rate,
        );
        rig.stream(
            &format!("disk.write.bytes_per_second{{device={device}}}"),
            write_rate,
        );
        rig.stream(&format!("disk.busy.ratio{{device={device}}}"), busy);
    }
    rig.stream("disk.inflight.requests{device=nvme0n1}", 8);
    rig.stream("disk.concurrency.max.requests{device=nvme0n1}", 32);
    rig.stream(
        "disk.bandwidth.max.bytes_per_second{device=nvme0n1}",
        1_000.0,
    );
    for (mount, tier, free, total) in [
        ("/", "nvme", 40, 100),
        ("/data", "nvme", 60, 300),
        ("/tmp", "memory", 7, 9),
        ("/pfs", "pfs", 900, 1_000),
    ] {
        let labels = format!("device=d,fstype=f,mount={mount},tier={tier}");
        rig.stream(&format!("filesystem.free.bytes{{{labels}}}"), free);
        rig.stream(&format!("filesystem.total.bytes{{{labels}}}"), total);
    }
    rig.stream("memory.available.bytes", 123);
    rig.stream("memory.total.bytes", 456);
}

#[test]
fn values() {
    let mut rig = node();
    fill(&mut rig);
    assert_eq!(
        rig.outputs(),
        [
            "availability=Int(1)",
            // (300 + 100) / 1000
            "device.interference.ratio{device=nvme0n1}=Float(0.4)",
            // (50 + 50) / 1000, (300 + 100) / 8000, (50 + 50) / 1000
            "device.load.published.per_second{device=dm-0}=Float(0.1)",
            "device.load.published.per_second{device=nvme0n1}=Float(0.05)",
            "device.load.published.per_second{device=sda}=Float(0.1)",
            // of 350 read and 150 written
            "device.load.ratio{device=dm-0}=Float(0.2)",
            "device.load.ratio{device=nvme0n1}=Float(0.8)",
            "device.load.ratio{device=sda}=Float(0.2)",
            // 8 / 32 * (1000 - 400) / 1000
            "device.sensitivity.ratio{device=nvme0n1}=Float(0.15)",
            "memory.capacity=Int(123)",
            "node.busiest.ratio=Float(0.75)",
            "node.read.bytes_per_second=Float(350.0)",
            "node.storage.free.bytes=Int(1000)",
            "node.storage.total.bytes=Int(1400)",
            "node.write.bytes_per_second=Float(150.0)",
            "pfs.capacity=Int(900)",
            "tier.free.bytes{tier=memory}=Int(7)",
            "tier.free.bytes{tier=nvme}=Int(100)",
            "tier.free.bytes{tier=pfs}=Int(900)",
            "tier.total.bytes{tier=memory}=Int(9)",
            "tier.total.bytes{tier=nvme}=Int(400)",
            "tier.total.bytes{tier=pfs}=Int(1000)",
        ]
    );
    for report in rig.graph.reports() {
        assert_eq!(
            report.state,
            InsightState::Live,
            "{}: {}",
            report.name,
            report.reason
        );
        assert!(
            report.builtin && !report.inputs.is_empty(),
            "{}",
            report.name
        );
    }
}

#[test]
fn an_idle_or_empty_node() {
    let mut rig = node();
    assert_eq!(
        rig.outputs(),
        [
            "availability=Int(0)",
            "node.busiest.ratio=-",
            "node.read.bytes_per_second=-",
            "node.storage.free.bytes=-",
            "node.storage.total.bytes=-",
            "node.write.bytes_per_second=-",
            "pfs.capacity=-",
        ]
    );
    rig.stream("disk.read.bytes_per_second{device=sda}", 0.0);
    rig.stream("disk.write.bytes_per_second{device=sda}", 0.0);
    rig.stream("disk.read.bytes{device=sda}", 0);
    rig.stream("disk.write.bytes{device=sda}", 0);
    let outputs = rig.outputs();
    assert!(outputs.contains(&"device.load.ratio{device=sda}=Float(0.0)".to_owned()));
    assert!(
        !outputs
            .iter()
            .any(|o| o.starts_with("device.load.published")),
        "0 / 0 is no value"
    );
}

#[test]
fn files_are_named_after_their_insight_and_say_what_they_mean() {
    let mut rig = node();
    for (file, sql) in curated() {
        let name = file.trim_end_matches(".sql");
        assert_eq!(rig.report(name).sql, sql.trim());
        assert!(
            sql.starts_with("-- ") && sql.contains("-- Unit: ") && sql.contains("Meaning: "),
            "{file}"
        );
        assert!(!rig.report(name).help.is_empty(), "{file}");
        let dropped = rig
            .graph
            .drop(&format!("DROP INSIGHT {name}"), &mut rig.out);
        assert!(dropped.is_err(), "{file}");
    }
    let in_folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/curated")).unwrap();
    assert_eq!(in_folder.count(), curated().len(), "every file is embedded");
}

#[test]
fn the_inputs_are_those_that_are_named() {
    let reports = node().graph.reports();
    let made: BTreeSet<&str> = reports.iter().map(|r| r.name.as_str()).collect();
    let read: BTreeSet<&str> = reports
        .iter()
        .flat_map(|r| r.inputs.iter().map(String::as_str))
        .collect();
    let measured: Vec<&str> = read.difference(&made).copied().collect();
    assert_eq!(measured, curated_inputs());
}
