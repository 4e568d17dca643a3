//! One disk that is followed: its facts, and the state from which they are computed.

use std::ffi::OsStr;

use crate::fact::{FactSet, facts, int};
use crate::probe::ProbeRecords;
use crate::util::diskstats::Counters;
use crate::util::file::{HeldFile, SysRoot};
use crate::util::identity;
use crate::util::link::Link;
use crate::util::rate::per_second;
use crate::{SourceBatch, SourceError};

use super::attributes::{AttributeFiles, Text};
use super::bandwidth::{Bandwidth, BandwidthOrigin};
use super::latency::Latencies;

facts! {
    /// Facts of one disk.
    pub(crate) enum Fact in "disk" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Bytes read from the device.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Bytes written to the device.";
        DiscardBytes: Counter Int "discard.bytes" "bytes" "Bytes discarded on the device.";
        ReadOps: Counter Int "read.ops" "ops" "Reads that the device has completed.";
        WriteOps: Counter Int "write.ops" "ops" "Writes that the device has completed.";
        FlushOps: Counter Int "flush.ops" "ops" "Flushes of the device's cache that have completed.";
        ReadMerged: Counter Int "read.merged.ops" "ops" "Reads that the kernel merged with others before they reached the device.";
        WriteMerged: Counter Int "write.merged.ops" "ops" "Writes that the kernel merged with others before they reached the device.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all reads.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all writes.";
        BusySeconds: Counter Float "busy.seconds" "seconds" "Time with at least one request in flight.";
        QueueSeconds: Counter Float "queue.seconds" "seconds" "Time that requests spent in flight, summed over all requests.";
        Inflight: Gauge Int "inflight.requests" "requests" "Requests in flight at the moment of the poll.";
        BusyRatio: Gauge Float "busy.ratio" "ratio" "Share of the time since the last poll with at least one request in flight.";
        QueueDepth: Gauge Float "queue.depth" "requests" "Mean number of requests in flight since the last poll.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Bytes read per second, averaged since the last poll.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Bytes written per second, averaged since the last poll.";
        ReadOpsRate: Gauge Float "read.ops_per_second" "ops/s" "Reads completed per second, averaged since the last poll.";
        WriteOpsRate: Gauge Float "write.ops_per_second" "ops/s" "Writes completed per second, averaged since the last poll.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean latency of the reads completed since the last poll; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean latency of the writes completed since the last poll; 0 if there were none.";
        ReadLatencyP50: Gauge Float "read.latency.mean.p50.seconds" "seconds" "Median latency of the reads of the last minute; each counts with the mean latency of its poll. Latencies of single reads: block_trace.read.latency.p50.seconds.";
        ReadLatencyP90: Gauge Float "read.latency.mean.p90.seconds" "seconds" "Latency that 90 % of the reads of the last minute did not exceed; each counts with the mean latency of its poll. Single reads can take longer: block_trace.read.latency.p90.seconds.";
        ReadLatencyP99: Gauge Float "read.latency.mean.p99.seconds" "seconds" "Latency that 99 % of the reads of the last minute did not exceed; each counts with the mean latency of its poll. Single reads can take longer: block_trace.read.latency.p99.seconds.";
        WriteLatencyP50: Gauge Float "write.latency.mean.p50.seconds" "seconds" "Median latency of the writes of the last minute; each counts with the mean latency of its poll. Latencies of single writes: block_trace.write.latency.p50.seconds.";
        WriteLatencyP90: Gauge Float "write.latency.mean.p90.seconds" "seconds" "Latency that 90 % of the writes of the last minute did not exceed; each counts with the mean latency of its poll. Single writes can take longer: block_trace.write.latency.p90.seconds.";
        WriteLatencyP99: Gauge Float "write.latency.mean.p99.seconds" "seconds" "Latency that 99 % of the writes of the last minute did not exceed; each counts with the mean latency of its poll. Single writes can take longer: block_trace.write.latency.p99.seconds.";
        BandwidthMax: Gauge Float "bandwidth.max.bytes_per_second" "bytes/s" "Greatest bandwidth of the device; disk.bandwidth.source.name has the origin of this figure.";
        BandwidthSource: State Text "bandwidth.source.name" "name" "Origin of the greatest bandwidth: configured, probed, table (from the type of link) or observed (the device was faster than the probed or tabulated figure).";
        ConcurrencyMax: Gauge Int "concurrency.max.requests" "requests" "Greatest number of requests that the device accepts at once.";
        Size: State Int "size.bytes" "bytes" "Size of the device.";
        Rotational: State Bool "rotational.flag" "flag" "Whether the device has rotating platters.";
        Scheduler: State Text "scheduler.name" "name" "I/O scheduler that the device uses.";
        Tier: State Text "tier.name" "name" "Storage tier of the device, such as nvme, ssd or hdd.";
        LogicalBlock: State Int "block.logical.bytes" "bytes" "Logical block size: the smallest unit that can be addressed.";
        PhysicalBlock: State Int "block.physical.bytes" "bytes" "Physical block size: the smallest unit that the device writes at once.";
        ReadAhead: State Int "readahead.bytes" "bytes" "Number of bytes that the kernel reads ahead.";
        WriteCache: State Text "write_cache.name" "name" "Mode of the device's write cache: write back or write through.";
        Model: State Text "model.name" "name" "Model name that the device reports.";
    }
}

