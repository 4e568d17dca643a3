//! The block devices, their kinds, and which device is stacked on which.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::SourceError;
use crate::sources::disk::STANDBY_PREFIXES;
use crate::util::diskstats::{Counters, SLAVES_MAX};
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{escape, lines, sole_number, sole_text, words};

/// Most levels of stacked devices that are followed: more than any that are made on purpose.
const DEPTH_MAX: usize = 8;
/// Most names in the directory of one disk.
const NAMES_MAX: usize = 512;
/// Prefixes of names that determine the kind, where nothing in `/sys` does.
const BY_NAME: [(&[u8], DeviceKind); 11] = [
    (b"loop", DeviceKind::Loop),
    (b"zram", DeviceKind::Memory),
    (b"ram", DeviceKind::Memory),
    (b"nbd", DeviceKind::Network),
    (b"rbd", DeviceKind::Network),
    (b"drbd", DeviceKind::Network),
    (b"bcache", DeviceKind::Cache),
    (b"sr", DeviceKind::Optical),
    (b"fd", DeviceKind::Other),
    (b"zd", DeviceKind::Volume),
    (b"nullb", DeviceKind::Other),
];
/// Prefixes of the names of disks, for recorded trees without `device`; on a running machine every
/// disk has one.
const DISK_NAMES: [&[u8]; 9] = [
    b"sd", b"hd", b"vd", b"xvd", b"nvme", b"mmcblk", b"dasd", b"cciss", b"pmem",
];
/// Prefixes of the UUIDs that users of the device mapper assign
/// (Documentation/ABI/testing/sysfs-block-dm).
const BY_UUID: [(&str, DeviceKind); 5] = [
    ("LVM-", DeviceKind::Lvm),
    ("CRYPT-", DeviceKind::Crypt),
    ("mpath-", DeviceKind::Multipath),
    ("DMRAID-", DeviceKind::Raid),
    ("bcache-", DeviceKind::Cache),
];

/// The kind of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeviceKind {
    Disk,
    Partition,
    Raid,
    Lvm,
    Crypt,
    Multipath,
    /// Another target of the device mapper.
    Mapper,
    Cache,
    Loop,
    Memory,
    Network,
    Optical,
    Volume,
    Other,
}

impl DeviceKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Partition => "partition",
            Self::Raid => "raid",
            Self::Lvm => "lvm",
            Self::Crypt => "crypt",
            Self::Multipath => "multipath",
            Self::Mapper => "dm",
            Self::Cache => "cache",
            Self::Loop => "loop",
            Self::Memory => "memory",
            Self::Network => "network",
            Self::Optical => "optical",
            Self::Volume => "volume",
            Self::Other => "other",
        }
    }

    /// Whether the settings of its queue are of interest.
    pub(super) fn has_queue(self) -> bool {
        !matches!(
            self,
            Self::Partition | Self::Loop | Self::Memory | Self::Optical | Self::Other
        )
    }
}

/// A block device.
#[derive(Clone, Debug)]
pub(super) struct DeviceNode {
    /// The name in `/sys`, where a `!` stands for a slash.
    pub(super) name: Vec<u8>,
    /// The kernel's name.
    pub(super) label: String,
    pub(super) dir: PathBuf,
    pub(super) kind: DeviceKind,
    /// The device number, `major:minor`.
    pub(super) number: String,
    /// The name below `/dev/mapper`.
    pub(super) mapper: Option<String>,
    /// The index of the whole disk, if this is a partition.
    pub(super) parent: Option<usize>,
    /// Names of the devices directly below it.
    slaves: Vec<Vec<u8>>,
    below: Vec<usize>,
}

impl DeviceNode {
    pub(super) fn os_name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }
}

/// All block devices at one moment.
#[derive(Debug, Default)]
pub(super) struct Topology {
    pub(super) nodes: Vec<DeviceNode>,
    /// Names of devices that have never been used.
    pub(super) unused: Vec<String>,
    /// Names of devices without a medium.
    pub(super) empty: Vec<String>,
    /// Number of devices that exceed the limit.
    pub(super) refused: usize,
    /// For each path to a disk, the path that represents the disk: the first one.
    stands_for: BTreeMap<usize, usize>,
}

