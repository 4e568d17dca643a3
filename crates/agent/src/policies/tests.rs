//! Tests of policies over a segment, with the real poller and a manual clock.

mod said;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use barograph_insight::{Graph, GraphLimits};
use barograph_model::{Clock, Kind, Labels, ManualClock, NS_PER_S, Name, Projection, Unit, Value};
use barograph_source::policy::IntervalPolicy;
use barograph_source::{
    FactId, PolicySpec, Poller, Source, SourceBatch, SourceCoverage, SourceError,
};
use barograph_stream::{LatestSample, Segment, SegmentConfig, SegmentReader};
use serde_json::{Value as Json, json};

use super::roster::PolicyOrigin;
use super::*;
use crate::Config;
use crate::facts::FactSink;
use crate::interference::BandwidthWatch;
use crate::outlook::Outlook;
use barograph_recorder::{ForecastRoom, PROJECT_NS, World};

const CHEAP: &str = "disk.write.bytes";
const DEAR: &str = "pool.available.bytes";
const OTHER: &str = "pool.read.bytes";

/// Values that the sources find, by name; `None` for a name without a number.
type Found = Arc<Mutex<BTreeMap<&'static str, Option<f64>>>>;

/// A source that reads the values that the test put there, and counts its reads.
struct Fake {
    name: &'static str,
    gives: Vec<(&'static str, Kind)>,
    facts: Vec<FactId>,
    found: Found,
    reads: Arc<AtomicI64>,
}

impl Source for Fake {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        for &(name, kind) in &self.gives[self.facts.len()..] {
            let descriptor = Descriptor {
                name: Name::new(name).unwrap(),
                labels: Labels::new([("device", "vda")]).unwrap(),
                value_type: ValueType::Float,
                unit: Unit::new("bytes").unwrap(),
                kind,
                help: "h".into(),
            };
            self.facts.push(batch.declare(descriptor, None));
        }
        let found = self.found.lock().unwrap();
        for ((name, _), fact) in self.gives.iter().zip(&self.facts) {
            if let Some(Some(value)) = found.get(name) {
                batch.put(*fact, Sample::measured(now_ns, *value));
            }
        }
        Ok(())
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage::default()
    }
}

struct Rig<'c> {
    clock: Arc<ManualClock>,
    poller: Poller,
    streams: Streams<'c>,
    reader: SegmentReader,
    graph: Graph,
    outlook: Outlook,
    forecasts: Forecasts,
    bandwidths: BandwidthWatch,
    policies: Policies,
    found: Found,
    /// Reads of the cheap source, and of the other one.
    reads: [Arc<AtomicI64>; 2],
    /// Whether a projection waits for the next round.
    waits: bool,
    _dir: tempfile::TempDir,
}

fn policy(name: &str, streams: &str) -> PolicySpec {
    PolicySpec {
        name: name.into(),
        streams: vec![streams.into()],
        error: Some("1 %".into()),
        ..PolicySpec::default()
    }
}

fn derived() -> PolicySpec {
    PolicySpec {
        sentinel: Some(format!("{CHEAP}{{device=vda}}")),
        ..policy("derived", DEAR)
    }
}

