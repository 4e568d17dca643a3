//! `baro archive`: lists, verifies, exports and rearranges the history on disk.
//!
//! All commands except seal and compact read the files themselves, so no agent needs to live.
//! Archives of applications are included if this user may read them; the others are named.

mod export;
mod ls;
mod place;
mod verify;
mod work;

use barograph_agent::ARCHIVE_DOCUMENT;
use barograph_client::RunDir;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::format;
use place::{ArchiveChoice, closed_words};

/// Arguments of `baro archive`.
#[derive(Args)]
pub(super) struct ArchiveCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the archive, by tier and day
    Ls(ls::Ls),
    /// Read everything and check that it is intact
    ///
    /// Checks every checksum, every count and every sample's number. The exit code is 1 if
    /// something is damaged; samples whose numbers are missing are only counted, because a loss is
    /// not damage.
    Verify(verify::Verify),
    /// Turn the whole log into Parquet files now, and wait until that is done
    Seal(work::Seal),
    /// Seal, then merge the files of each hour into one
    Compact(work::Compact),
    /// Write the samples of a time range to a file or directory for other programs
    Export(export::Export),
}

impl ArchiveCommand {
    /// Runs the command.
    pub(super) fn run(self) -> anyhow::Result<()> {
        match self.verb {
            Verb::Ls(ls) => ls.run(),
            Verb::Verify(verify) => verify.run(),
            Verb::Seal(seal) => seal.run(),
            Verb::Compact(compact) => compact.run(),
            Verb::Export(export) => export.run(),
        }
    }
}

/// The documents of an agent about its archives.
pub(super) struct ArchiveDocuments {
    /// Document of the node's archive.
    node: Option<Json>,
    /// Documents of the archives of applications that this user may read, by scope.
    scopes: Vec<(String, Json)>,
    /// Scopes that this user may not read.
    closed: Vec<String>,
}

impl ArchiveDocuments {
    /// Reads the documents in a run directory.
    pub(super) fn of(run_dir: &RunDir) -> Self {
        let mut told = Self {
            node: document(run_dir),
            scopes: Vec::new(),
            closed: Vec::new(),
        };
        for scope in run_dir.scope_names() {
            match document_of(&run_dir.scope(&scope), ARCHIVE_DOCUMENT) {
                Ok(Some(document)) => told.scopes.push((scope, document)),
                Ok(None) => {}
                Err(_) => told.closed.push(scope),
            }
        }
        told
    }

    /// Adds the documents to a JSON object, as `archive` and `applications`.
    pub(super) fn add_to(&self, json: &mut Json) {
        json["archive"] = self.node.clone().into();
        let scopes = self.scopes.iter().cloned();
        json["applications"] = json!({
            "archives": scopes.collect::<serde_json::Map<_, _>>(),
            "unreadable": self.closed,
        });
    }

    /// The documents as lines for people, each with its subject; empty if the agent has none.
    pub(super) fn lines(&self, now_ns: i64) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        if let Some(node) = &self.node {
            all.extend(lines(node, now_ns));
        }
        for (scope, document) in &self.scopes {
            // Without history, the line of the node shows it.
            if !document.is_null() {
                let of = lines(document, now_ns).into_iter();
                all.extend(
                    of.map(|(what, line)| (what, format!("applications of {scope}: {line}"))),
                );
            }
        }
        if let Some(closed) = closed_words(&self.closed) {
            all.push(("archive", closed));
        }
        all
    }
}

/// Reads a document of a run directory or scope; a null in it is not `None`.
fn document_of(run_dir: &RunDir, name: &str) -> anyhow::Result<Option<Json>> {
    let bytes = run_dir.document(name)?;
    Ok(bytes
        .map(|bytes| serde_json::from_slice(&bytes))
        .transpose()?)
}

/// The document of the agent of this run directory about its archive; `None` if there is none.
fn document(run_dir: &RunDir) -> Option<Json> {
    document_of(run_dir, ARCHIVE_DOCUMENT).ok()?
}

/// An archive's document as lines for people, each with its subject: the state first, then losses
/// and errors, each with its remedy.
pub(super) fn lines(document: &Json, now_ns: i64) -> Vec<(&'static str, String)> {
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
    if count("waiting_bytes") > 0 {
        let waiting = bytes("waiting_bytes");
        lines.push((
            "waiting",
            format!("{waiting} of samples wait to be written"),
        ));
    }
    for (key, what) in [
        (
            "waiting_copies",
            "files are written and wait to be copied to archive.target",
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
        Some(trouble) => lines.push(("trouble", trouble.to_owned())),
    }
    lines
}

/// Every kind of loss: its key, its meaning, and its remedy.
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
        document["trouble"] = "history is not written: no space: make room".into();
        document["waiting_bytes"] = 2_048.into();
        document["waiting_copies"] = 3.into();
        check(
            &document,
            &[
                "archive: 3 MiB in 4 files and 1 MiB of log, the oldest sample is 2.0 h old, in /a",
                "waiting: 2 KiB of samples wait to be written",
                "copies: 3 files are written and wait to be copied to archive.target",
                "lost: 9 bytes were half written when an agent or the machine died: they were cut",
                "trouble: history is not written: no space: make room",
            ],
        );
    }
}
