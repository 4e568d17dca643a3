//! Tests of samples that are appended although nothing changed, and of lives.

use barograph_model::{Kind, Labels, ManualClock, NS_PER_S, Name, Unit, ValueType};
use barograph_stream::SegmentConfig;

use super::*;

const REPEAT_NS: i64 = 240 * NS_PER_S;

/// One stream in a segment of its own. Tests change it and count the samples in its ring.
struct Bench {
    _dir: tempfile::TempDir,
    clock: ManualClock,
    segment: Option<Segment>,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let segment = Segment::create(&path, SegmentConfig::new("n"), 1).unwrap();
        Self {
            _dir: dir,
            clock: ManualClock::at(1_000 * NS_PER_S),
            segment: Some(segment),
        }
    }

    fn streams(&mut self) -> Streams<'_> {
        let segment = self.segment.take().unwrap();
        Streams::new(segment, &self.clock, None, REPEAT_NS)
    }
}

fn declare(streams: &mut Streams<'_>, value_type: ValueType) -> StreamKey {
    let descriptor = Descriptor {
        name: Name::new("a.b").unwrap(),
        labels: Labels::none(),
        value_type,
        unit: Unit::new("").unwrap(),
        kind: Kind::State,
        help: String::new(),
    };
    streams.declare(&descriptor, None).unwrap()
}

fn count(streams: &Streams<'_>, key: StreamKey) -> u64 {
    streams.live[key.0 as usize]
        .as_ref()
        .unwrap()
        .writer
        .count()
}

fn sample(s: i64, value: i64) -> Sample {
    Sample::measured(s * NS_PER_S, value)
}

#[test]
fn a_value_that_holds_is_appended_again_and_is_no_change() {
    let mut bench = Bench::new();
    let mut streams = bench.streams();
    let key = declare(&mut streams, ValueType::Int);
    for (s, value, changed, expect) in [
        (1_000, 7, true, 1),
        (1_001, 7, false, 1),
        (1_239, 7, false, 1),
        (1_240, 7, false, 2),
        (1_241, 7, false, 2),
        (1_242, 8, true, 3),
        (1_480, 8, false, 3),
        (1_482, 8, false, 4),
        // The clock was set back.
        (900, 8, false, 5),
        (901, 8, false, 5),
    ] {
        assert_eq!(streams.look(key, &sample(s, value)), changed, "at {s}");
        assert_eq!(count(&streams, key), expect, "at {s}");
    }
}

#[test]
fn what_is_only_confirmed_is_appended_again_too() {
    let mut bench = Bench::new();
    let mut streams = bench.streams();
    let key = declare(&mut streams, ValueType::Text);
    streams.confirm(key, 999 * NS_PER_S);
    assert_eq!(count(&streams, key), 0, "there is nothing to repeat");
    let text = Sample::measured(1_000 * NS_PER_S, Value::text("calm"));
    streams.put(key, &text);
    for (s, expect) in [(1_239, 1), (700, 1), (1_240, 2), (1_241, 2), (1_480, 3)] {
        streams.confirm(key, s * NS_PER_S);
        assert_eq!(count(&streams, key), expect, "at {s}");
    }
    let newest = streams.live[0].as_ref().unwrap().newest.clone().unwrap();
    assert_eq!((newest.ts, newest.value), (1_480 * NS_PER_S, text.value));
}

#[test]
fn until_when_a_value_held_is_appended_before_its_stream_ends() {
    let mut bench = Bench::new();
    let mut streams = bench.streams();
    let key = declare(&mut streams, ValueType::Int);
    streams.settle_all();
    assert_eq!(count(&streams, key), 0, "nobody has looked");
    for s in [1_000, 1_001, 1_090] {
        streams.put(key, &sample(s, 7));
    }
    for expect in [2, 2] {
        streams.settle_all();
        assert_eq!(count(&streams, key), expect);
        assert_eq!(streams.newest(key), Some(&sample(1_090, 7)));
    }
    streams.put(key, &sample(1_091, 8));
    streams.settle_all();
    assert_eq!(count(&streams, key), 3, "it was appended at that look");
    streams.expect_interval(key, 10 * NS_PER_S);
    for _ in 0..2 {
        streams.settle_all();
        assert_eq!(
            count(&streams, key),
            4,
            "of what is looked at, it is said that it ends"
        );
    }
    assert_eq!(streams.newest(key).unwrap().quality, Quality::Ended);
}

