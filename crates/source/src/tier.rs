//! The tier (class of storage) of a disk or file system.

use std::ffi::OsStr;
use std::path::Path;

use barograph_model::Pattern;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::sole_number;

/// The tier of a device or file system that no rule and no default covers.
pub(crate) const OTHER: &str = "other";
/// The tier of file systems in memory, such as tmpfs.
const MEMORY: &str = "memory";
/// Most levels of stacked devices (dm, md) that are followed.
const STACK_DEPTH_MAX: usize = 4;
/// Most devices below one stacked device.
const SLAVES_MAX: usize = 64;

/// Prefixes of the names of disks that determine the tier.
const BY_NAME: [(&str, &str); 4] = [
    ("ram", MEMORY),
    ("zram", MEMORY),
    ("pmem", MEMORY),
    ("nvme", "nvme"),
];
/// Tiers from fast to slow.
const SLOWER: [&str; 4] = [MEMORY, "nvme", "ssd", "hdd"];

const MEMORY_FSTYPES: &[&str] = &["tmpfs", "ramfs", "hugetlbfs"];
/// Parallel, distributed and network file systems.
const PFS_FSTYPES: &[&str] = &[
    "lustre",
    "gpfs",
    "beegfs",
    "beegfs_nodev",
    "nfs",
    "nfs4",
    "ceph",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "pvfs2",
    "orangefs",
    "glusterfs",
    "fuse.glusterfs",
    "panfs",
    "wekafs",
    "daos",
    "fuse.daos",
    "fuse.dfuse",
    "dvs",
    "afs",
    "cifs",
    "smb3",
    "fuse.sshfs",
    "fuse.juicefs",
    "fuse.moosefs",
    "fuse.mfs",
    "fuse.s3fs",
];

/// Rules that assign tiers; the first that matches decides. Without a matching rule, memory file
/// systems are `memory`, parallel and network ones `pfs`, and disks `nvme`, `ssd` or `hdd` by their
/// kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TierConfig {
    /// The rules, in order.
    pub rules: Vec<TierRule>,
}

/// One rule: all patterns that it has must match (`*` any run of characters, `?` one).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TierRule {
    /// Pattern over the mount point, like `/scratch*`. A rule with it never matches a bare disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Pattern over the device, like `nvme*`; for a file system, the device that it is mounted
    /// from, without `/dev/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Pattern over the type of file system, like `lustre`. A rule with it never matches a bare
    /// disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fstype: Option<String>,
    /// The tier to assign, such as `nvme`.
    pub tier: String,
}

impl TierRule {
    pub(crate) fn matches_all(&self) -> bool {
        self.mount.is_none() && self.device.is_none() && self.fstype.is_none()
    }
}

/// The place of a tier where tiers and file systems are listed; those of one place are listed by
/// size. File systems on known devices and servers come first. Those in memory come last: they are
/// mostly those of the system, of sandboxes and of programs, such as the run directory of the
/// agent. Of the tier `other` are, for instance, the root of a container and pools of ZFS.
pub fn tier_place(tier: &str) -> usize {
    match tier {
        OTHER => 1,
        MEMORY => 2,
        _ => 0,
    }
}

/// The configured rules with their patterns parsed.
#[derive(Clone, Debug)]
pub(crate) struct Tiers {
    rules: Vec<Rule>,
    root: SysRoot,
}

#[derive(Clone, Debug)]
struct Rule {
    mount: Option<Pattern>,
    device: Option<Pattern>,
    fstype: Option<Pattern>,
    tier: String,
}

/// A tier and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    pub(crate) tier: String,
    /// The reason in a few words.
    pub(crate) reason: String,
}

impl Tiers {
    pub(crate) fn new(config: &TierConfig, root: &SysRoot) -> Self {
        let pattern = |text: &Option<String>| text.as_ref().map(Pattern::new);
        let rules = config.rules.iter().map(|rule| Rule {
            mount: pattern(&rule.mount),
            device: pattern(&rule.device),
            fstype: pattern(&rule.fstype),
            tier: rule.tier.clone(),
        });
        Self {
            rules: rules.collect(),
            root: root.clone(),
        }
    }

    /// The tier of a whole disk, by its kernel name.
    pub(crate) fn of_disk(&self, device: &str) -> String {
        self.guess(device).tier
    }

    /// The tier of a whole disk, by its kernel name, with the reason.
    pub(crate) fn guess(&self, device: &str) -> Guess {
        self.by_rule(None, device, None)
            .or_else(|| self.disk_tier(device, STACK_DEPTH_MAX))
            .unwrap_or_else(|| Guess {
                tier: OTHER.to_owned(),
                reason: "no rule matches, and its kind does not tell how fast it is".to_owned(),
            })
    }

