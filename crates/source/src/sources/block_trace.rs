//! Single requests of disks, from the kernel's tracing: which processes issue them, which extents
//! are hot, and how long each request takes (<https://docs.kernel.org/trace/ftrace.html>, and the
//! events of include/trace/events/block.h).
//!
//! The source is off by default: for each request the processor that handles it writes two events,
//! and the agent reads them. The cost of reading is in `block_trace.cost.seconds`. The agent traces
//! in a tracing instance of its own and does not touch those of others.
//!
//! Events are read as text. It has microseconds, so a latency is known to a microsecond. eBPF could
//! count in the kernel at a lower cost, but building such programs takes a nightly compiler and a
//! linker of its own, which building this project should not require.
//!
//! In the mode `auto` requests are traced in turns (`turns.rs`): while a disk is busy or slower
//! than usual, within a budget. Between turns nothing is traced, and the streams of a turn end with
//! it.
//!
//! Counts and quantiles decay: a request counts half after `half_life_ms`.
//!
//! Below a root other than `/` nothing is traced: `instances/barograph/trace_pipe` of that tree, a
//! plain file that may grow, replaces the pipe.

mod config;
mod device;
mod histogram;
mod issuers;
pub mod line;
mod pairs;
mod tracefs;
mod turns;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use barograph_model::{Labels, NS_PER_S};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::parse::{escape, lines};
use crate::util::top::{Heavy, left_after};
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

pub use config::{BlockTraceConfig, BlockTraceMode};
use device::TracedDevice;
pub(crate) use device::{Fact, HotFact};
pub(crate) use issuers::IssuerFact;
use line::{Operation, TraceLine, TraceRequest};
use pairs::RequestPairs;
pub(crate) use tracefs::remove_leftovers;
use tracefs::{Instance, WHAT};
use turns::Turns;

/// Most devices that are followed.
const DEVICES_MAX: usize = 64;
/// Number of bytes that one read requests: more than the kernel ever gives at once.
const PIECE_BYTES: usize = 64 << 10;
/// Longest line in bytes; a longer one is bad.
const LINE_BYTES_MAX: usize = 4096;
/// Time until tracing that could not be started is tried again, in ns.
const RETRY_NS: i64 = 30_000_000_000;
/// The file that replaces the pipe in a tree.
const RECORDING: &str = "sys/kernel/tracing/instances/barograph/trace_pipe";

facts! {
    /// Facts of the trace as a whole.
    pub(crate) enum TraceFact in "block_trace" {
        Events: Counter Int "events.count" "count" "Events read from the trace: two for each request.";
        Lost: Counter Int "lost.count" "count" "Events that were overwritten before they were read, as far as the kernel counted them.";
        Unmatched: Counter Int "unmatched.count" "count" "Events without their counterpart: the begin or the end of the same request was not seen.";
        Cost: Counter Float "cost.seconds" "seconds" "Processor time spent reading the trace; the time that the kernel spends writing it is not included.";
        On: State Bool "on.flag" "flag" "Whether requests are being traced now.";
        Turns: Counter Int "turns.count" "count" "In mode auto: number of times that tracing was switched on.";
        TurnSeconds: Counter Float "turns.seconds" "seconds" "In mode auto: total time for which tracing was on.";
        Unaffordable: Counter Int "unaffordable.count" "count" "In mode auto: times that tracing was wanted but not started, or was ended, because there were more events than the budget permits.";
    }
}

/// The source `block_trace`.
pub struct BlockTrace {
    root: SysRoot,
    config: BlockTraceConfig,
    pipe: Pipe,
    missing: Option<MissingPart>,
    retry_ns: i64,
    auto: Option<Auto>,
    /// Time at which the pipe was last read or opened, in monotonic ns.
    drained_ns: i64,
    /// Seconds between the last two of these times.
    elapsed_s: f64,
    /// The beginning of a line, with which the last piece ended.
    bytes: Vec<u8>,
    facts: FactSet<TraceFact>,
    tally: Tally,
    decayed_ns: i64,
    hottest: Vec<Heavy<u64>>,
    lost_newly: u64,
    cost_s: f64,
}

