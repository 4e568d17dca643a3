//! The facts of one thing, computed from the lines of its `stats` files: bytes, operations, their
//! rates and their latencies.

use crate::fact::{FactSet, FactTable};
use crate::util::faults::Faults;
use crate::util::rate::per_second;
use crate::{MissingPart, SourceBatch, SourceError};

use super::places::{Param, Places, is_denied, missing_denied};
use super::stats::{LineCount, LineKey, LineRole, Timed, parse};

/// A table of facts that come from `stats` files.
pub(super) trait FlowTable: FactTable {
    /// The lines that are read.
    const KEYS: &'static [LineKey<Self>];
    /// Facts of reads.
    const READ: Option<Way<Self>>;
    /// Facts of writes.
    const WRITE: Option<Way<Self>>;
    /// Facts of metadata operations, or of requests of every kind.
    const OPERATIONS: Option<Operations<Self>>;
}

/// Facts of one direction.
#[derive(Clone, Copy)]
pub(super) struct Way<T> {
    pub(super) bytes: T,
    pub(super) ops: T,
    pub(super) seconds: T,
    pub(super) bytes_rate: T,
    pub(super) latency: T,
}

/// Facts of operations that move no data.
#[derive(Clone, Copy)]
pub(super) struct Operations<T> {
    pub(super) ops: T,
    pub(super) rate: T,
    pub(super) latency: T,
}

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Data {
    bytes: Option<u64>,
    ops: Option<u64>,
    time: Option<Timed>,
}

/// The counters of one thing.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    read: Data,
    write: Data,
    /// Metadata operations, or requests of every kind.
    ops: Option<u64>,
    time: Option<Timed>,
}

/// Buffers that are reused for each file.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) bytes: Vec<u8>,
    counts: Vec<Option<LineCount>>,
}

/// The statistics of one thing, from one file for each of its instances: a file system that is
/// mounted twice is one file system with two files.
pub(super) struct Flow<T> {
    facts: FactSet<T>,
    pub(super) files: Vec<Param>,
    last: Option<(i64, Totals)>,
    /// The file whose reading was refused last, by index, and the error.
    refused: Option<(usize, rustix::io::Errno)>,
}

impl<T: FlowTable> Flow<T> {
    pub(super) fn new(facts: FactSet<T>) -> Self {
        Self {
            facts,
            files: Vec::new(),
            last: None,
            refused: None,
        }
    }

    /// Replaces the files that are read. Counters start anew, since those of the new files are
    /// different ones.
    pub(super) fn replace(&mut self, files: Vec<Param>) {
        self.files = files;
        self.last = None;
        self.refused = None;
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
    }

    pub(super) fn facts(&mut self) -> &mut FactSet<T> {
        &mut self.facts
    }

    /// Reads all files and puts the facts. Returns whether all files existed: if one is gone, the
    /// devices changed.
    pub(super) fn read(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        scratch: &mut Scratch,
        faults: &mut Faults,
    ) -> bool {
        let Scratch { bytes, counts } = scratch;
        counts.clear();
        counts.resize(T::KEYS.len(), None);
        self.refused = None;
        let mut whole = !self.files.is_empty();
        for at in 0..self.files.len() {
            let file = &mut self.files[at];
            match file.read(bytes) {
                Ok(()) => {
                    let bad = parse(bytes, T::KEYS, counts);
                    whole &= !bad.any();
                    bad.report(file.path(), faults);
                }
                Err(SourceError::Read { errno, .. }) if is_denied(errno) => {
                    self.refused = Some((at, errno));
                    return true;
                }
                // A sum without one of its parts would look like a reset.
                Err(fault) if fault.is_absent() => {
                    self.replace(Vec::new());
                    return false;
                }
                Err(fault) => {
                    faults.add(fault);
                    return true;
                }
            }
        }
        self.put(now_ns, batch, counts, whole);
        true
    }

    fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        counts: &[Option<LineCount>],
        whole: bool,
    ) {
        let mut totals = Totals::default();
        for (key, count) in T::KEYS.iter().zip(counts) {
            let Some(count) = count else { continue };
            totals.take(key.role, count);
            if let Some(fact) = key.fact {
                self.facts.count(batch, now_ns, fact, count.samples);
            }
        }
        if !whole {
            // Sums over several lines lack some of them.
            (totals.ops, totals.time) = (None, None);
        }
        let at_ns = batch.monotonic_ns();
        let last = self.last.replace((at_ns, totals));
        let old = last.map(|(then_ns, old)| (at_ns.saturating_sub(then_ns), old));
        if let Some(way) = T::READ {
            let old = old.map(|(elapsed_ns, old)| (elapsed_ns, old.read));
            self.put_way(now_ns, batch, &way, totals.read, old);
        }
        if let Some(way) = T::WRITE {
            let old = old.map(|(elapsed_ns, old)| (elapsed_ns, old.write));
            self.put_way(now_ns, batch, &way, totals.write, old);
        }
        if let Some(operations) = T::OPERATIONS {
            self.put_operations(now_ns, batch, &operations, &totals, old);
        }
    }

    fn put_way(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        way: &Way<T>,
        new: Data,
        old: Option<(i64, Data)>,
    ) {
        if let Some(bytes) = new.bytes {
            self.facts.count(batch, now_ns, way.bytes, bytes);
        }
        if let Some(ops) = new.ops {
            self.facts.count(batch, now_ns, way.ops, ops);
        }
        if let Some(time) = new.time {
            self.facts
                .measured(batch, now_ns, way.seconds, time.seconds());
        }
        let Some((elapsed_ns, old)) = old else { return };
        if let Some(rate) = rate(new.bytes, old.bytes, elapsed_ns) {
            self.facts.derived(batch, now_ns, way.bytes_rate, rate);
        }
        if let Some(latency) = latency(new.time, old.time) {
            self.facts.derived(batch, now_ns, way.latency, latency);
        }
    }

    fn put_operations(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        operations: &Operations<T>,
        new: &Totals,
        old: Option<(i64, Totals)>,
    ) {
        if let Some(ops) = new.ops {
            self.facts.count(batch, now_ns, operations.ops, ops);
        }
        let Some((elapsed_ns, old)) = old else { return };
        if let Some(rate) = rate(new.ops, old.ops, elapsed_ns) {
            self.facts.derived(batch, now_ns, operations.rate, rate);
        }
        if let Some(latency) = latency(new.time, old.time) {
            self.facts
                .derived(batch, now_ns, operations.latency, latency);
        }
    }

    /// The report's line if there is no file to read or reading it is not permitted.
    pub(super) fn missing(&self, what: &str, places: &Places) -> Option<MissingPart> {
        let what = || format!("statistics of {what}");
        if let Some((at, errno)) = self.refused {
            return Some(missing_denied(what(), self.files[at].path(), errno));
        }
        if !self.files.is_empty() {
            return None;
        }
        let (why, remedy) = places.why_not_found();
        Some(MissingPart::new(what(), why, remedy))
    }
}

impl Totals {
    fn take(&mut self, role: LineRole, count: &LineCount) {
        let data = match role {
            LineRole::ReadBytes | LineRole::ReadTime => &mut self.read,
            LineRole::WriteBytes | LineRole::WriteTime => &mut self.write,
            LineRole::Metadata | LineRole::Request => {
                self.ops = Some(self.ops.unwrap_or(0).saturating_add(count.samples));
                if let Some(time) = count.timed() {
                    self.time = Some(self.time.unwrap_or_default().and(time));
                }
                return;
            }
            LineRole::Other => return,
        };
        match role {
            LineRole::ReadBytes | LineRole::WriteBytes => {
                data.bytes = count.bytes();
                data.ops = Some(count.samples);
            }
            _ => {
                data.time = count.timed();
                data.ops = data.ops.or(Some(count.samples));
            }
        }
    }
}

/// Growth per second; nothing if a counter went back.
fn rate(new: Option<u64>, old: Option<u64>, elapsed_ns: i64) -> Option<f64> {
    per_second(new?.checked_sub(old?)?, elapsed_ns)
}

fn latency(new: Option<Timed>, old: Option<Timed>) -> Option<f64> {
    new?.latency_since(old?)
}
