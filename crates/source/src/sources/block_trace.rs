//! Requests of disks one by one, through the kernel's tracing: which extents are hot, and what
//! single requests take (<https://docs.kernel.org/trace/ftrace.html>, and the events of
//! include/trace/events/block.h).
//!
//! Off unless asked for: each request costs its device's processor the writing of two events, and
//! a reader the reading of them. That second cost is in `block_trace.cost.seconds`. What the agent
//! reads goes through an instance of tracing of its own: nobody else's tracing is touched.
//!
//! Events are read as text. It carries microseconds, so a latency is known to that. eBPF would
//! count in the kernel, and cost less; to build such programs takes a nightly compiler and
//! a linker of its own, which nobody who builds this should need.
//!
//! Counts and quantiles decay: a request counts half after `half_life_ms`.
//!
//! Below a root other than `/` nothing is traced: `instances/barograph/trace_pipe` of that tree, a
//! plain file that may grow, stands for the pipe.

mod device;
mod histogram;
pub mod line;
mod pairs;
mod tracefs;

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use barograph_model::Labels;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{BadLines, Faults};
use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::file::SysRoot;
use crate::util::parse::{escape, lines};
use crate::util::top::{Heavy, left_after};
use crate::{Batch, Missing, Report, Source, SourceError, SourcesConfig};

use device::Device;
pub(crate) use device::{Fact, HotFact};
use line::{Line, Operation, Request};
use pairs::Pairs;
use tracefs::{Instance, WHAT};

/// Most devices that are followed.
const DEVICES_MAX: usize = 64;
/// Bytes that one read asks for: more than the kernel ever gives at once.
const PIECE_BYTES: usize = 64 << 10;
/// A longer line is no line.
const LINE_BYTES_MAX: usize = 4096;
/// How long it takes until tracing that could not be started is tried again.
const RETRY_NS: i64 = 30_000_000_000;
/// The file that stands for the pipe in a tree.
const RECORDING: &str = "sys/kernel/tracing/instances/barograph/trace_pipe";

facts! {
    /// Facts of the trace as a whole.
    pub(crate) enum TraceFact in "block_trace" {
        Events: Counter Int "events.count" "count" "Events read: two for each request.";
        Lost: Counter Int "lost.count" "count" "Events that were overwritten before they were read, as far as the kernel counted them.";
        Unmatched: Counter Int "unmatched.count" "count" "Events of reads and writes of which the other one was not seen.";
        Cost: Counter Float "cost.seconds" "seconds" "Processor time that reading the trace took; what writing it costs is not in it.";
    }
}

/// Requests of disks, one by one. Off unless `poll.block_trace.enabled` is true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BlockTraceConfig {
    /// How long the pieces are whose requests are counted together, in bytes (at least 4096).
    pub extent_bytes: u64,
    /// How many of the hottest extents of a device have streams (at most 128).
    pub ranks: usize,
    /// How many extents of a device are counted at once (at most 65536); the error of a count is
    /// at most that share of all requests.
    pub counters: usize,
    /// After so many milliseconds a request counts half.
    pub half_life_ms: u64,
    /// Room for events between two reads, in bytes over all processors; each has 256 KiB at least.
    pub buffer_bytes: u64,
    /// Most events that are read at once; more wait in the buffer, and are lost when it is full.
    pub events_max: u64,
}

impl Default for BlockTraceConfig {
    fn default() -> Self {
        Self {
            extent_bytes: 1 << 20,
            ranks: 16,
            counters: 1024,
            half_life_ms: 60_000,
            buffer_bytes: 16 << 20,
            events_max: 200_000,
        }
    }
}

/// What is out of bounds is brought into them.
impl BlockTraceConfig {
    fn extent_bytes(&self) -> u64 {
        self.extent_bytes.clamp(4096, 1 << 50)
    }

    fn ranks(&self) -> usize {
        self.ranks.clamp(1, 128)
    }

    fn counters(&self) -> usize {
        self.counters.clamp(self.ranks(), 65_536)
    }

    fn half_life_ns(&self) -> i64 {
        self.half_life_ms.clamp(100, 1 << 40) as i64 * 1_000_000
    }
}

/// The source `block_trace`.
pub struct BlockTrace {
    root: SysRoot,
    config: BlockTraceConfig,
    pipe: Pipe,
    missing: Option<Missing>,
    retry_ns: i64,
    /// What the last piece ended with: the beginning of a line.
    bytes: Vec<u8>,
    facts: FactSet<TraceFact>,
    tally: Tally,
    decayed_ns: i64,
    hottest: Vec<Heavy<u64>>,
    lost_newly: u64,
    cost_s: f64,
}

enum Pipe {
    None,
    Traced(Instance),
    Recorded(OwnedFd),
}

/// What the events come to.
#[derive(Default)]
struct Tally {
    devices: Vec<((u32, u32), Device)>,
    /// Where in `devices` the last event found its own.
    guess: usize,
    pairs: Pairs,
    events: u64,
    lost: u64,
    /// Events of devices beyond the most that are followed, in this read.
    refused: usize,
}

impl BlockTrace {
    /// Below the configured root. Tracing begins with the first read.
    pub fn new(config: &SourcesConfig) -> Self {
        Self {
            root: SysRoot::new(&config.sys_root),
            config: config.block_trace.clone(),
            pipe: Pipe::None,
            missing: None,
            retry_ns: i64::MIN,
            bytes: Vec::new(),
            facts: FactSet::new(Labels::none()),
            tally: Tally::default(),
            decayed_ns: 0,
            hottest: Vec::new(),
            lost_newly: 0,
            cost_s: 0.0,
        }
    }

