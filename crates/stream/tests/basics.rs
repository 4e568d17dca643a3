//! Writing and reading in one process.

use std::time::Duration;

use barograph_model::{Descriptor, Kind, Labels, Name, Sample, Unit, Value, ValueType};
use barograph_stream::{
    LatestSample, Segment, SegmentConfig, SegmentReader, StreamError, WaitOutcome,
};

pub(crate) fn descriptor(name: &str, value_type: ValueType) -> Descriptor {
    Descriptor {
        name: Name::new(name).unwrap(),
        labels: Labels::new([("device", "vda")]).unwrap(),
        value_type,
        unit: Unit::new("bytes").unwrap(),
        kind: Kind::Gauge,
        help: "what it is".into(),
    }
}

fn segment(dir: &tempfile::TempDir) -> Segment {
    Segment::create(&dir.path().join("segment"), SegmentConfig::new("n1"), 5).unwrap()
}

/// The kernel counts the pages of each mapping as memory of the process. Readers that other threads
/// open at the same moment may get mappings of their own, since nobody waits for a lock.
#[test]
fn the_readers_of_a_process_share_one_mapping() {
    let dir = tempfile::tempdir().unwrap();
    let _segment = segment(&dir);
    let path = dir.path().join("segment");
    let mapped_for_reading = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let name = path.to_str().unwrap();
        let is_ours = |line: &&str| line.ends_with(name) && line.contains(" r--s ");
        maps.lines().filter(is_ours).count()
    };
    let open = || SegmentReader::open(&path).unwrap();
    let share = || {
        let readers = [open(), open(), open()];
        let is_shared = mapped_for_reading() == 1;
        drop(readers);
        assert_eq!(mapped_for_reading(), 0);
        is_shared
    };
    // Other tests of this process open readers meanwhile.
    assert!((0..1_000).any(|_| share()));
    assert!((0..1_000).any(|_| share()), "again after the last was gone");
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let mut int = segment
        .register(&descriptor("a.bytes", ValueType::Int), None, 6)
        .unwrap();
    let mut text = segment
        .register(&descriptor("b.name", ValueType::Text), Some(4), 6)
        .unwrap();
    let reader = SegmentReader::open(&dir.path().join("segment")).unwrap();
    assert_eq!(reader.node(), "n1");
    let directory = reader.directory();
    let names: Vec<String> = directory
        .entries
        .iter()
        .map(|e| e.descriptor.to_string())
        .collect();
    assert_eq!(names, ["a.bytes{device=vda}", "b.name{device=vda}"]);
    assert_eq!(
        directory.entries[0].descriptor,
        descriptor("a.bytes", ValueType::Int)
    );
    assert_eq!(
        directory.entries[0].series,
        directory.entries[0].descriptor.series_id()
    );

    let handle = reader.stream(&directory.entries[0]);
    assert_eq!(handle.latest(), LatestSample::Empty);
    assert!(int.look(&Sample::measured(10, 7)).unwrap());
    assert!(!int.look(&Sample::measured(20, 7)).unwrap());
    let expect = LatestSample::Sample {
        sample: Sample::measured(10, 7),
        looked_ns: 20,
        count: 1,
    };
    assert_eq!(handle.latest(), expect);
    assert!(int.look(&Sample::measured(30, 8)).unwrap());
    assert_eq!(handle.latest_f64(), Some((30, 8.0)));

    let words = reader.stream(&directory.entries[1]);
    for i in 0..9 {
        text.append(&Sample {
            value: Value::text(&format!("word {i}")),
            ..Sample::measured(i, 0)
        })
        .unwrap();
    }
    let LatestSample::Sample {
        sample, count: 9, ..
    } = words.latest()
    else {
        panic!("nine were written")
    };
    assert_eq!(sample.value, Value::text("word 8"));
    let mut out = Vec::new();
    let scan = words.scan(0, &mut out).unwrap();
    let values: Vec<String> = out.iter().map(|s| s.value.to_string()).collect();
    assert_eq!(
        values,
        ["word 6", "word 7", "word 8"],
        "one cell is left to the writer"
    );
    assert_eq!((scan.cursor, scan.lost), (9, 6));
    assert_eq!(words.scan(9, &mut out).unwrap().lost, 0);

    assert!(matches!(
        int.look(&Sample::measured(1, 1.5)),
        Err(StreamError::Type { .. })
    ));
    let twice = segment.register(&descriptor("a.bytes", ValueType::Int), None, 6);
    assert!(matches!(twice, Err(StreamError::Duplicate { .. })));
}

