//! Copies at an object store: whatever fails there, it holds each row once in the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use barograph_archive::parquet::ParquetPart;
use barograph_archive::{ArchiveError, Disk, Keeper, Target};
use barograph_model::{NS_PER_S, Span};

use crate::seal::append;
use crate::support::{SOON, TwoClocks, assert_sound, config, everything, parquet_files};

/// Longer than anything that failed is left alone.
const LATER_NS: i64 = 3_600 * NS_PER_S;

/// A directory as a store, that refuses so many of the next copies and removals.
#[derive(Clone)]
struct Store {
    dir: PathBuf,
    copies_refused: Arc<AtomicU64>,
    removals_refused: Arc<AtomicU64>,
}

impl Store {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        Self {
            dir,
            copies_refused: Arc::default(),
            removals_refused: Arc::default(),
        }
    }

    fn refuses(left: &AtomicU64) -> Result<(), String> {
        let less = |left: u64| left.checked_sub(1);
        match left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err("as the test has it".into()),
            Err(_) => Ok(()),
        }
    }

    /// Its files, relative.
    fn files(&self) -> Vec<PathBuf> {
        relative(&self.dir)
    }

    /// How often each sample is there.
    fn rows(&self) -> BTreeMap<(String, i64, u64), u64> {
        let mut rows = BTreeMap::new();
        for path in parquet_files(&self.dir.join("raw")) {
            let part = ParquetPart::open(&path).unwrap();
            let index = part.index().unwrap();
            let cancel = AtomicBool::new(false);
            part.read(&|_| true, Span::ALL, &cancel, &mut |at, life, columns| {
                let name = index.series[at].descriptor.name.as_str();
                for number in columns.numbers {
                    *rows.entry((name.to_owned(), life, number)).or_default() += 1;
                }
                Ok(())
            })
            .unwrap();
        }
        rows
    }

    fn assert_once(&self, samples: usize) {
        let rows = self.rows();
        assert_eq!(rows.len(), samples);
        assert!(rows.values().all(|count| *count == 1), "{rows:?}");
    }
}

impl Target for Store {
    fn copy(&mut self, local: &Path, relative: &Path) -> Result<(), String> {
        Self::refuses(&self.copies_refused)?;
        let path = self.dir.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(local, path).map(|_| ()).map_err(|e| e.to_string())
    }

    fn remove(&mut self, relative: &Path) -> Result<(), String> {
        Self::refuses(&self.removals_refused)?;
        // One that is gone is fine.
        let _ = fs::remove_file(self.dir.join(relative));
        Ok(())
    }
}

fn relative(dir: &Path) -> Vec<PathBuf> {
    let files = parquet_files(dir).into_iter();
    let files = files.map(|path| path.strip_prefix(dir).unwrap().to_owned());
    files.collect()
}

struct Fixture {
    dir: tempfile::TempDir,
    store: Store,
    clock: Arc<TwoClocks>,
    keeper: Option<Keeper>,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("store"));
        let mut fixture = Self {
            dir,
            store,
            clock: Arc::default(),
            keeper: None,
        };
        fixture.start();
        fixture
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("archive")
    }

    fn start(&mut self) {
        for _ in 0..1_000 {
            let target: Box<dyn Target> = Box::new(self.store.clone());
            let (config, clock) = (config(&self.root()), Arc::clone(&self.clock) as _);
            match Keeper::start_with_target(config, Arc::new(Disk), clock, Some(target)) {
                // Another test starts a program: until it runs, it holds what this process has open.
                Err(ArchiveError::Occupied { .. }) => std::thread::sleep(SOON / 1_000),
                started => {
                    self.keeper = Some(started.unwrap());
                    return;
                }
            }
        }
        panic!("the archive stays occupied");
    }

    fn keeper(&self) -> &Keeper {
        self.keeper.as_ref().unwrap()
    }

    /// Lets the sealer work until this is so.
    #[track_caller]
    fn until(&self, what: impl Fn() -> bool) {
        for _ in 0..10_000 {
            if what() {
                return;
            }
            self.keeper().seal().unwrap();
        }
        panic!("it does not come to that");
    }

    fn later(&self) {
        self.clock.monotonic.fetch_add(LATER_NS, Ordering::SeqCst);
    }

    /// Three sealed segments of an hour, copied.
    fn fill(&self) {
        for life in 1..=3 {
            append(self.keeper(), life, 1..=20, NS_PER_S / 5);
            self.keeper().seal().unwrap();
        }
        self.until(|| self.store.files() == relative(&self.root()));
        assert_eq!(self.store.files().len(), 3 * 4);
        self.store.assert_once(3 * 3 * 20);
    }

    #[track_caller]
    fn assert_settled(&self, lives: u64) {
        self.until(|| self.keeper().status().stale_copies == 0);
        self.until(|| self.store.files() == relative(&self.root()));
        self.store.assert_once(lives as usize * 3 * 20);
        assert_eq!(self.keeper().status().trouble, "");
        assert_sound(&self.root());
    }
}

