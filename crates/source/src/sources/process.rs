//! The processes that read and write the most: `/proc/PID/io`
//! (<https://docs.kernel.org/filesystems/proc.html>, proc_pid_io(5)).
//!
//! A scan reads one small file of each process. It reads a second one only for processes that moved
//! bytes or are new: the start time, which distinguishes a process from a later one with the same
//! number. The greatest readers and writers have streams, and keep them for a while after others
//! overtook them, so that streams do not flicker. A process is identified by its number and its
//! start. One that changes its name keeps its streams, whose label is the name that it had when it
//! was chosen; otherwise its bytes would be counted once for each name. A process that begins
//! between two scans counts from its beginning. One that also ends between them is not seen: its
//! bytes count for the parent that waits for it.

mod ended;
mod parse;
mod rings;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use barograph_model::Labels;
use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fact::{FactSet, facts};
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::parse::{escape, number, words};
use crate::util::rate::per_second;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use parse::ProcessIo;
use rings::Rings;

/// Most processes that have streams for each of the two measures.
const TOP_MAX: usize = 100;
/// Number of scans for which an overtaken process keeps its streams.
const LINGER: u32 = 15;
/// Number of scans between two searches for io_uring rings.
const RINGS_EVERY: u64 = 5;
/// Buffer size: no file of a process that is read here is longer.
const PIECE_BYTES: usize = 2048;

facts! {
    /// Facts of one process.
    pub(crate) enum Fact in "process" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read from storage for the process since it began; reads that the page cache served are not included. Children that have ended are included if no scan saw them.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written by the process since it began; they count when the process makes pages dirty. Children that have ended are included if no scan saw them.";
        CancelledBytes: Counter Int "cancelled.bytes" "bytes" "Bytes that the process wrote and that were truncated or deleted before they reached storage.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second, averaged since the last poll.";
        Command: State Text "command.name" "name" "Command name of the process while it moves bytes; the label has the name at the time when its streams began.";
    }
}

facts! {
    /// Facts of all processes together.
    pub(crate) enum NodeFact in "process" {
        All: Gauge Int "all.count" "count" "Processes in /proc, kernel threads included.";
        Unreadable: Gauge Int "unreadable.count" "count" "Processes whose reads and writes the agent is not permitted to see.";
        OpenFiles: Gauge Int "open.files.count" "count" "Open files of all processes.";
        Rings: Gauge Int "io_uring.rings.count" "count" "io_uring rings; a ring that several processes share counts once for each of them.";
        Queued: Gauge Int "io_uring.queued.requests" "requests" "Submissions in io_uring rings that the kernel has not taken yet.";
        Completed: Gauge Int "io_uring.completed.requests" "requests" "Completions in io_uring rings that the programs have not taken yet.";
    }
}

/// The configuration of the source `process`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessConfig {
    /// Number of the greatest readers, and of the greatest writers, that have streams; at most 100.
    pub top: usize,
    /// Most processes that are read in one scan.
    pub processes_max: usize,
    /// Whether io_uring rings are counted, at every fifth scan. This looks at every open file.
    pub io_uring: bool,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            top: 10,
            processes_max: 32_768,
            io_uring: false,
        }
    }
}

/// The source `process`.
pub struct Processes {
    root: SysRoot,
    config: ProcessConfig,
    /// Interval between searches for rings.
    rings_every_ns: i64,
    known: HashMap<u32, Known>,
    chosen: Vec<Chosen>,
    node: FactSet<NodeFact>,
    file_nr: HeldFile,
    /// Time of the previous scan, if it saw every process.
    complete_at_ns: Option<i64>,
    scanned_at_ns: Option<i64>,
    scans: u64,
    counts: Counts,
    rings: Rings,
    absent: Option<String>,
    bytes: Vec<u8>,
}

/// The last look at one process.
struct Known {
    scan: u64,
    /// `None` if the process may not be read.
    seen: Option<Seen>,
}