#[test]
fn a_retired_stream_is_gone_and_its_slot_is_another() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let mut first = segment
        .register(&descriptor("a.bytes", ValueType::Int), None, 6)
        .unwrap();
    first.look(&Sample::measured(1, 1)).unwrap();
    let reader = segment.reader().unwrap();
    let before = reader.directory();
    let handle = reader.stream(&before.entries[0]);
    segment.retire(first);
    assert_eq!(handle.latest(), LatestSample::Gone);
    assert_ne!(reader.directory_version(), before.version);
    assert!(reader.directory().entries.is_empty());
    let mut second = segment
        .register(&descriptor("a.bytes", ValueType::Int), None, 7)
        .unwrap();
    second.look(&Sample::measured(2, 2)).unwrap();
    assert_eq!(handle.latest(), LatestSample::Gone);
    assert_eq!(handle.wait(0, Duration::from_secs(9)), WaitOutcome::Gone);
    let entry = &reader.directory().entries[0];
    assert_eq!((entry.slot, entry.generation), (0, 2));
    assert!(matches!(
        reader.stream(entry).latest(),
        LatestSample::Sample { count: 1, .. }
    ));
}

#[test]
fn a_waiting_reader_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let mut writer = segment
        .register(&descriptor("a.bytes", ValueType::Int), None, 6)
        .unwrap();
    let reader = segment.reader().unwrap();
    let handle = reader.stream(&reader.directory().entries[0]);
    assert_eq!(
        handle.wait(0, Duration::from_millis(1)),
        WaitOutcome::TimedOut
    );
    let waiter = std::thread::spawn({
        let handle = handle.clone();
        move || handle.wait(0, Duration::from_secs(60))
    });
    writer.look(&Sample::measured(1, 1)).unwrap();
    segment.wake(writer.wake_bit());
    assert_eq!(waiter.join().unwrap(), WaitOutcome::News);
    segment.close();
    assert_eq!(handle.wait(1, Duration::from_secs(60)), WaitOutcome::Closed);
}

#[test]
fn a_successor_closes_its_predecessor() {
    let dir = tempfile::tempdir().unwrap();
    let first = segment(&dir);
    let mut reader = first.reader().unwrap();
    let life = reader.incarnation();
    std::mem::forget(first); // As if killed: it never closes the segment.
    let _second = segment(&dir);
    assert_eq!(reader.state(), barograph_stream::SegmentState::Closed);
    assert!(reader.reopen_if_replaced().unwrap());
    assert_ne!(reader.incarnation(), life);
}

#[test]
fn what_a_ring_has_never_had_is_not_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut segment = segment(&dir);
    let of = descriptor("a.bytes", ValueType::Int);
    let mut int = segment.register(&of, None, 6).unwrap();
    let reader = SegmentReader::open(&dir.path().join("segment")).unwrap();
    let handle = reader.stream(&reader.directory().entries[0]);
    assert_eq!(handle.cursor_from(0), 0, "it is empty");
    // As a mirror does in the middle of a stream's life.
    segment.begin_at(&mut int, 100);
    for at in 0..3 {
        int.append(&Sample::measured(10 + at, at)).unwrap();
    }
    for (seen, from, lost) in [(0, 99, 0), (90, 90, 9), (101, 101, 0)] {
        let cursor = handle.cursor_from(seen);
        let scan = handle.scan(cursor, &mut Vec::new()).unwrap();
        assert_eq!((cursor, scan.lost, scan.cursor), (from, lost, 102));
    }
}
