//! Tests of losses: what the archive or an application lost is tried again if that helps, and
//! counted if not.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_agent::Agent;
use barograph_model::{Kind, SqlLimits, ValueType};
use barograph_query::{Cell, Database, ScopeChoice};
use barograph_stream::SystemClock;
use barograph_stream::ingest::{
    IngestDeclaration, Producer, ProducerConfig, PublicationReaders, ThreadRing, kind,
};
use barograph_testing::wait_until;

use crate::applications::{Application, number, our_scope, run_dir};
use crate::bridges::{lines, now_ns};
use crate::config;

/// A file blocks the directory of all scopes' archives, as if the disk were full; later it is
/// removed.
#[test]
fn history_that_cannot_start_is_tried_again_and_what_is_acknowledged_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let obstacle = dir.path().join("state/applications");
    fs::create_dir_all(dir.path().join("state")).unwrap();
    fs::write(&obstacle, "").unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let scope = our_scope(dir.path());
    let mut application = Application::new(dir.path(), "solver", PublicationReaders::Owner);
    application.frames(10);
    let count = "SELECT count(*) FROM app_solver_residual";
    wait_until("live values", || number(&scope, count) == Some(100));
    // The first start of the scope's archive has failed by now, or fails during this request.
    wait_until("a durable write is not acknowledged", || {
        let (status, body) = lines(dir.path(), "cpu usage=1");
        assert!(status == 503 || body.is_empty(), "{status} {body}");
        body.contains("cannot be kept now")
    });
    fs::remove_file(&obstacle).unwrap();
    let t = now_ns();
    let line = format!("cpu usage=2 {t}");
    wait_until("it is acknowledged", || lines(dir.path(), &line).0 == 204);
    application.frames(10);
    wait_until("what came meanwhile", || number(&scope, count) == Some(200));
    agent.stop();
    // A new agent has all of its values from the archive.
    drop(application);
    let _agent = Agent::start(config(dir.path())).unwrap();
    wait_until("values of the time without history", || {
        number(&scope, count) == Some(200)
    });
    let acknowledged = format!("SELECT count(*) FROM app_cpu_usage WHERE ts = {t}");
    wait_until("the acknowledged value", || {
        number(&scope, &acknowledged) == Some(1)
    });
}

/// A program with a number of integer values: `n0`, `n1` and so on.
struct Program {
    producer: Producer,
    ring: ThreadRing,
}

impl Program {
    fn new(dir: &Path, name: &str, values: u32, value_kind: Kind) -> Self {
        let clock = SystemClock::new();
        let config = ProducerConfig::default();
        let ingest = run_dir(dir).ingest_dir();
        fs::create_dir_all(&ingest).unwrap();
        let producer = Producer::create(&ingest, config, &clock).unwrap();
        assert!(producer.declare(&IngestDeclaration::Publication {
            name: name.into(),
            readers: PublicationReaders::Owner,
            labels: Vec::new(),
        }));
        for value in 0..values {
            assert!(producer.declare(&IngestDeclaration::Value {
                publication: 0,
                name: format!("n{value}"),
                value_type: ValueType::Int,
                kind: value_kind,
                unit: "1".into(),
                help: String::new(),
                bytes_max: 0,
            }));
        }
        let ring = producer.thread(&clock).unwrap();
        Self { producer, ring }
    }

    fn put(&mut self, series: u32, value: i64) {
        put_into(&self.producer, &mut self.ring, series, value);
    }
}

fn put_into(producer: &Producer, ring: &mut ThreadRing, series: u32, value: i64) {
    let time = producer.time_source().now(&SystemClock::new());
    assert!(ring.put(kind::INT, series, time, value as u64));
    ring.commit();
}

/// Like [`number`], over all scopes that this user may read.
fn number_of_all(dir: &Path, sql: &str) -> Option<i64> {
    let clock = Arc::new(SystemClock::new());
    let mut database = Database::open(&run_dir(dir), ScopeChoice::Readable, clock).ok()?;
    let rows = database.run(sql, &SqlLimits::default(), &AtomicBool::new(false));
    match rows.ok()?.get(0, 0)? {
        Cell::Int(n) => Some(*n),
        _ => None,
    }
}

#[test]
fn a_scope_that_cannot_be_opened_is_tried_again_and_its_programs_are_heard() {
    let dir = tempfile::tempdir().unwrap();
    let obstacle = dir.path().join("run/applications");
    fs::create_dir_all(dir.path().join("run")).unwrap();
    fs::write(&obstacle, "").unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let mut program = Program::new(dir.path(), "late", 1, Kind::Gauge);
    program.put(0, 1);
    wait_until("a write is not taken", || {
        lines(dir.path(), "cpu usage=1").0 == 503
    });
    fs::remove_file(&obstacle).unwrap();
    let scope = our_scope(dir.path());
    let mut put = 1;
    wait_until("it is heard", || {
        put += 1;
        program.put(0, put);
        number(&scope, "SELECT count(*) > 0 FROM app_late_n0") == Some(1)
    });
    wait_until("and what was put before is there or counted", || {
        let there = number(&scope, "SELECT count(*) FROM app_late_n0");
        let lost = "SELECT coalesce(sum(value), 0) FROM latest('app.process.loss.count')";
        let lost = number(&scope, lost);
        there
            .zip(lost)
            .is_some_and(|(there, lost)| there + lost == put)
    });
}

