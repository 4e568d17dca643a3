//! Replacement of the files of an hour in one step, also for programs that only know the names of
//! files.
//!
//! A merged file waits in a directory of its own, beside links to all files that stay in its hour,
//! and counts as soon as the manifest lists it: our readers look for a file in both places
//! ([`crate::open::part`]). Then this directory and that of the hour are exchanged, so that a
//! program which lists the hour sees the files from before or from after, and never both. If a
//! crash interrupts this, the next start finishes it. On file systems that cannot exchange
//! directories, or cannot link files, the merged file is renamed to its place and the others are
//! unlinked after it: there, both are visible for a moment.
//!
//! This module stands alone because only here a file that counts is not at its place.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::layout::{first_of_several, of_waiting_dir};
use crate::manifest::Manifest;
use crate::part::{NewFile, PartKey};
use crate::{ArchiveLayout, Storage};

/// Creates the directories in which merged files wait, each with links to all files of its hour
/// except those that are replaced.
pub(crate) fn begin(
    storage: &dyn Storage,
    layout: &ArchiveLayout,
    replaced: &[PartKey],
    made: &[NewFile],
) -> io::Result<Vec<PathBuf>> {
    let replaced: BTreeSet<PathBuf> = replaced.iter().map(|key| key.path(layout)).collect();
    let mut dirs = Vec::new();
    for NewFile { key, .. } in made {
        if first_of_several(key.hour).is_some() {
            // The directory of several hours holds the files of other hours too.
            return Err(io::ErrorKind::Unsupported.into());
        }
        let dir = layout.waiting_dir(key.tier, key.hour);
        // An existing link is the rest of a failed exchange: then the sweep must run first.
        storage.make_dir(&dir)?;
        let place = layout.root().join(layout.partition(key.tier, key.hour));
        let files = storage.list(&place)?;
        for path in files.iter().filter(|path| !replaced.contains(*path)) {
            storage.link(path, &moved(path, &dir))?;
        }
        dirs.push(dir);
    }
    Ok(dirs)
}

/// Moves the files that count and wait in `dir` to their place, and deletes `dir` with the other
/// files of ours in it. It may be tried again after any failure.
pub(crate) fn finish(
    storage: &dyn Storage,
    layout: &ArchiveLayout,
    manifest: &Manifest,
    dir: &Path,
) -> io::Result<()> {
    let Some((tier, hour)) = of_waiting_dir(dir) else {
        return Ok(());
    };
    let place = &layout.root().join(layout.partition(tier, hour));
    let parts = manifest.parts.keys();
    let parts = parts.filter(|key| (key.tier, key.hour) == (tier, hour));
    let counted: Vec<PathBuf> = parts.map(|key| key.waiting(layout)).collect();
    let waiting = || -> io::Result<Vec<PathBuf>> {
        let there = storage.list(place)?;
        let waits = |path: &PathBuf| counted.contains(path) && !there.contains(&moved(path, place));
        Ok(storage.list(dir)?.into_iter().filter(waits).collect())
    };
    if !waiting()?.is_empty() {
        storage.make_dir(place)?;
        storage.sync_dir(dir)?;
        // If the exchange fails, or only claims to succeed, the files that still wait are renamed.
        let exchanged = storage.exchange(dir, place);
        for path in waiting()? {
            tracing::debug!(?exchanged, path = %path.display(), "directories are not exchanged");
            storage.rename(&path, &moved(&path, place))?;
        }
        // The merged files are on disk before the files that they replace are deleted.
        let date = place.parent().unwrap_or(place);
        for dir in [place, date, &layout.tmp_dir()] {
            storage.sync_dir(dir)?;
        }
    }
    let there = storage.list(place)?;
    for path in storage.list(dir)? {
        let back = moved(&path, place);
        if is_ours(&path) || there.contains(&back) {
            storage.unlink(&path)?;
        } else {
            // Another program put the file there while the directories were exchanged.
            storage.rename(&path, &back)?;
        }
    }
    storage.remove_dir(dir)
}

/// Returns the path of a file of this name in another directory.
fn moved(path: &Path, dir: &Path) -> PathBuf {
    path.file_name()
        .map_or_else(|| dir.to_owned(), |name| dir.join(name))
}

fn is_ours(path: &Path) -> bool {
    let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let is_parquet = path.extension().is_some_and(|end| end == "parquet");
    is_parquet && name.bytes().all(|b| b.is_ascii_digit() || b == b'-')
}
