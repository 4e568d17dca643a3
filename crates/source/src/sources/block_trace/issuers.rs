//! The processes that issue the requests of a device.
//!
//! Data that a process wrote through the page cache is issued later, by a thread of the kernel: it
//! is counted for that thread.

use crate::SourceBatch;
use crate::fact::{FactSet, facts};
use crate::util::diskstats::SECTOR_BYTES;

use super::line::{Issuer, Operation, TraceRequest};

/// Most processes of a device that are counted at once. A further one takes the place of the
/// process that moved the fewest bytes since the last read.
const COUNTED_MAX: usize = 64;
/// Most processes of a device that have streams.
const TOLD_MAX: usize = 8;
/// Number of reads without a request after which a process is forgotten.
const SILENT_READS_MAX: u32 = 10;

facts! {
    /// Facts of one process on one device.
    pub(crate) enum IssuerFact in "block_trace" {
        Read: Gauge Float "process.read.bytes_per_second" "bytes/s" "Bytes read per second from this device by requests of this process, averaged since the last poll; events that the trace lost are missing.";
        Write: Gauge Float "process.write.bytes_per_second" "bytes/s" "Bytes written per second to this device by requests of this process, averaged since the last poll. Kernel threads, not the process, write what went through the page cache.";
    }
}

/// The processes of one device.
#[derive(Default)]
pub(super) struct Issuers {
    /// The processes, in no order.
    all: Vec<One>,
    /// Index in `all` of the process of the last request.
    guess: usize,
}

struct One {
    process: u32,
    /// Name of the process at its first request on this device.
    command: String,
    /// Bytes since the last read.
    read: u64,
    write: u64,
    silent_reads: u32,
    facts: Option<FactSet<IssuerFact>>,
}

impl One {
    fn moved(&self) -> u64 {
        self.read.saturating_add(self.write)
    }
}

impl Issuers {
    /// Counts a request that was issued to the device.
    pub(super) fn issued(
        &mut self,
        request: &TraceRequest,
        issuer: Issuer<'_>,
        batch: &mut SourceBatch,
    ) {
        let known = |one: &One| one.process == issuer.process;
        if !self.all.get(self.guess).is_some_and(known) {
            self.guess = match self.all.iter().position(known) {
                Some(at) => at,
                None => self.add(issuer, batch),
            };
        }
        let one = &mut self.all[self.guess];
        let bytes = request.sectors.saturating_mul(SECTOR_BYTES);
        let slot = match request.operation {
            Operation::Read => &mut one.read,
            Operation::Write => &mut one.write,
            Operation::Other => return,
        };
        *slot = slot.saturating_add(bytes);
    }

    fn add(&mut self, issuer: Issuer<'_>, batch: &mut SourceBatch) -> usize {
        let one = One {
            process: issuer.process,
            command: String::from_utf8_lossy(issuer.command).into_owned(),
            read: 0,
            write: 0,
            silent_reads: 0,
            facts: None,
        };
        if self.all.len() < COUNTED_MAX {
            self.all.push(one);
            return self.all.len() - 1;
        }
        let places = 0..self.all.len();
        let least = places.min_by_key(|at| self.all[*at].moved()).unwrap_or(0);
        let mut gone = std::mem::replace(&mut self.all[least], one);
        gone.facts.iter_mut().for_each(|facts| facts.retire(batch));
        least
    }

    /// Puts the rates since the last read, `elapsed_s` ago, of the processes that moved the most
    /// bytes.
    pub(super) fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        device: &str,
        elapsed_s: f64,
    ) {
        if elapsed_s <= 0.0 {
            return;
        }
        self.all.sort_by(|a, b| {
            let order = b.moved().cmp(&a.moved());
            order.then(a.silent_reads.cmp(&b.silent_reads))
        });
        self.guess = 0;
        for (place, one) in self.all.iter_mut().enumerate() {
            one.silent_reads = match one.moved() {
                0 => one.silent_reads + 1,
                _ => 0,
            };
            if place >= TOLD_MAX || one.silent_reads > SILENT_READS_MAX {
                if let Some(mut facts) = one.facts.take() {
                    facts.retire(batch);
                }
            } else {
                if one.facts.is_none() {
                    one.facts = named(device, one);
                }
                let sides = [(IssuerFact::Read, one.read), (IssuerFact::Write, one.write)];
                for (fact, bytes) in sides {
                    if let Some(facts) = &mut one.facts {
                        facts.derived(batch, now_ns, fact, bytes as f64 / elapsed_s);
                    }
                }
            }
            (one.read, one.write) = (0, 0);
        }
        self.all.retain(|one| one.silent_reads <= SILENT_READS_MAX);
    }

    /// Ends all streams.
    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        let all = self.all.drain(..);
        all.flat_map(|one| one.facts)
            .for_each(|mut facts| facts.retire(batch));
    }
}

/// The facts of a process; `None` if its name cannot be a label.
fn named(device: &str, one: &One) -> Option<FactSet<IssuerFact>> {
    let command = crate::util::parse::escape(one.command.as_bytes());
    let pairs = [
        ("device", device.to_owned()),
        ("pid", one.process.to_string()),
        ("command", command),
    ];
    FactSet::labelled(pairs).ok()
}
