//! A disk whose n-th operation fails, and the archive on it.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barograph_archive::{DiskStorage, FileAccess, OutFile, Storage};
use barograph_model::ValueType;

use crate::support::{
    SteppedArchive, assert_once, config, declare, dir_in_memory, everything, sample,
};

/// A kind of failure of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The n-th operation fails, the others do not.
    Once,
    /// All operations from the n-th on fail.
    ForEver,
    /// The n-th operation and the next fail: so the reaction to the failure fails too.
    Twice,
    /// The n-th operation reports a failure, but was done.
    DoneNevertheless,
    /// The same, and the next operation fails.
    DoneThenFails,
}

/// A disk with injected failures. A write that fails has written half. A sync that fails has lost
/// its data, and the next one succeeds, as with the kernel.
#[derive(Debug)]
pub(crate) struct Failing {
    count: Arc<AtomicU64>,
    at: u64,
    failure: Failure,
    /// Whether only operations on log segments are counted, and fail.
    only_log: bool,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Works,
    Fails,
    /// The operation reports a failure, but was done.
    Lies,
}

struct FailingFile {
    file: Box<dyn OutFile>,
    path: PathBuf,
    bytes: u64,
    synced: u64,
    disk: Failing,
}

impl Failing {
    /// Returns a disk whose operation number `at`, from 0, fails.
    pub(crate) fn new(at: u64, failure: Failure) -> Self {
        Self {
            count: Arc::default(),
            at,
            failure,
            only_log: false,
        }
    }

    /// Returns a disk where only operations on log segments are counted and fail. One thread does
    /// these, so that their numbers do not depend on the order of threads.
    pub(crate) fn of_log(at: u64, failure: Failure) -> Self {
        Self {
            only_log: true,
            ..Self::new(at, failure)
        }
    }

    /// Returns the number of operations so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    fn again(&self) -> Self {
        Self {
            count: Arc::clone(&self.count),
            ..*self
        }
    }

    fn next(&self, path: &Path) -> Fate {
        use Failure::{DoneNevertheless, DoneThenFails, ForEver, Twice};
        if self.only_log && path.extension().is_none_or(|extension| extension != "log") {
            return Fate::Works;
        }
        let n = self.count.fetch_add(1, Ordering::SeqCst);
        match n.checked_sub(self.at) {
            Some(0) if matches!(self.failure, DoneNevertheless | DoneThenFails) => Fate::Lies,
            Some(0) => Fate::Fails,
            Some(1) if matches!(self.failure, Twice | DoneThenFails) => Fate::Fails,
            Some(_) if self.failure == ForEver => Fate::Fails,
            _ => Fate::Works,
        }
    }

    fn op<T>(&self, path: &Path, done: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.next(path) {
            Fate::Works => return done(),
            Fate::Lies => drop(done()?),
            Fate::Fails => {}
        }
        Err(io::Error::other("injected"))
    }
}

