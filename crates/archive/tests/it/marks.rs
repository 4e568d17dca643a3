//! Marks in the log record how far programs' rings were read, in the same frames as the samples: a
//! reader that continues from the marks takes every record once, wherever the previous writer was
//! killed and whatever of its disk failed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use barograph_archive::{DiskStorage, Journal, JournalEntry, Keeper, LogPart, RingMark, Storage};
use barograph_model::{Sample, StreamKey, ValueType};
use barograph_stream::Incarnation;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::failing::{Failing, Failure};
use crate::support::{
    SOON, SteppedArchive, assert_once, assert_sound, config, declare, dir_in_memory, everything,
    segments, start,
};

/// Environment variable with the archive to write, for this binary started again.
const ROOT: &str = "BAROGRAPH_TEST_MARKS";
const LIFE: &str = "BAROGRAPH_TEST_MARKS_LIFE";
const ROUNDS: &str = "BARO_CRASH_ROUNDS";
const RINGS: u32 = 3;
/// Records of a ring have values from this number on.
const RING_VALUES: u64 = 1 << 32;
const PROCESS: Incarnation = Incarnation([7; 16]);

fn mark(ring: u32, position: u64) -> RingMark {
    RingMark {
        incarnation: PROCESS,
        ring,
        position,
    }
}

fn positions(marks: &[RingMark]) -> BTreeMap<u32, u64> {
    let ours = marks.iter().filter(|mark| mark.incarnation == PROCESS);
    ours.map(|mark| (mark.ring, mark.position)).collect()
}

/// A reader of the rings: it continues where the marks end.
struct Taker {
    journal: Journal,
    life: i64,
    number: u64,
    entries: Vec<JournalEntry>,
    from: BTreeMap<u32, u64>,
}

impl Taker {
    fn of(keeper: &Keeper, life: i64) -> Self {
        let entries = vec![declare(0, "durable.ring", ValueType::Int, life)];
        Self {
            journal: keeper.journal(),
            life,
            number: 0,
            entries,
            from: positions(keeper.marks()),
        }
    }

    /// Takes the records of a ring up to a position, except those that were taken before.
    fn take(&mut self, ring: u32, to: u64) {
        let from = self.from.entry(ring).or_default();
        for position in *from + 1..=to {
            self.number += 1;
            let value = (u64::from(ring) * RING_VALUES + position) as i64;
            let sample = Sample::measured(self.life * 1_000_000 + self.number as i64, value);
            let entry = JournalEntry::Read(StreamKey(0), self.number, sample, mark(ring, position));
            self.entries.push(entry);
        }
        *from = to.max(*from);
    }

    fn submit(&mut self) -> bool {
        let position = self.journal.submit(&mut self.entries);
        self.journal.wait_durable(position, SOON)
    }
}

/// Returns how many records of each ring are archived; each is there once, and none is missing
/// before the last.
fn taken(root: &Path, what: &str) -> BTreeMap<u32, u64> {
    let found = everything(root);
    assert_once(&found);
    let mut values: Vec<u64> = Vec::new();
    for told in found.values().flatten().map(|(_, told)| told) {
        let (_, value) = told.split_once("Int(").unwrap();
        values.push(value.split_once(')').unwrap().0.parse().unwrap());
    }
    values.sort_unstable();
    let mut counts = BTreeMap::new();
    for value in values {
        let ring = (value / RING_VALUES) as u32;
        let count = counts.entry(ring).or_insert(0);
        *count += 1;
        assert_eq!(value % RING_VALUES, *count, "{what}: ring {ring}");
    }
    counts
}

#[test]
fn a_start_gives_back_how_far_rings_were_read() {
    let dir = dir_in_memory();
    let mut expect = BTreeMap::new();
    for life in 1..5 {
        let keeper = start(config(dir.path())).unwrap();
        assert_eq!(positions(keeper.marks()), expect);
        assert_eq!(taken(dir.path(), "start"), expect);
        let mut taker = Taker::of(&keeper, life);
        for ring in 0..RINGS {
            // More than one frame.
            let to = life as u64 * 3_000 + u64::from(ring);
            taker.take(ring, to);
            expect.insert(ring, to);
        }
        assert!(taker.submit());
        if life == 2 {
            keeper.seal().unwrap();
            assert_eq!(taken(dir.path(), "sealed"), expect);
        }
    }
    // Twice, everything is sealed without any sample since the start: the marks are carried over.
    for _ in 0..2 {
        let keeper = start(config(dir.path())).unwrap();
        assert_eq!(positions(keeper.marks()), expect);
        keeper.seal().unwrap();
        assert_eq!(
            segments(dir.path()).len(),
            1,
            "one that has nothing but marks"
        );
    }
    assert_eq!(taken(dir.path(), "at last"), expect);
    assert_sound(dir.path());
}

