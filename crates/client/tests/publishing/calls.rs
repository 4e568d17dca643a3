//! Calls that reach applications: written as an agent writes them, answers read as an agent reads
//! them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use barograph_client::{RunDir, SystemClock};
use barograph_model::Clock as _;
use barograph_stream::calls::{Call, CallKind, CallPayload, CallTarget, CallsWriter};
use barograph_stream::ingest::IngestDeclaration;

use super::reader::{self, Content, floats};
use super::roles::{command, finish};

const DONE: u32 = 0;
const FAILED: u32 = 1;
const REFUSED: u32 = 2;
const EXPIRED: u32 = 3;
const LATE: u32 = 4;

/// A running application, and its output.
struct Callee {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Callee {
    /// Starts the application and waits until it is ready.
    fn start(role: &str, run_dir: &Path) -> Self {
        let mut command = command(role, run_dir);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut callee = Self { child, lines };
        assert_eq!(callee.says(), "ready");
        callee
    }

    /// The next line of output that is for the test.
    fn says(&mut self) -> String {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            // The test harness may have begun the line.
            if let Some((_, said)) = line.split_once("> ") {
                return said.to_owned();
            }
        }
        panic!("it said no more: {:?}", self.child.wait());
    }

    fn end(mut self) {
        self.lines.by_ref().for_each(drop);
        assert!(self.child.wait().unwrap().success());
    }
}

/// The agent's side of a user's calls.
struct Agent {
    writer: CallsWriter,
}

impl Agent {
    fn new(run_dir: &Path) -> Self {
        let user = rustix::process::geteuid().as_raw();
        let scope = RunDir::new(run_dir).scope(&format!("u{user}"));
        std::fs::create_dir_all(scope.path()).unwrap();
        let path = scope.path().join("calls");
        let writer = CallsWriter::open_or_create(&path, now_ns()).unwrap();
        Self { writer }
    }

    fn fire(&mut self, call: &Call) -> u64 {
        self.writer.fire(call).unwrap()
    }
}

fn now_ns() -> i64 {
    SystemClock::new().now_ns()
}

fn trigger(name: &str, payload: &str) -> Call {
    let now_ns = now_ns();
    Call {
        id: 0,
        issued_ns: now_ns,
        expires_ns: now_ns + 60_000_000_000,
        kind: CallKind::Trigger,
        name: name.into(),
        target: CallTarget::default(),
        payload: CallPayload::Text(payload.into()),
        version: 0,
        at_frame: None,
    }
}

fn knob(name: &str, payload: CallPayload, version: u64) -> Call {
    Call {
        kind: CallKind::Knob,
        payload,
        version,
        ..trigger(name, "")
    }
}

fn to(mut call: Call, label: &str, value: &str) -> Call {
    call.target.labels.push((label.into(), value.into()));
    call
}

#[test]
fn handlers_run_and_knobs_are_set_once_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    // The callee is there before the agent is.
    let mut callee = Callee::start("handles", dir.path());
    let mut agent = Agent::new(dir.path());
    let mut expect = BTreeMap::new();
    let mut fire = |agent: &mut Agent, call: Call, status: u32| {
        expect.insert(agent.fire(&call), status);
    };
    fire(&mut agent, trigger("greet", "a"), DONE);
    fire(&mut agent, trigger("greet", "fail"), FAILED);
    fire(&mut agent, trigger("greet", "panic"), FAILED);
    let late = Call {
        expires_ns: now_ns(),
        ..trigger("greet", "late")
    };
    fire(&mut agent, late, EXPIRED);
    let mine = to(trigger("greet", "mine"), "application", "tested");
    fire(&mut agent, mine, DONE);
    let float = CallPayload::Float;
    fire(&mut agent, knob("calls.tolerance", float(0.25), 1), DONE);
    fire(&mut agent, knob("calls.tolerance", float(1.5), 2), REFUSED);
    let wrong = CallPayload::Text("0.1".into());
    fire(&mut agent, knob("calls.tolerance", wrong, 3), REFUSED);
    fire(
        &mut agent,
        knob("calls.steps", CallPayload::Int(9), 4),
        DONE,
    );
    // Calls for others, with an unknown name, or from before the callee was there.
    agent.fire(&to(trigger("greet", "theirs"), "application", "other"));
    agent.fire(&trigger("unknown", ""));
    agent.fire(&knob("calls.unknown", float(0.1), 5));
    let before = Call {
        issued_ns: 1,
        ..trigger("greet", "before")
    };
    agent.fire(&before);
    fire(&mut agent, trigger("end", ""), DONE);
    for said in ["a", "fail", "panic", "mine"] {
        assert_eq!(callee.says(), format!("greeted {said}"));
    }
    assert_eq!(callee.says(), "0.25 9 0");
    assert_eq!(callee.says(), "greet: as told");
    callee.end();
    let mut file = reader::only(dir.path());
    let puts = file.read();
    let answers: Vec<(u64, u32)> = expect.into_iter().collect();
    assert_eq!(file.answers, answers);
    assert_eq!(floats(&puts, "calls.tolerance"), [0.5, 0.25]);
    check_declared(&file.declared);
}

