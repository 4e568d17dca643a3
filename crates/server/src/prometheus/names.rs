//! The name and labels of a stream in Prometheus.
//!
//! If node_exporter measures the same thing, in the same unit and with the same labels, its name is
//! used, so that its dashboards and alerts work unchanged. All other streams are `barograph_` and
//! the stream's table. Every row was compared with node_exporter on a machine and on fixtures
//! (`e2e/test_prometheus_names.py`).

use barograph_model::{Descriptor, Kind, ValueType};

use super::labels::{LabelSet, NAME};

/// The type of a metric in Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetricType {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// No type is given: node_exporter gives none for `/proc/vmstat`.
    Untyped,
}

impl MetricType {
    /// The name of the type; `unsaid` is the name for no type, which is `untyped` in the text
    /// format and `unknown` in the API.
    pub(crate) fn as_str(self, unsaid: &'static str) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Untyped => unsaid,
        }
    }
}

/// The name, type and labels of a stream in Prometheus.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExposedName {
    /// The metric's name.
    pub name: String,
    pub kind: MetricType,
    /// Labels and values, including the node; of a text stream without the text itself.
    labels: Vec<(String, String)>,
    /// The label that holds the text of a text stream.
    pub text_label: Option<String>,
    divide_by: u32,
}

impl ExposedName {
    /// The value of a label, if the stream has it.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Names and values of the labels, in the order of the exposition.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.labels.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// All labels, including the metric's name.
    pub(crate) fn labels(&self) -> LabelSet {
        let name = std::iter::once((NAME, self.name.as_str()));
        name.chain(self.pairs()).collect()
    }

    /// Converts a value of the stream to the unit of this name.
    pub(crate) fn scaled(&self, value: f64) -> f64 {
        value / f64::from(self.divide_by)
    }

    /// Whether values are the same as in the stream.
    pub(crate) fn is_as_measured(&self) -> bool {
        self.divide_by == 1
    }
}

/// Whether Prometheus can hold values of this type: numbers, and texts in a label.
pub(crate) fn has_place(value_type: ValueType) -> bool {
    value_type.is_number() || value_type == ValueType::Text
}

/// The names of a stream in queries: the one in the exposition first, then our own, if that is
/// another.
pub(crate) fn both(node: &str, descriptor: &Descriptor) -> Vec<ExposedName> {
    if !has_place(descriptor.value_type) {
        return Vec::new();
    }
    let shared = shared(node, descriptor).into_iter();
    shared.chain([own(node, descriptor)]).collect()
}

/// The name of a stream in the exposition.
pub(crate) fn exposed(node: &str, descriptor: &Descriptor) -> ExposedName {
    shared(node, descriptor).unwrap_or_else(|| own(node, descriptor))
}

/// Our own name of a stream. Counters end in `_total`; a text is a label of an `_info`.
fn own(node: &str, descriptor: &Descriptor) -> ExposedName {
    let mut name = format!("barograph_{}", descriptor.name.table());
    let kind = match (descriptor.value_type, descriptor.kind) {
        (ValueType::Text, _) => {
            name.push_str("_info");
            MetricType::Gauge
        }
        (_, Kind::Counter) => {
            if !name.ends_with("_total") {
                name.push_str("_total");
            }
            MetricType::Counter
        }
        (_, Kind::Gauge | Kind::State) => MetricType::Gauge,
    };
    let text_label = (descriptor.value_type == ValueType::Text).then(|| {
        let mut label = String::from("value");
        while descriptor.labels.get(&label).is_some() {
            label.push('_');
        }
        label
    });
    let pairs = descriptor.labels.iter().chain(node_of(node, descriptor));
    ExposedName {
        name,
        kind,
        labels: pairs.map(|(n, v)| (n.into(), v.into())).collect(),
        text_label,
        divide_by: 1,
    }
}

/// The node's label, unless the stream has one itself.
fn node_of<'a>(node: &'a str, descriptor: &Descriptor) -> Option<(&'a str, &'a str)> {
    descriptor
        .labels
        .get("node")
        .is_none()
        .then_some(("node", node))
}

