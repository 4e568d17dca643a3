//! `archive.append`, `archive.start`, `archive.bytes`: the durable log, a start after a crash, and
//! the bytes of a stored sample.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use barograph_archive::{
    ArchiveConfig, ArchiveLayout, ArchiveReader, DeclaredStream, DiskStorage, Journal,
    JournalEntry, JournalPosition, Keeper, PartKind, Tier,
};
use barograph_client::Observer;
use barograph_model::{Clock as _, Descriptor, NS_PER_S, Sample, Selector, StreamKey};
use barograph_stream::{RunDir, SystemClock};

use super::agent::Agent;
use super::{DiskScratch, named};
use crate::measure::{now, thread_cpu_s};
use crate::report::{Fault, Report};

const NODE: &str = "bench";
const STREAMS: u32 = 1_000;
/// Samples that are submitted together, as in an agent's tick.
const BATCH: u64 = 10_000;
const APPEND_FOR: Duration = Duration::from_secs(5);
const COMMIT_NS: i64 = 10_000_000;
/// Longest time until a durable sample is acknowledged; after it the case fails.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(30);
const GIGABYTE: u64 = 1 << 30;
/// Time for which this machine is observed if no recording is named.
const OBSERVED_FOR: Duration = Duration::from_secs(60);
/// Environment variable with a run directory of an agent whose rings hold an hour (`streams.depth =
/// 4096`).
const RECORDING: &str = "BARO_BENCH_RUN_DIR";

/// Measures the durable samples per second, with a group commit every 10 ms.
pub(super) fn append(report: &mut Report) -> Result<(), Fault> {
    let kept = DiskScratch::new("append")?;
    let keeper = start(durable(&kept.0))?;
    let journal = keeper.journal();
    let (begin, cpu) = (now(), thread_cpu_s());
    let (mut entries, mut sent, mut position) = (declarations(), 0, JournalPosition::default());
    while begin.elapsed() < APPEND_FOR {
        samples(&mut entries, sent);
        sent += BATCH;
        position = journal.submit(&mut entries);
        // The buffer has the agent's bound; here no sample may be lost.
        if sent.is_multiple_of(10 * BATCH) {
            acknowledged(&journal, position)?;
        }
    }
    acknowledged(&journal, position)?;
    let seconds = begin.elapsed().as_secs_f64();
    let hand_over_ns = (thread_cpu_s() - cpu) * 1e9 / sent as f64;
    let lost = keeper.status().losses.overflow_samples;
    if lost > 0 {
        return Err(format!("{lost} samples were lost").into());
    }
    drop(keeper);
    let peer = [("SQLite WAL, synchronous FULL", sqlite(&kept.0)?)];
    let rate = sent as f64 / seconds;
    report.row(
        "archive.append",
        "durable, group commit of 10 ms",
        rate,
        "samples/s",
        &peer,
    );
    report.row(
        "archive.append",
        "hand-over by the sampler, processor (samples made on the way)",
        hand_over_ns,
        "ns",
        &[],
    );
    Ok(())
}

/// Measures a start after a SIGKILL with 1 GB of log.
pub(super) fn crashed(report: &mut Report) -> Result<(), Fault> {
    let kept = DiskScratch::new("crashed")?;
    let mut writer = Command::new(std::env::current_exe()?)
        .arg("--role=log")
        .arg(&kept.0)
        .stdout(Stdio::piped())
        .spawn()
        .map(Ended)?;
    let mut word = [0; 1];
    let written = writer
        .0
        .stdout
        .take()
        .ok_or("no output")?
        .read_exact(&mut word);
    drop(writer);
    written?;
    let logs = std::fs::read_dir(ArchiveLayout::new(&kept.0, NODE).log_dir())?;
    let sizes = logs.map(|log| Ok(log?.metadata()?.len()));
    let bytes: u64 = sizes.sum::<Result<u64, Fault>>()?;
    let begin = now();
    let _keeper = start(one_segment(&kept.0))?;
    let seconds = begin.elapsed().as_secs_f64();
    if bytes < GIGABYTE {
        return Err(format!("the log holds {bytes} bytes").into());
    }
    report.row(
        "archive.start",
        "after SIGKILL with 1 GB of log",
        seconds,
        "s",
        &[],
    );
    Ok(())
}

