//! Mounts and their space: `/proc/self/mountinfo` and `statvfs`.
//!
//! There is one set of streams per file system, not per mount: bind mounts, subvolumes and covered
//! mounts are merged. A mount that does not answer is reported as such and does not delay the
//! others.

mod below;
mod compression;
mod mountinfo;
mod probe;

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use barograph_model::NS_PER_S;
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::{FactSet, facts, int};
use crate::report::counted;
use crate::tier::{TierConfig, Tiers, tier_place, whole_disk};
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot};
use crate::util::globs::Globs;
use crate::util::millis::{ATTRIBUTES_INTERVAL_MS, ns};
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::{absent_or_fault, missing_proc};

use mountinfo::Mount;
use probe::{MountAnswer, Probes};
pub use probe::{Space, StatFn};

/// Most file systems that are followed.
const MOUNTS_MAX: usize = 1024;

facts! {
    /// Facts of one file system.
    pub(crate) enum Fact in "filesystem" {
        Total: Gauge Int "total.bytes" "bytes" "Size of the file system.";
        Free: Gauge Int "free.bytes" "bytes" "Unused space, including space that is reserved for root.";
        Available: Gauge Int "available.bytes" "bytes" "Space that is available to ordinary users.";
        Used: Gauge Float "used.ratio" "ratio" "Used space as a share of used and available space, as df shows it.";
        FilesTotal: Gauge Int "files.total.count" "count" "Total number of inodes; 0 if the file system creates them on demand.";
        FilesFree: Gauge Int "files.free.count" "count" "Unused inodes.";
        Block: State Int "block.bytes" "bytes" "Block size: the smallest unit of space that a file can occupy.";
        Compression: State Text "compression.name" "name" "Compression of files according to the mount options; none if there is none.";
        Raid: State Text "raid.name" "name" "RAID level of the devices below the file system; none on plain disks.";
        Devices: State Int "devices.count" "count" "Physical disks below the file system.";
        Readonly: State Bool "readonly.flag" "flag" "Whether the file system is mounted read-only.";
        Responding: State Bool "responding.flag" "flag" "Whether the file system answers in time.";
    }
}

/// Settings of the source of file systems.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FilesystemConfig {
    /// Patterns over types of file systems without user data that are left out, in addition to
    /// those that are always left out.
    pub skip_fstypes: Vec<String>,
    /// Patterns over mount points that are left out.
    pub skip_mounts: Vec<String>,
    /// Milliseconds after which a mount that does not answer is reported as not responding.
    pub timeout_ms: u64,
    /// Milliseconds between reads of attributes: compression, RAID level, number of disks.
    pub attributes_interval_ms: u64,
}

impl Default for FilesystemConfig {
    fn default() -> Self {
        let text = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect();
        Self {
            skip_fstypes: text(&["squashfs", "erofs", "iso9660", "udf"]),
            skip_mounts: text(&[
                "/proc/*",
                "/sys/*",
                "/dev",
                "/run/credentials/*",
                "/run/user/*",
            ]),
            timeout_ms: 2000,
            attributes_interval_ms: ATTRIBUTES_INTERVAL_MS,
        }
    }
}

impl FilesystemConfig {
    pub(crate) fn attributes_interval_ns(&self) -> i64 {
        ns(self.attributes_interval_ms)
    }

    pub(crate) fn timeout(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(ns(self.timeout_ms.max(1)).min(60 * NS_PER_S) as u64)
    }
}

/// The source `filesystem`.
pub struct Filesystems {
    root: SysRoot,
    mountinfo: HeldFile,
    bytes: Vec<u8>,
    /// The content of mountinfo from which the mounts were chosen; they are chosen again only when
    /// it changed.
    known: Vec<u8>,
    skip_fstypes: Globs,
    skip_mounts: Globs,
    timeout: std::time::Duration,
    attributes_ns: i64,
    tiers: Tiers,
    probes: Probes,
    followed: Vec<Followed>,
    unnameable: Vec<MissingPart>,
    refused: usize,
    absent: Option<String>,
}

struct Followed {
    mount: Mount,
    tier: String,
    facts: FactSet<Fact>,
    slot: usize,
    attributes_next_ns: i64,
    /// The block size that it last reported.
    block_bytes: Option<u64>,
    trouble: Option<Trouble>,
}

/// The reason why a mount gave nothing in the last round.
#[derive(Clone, Copy)]
enum Trouble {
    /// The mount has not answered for this time.
    Silent {
        since_ns: i64,
        for_ns: i64,
    },
    Refused(Errno),
    NotAsked,
}

