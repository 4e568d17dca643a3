//! Tests of triggers and knobs, from HTTP into the memory of a process and back, through whole
//! agents.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_agent::Agent;
use barograph_model::{Kind, SqlLimits, ValueType};
use barograph_query::{Cell, Database, ScopeChoice};
use barograph_stream::calls::{Call, CallKind, CallPayload, CallsReader, NextCall};
use barograph_stream::ingest::{
    IngestDeclaration, Producer, ProducerConfig, PublicationReaders, ThreadRing, kind,
};
use barograph_stream::{
    CALLS_DOCUMENT, HANDLERS_DOCUMENT, KNOBS_DOCUMENT, PUBLICATIONS_DOCUMENT, RunDir, SystemClock,
};
use barograph_testing::wait_for;
use serde_json::{Value as Json, json};

use crate::config;

pub(crate) fn our_scope(dir: &Path) -> RunDir {
    let uid = rustix::process::getuid().as_raw();
    RunDir::new(dir.join("run")).scope(&format!("u{uid}"))
}

/// A process with a trigger and a knob, as far as the agent can tell.
pub(crate) struct Application {
    producer: Producer,
    ring: ThreadRing,
    cursor: u64,
}

impl Application {
    pub(crate) fn new(dir: &Path, rank: u32) -> Self {
        let declarations = [
            IngestDeclaration::Process {
                application: "solver".into(),
                labels: vec![("rank".into(), rank.to_string())],
            },
            IngestDeclaration::Publication {
                name: "solver.step".into(),
                readers: PublicationReaders::Owner,
                labels: vec![("phase".into(), "solve".into())],
            },
            IngestDeclaration::Value {
                publication: 0,
                name: "dt".into(),
                value_type: ValueType::Float,
                kind: Kind::State,
                unit: "s".into(),
                help: "length of a step".into(),
                bytes_max: 0,
            },
            IngestDeclaration::Knob {
                value: 0,
                min: 0.0,
                max: 1.0,
            },
            IngestDeclaration::Trigger {
                publication: u32::MAX,
                name: "checkpoint".into(),
                help: "writes a checkpoint".into(),
            },
            // The following declarations are not valid, and must not hide the others.
            IngestDeclaration::Knob {
                value: 9,
                min: 0.0,
                max: 1.0,
            },
            IngestDeclaration::Trigger {
                publication: 9,
                name: "no name".into(),
                help: String::new(),
            },
        ];
        Self::of(dir, &declarations)
    }

    /// Returns a process with these declarations; its first value is a float.
    fn of(dir: &Path, declarations: &[IngestDeclaration]) -> Self {
        let clock = SystemClock::new();
        let ingest = RunDir::new(dir.join("run")).ingest_dir();
        let producer = Producer::create(&ingest, ProducerConfig::default(), &clock).unwrap();
        for declaration in declarations {
            assert!(producer.declare(declaration));
        }
        let mut ring = producer.thread(&clock).unwrap();
        let time = producer.time_source().now(&clock);
        ring.put(kind::FLOAT, 0, time, 0.1f64.to_bits());
        ring.commit();
        Self {
            producer,
            ring,
            cursor: 0,
        }
    }

    fn next(&mut self, scope: &RunDir) -> Option<Call> {
        let reader = CallsReader::open(&scope.path().join("calls")).ok()?;
        match reader.next(&mut self.cursor) {
            NextCall::Call(call) => Some(call),
            NextCall::Nothing => None,
            NextCall::Missed(n) => panic!("{n} missed"),
        }
    }

    fn answer(&mut self, id: u64, status: u32) {
        let time = self.producer.time_source().now(&SystemClock::new());
        assert!(self.ring.put(kind::ACK, status, time, id));
        self.ring.commit();
    }
}

impl Application {
    /// Sets the knob and acknowledges it, as the library does.
    fn apply(&mut self, id: u64, value: f64) {
        let time = self.producer.time_source().now(&SystemClock::new());
        assert!(self.ring.put(kind::FLOAT, 0, time, value.to_bits()));
        self.answer(id, 0);
    }
}

