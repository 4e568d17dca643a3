//! Writers at full speed in another process, small rings, and an agent that drains at intervals:
//! every record that is passed on is right, and the records passed on and missed add up.

use std::path::Path;
use std::time::Duration;

use barograph_stream::SystemClock;
use barograph_stream::ingest::{
    IngestFile, IngestRecord, Producer, ProducerConfig, RecordPayload, ThreadRing, kind,
};

use crate::child;
use crate::ingest_specimen::declare;
use crate::pattern::{mix, rounds};

/// Number of threads that put.
const THREADS: u64 = 2;
/// Records of each ring.
const RECORDS: u64 = 256;

fn puts() -> u64 {
    rounds(600_000, 100_000_000)
}

fn length_of(n: u64) -> usize {
    mix(n) as usize % 1_009
}

/// Puts number `n` of a thread: mostly doubles, some texts, some frames; all of it depends on `n`.
fn put(ring: &mut ThreadRing, thread: u64, n: u64) {
    let bits = mix(n ^ thread << 56);
    let done = match n % 64 {
        63 => {
            let word = bits.to_le_bytes().repeat(127);
            ring.put_bytes(kind::BYTES, thread as u32, n, &word[..length_of(n)])
        }
        7 | 31 => ring.frame(thread as u32, n, bits),
        _ => ring.put(kind::FLOAT, thread as u32, n, bits),
    };
    assert!(done, "a ring that is lapped has always room");
}

/// Number of records that all puts of a thread take in a ring.
fn slots() -> u64 {
    let pieces = (0..puts()).filter(|n| n % 64 == 63);
    puts()
        + pieces
            .map(|n| length_of(n).div_ceil(16) as u64)
            .sum::<u64>()
}

fn check(record: &IngestRecord<'_>) -> u64 {
    let (thread, n) = (u64::from(record.series), record.time);
    let bits = mix(n ^ thread << 56);
    match record.payload {
        RecordPayload::Float(v) => assert_eq!(v.to_bits(), bits, "{record:?}"),
        RecordPayload::Frame(v) => assert_eq!((v, n % 64 == 7 || n % 64 == 31), (bits, true)),
        RecordPayload::Bytes(b) => {
            assert_eq!(b.len(), length_of(n));
            let word = bits.to_le_bytes();
            assert!(b.iter().zip(word.iter().cycle()).all(|(a, b)| a == b));
            return 1 + b.len().div_ceil(16) as u64;
        }
        other => panic!("{other:?} was never put"),
    }
    1
}

fn producer(path: &Path) -> Producer {
    let config = ProducerConfig {
        rings_max: THREADS as u32,
        ring_records: RECORDS,
        ..ProducerConfig::default()
    };
    let producer = Producer::create(path, config, &SystemClock::new()).unwrap();
    declare(&producer);
    producer
}

/// The writers' side: a child process. It does not end before the parent kills it, unless `puts`
/// are reached.
pub(crate) fn write(path: &Path, puts: u64) {
    let producer = producer(path);
    println!("ready");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut ring = producer.thread(&SystemClock::new()).unwrap();
            scope.spawn(move || {
                for n in 0..puts {
                    put(&mut ring, thread, n);
                    // The writer sometimes lets the reader catch up: values that nobody sees test
                    // nothing.
                    if n % 4_096 == 0 {
                        std::thread::sleep(Duration::from_micros(50));
                    }
                }
            });
        }
    });
}

/// Runs in a child, with the number of puts that the tests expect.
pub(crate) fn write_all(path: &Path) {
    write(path, puts());
}

fn only_file(path: &Path) -> IngestFile {
    let is_whole = |p: &std::path::PathBuf| p.extension().is_some_and(|e| e == "ingest");
    let entries = std::fs::read_dir(path).unwrap();
    let path = entries.map(|e| e.unwrap().path()).find(is_whole).unwrap();
    IngestFile::open(&path).unwrap()
}

/// The reader's state of each ring.
#[derive(Debug, Default)]
struct Seen {
    next: [u64; THREADS as usize],
    slots: u64,
    records: u64,
    missed: u64,
}

impl Seen {
    fn drain(&mut self, file: &mut IngestFile, records_max: u64) {
        let (next, slots) = (&mut self.next, &mut self.slots);
        let drained = file
            .drain(records_max, &mut |record| {
                *slots += check(&record);
                let next = &mut next[record.series as usize];
                assert!(record.time >= *next, "it came twice: {record:?}");
                *next = record.time + 1;
            })
            .unwrap();
        assert_eq!(drained.damaged, 0);
        self.records += drained.records;
        self.missed += drained.missed;
    }
}

#[test]
fn what_is_handed_on_is_right_and_all_adds_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = child::start("putters", dir.path());
    let mut file = only_file(dir.path());
    let mut seen = Seen::default();
    for round in 0u64.. {
        file.look().unwrap();
        seen.drain(&mut file, mix(round) % 2_000);
        for (ring, position) in (0..).zip(file.positions().collect::<Vec<_>>()) {
            file.set_tail(ring, position).unwrap();
        }
        if file.is_closed() && file.is_drained() {
            break;
        }
        // Mostly close behind the writers, sometimes far.
        if round % 50 == 0 {
            std::thread::sleep(Duration::from_micros(mix(round) % 300));
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(seen.slots + seen.missed, THREADS * slots(), "{seen:?}");
    assert_eq!(file.positions().sum::<u64>(), THREADS * slots());
    assert!(seen.records > 0 && seen.missed > 0, "{seen:?}");
    assert_eq!(
        seen.next,
        [puts(); THREADS as usize],
        "the end is never lost"
    );
    assert!(file.is_orphan());
}

#[test]
fn readers_that_die_and_come_again_add_up_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = child::start("putters", dir.path());
    let mut seen = Seen::default();
    for round in 0u64.. {
        // Each reader begins at the tails that the one before it has left.
        let mut file = only_file(dir.path());
        file.look().unwrap();
        for _ in 0..mix(round) % 20 {
            seen.drain(&mut file, u64::MAX);
            for (ring, position) in (0..).zip(file.positions().collect::<Vec<_>>()) {
                file.set_tail(ring, position).unwrap();
            }
            file.look().unwrap();
        }
        if file.is_closed() && file.is_drained() {
            break;
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(seen.slots + seen.missed, THREADS * slots(), "{seen:?}");
}

#[test]
fn a_writer_killed_at_any_moment_leaves_whole_what_it_committed() {
    for round in 0..rounds(30, 500) {
        let dir = tempfile::tempdir().unwrap();
        let mut child = child::start("endless_putters", dir.path());
        std::thread::sleep(Duration::from_micros(mix(round) % 3_000));
        let mut file = only_file(dir.path());
        file.look().unwrap();
        assert!(!file.is_orphan());
        child.kill().unwrap();
        child.wait().unwrap();
        let mut seen = Seen::default();
        // Records that came since the look must be seen first.
        let mut looks = 0;
        while !(file.is_orphan() && file.is_drained()) {
            file.look().unwrap();
            seen.drain(&mut file, u64::MAX);
            looks += 1;
            assert!(looks < 3);
        }
        assert!(!file.is_closed(), "nobody has said goodbye");
        assert_eq!(seen.slots + seen.missed, file.positions().sum::<u64>());
        file.remove().unwrap();
    }
}
