//! A manifest with wrong content under a checksum that holds, and every operation of a reader on
//! it. The tests and the fuzz target share it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_archive::{
    ArchiveConfig, ArchiveReader, DeclaredStream, DiskStorage, JournalEntry, Keeper,
};
use barograph_model::{
    Descriptor, Kind, Labels, ManualClock, Name, Sample, Span, StreamKey, Unit, ValueType,
};

/// Offset of the checksum's digits in a manifest; `BODY_AT` is the offset of the bytes that it
/// covers.
const DIGITS_AT: usize = 13;
const BODY_AT: usize = 23;

/// Makes an archive with a sealed hour, and a log segment.
pub(super) fn specimen(root: &Path) {
    let config = ArchiveConfig {
        free_bytes_min: 0,
        ..ArchiveConfig::new(root, "n1")
    };
    let clock = Arc::new(ManualClock::at(0));
    let keeper =
        Keeper::start(config, Arc::new(DiskStorage), clock).expect("the directory takes files");
    let descriptor = Descriptor {
        name: Name::new("some.value").expect("a name"),
        labels: Labels::new([("device", "vda")]).expect("labels"),
        value_type: ValueType::Int,
        unit: Unit::new("bytes").expect("a unit"),
        kind: Kind::Gauge,
        help: "Help.".into(),
    };
    let declared = DeclaredStream {
        descriptor: Arc::new(descriptor),
        life: 1,
        depth: 64,
    };
    let mut entries = vec![JournalEntry::Declare(StreamKey(0), declared)];
    let sample = |n: u64| JournalEntry::Sample(StreamKey(0), n, Sample::measured(n as i64, 1));
    entries.extend((1..4).map(sample));
    keeper.journal().submit(&mut entries);
    keeper.seal().expect("the directory takes files");
    keeper.journal().submit(&mut vec![sample(4)]);
}

/// Returns the manifest with some bytes changed, and a checksum that holds.
pub(super) fn forge(whole: &[u8], changes: &[(u16, u8)]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let length = bytes.len() - BODY_AT;
    for (at, byte) in changes {
        bytes[BODY_AT + usize::from(*at) % length] = *byte;
    }
    let checksum = format!("{:08x}", crc32fast::hash(&bytes[BODY_AT..]));
    bytes[DIGITS_AT..DIGITS_AT + 8].copy_from_slice(checksum.as_bytes());
    bytes
}

/// Reads a whole archive: the result is an error or samples, and no panic.
pub(super) fn read_everything(root: &Path) {
    let Ok(view) = ArchiveReader::open(root).view() else {
        return;
    };
    let all: Vec<usize> = (0..view.series().len()).collect();
    let go_on = AtomicBool::new(false);
    for chunk in view.scan(&all, Span::ALL, &go_on).flatten() {
        assert_eq!(chunk.columns.len(), chunk.columns.values.len());
    }
    view.stretches(Span::ALL);
    drop(view.losses());
}
