//! `baro archive merge`: several archives become one, each sample once.

use std::path::PathBuf;
use std::sync::Arc;

use barograph_archive::{ArchiveReader, merge_archives};
use barograph_client::SystemClock;
use barograph_model::Clock;
use clap::Args;
use serde_json::json;

use crate::cli::{Usage, output};

/// Samples between two lines of progress on a terminal.
const PROGRESS_SAMPLES: u64 = 1 << 20;

/// Arguments of `baro archive merge`.
#[derive(Args)]
pub(super) struct Merge {
    /// Directories of archives, such as aggregated/NODE of an aggregator
    #[arg(required = true, value_name = "DIR")]
    archives: Vec<PathBuf>,
    /// A new directory for the archive of all of them
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Merge {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        for dir in &self.archives {
            if !dir.join("nodes").is_dir() {
                let text = format!("{} is no archive: it has no directory nodes", dir.display());
                return Err(Usage(text).into());
            }
        }
        let inputs: Vec<ArchiveReader> = self.archives.iter().map(ArchiveReader::open).collect();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let mut told = 0;
        let mut progress = |samples: u64| {
            if samples - told >= PROGRESS_SAMPLES && output::is_terminal() {
                told = samples;
                output::tell(&format!("{samples} samples …\n"));
            }
        };
        let merged = merge_archives(&inputs, &self.out, &clock, &mut progress)?;
        if self.json {
            return output::print_json(&json!({
                "nodes": merged.nodes,
                "series": merged.series,
                "samples": merged.samples,
                "doubles": merged.doubles,
            }));
        }
        output::print(&format!(
            "{} samples of {} series of {} nodes in {}; {} were there twice\n",
            merged.samples,
            merged.series,
            merged.nodes,
            self.out.display(),
            merged.doubles,
        ))
    }
}
