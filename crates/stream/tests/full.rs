//! Lack of room: in the file system, in the segment, in the ring area.

use std::path::Path;
use std::process::Command;

use barograph_model::ValueType;
use barograph_stream::ingest::{IngestDeclaration, IngestFile, Producer, ProducerConfig, kind};
use barograph_stream::{
    LatestSample, RunDir, Segment, SegmentConfig, SegmentReader, StreamError, StreamWriter,
    SystemClock,
};

use crate::child;
use crate::pattern::{descriptor, sample};

/// Size of the file system of the test.
const ROOM: &str = "size=256k";

#[test]
fn a_full_file_system_is_an_error_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let role = child::command("settler", dir.path());
    // A file system of our own, visible only to the child, also without privilege.
    let mount = format!("mount -t tmpfs -o {ROOM} tmpfs \"$0\" && exec \"$@\"");
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .arg(dir.path())
        .arg(role.get_program())
        .args(role.get_args())
        .envs(role.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let possible = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount])
        .arg(dir.path())
        .arg("true")
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!(
            "this system lets nobody mount a file system of his own: \
             what a full one does is not tested here, only full segments are"
        );
        return;
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let also = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{also}");
    assert!(said.contains(SETTLED), "{said}{also}");
}

const SETTLED: &str = "settled in what there is";

