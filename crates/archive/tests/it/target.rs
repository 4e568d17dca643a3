//! Copies in an object store: whatever fails there, it has each row once in the end.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use barograph_archive::parquet::ParquetPart;
use barograph_archive::{CopyTarget, DiskStorage, Keeper};
use barograph_model::{NS_PER_S, Span};
use barograph_testing::wait_until;

use crate::seal::{append, entries};
use crate::support::{
    SOON, SteppedArchive, TwoClocks, assert_sound, config, everything, parquet_files,
};

/// Longer than the longest wait after a failure.
const LATER_NS: i64 = 3_600 * NS_PER_S;

/// A directory as a store, which refuses a number of copies and removals, and may not answer.
#[derive(Clone)]
struct Store {
    dir: PathBuf,
    gate: Arc<Gate>,
    /// Locked while its files change, or are read.
    files: Arc<Mutex<()>>,
    copies_refused: Arc<AtomicU64>,
    removals_refused: Arc<AtomicU64>,
}

impl Store {
    fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        Self {
            dir,
            gate: Arc::default(),
            files: Arc::default(),
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

    /// Returns its files, as relative paths.
    fn files(&self) -> Vec<PathBuf> {
        let _still = self.files.lock().unwrap();
        relative(&self.dir)
    }

    /// Returns how often each sample is there.
    fn rows(&self) -> BTreeMap<(String, i64, u64), u64> {
        let _still = self.files.lock().unwrap();
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

impl CopyTarget for Store {
    fn copy(&mut self, local: &Path, relative: &Path, stop: &AtomicBool) -> Result<(), String> {
        let content = fs::read(local).map_err(|e| e.to_string())?;
        self.gate.pass(stop)?;
        Self::refuses(&self.copies_refused)?;
        let _still = self.files.lock().unwrap();
        let path = self.dir.join(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // As in object stores: nobody sees half of a copy, even if another thread copies the same.
        let whole = tempfile::NamedTempFile::new_in(&self.dir).unwrap();
        fs::write(whole.path(), content).unwrap();
        whole.persist(path).map(|_| ()).map_err(|e| e.to_string())
    }

    fn remove(&mut self, relative: &Path, stop: &AtomicBool) -> Result<(), String> {
        self.gate.pass(stop)?;
        Self::refuses(&self.removals_refused)?;
        let _still = self.files.lock().unwrap();
        // A missing copy is not an error.
        let _ = fs::remove_file(self.dir.join(relative));
        Ok(())
    }
}

/// A gate at which requests wait while it is closed.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    closed: bool,
    /// Whether requests also ignore a stop.
    deaf: bool,
    /// Number of requests that wait.
    waiting: usize,
}

impl Gate {
    fn set(&self, closed: bool, deaf: bool) {
        let mut state = self.state.lock().unwrap();
        (state.closed, state.deaf) = (closed, deaf);
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().waiting
    }

    fn pass(&self, stop: &AtomicBool) -> Result<(), String> {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        while state.closed {
            if !state.deaf && stop.load(Ordering::SeqCst) {
                state.waiting -= 1;
                return Err("given up".into());
            }
            state = self.changed.wait_timeout(state, SOON / 6_000).unwrap().0;
        }
        state.waiting -= 1;
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
    archive: Option<SteppedArchive>,
}

impl Fixture {
    /// An archive and its store, before a start.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("store"));
        Self {
            dir,
            store,
            archive: None,
        }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("archive")
    }

    fn target(&self) -> Option<Box<dyn CopyTarget>> {
        Some(Box::new(self.store.clone()))
    }

    fn start(&mut self) {
        let (config, target) = (config(&self.root()), self.target());
        let started = SteppedArchive::start_with_target(config, Arc::new(DiskStorage), target);
        self.archive = Some(started.unwrap());
    }

    fn archive(&mut self) -> &mut SteppedArchive {
        self.archive.as_mut().unwrap()
    }

    /// Steps the archive until a condition of it and of its store holds.
    #[track_caller]
    fn until(&mut self, holds: impl Fn(&Keeper, &Store) -> bool) {
        let store = self.store.clone();
        self.archive().until(|keeper| holds(keeper, &store));
    }

    fn append(&mut self, life: i64) {
        let entries = entries(life, 1..=20, NS_PER_S / 5);
        assert!(self.archive().commit(entries));
    }

    /// Makes three sealed segments of an hour, which are copied.
    fn fill(&mut self) {
        self.start();
        for life in 1..=3 {
            self.append(life);
            self.archive().seal().unwrap();
        }
        let root = self.root();
        self.until(|_, store| store.files() == relative(&root));
        assert_eq!(self.store.files().len(), 3 * 4);
        self.store.assert_once(3 * 3 * 20);
    }

    #[track_caller]
    fn assert_settled(&mut self, lives: u64) {
        let root = self.root();
        // A refused request is tried again when its wait is over.
        self.archive().advance(LATER_NS);
        self.until(|keeper, _| keeper.status().stale_copies == 0);
        self.until(|_, store| store.files() == relative(&root));
        self.store.assert_once(lives as usize * 3 * 20);
        self.until(|keeper, _| keeper.status().waiting_copies == 0);
        assert_eq!(self.archive().keeper().status().troubles(), "");
        assert_sound(&root);
    }
}

#[test]
fn a_removal_that_fails_is_made_later() {
    let mut fixture = Fixture::new();
    fixture.fill();
    fixture.store.removals_refused.store(1, Ordering::SeqCst);
    assert_eq!(fixture.archive().compact().unwrap(), 3 * 4);
    fixture.until(|_, store| store.removals_refused.load(Ordering::SeqCst) == 0);
    // The copies of the merged files exist beside those of their sources.
    assert_eq!(fixture.archive().keeper().status().stale_copies, 3 * 4);
    assert_eq!(fixture.store.files().len(), 4 * 4);
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
    fixture.archive().compact().unwrap();
    fixture.until(|_, store| store.files().len() == 4 * 4);
    fixture.archive = None;
    fixture.store.removals_refused.store(0, Ordering::SeqCst);
    let before = everything(&fixture.root());
    fixture.start();
    fixture.assert_settled(3);
    assert!(everything(&fixture.root()) == before);
}

/// Each merge comes before the files of the previous one were copied, or its sources' copies
/// deleted.
#[test]
fn merges_of_what_was_merged_leave_nothing_there() {
    let mut fixture = Fixture::new();
    fixture.fill();
    for life in 4..=6 {
        fixture.store.copies_refused.store(1, Ordering::SeqCst);
        fixture.store.removals_refused.store(1, Ordering::SeqCst);
        fixture.append(life);
        fixture.archive().compact().unwrap();
        let rows = fixture.store.rows();
        assert!(rows.len() >= 3 * 3 * 20, "no row is missing meanwhile");
        fixture.archive().advance(LATER_NS);
    }
    for _ in 0..3 {
        fixture.archive().advance(LATER_NS);
        fixture.archive().seal().unwrap();
    }
    fixture.store.copies_refused.store(0, Ordering::SeqCst);
    fixture.store.removals_refused.store(0, Ordering::SeqCst);
    fixture.assert_settled(6);
}

/// The merged file is deleted before it could be copied: the store has only the copies of its
/// sources.
#[test]
fn copies_stay_when_what_they_were_merged_into_goes_without_one() {
    let mut fixture = Fixture::new();
    fixture.fill();
    let before = fixture.store.files();
    fixture
        .store
        .copies_refused
        .store(u64::MAX, Ordering::SeqCst);
    fixture.archive().compact().unwrap();
    fixture.archive = None;
    for path in parquet_files(&fixture.root()) {
        fs::remove_file(path).unwrap();
    }
    fixture.store.copies_refused.store(0, Ordering::SeqCst);
    fixture.start();
    fixture.until(|keeper, _| keeper.status().files == 0);
    fixture.until(|keeper, _| keeper.status().stale_copies == 0);
    assert_eq!(fixture.store.files(), before);
}

/// Sealing, merging and the stop do not wait; everything is copied in the end.
#[test]
fn a_store_that_does_not_answer_holds_up_nothing() {
    // One store that ends its request at a stop, and one that does not: its thread is left behind.
    for deaf in [false, true] {
        let mut fixture = Fixture::new();
        let store = fixture.store.clone();
        store.gate.set(true, deaf);
        // A clock on which no hour is over: nothing is merged before the test asks for it.
        let (config, clock) = (config(&fixture.root()), Arc::new(TwoClocks::default()));
        let keeper =
            Keeper::start_with_target(config, Arc::new(DiskStorage), clock, fixture.target());
        let keeper = keeper.unwrap();
        for life in 1..=6 {
            append(&keeper, life, 1..=20, NS_PER_S / 5);
            keeper.seal().unwrap();
        }
        // The sealer counts anew with each order.
        let waiting_copies = || {
            keeper.seal().unwrap();
            keeper.status().waiting_copies
        };
        wait_until("a request", || store.gate.waiting() == 1);
        wait_until("all copies", || waiting_copies() == 6 * 4);
        assert_eq!(keeper.compact().unwrap(), 6 * 4);
        wait_until("merged copies", || waiting_copies() == 4);
        assert_eq!(keeper.status().troubles(), "");
        assert_eq!(store.files(), Vec::<PathBuf>::new());
        drop(keeper);
        assert_eq!(store.gate.waiting(), usize::from(deaf));
        store.gate.set(false, false);
        if deaf {
            // The copy arrives late, and is of no more use.
            wait_until("the late copy", || !store.files().is_empty());
        }
        fixture.start();
        fixture.assert_settled(6);
    }
}