impl Topology {
    /// Reads the devices in `/sys/block`.
    pub(super) fn scan(
        root: &SysRoot,
        max: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<Self, SourceError> {
        let blocks = root.path("sys/block");
        let (names, all) = names_in(&blocks, max)?;
        let mut topology = Self {
            refused: all - names.len(),
            ..Self::default()
        };
        for name in names {
            let dir = blocks.join(OsStr::from_bytes(&name));
            topology.take_whole(name, dir, max, bytes);
        }
        topology.connect();
        Ok(topology)
    }

    fn take_whole(&mut self, name: Vec<u8>, dir: PathBuf, max: usize, bytes: &mut Vec<u8>) {
        // A path of NVMe's own multipathing: the device that represents all paths is listed too.
        if number(&dir.join("hidden"), bytes) == Some(1) {
            return;
        }
        if number(&dir.join("size"), bytes) == Some(0) {
            return self.empty.push(label(&name));
        }
        if STANDBY_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
            && is_untouched(&dir, bytes)
        {
            return self.unused.push(label(&name));
        }
        let (inside, _) = names_in(&dir, NAMES_MAX).unwrap_or_default();
        let has = |entry: &[u8]| inside.iter().any(|name| name == entry);
        let uuid = text(&dir.join("dm/uuid"), bytes);
        let whole = DeviceNode {
            label: label(&name),
            kind: kind(&name, has, uuid.as_deref()),
            number: text(&dir.join("dev"), bytes).unwrap_or_default(),
            mapper: text(&dir.join("dm/name"), bytes).filter(|_| has(b"dm")),
            parent: None,
            slaves: match has(b"slaves") {
                true => names_in(&dir.join("slaves"), SLAVES_MAX).map_or(Vec::new(), |(n, _)| n),
                false => Vec::new(),
            },
            below: Vec::new(),
            name,
            dir,
        };
        if self.nodes.len() >= max {
            self.refused += 1;
            return;
        }
        let disk = self.nodes.len();
        let parts: Vec<DeviceNode> = inside
            .iter()
            .filter(|entry| is_part_name(entry, &whole.name))
            .filter_map(|entry| partition(entry, &whole, disk, bytes))
            .collect();
        self.nodes.push(whole);
        for part in parts {
            match self.nodes.len() < max {
                true => self.nodes.push(part),
                false => self.refused += 1,
            }
        }
    }

    /// Finds the devices below each device, once all are known.
    fn connect(&mut self) {
        let by_name: BTreeMap<Vec<u8>, usize> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(at, node)| (node.name.clone(), at))
            .collect();
        for node in &mut self.nodes {
            let slaves = node.slaves.iter();
            node.below = slaves
                .filter_map(|name| by_name.get(name).copied())
                .collect();
        }
        for node in self
            .nodes
            .iter()
            .filter(|n| n.kind == DeviceKind::Multipath)
        {
            // sdb comes before sdaa.
            let order = |at: &&usize| (self.nodes[**at].name.len(), &self.nodes[**at].name);
            let Some(first) = node.below.iter().min_by_key(order) else {
                continue;
            };
            let stands_for = node.below.iter().map(|path| (*path, *first));
            self.stands_for.extend(stands_for);
        }
    }

    /// The disks below a device, including itself if it is one; sorted, each once.
    pub(super) fn disks_below(&self, at: usize) -> Vec<usize> {
        let mut disks = Vec::new();
        self.collect(at, DEPTH_MAX, &mut disks);
        disks.sort_unstable();
        disks.dedup();
        disks
    }

    fn collect(&self, at: usize, depth: usize, disks: &mut Vec<usize>) {
        let node = &self.nodes[at];
        if depth == 0 || disks.len() > SLAVES_MAX {
            return;
        }
        if let Some(disk) = node.parent {
            self.collect(disk, depth - 1, disks);
        } else if node.kind == DeviceKind::Disk {
            disks.push(self.stands_for.get(&at).copied().unwrap_or(at));
        } else {
            for below in &node.below {
                self.collect(*below, depth - 1, disks);
            }
        }
    }
}

fn partition(
    name: &[u8],
    whole: &DeviceNode,
    disk: usize,
    bytes: &mut Vec<u8>,
) -> Option<DeviceNode> {
    let dir = whole.dir.join(OsStr::from_bytes(name));
    number(&dir.join("partition"), bytes)?;
    Some(DeviceNode {
        label: label(name),
        kind: DeviceKind::Partition,
        number: text(&dir.join("dev"), bytes).unwrap_or_default(),
        mapper: None,
        parent: Some(disk),
        slaves: Vec::new(),
        below: Vec::new(),
        name: name.to_vec(),
        dir,
    })
}

/// Whether the entry is the disk's name and a number, with a `p` between if the name ends in a
/// digit.
fn is_part_name(entry: &[u8], disk: &[u8]) -> bool {
    let rest = entry.strip_prefix(disk);
    let rest = rest.map(|rest| rest.strip_prefix(b"p").unwrap_or(rest));
    rest.is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit))
}

