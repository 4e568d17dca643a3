//! Ingest files with both of their sides in one process.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use barograph_model::{Kind, ValueType};
use barograph_stream::SystemClock;
use barograph_stream::ingest::{
    BLOB_BYTES_MAX, DrainResult, IngestDeclaration, IngestFile, OverflowPolicy, Producer,
    ProducerConfig, PublicationReaders, RecordPayload, ThreadRing, kind,
};
use tempfile::TempDir;

use crate::ingest_specimen::{RECORDS, declare};
use crate::pattern::{mix, rounds};

const HEADER_BYTES: u64 = 4_096;
/// Offsets in a ring's head.
pub(crate) const RESERVED: u64 = 8;
pub(crate) const TAIL: u64 = 128;

/// A copy of a record, for tests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Owned {
    pub ring: u32,
    pub series: u32,
    pub time: u64,
    pub kind: u8,
    pub bits: u64,
    pub bytes: Vec<u8>,
}

/// Both sides of a file.
pub(crate) struct Both {
    pub dir: TempDir,
    pub producer: Option<Producer>,
    pub file: IngestFile,
    pub clock: SystemClock,
}

impl Both {
    pub(crate) fn new(rings_max: u32, ring_records: u64, overflow: OverflowPolicy) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = SystemClock::new();
        let config = ProducerConfig {
            rings_max,
            ring_records,
            overflow,
            ..ProducerConfig::default()
        };
        let producer = Producer::create(dir.path(), config, &clock).unwrap();
        let file = IngestFile::open(producer.path()).unwrap();
        Self {
            dir,
            producer: Some(producer),
            file,
            clock,
        }
    }

    pub(crate) fn small() -> Self {
        Self::new(4, RECORDS, OverflowPolicy::DropOldest)
    }

    pub(crate) fn producer(&self) -> &Producer {
        self.producer.as_ref().unwrap()
    }

    pub(crate) fn thread(&self) -> ThreadRing {
        self.producer().thread(&self.clock).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(crate) fn read(&mut self) -> (Vec<Owned>, DrainResult) {
        self.file.look().unwrap();
        drain(&mut self.file, u64::MAX)
    }

    /// Moves an unused ring to a position, as if that number of records had been put.
    pub(crate) fn move_to(&self, ring: u64, position: u64) {
        for word in [0, RESERVED, TAIL] {
            self.set(ring, word, position);
        }
    }

    pub(crate) fn set(&self, ring: u64, word: u64, value: u64) {
        let file = OpenOptions::new().write(true).open(self.path()).unwrap();
        let at = HEADER_BYTES + ring * 256 + word;
        file.write_all_at(&value.to_le_bytes(), at).unwrap();
    }

    /// The word at this offset of a ring's head.
    pub(crate) fn get(&self, ring: u64, word: u64) -> u64 {
        let file = OpenOptions::new().read(true).open(self.path()).unwrap();
        let mut bytes = [0; 8];
        let at = HEADER_BYTES + ring * 256 + word;
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_le_bytes(bytes)
    }
}

pub(crate) fn drain(file: &mut IngestFile, records_max: u64) -> (Vec<Owned>, DrainResult) {
    let mut found = Vec::new();
    let mut positions: Vec<u64> = file.positions().collect();
    let drained = file
        .drain(records_max, &mut |record| {
            let position = &mut positions[record.ring as usize];
            assert!(*position < record.next, "a ring is read in order");
            *position = record.next;
            let (kind, bits, bytes) = match record.payload {
                RecordPayload::Int(v) => (kind::INT, v as u64, &[][..]),
                RecordPayload::Float(v) => (kind::FLOAT, v.to_bits(), &[][..]),
                RecordPayload::Bool(v) => (kind::BOOL, u64::from(v), &[][..]),
                RecordPayload::Frame(v) => (kind::FRAME, v, &[][..]),
                RecordPayload::Ack { id, .. } => (kind::ACK, id, &[][..]),
                RecordPayload::Text(b) => (kind::TEXT, 0, b),
                RecordPayload::Bytes(b) => (kind::BYTES, 0, b),
                RecordPayload::Json(b) => (kind::JSON, 0, b),
                RecordPayload::Floats(b) => (kind::FLOATS, 0, b),
                RecordPayload::Missed(_) | RecordPayload::Damaged => panic!("whole records alone"),
            };
            found.push(Owned {
                ring: record.ring,
                series: record.series,
                time: record.time,
                kind,
                bits,
                bytes: bytes.to_vec(),
            });
        })
        .unwrap();
    let reached = file.positions().zip(&positions);
    assert!(reached.into_iter().all(|(reached, next)| *next <= reached));
    assert_eq!(drained.records, found.len() as u64);
    (found, drained)
}

pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|i| mix(seed ^ i) as u8).collect()
}

/// Puts numbers, each with itself as the time.
pub(crate) fn put_numbers(ring: &mut ThreadRing, numbers: std::ops::Range<u64>) {
    for n in numbers {
        assert!(ring.put(kind::INT, 7, n, mix(n)));
    }
}

pub(crate) fn check_numbers(found: &[Owned], numbers: std::ops::Range<u64>) {
    assert_eq!(found.len() as u64, numbers.end - numbers.start);
    for (found, n) in found.iter().zip(numbers) {
        assert_eq!((found.kind, found.series), (kind::INT, 7));
        assert_eq!((found.time, found.bits), (n, mix(n)));
    }
}

#[test]
fn every_kind_of_value_comes_as_it_was_put() {
    let mut both = Both::new(1, 1 << 16, OverflowPolicy::DropOldest);
    let mut ring = both.thread();
    let mut expect = Vec::new();
    let mut put = |ring: &mut ThreadRing, kind, series, bits, bytes: &[u8]| {
        let time = mix(expect.len() as u64);
        let done = match kind {
            kind::INT | kind::FLOAT | kind::BOOL => ring.put(kind, series, time, bits),
            kind::FRAME => ring.frame(series, time, bits),
            _ => ring.put_bytes(kind, series, time, bytes),
        };
        assert!(done);
        expect.push(Owned {
            ring: 0,
            series,
            time,
            kind,
            bits,
            bytes: bytes.to_vec(),
        });
    };
    for int in [0, 1, -1, i64::MIN, i64::MAX] {
        put(&mut ring, kind::INT, 0, int as u64, &[]);
    }
    for float in [0.0, -0.0, 0.1, f64::NAN, f64::INFINITY, 5e-324] {
        put(&mut ring, kind::FLOAT, 1, float.to_bits(), &[]);
    }
    for flag in [0, 1] {
        put(&mut ring, kind::BOOL, (1 << 24) - 1, flag, &[]);
    }
    for kind in [kind::TEXT, kind::BYTES, kind::JSON, kind::FLOATS] {
        for length in [0, 1, 15, 16, 17, 1_000, BLOB_BYTES_MAX - 1, BLOB_BYTES_MAX] {
            put(
                &mut ring,
                kind,
                2,
                0,
                &bytes(9, length).to_ascii_lowercase(),
            );
        }
    }
    for number in [0, 1, u64::MAX] {
        put(&mut ring, kind::FRAME, 3, number, &[]);
    }
    let (found, drained) = both.read();
    // A text is cut at the end of a character, so invalid text is only the same at its beginning.
    for (found, expect) in found.iter().zip(&expect) {
        assert_eq!(found, expect);
    }
    assert_eq!(found.len(), expect.len());
    assert_eq!((drained.missed, drained.damaged), (0, 0));
    assert_eq!(both.read(), (Vec::new(), DrainResult::default()));
}

#[test]
fn declarations_come_once_and_in_order() {
    let mut both = Both::small();
    let all = |file: &mut IngestFile| {
        file.look().unwrap();
        let mut found = Vec::new();
        file.declarations(&mut |d| found.push(d)).unwrap();
        found
    };
    assert_eq!(all(&mut both.file), []);
    declare(both.producer());
    let found = all(&mut both.file);
    assert_eq!(found.len(), 9);
    assert!(
        matches!(&found[0], IngestDeclaration::Process { application, .. } if application == "specimen")
    );
    assert!(matches!(
        &found[1],
        IngestDeclaration::Publication {
            readers: PublicationReaders::All,
            ..
        }
    ));
    assert_eq!(all(&mut both.file), []);
    let one = IngestDeclaration::Value {
        publication: 0,
        name: "late".into(),
        value_type: ValueType::Int,
        kind: Kind::Counter,
        unit: String::new(),
        help: "x".repeat(9_000),
        bytes_max: 0,
    };
    let mut put = 0;
    while both.producer().declare(&one) {
        put += 1;
    }
    assert!((110..=116).contains(&put), "as many as there is room for");
    assert_eq!(all(&mut both.file), vec![one; put]);
}

#[test]
fn a_frame_appears_at_once() {
    let mut both = Both::small();
    let mut ring = both.thread();
    put_numbers(&mut ring, 0..50);
    assert_eq!(both.read().0, []);
    assert!(ring.frame(3, 50, 1));
    let (found, _) = both.read();
    check_numbers(&found[..50], 0..50);
    assert_eq!((found[50].kind, found[50].series), (kind::FRAME, 3));
    assert_eq!(found.len(), 51);
}

