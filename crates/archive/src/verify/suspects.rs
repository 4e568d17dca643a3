//! Files that look wrong unless the writer is at work: they are checked again until that is
//! settled.
//!
//! This module stands alone because verification reads an archive that is written to: a commit
//! creates files, replaces the manifest, and deletes files, one after the other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Verified;
use crate::log::NewestSegment;
use crate::manifest::Manifest;
use crate::part::PartKey;
use crate::snapshot::LOOKS_MAX;
use crate::sweep::LogFile;
use crate::{ArchiveError, ArchiveLayout, DiskStorage, Tier, sweep};

/// Most checks of a file that is not in the manifest.
const SETTLE_LOOKS: usize = 20;
/// Wait between these checks: a commit syncs some directories and a manifest.
const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// The files of a node that exist, whether or not the manifest lists them; unfinished files, at
/// their temporary paths, do not count.
pub(super) struct ExistingFiles {
    parts: Vec<(PathBuf, PartKey)>,
    pub(super) logs: Vec<LogFile>,
    /// The content of the record of the newest log segment, before anything else was read.
    pub(super) newest: Result<Option<NewestSegment>, String>,
}

impl ExistingFiles {
    pub(super) fn list(layout: &ArchiveLayout) -> Result<Self, ArchiveError> {
        Ok(Self {
            newest: newest(layout)?,
            logs: sweep::logs(layout, &DiskStorage)?,
            parts: sweep::parquet_files(layout, &DiskStorage)?,
        })
    }

    /// Returns the files of the node that are set aside at present.
    pub(super) fn set_aside(&self, layout: &ArchiveLayout) -> Result<Vec<PathBuf>, ArchiveError> {
        let mut dirs = vec![layout.node_dir(), layout.log_dir()];
        for tier in Tier::ALL {
            dirs.extend(sweep::hour_dirs(layout, tier, &DiskStorage)?);
        }
        let mut found = Vec::new();
        for dir in &dirs {
            // An empty directory is removed with its last file.
            let paths = sweep::list(&DiskStorage, dir)?;
            let is_aside = |path: &PathBuf| {
                let extension = path.extension();
                extension.is_some_and(|e| e == "bad" || e == "corrupt")
            };
            found.extend(paths.into_iter().filter(is_aside));
        }
        Ok(found)
    }
}

/// Returns the record of the newest log segment; if it is damaged, what is wrong with it.
fn newest(layout: &ArchiveLayout) -> Result<Result<Option<NewestSegment>, String>, ArchiveError> {
    for look in 1.. {
        match NewestSegment::read(layout) {
            Ok(newest) => return Ok(Ok(newest)),
            // The record may just be being overwritten.
            Err(ArchiveError::Corrupt { .. }) if look < LOOKS_MAX => {}
            Err(error @ ArchiveError::Corrupt { .. }) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        }
    }
    Ok(Ok(None))
}

/// Defects that may be the writer's work in progress; a manifest that is read later decides.
pub(super) struct Suspects {
    /// Files in the manifest, and what is wrong with them.
    pub(super) parts: Vec<(PartKey, String)>,
    /// Files that are not in the manifest: left by a crash, about to be listed, or about to be
    /// deleted.
    unknown: Vec<(PathBuf, PartKey)>,
    /// Log segments that are sealed: left by a crash, or about to be deleted.
    sealed: Vec<LogFile>,
    /// Log segments that are damaged, and how.
    pub(super) logs: Vec<(u64, String)>,
    /// Log segments that must exist and do not.
    pub(super) gone: BTreeSet<u64>,
    /// The defect of the record of the newest log segment.
    pub(super) record: Option<String>,
    /// Whether there is no manifest although there are files.
    no_manifest: bool,
}

impl Suspects {
    pub(super) fn new(there: &ExistingFiles, manifest: &Manifest) -> Self {
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

    /// Checks the suspects again, for as long as a commit may take, and drops those that the writer
    /// was working on.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command looks twice at files that may be about to change"
    )]
    pub(super) fn settle(&mut self, layout: &ArchiveLayout) -> Result<(), ArchiveError> {
        for look in 0..SETTLE_LOOKS {
            if look > 0 {
                std::thread::sleep(SETTLE_PAUSE);
            }
            let manifest = Manifest::read(layout)?;
            self.no_manifest &= manifest.is_none();
            let now = manifest.unwrap_or_default();
            // A file that was merged or deleted meanwhile does not count; one that was set aside is
            // reported as that.
            self.parts.retain(|(key, _)| now.parts.contains_key(key));
            self.unknown
                .retain(|(path, key)| !now.parts.contains_key(key) && path.exists());
            self.sealed.retain(|log| log.path.exists());
            let newest = newest(layout)?.ok().flatten();
            let through = now.sealed_through;
            self.logs.retain(|(sequence, _)| *sequence > through);
            self.gone.retain(|sequence| {
                // A segment that was begun and could not be written is gone, and the record does
                // not name it any more.
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

    pub(super) fn report(self, verified: &mut Verified, layout: &ArchiveLayout) {
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

/// Returns the path to which a start moves a log segment whose header is damaged.
fn aside(layout: &ArchiveLayout, sequence: u64) -> PathBuf {
    Path::new(&layout.log(sequence)).with_extension("corrupt")
}