/// The helper process that is killed: writes 1 GB of log, reports it, and waits.
pub(super) fn log(arguments: &[String]) -> Result<(), Fault> {
    let [root] = arguments else {
        return Err("log DIR".into());
    };
    let keeper = start(one_segment(Path::new(root)))?;
    let journal = keeper.journal();
    let (mut entries, mut sent) = (declarations(), 0);
    while keeper.status().log_bytes < GIGABYTE {
        for _ in 0..10 {
            samples(&mut entries, sent);
            sent += BATCH;
        }
        acknowledged(&journal, journal.submit(&mut entries))?;
    }
    println!("written");
    std::thread::sleep(Duration::from_secs(3_600));
    Ok(())
}

/// Measures the bytes of a stored sample of this machine's own streams, including Parquet's index.
pub(super) fn bytes(report: &mut Report) -> Result<(), Fault> {
    let kept = DiskScratch::new("bytes")?;
    let (observer, agent) = match std::env::var_os(RECORDING) {
        Some(directory) => (
            Observer::open(RunDir::new(directory), Arc::new(SystemClock::new()))?,
            None,
        ),
        None => {
            let agent = Agent::start("bytes", "")?;
            std::thread::sleep(OBSERVED_FOR);
            (agent.observer()?, Some(agent))
        }
    };
    let (sent, span_ns) = replay(&observer, &kept.0)?;
    drop(agent);
    let view = ArchiveReader::open(&kept.0).view()?;
    let (mut raw, mut rows, mut tiers) = (0, 0, 0);
    for part in view.parts() {
        match part.kind {
            PartKind::Parquet(Tier::Raw) => (raw, rows) = (raw + part.bytes, rows + part.rows),
            PartKind::Parquet(_) => tiers += part.bytes,
            _ => return Err("something is not sealed".into()),
        }
    }
    if rows != sent {
        return Err(format!("{rows} samples of {sent} are there").into());
    }
    let minutes = span_ns as f64 / 60e9;
    let case = |what: &str| format!("{what}, {minutes:.0} min of this machine, {rows} samples");
    let each = |bytes: u64| bytes as f64 / rows as f64;
    // Figures from `research/applications.md`, for other data.
    let peers = [("DuckDB", 8.7), ("SQLite", 23.5), ("SOSflow", 94.5)];
    report.row("archive.bytes", &case("raw"), each(raw), "bytes", &peers);
    report.row(
        "archive.bytes",
        &case("raw and tiers"),
        each(raw + tiers),
        "bytes",
        &peers,
    );
    Ok(())
}

/// Writes the samples in the rings of an observer to an archive in the order of time, and seals it.
fn replay(observer: &Observer, root: &Path) -> Result<(u64, i64), Fault> {
    let keeper = start(ArchiveConfig {
        buffer_bytes_max: 256 << 20,
        ..ArchiveConfig::new(root, NODE)
    })?;
    let journal = keeper.journal();
    let mut entries = Vec::new();
    let mut samples = Vec::new();
    let histories = observer.history(&Selector::parse("*")?, &Default::default());
    for (key, history) in (0..).map(StreamKey).zip(histories) {
        let declared = DeclaredStream {
            descriptor: history.descriptor,
            life: 1,
            depth: u32::MAX,
        };
        entries.push(JournalEntry::Declare(key, declared));
        let numbered = (1..).zip(history.samples);
        samples.extend(numbered.map(|(number, sample)| (key, number, sample)));
    }
    samples.sort_by_key(|(_, _, sample)| sample.ts);
    let sent = samples.len() as u64;
    let first = samples.first().map_or(0, |(_, _, s)| s.ts);
    let last = samples.last().map_or(0, |(_, _, s)| s.ts);
    for (key, number, sample) in samples {
        entries.push(JournalEntry::Sample(key, number, sample));
        if entries.len() as u64 >= BATCH {
            journal.submit(&mut entries);
        }
    }
    journal.submit(&mut entries);
    keeper.seal()?;
    Ok((sent, last - first))
}

