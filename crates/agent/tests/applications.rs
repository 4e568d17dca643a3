//! Tests of values that processes publish, through real ingest files into whole agents.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_agent::Agent;
use barograph_model::{Kind, SqlLimits, ValueType};
use barograph_query::{Cell, Database, ScopeChoice};
use barograph_stream::ingest::{
    IngestDeclaration, Producer, ProducerConfig, PublicationReaders, ThreadRing, kind,
};
use barograph_stream::{RunDir, SystemClock};
use barograph_testing::wait_until;

use crate::config;

pub(crate) fn run_dir(dir: &Path) -> RunDir {
    RunDir::new(dir.join("run"))
}

pub(crate) fn our_scope(dir: &Path) -> RunDir {
    let uid = rustix::process::getuid().as_raw();
    run_dir(dir).scope(&format!("u{uid}"))
}

fn declare(
    producer: &Producer,
    name: &str,
    values: &[(&str, ValueType)],
    readers: PublicationReaders,
) {
    assert!(producer.declare(&IngestDeclaration::Process {
        application: "test".into(),
        labels: vec![("rank".into(), "0".into())],
    }));
    assert!(producer.declare(&IngestDeclaration::Publication {
        name: name.into(),
        readers,
        labels: Vec::new(),
    }));
    for (value, value_type) in values {
        assert!(producer.declare(&IngestDeclaration::Value {
            publication: 0,
            name: (*value).into(),
            value_type: *value_type,
            kind: Kind::Gauge,
            unit: "1".into(),
            help: String::new(),
            bytes_max: 0,
        }));
    }
}

/// A process with one value, from the agent's point of view.
pub(crate) struct Application {
    producer: Producer,
    ring: ThreadRing,
    frame: u64,
}

impl Application {
    pub(crate) fn new(dir: &Path, name: &str, readers: PublicationReaders) -> Self {
        let clock = SystemClock::new();
        let ingest = run_dir(dir).ingest_dir();
        let producer = Producer::create(&ingest, ProducerConfig::default(), &clock).unwrap();
        declare(&producer, name, &[("residual", ValueType::Float)], readers);
        let ring = producer.thread(&clock).unwrap();
        Self {
            producer,
            ring,
            frame: 0,
        }
    }

    /// Publishes frames of ten values that continue the count.
    pub(crate) fn frames(&mut self, count: u64) {
        let clock = SystemClock::new();
        for _ in 0..count {
            for i in 0..10 {
                let time = self.producer.time_source().now(&clock);
                let value = (self.frame * 10 + i) as f64;
                assert!(self.ring.put(kind::FLOAT, 0, time, value.to_bits()));
            }
            self.frame += 1;
            let time = self.producer.time_source().now(&clock);
            assert!(self.ring.frame(0, time, self.frame));
        }
    }
}

/// Returns the first number of the answer; `None` if there is no answer yet, or no number.
pub(crate) fn number(scope: &RunDir, sql: &str) -> Option<i64> {
    let mut database =
        Database::open(scope, ScopeChoice::None, Arc::new(SystemClock::new())).ok()?;
    let rows = database.run(sql, &SqlLimits::default(), &AtomicBool::new(false));
    match rows.ok()?.get(0, 0)? {
        Cell::Int(n) => Some(*n),
        _ => None,
    }
}

const COUNT: &str = "SELECT count(*) FROM app_solver_residual";