#[test]
fn a_frame_larger_than_the_ring_comes_in_parts_and_none_of_it_twice() {
    let mut both = Both::small();
    let mut ring = both.thread();
    let (mut seen, mut missed) = (Vec::new(), 0);
    for n in 0..10_000 {
        put_numbers(&mut ring, n..n + 1);
        if n % 40 == 0 {
            let (found, drained) = both.read();
            seen.extend(found);
            missed += drained.missed;
        }
    }
    ring.commit();
    seen.extend(both.read().0);
    assert_eq!(missed, 0, "a reader that often is never lapped");
    check_numbers(&seen, 0..10_000);
}

#[test]
fn what_a_lapped_reader_missed_is_counted_exactly() {
    for puts in [1, 223, 224, 225, 255, 256, 257, 300, 1_000, 4_096, 99_999] {
        let mut both = Both::small();
        let mut ring = both.thread();
        put_numbers(&mut ring, 0..puts);
        ring.commit();
        let (found, drained) = both.read();
        assert_eq!(found.len() as u64 + drained.missed, puts);
        assert_eq!(drained.damaged, 0);
        check_numbers(&found, drained.missed..puts);
        // An eighth of the ring may be being written.
        assert!(found.len() as u64 >= puts.min(RECORDS * 7 / 8), "{puts}");
        assert!(!drained.has_more && both.file.is_drained());
    }
}

#[test]
fn a_blocking_ring_refuses_and_loses_nothing_but_what_is_dropped() {
    let mut both = Both::new(1, RECORDS, OverflowPolicy::Block);
    let mut ring = both.thread();
    put_numbers(&mut ring, 0..RECORDS);
    assert!(!ring.put(kind::INT, 7, 0, 0), "it is full");
    assert!(!ring.put_bytes(kind::TEXT, 7, 0, b""), "it is full");
    assert!(!ring.frame(0, 0, 0), "it is full");
    ring.drop_one();
    let (found, drained) = both.read();
    check_numbers(&found, 0..RECORDS);
    assert_eq!((drained.missed, both.file.dropped()), (0, 1));
    assert!(!ring.put(kind::INT, 7, 0, 0), "read, but not safe");
    both.file.set_tail(0, 60).unwrap();
    assert!(
        !ring.put_bytes(kind::BYTES, 7, 0, &[1; 16 * 60]),
        "it has 61 records"
    );
    put_numbers(&mut ring, RECORDS..RECORDS + 60);
    assert!(!ring.put(kind::INT, 7, 0, 0));
    let (found, drained) = both.read();
    check_numbers(&found, RECORDS..RECORDS + 60);
    assert_eq!(drained.missed, 0);
    // A tail that no reader can have reached must not break anything.
    both.file.set_tail(0, u64::MAX).unwrap();
    put_numbers(&mut ring, RECORDS + 60..3 * RECORDS);
}

#[test]
fn a_blocking_writer_at_full_speed_loses_nothing() {
    let mut both = Both::new(1, RECORDS, OverflowPolicy::Block);
    let puts = rounds(200_000, 20_000_000);
    let mut ring = both.thread();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for n in 0..puts {
                while !ring.put(kind::INT, 7, n, mix(n)) {
                    std::thread::yield_now();
                }
            }
            drop(ring);
        });
        let mut next = 0;
        while next < puts {
            let (found, drained) = both.read();
            assert_eq!((drained.missed, drained.damaged), (0, 0));
            check_numbers(&found, next..next + found.len() as u64);
            next += found.len() as u64;
            both.file.set_tail(0, next).unwrap();
            std::thread::yield_now();
        }
    });
}

#[test]
fn long_values_lie_across_every_border_of_ring_batch_and_commit() {
    // A ring of several batches, with values of all lengths at all places, more than once around.
    let mut both = Both::new(1, 1 << 15, OverflowPolicy::DropOldest);
    let mut ring = both.thread();
    let (mut put, mut seen) = (0u64, 0u64);
    for round in 0..rounds(30, 3_000) {
        let before = put;
        let mut slots = 0;
        loop {
            let length = length_of(put);
            let needed = 1 + length.div_ceil(16) as u64;
            if slots + needed > 28_000 {
                break;
            }
            slots += needed;
            assert!(ring.put_bytes(kind::BYTES, 5, put, &bytes(put, length)));
            put += 1;
        }
        assert!(put > before);
        ring.commit();
        both.file.look().unwrap();
        // Sometimes in one drain, sometimes in many, also with a bound smaller than a value.
        let records_max = [u64::MAX, 1, 4_096, 5_000, 100][round as usize % 5];
        loop {
            let (found, drained) = drain(&mut both.file, records_max);
            assert_eq!((drained.missed, drained.damaged), (0, 0));
            for value in found {
                assert_eq!(value.time, seen);
                assert!(value.bytes == bytes(seen, length_of(seen)), "value {seen}");
                seen += 1;
            }
            if !drained.has_more {
                break;
            }
        }
        assert_eq!(seen, put);
    }
}