impl<'c> Rig<'c> {
    fn new(clock: &'c Arc<ManualClock>, policies: Vec<PolicySpec>) -> Self {
        check(&policies).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let segment = Segment::create(&path, SegmentConfig::new("n"), 1).unwrap();
        let reader = segment.reader().unwrap();
        let mut config = Config {
            policy: policies,
            ..Config::default()
        };
        config.sources.sys_root = dir.path().to_owned();
        config.forecast.streams.clear();
        let found = Found::default();
        found.lock().unwrap().insert(CHEAP, Some(0.0));
        found.lock().unwrap().insert(DEAR, Some(1e9));
        found.lock().unwrap().insert(OTHER, Some(0.0));
        let reads = [0, 0].map(|_| Arc::new(AtomicI64::new(0)));
        let source = |name, gives: &[(&'static str, Kind)], reads: &Arc<AtomicI64>| {
            let source: Box<dyn Source> = Box::new(Fake {
                name,
                gives: gives.to_vec(),
                facts: Vec::new(),
                found: Arc::clone(&found),
                reads: Arc::clone(reads),
            });
            let interval_ns = NS_PER_S;
            (source, IntervalPolicy::Fixed { interval_ns })
        };
        let sources = [
            source("cheap", &[(CHEAP, Kind::Counter)], &reads[0]),
            source(
                "dear",
                &[(DEAR, Kind::Gauge), (OTHER, Kind::Counter)],
                &reads[1],
            ),
        ];
        let theirs: Arc<dyn Clock> = clock.clone();
        let mut rig = Self {
            clock: Arc::clone(clock),
            poller: Poller::with_sources(sources, theirs),
            streams: Streams::new(segment, &**clock, None, 240 * NS_PER_S),
            reader,
            graph: Graph::new(GraphLimits::default()),
            outlook: Outlook::default(),
            forecasts: Forecasts::new(
                &config.forecast,
                ForecastRoom::new(&config.forecast).unwrap(),
            ),
            bandwidths: BandwidthWatch::new(&config.interference, &World::real()),
            policies: Policies::new(&config.sources, Arc::new(|| {})),
            found,
            reads,
            waits: false,
            _dir: dir,
        };
        let mut changer = PolicyChanger {
            policies: &mut rig.policies,
            forecasts: &mut rig.forecasts,
            streams: &mut rig.streams,
        };
        changer.become_these(statement::wanted(&config.policy, &BTreeMap::new()));
        rig
    }

    fn tick(&mut self) {
        self.policies.hear();
        let mut facts = FactSink {
            streams: &mut self.streams,
            graph: &mut self.graph,
            outlook: &mut self.outlook,
            forecasts: &mut self.forecasts,
            bandwidths: &mut self.bandwidths,
            policies: &mut self.policies,
        };
        self.poller.run_due(&mut facts);
        self.waits = self.project();
    }

    /// Publishes projections; returns whether some of them wait.
    fn project(&mut self) -> bool {
        let now_ns = self.clock.now_ns();
        let (forecasts, streams) = (&mut self.forecasts, &mut self.streams);
        self.policies.project(now_ns, forecasts, streams)
    }

    /// Records a look at an existing stream.
    fn looked(&mut self, name: &str, value: f64) {
        let key = self.key(name);
        let sample = Sample::measured(self.clock.now_ns(), value);
        self.policies.looked(key, &sample, &mut self.forecasts);
    }

    fn key(&self, name: &str) -> StreamKey {
        let is_it =
            |k: &Option<Box<Descriptor>>| k.as_ref().is_some_and(|k| k.name.as_str() == name);
        let at = self.policies.known.iter().position(is_it);
        StreamKey(u32::try_from(at.unwrap()).unwrap())
    }

    /// Runs for this many seconds. Before each round, `change` sets the values to be found; its
    /// number is the seconds that have passed.
    fn run(&mut self, seconds: i64, mut change: impl FnMut(&Found, f64)) {
        let start_ns = self.clock.monotonic_ns();
        let end_ns = start_ns + seconds * NS_PER_S;
        loop {
            let elapsed_ns = self.clock.monotonic_ns() - start_ns;
            change(&self.found, elapsed_ns as f64 / 1e9);
            self.tick();
            let mut next_ns = self.poller.next_deadline_ns();
            if self.waits {
                next_ns = next_ns.min(self.clock.monotonic_ns() + PROJECT_NS);
            }
            if next_ns >= end_ns {
                self.clock.advance(end_ns - self.clock.monotonic_ns());
                return;
            }
            self.clock
                .advance((next_ns - self.clock.monotonic_ns()).max(0));
        }
    }

    fn reads(&self) -> [i64; 2] {
        self.reads
            .each_ref()
            .map(|reads| reads.load(Ordering::SeqCst))
    }

    fn row(&self, policy: &str) -> Json {
        let document = serde_json::json!(self.policies.document());
        let mut rows = document.as_array().unwrap().iter();
        rows.find(|row| row["name"] == policy).unwrap().clone()
    }

    /// Returns the value and half width that the published projection of a stream has for this
    /// time.
    fn said(&self, name: &str) -> Option<(f64, f64)> {
        let (floats, _, looked_ns) = self.projection(name)?;
        // A look alone republishes the same projection.
        let after_s = (self.clock.now_ns() - looked_ns) as f64 / 1e9;
        let knot = Projection::from_floats(&floats)?.at(after_s)?;
        Some((knot.value, knot.half_width))
    }

    /// Returns the published projection, the time at which it was appended, and the time of the
    /// last look.
    fn projection(&self, name: &str) -> Option<(Arc<[f64]>, i64, i64)> {
        let directory = self.reader.directory();
        let mut entries = directory.entries.iter();
        let name = format!("forecast.{name}");
        let entry = entries.find(|e| e.descriptor.name.as_str() == name)?;
        let newest = self.reader.stream(entry).latest();
        let LatestSample::Sample {
            sample, looked_ns, ..
        } = newest
        else {
            return None;
        };
        let Value::Floats(floats) = sample.value else {
            panic!("{:?}", sample.value);
        };
        Some((floats, sample.ts, looked_ns))
    }

    fn declare(&mut self, spec: PolicySpec) -> Result<(), String> {
        let made = PolicyOrigin {
            sql: format!("CREATE POLICY {}", spec.name),
            help: "h".into(),
        };
        let policy = Policy::new(spec, Some(made)).map_err(|fault| fault.to_string())?;
        self.change(PolicyChange::Declare(Arc::new(policy)))
    }

    fn drop(&mut self, name: &str) -> Result<(), String> {
        self.change(PolicyChange::Drop(name.into()))
    }

    fn change(&mut self, change: PolicyChange) -> Result<(), String> {
        let mut changer = PolicyChanger {
            policies: &mut self.policies,
            forecasts: &mut self.forecasts,
            streams: &mut self.streams,
        };
        changer.change(change)
    }
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(1_000 * NS_PER_S))
}

