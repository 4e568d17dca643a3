//! Tests of the poller on a manual clock, with fake sources.

mod slow;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_model::{
    Clock, Descriptor, Labels, ManualClock, NS_PER_MS, NS_PER_S, Name, Sample, Unit, ValueType,
};
use barograph_source::policy::{Aimd, IntervalPolicy};
use barograph_source::{
    ABSENT_NS, FactId, MissingPart, Poller, STALL_NS, Source, SourceBatch, SourceCoverage,
    SourceError, SourceReport, SourceState, SourcesConfig,
};

use crate::support::{Map, Tree};

/// Longest wait of a test for another thread before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

fn descriptor(source: &'static str, fact: &str) -> Descriptor {
    Descriptor {
        labels: Labels::new([("source", source), ("fact", fact)]).unwrap(),
        ..Descriptor::gauge(
            Name::new("fake.count").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        )
    }
}

/// A source that gives `value` after running `during`, and fails if the value is negative.
pub(crate) struct Fake {
    name: &'static str,
    facts: Option<(FactId, FactId)>,
    pub value: Arc<AtomicI64>,
    pub during: Box<dyn FnMut() + Send>,
    slow: bool,
    stall_ns: i64,
    missing: Vec<MissingPart>,
    is_absent: Arc<AtomicBool>,
}

impl Fake {
    pub(crate) fn new(name: &'static str) -> Self {
        let value = Arc::new(AtomicI64::new(1));
        let during = Box::new(|| {});
        Self {
            name,
            facts: None,
            value,
            during,
            slow: false,
            stall_ns: STALL_NS,
            missing: Vec::new(),
            is_absent: Arc::default(),
        }
    }

    pub(crate) fn boxed(self) -> Box<dyn Source> {
        Box::new(self)
    }
}

impl Source for Fake {
    fn name(&self) -> &'static str {
        self.name
    }

    fn is_slow(&self) -> bool {
        self.slow
    }

    fn stall_ns(&self) -> i64 {
        self.stall_ns
    }

    fn is_absent(&self) -> bool {
        self.is_absent.load(Ordering::SeqCst)
    }

    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError> {
        (self.during)();
        let value = self.value.load(Ordering::SeqCst);
        if value < 0 {
            return Err(SourceError::TooMany {
                what: "things",
                refused: 1,
                max: 1,
            });
        }
        if self.is_absent() {
            return Ok(());
        }
        let (changing, rare) = *self.facts.get_or_insert_with(|| {
            let rare = descriptor(self.name, "rare");
            let changing = batch.declare(descriptor(self.name, "changing"), None);
            (changing, batch.declare_every(rare, None, 60 * NS_PER_S))
        });
        if value > 0 {
            batch.put(changing, Sample::measured(now_ns, value));
            batch.put(rare, Sample::measured(now_ns, value));
        }
        Ok(())
    }

    fn report(&self) -> SourceCoverage {
        SourceCoverage {
            sees: "what it is told".to_owned(),
            missing: self.missing.clone(),
        }
    }
}

pub(crate) fn fixed(seconds: i64) -> IntervalPolicy {
    IntervalPolicy::Fixed {
        interval_ns: seconds * NS_PER_S,
    }
}

pub(crate) struct Bench {
    pub clock: Arc<ManualClock>,
    pub poller: Poller,
    pub map: Map,
}

impl Bench {
    pub(crate) fn new(sources: Vec<(Box<dyn Source>, IntervalPolicy)>) -> Self {
        Self::at(Arc::new(ManualClock::at(1000 * NS_PER_S)), sources)
    }

    pub(crate) fn at(
        clock: Arc<ManualClock>,
        sources: Vec<(Box<dyn Source>, IntervalPolicy)>,
    ) -> Self {
        let poller = Poller::with_sources(sources, clock.clone());
        Self {
            clock,
            poller,
            map: Map::default(),
        }
    }

    pub(crate) fn run(&mut self) -> usize {
        self.poller.run_due(&mut self.map)
    }

    /// Advances the clock to the next deadline and runs.
    pub(crate) fn step(&mut self) -> usize {
        let wait_ns = self.poller.next_deadline_ns() - self.clock.monotonic_ns();
        self.clock.advance(wait_ns.max(0));
        self.run()
    }

    /// Waits until a slow source has read.
    pub(crate) fn wait_for_batch(&self) {
        assert!(self.poller.wait_for_batch(PATIENCE));
    }

    pub(crate) fn own(&self, fact: &str, source: &str) -> Option<f64> {
        self.map
            .newest(&format!("source.{fact}{{source={source}}}"))
    }

