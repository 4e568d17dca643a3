//! `baro stage put`: a block goes to its servers.

use std::io::Read;
use std::path::PathBuf;

use anyhow::Context as _;
use barograph_client::SystemClock;
use barograph_model::{Clock as _, Level, NS_PER_MS};
use barograph_staging::client::{PutOptions, PutReport};
use barograph_staging::{BLOCK_BYTES_MAX, PutTarget};
use clap::Args;
use serde::Serialize;

use super::block::{Block, BlockRow, name};
use super::servers::Servers;
use super::{Usage, format, output, progress};

/// Longest time that a put may be told to wait for room, in seconds: a day.
const WAIT_S_MAX: f64 = 86_400.0;

/// Arguments of `baro stage put`.
#[derive(Args)]
pub(super) struct Put {
    #[command(flatten)]
    block: Block,
    /// The file with the block [default: the standard input, as for -]
    file: Option<PathBuf>,
    /// The version, which must not be older than the one that is stored [default: the time, in
    /// nanoseconds]
    #[arg(long, value_name = "N")]
    version: Option<u64>,
    /// Return when the block is on a durable tier of its servers
    #[arg(long)]
    durable: bool,
    /// The block is a copy of something that can be had again in this time, like 20ms: servers may
    /// drop it to make room
    #[arg(long, value_name = "TIME")]
    refetch: Option<String>,
    /// Longest wait for room on a server
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    wait: f64,
    /// How many servers have to have the block [default: all replicas]
    #[arg(long, value_name = "N")]
    acks: Option<u16>,
    #[command(flatten)]
    servers: Servers,
}

/// What was put.
#[derive(Serialize)]
struct PutRow {
    #[serde(flatten)]
    block: BlockRow,
    /// The servers that have acknowledged it.
    servers: Vec<u64>,
    failed: Vec<FailedRow>,
}

#[derive(Serialize)]
struct FailedRow {
    server: u64,
    error: String,
}

impl Put {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let key = self.block.key()?;
        let options = self.options()?;
        let session = self.servers.session()?;
        let bytes = self.read()?;
        let now = || SystemClock::new().now_ns().max(0).unsigned_abs();
        let version = self.version.unwrap_or_else(now);
        let shown = format::number(bytes.len() as f64, "bytes");
        let report = progress::shown(&format!("putting {shown}"), || {
            session.run(|client| client.put(&key, version, &bytes, &options))
        })?;
        let Some((_, info)) = report.acknowledged.first() else {
            anyhow::bail!("no server has acknowledged the block");
        };
        let row = PutRow {
            block: BlockRow::new(&key, info),
            servers: report.acknowledged.iter().map(|(it, _)| *it).collect(),
            failed: failed(&report),
        };
        if self.servers.json() {
            return output::print_json(&row);
        }
        let servers: Vec<String> = row.servers.iter().map(u64::to_string).collect();
        output::print(&format!(
            "{} {}: {shown}, version {version}, on {} {}\n",
            output::plain(key.dataset()),
            output::plain(&name(&key)),
            if servers.len() == 1 {
                "server"
            } else {
                "servers"
            },
            servers.join(", "),
        ))?;
        for FailedRow { server, error } in &row.failed {
            output::tell(&format!(
                "baro: not on server {server}: {}\n",
                output::plain(error)
            ));
        }
        Ok(())
    }

    fn options(&self) -> anyhow::Result<PutOptions> {
        if !(0.0..=WAIT_S_MAX).contains(&self.wait) {
            return Err(Usage("--wait: it is 0 to 86400 seconds".into()).into());
        }
        if self.acks == Some(0) {
            return Err(Usage("--acks: it is 1 at least".into()).into());
        }
        Ok(PutOptions {
            acks: self.acks.map(usize::from),
            target: match self.durable {
                true => PutTarget::Durable,
                false => PutTarget::Fast,
            },
            refetch_us: self.refetch.as_deref().map_or(Ok(0), refetch_us)?,
            wait_ns: (self.wait * 1_000.0) as i64 * NS_PER_MS,
        })
    }

    fn read(&self) -> anyhow::Result<Vec<u8>> {
        let is_file = |path: &&PathBuf| path.as_os_str() != "-";
        let Some(path) = self.file.as_ref().filter(is_file) else {
            return read_block(std::io::stdin().lock()).context("cannot read the standard input");
        };
        let shown = path.display();
        let file = std::fs::File::open(path).with_context(|| format!("cannot open {shown}"))?;
        read_block(file).with_context(|| format!("cannot read {shown}"))
    }
}

fn read_block(from: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(BLOCK_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(
        bytes.len() as u64 <= BLOCK_BYTES_MAX,
        "a block has at most {BLOCK_BYTES_MAX} bytes: divide it into several"
    );
    Ok(bytes)
}

/// A time in microseconds; one that is shorter than that is 1, since 0 says that the block must
/// stay.
fn refetch_us(text: &str) -> anyhow::Result<u32> {
    match Level::parse(text) {
        Ok(Level::Absolute(seconds)) if seconds > 0.0 && seconds <= 4_000.0 => {
            Ok(((seconds * 1e6) as u32).max(1))
        }
        _ => Err(Usage(format!("--refetch {text}: it is a time above 0, like 20ms")).into()),
    }
}

fn failed(report: &PutReport) -> Vec<FailedRow> {
    let failed = report.failed.iter();
    let row = failed.map(|(server, error)| FailedRow {
        server: *server,
        error: error.to_string(),
    });
    row.collect()
}
