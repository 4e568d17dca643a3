//! The insights that come with barograph: each is an `.sql` file that describes its meaning and
//! source.

/// Returns file name and statement of each built-in insight, in an order in which they can be
/// created.
pub fn curated() -> Vec<(&'static str, &'static str)> {
    macro_rules! files {
        ($($file:literal),* $(,)?) => {
            vec![$(($file, include_str!(concat!("curated/", $file)))),*]
        };
    }
    files![
        "tier.available.bytes.sql",
        "tier.used.ratio.sql",
        "tier.total.bytes.sql",
        "device.load.published.per_second.sql",
        "device.interference.ratio.sql",
        "device.sensitivity.ratio.sql",
        "node.read.bytes_per_second.sql",
        "node.write.bytes_per_second.sql",
        "device.load.ratio.sql",
        "node.busiest.ratio.sql",
        "node.storage.available.bytes.sql",
        "node.storage.total.bytes.sql",
        "pfs.capacity.sql",
        "memory.capacity.sql",
        "availability.sql",
        "disk.peak.bytes_per_second.sql",
        "device.bandwidth.max.bytes_per_second.sql",
        "filesystem.performance.bytes_per_second.sql",
        "block.traced.count.sql",
        "block.hotness.ops.sql",
        "block.hotness.offset.bytes.sql",
        "device.health.by_basis.ratio.sql",
        "device.health.ratio.sql",
        "network.health.seconds.sql",
        "disk.health.ratio.sql",
        "device.worst.health.ratio.sql",
        "device.replication.count.sql",
        "device.fault_tolerance.count.sql",
        "device.degradation.per_block.sql",
        "node.transfers.ops_per_second.sql",
        "node.power.metered.watts.sql",
        "node.power.watts.sql",
        "node.energy.joules_per_transfer.sql",
        "energy.per_transfer.sql",
        "node.time.seconds.sql",
        "job.read.by_path.bytes.sql",
        "job.write.by_path.bytes.sql",
        "job.read.bytes.sql",
        "job.write.bytes.sql",
        "job.allocation.nodes.count.sql",
        "job.allocation.tasks.per_node.sql",
    ]
}

/// Returns file name and statement of each built-in insight over the nodes of a cluster, in an
/// order in which they can be created. A node that is in no cluster has none of them.
pub fn curated_of_cluster() -> Vec<(&'static str, &'static str)> {
    macro_rules! files {
        ($($file:literal),* $(,)?) => {
            vec![$(($file, include_str!(concat!("curated_of_cluster/", $file)))),*]
        };
    }
    files![
        "nodes.tier.available.bytes.sql",
        "nodes.tier.total.bytes.sql",
        "nodes.storage.available.bytes.sql",
        "nodes.read.bytes_per_second.sql",
        "nodes.write.bytes_per_second.sql",
        "nodes.load.ratio.sql",
        "nodes.busiest.ratio.sql",
        "nodes.available.count.sql",
        "nodes.network.health.seconds.sql",
    ]
}

/// Returns the names of the metrics that the built-in insights over a cluster read: of this node,
/// and of all nodes (`cluster.…`).
pub fn curated_inputs_of_cluster() -> [&'static str; 7] {
    [
        "cluster.network.health.seconds",
        "cluster.node.busiest.ratio",
        "cluster.node.read.bytes_per_second",
        "cluster.node.write.bytes_per_second",
        "cluster.tier.available.bytes",
        "cluster.tier.total.bytes",
        "fabric.connected.count",
    ]
}

/// Returns the names of the measured metrics that the built-in insights read. They must be made
/// known to the graph (`Graph::know_metric`) before the insights are created, since their streams
/// come later, or never on a node without such a device.
pub fn curated_inputs() -> [&'static str; 38] {
    [
        "block_trace.hot.offset.bytes",
        "block_trace.hot.ops",
        "bmc.draw.watts",
        "clock.time.seconds",
        "device.kind.name",
        "device.on.flag",
        "disk.bandwidth.max.bytes_per_second",
        "disk.busy.ratio",
        "disk.concurrency.max.requests",
        "disk.inflight.requests",
        "disk.read.bytes",
        "disk.read.bytes_per_second",
        "disk.read.ops_per_second",
        "disk.write.bytes",
        "disk.write.bytes_per_second",
        "disk.write.ops_per_second",
        "file_trace.hot.offset.bytes",
        "file_trace.hot.ops",
        "filesystem.available.bytes",
        "filesystem.block.bytes",
        "filesystem.free.bytes",
        "filesystem.total.bytes",
        "health.bad.blocks",
        "health.read.blocks",
        "health.spare.ratio",
        "health.total.blocks",
        "health.write.blocks",
        "job.local.read.bytes",
        "job.local.write.bytes",
        "job.nodes.count",
        "job.tasks.count",
        "lustre.job.read.bytes",
        "lustre.job.write.bytes",
        "memory.available.bytes",
        "memory.total.bytes",
        "peer.round_trip.seconds",
        "power.node.watts",
        "raid.replication.count",
    ]
}

/// The fifteen rows of Apollo's Table 1, each with its number and its insight.
pub const FIFTEEN: [(u8, &str); 15] = [
    (1, "device.sensitivity.ratio"),
    (2, "device.interference.ratio"),
    (3, "filesystem.performance.bytes_per_second"),
    (4, "block.hotness.ops"),
    (5, "device.health.ratio"),
    (6, "network.health.seconds"),
    (7, "device.fault_tolerance.count"),
    (8, "device.degradation.per_block"),
    (9, "availability"),
    (10, "tier.available.bytes"),
    (11, "node.energy.joules_per_transfer"),
    (12, "node.time.seconds"),
    (13, "device.load.ratio"),
    (14, "energy.per_transfer"),
    (15, "job.allocation.nodes.count"),
];

/// Returns the condition under which an insight has no value although its inputs have values, and
/// the remedy, from the line `-- No value: WHEN; REMEDY` of its statement.
pub(crate) fn no_value(sql: &str) -> Option<(&str, &str)> {
    let line = sql.lines().find_map(|l| l.strip_prefix("-- No value: "))?;
    Some(line.split_once("; ").unwrap_or((line, "")))
}
