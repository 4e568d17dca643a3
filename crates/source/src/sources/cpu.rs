//! `/proc/stat` and `/proc/loadavg`: use of the processors, and how much they wait for storage.

use std::path::Path;

use crate::fact::{FactSet, facts};
use crate::report::counted;
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::parse::{cut, decimal, lines, words};
use crate::{Source, SourceBatch, SourceCoverage, SourceError};

use super::{absent_or_fault, missing_proc};

facts! {
    /// Facts of the node's processors.
    pub(crate) enum Fact in "cpu" {
        User: Counter Float "user.seconds" "seconds" "Time in programs, guests included, summed over all processors.";
        Nice: Counter Float "nice.seconds" "seconds" "Time in programs of low priority, summed over all processors.";
        System: Counter Float "system.seconds" "seconds" "Time in the kernel, summed over all processors.";
        Idle: Counter Float "idle.seconds" "seconds" "Idle time, summed over all processors.";
        Iowait: Counter Float "iowait.seconds" "seconds" "Idle time during which a task of the processor waited for storage, summed over all processors.";
        Irq: Counter Float "irq.seconds" "seconds" "Time in interrupts, summed over all processors.";
        Softirq: Counter Float "softirq.seconds" "seconds" "Time in deferred interrupts (softirqs), summed over all processors.";
        Steal: Counter Float "steal.seconds" "seconds" "Time that the hypervisor gave to other guests, summed over all processors.";
        Busy: Gauge Float "busy.ratio" "ratio" "Share of the time since the last poll in which processors were neither idle nor waiting for storage.";
        IowaitRatio: Gauge Float "iowait.ratio" "ratio" "Share of the time since the last poll in which processors were idle while a task waited for storage.";
        Load1: Gauge Float "load1.tasks" "tasks" "Tasks that are running or blocked, averaged over one minute.";
        Load5: Gauge Float "load5.tasks" "tasks" "Tasks that are running or blocked, averaged over five minutes.";
        Load15: Gauge Float "load15.tasks" "tasks" "Tasks that are running or blocked, averaged over fifteen minutes.";
        Running: Gauge Int "running.tasks" "tasks" "Tasks that are running or runnable.";
        Blocked: Gauge Int "blocked.tasks" "tasks" "Tasks that are blocked by I/O.";
        Online: Gauge Int "online.count" "count" "Processors that are online.";
        Switches: Counter Int "switches.count" "count" "Context switches.";
        Forks: Counter Int "forks.count" "count" "Processes and threads started.";
    }
}

/// The columns of the `cpu` line that are disjoint; guest times are part of user and nice.
const COLUMNS: [Fact; 8] = [
    Fact::User,
    Fact::Nice,
    Fact::System,
    Fact::Idle,
    Fact::Iowait,
    Fact::Irq,
    Fact::Softirq,
    Fact::Steal,
];
/// Number of columns of the oldest kernel that is read (2.6): user to softirq.
const COLUMNS_MIN: usize = 7;
const IDLE: usize = 3;
const IOWAIT: usize = 4;

type Ticks = [u64; COLUMNS.len()];

/// The source `cpu`.
pub struct Cpu {
    stat: HeldFile,
    load: HeldFile,
    bytes: Vec<u8>,
    facts: FactSet<Fact>,
    ticks_per_s: f64,
    last: Option<Ticks>,
    online: u64,
    stat_absent: Option<String>,
    load_absent: Option<String>,
}

