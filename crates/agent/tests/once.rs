//! Tests of agents that are killed after they wrote the log and before they moved the tails: each
//! value of a program must be there once.
//!
//! Only one test runs at a time: until a started program executes, it holds the open files of this
//! process, and with them the locks of agents that have stopped.

#![expect(
    clippy::disallowed_methods,
    reason = "tests wait for real threads, programs and disks"
)]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_agent::{Agent, Config};
use barograph_model::{Clock as _, Kind, SqlLimits, ValueType};
use barograph_query::{Cell, Database, ScopeChoice};
use barograph_stream::ingest::{
    IngestDeclaration, IngestFile, Producer, ProducerConfig, PublicationReaders, ThreadRing, kind,
};
use barograph_stream::{RunDir, SystemClock};
use barograph_testing::wait_until;
use rustix::process::{Signal, set_parent_process_death_signal};

const FIXTURE: &str = "../source/tests/fixtures/nvme-v2/first";
/// Environment variable that makes this binary, started again, an agent in this directory.
const DIR: &str = "BAROGRAPH_TEST_ONCE";
const ROUNDS: &str = "BARO_CRASH_ROUNDS";
/// Offset of the first ring's tail in an ingest file.
const TAIL_AT: u64 = 4_096 + 128;

/// Lock that each test holds while it runs.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(dir: &Path) -> Config {
    let mut config = Config {
        node: "n1".into(),
        http: "off".into(),
        run_dir: dir.join("run"),
        state_dir: dir.join("state"),
        ..Config::default()
    };
    config.sources.sys_root = Path::new(env!("CARGO_MANIFEST_DIR")).join(FIXTURE);
    config
}

/// A program that publishes in turn for its owner and for all, in one ring.
struct Program {
    producer: Producer,
    ring: ThreadRing,
    readers: Vec<PublicationReaders>,
    put: u64,
}

impl Program {
    fn new(dir: &Path, readers: &[PublicationReaders], config: ProducerConfig) -> Self {
        let clock = SystemClock::new();
        let ingest = run_dir(dir).ingest_dir();
        std::fs::create_dir_all(&ingest).unwrap();
        let producer = Producer::create(&ingest, config, &clock).unwrap();
        for (publication, readers) in (0..).zip(readers) {
            assert!(producer.declare(&IngestDeclaration::Publication {
                name: name(*readers).into(),
                readers: *readers,
                labels: Vec::new(),
            }));
            assert!(producer.declare(&IngestDeclaration::Value {
                publication,
                name: "n".into(),
                value_type: ValueType::Int,
                kind: Kind::Counter,
                unit: "count".into(),
                help: String::new(),
                bytes_max: 0,
            }));
        }
        let ring = producer.thread(&clock).unwrap();
        Self {
            producer,
            ring,
            readers: readers.to_vec(),
            put: 0,
        }
    }

    /// Puts the next numbers of the count, each once for each of its readers, and commits.
    fn put(&mut self, count: u64) {
        let clock = SystemClock::new();
        for _ in 0..count {
            self.put += 1;
            for series in 0..self.readers.len() as u32 {
                let time = self.producer.time_source().now(&clock);
                assert!(self.ring.put(kind::INT, series, time, self.put));
            }
        }
        self.ring.commit();
    }

    /// Waits until all values that were put are there; no others, and none twice.
    fn check(&self, dir: &Path, what: &str) {
        for readers in &self.readers {
            let (scope, table) = (scope(dir, *readers), name(*readers));
            let distinct = format!("SELECT count(DISTINCT value) FROM app_{table}_n");
            let all = format!("SELECT count(*) FROM app_{table}_n");
            let put = Some(self.put as i64);
            wait_until(&format!("{what}: all of {table}"), || {
                number(&scope, &distinct) == put
            });
            assert_eq!(number(&scope, &all), put, "{what}: {table}");
        }
    }

    /// Leaves the tail as an agent does that is killed before it moved it.
    fn forget_tail(&self) {
        let mut file = IngestFile::open(self.producer.path()).unwrap();
        file.look().unwrap();
        file.set_tail(0, 0).unwrap();
    }