fn check_declared(declared: &[IngestDeclaration]) {
    let trigger = IngestDeclaration::Trigger {
        publication: u32::MAX,
        name: "greet".into(),
        help: "says what it is given".into(),
    };
    let (min, max) = (0.0, 9.0);
    let steps = IngestDeclaration::Knob { value: 1, min, max };
    assert!(
        declared.contains(&trigger) && declared.contains(&steps),
        "{declared:?}"
    );
}

/// A line of the table, as a call, and the handlers that must run for it.
fn meant(line: &str) -> (Call, String) {
    let [kind, name, target, who @ ..] = &line.split_ascii_whitespace().collect::<Vec<_>>()[..]
    else {
        panic!("{line}");
    };
    let call = match *kind {
        "trigger" => trigger(name, ""),
        "knob" => knob(name, CallPayload::Float(0.25), 1),
        _ => panic!("{line}"),
    };
    let pairs = target.split(',').filter_map(|pair| pair.split_once('='));
    let call = pairs.fold(call, |call, (label, value)| to(call, label, value));
    (call, who.concat().replace('-', ""))
}

#[test]
fn who_is_meant_by_the_labels_of_process_and_publication() {
    let lines = include_str!("../../../stream/tests/meant.txt").lines();
    let mut cases: Vec<_> = lines.filter(|l| !l.starts_with('#')).map(meant).collect();
    // A handler that fails does not keep others from running, and makes the process's answer a
    // failure.
    cases.push((trigger("all", "a"), "pab".into()));
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let mut callee = Callee::start("of_publications", dir.path());
    let (mut handled, mut answers) = (Vec::new(), Vec::new());
    for (mut call, who) in cases {
        call.issued_ns = now_ns();
        let id = agent.fire(&call);
        if who.is_empty() {
            continue;
        }
        if call.kind == CallKind::Trigger {
            handled.push(format!("{id} {who}"));
        }
        let is_failed = call.payload == CallPayload::Text("a".into());
        answers.push((id, if is_failed { FAILED } else { DONE }));
    }
    answers.push((agent.fire(&trigger("end", "")), DONE));
    for expect in handled {
        assert_eq!(callee.says(), expect);
    }
    assert_eq!(callee.says(), "all: a as told");
    assert_eq!(callee.says(), "0.25 0.25");
    callee.end();
    let mut file = reader::only(dir.path());
    file.read();
    file.answers.sort_unstable();
    assert_eq!(file.answers, answers);
    let declared = |publication, name: &str| IngestDeclaration::Trigger {
        publication,
        name: name.into(),
        help: String::new(),
    };
    for (publication, name) in [(0, "flush"), (1, "flush"), (u32::MAX, "all")] {
        let wanted = declared(publication, name);
        let count = file.declared.iter().filter(|d| **d == wanted).count();
        assert_eq!(count, 1, "{publication} {name}");
    }
}

