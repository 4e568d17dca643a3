//! `baro archive`: what of the past is on disk, whether it is whole, and ways to have it otherwise.
//!
//! All but sealing and compacting read the files themselves: no agent need live.

mod export;
mod ls;
mod verify;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use barograph_agent::{AGENT_DOCUMENT, ARCHIVE_DOCUMENT, Config};
use barograph_archive::{Archive, View};
use barograph_client::RunDir;
use clap::{Args, Subcommand};
use serde_json::Value as Json;

use super::{Usage, format};

/// Arguments of `baro archive`.
#[derive(Args)]
pub struct ArchiveCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show what is kept, by tier and day
    Ls(ls::Ls),
    /// Read everything and check that it is whole
    ///
    /// Checks every checksum, every count and every sample's number. Exit code 1 when something is
    /// wrong; samples whose numbers are missing are counted, since what was lost is no damage.
    Verify(verify::Verify),
    /// Turn the whole log into Parquet now, and wait for it
    Seal(work::Seal),
    /// Seal, then merge the files of each hour into one
    Compact(work::Compact),
    /// Write samples of a time to a file or directory for other programs
    Export(export::Export),
}

impl ArchiveCommand {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Ls(ls) => ls.run(),
            Verb::Verify(verify) => verify.run(),
            Verb::Seal(seal) => seal.run(),
            Verb::Compact(compact) => compact.run(),
            Verb::Export(export) => export.run(),
        }
    }
}

/// Which archive.
#[derive(Args)]
pub struct Place {
    /// The archive's directory [default: that of the agent of the run directory, else this user's]
    #[arg(long, value_name = "DIR")]
    archive_dir: Option<PathBuf>,
    #[command(flatten)]
    target: super::Target,
}

impl Place {
    fn json(&self) -> bool {
        self.target.json
    }

    /// The directory, from the first who names one: the option, the agent's document, the default.
    fn dir(&self) -> anyhow::Result<PathBuf> {
        if let Some(dir) = &self.archive_dir {
            return Ok(dir.clone());
        }
        let run_dir = self.target.run_dir();
        let Some(agent) = agent_document(&run_dir)? else {
            return Ok(Config::default_archive_dir());
        };
        match agent["archive"].as_str() {
            Some(dir) => Ok(dir.into()),
            None => anyhow::bail!(
                "the agent of {} keeps no history: give --archive-dir",
                run_dir.path().display()
            ),
        }
    }

    /// All of it as it is now; that there is nothing at all is an error.
    fn view(&self) -> anyhow::Result<(PathBuf, Arc<View>)> {
        let dir = self.existing_dir()?;
        let archive = match (&self.archive_dir, self.target.run_dir().open()) {
            // Only an agent that is there has named it; whose it names must be its own.
            (None, Ok(place)) => Archive::of_user(&dir, place.owner()),
            _ => Archive::open(&dir),
        };
        Ok((dir, archive.view()?))
    }

    fn existing_dir(&self) -> anyhow::Result<PathBuf> {
        let dir = self.dir()?;
        if !dir.is_dir() {
            let message = format!(
                "there is no archive at {}: give --archive-dir, or --run-dir of the agent",
                dir.display()
            );
            return Err(match self.archive_dir {
                Some(_) => Usage(message).into(),
                None => anyhow::anyhow!(message),
            });
        }
        Ok(dir)
    }
}

fn agent_document(run_dir: &RunDir) -> anyhow::Result<Option<Json>> {
    let bytes = run_dir.document(AGENT_DOCUMENT)?;
    Ok(bytes
        .map(|bytes| serde_json::from_slice(&bytes))
        .transpose()?)
}

/// What the agent of this run directory says of its archive; `None` when it says nothing.
pub fn document(run_dir: &RunDir) -> Option<Json> {
    let bytes = run_dir.document(ARCHIVE_DOCUMENT).ok()??;
    serde_json::from_slice(&bytes).ok()
}

/// The archive in lines for people, each with what it is about: the state first, then what was lost
/// and what is wrong, with what to do.
pub fn lines(document: &Json, now_ns: i64) -> Vec<(&'static str, String)> {
    let Some(dir) = document["dir"].as_str() else {
        return vec![(
            "archive",
            "off: nothing is kept (archive.enabled = true keeps history)".into(),
        )];
    };
    let count = |key: &str| document[key].as_u64().unwrap_or(0);
    let bytes = |key: &str| format::number(count(key) as f64, "bytes");
    let since = document["oldest_ts"].as_i64().map(|ts| {
        let age = format::age(now_ns.saturating_sub(ts));
        format!(", the oldest sample is {age} old")
    });
    let mut lines = vec![(
        "archive",
        format!(
            "{} in {} files and {} of log{}, in {dir}",
            bytes("bytes"),
            count("files"),
            bytes("log_bytes"),
            since.unwrap_or_default(),
        ),
    )];
    for (key, what) in [
        (
            "waiting_copies",
            "files wait to be copied to archive.target",
        ),
        (
            "stale_copies",
            "copies of merged files wait to be removed from archive.target",
        ),
    ] {
        let waiting = count(key);
        if waiting > 0 {
            lines.push(("copies", format!("{waiting} {what}")));
        }
    }
    for (key, what) in LOSSES {
        let lost = document["losses"][key].as_u64().unwrap_or(0);
        if lost > 0 {
            lines.push(("lost", format!("{lost} {what}")));
        }
    }
    match document["trouble"].as_str() {
        None | Some("") => {}
        Some(trouble) => lines.push(("trouble", format!("history is not written: {trouble}"))),
    }
    lines
}

/// Every kind of loss: its key, what it is, and what to do about it.
const LOSSES: [(&str, &str); 5] = [
    (
        "overflow_samples",
        "samples found the buffer full: the disk is slow, or archive.buffer_bytes_max too small",
    ),
    (
        "failed_samples",
        "samples could not be written: see the agent's log for why",
    ),
    (
        "shed_samples",
        "samples were given up before their time: make room, or raise archive.bytes_max",
    ),
    (
        "torn_bytes",
        "bytes were half written when an agent or the machine died: they were cut",
    ),
    (
        "corrupt_files",
        "files were damaged and set aside: `baro archive verify`, and look at the disk",
    ),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(document: &Json, expect: &[&str]) {
        let lines = lines(document, 7_200_000_000_000);
        let lines: Vec<String> = lines.iter().map(|(w, l)| format!("{w}: {l}")).collect();
        assert_eq!(lines, expect);
    }

    #[test]
    fn the_archive_in_words() {
        check(
            &Json::Null,
            &["archive: off: nothing is kept (archive.enabled = true keeps history)"],
        );
        let mut document = json!({
            "dir": "/a", "bytes": 3 << 20, "log_bytes": 1 << 20, "files": 4, "oldest_ts": null,
            "losses": { "overflow_samples": 0 }, "trouble": "",
        });
        check(
            &document,
            &["archive: 3 MiB in 4 files and 1 MiB of log, in /a"],
        );
        document["oldest_ts"] = 0.into();
        document["losses"]["torn_bytes"] = 9.into();
        document["trouble"] = "no space: make room".into();
        check(
            &document,
            &[
                "archive: 3 MiB in 4 files and 1 MiB of log, the oldest sample is 2.0 h old, in /a",
                "lost: 9 bytes were half written when an agent or the machine died: they were cut",
                "trouble: history is not written: no space: make room",
            ],
        );
    }
}
