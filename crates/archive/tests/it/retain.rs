//! Retention: what is deleted by age, by size and for a full disk, and what readers and writers see
//! of it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use barograph_archive::{
    ArchiveLayout, ArchiveReader, DiskStorage, FileAccess, KeepConfig, Keeper, OutFile, PartKind,
    Storage, Tier,
};
use barograph_model::{Clock, NS_PER_S, Span};

use crate::failing::{Failing, Failure};
use crate::seal::{append, copy, entries};
use crate::support::{
    SteppedArchive, TwoClocks, assert_sound, config, dir_in_memory, everything, everything_of,
    losses, parquet_files, segments, start_on,
};

const HOUR_NS: i64 = 3_600 * NS_PER_S;
const BEGIN: i64 = 1_700_000_000 / 3_600 * HOUR_NS;

fn rows(root: &Path) -> u64 {
    everything(root).values().map(|s| s.len() as u64).sum()
}

/// Returns the bytes of all sealed files.
fn bytes(root: &Path) -> u64 {
    let parts = ArchiveReader::open(root).view().unwrap().parts();
    parts.iter().map(|part| part.bytes).sum()
}

fn tiers(root: &Path) -> Vec<(Tier, u64)> {
    let parts = ArchiveReader::open(root).view().unwrap().parts();
    let count = |tier| {
        let of = |kind| kind == PartKind::Parquet(tier);
        (
            tier,
            parts.iter().filter(|part| of(part.kind)).count() as u64,
        )
    };
    Tier::ALL.map(count).to_vec()
}

#[test]
fn each_tier_goes_at_its_age_and_takes_its_directories_with_it() {
    let dir = dir_in_memory();
    let mut config = config(dir.path());
    config.keep.raw_ns = 10 * HOUR_NS;
    config.keep.minute_ns = 20 * HOUR_NS;
    let clock = Arc::new(TwoClocks {
        wall: AtomicI64::new(BEGIN + HOUR_NS),
        ..TwoClocks::default()
    });
    let keeper = Keeper::start(config, Arc::new(DiskStorage), Arc::clone(&clock) as _).unwrap();
    append(&keeper, 1, 1..=300, NS_PER_S / 4);
    keeper.seal().unwrap();
    let view = ArchiveReader::open(dir.path()).view().unwrap();
    let before = everything_of(&view, Span::ALL);
    use Tier::{Hour, Minute, Raw, Second};
    for (hours, expect) in [
        (1, [(Raw, 1), (Second, 1), (Minute, 1), (Hour, 1)]),
        (12, [(Raw, 0), (Second, 1), (Minute, 1), (Hour, 1)]),
        (22, [(Raw, 0), (Second, 1), (Minute, 0), (Hour, 1)]),
        // A clock that is a century ahead of every sample is not believed.
        (900_000, [(Raw, 0), (Second, 1), (Minute, 0), (Hour, 1)]),
    ] {
        clock.wall.store(BEGIN + hours * HOUR_NS, Ordering::SeqCst);
        keeper.seal().unwrap();
        assert_eq!(tiers(dir.path()), expect, "{hours}");
    }
    assert!(!dir.path().join("raw/node=n1/date=2023-11-14").exists());
    assert_sound(dir.path());
    assert_eq!(losses(dir.path()).shed_samples, 0);
    assert_eq!(everything_of(&view, Span::ALL), before);
    // The view still has each series' last archived sample, which a ring is compared with.
    assert!(
        ArchiveReader::open(dir.path())
            .view()
            .unwrap()
            .series()
            .iter()
            .all(|s| s.archived.number == 300)
    );
}

