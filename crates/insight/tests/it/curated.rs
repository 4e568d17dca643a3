//! Golden values of every built-in insight, computed by hand.

use std::collections::BTreeSet;

use barograph_insight::{FIFTEEN, InsightState, NoValueReason, curated, curated_inputs};
use barograph_model::{Name, Quality, Value};

use rusqlite::Connection;
use rusqlite::types::Value as Sql;

use crate::rig::{Rig, descriptor};

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
        rig.stream(
            &format!("disk.read.ops_per_second{{device={device}}}"),
            30.0,
        );
        rig.stream(
            &format!("disk.write.ops_per_second{{device={device}}}"),
            20.0,
        );
    }
    rig.stream("disk.inflight.requests{device=nvme0n1}", 8);
    rig.stream("disk.concurrency.max.requests{device=nvme0n1}", 32);
    rig.stream(
        "disk.bandwidth.max.bytes_per_second{device=nvme0n1}",
        1_000.0,
    );
    // Part of the free space is reserved for root.
    for (mount, tier, free, available, total) in [
        ("/", "nvme", 40, 20, 100),
        ("/data", "nvme", 60, 60, 300),
        ("/tmp", "memory", 7, 7, 9),
        ("/pfs", "pfs", 100, 0, 1_000),
    ] {
        let labels = format!("device=d,fstype=f,mount={mount},tier={tier}");
        rig.stream(&format!("filesystem.free.bytes{{{labels}}}"), free);
        rig.stream(
            &format!("filesystem.available.bytes{{{labels}}}"),
            available,
        );
        rig.stream(&format!("filesystem.total.bytes{{{labels}}}"), total);
    }
    stacks(rig);
    nodes(rig);
    jobs(rig);
    rig.stream("memory.available.bytes", 123);
    rig.stream("memory.total.bytes", 456);
}

/// Two disks in a mirror md0, a logical volume on the first, and one disk that has moved nothing.
fn stacks(rig: &mut Rig) {
    for (device, kind) in [
        ("nvme0n1", "disk"),
        ("sda", "disk"),
        ("sdb", "disk"),
        ("md0", "raid"),
        ("dm-0", "lvm"),
    ] {
        rig.stream(
            &format!("device.kind.name{{device={device}}}"),
            Value::text(kind),
        );
    }
    for (device, disk, on) in [
        ("nvme0n1", "nvme0n1", true),
        ("sda", "sda", true),
        ("md0", "sda", true),
        ("md0", "nvme0n1", true),
        ("dm-0", "nvme0n1", true),
        // A device that is no longer below another may report this before its stream ends.
        ("dm-0", "sda", false),
    ] {
        rig.stream(
            &format!("device.on.flag{{device={device},disk={disk}}}"),
            on,
        );
    }
    rig.stream("disk.bandwidth.max.bytes_per_second{device=sda}", 200.0);
    rig.stream("raid.replication.count{device=md0}", 2);
    for (device, bad, total, read, write) in [
        ("nvme0n1", 0, 1_000, 300, 200),
        ("sda", 250, 1_000, 1, 2),
        ("sdb", 0, 1_000, 0, 0),
    ] {
        for (name, value) in [
            ("bad", bad),
            ("total", total),
            ("read", read),
            ("write", write),
        ] {
            rig.stream(&format!("health.{name}.blocks{{device={device}}}"), value);
        }
    }
    // nvme0n1 reports blocks and spares, nvme1n1 only its spares.
    rig.stream("health.spare.ratio{device=nvme0n1}", 0.5);
    rig.stream("health.spare.ratio{device=nvme1n1}", 0.75);
    for (mount, device, block) in [
        ("/", "dm-0", 4_096),
        ("/data", "md0", 1_024),
        ("/tmp", "tmpfs", 4_096),
    ] {
        let labels = format!("device={device},fstype=f,mount={mount},tier=t");
        rig.stream(&format!("filesystem.block.bytes{{{labels}}}"), block);
    }
    for (rank, ops, offset) in [(0, 90, 4_096), (1, 10, 0)] {
        let labels = format!("device=sda,rank={rank}");
        rig.stream(&format!("block_trace.hot.ops{{{labels}}}"), ops);
        rig.stream(&format!("block_trace.hot.offset.bytes{{{labels}}}"), offset);
    }
    rig.stream("file_trace.hot.ops{rank=0}", 5);
    rig.stream("file_trace.hot.offset.bytes{rank=0}", 8_192);
}