    pub(crate) fn report(&self, source: &str) -> SourceReport {
        self.poller
            .reports()
            .into_iter()
            .find(|r| r.source == source)
            .unwrap()
    }
}

pub(crate) const A: &str = "fake.count{fact=changing,source=a}";
pub(crate) const B: &str = "fake.count{fact=changing,source=b}";

#[test]
fn each_source_has_its_own_rhythm() {
    let mut bench = Bench::new(vec![
        (Fake::new("a").boxed(), fixed(1)),
        (Fake::new("b").boxed(), fixed(3)),
    ]);
    assert_eq!(bench.run(), 2, "all are due at once");
    assert_eq!(bench.run(), 0);
    for _ in 0..6 {
        bench.step();
    }
    assert_eq!(
        (bench.map.samples(A).len(), bench.map.samples(B).len()),
        (7, 3)
    );
    assert_eq!(bench.own("polls.count", "a"), Some(7.0));
    assert_eq!(bench.own("interval.seconds", "b"), Some(3.0));
    assert_eq!(bench.map.interval(A), Some(NS_PER_S));
    assert_eq!(
        bench.map.interval("fake.count{fact=rare,source=a}"),
        Some(60 * NS_PER_S)
    );
    assert_eq!(
        bench.map.interval("source.up.flag{source=b}"),
        Some(3 * NS_PER_S)
    );
}

#[test]
fn deadlines_do_not_drift_and_missed_ones_are_counted() {
    let clock = Arc::new(ManualClock::at(1000 * NS_PER_S));
    let mut fake = Fake::new("a");
    let theirs = clock.clone();
    fake.during = Box::new(move || theirs.advance(NS_PER_S / 10));
    let mut bench = Bench::at(clock, vec![(fake.boxed(), fixed(1))]);
    let start_ns = bench.clock.monotonic_ns();
    bench.run();
    assert_eq!(bench.poller.next_deadline_ns(), start_ns + NS_PER_S);
    // The loop is 2.5 s late: two deadlines have passed without a poll, and the rhythm stays.
    bench
        .clock
        .advance(start_ns + NS_PER_S * 7 / 2 - bench.clock.monotonic_ns());
    assert_eq!(bench.run(), 1);
    assert_eq!(bench.poller.next_deadline_ns(), start_ns + 4 * NS_PER_S);
    assert_eq!(bench.own("skew.seconds", "a"), Some(2.5));
    assert_eq!(bench.own("missed.count", "a"), Some(2.0));
    let cost = bench.own("cost.seconds", "a").unwrap();
    assert!((cost - 0.2).abs() < 1e-9, "{cost}");
    assert_eq!(bench.report("a").cost_ns_mean, NS_PER_S / 10);
}

#[test]
fn a_read_longer_than_its_interval_does_not_hold_the_loop() {
    let clock = Arc::new(ManualClock::at(0));
    let mut fake = Fake::new("a");
    let theirs = clock.clone();
    fake.during = Box::new(move || theirs.advance(5 * NS_PER_S));
    let sources = vec![(fake.boxed(), fixed(1)), (Fake::new("b").boxed(), fixed(1))];
    let mut bench = Bench::at(clock, sources);
    for _ in 0..6 {
        let read = bench.step();
        assert!((1..=2).contains(&read), "each at most once in a run");
    }
    let count = |stream| bench.map.samples(stream).len();
    assert!(count(A) >= 3 && count(B) >= count(A));
}

#[test]
fn adaptive_sources_follow_their_most_eager_stream() {
    let aimd = Aimd {
        start_ns: NS_PER_S,
        min_ns: NS_PER_S,
        max_ns: 4 * NS_PER_S,
        add_ns: NS_PER_S,
        multiply: 0.5,
        threshold: 0.1,
    };
    let fake = Fake::new("a");
    let value = fake.value.clone();
    let mut bench = Bench::new(vec![(fake.boxed(), IntervalPolicy::AimdSimple(aimd))]);
    for _ in 0..6 {
        bench.step();
    }
    assert_eq!(
        bench.map.interval(A),
        Some(4 * NS_PER_S),
        "a constant relaxes to the bound"
    );
    assert_eq!(bench.own("interval.seconds", "a"), Some(4.0));
    value.store(100, Ordering::SeqCst);
    bench.step();
    assert_eq!(bench.map.interval(A), Some(2 * NS_PER_S));
    let now_ns = bench.clock.monotonic_ns();
    assert_eq!(bench.poller.next_deadline_ns(), now_ns + 2 * NS_PER_S);
    let rare = bench.map.interval("fake.count{fact=rare,source=a}");
    assert_eq!(rare, Some(60 * NS_PER_S), "attributes keep their own");
}