impl Filesystems {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path, tiers: &TierConfig, config: &FilesystemConfig) -> Self {
        Self::with_stat(sys_root, tiers, config, Arc::new(probe::statvfs))
    }

    /// Creates the source with another function that asks for space, such as one that hangs.
    pub fn with_stat(
        sys_root: &Path,
        tiers: &TierConfig,
        config: &FilesystemConfig,
        stat: Arc<StatFn>,
    ) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            mountinfo: root.until_end("proc/self/mountinfo"),
            bytes: Vec::new(),
            known: Vec::new(),
            skip_fstypes: Globs::new(&config.skip_fstypes),
            skip_mounts: Globs::new(&config.skip_mounts),
            timeout: config.timeout(),
            attributes_ns: config.attributes_interval_ns(),
            tiers: Tiers::new(tiers, &root),
            probes: Probes::new(stat),
            followed: Vec::new(),
            unnameable: Vec::new(),
            refused: 0,
            absent: None,
            root,
        }
    }

    /// Follows file systems that were mounted, and retires those that were unmounted.
    fn choose(&mut self, batch: &mut SourceBatch, faults: &mut Faults) {
        let (mut mounts, bad) =
            mountinfo::choose(&self.bytes, &self.skip_fstypes, &self.skip_mounts);
        // A mount that is missing from an incomplete file may still exist.
        if !bad.any() {
            let probes = &self.probes;
            self.followed.retain_mut(|followed| {
                let now = mounts.iter().find(|mount| followed.mount.is_same(mount));
                let stays = now.is_some();
                if let Some(now) = now.filter(|now| **now != followed.mount) {
                    followed.mount = now.clone();
                    followed.attributes_next_ns = i64::MIN;
                }
                if !stays {
                    followed.facts.retire(batch);
                    probes.remove(followed.slot);
                }
                stays
            });
            self.known.clone_from(&self.bytes);
        }
        mounts.retain(|mount| self.followed.iter().all(|f| !f.mount.is_same(mount)));
        let room = MOUNTS_MAX.saturating_sub(self.followed.len());
        self.refused = mounts.len().saturating_sub(room);
        self.unnameable.clear();
        for mount in mounts.into_iter().take(room) {
            match self.follow(mount) {
                Ok(followed) => self.followed.push(followed),
                Err(missing) => self.unnameable.push(missing),
            }
        }
        bad.report(self.mountinfo.path(), faults);
    }

    fn follow(&self, mount: Mount) -> Result<Followed, MissingPart> {
        let disk = whole_disk(&self.root, &mount.device, Some(&mount.number));
        let tier = self
            .tiers
            .of_mount(&mount.label, &mount.device, &mount.fstype, disk.as_deref());
        let labels = [
            ("mount", mount.label.clone()),
            ("device", mount.device.clone()),
            ("fstype", mount.fstype.clone()),
            ("tier", tier.clone()),
        ];
        let facts = FactSet::labelled(labels).map_err(|fault| {
            let what = format!("file system at {}", mount.label);
            MissingPart::new(what, fault.to_string(), "mount it at a shorter path")
        })?;
        let slot = self.probes.add(self.path_of(&mount));
        Ok(Followed {
            mount,
            tier,
            facts,
            slot,
            attributes_next_ns: i64::MIN,
            block_bytes: None,
            trouble: None,
        })
    }

    fn path_of(&self, mount: &Mount) -> Arc<CStr> {
        let mut path = match self.root.is_real() {
            true => Vec::new(),
            false => self.root.as_path().as_os_str().as_bytes().to_vec(),
        };
        path.extend_from_slice(&mount.point);
        CString::new(path)
            .expect("a mount point has no zero byte")
            .into()
    }
}

impl Source for Filesystems {
    fn name(&self) -> &'static str {
        "filesystem"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        let read = absent_or_fault(self.mountinfo.read(&mut self.bytes), &mut self.absent);
        if faults.take(read) == Some(true) && self.bytes != self.known {
            self.choose(batch, &mut faults);
        }
        self.probes.round(self.timeout);
        for followed in &mut self.followed {
            let answer = self.probes.answer(followed.slot);
            followed.put(now_ns, batch, answer);
            followed.attributes(now_ns, batch, &self.root, self.attributes_ns);
        }
        if self.refused > 0 {
            let refused = self.refused;
            faults.add(SourceError::TooMany {
                what: "file systems",
                refused,
                max: MOUNTS_MAX,
            });
        }
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let mut followed: Vec<_> = self.followed.iter().collect();
        followed.sort_by_key(|f| tier_place(&f.tier));
        let names = followed.iter();
        let names = names.map(|f| format!("{} ({})", f.mount.label, f.tier));
        let names: Vec<_> = names.collect();
        let sees = match names.is_empty() {
            true => "no file systems".to_owned(),
            false => format!(
                "{}: {}",
                counted(names.len(), "file system"),
                names.join(", ")
            ),
        };
        let mut missing: Vec<_> = missing_proc("mounts", &self.absent).into_iter().collect();
        missing.extend(self.unnameable.iter().cloned());
        let zfs = self.followed.iter().filter(|f| f.mount.fstype == "zfs");
        let zfs: Vec<_> = zfs.map(|f| f.mount.label.as_str()).collect();
        if !zfs.is_empty() {
            missing.push(MissingPart::new(
                format!("compression, RAID level and disks of {}", zfs.join(", ")),
                "the kernel's files do not tell them of zfs",
                "zpool status and zfs get compression do",
            ));
        }
        missing.extend(self.followed.iter().filter_map(Followed::missing));
        if let Some(fault) = &self.probes.thread_fault {
            let remedy = "raise the limit on threads (ulimit -u, pids.max)";
            missing.push(MissingPart::new(
                "a thread to ask mounts",
                fault.as_str(),
                remedy,
            ));
        }
        SourceCoverage { sees, missing }
    }
}