/// The name that node_exporter has for the stream, if it has one.
fn shared(node: &str, descriptor: &Descriptor) -> Option<ExposedName> {
    let stream = descriptor.name.as_str();
    let row = ROWS.iter().find(|row| row.stream == stream)?;
    let is_counter = descriptor.kind == Kind::Counter;
    let kind_fits =
        row.kind == MetricType::Untyped || is_counter == (row.kind == MetricType::Counter);
    if !descriptor.value_type.is_number() || !kind_fits {
        return None;
    }
    let mut labels = Vec::new();
    for (ours, value) in descriptor.labels.iter() {
        // A stream of this name with other labels is another thing.
        let (_, theirs) = row.labels.iter().find(|(name, _)| *name == ours)?;
        if !theirs.is_empty() {
            let value = match (ours, descriptor.labels.get("fstype")) {
                ("device", Some(fstype)) => source_of(value, fstype),
                _ => value.to_owned(),
            };
            labels.push(((*theirs).to_owned(), value));
        }
    }
    if descriptor.labels.iter().len() != row.labels.len() {
        return None;
    }
    let fixed = row.fixed.iter().copied().chain(node_of(node, descriptor));
    labels.extend(fixed.map(|(n, v)| (n.to_owned(), v.to_owned())));
    Some(ExposedName {
        name: row.name.into(),
        kind: row.kind,
        labels,
        text_label: None,
        divide_by: row.divide_by,
    })
}

/// The mounted device as the kernel names it: streams have it without `/dev/`.
fn source_of(device: &str, fstype: &str) -> String {
    match ON_DEVICES.contains(&fstype) && !device.starts_with('/') {
        true => format!("/dev/{device}"),
        false => device.to_owned(),
    }
}

/// File systems on a block device.
#[rustfmt::skip]
const ON_DEVICES: &[&str] = &[
    "bcachefs", "btrfs", "cramfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "gfs2",
    "hfs", "hfsplus", "iso9660", "jfs", "minix", "msdos", "nilfs2", "ntfs", "ntfs3", "ocfs2", "reiserfs",
    "squashfs", "udf", "vfat", "xfs",
];

struct Row {
    stream: &'static str,
    name: &'static str,
    kind: MetricType,
    /// Pairs of our label and node_exporter's; the second is empty if node_exporter has none.
    labels: &'static [(&'static str, &'static str)],
    fixed: &'static [(&'static str, &'static str)],
    divide_by: u32,
}

type Pairs = &'static [(&'static str, &'static str)];

const NONE: Pairs = &[];
const DEVICE: Pairs = &[("device", "device")];
const MOUNT: Pairs = &[
    ("device", "device"),
    ("fstype", "fstype"),
    ("mount", "mountpoint"),
    ("tier", ""),
];

const fn counter(stream: &'static str, name: &'static str, labels: Pairs) -> Row {
    Row {
        stream,
        name,
        kind: MetricType::Counter,
        labels,
        fixed: NONE,
        divide_by: 1,
    }
}

const fn gauge(stream: &'static str, name: &'static str, labels: Pairs) -> Row {
    Row {
        kind: MetricType::Gauge,
        ..counter(stream, name, labels)
    }
}

const fn vmstat(stream: &'static str, name: &'static str, divide_by: u32) -> Row {
    Row {
        kind: MetricType::Untyped,
        divide_by,
        ..counter(stream, name, NONE)
    }
}