#[test]
fn who_is_forgotten_leaves_no_marks() {
    let dir = dir_in_memory();
    let other = Incarnation([8; 16]);
    {
        let keeper = start(config(dir.path())).unwrap();
        let mut taker = Taker::of(&keeper, 1);
        taker.take(0, 10);
        let sample = Sample::measured(1, RING_VALUES as i64 + 1);
        let mark = RingMark {
            incarnation: other,
            ..mark(0, 1)
        };
        taker
            .entries
            .push(JournalEntry::Read(StreamKey(0), 11, sample, mark));
        assert!(taker.submit());
        taker.entries.push(JournalEntry::Forget(PROCESS));
        taker.submit();
        keeper.seal().unwrap();
    }
    let keeper = start(config(dir.path())).unwrap();
    let marks = keeper.marks().to_vec();
    assert_eq!(marks.len(), 1);
    assert_eq!((marks[0].incarnation, marks[0].position), (other, 1));
    keeper
        .journal()
        .submit(&mut vec![JournalEntry::Forget(other)]);
    keeper.seal().unwrap();
    drop(keeper);
    assert_eq!(start(config(dir.path())).unwrap().marks(), []);
}

#[test]
fn wherever_a_log_is_cut_samples_and_marks_agree() {
    let dir = dir_in_memory();
    let whole = {
        let keeper = start(config(dir.path())).unwrap();
        let mut taker = Taker::of(&keeper, 1);
        for to in [3, 4, 9, 2_500] {
            for ring in 0..RINGS {
                taker.take(ring, to);
            }
            assert!(taker.submit());
        }
        let path = segments(dir.path()).pop().unwrap();
        std::fs::read(path).unwrap()
    };
    let mut stops = std::collections::BTreeSet::new();
    let first_frames = (600..1_500).step_by(41);
    for length in (128..whole.len()).step_by(4_099).chain(first_frames) {
        let dir = dir_in_memory();
        let layout = barograph_archive::ArchiveLayout::new(dir.path(), "n1");
        DiskStorage.make_dir(&layout.log_dir()).unwrap();
        std::fs::write(layout.log(1), &whole[..length]).unwrap();
        let keeper = start(config(dir.path())).unwrap();
        let found = taken(dir.path(), &format!("{length}"));
        assert_eq!(positions(keeper.marks()), found, "cut at {length}");
        stops.insert(found.values().sum::<u64>());
    }
    assert!(stops.len() > 4, "{stops:?}");
}

#[test]
fn a_log_without_marks_is_read_as_ever() {
    let dir = dir_in_memory();
    drop(start(config(dir.path())).unwrap());
    {
        let keeper = start(config(dir.path())).unwrap();
        let mut entries = vec![declare(0, "durable.ring", ValueType::Int, 1)];
        entries.push(crate::support::sample(0, 1, 1, 1));
        keeper.journal().submit(&mut entries);
    }
    // The header is changed to that of the first version, which has no minor number.
    let path = segments(dir.path()).pop().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[104..108], 2u32.to_le_bytes());
    bytes[104..108].fill(0);
    let crc = crc32fast::hash(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    // The keeper may make the log into Parquet, and delete it, at any time.
    let part = LogPart::open(&path).unwrap();
    let keeper = start(config(dir.path())).unwrap();
    assert_eq!(keeper.marks(), []);
    assert_eq!(taken(dir.path(), "old"), BTreeMap::from([(0, 1)]));
    part.marks(&mut |mark| panic!("{mark:?}")).unwrap();
}

/// Number of records of each ring, in several segments.
const RECORDS: u64 = 6;

