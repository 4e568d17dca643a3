//! Block devices and the disks below them: `/sys/block`, `/proc/self/mountinfo`.
//!
//! Documents: Documentation/ABI/stable/sysfs-block and testing/sysfs-block-dm of the kernel. A
//! device is a whole one of `/sys/block` or a partition, whose directory is inside its disk's. The
//! devices below it are in `slaves`. Several paths to one disk under device-mapper multipath are
//! *one* disk, which has the name of its first path: `device.on.flag{device=sdb,disk=sda}` means
//! that `sdb` is another path to `sda`. Paths of NVMe's own multipathing are hidden by the kernel,
//! and left out.
//!
//! A file system is not always mounted from the kernel's name (`/dev/mapper/vg-root` is `dm-0`), so
//! `device.on.flag` is also put under the mapper's name, and under each name from which a file
//! system is mounted. Thereby `filesystem_*` can be joined to disks by `device`.
//!
//! There may be thousands of devices with some thirty files each, so the source is read on a thread
//! of its own.

mod queue;
mod topology;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::fact::{FactSet, facts, int};
use crate::report::counted;
use crate::tier::{TierConfig, Tiers};
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot};
use crate::util::identity::Identity;
use crate::util::link::Link;
use crate::util::parse::{escape, lines, sole_number, unescape_octal, words};
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use crate::util::diskstats::SECTOR_BYTES;
use topology::{DeviceKind, DeviceNode, Topology};

/// Most devices that are followed, partitions included.
const DEVICES_MAX: usize = 4096;
/// Most pairs of a device and a disk below it.
const PAIRS_MAX: usize = 16_384;
/// Most names in mounts that are not the kernel's.
const ALIASES_MAX: usize = 1024;

facts! {
    /// Facts of one block device.
    pub(crate) enum Fact in "device" {
        Kind: State Text "kind.name" "name" "Kind of the device: disk, partition, raid, lvm, crypt, multipath, dm, cache, loop, memory, network, optical, volume or other.";
        Vendor: State Text "vendor.name" "name" "Vendor name that the device reports.";
        Model: State Text "model.name" "name" "Model name that the device reports.";
        Serial: State Text "serial.name" "name" "Serial number of the device.";
        Firmware: State Text "firmware.name" "name" "Firmware version of the device.";
        Wwid: State Text "wwid.name" "name" "World-wide identifier (WWID) of the device.";
        Mapper: State Text "mapper.name" "name" "Name of the device below /dev/mapper.";
        Transport: State Text "transport.name" "name" "Transport by which the device is attached: pcie, sata, sas, virtio, tcp and others.";
        Link: State Float "link.bytes_per_second" "bytes/s" "Bandwidth of the device's link at the negotiated speed, without the overhead of its encoding.";
        LinkMax: State Float "link.max.bytes_per_second" "bytes/s" "Bandwidth of the link at the greatest speed that the device supports. It exceeds device.link.bytes_per_second if a slot or a cable limits the link.";
        Disks: State Int "disks.count" "count" "Physical disks below the device; a disk counts itself.";
        Tier: State Text "tier.name" "name" "Storage tier of the device, such as nvme, ssd or hdd.";
        TierReason: State Text "tier.reason.name" "name" "Reason for the device's storage tier.";
        Size: State Int "size.bytes" "bytes" "Size of the device.";
        Start: State Int "start.bytes" "bytes" "Offset on the disk at which the partition begins.";
        Readonly: State Bool "readonly.flag" "flag" "Whether the device is read-only.";
        Removable: State Bool "removable.flag" "flag" "Whether the medium of the device is removable.";
        RequestMax: State Int "request.max.bytes" "bytes" "Size of the largest request that the kernel sends to the device.";
        RequestHardwareMax: State Int "request.hardware_max.bytes" "bytes" "Size of the largest request that the device accepts.";
        Requests: State Int "queue.requests" "requests" "Greatest number of reads, and of writes, that each queue of the device can hold.";
        Segments: State Int "segments.max.count" "count" "Greatest number of memory segments in one request.";
        IoMinimum: State Int "io.minimum.bytes" "bytes" "Smallest I/O size that is efficient, such as the chunk of a RAID or a physical block.";
        IoOptimal: State Int "io.optimal.bytes" "bytes" "I/O size that is best for the device, such as a full stripe.";
        DiscardGranularity: State Int "discard.granularity.bytes" "bytes" "Unit of space that the device can discard; 0 if it cannot discard.";
        DiscardMax: State Int "discard.max.bytes" "bytes" "Greatest number of bytes that the kernel discards by one request; 0 if the device cannot discard.";
        WriteZeroesMax: State Int "write_zeroes.max.bytes" "bytes" "Greatest number of bytes that one command can set to zero; 0 if the device has no such command.";
        Chunk: State Int "chunk.bytes" "bytes" "Size of a RAID's chunk on each disk, or of a zone on a zoned device.";
        Zoned: State Text "zoned.name" "name" "Zone model of the device: none, host-aware or host-managed. Zones are written in sequential order.";
        Zones: State Int "zones.count" "count" "Number of zones on a zoned device.";
        Completion: State Text "completion.name" "name" "Processor that completes a request: any, near (in the same group as the processor that submitted it) or same.";
        Merging: State Text "merging.name" "name" "Requests that the kernel merges: all, simple (only with the most recent request) or none.";
        Counted: State Bool "iostats.flag" "flag" "Whether the kernel counts the requests to the device; if not, the counters of source disk do not change.";
        Entropy: State Bool "entropy.flag" "flag" "Whether the interrupts of the device feed the random number generator.";
        Polled: State Bool "io_poll.flag" "flag" "Whether programs may poll the device for the completion of requests.";
        ForceUnit: State Bool "fua.flag" "flag" "Whether the device supports writes that bypass its cache (FUA).";
        Dax: State Bool "dax.flag" "flag" "Whether the device can be mapped without the page cache (DAX).";
        Stable: State Bool "stable_writes.flag" "flag" "Whether a page must not change while it is being written to the device.";
        Throttle: State Float "writeback_throttle.seconds" "seconds" "Target latency of reads, for which the kernel slows writeback; 0 if it does not.";
        Timeout: State Float "timeout.seconds" "seconds" "Time after which the kernel treats a request as failed.";
    }
}

