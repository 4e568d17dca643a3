//! Health of a disk as the kernel itself reports it, to every user.
//!
//! Temperatures: `Documentation/hwmon/sysfs-interface.rst` and `drivetemp.rst`. Bad blocks: the
//! lists of the block layer (`block/badblocks.c`: `badblocks` of pmem and others, and `bad_blocks`
//! of the members of md arrays, `Documentation/admin-guide/md.rst`), with a line `START LENGTH` for
//! each run of 512-byte sectors. It is not known since when these are counted: no value here covers
//! a disk's lifetime.

use std::path::{Path, PathBuf};

use crate::tier::whole_disk;
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{cut, lines, number, sole_number, sole_text, words};

/// Most entries of a directory that are read.
const NAMES_MAX: usize = 4096;
/// Most sensors or controllers below one disk.
const SENSORS_MAX: usize = 64;
/// Most members of arrays.
const MEMBERS_MAX: usize = 1024;
/// Longest list of bad blocks, in bytes: it has one page, and the kernel cuts off the rest.
const LIST_BYTES_MAX: usize = 4096 - 48;
/// Prefixes of the names of devices without storage of their own: memory, stacked devices, and
/// drives without a disk.
const NO_DISKS: &[&str] = &[
    "loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "rbd", "drbd", "bcache", "zd",
];
/// Vendors, and prefixes of models, of disks that a hypervisor emulates.
const VIRTUAL: &[&str] = &[
    "QEMU",
    "VMware",
    "Msft",
    "VBOX",
    "Virtual",
    "Google",
    "PersistentDisk",
    "Xen",
];

/// The names of the disks in `/sys/block`, with `!` for a slash.
pub(super) fn disks(root: &SysRoot) -> Result<Vec<String>, crate::SourceError> {
    let blocks = root.path("sys/block");
    let (names, _) = names_in(&blocks, NAMES_MAX)?;
    let names = names.into_iter().filter_map(|n| String::from_utf8(n).ok());
    let is_disk = |name: &String| {
        let file = |file: &str| read(blocks.join(name).join(file));
        let is_hidden = file("hidden").is_some_and(|b| sole_number(&b) == Some(1));
        // A drive without a medium has no health to report.
        let is_empty = file("size").is_some_and(|b| sole_number(&b) == Some(0));
        !NO_DISKS.iter().any(|no| name.starts_with(no)) && !is_hidden && !is_empty
    };
    Ok(names.filter(is_disk).collect())
}

/// Size of the disk in blocks of 512 bytes.
pub(super) fn blocks(root: &SysRoot, name: &str) -> Option<u64> {
    sole_number(&read(block(root, name).join("size"))?)
}

/// Whether a hypervisor emulates the disk, so that it has no health of its own.
pub(super) fn is_virtual(root: &SysRoot, name: &str) -> bool {
    if name.starts_with("vd") || name.starts_with("xvd") {
        return true;
    }
    let device = block(root, name).join("device");
    ["vendor", "model"].iter().any(|file| {
        let text = read(device.join(file)).unwrap_or_default();
        let text = sole_text(&text).unwrap_or_default().to_owned();
        // The log of an NVMe drive is good enough if a hypervisor gives one.
        !name.starts_with("nvme") && VIRTUAL.iter().any(|v| text.starts_with(v))
    })
}

/// The temperature from the disk's own sensor, if a driver of hwmon has it: that of nvme, or
/// drivetemp.
///
/// drivetemp asks the disk, which may restart the time after which the disk goes to sleep
/// (`drivetemp.rst`): for a rotating disk it is read only if the disk is known to be awake.
pub(super) fn celsius(root: &SysRoot, name: &str, is_awake: bool) -> Option<f64> {
    let device = block(root, name).join("device");
    let rotational = read(block(root, name).join("queue/rotational"));
    let may_sleep = !is_awake && rotational.and_then(|b| sole_number(&b)) != Some(0);
    let is_left_alone = |sensor: &PathBuf| {
        let driver = read(sensor.join("name")).unwrap_or_default();
        may_sleep && sole_text(&driver) == Some("drivetemp")
    };
    // In the order of the kernels: sensors beside the controller's files since 5.15 (nvme), below
    // hwmon/ (drivetemp), below its PCI device (nvme before); and if one drive has several
    // controllers, below those of the subsystem.
    let mut places = vec![
        device.clone(),
        device.join("hwmon"),
        device.join("device/hwmon"),
    ];
    let controllers = numbered(&device, "nvme");
    places.extend(controllers.iter().map(|name| device.join(name)));
    let sensors = places.iter().flat_map(|place| {
        let names = numbered(place, "hwmon");
        names.into_iter().map(|name| place.join(name))
    });
    sensors
        .filter(|sensor| !is_left_alone(sensor))
        .find_map(|sensor| millicelsius(&read(sensor.join("temp1_input"))?))
}

/// The names in a directory that are a word and a number.
fn numbered(folder: &Path, word: &str) -> Vec<String> {
    let found = names_in(folder, NAMES_MAX).map(|(names, _)| names);
    let names = found.unwrap_or_default().into_iter();
    let names = names.filter_map(|name| String::from_utf8(name).ok());
    let is = |name: &String| {
        let rest = name.strip_prefix(word);
        rest.is_some_and(|rest| number(rest.as_bytes()).is_some())
    };
    names.filter(is).take(SENSORS_MAX).collect()
}