#[test]
fn a_removal_that_fails_is_made_later() {
    let fixture = Fixture::new();
    fixture.fill();
    fixture.store.removals_refused.store(1, Ordering::SeqCst);
    assert_eq!(fixture.keeper().compact().unwrap(), 3 * 4);
    fixture.until(|| fixture.store.removals_refused.load(Ordering::SeqCst) == 0);
    // The merged ones are there beside what they were made of.
    assert_eq!(fixture.keeper().status().stale_copies, 3 * 4);
    assert_eq!(fixture.store.files().len(), 4 * 4);
    fixture.later();
    fixture.assert_settled(3);
}

#[test]
fn what_is_to_be_removed_survives_the_writer() {
    let mut fixture = Fixture::new();
    fixture.fill();
    fixture
        .store
        .removals_refused
        .store(u64::MAX, Ordering::SeqCst);
    fixture.keeper().compact().unwrap();
    fixture.until(|| fixture.store.files().len() == 4 * 4);
    fixture.keeper = None;
    fixture.store.removals_refused.store(0, Ordering::SeqCst);
    let before = everything(&fixture.root());
    fixture.start();
    fixture.assert_settled(3);
    assert!(everything(&fixture.root()) == before);
}

/// Each merge comes before what the one before it made was copied, or its copies removed.
#[test]
fn merges_of_what_was_merged_leave_nothing_there() {
    let fixture = Fixture::new();
    fixture.fill();
    for life in 4..=6 {
        fixture.store.copies_refused.store(1, Ordering::SeqCst);
        fixture.store.removals_refused.store(1, Ordering::SeqCst);
        append(fixture.keeper(), life, 1..=20, NS_PER_S / 5);
        fixture.keeper().compact().unwrap();
        let rows = fixture.store.rows();
        assert!(rows.len() >= 3 * 3 * 20, "no row is missing meanwhile");
        fixture.later();
    }
    for _ in 0..3 {
        fixture.later();
        fixture.keeper().seal().unwrap();
    }
    fixture.store.copies_refused.store(0, Ordering::SeqCst);
    fixture.store.removals_refused.store(0, Ordering::SeqCst);
    fixture.later();
    fixture.assert_settled(6);
}

/// The merged file goes before it could be copied: what it was made of is all that the store has of it.
#[test]
fn copies_stay_when_what_they_were_merged_into_goes_without_one() {
    let mut fixture = Fixture::new();
    fixture.fill();
    let before = fixture.store.files();
    fixture
        .store
        .copies_refused
        .store(u64::MAX, Ordering::SeqCst);
    fixture.keeper().compact().unwrap();
    fixture.keeper = None;
    for path in parquet_files(&fixture.root()) {
        fs::remove_file(path).unwrap();
    }
    fixture.store.copies_refused.store(0, Ordering::SeqCst);
    fixture.start();
    fixture.until(|| fixture.keeper().status().files == 0);
    fixture.until(|| fixture.keeper().status().stale_copies == 0);
    assert_eq!(fixture.store.files(), before);
}
