//! `process.scan`: one scan of all processes for the greatest readers and writers, beside the
//! procfs crate reading the same file of each, with some hundred idle processes in addition to
//! those of the machine.

use std::process::{Child, Command, Stdio};

use barograph_model::Clock as _;
use barograph_source::{SourceBatch, SourcesConfig, all_sources};
use barograph_stream::SystemClock;

use crate::measure::{cpu_ns, keep};
use crate::report::{Fault, Report};

const IDLE: usize = 500;
const ROUNDS: usize = 50;

/// Idle processes, which are killed when this value is dropped.
struct Crowd(Vec<Child>);

impl Crowd {
    fn gather() -> Result<Self, Fault> {
        let mut crowd = Self(Vec::new());
        for _ in 0..IDLE {
            let mut sleeper = Command::new("sleep");
            sleeper.arg("600").stdin(Stdio::null());
            crowd.0.push(sleeper.spawn()?);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Measures scans with default settings, and scans that check every open file for io_uring rings.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let crowd = Crowd::gather()?;
    let clock = SystemClock::new();
    let processes = || procfs::process::all_processes();
    let count = processes()?.count();
    let oracle = cpu_ns(ROUNDS, || {
        for process in processes().into_iter().flatten().flatten() {
            keep(process.io().is_ok());
        }
    });
    for io_uring in [false, true] {
        let mut config = SourcesConfig::default();
        config.process.io_uring = io_uring;
        let sources = all_sources(&config).into_iter();
        let Some(mut source) = sources.into_iter().find(|s| s.name() == "process") else {
            return Err("no source is named process".into());
        };
        let mut batch = SourceBatch::new();
        let mut read = || {
            batch.begin(clock.monotonic_ns());
            let _ = source.read(clock.now_ns(), &mut batch);
        };
        // The first reads of each process also read its start time.
        (0..5).for_each(|_| read());
        let ours = cpu_ns(ROUNDS, read);
        let rings = if io_uring {
            ", rings at every fifth"
        } else {
            ""
        };
        report.row(
            "process.scan",
            &format!("{count} processes{rings}"),
            ours / 1e3,
            "us",
            &[("procfs crate, io of each", oracle / 1e3)],
        );
    }
    drop(crowd);
    Ok(())
}
