//! `changelog.rate`: a history of a Lustre file system that a stand-in serves, with one and with
//! four metadata targets: its records parsed, resolved to paths, stored and delivered.

use std::path::Path;

use barograph_event::changelog::history::History;
use barograph_event::changelog::standin::StandInDevice;
use barograph_event::changelog::{
    ChangelogCollector, ChangelogMerge, ChangelogOptions, ChangelogRecord, MergeOptions,
    ResolverOptions,
};
use barograph_event::{Collector, EventFlags, FileEvent, RECORD_BYTES_MAX, encode};
use serde_json::json;

use super::store::EventStore;
use super::{monotonic_ns, process_cpu_ns};
use crate::cases::{DiskScratch, Scratch};
use crate::measure::{keep, median, thread_cpu_s};
use crate::report::{Fault, Report};

const RECORDS: usize = 500_000;
const ROUNDS: usize = 3;
const SEED: u64 = 7;
const BATCH_EVENTS_MAX: usize = 4_096;
/// Time after the last record at which the logs are read, so that none waits for another, in ns.
const LATER_NS: i64 = 10_000_000_000;
/// Calls without an event after which the replay has failed.
const IDLE_CALLS_MAX: usize = 1_000;

/// Measures both file systems.
pub(crate) fn run(report: &mut Report) -> Result<(), Fault> {
    for targets in [1, 4] {
        let logs = Scratch::new("changelog")?;
        let mut history = History::new(SEED, targets, &logs.0)?;
        history.run(RECORDS)?;
        let replay = Replay {
            count: history.truths().len(),
            history,
            logs: &logs.0,
            targets,
        };
        replay.measure(report)?;
    }
    Ok(())
}

struct Replay<'a> {
    history: History,
    logs: &'a Path,
    targets: usize,
    count: usize,
}

impl Replay<'_> {
    fn measure(&self, report: &mut Report) -> Result<(), Fault> {
        let of = match self.targets {
            1 => "1 MDT".to_owned(),
            many => format!("{many} MDTs"),
        };
        let mut parsed = Vec::new();
        let mut resolved = Vec::new();
        for _ in 0..ROUNDS {
            parsed.push(self.parse()?);
            resolved.push(self.resolve()?);
        }
        let rate = median(&mut parsed);
        report.row(
            "changelog.rate",
            &format!("{of}: parsed, one core"),
            rate,
            "records/s",
            &[],
        );
        let case = format!("{of}: parsed, resolved and encoded, one core");
        report.row(
            "changelog.rate",
            &case,
            median(&mut resolved),
            "records/s",
            &[],
        );
        let (mut walls, mut cores, mut incomplete) = (Vec::new(), Vec::new(), 0);
        for _ in 0..ROUNDS {
            let (wall, core, lacking) = self.whole()?;
            walls.push(wall);
            cores.push(core);
            incomplete = lacking;
        }
        let peers = json!({"ripple paper": 8_162, "FSMonitor, its abstract": 38_000});
        let more = json!({"peers": peers, "incomplete": incomplete, "records": self.count});
        let case = format!(
            "{of}: parsed, resolved, stored and delivered, one core (processor time of all threads)"
        );
        report.row_with(
            "changelog.rate",
            &case,
            median(&mut cores),
            "events/s",
            more.clone(),
        );
        let case = format!("{of}: the same, wall time on this machine");
        report.row_with(
            "changelog.rate",
            &case,
            median(&mut walls),
            "events/s",
            more,
        );
        Ok(())
    }

    /// Parses all records; returns how many one core does in a second.
    fn parse(&self) -> Result<f64, Fault> {
        let mut seconds = 0.0;
        for target in 0..self.targets {
            let bytes = std::fs::read(self.log(target).join("records"))?;
            let (begin, mut rest) = (thread_cpu_s(), &bytes[..]);
            while !rest.is_empty() {
                let (record, length) = ChangelogRecord::parse(rest)?;
                keep(record.name);
                rest = &rest[length..];
            }
            seconds += thread_cpu_s() - begin;
        }
        Ok(self.count as f64 / seconds)
    }

    /// Makes events of all records and encodes them; returns how many one core does in a second.
    fn resolve(&self) -> Result<f64, Fault> {
        let (begin, mut record) = (thread_cpu_s(), Vec::new());
        self.replay(|events| {
            for event in events.drain(..) {
                record.clear();
                encode(&event, &mut record);
                keep(record.len());
            }
            Ok(())
        })?;
        Ok(self.count as f64 / (thread_cpu_s() - begin))
    }

    /// Stores and delivers the events too; returns how many there are for a second of wall time and
    /// of processor time, and how many have incomplete paths.
    fn whole(&self) -> Result<(f64, f64, usize), Fault> {
        let (memory, disk) = (Scratch::new("ring")?, DiskScratch::new("kept")?);
        let ring = memory.0.join("ring");
        let mut store = EventStore::open(&ring, &disk.0, RECORD_BYTES_MAX as u32)?;
        store.follow(&ring);
        let (begin, cpu, mut incomplete) = (monotonic_ns(), process_cpu_ns(), 0);
        self.replay(|events| {
            let is_incomplete = |event: &&FileEvent| event.flags.has(EventFlags::PATH_INCOMPLETE);
            incomplete += events.iter().filter(is_incomplete).count();
            store.record(events).map(drop)
        })?;
        let delivered = store.finish()?;
        if delivered != self.count as u64 {
            return Err(format!("{delivered} events of {} were delivered", self.count).into());
        }
        let per_second = |ns: i64| self.count as f64 / (ns as f64 / 1e9);
        let (wall_ns, cpu_ns) = (monotonic_ns() - begin, process_cpu_ns() - cpu);
        Ok((per_second(wall_ns), per_second(cpu_ns), incomplete))
    }

    /// Collects all events of all logs.
    fn replay(
        &self,
        mut take: impl FnMut(&mut Vec<FileEvent>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let paths = Box::new(self.history.paths());
        let merge = ChangelogMerge::new(MergeOptions::default(), ResolverOptions::default(), paths);
        let collector = |target: usize| {
            let device = Box::new(StandInDevice::new(self.log(target)));
            let options = ChangelogOptions {
                name: target.to_string(),
                ..ChangelogOptions::default()
            };
            ChangelogCollector::new(&merge, device, options)
        };
        let mut collectors: Vec<_> = (0..self.targets).map(collector).collect();
        let now = (self.history.now_ns() + LATER_NS, 0);
        let (mut events, mut taken, mut idle) = (Vec::new(), 0, 0);
        while taken < self.count {
            for collector in &mut collectors {
                collector.collect(&mut events, BATCH_EVENTS_MAX, now)?;
                taken += events.len();
                idle = if events.is_empty() { idle + 1 } else { 0 };
                take(&mut events)?;
            }
            if idle > IDLE_CALLS_MAX {
                return Err(format!("the replay stands still after {taken} events").into());
            }
        }
        Ok(())
    }

    fn log(&self, target: usize) -> std::path::PathBuf {
        self.logs.join(format!("MDT{target:04}"))
    }
}
