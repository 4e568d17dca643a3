//! Hot extents of files where tracing is not allowed: the positions of processes in their open
//! files, sampled repeatedly (`/proc/PID/fdinfo/FD`:
//! <https://docs.kernel.org/filesystems/proc.html>, 3.8; proc_pid_fdinfo(5)).
//!
//! The source is off by default. A position that moved between two samples counts for each extent
//! that it passed over. This is a sample, not a count of accesses: `mmap`, `pread`, `pwrite` and
//! io_uring move no position, and a file that is opened and closed between two samples is never
//! seen. Processes of other users are seen only with CAP_SYS_PTRACE.
//!
//! Names of files reveal much about their owners. They are not published unless `names` is set;
//! without it a file is identified by its device and inode.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use barograph_model::Labels;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::{FactSet, facts, int};
use crate::report::counted;
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{escape, lines, number};
use crate::util::top::{Heavy, Multiply, TOLD_MIN, Top, left_after};
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

/// Most processes that are listed at once.
const PROCESSES_MAX: usize = 65_536;
/// Most positions that are remembered.
const POSITIONS_MAX: usize = 65_536;
/// Most extents that one move counts for: those nearest to its end.
const EXTENTS_PER_MOVE_MAX: u64 = 256;

facts! {
    /// Facts of the sampling as a whole.
    pub(crate) enum Fact in "file_trace" {
        Samples: Counter Int "samples.count" "count" "Positions of open files that were sampled.";
        Moves: Counter Int "moves.count" "count" "Samples that found the position of a file changed since the sample before.";
    }
}

facts! {
    /// Facts of one extent among the hottest.
    pub(crate) enum HotFact in "file_trace" {
        Ops: Gauge Int "hot.ops" "ops" "Samples that found a position moved over this extent; older ones have less weight. The error of the sample is the most by which the number may be too high.";
        Offset: Gauge Int "hot.offset.bytes" "bytes" "Offset in the file at which the extent begins.";
        File: State Text "hot.file.name" "name" "File of the extent: its device and inode, or its path if the configuration permits names.";
    }
}

/// Settings of the source of the positions of processes in their files. It is off unless
/// `poll.file_trace.enabled` is true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileTraceConfig {
    /// Whether paths of files are published. Every user who may read the streams can then read
    /// them.
    pub names: bool,
    /// Length of an extent, the part of a file whose moves are counted together, in bytes (at least
    /// 4096).
    pub extent_bytes: u64,
    /// Number of the hottest extents that have streams (at most 128).
    pub ranks: usize,
    /// Number of extents that are counted at once (at most 65536).
    pub counters: usize,
    /// Milliseconds after which a move counts half.
    pub half_life_ms: u64,
    /// Most processes that are sampled in one read; the next read goes on with the others.
    pub processes_max: usize,
    /// Most open files that are sampled in one read.
    pub files_max: usize,
}

impl Default for FileTraceConfig {
    fn default() -> Self {
        Self {
            names: false,
            extent_bytes: 1 << 20,
            ranks: 16,
            counters: 1024,
            half_life_ms: 300_000,
            processes_max: 512,
            files_max: 4096,
        }
    }
}

/// A file, identified by device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct File {
    device: (u32, u32),
    inode: u64,
}

type Extent = (File, u64);
type Fast = BuildHasherDefault<Multiply>;

#[derive(Clone, Copy, Debug)]
struct Position {
    file: File,
    at: u64,
    /// Whether it is a view of the kernel (`/proc`, `/sys`), not storage.
    is_view: bool,
    /// The round in which it was last seen.
    round: u64,
}

/// Counts of a round over all processes.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    processes: usize,
    denied: usize,
    /// Number of regular files.
    files: usize,
    /// Number of open files of any kind that exceed the limit of one read.
    left_out: usize,
}

/// The source `file_trace`.
pub struct FileTrace {
    root: SysRoot,
    config: FileTraceConfig,
    facts: FactSet<Fact>,
    ranks: Vec<FactSet<HotFact>>,
    extents: Top<Extent>,
    hottest: Vec<Heavy<Extent>>,
    names: HashMap<File, String, Fast>,
    positions: HashMap<(u32, u32), Position, Fast>,
    /// Number of positions in this read that exceed the limit.
    refused: usize,
    /// Number of the last process that was sampled.
    cursor: u32,
    round: u64,
    met: Met,
    /// Counts of the last whole round.
    met_before: Option<Met>,
    samples: u64,
    moves: u64,
    decayed_ns: i64,
    bytes: Vec<u8>,
    absent: Option<String>,
}

