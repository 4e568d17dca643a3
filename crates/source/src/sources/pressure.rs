//! `/proc/pressure/*`: the share of time in which tasks were stalled because a resource was short
//! (<https://docs.kernel.org/accounting/psi.html>).

use std::path::Path;

use crate::fact::{FactSet, facts};
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::parse::{cut, decimal, lines, number, words};
use crate::util::rate::Meter;
use crate::{MissingPart, Source, SourceBatch, SourceCoverage, SourceError};

use super::absent_or_fault;

facts! {
    /// Facts of the node's pressure.
    pub(crate) enum Fact in "pressure" {
        IoSome: Gauge Float "io.some.ratio" "ratio" "Share of the time since the last poll in which at least one task waited for storage.";
        IoFull: Gauge Float "io.full.ratio" "ratio" "Share of the time since the last poll in which all tasks waited for storage.";
        MemorySome: Gauge Float "memory.some.ratio" "ratio" "Share of the time since the last poll in which at least one task waited for memory.";
        MemoryFull: Gauge Float "memory.full.ratio" "ratio" "Share of the time since the last poll in which all tasks waited for memory.";
        CpuSome: Gauge Float "cpu.some.ratio" "ratio" "Share of the time since the last poll in which at least one task waited for a processor.";
        CpuFull: Gauge Float "cpu.full.ratio" "ratio" "Share of the time since the last poll in which all tasks waited for a processor; kernels since 5.13 report 0 for a whole node.";
        IoSomeSeconds: Counter Float "io.some.seconds" "seconds" "Time in which at least one task waited for storage.";
        IoFullSeconds: Counter Float "io.full.seconds" "seconds" "Time in which all tasks waited for storage.";
        MemorySomeSeconds: Counter Float "memory.some.seconds" "seconds" "Time in which at least one task waited for memory.";
        MemoryFullSeconds: Counter Float "memory.full.seconds" "seconds" "Time in which all tasks waited for memory.";
        CpuSomeSeconds: Counter Float "cpu.some.seconds" "seconds" "Time in which at least one task waited for a processor.";
        CpuFullSeconds: Counter Float "cpu.full.seconds" "seconds" "Time in which all tasks waited for a processor; kernels since 5.13 report 0 for a whole node.";
    }
}

/// The facts (ratio, seconds) of `some`, then of `full`.
type Pair = [(Fact, Fact); 2];

/// The source `pressure`.
pub struct Pressure {
    resources: [Resource; 3],
    bytes: Vec<u8>,
    facts: FactSet<Fact>,
}

struct Resource {
    name: &'static str,
    file: HeldFile,
    facts: Pair,
    meters: [Meter; 2],
    absent: Option<String>,
}

impl Pressure {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        let root = SysRoot::new(sys_root);
        let resource = |name: &'static str, facts: Pair| Resource {
            name,
            file: root.short_records(&format!("proc/pressure/{name}")),
            facts,
            meters: [Meter::default(); 2],
            absent: None,
        };
        use Fact::*;
        Self {
            resources: [
                resource("io", [(IoSome, IoSomeSeconds), (IoFull, IoFullSeconds)]),
                resource(
                    "memory",
                    [
                        (MemorySome, MemorySomeSeconds),
                        (MemoryFull, MemoryFullSeconds),
                    ],
                ),
                resource(
                    "cpu",
                    [(CpuSome, CpuSomeSeconds), (CpuFull, CpuFullSeconds)],
                ),
            ],
            bytes: Vec::new(),
            facts: FactSet::new(barograph_model::Labels::none()),
        }
    }
}

impl Source for Pressure {
    fn name(&self) -> &'static str {
        "pressure"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let mut faults = Faults::default();
        for resource in &mut self.resources {
            let read = absent_or_fault(resource.file.read(&mut self.bytes), &mut resource.absent);
            if faults.take(read) != Some(true) {
                continue;
            }
            let (stalls, bad) = parse(&self.bytes);
            let parts = stalls.iter().zip(resource.facts).zip(&mut resource.meters);
            for ((stall, (ratio, seconds)), meter) in parts {
                let Some(stall) = stall else { continue };
                let now_ratio = stall.ratio(meter, batch.monotonic_ns());
                if let Some(now_ratio) = now_ratio {
                    self.facts.derived(batch, now_ns, ratio, now_ratio);
                }
                self.facts
                    .measured(batch, now_ns, seconds, stall.total_us as f64 / 1e6);
            }
            bad.report(resource.file.path(), &mut faults);
        }
        faults.finish()
    }

    fn is_absent(&self) -> bool {
        self.resources.iter().all(|r| r.absent.is_some())
    }

    fn report(&self) -> SourceCoverage {
        let seen: Vec<_> = self
            .resources
            .iter()
            .filter(|r| r.absent.is_none())
            .map(|r| r.name)
            .collect();
        let missing = self.resources.iter().filter_map(|r| {
            let remedy = "needs Linux 4.20 with CONFIG_PSI; boot with psi=1 where it is off";
            Some(MissingPart::new(
                format!("pressure of {}", r.name),
                r.absent.as_ref()?,
                remedy,
            ))
        });
        let sees = match seen.is_empty() {
            true => "no pressure information".to_owned(),
            false => format!("pressure of {}", seen.join(", ")),
        };
        SourceCoverage {
            sees,
            missing: missing.collect(),
        }
    }
}

/// One line of a pressure file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stall {
    /// Percent of time stalled over the last ten seconds.
    avg10: f64,
    total_us: u64,
}

impl Stall {
    /// The share of time since the meter's last look; at the first look, that of the last ten
    /// seconds.
    pub(crate) fn ratio(&self, meter: &mut Meter, monotonic_ns: i64) -> Option<f64> {
        let first = *meter == Meter::default();
        match meter.rate(monotonic_ns, self.total_us) {
            Some(us_per_s) => Some((us_per_s / 1e6).clamp(0.0, 1.0)),
            None if first => Some((self.avg10 / 100.0).clamp(0.0, 1.0)),
            None => None,
        }
    }
}

/// Parses the lines `some` and `full` of a pressure file; some kernels have no `full`.
pub(crate) fn parse(bytes: &[u8]) -> ([Option<Stall>; 2], BadLines) {
    let mut stalls = [None; 2];
    let mut bad = BadLines::default();
    for line in lines(bytes) {
        match parse_line(line) {
            Some((place, stall)) => stalls[place] = Some(stall),
            None => bad.add(line),
        }
    }
    if !cut(bytes).is_empty() || bytes.is_empty() {
        bad.add(cut(bytes));
    }
    (stalls, bad)
}

fn parse_line(line: &[u8]) -> Option<(usize, Stall)> {
    let mut words = words(line);
    let place = match words.next()? {
        b"some" => 0,
        b"full" => 1,
        _ => return None,
    };
    let (mut avg10, mut total_us) = (None, None);
    for word in words {
        if let Some(value) = word.strip_prefix(b"avg10=") {
            avg10 = Some(decimal(value)?);
        } else if let Some(value) = word.strip_prefix(b"total=") {
            total_us = Some(number(value)?);
        }
    }
    Some((
        place,
        Stall {
            avg10: avg10?,
            total_us: total_us?,
        },
    ))
}
