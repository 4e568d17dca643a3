//! `app.busy_disk`: how soon SQL sees what a program puts while another program keeps the disk of
//! the agent's history busy with writes and syncs, and whether every sample that is missing in
//! history is counted.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_client::RunDir;
use barograph_client::publish::{PublicationConfig, PublishConfig, Publisher};
use barograph_model::{Clock as _, Kind, SqlLimits, ValueType};
use barograph_query::{Database, Field};
use barograph_stream::SystemClock;

use super::DiskScratch;
use super::agent::Agent;
use super::visible::{OFFERED, PER_FRAME, ages, appeared, offer};
use crate::measure::{LatencySpread, now};
use crate::report::{Fault, Report};

/// Number of blocks of 1 MiB that are written between two syncs.
const BLOCKS: usize = 128;
/// Longest wait until history has all samples that will be archived.
const PATIENCE: Duration = Duration::from_secs(120);

/// Puts at a steady rate for some seconds while SQL queries the newest value and the disk is kept
/// busy.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let disk = DiskScratch::new("busy-disk")?;
    let agent = Agent::start_in("app-busy-disk", "", &disk.0.join("state"))?;
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
    sent.put_i64(SystemClock::new().now_ns());
    publication.frame(0);
    let mut database = appeared(&run_dir)?;
    let over = AtomicBool::new(false);
    let (mut ages, put, syncs) = std::thread::scope(|scope| -> Result<_, Fault> {
        let busy = scope.spawn(|| keep_busy(&disk.0.join("written"), &over));
        let offering = scope.spawn(|| {
            let offered = offer(sent, |frame| publication.frame(frame));
            over.store(true, Ordering::Release);
            offered
        });
        let ages = ages(&mut database, &over);
        let put = offering.join().map_err(|_| "the program failed")?;
        let syncs = busy.join().map_err(|_| "the disk could not be kept busy")?;
        Ok((ages?, put, syncs?))
    })?;
    publisher.commit();
    // Frames are samples too, and are included.
    let put = put + put / PER_FRAME + 2;
    let (there, lost) = settled(&mut database, put)?;
    let ages = LatencySpread::of(&mut ages);
    for (what, number, unit) in [
        ("age of the newest in SQL, p50", ages.p50 / 1e6, "ms"),
        ("age of the newest in SQL, p99", ages.p99 / 1e6, "ms"),
        ("syncs of 128 MiB beside it", f64::from(syncs), "syncs"),
        ("values and frames put", put as f64, "values"),
        ("values and frames in history", there as f64, "values"),
        ("values and frames lost, counted", lost as f64, "values"),
        (
            "values and frames missing, not counted",
            put.saturating_sub(there + lost) as f64,
            "values",
        ),
    ] {
        let case = format!("{what}, {OFFERED} values/s offered");
        report.row("app.busy_disk", &case, number, unit, &[]);
    }
    Ok(())
}

/// Writes like `dd conv=fsync` in a loop; returns the number of syncs.
fn keep_busy(path: &Path, over: &AtomicBool) -> Result<u32, String> {
    let written = || -> std::io::Result<u32> {
        let (mut file, block) = (File::create(path)?, vec![0x5a; 1 << 20]);
        let mut syncs = 0;
        while !over.load(Ordering::Acquire) {
            file.seek(SeekFrom::Start(0))?;
            for _ in 0..BLOCKS {
                file.write_all(&block)?;
            }
            file.sync_all()?;
            syncs += 1;
        }
        Ok(syncs)
    };
    written().map_err(|error| error.to_string())
}

/// Returns how many samples are in history and how many are counted as lost, once together they are
/// all that was put or no more come. The lost ones include samples of the scope's own streams
/// (`app.process.*`), some 70 beside 60,000 that were put: where any sample is lost, that many
/// uncounted losses cannot be detected here.
fn settled(database: &mut Database, put: u64) -> Result<(u64, u64), Fault> {
    const THERE: &str =
        "SELECT (SELECT count(*) FROM app_visible_sent) + (SELECT count(*) FROM app_visible_frame)";
    const LOST: &str = "SELECT sum(\"count\") FROM loss WHERE \"where\" LIKE '%scope%' AND what NOT LIKE '%bytes%'";
    let begin = now();
    loop {
        let (there, lost) = (number(database, THERE)?, number(database, LOST)?);
        if there + lost >= put || begin.elapsed() > PATIENCE {
            return Ok((there, lost));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn number(database: &mut Database, sql: &str) -> Result<u64, Fault> {
    let (limits, cancel) = (SqlLimits::default(), AtomicBool::new(false));
    let mut found = 0;
    database.prepare(sql)?.for_each(&limits, &cancel, |row| {
        if let Field::Int(n) = row.get(0) {
            found = n.unsigned_abs();
        }
    })?;
    Ok(found)
}
