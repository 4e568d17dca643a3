//! `app.visible` and `app.memory`: how soon SQL sees what a program puts, and how much memory the
//! agent takes for it.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_client::publish::{PublicationConfig, PublishConfig, Publisher, ValueHandle};
use barograph_client::{RunDir, SystemClock};
use barograph_model::{Clock as _, Kind, NS_PER_S, SqlLimits, ValueType};
use barograph_query::{Database, Field, ScopeChoice};

use super::agent::Agent;
use crate::measure::{LatencySpread, keep, now};
use crate::report::{Fault, Report};

/// Values per second that are put: the target's rate.
pub(super) const OFFERED: u64 = 1_000_000;
const SECONDS: u64 = 10;
/// Number of values of one frame.
pub(super) const PER_FRAME: u64 = 10;
/// Interval at which the reader looks.
const LOOK: Duration = Duration::from_millis(1);
/// Time before which looks are not counted: tables appear, scopes are opened.
const SETTLED: Duration = Duration::from_secs(1);
/// Longest wait until the values are taken in.
const PATIENCE: Duration = Duration::from_secs(30);

/// Puts at a steady rate for some seconds while SQL in this process queries the newest value.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let agent = Agent::start("app-visible", "")?;
    let run_dir = RunDir::new(&agent.scratch.0);
    let publisher = Publisher::open(PublishConfig {
        run_dir: Some(run_dir.clone()),
        ..PublishConfig::of("bench")
    });
    if let Some(error) = publisher.error() {
        return Err(error.to_string().into());
    }
    let publication = publisher.publication("visible", PublicationConfig::default())?;
    let sent = publication.value("sent", ValueType::Int, "ns", Kind::Gauge, "when it was put")?;
    // The table exists before the first query.
    sent.put_i64(SystemClock::new().now_ns());
    publication.frame(0);
    let mut database = appeared(&run_dir)?;
    let before = resident_mb(agent.pid())?;
    let over = AtomicBool::new(false);
    let (ages, put, held) = std::thread::scope(|scope| -> Result<_, Fault> {
        let held = scope.spawn(|| held(agent.pid(), &over));
        let offering = scope.spawn(|| {
            let offered = offer(sent, |frame| publication.frame(frame));
            over.store(true, Ordering::Release);
            offered
        });
        let ages = ages(&mut database, &over);
        // The program has stopped by itself, even if the looks failed.
        let put = offering.join().map_err(|_| "the program failed")?;
        let held = held.join().map_err(|_| "the memory could not be read")??;
        Ok((ages?, put, held))
    })?;
    publisher.commit();
    let taken = taken(&mut database, put + 1)?;
    let after = resident_mb(agent.pid())?;
    let missing = (put + 1).saturating_sub(taken.values + taken.lost);
    tell(report, &mut { ages }, put, &taken, missing);
    report.row(
        "app.memory",
        "the agent before them, resident",
        before,
        "MB",
        &[],
    );
    for (second, mb) in (1..).zip(held) {
        let case = format!("after {second} M values, resident");
        report.row("app.memory", &case, mb, "MB", &[]);
    }
    report.row(
        "app.memory",
        "after all of them, resident",
        after,
        "MB",
        &[],
    );
    Ok(())
}

fn tell(report: &mut Report, ages: &mut [f64], put: u64, taken: &Taken, missing: u64) {
    let ages = LatencySpread::of(ages);
    for (what, number, unit) in [
        ("age of the newest in SQL, p50", ages.p50 / 1e6, "ms"),
        ("age of the newest in SQL, p99", ages.p99 / 1e6, "ms"),
        ("values put", put as f64, "values"),
        ("values lost, counted", taken.lost as f64, "values"),
        ("values missing, not counted", missing as f64, "values"),
    ] {
        let case = format!("{what}, {OFFERED} values/s offered");
        report.row("app.visible", &case, number, unit, &[]);
    }
}

