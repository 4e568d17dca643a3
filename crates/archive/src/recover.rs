//! The recovery at a start: the lock is taken, torn tails are cut, and losses are counted.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use barograph_stream::FileLock;

use crate::layout::of_waiting_dir;
use crate::log::{HEADER_BYTES, NewestSegment, RingMark, RingMarks, WrittenSegment};
use crate::{ArchiveError, ArchiveLayout, ArchiveLosses, DiskStorage, LogPart, Storage, open};

/// The content of the log segments of earlier runs.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The segments, oldest first.
    pub kept: VecDeque<WrittenSegment>,
    /// Losses that the segments record, and those of this start.
    pub losses: ArchiveLosses,
    /// Losses found at this start, which are not recorded anywhere yet.
    pub lost_now: ArchiveLosses,
    /// The marks of programs' rings.
    pub marks: RingMarks,
    /// Sequence of the next segment.
    pub next: u64,
}

/// Creates the directories and takes the lock.
pub(crate) fn occupy(
    layout: &ArchiveLayout,
    storage: &dyn Storage,
) -> Result<FileLock, ArchiveError> {
    let made = storage.make_lasting_dir(layout.root());
    made.map_err(ArchiveError::io("make", layout.root()))?;
    for dir in [layout.node_dir(), layout.log_dir(), layout.tmp_dir()] {
        let made = storage.make_dir(&dir);
        made.map_err(ArchiveError::io("make", &dir))?;
        open::check_dir(&dir)?;
    }
    open::check_ours(layout)?;
    let path = layout.lock();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options
        .mode(0o644)
        .open(&path)
        .map_err(ArchiveError::io("open", &path))?;
    let lock = FileLock::try_take(file).map_err(ArchiveError::io("lock", &path))?;
    let Some(lock) = lock else {
        return Err(ArchiveError::Occupied { path });
    };
    // A durable sample is in a file whose name must survive as well, and so must the names of its
    // directories.
    let node_dir = layout.node_dir();
    let below_root = node_dir.ancestors().take_while(|dir| *dir != layout.root());
    for dir in below_root.chain([layout.root()]) {
        let synced = storage.sync_dir(dir);
        synced.map_err(ArchiveError::io("sync", dir))?;
    }
    Ok(lock)
}

/// Deletes files that were being written when the last run ended. A directory that waits for an
/// exchange may hold files that count; the sweep handles it.
pub(crate) fn empty_tmp(layout: &ArchiveLayout, storage: &dyn Storage) -> Result<(), ArchiveError> {
    let dir = layout.tmp_dir();
    let left = storage.list(&dir);
    let left = left.map_err(ArchiveError::io("list", &dir))?;
    for path in left
        .into_iter()
        .filter(|path| of_waiting_dir(path).is_none())
    {
        let gone = storage.unlink(&path);
        gone.map_err(ArchiveError::io("remove", &path))?;
    }
    Ok(())
}

/// Reads every segment beyond `sealed`, cuts torn tails, and deletes the segments that are sealed.
pub(crate) fn logs(
    layout: &ArchiveLayout,
    storage: &dyn Storage,
    sealed: u64,
) -> Result<Recovered, ArchiveError> {
    let dir = layout.log_dir();
    let mut found = Recovered {
        next: sealed + 1,
        ..Recovered::default()
    };
    let listed = storage.list(&dir);
    let listed = listed.map_err(ArchiveError::io("list", &dir))?;
    let mut sequences: Vec<u64> = listed.iter().filter_map(|path| sequence_of(path)).collect();
    sequences.sort_unstable();
    for sequence in sequences {
        let path = layout.log(sequence);
        found.next = found.next.max(sequence.saturating_add(1));
        if sequence <= sealed {
            let gone = storage.unlink(&path);
            gone.map_err(ArchiveError::io("remove", &path))?;
        } else {
            found.take(storage, sequence, &path)?;
        }
    }
    found.check_newest(layout, storage, sealed);
    found.losses.add(&found.lost_now);
    Ok(found)
}

