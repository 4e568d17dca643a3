//! Which class of storage a disk or a file system belongs to.

use barograph_model::Pattern;

use crate::TierConfig;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::sole_number;

/// The tier of what no rule and no default knows.
pub(crate) const OTHER: &str = "other";
/// How deep stacked devices (dm, md) are followed.
const STACK_DEPTH_MAX: usize = 4;
/// Most devices below one stacked device.
const SLAVES_MAX: usize = 64;

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

/// The rules with their patterns ready.
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

    /// Of a whole disk, by its kernel name.
    pub(crate) fn of_disk(&self, device: &str) -> String {
        self.by_rule(None, device, None)
            .unwrap_or_else(|| self.disk_default(device).to_owned())
    }

    /// Of a mount. `disk` is the whole disk below it, if it stands on one.
    pub(crate) fn of_mount(
        &self,
        mount: &str,
        device: &str,
        fstype: &str,
        disk: Option<&str>,
    ) -> String {
        if let Some(tier) = self.by_rule(Some(mount), device, Some(fstype)) {
            return tier;
        }
        if MEMORY_FSTYPES.contains(&fstype) {
            return "memory".to_owned();
        }
        if PFS_FSTYPES.contains(&fstype) {
            return "pfs".to_owned();
        }
        disk.map_or_else(|| OTHER.to_owned(), |disk| self.of_disk(disk))
    }

    fn by_rule(&self, mount: Option<&str>, device: &str, fstype: Option<&str>) -> Option<String> {
        let fits = |pattern: &Option<Pattern>, text: Option<&str>| {
            pattern
                .as_ref()
                .is_none_or(|p| text.is_some_and(|t| p.matches(t)))
        };
        let rule = self.rules.iter().find(|r| {
            fits(&r.mount, mount) && fits(&r.device, Some(device)) && fits(&r.fstype, fstype)
        });
        rule.map(|r| r.tier.clone())
    }

    fn disk_default(&self, device: &str) -> &'static str {
        self.disk_tier(device, STACK_DEPTH_MAX).unwrap_or(OTHER)
    }

    /// A stacked device is as slow as the slowest below it.
    fn disk_tier(&self, device: &str, depth: usize) -> Option<&'static str> {
        if ["ram", "zram", "pmem"]
            .iter()
            .any(|p| device.starts_with(p))
        {
            return Some("memory");
        }
        if device.starts_with("nvme") {
            return Some("nvme");
        }
        // Its flags say nothing of the file behind it.
        if device.starts_with("loop") {
            return None;
        }
        let block = self.root.path("sys/block").join(device.replace('/', "!"));
        if depth > 0
            && let Ok((below, _)) = names_in(&block.join("slaves"), SLAVES_MAX)
        {
            let below = below
                .iter()
                .filter_map(|name| std::str::from_utf8(name).ok());
            let tiers =
                below.filter_map(|name| self.disk_tier(self.whole(name).as_str(), depth - 1));
            let slowness = |t: &&str| ["memory", "nvme", "ssd", "hdd"].iter().position(|n| n == t);
            if let Some(slowest) = tiers.max_by_key(slowness) {
                return Some(slowest);
            }
        }
        let mut bytes = Vec::new();
        HeldFile::short_records(block.join("queue/rotational"))
            .read_and_close(&mut bytes)
            .ok()?;
        sole_number(&bytes).map(|rotational| if rotational == 0 { "ssd" } else { "hdd" })
    }

    /// The whole disk that a partition is part of; a whole disk as it is.
    fn whole(&self, device: &str) -> String {
        whole_disk(&self.root, device, None).unwrap_or_else(|| device.to_owned())
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
    use crate::TierRule;

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
