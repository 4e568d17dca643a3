//! Control groups: the reads, writes and waits of each service, container or job.
//!
//! Version 2, version 1 (blkio and memory) and both at once are supported. Traffic is given by
//! device, and as a sum over devices without those that are stacked on others. A quantity that
//! version 1 does not count has no stream, and is named in the report. A group without I/O has
//! streams only near the root, and the number of groups is bounded: nodes have thousands of groups
//! that are of no interest.

pub(super) mod by_device;
pub(super) mod counted;
pub(super) mod devices;
pub(super) mod io;
mod layout;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot};
use crate::util::millis::ns;
use crate::util::parse::{escape, sole_number};
use crate::util::rate::Meter;
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::pressure;

use by_device::{ByDevice, DeviceFacts, DeviceRoom};
use counted::Counted;
use devices::BlockDevices;
use io::{CountedUnit, IoTable, IoTraffic, parse_v1, parse_v2};
use layout::{CgroupLayout, IoController, directory};

facts! {
    /// Facts of one control group.
    pub(crate) enum Fact in "cgroup" {
        ReadBytes: Counter Int "io.read.bytes" "bytes" "Bytes read from storage by the group and its descendants.";
        WriteBytes: Counter Int "io.write.bytes" "bytes" "Bytes written to storage by the group and its descendants.";
        ReadOps: Counter Int "io.read.ops" "ops" "Reads by the group and its descendants.";
        WriteOps: Counter Int "io.write.ops" "ops" "Writes by the group and its descendants.";
        ReadRate: Gauge Float "io.read.bytes_per_second" "bytes/s" "Bytes read from storage per second by the group and its descendants, averaged since the last poll.";
        WriteRate: Gauge Float "io.write.bytes_per_second" "bytes/s" "Bytes written to storage per second by the group and its descendants, averaged since the last poll.";
        IoSome: Gauge Float "pressure.io.some.ratio" "ratio" "Share of the time since the last poll in which at least one task of the group waited for storage.";
        Memory: Gauge Int "memory.bytes" "bytes" "Memory in use by the group and its descendants, page cache included.";
    }
}

facts! {
    /// Facts of one control group on one block device, stacked devices included.
    pub(crate) enum DeviceFact in "cgroup" {
        ReadBytes: Counter Int "device.read.bytes" "bytes" "Bytes read from this device by the group and its descendants.";
        WriteBytes: Counter Int "device.write.bytes" "bytes" "Bytes written to this device by the group and its descendants.";
        ReadRate: Gauge Float "device.read.bytes_per_second" "bytes/s" "Bytes read from this device per second, averaged since the last poll.";
        WriteRate: Gauge Float "device.write.bytes_per_second" "bytes/s" "Bytes written to this device per second, averaged since the last poll.";
    }
}

const ON_DEVICE: DeviceFacts<DeviceFact> = DeviceFacts {
    read_bytes: DeviceFact::ReadBytes,
    write_bytes: DeviceFact::WriteBytes,
    read_rate: DeviceFact::ReadRate,
    write_rate: DeviceFact::WriteRate,
};

/// Settings of the source of control groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CgroupConfig {
    /// Most groups that are followed, counted from the root downwards; each takes up to three file
    /// descriptors.
    pub groups_max: usize,
    /// Most devices that have streams of the bytes that a group moved on them, counted over all
    /// groups, and again over all jobs; at most 8 of one group or job.
    pub devices_max: usize,
    /// Depth below the root down to which groups are followed.
    pub depth_max: usize,
    /// Depth down to which groups have streams even before their first I/O.
    pub depth_always: usize,
    /// Milliseconds between searches for new groups.
    pub scan_interval_ms: u64,
}

impl Default for CgroupConfig {
    fn default() -> Self {
        Self {
            groups_max: 128,
            devices_max: 128,
            depth_max: 4,
            depth_always: 1,
            scan_interval_ms: 10_000,
        }
    }
}

impl CgroupConfig {
    pub(crate) fn scan_interval_ns(&self) -> i64 {
        ns(self.scan_interval_ms)
    }
}

