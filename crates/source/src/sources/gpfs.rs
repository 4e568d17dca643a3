//! `mmpmon`: the I/O of the IBM Storage Scale (Spectrum Scale, GPFS) file systems of this node.
//!
//! Format: the request `fs_io_s` of the mmpmon command with `-p`, as IBM's "Monitoring I/O
//! performance with the mmpmon command" describes it: a line for each mounted file system, with
//! pairs of a keyword between underscores and a value. The daemon answers only root, so the
//! privileged helper asks. Counters begin when the file system is mounted, or at a `reset` by any
//! user.

use std::path::Path;

use barograph_model::NS_PER_S;

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::command::{Commands, Refusal};
use crate::util::faults::{BadLines, Faults};
use crate::util::file::SysRoot;
use crate::util::helper::{HELPER_TIMEOUT, HelperConfig, REMEDY};
use crate::util::parse::{cut, escape, lines, number, words};
use crate::util::rate::Meter;
use crate::util::roster::Roster;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

/// Most file systems that are followed.
const FILESYSTEMS_MAX: usize = 256;
/// The helper's timeout and a little more.
const STALL_NS: i64 = 35 * NS_PER_S;
/// The program that answers, as named in reports.
const PROGRAM: &str = "mmpmon";
/// Prefix of the helper's own refusals, such as that there is no such program.
const HELPER_SAYS: &str = "the helper says";

facts! {
    /// Facts of one file system.
    pub(crate) enum Fact in "gpfs" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read, from disk and from the cache.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written, to disk and to the cache.";
        ReadOps: Counter Int "read.ops" "ops" "Read requests of programs.";
        WriteOps: Counter Int "write.ops" "ops" "Write requests of programs.";
        OpenOps: Counter Int "open.ops" "ops" "Calls of open, those that create files included.";
        CloseOps: Counter Int "close.ops" "ops" "Calls of close.";
        ReaddirOps: Counter Int "readdir.ops" "ops" "Calls of readdir.";
        InodeOps: Counter Int "inode.update.ops" "ops" "Updates of inodes on disk.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second, averaged since the last poll.";
    }
}

/// Keywords of the counters, in the order of the facts.
const KEYS: [(&[u8], Fact); 8] = [
    (b"_br_", Fact::ReadBytes),
    (b"_bw_", Fact::WriteBytes),
    (b"_rdc_", Fact::ReadOps),
    (b"_wc_", Fact::WriteOps),
    (b"_oc_", Fact::OpenOps),
    (b"_cc_", Fact::CloseOps),
    (b"_dir_", Fact::ReaddirOps),
    (b"_iu_", Fact::InodeOps),
];

/// The source `gpfs`.
pub struct Gpfs {
    commands: Commands,
    helper: HelperConfig,
    filesystems: Roster<Filesystem>,
    refusal: Option<Refusal>,
}

enum Filesystem {
    Followed(Box<Followed>),
    /// A file system whose name cannot be a label.
    Unnameable(String),
}

struct Followed {
    label: String,
    facts: FactSet<Fact>,
    read: Meter,
    write: Meter,
}

impl Gpfs {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path, helper: &HelperConfig) -> Self {
        Self {
            commands: Commands::new(&SysRoot::new(sys_root), HELPER_TIMEOUT),
            helper: helper.clone(),
            filesystems: Roster::new(FILESYSTEMS_MAX),
            refusal: None,
        }
    }

    fn read_lines(
        &mut self,
        output: &[u8],
        now_ns: i64,
        batch: &mut SourceBatch,
        faults: &mut Faults,
    ) {
        let mut bad = BadLines::default();
        self.filesystems.begin();
        for line in lines(output).filter(|line| !line.trim_ascii().is_empty()) {
            match parse(line) {
                Some(Line::Counters(name, counts)) => {
                    let make = || Some(Filesystem::new(name));
                    if let Some(Filesystem::Followed(followed)) = self.filesystems.visit(name, make)
                    {
                        followed.put(now_ns, batch, &counts);
                    }
                }
                Some(Line::Nothing) => {}
                None => bad.add(line),
            }
        }
        if !cut(output).is_empty() {
            bad.add(cut(output));
        }
        // A file system that is missing from an incomplete answer may still be mounted.
        if !bad.any() {
            self.sweep(batch);
        }
        bad.report(std::path::Path::new(PROGRAM), faults);
    }

    fn sweep(&mut self, batch: &mut SourceBatch) {
        self.filesystems.sweep(|filesystem| {
            if let Filesystem::Followed(followed) = filesystem {
                followed.facts.retire(batch);
            }
        });
    }
}

