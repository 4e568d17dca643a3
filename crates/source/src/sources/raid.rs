//! Software RAID of the kernel (md): `/proc/mdstat` and `/sys/block/md*/md`
//! (<https://docs.kernel.org/admin-guide/md.html>).
//!
//! The list in `/proc` names the arrays and members, so that no directory has to be listed; their
//! files in `/sys` have the details. If `/sys` is not visible, the list has everything else as
//! well, except the members' errors.

mod array;
mod mdstat;

use std::path::Path;

use crate::report::counted;
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::parse::escape;
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::absent_or_fault;

use array::Array;
pub(crate) use array::{Fact, MemberFact};

/// Most arrays that are followed.
const ARRAYS_MAX: usize = 256;

/// The source `raid`.
pub struct Raid {
    root: SysRoot,
    mdstat: HeldFile,
    bytes: Vec<u8>,
    /// Buffer for files of single arrays, while `bytes` holds the list of all.
    attribute: Vec<u8>,
    arrays: Roster<Slot>,
    absent: Option<String>,
}

enum Slot {
    Followed(Box<Array>),
    /// The array's name cannot be a label.
    Unnameable(String),
}

impl Raid {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            // A line lists all members of an array, so the file may be long.
            mdstat: root.until_end("proc/mdstat"),
            bytes: Vec::new(),
            attribute: Vec::new(),
            arrays: Roster::new(ARRAYS_MAX),
            absent: None,
            root,
        }
    }
}

impl Source for Raid {
    fn name(&self) -> &'static str {
        "raid"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        let there = absent_or_fault(self.mdstat.read(&mut self.bytes), &mut self.absent)?;
        self.arrays.begin();
        let mut bad = BadLines::default();
        if there {
            let (root, attribute) = (&self.root, &mut self.attribute);
            mdstat::arrays(&self.bytes, &mut bad, |listed| {
                let make = || Some(Slot::new(listed.name, root));
                if let Some(Slot::Followed(array)) = self.arrays.visit(listed.name, make) {
                    array.put(now_ns, batch, &listed, attribute, &mut faults);
                    array.put_members(now_ns, batch, &listed, root, attribute, &mut faults);
                }
            });
        }
        // If the list is broken, an array that is not listed may still exist.
        if !bad.any() {
            self.arrays.sweep(|slot| {
                if let Slot::Followed(array) = slot {
                    array.retire(batch);
                }
            });
        }
        bad.report(self.mdstat.path(), &mut faults);
        self.arrays.report_refused("RAID arrays", &mut faults);
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        self.absent.is_some()
    }

    fn report(&self) -> SourceCoverage {
        let mut missing = Vec::new();
        let mut seen = Vec::new();
        if let Some(why) = &self.absent {
            missing.push(MissingPart::new(
                "software RAID of the kernel",
                why.as_str(),
                "nothing to do on a machine without md arrays; a container needs the host's /proc",
            ));
        }
        for (name, slot) in self.arrays.iter() {
            match slot {
                Slot::Followed(array) => {
                    seen.push(describe(array));
                    tell_missing(array, &self.root, &mut missing);
                }
                Slot::Unnameable(why) => missing.push(MissingPart::new(
                    format!("array {}", escape(name)),
                    why.as_str(),
                    "give it a shorter name",
                )),
            }
        }
        let sees = match seen.is_empty() {
            true => "no software RAID".to_owned(),
            false => format!("{}: {}", counted(seen.len(), "array"), seen.join(", ")),
        };
        SourceCoverage { sees, missing }
    }
}

impl Slot {
    fn new(name: &[u8], root: &SysRoot) -> Self {
        match Array::new(name, root) {
            Ok(array) => Self::Followed(Box::new(array)),
            Err(fault) => Self::Unnameable(fault.to_string()),
        }
    }
}

/// Describes an array for the report: `md0 (raid6, 4 of 5 in sync, recover)`.
fn describe(array: &Array) -> String {
    let summary = &array.summary;
    let mut parts = Vec::new();
    if !summary.level.is_empty() {
        parts.push(summary.level.clone());
    }
    match (summary.active, summary.devices) {
        (Some(active), Some(devices)) => parts.push(format!("{active} of {devices} in sync")),
        (None, _) => parts.push("not running".to_owned()),
        (Some(_), None) => {}
    }
    if !matches!(summary.action.as_str(), "" | "idle") {
        parts.push(summary.action.clone());
    }
    format!("{} ({})", array.label, parts.join(", "))
}

fn tell_missing(array: &Array, root: &SysRoot, missing: &mut Vec<MissingPart>) {
    let label = &array.label;
    if !array.summary.sysfs_seen {
        missing.push(MissingPart::new(
            format!("errors, bad blocks and mismatches of {label}"),
            format!(
                "{} cannot be read",
                root.path("sys/block").join(label).join("md").display()
            ),
            "mount /sys, or let the agent see the host's",
        ));
    }
    let cut: Vec<_> = array.members_cut().map(escape).collect();
    if !cut.is_empty() {
        missing.push(MissingPart::new(
            format!("some of the bad blocks of {} in {label}", cut.join(", ")),
            "the kernel cuts the list at the end of a page; the number is the least that it can be",
            "replace the disk",
        ));
    }
    if array.summary.members_refused > 0 {
        missing.push(MissingPart::new(
            format!("{} members of {label}", array.summary.members_refused),
            "no more than 384 are followed",
            "none is needed: the array's own counts have them all",
        ));
    }
}
