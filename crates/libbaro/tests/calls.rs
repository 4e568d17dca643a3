//! Calls that reach C, C++ and Fortran programs, and calls that these programs send to the agent.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use barograph_model::Clock as _;
use barograph_stream::calls::{Call, CallKind, CallPayload, CallTarget, CallsWriter};
use barograph_stream::ingest::{IngestDeclaration, IngestFile, RecordPayload};
use barograph_stream::{RunDir, SystemClock};

use crate::build::{self, Language, command, must, program, workshop};

const DONE: u32 = 0;
const FAILED: u32 = 1;

fn source(name: &str) -> PathBuf {
    build::here().join("tests/programs").join(name)
}

/// A call's id, and its outcome.
type Answer = (u64, u32);

/// An agent as a program sees it.
struct Agent {
    run_dir: PathBuf,
    writer: CallsWriter,
}

impl Agent {
    fn new(run_dir: &Path) -> Self {
        let user = std::fs::metadata("/proc/self").unwrap().uid();
        let scope = RunDir::new(run_dir).scope(&format!("u{user}"));
        std::fs::create_dir_all(scope.path()).unwrap();
        let path = scope.path().join("calls");
        let writer = CallsWriter::open_or_create(&path, SystemClock::new().now_ns()).unwrap();
        Self {
            run_dir: run_dir.to_owned(),
            writer,
        }
    }