/// The source `cgroup`.
pub struct Cgroups {
    root: SysRoot,
    config: CgroupConfig,
    layout: CgroupLayout,
    groups: Roster<Group>,
    /// State that is needed to read any group.
    looker: Looker,
    scan_next_ns: i64,
    /// Number of groups that were found but are not followed.
    cut: usize,
}

/// State that is the same for all groups, and buffers that they use one after another.
#[derive(Default)]
struct Looker {
    devices: BlockDevices,
    /// The files and devices that version 1 counts on this machine.
    counted: Counted,
    room: DeviceRoom,
    table: IoTable,
    bytes: Vec<u8>,
    faults: Faults,
}

struct Group {
    label: String,
    facts: FactSet<Fact>,
    by_device: ByDevice<DeviceFact>,
    /// Whether it is the root group: on its devices it has the same traffic as the disks
    /// themselves.
    is_root: bool,
    io: Option<IoFiles>,
    memory: Option<HeldFile>,
    pressure: Option<HeldFile>,
    read: Meter,
    write: Meter,
    stall: Meter,
    /// Whether the group has streams: it had I/O, or is near the root.
    speaks: bool,
    /// Whether it was removed since the last scan.
    gone: bool,
    unnameable: Option<String>,
}

enum IoFiles {
    V2(HeldFile),
    V1 { bytes: HeldFile, ops: HeldFile },
}

impl Cgroups {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path, config: &CgroupConfig) -> Self {
        Self {
            root: SysRoot::new(sys_root),
            config: config.clone(),
            layout: CgroupLayout::default(),
            groups: Roster::new(config.groups_max),
            looker: Looker::default(),
            scan_next_ns: i64::MIN,
            cut: 0,
        }
    }

    /// Searches for new and removed groups.
    fn scan(&mut self, batch: &mut SourceBatch) {
        self.looker.devices = BlockDevices::find(&self.root);
        let (layout, counted) = CgroupLayout::find(&self.root, &self.looker.devices);
        self.looker.counted = counted;
        let (paths, cut) = layout.groups(&self.config);
        self.cut = cut;
        let same = layout == self.layout;
        self.layout = layout;
        // Removed groups, and groups whose files have moved, make room first.
        self.groups.begin();
        for path in paths.iter().filter(|_| same) {
            self.groups.visit(path, || None);
        }
        self.groups.sweep(|group| group.retire(batch));
        self.groups.begin();
        for path in &paths {
            let (layout, config) = (&self.layout, &self.config);
            let group = self
                .groups
                .visit(path, || Some(Group::new(path, layout, config)));
            if let Some(group) = group.filter(|g| g.gone) {
                *group = Group::new(path, &self.layout, &self.config);
            }
        }
    }
}

impl Source for Cgroups {
    fn name(&self) -> &'static str {
        "cgroup"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        if batch.monotonic_ns() >= self.scan_next_ns {
            self.scan(batch);
            self.scan_next_ns = batch
                .monotonic_ns()
                .saturating_add(self.config.scan_interval_ns());
        }
        self.looker.room.begin(self.config.devices_max);
        for (_, group) in self.groups.iter_mut() {
            group.read(now_ns, batch, &mut self.looker);
        }
        std::mem::take(&mut self.looker.faults).finish()
    }

    fn report(&self) -> SourceCoverage {
        let speaking = self.groups.iter().filter(|(_, group)| group.speaks).count();
        let all = counted(self.groups.len(), "control group");
        let version = self.layout.version();
        let sees = format!("{all} ({version}), {speaking} of them with streams");
        let missing = self.explain();
        SourceCoverage { sees, missing }
    }
}

