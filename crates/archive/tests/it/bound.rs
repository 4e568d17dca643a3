//! The bound of an archive's bytes while the sealer is slower than the writer of the log, or cannot
//! do anything: it holds within a stated margin, and what is not kept is counted.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use barograph_archive::{
    ArchiveConfig, ArchiveLayout, ArchiveReader, DiskStorage, PartKind, Storage,
};
use barograph_model::ValueType;

use crate::retain::Full;
use crate::support::{
    SteppedArchive, assert_once, assert_sound, config, declare, dir_in_memory, everything, losses,
    sample,
};

const BYTES_MAX: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 10;
const BUFFER_BYTES_MAX: u64 = 64 << 10;
/// Bytes that closed files may have beyond the bound: a quarter of it, which is four segments too.
const LATE_BYTES_MAX: u64 = BYTES_MAX / 4;
/// Most bytes of a log segment: the last batch that is written to it may be a whole buffer, and so
/// may the declarations and the end.
const SEGMENT_BYTES: u64 = SEGMENT_BYTES_MAX + BUFFER_BYTES_MAX + (4 << 10);
/// Samples of one step; a sample takes 32 bytes of the log.
const STEP: u64 = 1_000;

fn small(root: &Path) -> ArchiveConfig {
    ArchiveConfig {
        bytes_max: BYTES_MAX,
        segment_bytes_max: SEGMENT_BYTES_MAX,
        buffer_bytes_max: BUFFER_BYTES_MAX as usize,
        ..config(root)
    }
}

/// Returns the bytes of all files as a reader sees them.
fn bytes(root: &Path) -> u64 {
    let parts = ArchiveReader::open(root).view().unwrap().parts();
    parts.iter().map(|part| part.bytes).sum()
}

/// A stream of which samples are put, one step after the other.
struct Stream {
    archive: SteppedArchive,
    put: u64,
}

impl Stream {
    fn start(root: &Path, storage: Arc<dyn Storage>) -> Self {
        let mut archive = SteppedArchive::start(small(root), storage).unwrap();
        assert!(archive.commit(vec![declare(0, "durable", ValueType::Int, 1)]));
        // The sealer has looked for files that do not count.
        archive.seal().unwrap();
        Self { archive, put: 0 }
    }

    /// Puts samples, and steps the archive a few times.
    fn put(&mut self) {
        let numbers = self.put + 1..=self.put + STEP;
        let mut entries = numbers.map(|n| sample(0, n, n as i64, n as i64)).collect();
        self.archive.keeper().journal().submit(&mut entries);
        self.put += STEP;
        let steps = Cell::new(0);
        self.archive.run(|_| {
            steps.set(steps.get() + 1);
            (steps.get() > 4).then_some(())
        });
    }

    /// Ends the archive, and checks that each sample is there or counted.
    fn end(self, root: &Path) {
        drop(self.archive);
        let found = everything(root);
        assert_once(&found);
        let there: u64 = found.values().map(|samples| samples.len() as u64).sum();
        let lost = losses(root);
        let counted = lost.overflow_samples + lost.failed_samples + lost.shed_samples;
        assert_eq!(there + counted, self.put, "{lost:?}");
        assert_sound(root);
    }
}

#[test]
fn beside_a_sealer_that_can_do_nothing_the_log_stays_bounded() {
    let dir = dir_in_memory();
    let mut stream = Stream::start(dir.path(), Arc::new(DiskStorage));
    // Nothing can be made where files are made, so that nothing is sealed, and nothing is deleted.
    let tmp = ArchiveLayout::new(dir.path(), "n1").tmp_dir();
    fs::remove_dir(&tmp).unwrap();
    fs::write(&tmp, "").unwrap();
    let most = BYTES_MAX + LATE_BYTES_MAX + SEGMENT_BYTES;
    for _ in 0..4 * BYTES_MAX / (32 * STEP) {
        stream.put();
        assert!(bytes(dir.path()) <= most, "{}", bytes(dir.path()));
    }
    let status = stream.archive.keeper().status();
    assert!(bytes(dir.path()) > BYTES_MAX + LATE_BYTES_MAX, "{status:?}");
    assert!(status.trouble.contains("archive.bytes_max"), "{status:?}");
    assert!(status.losses.failed_samples > 0, "{status:?}");
    assert!(status.waiting_bytes <= 2 * BUFFER_BYTES_MAX, "{status:?}");
    assert_eq!(status.losses.shed_samples, 0, "{status:?}");

    fs::remove_file(&tmp).unwrap();
    fs::create_dir(&tmp).unwrap();
    stream
        .archive
        .until(|keeper| keeper.status().trouble.is_empty());
    stream.archive.seal().unwrap();
    assert!(bytes(dir.path()) <= BYTES_MAX, "{}", bytes(dir.path()));
    let failed = stream.archive.keeper().status().losses.failed_samples;
    stream.put();
    let status = stream.archive.keeper().status();
    assert_eq!(status.losses.failed_samples, failed, "{status:?}");
    stream.end(dir.path());
}

#[test]
fn a_log_that_cannot_be_sealed_is_shed_and_goes_on() {
    let dir = dir_in_memory();
    let disk = Arc::new(Full::without_parquet());
    let mut stream = Stream::start(dir.path(), Arc::clone(&disk) as _);
    let most = BYTES_MAX + LATE_BYTES_MAX / 2 + 2 * SEGMENT_BYTES;
    for _ in 0..4 * BYTES_MAX / (32 * STEP) {
        stream.put();
        assert!(bytes(dir.path()) <= most, "{}", bytes(dir.path()));
    }
    let status = stream.archive.keeper().status();
    assert!(!status.seal_trouble.is_empty(), "{status:?}");
    assert!(status.losses.shed_samples > 0, "{status:?}");
    assert_eq!(status.losses.failed_samples, 0, "{status:?}");
    assert_eq!(status.losses.overflow_samples, 0, "{status:?}");

    disk.allow_parquet();
    stream.archive.seal().unwrap();
    let parts = ArchiveReader::open(dir.path()).view().unwrap().parts();
    assert!(
        parts.iter().all(|part| part.kind != PartKind::Log),
        "{parts:?}"
    );
    stream.end(dir.path());
}

#[test]
fn log_segments_that_others_have_removed_do_not_count() {
    let dir = dir_in_memory();
    let mut stream = Stream::start(dir.path(), Arc::new(DiskStorage));
    let layout = ArchiveLayout::new(dir.path(), "n1");
    let (tmp, log) = (layout.tmp_dir(), layout.log_dir());
    fs::remove_dir(&tmp).unwrap();
    fs::write(&tmp, "").unwrap();
    for _ in 0..2 * BYTES_MAX / (32 * STEP) {
        stream.put();
    }
    let status = stream.archive.keeper().status();
    assert!(status.trouble.contains("archive.bytes_max"), "{status:?}");
    let mut logs: Vec<_> = fs::read_dir(&log)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    logs.retain(|path| path.extension().is_some_and(|e| e == "log"));
    logs.sort();
    // The newest one is still written.
    logs.pop();
    for path in logs {
        fs::remove_file(path).unwrap();
    }
    fs::remove_file(&tmp).unwrap();
    fs::create_dir(&tmp).unwrap();
    stream
        .archive
        .until(|keeper| keeper.status().trouble.is_empty());
}
