//! One device and its requests: its hot extents, and how long its requests take.

use crate::fact::{FactSet, facts, int};
use crate::util::diskstats::{LATENCY_SHARES, SECTOR_BYTES};
use crate::util::top::{Heavy, TOLD_MIN, Top};
use crate::{BlockTraceConfig, SourceBatch};

use super::histogram::Histogram;
use super::issuers::Issuers;
use super::line::{Issuer, Operation, TraceRequest};

/// A device whose count of requests has decayed to less than this is forgotten until it has new
/// ones.
const KEPT_MIN: f64 = 1.0 / 1024.0;

facts! {
    /// Facts of the requests to one device.
    pub(crate) enum Fact in "block_trace" {
        ReadLatencyP50: Gauge Float "read.latency.p50.seconds" "seconds" "Median latency of reads, from when the device receives a request until it completes.";
        ReadLatencyP90: Gauge Float "read.latency.p90.seconds" "seconds" "Latency that 90 % of the reads did not exceed.";
        ReadLatencyP99: Gauge Float "read.latency.p99.seconds" "seconds" "Latency that 99 % of the reads did not exceed.";
        WriteLatencyP50: Gauge Float "write.latency.p50.seconds" "seconds" "Median latency of writes, from when the device receives a request until it completes.";
        WriteLatencyP90: Gauge Float "write.latency.p90.seconds" "seconds" "Latency that 90 % of the writes did not exceed.";
        WriteLatencyP99: Gauge Float "write.latency.p99.seconds" "seconds" "Latency that 99 % of the writes did not exceed.";
        ReadSizeP50: Gauge Int "read.size.p50.bytes" "bytes" "Median size of reads.";
        ReadSizeP99: Gauge Int "read.size.p99.bytes" "bytes" "Size that 99 % of the reads did not exceed.";
        WriteSizeP50: Gauge Int "write.size.p50.bytes" "bytes" "Median size of writes.";
        WriteSizeP99: Gauge Int "write.size.p99.bytes" "bytes" "Size that 99 % of the writes did not exceed.";
    }
}

facts! {
    /// Facts of one extent among the hottest.
    pub(crate) enum HotFact in "block_trace" {
        Ops: Gauge Int "hot.ops" "ops" "Reads and writes that began in this extent; older ones have less weight. The error of the sample is the most by which the number may be too high.";
        Offset: Gauge Int "hot.offset.bytes" "bytes" "Offset on the device at which the extent begins.";
    }
}

const READ: Told = Told {
    latency: [
        Fact::ReadLatencyP50,
        Fact::ReadLatencyP90,
        Fact::ReadLatencyP99,
    ],
    size: [Some(Fact::ReadSizeP50), None, Some(Fact::ReadSizeP99)],
};
const WRITE: Told = Told {
    latency: [
        Fact::WriteLatencyP50,
        Fact::WriteLatencyP90,
        Fact::WriteLatencyP99,
    ],
    size: [Some(Fact::WriteSizeP50), None, Some(Fact::WriteSizeP99)],
};

/// The facts of one direction, in the order of [`LATENCY_SHARES`].
struct Told {
    latency: [Fact; 3],
    size: [Option<Fact>; 3],
}

/// A device with its facts and counts.
pub(super) struct TracedDevice {
    pub(super) label: String,
    facts: FactSet<Fact>,
    extents: Top<u64>,
    extent_bytes: u64,
    ranks: Vec<FactSet<HotFact>>,
    read: Direction,
    write: Direction,
    issuers: Issuers,
    /// Number of reads and writes, decayed.
    requests: f64,
}

/// The histograms of reads or writes, each created with the first request.
#[derive(Default)]
struct Direction {
    latency_ns: Option<Histogram>,
    size: Option<Histogram>,
}

impl TracedDevice {
    /// Creates a device; `None` if the name cannot be a label.
    pub(super) fn new(label: String, config: &BlockTraceConfig) -> Option<Self> {
        let rank = |rank: usize| {
            FactSet::labelled([("device", label.clone()), ("rank", rank.to_string())]).ok()
        };
        Some(Self {
            facts: FactSet::labelled([("device", label.clone())]).ok()?,
            extents: Top::new(config.counters()),
            extent_bytes: config.extent_bytes(),
            ranks: (1..=config.ranks()).map(rank).collect::<Option<_>>()?,
            read: Direction::default(),
            write: Direction::default(),
            issuers: Issuers::default(),
            requests: 0.0,
            label,
        })
    }