#[test]
fn a_failing_source_is_data() {
    let fake = Fake::new("a");
    let value = fake.value.clone();
    let mut bench = Bench::new(vec![(fake.boxed(), fixed(1))]);
    bench.run();
    assert_eq!(
        (bench.own("up.flag", "a"), bench.report("a").state),
        (Some(1.0), SourceState::Ok)
    );
    value.store(-1, Ordering::SeqCst);
    bench.step();
    assert_eq!(
        (bench.own("up.flag", "a"), bench.own("errors.count", "a")),
        (Some(0.0), Some(1.0))
    );
    let report = bench.report("a");
    assert_eq!((report.state, report.errors), (SourceState::Down, 1));
    assert!(report.last_error.unwrap().contains("things"));
    value.store(1, Ordering::SeqCst);
    bench.step();
    let report = bench.report("a");
    assert_eq!(
        (report.state, report.errors, report.polls),
        (SourceState::Ok, 1, 3)
    );
    assert!(
        report.last_error.is_some(),
        "the newest fault is remembered"
    );
}

#[test]
fn states_of_what_is_missing() {
    let with_missing = |name, value: i64| {
        let mut fake = Fake::new(name);
        fake.missing = vec![MissingPart::new("a thing", "it is not here", "bring it")];
        fake.value.store(value, Ordering::SeqCst);
        fake.boxed()
    };
    let mut bench = Bench::new(vec![
        (with_missing("a", 1), fixed(1)),
        (with_missing("b", 0), fixed(1)),
    ]);
    bench.run();
    assert_eq!(bench.report("a").state, SourceState::Partial);
    assert_eq!(bench.report("b").state, SourceState::Unavailable);
    let json = serde_json::to_value(bench.report("b")).unwrap();
    let keys: Vec<_> = json
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let mut expect = vec![
        "source",
        "state",
        "sees",
        "streams",
        "missing",
        "polls",
        "errors",
        "cost_ns_mean",
        "interval_ns",
        "pace",
        "last_error",
    ];
    expect.sort_unstable();
    let mut keys = keys;
    keys.sort_unstable();
    assert_eq!(keys, expect);
    assert_eq!(json["state"], "unavailable");
    assert_eq!(json["missing"][0]["remedy"], "bring it");
}

#[test]
fn streams_that_the_sink_refuses_are_reported() {
    let mut bench = Bench::new(vec![(Fake::new("a").boxed(), fixed(1))]);
    bench.map.room = Some(1);
    bench.run();
    let report = bench.report("a");
    assert_eq!((report.streams, report.state), (1, SourceState::Partial));
    assert!(report.missing[0].what.starts_with("1 stream"), "{report:?}");
}

#[test]
fn what_this_machine_does_not_have_is_looked_for_seldom() {
    let mut fake = Fake::new("a");
    fake.missing = vec![MissingPart::new("a thing", "it is not here", "bring it")];
    fake.value.store(0, Ordering::SeqCst);
    fake.is_absent.store(true, Ordering::SeqCst);
    let (value, is_absent) = (fake.value.clone(), fake.is_absent.clone());
    let mut bench = Bench::new(vec![(fake.boxed(), fixed(1))]);
    let start_ns = bench.clock.monotonic_ns();
    bench.run();
    let check = |bench: &Bench, after_ns, state, up| {
        let report = bench.report("a");
        assert_eq!((report.interval_ns, report.state), (after_ns, state));
        let seconds = after_ns as f64 / NS_PER_S as f64;
        assert_eq!(bench.own("interval.seconds", "a"), Some(seconds));
        assert_eq!(bench.own("up.flag", "a"), Some(up));
        let next_ns = bench.poller.next_deadline_ns() - bench.clock.monotonic_ns();
        assert_eq!(next_ns, after_ns);
    };
    check(&bench, ABSENT_NS, SourceState::Unavailable, 1.0);
    bench.step();
    assert_eq!(bench.clock.monotonic_ns(), start_ns + ABSENT_NS);
    // A read that fails does not show that there is nothing.
    value.store(-1, Ordering::SeqCst);
    bench.step();
    check(&bench, NS_PER_S, SourceState::Down, 0.0);
    value.store(1, Ordering::SeqCst);
    is_absent.store(false, Ordering::SeqCst);
    bench.step();
    check(&bench, NS_PER_S, SourceState::Partial, 1.0);
    assert_eq!(bench.map.interval(A), Some(NS_PER_S));
}

