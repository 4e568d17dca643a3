//! `sql.history`: time buckets and GROUP BY over 10 M archived samples, beside DuckDB on the same
//! Parquet files; and the memory of a process that queries a day.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::{ArchiveConfig, DeclaredStream, JournalEntry};
use barograph_model::{Clock as _, NS_PER_S, Sample, SqlLimits, StreamKey};
use barograph_query::Database;
use barograph_stream::SystemClock;

use super::archive::{DAY_NS, pythons, start};
use super::{DiskScratch, named};
use crate::measure::{keep, median, now};
use crate::report::{Fault, Report};

const STREAMS: u32 = 116;
/// Samples of a stream: a day at one sample per second, 10 M samples in all.
const SAMPLES: i64 = 86_400;
const ROUNDS: usize = 5;
/// Exit code of the peer if there is no DuckDB.
const NOT_THERE: i32 = 77;
const PEER: &str = include_str!("history.py");

struct Case {
    name: &'static str,
    ours: String,
    duckdb: String,
}

/// Runs each query on both; the answers must have the same number of rows.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let kept = DiskScratch::new("history")?;
    let first = fill(&kept.0)?;
    let files = kept.0.join("raw/**/*.parquet");
    let cases = cases(first);
    let questions: Vec<&str> = cases.iter().map(|case| case.duckdb.as_str()).collect();
    let theirs = duckdb(&files, &questions)?;
    if theirs.is_none() {
        report.skipped(
            "DuckDB",
            "the package duckdb cannot be imported (make test-python installs it)",
        );
    }
    let mut database = Database::open_archive(&kept.0, Arc::new(SystemClock::new()))?;
    let limits = SqlLimits {
        time_ns_max: 600 * NS_PER_S,
        rows_max: 20_000_000,
        bytes_max: 4 << 30,
        memory_bytes_max: 4 << 30,
    };
    let cancel = AtomicBool::new(false);
    for (i, case) in cases.iter().enumerate() {
        let mut rows = 0;
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let begin = now();
            rows = database.run(&case.ours, &limits, &cancel)?.len();
            times.push(begin.elapsed().as_secs_f64() * 1e3);
        }
        keep(rows);
        let mut peers = Vec::new();
        if let Some(&(ms, their_rows)) = theirs.as_ref().and_then(|t| t.get(i)) {
            if their_rows != rows {
                return Err(format!("{}: {rows} rows, DuckDB {their_rows}", case.name).into());
            }
            peers.push(("DuckDB, 2 threads", ms));
        }
        report.row("sql.history", case.name, median(&mut times), "ms", &peers);
    }
    drop(database);
    memory(report, &kept.0, first)
}

/// Writes the samples and seals them. Returns the time of the first one.
fn fill(root: &Path) -> Result<i64, Fault> {
    let keeper = start(ArchiveConfig {
        buffer_bytes_max: 1 << 30,
        bytes_max: 100 << 30,
        free_bytes_min: 0,
        ..ArchiveConfig::new(root, "bench")
    })?;
    let journal = keeper.journal();
    let now_ns = SystemClock::new().now_ns();
    let first = (now_ns - DAY_NS).div_euclid(3_600 * NS_PER_S) * 3_600 * NS_PER_S;
    let declare = |i| {
        let declared = DeclaredStream {
            descriptor: Arc::new(named("bench.value.count", i as usize)),
            life: 1,
            depth: u32::MAX,
        };
        JournalEntry::Declare(StreamKey(i), declared)
    };
    let mut entries: Vec<JournalEntry> = (0..STREAMS).map(declare).collect();
    // The values are a random walk, neither constant nor noise.
    let mut values = vec![0.0f64; STREAMS as usize];
    let mut random = 88_172_645_463_325_252u64;
    for second in 0..SAMPLES {
        for i in 0..STREAMS {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let value = &mut values[i as usize];
            *value += ((random >> 40) % 2_001) as f64 - 1_000.0;
            let ts = first + second * NS_PER_S + (random % 100_000) as i64;
            entries.push(JournalEntry::Sample(
                StreamKey(i),
                second as u64 + 1,
                Sample::measured(ts, *value),
            ));
        }
        if second % 300 == 0 {
            let position = journal.submit(&mut entries);
            journal.wait_durable(position, std::time::Duration::from_secs(60));
        }
        if second % 3_600 == 3_599 {
            journal.submit(&mut entries);
            keeper.seal()?;
        }
    }
    journal.submit(&mut entries);
    keeper.seal()?;
    let lost = keeper.status().losses.overflow_samples;
    if lost > 0 {
        return Err(format!("{lost} samples were lost").into());
    }
    Ok(first)
}