#[derive(Clone, Copy)]
struct Seen {
    start: u64,
    parent: u32,
    /// The counters of the kernel.
    io: ProcessIo,
    /// Bytes among them that children which have ended had counted.
    inherited: ProcessIo,
    read: Option<f64>,
    write: Option<f64>,
}

/// A process that has streams.
struct Chosen {
    pid: u32,
    start: u64,
    /// Its newest command name.
    command: Box<[u8]>,
    facts: FactSet<Fact>,
    /// Scans since it was last among the greatest.
    out: u32,
}

/// A process that moved bytes in this scan.
struct Active {
    pid: u32,
    start: u64,
    command: Box<[u8]>,
    /// Bytes since the last scan, if the counters of then are known.
    moved: Option<ProcessIo>,
    read: f64,
    write: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: usize,
    unreadable: usize,
    left_out: usize,
    /// Number of processes that have no file `io`.
    without_io: usize,
    first_is_there: bool,
}

impl Processes {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path, config: &ProcessConfig, every_ns: i64) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            config: config.clone(),
            rings_every_ns: every_ns.saturating_mul(RINGS_EVERY as i64),
            known: HashMap::new(),
            chosen: Vec::new(),
            node: FactSet::new(Labels::none()),
            file_nr: root.short_records("proc/sys/fs/file-nr"),
            complete_at_ns: None,
            scanned_at_ns: None,
            scans: 0,
            counts: Counts::default(),
            rings: Rings::default(),
            absent: None,
            bytes: Vec::new(),
            root,
        }
    }

    /// Reads every process; returns those that moved bytes.
    fn scan(&mut self, at_ns: i64, faults: &mut Faults) -> Result<Vec<Active>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open(self.root.path("proc"), flags, Mode::empty())?;
        let mut active = Vec::new();
        let mut counts = Counts::default();
        let times = Times {
            elapsed_ns: self
                .scanned_at_ns
                .map_or(0, |then| at_ns.saturating_sub(then)),
            newcomers: self.complete_at_ns == self.scanned_at_ns,
        };
        let mut files = Files::new(&proc);
        for entry in Dir::read_from(&proc)? {
            let entry = entry?;
            let Some(pid) =
                number(entry.file_name().to_bytes()).and_then(|n| u32::try_from(n).ok())
            else {
                continue;
            };
            counts.all += 1;
            counts.first_is_there |= pid == 1;
            if counts.all - counts.left_out > self.config.processes_max {
                counts.left_out += 1;
                continue;
            }
            let known = self.known.entry(pid).or_insert(Known {
                scan: 0,
                seen: None,
            });
            let new = known.scan == 0;
            match files.process(pid, known.seen, new, &times) {
                Ok((seen, moved)) => {
                    known.seen = Some(seen);
                    active.extend(moved);
                }
                Err(Trouble::Denied) => {
                    counts.unreadable += 1;
                    known.seen = None;
                }
                // The process ended since the list was read, or the kernel has no I/O accounting.
                Err(Trouble::Gone) => {
                    counts.without_io += 1;
                    continue;
                }
                Err(Trouble::Bad(file)) => {
                    let mut bad = BadLines::default();
                    bad.add(&files.piece[..files.length]);
                    bad.report(&self.root.path(&format!("proc/{pid}/{file}")), faults);
                    known.seen = None;
                }
                Err(Trouble::Failed(file, errno)) => {
                    faults.add(SourceError::Read {
                        path: self.root.path(&format!("proc/{pid}/{file}")),
                        errno,
                    });
                    known.seen = None;
                }
            }
            known.scan = self.scans;
        }
        let scans = self.scans;
        let is_ended = |_: &u32, known: &mut Known| known.scan != scans;
        let forgotten = self.known.extract_if(is_ended);
        let seen = forgotten.filter_map(|(pid, known)| Some((pid, known.seen?)));
        let ended: HashMap<u32, Seen> = seen.collect();
        if counts.left_out == 0 {
            ended::settle(&ended, &mut self.known, &mut active, times.elapsed_ns);
        }
        self.counts = counts;
        self.scanned_at_ns = Some(at_ns);
        self.complete_at_ns = (counts.left_out == 0).then_some(at_ns);
        Ok(active)
    }

    /// Chooses the processes that have streams from now on.
    fn choose(&mut self, batch: &mut SourceBatch, mut active: Vec<Active>, faults: &mut Faults) {
        let known = &self.known;
        for chosen in &mut self.chosen {
            chosen.out = chosen.out.saturating_add(1);
        }
        let lives = |chosen: &Chosen| {
            let seen = known.get(&chosen.pid).and_then(|known| known.seen);
            chosen.out <= LINGER && seen.is_some_and(|seen| seen.start == chosen.start)
        };
        self.chosen.retain_mut(|chosen| {
            let stays = lives(chosen);
            if !stays {
                chosen.facts.retire(batch);
            }
            stays
        });
        let top = self.config.top.min(TOP_MAX);
        for measure in [|a: &Active| a.read, |a: &Active| a.write] {
            active.sort_by(|a, b| measure(b).total_cmp(&measure(a)).then(a.pid.cmp(&b.pid)));
            for one in active.iter().take(top).take_while(|one| measure(one) > 0.0) {
                self.follow(batch, one, top, faults);
            }
        }
    }

    fn follow(&mut self, batch: &mut SourceBatch, one: &Active, top: usize, faults: &mut Faults) {
        if let Some(chosen) = self.chosen.iter_mut().find(|c| c.pid == one.pid) {
            chosen.out = 0;
            if chosen.command != one.command {
                chosen.command.clone_from(&one.command);
            }
            return;
        }
        // At most twice `top` are of this scan, so one of the others makes room.
        if self.chosen.len() >= 4 * top {
            let longest = self.chosen.iter().enumerate().max_by_key(|(_, c)| c.out);
            if let Some((at, _)) = longest {
                self.chosen.swap_remove(at).facts.retire(batch);
            }
        }
        let labels = [
            ("pid", one.pid.to_string()),
            ("command", escape(parse::lasting(&one.command))),
        ];
        if let Some(facts) = faults.take(FactSet::labelled(labels)) {
            self.chosen.push(Chosen {
                pid: one.pid,
                start: one.start,
                command: one.command.clone(),
                facts,
                out: 0,
            });
        }
    }

    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        for chosen in &mut self.chosen {
            let seen = self.known.get(&chosen.pid).and_then(|known| known.seen);
            let Some(seen) = seen else { continue };
            let facts = &mut chosen.facts;
            let own = seen.io.minus(seen.inherited);
            facts.count(batch, now_ns, Fact::ReadBytes, own.read_bytes);
            facts.count(batch, now_ns, Fact::WriteBytes, own.write_bytes);
            facts.count(batch, now_ns, Fact::CancelledBytes, own.cancelled_bytes);
            if let Some(rate) = seen.read {
                facts.derived(batch, now_ns, Fact::ReadRate, rate);
            }
            if let Some(rate) = seen.write {
                facts.derived(batch, now_ns, Fact::WriteRate, rate);
            }
            facts.text(batch, now_ns, Fact::Command, &escape(&chosen.command));
        }
    }

    fn put_node(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        if self.counts.all > 0 {
            let (all, unreadable) = (self.counts.all as u64, self.counts.unreadable as u64);
            self.node.count(batch, now_ns, NodeFact::All, all);
            self.node
                .count(batch, now_ns, NodeFact::Unreadable, unreadable);
        }
        match self.file_nr.read(&mut self.bytes) {
            // The numbers are allocated files, unused files and the maximum; only the first is
            // parsed.
            Ok(()) => match words(&self.bytes)
                .number()
                .filter(|_| self.bytes.ends_with(b"\n"))
            {
                Some(open) => self.node.count(batch, now_ns, NodeFact::OpenFiles, open),
                None => {
                    let mut bad = BadLines::default();
                    bad.add(&self.bytes);
                    bad.report(self.file_nr.path(), faults);
                }
            },
            Err(fault) if fault.is_absent() => {}
            Err(fault) => faults.add(fault),
        }
    }

    fn put_rings(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        let mut pids: Vec<u32> = self.readable().collect();
        pids.sort_unstable();
        self.rings = rings::look(&self.root.path("proc"), pids.into_iter());
        let counts = [
            (NodeFact::Rings, self.rings.rings),
            (NodeFact::Queued, self.rings.fill.queued),
            (NodeFact::Completed, self.rings.fill.completed),
        ];
        for (fact, count) in counts {
            let count = crate::fact::int(count);
            let every_ns = self.rings_every_ns;
            self.node.attribute(batch, now_ns, fact, count, every_ns);
        }
    }

    fn readable(&self) -> impl Iterator<Item = u32> {
        let known = self.known.iter();
        known
            .filter(|(_, known)| known.seen.is_some())
            .map(|(pid, _)| *pid)
    }
}

