//! Checks of the directories and files of an archive before they are used.
//!
//! This module stands alone because an archive may lie where others write too: a directory that its
//! writer empties must belong to that writer, and a path that a reader opens must be a regular
//! file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::part::PartKey;
use crate::{ArchiveError, ArchiveLayout, Tier};

/// Write permission for everybody.
const OTHERS_WRITE: u32 = 0o002;
const NOT_REGULAR: &str = "it is no regular file";

/// Opens a file for reading. Anything but a regular file is `Corrupt`: opening a pipe would wait
/// for ever. The owner of the file does not matter, since copies of archives are read too; for an
/// archive that an agent names, the directories are checked instead.
pub(crate) fn regular(path: &Path) -> Result<File, ArchiveError> {
    regular_file(path).map_err(|error| told(path, error))
}

fn told(path: &Path, error: io::Error) -> ArchiveError {
    match error.kind() {
        io::ErrorKind::InvalidInput => ArchiveError::corrupt(path, NOT_REGULAR, 0),
        _ => ArchiveError::io("open", path)(error),
    }
}

/// Opens a Parquet file that counts: at its place, or where it waits for the exchange that moves it
/// there.
pub(crate) fn part(layout: &ArchiveLayout, key: PartKey) -> Result<File, ArchiveError> {
    part_file(layout, key).map_err(|error| told(&key.path(layout), error))
}

/// Like [`part`], with the error of the system.
pub(crate) fn part_file(layout: &ArchiveLayout, key: PartKey) -> io::Result<File> {
    // The file may be moved between the first two attempts.
    let mut open = regular_file(&key.path(layout));
    for path in [key.waiting(layout), key.path(layout)] {
        match open {
            Err(error) if error.kind() == io::ErrorKind::NotFound => open = regular_file(&path),
            _ => break,
        }
    }
    open
}

/// Like [`regular`], with the error of the system; anything but a regular file is `InvalidInput`.
pub(crate) fn regular_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    // The standard library adds O_CLOEXEC.
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(flags.bits().cast_signed());
    let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, NOT_REGULAR);
    let file = match options.open(path) {
        // Sockets, and devices that do not exist, cannot even be opened.
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            return Err(not_regular());
        }
        file => file?,
    };
    let is_file = file.metadata()?.is_file();
    is_file.then_some(file).ok_or_else(not_regular)
}

/// Refuses a node if one of its existing directories is a link, belongs to another user, or can be
/// written by everybody: files are created and deleted in them by name.
pub(crate) fn check_ours(layout: &ArchiveLayout) -> Result<(), ArchiveError> {
    dirs(layout).iter().try_for_each(|dir| check_dir(dir))
}

/// Refuses a node if one of its directories is a link, belongs neither to the agent that names it
/// nor to root, or can be written by everybody: the files in it would be taken for what the agent
/// observed.
pub(crate) fn check_agents(layout: &ArchiveLayout, agent: u32) -> Result<(), ArchiveError> {
    let check = |dir: &PathBuf| check_dir_of(dir, &[agent, 0]);
    dirs(layout).iter().try_for_each(check)
}

/// Returns all directories of one node.
fn dirs(layout: &ArchiveLayout) -> Vec<PathBuf> {
    let mut dirs = vec![layout.node_dir(), layout.log_dir(), layout.tmp_dir()];
    dirs.extend(Tier::ALL.map(|tier| tier_dir(layout, tier)));
    dirs
}

/// Like [`check_ours`], for one directory.
pub(crate) fn check_dir(dir: &Path) -> Result<(), ArchiveError> {
    let us = rustix::process::geteuid().as_raw();
    check_dir_of(dir, &[us])
}

/// Refuses a directory that belongs to none of these users; the error names the first of them.
fn check_dir_of(dir: &Path, owners: &[u32]) -> Result<(), ArchiveError> {
    let metadata = match std::fs::symlink_metadata(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(ArchiveError::io("look at", dir))?,
    };
    let reason = if !metadata.is_dir() {
        "it is a link or no directory".to_owned()
    } else if !owners.contains(&metadata.uid()) {
        let owner = owners.first().copied().unwrap_or_default();
        format!("it belongs to user {}, not to {owner}", metadata.uid())
    } else if metadata.mode() & OTHERS_WRITE != 0 {
        format!(
            "its mode is {:o}: everybody may write there",
            metadata.mode() & 0o7777
        )
    } else {
        return Ok(());
    };
    let path = dir.to_owned();
    Err(ArchiveError::Foreign { path, reason })
}

/// Returns the directory of a node's files of one tier.
fn tier_dir(layout: &ArchiveLayout, tier: Tier) -> PathBuf {
    let mut dir = layout.root().join(layout.partition(tier, 0));
    // The partition is of an hour; the directory of the tier is two levels up.
    dir.pop();
    dir.pop();
    dir
}