    fn tail(&self) -> u64 {
        let file = std::fs::File::open(self.producer.path()).unwrap();
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, TAIL_AT).unwrap();
        u64::from_le_bytes(bytes)
    }
}

fn name(readers: PublicationReaders) -> &'static str {
    match readers {
        PublicationReaders::All => "ours",
        _ => "mine",
    }
}

fn run_dir(dir: &Path) -> RunDir {
    RunDir::new(dir.join("run"))
}

fn scope_name(readers: PublicationReaders) -> String {
    match readers {
        PublicationReaders::All => "all".into(),
        _ => format!("u{}", rustix::process::getuid().as_raw()),
    }
}

fn scope(dir: &Path, readers: PublicationReaders) -> RunDir {
    run_dir(dir).scope(&scope_name(readers))
}

fn archive(dir: &Path, readers: PublicationReaders) -> PathBuf {
    let scopes = dir.join("state/applications");
    scopes.join(scope_name(readers)).join("archive")
}

/// The log segments of a scope, oldest first.
fn logs(dir: &Path, readers: PublicationReaders) -> Vec<PathBuf> {
    // The archive of a scope starts beside its rings, so it may not be there yet.
    let entries = std::fs::read_dir(archive(dir, readers).join("nodes/n1/log"));
    let entries = entries.into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    // The record of the newest segment is in the same directory.
    let mut logs: Vec<PathBuf> = paths.filter(|path| !path.ends_with("newest")).collect();
    logs.sort();
    logs
}

/// Returns the first number of the answer; `None` if there is no answer yet, or no number.
fn number(scope: &RunDir, sql: &str) -> Option<i64> {
    let mut database =
        Database::open(scope, ScopeChoice::None, Arc::new(SystemClock::new())).ok()?;
    let rows = database.run(sql, &SqlLimits::default(), &AtomicBool::new(false));
    match rows.ok()?.get(0, 0)? {
        Cell::Int(n) => Some(*n),
        _ => None,
    }
}

#[test]
fn an_agent_killed_before_the_tails_repeats_nothing() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let both = [PublicationReaders::Owner, PublicationReaders::All];
    let mut program = Program::new(dir.path(), &both, ProducerConfig::default());
    program.put(1_000);
    program.check(dir.path(), "before");
    agent.stop();
    assert_eq!(program.tail(), 2_000);
    program.forget_tail();
    // These values come while no agent runs.
    program.put(500);
    let agent = Agent::start(config(dir.path())).unwrap();
    program.put(500);
    program.check(dir.path(), "after");
    agent.stop();
    // The tail is moved even if nothing is new.
    program.forget_tail();
    let _agent = Agent::start(config(dir.path())).unwrap();
    wait_until("the tail is told", || program.tail() == 4_000);
    program.check(dir.path(), "at last");
}

#[test]
fn what_was_sealed_meanwhile_is_known_too() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let mut short: Config = config(dir.path());
    short.archive.segment_seconds_max = 1.0;
    let agent = Agent::start(short.clone()).unwrap();
    let mut program = Program::new(
        dir.path(),
        &[PublicationReaders::Owner],
        ProducerConfig::default(),
    );
    program.put(1_000);
    program.check(dir.path(), "before");
    let mut first = None;
    wait_until("its log is there", || {
        first = logs(dir.path(), PublicationReaders::Owner)
            .into_iter()
            .next();
        first.is_some()
    });
    let first = first.unwrap();
    wait_until("its log is sealed", || !first.exists());
    agent.stop();
    program.forget_tail();
    let agent = Agent::start(short).unwrap();
    program.put(100);
    program.check(dir.path(), "after");
    agent.stop();
}

