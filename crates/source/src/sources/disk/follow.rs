//! One disk that is followed: its facts, and what they are computed from.

use barograph_model::NS_PER_S;
use std::ffi::OsStr;

use crate::fact::{FactSet, facts, int};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::rate::per_second;
use crate::{Batch, SourceError};

use super::attributes::{Files, Text};
use super::counters::Counters;

/// The highest rate is taken over at least this long, so that a burst into a device's own cache
/// or two reads close together do not pass for its bandwidth.
const PEAK_WINDOW_NS: i64 = NS_PER_S * 9 / 10;

facts! {
    /// Facts of one disk.
    pub(crate) enum Fact in "disk" {
        ReadBytes: Counter Int "read.bytes" "bytes" "Read from the device.";
        WriteBytes: Counter Int "write.bytes" "bytes" "Written to the device.";
        DiscardBytes: Counter Int "discard.bytes" "bytes" "Discarded on the device.";
        ReadOps: Counter Int "read.ops" "ops" "Reads completed.";
        WriteOps: Counter Int "write.ops" "ops" "Writes completed.";
        FlushOps: Counter Int "flush.ops" "ops" "Flushes of the device's cache completed.";
        ReadMerged: Counter Int "read.merged.ops" "ops" "Reads merged with others before they reached the device.";
        WriteMerged: Counter Int "write.merged.ops" "ops" "Writes merged with others before they reached the device.";
        ReadSeconds: Counter Float "read.seconds" "seconds" "Time that reads took, summed over all of them.";
        WriteSeconds: Counter Float "write.seconds" "seconds" "Time that writes took, summed over all of them.";
        BusySeconds: Counter Float "busy.seconds" "seconds" "Time with at least one request in flight.";
        QueueSeconds: Counter Float "queue.seconds" "seconds" "Time that requests spent in flight, summed over all of them.";
        Inflight: Gauge Int "inflight.requests" "requests" "Requests in flight at the moment of the read.";
        BusyRatio: Gauge Float "busy.ratio" "ratio" "Share of time with at least one request in flight, since the last read.";
        QueueDepth: Gauge Float "queue.depth" "requests" "Mean number of requests in flight, since the last read.";
        ReadRate: Gauge Float "read.bytes_per_second" "bytes/s" "Read per second, since the last read-out.";
        WriteRate: Gauge Float "write.bytes_per_second" "bytes/s" "Written per second, since the last read-out.";
        ReadOpsRate: Gauge Float "read.ops_per_second" "ops/s" "Reads completed per second, since the last read-out.";
        WriteOpsRate: Gauge Float "write.ops_per_second" "ops/s" "Writes completed per second, since the last read-out.";
        ReadLatency: Gauge Float "read.latency.seconds" "seconds" "Mean time of the reads completed since the last read-out; 0 if there were none.";
        WriteLatency: Gauge Float "write.latency.seconds" "seconds" "Mean time of the writes completed since the last read-out; 0 if there were none.";
        BandwidthMax: Gauge Float "bandwidth.max.bytes_per_second" "bytes/s" "The most that the device can transfer: as configured (measured), else the highest rate seen so far (derived).";
        ConcurrencyMax: Gauge Int "concurrency.max.requests" "requests" "The most requests that the device takes at once.";
        Size: State Int "size.bytes" "bytes" "Size of the device.";
        Rotational: State Bool "rotational.flag" "flag" "Whether the device has turning platters.";
        Scheduler: State Text "scheduler.name" "name" "The I/O scheduler in use.";
        Tier: State Text "tier.name" "name" "The class of storage.";
        LogicalBlock: State Int "block.logical.bytes" "bytes" "The smallest piece that can be addressed.";
        PhysicalBlock: State Int "block.physical.bytes" "bytes" "The smallest piece that is written at once.";
        ReadAhead: State Int "readahead.bytes" "bytes" "How far the kernel reads ahead.";
        WriteCache: State Text "write_cache.name" "name" "How the device's cache treats writes.";
        Model: State Text "model.name" "name" "What the device calls itself.";
    }
}

/// A disk.
pub(super) struct Disk {
    pub(super) label: String,
    pub(super) tier: String,
    facts: FactSet<Fact>,
    last: Option<(i64, Counters)>,
    /// Where the present window for the highest rate began.
    window: Option<(i64, u64)>,
    peak: f64,
    bandwidth_max: Option<u64>,
    files: Files,
    attributes_next_ns: i64,
    pub(super) attributes_seen: bool,
    /// `/sys/block/DISK/stat`, for when there is no list of all.
    pub(super) stat: HeldFile,
}

impl Disk {
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
            window: None,
            peak: 0.0,
            bandwidth_max,
            files: Files::new(root, sysfs_name),
            attributes_next_ns: i64::MIN,
            attributes_seen: false,
            stat: HeldFile::short_records(root.path("sys/block").join(sysfs_name).join("stat")),
            label,
        })
    }

    pub(super) fn put(&mut self, now_ns: i64, batch: &mut Batch, counters: &Counters) {
        self.put_counters(now_ns, batch, counters);
        let at_ns = batch.monotonic_ns();
        if let Some((then_ns, old)) = self.last.replace((at_ns, *counters))
            && let Some(step) = counters.since(&old)
        {
            self.put_rates(now_ns, batch, &step, at_ns.saturating_sub(then_ns));
        }
        self.put_bandwidth(now_ns, batch, counters);
    }

    fn put_counters(&mut self, now_ns: i64, batch: &mut Batch, c: &Counters) {
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

    fn put_rates(&mut self, now_ns: i64, batch: &mut Batch, step: &Counters, elapsed_ns: i64) {
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

    fn put_bandwidth(&mut self, now_ns: i64, batch: &mut Batch, counters: &Counters) {
        if let Some(configured) = self.bandwidth_max {
            return self
                .facts
                .measured(batch, now_ns, Fact::BandwidthMax, configured as f64);
        }
        let at_ns = batch.monotonic_ns();
        let bytes = counters.read_bytes.saturating_add(counters.write_bytes);
        let (since_ns, old) = *self.window.get_or_insert((at_ns, bytes));
        let elapsed_ns = at_ns.saturating_sub(since_ns);
        if bytes < old || elapsed_ns >= PEAK_WINDOW_NS {
            let rate = bytes
                .checked_sub(old)
                .and_then(|growth| per_second(growth, elapsed_ns));
            self.peak = self.peak.max(rate.unwrap_or(0.0));
            self.window = Some((at_ns, bytes));
        }
        if self.peak > 0.0 {
            self.facts
                .derived(batch, now_ns, Fact::BandwidthMax, self.peak);
        }
    }

    /// Reads the attributes if it is time to.
    pub(super) fn attributes(
        &mut self,
        now_ns: i64,
        batch: &mut Batch,
        bytes: &mut Vec<u8>,
        every_ns: i64,
    ) {
        if batch.monotonic_ns() < self.attributes_next_ns {
            return;
        }
        self.attributes_next_ns = batch.monotonic_ns().saturating_add(every_ns);
        let numbers = self.files.numbers(bytes);
        self.attributes_seen = numbers.size_bytes.is_some();
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
    }

    pub(super) fn retire(&mut self, batch: &mut Batch) {
        self.facts.retire(batch);
    }
}