fn cases(first: i64) -> Vec<Case> {
    let grouped = |step: i64| {
        format!(
            "SELECT name, labels, ts // {step} * {step} AS t, min(value), max(value), avg(value), \
             last(value ORDER BY number), count(*) FROM samples GROUP BY ALL"
        )
    };
    let ours =
        |step: i64| format!("SELECT * FROM history('bench.value.count', NULL, NULL, {step})");
    let case = |name, ours, duckdb| Case { name, ours, duckdb };
    let (minute, seven) = (60 * NS_PER_S, 7 * NS_PER_S);
    let middle = first + 12 * 3_600 * NS_PER_S;
    vec![
        case(
            "history, 60 s buckets of 10 M samples (tiers)",
            ours(minute),
            grouped(minute),
        ),
        case(
            "history, 7 s buckets of 10 M samples (raw)",
            ours(seven),
            grouped(seven),
        ),
        case(
            "history of one stream, 60 s buckets",
            format!("SELECT * FROM history('bench.value.count{{i=7}}', NULL, NULL, {minute})"),
            format!(
                "SELECT ts // {minute} AS t, min(value), max(value), avg(value), count(*) FROM samples \
                 WHERE labels = '{{\"i\":\"7\"}}' GROUP BY t"
            ),
        ),
        case(
            "quantile of one stream over an hour",
            format!(
                "SELECT * FROM quantile('bench.value.count{{i=7}}', 0.9, {middle}, {})",
                middle + 3_600 * NS_PER_S - 1
            ),
            format!(
                "SELECT quantile_cont(value, 0.9) FROM samples WHERE labels = '{{\"i\":\"7\"}}' AND ts \
                 BETWEEN {middle} AND {}",
                middle + 3_600 * NS_PER_S - 1
            ),
        ),
        case(
            "plain GROUP BY of 10 M rows (SQLite row by row)",
            "SELECT i, count(*), avg(value) FROM bench_value_count GROUP BY i".into(),
            "SELECT labels, count(*), avg(value) FROM samples GROUP BY labels".into(),
        ),
    ]
}

/// Returns milliseconds and rows of each query in DuckDB; `None` without DuckDB.
fn duckdb(files: &Path, questions: &[&str]) -> Result<Option<Vec<(f64, usize)>>, Fault> {
    for python in pythons() {
        let mut command = Command::new(python);
        command
            .args(["-c", PEER])
            .arg(files)
            .arg(ROUNDS.to_string())
            .args(questions);
        let Some(output) = command.output().ok() else {
            continue;
        };
        if output.status.code() == Some(NOT_THERE) {
            continue;
        }
        if !output.status.success() {
            return Err(format!("DuckDB: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        let text = String::from_utf8(output.stdout)?;
        let rows = text.lines().map(|line| {
            let (ms, rows) = line.split_once(' ').ok_or("no two numbers from DuckDB")?;
            Ok((ms.parse()?, rows.parse()?))
        });
        return rows.collect::<Result<_, Fault>>().map(Some);
    }
    Ok(None)
}

/// Measures the greatest memory of a separate process for a day of history, as buckets and row by
/// row.
fn memory(report: &mut Report, root: &Path, first: i64) -> Result<(), Fault> {
    let questions = [
        (
            "a day of 116 streams as 60 s buckets, most memory",
            "SELECT count(*), max(max) FROM history('*', NULL, NULL, 60000000000)".to_owned(),
        ),
        (
            "a day of 10 M rows, row by row, most memory",
            format!("SELECT count(*), avg(value) FROM bench_value_count WHERE ts >= {first}"),
        ),
    ];
    for (case, sql) in questions {
        let output = Command::new(std::env::current_exe()?)
            .arg("--role=day")
            .arg(root)
            .arg(&sql)
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let peak = String::from_utf8(output.stdout)?.trim().parse::<f64>()?;
        report.row("sql.history", case, peak, "MB", &[]);
    }
    Ok(())
}

/// The helper process: runs the query, and prints its greatest memory.
pub(super) fn day(arguments: &[String]) -> Result<(), Fault> {
    let [root, sql] = arguments else {
        return Err("day DIR SQL".into());
    };
    let mut database = Database::open_archive(Path::new(root), Arc::new(SystemClock::new()))?;
    let limits = SqlLimits {
        time_ns_max: 600 * NS_PER_S,
        ..SqlLimits::default()
    };
    keep(database.run(sql, &limits, &AtomicBool::new(false))?.len());
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kb = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    println!("{}", kb.ok_or("no VmHWM")? / 1e3);
    Ok(())
}