impl Source for Processes {
    fn name(&self) -> &'static str {
        "process"
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        self.scans += 1;
        match self.scan(batch.monotonic_ns(), &mut faults) {
            Ok(active) => {
                self.absent = None;
                self.choose(batch, active, &mut faults);
                self.put(now_ns, batch);
                self.put_node(now_ns, batch, &mut faults);
                // The first search is one scan late, so that it does not slow down the first scan.
                if self.config.io_uring && self.counts.all > 0 && self.scans % RINGS_EVERY == 2 {
                    self.put_rings(now_ns, batch);
                }
            }
            Err(errno) => {
                let path = self.root.path("proc");
                let fault = SourceError::Read { path, errno };
                match fault.is_absent() {
                    true => self.absent = Some(fault.to_string()),
                    false => faults.add(fault),
                }
            }
        }
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let counts = &self.counts;
        let sees = match counts.all {
            0 => "no processes".to_owned(),
            all => format!(
                "processes: {all}, with streams: {}; one that begins and ends between two scans counts for its parent",
                self.chosen.len()
            ),
        };
        let mut missing = Vec::new();
        if counts.all == 0 {
            let proc = self.root.path("proc");
            let why = self.absent.clone();
            missing.push(MissingPart::new(
                "processes",
                why.unwrap_or_else(|| format!("{} lists none", proc.display())),
                "mount /proc, or let the agent see the host's",
            ));
            return SourceCoverage { sees, missing };
        }
        missing.extend(self.explain());
        SourceCoverage { sees, missing }
    }
}

