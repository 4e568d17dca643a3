//! `/proc/meminfo`: the amount and use of memory, including memory that waits to be written.

use std::path::Path;

use crate::fact::{FactSet, facts};
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot};
use crate::util::keyed::KeyedLines;
use crate::util::parse::words;
use crate::{Source, SourceBatch, SourceCoverage, SourceError};

use super::{absent_or_fault, missing_proc};

facts! {
    /// Facts of the node's memory.
    pub(crate) enum Fact in "memory" {
        Total: Gauge Int "total.bytes" "bytes" "Usable memory of the node.";
        Free: Gauge Int "free.bytes" "bytes" "Memory that nothing uses.";
        Available: Gauge Int "available.bytes" "bytes" "Memory that programs could allocate without swapping, as the kernel estimates it.";
        Cached: Gauge Int "cached.bytes" "bytes" "File pages in the page cache.";
        Buffers: Gauge Int "buffers.bytes" "bytes" "Pages of block devices in the page cache.";
        Dirty: Gauge Int "dirty.bytes" "bytes" "Pages that wait to be written to storage.";
        Writeback: Gauge Int "writeback.bytes" "bytes" "Pages that are being written to storage.";
        SwapTotal: Gauge Int "swap.total.bytes" "bytes" "Size of the swap space.";
        SwapFree: Gauge Int "swap.free.bytes" "bytes" "Unused swap space.";
    }
}

const KEYS: [(&[u8], Fact); 9] = [
    (b"MemTotal", Fact::Total),
    (b"MemFree", Fact::Free),
    (b"MemAvailable", Fact::Available),
    (b"Cached", Fact::Cached),
    (b"Buffers", Fact::Buffers),
    (b"Dirty", Fact::Dirty),
    (b"Writeback", Fact::Writeback),
    (b"SwapTotal", Fact::SwapTotal),
    (b"SwapFree", Fact::SwapFree),
];

/// The source `memory`.
pub struct Memory {
    file: HeldFile,
    bytes: Vec<u8>,
    lines: KeyedLines<{ KEYS.len() }>,
    facts: FactSet<Fact>,
    absent: Option<String>,
    total: Option<u64>,
}

impl Memory {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        Self {
            file: SysRoot::new(sys_root).short_records("proc/meminfo"),
            bytes: Vec::new(),
            lines: KeyedLines::new(KEYS.map(|(key, _)| key), b':'),
            facts: FactSet::new(barograph_model::Labels::none()),
            absent: None,
            total: None,
        }
    }
}

impl Source for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        self.total = None;
        if !absent_or_fault(self.file.read(&mut self.bytes), &mut self.absent)? {
            return Ok(());
        }
        let (values, bad) = self.lines.read(&self.bytes, |_, text| kibibytes(text));
        for (value, (_, fact)) in values.iter().zip(KEYS) {
            if let Some(value) = value {
                self.facts.count(batch, now_ns, fact, *value);
            }
        }
        // Kernels before 3.14 give no estimate.
        if let [_, Some(free), None, Some(cached), Some(buffers), ..] = values
            && !bad.any()
        {
            let estimate = crate::fact::int(free.saturating_add(cached).saturating_add(buffers));
            self.facts.derived(batch, now_ns, Fact::Available, estimate);
        }
        self.total = values[0];
        let mut faults = Faults::default();
        bad.report(self.file.path(), &mut faults);
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        let sees = match self.total {
            Some(total) => format!("{} MiB of memory", total >> 20),
            None => "nothing yet".to_owned(),
        };
        SourceCoverage {
            sees,
            missing: missing_proc("memory", &self.absent).into_iter().collect(),
        }
    }
}

fn kibibytes(text: &[u8]) -> Option<u64> {
    let mut words = words(text);
    let value = words.number()?;
    (words.next()? == b"kB" && words.at_end()).then_some(())?;
    value.checked_mul(1024).filter(|v| *v <= i64::MAX as u64)
}
