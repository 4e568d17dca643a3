//! Slots and rings that are reused while readers look: none ever sees a value of another stream.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Sample, Value, ValueType};
use barograph_stream::{LatestSample, Segment, SegmentConfig, SegmentReader, WaitOutcome};

use crate::pattern::{descriptor, mix, rounds};

/// Value `i` of stream number `life`; its text contains both.
fn marked(life: u64, i: u64) -> Sample {
    Sample {
        value: Value::text(&format!("{life}:{i}:{:0100}", mix(life))),
        ..Sample::measured((life << 16 | i) as i64, 0)
    }
}

#[test]
fn a_reader_never_sees_another_streams_value() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    let config = SegmentConfig {
        streams_max: 3,
        depth_default: 4,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(&path, config, 1).unwrap();
    let done = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| read_until(&path, &done)))
            .collect();
        for life in 1..=rounds(6_000, 200_000) {
            let stream = descriptor(&format!("life{life}.name"), ValueType::Text);
            let mut writer = segment.register(&stream, None, life as i64).unwrap();
            for i in 1..=40 {
                writer.append(&marked(life, i)).unwrap();
            }
            if life % 64 == 0 {
                std::thread::yield_now();
            }
            if life % 16 == 0 {
                segment.give_memory_back();
            }
            segment.retire(writer);
        }
        done.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .map(|r| r.join().unwrap())
            .sum::<usize>()
    });
    assert!(seen > 0, "the readers saw something of it");
}