/// The state of the mode `auto`.
struct Auto {
    turns: Turns,
    diskstats: HeldFile,
    bytes: Vec<u8>,
    /// Whether an instance could be created.
    is_allowed: bool,
}

enum Pipe {
    None,
    Traced(Instance),
    Recorded(OwnedFd),
}

/// The sums and counts over all events.
#[derive(Default)]
struct Tally {
    devices: Vec<((u32, u32), TracedDevice)>,
    /// Index in `devices` of the device of the last event.
    guess: usize,
    pairs: RequestPairs,
    events: u64,
    lost: u64,
    /// Events in this read of devices beyond the largest number that is followed.
    refused: usize,
}

impl BlockTrace {
    /// Creates the source below the configured root. Tracing begins with the first read.
    pub fn new(sys_root: &Path, config: &BlockTraceConfig) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            config: config.clone(),
            pipe: Pipe::None,
            missing: None,
            retry_ns: i64::MIN,
            auto: Auto::new(&root, config),
            drained_ns: 0,
            elapsed_s: 0.0,
            bytes: Vec::new(),
            facts: FactSet::new(Labels::none()),
            tally: Tally::default(),
            decayed_ns: 0,
            hottest: Vec::new(),
            root,
            lost_newly: 0,
            cost_s: 0.0,
        }
    }

    fn start(&mut self, monotonic_ns: i64) {
        if !matches!(self.pipe, Pipe::None) || monotonic_ns < self.retry_ns {
            return;
        }
        let started = if self.root.is_real() {
            Instance::start(&self.root, self.config.buffer_bytes).map(Pipe::Traced)
        } else {
            recording(&self.root)
        };
        match started {
            Ok(pipe) => (self.pipe, self.missing) = (pipe, None),
            Err(missing) => {
                self.retry_ns = monotonic_ns.saturating_add(RETRY_NS);
                self.missing = Some(missing);
            }
        }
        self.drained_ns = monotonic_ns;
    }

    /// Stops tracing. The streams of all devices end.
    fn end(&mut self, batch: &mut SourceBatch) {
        self.pipe = Pipe::None;
        self.bytes.clear();
        self.tally.pairs.lost();
        for (_, mut device) in self.tally.devices.drain(..) {
            device.retire(batch);
        }
    }

    /// Begins and ends turns.
    fn take_turns(&mut self, batch: &mut SourceBatch, faults: &mut Faults) {
        let monotonic_ns = batch.monotonic_ns();
        let Some(auto) = &mut self.auto else { return };
        if !auto.is_allowed && monotonic_ns >= self.retry_ns && self.root.is_real() {
            self.missing = Instance::make(&self.root).map(drop).err();
            auto.is_allowed = self.missing.is_none();
            if !auto.is_allowed {
                self.retry_ns = monotonic_ns.saturating_add(RETRY_NS);
            }
        }
        let mut look = auto.look(monotonic_ns, &self.root, faults);
        look.wanted &= self.missing.is_none();
        let is_on = auto.turns.step(monotonic_ns, look);
        match (is_on, &self.pipe) {
            (true, Pipe::None) => {
                // The devices of the last turn are gone already, unless it ended in the read before
                // this one.
                self.end(batch);
                self.start(monotonic_ns);
            }
            (false, _) => self.end(batch),
            (true, _) => {}
        }
        if let (true, Pipe::None, Some(auto)) = (is_on, &self.pipe, &mut self.auto) {
            auto.turns.end(monotonic_ns);
            auto.is_allowed = false;
        }
    }

    /// Reads the events in the pipe, at most `events_max` lines and one piece more. Lines without
    /// an event count as well, so that a trace of only such lines ends too.
    fn drain(
        &mut self,
        events_max: u64,
        batch: &mut SourceBatch,
        bad: &mut BadLines,
    ) -> Result<(), SourceError> {
        let (fd, path) = match &self.pipe {
            Pipe::None => return Ok(()),
            Pipe::Traced(instance) => match instance.pipe() {
                Some(fd) => (fd, instance.path.join("trace_pipe")),
                None => return Ok(()),
            },
            Pipe::Recorded(fd) => (fd, self.root.path(RECORDING)),
        };
        let mut left = events_max.max(1);
        while left > 0 {
            self.bytes.reserve(PIECE_BYTES);
            match rustix::io::read(fd, rustix::buffer::spare_capacity(&mut self.bytes)) {
                // No more events at present; the pipe reports that in both ways.
                Ok(0) | Err(Errno::AGAIN) => return Ok(()),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(SourceError::Read { path, errno }),
            }
            let whole = self
                .bytes
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(0, |at| at + 1);
            // A piece counts even if no line ends in it.
            left = left.saturating_sub(u64::from(whole == 0));
            for line in lines(&self.bytes[..whole]) {
                left = left.saturating_sub(1);
                let place = (&self.config, &self.root);
                self.tally.take(line, batch, bad, place);
            }
            self.bytes.drain(..whole);
            if self.bytes.len() > LINE_BYTES_MAX {
                bad.add(&self.bytes);
                self.bytes.clear();
            }
        }
        Ok(())
    }

    /// Reads the events in the pipe. In the mode `auto` it reads as many as the budget pays for,
    /// and ends the turn if there were more.
    fn follow(&mut self, batch: &mut SourceBatch, bad: &mut BadLines, faults: &mut Faults) {
        let monotonic_ns = batch.monotonic_ns();
        let elapsed_ns = monotonic_ns.saturating_sub(self.drained_ns);
        let paid = self
            .auto
            .as_ref()
            .map(|auto| auto.turns.events_max(elapsed_ns));
        if elapsed_ns <= 0 && paid.is_some() {
            return; // The turn begins with this read.
        }
        self.drained_ns = monotonic_ns;
        self.elapsed_s = elapsed_ns as f64 / NS_PER_S as f64;
        let max = paid.unwrap_or(u64::MAX).min(self.config.events_max);
        let (seen, begin_s) = (self.tally.seen(), thread_cpu_s());
        if let Err(fault) = self.drain(max, batch, bad) {
            // Tracing is started again after a while: the instance may have been removed.
            faults.add(fault);
            self.pipe = Pipe::None;
            self.retry_ns = monotonic_ns.saturating_add(RETRY_NS);
            self.bytes.clear();
            self.tally.pairs.lost();
        }
        if let Some(auto) = &mut self.auto {
            let cpu_ns = (thread_cpu_s() - begin_s) * NS_PER_S as f64;
            let events = self.tally.seen().saturating_sub(seen);
            auto.turns.spent(monotonic_ns, events, max, cpu_ns);
            if !auto.turns.is_on() {
                // The pipe is closed at once because the kernel goes on writing; the events that
                // were read are still put once.
                self.pipe = Pipe::None;
            }
        }
    }

    fn decay(&mut self, monotonic_ns: i64, batch: &mut SourceBatch) {
        let elapsed_ns = monotonic_ns.saturating_sub(self.decayed_ns);
        self.decayed_ns = monotonic_ns;
        let factor = left_after(elapsed_ns, self.config.half_life_ns());
        self.tally.devices.retain_mut(|(_, device)| {
            device.decay(factor);
            let kept = device.is_kept();
            if !kept {
                device.retire(batch);
            }
            kept
        });
    }

    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        let counts = [
            (TraceFact::Events, self.tally.events),
            (TraceFact::Lost, self.tally.lost),
            (TraceFact::Unmatched, self.tally.pairs.unmatched()),
        ];
        for (fact, count) in counts {
            self.facts.count(batch, now_ns, fact, count);
        }
        let is_on = !matches!(self.pipe, Pipe::None);
        self.facts.measured(batch, now_ns, TraceFact::On, is_on);
        if let Some(auto) = &self.auto {
            let counts = auto.turns.counts;
            let seconds = counts.on_ns as f64 / NS_PER_S as f64;
            let facts = &mut self.facts;
            facts.count(batch, now_ns, TraceFact::Turns, counts.begun);
            facts.count(batch, now_ns, TraceFact::Unaffordable, counts.unaffordable);
            facts.measured(batch, now_ns, TraceFact::TurnSeconds, seconds);
        }
        for (_, device) in &mut self.tally.devices {
            device.put(now_ns, batch, self.elapsed_s, &mut self.hottest);
        }
    }
}

