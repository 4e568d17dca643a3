//! `/proc/diskstats` and `/sys/block`: the I/O of the disks, and their attributes.
//!
//! Only whole disks are followed, and by default none that is stacked on others (`dm-*`, `md*`…):
//! the traffic of partitions and of stacked devices is that of the disks below, and sums over
//! devices must not count it twice. Loop and memory devices that were never used, and devices
//! without a medium, are named in the report but have no streams until their first I/O.

mod attributes;
mod bandwidth;
mod follow;
mod latency;
mod probed;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use barograph_model::Pattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::counted;
use crate::tier::{TierConfig, Tiers};
use crate::util::diskstats::{Counters, parse_line};
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::globs::Globs;
use crate::util::millis::{ATTRIBUTES_INTERVAL_MS, ns};
use crate::util::parse::{cut, escape, lines, sole_number, words};
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::absent_or_fault;

pub(crate) use follow::Fact;
use follow::FollowedDisk;
use probed::Probed;

/// Most block devices that are read, partitions included.
const DEVICES_MAX: usize = 4096;
/// Prefixes of the names of devices that exist in numbers before they are used.
pub(crate) const STANDBY_PREFIXES: [&[u8]; 5] = [b"loop", b"ram", b"zram", b"nbd", b"rbd"];

/// Settings of the source of disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiskConfig {
    /// Patterns over the names of disks that are left out; by default the devices that are stacked
    /// on others, so that sums over all disks count each transfer once.
    pub skip: Vec<String>,
    /// The greatest rate of transfer of a disk, in bytes per second, by pattern over its name; the
    /// longest pattern that matches decides. Without one, it is the rate that `baro probe`
    /// measured, else the usual rate of the disk's link, or a higher rate that was observed. A rate
    /// that was observed is not enough without one of the two.
    pub bandwidth_max: BTreeMap<String, u64>,
    /// The file in which `baro probe` stores its measurements; empty: `probes.toml` in the agent's
    /// state directory, and no file below a root other than `/`.
    pub probes: PathBuf,
    /// Milliseconds between reads of attributes: size, scheduler, queue depth.
    pub attributes_interval_ms: u64,
}

impl Default for DiskConfig {
    fn default() -> Self {
        Self {
            skip: ["dm-*", "md*", "bcache*", "loop*"]
                .map(str::to_owned)
                .to_vec(),
            bandwidth_max: BTreeMap::new(),
            probes: PathBuf::new(),
            attributes_interval_ms: ATTRIBUTES_INTERVAL_MS,
        }
    }
}

impl DiskConfig {
    pub(crate) fn attributes_interval_ns(&self) -> i64 {
        ns(self.attributes_interval_ms)
    }
}

/// The source `disk`.
pub struct Disks {
    diskstats: HeldFile,
    bytes: Vec<u8>,
    /// Buffer for files of single devices, while `bytes` holds the list of all.
    attribute: Vec<u8>,
    devices: Roster<Device>,
    context: Context,
    probed: Probed,
    absent: Option<String>,
    blocks_absent: bool,
}

/// The settings that are needed to create a disk.
struct Context {
    root: SysRoot,
    skip: Globs,
    tiers: Tiers,
    /// Patterns with their maxima, the longest first.
    bandwidth_max: Vec<(Pattern, u64)>,
    attributes_ns: i64,
    /// The whole disk of the line before, for when `/sys/block` is not readable.
    last_whole: Vec<u8>,
}

enum Device {
    Followed(Box<FollowedDisk>),
    Partition,
    /// A disk that was never used, or has no medium.
    Idle,
    /// A disk that is left out by the configuration.
    Skipped,
    /// A disk whose name cannot be a label.
    Unnameable(String),
}

