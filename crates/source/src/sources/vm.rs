//! `/proc/vmstat`: the traffic between memory and storage, in a useful selection of counters.

use std::path::Path;

use crate::fact::{FactSet, facts};
use crate::util::faults::Faults;
use crate::util::file::{HeldFile, SysRoot};
use crate::util::keyed::KeyedLines;
use crate::util::parse::words;
use crate::{Source, SourceBatch, SourceCoverage, SourceError};

use super::{absent_or_fault, missing_proc};

facts! {
    /// Facts of the node's virtual memory.
    pub(crate) enum Fact in "vm" {
        PageIn: Counter Int "pagein.bytes" "bytes" "Bytes read from block devices, through the page cache or not.";
        PageOut: Counter Int "pageout.bytes" "bytes" "Bytes written to block devices, through the page cache or not.";
        SwapIn: Counter Int "swapin.pages" "pages" "Pages read from swap.";
        SwapOut: Counter Int "swapout.pages" "pages" "Pages written to swap.";
        Faults: Counter Int "faults.count" "count" "Page faults.";
        MajorFaults: Counter Int "major_faults.count" "count" "Page faults that had to wait for storage.";
        Dirtied: Counter Int "dirtied.pages" "pages" "Pages that became dirty.";
        Written: Counter Int "written.pages" "pages" "Pages written back to storage.";
        ScannedBackground: Counter Int "scanned.background.pages" "pages" "Pages that kswapd scanned for reclaim.";
        ScannedDirect: Counter Int "scanned.direct.pages" "pages" "Pages that programs scanned for reclaim themselves because memory was short.";
        ReclaimedBackground: Counter Int "reclaimed.background.pages" "pages" "Pages that kswapd reclaimed.";
        ReclaimedDirect: Counter Int "reclaimed.direct.pages" "pages" "Pages that programs reclaimed themselves because memory was short.";
        RefaultFile: Counter Int "refault.file.pages" "pages" "File pages that were read again soon after they were reclaimed.";
        ActivateFile: Counter Int "activate.file.pages" "pages" "Refaulted file pages that were missed so soon that they became active at once.";
        RestoreFile: Counter Int "restore.file.pages" "pages" "Refaulted file pages that were active when they were reclaimed; a growing number means that the page cache is too small.";
        ScannedFile: Counter Int "scanned.file.pages" "pages" "File pages scanned for reclaim.";
        ReclaimedFile: Counter Int "reclaimed.file.pages" "pages" "File pages reclaimed.";
        CacheDrops: Counter Int "cache_drops.count" "count" "Number of times that an administrator dropped the page cache.";
        DirtyBackground: Gauge Int "dirty.background.pages" "pages" "Number of dirty pages above which the kernel starts writeback.";
        DirtyMax: Gauge Int "dirty.max.pages" "pages" "Number of dirty pages above which programs that write must wait.";
        OomKills: Counter Int "oom_kills.count" "count" "Processes that the kernel killed because memory ran out.";
    }
}

/// Key, fact, and factor from the kernel's unit to the fact's: `pgpgin` and `pgpgout` count KiB,
/// all others the unit in their names.
const KEYS: [(&[u8], Fact, u64); 21] = [
    (b"pgpgin", Fact::PageIn, 1024),
    (b"pgpgout", Fact::PageOut, 1024),
    (b"pswpin", Fact::SwapIn, 1),
    (b"pswpout", Fact::SwapOut, 1),
    (b"pgfault", Fact::Faults, 1),
    (b"pgmajfault", Fact::MajorFaults, 1),
    (b"nr_dirtied", Fact::Dirtied, 1),
    (b"nr_written", Fact::Written, 1),
    (b"pgscan_kswapd", Fact::ScannedBackground, 1),
    (b"pgscan_direct", Fact::ScannedDirect, 1),
    (b"pgsteal_kswapd", Fact::ReclaimedBackground, 1),
    (b"pgsteal_direct", Fact::ReclaimedDirect, 1),
    (b"workingset_refault_file", Fact::RefaultFile, 1),
    (b"workingset_activate_file", Fact::ActivateFile, 1),
    (b"workingset_restore_file", Fact::RestoreFile, 1),
    (b"pgscan_file", Fact::ScannedFile, 1),
    (b"pgsteal_file", Fact::ReclaimedFile, 1),
    (b"drop_pagecache", Fact::CacheDrops, 1),
    (b"nr_dirty_background_threshold", Fact::DirtyBackground, 1),
    (b"nr_dirty_threshold", Fact::DirtyMax, 1),
    (b"oom_kill", Fact::OomKills, 1),
];

/// The source `vm`.
pub struct Vm {
    file: HeldFile,
    bytes: Vec<u8>,
    lines: KeyedLines<{ KEYS.len() }>,
    facts: FactSet<Fact>,
    absent: Option<String>,
    seen: usize,
}

impl Vm {
    /// Creates the source, which reads below the configured root.
    pub fn new(sys_root: &Path) -> Self {
        Self {
            file: SysRoot::new(sys_root).short_records("proc/vmstat"),
            bytes: Vec::new(),
            lines: KeyedLines::new(KEYS.map(|(key, ..)| key), b' '),
            facts: FactSet::new(barograph_model::Labels::none()),
            absent: None,
            seen: 0,
        }
    }
}

impl Source for Vm {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        self.seen = 0;
        if !absent_or_fault(self.file.read(&mut self.bytes), &mut self.absent)? {
            return Ok(());
        }
        let (values, bad) = self.lines.read(&self.bytes, value);
        for (value, (_, fact, _)) in values.iter().zip(KEYS) {
            if let Some(value) = value {
                self.seen += 1;
                self.facts.count(batch, now_ns, fact, *value);
            }
        }
        let mut faults = Faults::default();
        bad.report(self.file.path(), &mut faults);
        faults.finish()
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage {
            sees: format!("{} counters of paging and reclaim", self.seen),
            missing: missing_proc("paging", &self.absent).into_iter().collect(),
        }
    }
}

/// The value after the key at index `place`, in the fact's unit.
fn value(place: usize, text: &[u8]) -> Option<u64> {
    let mut words = words(text);
    let (_, _, worth) = KEYS[place];
    let value = words.number()?.checked_mul(worth)?;
    (words.at_end() && value <= i64::MAX as u64).then_some(value)
}
