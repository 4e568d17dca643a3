//! The insights that come with barograph: one `.sql` file each, which says what it means and where
//! it comes from.

/// File name and statement of each, in an order in which they can be created.
pub fn curated() -> Vec<(&'static str, &'static str)> {
    macro_rules! files {
        ($($file:literal),* $(,)?) => {
            vec![$(($file, include_str!(concat!("curated/", $file)))),*]
        };
    }
    files![
        "tier.free.bytes.sql",
        "tier.total.bytes.sql",
        "device.load.published.per_second.sql",
        "device.interference.ratio.sql",
        "device.sensitivity.ratio.sql",
        "node.read.bytes_per_second.sql",
        "node.write.bytes_per_second.sql",
        "device.load.ratio.sql",
        "node.busiest.ratio.sql",
        "node.storage.free.bytes.sql",
        "node.storage.total.bytes.sql",
        "pfs.capacity.sql",
        "memory.capacity.sql",
        "availability.sql",
    ]
}

/// The measured metrics that they read. Tell the graph of them (`Graph::know_metric`) before the
/// insights are created: their streams come later, or never where a node has no such device.
pub fn curated_inputs() -> [&'static str; 12] {
    [
        "disk.bandwidth.max.bytes_per_second",
        "disk.busy.ratio",
        "disk.concurrency.max.requests",
        "disk.inflight.requests",
        "disk.read.bytes",
        "disk.read.bytes_per_second",
        "disk.write.bytes",
        "disk.write.bytes_per_second",
        "filesystem.free.bytes",
        "filesystem.total.bytes",
        "memory.available.bytes",
        "memory.total.bytes",
    ]
}
