//! Any bytes as a log segment: open it, read all of it, follow it.
//!
//! Most random files end at a checksum. So the first byte of the input chooses: even, the rest is the
//! whole file; odd, the rest is edits of a segment with a few streams (a place of three bytes, a
//! length, and that many bytes), whose checksums are then made to hold again.

#![no_main]

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use barograph_archive::{ArchiveConfig, Declared, Disk, Entry, Keeper, Layout, LogPart};
use barograph_model::{
    Descriptor, Kind, Labels, ManualClock, Name, Sample, Span, StreamKey, Unit, Value, ValueType,
};
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 128;
const FRAME_BYTES: usize = 32;

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let (dir, whole) = place();
    let path = dir.path().join("fuzzed");
    let file = if choice % 2 == 0 {
        rest.to_vec()
    } else {
        overlay(whole.clone(), rest)
    };
    fs::write(&path, &file).expect("the temporary directory takes files");
    let Ok(mut part) = LogPart::open(&path) else {
        return;
    };
    let mut rows = 0;
    let read = part.read(&|_| true, Span::ALL, &AtomicBool::new(false), &mut |series, columns| {
        assert!(series < part.series().len());
        assert_eq!(columns.len(), columns.values.len());
        assert!(columns.numbers.is_sorted_by(|a, b| a < b));
        rows += columns.len() as u64;
        Ok(())
    });
    read.expect("nobody changes the file");
    assert_eq!(rows, part.rows());
    assert!(!part.follow().expect("nobody changes the file"));
});

/// Where files go, and an undamaged segment. One process, one place.
fn place() -> &'static (tempfile::TempDir, Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, Vec<u8>)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        let config = ArchiveConfig::new(dir.path(), "n1");
        let clock = std::sync::Arc::new(ManualClock::at(0));
        let keeper = Keeper::start(config, std::sync::Arc::new(Disk), clock);
        let keeper = keeper.expect("the temporary directory takes files");
        keeper.journal().submit(&mut entries());
        drop(keeper);
        let path = Layout::new(dir.path(), "n1").log(1);
        let whole = fs::read(path).expect("it was written just now");
        (dir, whole)
    })
}

fn entries() -> Vec<Entry> {
    let values = [
        (ValueType::Int, Value::Int(-1)),
        (ValueType::Float, Value::Float(0.5)),
        (ValueType::Bool, Value::Bool(true)),
        (ValueType::Text, Value::text("some text")),
    ];
    let mut entries = Vec::new();
    for (key, (value_type, value)) in (0..).zip(values) {
        let descriptor = Descriptor {
            name: Name::new(format!("some.{}", value_type.as_str())).expect("a name"),
            labels: Labels::new([("device", "vda")]).expect("labels"),
            value_type,
            unit: Unit::new("bytes").expect("a unit"),
            kind: Kind::Gauge,
            help: "Help.".into(),
        };
        let declared = Declared {
            descriptor: descriptor.into(),
            life: 1,
            depth: 64,
        };
        entries.push(Entry::Declare(StreamKey(key), declared));
        for number in 1..4 {
            let sample = Sample::measured(number as i64, value.clone());
            entries.push(Entry::Sample(StreamKey(key), number, sample));
        }
    }
    // One that does not fit: the loss is a frame too.
    entries.push(Entry::Sample(StreamKey(9), 1, Sample::measured(1, 1)));
    entries
}

fn overlay(mut file: Vec<u8>, mut edits: &[u8]) -> Vec<u8> {
    while let [a, b, c, length, rest @ ..] = edits {
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % file.len();
        let (new, others) = rest.split_at(usize::from(*length).min(rest.len()));
        let room = new.len().min(file.len() - at);
        file[at..at + room].copy_from_slice(&new[..room]);
        edits = others;
    }
    mend(&mut file);
    file
}

/// Makes the checksums hold, as far as frames can be told.
fn mend(file: &mut [u8]) {
    let (header, mut left) = file.split_at_mut(HEADER_BYTES);
    let crc = crc32fast::hash(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    while left.len() >= FRAME_BYTES {
        let length = u32::from_le_bytes(left[4..8].try_into().expect("4 bytes")) as usize;
        let total = FRAME_BYTES.saturating_add(length.next_multiple_of(8));
        let Some((frame, rest)) = left.split_at_mut_checked(total) else {
            return;
        };
        let crc = crc32fast::hash(&frame[4..]);
        frame[..4].copy_from_slice(&crc.to_le_bytes());
        left = rest;
    }
}
