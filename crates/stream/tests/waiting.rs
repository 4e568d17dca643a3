//! Waiting on futexes across processes; looks and changes.

use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Quality, Sample, TEXT_BYTES_MAX, Value, ValueType};
use barograph_stream::{
    LatestSample, Segment, SegmentConfig, SegmentReader, WAKE_BITS, WaitOutcome,
};

use crate::child;
use crate::pattern::descriptor;

fn segment(dir: &tempfile::TempDir) -> Segment {
    Segment::create(&dir.path().join("segment"), SegmentConfig::new("n1"), 1).unwrap()
}

#[test]
fn a_waiter_in_another_process_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let stream = descriptor("a.bytes", ValueType::Int);
    let mut writer = segment.register(&stream, None, 1).unwrap();
    let waiter = child::start("waiter", &dir.path().join("segment"));
    writer.append(&Sample::measured(1, 1)).unwrap();
    segment.wake(writer.wake_bit());
    let output = waiter.wait_with_output().unwrap();
    assert!(output.status.success());
}

#[test]
fn a_wake_up_of_another_stream_of_the_same_word_is_no_news() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let mut writers: Vec<_> = (0..=WAKE_BITS)
        .map(|i| {
            let stream = descriptor(&format!("s{i}.bytes"), ValueType::Int);
            segment.register(&stream, Some(2), 1).unwrap()
        })
        .collect();
    assert_eq!(writers[0].wake_bit(), writers[WAKE_BITS].wake_bit());
    let reader = segment.reader().unwrap();
    let handle = reader.stream(&reader.directory().entries[0]);
    let waiter = std::thread::spawn(move || {
        let woken = handle.wait(0, Duration::from_secs(120));
        (woken, handle.count())
    });
    writers[WAKE_BITS].append(&Sample::measured(1, 1)).unwrap();
    segment.wake(u32::MAX);
    writers[0].append(&Sample::measured(1, 1)).unwrap();
    segment.wake(u32::MAX);
    assert_eq!(waiter.join().unwrap(), (WaitOutcome::News, Some(1)));
}

#[test]
fn a_waiter_learns_that_its_stream_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let stream = descriptor("a.bytes", ValueType::Int);
    let writer = segment.register(&stream, None, 1).unwrap();
    let reader = segment.reader().unwrap();
    let handle = reader.stream(&reader.directory().entries[0]);
    let waiter = std::thread::spawn(move || handle.wait(0, Duration::from_secs(120)));
    segment.retire(writer);
    assert_eq!(waiter.join().unwrap(), WaitOutcome::Gone);
}

#[test]
fn only_changes_are_appended_and_every_look_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let stream = descriptor("a.ratio", ValueType::Float);
    let mut writer = segment.register(&stream, None, 1).unwrap();
    let reader = segment.reader().unwrap();
    let handle = reader.stream(&reader.directory().entries[0]);
    let mut check = |sample: Sample, appended: bool, count: u64, ts: i64| {
        assert_eq!(writer.look(&sample).unwrap(), appended, "{sample:?}");
        let LatestSample::Sample {
            sample: newest,
            looked_ns,
            count: found,
        } = handle.latest()
        else {
            panic!("it was looked at");
        };
        let expect = (count, ts, sample.ts.max(ts));
        assert_eq!((found, newest.ts, looked_ns), expect, "{sample:?}");
    };
    check(Sample::measured(10, 1.0), true, 1, 10);
    check(Sample::measured(20, 1.0), false, 1, 10);
    check(Sample::measured(30, 2.0), true, 2, 30);
    check(Sample::derived(40, 2.0), true, 3, 40);
    let wider = Sample {
        error: 0.5,
        ..Sample::derived(50, 2.0)
    };
    check(wider.clone(), true, 4, 50);
    check(Sample { ts: 60, ..wider }, false, 4, 50);
    check(Sample::measured(70, f64::NAN), true, 5, 70);
    check(Sample::measured(80, f64::NAN), false, 5, 70);
    check(Sample::measured(90, 0.0), true, 6, 90);
    check(Sample::measured(100, -0.0), true, 7, 100);
    // The clock was set back: the look is recorded, but never before the value.
    check(Sample::measured(95, -0.0), false, 7, 100);
}

#[test]
fn texts_change_by_their_content_and_are_cut_at_a_character() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let stream = descriptor("a.name", ValueType::Text);
    let mut writer = segment.register(&stream, Some(2), 1).unwrap();
    let reader = segment.reader().unwrap();
    let handle = reader.stream(&reader.directory().entries[0]);
    let long: Arc<str> = "€".repeat(100).into();
    let mut check = |text: Arc<str>, appended: bool, expect: &str| {
        let sample = Sample {
            ts: 1,
            value: Value::Text(text),
            quality: Quality::Measured,
            error: 0.0,
        };
        assert_eq!(writer.look(&sample).unwrap(), appended);
        let LatestSample::Sample { sample, .. } = handle.latest() else {
            panic!("it was looked at");
        };
        assert_eq!(sample.value, Value::Text(expect.into()));
    };
    check("".into(), true, "");
    check("".into(), false, "");
    check("ab".into(), true, "ab");
    check("ba".into(), true, "ba");
    check("ba".into(), false, "ba");
    check("12345678".into(), true, "12345678");
    check(Arc::clone(&long), true, &"€".repeat(TEXT_BYTES_MAX / 3));
    check(Arc::clone(&long), false, &"€".repeat(TEXT_BYTES_MAX / 3));
    check("x".into(), true, "x");
}