    /// The tier of a partition of the whole disk `disk`, with the reason.
    pub(crate) fn guess_partition(&self, device: &str, disk: &str) -> Guess {
        if let Some(guess) = self.by_rule(None, device, None) {
            return guess;
        }
        let Guess { tier, reason } = self.guess(disk);
        let reason = format!("as {disk}: {reason}");
        Guess { tier, reason }
    }

    /// The tier of a mount. `disk` is the whole disk below the mount, if it is on one.
    pub(crate) fn of_mount(
        &self,
        mount: &str,
        device: &str,
        fstype: &str,
        disk: Option<&str>,
    ) -> String {
        if let Some(guess) = self.by_rule(Some(mount), device, Some(fstype)) {
            return guess.tier;
        }
        if MEMORY_FSTYPES.contains(&fstype) {
            return MEMORY.to_owned();
        }
        if PFS_FSTYPES.contains(&fstype) {
            return "pfs".to_owned();
        }
        disk.map_or_else(|| OTHER.to_owned(), |disk| self.of_disk(disk))
    }

    fn by_rule(&self, mount: Option<&str>, device: &str, fstype: Option<&str>) -> Option<Guess> {
        let fits = |pattern: &Option<Pattern>, text: Option<&str>| {
            pattern
                .as_ref()
                .is_none_or(|p| text.is_some_and(|t| p.matches(t)))
        };
        let mut rules = self.rules.iter().zip(1..);
        let (rule, place) = rules.find(|(r, _)| {
            fits(&r.mount, mount) && fits(&r.device, Some(device)) && fits(&r.fstype, fstype)
        })?;
        Some(Guess {
            tier: rule.tier.clone(),
            reason: format!("rule {place} of sources.tiers.rules"),
        })
    }

    /// The tier of a disk by its name and its attributes in `/sys`. A stacked device is as slow as
    /// the slowest device below it.
    fn disk_tier(&self, device: &str, depth: usize) -> Option<Guess> {
        let guess = |tier: &str, reason: String| {
            let tier = tier.to_owned();
            Some(Guess { tier, reason })
        };
        for (prefix, tier) in BY_NAME {
            if device.starts_with(prefix) {
                return guess(tier, format!("its name begins with {prefix}"));
            }
        }
        // The flags of a loop device do not describe the file behind it.
        if device.starts_with("loop") {
            return None;
        }
        let block = self.root.path("sys/block").join(device.replace('/', "!"));
        if depth > 0
            && let Ok((below, _)) = names_in(&block.join("slaves"), SLAVES_MAX)
        {
            let names = below
                .iter()
                .filter_map(|name| std::str::from_utf8(name).ok());
            let guesses = names.filter_map(|name| {
                let disk = self.whole(&block, name);
                Some((name, self.disk_tier(&disk, depth - 1)?))
            });
            let slowness = |(_, g): &(&str, Guess)| SLOWER.iter().position(|n| *n == g.tier);
            // Of several devices that are equally slow, the first is named.
            let slowest =
                guesses.reduce(|worst, other| match slowness(&other) > slowness(&worst) {
                    true => other,
                    false => worst,
                });
            if let Some((name, Guess { tier, reason })) = slowest {
                return guess(&tier, format!("as the slowest below it, {name}: {reason}"));
            }
        }
        let mut bytes = Vec::new();
        HeldFile::short_records(block.join("queue/rotational"))
            .read_and_close(&mut bytes)
            .ok()?;
        match sole_number(&bytes)? {
            0 => guess("ssd", "its rotational flag is 0".to_owned()),
            flag => guess("hdd", format!("its rotational flag is {flag}")),
        }
    }

    /// The name of the whole disk that a device below `block` is a partition of, or the device
    /// itself if it is a whole disk. It is read from a link in `slaves`; only without one are all
    /// disks searched.
    fn whole(&self, block: &Path, device: &str) -> String {
        if self.root.path("sys/block").join(device).is_dir() {
            return device.to_owned();
        }
        let link = std::fs::read_link(block.join("slaves").join(device)).ok();
        let folder = link.as_deref().and_then(Path::parent);
        let disk = folder.and_then(Path::file_name).and_then(OsStr::to_str);
        let parent = disk.filter(|disk| self.root.path("sys/block").join(disk).is_dir());
        parent
            .map(|disk| disk.replace('!', "/"))
            .or_else(|| whole_disk(&self.root, device, None))
            .unwrap_or_else(|| device.to_owned())
    }
}

