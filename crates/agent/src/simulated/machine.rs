//! A simulated machine's own parts beside its directories: a clock that is wrong, and a disk
//! that can be full.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_archive::testing::ForgettingDisk;
use barograph_archive::{FileAccess, OutFile, Storage};
use barograph_model::{Clock, ManualClock};

/// The clock of one machine. All machines have the same monotonic time, and each its own difference
/// of the wall clock.
#[derive(Clone, Debug)]
pub(crate) struct MachineClock {
    /// The time of the simulation.
    pub time: Arc<ManualClock>,
    /// Time by which the wall clock is ahead of the time of the simulation, in ns.
    pub ahead_ns: i64,
}

impl Clock for MachineClock {
    fn now_ns(&self) -> i64 {
        self.time.now_ns() + self.ahead_ns
    }

    fn monotonic_ns(&self) -> i64 {
        self.time.monotonic_ns()
    }
}

/// The disk of a machine, of which one directory can be full: nothing can be written there then.
///
/// The directory still has free bytes then, as when a quota is used up, so that nobody deletes old
/// files to make room. A clone is the same disk.
#[derive(Clone)]
pub(crate) struct FillingDisk {
    pub disk: ForgettingDisk,
    /// The directory that can be full.
    quota_dir: PathBuf,
    is_full: Arc<AtomicBool>,
}

/// A file on the disk.
struct FillingFile {
    file: Box<dyn OutFile>,
    is_full: Arc<AtomicBool>,
}

impl FillingDisk {
    pub(crate) fn new(root: &Path, quota_dir: &Path) -> Self {
        Self {
            disk: ForgettingDisk::new(root),
            quota_dir: quota_dir.to_owned(),
            is_full: Arc::default(),
        }
    }

    /// Makes the directory full, or makes room in it.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Fails if nothing can be written at this path.
    fn check(&self, path: &Path) -> io::Result<()> {
        match path.starts_with(&self.quota_dir) {
            true => check(&self.is_full),
            false => Ok(()),
        }
    }
}

/// Fails if nothing can be written.
fn check(is_full: &AtomicBool) -> io::Result<()> {
    match is_full.load(Ordering::Relaxed) {
        true => Err(io::ErrorKind::StorageFull.into()),
        false => Ok(()),
    }
}

impl Storage for FillingDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        if !path.is_dir() {
            self.check(path)?;
        }
        self.disk.make_dir(path)
    }

    fn create(&self, path: &Path, access: FileAccess) -> io::Result<Box<dyn OutFile>> {
        self.check(path)?;
        let file = self.disk.create(path, access)?;
        match path.starts_with(&self.quota_dir) {
            true => Ok(Box::new(FillingFile {
                file,
                is_full: Arc::clone(&self.is_full),
            })),
            false => Ok(file),
        }
    }

    fn overwrite(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.check(path)?;
        self.disk.overwrite(path, bytes)
    }

    fn truncate(&self, path: &Path, bytes: u64) -> io::Result<()> {
        self.disk.truncate(path, bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(to)?;
        self.disk.link(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        self.disk.exchange(one, other)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        self.disk.unlink(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        self.disk.list(path)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.disk.free_bytes(path)
    }
}

impl OutFile for FillingFile {
    /// On a full disk a part is written before the write fails, as the kernel does.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(full) = check(&self.is_full) {
            self.file.write_all(&bytes[..bytes.len() / 2])?;
            return Err(full);
        }
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }

    fn rewind(&mut self, bytes: u64) -> io::Result<()> {
        self.file.rewind(bytes)
    }
}
