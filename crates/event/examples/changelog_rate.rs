//! The rates at which records of a ChangeLog are parsed, and made events with whole paths and
//! encoded, on one core: `cargo run --release -p barograph-event --example changelog_rate`.
//!
//! It makes a history of a million records, and takes the best of five runs, since other programs
//! may run beside it.

use std::path::Path;
use std::time::Instant;

use barograph_event::changelog::history::History;
use barograph_event::changelog::standin::StandInDevice;
use barograph_event::changelog::{
    ChangelogCollector, ChangelogMerge, ChangelogOptions, ChangelogRecord, MergeOptions,
    ResolverOptions,
};
use barograph_event::{Collector, EventFlags, encode};

const RECORDS: usize = 1_000_000;
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load: {}", load.trim());
    let directory = std::env::temp_dir().join(format!("changelog_rate.{}", std::process::id()));
    let result = measure(&directory);
    std::fs::remove_dir_all(&directory)?;
    result
}

fn measure(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut history = History::new(7, 1, directory)?;
    history.run(RECORDS)?;
    let log = directory.join("MDT0000");
    let bytes = std::fs::read(log.join("records"))?;
    let count = history.truths().len();
    println!("records: {count} of {} bytes", bytes.len() / count);
    let mut parsed = 0.0f64;
    for _ in 0..RUNS {
        let start = now();
        let names = parse_all(&bytes)?;
        let rate = per_second(count, start);
        assert!(names > 0);
        parsed = parsed.max(rate);
    }
    println!("parsed: {parsed:.0} records/s");
    let (mut resolved, mut told) = (0.0f64, (0, 0, 0));
    for _ in 0..RUNS {
        let start = now();
        told = resolve_all(&log, &history, count)?;
        resolved = resolved.max(per_second(count, start));
    }
    let (encoded_bytes, incomplete, asked) = told;
    println!("parsed, resolved and encoded: {resolved:.0} records/s");
    println!(
        "{} bytes per event, {incomplete} incomplete paths, {asked} asked",
        encoded_bytes / count
    );
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn now() -> Instant {
    Instant::now()
}

fn per_second(count: usize, start: Instant) -> f64 {
    count as f64 / now().duration_since(start).as_secs_f64()
}

/// Parses all records, and gives the number of bytes of their names.
fn parse_all(bytes: &[u8]) -> Result<usize, Box<dyn std::error::Error>> {
    let (mut rest, mut names) = (bytes, 0);
    while !rest.is_empty() {
        let (record, length) = ChangelogRecord::parse(rest)?;
        names += record.name.len();
        rest = &rest[length..];
    }
    Ok(names)
}

/// Collects and encodes all events, and gives their bytes, the number of incomplete paths, and that
/// of FIDs that were asked for.
fn resolve_all(
    log: &Path,
    history: &History,
    count: usize,
) -> Result<(usize, usize, u64), Box<dyn std::error::Error>> {
    let paths = Box::new(history.paths());
    let merge = ChangelogMerge::new(MergeOptions::default(), ResolverOptions::default(), paths);
    let device = Box::new(StandInDevice::new(log));
    let mut collector = ChangelogCollector::new(&merge, device, ChangelogOptions::default());
    let (mut events, mut record) = (Vec::new(), Vec::new());
    let (mut taken, mut bytes, mut incomplete) = (0, 0, 0);
    while taken < count {
        collector.collect(&mut events, 4_096, (history.now_ns(), 0))?;
        for event in events.drain(..) {
            record.clear();
            encode(&event, &mut record);
            bytes += record.len();
            incomplete += usize::from(event.flags.has(EventFlags::PATH_INCOMPLETE));
            taken += 1;
        }
    }
    Ok((bytes, incomplete, merge.asked()))
}
