//! The block devices of this machine by their numbers, as in files of control groups: their names,
//! which of them are stacked on others, and how many bytes they moved since they appeared.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::util::diskstats::parse_line;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{escape, lines, words};

use super::io::{DeviceNumbers, device_of};

/// Most block devices that are read, partitions included.
const DEVICES_MAX: usize = 4096;
/// Prefixes of the names of block devices that are stacked on others.
const STACKED_PREFIXES: [&[u8]; 3] = [b"dm-", b"md", b"loop"];

/// The block devices of this machine.
#[derive(Debug, Default)]
pub(in crate::sources) struct BlockDevices {
    known: Vec<WholeDevice>,
    /// Devices whose traffic is counted again at the devices below them.
    pub(in crate::sources) stacked: Vec<DeviceNumbers>,
}

/// A whole device; files of control groups have no partitions.
#[derive(Debug)]
pub(super) struct WholeDevice {
    pub(super) device: DeviceNumbers,
    pub(super) name: String,
    /// Bytes read and written since it appeared; `None` if `/proc/diskstats` cannot be read.
    pub(super) moved_bytes: Option<u64>,
}

impl BlockDevices {
    /// Reads the devices from `/sys/block` and `/proc/diskstats`.
    pub(in crate::sources) fn find(root: &SysRoot) -> Self {
        let blocks = root.path("sys/block");
        let (names, _) = names_in(&blocks, DEVICES_MAX).unwrap_or_default();
        let mut bytes = Vec::new();
        let mut stats = HashMap::new();
        if root
            .until_end("proc/diskstats")
            .read_and_close(&mut bytes)
            .is_ok()
        {
            let used = lines(&bytes).take(DEVICES_MAX);
            stats.extend(
                used.filter_map(line)
                    .map(|(name, device, moved)| (name, (device, moved))),
            );
        }
        let mut all = Self::default();
        for raw in &names {
            // `cciss/c0d0` is `cciss!c0d0` in a directory.
            let plain = |b: &u8| if *b == b'!' { b'/' } else { *b };
            let name: Vec<u8> = raw.iter().map(plain).collect();
            let known = match stats.get(&name[..]) {
                Some((device, moved)) => Some((*device, Some(*moved))),
                None => number_file(&blocks, raw).map(|device| (device, None)),
            };
            let Some((device, moved_bytes)) = known else {
                continue;
            };
            if STACKED_PREFIXES.iter().any(|p| name.starts_with(p)) {
                all.stacked.push(device);
            }
            let name = escape(&name);
            all.known.push(WholeDevice {
                device,
                name,
                moved_bytes,
            });
        }
        all
    }

    /// The name of a device; its numbers if the name is unknown.
    pub(super) fn name(&self, device: DeviceNumbers) -> String {
        let known = self.known.iter().find(|known| known.device == device);
        known.map_or_else(|| format!("{}:{}", device.0, device.1), |k| k.name.clone())
    }

    /// The devices that have moved any bytes.
    pub(super) fn used(&self) -> impl Iterator<Item = &WholeDevice> {
        self.known
            .iter()
            .filter(|known| known.moved_bytes.is_some_and(|moved| moved > 0))
    }

    pub(super) fn moved_bytes(&self, device: DeviceNumbers) -> Option<u64> {
        let known = self.known.iter().find(|known| known.device == device)?;
        known.moved_bytes
    }
}

/// Parses a line of `/proc/diskstats`: name, numbers, and bytes moved.
fn line(line: &[u8]) -> Option<(&[u8], DeviceNumbers, u64)> {
    let mut numbers = words(line);
    let device = (numbers.number()?, numbers.number()?);
    let (name, counters) = parse_line(line)?;
    let moved = counters.read_bytes.saturating_add(counters.write_bytes);
    Some((name, device, moved))
}

/// The device number in the file `dev` of a device.
fn number_file(blocks: &Path, name: &[u8]) -> Option<DeviceNumbers> {
    let mut bytes = Vec::new();
    let path = blocks.join(OsStr::from_bytes(name)).join("dev");
    HeldFile::short_records(path)
        .read_and_close(&mut bytes)
        .ok()?;
    device_of(bytes.trim_ascii())
}