impl Followed {
    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, answer: MountAnswer) {
        let at_ns = batch.monotonic_ns();
        self.trouble = match answer {
            MountAnswer::Space(space) => {
                self.put_space(now_ns, batch, &space);
                None
            }
            MountAnswer::Refused(errno) => {
                // Without the right to access it, its state is unknown.
                if !matches!(errno, Errno::ACCESS | Errno::PERM | Errno::NOENT) {
                    self.facts.measured(batch, now_ns, Fact::Responding, false);
                }
                Some(Trouble::Refused(errno))
            }
            MountAnswer::Silent => {
                self.facts.measured(batch, now_ns, Fact::Responding, false);
                let since_ns = match self.trouble {
                    Some(Trouble::Silent { since_ns, .. }) => since_ns,
                    _ => at_ns,
                };
                Some(Trouble::Silent {
                    since_ns,
                    for_ns: at_ns.saturating_sub(since_ns),
                })
            }
            MountAnswer::NotAsked => Some(Trouble::NotAsked),
        };
    }

    fn put_space(&mut self, now_ns: i64, batch: &mut SourceBatch, space: &Space) {
        let counts = [
            (Fact::Total, space.total_bytes),
            (Fact::Free, space.free_bytes),
            (Fact::Available, space.available_bytes),
            (Fact::FilesTotal, space.files_total),
            (Fact::FilesFree, space.files_free),
        ];
        for (fact, value) in counts {
            self.facts.count(batch, now_ns, fact, value);
        }
        let used = space.total_bytes.saturating_sub(space.free_bytes) as f64;
        let usable = used + space.available_bytes as f64;
        if usable > 0.0 {
            self.facts.derived(batch, now_ns, Fact::Used, used / usable);
        }
        if space.block_bytes > 0 {
            self.block_bytes = Some(space.block_bytes);
        }
        self.facts
            .measured(batch, now_ns, Fact::Readonly, space.readonly);
        self.facts.measured(batch, now_ns, Fact::Responding, true);
    }

    /// Reads the attributes of the devices below it, if it is time to.
    fn attributes(&mut self, now_ns: i64, batch: &mut SourceBatch, root: &SysRoot, every_ns: i64) {
        if batch.monotonic_ns() < self.attributes_next_ns {
            return;
        }
        self.attributes_next_ns = batch.monotonic_ns().saturating_add(every_ns);
        let below = below::look(root, &self.mount);
        let texts = [
            (Fact::Compression, &self.mount.compression),
            (Fact::Raid, &below.raid),
        ];
        for (fact, text) in texts {
            match text {
                Some(text) => self
                    .facts
                    .text_attribute(batch, now_ns, fact, text, every_ns),
                None => self.facts.retire_one(batch, fact),
            }
        }
        let counts = [
            (Fact::Devices, below.disks.map(|disks| disks as u64)),
            (Fact::Block, self.block_bytes),
        ];
        for (fact, count) in counts {
            match count {
                Some(count) => self
                    .facts
                    .attribute(batch, now_ns, fact, int(count), every_ns),
                None => self.facts.retire_one(batch, fact),
            }
        }
    }

    fn missing(&self) -> Option<MissingPart> {
        let (why, remedy) = match self.trouble? {
            Trouble::Silent { for_ns, .. } => (
                format!("it has not answered for at least {} s", for_ns / NS_PER_S),
                "look at its server; umount -l takes it out of the way",
            ),
            Trouble::Refused(errno) => (std::io::Error::from(errno).to_string(), remedy(errno)),
            Trouble::NotAsked => (
                format!("all {} threads hang in other mounts", probe::THREADS_MAX),
                "look at the servers of the mounts that do not answer",
            ),
        };
        let what = format!("space of {} ({})", self.mount.label, self.mount.fstype);
        Some(MissingPart::new(what, why, remedy))
    }
}

fn remedy(errno: Errno) -> &'static str {
    match errno {
        Errno::ACCESS | Errno::PERM => {
            "let the agent's user look at it, or list it in filesystem.skip_mounts"
        }
        Errno::NOENT => "nothing is at this path for the agent; list it in filesystem.skip_mounts",
        _ => "look at its server; umount -l takes it out of the way",
    }
}