/// Writes the same samples into SQLite with commits at the same interval, as a file database would.
fn sqlite(directory: &Path) -> Result<f64, Fault> {
    let mut connection = rusqlite::Connection::open(directory.join("peer.sqlite"))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.execute_batch("CREATE TABLE sample (stream INTEGER, ts INTEGER, value REAL)")?;
    let (begin, mut sent) = (now(), 0u64);
    while begin.elapsed() < APPEND_FOR {
        let transaction = connection.transaction()?;
        let opened = now();
        {
            let mut insert = transaction.prepare_cached("INSERT INTO sample VALUES (?, ?, ?)")?;
            while (opened.elapsed().as_nanos() as i64) < COMMIT_NS {
                for _ in 0..100 {
                    insert.execute((
                        (sent % u64::from(STREAMS)) as i64,
                        sent as i64,
                        sent as f64,
                    ))?;
                    sent += 1;
                }
            }
        }
        transaction.commit()?;
    }
    Ok(sent as f64 / begin.elapsed().as_secs_f64())
}

pub(super) fn start(config: ArchiveConfig) -> Result<Keeper, Fault> {
    Ok(Keeper::start(
        config,
        Arc::new(DiskStorage),
        Arc::new(SystemClock::new()),
    )?)
}

fn durable(root: &Path) -> ArchiveConfig {
    ArchiveConfig {
        durable: vec![Selector::parse("*").expect("a literal")],
        commit_ns: COMMIT_NS,
        buffer_bytes_max: 256 << 20,
        ..ArchiveConfig::new(root, NODE)
    }
}

/// Returns a configuration with one log segment that is never sealed.
fn one_segment(root: &Path) -> ArchiveConfig {
    ArchiveConfig {
        segment_bytes_max: 64 * GIGABYTE,
        segment_ns_max: i64::MAX,
        ..durable(root)
    }
}

fn declarations() -> Vec<JournalEntry> {
    let life = SystemClock::new().now_ns();
    let declare = |i| {
        let descriptor: Descriptor = named("bench.value.count", i as usize);
        let declared = DeclaredStream {
            descriptor: Arc::new(descriptor),
            life,
            depth: u32::MAX,
        };
        JournalEntry::Declare(StreamKey(i), declared)
    };
    (0..STREAMS).map(declare).collect()
}

/// Makes the next batch: every stream in turn.
fn samples(entries: &mut Vec<JournalEntry>, sent: u64) {
    let ts = SystemClock::new().now_ns();
    entries.extend((sent..sent + BATCH).map(|i| {
        let (stream, number) = (i % u64::from(STREAMS), i / u64::from(STREAMS) + 1);
        JournalEntry::Sample(
            StreamKey(stream as u32),
            number,
            Sample::measured(ts, i as f64),
        )
    }));
}

fn acknowledged(journal: &Journal, position: JournalPosition) -> Result<(), Fault> {
    if journal.wait_durable(position, ACKNOWLEDGED_WITHIN) {
        Ok(())
    } else {
        Err("samples were not acknowledged".into())
    }
}

/// A process that is killed when this value is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Length of a generated history in ns of the samples' own time.
pub(super) const DAY_NS: i64 = 86_400 * NS_PER_S;

/// Returns the Pythons that may have DuckDB: that of the tests' environment, and the system's.
pub(super) fn pythons() -> [PathBuf; 2] {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    [root.join(".venv/bin/python"), PathBuf::from("python3")]
}
