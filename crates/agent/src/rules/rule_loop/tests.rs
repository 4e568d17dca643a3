//! Tests of the loop of rules on a manual clock. Nothing here waits.

use std::collections::BTreeMap;
use std::sync::Mutex;

use barograph_model::{Clock, Descriptor, ManualClock, Name, Sample, StreamKey, Unit, ValueType};
use barograph_stream::{RULES_DOCUMENT, RunDir, Segment, SegmentConfig, StreamWriter};

use super::super::backfill::{FoundPast, LATE};
use super::super::past::PastReaders;
use super::super::{DeclaredRules, RuleAction};
use super::*;

/// An action that keeps what was fired, and fails if it is told to.
#[derive(Default)]
struct RecordedCalls(Mutex<(Vec<String>, bool)>);

impl RuleAction for RecordedCalls {
    fn fire(&self, firing: &Firing) -> Result<(), String> {
        let mut recorded = self.0.lock().unwrap();
        if recorded.1 {
            return Err("nobody is there".into());
        }
        recorded.0.push(firing.rule.clone());
        Ok(())
    }
}

/// A segment with one stream, and the loop of some rules beside it.
struct RuleRig {
    clock: Arc<ManualClock>,
    calls: Arc<RecordedCalls>,
    rules: DeclaredRules,
    rule_loop: RuleLoop,
    writer: StreamWriter,
    segment: Segment,
    run_dir: RunDir,
    _dir: tempfile::TempDir,
}

impl RuleRig {
    fn new(sql: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let clock = Arc::new(ManualClock::at(1_700_000_000 * NS_PER_S));
        let now_ns = clock.now_ns();
        let mut segment =
            Segment::create(&run_dir.segment(), SegmentConfig::new("n"), now_ns).unwrap();
        let level = Descriptor::gauge(
            Name::new("a.level").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        );
        let writer = segment.register(&level, Some(1_024), now_ns).unwrap();
        let calls = Arc::new(RecordedCalls::default());
        let kept = BTreeMap::from([("high".to_owned(), sql.to_owned())]);
        let theirs: Arc<dyn Clock> = clock.clone();
        let rules = DeclaredRules::new(&kept, &run_dir, &theirs, (calls.clone(), None), None);
        let rule_loop = rules.take_loop().unwrap();
        Self {
            clock,
            calls,
            rules,
            rule_loop,
            writer,
            segment,
            run_dir,
            _dir: dir,
        }
    }

    /// Appends a value, and does one step.
    fn put(&mut self, value: i64) -> Option<i64> {
        let now_ns = self.clock.now_ns();
        self.segment.heartbeat(now_ns);
        self.writer
            .append(&Sample::measured(now_ns, value))
            .unwrap();
        self.rule_loop.step()
    }

    /// Makes a step, and returns the time until the next one is due, in ms.
    fn rest_ms(&mut self) -> i64 {
        let next_ns = self.rule_loop.step().unwrap();
        (next_ns - self.clock.monotonic_ns()) / NS_PER_MS
    }

    fn fired(&self) -> usize {
        self.calls.0.lock().unwrap().0.len()
    }

    fn document(&self) -> Json {
        let bytes = self.run_dir.document(RULES_DOCUMENT).unwrap().unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }
}

const HIGH: &str = "CREATE RULE high WHEN latest('a.level') > 5 CALL 'x'";
const HIGH_FOR_LONG: &str = "CREATE RULE high WHEN avg_over('a.level', '60 s') > 5 CALL 'x'";

#[test]
fn a_rule_fires_when_its_condition_becomes_true() {
    let mut rig = RuleRig::new(HIGH);
    for (value, fired) in [(1, 0), (6, 1), (7, 1), (2, 1), (9, 2)] {
        rig.put(value);
        assert_eq!(rig.fired(), fired, "{value}");
        rig.clock.advance(NS_PER_S);
    }
    assert_eq!(rig.document()[0]["fired"], 2);
    assert_eq!(rig.rest_ms(), 250);
    rig.calls.0.lock().unwrap().1 = true;
    rig.put(0);
    rig.put(6);
    rig.clock.advance(NS_PER_S);
    rig.rule_loop.step();
    assert_eq!(rig.document()[0]["failed"], 1);
    assert_eq!(rig.document()[0]["reason"], "nobody is there");
}