impl Source for BlockTrace {
    fn name(&self) -> &'static str {
        "block_trace"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let begin_s = thread_cpu_s();
        let mut faults = Faults::default();
        match self.auto {
            Some(_) => self.take_turns(batch, &mut faults),
            None => self.start(batch.monotonic_ns()),
        }
        if matches!(self.pipe, Pipe::None) && (self.auto.is_none() || self.missing.is_some()) {
            return faults.finish();
        }
        let mut bad = BadLines::default();
        let lost = self.tally.lost;
        self.tally.refused = 0;
        self.decay(batch.monotonic_ns(), batch);
        if !matches!(self.pipe, Pipe::None) {
            self.follow(batch, &mut bad, &mut faults);
        }
        self.lost_newly = self.tally.lost - lost;
        self.put(now_ns, batch);
        if self.root.is_real() {
            self.cost_s += (thread_cpu_s() - begin_s).max(0.0);
            self.facts
                .measured(batch, now_ns, TraceFact::Cost, self.cost_s);
        }
        bad.report(&self.root.path("sys/kernel/tracing"), &mut faults);
        if self.tally.refused > 0 {
            faults.add(SourceError::TooMany {
                what: "events of further devices",
                refused: self.tally.refused,
                max: DEVICES_MAX,
            });
        }
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let mut missing: Vec<_> = self.missing.iter().cloned().collect();
        let from = match &self.pipe {
            Pipe::None if self.auto.is_some() && missing.is_empty() => {
                let sees = "nothing now: in the mode auto, requests are traced while a disk is busy or slower than usual";
                return SourceCoverage {
                    sees: sees.to_owned(),
                    missing,
                };
            }
            Pipe::None => {
                return SourceCoverage {
                    sees: format!("no {WHAT}"),
                    missing,
                };
            }
            Pipe::Traced(instance) => instance.path.clone(),
            Pipe::Recorded(_) => self.root.path(RECORDING),
        };
        if self.lost_newly > 0 {
            missing.push(MissingPart::new(
                counted(self.lost_newly as usize, "event"),
                "they were overwritten before they were read: counts are too low, and quantiles favour short requests",
                "make sources.block_trace.buffer_bytes or events_max larger, or sources.poll.block_trace.interval_ms shorter",
            ));
        }
        let devices: Vec<_> = self.tally.devices.iter().map(|(_, d)| &*d.label).collect();
        let sees = format!(
            "requests of {}{}{}, from {}",
            counted(devices.len(), "device"),
            if devices.is_empty() { "" } else { ": " },
            devices.join(", "),
            from.display()
        );
        SourceCoverage { sees, missing }
    }

    /// Reading a full buffer takes a while.
    fn is_slow(&self) -> bool {
        true
    }
}

