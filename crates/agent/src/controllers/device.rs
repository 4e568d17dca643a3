//! The device on which a reader's data lie, and the bytes that the kernel has read from it.
//!
//! It is a file of its own because readers are foreign: a path of a user who has no right to
//! control is compared with the mounts as a text and never looked at, so that nobody learns which
//! files are there, and no mount that hangs delays an answer.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use barograph_control::cgroup::DeviceNumber;
use barograph_model::ControlFault;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::request::{PlanPlace, wrong};

/// Most bytes of a file of `/proc` or `/sys` that is read: tables of thousands of mounts fit in.
const TEXT_BYTES_MAX: u64 = 4 << 20;
/// Bytes of a sector in the kernel's counters, whatever the device has.
const SECTOR_BYTES: u64 = 512;
/// Most devices that lie on one another, such as a volume on a RAID on disks.
const DEPTH_MAX: usize = 8;

/// The trees of the kernel that are read.
#[derive(Clone, Debug)]
pub(super) struct KernelTrees {
    root: PathBuf,
}

/// A device, or a file system that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundDevice {
    /// The name of the whole device, or the number of a file system without one, such as `0:45`.
    pub name: String,
    /// The device of the disk below, which has the scheduler; `None` for a file system without
    /// device.
    pub disk: Option<String>,
}

impl KernelTrees {
    /// The trees below a root, which is `/` but for tests and recorded machines.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The directory of a process.
    pub(super) fn process(&self, pid: u32) -> PathBuf {
        self.root.join(format!("proc/{pid}"))
    }

    /// The directory of block devices.
    pub(super) fn block(&self) -> PathBuf {
        self.root.join("sys/block")
    }

    /// The directory below which the trees are.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The device of a place. Only the path of somebody who may control is looked at.
    pub(super) fn device(
        &self,
        place: &PlanPlace,
        may_look: bool,
    ) -> Result<FoundDevice, ControlFault> {
        match place {
            PlanPlace::Device(name) => match DeviceNumber::parse(name) {
                Some(number) => Ok(self.of_number(number)),
                None => self.of_name(name),
            },
            PlanPlace::Path(path) => {
                let looked = may_look.then(|| number_of_path(Path::new(path))).flatten();
                let number = looked.or_else(|| self.number_of_mount(path));
                number.map(|number| self.of_number(number)).ok_or_else(|| {
                    wrong(format!(
                        "no mounted file system has {path:?}: send device, the number of the file system (`stat -c %d`, as MAJOR:MINOR)"
                    ))
                })
            }
        }
    }

    fn of_name(&self, name: &str) -> Result<FoundDevice, ControlFault> {
        let is_plain = !name.is_empty() && !name.contains(['/', '\0']) && !name.starts_with('.');
        match is_plain && self.block().join(name).is_dir() {
            true => Ok(FoundDevice {
                name: name.to_owned(),
                disk: Some(self.disk_below(name)),
            }),
            false => Err(wrong(format!(
                "{name:?} is no block device: send a name of /sys/block, such as sda, or a number such as 8:1"
            ))),
        }
    }

    /// The whole device of a number, which may be that of a partition.
    fn of_number(&self, number: DeviceNumber) -> FoundDevice {
        let link = self.root.join(format!("sys/dev/block/{number}"));
        let Ok(dir) = fs::canonicalize(&link) else {
            let name = number.to_string();
            return match self.source_of_mount(number) {
                Some(source) if source != number => self.of_number_once(source, name),
                _ => FoundDevice { name, disk: None },
            };
        };
        self.of_dir(&dir, &number.to_string())
    }

    /// The device of a number, or the file system itself: sources of mounts lead on once only.
    fn of_number_once(&self, number: DeviceNumber, name: String) -> FoundDevice {
        let link = self.root.join(format!("sys/dev/block/{number}"));
        match fs::canonicalize(&link) {
            Ok(dir) => self.of_dir(&dir, &name),
            Err(_) => FoundDevice { name, disk: None },
        }
    }