/// Status and answer of `POST /api/v1/fire`.
pub(crate) fn fire(dir: &Path, socket: &str, body: &Json) -> (u16, Json) {
    let mut stream = UnixStream::connect(dir.join("run").join(socket)).unwrap();
    let (head, body) = (
        "POST /api/v1/fire HTTP/1.1\r\nHost: localhost\r\nConnection: close",
        body.to_string(),
    );
    write!(
        stream,
        "{head}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

fn first(scope: &RunDir, sql: &str) -> Option<Cell> {
    let mut database =
        Database::open(scope, ScopeChoice::None, Arc::new(SystemClock::new())).ok()?;
    let rows = database.run(sql, &SqlLimits::default(), &AtomicBool::new(false));
    rows.ok()?.get(0, 0).cloned()
}

/// Returns the text that a query over these scopes gives.
fn text(run_dir: &RunDir, scopes: ScopeChoice, sql: &str) -> Option<String> {
    let mut database = Database::open(run_dir, scopes, Arc::new(SystemClock::new())).ok()?;
    let rows = database.run(sql, &SqlLimits::default(), &AtomicBool::new(false));
    match rows.ok()?.get(0, 0)? {
        Cell::Text(text) => Some(text.to_string()),
        _ => None,
    }
}

/// Returns a row of a scope's document that satisfies `wanted`.
fn row(scope: &RunDir, document: &str, wanted: impl Fn(&Json) -> bool) -> Option<Json> {
    let bytes = scope.document(document).unwrap()?;
    let rows: Vec<Json> = serde_json::from_slice(&bytes).unwrap();
    rows.into_iter().find(wanted)
}

#[test]
fn a_trigger_is_fired_handled_answered_and_written_down() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let (status, answer) = fire(dir.path(), "control.sock", &json!({"name": "checkpoint"}));
    assert_eq!((status, &answer["error"]["kind"]), (404, &json!("unknown")));
    let mut ranks = [0, 1].map(|rank| Application::new(dir.path(), rank));
    let body = json!({"name": "checkpoint", "target": {"application": "solver"}, "payload": "now"});
    let scope = our_scope(dir.path());
    // Fires until both ranks are known. Earlier calls reached only one rank.
    let fired = wait_for("both ranks", || {
        let (status, answer) = fire(dir.path(), "read.sock", &body);
        (status == 200 && answer["matched"] == 2).then_some(answer)
    });
    assert_eq!(fired["state"], "fired");
    let id: u64 = fired["id"]
        .as_str()
        .unwrap()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    for rank in &mut ranks {
        let call = wait_for("the call", || {
            rank.next(&scope).filter(|call| call.id == id)
        });
        assert_eq!(
            (call.kind, call.payload),
            (CallKind::Trigger, CallPayload::Text("now".into()))
        );
        rank.answer(id, 0);
        rank.answer(id, 0);
    }
    let state = format!(
        "SELECT count(*) FROM calls WHERE id = {id} AND state = 'acknowledged' AND matched = 2 AND acknowledged = 2 AND via = 'read.sock' AND by_pid = {}",
        std::process::id()
    );
    let run_dir = RunDir::new(dir.path().join("run"));
    let all = |sql: &str| {
        let database = Database::open(
            &run_dir,
            ScopeChoice::Readable,
            Arc::new(SystemClock::new()),
        );
        let rows = database
            .ok()?
            .run(sql, &SqlLimits::default(), &AtomicBool::new(false));
        rows.ok()?.get(0, 0).cloned()
    };
    wait_for("the row", || {
        all(&state).filter(|cell| matches!(cell, Cell::Int(1)))
    });
    for (stream, expect) in [("app_call_fired_id", 1), ("app_call_acked_id", 2)] {
        let sql =
            format!("SELECT count(*) FROM {stream} WHERE name = 'checkpoint' AND value = {id}");
        let count = || first(&scope, &sql).filter(|cell| *cell == Cell::Int(expect));
        wait_for(stream, count);
    }
}

#[test]
fn a_knob_is_known_with_its_bounds_and_set_within_them() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let mut application = Application::new(dir.path(), 3);
    let scope = our_scope(dir.path());
    let knob = wait_for("the knob", || {
        row(&scope, KNOBS_DOCUMENT, |row| row["value"] == json!(0.1))
    });
    assert_eq!(
        (&knob["publication"], &knob["name"]),
        (&json!("solver.step"), &json!("dt"))
    );
    assert_eq!(
        (&knob["min"], &knob["max"], &knob["unit"]),
        (&json!(0.0), &json!(1.0), &json!("s"))
    );
    assert_eq!(
        (&knob["labels"]["rank"], &knob["labels"]["phase"]),
        (&json!("3"), &json!("solve"))
    );
    let handler = wait_for("the trigger", || row(&scope, HANDLERS_DOCUMENT, |_| true));
    assert_eq!(
        (&handler["name"], &handler["help"]),
        (&json!("checkpoint"), &json!("writes a checkpoint"))
    );
    let set = |value: Json| {
        let body = json!({"name": "solver.step.dt", "knob": true, "payload": value, "target": {"phase": "solve"}});
        fire(dir.path(), "control.sock", &body)
    };
    let (status, answer) = set(json!(1.5));
    assert_eq!(
        (status, &answer["error"]["kind"]),
        (400, &json!("statement"))
    );
    let (status, answer) = set(json!(1));
    assert_eq!((status, &answer["matched"]), (200, &json!(1)));
    let call = wait_for("the setting", || application.next(&scope));
    assert_eq!(
        (call.kind, call.payload),
        (CallKind::Knob, CallPayload::Float(1.0))
    );
    application.answer(call.id, 0);
    // Two of its declarations are not valid.
    let refused = |row: &Json| row["refused"] == 2;
    wait_for("the refusals", || {
        row(&scope, PUBLICATIONS_DOCUMENT, refused)
    });
}

