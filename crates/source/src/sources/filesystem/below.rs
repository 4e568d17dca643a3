//! The devices below a file system: its RAID level and physical disks, from `/sys/block/*/slaves`
//! (Documentation/ABI/stable/sysfs-block), `md/level`, and for btrfs its own list of devices.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::sources::btrfs;
use crate::tier::whole_disk;
use crate::util::diskstats::SLAVES_MAX;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::sole_text;

use super::mountinfo::Mount;

/// Most levels of stacked devices that are followed.
const DEPTH_MAX: usize = 8;
/// Devices that are no disk: their storage is a file, another machine or memory.
const NO_DISK: [&str; 7] = ["loop", "nbd", "rbd", "drbd", "zram", "ram", "ublkb"];

/// The result, as far as it is known.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Below {
    /// RAID level, such as `raid6`; `none` on plain disks.
    pub(super) raid: Option<String>,
    /// Number of physical disks.
    pub(super) disks: Option<usize>,
}

/// Finds the devices below a mount.
pub(super) fn look(root: &SysRoot, mount: &Mount) -> Below {
    let device = match mount.fstype.as_str() {
        "btrfs" => {
            let device = kernel_name(root, &mount.device);
            match btrfs::of_device(root, &device) {
                Some(layout) => return below_btrfs(root, &layout),
                None => whole_disk(root, &device, None),
            }
        }
        _ => whole_disk(root, &mount.device, Some(&mount.number)),
    };
    let Some(device) = device else {
        return Below::default();
    };
    let mut disks = BTreeSet::new();
    let raid = match mount.fstype.as_str() {
        // With several devices the file system would be a RAID of its own.
        "btrfs" | "bcachefs" => None,
        _ => level(root, &device, DEPTH_MAX),
    };
    let known = gather(root, &device, DEPTH_MAX, &mut disks).is_some();
    let known = known && !matches!(mount.fstype.as_str(), "btrfs" | "bcachefs");
    Below {
        raid,
        disks: known.then_some(disks.len()),
    }
}

fn below_btrfs(root: &SysRoot, layout: &btrfs::BtrfsLayout) -> Below {
    let whole = |name: &String| whole_disk(root, name, None);
    let raid = match (layout.profiles.as_slice(), layout.devices.as_slice()) {
        ([], _) => None,
        (["single"], [only]) => whole(only).and_then(|disk| level(root, &disk, DEPTH_MAX)),
        (profiles, _) => Some(profiles.join("+")),
    };
    let mut disks = BTreeSet::new();
    let all_known = layout.devices.iter().all(|name| {
        whole(name).is_some_and(|disk| gather(root, &disk, DEPTH_MAX, &mut disks).is_some())
    });
    Below {
        raid,
        disks: (all_known && !disks.is_empty()).then_some(disks.len()),
    }
}

/// Adds the physical disks below a whole device. `None` if one of them is unknown.
fn gather(root: &SysRoot, device: &str, depth: usize, disks: &mut BTreeSet<String>) -> Option<()> {
    let below = below(root, device)?;
    if below.is_empty() {
        disks.insert(device.to_owned());
        return Some(());
    }
    let depth = depth.checked_sub(1)?;
    below
        .iter()
        .try_for_each(|name| gather(root, &whole_disk(root, name, None)?, depth, disks))
}

/// The RAID level of a whole device, or of the device below it.
fn level(root: &SysRoot, device: &str, depth: usize) -> Option<String> {
    let dir = dir(root, device);
    if let Some(level) = text(dir.join("md/level")) {
        return Some(level);
    }
    match below(root, device)?.as_slice() {
        [] => Some("none".to_owned()),
        [only] => level(root, &whole_disk(root, only, None)?, depth.checked_sub(1)?),
        // Whether it is striped, mirrored or concatenated is in tables that the kernel shows only
        // to root.
        _ => None,
    }
}