fn put(found: &Found, name: &'static str, value: impl Into<Option<f64>>) {
    found.lock().unwrap().insert(name, value.into());
}

#[test]
fn what_hardly_moves_is_looked_at_seldom() {
    let clock = clock();
    let mut rig = Rig::new(&clock, vec![policy("rare", DEAR)]);
    rig.run(3_600, |found, s| {
        put(found, DEAR, 1e9 + (s / 600.0).floor() * 5e7);
    });
    let [cheap, dear] = rig.reads();
    assert_eq!(cheap, 3_600, "who has no policy is read as configured");
    assert!(dear < 900, "{dear}");
    let row = rig.row("rare");
    assert_eq!(row["looks"], dear);
    assert_eq!(row["stream"], DEAR);
    assert!(row["said"] == "held" || row["said"] == "forecast", "{row}");
    assert_eq!(row["labels"]["device"], "vda");
    let saved = row["saved_share"].as_f64().unwrap();
    assert!(
        (saved - (1.0 - dear as f64 / 3_600.0)).abs() < 0.02,
        "{row}"
    );
    let wrong = row["wrong_share"].as_f64().unwrap();
    assert!((0.0..=0.5).contains(&wrong), "{row}");
    assert!(row["interval_ns"].as_i64().unwrap() > NS_PER_S, "{row}");
    // A held value is published although the configuration forecasts nothing.
    let (value, half_width) = rig.said(DEAR).unwrap();
    let truth = 1e9 + 5.0 * 5e7;
    assert!((value - truth).abs() <= 0.01 * truth, "{value}");
    // A forecast has the half width of the forecaster, even if that is more than the policy's
    // error.
    assert!(
        row["said"] == "forecast" || half_width <= 0.01 * truth,
        "{half_width}"
    );
}