impl Auto {
    fn new(root: &SysRoot, config: &BlockTraceConfig) -> Option<Self> {
        (config.mode == BlockTraceMode::Auto).then(|| Self {
            turns: Turns::new(config),
            diskstats: root.short_records("proc/diskstats"),
            bytes: Vec::new(),
            is_allowed: false,
        })
    }

    /// Compares the counters of the disks with those of the last look. Without counters no turn is
    /// wanted.
    fn look(&mut self, monotonic_ns: i64, root: &SysRoot, faults: &mut Faults) -> turns::TurnLook {
        if !self.diskstats.read_if_there(&mut self.bytes, faults) {
            return turns::TurnLook::default();
        }
        let is_disk = |name: &[u8]| {
            // A device in a subdirectory of /dev has an exclamation mark in its name in /sys.
            let name = String::from_utf8_lossy(name).replace('/', "!");
            rustix::fs::stat(root.path(&format!("sys/block/{name}"))).is_ok()
        };
        self.turns.look(monotonic_ns, &self.bytes, is_disk)
    }
}

impl Tally {
    /// Number of events that the kernel wrote, as far as it is known.
    fn seen(&self) -> u64 {
        self.events.saturating_add(self.lost)
    }

    fn take(
        &mut self,
        line: &[u8],
        batch: &mut SourceBatch,
        bad: &mut BadLines,
        (config, root): (&BlockTraceConfig, &SysRoot),
    ) {
        match line::parse(line) {
            TraceLine::Issue(request) => {
                self.events += 1;
                if request.operation != Operation::Other
                    && let Some(device) = self.device(&request, config, root)
                {
                    device.issued(&request, line::issuer(line), batch);
                    self.pairs.issue(&request);
                }
            }
            TraceLine::Complete(request) => {
                self.events += 1;
                if request.operation != Operation::Other
                    && let Some(took_ns) = self.pairs.complete(&request)
                    && let Some(device) = self.device(&request, config, root)
                {
                    device.took(request.operation, took_ns);
                }
            }
            TraceLine::Lost(count) => {
                self.lost = self.lost.saturating_add(count.unwrap_or(1));
                self.pairs.lost();
            }
            TraceLine::Other => {}
            TraceLine::Bad => bad.add(line),
        }
    }