/// The whole disk of a block device, by its kernel name (without `/dev/`) or its number
/// (`254:1`), looked up in `/sys/block`.
pub(crate) fn whole_disk(root: &SysRoot, device: &str, number: Option<&str>) -> Option<String> {
    /// Most disks looked through.
    const DISKS_MAX: usize = 4096;
    let blocks = root.path("sys/block");
    let (disks, _) = names_in(&blocks, DISKS_MAX).ok()?;
    let device = device.replace('/', "!");
    let has_number = |dir: std::path::PathBuf| {
        let mut bytes = Vec::new();
        number.is_some()
            && HeldFile::short_records(dir.join("dev"))
                .read_and_close(&mut bytes)
                .is_ok()
            && std::str::from_utf8(&bytes).map(str::trim_end).ok() == number
    };
    let disks: Vec<&str> = disks
        .iter()
        .filter_map(|d| std::str::from_utf8(d).ok())
        .collect();
    let by_name = disks.iter().find(|d| {
        **d == device || (device.starts_with(**d) && blocks.join(d).join(&device).is_dir())
    });
    let found = by_name.or_else(|| disks.iter().find(|d| has_number(blocks.join(d))));
    found.map(|d| d.replace('!', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join("sys/block").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sda/queue/rotational", "1\n");
        write("sda/sda1/dev", "8:1\n");
        write("sda/dev", "8:0\n");
        write("vda/queue/rotational", "0\n");
        write("nvme0n1/queue/rotational", "0\n");
        write("dm-0/dev", "253:0\n");
        write("dm-0/queue/rotational", "0\n");
        write("dm-0/slaves/nvme0n1/x", "");
        write("dm-1/queue/rotational", "0\n");
        write("dm-1/slaves/nvme0n1/x", "");
        write("dm-1/slaves/sda1/x", "");
        write("cciss!c0d0/queue/rotational", "1\n");
        dir
    }

    #[test]
    fn disks_by_rule_then_kind() {
        let dir = tree();
        let root = SysRoot::new(dir.path());
        let rule = |device: &str, tier: &str| TierRule {
            device: Some(device.into()),
            tier: tier.into(),
            ..TierRule::default()
        };
        let rules = vec![rule("vd*", "burst_buffer")];
        let plain = Tiers::new(&TierConfig::default(), &root);
        let ruled = Tiers::new(&TierConfig { rules }, &root);
        let check = |tiers: &Tiers, disk: &str, expect: &str| {
            assert_eq!(tiers.of_disk(disk), expect, "{disk}");
        };
        check(&plain, "sda", "hdd");
        check(&plain, "vda", "ssd");
        check(&ruled, "vda", "burst_buffer");
        check(&plain, "nvme0n1", "nvme");
        check(&plain, "dm-0", "nvme");
        check(&plain, "dm-1", "hdd");
        check(&plain, "cciss/c0d0", "hdd");
        check(&plain, "zram0", "memory");
        check(&plain, "loop0", "other");
        check(&plain, "absent", "other");
        let why = |tiers: &Tiers, disk: &str, expect: &str| {
            assert_eq!(tiers.guess(disk).reason, expect, "{disk}");
        };
        why(&plain, "sda", "its rotational flag is 1");
        why(&plain, "nvme0n1", "its name begins with nvme");
        why(&ruled, "vda", "rule 1 of sources.tiers.rules");
        why(
            &plain,
            "dm-1",
            "as the slowest below it, sda1: its rotational flag is 1",
        );
        why(
            &plain,
            "loop0",
            "no rule matches, and its kind does not tell how fast it is",
        );
        let part = plain.guess_partition("sda1", "sda");
        assert_eq!(part.reason, "as sda: its rotational flag is 1");
        assert_eq!(part.tier, "hdd");
        let part = ruled.guess_partition("vda1", "vda");
        assert_eq!(part.tier, "burst_buffer");
    }

    #[test]
    fn mounts_by_rule_then_type_then_disk() {
        let dir = tree();
        let root = SysRoot::new(dir.path());
        let rules = vec![TierRule {
            mount: Some("/scratch*".into()),
            fstype: Some("xfs".into()),
            tier: "burst_buffer".into(),
            ..TierRule::default()
        }];
        let tiers = Tiers::new(&TierConfig { rules }, &root);
        let check = |mount: &str, device: &str, fstype: &str, disk: Option<&str>, expect: &str| {
            assert_eq!(
                tiers.of_mount(mount, device, fstype, disk),
                expect,
                "{mount}"
            );
        };
        check("/scratch/a", "sda1", "xfs", Some("sda"), "burst_buffer");
        check("/scratch/a", "sda1", "ext4", Some("sda"), "hdd");
        check("/dev/shm", "tmpfs", "tmpfs", None, "memory");
        check("/home", "server:/home", "nfs4", None, "pfs");
        check("/x", "x", "fuse.unheard", None, "other");
    }

    #[test]
    fn partitions_belong_to_disks() {
        let dir = tree();
        let root = SysRoot::new(dir.path());
        let check = |device: &str, number: Option<&str>, expect: Option<&str>| {
            assert_eq!(
                whole_disk(&root, device, number).as_deref(),
                expect,
                "{device}"
            );
        };
        check("sda1", None, Some("sda"));
        check("sda", None, Some("sda"));
        check("mapper/vg-root", Some("253:0"), Some("dm-0"));
        check("mapper/vg-root", Some("253:9"), None);
        check("tmpfs", Some("0:21"), None);
        check("cciss/c0d0", None, Some("cciss/c0d0"));
    }
}