#[test]
fn who_matches_nothing_says_so() {
    let clock = clock();
    let mut alone = derived();
    alone.sentinel = Some("no.such.bytes".into());
    let fixed = PolicySpec {
        kind: PolicySpecKind::Fixed,
        error: None,
        interval_min_ms: 7_000,
        ..policy("z.fixed", OTHER)
    };
    let mut rig = Rig::new(
        &clock,
        vec![
            alone,
            policy("none", "no.such.*"),
            fixed,
            policy("zz", DEAR),
        ],
    );
    rig.run(100, |_, _| {});
    let none = rig.row("none");
    assert!(
        none["stream"].is_null() && none["looks"].is_null(),
        "{none}"
    );
    assert!(
        none["reason"].as_str().unwrap().contains("no stream"),
        "{none}"
    );
    let row = rig.row("derived");
    assert!(
        row["reason"].as_str().unwrap().contains("is its sentinel"),
        "{row}"
    );
    assert!(
        rig.row("zz")["stream"].is_null(),
        "the first by name counts"
    );
    let row = rig.row("z.fixed");
    assert_eq!(row["wait_ns"], 7 * NS_PER_S);
    assert!(row["said"].is_null(), "{row}");
    let interval_ns = row["interval_ns"].as_i64().unwrap();
    assert!(interval_ns <= 7 * NS_PER_S, "{row}");
}

#[test]
fn policies_come_and_go_while_it_runs() {
    let clock = clock();
    let fixed = |name: &str, ms| PolicySpec {
        kind: PolicySpecKind::Fixed,
        error: None,
        interval_min_ms: ms,
        ..policy(name, DEAR)
    };
    let mut rig = Rig::new(&clock, vec![fixed("a", 20_000)]);
    rig.run(101, |_, _| {});
    assert_eq!(rig.reads()[1], 6);
    // Made policies come before configured ones, even for streams that already exist.
    rig.declare(fixed("b", 5_000)).unwrap();
    rig.run(100, |_, _| {});
    assert!((24..=27).contains(&rig.reads()[1]), "{:?}", rig.reads());
    assert!(rig.row("a")["stream"].is_null());
    rig.declare(policy("b", DEAR)).unwrap();
    rig.run(10, |_, _| {});
    assert_eq!(rig.row("b")["kind"], "error_bounded");
    assert!(rig.said(DEAR).is_some());
    rig.drop("b").unwrap();
    assert!(rig.said(DEAR).is_none(), "its forecaster is gone with it");
    assert_eq!(rig.row("a")["stream"], DEAR);
    for (name, expect) in [("a", "of the configuration"), ("b", "no policy b")] {
        let error = rig.drop(name).unwrap_err();
        assert!(error.contains(expect), "{error}");
    }
    let error = rig.declare(fixed("a", 1)).unwrap_err();
    assert!(error.contains("of the configuration"), "{error}");
    let error = rig.declare(policy("c", "x{")).unwrap_err();
    assert!(error.contains("streams"), "{error}");
}

#[test]
fn rows_tell_where_their_policy_comes_from() {
    let clock = clock();
    let mut rig = Rig::new(&clock, vec![policy("fixed", OTHER)]);
    rig.declare(policy("one", DEAR)).unwrap();
    rig.declare(policy("none", "no.such.*")).unwrap();
    rig.run(10, |_, _| {});
    let row = rig.row("fixed");
    assert_eq!(
        (&row["stream"], &row["origin"]),
        (&json!(OTHER), &json!("configured"))
    );
    assert_eq!((&row["sql"], &row["help"]), (&Json::Null, &json!("")));
    for (name, stream) in [("one", json!(DEAR)), ("none", Json::Null)] {
        let row = rig.row(name);
        assert_eq!((&row["stream"], &row["origin"]), (&stream, &json!("made")));
        assert_eq!(row["sql"], format!("CREATE POLICY {name}"));
        assert_eq!(
            (&row["help"], &row["interval_min_ms"]),
            (&json!("h"), &json!(1_000))
        );
        assert_eq!(row["weight"], 1.0);
    }
}