#[test]
fn an_hour_says_by_itself_how_long_values_held() {
    let mut bench = Bench::new();
    let mut streams = bench.streams();
    let key = declare(&mut streams, ValueType::Int);
    streams.expect_interval(key, 10 * NS_PER_S);
    let mut put = |s: i64, value: i64| {
        let before = count(&streams, key);
        streams.put(key, &sample(s, value));
        count(&streams, key) - before
    };
    assert_eq!([put(3_580, 7), put(3_590, 7)], [1, 0]);
    // One sample ends the value in the hour before, and one shows that it still holds.
    assert_eq!([put(3_600, 7), put(3_610, 7)], [2, 0]);
    (3_620..7_190).step_by(10).for_each(|s| _ = put(s, 7));
    // The last look was already appended.
    assert_eq!([put(7_190, 8), put(7_200, 8), put(7_210, 9)], [1, 1, 1]);
}

#[test]
fn an_interval_that_has_become_shorter_is_none_that_was_missed() {
    let mut bench = Bench::new();
    let mut streams = bench.streams();
    let key = declare(&mut streams, ValueType::Int);
    streams.expect_interval(key, 10 * NS_PER_S);
    streams.put(key, &sample(1_000, 7));
    streams.expect_interval(key, NS_PER_S);
    streams.put(key, &sample(1_010, 7));
    assert_eq!(count(&streams, key), 1);
    streams.put(key, &sample(1_015, 7));
    assert_eq!(count(&streams, key), 3);
}

#[test]
fn it_is_said_when_nobody_looked() {
    let mut bench = Bench::new();
    let mut streams = bench.streams();
    let key = declare(&mut streams, ValueType::Int);
    let newest = |streams: &Streams<'_>| streams.newest(key).cloned().unwrap();
    for s in [1_000, 1_001, 1_090] {
        streams.put(key, &sample(s, 7));
    }
    assert_eq!(count(&streams, key), 1, "nobody said when it is looked at");
    streams.expect_interval(key, 10 * NS_PER_S);
    // A look that is late is not a look that is missing.
    for (s, value, expect) in [(1_100, 7, 1), (1_130, 7, 1), (1_161, 7, 3), (1_200, 8, 5)] {
        streams.put(key, &sample(s, value));
        assert_eq!(count(&streams, key), expect, "at {s}");
    }
    streams.confirm(key, 1_240 * NS_PER_S);
    assert_eq!(count(&streams, key), 7);
    assert_eq!(newest(&streams), sample(1_240, 8));
    // The clock was set back, and forward.
    streams.put(key, &sample(1_220, 8));
    streams.confirm(key, 1_250 * NS_PER_S);
    assert_eq!(count(&streams, key), 7);
    for _ in 0..2 {
        streams.settle_all();
        assert_eq!(count(&streams, key), 8);
        assert_eq!(newest(&streams).quality, Quality::Ended);
    }
}

#[test]
fn a_later_life_has_a_later_name() {
    let mut bench = Bench::new();
    let mut streams = bench.streams();
    let key = declare(&mut streams, ValueType::Int);
    let first = streams.newest_life;
    streams.retire(key);
    // The clock stands still: a stream that is registered anew has a new life all the same.
    let again = declare(&mut streams, ValueType::Int);
    assert_eq!(again, key, "keys are used again");
    assert_eq!(streams.newest_life, first + 1);
    assert_eq!(count(&streams, again), 0);
}