impl Cpu {
    /// Creates the source below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        let root = SysRoot::new(sys_root);
        Self {
            stat: root.short_records("proc/stat"),
            load: root.short_records("proc/loadavg"),
            bytes: Vec::new(),
            facts: FactSet::new(barograph_model::Labels::none()),
            ticks_per_s: rustix::param::clock_ticks_per_second().max(1) as f64,
            last: None,
            online: 0,
            stat_absent: None,
            load_absent: None,
        }
    }

    fn read_stat(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        let mut bad = BadLines::default();
        let mut online = 0;
        for line in lines(&self.bytes) {
            let mut rest = words(line);
            let Some(key) = rest.next() else {
                bad.add(line);
                continue;
            };
            let mut count = |fact: Fact| match rest.number() {
                Some(value) => self.facts.count(batch, now_ns, fact, value),
                None => bad.add(line),
            };
            match key {
                b"cpu" => match ticks(line) {
                    Some(ticks) => {
                        let last = self.last.replace(ticks);
                        put_ticks(
                            &mut self.facts,
                            now_ns,
                            batch,
                            ticks,
                            last,
                            self.ticks_per_s,
                        );
                    }
                    None => bad.add(line),
                },
                b"ctxt" => count(Fact::Switches),
                b"processes" => count(Fact::Forks),
                b"procs_running" => count(Fact::Running),
                b"procs_blocked" => count(Fact::Blocked),
                _ if key.starts_with(b"cpu") => online += 1,
                _ => {}
            }
        }
        if !cut(&self.bytes).is_empty() || self.bytes.is_empty() {
            bad.add(cut(&self.bytes));
        } else {
            self.online = online;
            self.facts.count(batch, now_ns, Fact::Online, online);
        }
        bad.report(self.stat.path(), faults);
    }

    fn read_load(&mut self, now_ns: i64, batch: &mut SourceBatch, faults: &mut Faults) {
        let mut bad = BadLines::default();
        match load(&self.bytes) {
            Some(loads) => {
                for (value, fact) in loads.iter().zip([Fact::Load1, Fact::Load5, Fact::Load15]) {
                    self.facts.measured(batch, now_ns, fact, *value);
                }
            }
            None => bad.add(&self.bytes),
        }
        bad.report(self.load.path(), faults);
    }
}

impl Source for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        self.online = 0;
        let read = absent_or_fault(self.stat.read(&mut self.bytes), &mut self.stat_absent);
        if faults.take(read) == Some(true) {
            self.read_stat(now_ns, batch, &mut faults);
        }
        let read = absent_or_fault(self.load.read(&mut self.bytes), &mut self.load_absent);
        if faults.take(read) == Some(true) {
            self.read_load(now_ns, batch, &mut faults);
        }
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let missing = [
            missing_proc("processor times", &self.stat_absent),
            missing_proc("load averages", &self.load_absent),
        ];
        SourceCoverage {
            sees: counted(self.online as usize, "processor"),
            missing: missing.into_iter().flatten().collect(),
        }
    }
}

fn ticks(line: &[u8]) -> Option<Ticks> {
    let mut ticks = Ticks::default();
    let mut seen = 0;
    let mut words = words(line);
    words.next()?;
    for slot in &mut ticks {
        if words.at_end() {
            break;
        }
        *slot = words.number()?;
        seen += 1;
    }
    (seen >= COLUMNS_MIN).then_some(ticks)
}

fn put_ticks(
    facts: &mut FactSet<Fact>,
    now_ns: i64,
    batch: &mut SourceBatch,
    ticks: Ticks,
    last: Option<Ticks>,
    ticks_per_s: f64,
) {
    for (value, fact) in ticks.iter().zip(COLUMNS) {
        facts.measured(batch, now_ns, fact, *value as f64 / ticks_per_s);
    }
    let Some(last) = last else { return };
    let mut growth = Ticks::default();
    for (slot, (new, old)) in growth.iter_mut().zip(ticks.iter().zip(last)) {
        // The kernel does not guarantee that idle and iowait only grow; a step back gives no ratio.
        let Some(grown) = new.checked_sub(old) else {
            return;
        };
        *slot = grown;
    }
    let total = growth.iter().fold(0u64, |sum, g| sum.saturating_add(*g)) as f64;
    if total > 0.0 {
        let (idle, iowait) = (growth[IDLE] as f64, growth[IOWAIT] as f64);
        facts.derived(
            batch,
            now_ns,
            Fact::Busy,
            ((total - idle - iowait) / total).clamp(0.0, 1.0),
        );
        facts.derived(
            batch,
            now_ns,
            Fact::IowaitRatio,
            (iowait / total).clamp(0.0, 1.0),
        );
    }
}

fn load(bytes: &[u8]) -> Option<[f64; 3]> {
    let mut words = words(lines(bytes).next()?);
    Some([
        decimal(words.next()?)?,
        decimal(words.next()?)?,
        decimal(words.next()?)?,
    ])
}
