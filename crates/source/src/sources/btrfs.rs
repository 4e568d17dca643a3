//! Mounted btrfs file systems: `/sys/fs/btrfs`
//! (<https://btrfs.readthedocs.io/en/latest/ch-sysfs.html>).
//!
//! Without such a file system, a read only looks for the directory every 30 s (`SCAN_NS`).

mod layout;

use std::path::{Path, PathBuf};

use barograph_model::NS_PER_S;

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::keyed::KeyedLines;
use crate::util::parse::{number, sole_number, sole_text};
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::absent_or_fault;

pub(super) use layout::{BtrfsLayout, of_device};
use layout::{FILESYSTEMS_MAX, NAMES_MAX, copies, data_dir, filesystems, profiles};

/// Most devices of one file system.
const DEVICES_MAX: usize = 256;
/// Time between two searches for new file systems, devices and profiles.
const SCAN_NS: i64 = 30 * NS_PER_S;

facts! {
    /// Facts of one file system.
    pub(crate) enum Fact in "btrfs" {
        Label: State Text "label.name" "name" "Label of the file system.";
        Devices: Gauge Int "devices.count" "count" "Devices that belong to the file system, missing ones included.";
        Missing: Gauge Int "missing.count" "count" "Devices that belong to the file system and are missing.";
        DataTotal: Gauge Int "data.total.bytes" "bytes" "Space allocated for data; a byte that is stored in several copies counts once.";
        DataUsed: Gauge Int "data.used.bytes" "bytes" "Space used by data.";
        MetadataTotal: Gauge Int "metadata.total.bytes" "bytes" "Space allocated for metadata.";
        MetadataUsed: Gauge Int "metadata.used.bytes" "bytes" "Space used by metadata.";
        SystemTotal: Gauge Int "system.total.bytes" "bytes" "Space allocated for the system's block groups, which map the devices.";
        SystemUsed: Gauge Int "system.used.bytes" "bytes" "Space used in the system's block groups.";
        Profile: State Text "profile.name" "name" "Profile of data, such as single, dup or raid1; several joined by + while a conversion runs.";
        MetadataProfile: State Text "metadata.profile.name" "name" "Profile of metadata, such as single, dup or raid1; several joined by + while a conversion runs.";
        Replication: Gauge Int "replication.count" "count" "Smallest number of device failures that loses data: 1 without redundancy, 0 if data is lost already.";
        Errors: Counter Int "errors.count" "count" "Errors of all devices since their counters were last reset.";
        Exclusive: State Text "exclusive.name" "name" "Exclusive operation that runs now, such as balance or device replace; none if there is none.";
        Commits: Counter Int "commits.count" "count" "Transactions committed.";
        CommitSeconds: Counter Float "commit.seconds" "seconds" "Time spent in commits.";
        CommitLast: Gauge Float "commit.last.seconds" "seconds" "Time that the last commit took.";
        CommitMax: Gauge Float "commit.max.seconds" "seconds" "Time that the longest commit took since the mount or since this value was reset.";
    }
}

facts! {
    /// Facts of one device of a file system.
    pub(crate) enum DeviceFact in "btrfs.member" {
        Write: Counter Int "write_errors.count" "count" "Writes to the device that failed.";
        Read: Counter Int "read_errors.count" "count" "Reads from the device that failed.";
        Flush: Counter Int "flush_errors.count" "count" "Flushes of the device that failed.";
        Corruption: Counter Int "corruption_errors.count" "count" "Blocks on the device with a wrong checksum or content.";
        Generation: Counter Int "generation_errors.count" "count" "Blocks on the device that are older than expected, which means that writes were lost.";
        Missing: State Bool "missing.flag" "flag" "Whether the device is missing.";
    }
}

const ERRORS: [(&[u8], DeviceFact); 5] = [
    (b"write_errs", DeviceFact::Write),
    (b"read_errs", DeviceFact::Read),
    (b"flush_errs", DeviceFact::Flush),
    (b"corruption_errs", DeviceFact::Corruption),
    (b"generation_errs", DeviceFact::Generation),
];
const COMMITS: [&[u8]; 4] = [
    b"commits",
    b"last_commit_ms",
    b"max_commit_ms",
    b"total_commit_ms",
];
const KINDS: usize = 3;