#[test]
fn a_knob_that_was_set_is_listed_as_it_was_set() {
    const SETTINGS: u32 = 40;
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let mut application = Application::new(dir.path(), 3);
    let scope = our_scope(dir.path());
    wait_for("the knob", || row(&scope, KNOBS_DOCUMENT, |_| true));
    let run_dir = RunDir::new(dir.path().join("run"));
    for setting in 1..=SETTINGS {
        let value = f64::from(setting) / f64::from(SETTINGS);
        let body = json!({"name": "solver.step.dt", "knob": true, "payload": value, "wait_s": 30});
        let (status, answer) = std::thread::scope(|threads| {
            let asked = threads.spawn(|| fire(dir.path(), "control.sock", &body));
            let call = wait_for("the setting", || application.next(&scope));
            application.apply(call.id, value);
            asked.join().unwrap()
        });
        assert_eq!((status, &answer["state"]), (200, &json!("acknowledged")));
        // Nothing is waited for.
        let knob = row(&scope, KNOBS_DOCUMENT, |_| true).unwrap();
        assert_eq!(knob["value"], json!(value), "{setting}");
        let sql = "SELECT CAST(value AS TEXT) FROM knobs";
        let asked = text(&run_dir, ScopeChoice::Readable, sql);
        assert_eq!(asked, Some(format!("{value:?}")), "{setting}");
    }
}

/// Returns the process of `crates/stream/tests/meant.txt`. Everyone may read its publication `a`.
fn of_publications(dir: &Path) -> Application {
    let pairs = |of: &[(&str, &str)]| of.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    let publication =
        |name: &str, readers, labels: &[(&str, &str)]| IngestDeclaration::Publication {
            name: name.into(),
            readers,
            labels: pairs(labels),
        };
    let value = |publication| IngestDeclaration::Value {
        publication,
        name: "dt".into(),
        value_type: ValueType::Float,
        kind: Kind::Gauge,
        unit: "s".into(),
        help: String::new(),
        bytes_max: 0,
    };
    let (min, max) = (0.0, 1.0);
    let trigger = |publication, name: &str| IngestDeclaration::Trigger {
        publication,
        name: name.into(),
        help: String::new(),
    };
    Application::of(
        dir,
        &[
            IngestDeclaration::Process {
                application: "tested".into(),
                labels: pairs(&[("job", "9"), ("rank", "3")]),
            },
            publication(
                "a",
                PublicationReaders::All,
                &[("phase", "solve"), ("rank", "4")],
            ),
            publication("b", PublicationReaders::Owner, &[("phase", "io")]),
            value(0),
            value(1),
            IngestDeclaration::Knob { value: 0, min, max },
            IngestDeclaration::Knob { value: 1, min, max },
            trigger(u32::MAX, "checkpoint"),
            trigger(0, "step"),
            trigger(0, "flush"),
            trigger(1, "flush"),
            trigger(u32::MAX, "all"),
            trigger(0, "all"),
            trigger(1, "all"),
        ],
    )
}

#[test]
fn who_is_meant_by_the_labels_of_process_and_publication() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let _application = of_publications(dir.path());
    wait_for("the process", || {
        row(&our_scope(dir.path()), HANDLERS_DOCUMENT, |_| true)
    });
    let lines = include_str!("../../stream/tests/meant.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let pairs = words[2].split(',').filter_map(|pair| pair.split_once('='));
        let target: std::collections::BTreeMap<_, _> = pairs.collect();
        let is_knob = words[0] == "knob";
        let payload = is_knob.then_some(0.5);
        let body = json!({"name": words[1], "knob": is_knob, "target": target, "payload": payload});
        let (status, answer) = fire(dir.path(), "control.sock", &body);
        let is_meant = words[3] != "-";
        let expect = if is_meant { 200 } else { 404 };
        assert_eq!(status, expect, "{line}: {answer}");
        assert!(!is_meant || answer["matched"] == 1, "{line}: {answer}");
    }
}