/// Returns the marks of programs' rings from the log of an archive that cannot be written at
/// present, as far as it can be read. Nothing is changed there.
pub fn marks_of(layout: &ArchiveLayout) -> Vec<RingMark> {
    let mut marks = RingMarks::default();
    for path in DiskStorage.list(&layout.log_dir()).unwrap_or_default() {
        let Some(sequence) = sequence_of(&path) else {
            continue;
        };
        let part = LogPart::of_sequence(&path, sequence);
        let read = part.and_then(|part| part.marks(&mut |mark| marks.take(mark, 0)));
        if let Err(error) = read {
            tracing::warn!(%error, "a log segment cannot be read: what it has of programs may be archived twice");
        }
    }
    marks.iter().collect()
}

impl Recovered {
    fn take(
        &mut self,
        storage: &dyn Storage,
        sequence: u64,
        path: &Path,
    ) -> Result<(), ArchiveError> {
        let mut part = match LogPart::of_sequence(path, sequence) {
            Ok(part) => part,
            Err(ArchiveError::Corrupt { reason, .. }) => {
                return self.set_aside(storage, path, &reason);
            }
            Err(error) => return Err(error),
        };
        let torn = part.length()?.saturating_sub(part.bytes());
        if torn > 0 {
            let why = part.damage()?.unwrap_or("it is torn");
            tracing::warn!(path = %path.display(), at = part.bytes(), torn, why, "a log segment's tail is cut");
            self.lost_now.torn_bytes += torn;
        }
        // The file is cut even if nothing is torn, since that syncs it: the records that programs'
        // rings are not read for again, and the length that the next segment states for this one,
        // must be on disk.
        let cut = storage.truncate(path, part.bytes());
        cut.map_err(ArchiveError::io("cut", path))?;
        if part.has_marks() {
            part.marks(&mut |mark| self.marks.take(mark, 0))?;
        }
        self.losses.add(part.losses());
        self.kept.push_back(WrittenSegment {
            sequence,
            bytes: part.bytes(),
            rows: part.rows(),
            span: part.span(),
        });
        Ok(())
    }

    /// Counts what is missing of the newest segment by its record, and records what there is: from
    /// now on nobody writes to the segments that were found.
    fn check_newest(&mut self, layout: &ArchiveLayout, storage: &dyn Storage, sealed: u64) {
        let told = NewestSegment::read(layout).unwrap_or_else(|error| {
            tracing::error!("{error}");
            self.lost_now.corrupt_files += 1;
            None
        });
        let told = told.unwrap_or_default();
        self.next = self.next.max(told.sequence.saturating_add(1));
        let there = self.kept.iter().find(|kept| kept.sequence == told.sequence);
        match there {
            Some(kept) => {
                // What was cut just now is already counted; what had been cut before is not.
                let missing = told.bytes.saturating_sub(kept.bytes);
                let missing = missing.saturating_sub(self.lost_now.torn_bytes);
                self.lost_now.torn_bytes += missing;
            }
            None if told.sequence > sealed && self.lost_now.corrupt_files == 0 => {
                let path = layout.log(told.sequence);
                tracing::error!("{} is gone: its samples are lost", path.display());
                self.lost_now.corrupt_files += 1;
            }
            None => {}
        }
        let newest = self
            .kept
            .back()
            .map_or(NewestSegment::default(), WrittenSegment::newest);
        // If there is no room, the next segment is recorded when it is begun.
        if let Err(error) = newest.write(layout, storage) {
            tracing::warn!("{error}");
        }
    }

    /// Handles a file whose header is invalid: one that was just being created is deleted, another
    /// is kept for people to look at, under a name that is not taken for a segment.
    fn set_aside(
        &mut self,
        storage: &dyn Storage,
        path: &Path,
        why: &str,
    ) -> Result<(), ArchiveError> {
        let bytes = path.metadata().map_or(0, |metadata| metadata.len());
        tracing::warn!(path = %path.display(), why, bytes, "a log segment cannot be read");
        if bytes <= HEADER_BYTES as u64 {
            self.lost_now.torn_bytes += bytes;
            let gone = storage.unlink(path);
            return gone.map_err(ArchiveError::io("remove", path));
        }
        self.lost_now.corrupt_files += 1;
        let aside = path.with_extension("corrupt");
        let renamed = storage.rename(path, &aside);
        renamed.map_err(ArchiveError::io("rename", path))
    }
}

/// Returns the sequence in a segment's name.
pub(crate) fn sequence_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?.strip_suffix(".log")?;
    let digits = name.len() >= 16 && name.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| name.parse().ok())?
}