impl Cgroups {
    fn explain(&self) -> Vec<MissingPart> {
        let mut missing = self.explain_io();
        if self.layout.memory.is_none() {
            missing.push(MissingPart::new(
                "memory by control group",
                "no memory controller is mounted",
                "mount cgroup2 and enable its memory controller",
            ));
        }
        if self.layout.pressure.is_none() && self.layout.io.is_some() {
            missing.push(MissingPart::new(
                "pressure by control group",
                "version 1 of control groups does not tell it",
                "mount cgroup2, it may stand beside version 1",
            ));
        }
        if self.cut > 0 {
            missing.push(MissingPart::new(
                format!("{} control groups or more", self.cut),
                format!("only {} are followed", self.config.groups_max),
                "raise cgroup.groups_max",
            ));
        }
        if self.looker.room.refused > 0 {
            missing.push(MissingPart::new(
                format!("{} devices of control groups", self.looker.room.refused),
                format!(
                    "only {} have streams, and {} of one group; their sum is told",
                    self.config.devices_max,
                    by_device::DEVICES_EACH_MAX
                ),
                "raise cgroup.devices_max",
            ));
        }
        for (_, group) in self.groups.iter() {
            if let Some(why) = &group.unnameable {
                let what = format!("control group {}", group.label);
                missing.push(MissingPart::new(
                    what,
                    why.as_str(),
                    "give it a shorter path",
                ));
            }
        }
        missing
    }

    fn explain_io(&self) -> Vec<MissingPart> {
        let base = self.root.path("sys/fs/cgroup");
        match &self.layout.io {
            None => vec![MissingPart::new(
                "I/O by control group",
                format!(
                    "neither the io controller nor blkio is at {}",
                    base.display()
                ),
                "mount cgroup2 and enable its io controller",
            )],
            Some(IoController::V1 { .. }) => self.looker.counted.explain(),
            Some(IoController::V2(root)) => {
                let mut below = self.groups.iter().filter(|(path, _)| *path != b"/");
                let blind = self.groups.len() > 1 && below.all(|(_, group)| group.io.is_none());
                let subtree = root.join("cgroup.subtree_control");
                let missing = MissingPart::new(
                    "I/O by control group",
                    "the io controller is on for the root alone",
                    format!(
                        "echo +io > {}, as root; or IOAccounting=yes for the units of systemd",
                        subtree.display()
                    ),
                );
                blind.then_some(missing).into_iter().collect()
            }
        }
    }
}

impl Group {
    fn new(path: &[u8], layout: &CgroupLayout, config: &CgroupConfig) -> Self {
        let held = |root: &std::path::Path, file: &str| {
            let path = directory(root, path).join(file);
            path.is_file().then(|| HeldFile::short_records(path))
        };
        let io = layout.io.as_ref().and_then(|io| match io {
            IoController::V2(root) => held(root, "io.stat").map(IoFiles::V2),
            IoController::V1 { root, files } => files.and_then(|files| {
                Some(IoFiles::V1 {
                    bytes: held(root, files.0)?,
                    ops: held(root, files.1)?,
                })
            }),
        });
        let label = escape(path);
        let depth = if path == b"/" {
            0
        } else {
            path.iter().filter(|b| **b == b'/').count()
        };
        let facts = FactSet::labelled([("cgroup", label.clone())]);
        let unnameable = facts.as_ref().err().map(ToString::to_string);
        Self {
            label,
            facts: facts.unwrap_or_else(|_| FactSet::new(barograph_model::Labels::none())),
            by_device: ByDevice::default(),
            is_root: path == b"/",
            io,
            memory: layout
                .memory
                .as_ref()
                .and_then(|(root, file)| held(root, file)),
            pressure: layout
                .pressure
                .as_ref()
                .and_then(|root| held(root, "io.pressure")),
            read: Meter::default(),
            write: Meter::default(),
            stall: Meter::default(),
            speaks: depth <= config.depth_always && unnameable.is_none(),
            gone: false,
            unnameable,
        }
    }

    fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
        self.by_device.retire(batch);
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch, looker: &mut Looker) {
        if self.gone || self.unnameable.is_some() {
            return;
        }
        match self.read_files(now_ns, batch, looker) {
            Ok(()) => {}
            // The group was removed since the last scan.
            Err(fault) if fault.is_absent() => {
                self.retire(batch);
                self.gone = true;
                self.speaks = false;
            }
            Err(fault) => looker.faults.add(fault),
        }
    }

    fn read_files(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        looker: &mut Looker,
    ) -> Result<(), SourceError> {
        if let Some(files) = &mut self.io
            && files.read(looker)?
        {
            self.speaks |= looker.table.rows.iter().any(|row| !row.traffic.is_none());
            let traffic = looker.table.sum(&looker.devices.stacked);
            if let Some(traffic) = traffic.filter(|_| self.speaks) {
                self.put_traffic(now_ns, batch, &traffic);
            }
            if !self.is_root {
                let (of, beside) = (
                    ("cgroup", &*self.label),
                    (&looker.devices, &mut looker.room),
                );
                let table = &looker.table;
                self.by_device
                    .put(now_ns, batch, table, of, &ON_DEVICE, beside);
            }
        }
        match self.speaks {
            true => self.read_others(now_ns, batch, looker),
            false => Ok(()),
        }
    }

    /// Reads memory and pressure.
    fn read_others(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        looker: &mut Looker,
    ) -> Result<(), SourceError> {
        let (bytes, faults) = (&mut looker.bytes, &mut looker.faults);
        if let Some(file) = &mut self.memory {
            file.read(bytes)?;
            match sole_number(bytes) {
                Some(used) => self.facts.count(batch, now_ns, Fact::Memory, used),
                None => {
                    let mut bad = crate::util::faults::BadLines::default();
                    bad.add(bytes);
                    bad.report(file.path(), faults);
                }
            }
        }
        if let Some(file) = &mut self.pressure {
            match file.read(bytes) {
                Ok(()) => {
                    let ([some, _], bad) = pressure::parse(bytes);
                    let at_ns = batch.monotonic_ns();
                    if let Some(ratio) = some.and_then(|s| s.ratio(&mut self.stall, at_ns)) {
                        self.facts.derived(batch, now_ns, Fact::IoSome, ratio);
                    }
                    bad.report(file.path(), faults);
                }
                // The file exists, but the kernel was booted without pressure information.
                Err(SourceError::Read {
                    errno: rustix::io::Errno::OPNOTSUPP,
                    ..
                }) => {
                    self.pressure = None;
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn put_traffic(&mut self, now_ns: i64, batch: &mut SourceBatch, traffic: &IoTraffic) {
        self.facts
            .count(batch, now_ns, Fact::ReadBytes, traffic.read_bytes);
        self.facts
            .count(batch, now_ns, Fact::WriteBytes, traffic.write_bytes);
        self.facts
            .count(batch, now_ns, Fact::ReadOps, traffic.read_ops);
        self.facts
            .count(batch, now_ns, Fact::WriteOps, traffic.write_ops);
        let at_ns = batch.monotonic_ns();
        if let Some(rate) = self.read.rate(at_ns, traffic.read_bytes) {
            self.facts.derived(batch, now_ns, Fact::ReadRate, rate);
        }
        if let Some(rate) = self.write.rate(at_ns, traffic.write_bytes) {
            self.facts.derived(batch, now_ns, Fact::WriteRate, rate);
        }
    }
}

impl IoFiles {
    /// Reads the counters into the table, and returns whether they are complete. They are not if
    /// some line was bad: a sum without a device would look like a reset.
    fn read(&mut self, looker: &mut Looker) -> Result<bool, SourceError> {
        let (table, bytes) = (&mut looker.table, &mut looker.bytes);
        table.clear();
        match self {
            Self::V2(file) => {
                file.read(bytes)?;
                let bad = parse_v2(bytes, table);
                let whole = !bad.any();
                bad.report(file.path(), &mut looker.faults);
                Ok(whole)
            }
            Self::V1 { bytes: file, ops } => {
                file.read(bytes)?;
                let bad_bytes = parse_v1(bytes, CountedUnit::Bytes, table);
                ops.read(bytes)?;
                let bad_ops = parse_v1(bytes, CountedUnit::Ops, table);
                let whole = !bad_bytes.any() && !bad_ops.any();
                bad_bytes.report(file.path(), &mut looker.faults);
                bad_ops.report(ops.path(), &mut looker.faults);
                looker.counted.keep(table, &looker.devices.stacked);
                Ok(whole)
            }
        }
    }
}