/// Mostly short lengths, some the longest possible.
fn length_of(n: u64) -> usize {
    let random = mix(n) as usize;
    match random % 8 {
        0 => BLOB_BYTES_MAX - (random >> 8) % 40,
        1 | 2 => (random >> 8) % BLOB_BYTES_MAX,
        _ => (random >> 8) % 100,
    }
}

#[test]
fn lapped_long_values_are_whole_or_missed() {
    let mut both = Both::small();
    let mut ring = both.thread();
    let longest = ring.blob_bytes_max();
    assert_eq!(longest, (RECORDS as usize / 4 - 1) * 16);
    let (mut slots, mut next) = (0, 0);
    let (mut seen, mut missed) = (0, 0);
    for round in 0..2_000 {
        for _ in 0..mix(round) % 40 {
            let length = mix(next) as usize % (longest + 1);
            assert!(ring.put_bytes(kind::TEXT, 1, next, &vec![b'a'; length]));
            slots += 1 + length.div_ceil(16) as u64;
            next += 1;
        }
        ring.commit();
        let (found, drained) = both.read();
        assert_eq!(drained.damaged, 0);
        missed += drained.missed;
        for value in &found {
            assert_eq!(value.bytes.len(), mix(value.time) as usize % (longest + 1));
            seen += 1 + value.bytes.len().div_ceil(16) as u64;
        }
        assert_eq!(seen + missed, slots, "every place is accounted for");
        if let Some(last) = found.last() {
            assert_eq!(last.time, next - 1);
        }
    }
    assert!(missed > 0);
}

#[test]
fn a_value_too_long_for_its_ring_is_cut() {
    let mut both = Both::small();
    let mut ring = both.thread();
    let text = "é".repeat(2_000);
    let longest = ring.blob_bytes_max();
    assert!(ring.put_bytes(kind::TEXT, 1, 0, text.as_bytes()));
    assert!(ring.put_bytes(kind::TEXT, 1, 0, &text.as_bytes()[1..]));
    assert!(ring.put_bytes(kind::FLOATS, 1, 0, text.as_bytes()));
    ring.commit();
    let lengths: Vec<usize> = both.read().0.iter().map(|v| v.bytes.len()).collect();
    assert_eq!(lengths, [longest, longest - 1, longest]);
}

#[test]
fn a_ring_goes_to_another_thread_with_its_positions() {
    let mut both = Both::small();
    let mut first = both.thread();
    put_numbers(&mut first, 0..10);
    drop(first);
    // The records were not read yet, so a new ring is better.
    let mut second = both.thread();
    put_numbers(&mut second, 0..1);
    let (found, _) = both.read();
    assert_eq!(
        found.iter().filter(|v| v.ring == 0).count(),
        10,
        "a thread's end commits"
    );
    both.file.set_tail(0, 10).unwrap();
    let mut third = both.thread();
    put_numbers(&mut third, 10..20);
    third.commit();
    let (found, drained) = both.read();
    assert!(found.iter().all(|v| v.ring == 0));
    check_numbers(&found, 10..20);
    assert_eq!(drained.missed, 0);
}

#[test]
fn more_threads_than_rings_take_those_whose_threads_have_ended() {
    let mut both = Both::new(2, RECORDS, OverflowPolicy::DropOldest);
    let held = both.thread();
    for n in 0..100 {
        let mut ring = both.thread();
        put_numbers(&mut ring, n * 100..(n + 1) * 100);
    }
    let (found, drained) = both.read();
    assert_eq!(found.len() as u64 + drained.missed, 10_000);
    check_numbers(&found, drained.missed..10_000);
    let both_held = (held, both.thread());
    assert!(both.producer().thread(&both.clock).is_none());
    both.producer().count_homeless(3);
    both.file.look().unwrap();
    assert_eq!((both.file.dropped(), both.producer().homeless()), (3, 3));
    drop(both_held);
}
