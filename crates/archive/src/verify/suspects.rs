//! What looks wrong unless the writer was at work: looked at again until it has settled.
//!
//! It stands alone because verification reads an archive that is written to: a commit makes files, replaces the
//! manifest, and removes files, one after the other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Verified;
use crate::log::Newest;
use crate::manifest::{Manifest, PartKey};
use crate::seal::LogFile;
use crate::snapshot::LOOKS_MAX;
use crate::{ArchiveError, Disk, Layout, Tier, sweep};

/// How often it is looked again whether a file that nobody knows is on its way…
const SETTLE_LOOKS: usize = 20;
/// …and how long it is waited in between: a commit syncs some directories and a manifest.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// The files of a node that are there, whoever knows of them; those that are being made, at their temporary
/// place, are none.
pub(super) struct There {
    parts: Vec<(PathBuf, PartKey)>,
    pub(super) logs: Vec<LogFile>,
    /// What the record of the newest log segment said before anything else was looked at.
    pub(super) newest: Result<Option<Newest>, String>,
}

impl There {
    pub(super) fn list(layout: &Layout) -> Result<Self, ArchiveError> {
        Ok(Self {
            newest: newest(layout)?,
            logs: sweep::logs(layout, &Disk)?,
            parts: sweep::parquet_files(layout, &Disk)?,
        })
    }

    /// Files of the node that were set aside, now.
    pub(super) fn set_aside(&self, layout: &Layout) -> Result<Vec<PathBuf>, ArchiveError> {
        let mut dirs = vec![layout.node_dir(), layout.log_dir()];
        for tier in Tier::ALL {
            dirs.extend(sweep::hour_dirs(layout, tier, &Disk)?);
        }
        let mut found = Vec::new();
        for dir in &dirs {
            // A directory that is empty goes with what was in it.
            let paths = sweep::list(&Disk, dir)?;
            let is_aside = |path: &PathBuf| {
                let extension = path.extension();
                extension.is_some_and(|e| e == "bad" || e == "corrupt")
            };
            found.extend(paths.into_iter().filter(is_aside));
        }
        Ok(found)
    }
}

/// The record of the newest log segment; what is wrong with it where it is damaged.
fn newest(layout: &Layout) -> Result<Result<Option<Newest>, String>, ArchiveError> {
    for look in 1.. {
        match Newest::read(layout) {
            Ok(newest) => return Ok(Ok(newest)),
            // It may just be being overwritten.
            Err(ArchiveError::Corrupt { .. }) if look < LOOKS_MAX => {}
            Err(error @ ArchiveError::Corrupt { .. }) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(None))
}

/// What is wrong unless the writer was at work, which a manifest that is read later tells.
pub(super) struct Suspects {
    /// Files that the manifest has, and what is wrong with them.
    pub(super) parts: Vec<(PartKey, String)>,
    /// Files that it does not have: left by a crash, or on their way into it or out of the archive.
    unknown: Vec<(PathBuf, PartKey)>,
    /// Log segments that are sealed: left by a crash, or about to be removed.
    sealed: Vec<LogFile>,
    /// Log segments that are damaged, and how.
    pub(super) logs: Vec<(u64, String)>,
    /// Log segments that must be there and are not.
    pub(super) gone: BTreeSet<u64>,
    /// What is wrong with the record of the newest log segment.
    pub(super) record: Option<String>,
    /// Whether there is no manifest though there are files.
    no_manifest: bool,
}

impl Suspects {
    pub(super) fn new(there: &There, manifest: &Manifest) -> Self {
        let unknown = there.parts.iter();
        let unknown = unknown.filter(|(_, key)| !manifest.parts.contains_key(key));
        let sealed = there.logs.iter();
        let sealed = sealed.filter(|log| log.sequence <= manifest.sealed_through);
        let has_files =
            !there.parts.is_empty() || !there.logs.is_empty() || !matches!(there.newest, Ok(None));
        Self {
            parts: Vec::new(),
            unknown: unknown.cloned().collect(),
            sealed: sealed.cloned().collect(),
            logs: Vec::new(),
            gone: BTreeSet::new(),
            record: None,
            no_manifest: has_files && manifest.node.is_empty(),
        }
    }

    /// Looks again, and once more for as long as a commit may take, at what the writer may be at work on.
    pub(super) fn settle(&mut self, layout: &Layout) -> Result<(), ArchiveError> {
        for look in 0..SETTLE_LOOKS {
            if look > 0 {
                std::thread::sleep(SETTLE_PAUSE);
            }
            let manifest = Manifest::read(layout)?;
            self.no_manifest &= manifest.is_none();
            let now = manifest.unwrap_or_default();
            // One that was merged or let go meanwhile counts no more; what was set aside is told as that.
            self.parts.retain(|(key, _)| now.parts.contains_key(key));
            self.unknown
                .retain(|(path, key)| !now.parts.contains_key(key) && path.exists());
            self.sealed.retain(|log| log.path.exists());
            let newest = newest(layout)?.ok().flatten();
            let through = now.sealed_through;
            self.logs.retain(|(sequence, _)| *sequence > through);
            self.gone.retain(|sequence| {
                // One that was begun and could not be written is gone, and the record names it no more.
                let is_named = newest.is_none_or(|newest| newest.sequence >= *sequence);
                *sequence > through && is_named && !aside(layout, *sequence).exists()
            });
            let is_settled = self.unknown.is_empty()
                && self.sealed.is_empty()
                && self.gone.is_empty()
                && !self.no_manifest;
            if is_settled {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn report(self, verified: &mut Verified, layout: &Layout) {
        if self.no_manifest {
            let what = "is gone: the next start makes it anew";
            verified.find(&layout.manifest(), what.into());
        }
        if let Some(what) = self.record {
            verified.find(&layout.newest(), what);
        }
        for (sequence, what) in self.logs {
            verified.find(&layout.log(sequence), what);
        }
        for sequence in self.gone {
            let what = "is gone, and nothing that is sealed has its samples: they are lost";
            verified.find(&layout.log(sequence), what.into());
        }
        for (key, what) in self.parts {
            verified.find(&key.path(layout), what);
        }
        let left = "was left by a crash; the next start removes it";
        for (path, _) in self.unknown {
            verified.find(&path, format!("is not in the manifest: it {left}"));
        }
        for log in self.sealed {
            verified.find(&log.path, format!("is sealed: it {left}"));
        }
    }
}

/// Where a start puts a log segment whose header is damaged.
fn aside(layout: &Layout, sequence: u64) -> PathBuf {
    Path::new(&layout.log(sequence)).with_extension("corrupt")
}