/// Runs in a child, in a file system of [`ROOM`].
pub(crate) fn settle(path: &Path) {
    let run_dir = RunDir::new(path.join("run"));
    let _lock = run_dir.occupy().unwrap();
    rings_get_memory_as_they_are_used(path);
    let create = |streams_max| {
        let config = SegmentConfig {
            streams_max,
            ..SegmentConfig::new("n1")
        };
        Segment::create(&run_dir.segment(), config, 1)
    };
    let error = create(1_000).expect_err("its directory alone takes a megabyte");
    assert!(
        error.to_string().contains("free space there"),
        "what to do: {error}"
    );
    let left: Vec<_> = std::fs::read_dir(run_dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"], "nothing stays behind");

    let mut segment = create(32).unwrap();
    let mut writers: Vec<StreamWriter> = Vec::new();
    let error = loop {
        let name = format!("s{}.bytes", writers.len());
        match segment.register(&descriptor(&name, ValueType::Int), None, 1) {
            Ok(writer) => writers.push(writer),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(&error, StreamError::Io { source, .. }
            if source.kind() == std::io::ErrorKind::StorageFull),
        "{error}"
    );
    assert!((2..32).contains(&writers.len()), "{}", writers.len());
    let reader = SegmentReader::open(&run_dir.segment()).unwrap();
    assert_eq!(reader.refused(), 1);
    assert_eq!(reader.directory().entries.len(), writers.len());
    // Rings are filled completely, so that every page is touched: a fault would end the process
    // here.
    for n in 1..=5_000 {
        for writer in &mut writers {
            writer.append(&sample(ValueType::Int, n)).unwrap();
        }
    }
    for entry in &reader.directory().entries {
        let LatestSample::Sample { count: 5_000, .. } = reader.stream(entry).latest() else {
            panic!("the streams that fit go on");
        };
    }
    publish_in_vain(&run_dir);
    // The next stream uses the ring of a stream that has ended.
    segment.retire(writers.pop().unwrap());
    let next = descriptor("next.bytes", ValueType::Int);
    let mut writer = segment.register(&next, None, 1).unwrap();
    writer.append(&sample(ValueType::Int, 1)).unwrap();
    println!("{SETTLED}");
}

/// A ring is larger than the file system: puts that do not fit are refused, and no store is a
/// fault.
fn rings_get_memory_as_they_are_used(path: &Path) {
    let clock = SystemClock::new();
    let producer = Producer::create(path, ProducerConfig::default(), &clock).unwrap();
    let mut ring = producer.thread(&clock).unwrap();
    let put = (0..100_000)
        .filter(|n| ring.put(kind::INT, 0, 1, *n))
        .count();
    assert!((2_000..12_000).contains(&put), "{put}");
    assert!(ring.is_starved(), "it does not wait for an agent");
    assert!(producer.thread(&clock).is_none());
    let value = IngestDeclaration::Process {
        application: "x".repeat(2_000),
        labels: Vec::new(),
    };
    while producer.declare(&value) {}
    drop(ring);
    let mut file = IngestFile::open(producer.path()).unwrap();
    file.look().unwrap();
    let drained = file.drain(u64::MAX, &mut |_| {}).unwrap();
    assert_eq!((drained.records, drained.missed), (put as u64, 0));
    file.remove().unwrap();
}

fn publish_in_vain(run_dir: &RunDir) {
    run_dir.publish("agent.json", b"{}", 0o644).unwrap();
    let large = vec![b' '; 1 << 20];
    let error = run_dir.publish("agent.json", &large, 0o644).unwrap_err();
    assert!(error.to_string().contains("agent.json"), "{error}");
    let document = run_dir.document("agent.json").unwrap();
    assert_eq!(document.as_deref(), Some(b"{}".as_slice()), "the old one");
    assert!(!run_dir.path().join("agent.json.new").exists());
}

#[test]
fn a_segment_holds_streams_max_streams_and_then_refuses() {
    let dir = tempfile::tempdir().unwrap();
    let config = SegmentConfig {
        streams_max: 3,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(&dir.path().join("segment"), config, 1).unwrap();
    let mut register = |i: u32| {
        let stream = descriptor(&format!("s{i}.bytes"), ValueType::Int);
        segment.register(&stream, None, 1)
    };
    let writers: Vec<_> = (0..3).map(|i| register(i).unwrap()).collect();
    for i in 3..6 {
        assert!(matches!(register(i), Err(StreamError::Full { max: 3, .. })));
    }
    let reader = segment.reader().unwrap();
    assert_eq!((reader.refused(), segment.refused()), (3, 3));
    assert_eq!(reader.directory().entries.len(), 3);
    for writer in writers {
        segment.retire(writer);
    }
    assert_eq!(segment.streams(), 0);
    let stream = descriptor("s9.bytes", ValueType::Int);
    assert!(segment.register(&stream, None, 1).is_ok());
}

#[test]
fn a_full_ring_area_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let config = SegmentConfig {
        ring_bytes_max: 4096,
        ..SegmentConfig::new("n1")
    };
    let mut segment = Segment::create(&dir.path().join("segment"), config, 1).unwrap();
    let stream = descriptor("a.name", ValueType::Text);
    let refused = segment.register(&stream, Some(1024), 1);
    assert!(
        matches!(refused, Err(StreamError::RingsFull { max: 4096, .. })),
        "{refused:?}"
    );
    assert!(segment.register(&stream, Some(16), 1).is_ok());
}

#[test]
fn limits_beyond_the_format_are_lowered_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    let config = SegmentConfig {
        streams_max: 0,
        ring_bytes_max: 0,
        ..SegmentConfig::new("é".repeat(40))
    };
    let mut segment = Segment::create(&path, config, 1).unwrap();
    let reader = segment.reader().unwrap();
    assert_eq!(reader.streams_max(), 1);
    assert_eq!(reader.node(), "é".repeat(31), "cut at a character");
    let stream = descriptor("a.bytes", ValueType::Int);
    for depth in [0, 1, barograph_stream::DEPTH_MAX + 1, u32::MAX] {
        let refused = segment.register(&stream, Some(depth), 1);
        assert!(matches!(refused, Err(StreamError::Depth { .. })), "{depth}");
    }
    // More address space than exists: an error, not an overflow.
    let config = SegmentConfig {
        ring_bytes_max: usize::MAX,
        ..SegmentConfig::new("n1")
    };
    match Segment::create(&path, config, 1) {
        Ok(_) | Err(StreamError::Io { .. }) => {}
        Err(other) => panic!("{other}"),
    }
}