fn read_until(path: &std::path::Path, done: &AtomicBool) -> usize {
    let reader = SegmentReader::open(path).unwrap();
    let (mut seen, mut samples) = (0, Vec::new());
    while !done.load(Ordering::Relaxed) {
        for entry in reader.directory().entries {
            let name = entry.descriptor.name.as_str();
            let life: u64 = name[4..name.len() - 5].parse().unwrap();
            assert_eq!(entry.series, entry.descriptor.series_id(), "{name}");
            assert_eq!(entry.created_ns, life as i64, "{name}");
            let handle = reader.stream(&entry);
            let mut cursor = 0;
            loop {
                match handle.latest() {
                    LatestSample::Gone => break,
                    LatestSample::Empty => {}
                    LatestSample::Sample {
                        sample,
                        looked_ns,
                        count,
                    } => {
                        assert_eq!(sample, marked(life, count));
                        assert_eq!(looked_ns, sample.ts, "a look of another sample");
                        seen += 1;
                    }
                }
                samples.clear();
                let Some(scan) = handle.scan(cursor, &mut samples) else {
                    break;
                };
                for (sample, number) in samples.iter().zip(cursor + scan.lost + 1..) {
                    assert_eq!(*sample, marked(life, number));
                }
                cursor = scan.cursor;
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
    }
    seen
}

#[test]
fn generations_come_round_and_skip_zero() {
    let dir = tempfile::tempdir().unwrap();
    let config = SegmentConfig {
        streams_max: 1,
        depth_default: 2,
        ring_bytes_max: 1 << 12,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(&dir.path().join("segment"), config, 1).unwrap();
    let reader = segment.reader().unwrap();
    let stream = descriptor("a.bytes", ValueType::Int);
    let mut expect: u16 = 0;
    let mut last = None;
    for life in 0..u64::from(u16::MAX) + 10 {
        expect = expect.checked_add(1).unwrap_or(1);
        let mut writer = segment.register(&stream, None, 1).unwrap();
        writer
            .append(&Sample::measured(life as i64, life as i64))
            .unwrap();
        let entry = reader.directory().entries.remove(0);
        assert_eq!((entry.slot, entry.generation), (0, expect));
        let handle = reader.stream(&entry);
        let LatestSample::Sample { sample, count, .. } = handle.latest() else {
            panic!("written just now");
        };
        assert_eq!((sample.value, count), (Value::Int(life as i64), 1));
        segment.retire(writer);
        assert_eq!(handle.latest(), LatestSample::Gone);
        assert_eq!(handle.looked_ns(), 0);
        assert_eq!(reader.interval_ns(&entry), 0);
        if let Some(before) = last.replace(handle) {
            assert_eq!(before.latest(), LatestSample::Gone);
        }
    }
    assert_eq!(expect, 10);
}

#[test]
fn the_memory_of_ended_streams_goes_back_with_the_second_call() {
    const STREAMS: u32 = 12_800;
    const DEPTH: u32 = 64;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("segment");
    let config = SegmentConfig {
        streams_max: STREAMS,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(&path, config, 1).unwrap();
    let held = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let stream = |i| descriptor(&format!("s{i}.bytes"), ValueType::Int);
    let kept = segment.register(&stream(STREAMS), Some(DEPTH), 1).unwrap();
    let writers: Vec<_> = (1..STREAMS)
        .map(|i| segment.register(&stream(i), Some(DEPTH), 1).unwrap())
        .collect();
    let ring = segment.ring_bytes(&stream(0), Some(DEPTH), None) as u64;
    let rings = u64::from(STREAMS) * ring;
    let full = held();
    assert!(full > rings, "{full}");
    segment.retire(kept);
    segment.give_memory_back();
    for writer in writers {
        segment.retire(writer);
    }
    segment.give_memory_back();
    assert!(held() + 8192 > full, "readers may be in the middle of them");
    // A ring in their place keeps its memory, whatever happens to the other rings.
    let mut writer = segment.register(&stream(0), Some(DEPTH), 1).unwrap();
    writer.append(&Sample::measured(1, 7)).unwrap();
    segment.give_memory_back();
    let left = full - held();
    assert!(left + 8192 > rings, "{left} of {rings}");
    let reader = segment.reader().unwrap();
    let entry = reader.directory().entries.remove(0);
    let latest = reader.stream(&entry).latest();
    assert!(matches!(latest, LatestSample::Sample { count: 1, .. }));
}

#[test]
fn an_interval_is_told_of_its_own_stream_only() {
    let dir = tempfile::tempdir().unwrap();
    let config = SegmentConfig {
        streams_max: 1,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(&dir.path().join("segment"), config, 1).unwrap();
    let reader = segment.reader().unwrap();
    let first = segment
        .register(&descriptor("a.bytes", ValueType::Int), None, 1)
        .unwrap();
    let entry = reader.directory().entries.remove(0);
    assert_eq!(reader.interval_ns(&entry), 0, "nobody has said");
    segment.expect_interval(&first, 1_000);
    assert_eq!(reader.interval_ns(&entry), 1_000);
    segment.retire(first);
    let second = segment
        .register(&descriptor("b.bytes", ValueType::Int), None, 1)
        .unwrap();
    segment.expect_interval(&second, 2_000);
    assert_eq!(reader.interval_ns(&entry), 0);
    let next = reader.directory().entries.remove(0);
    assert_eq!(reader.interval_ns(&next), 2_000);
}

#[test]
fn an_entry_of_a_segment_before_is_gone_in_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    let make = |streams_max, name| {
        let config = SegmentConfig {
            streams_max,
            ring_bytes_max: 1 << 16,
            ..SegmentConfig::new("n1")
        };
        let mut segment = Segment::create(&path, config, 1).unwrap();
        let mut writer = None;
        for i in 0..streams_max {
            let stream = descriptor(&format!("{name}{i}.bytes"), ValueType::Int);
            let mut w = segment.register(&stream, Some(2), 1).unwrap();
            w.append(&Sample::measured(1, i64::from(i))).unwrap();
            writer = Some(w);
        }
        (segment, writer)
    };
    let _first = make(500, "first");
    let mut reader = SegmentReader::open(&path).unwrap();
    let before = reader.directory();
    // Slot 0 has generation 1 in all three segments; slot 499 lies outside of the last.
    for (streams_max, name) in [(500, "second"), (2, "third")] {
        let _successor = make(streams_max, name);
        assert!(reader.reopen_if_replaced().unwrap());
        for entry in [&before.entries[0], &before.entries[499]] {
            let handle = reader.stream(entry);
            assert_eq!(handle.latest(), LatestSample::Gone);
            assert_eq!(handle.latest_f64(), None);
            assert_eq!(handle.scan(0, &mut Vec::new()), None);
            assert_eq!(handle.wait(0, std::time::Duration::ZERO), WaitOutcome::Gone);
            assert_eq!(reader.interval_ns(entry), 0);
        }
    }
}