impl FileTrace {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path, config: &FileTraceConfig) -> Self {
        let (root, config) = (SysRoot::new(sys_root), config.clone());
        let ranks = config.ranks.clamp(1, 128);
        let rank = |rank: usize| {
            let labels = Labels::new([("rank", rank.to_string())]);
            FactSet::new(labels.expect("a number is a label"))
        };
        Self {
            facts: FactSet::new(Labels::none()),
            ranks: (1..=ranks).map(rank).collect(),
            extents: Top::new(config.counters.clamp(ranks, 65_536)),
            hottest: Vec::new(),
            names: HashMap::default(),
            positions: HashMap::default(),
            refused: 0,
            cursor: 0,
            round: 0,
            met: Met::default(),
            met_before: None,
            samples: 0,
            moves: 0,
            decayed_ns: 0,
            bytes: Vec::new(),
            absent: None,
            root,
            config,
        }
    }

    /// The numbers of all processes, sorted.
    fn processes(&self) -> Result<Vec<u32>, SourceError> {
        let (names, _) = names_in(&self.root.path("proc"), PROCESSES_MAX)?;
        let pid = |name: &Vec<u8>| number(name).and_then(|pid| u32::try_from(pid).ok());
        let own = self.root.is_real().then(std::process::id);
        let mut pids: Vec<_> = names.iter().filter_map(pid).collect();
        pids.retain(|pid| Some(*pid) != own);
        pids.sort_unstable();
        Ok(pids)
    }

    /// Samples as many processes as one read may, beginning after the last one of the previous
    /// read.
    fn look(&mut self, pids: &[u32]) {
        let first = pids.partition_point(|pid| *pid <= self.cursor);
        let files_max = self.config.files_max.clamp(1, POSITIONS_MAX);
        let mut left = files_max;
        for pid in pids[first..].iter().take(self.config.processes_max.max(1)) {
            let (looked, all) = self.look_at(*pid, left);
            if looked < all && left < files_max {
                // The next read begins with this process, and can sample more of its files.
                return;
            }
            self.met.left_out += all - looked;
            self.cursor = *pid;
            left -= looked;
        }
        if pids.last().is_none_or(|last| *last <= self.cursor) {
            self.end_round();
        }
    }

    fn end_round(&mut self) {
        let round = self.round;
        self.positions.retain(|_, position| position.round == round);
        self.round += 1;
        self.cursor = 0;
        self.met_before = Some(std::mem::take(&mut self.met));
    }

    /// Samples the open files of a process. Returns how many were sampled, at most `max`, and how
    /// many there are. If `max` is too small but a new read could sample more, none are sampled.
    fn look_at(&mut self, pid: u32, max: usize) -> (usize, usize) {
        let process = self.root.path(&format!("proc/{pid}"));
        let (fds, all) = match names_in(&process.join("fd"), max) {
            Ok(found) => found,
            Err(fault) => {
                let denied = matches!(
                    fault,
                    SourceError::Read {
                        errno: Errno::ACCESS | Errno::PERM,
                        ..
                    }
                );
                self.met.denied += usize::from(denied);
                return (0, 0);
            }
        };
        if fds.len() < all && max < self.config.files_max.clamp(1, POSITIONS_MAX) {
            return (0, all);
        }
        self.met.processes += 1;
        let numbers = fds.iter().filter_map(|fd| u32::try_from(number(fd)?).ok());
        for fd in numbers {
            let path = process.join("fd").join(fd.to_string());
            let Some(file) = regular(&path) else {
                continue;
            };
            let info = process.join("fdinfo").join(fd.to_string());
            if let Some(at) = position(info, &mut self.bytes) {
                self.found((pid, fd), file, at, &path);
            }
        }
        (fds.len(), all)
    }

    /// Records that a process is at this position of a file.
    fn found(&mut self, of: (u32, u32), file: File, at: u64, path: &Path) {
        self.met.files += 1;
        self.samples += 1;
        let round = self.round;
        let is_full = self.positions.len() >= POSITIONS_MAX;
        match self.positions.get_mut(&of) {
            Some(position) if position.file == file => {
                let was = std::mem::replace(&mut position.at, at);
                position.round = round;
                if was != at && !position.is_view {
                    self.moved(file, was, at, path);
                }
            }
            None if is_full => self.refused += 1,
            // A new file, or another file under the same number.
            _ => {
                let is_view = target(path)
                    .is_some_and(|t| t.starts_with(b"/proc/") || t.starts_with(b"/sys/"));
                let position = Position {
                    file,
                    at,
                    is_view,
                    round,
                };
                self.positions.insert(of, position);
            }
        }
    }

    fn moved(&mut self, file: File, was: u64, at: u64, path: &Path) {
        self.moves += 1;
        let Some(last) = at.checked_sub(1) else {
            return;
        };
        let extent_bytes = self.config.extent_bytes.clamp(4096, 1 << 50);
        let last = last / extent_bytes;
        // After a move backwards, only the extent just before the position is known to be used.
        let first = if was < at { was / extent_bytes } else { last };
        for extent in first.max(last.saturating_sub(EXTENTS_PER_MOVE_MAX - 1))..=last {
            self.extents.add((file, extent));
        }
        if self.config.names
            && let Some(target) = target(path)
        {
            self.names.insert(file, escape(&target));
        }
    }

    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        self.facts.count(batch, now_ns, Fact::Samples, self.samples);
        self.facts.count(batch, now_ns, Fact::Moves, self.moves);
        self.extents.greatest(self.ranks.len(), &mut self.hottest);
        self.hottest.retain(|heavy| heavy.count >= TOLD_MIN);
        for (rank, facts) in self.ranks.iter_mut().enumerate() {
            let Some(heavy) = self.hottest.get(rank) else {
                facts.retire(batch);
                continue;
            };
            let (file, extent) = heavy.key;
            let (ops, error) = heavy.whole();
            let extent_bytes = self.config.extent_bytes.clamp(4096, 1 << 50);
            facts.estimated(batch, now_ns, HotFact::Ops, int(ops), error);
            let offset = int(extent.saturating_mul(extent_bytes));
            facts.derived(batch, now_ns, HotFact::Offset, offset);
            let (major, minor) = file.device;
            let numbered = format!("{major}:{minor}:{}", file.inode);
            let name = self.names.get(&file).unwrap_or(&numbered);
            facts.text_attribute(batch, now_ns, HotFact::File, name, 0);
        }
        if self.names.len() > self.config.counters {
            let hot: HashSet<File> = self.hottest.iter().map(|heavy| heavy.key.0).collect();
            self.names.retain(|file, _| hot.contains(file));
        }
    }
}

