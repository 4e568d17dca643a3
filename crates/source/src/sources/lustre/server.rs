//! The targets of a server: `obdfilter/*` and `mdt/*`, and the space of the disk below them
//! (`osd-ldiskfs/*`, `osd-zfs/*`; before Lustre 2.4, beside the statistics).

use crate::fact::{FactSet, int};
use crate::util::faults::Faults;
use crate::util::parse::{escape, lines, sole_number};
use crate::{MissingPart, SourceBatch, SourceError};

use super::flow::{Flow, FlowTable, Scratch};
use super::places::{Param, Places};
use super::tables::TargetFact;

/// The kinds of devices that have a target's space, the newest first.
const DISKS: [&str; 3] = ["osd-ldiskfs", "osd-zfs", "osd-wbcfs"];
/// Files of space: name, bytes or files per unit, fact.
const SPACE: [(&str, u64, TargetFact); 5] = [
    ("kbytestotal", 1024, TargetFact::Total),
    ("kbytesfree", 1024, TargetFact::Free),
    ("kbytesavail", 1024, TargetFact::Available),
    ("filestotal", 1, TargetFact::FilesTotal),
    ("filesfree", 1, TargetFact::FilesFree),
];

/// One target of this server.
pub(super) struct Served<T> {
    pub(super) label: String,
    pub(super) flow: Flow<T>,
    facts: FactSet<TargetFact>,
    space: [Option<Param>; SPACE.len()],
    exports: Option<Param>,
    recovery: Option<Param>,
    degraded: Option<Param>,
    /// Whether the target was recovering at the last poll.
    pub(super) recovering: bool,
}

impl<T: FlowTable> Served<T> {
    /// Creates a target of a file system.
    ///
    /// # Errors
    ///
    /// The reason why the two cannot be labels.
    pub(super) fn new(device: &[u8], filesystem: &[u8]) -> Result<Self, SourceError> {
        let label = escape(device);
        let labels = || {
            [
                ("target", label.clone()),
                ("filesystem", escape(filesystem)),
            ]
        };
        Ok(Self {
            flow: Flow::new(FactSet::labelled(labels())?),
            facts: FactSet::labelled(labels())?,
            space: [const { None }; SPACE.len()],
            exports: None,
            recovery: None,
            degraded: None,
            recovering: false,
            label,
        })
    }

    /// Finds the files that were not found yet; `kind` is `obdfilter` or `mdt`, `stats` the name of
    /// the statistics file.
    pub(super) fn find(&mut self, kind: &str, stats: &str, device: &[u8], places: &Places) {
        let param = |name: &str| places.find(kind, device, name).map(Param::new);
        if self.flow.files.is_empty() {
            self.flow.replace(param(stats).into_iter().collect());
        }
        for (file, (name, ..)) in self.space.iter_mut().zip(SPACE) {
            if file.is_none() {
                let mut kinds = DISKS.iter().copied().chain([kind]);
                let found = kinds.find_map(|kind| places.find(kind, device, name));
                *file = found.map(Param::new);
            }
        }
        for (file, name) in [
            (&mut self.exports, "num_exports"),
            (&mut self.recovery, "recovery_status"),
            (&mut self.degraded, "degraded"),
        ] {
            if file.is_none() {
                *file = param(name);
            }
        }
    }

    pub(super) fn keep_within(&mut self, room: &mut usize) {
        self.flow
            .files
            .iter_mut()
            .for_each(|file| file.keep_within(room));
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.flow.retire(batch);
        self.facts.retire(batch);
    }

    pub(super) fn read(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        scratch: &mut Scratch,
        faults: &mut Faults,
    ) -> bool {
        self.flow.read(now_ns, batch, scratch, faults)
    }

    /// Reads space and state, which change slowly. A file that a release does not have is no fault.
    pub(super) fn read_attributes(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        every_ns: i64,
    ) {
        let facts = &mut self.facts;
        let mut read = |param: &mut Option<Param>| {
            param.as_mut()?.read(bytes).ok()?;
            sole_number(bytes)
        };
        let mut space = [None; SPACE.len()];
        for ((param, (_, worth, fact)), value) in self.space.iter_mut().zip(SPACE).zip(&mut space) {
            *value = read(param).and_then(|v| v.checked_mul(worth));
            if let Some(value) = *value {
                facts.attribute(batch, now_ns, fact, int(value), every_ns);
            }
        }
        if let [Some(total), Some(free), Some(available), ..] = space {
            let used = total.saturating_sub(free) as f64;
            let usable = used + available as f64;
            if usable > 0.0 {
                facts.attribute(batch, now_ns, TargetFact::Used, used / usable, every_ns);
            }
        }
        if let Some(exports) = read(&mut self.exports) {
            facts.attribute(batch, now_ns, TargetFact::Exports, int(exports), every_ns);
        }
        if let Some(degraded) = read(&mut self.degraded).filter(|v| *v <= 1) {
            facts.attribute(batch, now_ns, TargetFact::Degraded, degraded == 1, every_ns);
        }
        self.read_recovery(now_ns, batch, bytes, every_ns);
    }

    fn read_recovery(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        every_ns: i64,
    ) {
        let Some(file) = &mut self.recovery else {
            return;
        };
        let status = file.read(bytes).ok().and_then(|()| recovery(bytes));
        if let Some(status) = status {
            let facts = &mut self.facts;
            facts.text_attribute(batch, now_ns, TargetFact::Recovery, status, every_ns);
            self.recovering = !matches!(status, "COMPLETE" | "INACTIVE");
        }
    }

    pub(super) fn missing(&self, places: &Places) -> Option<MissingPart> {
        self.flow.missing(&self.label, places)
    }
}

/// Parses the word after `status:` in a `recovery_status` (`lprocfs_recovery_status_seq_show` in
/// `lustre/ptlrpc/…`; Lustre manual, "Checking Lustre recovery").
fn recovery(bytes: &[u8]) -> Option<&str> {
    let value = lines(bytes).find_map(|line| line.strip_prefix(b"status:"))?;
    let value = value.trim_ascii();
    let word = value.iter().all(|b| b.is_ascii_uppercase() || *b == b'_');
    std::str::from_utf8(value)
        .ok()
        .filter(|v| word && !v.is_empty())
}