    /// Waits until the only process handles a trigger.
    fn await_trigger(&self, wanted: &str) {
        loop {
            let declared = self.file().map_or_else(Vec::new, |(declared, _)| declared);
            let is_it = |d: &IngestDeclaration| matches!(d, IngestDeclaration::Trigger { name, .. } if name == wanted);
            if declared.iter().any(is_it) {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Declarations and answers of the only process.
    fn file(&self) -> Option<(Vec<IngestDeclaration>, Vec<Answer>)> {
        let mut found = std::fs::read_dir(RunDir::new(&self.run_dir).ingest_dir()).ok()?;
        let mut file = IngestFile::open(&found.next()?.ok()?.path()).ok()?;
        let (mut declared, mut answers) = (Vec::new(), Vec::new());
        file.look().ok()?;
        file.declarations(&mut |d| declared.push(d)).ok()?;
        let drained = file.drain(u64::MAX, &mut |record| {
            if let RecordPayload::Ack { id, status } = record.payload {
                answers.push((id, status));
            }
        });
        drained.ok()?;
        Some((declared, answers))
    }

    fn fire(&mut self, kind: CallKind, name: &str, payload: CallPayload) -> u64 {
        let now_ns = SystemClock::new().now_ns();
        let call = Call {
            id: 0,
            issued_ns: now_ns,
            expires_ns: now_ns + 60_000_000_000,
            kind,
            name: name.into(),
            target: CallTarget::default(),
            payload,
            version: 1,
            at_frame: None,
        };
        self.writer.fire(&call).unwrap()
    }

    fn trigger(&mut self, name: &str, payload: CallPayload) -> u64 {
        self.fire(CallKind::Trigger, name, payload)
    }

    fn set(&mut self, name: &str, payload: CallPayload) {
        self.fire(CallKind::Knob, name, payload);
    }

    /// Outcomes of the calls by id, whatever the order of knobs and triggers.
    fn answers(&self) -> Vec<u32> {
        let mut answers = self.file().unwrap().1;
        answers.sort_unstable();
        let ids = answers.iter().map(|(id, _)| *id);
        assert!(ids.eq(1..=self.writer.written()), "{answers:?}");
        answers.iter().map(|(_, status)| *status).collect()
    }
}

fn start(program: &Path, run_dir: &Path, arguments: &[&str]) -> Child {
    let mut command = command(program, run_dir);
    let piped = command.args(arguments).stdout(Stdio::piped());
    piped.stderr(Stdio::piped()).spawn().unwrap()
}

/// Output of a program that has ended well.
fn said(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    must(&output);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn c_programs_are_called_by_polls_and_by_threads() {
    let workshop = workshop();
    let slow = workshop.path().join("slow_called.c");
    let text = format!(
        "#define BARO_NO_INLINE\n#include \"{}\"\n",
        source("called.c").display()
    );
    std::fs::write(&slow, text).unwrap();
    let libraries = ["-lbaro", "-lpthread"];
    for (source, arguments, called) in [
        (source("called.c"), &[][..], 13),
        (source("called.c"), &["listen"], 0),
        (slow, &[], 13),
    ] {
        let built = program(workshop.path(), Language::C, &[source], &libraries);
        let Some(program) = built else { return };
        let dir = tempfile::tempdir().unwrap();
        let mut agent = Agent::new(dir.path());
        let child = start(&program, dir.path(), arguments);
        agent.await_trigger("end");
        for payload in [
            CallPayload::None,
            CallPayload::Int(-1),
            CallPayload::Float(0.5),
            CallPayload::Bool(true),
            CallPayload::Text("é".into()),
            CallPayload::Bytes(vec![0, 255]),
            CallPayload::Json("[1]".into()),
            CallPayload::Floats(vec![0.5, -1.5]),
        ] {
            agent.trigger("say", payload);
        }
        agent.trigger("fail", CallPayload::None);
        agent.set("called.f", CallPayload::Float(0.25));
        agent.set("called.i", CallPayload::Int(9));
        agent.set("called.t", CallPayload::Bool(true));
        if !arguments.is_empty() {
            // Frames set them, each in its own time.
            while agent.file().unwrap().1.len() < 12 {
                thread::sleep(Duration::from_millis(2));
            }
        }
        agent.trigger("end", CallPayload::None);
        let expect = format!(
            "0 0 null\n1 8 -1\n2 8 0.5\n3 8 1\n4 2 é\n6 2 0 255\n7 3 [1]\n8 16 0.5 -1.5\nalso\n{called} 0.25 9 1\n"
        );
        assert_eq!(said(child), expect);
        let mut answers = [DONE; 13];
        answers[8] = FAILED;
        assert_eq!(agent.answers(), answers);
    }
}

#[test]
fn lambdas_of_cpp_are_called() {
    let workshop = workshop();
    let sources = [source("called.cpp")];
    let libraries = ["-lbaro", "-lpthread"];
    let Some(program) = program(workshop.path(), Language::Cpp, &sources, &libraries) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let child = start(&program, dir.path(), &[]);
    agent.await_trigger("end");
    agent.trigger("say", CallPayload::Text("text".into()));
    agent.trigger("say", CallPayload::Int(7));
    agent.trigger("fail", CallPayload::Text("throw".into()));
    agent.trigger("fail", CallPayload::None);
    agent.set("called.f", CallPayload::Float(0.25));
    agent.set("called.i", CallPayload::Int(9));
    agent.set("called.t", CallPayload::Bool(true));
    agent.trigger("end", CallPayload::None);
    assert_eq!(said(child), "said text\nsaid 7\nalso\nalso\n8 0.25 9 1\n");
    let expect = [DONE, DONE, FAILED, FAILED, DONE, DONE, DONE, DONE];
    assert_eq!(agent.answers(), expect);
}

#[test]
fn procedures_of_fortran_are_called() {
    let workshop = workshop();
    let sources = [build::here().join("fortran/baro.f90"), source("called.f90")];
    let Some(program) = program(workshop.path(), Language::Fortran, &sources, &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let child = start(&program, dir.path(), &[]);
    agent.await_trigger("end");
    agent.trigger("say", CallPayload::Text("text".into()));
    agent.trigger("say", CallPayload::Float(1.5));
    agent.set("called.f", CallPayload::Float(0.25));
    agent.set("called.i", CallPayload::Int(9));
    agent.set("called.t", CallPayload::Bool(true));
    agent.trigger("end", CallPayload::None);
    assert_eq!(said(child), "said text\nalso\nsaid 1.50\nalso\n0.25 9 T\n");
    assert_eq!(agent.answers(), [DONE; 6]);
}

#[test]
fn the_example_is_tuned_and_ended() {
    let workshop = workshop();
    let example = build::here().join("../../docs/examples/knob.c");
    let Some(program) = program(workshop.path(), Language::C, &[example], &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    // The program is there before its agent.
    let child = start(&program, dir.path(), &[]);
    let mut agent = Agent::new(dir.path());
    agent.await_trigger("finish");
    agent.set("solver.tolerance", CallPayload::Float(0.25));
    agent.trigger("finish", CallPayload::None);
    assert_eq!(said(child), "0.25\n");
    assert_eq!(agent.answers(), [DONE, DONE]);
}

#[test]
fn c_programs_fire_and_set() {
    let workshop = workshop();
    let sources = [source("fires.c")];
    let Some(program) = program(workshop.path(), Language::C, &sources, &["-lbaro"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(RunDir::new(dir.path()).control_socket()).unwrap();
    let agent = thread::spawn(move || answer(&listener));
    let mut command = command(&program, dir.path());
    must(&command.arg(dir.path()).output().unwrap());
    let asked = agent.join().unwrap();
    let plain = r#"{"knob":false,"name":"a","target":{},"wait_s":0.0}"#;
    assert_eq!(asked[0], plain);
    for (asked, expect) in asked[1..].iter().zip([
        &[
            r#""expires_s":5.0"#,
            r#""target":{"job":"7","rank":"3"}"#,
            r#""payload":"text""#,
        ][..],
        &[r#""payload":[1]"#, r#""payload_type":"json""#],
        &[r#""payload":-7"#, r#""payload_type":"int""#],
        &[r#""payload":"/w==""#, r#""payload_type":"bytes""#],
        &[r#""payload":[0.5,-1.5]"#, r#""payload_type":"floats""#],
        &[r#""knob":true"#, r#""payload":0.5"#, r#""wait_s":1.5"#],
        &[r#""knob":true"#, r#""payload":5"#],
        &[r#""knob":true"#, r#""payload":true"#],
    ]) {
        assert!(expect.iter().all(|part| asked.contains(part)), "{asked}");
    }
}

/// Answers as an agent does; returns the bodies of the requests, up to the one that is named "no".
fn answer(listener: &UnixListener) -> Vec<String> {
    let mut all = Vec::new();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut asked = Vec::new();
        let mut piece = [0; 1_024];
        while !asked.ends_with(b"}") {
            let count = stream.read(&mut piece).unwrap();
            asked.extend_from_slice(&piece[..count]);
        }
        let asked = String::from_utf8(asked).unwrap();
        let body = asked.split_once("\r\n\r\n").unwrap().1.to_owned();
        let is_named = |name: &str| body.contains(&format!("\"name\":\"{name}\""));
        let error = r#"{"error":{"kind":"refused","message":"told so"}}"#;
        let (status, said) = match () {
            () if is_named("nobody") => (404, error),
            () if is_named("busy") => (503, error),
            () if is_named("no") => (403, error),
            () => (
                200,
                r#"{"id":"u0:9","matched":3,"acknowledged":1,"failed":1,"state":"fired"}"#,
            ),
        };
        let head = format!(
            "HTTP/1.1 {status} Told\r\ncontent-length: {}\r\n\r\n",
            said.len()
        );
        stream
            .write_all(format!("{head}{said}").as_bytes())
            .unwrap();
        let is_last = is_named("no");
        all.push(body);
        if is_last {
            break;
        }
    }
    all
}