/// The source `btrfs`.
pub struct Btrfs {
    root: SysRoot,
    bytes: Vec<u8>,
    followed: Roster<Filesystem>,
    scan_next_ns: i64,
    refused: usize,
    unnameable: Vec<MissingPart>,
    absent: Option<String>,
}

struct Filesystem {
    /// The name of the file system in the report.
    label: String,
    facts: FactSet<Fact>,
    /// Files with the total and used bytes of data, metadata and system.
    spaces: [(HeldFile, HeldFile); KINDS],
    label_file: HeldFile,
    exclusive: HeldFile,
    commit_stats: HeldFile,
    commits: KeyedLines<{ COMMITS.len() }>,
    profile: String,
    metadata_profile: String,
    /// Number of device failures that lose data, by the profile of the data: one more than it
    /// survives.
    copies: Option<u64>,
    devices: Roster<Device>,
    missing: u64,
}

struct Device {
    facts: FactSet<DeviceFact>,
    missing: HeldFile,
    error_stats: HeldFile,
    errors: KeyedLines<{ ERRORS.len() }>,
}

impl Btrfs {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        Self {
            root: SysRoot::new(sys_root),
            bytes: Vec::new(),
            followed: Roster::new(FILESYSTEMS_MAX),
            scan_next_ns: i64::MIN,
            refused: 0,
            unnameable: Vec::new(),
            absent: None,
        }
    }

    /// Searches for file systems, and reads their layout.
    fn scan(&mut self, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut found = Vec::new();
        let listed = filesystems(&self.root).map(|(dirs, refused)| {
            found = dirs;
            self.refused = refused;
        });
        absent_or_fault(listed, &mut self.absent)?;
        self.unnameable.clear();
        self.followed.begin();
        for dir in &found {
            let name = dir.file_name().unwrap_or_default().to_string_lossy();
            let unnameable = &mut self.unnameable;
            let make = || match Filesystem::new(&name, dir) {
                Ok(filesystem) => Some(filesystem),
                Err(fault) => {
                    let what = format!("btrfs {name}");
                    unnameable.push(MissingPart::new(what, fault.to_string(), "none is known"));
                    None
                }
            };
            if let Some(filesystem) = self.followed.visit(name.as_bytes(), make) {
                filesystem.look(&name, dir, batch);
            }
        }
        self.followed.sweep(|filesystem| filesystem.retire(batch));
        Ok(())
    }
}

impl Source for Btrfs {
    fn name(&self) -> &'static str {
        "btrfs"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        if self.is_absent() || batch.monotonic_ns() >= self.scan_next_ns {
            self.scan_next_ns = batch.monotonic_ns().saturating_add(SCAN_NS);
            let scanned = self.scan(batch);
            faults.take(scanned);
        }
        for (_, filesystem) in self.followed.iter_mut() {
            if !filesystem.put(now_ns, batch, &mut self.bytes, &mut faults) {
                // It was unmounted: the next read searches for the remaining ones.
                self.scan_next_ns = i64::MIN;
            }
        }
        if self.refused > 0 {
            faults.add(SourceError::TooMany {
                what: "btrfs file systems",
                refused: self.refused,
                max: FILESYSTEMS_MAX,
            });
        }
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        self.followed.iter().next().is_none() && self.unnameable.is_empty()
    }

    fn report(&self) -> SourceCoverage {
        let mut missing = self.unnameable.clone();
        if let Some(why) = &self.absent {
            missing.push(MissingPart::new(
                "btrfs",
                why.as_str(),
                "nothing to do on a machine without btrfs; a container needs the host's /sys",
            ));
        }
        let seen: Vec<_> = self.followed.iter().map(|(_, f)| f.describe()).collect();
        if seen.is_empty() && missing.is_empty() {
            missing.push(MissingPart::new(
                "btrfs",
                "no btrfs is mounted",
                "nothing to do on a machine without btrfs",
            ));
        }
        for (_, filesystem) in self.followed.iter() {
            if filesystem.missing > 0 {
                missing.push(MissingPart::new(
                    format!(
                        "{} of {}",
                        counted(filesystem.missing as usize, "device"),
                        filesystem.label
                    ),
                    "btrfs does not find it",
                    "plug it in again, or put another in its place (btrfs replace)",
                ));
            }
        }
        let sees = match seen.is_empty() {
            true => "no mounted btrfs".to_owned(),
            false => format!(
                "{}: {}",
                counted(seen.len(), "btrfs file system"),
                seen.join(", ")
            ),
        };
        SourceCoverage { sees, missing }
    }
}