/// The devices directly below; none for a disk. Several paths to one disk count as the first.
fn below(root: &SysRoot, device: &str) -> Option<Vec<String>> {
    let is_numbered = |prefix: &&str| {
        let rest = device.strip_prefix(*prefix);
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let dir = dir(root, device);
    if NO_DISK.iter().any(is_numbered) || !dir.is_dir() {
        return None;
    }
    let names = match names_in(&dir.join("slaves"), SLAVES_MAX) {
        Ok((names, all)) if all <= SLAVES_MAX => names,
        Ok(_) => return None,
        Err(fault) if fault.is_absent() => Vec::new(),
        Err(_) => return None,
    };
    let mut names: Vec<_> = names
        .into_iter()
        .map(|name| String::from_utf8(name).map(|name| name.replace('!', "/")))
        .collect::<Result<_, _>>()
        .ok()?;
    let stacked = ["dm-", "md", "bcache"]
        .iter()
        .any(|prefix| device.starts_with(prefix));
    if names.is_empty() && stacked {
        return None;
    }
    if text(dir.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-")) {
        names.truncate(1);
    }
    Some(names)
}

/// The kernel's name of a device: `dm-0` for `mapper/archive`; other names are returned unchanged.
fn kernel_name(root: &SysRoot, device: &str) -> String {
    let blocks = root.path("sys/block");
    let found = device.strip_prefix("mapper/").and_then(|wanted| {
        let (names, _) = names_in(&blocks, 4096).ok()?;
        let names = names
            .into_iter()
            .filter_map(|name| String::from_utf8(name).ok());
        let mut maps = names.filter(|name| name.starts_with("dm-"));
        maps.find(|name| text(blocks.join(name).join("dm/name")).as_deref() == Some(wanted))
    });
    found.unwrap_or_else(|| device.to_owned())
}

fn dir(root: &SysRoot, device: &str) -> PathBuf {
    root.path("sys/block").join(device.replace('/', "!"))
}

fn text(path: PathBuf) -> Option<String> {
    let mut bytes = Vec::new();
    HeldFile::short_records(path)
        .read_and_close(&mut bytes)
        .ok()?;
    sole_text(&bytes).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let path = tree.0.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            tree
        }

        fn check(
            &self,
            device: &str,
            number: &str,
            fstype: &str,
            raid: Option<&str>,
            disks: Option<usize>,
        ) {
            let mount = Mount {
                point: b"/x".to_vec(),
                label: "/x".into(),
                number: number.into(),
                fstype: fstype.into(),
                device: device.into(),
                compression: None,
            };
            let got = look(&SysRoot::new(self.0.path()), &mount);
            assert_eq!((got.raid.as_deref(), got.disks), (raid, disks), "{device}");
        }
    }

    #[test]
    fn disks_and_what_stands_on_them() {
        let tree = Tree::new(&[
            ("sys/block/sda/sda1/dev", "8:1\n"),
            ("sys/block/sdb/sdb1/dev", "8:17\n"),
            ("sys/block/sdc/dev", "8:32\n"),
            ("sys/block/loop0/dev", "7:0\n"),
            ("sys/block/md0/md/level", "raid1\n"),
            ("sys/block/md0/slaves/sda1/x", ""),
            ("sys/block/md0/slaves/sdb1/x", ""),
            ("sys/block/md1/md/level", "\n"),
            ("sys/block/dm-0/dev", "253:0\n"),
            ("sys/block/dm-0/slaves/md0/x", ""),
            ("sys/block/dm-1/dev", "253:1\n"),
            ("sys/block/dm-1/slaves/sda/x", ""),
            ("sys/block/dm-1/slaves/sdc/x", ""),
            ("sys/block/dm-2/dev", "253:2\n"),
            ("sys/block/dm-2/dm/uuid", "mpath-3600508b4\n"),
            ("sys/block/dm-2/slaves/sda/x", ""),
            ("sys/block/dm-2/slaves/sdb/x", ""),
            ("sys/block/dm-3/dev", "253:3\n"),
            ("sys/block/dm-3/slaves/dm-3/x", ""),
            ("sys/block/dm-4/dev", "253:4\n"),
            ("sys/block/dm-5/dev", "253:5\n"),
            ("sys/block/dm-5/slaves/loop0/x", ""),
            ("sys/block/dm-6/dev", "253:6\n"),
            ("sys/block/dm-6/slaves/gone/x", ""),
        ]);
        tree.check("sda1", "8:1", "ext4", Some("none"), Some(1));
        tree.check("md0", "9:0", "xfs", Some("raid1"), Some(2));
        tree.check("mapper/vg-a", "253:0", "xfs", Some("raid1"), Some(2));
        tree.check("mapper/vg-b", "253:1", "xfs", None, Some(2));
        tree.check("mapper/mpatha", "253:2", "xfs", Some("none"), Some(1));
        // Impossible, unknown and absent devices.
        tree.check("mapper/itself", "253:3", "xfs", None, None);
        tree.check("mapper/empty", "253:4", "xfs", None, None);
        tree.check("mapper/loop", "253:5", "xfs", None, None);
        tree.check("mapper/gone", "253:6", "xfs", None, None);
        tree.check("md1", "9:1", "xfs", None, None);
        tree.check("loop0", "7:0", "ext4", None, None);
        tree.check("nowhere", "9:9", "ext4", None, None);
        tree.check("tmpfs", "0:21", "tmpfs", None, None);
        tree.check("srv:/export", "0:22", "nfs4", None, None);
    }

    #[test]
    fn the_devices_of_btrfs() {
        const UUID: &str = "sys/fs/btrfs/0abb23a9-579b-43e6-ad30-227ef47fcb9d";
        let of = |profile: &str, devices: &[&str]| {
            let mut files = vec![
                ("sys/block/sda/sda1/dev".to_owned(), "8:1\n"),
                ("sys/block/sdb/dev".to_owned(), "8:16\n"),
                ("sys/block/dm-0/dm/name".to_owned(), "archive\n"),
                ("sys/block/dm-0/slaves/sdb/x".to_owned(), ""),
                (
                    format!("{UUID}/allocation/data/{profile}/total_bytes"),
                    "1\n",
                ),
            ];
            files.extend(
                devices
                    .iter()
                    .map(|d| (format!("{UUID}/devices/{d}/x"), "")),
            );
            let files: Vec<_> = files
                .iter()
                .map(|(path, text)| (path.as_str(), *text))
                .collect();
            Tree::new(&files)
        };
        of("raid1", &["sda1", "sdb"]).check("sda1", "0:40", "btrfs", Some("raid1"), Some(2));
        of("single", &["sda1"]).check("sda1", "0:40", "btrfs", Some("none"), Some(1));
        of("single", &["sda1", "sdb"]).check("sdb", "0:40", "btrfs", Some("single"), Some(2));
        of("dup", &["dm-0"]).check("mapper/archive", "0:40", "btrfs", Some("dup"), Some(1));
        of("unheard", &["sdb"]).check("sdb", "0:40", "btrfs", None, Some(1));
        of("raid1", &["sda1", "gone"]).check("sda1", "0:40", "btrfs", Some("raid1"), None);
        of("raid1", &["sda1"]).check("sdb", "0:40", "btrfs", None, None);
    }
}
