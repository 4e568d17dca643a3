//! The real agent as a process, and the cost of a process with its children.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use barograph_client::{Observer, RunDir, SystemClock};

use super::Scratch;
use crate::measure::now;
use crate::peers::PeerServer;
use crate::report::Fault;

/// Every source, by its name in the configuration.
pub(super) const SOURCES: [&str; 8] = [
    "cgroup",
    "cpu",
    "disk",
    "filesystem",
    "memory",
    "network",
    "pressure",
    "vm",
];
/// Time until the start is complete: attributes read, insights created, tables registered.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// A running agent with a run directory of its own.
pub(super) struct Agent {
    server: PeerServer,
    /// The run directory.
    pub scratch: Scratch,
    /// The agent's port on loopback.
    pub port: u16,
}

impl Agent {
    /// Starts an agent with this configuration file, and waits until it has settled.
    pub(super) fn start(name: &str, config: &str) -> Result<Self, Fault> {
        Self::start_on(Scratch::new(name)?, config, None)
    }

    /// Like [`Agent::start`], with a state directory on a real disk.
    pub(super) fn start_in(name: &str, config: &str, state_dir: &Path) -> Result<Self, Fault> {
        Self::start_on(Scratch::new(name)?, config, Some(state_dir))
    }

    fn start_on(scratch: Scratch, config: &str, state_dir: Option<&Path>) -> Result<Self, Fault> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let file = scratch.0.join("config.toml");
        fs::write(&file, config)?;
        let child = Command::new(binary()?)
            .args(["up", "--http", &format!("127.0.0.1:{port}"), "--config"])
            .arg(&file)
            .arg("--run-dir")
            .arg(&scratch.0)
            .arg("--state-dir")
            .arg(state_dir.map_or_else(|| scratch.0.join("state"), Path::to_owned))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let agent = Self {
            server: PeerServer(child),
            scratch,
            port,
        };
        for _ in 0..200 {
            if agent.scratch.0.join("agent.json").exists() {
                std::thread::sleep(SETTLED_AFTER);
                return Ok(agent);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("the agent did not start".into())
    }

    /// Returns the id of the process.
    pub(super) fn pid(&self) -> u32 {
        self.server.0.id()
    }

    /// Returns a reader of the agent's streams in this process.
    pub(super) fn observer(&self) -> Result<Observer, Fault> {
        Ok(Observer::open(
            RunDir::new(&self.scratch.0),
            Arc::new(SystemClock::new()),
        )?)
    }
}

/// Returns a configuration that polls every source at this interval.
pub(super) fn every_ms(interval_ms: u32) -> String {
    SOURCES
        .iter()
        .map(|s| format!("[sources.poll.{s}]\ninterval_ms = {interval_ms}\n"))
        .collect()
}

fn binary() -> Result<PathBuf, Fault> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/baro");
    if !path.exists() {
        return Err("target/release/baro is missing: cargo build --release -p barograph".into());
    }
    Ok(path)
}

/// The cost of a process and its children.
#[derive(Clone, Copy)]
pub(super) struct AgentCost {
    /// Share of one core, in per cent.
    pub cpu: f64,
    /// Resident memory, shared pages included, in MB.
    pub rss: f64,
}

/// Runs `work`, and returns the cost of the process `pid` and those below it meanwhile.
pub(super) fn cost(pid: u32, mut work: impl FnMut()) -> Result<AgentCost, Fault> {
    let family = family(pid);
    let cpu_s = || family.iter().map(|&pid| cpu_s(pid)).sum::<f64>();
    let (before, begin) = (cpu_s(), now());
    work();
    let cpu = (cpu_s() - before) / begin.elapsed().as_secs_f64() * 100.0;
    let rss = family.iter().map(|&pid| rss_mb(pid)).sum();
    if fs::metadata(format!("/proc/{pid}")).is_err() {
        return Err("the process ended while it was watched".into());
    }
    Ok(AgentCost { cpu, rss })
}

/// Returns the process, its children, their children, and so on.
fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut at = 0;
    while at < family.len() {
        for task in fs::read_dir(format!("/proc/{}/task", family[at]))
            .into_iter()
            .flatten()
            .flatten()
        {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            family.extend(
                children
                    .split_whitespace()
                    .filter_map(|c| c.parse::<u32>().ok()),
            );
        }
        at += 1;
    }
    family
}

/// Returns the processor seconds of a process, counted by the scheduler in nanoseconds.
/// (`/proc/PID/stat` has ticks of 10 ms, too coarse for a process that sleeps nearly always.)
fn cpu_s(pid: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let ns = threads.filter_map(|thread| {
        let schedstat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        schedstat.split(' ').next()?.parse::<f64>().ok()
    });
    ns.sum::<f64>() / 1e9
}

fn rss_mb(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let rss = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .unwrap_or_default();
    rss.trim()
        .trim_end_matches(" kB")
        .parse::<f64>()
        .unwrap_or(0.0)
        / 1024.0
}