impl Source for FileTrace {
    fn name(&self) -> &'static str {
        "file_trace"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let elapsed_ns = batch.monotonic_ns().saturating_sub(self.decayed_ns);
        self.decayed_ns = batch.monotonic_ns();
        let half_life_ns = self.config.half_life_ms.clamp(100, 1 << 40) as i64 * 1_000_000;
        self.extents.decay(left_after(elapsed_ns, half_life_ns));
        self.absent = None;
        let pids = match self.processes() {
            Ok(pids) => pids,
            Err(fault) if fault.is_absent() => {
                self.absent = Some(fault.to_string());
                return Ok(());
            }
            Err(fault) => return Err(fault),
        };
        if pids.is_empty() && self.samples == 0 {
            self.absent = Some(format!(
                "{} has no processes",
                self.root.path("proc").display()
            ));
            return Ok(());
        }
        self.refused = 0;
        self.look(&pids);
        self.put(now_ns, batch);
        let mut faults = Faults::default();
        if self.refused > 0 {
            faults.add(SourceError::TooMany {
                what: "open files",
                refused: self.refused,
                max: POSITIONS_MAX,
            });
        }
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        if let Some(why) = &self.absent {
            let remedy = "mount /proc, or let the agent see the host's";
            return SourceCoverage {
                sees: "no open files".to_owned(),
                missing: vec![MissingPart::new("open files", why.as_str(), remedy)],
            };
        }
        let met = self.met_before.unwrap_or(self.met);
        let seen = met.processes;
        let sees = format!(
            "positions in {} of {}, sampled; {}",
            counted(met.files, "open file"),
            if seen == 1 {
                "1 process".to_owned()
            } else {
                format!("{seen} processes")
            },
            if self.config.names {
                "paths are told"
            } else {
                "paths are not told (sources.file_trace.names)"
            },
        );
        let mut missing = vec![MissingPart::new(
            "accesses that move no position",
            "mmap, pread, pwrite and io_uring leave a file's position where it is, and what is opened and closed between two reads is never seen",
            "where tracing is allowed, enable sources.poll.block_trace",
        )];
        if met.denied > 0 {
            missing.push(MissingPart::new(
                format!("files of {} processes", met.denied),
                "they belong to other users, or have raised privileges",
                "run the agent as their user, or with CAP_SYS_PTRACE",
            ));
        }
        if met.left_out > 0 {
            missing.push(MissingPart::new(
                counted(met.left_out, "open file"),
                "a process has more than one read looks at",
                "make sources.file_trace.files_max larger",
            ));
        }
        SourceCoverage { sees, missing }
    }

    /// There may be thousands of files to sample.
    fn is_slow(&self) -> bool {
        true
    }
}

/// The open file, if it is a regular one. Does not ask a file server, whose answer may never come.
fn regular(path: &Path) -> Option<File> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO;
    let found = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, wanted).ok()?;
    let kind = FileType::from_raw_mode(u32::from(found.stx_mode));
    (kind == FileType::RegularFile).then_some(File {
        device: (found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
    })
}

/// The value of `pos:` in an fdinfo.
fn position(path: std::path::PathBuf, bytes: &mut Vec<u8>) -> Option<u64> {
    HeldFile::short_records(path).read_and_close(bytes).ok()?;
    let value = |line: &[u8]| line.strip_prefix(b"pos:").map(|v| number(v.trim_ascii()));
    lines(bytes).find_map(value)?
}

/// The path to which a link in `fd` leads.
fn target(path: &Path) -> Option<Vec<u8>> {
    Some(
        std::fs::read_link(path)
            .ok()?
            .as_os_str()
            .as_bytes()
            .to_owned(),
    )
}