    fn of_dir(&self, dir: &Path, number: &str) -> FoundDevice {
        let whole = match dir.join("partition").exists() {
            true => dir.parent().unwrap_or(dir),
            false => dir,
        };
        match whole.file_name().and_then(|name| name.to_str()) {
            Some(name) => FoundDevice {
                name: name.to_owned(),
                disk: Some(self.disk_below(name)),
            },
            None => FoundDevice {
                name: number.to_owned(),
                disk: None,
            },
        }
    }

    /// The disk below a device that lies on others, such as a logical volume: the first one.
    fn disk_below(&self, name: &str) -> String {
        let mut name = name.to_owned();
        for _ in 0..DEPTH_MAX {
            let slaves = fs::read_dir(self.block().join(&name).join("slaves"));
            let slaves = slaves.into_iter().flatten().flatten();
            let names = slaves.filter_map(|entry| entry.file_name().into_string().ok());
            let Some(first) = names.min() else { break };
            // A slave may be a partition, of which the whole device is meant.
            let dir = fs::canonicalize(self.block().join(&name).join("slaves").join(&first));
            let Ok(dir) = dir else { break };
            let whole = match dir.join("partition").exists() {
                true => dir.parent().unwrap_or(&dir),
                false => &dir,
            };
            match whole.file_name().and_then(|name| name.to_str()) {
                Some(below) => name = below.to_owned(),
                None => break,
            }
        }
        name
    }

    /// The bytes that were read from a device since it came; `None` if the kernel does not count
    /// them.
    pub(super) fn read_bytes(&self, device: &FoundDevice) -> Option<u64> {
        device.disk.as_ref()?;
        let text = text(&self.block().join(&device.name).join("stat"))?;
        let sectors: u64 = text.split_whitespace().nth(2)?.parse().ok()?;
        sectors.checked_mul(SECTOR_BYTES)
    }

    /// The number of the file system that is mounted nearest above a path, of which `..` and
    /// symbolic links are not followed.
    fn number_of_mount(&self, path: &str) -> Option<DeviceNumber> {
        self.mount_above(path).map(|(number, _)| number)
    }

    /// Where the file system is mounted that is nearest above a path, looked for in the same way.
    pub(super) fn mount_of(&self, path: &str) -> Option<String> {
        self.mount_above(path).map(|(_, at)| at)
    }

    fn mount_above(&self, path: &str) -> Option<(DeviceNumber, String)> {
        let mounts = text(&self.root.join("proc/self/mountinfo"))?;
        let path = Path::new(path);
        let found = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(2);
            let (number, at) = (fields.next()?, fields.nth(1)?);
            let at = unescaped(at);
            path.starts_with(&at)
                .then(|| Some((DeviceNumber::parse(number)?, at)))
                .flatten()
        });
        // The last one of equal depth hides those before it.
        found.max_by_key(|(_, at)| at.len())
    }

    /// The number of the device from which a file system without number of its own was mounted, as
    /// btrfs has it.
    fn source_of_mount(&self, number: DeviceNumber) -> Option<DeviceNumber> {
        let mounts = text(&self.root.join("proc/self/mountinfo"))?;
        let number = number.to_string();
        let source = mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            (before.split(' ').nth(2)? == number).then(|| after.split(' ').nth(1))?
        })?;
        let name = Path::new(source).strip_prefix("/dev").ok()?.to_str()?;
        let dir = fs::canonicalize(self.root.join("sys/class/block").join(name)).ok()?;
        DeviceNumber::parse(&text(&dir.join("dev"))?)
    }
}

/// The number of the file system of a path, which links may lead to; `None` if it cannot be looked
/// at.
fn number_of_path(path: &Path) -> Option<DeviceNumber> {
    let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, path, flags, StatxFlags::TYPE).ok()?;
    Some(DeviceNumber {
        major: found.stx_dev_major,
        minor: found.stx_dev_minor,
    })
}

fn unescaped(path: &str) -> String {
    path.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// A file of the kernel as text; `None` if it cannot be read.
pub(super) fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(TEXT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}