#[test]
fn a_clock_that_was_set_forward_costs_nothing_until_it_has_run_for_a_week() {
    let dir = dir_in_memory();
    let mut config = config(dir.path());
    config.keep = KeepConfig::default();
    let clock = Arc::new(TwoClocks {
        wall: AtomicI64::new(BEGIN + 6 * HOUR_NS),
        ..TwoClocks::default()
    });
    let start = || {
        let clock = Arc::clone(&clock) as Arc<dyn Clock>;
        Keeper::start(config.clone(), Arc::new(DiskStorage), clock).unwrap()
    };
    let keeper = start();
    append(&keeper, 1, 1..=5, HOUR_NS);
    keeper.seal().unwrap();
    // Far enough for raw samples and minutes to be too old.
    let year = 500 * 24;
    clock
        .wall
        .store(BEGIN + (year + 6) * HOUR_NS, Ordering::SeqCst);
    keeper.seal().unwrap();
    assert_eq!(rows(dir.path()), 3 * 5);
    // The clock is not believed because of samples that it made itself, now or after a restart.
    append(&keeper, 2, year as u64..=year as u64 + 5, HOUR_NS);
    keeper.seal().unwrap();
    keeper.seal().unwrap();
    assert_eq!(rows(dir.path()), 3 * 11);
    drop(keeper);
    let keeper = start();
    keeper.seal().unwrap();
    assert_eq!(rows(dir.path()), 3 * 11);
    // When the clock is set right again, history is deleted by age as before.
    clock.wall.store(BEGIN + 6 * HOUR_NS, Ordering::SeqCst);
    keeper.seal().unwrap();
    assert_eq!(rows(dir.path()), 3 * 11);
    // A machine that was off for that long: after a week the time is believed.
    for day in (0..180).step_by(60) {
        let from = (year + 6 + day) as u64;
        clock
            .wall
            .store(BEGIN + (year + 66 + day) * HOUR_NS, Ordering::SeqCst);
        assert_eq!(rows(dir.path()), 3 * (11 + day as u64));
        append(&keeper, 3 + day, from..=from + 59, HOUR_NS);
        keeper.seal().unwrap();
    }
    assert_eq!(rows(dir.path()), 3 * 186);
    assert_sound(dir.path());
    assert_eq!(losses(dir.path()).shed_samples, 0);
}