#[test]
fn the_loop_ends_with_its_last_rule_and_another_begins_with_the_next() {
    let mut rig = RuleRig::new(HIGH);
    assert!(rig.put(6).is_some());
    let taken = rig.rules.take_loop();
    assert!(taken.is_none(), "one loop at a time");
    rig.rules.execute("DROP RULE high").unwrap();
    assert_eq!(rig.rule_loop.step(), None);
    rig.rules.execute(HIGH).unwrap();
    rig.rule_loop = rig.rules.take_loop().unwrap();
    rig.rule_loop.step();
    assert_eq!(rig.fired(), 2, "the new rule reads the newest sample");
    rig.rules.stop();
    assert_eq!(rig.rule_loop.step(), None);
}

#[test]
fn windows_are_filled_before_a_condition_is_computed() {
    let mut rig = RuleRig::new(HIGH_FOR_LONG);
    let start_ns = rig.clock.now_ns();
    for second in 0..120 {
        rig.writer
            .append(&Sample::measured(
                start_ns + second * NS_PER_S,
                second % 2 + 6,
            ))
            .unwrap();
    }
    rig.clock.advance(120 * NS_PER_S);
    rig.segment.heartbeat(rig.clock.now_ns());
    assert_eq!(
        rig.rest_ms(),
        2_000,
        "it waits for the past, and for nothing else"
    );
    let order = rig.rule_loop.take_order().unwrap();
    assert!(
        rig.rule_loop.take_order().is_none(),
        "each order is given once"
    );
    assert_eq!(rig.fired(), 0);
    let theirs: Arc<dyn Clock> = rig.clock.clone();
    let rule_loop = &mut rig.rule_loop;
    PastReaders::new(&theirs).read(order, &mut |found| {
        assert!(found[0].1.samples.len() > 60);
        rule_loop.apply(PastEvent::Found(found));
        true
    });
    rig.rule_loop.apply(PastEvent::Ended);
    rig.rule_loop.step();
    assert_eq!(rig.fired(), 1);
    assert_eq!(rig.document()[0]["reason"], "");
}

#[test]
fn a_past_that_is_late_is_not_waited_for_and_people_are_told() {
    let mut rig = RuleRig::new(HIGH_FOR_LONG);
    rig.put(6);
    let order = rig.rule_loop.take_order().unwrap();
    rig.clock.advance(2 * NS_PER_S);
    assert_eq!(rig.rest_ms(), 250);
    assert!(order.cancel.load(std::sync::atomic::Ordering::Relaxed));
    assert!(rig.document()[0]["reason"].as_str().unwrap().contains(LATE));
    // The answer that comes then has no effect.
    let late = vec![(StreamKey(0), FoundPast::lacking("another"))];
    rig.rule_loop.apply(PastEvent::Found(late));
    rig.clock.advance(NS_PER_S);
    rig.rule_loop.step();
    assert!(rig.document()[0]["reason"].as_str().unwrap().contains(LATE));
    // The end of the loop drops a request that is under way.
    rig.rules
        .execute(
            &HIGH_FOR_LONG
                .replace("60 s", "90 s")
                .replace("CREATE", "CREATE OR REPLACE"),
        )
        .unwrap();
    assert_eq!(rig.rest_ms(), 2_000);
    let order = rig.rule_loop.take_order().unwrap();
    rig.rules.stop();
    assert_eq!(rig.rule_loop.step(), None);
    drop(rig);
    assert!(order.cancel.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn streams_of_all_nodes_need_a_cluster_or_a_stream_of_that_name() {
    let mut rig = RuleRig::new(HIGH);
    let refusal = |rig: &RuleRig, sql: &str| rig.rules.execute(sql).err().map(|e| e.to_string());
    let reads = "CREATE RULE all.high WHEN latest('cluster.a.level{node=n}') > 5 CALL 'x'";
    let refused = refusal(&rig, reads).unwrap();
    assert!(refused.contains("this node is in none") && refused.contains("read a.level{node=n}"));
    assert!(
        refusal(&rig, "DROP RULE all.high")
            .unwrap()
            .contains("no rule")
    );
    // An application may publish a stream of such a name.
    let named = Descriptor {
        name: Name::new("cluster.a.level").unwrap(),
        ..Descriptor::gauge(
            Name::new("a").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        )
    };
    let now_ns = rig.clock.now_ns();
    rig.segment.register(&named, None, now_ns).unwrap();
    assert!(refusal(&rig, reads).is_some(), "it has no such label");
    assert_eq!(refusal(&rig, &reads.replace("{node=n}", "")), None);
}
