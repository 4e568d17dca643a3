//! `read.latest`: the newest value of a stream, read by another process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use barograph_stream::{SegmentReader, StreamReader, StreamWriter};

use super::{Scratch, descriptor, segment};
use crate::measure::{batch_ns, each_ns, keep, median, now, stay_on};
use crate::peers;
use crate::report::{Fault, Report};

const LONG: Duration = Duration::from_millis(400);
const CONTENDED_READS: u32 = 500;
/// Streams in the segment: more lines than a first-level cache holds.
const STREAMS: usize = 4096;

/// Measures reads with an idle writer, with a writer at full speed, and after the writer was
/// killed.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let redis = peers::redis::latest_us(report);
    let exporter = peers::node_exporter::scrape_us(report);
    let pcp = peers::pcp::fetch_us(report);
    let slow: Vec<(&str, f64)> = [
        ("redis XREVRANGE", redis),
        ("node_exporter diskstats", exporter),
        ("pcp pmFetch", pcp),
    ]
    .into_iter()
    .filter_map(|(name, us)| Some((name, us? * 1000.0)))
    .collect();

    let scratch = Scratch::new("read")?;
    let mut idle = start(&scratch, "idle")?;
    let handles = handles(&scratch)?;
    report.row(
        "read.latest",
        "held handle, another process, p50",
        one(&handles[0]),
        "ns",
        &slow,
    );
    report.row(
        "read.latest",
        "4096 streams at random, p50",
        random(&handles),
        "ns",
        &[],
    );
    idle.kill()?;
    idle.wait()?;
    report.row(
        "read.latest",
        "after the writer was killed",
        one(&handles[0]),
        "ns",
        &[],
    );

    let mut busy = start(&scratch, "busy")?;
    let handles = self::handles(&scratch)?;
    // The reads run on a thread of their own, since it stays on its processor.
    let (latest, single) = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            stay_on(0);
            (
                contended(&handles[0]),
                each_ns(200_000, || keep(handles[0].latest_f64())),
            )
        });
        reading.join().map_err(|_| "the reader failed")
    })?;
    let latest = latest.ok_or("the writer was never at work")?;
    report.row(
        "read.latest",
        "writer at full speed, p50",
        latest,
        "ns",
        &[],
    );
    report.row(
        "read.latest",
        "writer at full speed, p99 of single reads",
        single.p99,
        "ns",
        &[],
    );
    busy.kill()?;
    busy.wait()?;
    Ok(())
}

fn one(handle: &StreamReader) -> f64 {
    batch_ns(LONG, || keep(handle.latest_f64()))
}

/// Like [`one`], but counts only batches during which the writer was always at work: on a machine
/// with other users it does not always run.
fn contended(handle: &StreamReader) -> Option<f64> {
    let count = || handle.count().unwrap_or(0);
    let begin = now();
    let mut batches = Vec::new();
    while begin.elapsed() < 5 * LONG {
        let (before, started) = (count(), now());
        (0..CONTENDED_READS).for_each(|_| keep(handle.latest_f64()));
        let ns = started.elapsed().as_nanos() as f64;
        // A sample takes the writer less than 20 ns.
        if (count() - before) as f64 > ns / 20.0 {
            batches.push(ns / f64::from(CONTENDED_READS));
        }
    }
    (!batches.is_empty()).then(|| median(&mut batches))
}

fn random(handles: &[StreamReader]) -> f64 {
    let mut state = 1u64;
    batch_ns(LONG, || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        keep(handles[(state >> 33) as usize % handles.len()].latest_f64());
    })
}

/// Returns a handle for every stream in the writer's segment.
pub(super) fn handles(scratch: &Scratch) -> Result<Vec<StreamReader>, Fault> {
    let reader = SegmentReader::open(&scratch.0.join("segment"))?;
    Ok(reader
        .directory()
        .entries
        .iter()
        .map(|e| reader.stream(e))
        .collect())
}

/// Starts the writer process: `how` is idle or busy.
pub(super) fn start(scratch: &Scratch, how: &str) -> Result<Child, Fault> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--role=writer", how])
        .arg(&scratch.0)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
    if line.trim() != "ready" {
        return Err("the writer did not start".into());
    }
    Ok(child)
}

/// The helper process: writes until it is killed.
pub(super) fn writer(arguments: &[String]) -> Result<(), Fault> {
    let [how, directory] = arguments else {
        return Err("writer HOW DIR".into());
    };
    let scratch = std::mem::ManuallyDrop::new(Scratch(directory.into()));
    let mut segment = segment(&scratch)?;
    let mut writers = (0..STREAMS)
        .map(|i| segment.register(&descriptor(i), None, 0))
        .collect::<Result<Vec<_>, _>>()?;
    for (i, writer) in writers.iter_mut().enumerate() {
        writer.append_f64(1, i as f64)?;
    }
    println!("ready");
    if how == "busy" {
        return flat_out(&mut writers[0]);
    }
    loop {
        std::thread::park();
    }
}

fn flat_out(writer: &mut StreamWriter) -> Result<(), Fault> {
    stay_on(1);
    let mut ts = 1;
    loop {
        ts += 1;
        writer.append_f64(ts, ts as f64)?;
    }
}