/// A peer that is reached in two ways and one that is reached in one; power from two meters; the
/// clock.
fn nodes(rig: &mut Rig) {
    rig.stream("peer.round_trip.seconds{method=icmp,peer=n2}", 0.002);
    rig.stream("peer.round_trip.seconds{method=tcp,peer=n2}", 0.005);
    rig.stream("peer.round_trip.seconds{method=tcp,peer=n3}", 0.25);
    rig.stream("power.node.watts", 80.0);
    rig.stream("bmc.draw.watts{zone=psu1}", 120.0);
    rig.stream("bmc.draw.watts{zone=psu2}", 130.0);
    let clock = rig.stream("clock.time.seconds", 1_700_000_000.5);
    rig.set_known(clock, 1_700_000_000.5, Quality::Measured, 0.01);
}

/// A job on local disks and on Lustre, and one that only Lustre knows.
fn jobs(rig: &mut Rig) {
    rig.stream("job.nodes.count{job=4711}", 4);
    rig.stream("job.tasks.count{job=4711}", 10);
    rig.stream("job.local.read.bytes{job=4711}", 1_000);
    rig.stream("job.local.write.bytes{job=4711}", 500);
    rig.stream("lustre.job.read.bytes{job=4711,target=OST0}", 20);
    rig.stream("lustre.job.read.bytes{job=4711,target=OST1}", 3);
    rig.stream("lustre.job.write.bytes{job=4711,target=OST0}", 7);
    rig.stream("lustre.job.write.bytes{job=cp.0,target=OST0}", 9);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn values() {
    let mut rig = node();
    fill(&mut rig);
    assert_eq!(
        rig.outputs(),
        [
            "availability=Int(1)",
            // the traced blocks as they are: no fallback to files
            "block.hotness.offset.bytes{device=sda,rank=0}=Int(4096)",
            "block.hotness.offset.bytes{device=sda,rank=1}=Int(0)",
            "block.hotness.ops{device=sda,rank=0}=Int(90)",
            "block.hotness.ops{device=sda,rank=1}=Int(10)",
            "block.traced.count=Int(2)",
            // of nvme0n1 (1000) and sda (200) the greatest below each
            "device.bandwidth.max.bytes_per_second{device=dm-0}=Float(1000.0)",
            "device.bandwidth.max.bytes_per_second{device=md0}=Float(1000.0)",
            "device.bandwidth.max.bytes_per_second{device=nvme0n1}=Float(1000.0)",
            "device.bandwidth.max.bytes_per_second{device=sda}=Float(200.0)",
            // 1 / (300 + 200), 0.75 / (1 + 2); sdb has moved nothing
            "device.degradation.per_block{device=nvme0n1}=Float(0.002)",
            "device.degradation.per_block{device=sda}=Float(0.25)",
            // 2 copies of which the worse is worth 0.75; 1 copy each
            "device.fault_tolerance.count{device=md0}=Float(1.5)",
            "device.fault_tolerance.count{device=nvme0n1}=Float(1.0)",
            "device.fault_tolerance.count{device=sda}=Float(0.75)",
            "device.health.by_basis.ratio{basis=blocks,device=nvme0n1}=Float(1.0)",
            "device.health.by_basis.ratio{basis=blocks,device=sda}=Float(0.75)",
            "device.health.by_basis.ratio{basis=blocks,device=sdb}=Float(1.0)",
            "device.health.by_basis.ratio{basis=spare,device=nvme0n1}=Float(0.5)",
            "device.health.by_basis.ratio{basis=spare,device=nvme1n1}=Float(0.75)",
            // 1 - 0/1000, the spares that are left, 1 - 250/1000, 1 - 0/1000
            "device.health.ratio{device=nvme0n1}=Float(1.0)",
            "device.health.ratio{device=nvme1n1}=Float(0.75)",
            "device.health.ratio{device=sda}=Float(0.75)",
            "device.health.ratio{device=sdb}=Float(1.0)",
            // (300 + 100) / 1000
            "device.interference.ratio{device=nvme0n1}=Float(0.4)",
            // (50 + 50) / 200
            "device.interference.ratio{device=sda}=Float(0.5)",
            // (50 + 50) / 1000, (300 + 100) / 8000, (50 + 50) / 1000
            "device.load.published.per_second{device=dm-0}=Float(0.1)",
            "device.load.published.per_second{device=nvme0n1}=Float(0.05)",
            "device.load.published.per_second{device=sda}=Float(0.1)",
            // of 350 read and 150 written
            "device.load.ratio{device=dm-0}=Float(0.2)",
            "device.load.ratio{device=nvme0n1}=Float(0.8)",
            "device.load.ratio{device=sda}=Float(0.2)",
            "device.replication.count{device=md0}=Int(2)",
            "device.replication.count{device=nvme0n1}=Int(1)",
            "device.replication.count{device=sda}=Int(1)",
            "device.replication.count{device=sdb}=Int(1)",
            // 8 / 32 * (1000 - 400) / 1000
            "device.sensitivity.ratio{device=nvme0n1}=Float(0.15)",
            "device.worst.health.ratio{device=dm-0}=Float(1.0)",
            "device.worst.health.ratio{device=md0}=Float(0.75)",
            "device.worst.health.ratio{device=nvme0n1}=Float(1.0)",
            "device.worst.health.ratio{device=sda}=Float(0.75)",
            "disk.health.ratio{disk=nvme0n1}=Float(1.0)",
            "disk.health.ratio{disk=nvme1n1}=Float(0.75)",
            "disk.health.ratio{disk=sda}=Float(0.75)",
            "disk.health.ratio{disk=sdb}=Float(1.0)",
            "disk.peak.bytes_per_second{disk=nvme0n1}=Float(1000.0)",
            "disk.peak.bytes_per_second{disk=sda}=Float(200.0)",
            // 250 W over 100 transfers a second
            "energy.per_transfer=Float(2.5)",
            "filesystem.performance.bytes_per_second{mount=/data}=Float(1000.0)",
            "filesystem.performance.bytes_per_second{mount=/}=Float(1000.0)",
            "job.allocation.nodes.count{job=4711}=Int(4)",
            // 10 tasks on 4 nodes
            "job.allocation.tasks.per_node{job=4711}=Float(2.5)",
            "job.read.by_path.bytes{job=4711,path=local}=Int(1000)",
            "job.read.by_path.bytes{job=4711,path=lustre}=Int(23)",
            "job.read.bytes{job=4711}=Int(1023)",
            "job.write.by_path.bytes{job=4711,path=local}=Int(500)",
            "job.write.by_path.bytes{job=4711,path=lustre}=Int(7)",
            "job.write.by_path.bytes{job=cp.0,path=lustre}=Int(9)",
            "job.write.bytes{job=4711}=Int(507)",
            "job.write.bytes{job=cp.0}=Int(9)",
            "memory.capacity=Int(123)",
            // the quicker of two ways
            "network.health.seconds{peer=n2}=Float(0.002)",
            "network.health.seconds{peer=n3}=Float(0.25)",
            "node.busiest.ratio=Float(0.75)",
            "node.energy.joules_per_transfer=Float(2.5)",
            // 120 + 130; the management controller's word wins over 80
            "node.power.metered.watts{meter=bmc}=Float(250.0)",
            "node.power.metered.watts{meter=node}=Float(80.0)",
            "node.power.watts=Float(250.0)",
            "node.read.bytes_per_second=Float(350.0)",
            "node.storage.available.bytes=Int(80)",
            "node.storage.total.bytes=Int(1400)",
            "node.time.seconds=Float(1700000000.5)",
            // two physical disks, 30 + 20 each
            "node.transfers.ops_per_second=Float(100.0)",
            "node.write.bytes_per_second=Float(150.0)",
            "pfs.capacity=Int(0)",
            "tier.available.bytes{tier=memory}=Int(7)",
            "tier.available.bytes{tier=nvme}=Int(80)",
            "tier.available.bytes{tier=pfs}=Int(0)",
            "tier.total.bytes{tier=memory}=Int(9)",
            "tier.total.bytes{tier=nvme}=Int(400)",
            "tier.total.bytes{tier=pfs}=Int(1000)",
            // 2 / (2 + 7); 300 / (300 + 80); nobody but root can write more
            "tier.used.ratio{tier=memory}=Float(0.2222222222222222)",
            "tier.used.ratio{tier=nvme}=Float(0.7894736842105263)",
            "tier.used.ratio{tier=pfs}=Float(1.0)",
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
            "block.traced.count=Int(0)",
            "node.busiest.ratio=-",
            "node.power.metered.watts{meter=bmc}=-",
            "node.power.watts=-",
            "node.read.bytes_per_second=-",
            "node.storage.available.bytes=-",
            "node.storage.total.bytes=-",
            "node.transfers.ops_per_second=-",
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
        check_file(&mut rig, file, sql);
    }
    let in_folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/curated")).unwrap();
    assert_eq!(in_folder.count(), curated().len(), "every file is embedded");
}

/// Checks that the file of a built-in insight is named after it and says what it means.
pub(crate) fn check_file(rig: &mut Rig, file: &str, sql: &str) {
    let name = file.trim_end_matches(".sql");
    assert_eq!(rig.report(name).sql, sql.trim());
    assert!(
        sql.starts_with("-- ") && sql.contains("-- Unit: ") && sql.contains("Meaning: "),
        "{file}"
    );
    let inputs = sql.lines().find_map(|l| l.strip_prefix("-- Inputs: "));
    let named: BTreeSet<&str> = inputs.unwrap_or_default().split(", ").collect();
    let report = rig.report(name);
    let read: BTreeSet<&str> = report.inputs.iter().map(String::as_str).collect();
    assert_eq!(named, read, "{file}");
    let none = sql.lines().find_map(|l| l.strip_prefix("-- No value: "));
    assert!(
        none.is_none_or(|l| l.contains("; ")),
        "{file}: say what helps after a semicolon"
    );
    assert!(!report.help.is_empty(), "{file}");
    let dropped = rig
        .graph
        .drop(&format!("DROP INSIGHT {name}"), &mut rig.out);
    assert!(dropped.is_err(), "{file}");
}

/// The metrics that the insights of a graph read and that are no insights.
pub(crate) fn measured(rig: &Rig) -> Vec<String> {
    let reports = rig.graph.reports();
    let made: BTreeSet<&String> = reports.iter().map(|r| &r.name).collect();
    let read: BTreeSet<&String> = reports.iter().flat_map(|r| &r.inputs).collect();
    read.difference(&made).map(|name| (*name).clone()).collect()
}

#[test]
fn the_inputs_are_those_that_are_named() {
    assert_eq!(measured(&node()), curated_inputs());
}

#[test]
fn each_of_the_fifteen_rows_has_its_insight() {
    for (row, name) in FIFTEEN {
        let file = format!("{name}.sql");
        let (_, sql) = curated().into_iter().find(|(f, _)| *f == file).unwrap();
        let text = sql.replace("\n--", "");
        let named = ["row", "rows"].map(|word| format!("Apollo, Table 1, {word} {row}"));
        assert!(named.iter().any(|n| text.contains(n)), "{file}: row {row}");
    }
}

#[test]
fn files_stand_in_for_blocks_that_are_not_traced() {
    let mut rig = node();
    rig.stream("file_trace.hot.ops{rank=0}", 5);
    rig.stream("file_trace.hot.offset.bytes{rank=0}", 8_192);
    rig.run();
    assert_eq!(rig.newest("block.hotness.ops{rank=0}").value, Value::Int(5));
    assert_eq!(
        rig.newest("block.hotness.offset.bytes{rank=0}").value,
        Value::Int(8_192)
    );
    rig.stream("block_trace.hot.ops{device=sda,rank=0}", 7);
    let outputs = rig.outputs();
    assert!(outputs.contains(&"block.hotness.ops{device=sda,rank=0}=Int(7)".to_owned()));
    assert!(
        !outputs
            .iter()
            .any(|o| o.starts_with("block.hotness.ops{rank=0}"))
    );
}

#[test]
fn the_nodes_own_counters_stand_in_for_its_management_controller() {
    let mut rig = node();
    rig.stream("power.node.watts", 80.0);
    rig.run();
    assert_eq!(rig.newest("node.power.watts").value, Value::Float(80.0));
    rig.stream("disk.read.ops_per_second{device=sda}", 0.0);
    rig.stream("disk.write.ops_per_second{device=sda}", 0.0);
    let outputs = rig.outputs();
    assert!(
        !outputs.iter().any(|o| o.contains("per_transfer")),
        "x / 0 is no value"
    );
    let lacks = rig.report("energy.per_transfer").lacks;
    let [NoValueReason::Row { insight, says }] = lacks.as_slice() else {
        panic!("{lacks:?}");
    };
    assert_eq!(insight, "node.energy.joules_per_transfer");
    assert_eq!(says.0, "while the node transfers nothing (x / 0)");
    assert_eq!(says.1, "it comes with the next transfer");
}

#[test]
fn the_clock_comes_with_its_error() {
    let mut rig = node();
    nodes(&mut rig);
    rig.run();
    assert_eq!(rig.newest("node.time.seconds").error, 0.01);
}

#[test]
fn what_is_lacking_is_followed_down_to_what_is_measured() {
    let rig = {
        let mut rig = node();
        rig.stream("raid.replication.count{device=md0}", 2);
        rig.run();
        rig
    };
    let lacking = |name: &str| -> Vec<String> {
        let report = rig.report(name);
        assert_eq!(report.state, InsightState::Waiting, "{name}");
        let mut names: Vec<String> = report
            .lacks
            .into_iter()
            .map(|lack| match lack {
                NoValueReason::Metric { name, .. } => name,
                NoValueReason::Row { insight, .. } => format!("row of {insight}"),
                NoValueReason::Failure { insight, .. } => format!("failure of {insight}"),
            })
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        lacking("device.fault_tolerance.count"),
        [
            "device.on.flag",
            "health.bad.blocks",
            "health.spare.ratio",
            "health.total.blocks"
        ]
    );
    assert_eq!(
        lacking("energy.per_transfer"),
        [
            "bmc.draw.watts",
            "disk.read.ops_per_second",
            "disk.write.ops_per_second",
            "power.node.watts"
        ]
    );
    assert_eq!(
        lacking("job.write.bytes"),
        ["job.local.write.bytes", "lustre.job.write.bytes"]
    );
}

/// In SQLite, each input is a table (with all labels that it has) and each insight is a view: the
/// whole graph is computed in another way.
#[test]
fn sqlite_gives_the_same_with_insights_as_views() {
    let mut rig = node();
    fill(&mut rig);
    rig.run();
    let sqlite = Connection::open_in_memory().unwrap();
    for input in curated_inputs() {
        make_table(&sqlite, input, &rig.given);
    }
    for (file, statement) in curated() {
        let name = file.trim_end_matches(".sql");
        let (_, select) = statement.split_once("\nAS ").unwrap();
        let view = Name::new(name).unwrap().table();
        sqlite
            .execute_batch(&format!("CREATE VIEW {view} AS {select}"))
            .unwrap();
        let ours = rig.out.live.values();
        let mut ours: Vec<String> = ours
            .filter(|(d, _)| d.name.as_str() == name)
            .filter_map(|(d, s)| Some(format!("{d}={:?}", s.as_ref()?.value)))
            .collect();
        ours.sort();
        assert_eq!(ours, rows_of(&sqlite, name, &view), "{name}");
    }
}

/// Makes a table of the newest values of a metric's streams; a label that a stream lacks is NULL.
fn make_table(sqlite: &Connection, metric: &str, given: &[(String, Value)]) {
    let described = given
        .iter()
        .map(|(text, value)| (descriptor(text, value.value_type()), value));
    let rows: Vec<_> = described
        .filter(|(d, _)| d.name.as_str() == metric)
        .collect();
    let labels: BTreeSet<&str> = rows
        .iter()
        .flat_map(|(d, _)| d.labels.iter().map(|(n, _)| n))
        .collect();
    let columns: String = labels.iter().map(|l| format!("{l} TEXT, ")).collect();
    let table = Name::new(metric).unwrap().table();
    sqlite
        .execute_batch(&format!("CREATE TABLE {table} ({columns}value)"))
        .unwrap();
    for (described, value) in &rows {
        let label = |l: &&str| described.labels.get(l).map(str::to_owned);
        let mut row: Vec<Sql> = labels.iter().map(|l| Sql::from(label(l))).collect();
        row.push(match value {
            Value::Int(v) => Sql::Integer(*v),
            Value::Float(v) => Sql::Real(*v),
            Value::Bool(v) => Sql::Integer(i64::from(*v)),
            other => Sql::Text(other.to_string()),
        });
        let holes = vec!["?"; row.len()].join(", ");
        let insert = format!("INSERT INTO {table} VALUES ({holes})");
        sqlite
            .execute(&insert, rusqlite::params_from_iter(row))
            .unwrap();
    }
}

/// The rows of a view, written like streams; a NULL value is left out.
fn rows_of(sqlite: &Connection, name: &str, view: &str) -> Vec<String> {
    let mut query = sqlite.prepare(&format!("SELECT * FROM {view}")).unwrap();
    let columns: Vec<String> = query.column_names().map(str::to_owned).collect();
    let value_at = columns.iter().position(|c| c == "value");
    let value_at = value_at.unwrap_or(columns.len() - 1);
    let mut found = Vec::new();
    let mut rows = query.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let mut labels = Vec::new();
        for (at, column) in columns.iter().enumerate().filter(|(at, _)| *at != value_at) {
            if let Some(text) = row.get::<_, Option<String>>(at).unwrap() {
                labels.push(format!("{column}={text}"));
            }
        }
        labels.sort();
        let labels = match labels.as_slice() {
            [] => String::new(),
            some => format!("{{{}}}", some.join(",")),
        };
        match row.get(value_at).unwrap() {
            Sql::Null => {}
            Sql::Integer(v) => found.push(format!("{name}{labels}=Int({v})")),
            Sql::Real(v) => found.push(format!("{name}{labels}=Float({v:?})")),
            other => panic!("{name}: {other:?}"),
        }
    }
    found.sort();
    found
}