    fn start(&mut self, monotonic_ns: i64) {
        if !matches!(self.pipe, Pipe::None) || monotonic_ns < self.retry_ns {
            return;
        }
        self.retry_ns = monotonic_ns.saturating_add(RETRY_NS);
        let started = if self.root.is_real() {
            Instance::start(&self.root, self.config.buffer_bytes).map(Pipe::Traced)
        } else {
            recording(&self.root)
        };
        match started {
            Ok(pipe) => (self.pipe, self.missing) = (pipe, None),
            Err(missing) => self.missing = Some(missing),
        }
    }

    /// Reads what there is, at most `events_max` lines and one piece more; lines that are no events
    /// count as well, so that a trace of nothing else ends too.
    fn drain(&mut self, bad: &mut BadLines) -> Result<(), SourceError> {
        let (fd, path) = match &self.pipe {
            Pipe::None => return Ok(()),
            Pipe::Traced(instance) => match instance.pipe() {
                Some(fd) => (fd, instance.path.join("trace_pipe")),
                None => return Ok(()),
            },
            Pipe::Recorded(fd) => (fd, self.root.path(RECORDING)),
        };
        let mut left = self.config.events_max.max(1);
        while left > 0 {
            self.bytes.reserve(PIECE_BYTES);
            match rustix::io::read(fd, rustix::buffer::spare_capacity(&mut self.bytes)) {
                // Nothing left for now; the pipe says it in both ways.
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
                self.tally.take(line, bad, &self.config, &self.root);
            }
            self.bytes.drain(..whole);
            if self.bytes.len() > LINE_BYTES_MAX {
                bad.add(&self.bytes);
                self.bytes.clear();
            }
        }
        Ok(())
    }

    fn decay(&mut self, monotonic_ns: i64, batch: &mut Batch) {
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

    fn put(&mut self, now_ns: i64, batch: &mut Batch) {
        let counts = [
            (TraceFact::Events, self.tally.events),
            (TraceFact::Lost, self.tally.lost),
            (TraceFact::Unmatched, self.tally.pairs.unmatched()),
        ];
        for (fact, count) in counts {
            self.facts.count(batch, now_ns, fact, count);
        }
        for (_, device) in &mut self.tally.devices {
            device.put(now_ns, batch, &mut self.hottest);
        }
    }
}

impl Source for BlockTrace {
    fn name(&self) -> &'static str {
        "block_trace"
    }

    fn read(&mut self, now_ns: i64, batch: &mut Batch) -> Result<(), SourceError> {
        let begin_s = thread_cpu_s();
        self.start(batch.monotonic_ns());
        if matches!(self.pipe, Pipe::None) {
            return Ok(());
        }
        let mut faults = Faults::default();
        let mut bad = BadLines::default();
        let lost = self.tally.lost;
        self.tally.refused = 0;
        self.decay(batch.monotonic_ns(), batch);
        if let Err(fault) = self.drain(&mut bad) {
            // Begins anew after a while: the instance may have been removed.
            faults.add(fault);
            self.pipe = Pipe::None;
            self.bytes.clear();
            self.tally.pairs.lost();
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

    fn report(&self) -> Report {
        let mut missing: Vec<_> = self.missing.iter().cloned().collect();
        let from = match &self.pipe {
            Pipe::None => {
                return Report {
                    sees: format!("no {WHAT}"),
                    missing,
                };
            }
            Pipe::Traced(instance) => instance.path.clone(),
            Pipe::Recorded(_) => self.root.path(RECORDING),
        };
        if self.lost_newly > 0 {
            missing.push(Missing::new(
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
        Report { sees, missing }
    }

    /// A full buffer takes a while to read.
    fn is_slow(&self) -> bool {
        true
    }
}

impl Tally {
    fn take(&mut self, line: &[u8], bad: &mut BadLines, config: &BlockTraceConfig, root: &SysRoot) {
        match line::parse(line) {
            Line::Issue(request) => {
                self.events += 1;
                if request.operation != Operation::Other
                    && let Some(device) = self.device(&request, config, root)
                {
                    device.issued(&request);
                    self.pairs.issue(&request);
                }
            }
            Line::Complete(request) => {
                self.events += 1;
                if request.operation != Operation::Other
                    && let Some(took_ns) = self.pairs.complete(&request)
                    && let Some(device) = self.device(&request, config, root)
                {
                    device.took(request.operation, took_ns);
                }
            }
            Line::Lost(count) => {
                self.lost = self.lost.saturating_add(count.unwrap_or(1));
                self.pairs.lost();
            }
            Line::Other => {}
            Line::Bad => bad.add(line),
        }
    }

    /// The device of a request, followed from its first one on.
    fn device(
        &mut self,
        request: &Request,
        config: &BlockTraceConfig,
        root: &SysRoot,
    ) -> Option<&mut Device> {
        let number = request.device;
        let known = |(of, _): &(_, Device)| *of == number;
        if !self.devices.get(self.guess).is_some_and(known) {
            self.guess = match self.devices.iter().position(known) {
                Some(at) => at,
                None if self.devices.len() < DEVICES_MAX => {
                    let device = Device::new(label(root, number), config)
                        .or_else(|| Device::new(numbered(number), config))?;
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

/// The device as the source `disk` calls it.
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

fn recording(root: &SysRoot) -> Result<Pipe, Missing> {
    let path: PathBuf = root.path(RECORDING);
    let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.map(Pipe::Recorded).map_err(|errno| {
        Missing::new(
            WHAT,
            format!("{}: {}", path.display(), std::io::Error::from(errno)),
            "trace the machine itself (sources.sys_root = \"/\"), or put a recording there",
        )
    })
}

/// Processor time of this thread so far.
fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