/// A disk with its facts and state.
pub(super) struct FollowedDisk {
    pub(super) label: String,
    pub(super) tier: String,
    facts: FactSet<Fact>,
    last: Option<(i64, Counters)>,
    reads: Quantiles,
    writes: Quantiles,
    bandwidth: Bandwidth,
    link: Option<Link>,
    serial: Option<String>,
    size_bytes: Option<u64>,
    files: AttributeFiles,
    attributes_next_ns: i64,
    pub(super) attributes_seen: bool,
    /// `/sys/block/DISK/stat`, which is read if there is no list of all disks.
    pub(super) stat: HeldFile,
}

impl FollowedDisk {
    pub(super) fn new(
        root: &SysRoot,
        label: String,
        sysfs_name: &OsStr,
        tier: String,
        bandwidth_max: Option<u64>,
    ) -> Result<Self, SourceError> {
        Ok(Self {
            facts: FactSet::labelled([("device", label.clone())])?,
            tier,
            last: None,
            reads: Quantiles::new([
                Fact::ReadLatencyP50,
                Fact::ReadLatencyP90,
                Fact::ReadLatencyP99,
            ]),
            writes: Quantiles::new([
                Fact::WriteLatencyP50,
                Fact::WriteLatencyP90,
                Fact::WriteLatencyP99,
            ]),
            bandwidth: Bandwidth::new(bandwidth_max, None),
            link: Link::of(root, sysfs_name),
            serial: identity::serial(&root.path("sys/block").join(sysfs_name)),
            size_bytes: None,
            files: AttributeFiles::new(root, sysfs_name),
            attributes_next_ns: i64::MIN,
            attributes_seen: false,
            stat: HeldFile::short_records(root.path("sys/block").join(sysfs_name).join("stat")),
            label,
        })
    }

