//! The devices that version 1 of control groups really counts. Its files exist on every kernel, and
//! have zeros where nothing is counted:
//!
//! * `blkio.throttle.*` counts every request up to Linux 5.15. From 5.16 to 6.4 it counts those of
//!   groups that have a limit (fixed by "blk-throttle: Fix io statistics for cgroup v1"), and since
//!   6.10 nothing on a device until a limit is set for it in any group, then everything
//!   ("blk-throttle: delay initialization until configuration").
//! * `blkio.bfq.*` counts devices whose scheduler is bfq, `blkio.io_*` those whose scheduler is
//!   cfq.
//!
//! The root's file names each device for which its counters are switched on, even before the first
//! request, so a device that is not in it is not counted. If the root has the sum over all groups
//! (`_recursive`), that sum is compared with the counters of the disk itself.

use std::path::Path;

use crate::MissingPart;
use crate::util::file::HeldFile;

use super::devices::BlockDevices;
use super::io::{CountedUnit, DeviceNumbers, IoTable, Stacked, parse_v1};

/// Files of version 1 with I/O in bytes and in operations, the best first: those with `_recursive`
/// count the groups below as version 2 does.
const V1_IO_FILES: [V1Files; 5] = [
    V1Files(
        "blkio.throttle.io_service_bytes_recursive",
        "blkio.throttle.io_serviced_recursive",
    ),
    V1Files(
        "blkio.bfq.io_service_bytes_recursive",
        "blkio.bfq.io_serviced_recursive",
    ),
    V1Files(
        "blkio.io_service_bytes_recursive",
        "blkio.io_serviced_recursive",
    ),
    V1Files(
        "blkio.throttle.io_service_bytes",
        "blkio.throttle.io_serviced",
    ),
    V1Files("blkio.io_service_bytes", "blkio.io_serviced"),
];
/// All groups together are taken to be counted if their sum is at least one `WHOLLY`th of what the
/// disk moved: few requests are in the disk's count and not in theirs (those of partition tables,
/// and those before the counters began).
const WHOLLY: u64 = 2;
/// Most devices that a report names.
const NAMED_MAX: usize = 8;

/// A file that counts bytes, and the file beside it that counts operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sources) struct V1Files(
    pub(in crate::sources) &'static str,
    pub(in crate::sources) &'static str,
);

impl V1Files {
    /// Whether a group's count includes the groups below it.
    pub(in crate::sources) fn is_recursive(self) -> bool {
        self.0.ends_with("_recursive")
    }
}

/// The files that count here, and the devices that they count.
#[derive(Debug, Default)]
pub(in crate::sources) struct Counted {
    /// `None` if there are no such files, or if none of them counts anything.
    pub(in crate::sources) files: Option<V1Files>,
    /// Number of devices that they count, wholly or in part.
    devices: usize,
    /// Whether every group is counted on all devices that have traffic and are part of a sum: then
    /// a zero is a true zero.
    is_complete: bool,
    /// Names of devices on which only some groups are counted, or all groups but not from the
    /// beginning: a zero there may be false.
    partly: Vec<String>,
    /// Names of devices that have traffic on which nothing is counted.
    uncounted: Vec<String>,
}

impl Counted {
    /// Reads the root group; `None` if it has no such files at all. Of several pairs of files, the
    /// one that counts the most devices is taken.
    pub(in crate::sources) fn find(blkio: &Path, devices: &BlockDevices) -> Option<Self> {
        let files = V1_IO_FILES.into_iter();
        let all = files.filter(|files| blkio.join(files.0).is_file());
        let all = all.map(|files| Self::of(blkio, files, devices));
        all.reduce(|best, one| match one.devices > best.devices {
            true => one,
            false => best,
        })
    }

    /// The devices that these files count.
    fn of(blkio: &Path, files: V1Files, devices: &BlockDevices) -> Self {
        let mut bytes = Vec::new();
        let mut table = IoTable::default();
        // A file that cannot be read, or is not as documented, has no reliable counts.
        let mut file = HeldFile::short_records(blkio.join(files.0));
        let read = file.read_and_close(&mut bytes).is_ok();
        if !read || parse_v1(&bytes, CountedUnit::Bytes, &mut table).any() {
            table.clear();
        }
        let mut counted = Self {
            files: Some(files),
            ..Self::default()
        };
        let mut wholly: Vec<DeviceNumbers> = Vec::new();
        for row in &table.rows {
            let sum = row
                .traffic
                .read_bytes
                .saturating_add(row.traffic.write_bytes);
            match devices.moved_bytes(row.device) {
                // The root's own count is no sum, and kernels that have only that one count
                // everything.
                _ if !files.is_recursive() => wholly.push(row.device),
                Some(moved) if sum >= moved / WHOLLY => wholly.push(row.device),
                _ if sum > 0 => counted.partly.push(devices.name(row.device)),
                _ => {}
            }
        }
        counted.devices = wholly.len() + counted.partly.len();
        counted.files = counted.files.filter(|_| counted.devices > 0);
        counted.is_complete = counted.files.is_some();
        for known in devices
            .used()
            .filter(|known| !wholly.contains(&known.device))
        {
            counted.is_complete &= devices.stacked.contains(&known.device);
            if !counted.partly.contains(&known.name) {
                counted.uncounted.push(known.name.clone());
            }
        }
        counted
    }

    /// Keeps the devices with traffic in a group's table, and marks the table as partial if there
    /// may be more traffic.
    pub(in crate::sources) fn keep(&self, table: &mut IoTable, stacked: &Stacked) {
        table.rows.retain(|row| !row.traffic.is_none());
        let mut summed = table
            .rows
            .iter()
            .filter(|row| !stacked.contains(&row.device));
        table.is_partial = summed.next().is_none() && !self.is_complete;
    }

    /// The traffic that is not counted, with the reason and the remedy.
    pub(in crate::sources) fn explain(&self) -> Vec<MissingPart> {
        let mut missing = Vec::new();
        if !self.uncounted.is_empty() {
            missing.push(MissingPart::new(
                format!("I/O on {} by control group", named(&self.uncounted)),
                "version 1 of control groups counts on a device once it has a limit (Linux 6.10 and later) or the scheduler bfq",
                "mount version 2 with its io controller; or set a limit that no request reaches, `echo MAJOR:MINOR 1152921504606846976` into blkio.throttle.write_bps_device of a group",
            ));
        }
        if !self.partly.is_empty() {
            missing.push(MissingPart::new(
                format!("some of the I/O on {} by control group", named(&self.partly)),
                "version 1 of control groups counted less than half of what was moved: it counts since a limit was set (Linux 6.10 and later), or groups that have a limit (before 6.5)",
                "mount version 2 with its io controller",
            ));
        }
        if self.files.is_some() {
            missing.push(MissingPart::new(
                "which control group wrote what went through the page cache",
                "version 1 of control groups counts what the kernel writes back at the root",
                "mount version 2 with its io and memory controllers; what processes write is in process.write.bytes",
            ));
        }
        missing
    }
}

/// A list like `sda, sdb and 3 more`.
fn named(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMED_MAX)].join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
