//! Files that views hold open so that they can be read after they are unlinked, with one bound for
//! the process.
//!
//! This module stands alone because the bound applies to the process: it may read many nodes of
//! several archives, and each file that is held leaves fewer descriptors for the rest of the
//! program.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::process::{Resource, getrlimit};

/// Most files that are held open.
const HELD_MAX: usize = 256;
/// Divisor of the process's limit of open files: at most this part of them is held.
const LIMIT_PART: u64 = 4;

/// The places for files that are held open.
#[derive(Debug)]
pub(crate) struct HeldPlaces {
    taken: AtomicUsize,
    max: usize,
}

impl HeldPlaces {
    /// Returns the places of this process.
    pub(crate) fn of_process() -> Arc<Self> {
        static PLACES: OnceLock<Arc<HeldPlaces>> = OnceLock::new();
        let places = PLACES.get_or_init(|| {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            let part = usize::try_from(limit / LIMIT_PART).unwrap_or(HELD_MAX);
            Self::new(part.min(HELD_MAX))
        });
        Arc::clone(places)
    }

    pub(crate) fn new(max: usize) -> Arc<Self> {
        let taken = AtomicUsize::new(0);
        Arc::new(Self { taken, max })
    }

    /// Returns how many places one of so many nodes may take. A quarter is left for what earlier
    /// views still hold.
    pub(crate) fn share(&self, nodes: usize) -> usize {
        (self.max - self.max / 4) / nodes.max(1)
    }

    /// Opens a file and holds it, if a place is free.
    pub(crate) fn hold(self: &Arc<Self>, open: impl FnOnce() -> Option<File>) -> Option<HeldFile> {
        let more = |taken: usize| (taken < self.max).then_some(taken + 1);
        let taken = &self.taken;
        taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        let place = Place(Arc::clone(self));
        Some(HeldFile {
            file: Arc::new(open()?),
            _place: Some(place),
        })
    }
}

/// A file that is held open.
#[derive(Debug)]
pub(crate) struct HeldFile {
    pub(crate) file: Arc<File>,
    _place: Option<Place>,
}

impl HeldFile {
    /// Returns a file that is held beyond the bound; the caller makes sure that there is room.
    pub(crate) fn beyond(file: File) -> Self {
        Self {
            file: Arc::new(file),
            _place: None,
        }
    }
}

impl std::ops::Deref for HeldFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// A taken place; it is free again when this is dropped.
#[derive(Debug)]
struct Place(Arc<HeldPlaces>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use barograph_model::{Descriptor, NS_PER_S, Name, Sample, Span, StreamKey, Unit, ValueType};

    use super::*;
    use crate::{
        ArchiveConfig, ArchiveReader, DeclaredStream, DiskStorage, JournalEntry, KeepConfig, Keeper,
    };

    const HOURS: i64 = 5;

    /// Makes a node with a sample in each of some hours: three files per hour.
    fn write(root: &Path, node: &str) {
        let keep = KeepConfig {
            raw_ns: i64::MAX,
            second_ns: i64::MAX,
            minute_ns: i64::MAX,
            hour_ns: i64::MAX,
        };
        let config = ArchiveConfig {
            free_bytes_min: 0,
            keep,
            ..ArchiveConfig::new(root, node)
        };
        let clock = Arc::new(barograph_stream::SystemClock::new());
        let keeper = Keeper::start(config, Arc::new(DiskStorage), clock).unwrap();
        let descriptor = Descriptor::gauge(
            Name::new("a").unwrap(),
            ValueType::Int,
            Unit::new("bytes").unwrap(),
        );
        let declared = DeclaredStream {
            descriptor: Arc::new(descriptor),
            life: 1,
            depth: 8,
        };
        let mut entries = vec![JournalEntry::Declare(StreamKey(1), declared)];
        entries.extend((0..HOURS).map(|hour| {
            let sample = Sample::measured(hour * 3_600 * NS_PER_S, 1);
            JournalEntry::Sample(StreamKey(1), hour as u64 + 1, sample)
        }));
        let position = keeper.journal().submit(&mut entries);
        assert!(
            keeper
                .journal()
                .wait_durable(position, Duration::from_secs(60))
        );
        keeper.seal().unwrap();
    }

    #[test]
    fn files_are_held_within_one_bound_over_nodes_and_archives() {
        let dir = tempfile::tempdir().unwrap();
        for node in ["n1", "n2", "n3"] {
            write(dir.path(), node);
        }
        let places = HeldPlaces::new(16);
        let taken = || places.taken.load(Ordering::Relaxed);
        let first = ArchiveReader::holding(dir.path(), Arc::clone(&places));
        let view = first.view().unwrap();
        // No node takes all places.
        let held: Vec<usize> = view.nodes.iter().map(|n| n.sealed.held.len()).collect();
        assert_eq!((held, taken()), (vec![4, 4, 4], 12));
        let second = ArchiveReader::holding(dir.path(), Arc::clone(&places));
        let other = second.view().unwrap();
        assert_eq!(taken(), 16);
        // A file that is not held is opened when it is read.
        for view in [&view, &other] {
            let cancel = AtomicBool::new(false);
            let rows = view.scan(&[0, 1, 2], Span::ALL, &cancel);
            let rows: usize = rows.map(|chunk| chunk.unwrap().columns.len()).sum();
            assert_eq!(rows, 3 * HOURS as usize);
        }
        drop((first, view, second, other));
        assert_eq!(taken(), 0);
    }

    #[test]
    fn the_process_may_open_more() {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let max = HeldPlaces::of_process().max;
        assert!(max <= HELD_MAX && max as u64 <= limit / LIMIT_PART, "{max}");
    }
}
