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
use crate::{Batch, Missing, Report, Source, SourceError};

use crate::util::diskstats::SECTOR_BYTES;
use topology::{Kind, Node, Topology};

/// Most devices that are followed, partitions included.
const DEVICES_MAX: usize = 4096;
/// Most pairs of a device and a disk below it.
const PAIRS_MAX: usize = 16_384;
/// Most names in mounts that are not the kernel's.
const ALIASES_MAX: usize = 1024;

facts! {
    /// Facts of one block device.
    pub(crate) enum Fact in "device" {
        Kind: State Text "kind.name" "name" "What it is: disk, partition, raid, lvm, crypt, multipath, dm, cache, loop, memory, network, optical, volume or other.";
        Vendor: State Text "vendor.name" "name" "Who made it, as it says.";
        Model: State Text "model.name" "name" "What it calls itself.";
        Serial: State Text "serial.name" "name" "Its serial number.";
        Firmware: State Text "firmware.name" "name" "The version of its firmware.";
        Wwid: State Text "wwid.name" "name" "Its number that no other device in the world has.";
        Mapper: State Text "mapper.name" "name" "Its name below /dev/mapper.";
        Transport: State Text "transport.name" "name" "What it is attached by: pcie, sata, sas, virtio, tcp and the like.";
        Link: State Float "link.bytes_per_second" "bytes/s" "What its link moves as negotiated, its encoding taken off.";
        LinkMax: State Float "link.max.bytes_per_second" "bytes/s" "What its link moves at the fastest that the device can; more than at present where a slot or a cable slows it.";
        Disks: State Int "disks.count" "count" "Physical disks that it stands on, itself included.";
        Tier: State Text "tier.name" "name" "The class of storage.";
        TierReason: State Text "tier.reason.name" "name" "Why it counts as this class of storage.";
        Size: State Int "size.bytes" "bytes" "Its size.";
        Start: State Int "start.bytes" "bytes" "Where on its disk the partition begins.";
        Readonly: State Bool "readonly.flag" "flag" "Whether it takes no writes.";
        Removable: State Bool "removable.flag" "flag" "Whether its medium can be taken out.";
        RequestMax: State Int "request.max.bytes" "bytes" "The longest request that the kernel makes to it.";
        RequestHardwareMax: State Int "request.hardware_max.bytes" "bytes" "The longest request that it takes.";
        Requests: State Int "queue.requests" "requests" "Requests that may wait in one of its queues, reads or writes.";
        Segments: State Int "segments.max.count" "count" "Most pieces of memory in one request.";
        IoMinimum: State Int "io.minimum.bytes" "bytes" "The least that should be asked for at once: a stripe's chunk, a physical block.";
        IoOptimal: State Int "io.optimal.bytes" "bytes" "What should best be asked for at once, such as a full stripe.";
        DiscardGranularity: State Int "discard.granularity.bytes" "bytes" "The pieces in which it frees what is discarded; 0 if it does not.";
        DiscardMax: State Int "discard.max.bytes" "bytes" "Most that the kernel discards at once; 0 if it does not.";
        WriteZeroesMax: State Int "write_zeroes.max.bytes" "bytes" "Most that it zeroes by one command; 0 if it has none.";
        Chunk: State Int "chunk.bytes" "bytes" "A RAID's piece on each disk, or the size of a zone.";
        Zoned: State Text "zoned.name" "name" "Whether it has zones that are written in order: none, host-aware or host-managed.";
        Zones: State Int "zones.count" "count" "How many such zones.";
        Completion: State Text "completion.name" "name" "Which processor completes a request: any, near (the group of the one that asked) or same.";
        Merging: State Text "merging.name" "name" "Which requests are merged: all, simple (with the last one) or none.";
        Counted: State Bool "iostats.flag" "flag" "Whether the kernel counts its requests; without that the disk's counters stand still.";
        Entropy: State Bool "entropy.flag" "flag" "Whether its interrupts feed the random number generator.";
        Polled: State Bool "io_poll.flag" "flag" "Whether programs may poll for the end of requests.";
        ForceUnit: State Bool "fua.flag" "flag" "Whether a write can be told to reach the medium past the cache.";
        Dax: State Bool "dax.flag" "flag" "Whether it can be mapped without the page cache.";
        Stable: State Bool "stable_writes.flag" "flag" "Whether pages must not change while they are written.";
        Throttle: State Float "writeback_throttle.seconds" "seconds" "The latency of reads that writeback is held back for; 0 if it is not.";
        Timeout: State Float "timeout.seconds" "seconds" "After this time a request counts as lost.";
    }
}

facts! {
    /// The relation of a device to a disk below it.
    pub(crate) enum On in "device" {
        Flag: State Bool "on.flag" "flag" "The device stands on this disk, or is it.";
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
    pairs: Roster<FactSet<On>>,
    topology: Topology,
    absent: Option<String>,
}

struct Device {
    facts: FactSet<Fact>,
    kind: Kind,
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

    fn put_devices(&mut self, now_ns: i64, batch: &mut Batch, faults: &mut Faults) {
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
    fn put_queues(&mut self, now_ns: i64, batch: &mut Batch) {
        for node in self.topology.nodes.iter().filter(|n| n.kind.has_queue()) {
            if let Some(device) = self.devices.visit(&node.name, || None) {
                let facts = &mut device.facts;
                let (every_ns, bytes) = (self.every_ns, &mut self.bytes);
                device.uncounted = !queue::put(facts, &node.dir, now_ns, every_ns, batch, bytes);
            }
        }
    }

    fn put_pairs(&mut self, now_ns: i64, batch: &mut Batch, faults: &mut Faults) {
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
                        facts.measured(batch, now_ns, On::Flag, true);
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

    fn read(&mut self, now_ns: i64, batch: &mut Batch) -> Result<(), SourceError> {
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

    fn report(&self) -> Report {
        let mut kinds: BTreeMap<Kind, usize> = BTreeMap::new();
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
        Report {
            sees,
            missing: self.missing(&nameless, &uncounted),
        }
    }
}

impl Devices {
    fn missing(&self, nameless: &[String], uncounted: &[String]) -> Vec<Missing> {
        let mut missing = Vec::new();
        if let Some(why) = &self.absent {
            missing.push(Missing::new(
                "block devices",
                why.as_str(),
                "mount /sys, or let the agent see the host's",
            ));
        } else if self.devices.len() == 0 {
            missing.push(Missing::new(
                "block devices",
                "the kernel lists none that is in use",
                "nothing on a node without disks: set sources.poll.device.enabled = false",
            ));
        }
        if !nameless.is_empty() {
            missing.push(Missing::new(
                format!("model and serial number of {}", nameless.join(", ")),
                "its driver does not give them in /sys, as is usual for virtual disks",
                "where it matters, give the disk a serial number in the virtual machine's configuration",
            ));
        }
        if !uncounted.is_empty() {
            missing.push(Missing::new(
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
    fn identity(&self, device: &mut Device, at: usize, batch: &mut Batch, bytes: &mut Vec<u8>) {
        let node = &self.topology.nodes[at];
        let (now_ns, every_ns) = (self.now_ns, self.every_ns);
        let facts = &mut device.facts;
        facts.text_attribute(batch, now_ns, Fact::Kind, node.kind.as_str(), every_ns);
        let mut identity = Identity::default();
        let mut link = None;
        if node.kind == Kind::Disk {
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
        node: &Node,
        disks: usize,
        batch: &mut Batch,
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
