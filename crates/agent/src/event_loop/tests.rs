//! Tests of the whole sampling loop on a manual clock: sources, streams, insights, forecasts,
//! policies and statements. Nothing here waits.

use std::collections::BTreeMap;

use barograph_model::{
    Descriptor, Kind, Labels, ManualClock, Name, Sample, Unit, Value, ValueType,
};
use barograph_recorder::{ArchiveConfig, Room};
use barograph_source::policy::IntervalPolicy;
use barograph_source::{Batch, FactId, PolicySpec, Report, Source, SourceError};
use barograph_stream::{Latest, SegmentConfig, SegmentReader};

use super::*;
use crate::policies::statement::wanted;
use crate::{Config, ProcessMeter};

const HOUR_S: i64 = 3_600;

/// A disk with bursts of writes that are drawn from a seed.
struct BurstyDisk {
    seed: u64,
    written: i64,
    facts: Option<[FactId; 2]>,
}

impl BurstyDisk {
    /// Returns the next number of a linear congruential generator (Knuth, MMIX).
    fn draw(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }
}

impl Source for BurstyDisk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn read(&mut self, now_ns: i64, batch: &mut Batch) -> Result<(), SourceError> {
        let [written, free] = *self.facts.get_or_insert_with(|| {
            let of = |name: &str, kind| Descriptor {
                name: Name::new(name).unwrap(),
                labels: Labels::new([("device", "vda")]).unwrap(),
                value_type: ValueType::Int,
                unit: Unit::new("bytes").unwrap(),
                kind,
                help: "h".into(),
            };
            let written = batch.declare(of("disk.write.bytes", Kind::Counter), None);
            [
                written,
                batch.declare(of("pool.available.bytes", Kind::Gauge), None),
            ]
        });
        if self.draw().is_multiple_of(8) {
            self.written += self.draw() as i64 & 0xff_ffff;
        }
        batch.put(written, Sample::measured(now_ns, self.written));
        batch.put(free, Sample::measured(now_ns, (1 << 44) - self.written));
        Ok(())
    }

    fn report(&self) -> Report {
        Report::default()
    }
}

struct LoopRig<'c> {
    clock: Arc<ManualClock>,
    event_loop: EventLoop<'c>,
    reader: SegmentReader,
    steps: u64,
    _dir: tempfile::TempDir,
}

impl<'c> LoopRig<'c> {
    fn new((clock, world): &'c (Arc<ManualClock>, World), seed: u64) -> Self {
        // In memory if possible, since a day has many documents.
        let memory = std::path::Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let run_dir = RunDir::new(dir.path());
        let segment = Segment::create(&run_dir.segment(), SegmentConfig::new("n"), 1).unwrap();
        let reader = segment.reader().unwrap();
        let mut config = Config::default();
        config.sources.sys_root = dir.path().to_owned();
        config.forecast.streams = vec!["pool.*".into()];
        config.policy = vec![PolicySpec {
            name: "pool".into(),
            streams: vec!["pool.available.bytes".into()],
            error: Some("64 MiB".into()),
            ..PolicySpec::default()
        }];
        let theirs: Arc<dyn Clock> = clock.clone();
        let disk: Box<dyn Source> = Box::new(BurstyDisk {
            seed,
            written: 0,
            facts: None,
        });
        let interval_ns = NS_PER_S;
        let sources = [(disk, IntervalPolicy::Fixed { interval_ns })];
        let off = ArchiveConfig {
            enabled: false,
            ..config.archive.clone()
        };
        let doubled = "CREATE INSIGHT twice.bytes AS SELECT 2 * value FROM pool_available_bytes";
        let mut graph = crate::assemble::graph(&config, &theirs);
        graph.know_metric(&Name::new("pool.available.bytes").unwrap());
        let poller = Poller::with_sources(sources, Arc::clone(&theirs), Arc::new(|| {}));
        let parts = LoopParts {
            run_dir,
            segment,
            graph,
            wanted: Wanted {
                insights: BTreeMap::from([("twice.bytes".into(), doubled.into())]),
                policies: wanted(&config.policy, &BTreeMap::new()),
            },
            troubles: Troubles::default(),
            history: Arc::new(History::start(&off, "n", &theirs, &world.storage)),
            repeat_ns: 240 * NS_PER_S,
            forecasts: Forecasts::new(&config.forecast, Room::new(&config.forecast).unwrap()),
            policies: Policies::new(&config, Arc::new(|| {})),
            ingest: Arc::default(),
            exports: None,
        };
        Self {
            clock: Arc::clone(clock),
            event_loop: EventLoop::new(world, poller, parts),
            reader,
            steps: 0,
            _dir: dir,
        }
    }

