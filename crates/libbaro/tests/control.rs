//! Control events in programs: what they publish, and what they are given.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use barograph_model::{Clock as _, Descriptor, Kind, Labels, Name, Sample, Unit, Value, ValueType};
use barograph_stream::ingest::{IngestDeclaration, IngestFile, PublicationReaders, RecordPayload};
use barograph_stream::{
    CONTROL_EVENT_BYTES_MAX, ControlEventContent, ControlEventRecord, ControlEventSource, RunDir,
    Segment, SegmentConfig, StreamWriter, SystemClock,
};

use crate::build::{self, Language, command, must, program, workshop};

const DEPTH: u32 = 16;

fn here(name: &str) -> PathBuf {
    build::here().join("tests/programs").join(name)
}

/// An agent's segment with the control events of one program.
struct Node {
    segment: Segment,
    stream: StreamWriter,
    sequence: u64,
}

impl Node {
    fn new(run_dir: &Path) -> Self {
        let now_ns = SystemClock::new().now_ns();
        let path = RunDir::new(run_dir).segment();
        let mut segment = Segment::create(&path, SegmentConfig::new("n1"), now_ns).unwrap();
        segment.heartbeat(now_ns);
        let descriptor = Descriptor {
            name: Name::new("app.control.event.record").unwrap(),
            labels: Labels::new([("application", "solver"), ("user", "ada")]).unwrap(),
            value_type: ValueType::Bytes,
            unit: Unit::new("").unwrap(),
            kind: Kind::State,
            help: "control events".into(),
        };
        let stream = segment.register(&descriptor, Some(DEPTH), now_ns).unwrap();
        Self {
            segment,
            stream,
            sequence: 0,
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let now_ns = SystemClock::new().now_ns();
        let sample = Sample::measured(now_ns, Value::Bytes(bytes.into()));
        self.stream.append(&sample).unwrap();
        self.segment.wake(self.stream.wake_bit());
    }

    fn tell(&mut self, kind: &str, confidence: f64, policy: &str) {
        self.sequence += 1;
        let content = ControlEventContent {
            kind,
            subject: "/scratch",
            value: Some(self.sequence as f64),
            confidence,
            properties: &[("policy", policy)],
        };
        let source = ControlEventSource {
            pid: 7,
            thread: 0,
            life: 1,
            sequence: self.sequence,
        };
        let mut bytes = [0; CONTROL_EVENT_BYTES_MAX];
        let length = content.write(source, &mut bytes).unwrap();
        self.append(&bytes[..length]);
    }
}

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
        let mut shower = Self {
            input: child.stdin.take().unwrap(),
            lines: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        assert_eq!(shower.line(), "ready");
        shower
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn tell(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        self.line()
    }

    fn end(self) {
        drop(self.input);
        must(&self.child.wait_with_output().unwrap());
    }
}

#[test]
fn a_program_consumes_events_in_three_ways() {
    let workshop = workshop();
    let sources = [here("control.c")];
    let libraries = ["-lbaro", "-lm"];
    let Some(program) = program(workshop.path(), Language::C, &sources, &libraries) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::new(dir.path());
    node.tell("io.before", 1.0, "set10");
    let mut shower = Shower::start(&program, dir.path());
    node.tell("io.starved", 0.75, "set10");
    let starved = "wait io.starved /scratch 2 0.75 2 0 solver n1 set10";
    assert_eq!(shower.tell("wait"), starved, "what was before is not given");
    // What is unsure, of another kind or of another policy is passed over, and so are foreign
    // bytes.
    node.tell("io.starved", 0.4, "set10");
    node.tell("epoch.begun", 1.0, "set10");
    node.tell("io.starved", 1.0, "fcfs");
    node.append(b"no event");
    node.append(&[1; 1_024]);
    node.tell("io.late", 0.5, "set10");
    let late = "io.late /scratch 6 0.5 6 0 solver n1 set10";
    assert_eq!(shower.tell("fork"), format!("child {late}"));
    assert_eq!(
        shower.tell("check"),
        format!("check {late}"),
        "the parent has it as well"
    );
    for _ in 0..3 {
        node.tell("io.policy", 1.0, "set10");
    }
    let first = shower.tell("dispatch");
    assert_eq!(first, "callback io.policy /scratch 7 1 7 0 solver n1 set10");
    let second = "callback io.policy /scratch 8 1 8 0 solver n1 set10";
    assert_eq!(
        (shower.line().as_str(), shower.line().as_str()),
        (second, "2"),
        "it ended it"
    );
    let third = shower.tell("dispatch");
    assert_eq!(third, "callback io.policy /scratch 9 1 9 0 solver n1 set10");
    assert_eq!(shower.line(), "1");
    // More than the ring holds, the last of which is wanted: what was lost is told with it.
    let count = 2 * u64::from(DEPTH);
    for _ in 1..count {
        node.tell("epoch.begun", 1.0, "set10");
    }
    node.tell("io.late", 1.0, "set10");
    let lost = shower.tell("wait");
    let parts: Vec<&str> = lost.split(' ').collect();
    assert_eq!((parts[1], parts[5]), ("io.late", "41"), "{lost}");
    let missed: u64 = parts[6].parse().unwrap();
    assert!(
        missed >= count - u64::from(DEPTH) && missed < count,
        "{lost}"
    );
    assert_eq!(shower.tell("missed"), missed.to_string());
    shower.end();
}

#[test]
fn the_other_languages_consume_them() {
    let workshop = workshop();
    let module = build::here().join("fortran/baro.f90");
    for (language, sources) in [
        (Language::Cpp, vec![here("control.cpp")]),
        (Language::Fortran, vec![module, here("control.f90")]),
    ] {
        let built = program(workshop.path(), language, &sources, &["-lbaro"]);
        let Some(program) = built else {
            continue;
        };
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut node = Node::new(dir.path());
        let mut shower = Shower::start(&program, dir.path());
        node.tell("other", 1.0, "set10");
        node.tell("io.starved", 1.0, "set10");
        assert_eq!(
            shower.tell("go"),
            "wait io.starved /scratch 2 set10",
            "{language:?}"
        );
        node.tell("io.late", 1.0, "fcfs");
        assert_eq!(shower.tell("go"), "callback io.late /scratch 3 fcfs");
        assert_eq!(shower.line(), "1");
        node.tell("io.late", 1.0, "fcfs");
        assert_eq!(shower.tell("go"), "thrown 0");
        shower.end();
        let told: Vec<String> = published(dir.path())
            .into_iter()
            .map(|it| it.kind)
            .collect();
        assert_eq!(told[0], "a.b");
    }
}

/// An event that a program has published.
#[derive(Debug)]
struct Told {
    kind: String,
    value: Option<f64>,
    confidence: f64,
    pid: u32,
    life: u64,
    sequence: u64,
    properties: Vec<(String, String)>,
}

/// What the programs of a run directory have published, the oldest file first.
fn published(run_dir: &Path) -> Vec<Told> {
    let entries = std::fs::read_dir(RunDir::new(run_dir).ingest_dir()).unwrap();
    let files = entries.map(|entry| IngestFile::open(&entry.unwrap().path()).unwrap());
    let mut files: Vec<IngestFile> = files.collect();
    files.sort_by_key(IngestFile::created_ns);
    let mut told = Vec::new();
    for mut file in files {
        file.look().unwrap();
        file.declarations(&mut |declaration| {
            if let IngestDeclaration::Publication { name, .. } = declaration {
                assert_eq!(name, "control.event");
            }
        })
        .unwrap();
        let mut last = None;
        let drained = file.drain(u64::MAX, &mut |record| match record.payload {
            RecordPayload::Bytes(bytes) => {
                let event = ControlEventRecord::read(bytes).unwrap();
                let pairs = event.properties.iter();
                let pairs = pairs.map(|(name, text)| (name.to_owned(), text.to_owned()));
                last = Some(event.sequence);
                told.push(Told {
                    kind: event.kind.to_owned(),
                    value: event.value,
                    confidence: event.confidence,
                    pid: event.pid,
                    life: event.life,
                    sequence: event.sequence,
                    properties: pairs.collect(),
                });
            }
            RecordPayload::Frame(number) => assert_eq!(Some(number), last.take()),
            _ => {}
        });
        assert_eq!(drained.unwrap().damaged, 0);
    }
    told
}

#[test]
fn a_program_publishes_events_and_so_does_its_child() {
    let workshop = workshop();
    let sources = [here("control.c")];
    let libraries = ["-lbaro", "-lm"];
    let Some(program) = program(workshop.path(), Language::C, &sources, &libraries) else {
        return;
    };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    must(
        &command(&program, dir.path())
            .arg("publish")
            .output()
            .unwrap(),
    );
    let told = published(dir.path());
    let kinds: Vec<(&str, u64)> = told
        .iter()
        .map(|it| (it.kind.as_str(), it.sequence))
        .collect();
    let expect = [
        ("io.starved", 1),
        ("io.late", 2),
        ("io.ended", 3),
        ("child.begun", 1),
    ];
    assert_eq!(kinds, expect, "refused ones have no number");
    assert_eq!((told[0].value, told[0].confidence), (Some(2.5), 0.75));
    let properties = [("policy", "set10"), ("volume", "scratch")];
    let properties = properties.map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(told[0].properties, properties);
    assert_eq!(told[1].value, None);
    assert_eq!(told[2].value, Some(f64::INFINITY));
    let child = &told[3];
    assert!(
        child.pid != told[0].pid && child.life != told[0].life,
        "{told:?}"
    );
    assert_eq!(child.life >> 32, u64::from(child.pid));
    // All of one process are for the same readers.
    let entries = std::fs::read_dir(RunDir::new(dir.path()).ingest_dir()).unwrap();
    for entry in entries {
        let mut file = IngestFile::open(&entry.unwrap().path()).unwrap();
        file.look().unwrap();
        file.declarations(&mut |declaration| {
            if let IngestDeclaration::Publication { readers, .. } = declaration {
                assert_eq!(readers, PublicationReaders::All);
            }
        })
        .unwrap();
    }
}
