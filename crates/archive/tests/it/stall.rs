//! A disk that stalls, and one that is usable late: no submitter waits for it, and every sample
//! that is not archived is counted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use barograph_archive::{
    ArchiveError, ArchiveLosses, DiskStorage, FileAccess, Journal, JournalEntry, JournalPosition,
    Keeper, OutFile, RingMark, Storage,
};
use barograph_model::{Sample, StreamKey, Value, ValueType};
use barograph_stream::{Incarnation, SystemClock};
use barograph_testing::{wait_for, wait_until};

use crate::failing::{Failing, Failure};
use crate::support::{SOON, assert_once, config, declare, everything, losses, sample, start_on};

/// A disk on which a sync lasts for as long as the gate is closed.
#[derive(Clone, Default)]
struct Stalling {
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Default)]
struct GateState {
    is_closed: bool,
    /// Number of syncs that wait at the gate.
    waiting: usize,
}

impl Stalling {
    fn stall(&self) {
        self.gate.state.lock().unwrap().is_closed = true;
    }

    fn go_on(&self) {
        self.gate.state.lock().unwrap().is_closed = false;
        self.gate.moved.notify_all();
    }

    /// Returns when a sync waits.
    fn wait_until_it_stands(&self) {
        let state = self.gate.state.lock().unwrap();
        let moved = &self.gate.moved;
        let (_state, timeout) = moved
            .wait_timeout_while(state, SOON, |state| state.waiting == 0)
            .unwrap();
        assert!(!timeout.timed_out(), "nothing is synced");
    }

    fn pass(&self) {
        let mut state = self.gate.state.lock().unwrap();
        state.waiting += 1;
        self.gate.moved.notify_all();
        while state.is_closed {
            state = self.gate.moved.wait(state).unwrap();
        }
        state.waiting -= 1;
    }
}

struct StallingFile {
    file: Box<dyn OutFile>,
    disk: Stalling,
}

impl OutFile for StallingFile {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.pass();
        self.file.sync()
    }

    fn rewind(&mut self, bytes: u64) -> io::Result<()> {
        self.file.rewind(bytes)
    }
}

impl Storage for Stalling {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        DiskStorage.make_dir(path)
    }

    fn create(&self, path: &Path, access: FileAccess) -> io::Result<Box<dyn OutFile>> {
        let (file, disk) = (DiskStorage.create(path, access)?, self.clone());
        Ok(Box::new(StallingFile { file, disk }))
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

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        DiskStorage.free_bytes(path)
    }
}

const PROCESS: Incarnation = Incarnation([3; 16]);

fn mark(position: u64) -> RingMark {
    RingMark {
        incarnation: PROCESS,
        ring: 0,
        position,
    }
}

/// Returns record `position` of a ring.
fn record(position: u64) -> JournalEntry {
    let taken = Sample::measured(position as i64, position as i64);
    JournalEntry::Read(StreamKey(0), position, taken, mark(position))
}

fn submit(journal: &Journal, positions: std::ops::RangeInclusive<u64>) -> JournalPosition {
    let mut at = JournalPosition::default();
    for position in positions {
        at = journal.submit(&mut vec![record(position)]);
    }
    at
}

fn begin(journal: &Journal, life: i64) {
    journal.submit(&mut vec![declare(0, "durable.ring", ValueType::Int, life)]);
}

fn count(root: &Path) -> u64 {
    let found = everything(root);
    assert_once(&found);
    found.values().map(|samples| samples.len() as u64).sum()
}

fn lost(losses: &ArchiveLosses) -> u64 {
    losses.overflow_samples + losses.failed_samples
}

#[test]
fn while_the_disk_stands_still_nobody_waits_and_what_is_put_is_there_or_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = config(dir.path());
    small.buffer_bytes_max = 64 << 10;
    let disk = Stalling::default();
    let keeper = start_on(small, Arc::new(disk.clone())).unwrap();
    let journal = keeper.journal();
    begin(&journal, 1);
    disk.stall();
    submit(&journal, 1..=10);
    disk.wait_until_it_stands();
    // Many more records than the buffer holds, from one thread, which would hang here if it waited.
    let put = 50_000;
    let last = submit(&journal, 11..=put);
    assert!(!journal.is_settled(last));
    assert!(!journal.wait_durable(last, Duration::ZERO));
    let status = keeper.status();
    assert!(status.losses.overflow_samples > 0, "{status:?}");
    assert!(status.waiting_bytes <= 2 * (64 << 10), "{status:?}");
    disk.go_on();
    wait_until("the records", || journal.is_settled(last));
    // Read at once, without an orderly end: as after a kill.
    let told = losses(dir.path());
    assert_eq!(count(dir.path()) + lost(&told), put, "{told:?}");
    // A caller that waits for durability gets an error, and new samples are accepted again.
    assert!(!journal.wait_durable(last, Duration::ZERO));
    let at = submit(&journal, put + 1..=put + 5);
    assert!(journal.wait_durable(at, SOON));
    drop(keeper);
    let told = losses(dir.path());
    assert_eq!(count(dir.path()) + lost(&told), put + 5, "{told:?}");
}