impl Source for Gpfs {
    fn name(&self) -> &'static str {
        "gpfs"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn stall_ns(&self) -> i64 {
        STALL_NS
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        let answer = self
            .commands
            .ask_helper(&self.helper, "gpfs", "", "mmpmon-fs_io_s");
        match answer {
            Ok(output) => {
                self.refusal = None;
                self.read_lines(&output, now_ns, batch, &mut faults);
            }
            // The program failed this time: the file systems may still be mounted. A refusal of the
            // helper itself is an answer.
            Err(Refusal::Failed(why)) if !why.starts_with(HELPER_SAYS) => {
                faults.add(Refusal::Failed(why.clone()).into_fault(PROGRAM));
                self.refusal = Some(Refusal::Failed(why));
            }
            Err(refusal) => {
                self.filesystems.begin();
                self.sweep(batch);
                self.refusal = Some(refusal);
            }
        }
        self.filesystems
            .report_refused("Storage Scale file systems", &mut faults);
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let mut missing = Vec::new();
        let mut followed = Vec::new();
        for (name, filesystem) in self.filesystems.iter() {
            match filesystem {
                Filesystem::Followed(followed_one) => followed.push(followed_one.label.clone()),
                Filesystem::Unnameable(why) => missing.push(MissingPart::new(
                    format!("file system {}", escape(name)),
                    why.as_str(),
                    "nothing: its name is too long for a label",
                )),
            }
        }
        if let Some(refusal) = &self.refusal {
            let why = match refusal {
                Refusal::Absent => {
                    "mmpmon answers root only, and the privileged helper is not running".to_owned()
                }
                Refusal::Failed(why) if why.starts_with(HELPER_SAYS) => why.clone(),
                other => format!("{PROGRAM} {other}"),
            };
            missing.push(MissingPart::new(
                "Storage Scale file systems",
                why,
                format!("nothing on a node without Storage Scale; with it, {REMEDY}"),
            ));
        } else if followed.is_empty() && missing.is_empty() {
            missing.push(MissingPart::new(
                "Storage Scale file systems",
                "mmpmon names none",
                "mount one",
            ));
        }
        let sees = match followed.is_empty() {
            true => "no Storage Scale file systems".to_owned(),
            false => format!(
                "{}: {}",
                counted(followed.len(), "file system"),
                followed.join(", ")
            ),
        };
        SourceCoverage { sees, missing }
    }
}

impl Filesystem {
    fn new(name: &[u8]) -> Self {
        let label = escape(name);
        match FactSet::labelled([("filesystem", label.clone())]) {
            Ok(facts) => Self::Followed(Box::new(Followed {
                label,
                facts,
                read: Meter::default(),
                write: Meter::default(),
            })),
            Err(fault) => Self::Unnameable(fault.to_string()),
        }
    }
}

impl Followed {
    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, counts: &[u64; KEYS.len()]) {
        for ((_, fact), count) in KEYS.iter().zip(counts) {
            self.facts.count(batch, now_ns, *fact, *count);
        }
        let at_ns = batch.monotonic_ns();
        if let Some(rate) = self.read.rate(at_ns, counts[0]) {
            self.facts.derived(batch, now_ns, Fact::ReadRate, rate);
        }
        if let Some(rate) = self.write.rate(at_ns, counts[1]) {
            self.facts.derived(batch, now_ns, Fact::WriteRate, rate);
        }
    }
}

enum Line<'a> {
    Counters(&'a [u8], [u64; KEYS.len()]),
    /// An answer without counters: no file system is mounted.
    Nothing,
}

/// Parses a line `_fs_io_s_ _n_ IP _nn_ NODE _rc_ 0 _t_ … _fs_ NAME _d_ DISKS _br_ …`.
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut columns = words(line);
    let kind = columns.next()?;
    if kind != b"_fs_io_s_" {
        // Another keyword such as _ver_: not the requested answer, but well formed.
        let keyword = kind.len() > 2 && kind.starts_with(b"_") && kind.ends_with(b"_");
        return keyword.then_some(Line::Nothing);
    }
    let (mut name, mut status) = (None, None);
    let mut counts = [None; KEYS.len()];
    while let (Some(key), value) = (columns.next(), columns.next()) {
        let value = value?;
        match key {
            b"_rc_" => status = Some(value),
            b"_fs_" => name = Some(value),
            _ => {
                if let Some(at) = KEYS.iter().position(|(known, _)| *known == key) {
                    counts[at] = Some(number(value)?);
                }
            }
        }
    }
    if status? != b"0" {
        return Some(Line::Nothing);
    }
    let mut whole = [0; KEYS.len()];
    for (into, count) in whole.iter_mut().zip(counts) {
        *into = count?;
    }
    Some(Line::Counters(name?, whole))
}
