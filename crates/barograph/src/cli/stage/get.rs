//! `baro stage get`: a block goes to a file or the standard output.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use barograph_client::ReplacementFile;
use barograph_staging::client::GetOptions;
use clap::Args;
use serde::Serialize;

use super::block::{Block, BlockRow, name};
use super::servers::Servers;
use super::{Usage, format, output, progress};

/// Arguments of `baro stage get`.
#[derive(Args)]
pub(super) struct Get {
    #[command(flatten)]
    block: Block,
    /// The file [default: the standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "output")]
    force: bool,
    /// Take a block that may be older than one that was acknowledged, if no replica knows better
    #[arg(long)]
    accept_unconfirmed: bool,
    #[command(flatten)]
    servers: Servers,
}

/// What was read.
#[derive(Serialize)]
struct GetRow<'a> {
    #[serde(flatten)]
    block: BlockRow,
    file: &'a Path,
    /// Copies that did not have their checksum when they came here.
    corrupt: u64,
    /// Replicas that had no good copy, or none, and were sent one.
    repaired: u64,
    repairs_failed: u64,
}

impl Get {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let key = self.block.key()?;
        let file = self.output.as_deref();
        if self.servers.json() && file.is_none() {
            let text = "--json needs --output FILE: the block itself goes to the standard output";
            return Err(Usage(text.into()).into());
        }
        if let Some(file) = file.filter(|file| file.exists() && !self.force) {
            let shown = file.display();
            let text = format!("{shown} is there already: say --force to replace it");
            return Err(Usage(text).into());
        }
        let options = GetOptions {
            accept_unconfirmed: self.accept_unconfirmed,
        };
        let session = self.servers.session()?;
        let mut bytes = Vec::new();
        let what = format!("reading {}", name(&key));
        let info = progress::shown(&what, || {
            session.run(|client| client.get_into(&key, &mut bytes, &options))
        })?;
        let Some(file) = file else {
            let mut out = output::for_programs();
            out.write_all(&bytes)?;
            return Ok(out.flush()?);
        };
        write(file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
        let counts = session.counts();
        let row = GetRow {
            block: BlockRow::new(&key, &info),
            file,
            corrupt: counts.corrupt,
            repaired: counts.repaired,
            repairs_failed: counts.repairs_failed,
        };
        if self.servers.json() {
            return output::print_json(&row);
        }
        let (shown, version) = (format::number(info.bytes as f64, "bytes"), info.version);
        let repaired = match counts.repaired {
            0 => String::new(),
            repaired => format!("; {repaired} replicas had no good copy, and were sent one"),
        };
        output::print(&format!(
            "{}: {shown}, version {version}{repaired}\n",
            file.display()
        ))
    }
}

/// Writes a file that has its name only when it is whole.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let replacement = ReplacementFile::create(path)?;
    replacement.file().write_all(bytes)?;
    replacement.finish().map(drop)
}