impl Storage for Failing {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        self.op(path, || DiskStorage.make_dir(path))
    }

    fn create(&self, path: &Path, access: FileAccess) -> io::Result<Box<dyn OutFile>> {
        let file = self.op(path, || DiskStorage.create(path, access))?;
        Ok(Box::new(FailingFile {
            file,
            path: path.to_owned(),
            bytes: 0,
            synced: 0,
            disk: self.again(),
        }))
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.op(path, || DiskStorage.overwrite(path, bytes))
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.op(path, || DiskStorage.truncate(path, bytes))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.op(from, || DiskStorage.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.op(from, || DiskStorage.link(from, to))
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.op(one, || DiskStorage.exchange(one, other))
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.op(path, || DiskStorage.unlink(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.op(path, || DiskStorage.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.op(path, || DiskStorage.sync_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.op(path, || DiskStorage.list(path))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.op(path, || DiskStorage.free_bytes(path))
    }
}

impl OutFile for FailingFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fate = self.disk.next(&self.path);
        let part = match fate {
            Fate::Fails => &bytes[..bytes.len() / 2],
            Fate::Works | Fate::Lies => bytes,
        };
        self.file.write_all(part)?;
        self.bytes += part.len() as u64;
        if fate == Fate::Works {
            return Ok(());
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        let fate = self.disk.next(&self.path);
        if fate == Fate::Fails {
            let lost = vec![0; (self.bytes - self.synced) as usize];
            let file = OpenOptions::new().write(true).open(&self.path)?;
            file.write_all_at(&lost, self.synced)?;
        }
        self.synced = self.bytes;
        if fate == Fate::Works {
            return self.file.sync();
        }
        Err(io::Error::other("injected"))
    }

    fn rewind(&mut self, bytes: u64) -> io::Result<()> {
        let Self {
            file, path, disk, ..
        } = self;
        disk.op(path, || file.rewind(bytes))?;
        self.bytes = bytes;
        self.synced = self.synced.min(bytes);
        Ok(())
    }
}

/// Number of samples of each stream in a run.
const SAMPLES: u64 = 24;

/// The result of a run: the last number of each stream, and the last acknowledged one.
#[derive(Debug, Default)]
struct Ran {
    life: i64,
    acknowledged: u64,
}

/// Appends to a durable stream, in several segments, and to one that is not durable.
fn run(archive: &mut SteppedArchive, life: i64, forever: bool) -> Ran {
    let mut ran = Ran {
        life,
        acknowledged: 0,
    };
    let mut entries = vec![
        declare(0, "durable", ValueType::Int, life),
        declare(1, "other", ValueType::Text, life),
    ];
    for number in 1..=SAMPLES {
        entries.push(sample(0, number, number as i64, number as i64));
        let text = barograph_model::Value::text(&format!("text {number}"));
        entries.push(sample(1, number, number as i64, text));
        if archive.commit(std::mem::take(&mut entries)) {
            ran.acknowledged = number;
        } else {
            assert!(forever, "{number} was not acknowledged");
        }
        if number % 12 == 6 {
            let _ = archive.seal();
        }
    }
    ran
}

/// Checks what a start on a healthy disk finds after a run.
fn check(root: &Path, ran: &[Ran], what: &str) {
    let found = everything(root);
    assert_once(&found);
    for ran in ran.iter().filter(|ran| ran.acknowledged > 0) {
        let key = ("durable".to_owned(), ran.life);
        let samples = found.get(&key).unwrap_or_else(|| panic!("{what}: {ran:?}"));
        for number in 1..=ran.acknowledged {
            let (_, told) = samples
                .iter()
                .find(|(n, _)| *n == number)
                .unwrap_or_else(|| panic!("{what}: {number} of {ran:?} is gone: {samples:?}"));
            assert!(
                told.starts_with(&format!("{number} Int({number})")),
                "{told}"
            );
        }
    }
    for (key, samples) in &found {
        assert!(samples.len() as u64 <= SAMPLES, "{what}: {key:?}");
    }
}

/// Runs once on a disk that fails and once on one that does not.
fn on_failing(at: u64, failure: Failure) -> u64 {
    let dir = dir_in_memory();
    let what = format!("operation {at} fails {failure:?}");
    let disk = Arc::new(Failing::new(at, failure));
    let mut ran = Vec::new();
    let storage: Arc<dyn Storage> = Arc::clone(&disk) as _;
    match SteppedArchive::start(config(dir.path()), storage) {
        // The agent continues without an archive, until its next start.
        Err(error) => {
            let told = error.to_string();
            let injected = told.contains("injected") || told.contains("no storage space");
            assert!(injected, "{what}: {error}");
        }
        Ok(mut archive) => {
            let forever = failure == Failure::ForEver;
            ran.push(run(&mut archive, 1, forever));
            if forever && disk.count() > at {
                // What fails last may only show when the sealer looks for work again.
                archive.until(|keeper| !keeper.status().troubles().is_empty());
            }
        }
    }
    check(dir.path(), &ran, &what);
    let mut archive = SteppedArchive::start(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    ran.push(run(&mut archive, 2, false));
    assert_eq!(ran.last().unwrap().acknowledged, SAMPLES);
    drop(archive);
    check(dir.path(), &ran, &what);
    disk.count()
}

fn on_every(failure: Failure) {
    let operations = on_failing(u64::MAX, failure);
    assert!(operations > 50, "{operations}");
    for at in 0..operations {
        on_failing(at, failure);
    }
}

#[test]
fn each_operation_fails_once() {
    on_every(Failure::Once);
}

#[test]
fn each_operation_and_what_is_done_about_it_fails() {
    on_every(Failure::Twice);
}

#[test]
fn each_operation_says_that_it_failed_but_was_done() {
    on_every(Failure::DoneNevertheless);
}

#[test]
fn each_operation_says_that_it_failed_and_what_is_done_about_it_fails() {
    on_every(Failure::DoneThenFails);
}

#[test]
fn from_each_operation_on_all_fail() {
    on_every(Failure::ForEver);
}
