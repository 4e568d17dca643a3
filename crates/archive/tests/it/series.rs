//! Many series that come and go: their descriptions keep to their bound, and history with them.

use std::sync::Arc;

use barograph_archive::{
    ArchiveConfig, ArchiveLayout, ArchiveReader, DeclaredStream, JournalEntry,
};
use barograph_model::{Descriptor, Labels, NS_PER_S, Name, StreamKey, Unit, ValueType};

use crate::support::{SOON, assert_sound, config, losses, sample, start};

const HOUR_NS: i64 = 3_600 * NS_PER_S;
const BEGIN: i64 = 1_700_000_000 / 3_600 * HOUR_NS;
const HOURS: u64 = 12;
/// Number of series of an hour, with long labels.
const SERIES: u32 = 64;
const LABEL_BYTES: usize = 200;

fn declare(hour: u64, key: u32) -> JournalEntry {
    let value = format!("{hour:03}.{key:03}.{}", "x".repeat(LABEL_BYTES));
    let descriptor = Descriptor {
        labels: Labels::new([("rank", value)]).unwrap(),
        ..Descriptor::gauge(
            Name::new("app.job.value").unwrap(),
            ValueType::Int,
            Unit::new("").unwrap(),
        )
    };
    let declared = DeclaredStream {
        descriptor: Arc::new(descriptor),
        life: hour as i64 + 1,
        depth: 16,
    };
    JournalEntry::Declare(StreamKey(key), declared)
}

#[test]
fn the_oldest_history_goes_with_its_series() {
    let dir = tempfile::tempdir().unwrap();
    let bytes_max = 4 * u64::from(SERIES) * 512;
    let keeper = start(ArchiveConfig {
        series_bytes_max: bytes_max,
        ..config(dir.path())
    });
    let keeper = keeper.unwrap();
    for hour in 0..HOURS {
        let mut entries: Vec<JournalEntry> = (0..SERIES).map(|key| declare(hour, key)).collect();
        let ts = BEGIN + hour as i64 * HOUR_NS;
        entries.extend((0..SERIES).map(|key| sample(key, 1, ts, 1)));
        entries.extend((0..SERIES).map(|key| JournalEntry::Retire(StreamKey(key))));
        let position = keeper.journal().submit(&mut entries);
        keeper.seal().unwrap();
        assert!(keeper.journal().wait_durable(position, SOON));
    }
    let view = ArchiveReader::open(dir.path()).view().unwrap();
    // The series of the newest hour are there.
    let newest = format!("{:03}.", HOURS - 1);
    let labels = view.series().iter().map(|series| {
        let labels = &series.descriptor.labels;
        labels.get("rank").unwrap().to_owned()
    });
    let labels: Vec<String> = labels.collect();
    let of_newest = labels.iter().filter(|label| label.starts_with(&newest));
    assert_eq!(of_newest.count(), SERIES as usize);
    let kept = labels.len() as u64;
    assert!(kept * LABEL_BYTES as u64 <= bytes_max, "{kept}");
    let all = HOURS * u64::from(SERIES);
    assert!(kept < all);
    // The deleted samples are counted.
    assert_eq!(losses(dir.path()).shed_samples, all - kept);
    let manifest = std::fs::metadata(ArchiveLayout::new(dir.path(), "n1").manifest()).unwrap();
    assert!(manifest.len() < 4 * bytes_max, "{}", manifest.len());
    assert_sound(dir.path());
}