/// Runs one life on a disk that fails, and one on a disk that does not: every record is there once.
/// Returns the number of operations.
fn on_failing(at: u64, failure: Failure) -> u64 {
    let dir = dir_in_memory();
    let what = format!("operation {at} fails {failure:?}");
    let disk = Arc::new(Failing::new(at, failure));
    let storage: Arc<dyn Storage> = Arc::clone(&disk) as _;
    if let Ok(mut archive) = SteppedArchive::start(config(dir.path()), storage) {
        let mut taker = Taker::of(archive.keeper(), 1);
        for to in 1..=RECORDS {
            for ring in 0..RINGS {
                taker.take(ring, to);
            }
            assert!(archive.commit(std::mem::take(&mut taker.entries)), "{what}");
            if to == 3 {
                let _ = archive.seal();
            }
        }
    }
    // Two lives: the marks that the first carries over without a sample are there for the second.
    for life in 2..4 {
        let mut archive = SteppedArchive::start(config(dir.path()), Arc::new(DiskStorage)).unwrap();
        let before = taken(dir.path(), &what);
        assert_eq!(positions(archive.keeper().marks()), before, "{what}");
        if life == 2 {
            archive.seal().unwrap();
            continue;
        }
        let mut taker = Taker::of(archive.keeper(), life);
        for ring in 0..RINGS {
            taker.take(ring, RECORDS + 1);
        }
        assert!(archive.commit(taker.entries), "{what}");
    }
    let all = (0..RINGS).map(|ring| (ring, RECORDS + 1));
    assert_eq!(taken(dir.path(), &what), all.collect(), "{what}");
    disk.count()
}

#[test]
fn whatever_fails_each_record_is_there_once() {
    use Failure::{DoneNevertheless, DoneThenFails, Once, Twice};
    let operations = on_failing(u64::MAX, Once);
    assert!(operations > 20, "{operations}");
    for at in 0..operations {
        on_failing(at, Once);
        // The reaction to a failure fails too, or was needless: by turns.
        on_failing(
            at,
            [Twice, DoneNevertheless, DoneThenFails][at as usize % 3],
        );
    }
}

/// The entry point of child processes.
#[test]
fn takes_in_until_it_is_killed() {
    let Some(root) = std::env::var_os(ROOT) else {
        assert!(std::env::var_os(LIFE).is_none());
        return;
    };
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let life = std::env::var(LIFE).unwrap().parse().unwrap();
    let mut config = config(&PathBuf::from(root));
    // Segments are closed often, so that many writers are killed at that moment.
    config.segment_bytes_max = 20_000;
    let keeper = start(config).unwrap();
    let mut taker = Taker::of(&keeper, life);
    let mut out = std::io::stdout();
    let first = taker.from.values().max().map_or(1, |last| last + 1);
    for to in first.. {
        for ring in 0..RINGS {
            taker.take(ring, to);
        }
        if to % 7 == 0 {
            assert!(taker.submit());
            // A single write: a line is there or it is not.
            let mut line = String::new();
            writeln!(line, "taken {to}").unwrap();
            out.write_all(line.as_bytes()).unwrap();
            out.flush().unwrap();
        }
    }
}

#[test]
fn readers_of_rings_that_are_killed_leave_each_record_once() {
    let rounds = std::env::var(ROUNDS).map_or(20, |rounds| rounds.parse().unwrap());
    let dir = dir_in_memory();
    let mut acknowledged = 0;
    for life in 1..=rounds {
        acknowledged = round(dir.path(), life).max(acknowledged);
        let what = format!("life {life}");
        let found = taken(dir.path(), &what);
        for ring in 0..RINGS {
            let count = found.get(&ring).copied().unwrap_or(0);
            assert!(count >= acknowledged, "{what}: {count} of {acknowledged}");
        }
    }
    assert!(acknowledged > 0, "no round came to an acknowledgement");
}

/// Runs a life until it is killed; returns the last position that it reported as durable.
fn round(root: &Path, life: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "marks::takes_in_until_it_is_killed",
            "--exact",
            "--nocapture",
        ])
        .env(ROOT, root)
        .env(LIFE, life.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let said = |line: String| line.strip_prefix("taken ")?.parse().ok();
    let first = lines.find_map(said).unwrap();
    // The sleep waits for nothing; it only makes each moment different.
    std::thread::sleep(Duration::from_micros(life * 7_919 % 30_000));
    child.kill().unwrap();
    child.wait().unwrap();
    lines.filter_map(said).fold(first, u64::max)
}
