//! `baro control advise`: where blocks would go now, and why: what middleware asks, for people.

use barograph_model::Level;
use clap::Args;
use serde_json::{Value as Json, json};

use super::super::output::plain;
use super::super::{Target, Usage, format, output};
use super::ask;

/// The path to which requests go.
const ADVISE: &str = "/api/v1/control/advise";

/// Arguments of `baro control advise`.
#[derive(Args)]
pub(super) struct Advise {
    /// Directories to which blocks may go; with a weight as DIR=2.5 [default weight: 1]
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<String>,
    /// Size of a block, such as 64MiB
    #[arg(long, value_name = "BYTES", default_value = "1MiB")]
    bytes: String,
    /// Keys of blocks [default: one block without a name]
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<String>,
    /// The way back is to be fast, and not the way there
    #[arg(long)]
    read: bool,
    /// Blocks may be divided, into pieces of so many bytes at least
    #[arg(long, value_name = "BYTES")]
    pieces: Option<String>,
    /// A short text that names the decision
    #[arg(long, value_name = "TEXT", default_value = "")]
    label: String,
    /// Keep the advice as a decision that counts, as middleware does when it follows it
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    target: Target,
}

impl Advise {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        let targets: Result<Vec<Json>, Usage> = self.dirs.iter().map(|dir| target(dir)).collect();
        let pieces = self.pieces.as_deref().map(bytes).transpose()?;
        let body = json!({
            "bytes": bytes(&self.bytes)?,
            "keys": self.keys,
            "direction": if self.read { "read" } else { "write" },
            "split_bytes_min": pieces,
            "targets": targets?,
            "label": self.label,
            "look": !self.keep,
        });
        let answer = ask(&self.target.run_dir(), ADVISE, &body)?;
        if self.target.json {
            return output::print_json(&answer);
        }
        let targets = answer["targets"].as_array().map_or(&[][..], Vec::as_slice);
        let targets: Vec<Vec<String>> = targets.iter().map(target_cells).collect();
        output::print_table(
            &[
                "DIR",
                "MOUNT",
                "TIER",
                "FREE",
                "QUEUE",
                "READS",
                "WRITES",
                "AGE",
                "NOT USABLE",
            ],
            &[3, 4, 5, 6, 7],
            &targets,
        )?;
        let blocks = answer["blocks"].as_array().map_or(&[][..], Vec::as_slice);
        let blocks: Vec<Vec<String>> = blocks.iter().map(block_cells).collect();
        output::print("\n")?;
        output::print_table(&["BLOCK", "GOES TO", "EXPECTED"], &[2], &blocks)?;
        let reason = plain(answer["reason"].as_str().unwrap_or_default()).into_owned();
        let number = answer["decision"].as_u64().map_or_else(String::new, |id| {
            format!(" (decision {id}: `baro control explain {id}`)")
        });
        output::print(&format!("\n{reason}{number}\n"))
    }
}

/// A directory with its weight. A path may have `=` itself, so what follows the last one counts
/// only if it is a number.
fn target(text: &str) -> Result<Json, Usage> {
    let (path, weight) = match text.rsplit_once('=') {
        Some((path, weight)) if weight.parse::<f64>().is_ok() => (path, weight.parse().ok()),
        _ => (text, None),
    };
    let path = std::path::absolute(path).map_err(|error| Usage(format!("{path}: {error}")))?;
    match path.to_str() {
        Some(path) => Ok(json!({ "path": path, "weight": weight.unwrap_or(1.0) })),
        None => Err(Usage(format!("{} is no UTF-8", path.display()))),
    }
}

fn bytes(text: &str) -> Result<u64, Usage> {
    let wrong = || {
        Usage(format!(
            "{text:?} is no size: give bytes, such as 4096, 64MiB or 1GB"
        ))
    };
    match Level::parse(text) {
        Ok(Level::Absolute(bytes)) if (0.0..=u64::MAX as f64).contains(&bytes) => Ok(bytes as u64),
        _ => Err(wrong()),
    }
}

fn target_cells(target: &Json) -> Vec<String> {
    let text = |name: &str| target[name].as_str().unwrap_or("-").to_owned();
    let number = |name: &str, unit: &str| {
        let value = target[name].as_f64();
        value.map_or_else(|| "unknown".to_owned(), |value| format::number(value, unit))
    };
    let ages = ["free_age_s", "queue_age_s", "bandwidth_age_s"];
    let oldest = ages.iter().filter_map(|name| target[name].as_f64());
    let age = oldest.max_by(f64::total_cmp);
    vec![
        text("path"),
        text("mount"),
        text("tier"),
        number("free_bytes", "bytes"),
        number("queue_bytes", "bytes"),
        number("read_bytes_s", "bytes/s"),
        number("write_bytes_s", "bytes/s"),
        age.map_or_else(|| "-".into(), |age| format::age((age * 1e9) as i64)),
        target["excluded"].as_str().unwrap_or_default().to_owned(),
    ]
}

fn block_cells(block: &Json) -> Vec<String> {
    let pieces = block["pieces"].as_array().map_or(&[][..], Vec::as_slice);
    let goes: Vec<String> = pieces
        .iter()
        .map(|piece| {
            let path = piece["path"].as_str().unwrap_or_default();
            let bytes = piece["bytes"].as_f64().unwrap_or_default();
            match pieces.len() {
                1 => path.to_owned(),
                _ => format!("{path} ({})", format::number(bytes, "bytes")),
            }
        })
        .collect();
    let seconds = block["expected_s"].as_f64();
    vec![
        block["key"].as_str().unwrap_or_default().to_owned(),
        match goes.is_empty() {
            true => "nowhere: no target has room".to_owned(),
            false => goes.join(", "),
        },
        seconds.map_or_else(|| "unknown".into(), |it| format::number(it, "seconds")),
    ]
}