#[test]
fn each_call_is_handled_once_whoever_polls() {
    const CALLS: u64 = 200;
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let mut callee = Callee::start("polls_from_threads", dir.path());
    for _ in 0..CALLS {
        agent.fire(&trigger("count", ""));
    }
    agent.fire(&trigger("end", ""));
    assert_eq!(callee.says(), format!("{CALLS} {}", CALLS + 1));
    callee.end();
    let mut file = reader::only(dir.path());
    file.read();
    file.answers.sort_unstable();
    let expect: Vec<(u64, u32)> = (1..=CALLS + 1).map(|id| (id, DONE)).collect();
    assert_eq!(file.answers, expect);
}

#[test]
fn frames_set_knobs_and_leave_handlers_to_polls() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let callee = Callee::start("frames_alone", dir.path());
    agent.fire(&trigger("greet", ""));
    agent.fire(&knob("calls.on", CallPayload::Bool(true), 7));
    callee.end();
    let mut file = reader::only(dir.path());
    let puts = file.read();
    assert_eq!(file.answers, [(2, DONE), (1, DONE)]);
    let states = puts.iter().filter(|put| put.name == "calls.on");
    let states: Vec<&Content> = states.map(|put| &put.value).collect();
    assert_eq!(states, [&Content::Bool(false), &Content::Bool(true)]);
}

#[test]
fn a_knob_is_set_at_the_end_of_the_frame_that_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let mut callee = Callee::start("frames_that_it_is_told", dir.path());
    let at = |value, at_frame, version| Call {
        at_frame: Some(at_frame),
        ..knob("calls.steps", CallPayload::Int(value), version)
    };
    let mut step = |line: &str, expect: u32| {
        writeln!(callee.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        assert_eq!(callee.says(), expect.to_string(), "after {line}");
    };
    step("1", 1);
    agent.fire(&at(2, 3, 1));
    agent.fire(&at(3, 5, 2));
    // Neither a poll nor a frame before the named one applies it, and a poll after it does not
    // apply it again.
    for (line, expect) in [
        ("2", 1),
        ("poll", 1),
        ("3", 2),
        ("poll", 2),
        ("4", 2),
        ("5", 3),
    ] {
        step(line, expect);
    }
    // The callee learns of this one when it has ended the frame; a poll cannot tell.
    agent.fire(&at(4, 5, 3));
    for (line, expect) in [("poll", 3), ("6", 3)] {
        step(line, expect);
    }
    // Immediate and later settings apply at their times; a value out of bounds is reported then.
    agent.fire(&at(5, 9, 4));
    agent.fire(&at(10, 8, 5));
    agent.fire(&knob("calls.steps", CallPayload::Int(6), 6));
    for (line, expect) in [("7", 6), ("8", 6), ("9", 5)] {
        step(line, expect);
    }
    // A frame that is skipped is over, and a setting that comes too late has expired.
    agent.fire(&at(7, 10, 7));
    let short = Call {
        expires_ns: now_ns() + 1_000_000,
        ..at(8, 12, 8)
    };
    agent.fire(&short);
    while now_ns() <= short.expires_ns {
        std::thread::yield_now();
    }
    for (line, expect) in [("11", 5), ("12", 5)] {
        step(line, expect);
    }
    drop(callee.child.stdin.take());
    callee.end();
    let mut file = reader::only(dir.path());
    file.read();
    file.answers.sort_unstable();
    let expect = [DONE, DONE, LATE, DONE, REFUSED, DONE, LATE, EXPIRED];
    let expect: Vec<(u64, u32)> = (1..).zip(expect).collect();
    assert_eq!(file.answers, expect);
}

#[test]
fn a_program_that_listens_is_woken() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let callee = Callee::start("listens", dir.path());
    agent.fire(&trigger("greet", "a"));
    agent.fire(&trigger("greet", "b"));
    callee.end();
    let mut file = reader::only(dir.path());
    file.read();
    assert_eq!(file.answers, [(1, DONE), (2, DONE)]);
    assert!(file.file.is_closed());
}