const fn members(stream: &'static str, state: Pairs) -> Row {
    Row {
        fixed: state,
        ..gauge(stream, "node_md_disks", DEVICE)
    }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    counter("disk.read.bytes", "node_disk_read_bytes_total", DEVICE),
    counter("disk.write.bytes", "node_disk_written_bytes_total", DEVICE),
    counter("disk.read.ops", "node_disk_reads_completed_total", DEVICE),
    counter("disk.write.ops", "node_disk_writes_completed_total", DEVICE),
    counter("disk.flush.ops", "node_disk_flush_requests_total", DEVICE),
    counter("disk.read.merged.ops", "node_disk_reads_merged_total", DEVICE),
    counter("disk.write.merged.ops", "node_disk_writes_merged_total", DEVICE),
    counter("disk.read.seconds", "node_disk_read_time_seconds_total", DEVICE),
    counter("disk.write.seconds", "node_disk_write_time_seconds_total", DEVICE),
    counter("disk.busy.seconds", "node_disk_io_time_seconds_total", DEVICE),
    counter("disk.queue.seconds", "node_disk_io_time_weighted_seconds_total", DEVICE),
    Row { divide_by: 512, ..counter("disk.discard.bytes", "node_disk_discarded_sectors_total", DEVICE) },
    gauge("disk.inflight.requests", "node_disk_io_now", DEVICE),
    gauge("filesystem.total.bytes", "node_filesystem_size_bytes", MOUNT),
    gauge("filesystem.free.bytes", "node_filesystem_free_bytes", MOUNT),
    gauge("filesystem.available.bytes", "node_filesystem_avail_bytes", MOUNT),
    gauge("filesystem.files.total.count", "node_filesystem_files", MOUNT),
    gauge("filesystem.files.free.count", "node_filesystem_files_free", MOUNT),
    gauge("filesystem.readonly.flag", "node_filesystem_readonly", MOUNT),
    gauge("memory.total.bytes", "node_memory_MemTotal_bytes", NONE),
    gauge("memory.free.bytes", "node_memory_MemFree_bytes", NONE),
    gauge("memory.available.bytes", "node_memory_MemAvailable_bytes", NONE),
    gauge("memory.cached.bytes", "node_memory_Cached_bytes", NONE),
    gauge("memory.buffers.bytes", "node_memory_Buffers_bytes", NONE),
    gauge("memory.dirty.bytes", "node_memory_Dirty_bytes", NONE),
    gauge("memory.writeback.bytes", "node_memory_Writeback_bytes", NONE),
    gauge("memory.swap.total.bytes", "node_memory_SwapTotal_bytes", NONE),
    gauge("memory.swap.free.bytes", "node_memory_SwapFree_bytes", NONE),
    vmstat("vm.pagein.bytes", "node_vmstat_pgpgin", 1024),
    vmstat("vm.pageout.bytes", "node_vmstat_pgpgout", 1024),
    vmstat("vm.swapin.pages", "node_vmstat_pswpin", 1),
    vmstat("vm.swapout.pages", "node_vmstat_pswpout", 1),
    vmstat("vm.faults.count", "node_vmstat_pgfault", 1),
    vmstat("vm.major_faults.count", "node_vmstat_pgmajfault", 1),
    vmstat("vm.oom_kills.count", "node_vmstat_oom_kill", 1),
    gauge("cpu.load1.tasks", "node_load1", NONE),
    gauge("cpu.load5.tasks", "node_load5", NONE),
    gauge("cpu.load15.tasks", "node_load15", NONE),
    gauge("cpu.running.tasks", "node_procs_running", NONE),
    gauge("cpu.blocked.tasks", "node_procs_blocked", NONE),
    counter("cpu.switches.count", "node_context_switches_total", NONE),
    counter("cpu.forks.count", "node_forks_total", NONE),
    counter("pressure.cpu.some.seconds", "node_pressure_cpu_waiting_seconds_total", NONE),
    counter("pressure.io.some.seconds", "node_pressure_io_waiting_seconds_total", NONE),
    counter("pressure.io.full.seconds", "node_pressure_io_stalled_seconds_total", NONE),
    counter("pressure.memory.some.seconds", "node_pressure_memory_waiting_seconds_total", NONE),
    counter("pressure.memory.full.seconds", "node_pressure_memory_stalled_seconds_total", NONE),
    counter("network.receive.bytes", "node_network_receive_bytes_total", DEVICE),
    counter("network.receive.packets", "node_network_receive_packets_total", DEVICE),
    counter("network.receive.errors.packets", "node_network_receive_errs_total", DEVICE),
    counter("network.receive.dropped.packets", "node_network_receive_drop_total", DEVICE),
    counter("network.transmit.bytes", "node_network_transmit_bytes_total", DEVICE),
    counter("network.transmit.packets", "node_network_transmit_packets_total", DEVICE),
    counter("network.transmit.errors.packets", "node_network_transmit_errs_total", DEVICE),
    counter("network.transmit.dropped.packets", "node_network_transmit_drop_total", DEVICE),
    gauge("network.mtu.bytes", "node_network_mtu_bytes", DEVICE),
    gauge("network.speed.bytes_per_second", "node_network_speed_bytes", DEVICE),
    gauge("raid.devices.count", "node_md_disks_required", DEVICE),
    members("raid.active.count", &[("state", "active")]),
    members("raid.failed.count", &[("state", "failed")]),
    members("raid.spare.count", &[("state", "spare")]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_model::{Labels, Name, Unit};

    fn stream(
        name: &str,
        labels: &[(&str, &str)],
        kind: Kind,
        value_type: ValueType,
    ) -> Descriptor {
        Descriptor {
            name: Name::new(name).unwrap(),
            labels: Labels::new(labels.iter().copied()).unwrap(),
            value_type,
            unit: Unit::new("").unwrap(),
            kind,
            help: String::new(),
        }
    }

    fn check(
        name: &str,
        labels: &[(&str, &str)],
        kind: Kind,
        value_type: ValueType,
        expect: &[&str],
    ) {
        let found = both("n1", &stream(name, labels, kind, value_type));
        let found: Vec<String> = found.iter().map(|e| e.labels().to_string()).collect();
        assert_eq!(found, expect, "{name}");
    }

    const DISK: [(&str, &str); 1] = [("device", "vda")];

    #[test]
    fn streams_that_node_exporter_has_too() {
        let (counter, gauge) = (Kind::Counter, Kind::Gauge);
        check(
            "disk.read.bytes",
            &DISK,
            counter,
            ValueType::Int,
            &[
                r#"{__name__="node_disk_read_bytes_total", device="vda", node="n1"}"#,
                r#"{__name__="barograph_disk_read_bytes_total", device="vda", node="n1"}"#,
            ],
        );
        let mount = [
            ("device", "sda1"),
            ("fstype", "xfs"),
            ("mount", "/"),
            ("tier", "nvme"),
        ];
        check(
            "filesystem.free.bytes",
            &mount,
            gauge,
            ValueType::Int,
            &[
                r#"{__name__="node_filesystem_free_bytes", device="/dev/sda1", fstype="xfs", mountpoint="/", node="n1"}"#,
                r#"{__name__="barograph_filesystem_free_bytes", device="sda1", fstype="xfs", mount="/", node="n1", tier="nvme"}"#,
            ],
        );
        check(
            "raid.failed.count",
            &[("device", "md0")],
            gauge,
            ValueType::Int,
            &[
                r#"{__name__="node_md_disks", device="md0", node="n1", state="failed"}"#,
                r#"{__name__="barograph_raid_failed_count", device="md0", node="n1"}"#,
            ],
        );
    }

    #[test]
    fn streams_that_only_look_alike() {
        let (counter, gauge) = (Kind::Counter, Kind::Gauge);
        // A stream of another kind, with other labels or with a text is another thing.
        check(
            "disk.read.bytes",
            &DISK,
            gauge,
            ValueType::Int,
            &[r#"{__name__="barograph_disk_read_bytes", device="vda", node="n1"}"#],
        );
        check(
            "disk.read.bytes",
            &[("job", "1")],
            counter,
            ValueType::Int,
            &[r#"{__name__="barograph_disk_read_bytes_total", job="1", node="n1"}"#],
        );
        check(
            "disk.read.bytes",
            &[],
            counter,
            ValueType::Int,
            &[r#"{__name__="barograph_disk_read_bytes_total", node="n1"}"#],
        );
        check(
            "memory.free.bytes",
            &[("node", "n2")],
            gauge,
            ValueType::Int,
            &[r#"{__name__="barograph_memory_free_bytes", node="n2"}"#],
        );
        check(
            "disk.tier.name",
            &DISK,
            Kind::State,
            ValueType::Text,
            &[r#"{__name__="barograph_disk_tier_name_info", device="vda", node="n1"}"#],
        );
        check(
            "a.total",
            &[],
            counter,
            ValueType::Int,
            &[r#"{__name__="barograph_a_total", node="n1"}"#],
        );
    }

    #[test]
    fn every_row_is_once() {
        let mut keys: Vec<_> = ROWS.iter().map(|r| r.stream).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), ROWS.len());
        let mut names: Vec<_> = ROWS.iter().map(|r| (r.name, r.fixed)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS.iter().filter(|r| r.kind == MetricType::Counter) {
            assert!(row.name.ends_with("_total"), "{}", row.name);
        }
    }
}