#[test]
fn what_found_no_room_has_it_when_others_have_ended() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = config(dir.path());
    small.applications.streams_max = 32;
    let _agent = Agent::start(small).unwrap();
    // The 32 streams are enough for the 20 values and the frames of the first program, four streams
    // of its process, and four of the next process.
    let mut first = Program::new(dir.path(), "first", 20, Kind::Gauge);
    first.put(19, 7);
    let scope = our_scope(dir.path());
    wait_until("the first is there", || {
        number(&scope, "SELECT count(*) FROM app_first_n19") == Some(1)
    });
    let mut second = Program::new(dir.path(), "second", 20, Kind::Gauge);
    second.put(19, 7);
    let refused =
        "SELECT refused FROM publications WHERE name = 'second' AND refusal LIKE '%streams_max%'";
    wait_until("the second has no room", || {
        number_of_all(dir.path(), refused).is_some_and(|refused| refused > 0)
    });
    let lost = "SELECT \"count\" FROM loss WHERE what LIKE '%declaration was refused' AND \"where\" LIKE '%second%'";
    wait_until("its value is counted", || {
        number_of_all(dir.path(), lost) == Some(1)
    });
    drop(first);
    wait_until("it has room", || {
        second.put(19, 8);
        number(&scope, "SELECT max(value) FROM app_second_n19") == Some(8)
    });
    wait_until("and is told so", || {
        let refused = "SELECT max(refused) FROM publications WHERE name = 'second'";
        number_of_all(dir.path(), refused) == Some(0)
    });
}

#[test]
fn programs_one_after_the_other_are_one_series_and_their_counters_begin_anew() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let scope = our_scope(dir.path());
    for run in 1..=5 {
        let mut program = Program::new(dir.path(), "short", 1, Kind::Counter);
        program.put(0, 100);
        let path = program.producer.path().to_owned();
        drop(program);
        wait_until("its file is gone", || !path.exists());
        wait_until("it is there", || {
            let puts = "SELECT count(*) FROM app_short_n0 WHERE quality = 'measured'";
            number(&scope, puts) == Some(run)
        });
    }
    // The first program has no zero, since nobody knew that others would follow.
    let zeros = "SELECT count(*) FROM app_short_n0 WHERE value = 0 AND quality = 'derived'";
    assert_eq!(number(&scope, zeros), Some(4));
    let falls = "SELECT count(*) FROM (SELECT value, lag(value) OVER (ORDER BY ts) AS before FROM app_short_n0) WHERE value < before";
    assert_eq!(
        number(&scope, falls),
        Some(4),
        "each run is seen by who compares neighbours"
    );
}

#[test]
fn programs_that_follow_at_once_spend_no_instance_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    agent.stop();
    // All programs have come and gone, or are there, before an agent looks.
    for _ in 0..20 {
        let mut program = Program::new(dir.path(), "short", 1, Kind::Gauge);
        program.put(0, 100);
    }
    let _agent = Agent::start(config(dir.path())).unwrap();
    let scope = our_scope(dir.path());
    wait_until("all are there", || {
        number(&scope, "SELECT count(*) FROM app_short_n0") == Some(20)
    });
    let numbered =
        "SELECT count(*) FROM tables WHERE name = 'app_short_n0' AND columns LIKE '%instance%'";
    assert_eq!(number(&scope, numbered), Some(0));
}

#[test]
fn a_value_that_several_threads_put_is_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::new(dir.path(), "team", 1, Kind::Counter);
    let mut other = program.producer.thread(&SystemClock::new()).unwrap();
    for value in (2..=200).step_by(2) {
        put_into(&program.producer, &mut other, 0, value - 1);
        program.put(0, value);
    }
    let _agent = Agent::start(config(dir.path())).unwrap();
    let scope = our_scope(dir.path());
    wait_until("all are there", || {
        number(&scope, "SELECT count(*) FROM app_team_n0") == Some(200)
    });
    let newest = "SELECT value FROM latest('app.team.n0')";
    assert_eq!(number(&scope, newest), Some(200), "as it was appended last");
    let falls = "SELECT count(*) FROM (SELECT value, lag(value) OVER (ORDER BY ts) AS before FROM app_team_n0) WHERE value < before";
    assert_eq!(number(&scope, falls), Some(0));
}