/// A slow source whose reads wait for a signal and report their start.
pub(crate) fn gated(name: &'static str) -> (Fake, Receiver<()>, SyncSender<()>) {
    let (begun_tx, begun) = sync_channel(64);
    let (go, go_rx) = sync_channel::<()>(64);
    let go_rx = Mutex::new(go_rx);
    let mut fake = Fake::new(name);
    fake.slow = true;
    fake.during = Box::new(move || {
        begun_tx.send(()).unwrap_or_default();
        // When the test is over, the read ends at once.
        let _ = go_rx.lock().unwrap().recv();
    });
    (fake, begun, go)
}

/// No source of the machine is down: an absent interface is no failure.
#[test]
fn all_sources_of_an_empty_machine() {
    let config = Tree::of("empty").config();
    let clock = Arc::new(ManualClock::at(1000 * NS_PER_S));
    let mut poller = Poller::new(&config, clock);
    let mut map = Map::default();
    poller.run_due(&mut map);
    while poller.reports().iter().any(|report| report.polls == 0) {
        assert!(poller.wait_for_batch(PATIENCE));
        poller.run_due(&mut map);
    }
    for report in poller.reports() {
        assert_eq!(report.state, SourceState::Unavailable, "{report:?}");
        let up = map.newest(&format!("source.up.flag{{source={}}}", report.source));
        assert_eq!(up, Some(1.0), "{report:?}");
    }
    poller.stop();
}

/// A late loop, and a source that comes and goes, do not give a source moments of its own.
#[test]
fn sources_stay_due_together() {
    let clock = Arc::new(ManualClock::at(1000 * NS_PER_S));
    let mut fake = Fake::new("a");
    let is_absent = fake.is_absent.clone();
    let mut other = Fake::new("b");
    let theirs = clock.clone();
    other.during = Box::new(move || theirs.advance(NS_PER_MS));
    fake.slow = true;
    let mut bench = Bench::at(
        clock,
        vec![(other.boxed(), fixed(1)), (fake.boxed(), fixed(5))],
    );
    bench.poller = bench.poller.with_inline_reads();
    let start_ns = bench.clock.monotonic_ns();
    for second in 1..150 {
        is_absent.store((20..70).contains(&second), Ordering::SeqCst);
        bench.run();
        bench.clock.advance(3 * NS_PER_MS);
        bench.run();
        let next_ns = bench.poller.next_deadline_ns();
        assert_eq!(next_ns, start_ns + second * NS_PER_S);
        bench.clock.advance(next_ns - bench.clock.monotonic_ns());
    }
    assert_eq!(bench.own("missed.count", "a"), Some(0.0));
}

/// The sources whose interfaces this machine has.
const HERE: [&str; 8] = [
    "disk",
    "filesystem",
    "memory",
    "vm",
    "cpu",
    "pressure",
    "network",
    "cgroup",
];

/// All real sources of a fixture tree, through the poller, to the sink.
#[test]
fn all_sources_of_a_machine() {
    let tree = Tree::of("nvme-v2");
    let mut config: SourcesConfig = tree.config();
    for (name, poll) in &mut config.poll {
        poll.enabled = Some(HERE.contains(&name.as_str()));
    }
    // With a root other than `/`, a mount is the directory of its name below that root.
    std::fs::create_dir_all(tree.path().join("scratch")).unwrap();
    let clock = Arc::new(ManualClock::at(1000 * NS_PER_S));
    let mut poller = Poller::new(&config, clock.clone());
    let mut map = Map::default();
    poller.run_due(&mut map);
    let scratch =
        "filesystem.responding.flag{device=mapper/vg-scratch,fstype=xfs,mount=/scratch,tier=nvme}";
    // Slow sources hand over their results in any order.
    while map.newest(scratch).is_none() {
        assert!(poller.wait_for_batch(PATIENCE));
        poller.run_due(&mut map);
    }
    tree.advance();
    clock.advance(NS_PER_S);
    poller.run_due(&mut map);
    let busy = map.newest("disk.busy.ratio{device=nvme0n1}");
    assert_eq!(busy, Some(0.6));
    assert_eq!(map.newest("pressure.io.some.ratio"), Some(0.25));
    assert!(map.newest("memory.total.bytes").is_some());
    assert_eq!(map.newest(scratch), Some(1.0));
    let reports = poller.reports();
    assert_eq!(reports.len(), HERE.len());
    for report in reports {
        assert!(report.streams > 0 && report.polls > 0, "{report:?}");
        assert_eq!(
            map.newest(&format!("source.up.flag{{source={}}}", report.source)),
            Some(1.0)
        );
    }
    poller.stop();
}
