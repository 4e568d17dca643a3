//! A log segment that is damaged in ways that its checksums do not show, and every operation of a
//! reader on it. The tests and the fuzz target share it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::{
    ArchiveConfig, ArchiveLayout, DeclaredStream, DiskStorage, JournalEntry, Keeper, LogPart,
};
use barograph_model::{
    Descriptor, Kind, Labels, ManualClock, Name, Sample, Span, StreamKey, Unit, Value, ValueType,
};

const HEADER_BYTES: usize = 128;
const FRAME_BYTES: usize = 32;

/// Writes a segment with a stream of every type, samples, losses and an end.
pub(crate) fn specimen(dir: &Path) -> PathBuf {
    let config = ArchiveConfig::new(dir, "n1");
    let clock = Arc::new(ManualClock::at(0));
    let keeper =
        Keeper::start(config, Arc::new(DiskStorage), clock).expect("the directory takes files");
    keeper.journal().submit(&mut entries());
    drop(keeper);
    ArchiveLayout::new(dir, "n1").log(1)
}

fn entries() -> Vec<JournalEntry> {
    let values = [
        (ValueType::Int, Value::Int(-1)),
        (ValueType::Float, Value::Float(0.5)),
        (ValueType::Bool, Value::Bool(true)),
        (ValueType::Text, Value::text("some text")),
        (ValueType::Bytes, Value::Bytes([0, 255].into())),
        (ValueType::Json, Value::Json("[1]".into())),
        (ValueType::Floats, Value::Floats([0.5, -1.0].into())),
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
        let declared = DeclaredStream {
            descriptor: Arc::new(descriptor),
            life: 1,
            depth: 64,
        };
        entries.push(JournalEntry::Declare(StreamKey(key), declared));
        for number in 1..4 {
            let sample = Sample::measured(number as i64, value.clone());
            entries.push(JournalEntry::Sample(StreamKey(key), number, sample));
        }
    }
    // A sample of no stream: a loss is a frame too.
    entries.push(JournalEntry::Sample(
        StreamKey(9),
        1,
        Sample::measured(1, 1),
    ));
    entries
}

/// Overwrites parts of a segment; each edit is an offset (three bytes), a length (one byte) and
/// that many bytes. Then makes the checksums hold again as far as frames are recognised.
pub(crate) fn overlay(mut file: Vec<u8>, mut edits: &[u8]) -> Vec<u8> {
    while let [a, b, c, length, rest @ ..] = edits {
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % file.len();
        let (new, others) = rest.split_at(usize::from(*length).min(rest.len()));
        let room = new.len().min(file.len() - at);
        file[at..at + room].copy_from_slice(&new[..room]);
        edits = others;
    }
    let (header, mut left) = file.split_at_mut(HEADER_BYTES);
    let crc = crc32fast::hash(&header[..HEADER_BYTES - 4]);
    header[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    while left.len() >= FRAME_BYTES {
        let length = u32::from_le_bytes(left[4..8].try_into().expect("4 bytes")) as usize;
        let total = FRAME_BYTES.saturating_add(length.next_multiple_of(8));
        let Some((frame, rest)) = left.split_at_mut_checked(total) else {
            break;
        };
        let crc = crc32fast::hash(&frame[4..]);
        frame[..4].copy_from_slice(&crc.to_le_bytes());
        left = rest;
    }
    file
}

/// Opens, reads and follows a segment. Samples keep to the rules, whatever the bytes are. Returns
/// how many samples there were.
pub(crate) fn read_everything(path: &Path) -> u64 {
    let Ok(mut part) = LogPart::open(path) else {
        return 0;
    };
    let mut rows = 0;
    let mut last = vec![0; part.series().len()];
    let cancel = AtomicBool::new(false);
    let read = part.read(&|_| true, Span::ALL, &cancel, &mut |series, columns| {
        let of = &part.series()[series];
        assert_eq!(columns.values.value_type(), of.descriptor.value_type);
        assert_eq!(columns.len(), columns.values.len());
        for (number, ts) in columns.numbers.iter().zip(&columns.ts) {
            assert!(*number > of.before.max(last[series]) && *number <= of.archived);
            assert!(of.span.holds(*ts) && part.span().holds(*ts));
            last[series] = *number;
        }
        rows += columns.len() as u64;
        Ok(())
    });
    read.expect("nobody changes the file");
    assert_eq!(rows, part.rows());
    assert!(!part.follow().expect("nobody changes the file"));
    rows
}
