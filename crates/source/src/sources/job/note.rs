//! Notes about jobs: `etc/slurm/prolog.sh` writes a file with one `KEY=VALUE` per line for each job
//! of this node, and `etc/slurm/epilog.sh` removes it.
//!
//! Only root may write to the directory. It is not below the agent's run directory, because a
//! process that runs as the agent could put a link there for root's prolog to follow.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::SourceError;
use crate::report::MissingPart;
use crate::util::faults::{BadLines, Faults};
use crate::util::file::{HeldFile, SysRoot, names_in};
use crate::util::parse::{cut, escape, lines, number};

use super::find::{FoundJobs, is_id};

/// The directory of notes, relative to the root of the source.
pub(super) const DIRECTORY: &str = "run/barograph-jobs";
/// Most files read, not counting those of jobs that have control groups.
const FILES_MAX: usize = 4096;

/// The contents of one note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) user: Option<String>,
    pub(super) account: Option<String>,
    pub(super) partition: Option<String>,
    pub(super) nodes: Option<u64>,
    pub(super) tasks: Option<u64>,
    pub(super) cpus: Option<u64>,
    pub(super) start_s: Option<u64>,
}

/// All notes of this node.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) jobs: BTreeMap<String, Note>,
    /// Whether the directory exists, so that a prolog has run here.
    pub(super) there: bool,
    pub(super) missing: Option<MissingPart>,
}

impl Notes {
    /// Reads the notes. Those of the jobs in `found` are read even if there are too many others.
    pub(super) fn read(
        root: &SysRoot,
        found: &FoundJobs,
        bytes: &mut Vec<u8>,
        faults: &mut Faults,
    ) -> Self {
        let mut notes = Self::default();
        let dir = root.path(DIRECTORY);
        let (names, all) = match names_in(&dir, FILES_MAX) {
            Ok(names) => names,
            Err(fault) if fault.is_absent() => return notes,
            Err(fault) => {
                faults.add(fault);
                return notes;
            }
        };
        notes.there = true;
        if root.is_real() && !std::fs::metadata(&dir).is_ok_and(|m| is_roots(m.uid(), m.mode())) {
            notes.missing = Some(MissingPart::new(
                "what prologs wrote of jobs",
                format!("others than root may write to {}", dir.display()),
                "chown root and chmod 0755 it, and see who made it",
            ));
            return notes;
        }
        for name in &names {
            notes.take(&dir, &String::from_utf8_lossy(name), bytes, faults);
        }
        let beyond = all.saturating_sub(names.len());
        if beyond > 0 {
            let listed = notes.jobs.len();
            let unlisted = |id: &&String| {
                names
                    .binary_search_by(|n| (**n).cmp(id.as_bytes()))
                    .is_err()
            };
            for id in found.jobs.keys().filter(unlisted) {
                notes.take(&dir, id, bytes, faults);
            }
            let refused = beyond.saturating_sub(notes.jobs.len() - listed);
            if refused > 0 {
                faults.add(SourceError::TooMany {
                    what: "notes of jobs",
                    refused,
                    max: FILES_MAX,
                });
            }
        }
        notes
    }

    fn take(&mut self, dir: &Path, name: &str, bytes: &mut Vec<u8>, faults: &mut Faults) {
        // A file whose name begins with a dot is still being written.
        if !is_id(name) {
            return;
        }
        let path = dir.join(name);
        match HeldFile::until_end(path.clone()).read_and_close(bytes) {
            Ok(()) => {
                let (note, bad) = parse(bytes);
                bad.report(&path, faults);
                self.jobs.insert(name.to_owned(), note);
            }
            // The job ended in the meantime.
            Err(fault) if fault.is_absent() => {}
            Err(fault) => faults.add(fault),
        }
    }
}

/// The notes of jobs that have or had control groups here.
#[derive(Debug, Default)]
pub(super) struct NotedJobs {
    notes: BTreeMap<String, Note>,
}

impl NotedJobs {
    /// Removes the notes of jobs whose groups are gone: these jobs ended, whether or not an epilog
    /// ever removes their notes. Returns how many were removed. A note that was written anew, for a
    /// job that was queued again, stays.
    pub(super) fn leave_out_ended(&mut self, found: &FoundJobs, notes: &mut Notes) -> usize {
        self.notes
            .retain(|id, note| notes.jobs.get(id) == Some(note));
        for id in found.jobs.keys() {
            if let Some(note) = notes.jobs.get(id)
                && !self.notes.contains_key(id)
            {
                self.notes.insert(id.clone(), note.clone());
            }
        }
        // If the search was cut, groups may exist that it did not reach.
        if found.cut {
            return 0;
        }
        let before = notes.jobs.len();
        notes
            .jobs
            .retain(|id, _| found.jobs.contains_key(id) || !self.notes.contains_key(id));
        before - notes.jobs.len()
    }
}

fn is_roots(uid: u32, mode: u32) -> bool {
    uid == 0 && mode & 0o022 == 0
}

/// Parses a note. Unknown keys are ignored; of a key that is there twice, the first counts.
fn parse(bytes: &[u8]) -> (Note, BadLines) {
    let mut note = Note::default();
    let mut bad = BadLines::default();
    for line in lines(bytes).filter(|line| !line.is_empty()) {
        if take(&mut note, line).is_none() {
            bad.add(line);
        }
    }
    if !cut(bytes).is_empty() {
        bad.add(cut(bytes));
    }
    (note, bad)
}

fn take(note: &mut Note, line: &[u8]) -> Option<()> {
    let at = line.iter().position(|b| *b == b'=')?;
    let (key, value) = (&line[..at], &line[at + 1..]);
    // The prolog did not know the value.
    if value.is_empty() {
        return Some(());
    }
    let text = |slot: &mut Option<String>| {
        slot.get_or_insert_with(|| escape(value));
        Some(())
    };
    let count = |slot: &mut Option<u64>| {
        slot.get_or_insert(number(value)?);
        Some(())
    };
    match key {
        b"user" => text(&mut note.user),
        b"account" => text(&mut note.account),
        b"partition" => text(&mut note.partition),
        b"nodes" => count(&mut note.nodes),
        b"ntasks" => count(&mut note.tasks),
        b"cpus" => count(&mut note.cpus),
        b"start" => count(&mut note.start_s),
        _ => Some(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_note() {
        let (note, bad) = parse(
            b"user=j\xc3\xb6rg =x\nuid=1000\nnodes=2\nnodes=3\nntasks=\ncpus=4x\nlater=1\nnothing\nstart=17",
        );
        let expect = Note {
            user: Some("jörg =x".to_owned()),
            nodes: Some(2),
            ..Note::default()
        };
        assert_eq!(note, expect);
        assert!(bad.any());
        assert!(!parse(b"").1.any() && !parse(b"user=a\n").1.any());
    }

    #[test]
    fn whose_directory_it_is() {
        assert!(is_roots(0, 0o40755) && is_roots(0, 0o40700));
        assert!(!is_roots(0, 0o40775) && !is_roots(0, 0o41777) && !is_roots(7, 0o40755));
    }
}
