//! The layout of a btrfs: its devices and the copies of its data, from `devices/` and
//! `allocation/data/` of `/sys/fs/btrfs/UUID`.

use std::path::{Path, PathBuf};

use crate::util::file::{SysRoot, names_in};

/// Most file systems that are followed.
pub(super) const FILESYSTEMS_MAX: usize = 64;
/// Most names in one of their directories.
pub(super) const NAMES_MAX: usize = 1024;

/// The profiles, with the number of devices that must fail to lose data (btrfs(5) and
/// mkfs.btrfs(8), PROFILES). The two copies of `dup` are on one device.
const PROFILES: [(&str, u64); 9] = [
    ("single", 1),
    ("dup", 1),
    ("raid0", 1),
    ("raid1", 2),
    ("raid1c3", 3),
    ("raid1c4", 4),
    ("raid10", 2),
    ("raid5", 2),
    ("raid6", 3),
];

/// The devices and profiles of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::sources) struct BtrfsLayout {
    /// Names of the devices in the kernel.
    pub(in crate::sources) devices: Vec<String>,
    /// The profile of the data; several while it is converted.
    pub(in crate::sources) profiles: Vec<&'static str>,
}

/// The layout of the file system that a device is part of.
pub(in crate::sources) fn of_device(root: &SysRoot, device: &str) -> Option<BtrfsLayout> {
    let dirs = filesystems(root).ok()?.0;
    dirs.iter().find_map(|dir| {
        let devices = devices(dir)?;
        devices
            .iter()
            .any(|name| name == device)
            .then(|| BtrfsLayout {
                profiles: profiles(&data_dir(dir)),
                devices,
            })
    })
}

/// The directories of the mounted file systems, and the number of those that are left out.
pub(super) fn filesystems(root: &SysRoot) -> Result<(Vec<PathBuf>, usize), crate::SourceError> {
    let top = root.path("sys/fs/btrfs");
    let (names, _) = names_in(&top, NAMES_MAX)?;
    let mut dirs: Vec<_> = names
        .iter()
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter(|name| is_uuid(name))
        .map(|name| top.join(name))
        .collect();
    let refused = dirs.len().saturating_sub(FILESYSTEMS_MAX);
    dirs.truncate(FILESYSTEMS_MAX);
    Ok((dirs, refused))
}

/// The directory with the allocation of data; if metadata is in the same block groups, it is
/// `mixed`.
pub(super) fn data_dir(dir: &Path) -> PathBuf {
    let (data, mixed) = (dir.join("allocation/data"), dir.join("allocation/mixed"));
    if !data.is_dir() && mixed.is_dir() {
        mixed
    } else {
        data
    }
}

/// The profiles of the block groups of this kind.
pub(super) fn profiles(kind: &Path) -> Vec<&'static str> {
    let known = PROFILES.iter().map(|(name, _)| *name);
    known.filter(|name| kind.join(name).is_dir()).collect()
}

/// The number of devices that must fail to lose data of these profiles; `None` if there are none.
pub(super) fn copies(profiles: &[&str]) -> Option<u64> {
    let of = |name: &&str| {
        PROFILES
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, n)| *n)
    };
    profiles.iter().filter_map(of).min()
}

/// Names of the devices, with `/` as in `/dev`.
fn devices(dir: &Path) -> Option<Vec<String>> {
    let (names, _) = names_in(&dir.join("devices"), NAMES_MAX).ok()?;
    let names = names
        .iter()
        .filter_map(|name| std::str::from_utf8(name).ok());
    Some(names.map(|name| name.replace('!', "/")).collect())
}

fn is_uuid(name: &str) -> bool {
    name.len() == 36 && name.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}
