//! Programs that follow every new sample.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use barograph_model::{Clock as _, Descriptor, Kind, Labels, Name, Sample, Unit, Value};
use barograph_stream::{RunDir, Segment, SegmentConfig, StreamWriter, SystemClock};

use crate::build::{self, Language, command, must, program, workshop};

const DEPTH: u32 = 16;

/// An agent's segment, as a reader sees it.
struct Node {
    segment: Segment,
}

impl Node {
    fn new(run_dir: &Path) -> Self {
        let now_ns = SystemClock::new().now_ns();
        let path = RunDir::new(run_dir).segment();
        let segment = Segment::create(&path, SegmentConfig::new("n1"), now_ns).unwrap();
        segment.heartbeat(now_ns);
        Self { segment }
    }

    /// Adds a stream with its first sample.
    fn stream(&mut self, name: &str, labels: &[(&str, &str)], first: Value) -> StreamWriter {
        let now_ns = SystemClock::new().now_ns();
        let descriptor = Descriptor {
            name: Name::new(name).unwrap(),
            labels: Labels::new(labels.iter().copied()).unwrap(),
            value_type: first.value_type(),
            unit: Unit::new("1").unwrap(),
            kind: Kind::Gauge,
            help: "what it is".into(),
        };
        let writer = self.segment.register(&descriptor, Some(DEPTH), now_ns);
        let mut writer = writer.unwrap();
        self.append(&mut writer, first);
        writer
    }

    fn append(&self, writer: &mut StreamWriter, value: Value) {
        let now_ns = SystemClock::new().now_ns();
        writer.append(&Sample::measured(now_ns, value)).unwrap();
        self.segment.wake(writer.wake_bit());
    }
}

/// A program that prints an update and waits for the next command.
struct Shower {
    child: Child,
    input: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Shower {
    fn start(program: &Path, run_dir: &Path) -> Self {
        let mut command = command(program, run_dir);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn shown(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn next(&mut self) -> String {
        writeln!(self.input, "go").unwrap();
        self.input.flush().unwrap();
        self.shown()
    }

    fn end(self) {
        let Self { child, input, .. } = self;
        drop(input);
        must(&child.wait_with_output().unwrap());
    }
}

fn source(name: &str) -> PathBuf {
    build::here().join("tests/programs").join(name)
}

#[test]
fn programs_are_told_of_every_sample() {
    let workshop = workshop();
    let module = build::here().join("fortran/baro.f90");
    for (language, sources) in [
        (Language::C, vec![source("subscribe.c")]),
        (Language::Cpp, vec![source("subscribe.cpp")]),
        (Language::Fortran, vec![module, source("subscribe.f90")]),
    ] {
        if let Some(program) = program(workshop.path(), language, &sources, &["-lbaro"]) {
            check(&program);
        }
    }
}

fn check(program: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new(dir.path());
    let labels = [("device", "vda"), ("tier", "ssd")];
    let mut float = node.stream("value.float", &labels, Value::Float(7.5));
    node.append(&mut float, Value::Float(42.5));
    node.stream("other", &[], Value::Int(1));
    let mut shower = Shower::start(program, dir.path());
    let name = "value.float{device=vda,tier=ssd}";
    assert_eq!(
        shower.shown(),
        format!("{name} 42.50 0"),
        "the newest first"
    );

    // Later samples, of each type.
    let json = Value::Json("{\"a\":1}".into());
    let mut held = Vec::new();
    for (stream, value, expect) in [
        ("value.int", Value::Int(-3), "-3"),
        ("value.bool", Value::Bool(true), "1"),
        ("value.text", Value::text("näh"), "näh"),
        ("value.empty", Value::text(""), ""),
        ("value.json", json, "{\"a\":1}"),
        ("value.bytes", Value::Bytes((*b"b2").into()), "b2"),
        (
            "value.floats",
            Value::Floats([1.5, -2.5].into()),
            "1.50;-2.50;",
        ),
    ] {
        held.push(node.stream(stream, &[], value));
        assert_eq!(shower.next(), format!("{stream}{{}} {expect} 0"));
    }

    // More samples than the ring holds, while nobody asks.
    let count = 2 * u64::from(DEPTH) + 3;
    for n in 0..count {
        node.append(&mut float, Value::Float(n as f64));
    }
    let (mut shown, mut missed) = (0, 0);
    while shown + missed < count {
        let line = shower.next();
        let (value, lost) = line.rsplit_once(' ').unwrap();
        missed += lost.parse::<u64>().unwrap();
        assert_eq!(value, format!("{name} {:.2}", (shown + missed) as f64));
        shown += 1;
    }
    assert_eq!(shown + missed, count);
    assert!(missed >= count - u64::from(DEPTH), "{missed}");
    shower.end();
}

#[test]
fn the_example_shows_the_disks() {
    let workshop = workshop();
    let example = build::here().join("../../docs/examples/subscribe.c");
    let Some(program) = program(workshop.path(), Language::C, &[example], &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new(dir.path());
    let _disk = node.stream("disk.busy.ratio", &[("device", "vda")], Value::Float(0.5));
    let output = command(&program, dir.path()).output().unwrap();
    must(&output);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, "disk.busy.ratio{device=vda} 0.5\n");
}