#[test]
fn logs_cut_anywhere_have_their_values_taken_in_again_and_no_others() {
    let _turn = turn();
    // Parts of the owner's log and of the log for all that were written before the kill.
    for (mine, ours) in [(1.0, 0.5), (0.5, 1.0), (0.3, 0.8), (0.0, 0.9), (0.0, 0.0)] {
        let dir = tempfile::tempdir().unwrap();
        let what = format!("cut at {mine} and {ours}");
        let agent = Agent::start(config(dir.path())).unwrap();
        let both = [PublicationReaders::Owner, PublicationReaders::All];
        let mut program = Program::new(dir.path(), &both, ProducerConfig::default());
        // Each in its own frame.
        for _ in 0..5 {
            program.put(100);
            program.check(dir.path(), &what);
        }
        agent.stop();
        for (readers, part) in [
            (PublicationReaders::Owner, mine),
            (PublicationReaders::All, ours),
        ] {
            let path = logs(dir.path(), readers).pop().unwrap();
            let log = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            let bytes = log.metadata().unwrap().len();
            log.set_len(128 + ((bytes - 128) as f64 * part) as u64)
                .unwrap();
        }
        program.forget_tail();
        let agent = Agent::start(config(dir.path())).unwrap();
        program.put(100);
        program.check(dir.path(), &what);
        agent.stop();
    }
}

#[test]
fn what_was_taken_in_and_then_written_over_is_not_lost() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let small = ProducerConfig {
        ring_records: 256,
        ..ProducerConfig::default()
    };
    let mut program = Program::new(dir.path(), &[PublicationReaders::Owner], small);
    program.put(100);
    program.check(dir.path(), "before");
    agent.stop();
    program.forget_tail();
    program.put(1_000);
    let _agent = Agent::start(config(dir.path())).unwrap();
    let scope = scope(dir.path(), PublicationReaders::Owner);
    let lost = "SELECT value FROM app_process_lost_count ORDER BY ts DESC LIMIT 1";
    let there = "SELECT count(*) FROM app_mine_n";
    wait_until("what is there and what is lost is what was put", || {
        let (lost, there) = (number(&scope, lost), number(&scope, there));
        lost.zip(there)
            .is_some_and(|(l, t)| l > 0 && l + t == 1_100)
    });
}

/// Entry point of child processes.
#[test]
fn is_an_agent_until_it_is_killed() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let _agent = Agent::start(config(Path::new(&dir))).unwrap();
    println!("ready");
    loop {
        std::thread::park();
    }
}