facts! {
    /// The relation of a device to a disk below it.
    pub(crate) enum DiskRelation in "device" {
        Flag: State Bool "on.flag" "flag" "True if the device is on the disk that the label disk names, or is that disk.";
    }
}

/// The source `device`.
pub struct Devices {
    root: SysRoot,
    tiers: Tiers,
    every_ns: i64,
    mountinfo: HeldFile,
    bytes: Vec<u8>,
    devices: Roster<Device>,
    /// By both labels with a zero byte between, which no label contains.
    pairs: Roster<FactSet<DiskRelation>>,
    topology: Topology,
    absent: Option<String>,
}

struct Device {
    facts: FactSet<Fact>,
    kind: DeviceKind,
    nameless: bool,
    uncounted: bool,
}

impl Devices {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path, tiers: &TierConfig, every_ns: i64) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            tiers: Tiers::new(tiers, &root),
            every_ns,
            mountinfo: root.until_end("proc/self/mountinfo"),
            bytes: Vec::new(),
            devices: Roster::new(DEVICES_MAX),
            pairs: Roster::new(PAIRS_MAX),
            topology: Topology::default(),
            absent: None,
            root,
        }
    }

    fn put_devices(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        let look = Look {
            root: &self.root,
            tiers: &self.tiers,
            topology: &self.topology,
            every_ns: self.every_ns,
            now_ns,
        };
        for (at, node) in self.topology.nodes.iter().enumerate() {
            let made = FactSet::labelled([("device", node.label.clone())]);
            let new = made.map(|facts| Device {
                facts,
                kind: node.kind,
                nameless: false,
                uncounted: false,
            });
            let device = match new {
                Ok(new) => self.devices.visit(&node.name, || Some(new)),
                Err(fault) => {
                    faults.add(fault);
                    continue;
                }
            };
            if let Some(device) = device {
                device.kind = node.kind;
                look.identity(device, at, batch, &mut self.bytes);
            }
        }
    }

    /// Puts the settings of the queues. They come after the other facts, so that they are the ones
    /// left out if there are too many facts.
    fn put_queues(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        for node in self.topology.nodes.iter().filter(|n| n.kind.has_queue()) {
            if let Some(device) = self.devices.visit(&node.name, || None) {
                let facts = &mut device.facts;
                let (every_ns, bytes) = (self.every_ns, &mut self.bytes);
                device.uncounted = !queue::put(facts, &node.dir, now_ns, every_ns, batch, bytes);
            }
        }
    }

    fn put_pairs(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        let aliases = self.aliases();
        let mut key = Vec::new();
        for (at, node) in self.topology.nodes.iter().enumerate() {
            let disks = self.topology.disks_below(at);
            let names = std::iter::once(&node.label);
            let others = aliases.get(&node.number).into_iter().flatten();
            for name in names.chain(others) {
                for disk in &disks {
                    let disk = &self.topology.nodes[*disk].label;
                    key.clear();
                    key.extend_from_slice(name.as_bytes());
                    key.push(0);
                    key.extend_from_slice(disk.as_bytes());
                    let labels = || [("device", name.clone()), ("disk", disk.clone())];
                    let make = || match FactSet::labelled(labels()) {
                        Ok(facts) => Some(facts),
                        Err(fault) => {
                            faults.add(fault);
                            None
                        }
                    };
                    if let Some(facts) = self.pairs.visit(&key, make) {
                        facts.measured(batch, now_ns, DiskRelation::Flag, true);
                    }
                }
            }
        }
    }

    /// Other names of devices, by device number: those of the mapper, and those from which file
    /// systems are mounted.
    fn aliases(&mut self) -> BTreeMap<String, BTreeSet<String>> {
        let mut aliases: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut labels = BTreeSet::new();
        for node in &self.topology.nodes {
            labels.insert(node.label.as_str());
            if let Some(name) = &node.mapper {
                let known = aliases.entry(node.number.clone()).or_default();
                known.insert(format!("mapper/{name}"));
            }
        }
        // Without the file no mounts are known; the source `filesystem` reports that.
        if self.mountinfo.read(&mut self.bytes).is_err() {
            return aliases;
        }
        let mut room = ALIASES_MAX;
        for (number, name) in lines(&self.bytes).filter_map(mounted) {
            if room > 0 && !labels.contains(name.as_str()) {
                room -= usize::from(aliases.entry(number).or_default().insert(name));
            }
        }
        aliases
    }

    fn refused(&self, faults: &mut Faults) {
        let counts = [
            (
                "block devices",
                self.topology.refused + self.devices.refused(),
                DEVICES_MAX,
            ),
            (
                "pairs of a device and its disk",
                self.pairs.refused(),
                PAIRS_MAX,
            ),
        ];
        for (what, refused, max) in counts {
            if refused > 0 {
                faults.add(SourceError::TooMany { what, refused, max });
            }
        }
    }
}