impl Processes {
    fn explain(&self) -> Vec<MissingPart> {
        let counts = &self.counts;
        let mut missing = Vec::new();
        if counts.unreadable > 0 {
            missing.push(MissingPart::new(
                format!("reads and writes of {} of {} processes", counts.unreadable, counts.all),
                "they are other users' or have more rights, and /proc/PID/io is shown only to who may trace a process",
                "give the agent CAP_SYS_PTRACE (AmbientCapabilities= and CapabilityBoundingSet= of its service)",
            ));
        }
        let read = counts.all - counts.left_out;
        if counts.without_io == read && read > 0 {
            missing.push(MissingPart::new(
                "reads and writes of processes",
                "no process has a file io",
                "a kernel with CONFIG_TASK_IO_ACCOUNTING",
            ));
        }
        if !counts.first_is_there {
            missing.push(MissingPart::new(
                "processes of other users",
                "process 1 is not listed: /proc hides what is not our own (hidepid)",
                "mount /proc with gid= of a group of the agent, or without hidepid",
            ));
        }
        if counts.left_out > 0 {
            missing.push(MissingPart::new(
                format!("processes beyond those read: {}", counts.left_out),
                format!("only {} are read in one scan", self.config.processes_max),
                "raise process.processes_max; a scan takes some microseconds for each",
            ));
        }
        if self.rings.cut {
            missing.push(MissingPart::new(
                "some io_uring rings",
                format!("more than {} files are open", rings::FILES_MAX),
                "nothing; the bound keeps a look short",
            ));
        }
        missing
    }
}