impl Disks {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path, tiers: &TierConfig, config: &DiskConfig) -> Self {
        let root = SysRoot::new(sys_root);
        let limits = config.bandwidth_max.iter();
        let mut limits: Vec<_> = limits.map(|(p, max)| (Pattern::new(p), *max)).collect();
        limits.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.as_str().len()));
        Self {
            diskstats: root.short_records("proc/diskstats"),
            bytes: Vec::new(),
            attribute: Vec::new(),
            devices: Roster::new(DEVICES_MAX),
            probed: Probed::new(&config.probes),
            absent: None,
            blocks_absent: false,
            context: Context {
                skip: Globs::new(&config.skip),
                tiers: Tiers::new(tiers, &root),
                bandwidth_max: limits,
                attributes_ns: config.attributes_interval_ns(),
                last_whole: Vec::new(),
                root,
            },
        }
    }

    fn read_list(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        let mut bad = BadLines::default();
        let bytes = std::mem::take(&mut self.bytes);
        self.context.last_whole.clear();
        for line in lines(&bytes) {
            match parse_line(line) {
                Some((name, counters)) => self.visit(name, &counters, now_ns, batch),
                None => bad.add(line),
            }
        }
        // The disks cannot all vanish at once: if the list is empty now, it was cut off.
        let emptied = bytes.is_empty() && self.devices.len() > 0;
        if !cut(&bytes).is_empty() || emptied {
            bad.add(cut(&bytes));
        }
        // A device that is missing from an incomplete list may still exist.
        if !bad.any() {
            self.sweep(batch);
        }
        bad.report(self.diskstats.path(), faults);
        self.bytes = bytes;
    }

    /// Reads the file of each disk, if there is no list of all.
    fn read_each(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        let blocks = self.context.root.path("sys/block");
        let Ok((names, all)) = names_in(&blocks, DEVICES_MAX) else {
            self.blocks_absent = true;
            return self.sweep(batch);
        };
        self.blocks_absent = false;
        let mut bytes = std::mem::take(&mut self.bytes);
        for sysfs_name in &names {
            let name: Vec<u8> = sysfs_name
                .iter()
                .map(|b| if *b == b'!' { b'/' } else { *b })
                .collect();
            let read = match self.devices.visit(&name, || None) {
                Some(Device::Followed(disk)) => disk.stat.read(&mut bytes),
                _ => {
                    use std::os::unix::ffi::OsStrExt;
                    let dir = blocks.join(std::ffi::OsStr::from_bytes(sysfs_name));
                    HeldFile::short_records(dir.join("stat")).read_and_close(&mut bytes)
                }
            };
            match read {
                Ok(()) => match lines(&bytes)
                    .next()
                    .and_then(|line| Counters::parse(words(line)))
                {
                    Some(counters) => self.visit(&name, &counters, now_ns, batch),
                    None => {
                        let mut bad = BadLines::default();
                        bad.add(&bytes);
                        bad.report(&blocks.join(escape(sysfs_name)).join("stat"), faults);
                    }
                },
                // The disk vanished after the directory was read.
                Err(fault) if fault.is_absent() => {}
                Err(fault) => faults.add(fault),
            }
        }
        self.bytes = bytes;
        if all > DEVICES_MAX {
            let refused = all - DEVICES_MAX;
            faults.add(SourceError::TooMany {
                what: "block devices",
                refused,
                max: DEVICES_MAX,
            });
        }
        self.sweep(batch);
    }

    fn visit(&mut self, name: &[u8], counters: &Counters, now_ns: i64, batch: &mut SourceBatch) {
        let context = &mut self.context;
        let attribute = &mut self.attribute;
        let make = || Some(context.classify(name, counters, attribute));
        let Some(device) = self.devices.visit(name, make) else {
            return;
        };
        if matches!(device, Device::Idle) && !counters.is_untouched() {
            *device = context.classify(name, counters, attribute);
        }
        if !matches!(device, Device::Partition) {
            context.last_whole.clear();
            context.last_whole.extend_from_slice(name);
        }
        if let Device::Followed(disk) = device {
            if disk.attributes(now_ns, batch, attribute, context.attributes_ns) {
                disk.take_probe(self.probed.records());
            }
            disk.put(now_ns, batch, counters);
        }
    }

    fn sweep(&mut self, batch: &mut SourceBatch) {
        self.devices.sweep(|device| {
            if let Device::Followed(disk) = device {
                disk.retire(batch);
            }
        });
    }
}