impl Filesystem {
    fn new(uuid: &str, dir: &Path) -> Result<Self, SourceError> {
        let space = |kind: PathBuf| {
            let file = |name: &str| HeldFile::short_records(kind.join(name));
            (file("total_bytes"), file("bytes_used"))
        };
        let file = |name: &str| HeldFile::short_records(dir.join(name));
        Ok(Self {
            label: uuid.to_owned(),
            facts: FactSet::labelled([("filesystem", uuid.to_owned())])?,
            spaces: [
                space(data_dir(dir)),
                space(dir.join("allocation/metadata")),
                space(dir.join("allocation/system")),
            ],
            label_file: file("label"),
            exclusive: file("exclusive_operation"),
            commit_stats: file("commit_stats"),
            commits: KeyedLines::new(COMMITS, b' '),
            profile: String::new(),
            metadata_profile: String::new(),
            copies: None,
            devices: Roster::new(DEVICES_MAX),
            missing: 0,
        })
    }

    /// Reads the profiles and devices of the file system.
    fn look(&mut self, uuid: &str, dir: &Path, batch: &mut SourceBatch) {
        let data = profiles(&data_dir(dir));
        self.copies = copies(&data);
        self.profile = data.join("+");
        self.metadata_profile = profiles(&dir.join("allocation/metadata")).join("+");
        let top = dir.join("devinfo");
        let Ok((names, _)) = names_in(&top, NAMES_MAX) else {
            return;
        };
        self.devices.begin();
        let ids = names.iter().filter(|name| number(name).is_some());
        for id in ids.filter_map(|name| std::str::from_utf8(name).ok()) {
            let make = || Device::new(uuid, id, &top.join(id)).ok();
            self.devices.visit(id.as_bytes(), make);
        }
        self.devices.sweep(|device| device.facts.retire(batch));
    }

    /// Reads the files and puts the facts; returns whether the file system still exists.
    fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> bool {
        let facts = &mut self.facts;
        const SPACES: [(Fact, Fact); KINDS] = [
            (Fact::DataTotal, Fact::DataUsed),
            (Fact::MetadataTotal, Fact::MetadataUsed),
            (Fact::SystemTotal, Fact::SystemUsed),
        ];
        let mut there = false;
        for ((total_file, used_file), (total, used)) in self.spaces.iter_mut().zip(SPACES) {
            for (file, fact) in [(total_file, total), (used_file, used)] {
                there |= file.read_if_there(bytes, faults);
                if let Some(value) = sole_number(bytes) {
                    facts.count(batch, now_ns, fact, value);
                }
            }
        }
        if self.label_file.read_if_there(bytes, faults)
            && let Some(label) = sole_text(bytes)
        {
            facts.text(batch, now_ns, Fact::Label, label);
            if self.label != label {
                label.clone_into(&mut self.label);
            }
        }
        if self.exclusive.read_if_there(bytes, faults)
            && let Some(operation) = sole_text(bytes)
        {
            facts.text(batch, now_ns, Fact::Exclusive, operation);
        }
        let texts = [
            (Fact::Profile, &self.profile),
            (Fact::MetadataProfile, &self.metadata_profile),
        ];
        for (fact, text) in texts {
            if !text.is_empty() {
                facts.text(batch, now_ns, fact, text);
            }
        }
        self.put_commits(now_ns, batch, bytes, faults);
        self.put_devices(now_ns, batch, bytes, faults);
        there
    }