/// The time over which rates are measured.
struct Times {
    elapsed_ns: i64,
    /// Whether a process that was not seen before began since the last scan.
    newcomers: bool,
}

/// The reason why a process gave no values.
enum Trouble {
    Denied,
    Gone,
    /// The file is not as documented.
    Bad(&'static str),
    Failed(&'static str, Errno),
}

/// Reads the files of processes, one after another, into the same buffer.
struct Files<'a> {
    proc: &'a OwnedFd,
    path: String,
    piece: Box<[u8; PIECE_BYTES]>,
    length: usize,
}

impl<'a> Files<'a> {
    fn new(proc: &'a OwnedFd) -> Self {
        Self {
            proc,
            path: String::with_capacity(32),
            piece: Box::new([0; PIECE_BYTES]),
            length: 0,
        }
    }

    /// The counters of a process, and the process itself if it moved bytes since the last scan.
    fn process(
        &mut self,
        pid: u32,
        before: Option<Seen>,
        new: bool,
        times: &Times,
    ) -> Result<(Seen, Option<Active>), Trouble> {
        let io = parse::io(self.read(pid, "io")?).ok_or(Trouble::Bad("io"))?;
        if let Some(before) = before
            && before.io == io
        {
            let rate = per_second(0, times.elapsed_ns);
            let seen = Seen {
                read: rate,
                write: rate,
                ..before
            };
            return Ok((seen, None));
        }
        let stat = parse::stat(self.read(pid, "stat")?).ok_or(Trouble::Bad("stat"))?;
        let (command, parent, start) = stat;
        let same = before.filter(|before| before.start == start);
        let base = match (same, before) {
            (Some(before), _) => Some(before.io),
            // Another process has the number now.
            (None, Some(_)) => Some(ProcessIo::default()),
            (None, None) if new && times.newcomers => Some(ProcessIo::default()),
            (None, None) => None,
        };
        let rate =
            |now: u64, base: Option<u64>| per_second(now.checked_sub(base?)?, times.elapsed_ns);
        let read = rate(io.read_bytes, base.map(|b| b.read_bytes));
        let write = rate(io.write_bytes, base.map(|b| b.write_bytes));
        let seen = Seen {
            start,
            parent,
            io,
            inherited: same.map(|before| before.inherited).unwrap_or_default(),
            read,
            write,
        };
        let (read, write) = (read.unwrap_or(0.0), write.unwrap_or(0.0));
        let active = (read > 0.0 || write > 0.0).then(|| Active {
            pid,
            start,
            command: command.into(),
            moved: base.map(|base| io.minus(base)),
            read,
            write,
        });
        Ok((seen, active))
    }

    /// Reads one file as a whole: it is one record, which one read returns.
    fn read(&mut self, pid: u32, file: &'static str) -> Result<&[u8], Trouble> {
        self.path.clear();
        write!(self.path, "{pid}/{file}").expect("a String takes what it is given");
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let read = rustix::fs::openat(self.proc, self.path.as_str(), flags, Mode::empty())
            .and_then(|fd| rustix::io::read(&fd, &mut self.piece[..]));
        match read {
            Ok(length) => {
                self.length = length;
                Ok(&self.piece[..length])
            }
            Err(Errno::ACCESS | Errno::PERM) => Err(Trouble::Denied),
            Err(Errno::NOENT | Errno::SRCH) => Err(Trouble::Gone),
            Err(errno) => Err(Trouble::Failed(file, errno)),
        }
    }
}
