//! Programs that follow file events.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use barograph_model::{Clock as _, Descriptor, Kind, Labels, Name, Sample, Unit, Value, ValueType};
use barograph_stream::{RunDir, Segment, SegmentConfig, StreamWriter, SystemClock};

use crate::build::{self, Language, command, must, program, workshop};

const DEPTH: u32 = 16;

const CREATE: u8 = 1;
const UNLINK: u8 = 6;
const RENAME: u8 = 8;

/// The record of an event, as `docs/reference/event-format.md` has it.
fn record(kind: u8, index: u64, path: &[u8], old_path: &[u8], size: Option<u64>) -> Vec<u8> {
    let mut record = vec![1, kind, 0, 0];
    record.extend(index.to_le_bytes());
    record.extend([0; 32]);
    record.push(size.is_some().into());
    record.extend(size.iter().flat_map(|size| size.to_le_bytes()));
    for path in [path, old_path] {
        record.extend((path.len() as u16).to_le_bytes());
        record.extend(path);
    }
    record.extend([0; 3]);
    record
}

/// A source of events in the segment of a node.
struct Source {
    segment: Segment,
    stream: StreamWriter,
    index: u64,
}

impl Source {
    fn new(run_dir: &std::path::Path) -> Self {
        let now_ns = SystemClock::new().now_ns();
        let path = RunDir::new(run_dir).segment();
        let mut segment = Segment::create(&path, SegmentConfig::new("n1"), now_ns).unwrap();
        segment.heartbeat(now_ns);
        let descriptor = Descriptor {
            name: Name::new("events").unwrap(),
            labels: Labels::new([("source", "data")]).unwrap(),
            value_type: ValueType::Bytes,
            unit: Unit::new("1").unwrap(),
            kind: Kind::Gauge,
            help: "what happens".into(),
        };
        let stream = segment.register(&descriptor, Some(DEPTH), now_ns).unwrap();
        Self {
            segment,
            stream,
            index: 0,
        }
    }

    fn tell(&mut self, kind: u8, path: &[u8], old_path: &[u8], size: Option<u64>) {
        self.index += 1;
        let record = record(kind, self.index, path, old_path, size);
        let now_ns = SystemClock::new().now_ns();
        let sample = Sample::measured(now_ns, Value::Bytes(record.into()));
        self.stream.append(&sample).unwrap();
        self.segment.wake(self.stream.wake_bit());
    }
}

struct Follower {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Follower {
    fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        self.lines.read_until(b'\n', &mut line).unwrap();
        line.pop();
        line
    }

    fn tell(&mut self, command: &str) -> Vec<u8> {
        writeln!(self.input, "{command}").unwrap();
        self.line()
    }
}

#[test]
fn a_program_follows_events_and_keeps_its_place() {
    let workshop = workshop();
    let sources = [build::here().join("tests/programs/events.c")];
    let Some(program) = program(workshop.path(), Language::C, &sources, &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut source = Source::new(dir.path());
    source.tell(CREATE, b"/data/\xff/before.dat", b"", None);
    let mut command = command(&program, dir.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut follower = Follower {
        input: child.stdin.take().unwrap(),
        lines: BufReader::new(child.stdout.take().unwrap()),
        child,
    };
    assert_eq!(follower.line(), b"ready");
    source.tell(CREATE, b"/data/\xff/a.dat", b"", Some(7));
    assert_eq!(
        follower.tell("go"),
        b"data create 2 /data/\xff/a.dat  7",
        "a new event, with its bytes"
    );
    // What the filter does not want is passed over.
    source.tell(UNLINK, b"/data/\xff/a.dat", b"", None);
    source.tell(CREATE, b"/data/\xff/b.txt", b"", None);
    source.tell(CREATE, b"/data/other/b.dat", b"", None);
    source.tell(RENAME, b"/data/c", b"/data/\xff/c.dat", None);
    let expect = b"data rename 6 /data/c /data/\xff/c.dat -1".to_vec();
    assert_eq!(follower.tell("fork"), [&b"child "[..], &expect].concat());
    assert_eq!(follower.line(), expect, "the parent has it as well");
    // A feed goes on where another one was.
    source.tell(CREATE, b"/data/\xff/d.dat", b"", None);
    assert_eq!(
        follower.tell("again"),
        b"data create 7 /data/\xff/d.dat  -1"
    );
    // The ring is all there is here: what it loses is told as missing.
    for _ in 0..2 * DEPTH {
        source.tell(CREATE, b"/data/\xff/e.dat", b"", None);
    }
    let gap = String::from_utf8(follower.tell("go")).unwrap();
    let numbers = gap
        .strip_prefix("data gap 7 ")
        .unwrap_or_else(|| panic!("{gap}"));
    let (before, missing) = numbers.split_once(' ').unwrap();
    let (before, missing): (u64, u64) = (before.parse().unwrap(), missing.parse().unwrap());
    assert!(
        missing >= u64::from(DEPTH) && before == 8 + missing,
        "{gap}"
    );
    let next = format!("data create {before} /data/");
    assert!(follower.tell("go").starts_with(next.as_bytes()));
    drop(follower.input);
    must(&follower.child.wait_with_output().unwrap());
}

#[test]
fn the_example_is_compiled_without_a_warning() {
    let workshop = workshop();
    let example = build::here().join("../../docs/examples/events.c");
    let dir = tempfile::tempdir().unwrap();
    if let Some(program) = program(workshop.path(), Language::C, &[example], &["-lbaro"]) {
        let done = command(&program, dir.path()).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "it wants two arguments");
    }
}