impl Source for Disks {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        if self.probed.changed() {
            for (_, device) in self.devices.iter_mut() {
                if let Device::Followed(disk) = device {
                    disk.take_probe(self.probed.records());
                }
            }
        }
        self.devices.begin();
        match absent_or_fault(self.diskstats.read(&mut self.bytes), &mut self.absent) {
            Ok(true) => self.read_list(now_ns, batch, &mut faults),
            Ok(false) => self.read_each(now_ns, batch, &mut faults),
            Err(fault) => {
                self.absent = Some(fault.to_string());
                self.read_each(now_ns, batch, &mut faults);
            }
        }
        self.devices.report_refused("block devices", &mut faults);
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let (mut followed, mut idle, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
        let (mut missing, mut blind) = (Vec::new(), Vec::new());
        let mut unmeasured = Vec::new();
        for (name, device) in self.devices.iter() {
            match device {
                Device::Followed(disk) => {
                    followed.push(format!("{} ({})", disk.label, disk.tier));
                    if disk.is_unmeasured() {
                        unmeasured.push(disk.label.as_str());
                    }
                    if !disk.attributes_seen {
                        blind.push(disk.label.as_str());
                    }
                }
                Device::Idle => idle.push(escape(name)),
                Device::Skipped => skipped.push(escape(name)),
                Device::Partition => {}
                Device::Unnameable(why) => missing.push(MissingPart::new(
                    format!("disk {}", escape(name)),
                    why.as_str(),
                    "give it a shorter name",
                )),
            }
        }
        let mut sees = match followed.is_empty() {
            true => "no disks".to_owned(),
            false => format!(
                "{}: {}",
                counted(followed.len(), "disk"),
                followed.join(", ")
            ),
        };
        if !idle.is_empty() {
            sees += &format!("; never used: {}", idle.join(", "));
        }
        if !skipped.is_empty() {
            sees += &format!("; left out by configuration: {}", skipped.join(", "));
        }
        if !unmeasured.is_empty() {
            let names = unmeasured.join(", ");
            sees += &format!("; greatest bandwidth not known (baro probe measures it): {names}");
        }
        self.missing_files(&blind, &mut missing);
        SourceCoverage { sees, missing }
    }
}

impl Disks {
    /// Appends the files that are missing; `blind` are the disks without attributes.
    fn missing_files(&self, blind: &[&str], missing: &mut Vec<MissingPart>) {
        missing.extend(self.probed.missing());
        if let Some(why) = &self.absent {
            let what = if self.blocks_absent {
                "disks"
            } else {
                "the list of all disks"
            };
            let remedy = match self.blocks_absent {
                true => "mount /proc and /sys, or let the agent see the host's",
                false => "each disk's own file is read instead, at a higher cost; mount /proc",
            };
            missing.push(MissingPart::new(what, why.as_str(), remedy));
        }
        if self.absent.is_none() && self.devices.iter().next().is_none() {
            missing.push(MissingPart::new(
                "disks",
                "the kernel lists none",
                "nothing on a node without disks: set sources.poll.disk.enabled = false",
            ));
        }
        if !blind.is_empty() {
            let blocks = self.context.root.path("sys/block");
            missing.push(MissingPart::new(
                format!("attributes and tier of {}", blind.join(", ")),
                format!("{} has no size for them", blocks.display()),
                "mount /sys, or let the agent see the host's",
            ));
        }
    }
}

impl Context {
    fn classify(&self, name: &[u8], counters: &Counters, bytes: &mut Vec<u8>) -> Device {
        let label = escape(name);
        // A slash in the name is a `!` in sysfs. The name is converted as bytes, which need not be
        // UTF-8 as the label is.
        let slash = |b: &u8| if *b == b'/' { b'!' } else { *b };
        let sysfs_name = std::ffi::OsString::from_vec(name.iter().map(slash).collect());
        let blocks = self.root.path("sys/block");
        let block = blocks.join(&sysfs_name);
        let whole = if blocks.is_dir() {
            block.is_dir()
        } else {
            !self.follows_its_disk(name)
        };
        if !whole {
            return Device::Partition;
        }
        let size = HeldFile::short_records(block.join("size")).read_and_close(bytes);
        let empty = size.is_ok() && sole_number(bytes) == Some(0);
        let standby = STANDBY_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if counters.is_untouched() && (standby || empty) {
            return Device::Idle;
        }
        if self.skip.matches(&label) {
            return Device::Skipped;
        }
        let limit = self
            .bandwidth_max
            .iter()
            .find(|(pattern, _)| pattern.matches(&label));
        let limit = limit.map(|(_, max)| *max);
        let tier = self.tiers.of_disk(&label);
        match FollowedDisk::new(&self.root, label, &sysfs_name, tier, limit) {
            Ok(disk) => Device::Followed(Box::new(disk)),
            Err(fault) => Device::Unnameable(fault.to_string()),
        }
    }

    /// Whether the name is that of the disk on an earlier line with a number after it (`sda1`,
    /// `nvme0n1p2`): the kernel lists a disk before its partitions.
    fn follows_its_disk(&self, name: &[u8]) -> bool {
        let disk = &self.last_whole;
        let Some(rest) = name.strip_prefix(disk.as_slice()) else {
            return false;
        };
        let number = match disk.last() {
            Some(b) if b.is_ascii_digit() => rest.strip_prefix(b"p"),
            Some(_) => Some(rest),
            None => None,
        };
        number.is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit))
    }
}