    /// Puts the facts of commits, which kernels have since 6.1.
    fn put_commits(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        if !self.commit_stats.read_if_there(bytes, faults) {
            return;
        }
        let ([commits, last, max, total], bad) = self.commits.read(bytes, |_, text| number(text));
        bad.report(self.commit_stats.path(), faults);
        if let Some(commits) = commits {
            self.facts.count(batch, now_ns, Fact::Commits, commits);
        }
        let times = [
            (Fact::CommitLast, last),
            (Fact::CommitMax, max),
            (Fact::CommitSeconds, total),
        ];
        for (fact, ms) in times {
            if let Some(ms) = ms {
                self.facts.measured(batch, now_ns, fact, ms as f64 / 1e3);
            }
        }
    }

    fn put_devices(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) {
        let (mut missing, mut errors) = (Some(0), Some(0_u64));
        for (_, device) in self.devices.iter_mut() {
            let (is_missing, sum) = device.put(now_ns, batch, bytes, faults);
            missing = missing.zip(is_missing).map(|(n, one)| n + u64::from(one));
            errors = errors.zip(sum).map(|(all, sum)| all.saturating_add(sum));
        }
        self.missing = missing.unwrap_or(0);
        // Kernels before 5.6 list no devices.
        if self.devices.len() == 0 {
            return;
        }
        let count = self.devices.len() as u64;
        let left = self
            .copies
            .zip(missing)
            .map(|(copies, missing)| copies.saturating_sub(missing));
        let values = [
            (Fact::Devices, Some(count)),
            (Fact::Missing, missing),
            (Fact::Errors, errors),
            (Fact::Replication, left),
        ];
        for (fact, value) in values {
            if let Some(value) = value {
                self.facts.count(batch, now_ns, fact, value);
            }
        }
    }

    fn describe(&self) -> String {
        let profile = match self.profile.as_str() {
            "" => "profile unknown",
            profile => profile,
        };
        format!(
            "{} ({profile}, {})",
            self.label,
            counted(self.devices.len(), "device")
        )
    }

    fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
        for (_, device) in self.devices.iter_mut() {
            device.facts.retire(batch);
        }
    }
}

impl Device {
    fn new(uuid: &str, id: &str, dir: &Path) -> Result<Self, SourceError> {
        Ok(Self {
            facts: FactSet::labelled([("filesystem", uuid.to_owned()), ("member", id.to_owned())])?,
            missing: HeldFile::short_records(dir.join("missing")),
            error_stats: HeldFile::short_records(dir.join("error_stats")),
            errors: KeyedLines::new(ERRORS.map(|(key, _)| key), b' '),
        })
    }

    /// Puts the facts of the device. Returns whether it is missing, and the sum of its errors, if
    /// these are known.
    fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> (Option<bool>, Option<u64>) {
        let missing = match self.missing.read_if_there(bytes, faults) {
            true => sole_number(bytes).map(|missing| missing != 0),
            false => None,
        };
        if let Some(missing) = missing {
            self.facts
                .measured(batch, now_ns, DeviceFact::Missing, missing);
        }
        // The counters are `invalid` until they have been read from the disk.
        if !self.error_stats.read_if_there(bytes, faults) || bytes == b"invalid\n" {
            return (missing, None);
        }
        let (values, bad) = self.errors.read(bytes, |_, text| number(text));
        bad.report(self.error_stats.path(), faults);
        let mut sum = Some(0_u64);
        for (value, (_, fact)) in values.iter().zip(ERRORS) {
            if let Some(value) = value {
                self.facts.count(batch, now_ns, fact, *value);
            }
            sum = sum
                .zip(*value)
                .map(|(sum, value)| sum.saturating_add(value));
        }
        (missing, sum)
    }
}