#[test]
fn long_values_are_kept_whole_up_to_what_is_declared() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let text = |length: usize| Value::Text("é".repeat(length / 2).into());
    let bytes = |length: usize| Value::Bytes(vec![7; length].into());
    let json = |length: usize| Value::Json(format!("[{}]", " ".repeat(length - 2)).into());
    let floats = |length: usize| Value::Floats(vec![f64::NAN; length / 8].into());
    let most = Some(u32::MAX);
    for (at, (value, bytes_max, holds, depth)) in [
        (text(65_536), most, true, 16),
        (text(130), Some(129), true, 128),
        (bytes(4_096), None, true, 128),
        (bytes(4_097), None, false, 128),
        (bytes(0), Some(1), true, 128),
        (bytes(65_536), most, true, 16),
        (bytes(65_537), most, false, 16),
        (json(8_192), Some(8_000), true, 31),
        (json(8_193), Some(8_000), false, 31),
        (floats(65_536), most, true, 16),
        (floats(65_544), most, false, 16),
        (floats(0), most, true, 16),
    ]
    .into_iter()
    .enumerate()
    {
        let stream = descriptor(&format!("a{at}.value"), value.value_type());
        let writer = segment.register_sized(&stream, None, bytes_max, 1);
        let mut writer = writer.unwrap();
        assert!(
            writer.depth() == depth || depth == 128,
            "{at}: {}",
            writer.depth()
        );
        let sample = Sample::measured(1, 0).with(value);
        assert_eq!(writer.append(&sample).is_ok(), holds, "{at}");
        if !holds {
            continue;
        }
        // The same value again, NaN by NaN, is not a change.
        assert!(!writer.look(&sample).unwrap(), "{at}");
        let reader = segment.reader().unwrap();
        let entry = reader.directory().entries.pop().unwrap();
        assert_eq!(entry.value_bytes_max as usize, writer.value_bytes_max());
        let LatestSample::Sample { sample: found, .. } = reader.stream(&entry).latest() else {
            panic!("it was written");
        };
        assert_eq!(found.value.to_string(), sample.value.to_string());
        assert_eq!(found.value.bytes(), sample.value.bytes());
    }
    // A text is cut at a character, not refused.
    let stream = descriptor("long.text", ValueType::Text);
    let mut writer = segment.register_sized(&stream, None, Some(200), 1).unwrap();
    let long = Sample::measured(1, 0).with(Value::Text("€".repeat(100).into()));
    writer.append(&long).unwrap();
    let reader = segment.reader().unwrap();
    let entry = reader.directory().entries.pop().unwrap();
    let LatestSample::Sample { sample, .. } = reader.stream(&entry).latest() else {
        panic!("it was written");
    };
    assert_eq!(sample.value, Value::Text("€".repeat(85).into()));
}

/// Replaces the value of a sample.
trait With {
    fn with(self, value: Value) -> Self;
}

impl With for Sample {
    fn with(self, value: Value) -> Self {
        Self { value, ..self }
    }
}

#[test]
fn one_word_tells_of_every_stream_and_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let reader = segment.reader().unwrap();
    let moved = |what: &str, seen: u32| {
        assert_ne!(reader.tick(), seen, "{what} is not told");
        // The tick has already changed: this must not sleep.
        reader.wait_tick(seen, Duration::from_secs(600));
        reader.tick()
    };
    let tick = reader.tick();
    let mut writer = segment
        .register(&descriptor("a.bytes", ValueType::Int), None, 1)
        .unwrap();
    let tick = moved("a stream that comes", tick);
    writer.look(&Sample::measured(1, 1)).unwrap();
    segment.wake(0);
    assert_eq!(reader.tick(), tick, "nothing changed, nobody is woken");
    let sleeper = std::thread::spawn({
        let reader = reader.clone();
        move || {
            while reader.tick() == tick {
                reader.wait_tick(tick, Duration::from_secs(600));
            }
        }
    });
    segment.wake(writer.wake_bit());
    sleeper.join().unwrap();
    let tick = moved("a sample", tick);
    segment.retire(writer);
    let tick = moved("a stream that goes", tick);
    segment.close();
    moved("the end", tick);
}

#[test]
fn a_tick_of_any_segment_ends_a_sleep_over_several() {
    let dir = tempfile::tempdir().unwrap();
    let segments: Vec<Segment> = (0..3)
        .map(|i| {
            let path = dir.path().join(format!("segment{i}"));
            Segment::create(&path, SegmentConfig::new("n1"), 1).unwrap()
        })
        .collect();
    let readers: Vec<SegmentReader> = segments.iter().map(|s| s.reader().unwrap()).collect();
    let seen = |readers: &[SegmentReader]| -> Vec<u32> {
        readers.iter().map(SegmentReader::tick).collect()
    };
    for segment in &segments {
        let before = seen(&readers);
        let sleeper = std::thread::spawn({
            let (readers, before) = (readers.clone(), before.clone());
            move || {
                let ticks: Vec<_> = readers.iter().zip(before.iter().copied()).collect();
                while seen(&readers) == before {
                    SegmentReader::wait_ticks(&ticks, Duration::from_secs(600));
                }
            }
        });
        segment.wake(1);
        sleeper.join().unwrap();
        // A tick has already changed: this must not sleep.
        let ticks: Vec<_> = readers.iter().zip(before).collect();
        SegmentReader::wait_ticks(&ticks, Duration::from_secs(600));
    }
}