#[test]
fn every_value_is_in_sql_with_its_labels_and_frames() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let mut application = Application::new(dir.path(), "solver", PublicationReaders::Owner);
    application.frames(300);
    let scope = our_scope(dir.path());
    wait_until("3000 values", || number(&scope, COUNT) == Some(3_000));
    let sum = "SELECT CAST(sum(value) AS INTEGER) FROM app_solver_residual";
    assert_eq!(number(&scope, sum), Some(3_000 * 2_999 / 2));
    let ordered = "SELECT count(*) FROM (SELECT value, lag(value) OVER (ORDER BY ts) AS before FROM app_solver_residual) WHERE value <= before";
    assert_eq!(number(&scope, ordered), Some(0), "in order of time");
    let frames = "SELECT max(value) FROM app_solver_frame";
    assert_eq!(number(&scope, frames), Some(300));
    let labelled = format!("{COUNT} WHERE rank = '0' AND application = 'test'");
    assert_eq!(number(&scope, &labelled), Some(3_000));
    let now = "SELECT count(*) FROM app_solver_residual WHERE abs(ts - now_ns()) < 60000000000";
    assert_eq!(number(&scope, now), Some(3_000), "at the time of the puts");
    // The error of that time, at each look; on a machine that is not asleep it is far below a
    // minute.
    let looks = "SELECT count(*) FROM app_process_clock_error_ns WHERE value BETWEEN 1 AND 60000000000 AND rank = '0'";
    wait_until("a bound at each look", || {
        let received = "SELECT count(*) FROM app_process_received_ns";
        number(&scope, looks).is_some_and(|n| n > 0 && number(&scope, received) == Some(n))
    });
}

#[test]
fn an_agent_that_was_away_misses_nothing_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let mut application = Application::new(dir.path(), "solver", PublicationReaders::Owner);
    application.frames(100);
    let scope = our_scope(dir.path());
    wait_until("1000 values", || number(&scope, COUNT) == Some(1_000));
    agent.stop();
    application.frames(200);
    let _agent = Agent::start(config(dir.path())).unwrap();
    application.frames(50);
    wait_until("3500 values", || number(&scope, COUNT) == Some(3_500));
    let distinct = "SELECT count(DISTINCT value) FROM app_solver_residual";
    assert_eq!(number(&scope, distinct), Some(3_500));
}

fn declare_long(producer: &Producer) {
    let most = 65_536;
    for (name, value_type, bytes_max) in [
        ("text", ValueType::Text, most),
        ("blob", ValueType::Bytes, most),
        ("document", ValueType::Json, most),
        ("mesh", ValueType::Floats, most),
        ("usual", ValueType::Bytes, 0),
        ("note", ValueType::Text, 0),
    ] {
        assert!(producer.declare(&IngestDeclaration::Value {
            publication: 0,
            name: name.into(),
            value_type,
            kind: Kind::State,
            unit: String::new(),
            help: String::new(),
            bytes_max,
        }));
    }
}

/// Checks that every value that was kept whole is there.
fn check_long(when: &str, scope: &RunDir) {
    for (sql, expect) in [
        ("SELECT count(*) FROM app_long_frame", 1),
        ("SELECT length(value) FROM app_long_text", 32_768),
        (
            "SELECT length(replace(value, 'é', '')) + 1 FROM app_long_text",
            1,
        ),
        (
            "SELECT (typeof(value) = 'blob') + length(value) FROM app_long_blob",
            65_537,
        ),
        ("SELECT substr(value, 65536) = x'A5' FROM app_long_blob", 1),
        (
            "SELECT length(value ->> '$.a[1]') FROM app_long_document",
            60_000,
        ),
        ("SELECT json_array_length(value) FROM app_long_mesh", 8_192),
        (
            "SELECT CAST(sum(e.value) AS INTEGER) FROM app_long_mesh m, json_each(m.value) e",
            8_191 * 8_192 / 4,
        ),
        ("SELECT length(value) FROM app_long_usual", 4_096),
        ("SELECT length(value) FROM app_long_note", 4_096),
        (
            "SELECT length(blob) + json_array_length(mesh) + length(note) FROM frames('long')",
            65_536 + 8_192 + 4_096,
        ),
        (
            "SELECT length(last) FROM history('app.long.blob', 0, now_ns(), 3600000000000)",
            65_536,
        ),
    ] {
        wait_until(&format!("{when}: {sql}"), || {
            number(scope, sql) == Some(expect)
        });
    }
}