    /// Counts a request that was issued to the device, and its process if that is known.
    pub(super) fn issued(
        &mut self,
        request: &TraceRequest,
        issuer: Option<Issuer<'_>>,
        batch: &mut SourceBatch,
    ) {
        if let Some(issuer) = issuer {
            self.issuers.issued(request, issuer, batch);
        }
        let Some(direction) = self.direction(request.operation) else {
            return;
        };
        let bytes = request.sectors.saturating_mul(SECTOR_BYTES);
        direction.size.get_or_insert_with(Histogram::new).add(bytes);
        let offset = request.sector.saturating_mul(SECTOR_BYTES);
        self.extents.add(offset / self.extent_bytes);
        self.requests += 1.0;
    }

    /// Counts how long a request took.
    pub(super) fn took(&mut self, operation: Operation, took_ns: u64) {
        if let Some(direction) = self.direction(operation) {
            let latency = direction.latency_ns.get_or_insert_with(Histogram::new);
            latency.add(took_ns);
        }
    }

    fn direction(&mut self, operation: Operation) -> Option<&mut Direction> {
        match operation {
            Operation::Read => Some(&mut self.read),
            Operation::Write => Some(&mut self.write),
            Operation::Other => None,
        }
    }

    /// Multiplies all counts by `factor`.
    pub(super) fn decay(&mut self, factor: f64) {
        self.extents.decay(factor);
        self.requests *= factor;
        for direction in [&mut self.read, &mut self.write] {
            let histograms = [&mut direction.latency_ns, &mut direction.size];
            histograms
                .into_iter()
                .flatten()
                .for_each(|h| h.decay(factor));
        }
    }

    /// Whether the device has had enough requests recently to be kept in memory.
    pub(super) fn is_kept(&self) -> bool {
        self.requests >= KEPT_MIN
    }

    /// Puts the facts of all requests; the last read was `elapsed_s` ago.
    pub(super) fn put(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        elapsed_s: f64,
        hottest: &mut Vec<Heavy<u64>>,
    ) {
        self.issuers.put(now_ns, batch, &self.label, elapsed_s);
        self.extents.greatest(self.ranks.len(), hottest);
        hottest.retain(|heavy| heavy.count >= TOLD_MIN);
        for (rank, facts) in self.ranks.iter_mut().enumerate() {
            let Some(heavy) = hottest.get(rank) else {
                facts.retire(batch);
                continue;
            };
            let (ops, error) = heavy.whole();
            facts.estimated(batch, now_ns, HotFact::Ops, int(ops), error);
            let offset = heavy.key.saturating_mul(self.extent_bytes);
            facts.derived(batch, now_ns, HotFact::Offset, int(offset));
        }
        self.read.put(now_ns, batch, &mut self.facts, &READ);
        self.write.put(now_ns, batch, &mut self.facts, &WRITE);
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
        self.issuers.retire(batch);
        self.ranks.iter_mut().for_each(|facts| facts.retire(batch));
    }
}

impl Direction {
    fn put(&self, now_ns: i64, batch: &mut SourceBatch, facts: &mut FactSet<Fact>, told: &Told) {
        let quantiles = |histogram: &Option<Histogram>| {
            let histogram = histogram.as_ref()?;
            (histogram.total() >= TOLD_MIN).then(|| histogram.quantiles(LATENCY_SHARES))?
        };
        let seconds = |ns: u64| ns as f64 / 1e9;
        match quantiles(&self.latency_ns) {
            Some(found) => {
                for (fact, (took, error)) in told.latency.into_iter().zip(found) {
                    facts.estimated(batch, now_ns, fact, seconds(took), seconds(error));
                }
            }
            None => told
                .latency
                .into_iter()
                .for_each(|f| facts.retire_one(batch, f)),
        }
        let sizes = told.size.into_iter().flatten();
        match quantiles(&self.size) {
            Some(found) => {
                let found = told.size.into_iter().zip(found);
                for (fact, (bytes, error)) in found.filter_map(|(fact, q)| Some((fact?, q))) {
                    facts.estimated(batch, now_ns, fact, int(bytes), error as f64);
                }
            }
            None => sizes.for_each(|f| facts.retire_one(batch, f)),
        }
    }
}