/// The file of an agent that cannot go on with it is replaced. Calls that are written again are
/// recognized.
#[test]
fn a_file_that_is_replaced_is_followed_and_nothing_runs_twice() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let mut callee = Callee::start("handles", dir.path());
    let first = trigger("greet", "first");
    agent.fire(&first);
    assert_eq!(callee.says(), "greeted first");
    agent.writer.close();
    let mut agent = Agent::new(dir.path());
    agent.fire(&first);
    agent.fire(&trigger("greet", "fail"));
    agent.fire(&trigger("end", ""));
    assert_eq!(callee.says(), "greeted fail");
    callee.end();
    let mut file = reader::only(dir.path());
    file.read();
    let expect = [(1, DONE), (1, DONE), (2, FAILED), (3, DONE)];
    assert_eq!(file.answers, expect);
}

#[test]
fn a_child_is_called_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let mut callee = Callee::start("forks_and_polls", dir.path());
    agent.fire(&trigger("name", ""));
    let parent = callee.child.id();
    assert_eq!(callee.says(), format!("named {parent}"));
    agent.fire(&knob("calls.knob", CallPayload::Int(3), 1));
    let child = declared_child(dir.path(), parent);
    agent.fire(&to(trigger("name", ""), "pid", &child.to_string()));
    assert_eq!(callee.says(), format!("named {child}"));
    agent.fire(&to(
        knob("calls.knob", CallPayload::Int(5), 2),
        "pid",
        &child.to_string(),
    ));
    agent.fire(&trigger("end", ""));
    let mut said = [callee.says(), callee.says()];
    said.sort();
    assert_eq!(said, ["child 5", "parent 3"]);
    callee.end();
    let mut files = reader::files(dir.path());
    let puts: Vec<_> = files.iter_mut().map(reader::Follower::read).collect();
    assert_eq!(files[0].answers, [(1, DONE), (2, DONE), (5, DONE)]);
    assert_eq!(files[1].answers, [(3, DONE), (4, DONE), (5, DONE)]);
    let ints = |puts: &[reader::Put]| -> Vec<Content> {
        puts.iter().map(|put| put.value.clone()).collect()
    };
    assert_eq!(ints(&puts[1]), [Content::Int(3), Content::Int(5)]);
}

/// Waits until a process other than the parent has declared all of its triggers.
fn declared_child(run_dir: &Path, parent: u32) -> u32 {
    let has_declared = |path: &Path| {
        let file = reader::Follower::open(path);
        let pid = file.file.pid();
        let mut file = Some(file).filter(|_| pid != parent)?;
        file.read();
        let is_last = |d: &IngestDeclaration| matches!(d, IngestDeclaration::Trigger { name, .. } if name == "end");
        file.declared.iter().any(is_last).then_some(pid)
    };
    loop {
        let found = std::fs::read_dir(RunDir::new(run_dir).ingest_dir()).unwrap();
        let paths = found.map(|entry| entry.unwrap().path());
        let mut whole = paths.filter(|p| p.extension().is_some_and(|e| e == "ingest"));
        if let Some(child) = whole.find_map(|path| has_declared(&path)) {
            return child;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn handlers_may_do_anything() {
    let dir = tempfile::tempdir().unwrap();
    let mut agent = Agent::new(dir.path());
    let mut callee = Callee::start("handlers_that_do_anything", dir.path());
    agent.fire(&trigger("nest", ""));
    agent.fire(&knob("calls.knob", CallPayload::Int(4), 1));
    agent.fire(&trigger("nest", ""));
    agent.fire(&trigger("end", ""));
    callee.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(callee.says(), "another");
    assert_eq!(callee.says(), "left");
    agent.fire(&trigger("left", ""));
    agent.fire(&trigger("last", ""));
    callee.end();
    let mut file = reader::only(dir.path());
    file.read();
    let expect = [
        (2, DONE),
        (1, DONE),
        (3, DONE),
        (4, DONE),
        (5, FAILED),
        (6, DONE),
    ];
    assert_eq!(file.answers, expect);
}

#[test]
fn switched_off_nothing_comes() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = command("is_off", dir.path());
    finish(command.env("BAROGRAPH", "off"));
}
