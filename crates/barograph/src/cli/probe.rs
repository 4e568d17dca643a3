//! `baro probe`: measures what a disk can do, by reading, and keeps the result for the agent.

use std::path::PathBuf;

use anyhow::Context as _;
use barograph_agent::Config;
use barograph_agent::probe::{self, Probe as Outcome, ProbeLimits};
use clap::Args;
use serde_json::Value as Json;

use super::documents::state_of_agent;
use super::{Usage, format, output};

/// Share of zeros above which a note is printed.
const ZEROS_RATIO_MAX: f64 = 0.5;

/// Arguments of `baro probe`.
#[derive(Args)]
pub(super) struct Probe {
    /// The block device: a path such as /dev/nvme0n1, or its name below /dev
    device: String,
    /// Most seconds to read for, 0.1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,
    /// Most MiB to read, 2 to 65536
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(2..=65536))]
    mib: u64,
    /// Go on although others use the device: the remaining capacity is measured, and not kept
    #[arg(long)]
    force: bool,
    /// Print the result, and do not keep it
    #[arg(long)]
    dry_run: bool,
    /// Configuration file of the agent, which names its state directory
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// State directory of the agent [default: that of this user's running agent, or else
    /// $XDG_STATE_HOME/barograph or /var/lib/barograph]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Run directory of the agent whose state directory is used [default: $BAROGRAPH_RUN_DIR, or
    /// else this user's agent's, or else the node's]
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "state_dir"])]
    run_dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Probe {
    /// Measures the device, keeps the result and prints it.
    pub(super) fn run(self) -> anyhow::Result<()> {
        if !(0.1..=60.0).contains(&self.seconds) {
            let text = format!("--seconds {} is not between 0.1 and 60", self.seconds);
            return Err(Usage(text).into());
        }
        let limits = ProbeLimits {
            time_ns_max: (self.seconds * 1e9) as i64,
            bytes_max: self.mib << 20,
            force: self.force,
        };
        // A mistake in the configuration is reported before anything is read.
        let path = self.path()?;
        let clock = barograph_client::SystemClock::new();
        let outcome = probe::probe(&self.device, &limits, &clock)?;
        let kept = !(self.dry_run || self.force);
        if kept {
            probe::store(&path, &outcome.device, outcome.record()).with_context(|| {
                format!(
                    "measured, but not kept in {}: use --dry-run to see it, or --state-dir",
                    path.display()
                )
            })?;
        }
        let kept = kept.then_some(&path);
        if self.json {
            let mut json: Json = serde_json::to_value(&outcome)?;
            json["kept"] = kept.map(|path| path.display().to_string()).into();
            return output::print_json(&json);
        }
        output::print(&text(&outcome, kept))
    }

    fn path(&self) -> anyhow::Result<PathBuf> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        if let Some(state_dir) = &self.state_dir {
            config.state_dir = state_dir.clone();
        } else if self.config.is_none()
            && let Some(state_dir) = state_of_agent(self.run_dir.as_deref())?
        {
            config.state_dir = state_dir;
        }
        let probes = config.resolve()?.sources.disk.probes;
        if probes.as_os_str().is_empty() {
            let text = "the configuration has another sys_root: name a --state-dir and no --config";
            return Err(Usage(text.into()).into());
        }
        Ok(probes)
    }
}

fn text(outcome: &Outcome, kept: Option<&PathBuf>) -> String {
    let seconds = |s: Option<f64>| s.map_or("-".into(), |s| format::number(s, "seconds"));
    let bytes = |b: u64| format::number(b as f64, "bytes");
    let mut device = outcome.device.clone();
    if let Some(disk) = &outcome.partition_of {
        device += &format!(", a partition of {disk}");
    }
    for name in [&outcome.model, &outcome.serial].into_iter().flatten() {
        device += &format!(", {name}");
    }
    device += &format!(", {}", bytes(outcome.size_bytes));
    let rows = [
        ("device", device),
        (
            "bandwidth",
            format!(
                "{} ({} in reads of 1 MiB, {} at a time)",
                format::number(outcome.bytes_per_second, "bytes/s"),
                bytes(outcome.sequential_bytes),
                outcome.readers
            ),
        ),
        (
            "latency",
            format!(
                "median {}, 99 % at most {} ({} random reads of {})",
                seconds(outcome.latency_p50_seconds),
                seconds(outcome.latency_p99_seconds),
                outcome.random_reads,
                bytes(outcome.random_read_bytes)
            ),
        ),
        (
            "took",
            format!(
                "{} at {} I/O priority; others moved {}",
                format::number(outcome.seconds, "seconds"),
                outcome.io_priority,
                bytes(outcome.others_bytes)
            ),
        ),
        (
            "kept",
            kept.map_or("no".into(), |path| path.display().to_string()),
        ),
    ];
    let lines = rows
        .iter()
        .map(|(what, value)| format!("{what:<10} {value}\n"));
    let mut text: String = lines.collect();
    if outcome.zeros_ratio > ZEROS_RATIO_MAX {
        text += &format!(
            "\n{} of what was read is zeros: a device may answer faster for parts that were never \
             written.\n",
            format::number(outcome.zeros_ratio, "ratio")
        );
    }
    if let Some(disk) = &outcome.partition_of {
        text += &format!("\nThe agent follows whole disks: measure {disk} for it.\n");
    }
    text
}