#[test]
fn the_oldest_go_first_when_it_is_too_much() {
    let dir = dir_in_memory();
    let keeper = start_on(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    append(&keeper, 1, 1..=4_000, 10 * NS_PER_S);
    keeper.seal().unwrap();
    let (before, all) = (bytes(dir.path()), rows(dir.path()));
    drop(keeper);
    let mut config = config(dir.path());
    config.bytes_max = before / 2;
    let keeper = start_on(config, Arc::new(DiskStorage)).unwrap();
    keeper.seal().unwrap();
    assert!(bytes(dir.path()) <= before / 2);
    let left = rows(dir.path());
    let shed = losses(dir.path()).shed_samples;
    assert!(
        shed > 0 && left > 0 && left + shed == all,
        "{left} {shed} {all}"
    );
    // The newest samples are left.
    let parts = ArchiveReader::open(dir.path()).view().unwrap().parts();
    let oldest = parts.iter().map(|part| part.span.from).min().unwrap();
    for samples in everything(dir.path()).values() {
        let first = samples[0].0 as i64;
        assert!(BEGIN + first * 10 * NS_PER_S >= oldest);
        assert_eq!(samples.last().unwrap().0, 4_000);
    }
    assert_sound(dir.path());
}

/// A disk that has a fixed number of bytes free, whatever is unlinked.
#[derive(Debug)]
pub(crate) struct Full {
    free: AtomicU64,
    /// Whether it has room for Parquet files; if not, the next one leaves it with no free bytes.
    parquet: AtomicBool,
    then_free: AtomicU64,
}

impl Default for Full {
    fn default() -> Self {
        Self {
            free: AtomicU64::new(u64::MAX),
            parquet: AtomicBool::new(true),
            then_free: AtomicU64::new(u64::MAX),
        }
    }
}

impl Full {
    /// Sets the number of free bytes.
    pub(crate) fn set_free(&self, bytes: u64) {
        self.free.store(bytes, Ordering::SeqCst);
    }

    /// Returns a disk with room for log segments only: nothing is sealed.
    pub(crate) fn without_parquet() -> Self {
        Self {
            parquet: AtomicBool::new(false),
            ..Self::default()
        }
    }

    /// Makes room for Parquet files.
    pub(crate) fn allow_parquet(&self) {
        self.parquet.store(true, Ordering::SeqCst);
    }
}

impl Storage for Full {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        DiskStorage.make_dir(path)
    }

    fn create(&self, path: &Path, access: FileAccess) -> io::Result<Box<dyn OutFile>> {
        let parquet = path.extension().is_some_and(|e| e == "parquet");
        if parquet && !self.parquet.load(Ordering::SeqCst) {
            let free = self.then_free.load(Ordering::SeqCst);
            self.free.store(free, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        DiskStorage.create(path, access)
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        DiskStorage.overwrite(path, bytes)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        DiskStorage.truncate(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        DiskStorage.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        DiskStorage.link(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        DiskStorage.exchange(one, other)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        DiskStorage.unlink(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        DiskStorage.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        DiskStorage.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        DiskStorage.list(path)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(self.free.load(Ordering::SeqCst))
    }
}

/// Returns files below a directory that this process has open although they are unlinked.
fn held_unlinked(root: &Path) -> Vec<PathBuf> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = links.filter_map(|link| std::fs::read_link(link.path()).ok());
    let deleted = |path: &PathBuf| path.to_string_lossy().ends_with(" (deleted)");
    targets
        .filter(|path| path.starts_with(root) && deleted(path))
        .collect()
}

#[test]
fn what_others_hold_open_is_waited_for_before_more_is_let_go() {
    let dir = dir_in_memory();
    let mut config = config(dir.path());
    config.free_bytes_min = 100_000;
    let (disk, clock) = (Arc::new(Full::default()), Arc::new(TwoClocks::default()));
    clock.wall.store(BEGIN, Ordering::SeqCst);
    let keeper = Keeper::start(config, Arc::clone(&disk) as _, Arc::clone(&clock) as _).unwrap();
    append(&keeper, 1, 1..=10, HOUR_NS);
    keeper.seal().unwrap();
    append(&keeper, 2, 1..=10, HOUR_NS);
    // A reader keeps open what it has read: files, indexes, and the log.
    let archive = ArchiveReader::open(dir.path());
    assert_eq!(
        everything_of(&archive.view().unwrap(), Span::ALL).len(),
        2 * 3
    );
    keeper.seal().unwrap();
    let count = || parquet_files(dir.path()).len();
    let before = count();
    disk.free.store(99_990, Ordering::SeqCst);
    // Ten bytes are missing, and the oldest file is larger than that.
    for (seconds, gone) in [(0, 1), (1, 1), (119, 1), (121, 2), (240, 2), (242, 3)] {
        clock.monotonic.store(seconds * NS_PER_S, Ordering::SeqCst);
        for _ in 0..3 {
            keeper.seal().unwrap();
            assert_eq!(before - count(), gone, "{seconds}");
        }
        assert_eq!(held_unlinked(dir.path()), [] as [PathBuf; 0]);
        assert!(!archive.view().unwrap().parts().is_empty());
    }
    assert_sound(dir.path());
}

/// Log segments after those that are being sealed are deleted to make room.
#[test]
fn what_is_sealed_stays_sealed_when_log_segments_are_let_go() {
    let dir = dir_in_memory();
    let root = dir.path();
    let mut config = config(root);
    config.segment_bytes_max = 16 << 10;
    config.free_bytes_min = 1 << 30;
    let (disk, clock) = (Arc::new(Full::default()), Arc::new(TwoClocks::default()));
    disk.parquet.store(false, Ordering::SeqCst);
    let start = || {
        let disk = Arc::clone(&disk) as Arc<dyn Storage>;
        Keeper::start(config.clone(), disk, Arc::clone(&clock) as _).unwrap()
    };
    let keeper = start();
    for life in 1..=5 {
        append(&keeper, life, 1..=200, NS_PER_S);
    }
    assert!(keeper.seal().is_err());
    let (logs, all) = (segments(root), rows(root));
    assert!(logs.len() > 2 && all == 5 * 3 * 200, "{logs:?}");
    disk.then_free.store(0, Ordering::SeqCst);
    keeper.seal().unwrap();
    let sealed = || {
        let manifest = std::fs::read(ArchiveLayout::new(root, "n1").manifest()).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
        manifest["sealed_through"].as_u64().unwrap()
    };
    let last = logs.last().unwrap().file_stem().unwrap().to_str().unwrap();
    assert_eq!(sealed(), last.parse::<u64>().unwrap());
    assert_eq!(rows(root) + losses(root).shed_samples, all);
    // The writer continues.
    disk.parquet.store(true, Ordering::SeqCst);
    disk.free.store(u64::MAX, Ordering::SeqCst);
    append(&keeper, 6, 1..=10, NS_PER_S);
    keeper.seal().unwrap();
    drop(keeper);
    drop(start());
    assert!(sealed() > last.parse::<u64>().unwrap());
    assert_eq!(rows(root) + losses(root).shed_samples, all + 30);
    assert_sound(root);
}

/// Deletes history on a disk that fails at operation `at`; afterwards every sample is there or
/// counted as shed. Returns the number of operations.
fn on_failing(from: &Path, at: u64, failure: Failure) -> u64 {
    let dir = dir_in_memory();
    let root = dir.path();
    copy(from, root);
    let (before, all) = (bytes(root), rows(root));
    let what = format!("operation {at} fails {failure:?}");
    let mut config = config(root);
    config.bytes_max = before / 2;
    let disk = Arc::new(Failing::new(at, failure));
    let storage = Arc::clone(&disk) as Arc<dyn Storage>;
    if let Ok(mut archive) = SteppedArchive::start(config.clone(), storage) {
        let _ = archive.seal();
    }
    assert_eq!(rows(root) + losses(root).shed_samples, all, "{what}");
    let mut archive = SteppedArchive::start(config, Arc::new(DiskStorage)).unwrap();
    archive.seal().unwrap();
    assert!(bytes(root) <= before / 2, "{what}");
    drop(archive);
    assert_eq!(rows(root) + losses(root).shed_samples, all, "{what}");
    assert_sound(root);
    disk.count()
}

#[test]
fn each_operation_of_letting_go_fails() {
    let dir = dir_in_memory();
    let mut archive = SteppedArchive::start(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    assert!(archive.commit(entries(1, 1..=100, 60 * NS_PER_S)));
    archive.seal().unwrap();
    drop(archive);
    for failure in [
        Failure::Once,
        Failure::Twice,
        Failure::DoneNevertheless,
        Failure::ForEver,
    ] {
        let operations = on_failing(dir.path(), u64::MAX, failure);
        assert!(operations > 30, "{operations}");
        for at in 0..operations {
            on_failing(dir.path(), at, failure);
        }
    }
}

/// A file system of its own size; `None`, with a message, if this user may not mount one.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(bytes: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "none"])
            .arg(dir.path())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(dir));
        }
        eprintln!("no file system can be mounted here: not tested");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_sheds_the_oldest_and_goes_on() {
    let Some(mount) = Mount::new(5 << 19) else {
        return;
    };
    let root = mount.0.path().join("archive");
    let mut config = config(&root);
    config.free_bytes_min = 1 << 20;
    config.segment_bytes_max = 256 << 10;
    let mut archive = SteppedArchive::start(config, Arc::new(DiskStorage)).unwrap();
    for life in 1..=60 {
        assert!(archive.commit(entries(life, 1..=4_000, NS_PER_S)));
        archive.seal().unwrap();
    }
    let status = archive.keeper().status();
    assert_eq!(status.troubles(), "");
    let shed = losses(&root).shed_samples;
    assert!(shed > 0, "{status:?}");
    assert_eq!(rows(&root) + shed, 60 * 3 * 4_000);
    assert_sound(&root);
}

#[test]
fn a_disk_that_others_fill_to_the_brim_is_lived_with() {
    let Some(mount) = Mount::new(4 << 20) else {
        return;
    };
    let root = mount.0.path().join("archive");
    let mut config = config(&root);
    config.free_bytes_min = 64 << 10;
    let keeper = start_on(config.clone(), Arc::new(DiskStorage)).unwrap();
    append(&keeper, 1, 1..=20_000, NS_PER_S);
    keeper.seal().unwrap();
    append(&keeper, 2, 1..=2_000, NS_PER_S);
    // The disk is filled to the last byte.
    let filler = mount.0.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    while std::io::Write::write_all(&mut file, &[1]).is_ok() {}
    // History is deleted to make room for the newest; whether that is enough depends on how small
    // it had become.
    let _ = keeper.seal();
    std::fs::remove_file(&filler).unwrap();
    drop(keeper);
    let keeper = start_on(config, Arc::new(DiskStorage)).unwrap();
    append(&keeper, 3, 1..=10, NS_PER_S);
    keeper.seal().unwrap();
    let all = 3 * (20_000 + 2_000 + 10);
    assert_eq!(rows(&root) + losses(&root).shed_samples, all);
    assert_eq!(keeper.status().troubles(), "");
    assert_sound(&root);
}

#[test]
fn buckets_of_what_only_tiers_have() {
    let dir = dir_in_memory();
    let mut config = config(dir.path());
    let keeper = start_on(config.clone(), Arc::new(DiskStorage)).unwrap();
    append(&keeper, 1, 1..=7_200, NS_PER_S);
    keeper.seal().unwrap();
    drop(keeper);
    config.keep.raw_ns = 0;
    let clock = Arc::new(TwoClocks {
        wall: AtomicI64::new(BEGIN + 10 * HOUR_NS),
        ..TwoClocks::default()
    });
    let keeper = Keeper::start(config, Arc::new(DiskStorage), clock).unwrap();
    keeper.seal().unwrap();
    drop(keeper);
    assert_eq!(tiers(dir.path())[0], (Tier::Raw, 0));
    assert_eq!(rows(dir.path()), 0);
    let view = ArchiveReader::open(dir.path()).view().unwrap();
    let all: Vec<usize> = (0..view.series().len()).collect();
    let cancel = AtomicBool::new(false);
    for (step_s, buckets) in [(10, 121), (60, 121), (3_600, 3)] {
        let got = view
            .buckets(&all, Span::ALL, step_s * NS_PER_S, 2, &cancel)
            .unwrap();
        assert_eq!(got.len(), 3);
        for of in got.values() {
            assert_eq!(
                (of.len(), of.count.iter().sum::<u64>()),
                (buckets, 7_200),
                "{step_s}"
            );
        }
    }
    assert!(ArchiveLayout::new(dir.path(), "n1").manifest().exists());
    assert!(
        parquet_files(dir.path())
            .iter()
            .all(|path| !path.starts_with(dir.path().join("raw")))
    );
}
