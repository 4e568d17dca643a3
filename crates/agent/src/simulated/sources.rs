//! Sources whose values are drawn from a seed, with the facts of real ones.

use barograph_model::{Descriptor, Labels, Name, Sample, Unit, Value, ValueType};
use barograph_source::{FactId, Source, SourceBatch, SourceCoverage, SourceError, all_facts};

use super::Random;

/// One in so many reads fails half way.
const READS_PER_FAULT: u64 = 500;
/// One in so many reads of a disk finds a burst of writes.
const READS_PER_BURST: u64 = 8;

/// A source of some facts.
pub(super) struct FakeSource {
    name: &'static str,
    facts: Vec<(FakeFact, Option<FactId>)>,
    random: Random,
}

struct FakeFact {
    name: &'static str,
    labels: Labels,
    value: i64,
    /// The function that gives the next value from the value before.
    next: fn(&mut Random, i64) -> i64,
}

impl FakeSource {
    /// Two disks.
    pub(super) fn disk(seed: u64) -> Self {
        let written = |random: &mut Random, value| match random.below(READS_PER_BURST) {
            0 => value + random.below(1 << 24) as i64,
            _ => value,
        };
        let rate = |random: &mut Random, _| match random.below(READS_PER_BURST) {
            0 => random.below(1 << 24) as i64,
            _ => 0,
        };
        let mut facts = Vec::new();
        for device in ["vda", "vdb"] {
            let labels = Labels::new([("device", device)]).unwrap();
            let mut add = |name, next| {
                facts.push(FakeFact {
                    name,
                    labels: labels.clone(),
                    value: 0,
                    next,
                });
            };
            add("disk.write.bytes", written as fn(&mut Random, i64) -> i64);
            add("disk.write.bytes_per_second", rate);
            add("disk.read.bytes_per_second", rate);
        }
        Self::of("disk", seed, facts)
    }

    /// One file system that is filled and emptied.
    pub(super) fn filesystem(seed: u64) -> Self {
        let labels = [("device", "/dev/vdb"), ("mount", "/data"), ("tier", "ssd")];
        let labels = Labels::new(labels).unwrap();
        let total = |_: &mut Random, _| 1_i64 << 40;
        let free = |random: &mut Random, value: i64| {
            let value = if value == 0 { 1 << 39 } else { value };
            let step = random.below(1 << 28) as i64 - (1 << 27);
            (value + step).clamp(1 << 30, 1 << 40)
        };
        let fact = |name, next| FakeFact {
            name,
            labels: labels.clone(),
            value: 0,
            next,
        };
        let facts = vec![
            fact(
                "filesystem.total.bytes",
                total as fn(&mut Random, i64) -> i64,
            ),
            fact("filesystem.free.bytes", free),
            fact("filesystem.available.bytes", free),
        ];
        Self::of("filesystem", seed, facts)
    }

    fn of(name: &'static str, seed: u64, facts: Vec<FakeFact>) -> Self {
        Self {
            name,
            facts: facts.into_iter().map(|fact| (fact, None)).collect(),
            random: Random(seed),
        }
    }
}

impl FakeFact {
    fn descriptor(&self) -> Descriptor {
        descriptor(self.name, &self.labels)
    }
}

/// The descriptor of a fact with labels.
fn descriptor(name: &str, labels: &Labels) -> Descriptor {
    let spec = all_facts().find(|spec| spec.name == name).unwrap();
    Descriptor {
        name: Name::new(spec.name).unwrap(),
        labels: labels.clone(),
        value_type: spec.value_type,
        unit: Unit::new(spec.unit).unwrap(),
        kind: spec.kind,
        help: spec.help.into(),
    }
}

impl Source for FakeSource {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_slow(&self) -> bool {
        self.name == "filesystem"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        let fails = self.random.below(READS_PER_FAULT) == 0;
        let half = self.facts.len() / 2;
        for (at, (fact, id)) in self.facts.iter_mut().enumerate() {
            if fails && at >= half {
                return Err(SourceError::Command {
                    program: self.name.into(),
                    reason: "it was drawn to fail".into(),
                });
            }
            let descriptor = || fact.descriptor();
            let id = *id.get_or_insert_with(|| batch.declare(descriptor(), None));
            fact.value = (fact.next)(&mut self.random, fact.value);
            let is_rate = fact.name.ends_with("per_second");
            let value = match is_rate {
                true => Value::Float(fact.value as f64),
                false => Value::Int(fact.value),
            };
            debug_assert_eq!(is_rate, fact.descriptor().value_type == ValueType::Float);
            batch.put(id, Sample::measured(now_ns, value));
        }
        Ok(())
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage::default()
    }
}

/// Control groups that write to `vda`, which can move 160 MB/s: three with checkpoints, each with a
/// period of its own, and one that writes all the time.
pub(super) struct FakeWriters {
    seconds: i64,
    facts: Vec<(&'static str, Labels, Option<FactId>)>,
}

/// The groups: period and length of a burst in seconds, and bytes in each of its seconds.
const FAKE_WRITERS: [(&str, i64, i64, i64); 4] = [
    ("/simulation", 200, 15, 60_000_000),
    ("/training", 330, 20, 45_000_000),
    ("/backup", 450, 30, 50_000_000),
    ("/log", 1, 1, 1_000_000),
];

impl FakeWriters {
    pub(super) fn new() -> Self {
        let device = ("device", "vda");
        let greatest = Labels::new([device]).unwrap();
        let mut facts = vec![("disk.bandwidth.max.bytes_per_second", greatest, None)];
        for (group, ..) in FAKE_WRITERS {
            let labels = Labels::new([("cgroup", group), device]).unwrap();
            facts.push(("cgroup.device.write.bytes", labels, None));
        }
        Self { seconds: 0, facts }
    }

    /// Bytes that a group has written in the first seconds.
    fn written((_, period_s, burst_s, bytes): (&str, i64, i64, i64), seconds: i64) -> i64 {
        let whole = seconds / period_s * burst_s;
        (whole + (seconds % period_s).min(burst_s)) * bytes
    }
}

impl Source for FakeWriters {
    fn name(&self) -> &'static str {
        "cgroup"
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        for (at, (name, labels, id)) in self.facts.iter_mut().enumerate() {
            let id = *id.get_or_insert_with(|| batch.declare(descriptor(name, labels), None));
            let value = match at.checked_sub(1) {
                None => Value::Float(1.6e8),
                Some(writer) => Value::Int(Self::written(FAKE_WRITERS[writer], self.seconds)),
            };
            batch.put(id, Sample::measured(now_ns, value));
        }
        self.seconds += 1;
        Ok(())
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage::default()
    }
}