    pub(super) fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, counters: &Counters) {
        self.put_counters(now_ns, batch, counters);
        let at_ns = batch.monotonic_ns();
        if let Some((then_ns, old)) = self.last.replace((at_ns, *counters))
            && let Some(step) = counters.since(&old)
        {
            self.put_rates(now_ns, batch, &step, at_ns.saturating_sub(then_ns));
            self.reads.latencies.add(at_ns, step.read_ops, step.read_ms);
            self.writes
                .latencies
                .add(at_ns, step.write_ops, step.write_ms);
        }
        self.reads.put(now_ns, batch, &mut self.facts);
        self.writes.put(now_ns, batch, &mut self.facts);
        let bytes = counters.read_bytes.saturating_add(counters.write_bytes);
        self.bandwidth.observe(at_ns, bytes);
        self.put_bandwidth(now_ns, batch);
    }

    fn put_counters(&mut self, now_ns: i64, batch: &mut SourceBatch, c: &Counters) {
        let counts = [
            (Fact::ReadBytes, Some(c.read_bytes)),
            (Fact::WriteBytes, Some(c.write_bytes)),
            (Fact::DiscardBytes, c.discard_bytes),
            (Fact::ReadOps, Some(c.read_ops)),
            (Fact::WriteOps, Some(c.write_ops)),
            (Fact::FlushOps, c.flush_ops),
            (Fact::ReadMerged, Some(c.read_merged)),
            (Fact::WriteMerged, Some(c.write_merged)),
            (Fact::Inflight, Some(c.inflight)),
        ];
        for (fact, value) in counts {
            if let Some(value) = value {
                self.facts.count(batch, now_ns, fact, value);
            }
        }
        let times = [
            (Fact::ReadSeconds, c.read_ms),
            (Fact::WriteSeconds, c.write_ms),
            (Fact::BusySeconds, c.busy_ms),
            (Fact::QueueSeconds, c.queue_ms),
        ];
        for (fact, ms) in times {
            self.facts.measured(batch, now_ns, fact, ms as f64 / 1e3);
        }
    }

    fn put_rates(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        step: &Counters,
        elapsed_ns: i64,
    ) {
        let latency = |ms: u64, ops: u64| {
            if ops == 0 {
                0.0
            } else {
                ms as f64 / 1e3 / ops as f64
            }
        };
        let rate = |growth: u64| per_second(growth, elapsed_ns);
        let values = [
            (
                Fact::BusyRatio,
                rate(step.busy_ms).map(|ms| (ms / 1e3).clamp(0.0, 1.0)),
            ),
            (Fact::QueueDepth, rate(step.queue_ms).map(|ms| ms / 1e3)),
            (Fact::ReadRate, rate(step.read_bytes)),
            (Fact::WriteRate, rate(step.write_bytes)),
            (Fact::ReadOpsRate, rate(step.read_ops)),
            (Fact::WriteOpsRate, rate(step.write_ops)),
            (
                Fact::ReadLatency,
                Some(latency(step.read_ms, step.read_ops)),
            ),
            (
                Fact::WriteLatency,
                Some(latency(step.write_ms, step.write_ops)),
            ),
        ];
        for (fact, value) in values {
            if let Some(value) = value {
                self.facts.derived(batch, now_ns, fact, value);
            }
        }
    }

    fn put_bandwidth(&mut self, now_ns: i64, batch: &mut SourceBatch) {
        let Some((rate, origin)) = self.bandwidth.now() else {
            return;
        };
        let fact = Fact::BandwidthMax;
        match origin {
            BandwidthOrigin::Configured | BandwidthOrigin::Probed => {
                self.facts.measured(batch, now_ns, fact, rate);
            }
            BandwidthOrigin::Table | BandwidthOrigin::Observed => {
                self.facts.derived(batch, now_ns, fact, rate)
            }
        }
        self.facts
            .text(batch, now_ns, Fact::BandwidthSource, origin.as_str());
    }

    /// Takes the measurement of `baro probe` for this disk; a measurement of another disk that had
    /// this name is ignored.
    pub(super) fn take_probe(&mut self, records: &ProbeRecords) {
        let record = records.get(&self.label);
        let record = record.filter(|r| r.is_of(self.size_bytes, self.serial.as_deref()));
        self.bandwidth.probed = record.map(|r| r.bytes_per_second);
    }

    /// Whether its bandwidth is unknown.
    pub(super) fn is_unmeasured(&self) -> bool {
        self.bandwidth.now().is_none()
    }

    /// Reads the attributes if it is time to, and returns whether it was.
    pub(super) fn attributes(
        &mut self,
        now_ns: i64,
        batch: &mut SourceBatch,
        bytes: &mut Vec<u8>,
        every_ns: i64,
    ) -> bool {
        if batch.monotonic_ns() < self.attributes_next_ns {
            return false;
        }
        self.attributes_next_ns = batch.monotonic_ns().saturating_add(every_ns);
        let numbers = self.files.numbers(bytes);
        self.attributes_seen = numbers.size_bytes.is_some();
        self.size_bytes = numbers.size_bytes;
        let link = self.link.as_ref().zip(numbers.rotational);
        self.bandwidth.table = link.and_then(|(link, rotating)| link.expected(rotating));
        let counts = [
            (Fact::ConcurrencyMax, numbers.concurrency_max),
            (Fact::Size, numbers.size_bytes),
            (Fact::LogicalBlock, numbers.logical_block_bytes),
            (Fact::PhysicalBlock, numbers.physical_block_bytes),
            (Fact::ReadAhead, numbers.read_ahead_bytes),
        ];
        for (fact, value) in counts {
            if let Some(value) = value {
                self.facts
                    .attribute(batch, now_ns, fact, int(value), every_ns);
            }
        }
        if let Some(rotational) = numbers.rotational {
            self.facts
                .attribute(batch, now_ns, Fact::Rotational, rotational, every_ns);
        }
        self.facts
            .text_attribute(batch, now_ns, Fact::Tier, &self.tier, every_ns);
        let texts = [
            (Fact::Scheduler, Text::Scheduler),
            (Fact::WriteCache, Text::WriteCache),
            (Fact::Model, Text::Model),
        ];
        for (fact, which) in texts {
            if let Some(text) = self.files.text(which, bytes) {
                self.facts
                    .text_attribute(batch, now_ns, fact, text, every_ns);
            }
        }
        true
    }

    pub(super) fn retire(&mut self, batch: &mut SourceBatch) {
        self.facts.retire(batch);
    }
}

/// The streams of latency quantiles of one direction. They end if there was no request in the last
/// minute.
struct Quantiles {
    latencies: Latencies,
    facts: [Fact; 3],
    alive: bool,
}

impl Quantiles {
    fn new(facts: [Fact; 3]) -> Self {
        Self {
            latencies: Latencies::new(),
            facts,
            alive: false,
        }
    }

    fn put(&mut self, now_ns: i64, batch: &mut SourceBatch, facts: &mut FactSet<Fact>) {
        let quantiles = self.latencies.quantiles();
        for (i, fact) in self.facts.into_iter().enumerate() {
            match quantiles {
                Some(values) => facts.derived(batch, now_ns, fact, values[i]),
                None if self.alive => facts.retire_one(batch, fact),
                None => {}
            }
        }
        self.alive = quantiles.is_some();
    }
}