#[test]
fn without_a_policy_any_more_it_is_read_as_configured() {
    let clock = clock();
    let mut rig = Rig::new(&clock, Vec::new());
    assert_eq!(rig.policies.wishes(), 0);
    rig.run(10, |_, _| {});
    assert_eq!(rig.reads(), [10, 10]);
    rig.declare(policy("a", DEAR)).unwrap();
    rig.run(500, |_, _| {});
    let read = rig.reads()[1];
    assert!(read < 250, "{read}");
    rig.drop("a").unwrap();
    rig.run(100, |_, _| {});
    assert!(
        (98..=101).contains(&(rig.reads()[1] - read)),
        "{read} and {:?}",
        rig.reads()
    );
}

#[test]
fn what_is_no_number_and_what_is_missing_changes_no_plan() {
    let clock = clock();
    let mut rig = Rig::new(&clock, vec![policy("rare", DEAR), policy("other", OTHER)]);
    rig.run(600, |_, _| {});
    let plan = rig.row("rare")["wait_ns"].clone();
    put(&rig.found, DEAR, f64::NAN);
    rig.run(200, |_, _| {});
    assert_eq!(rig.row("rare")["wait_ns"], plan);
    put(&rig.found, DEAR, None);
    rig.run(200, |_, _| {});
    assert_eq!(rig.row("rare")["wait_ns"], plan);
    put(&rig.found, DEAR, 2e9);
    rig.run(120, |_, _| {});
    let (value, _) = rig.said(DEAR).unwrap();
    assert!((value - 2e9).abs() < 2e7, "{value}");
}

#[test]
fn pressure_makes_its_streams_due() {
    let clock = clock();
    let pressed = PolicySpec {
        pressure: Some("io some 150ms 2s".into()),
        ..policy("pressed", DEAR)
    };
    let trigger = pressed.pressure().unwrap().unwrap();
    let mut rig = Rig::new(&clock, vec![pressed]);
    rig.run(1_000, |_, _| {});
    let row = rig.row("pressed");
    assert!(
        row["reason"].as_str().unwrap().contains("recorded machine"),
        "{row}"
    );
    // In the middle of a long wait.
    rig.run(60, |_, _| {});
    let before = rig.reads()[1];
    while rig.reads()[1] == before {
        rig.run(1, |_, _| {});
    }
    rig.run(2, |_, _| {});
    let before = rig.reads()[1];
    rig.policies.pressure.fire(trigger);
    rig.tick();
    assert_eq!(rig.reads()[1], before + 1);
    rig.tick();
    assert_eq!(rig.reads()[1], before + 1, "once");
}

#[test]
fn a_sentinel_that_goes_is_missed_and_another_taken() {
    let clock = clock();
    let mut rig = Rig::new(&clock, vec![derived()]);
    rig.run(10, |_, _| {});
    let key = rig.key(CHEAP);
    let descriptor = rig.policies.known[key.0 as usize]
        .as_deref()
        .unwrap()
        .clone();
    rig.policies.stream_removed(key);
    let row = rig.row("derived");
    assert!(
        row["reason"].as_str().unwrap().contains("is its sentinel"),
        "{row}"
    );
    let (forecasts, streams) = (&mut rig.forecasts, &mut rig.streams);
    rig.policies
        .stream_added(key, &descriptor, forecasts, streams);
    let row = rig.row("derived");
    assert!(
        !row["reason"].as_str().unwrap().contains("is its sentinel"),
        "{row}"
    );
}