/// The number of a mounted device and its name as in the label `device` of the source `filesystem`;
/// `None` for a mount that is not from `/dev`.
fn mounted(line: &[u8]) -> Option<(String, String)> {
    let mut rest = words(line).skip(2);
    let number = std::str::from_utf8(rest.next()?).ok()?.to_owned();
    rest.find(|word| *word == b"-")?;
    let source = unescape_octal(rest.nth(1)?);
    Some((number, escape(source.strip_prefix(b"/dev/")?)))
}

impl Source for Devices {
    fn name(&self) -> &'static str {
        "device"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        self.absent = None;
        match Topology::scan(&self.root, DEVICES_MAX, &mut self.bytes) {
            Ok(topology) => self.topology = topology,
            Err(fault) if fault.is_absent() => {
                self.absent = Some(fault.to_string());
                self.topology = Topology::default();
            }
            Err(fault) => return Err(fault),
        }
        self.devices.begin();
        self.pairs.begin();
        self.put_devices(now_ns, batch, &mut faults);
        self.put_pairs(now_ns, batch, &mut faults);
        self.put_queues(now_ns, batch);
        self.refused(&mut faults);
        self.devices.sweep(|device| device.facts.retire(batch));
        self.pairs.sweep(|facts| facts.retire(batch));
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let mut kinds: BTreeMap<DeviceKind, usize> = BTreeMap::new();
        let (mut nameless, mut uncounted) = (Vec::new(), Vec::new());
        for (name, device) in self.devices.iter() {
            *kinds.entry(device.kind).or_default() += 1;
            if device.nameless {
                nameless.push(escape(name).replace('!', "/"));
            }
            if device.uncounted {
                uncounted.push(escape(name).replace('!', "/"));
            }
        }
        let counts = kinds
            .iter()
            .map(|(kind, n)| format!("{n} {}", kind.as_str()));
        let counts: Vec<_> = counts.collect();
        let mut sees = match counts.is_empty() {
            true => "no block devices".to_owned(),
            false => format!(
                "{}: {}",
                counted(self.devices.len(), "block device"),
                counts.join(", ")
            ),
        };
        for (what, names) in [
            ("never used", &self.topology.unused),
            ("empty", &self.topology.empty),
        ] {
            if !names.is_empty() {
                sees += &format!("; {what}: {}", names.join(", "));
            }
        }
        SourceCoverage {
            sees,
            missing: self.missing(&nameless, &uncounted),
        }
    }
}