#[test]
fn an_agent_that_is_killed_over_and_over_takes_in_each_value_once() {
    let _turn = turn();
    // The ring must hold all values, in case nothing is read.
    let rounds: u64 = std::env::var(ROUNDS).map_or(6, |rounds| rounds.parse().unwrap());
    let bursts = (3_000 / rounds.max(1)).clamp(1, 100);
    let dir = tempfile::tempdir().unwrap();
    let both = [PublicationReaders::Owner, PublicationReaders::All];
    let mut program = Program::new(dir.path(), &both, ProducerConfig::default());
    for round in 0..rounds {
        let mut child = agent_of_its_own(dir.path());
        for _ in 0..bursts {
            program.put(1 + round % 7);
            std::thread::sleep(Duration::from_micros(500));
        }
        // This sleep waits for nothing; it only makes the moment different each time.
        std::thread::sleep(Duration::from_micros(round * 2_719 % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let _agent = Agent::start(config(dir.path())).unwrap();
    program.check(dir.path(), "at last");
}

/// Returns the number of lost values of the owner, from its stream.
fn lost(dir: &Path) -> i64 {
    let newest = "SELECT coalesce(sum(value), 0) FROM latest('app.process.loss.count')";
    number(&scope(dir, PublicationReaders::Owner), newest).unwrap_or(0)
}

/// The ring is much smaller than what is put. So each agent is lapped, and is killed at any moment
/// while it counts.
#[test]
fn whatever_is_killed_what_is_there_and_what_is_lost_is_what_was_put() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let small = ProducerConfig {
        ring_records: 256,
        ..ProducerConfig::default()
    };
    let mut program = Program::new(dir.path(), &[PublicationReaders::Owner], small);
    let there = "SELECT count(*) FROM app_mine_n";
    let distinct = "SELECT count(DISTINCT value) FROM app_mine_n";
    let owners = scope(dir.path(), PublicationReaders::Owner);
    for round in 0..6 {
        let mut child = agent_of_its_own(dir.path());
        for burst in 0..20 {
            program.put(50 + burst * 40);
            std::thread::sleep(Duration::from_micros(700));
        }
        std::thread::sleep(Duration::from_micros(round * 3_719 % 20_000));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let check = |put: u64, what: &str| {
        wait_until(what, || {
            let there = number(&owners, there);
            there.is_some_and(|there| there + lost(dir.path()) == put as i64)
        });
        assert_eq!(number(&owners, distinct), number(&owners, there), "{what}");
    };
    let agent = Agent::start(config(dir.path())).unwrap();
    check(program.put, "while the program lives");
    wait_until("the rings were lapped", || lost(dir.path()) > 0);
    let (put, path) = (program.put, program.producer.path().to_owned());
    drop(program);
    wait_until("its file is gone", || !path.exists());
    check(put, "when the program has ended");
    agent.stop();
    let mut child = agent_of_its_own(dir.path());
    check(put, "in the next life of the agent");
    child.kill().unwrap();
    child.wait().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    check(put, "and in the one after it");
    let row = format!(
        "SELECT sum(\"count\") = {} FROM loss WHERE what LIKE '%written over unread'",
        lost(dir.path())
    );
    let all = Database::open(
        &run_dir(dir.path()),
        ScopeChoice::Readable,
        Arc::new(SystemClock::new()),
    );
    let rows = all
        .unwrap()
        .run(&row, &SqlLimits::default(), &AtomicBool::new(false));
    assert!(
        matches!(rows.unwrap().get(0, 0), Some(Cell::Int(1))),
        "the table has it"
    );
}

#[test]
fn a_batch_that_is_sent_again_after_a_kill_is_there_once() {
    let _turn = turn();
    let dir = tempfile::tempdir().unwrap();
    let mut child = agent_of_its_own(dir.path());
    let t = SystemClock::new().now_ns() - 1_000_000_000;
    let point = |series: u32, at: i64| format!("m,s={series} v={at}i {}", t + at);
    let batch: Vec<String> = (0..50).map(|series| point(series, 10)).collect();
    let batch = batch.join("\n");
    assert_eq!(write(dir.path(), &batch), 204);
    child.kill().unwrap();
    child.wait().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    assert_eq!(write(dir.path(), &batch), 204, "it is known");
    assert_eq!(write(dir.path(), &point(0, 9)), 400, "it is older");
    assert_eq!(write(dir.path(), &point(1, 11)), 204, "it is new");
    let scope = scope(dir.path(), PublicationReaders::Owner);
    let all = "SELECT count(*) FROM app_m_v";
    assert_eq!(number(&scope, all), Some(51));
    let twice =
        "SELECT count(*) FROM (SELECT s, ts FROM app_m_v GROUP BY s, ts HAVING count(*) > 1)";
    assert_eq!(number(&scope, twice), Some(0));
    // Values in sealed files are known as well.
    agent.stop();
    let mut short = config(dir.path());
    short.archive.segment_seconds_max = 1.0;
    let first = logs(dir.path(), PublicationReaders::Owner)[0].clone();
    let agent = Agent::start(short.clone()).unwrap();
    assert_eq!(write(dir.path(), &point(99, 0)), 204);
    wait_until("the first log is sealed", || !first.exists());
    agent.stop();
    let _agent = Agent::start(short).unwrap();
    assert_eq!(
        write(dir.path(), &batch),
        400,
        "one of them is older than the newest"
    );
    assert_eq!(number(&scope, all), Some(52));
}

/// Writes lines over `read.sock`; returns the status of the answer.
fn write(dir: &Path, lines: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::os::unix::net::UnixStream::connect(dir.join("run/read.sock")).unwrap();
    let length = lines.len();
    let head = "POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close";
    write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{lines}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

fn agent_of_its_own(dir: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["is_an_agent_until_it_is_killed", "--exact", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.find(|line| line.as_ref().is_ok_and(|line| line.ends_with("ready")));
    assert!(ready.is_some(), "the agent has not started");
    child
}
