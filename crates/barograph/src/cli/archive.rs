//! `baro archive`: lists, verifies, exports and rearranges the history on disk.
//!
//! All commands except seal and compact read the files themselves, so no agent needs to live.
//! Archives of applications are included if this user may read them; the others are named.

mod export;
mod ls;
mod merge;
mod place;
mod verify;
mod work;

use barograph_agent::{ARCHIVE_DOCUMENT, ArchiveDocument};
use barograph_archive::ArchiveLosses;
use barograph_client::RunDir;
use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};

use super::documents::{DocumentRow, document};
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
    /// Merge archives into a new one: of several nodes, or what several aggregators have kept of
    /// one node, each sample once
    Merge(merge::Merge),
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
            Verb::Merge(merge) => merge.run(),
        }
    }
}

/// A document about an archive; nothing while history is off.
type ArchiveRow = DocumentRow<Option<ArchiveDocument>>;

/// The documents of an agent about its archives.
pub(super) struct ArchiveDocuments {
    /// Document of the node's archive.
    node: Option<ArchiveRow>,
    /// Documents of the archives of applications that this user may read, by scope.
    scopes: Vec<(String, ArchiveRow)>,
    /// Scopes that this user may not read.
    closed: Vec<String>,
}

impl ArchiveDocuments {
    /// Reads the documents in a run directory.
    pub(super) fn of(run_dir: &RunDir) -> Self {
        let mut told = Self {
            node: document(run_dir, ARCHIVE_DOCUMENT).ok().flatten(),
            scopes: Vec::new(),
            closed: Vec::new(),
        };
        for scope in run_dir.scope_names() {
            match document(&run_dir.scope(&scope), ARCHIVE_DOCUMENT) {
                Ok(Some(document)) => told.scopes.push((scope, document)),
                Ok(None) => {}
                Err(_) => told.closed.push(scope),
            }
        }
        told
    }

    /// Adds the documents to a JSON object, as `archive` and `applications`.
    pub(super) fn add_to(&self, json: &mut Json) {
        json["archive"] = json!(self.node);
        let scopes = self
            .scopes
            .iter()
            .map(|(scope, row)| (scope.clone(), json!(row)));
        json["applications"] = json!({
            "archives": scopes.collect::<serde_json::Map<_, _>>(),
            "unreadable": self.closed,
        });
    }

    /// The documents as lines for people, each with its subject; empty if the agent has none.
    pub(super) fn lines(&self, now_ns: i64) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        if let Some(node) = &self.node {
            all.extend(lines(node.as_ref(), now_ns));
        }
        for (scope, document) in &self.scopes {
            // Without history, the line of the node shows it.
            let of = document
                .as_ref()
                .map(|archive| lines(Some(archive), now_ns));
            let of = of.into_iter().flatten();
            all.extend(of.map(|(what, line)| (what, format!("applications of {scope}: {line}"))));
        }
        if let Some(closed) = closed_words(&self.closed) {
            all.push(("archive", closed));
        }
        all
    }
}

/// An archive's document as lines for people, each with its subject: the state first, then losses
/// and errors, each with its remedy.
fn lines(archive: Option<&ArchiveDocument>, now_ns: i64) -> Vec<(&'static str, String)> {
    let Some(archive) = archive else {
        return vec![(
            "archive",
            "off: nothing is kept (archive.enabled = true keeps history)".into(),
        )];
    };
    let bytes = |bytes: u64| format::number(bytes as f64, "bytes");
    let since = archive.oldest_ts.map(|ts| {
        let age = format::age(now_ns.saturating_sub(ts));
        format!(", the oldest sample is {age} old")
    });
    let mut lines = vec![(
        "archive",
        format!(
            "{} in {} files and {} of log{}, in {}",
            bytes(archive.bytes),
            archive.files,
            bytes(archive.log_bytes),
            since.unwrap_or_default(),
            archive.dir,
        ),
    )];
    if archive.waiting_bytes > 0 {
        let waiting = bytes(archive.waiting_bytes);
        lines.push((
            "waiting",
            format!("{waiting} of samples wait to be written"),
        ));
    }
    for (waiting, what) in [
        (
            archive.waiting_copies,
            "files are written and wait to be copied to archive.target",
        ),
        (
            archive.stale_copies,
            "copies of merged files wait to be removed from archive.target",
        ),
    ] {
        if waiting > 0 {
            lines.push(("copies", format!("{waiting} {what}")));
        }
    }
    lines.extend(lost(&archive.losses).map(|line| ("lost", line)));
    if !archive.trouble.is_empty() {
        lines.push(("trouble", archive.trouble.clone()));
    }
    lines
}

/// The losses, a line for each kind: its count, its meaning, and its remedy.
fn lost(losses: &ArchiveLosses) -> impl Iterator<Item = String> + use<> {
    let all = [
        (
            losses.overflow_samples,
            "samples found the buffer full: the disk is slow, or archive.buffer_bytes_max too small",
        ),
        (
            losses.failed_samples,
            "samples could not be written: see the agent's log for why",
        ),
        (
            losses.shed_samples,
            "samples were given up before their time: make room, or raise archive.bytes_max",
        ),
        (
            losses.torn_bytes,
            "bytes were half written when an agent or the machine died: they were cut",
        ),
        (
            losses.corrupt_files,
            "files were damaged and set aside: `baro archive verify`, and look at the disk",
        ),
    ];
    let lost = all.into_iter().filter(|(count, _)| *count > 0);
    lost.map(|(count, what)| format!("{count} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(document: Option<&ArchiveDocument>, expect: &[&str]) {
        let lines = lines(document, 7_200_000_000_000);
        let lines: Vec<String> = lines.iter().map(|(w, l)| format!("{w}: {l}")).collect();
        assert_eq!(lines, expect);
    }

    #[test]
    fn a_null_says_that_history_is_off_and_no_document_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        assert_eq!(ArchiveDocuments::of(&run_dir).lines(0), []);
        run_dir.publish(ARCHIVE_DOCUMENT, b"null", 0o644).unwrap();
        let lines = ArchiveDocuments::of(&run_dir).lines(0);
        assert!(lines[0].1.starts_with("off: "), "{lines:?}");
    }

    #[test]
    fn the_archive_in_words() {
        check(
            None,
            &["archive: off: nothing is kept (archive.enabled = true keeps history)"],
        );
        let mut document = ArchiveDocument {
            dir: "/a".into(),
            bytes: 3 << 20,
            log_bytes: 1 << 20,
            files: 4,
            ..ArchiveDocument::default()
        };
        check(
            Some(&document),
            &["archive: 3 MiB in 4 files and 1 MiB of log, in /a"],
        );
        document.oldest_ts = Some(0);
        document.losses.torn_bytes = 9;
        document.trouble = "history is not written: no space: make room".into();
        document.waiting_bytes = 2_048;
        document.waiting_copies = 3;
        check(
            Some(&document),
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
