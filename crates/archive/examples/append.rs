//! Measures how fast durable samples are appended: `cargo run --release --example append [samples]
//! [dir]`.
//!
//! It prints samples per second from the first submit to the last sync, and then how fast the
//! samples are read. It submits only what fits, so that nothing overflows: a sampler that is faster
//! than the disk waits here.

#![expect(
    clippy::disallowed_methods,
    reason = "a sampler that is faster than the disk waits"
)]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use barograph_archive::{
    ArchiveConfig, ArchiveLayout, DeclaredStream, DiskStorage, JournalEntry, JournalPosition,
    Keeper, LogPart, Storage as _,
};
use barograph_model::{
    Clock as _, Descriptor, Labels, Name, Sample, Selector, Span, StreamKey, Unit, ValueType,
};
use barograph_stream::SystemClock;

const STREAMS: u32 = 500;
const SOON: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let samples: u64 = arguments.next().map_or(Ok(10_000_000), |n| n.parse())?;
    let dir = arguments
        .next()
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("barograph-append-{}", std::process::id()));
    let measured = measure(&dir, samples);
    std::fs::remove_dir_all(&dir)?;
    measured
}

fn measure(dir: &std::path::Path, samples: u64) -> Result<(), Box<dyn Error>> {
    let clock = Arc::new(SystemClock::new());
    let mut config = ArchiveConfig::new(dir, "n1");
    config.durable = vec![Selector::parse("*")?];
    config.segment_bytes_max = u64::MAX;
    let room = config.buffer_bytes_max as u64;
    let keeper = Keeper::start(
        config.clone(),
        Arc::new(DiskStorage),
        Arc::clone(&clock) as _,
    )?;
    let journal = keeper.journal();
    let mut entries = (0..STREAMS).map(declare).collect::<Result<Vec<_>, _>>()?;
    let start = clock.monotonic_ns();
    let (mut submit_ns, mut position) = (0, JournalPosition(0));
    for number in 1..=samples / u64::from(STREAMS) {
        for key in 0..STREAMS {
            let sample = Sample::measured(clock.now_ns(), number as f64);
            entries.push(JournalEntry::Sample(StreamKey(key), number, sample));
        }
        while keeper.status().waiting_bytes > room * 3 / 4 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = clock.monotonic_ns();
        position = journal.submit(&mut entries);
        submit_ns += clock.monotonic_ns() - before;
    }
    if !journal.wait_durable(position, SOON) {
        return Err("the last samples were not acknowledged".into());
    }
    let rate = |ns: i64| samples as f64 / ns as f64 * 1e3;
    let appended = clock.monotonic_ns() - start;
    println!("{:.2} M samples/s appended durable", rate(appended));
    println!("{} ns a sample to submit", submit_ns / samples as i64);
    println!("{:?}", keeper.status().losses);
    drop(keeper);
    let start = clock.monotonic_ns();
    drop(Keeper::start(
        config,
        Arc::new(DiskStorage),
        Arc::clone(&clock) as _,
    )?);
    println!(
        "{:.0} ms to recover",
        (clock.monotonic_ns() - start) as f64 / 1e6
    );
    read(dir, &clock, &rate)
}

fn declare(key: u32) -> Result<JournalEntry, Box<dyn Error>> {
    let descriptor = Descriptor {
        labels: Labels::new([("device", format!("d{key}"))])?,
        ..Descriptor::gauge(
            Name::new("some.bytes")?,
            ValueType::Float,
            Unit::new("bytes")?,
        )
    };
    let declared = DeclaredStream {
        descriptor: Arc::new(descriptor),
        life: 1,
        depth: 1 << 20,
    };
    Ok(JournalEntry::Declare(StreamKey(key), declared))
}

fn read(
    dir: &std::path::Path,
    clock: &SystemClock,
    rate: &dyn Fn(i64) -> f64,
) -> Result<(), Box<dyn Error>> {
    for path in DiskStorage.list(&ArchiveLayout::new(dir, "n1").log_dir())? {
        let start = clock.monotonic_ns();
        let part = LogPart::open(&path)?;
        let opened = clock.monotonic_ns() - start;
        println!("{} samples in {} bytes", part.rows(), part.bytes());
        println!("{:.0} M samples/s opened", rate(opened));
        for (what, wanted) in [("one series", 1), ("all series", STREAMS)] {
            let mut rows = 0;
            let start = clock.monotonic_ns();
            let first = |s: &barograph_archive::LogSeries| {
                let device = s.descriptor.labels.get("device").unwrap_or_default();
                device.strip_prefix('d').and_then(|d| d.parse().ok()) < Some(wanted)
            };
            part.read(
                &first,
                Span::ALL,
                &AtomicBool::new(false),
                &mut |_, columns| {
                    rows += columns.len();
                    Ok(())
                },
            )?;
            let took = clock.monotonic_ns() - start;
            println!(
                "{:.0} M samples/s scanned for {what}: {rows} rows",
                rate(took)
            );
        }
    }
    Ok(())
}