fn kind(name: &[u8], has: impl Fn(&[u8]) -> bool, uuid: Option<&str>) -> DeviceKind {
    if name.starts_with(b"dm-") || has(b"dm") {
        return uuid.map_or(DeviceKind::Mapper, mapper_kind);
    }
    if name.starts_with(b"md") || has(b"md") {
        return DeviceKind::Raid;
    }
    let known = BY_NAME.iter().find(|(prefix, _)| {
        let rest = name.strip_prefix(*prefix);
        rest.is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit))
    });
    if let Some((_, kind)) = known {
        return *kind;
    }
    match has(b"device") || DISK_NAMES.iter().any(|prefix| name.starts_with(prefix)) {
        true => DeviceKind::Disk,
        false => DeviceKind::Other,
    }
}

/// The kind of a device of the device mapper. `part1-mpath-…` is a partition that kpartx made of a
/// multipath device.
fn mapper_kind(uuid: &str) -> DeviceKind {
    if let Some((number, _)) = uuid.strip_prefix("part").and_then(|r| r.split_once('-'))
        && !number.is_empty()
        && number.bytes().all(|b| b.is_ascii_digit())
    {
        return DeviceKind::Partition;
    }
    let known = BY_UUID.iter().find(|(prefix, _)| uuid.starts_with(prefix));
    known.map_or(DeviceKind::Mapper, |(_, kind)| *kind)
}

/// The kernel's name of a device: a `!` in `/sys` stands for a slash.
fn label(name: &[u8]) -> String {
    escape(name).replace('!', "/")
}

fn is_untouched(dir: &Path, bytes: &mut Vec<u8>) -> bool {
    let read = HeldFile::short_records(dir.join("stat")).read_and_close(bytes);
    let first = read.ok().and_then(|()| lines(bytes).next());
    let counters = first.and_then(|line| Counters::parse(words(line)));
    counters.is_none_or(|c| c.is_untouched())
}

fn number(path: &Path, bytes: &mut Vec<u8>) -> Option<u64> {
    HeldFile::short_records(path.to_owned())
        .read_and_close(bytes)
        .ok()?;
    sole_number(bytes)
}

fn text(path: &Path, bytes: &mut Vec<u8>) -> Option<String> {
    HeldFile::short_records(path.to_owned())
        .read_and_close(bytes)
        .ok()?;
    sole_text(bytes).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_name_and_uuid() {
        let check = |name: &str, entries: &[&str], uuid: Option<&str>, expect: DeviceKind| {
            let has = |entry: &[u8]| entries.iter().any(|e| e.as_bytes() == entry);
            assert_eq!(kind(name.as_bytes(), has, uuid), expect, "{name} {uuid:?}");
        };
        check("sda", &["device"], None, DeviceKind::Disk);
        check("nvme0n1", &[], None, DeviceKind::Disk);
        check("unheard", &["device"], None, DeviceKind::Disk);
        check("unheard", &[], None, DeviceKind::Other);
        check("sr0", &["device"], None, DeviceKind::Optical);
        check("srx", &["device"], None, DeviceKind::Disk);
        check("md127", &["md"], None, DeviceKind::Raid);
        check("bcache0", &["bcache"], None, DeviceKind::Cache);
        check("zram0", &[], None, DeviceKind::Memory);
        check("dm-0", &["dm"], None, DeviceKind::Mapper);
        check("dm-0", &["dm"], Some("LVM-abc"), DeviceKind::Lvm);
        check(
            "dm-0",
            &["dm"],
            Some("CRYPT-LUKS2-abc-root"),
            DeviceKind::Crypt,
        );
        check("dm-0", &["dm"], Some("mpath-3600"), DeviceKind::Multipath);
        check(
            "dm-0",
            &["dm"],
            Some("part2-mpath-3600"),
            DeviceKind::Partition,
        );
        check(
            "dm-0",
            &["dm"],
            Some("party-mpath-3600"),
            DeviceKind::Mapper,
        );
        check("dm-0", &["dm"], Some("STRATIS-1"), DeviceKind::Mapper);
    }

    #[test]
    fn names_of_partitions() {
        for (entry, disk, expect) in [
            ("sda1", "sda", true),
            ("nvme0n1p12", "nvme0n1", true),
            ("sda", "sda", false),
            ("sdaa", "sda", false),
            ("stat", "sda", false),
            ("sda_x", "sda", false),
        ] {
            let is = is_part_name(entry.as_bytes(), disk.as_bytes());
            assert_eq!(is, expect, "{entry} of {disk}");
        }
    }
}