    /// The device of a request, which is followed from its first request on.
    fn device(
        &mut self,
        request: &TraceRequest,
        config: &BlockTraceConfig,
        root: &SysRoot,
    ) -> Option<&mut TracedDevice> {
        let number = request.device;
        let known = |(of, _): &(_, TracedDevice)| *of == number;
        if !self.devices.get(self.guess).is_some_and(known) {
            self.guess = match self.devices.iter().position(known) {
                Some(at) => at,
                None if self.devices.len() < DEVICES_MAX => {
                    let device = TracedDevice::new(label(root, number), config)
                        .or_else(|| TracedDevice::new(numbered(number), config))?;
                    self.devices.push((number, device));
                    self.devices.len() - 1
                }
                None => {
                    self.refused += 1;
                    return None;
                }
            };
        }
        self.devices.get_mut(self.guess).map(|(_, device)| device)
    }
}

/// The name of the device in the source `disk`.
fn label(root: &SysRoot, (major, minor): (u32, u32)) -> String {
    let mut bytes = Vec::new();
    let mut uevent = root.short_records(&format!("sys/dev/block/{major}:{minor}/uevent"));
    let read = uevent.read_and_close(&mut bytes);
    let name = |line: &[u8]| line.strip_prefix(b"DEVNAME=").map(escape);
    read.ok()
        .and_then(|()| lines(&bytes).find_map(name))
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| numbered((major, minor)))
}

fn numbered((major, minor): (u32, u32)) -> String {
    format!("{major}:{minor}")
}

fn recording(root: &SysRoot) -> Result<Pipe, MissingPart> {
    let path: PathBuf = root.path(RECORDING);
    let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map(Pipe::Recorded).map_err(|errno| {
        MissingPart::new(
            WHAT,
            format!("{}: {}", path.display(), std::io::Error::from(errno)),
            "trace the machine itself (sources.sys_root = \"/\"), or put a recording there",
        )
    })
}

/// Processor time of this thread so far, in seconds.
#[expect(
    clippy::disallowed_methods,
    reason = "the processor time that the trace costs"
)]
fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