    /// Runs the loop for this many seconds, from deadline to deadline.
    fn run(&mut self, seconds: i64) {
        let end_ns = self.clock.monotonic_ns() + seconds * NS_PER_S;
        loop {
            let next_ns = self.event_loop.step().min(end_ns);
            self.steps += 1;
            let ahead_ns = next_ns - self.clock.monotonic_ns();
            self.clock.advance(ahead_ns.max(0));
            if next_ns >= end_ns {
                return;
            }
        }
    }

    fn execute(&mut self, kind: StatementKind, sql: &str) -> Answer {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        self.event_loop
            .apply(Event::Execute(kind, sql.into(), reply));
        answer.try_recv().unwrap()
    }

    /// Returns the newest sample of every stream by its name and labels.
    fn newest(&self) -> BTreeMap<String, String> {
        let directory = self.reader.directory();
        let of = |entry: &barograph_stream::Entry| {
            let name = entry.descriptor.to_string();
            match self.reader.stream(entry).latest() {
                Latest::Sample {
                    sample, looked_ns, ..
                } => Some((name, format!("{sample:?} {looked_ns}"))),
                _ => None,
            }
        };
        directory.entries.iter().filter_map(of).collect()
    }

    fn value(&self, name: &str) -> Option<Value> {
        let directory = self.reader.directory();
        let mut entries = directory.entries.iter();
        let entry = entries.find(|e| e.descriptor.name.as_str() == name)?;
        match self.reader.stream(entry).latest() {
            Latest::Sample { sample, .. } => Some(sample.value),
            _ => None,
        }
    }
}

/// A world of a manual clock, where no process uses anything.
fn world() -> (Arc<ManualClock>, World) {
    let clock = Arc::new(ManualClock::at(1_700_000_000 * NS_PER_S));
    let world = World {
        clock: clock.clone(),
        meter: Arc::new(IdleMeter),
        ..World::real()
    };
    (clock, world)
}

struct IdleMeter;

impl ProcessMeter for IdleMeter {
    fn cpu_seconds(&self) -> f64 {
        0.0
    }

    fn resident_bytes(&self) -> Option<i64> {
        None
    }
}

#[test]
fn hours_pass_twice_to_the_same_samples() {
    let hours = |seed: u64| {
        let world = world();
        let mut rig = LoopRig::new(&world, seed);
        rig.run(HOUR_S);
        let drop = rig.execute(StatementKind::Insight, "DROP INSIGHT twice.bytes");
        assert!(drop.is_ok(), "{drop:?}");
        let policy = "CREATE OR REPLACE POLICY more FOR 'pool.*' ERROR '1 GiB'";
        rig.execute(StatementKind::Policy, policy).unwrap();
        rig.run(HOUR_S);
        assert_eq!(rig.value("twice.bytes"), None);
        (rig.steps, rig.newest())
    };
    let first = hours(7);
    assert!(first.0 >= 7_200, "{} steps", first.0);
    assert!(first.1.len() > 10, "{:?}", first.1);
    assert_eq!(first, hours(7));
    assert_ne!(first, hours(8));
}

#[test]
fn events_are_applied_between_steps_and_counted() {
    let world = world();
    let mut rig = LoopRig::new(&world, 1);
    rig.run(10);
    let both = |rig: &LoopRig<'_>| {
        let value = |name: &str| rig.value(name).unwrap().as_f64().unwrap();
        (value("pool.available.bytes"), value("twice.bytes"))
    };
    let (free, twice) = both(&rig);
    assert!((twice - 2.0 * free).abs() < 1.0);
    let half =
        "CREATE OR REPLACE INSIGHT twice.bytes AS SELECT value / 2 FROM pool_available_bytes";
    let made = rig.execute(StatementKind::Insight, half).unwrap();
    assert_eq!(made["name"], "twice.bytes");
    let (free, twice) = both(&rig);
    assert!((twice - free / 2.0).abs() < 1.0, "before the next step");
    let refused = rig.execute(
        StatementKind::Insight,
        "CREATE INSIGHT a AS SELECT value FROM b_c",
    );
    assert!(refused.unwrap_err().to_string().contains("b_c"));
    let absent = rig.execute(StatementKind::Policy, "DROP POLICY none");
    assert!(matches!(absent, Err(crate::control::Refusal::Absent(_))));
    rig.event_loop.apply(Event::Wake);
    assert_eq!(rig.event_loop.event_counts, [1, 3, 0, 0]);
    rig.run(2);
    let counts = rig.newest();
    let executed = &counts["agent.events.count{event=execute}"];
    assert!(executed.contains("Int(3)"), "{executed}");
}