/// Puts the present time, in as many frames as are due; returns how many values in all.
pub(super) fn offer(sent: ValueHandle, mut frame: impl FnMut(u64)) -> u64 {
    let clock = SystemClock::new();
    let (begin, mut put, mut frames) = (now(), 0, 0);
    while put < OFFERED * SECONDS {
        let due = (begin.elapsed().as_nanos() as u64).saturating_mul(OFFERED) / NS_PER_S as u64;
        while put + PER_FRAME <= due.min(OFFERED * SECONDS) {
            let at_ns = clock.now_ns();
            (0..PER_FRAME).for_each(|_| sent.put_i64(at_ns));
            put += PER_FRAME;
            frames += 1;
            frame(frames);
        }
        std::thread::yield_now();
    }
    put
}

/// Opens SQL once the value is a table.
pub(super) fn appeared(run_dir: &RunDir) -> Result<Database, Fault> {
    let begin = now();
    loop {
        let clock = Arc::new(SystemClock::new());
        let mut database = Database::open(run_dir, ScopeChoice::Readable, clock)?;
        let limits = SqlLimits::default();
        let asked = database.run(
            "SELECT value FROM app_visible_sent",
            &limits,
            &AtomicBool::new(false),
        );
        if asked.is_ok_and(|rows| !rows.is_empty()) {
            return Ok(database);
        }
        if begin.elapsed() > PATIENCE {
            return Err("the publication did not appear".into());
        }
        std::thread::sleep(LOOK);
    }
}

/// Returns the age of the newest value at each look, in ns.
pub(super) fn ages(database: &mut Database, over: &AtomicBool) -> Result<Vec<f64>, Fault> {
    let (limits, cancel) = (SqlLimits::default(), AtomicBool::new(false));
    let clock = SystemClock::new();
    let mut prepared = database.prepare("SELECT value FROM app_visible_sent WHERE newest")?;
    let (begin, mut ages) = (now(), Vec::new());
    while !over.load(Ordering::Acquire) {
        let mut newest = None;
        prepared.for_each(&limits, &cancel, |row| {
            if let Field::Int(at_ns) = row.get(0) {
                newest = Some(at_ns);
            }
        })?;
        if let Some(at_ns) = newest.filter(|_| begin.elapsed() > SETTLED) {
            ages.push((clock.now_ns() - at_ns) as f64);
        }
        std::thread::sleep(LOOK);
    }
    if ages.is_empty() {
        return Err("no value was seen".into());
    }
    Ok(ages)
}

struct Taken {
    values: u64,
    lost: u64,
}

/// Returns what the agent reports as taken, once that is everything or no more comes.
fn taken(database: &mut Database, put: u64) -> Result<Taken, Fault> {
    const SQL: &str = "SELECT taken, lost FROM publications WHERE name = 'visible'";
    let (limits, cancel) = (SqlLimits::default(), AtomicBool::new(false));
    let begin = now();
    loop {
        let (mut values, mut lost) = (0, 0);
        database.prepare(SQL)?.for_each(&limits, &cancel, |row| {
            if let (Field::Int(a), Field::Int(b)) = (row.get(0), row.get(1)) {
                (values, lost) = (a.unsigned_abs(), b.unsigned_abs());
            }
        })?;
        if values + lost >= put || begin.elapsed() > PATIENCE {
            keep(values);
            return Ok(Taken { values, lost });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the memory of a process at each full second until it is over, in MB.
fn held(pid: u32, over: &AtomicBool) -> Result<Vec<f64>, String> {
    let (begin, mut held) = (now(), Vec::new());
    while !over.load(Ordering::Acquire) {
        if begin.elapsed() >= Duration::from_secs(held.len() as u64 + 1) {
            held.push(resident_mb(pid).map_err(|e| e.to_string())?);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(held)
}

/// Returns the memory of a process without shared pages, in MB.
pub(super) fn resident_mb(pid: u32) -> Result<f64, Fault> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    Ok(kb.ok_or("no RssAnon")? / 1e3)
}
