//! Open Parquet files, shared by the views of one archive: their indexes are read once, and both
//! the number of files and the size of the indexes are bounded.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ArchiveError;
use crate::ArchiveLayout;
use crate::open;
use crate::parquet::ParquetPart;
use crate::part::{FilePart, PartKey};

/// Most files whose indexes are kept; files in use stay open after they are evicted.
const OPEN_MAX: usize = 128;
/// Most series of all kept indexes together, of about half a KiB each. One index may have more: it
/// is then the only one kept.
const SERIES_MAX: usize = 128 << 10;

/// The cache of open files.
#[derive(Debug, Default)]
pub(crate) struct FileCache {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    parts: HashMap<Which, Kept>,
    /// Number of series of all kept indexes.
    series: usize,
    /// Counter of uses: the file with the least value was not used for longest.
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    part: Arc<ParquetPart>,
    /// Number of series of its index.
    series: usize,
    used: u64,
}

/// A file's path and length: a path may be used again if somebody deleted an archive and began
/// anew.
type Which = (PathBuf, u64);

impl FileCache {
    /// Returns the file with its index read: from the cache, from the file that a view holds, or
    /// from its path.
    pub(crate) fn open(
        &self,
        layout: &ArchiveLayout,
        key: PartKey,
        part: &FilePart,
        held: Option<&Arc<File>>,
    ) -> Result<Arc<ParquetPart>, ArchiveError> {
        let path = key.path(layout);
        let which = (path, part.bytes);
        if let Some(found) = self.lock().find(&which) {
            return Ok(found);
        }
        let path = &which.0;
        let file = match held {
            Some(file) => file.try_clone().map_err(ArchiveError::io("open", path))?,
            None => open::part(layout, key)?,
        };
        let opened = Arc::new(ParquetPart::from_file(path, file)?);
        // The index is read without the lock, so that other threads need not wait.
        let series = opened.index()?.series.len();
        self.lock().keep(which, &opened, series);
        Ok(opened)
    }

    /// Closes the files that were unlinked.
    pub(crate) fn release(&self) {
        let mut open = self.lock();
        let is_unlinked = |(_, kept): &(&Which, &Kept)| kept.part.is_unlinked();
        let gone: Vec<Which> = open
            .parts
            .iter()
            .filter(is_unlinked)
            .map(|(which, _)| which.clone())
            .collect();
        for which in gone {
            open.remove(&which);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn find(&mut self, which: &Which) -> Option<Arc<ParquetPart>> {
        self.uses += 1;
        let kept = self.parts.get_mut(which)?;
        kept.used = self.uses;
        Some(Arc::clone(&kept.part))
    }

    /// Keeps a file whose index has so many series, and evicts those that were not used for
    /// longest.
    fn keep(&mut self, which: Which, part: &Arc<ParquetPart>, series: usize) {
        // Another thread may have opened the file at the same time.
        self.remove(&which);
        while self.parts.len() >= OPEN_MAX || self.series + series > SERIES_MAX {
            let oldest = self.parts.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(which, _)| which.clone()) else {
                break;
            };
            self.remove(&oldest);
        }
        let kept = Kept {
            part: Arc::clone(part),
            series,
            used: self.uses,
        };
        self.series += series;
        self.parts.insert(which, kept);
    }

    fn remove(&mut self, which: &Which) {
        if let Some(kept) = self.parts.remove(which) {
            self.series -= kept.series;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::parquet::{FileIdentity, RawWriter};
    use crate::{DiskStorage, FileAccess, Storage as _, Tier};

    use super::*;

    /// Returns a file without rows.
    fn part() -> Arc<ParquetPart> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let about = FileIdentity {
            node: "n1".into(),
            tier: Tier::Raw,
            sequences: (1, 1),
        };
        let out = DiskStorage.create(&path, FileAccess::Shared).unwrap();
        let empty = RawWriter::create(out, &path, about).unwrap();
        empty.finish().unwrap();
        Arc::new(ParquetPart::open(&path).unwrap())
    }

    /// Checks which files are kept after a list of uses, each a letter and a number of series.
    #[test]
    fn what_was_not_used_for_longest_goes() {
        let part = part();
        let (half, third) = (SERIES_MAX / 2, SERIES_MAX / 3);
        for (uses, expect) in [
            (&[("a", half), ("b", half)][..], "ab"),
            (&[("a", half), ("b", half), ("c", 1)], "bc"),
            (&[("a", half), ("b", half), ("a", half), ("c", 1)], "ac"),
            (
                &[("a", third), ("b", third), ("c", third), ("d", half)],
                "cd",
            ),
            // Indexes as large as the bound, and larger.
            (&[("a", 1), ("b", SERIES_MAX)], "b"),
            (&[("a", 1), ("b", SERIES_MAX + 1)], "b"),
            (&[("b", SERIES_MAX + 1), ("a", 1)], "a"),
            (&[("a", half), ("a", half), ("a", half)], "a"),
        ] {
            let mut open = Open::default();
            for (name, series) in uses {
                let which = (PathBuf::from(name), 1);
                if open.find(&which).is_none() {
                    open.keep(which, &part, *series);
                }
            }
            let mut kept: Vec<_> = open.parts.keys().map(|w| w.0.to_str().unwrap()).collect();
            kept.sort_unstable();
            assert_eq!(kept.concat(), expect, "{uses:?}");
            let sum: usize = open.parts.values().map(|kept| kept.series).sum();
            assert_eq!(open.series, sum, "{uses:?}");
        }
    }

    #[test]
    fn files_are_few_and_told_twice_count_once() {
        let part = part();
        let mut open = Open::default();
        for at in 0..3 * OPEN_MAX as u64 {
            for _ in 0..2 {
                open.uses += 1;
                open.keep((PathBuf::new(), at), &part, 5);
            }
            assert!(open.parts.len() <= OPEN_MAX);
        }
        assert_eq!((open.parts.len(), open.series), (OPEN_MAX, 5 * OPEN_MAX));
    }
}