/// Long values by declared size: the values that are put, and whether they are kept whole.
#[test]
fn values_of_any_length_are_kept_whole_up_to_what_is_declared() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let clock = SystemClock::new();
    let ingest = run_dir(dir.path()).ingest_dir();
    let producer = Producer::create(&ingest, ProducerConfig::default(), &clock).unwrap();
    declare(&producer, "long", &[], PublicationReaders::Owner);
    declare_long(&producer);
    let mut ring = producer.thread(&clock).unwrap();
    let text = "é".repeat(32_768);
    let document = format!("{{\"a\":[1,{:?}]}}", "x".repeat(60_000));
    let mesh: Vec<f64> = (0..8_192).map(|n| f64::from(n) * 0.5).collect();
    let mesh: Vec<u8> = mesh.iter().flat_map(|v| v.to_le_bytes()).collect();
    for (kind, series, bytes) in [
        (kind::TEXT, 0, text.as_bytes()),
        (kind::BYTES, 1, &[0xa5; 65_536]),
        (kind::JSON, 2, document.as_bytes()),
        (kind::FLOATS, 3, &mesh),
        (kind::BYTES, 4, &[1; 4_096]),
        // Lost: too long, no JSON, no array, another type.
        (kind::BYTES, 4, &[2; 4_097]),
        (kind::JSON, 2, b"{\"a\":"),
        (kind::FLOATS, 3, &[0; 9]),
        (kind::FLOATS, 1, &[0; 8]),
        // Cut.
        (kind::TEXT, 5, &[b'n'; 5_000]),
    ] {
        let time = producer.time_source().now(&clock);
        assert!(ring.put_bytes(kind, series, time, bytes));
    }
    let time = producer.time_source().now(&clock);
    assert!(ring.frame(0, time, 1));
    let scope = our_scope(dir.path());
    check_long("live", &scope);
    let newest = "SELECT length(value) FROM latest WHERE name = 'app.long.blob'";
    wait_until(newest, || number(&scope, newest) == Some(65_536));
    let types = "SELECT count(DISTINCT type) FROM streams WHERE name LIKE 'app.long.%'";
    assert_eq!(
        number(&scope, types),
        Some(5),
        "four types of values, and frames"
    );
    let lost = "SELECT max(value) FROM app_process_lost_count";
    wait_until(lost, || number(&scope, lost) == Some(4));
    drop(ring);
    drop(producer);
    agent.stop();
    // The values come from the archive alone, since the rings of a new agent are empty.
    let _agent = Agent::start(config(dir.path())).unwrap();
    check_long("archived", &scope);
}

#[test]
fn who_has_said_goodbye_leaves_its_past_and_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let mut application = Application::new(dir.path(), "solver", PublicationReaders::All);
    application.frames(10);
    let path = application.producer.path().to_owned();
    drop(application);
    wait_until("the file is removed", || !path.exists());
    let scope = run_dir(dir.path()).scope("all");
    wait_until("its past", || number(&scope, COUNT) == Some(100));
    let living = "SELECT count(*) FROM streams WHERE name LIKE 'app.solver.%'";
    assert_eq!(number(&scope, living), Some(0));
    // The same application again has another life, but the same streams.
    let mut application = Application::new(dir.path(), "solver", PublicationReaders::All);
    application.frames(10);
    wait_until("both lives", || number(&scope, COUNT) == Some(200));
    let labels = "SELECT count(DISTINCT labels) FROM streams WHERE name = 'app.solver.residual'";
    assert_eq!(number(&scope, labels), Some(1));
}

#[test]
fn who_came_before_the_agent_is_heard() {
    let dir = tempfile::tempdir().unwrap();
    let ingest = run_dir(dir.path()).ingest_dir();
    std::fs::create_dir_all(&ingest).unwrap();
    let mut application = Application::new(dir.path(), "solver", PublicationReaders::Owner);
    application.frames(20);
    let _agent = Agent::start(config(dir.path())).unwrap();
    let scope = our_scope(dir.path());
    wait_until("200 values", || number(&scope, COUNT) == Some(200));
}

