//! Disks that fail at their n-th operation.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use barograph_model::ManualClock;
use barograph_staging::{BlockStore, Disk, DiskFile, FaultCode, Flusher, RealDisk};

use crate::common::{MIB, PATIENCE_NS, RETRY_NS, bytes, clock, config, get, put};

/// A disk whose operations fail from the n-th one on, for a number of them.
struct FailingDisk {
    left: Arc<AtomicI64>,
    failures: i64,
    below: Option<OsString>,
}

struct FailingFile {
    file: Box<dyn DiskFile>,
    left: Arc<AtomicI64>,
    failures: i64,
}

fn count(left: &AtomicI64, failures: i64) -> io::Result<()> {
    let left = left.fetch_sub(1, Ordering::SeqCst);
    match left <= 0 && left > -failures {
        true => Err(io::Error::from_raw_os_error(28)),
        false => Ok(()),
    }
}

impl FailingDisk {
    fn count(&self, path: &Path) -> io::Result<()> {
        let is_failing = self
            .below
            .as_ref()
            .is_none_or(|name| path.components().any(|part| part.as_os_str() == name));
        match is_failing {
            true => count(&self.left, self.failures),
            false => Ok(()),
        }
    }

    fn file(&self, path: &Path, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let failures = match self.count(path) {
            Ok(()) if self.below.is_none() => self.failures,
            _ => 0,
        };
        let left = Arc::clone(&self.left);
        Box::new(FailingFile {
            file,
            left,
            failures,
        })
    }
}

impl Disk for FailingDisk {
    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.count(path)?;
        RealDisk.make_directory(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.count(path)?;
        Ok(self.file(path, RealDisk.create(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.count(path)?;
        Ok(self.file(path, RealDisk.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.count(to)?;
        RealDisk.rename(from, to)
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.count(path)?;
        RealDisk.sync_directory(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.count(path)?;
        RealDisk.remove(path)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<OsString>> {
        RealDisk.names(path)
    }
}

impl DiskFile for FailingFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        count(&self.left, self.failures)?;
        self.file.append(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        count(&self.left, self.failures)?;
        self.file.sync()
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        count(&self.left, self.failures)?;
        self.file.read_at(bytes, offset)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }
}

/// Whatever operation fails, nothing that was acknowledged is lost or wrong.
#[test]
fn any_single_failure_loses_nothing() {
    let mut failed = 0;
    for n in 1..60 {
        let directory = tempfile::tempdir().unwrap();
        let disk = FailingDisk {
            left: Arc::new(AtomicI64::new(n)),
            failures: 1,
            below: None,
        };
        let mut config = config(MIB, &[directory.path()]);
        config.directories[0].retry_ns = 1;
        let store = BlockStore::on_disk(config, clock(), Arc::new(disk)).unwrap();
        let flusher = Flusher::start(&store, 1).unwrap();
        let mut acknowledged = Vec::new();
        for number in 0..4 {
            // Every second block is too large for memory and goes to the disk itself.
            let data = bytes(number, if number % 2 == 0 { 1 << 17 } else { 3 << 19 });
            match put(&store, number, 1, &data) {
                Ok(()) => acknowledged.push((number, data)),
                Err(error) => {
                    let code = error.code();
                    let expect = [
                        Some(FaultCode::Disk),
                        Some(FaultCode::Full),
                        Some(FaultCode::Busy),
                    ];
                    assert!(expect.contains(&code), "{n}: {error}");
                    failed += 1;
                }
            }
        }
        assert!(
            flusher.drain(PATIENCE_NS),
            "{n}: not flushed after one failure"
        );
        for (number, data) in acknowledged {
            let read = get(&store, number).or_else(|_| get(&store, number));
            assert!(read.is_ok_and(|read| read == data), "{n}: block {number}");
        }
    }
    assert!(failed > 0, "no operation failed");
}

#[test]
fn a_tier_that_fails_is_passed_over_and_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let [fast, slow] = ["fast", "slow"].map(|name| directory.path().join(name));
    for path in [&fast, &slow] {
        std::fs::create_dir(path).unwrap();
    }
    let left = Arc::new(AtomicI64::new(0));
    let disk = FailingDisk {
        left: Arc::clone(&left),
        failures: 1_000_000,
        below: Some("fast".into()),
    };
    let config = config(MIB, &[&fast, &slow]);
    let clock = Arc::new(ManualClock::default());
    let store = BlockStore::on_disk(config, clock.clone(), Arc::new(disk)).unwrap();
    let data = bytes(1, 2 << 20);
    put(&store, 1, 1, &data).unwrap();
    let tiers = store.tiers();
    assert_eq!((tiers[1].blocks, tiers[2].blocks), (0, 1), "{tiers:?}");
    assert!(tiers[1].is_passed_over && tiers[1].faults == 1, "{tiers:?}");
    // The disk is sound again: after a while it is used.
    left.store(i64::MAX, Ordering::SeqCst);
    clock.advance(RETRY_NS);
    put(&store, 2, 1, &data).unwrap();
    assert_eq!(store.tiers()[1].blocks, 1);
    assert!(get(&store, 1).unwrap() == data && get(&store, 2).unwrap() == data);
}

#[test]
fn a_tier_whose_directory_is_gone_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let tier = directory.path().join("tier");
    std::fs::create_dir(&tier).unwrap();
    let clock = Arc::new(ManualClock::default());
    let store = BlockStore::open(config(MIB, &[&tier]), clock.clone()).unwrap();
    let data = bytes(1, 2 << 20);
    put(&store, 1, 1, &data).unwrap();
    std::fs::remove_dir_all(&tier).unwrap();
    let error = put(&store, 2, 1, &data).unwrap_err();
    assert_eq!(error.code(), Some(FaultCode::Full));
    assert!(error.to_string().contains("tier"), "{error}");
    assert!(get(&store, 1).is_err());
    std::fs::create_dir(&tier).unwrap();
    clock.advance(RETRY_NS);
    put(&store, 2, 1, &data).unwrap();
    assert!(get(&store, 2).unwrap() == data);
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    for (mode, is_taken) in [
        (0o777, false),
        (0o1777, false),
        (0o770, false),
        (0o755, true),
    ] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.path(), mode).unwrap();
        let store = BlockStore::open(config(MIB, &[directory.path()]), clock());
        assert_eq!(store.is_ok(), is_taken);
        let why = store.err().map(|error| error.to_string());
        assert!(why.is_none_or(|why| why.contains("chmod go-w")));
    }
}