#[test]
fn everyone_may_read_of_calls_of_what_everyone_may_read() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let mut application = of_publications(dir.path());
    let run_dir = RunDir::new(dir.path().join("run"));
    let (own, all) = (our_scope(dir.path()), run_dir.scope("all"));
    // Handlers are listed in the scope of their publication.
    let of_a = wait_for("the trigger", || {
        row(&all, HANDLERS_DOCUMENT, |row| row["name"] == "flush")
    });
    let labels = &of_a["labels"];
    assert_eq!(
        (&of_a["publication"], &labels["rank"]),
        (&json!("a"), &json!("4"))
    );
    let others = |row: &Json| row["publication"] != "a";
    assert_eq!(row(&all, HANDLERS_DOCUMENT, others), None);
    wait_for("those of the owner", || {
        row(&own, HANDLERS_DOCUMENT, |r| r["publication"] == "b")
    });
    let fire = |body: Json| {
        let (status, answer) = fire(dir.path(), "control.sock", &body);
        assert_eq!(status, 200, "{answer}");
    };
    fire(json!({"name": "flush", "target": {"phase": "solve"}, "payload": "secret"}));
    fire(json!({"name": "flush", "target": {"phase": "io"}}));
    fire(json!({"name": "flush"}));
    fire(json!({"name": "checkpoint"}));
    fire(json!({"name": "all", "target": {"rank": 4}}));
    fire(json!({"name": "a.dt", "knob": true, "payload": 0.5}));
    fire(json!({"name": "b.dt", "knob": true, "payload": 0.5}));
    for id in [1, 5, 6, 7] {
        application.answer(id, 0);
    }
    let check = |scopes, sql: &str, expect: &str| {
        wait_for(sql, || {
            text(&run_dir, scopes, sql).filter(|found| found == expect)
        });
    };
    let rows = "SELECT group_concat(id || coalesce(payload, '-') || payload_bytes || state, ' ' ORDER BY id) \
                FROM calls";
    let public = "1-6acknowledged 5-0acknowledged 60.58acknowledged";
    check(ScopeChoice::Public, rows, public);
    check(
        ScopeChoice::Readable,
        rows,
        "1secret6acknowledged 20fired 30fired 40fired 50acknowledged 60.58acknowledged 70.58acknowledged",
    );
    // Each call is in one scope only.
    let fired = "SELECT group_concat(value, ' ' ORDER BY value) FROM app_call_fired_id";
    check(ScopeChoice::Public, fired, "1 5 6");
    check(ScopeChoice::Readable, fired, "1 2 3 4 5 6 7");
    let acked = "SELECT group_concat(value, ' ' ORDER BY value) FROM app_call_acked_id";
    check(ScopeChoice::Public, acked, "1 5 6");
    check(ScopeChoice::Readable, acked, "1 5 6 7");
    agent.stop();
    std::fs::remove_file(all.path().join(CALLS_DOCUMENT)).unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    check(ScopeChoice::Public, rows, public);
}

#[test]
fn who_waits_is_told_and_the_end_of_a_process_ends_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let mut application = Application::new(dir.path(), 0);
    let scope = our_scope(dir.path());
    wait_for("the trigger", || row(&scope, HANDLERS_DOCUMENT, |_| true));
    let path = dir.path().to_owned();
    let body = json!({"name": "checkpoint", "wait_s": 20});
    let waiter = {
        let (path, body) = (path.clone(), body.clone());
        std::thread::spawn(move || fire(&path, "control.sock", &body))
    };
    let call = wait_for("the call", || application.next(&scope));
    application.answer(call.id, 1);
    let (status, answer) = waiter.join().unwrap();
    assert_eq!(
        (status, &answer["state"], &answer["failed"]),
        (200, &json!("failed"), &json!(1))
    );
    let waiter = std::thread::spawn(move || fire(&path, "control.sock", &body));
    wait_for("the call", || application.next(&scope));
    drop(application);
    let (_, answer) = waiter.join().unwrap();
    assert_eq!(
        (&answer["state"], &answer["gone"]),
        (&json!("gone"), &json!(1))
    );
}

#[test]
fn a_call_outlives_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let mut application = Application::new(dir.path(), 0);
    let scope = our_scope(dir.path());
    wait_for("the trigger", || row(&scope, HANDLERS_DOCUMENT, |_| true));
    let (_, answer) = fire(dir.path(), "control.sock", &json!({"name": "checkpoint"}));
    assert_eq!(answer["matched"], 1);
    agent.stop();
    // The call is handled without an agent, and the next agent reads the answer.
    let call = application.next(&scope).unwrap();
    application.answer(call.id, 0);
    let _agent = Agent::start(config(dir.path())).unwrap();
    wait_for("the answer", || {
        row(&scope, CALLS_DOCUMENT, |row| {
            row["id"] == call.id && row["state"] == "acknowledged"
        })
    });
    let (_, answer) = fire(dir.path(), "control.sock", &json!({"name": "checkpoint"}));
    assert!(answer["id"].as_str().unwrap().ends_with(":2"), "{answer}");
    assert_eq!(application.next(&scope).unwrap().id, 2);
}
