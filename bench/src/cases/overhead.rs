//! Apollo's Figure 5: the cost of being observed for a job that writes.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::agent::{Agent, cost, every_ms};
use crate::measure::{median, now};
use crate::report::{Fault, Report};

/// The job writes one file of 1 GB in parts, each of which it syncs.
const PARTS: usize = 4;
const PART_BLOCKS: usize = 256;
const BLOCK_BYTES: usize = 1 << 20;
const ROUNDS: usize = 7;
const INTERVALS_MS: [u32; 2] = [1000, 100];

/// Measures the job alone and beside the agent, in turn, so that a slow minute of the disk affects
/// all cases; the fastest run of each counts, since other users of the disk only add time.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let directory = Directory::new()?;
    let mut alone = Vec::new();
    let mut times = [const { Vec::new() }; 2];
    let mut costs = Vec::new();
    job(&directory.0)?;
    for _ in 0..ROUNDS {
        alone.push(job(&directory.0)?);
        for (interval_ms, times) in INTERVALS_MS.iter().zip(&mut times) {
            let agent = Agent::start("overhead", &every_ms(*interval_ms))?;
            let mut seconds = Ok(0.0);
            let taken = cost(agent.pid(), || seconds = job(&directory.0))?;
            times.push(seconds?);
            costs.push((*interval_ms, taken));
        }
    }
    let slowest = alone.iter().copied().fold(f64::MIN, f64::max);
    let alone = fastest(&alone);
    report.row(
        "apollo.fig5",
        "1 GB written with fsync, no agent, fastest run",
        alone,
        "s",
        &[],
    );
    report.row(
        "apollo.fig5",
        "slowest run without agent: more time",
        (slowest / alone - 1.0) * 100.0,
        "%",
        &[],
    );
    for (interval_ms, times) in INTERVALS_MS.iter().zip(&times) {
        let more = (fastest(times) / alone - 1.0) * 100.0;
        report.row(
            "apollo.fig5",
            &format!("agent at {interval_ms} ms, fastest run: more time"),
            more,
            "%",
            &[],
        );
        let of = |get: fn(&super::agent::AgentCost) -> f64| {
            median(
                &mut costs
                    .iter()
                    .filter(|c| c.0 == *interval_ms)
                    .map(|c| get(&c.1))
                    .collect::<Vec<_>>(),
            )
        };
        let paper = [("apollo paper", 13.32)];
        report.row(
            "apollo.fig5",
            &format!("agent at {interval_ms} ms: processor"),
            of(|c| c.cpu),
            "% of core",
            &paper,
        );
        report.row(
            "apollo.fig5",
            &format!("agent at {interval_ms} ms: memory"),
            of(|c| c.rss),
            "MB",
            &[("apollo paper", 57.0)],
        );
    }
    Ok(())
}

fn fastest(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::MAX, f64::min)
}

/// Returns the seconds that the job takes.
fn job(directory: &Path) -> Result<f64, Fault> {
    let block = vec![0x5a; BLOCK_BYTES];
    let begin = now();
    let mut file = File::create(directory.join("job"))?;
    for _ in 0..PARTS {
        (0..PART_BLOCKS).try_for_each(|_| file.write_all(&block))?;
        file.sync_data()?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// A directory on the disk of the build, which is deleted on drop.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self, Fault> {
        let name = format!("../target/bench-{}", std::process::id());
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