impl Devices {
    fn missing(&self, nameless: &[String], uncounted: &[String]) -> Vec<MissingPart> {
        let mut missing = Vec::new();
        if let Some(why) = &self.absent {
            missing.push(MissingPart::new(
                "block devices",
                why.as_str(),
                "mount /sys, or let the agent see the host's",
            ));
        } else if self.devices.len() == 0 {
            missing.push(MissingPart::new(
                "block devices",
                "the kernel lists none that is in use",
                "nothing on a node without disks: set sources.poll.device.enabled = false",
            ));
        }
        if !nameless.is_empty() {
            missing.push(MissingPart::new(
                format!("model and serial number of {}", nameless.join(", ")),
                "its driver does not give them in /sys, as is usual for virtual disks",
                "where it matters, give the disk a serial number in the virtual machine's configuration",
            ));
        }
        if !uncounted.is_empty() {
            missing.push(MissingPart::new(
                format!("counters of {}", uncounted.join(", ")),
                "queue/iostats is 0: the kernel does not count its requests",
                "echo 1 > /sys/block/DEVICE/queue/iostats",
            ));
        }
        missing
    }
}

/// The inputs of one read of the devices.
struct Look<'a> {
    root: &'a SysRoot,
    tiers: &'a Tiers,
    topology: &'a Topology,
    every_ns: i64,
    now_ns: i64,
}

impl Look<'_> {
    fn identity(
        &self,
        device: &mut Device,
        at: usize,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
    ) {
        let node = &self.topology.nodes[at];
        let (now_ns, every_ns) = (self.now_ns, self.every_ns);
        let facts = &mut device.facts;
        facts.text_attribute(batch, now_ns, Fact::Kind, node.kind.as_str(), every_ns);
        let mut identity = Identity::default();
        let mut link = None;
        if node.kind == DeviceKind::Disk {
            identity = Identity::of(&node.dir);
            link = Link::of(self.root, node.os_name());
            device.nameless = identity.model.is_none() && identity.serial.is_none();
        }
        let guess = match node.parent {
            Some(disk) => {
                let disk = &self.topology.nodes[disk].label;
                self.tiers.guess_partition(&node.label, disk)
            }
            None => self.tiers.guess(&node.label),
        };
        let texts = [
            (Fact::Vendor, &identity.vendor),
            (Fact::Model, &identity.model),
            (Fact::Serial, &identity.serial),
            (Fact::Firmware, &identity.firmware),
            (Fact::Wwid, &identity.wwid),
            (Fact::Mapper, &node.mapper),
            (Fact::Transport, &link.as_ref().map(|l| l.transport.clone())),
            (Fact::Tier, &Some(guess.tier)),
            (Fact::TierReason, &Some(guess.reason)),
        ];
        for (fact, text) in texts {
            match text {
                Some(text) => facts.text_attribute(batch, now_ns, fact, text, every_ns),
                None => facts.retire_one(batch, fact),
            }
        }
        let rates = [
            (Fact::Link, link.as_ref().and_then(|l| l.now)),
            (Fact::LinkMax, link.as_ref().and_then(|l| l.max)),
        ];
        for (fact, rate) in rates {
            match rate {
                Some(rate) => facts.attribute(batch, now_ns, fact, rate, every_ns),
                None => facts.retire_one(batch, fact),
            }
        }
        self.numbers(
            facts,
            node,
            self.topology.disks_below(at).len(),
            batch,
            bytes,
        );
    }

    fn numbers(
        &self,
        facts: &mut FactSet<Fact>,
        node: &DeviceNode,
        disks: usize,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
    ) {
        let mut read = |name: &str| {
            let mut file = HeldFile::short_records(node.dir.join(name));
            file.read_and_close(bytes).ok()?;
            sole_number(bytes)
        };
        let sectors = |n: Option<u64>| {
            n.and_then(|n| n.checked_mul(SECTOR_BYTES))
                .filter(|n| *n <= i64::MAX as u64)
        };
        let counts = [
            (Fact::Disks, Some(disks as u64).filter(|n| *n > 0)),
            (Fact::Size, sectors(read("size"))),
            (
                Fact::Start,
                sectors(node.parent.and_then(|_| read("start"))),
            ),
        ];
        let flags = [
            (Fact::Readonly, read("ro")),
            (Fact::Removable, read("removable")),
        ];
        let (now_ns, every_ns) = (self.now_ns, self.every_ns);
        for (fact, count) in counts {
            match count {
                Some(count) => facts.attribute(batch, now_ns, fact, int(count), every_ns),
                None => facts.retire_one(batch, fact),
            }
        }
        for (fact, flag) in flags {
            match flag {
                Some(flag) => facts.attribute(batch, now_ns, fact, flag != 0, every_ns),
                None => facts.retire_one(batch, fact),
            }
        }
    }
}