/// Once there was no room for a record, no later one is accepted before the loss is written:
/// otherwise the log would claim that the ring was read beyond a point that a kill makes unknown.
#[test]
fn what_is_lost_and_what_is_kept_lie_in_one_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = config(dir.path());
    small.buffer_bytes_max = 1 << 10;
    let disk = Stalling::default();
    let keeper = start_on(small, Arc::new(disk.clone())).unwrap();
    let journal = keeper.journal();
    begin(&journal, 1);
    journal.submit(&mut vec![declare(1, "durable.long", ValueType::Text, 1)]);
    disk.stall();
    submit(&journal, 1..=1);
    disk.wait_until_it_stands();
    let long = Sample::measured(2, Value::Text("x".repeat(2 << 10).into()));
    journal.submit(&mut vec![JournalEntry::Read(
        StreamKey(1),
        1,
        long,
        mark(2),
    )]);
    let last = submit(&journal, 3..=3);
    disk.go_on();
    wait_until("the records", || journal.is_settled(last));
    assert_eq!(
        count(dir.path()),
        1,
        "the short one came after the long one"
    );
    assert_eq!(lost(&losses(dir.path())), 2);
}

#[test]
fn a_writer_that_comes_late_writes_what_waits_and_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = start_on(config(dir.path()), Arc::new(DiskStorage)).unwrap();
    let journal = keeper.journal();
    begin(&journal, 1);
    let at = submit(&journal, 1..=100);
    assert!(journal.wait_durable(at, SOON));
    drop(keeper);
    // The next life does not know how far the previous one came, reads the ring from its tail on,
    // and cannot write at first.
    let clock: Arc<dyn barograph_model::Clock> = Arc::new(SystemClock::new());
    let journal = Journal::new(&config(dir.path()));
    begin(&journal, 2);
    submit(&journal, 51..=150);
    let start = |disk: Arc<dyn Storage>| {
        let (clock, journal) = (Arc::clone(&clock), journal.clone());
        Keeper::start_with_journal(config(dir.path()), disk, clock, None, journal)
    };
    for at in 0..8 {
        let failed = start(Arc::new(Failing::new(at, Failure::ForEver)));
        assert!(failed.is_err(), "{at}");
        journal.set_trouble("the disk is full");
    }
    // Another test starts a program: until its exec, it holds this process's open files.
    let keeper = wait_for("the lock", || match start(Arc::new(DiskStorage)) {
        Err(ArchiveError::Occupied { .. }) => None,
        started => Some(started.unwrap()),
    });
    // Some records are submitted more than once, as from a ring that is read anew.
    let at = submit(&journal, 90..=99);
    assert!(journal.wait_durable(at, SOON));
    let at = submit(&journal, 151..=160);
    assert!(journal.wait_durable(at, SOON));
    assert_eq!(keeper.status().trouble, "");
    assert_eq!(keeper.status().losses, ArchiveLosses::default());
    drop(keeper);
    let found = everything(dir.path());
    let numbers: Vec<u64> = found
        .values()
        .flatten()
        .map(|(number, _)| *number)
        .collect();
    assert_eq!(numbers, (1..=160).collect::<Vec<u64>>());
}

#[test]
fn what_finds_no_room_before_the_writer_comes_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut small = config(dir.path());
    small.buffer_bytes_max = 64 << 10;
    let journal = Journal::new(&small);
    begin(&journal, 1);
    journal.set_trouble("the disk is full");
    submit(&journal, 1..=10_000);
    let before = journal.lost();
    assert!(before.failed_samples > 0, "{before:?}");
    let clock = Arc::new(SystemClock::new());
    let late = journal.clone();
    let keeper =
        Keeper::start_with_journal(small, Arc::new(DiskStorage), clock, None, late).unwrap();
    let mut entries = vec![sample(0, 10_001, 1, 1)];
    let at = journal.submit(&mut entries);
    wait_until("the records", || journal.is_settled(at));
    drop(keeper);
    let told = losses(dir.path());
    assert_eq!(count(dir.path()) + lost(&told), 10_001, "{told:?}");
}