#[test]
fn a_ring_that_lapped_is_counted_to_the_value() {
    let dir = tempfile::tempdir().unwrap();
    let ingest = run_dir(dir.path()).ingest_dir();
    std::fs::create_dir_all(&ingest).unwrap();
    let clock = SystemClock::new();
    let small = ProducerConfig {
        ring_records: 256,
        ..ProducerConfig::default()
    };
    let producer = Producer::create(&ingest, small, &clock).unwrap();
    declare(
        &producer,
        "solver",
        &[("residual", ValueType::Float)],
        PublicationReaders::Owner,
    );
    let mut ring = producer.thread(&clock).unwrap();
    for i in 0..10_000u64 {
        let time = producer.time_source().now(&clock);
        assert!(ring.put(kind::FLOAT, 0, time, (i as f64).to_bits()));
    }
    ring.commit();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let scope = our_scope(dir.path());
    let lost = "SELECT value FROM app_process_lost_count ORDER BY ts DESC LIMIT 1";
    wait_until("the loss is told", || {
        number(&scope, lost).is_some_and(|n| n > 0)
    });
    let (lost, there) = (
        number(&scope, lost).unwrap(),
        number(&scope, COUNT).unwrap(),
    );
    assert_eq!(lost + there, 10_000);
    let newest = "SELECT CAST(max(value) AS INTEGER) FROM app_solver_residual";
    assert_eq!(number(&scope, newest), Some(9_999), "the newest are there");
}

#[test]
fn two_at_once_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let mut first = Application::new(dir.path(), "solver", PublicationReaders::Owner);
    let mut second = Application::new(dir.path(), "solver", PublicationReaders::Owner);
    first.frames(10);
    second.frames(20);
    let scope = our_scope(dir.path());
    wait_until("300 values", || number(&scope, COUNT) == Some(300));
    let streams = "SELECT count(DISTINCT labels) FROM streams WHERE name = 'app.solver.residual'";
    assert_eq!(number(&scope, streams), Some(2));
}

#[test]
fn a_user_has_a_share_of_the_places_and_of_what_is_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.applications.users = "all".into();
    config.applications.processes_per_user_max = 2;
    config.applications.streams_per_user_max = 16;
    let _agent = Agent::start(config).unwrap();
    let mut living: Vec<Application> = ["one", "two"]
        .map(|name| Application::new(dir.path(), name, PublicationReaders::Owner))
        .into();
    living
        .iter_mut()
        .for_each(|application| application.frames(1));
    let scope = our_scope(dir.path());
    let count = |name: &str| number(&scope, &format!("SELECT count(*) FROM app_{name}_residual"));
    wait_until("two processes", || {
        count("one") == Some(10) && count("two") == Some(10)
    });
    // A third process waits in its rings. The agent reports it, and no value is lost.
    let mut third = Application::new(dir.path(), "three", PublicationReaders::Owner);
    third.frames(1);
    let waiting = "SELECT value FROM agent_ingest_waiting_count WHERE newest";
    let node = run_dir(dir.path());
    wait_until("one waits", || number(&node, waiting) == Some(1));
    assert_eq!(count("three"), None);
    living.pop();
    wait_until("its turn", || count("three") == Some(10));
    wait_until("nobody waits", || number(&node, waiting) == Some(0));
    drop((living, third));
    check_streams_of_all(dir.path());
}

/// Declares 20 values for all readers. With the frames, 16 streams are made, the most of one user;
/// the other five are refused.
fn check_streams_of_all(dir: &Path) {
    let clock = SystemClock::new();
    let ingest = run_dir(dir).ingest_dir();
    let names: Vec<String> = (0..20).map(|n| format!("v{n}")).collect();
    let values: Vec<(&str, ValueType)> = names.iter().map(|n| (&**n, ValueType::Int)).collect();
    let scope = run_dir(dir).scope("all");
    let streams = "SELECT count(*) FROM streams WHERE name LIKE 'app.%'";
    // A process that ends makes room for the next.
    for _ in 0..2 {
        let producer = Producer::create(&ingest, ProducerConfig::default(), &clock).unwrap();
        declare(&producer, "shared", &values, PublicationReaders::All);
        wait_until("its share", || number(&scope, streams) == Some(16));
        let document = scope.path().join("publications.json");
        wait_until("and the rest refused", || {
            std::fs::read_to_string(&document).is_ok_and(|text| text.contains("\"refused\":5"))
        });
        drop(producer);
        wait_until("nothing lives", || number(&scope, streams) == Some(0));
    }
}