fn millicelsius(bytes: &[u8]) -> Option<f64> {
    let line = bytes.strip_suffix(b"\n")?;
    let (sign, digits) = match line.strip_prefix(b"-") {
        Some(digits) => (-1.0, digits),
        None => (1.0, line),
    };
    let celsius = sign * number(digits)? as f64 / 1000.0;
    (-60.0..=150.0).contains(&celsius).then_some(celsius)
}

/// The bad blocks in the kernel's lists, for some disks.
#[derive(Debug, Default)]
pub(super) struct BadBlocks {
    /// Counts by the disk's name.
    of: Vec<(String, BadBlockCount)>,
}

/// Number of bad blocks, of 512 bytes, in one list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadBlockCount {
    pub(super) blocks: u64,
    /// Whether the list is full, so that there may be more.
    pub(super) is_least: bool,
}

impl BadBlocks {
    /// Reads the lists of all disks and of all members of arrays.
    pub(super) fn read(root: &SysRoot, disks: &[String], faults: &mut Faults) -> Self {
        let mut all = Self::default();
        for disk in disks {
            all.add(disk, block(root, disk).join("badblocks"), faults);
        }
        let (names, _) = names_in(&root.path("sys/block"), NAMES_MAX).unwrap_or_default();
        let arrays = names.iter().filter_map(|n| std::str::from_utf8(n).ok());
        let mut members_left = MEMBERS_MAX;
        for array in arrays.filter(|name| name.starts_with("md")) {
            let folder = block(root, array).join("md");
            let (names, _) = names_in(&folder, NAMES_MAX).unwrap_or_default();
            for name in names {
                let member = std::str::from_utf8(&name).ok();
                let Some(member) = member.and_then(|name| name.strip_prefix("dev-")) else {
                    continue;
                };
                let disk = whole_disk(root, member, None).map(|disk| disk.replace('/', "!"));
                if let Some(disk) = disk
                    && members_left > 0
                {
                    members_left -= 1;
                    let list = folder.join(format!("dev-{member}")).join("bad_blocks");
                    all.add(&disk, list, faults);
                }
            }
        }
        all
    }

    pub(super) fn of(&self, disk: &str) -> Option<BadBlockCount> {
        let found = self.of.iter().find(|(name, _)| name == disk)?;
        Some(found.1)
    }

    /// Adds the blocks of one list to the count of a disk.
    fn add(&mut self, disk: &str, list: PathBuf, faults: &mut Faults) {
        let Some(bytes) = read(list.clone()) else {
            return;
        };
        let mut bad = BadLines::default();
        let more = sum(&bytes, &mut bad);
        let is_whole = !bad.any();
        bad.report(&list, faults);
        let known = self.of.iter_mut().find(|(name, _)| name == disk);
        match (more.filter(|_| is_whole), known) {
            (Some(more), Some((_, known))) => {
                known.blocks = known
                    .blocks
                    .saturating_add(more.blocks)
                    .min(i64::MAX as u64);
                known.is_least |= more.is_least;
            }
            (Some(more), None) => self.of.push((disk.to_owned(), more)),
            (None, _) => {}
        }
    }
}

fn sum(bytes: &[u8], bad: &mut BadLines) -> Option<BadBlockCount> {
    let mut blocks: u64 = 0;
    for line in lines(bytes) {
        let mut words = words(line);
        match (words.number(), words.number(), words.at_end()) {
            (Some(_), Some(length), true) => blocks = blocks.saturating_add(length),
            _ => bad.add(line),
        }
    }
    let is_least = bytes.len() >= LIST_BYTES_MAX;
    if !cut(bytes).is_empty() && !is_least {
        bad.add(cut(bytes));
    }
    (blocks <= i64::MAX as u64).then_some(BadBlockCount { blocks, is_least })
}

fn block(root: &SysRoot, name: &str) -> PathBuf {
    root.path("sys/block").join(name)
}

fn read(path: PathBuf) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let result = HeldFile::short_records(path).read_and_close(&mut bytes);
    result.ok().map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperatures() {
        let check = |text: &str, expect: Option<f64>| {
            assert_eq!(millicelsius(text.as_bytes()), expect, "{text:?}");
        };
        check("34850\n", Some(34.85));
        check("-5000\n", Some(-5.0));
        for bad in [
            "",
            "\n",
            "34850",
            "-\n",
            "34.8\n",
            "--1\n",
            "999999\n",
            "34850 C\n",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn lists_of_bad_blocks() {
        let check = |text: &[u8], expect: Option<u64>| {
            let mut bad = BadLines::default();
            let got = sum(text, &mut bad).filter(|_| !bad.any());
            assert_eq!(got.map(|c| c.blocks), expect, "{}", text.escape_ascii());
        };
        check(b"", Some(0));
        check(b"\n", None);
        check(b"1024 8\n2048 1\n", Some(9));
        check(b"1024 8\n2048 1", None);
        check(b"1024 8 acknowledged\n", None);
        check(b"x\n", None);
        check(b"0 9223372036854775807\n8 9223372036854775807\n", None);
        // A full page that ends inside a line: the 455 whole lines count, as a lower bound.
        let long = "123456 8\n".repeat(500);
        let count = sum(&long.as_bytes()[..4099], &mut BadLines::default());
        let expect = BadBlockCount {
            blocks: 455 * 8,
            is_least: true,
        };
        assert_eq!(count, Some(expect));
    }
}
