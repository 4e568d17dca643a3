//! `app.neighbour`: how soon the agent has what one user's program commits, alone and beside
//! another user who does everything to the ingest directory that is permitted.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use barograph_client::{RunDir, SystemClock};
use barograph_model::{Kind, ValueType};
use barograph_stream::ingest::{
    IngestDeclaration, Producer, ProducerConfig, PublicationReaders, ThreadRing, kind,
};

use super::agent::Agent;
use super::visible::resident_mb;
use crate::measure::{LatencySpread, now};
use crate::report::{Fault, Report};

/// Number of commits of one measurement; `BETWEEN` is the time between two of them.
const COMMITS: usize = 2_000;
const BETWEEN: Duration = Duration::from_millis(2);
/// Longest wait until a commit is taken in.
const PATIENCE: Duration = Duration::from_secs(120);
/// Uid of the other user: nobody.
const STRANGER: u32 = 65_534;
/// Number of files, floods and rings of the other user.
const JUNK_FILES: usize = 100_000;
const FLOODS: usize = 60;
const RINGS: usize = 8;
/// Time until the other user's process is at work.
const SETTLED: Duration = Duration::from_secs(5);
/// Offsets in an ingest file: of the heads, and in a head of the committed and the taken position.
const HEAD_AT: u64 = 4_096;
const TAIL: u64 = 128;

/// A program with one value, which observes when the value is taken in.
struct Program {
    producer: Producer,
    ring: ThreadRing,
    file: File,
    knock: UnixDatagram,
    run_dir: RunDir,
    clock: SystemClock,
}

impl Program {
    fn start(run_dir: &RunDir) -> Result<Self, Fault> {
        let clock = SystemClock::new();
        let config = ProducerConfig::default();
        let producer = Producer::create(&run_dir.ingest_dir(), config, &clock)?;
        declare(&producer, "neighbour");
        Ok(Self {
            ring: producer.thread(&clock).ok_or("no ring")?,
            file: File::open(producer.path())?,
            knock: UnixDatagram::unbound()?,
            run_dir: run_dir.clone(),
            producer,
            clock,
        })
    }

    /// Commits a value and waits until the agent has taken it; returns the time in ns.
    fn commit(&mut self, number: u64) -> Result<f64, Fault> {
        let time = self.producer.time_source().now(&self.clock);
        self.ring.put(kind::INT, 0, time, number);
        let begin = now();
        self.ring.frame(0, time, number);
        if self.producer.is_agent_asleep() {
            self.producer.agent_was_told();
            let incarnation = self.producer.incarnation().0;
            let _ = self
                .knock
                .send_to(&incarnation, self.run_dir.ingest_socket());
        }
        while self.word(TAIL)? < self.word(0)? {
            if begin.elapsed() > PATIENCE {
                return Err("a commit was not taken in".into());
            }
            std::thread::yield_now();
        }
        Ok(begin.elapsed().as_nanos() as f64)
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, HEAD_AT + at)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

fn declare(producer: &Producer, name: &str) -> bool {
    let publication = IngestDeclaration::Publication {
        name: name.into(),
        readers: PublicationReaders::All,
        labels: Vec::new(),
    };
    producer.declare(&publication) && producer.declare(&value("sent", ""))
}

fn value(name: &str, help: &str) -> IngestDeclaration {
    IngestDeclaration::Value {
        publication: 0,
        name: name.into(),
        value_type: ValueType::Int,
        kind: Kind::Gauge,
        unit: String::new(),
        help: help.into(),
        bytes_max: 0,
    }
}

/// The other user's process, which is killed when this value is dropped.
struct Stranger(Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures commits alone, then beside the other user.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let config = "[archive]\nenabled = false\n[applications]\nusers = \"all\"\n";
    let agent = Agent::start("app-neighbour", config)?;
    let run_dir = RunDir::new(&agent.scratch.0);
    let mut program = Program::start(&run_dir)?;
    // The first commit opens what is needed.
    program.commit(0)?;
    measure(report, &mut program, "alone")?;
    let stranger = Command::new(std::env::current_exe()?)
        .arg("--role=stranger")
        .arg(&agent.scratch.0)
        .uid(STRANGER)
        .gid(STRANGER)
        .spawn()
        .map_err(|e| format!("only root can be two users: {e}"))?;
    let stranger = Stranger(stranger);
    std::thread::sleep(SETTLED);
    measure(report, &mut program, "beside a hostile user")?;
    let held = resident_mb(agent.pid())?;
    report.row(
        "app.neighbour",
        "the agent meanwhile, resident",
        held,
        "MB",
        &[],
    );
    drop(stranger);
    Ok(())
}

fn measure(report: &mut Report, program: &mut Program, case: &str) -> Result<(), Fault> {
    let mut took = Vec::with_capacity(COMMITS);
    for number in 1..=COMMITS as u64 {
        took.push(program.commit(number)?);
        std::thread::sleep(BETWEEN);
    }
    let spread = LatencySpread::of(&mut took);
    for (what, ns) in [("p50", spread.p50), ("p99", spread.p99)] {
        let case = format!("commit to tail {case}, {what}");
        report.row("app.neighbour", &case, ns / 1e6, "ms", &[]);
    }
    Ok(())
}

/// The other user: junk files, directory entries that are not files, floods of declarations, of
/// records and of wakes.
pub(super) fn stranger(arguments: &[String]) -> Result<(), Fault> {
    let [place] = arguments else {
        return Err("it takes a run directory".into());
    };
    let parent = parent_id();
    let run_dir = RunDir::new(place);
    let dir = run_dir.ingest_dir();
    for n in 0..JUNK_FILES {
        let name = match n % 2 {
            0 => format!("junk-{n}"),
            _ => format!("{n:032x}.ingest"),
        };
        junk(&dir.join(name))?;
    }
    let clock = SystemClock::new();
    let config = ProducerConfig::default();
    let mut kept = Vec::new();
    for _ in 0..FLOODS {
        let producer = Producer::create(&dir, config, &clock)?;
        let mut n = 0;
        // The loop ends when there is no room: every second declaration has an invalid name.
        while declare(&producer, &format!("flood{n}")) {
            let name = if u32::is_multiple_of(n, 2) {
                "v"
            } else {
                "No Name"
            };
            producer.declare(&value(&format!("{name}{n}"), &"x".repeat(100)));
            n += 1;
        }
        kept.push(producer);
    }
    let mut rings = Vec::new();
    for _ in 0..RINGS {
        let producer = Producer::create(&dir, config, &clock)?;
        declare(&producer, "records");
        rings.push(producer.thread(&clock).ok_or("no ring")?);
        kept.push(producer);
    }
    let knock = UnixDatagram::unbound()?;
    knock.set_nonblocking(true)?;
    for n in 0u64.. {
        for ring in &mut rings {
            // Frames, and acknowledgements of calls that do not exist.
            ring.frame(0, n, n);
            ring.put(kind::ACK, 9, n, n);
        }
        if n.is_multiple_of(1 << 16) && parent_id() != parent {
            break;
        }
        if n.is_multiple_of(64) {
            let _ = knock.send_to(&[7; 16], run_dir.ingest_socket());
        }
    }
    drop(kept);
    Ok(())
}

fn junk(path: &Path) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600);
    file.open(path)?.write_all_at(b"junk", 0)
}
