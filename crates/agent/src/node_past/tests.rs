//! Tests of the reading of the archive for other nodes.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use barograph_archive::{
    ArchiveConfig, DeclaredStream, DiskStorage, JournalEntry, KeepConfig, Keeper,
};
use barograph_model::{Descriptor, Name, Selector, SeriesId, StreamKey, Unit, Value, ValueType};
use barograph_stream::SystemClock;

use super::*;

const BEGIN_NS: i64 = 1_700_000_000 * NS_PER_S;
/// Time between two samples: ten thousand of them are longer than the first attempt looks back.
const STEP_NS: i64 = NS_PER_S;

fn descriptor(name: &str, value_type: ValueType) -> Descriptor {
    let (name, unit) = (Name::new(name).unwrap(), Unit::new("bytes").unwrap());
    Descriptor::gauge(name, value_type, unit)
}

fn keeper(root: &Path) -> Keeper {
    let config = ArchiveConfig {
        durable: vec![Selector::parse("*").unwrap()],
        free_bytes_min: 0,
        keep: KeepConfig::FOREVER,
        ..ArchiveConfig::new(root, "n")
    };
    Keeper::start(config, Arc::new(DiskStorage), Arc::new(SystemClock::new())).unwrap()
}

/// Writes the numbers of a life, whose values are the numbers.
fn write(keeper: &Keeper, key: u32, life: i64, numbers: std::ops::Range<u64>) {
    let key = StreamKey(key);
    let declared = DeclaredStream {
        descriptor: Arc::new(descriptor("test.bytes", ValueType::Int)),
        life,
        depth: 1 << 20,
    };
    let mut entries = vec![JournalEntry::Declare(key, declared)];
    for number in numbers {
        let sample = Sample::measured(life + number as i64 * STEP_NS, number as i64);
        entries.push(JournalEntry::Sample(key, number, sample));
    }
    let position = keeper.journal().submit(&mut entries);
    let is_done = keeper
        .journal()
        .wait_durable(position, Duration::from_secs(60));
    assert!(is_done);
}

fn gap(life_ns: i64, after: u64, before: u64) -> PastGap {
    PastGap {
        series: descriptor("test.bytes", ValueType::Int).series_id(),
        after: LifePoint {
            life_ns,
            number: after,
        },
        after_ns: None,
        before: LifePoint {
            life_ns,
            number: before,
        },
    }
}

fn archive(dir: &Path, node: &str) -> PastArchive {
    PastArchive {
        reader: Arc::new(ArchiveReader::open(dir)),
        node: node.into(),
        is_failing: Arc::default(),
    }
}

/// The numbers of each run, which are their values too.
fn numbers_of(found: &PastSamples, gap: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for run in found.runs.iter().filter(|run| run.gap == gap) {
        assert!((1..=RUN_SAMPLES_MAX).contains(&run.samples.len()));
        for (number, sample) in (run.first..).zip(&run.samples) {
            assert_eq!(sample.value, Value::Int(number as i64));
            numbers.push(number);
        }
    }
    numbers
}

#[test]
fn the_numbers_of_a_gap_come_from_files_and_log_of_its_life() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = keeper(dir.path());
    let (first, second) = (BEGIN_NS, BEGIN_NS + 20_000 * STEP_NS);
    write(&keeper, 1, first, 1..50);
    write(&keeper, 2, second, 1..9_000);
    keeper.seal().unwrap();
    write(&keeper, 3, second, 9_000..10_001);
    let archive = archive(dir.path(), "n");
    let gaps = [
        gap(second, 8_990, 9_500),
        gap(second, 20, 2_000),
        gap(first, 40, 60),
        gap(first + 1, 1, 100),
        PastGap {
            series: SeriesId([9; 16]),
            ..gap(second, 1, 100)
        },
        PastGap {
            after_ns: Some(second + 9_998 * STEP_NS),
            ..gap(second, 9_998, 20_000)
        },
    ];
    let found = archive.samples_of(&gaps);
    assert_eq!(found.looked, gaps.len());
    let expect: [Vec<u64>; 6] = [
        (8_991..9_500).collect(),
        (21..2_000).collect(),
        (41..50).collect(),
        Vec::new(),
        Vec::new(),
        vec![9_999, 10_000],
    ];
    for (place, expect) in expect.iter().enumerate() {
        assert_eq!(numbers_of(&found, place), *expect, "gap {place}");
    }
    let other = PastArchive {
        node: "other".into(),
        ..archive.clone()
    };
    assert!(other.samples_of(&gaps).runs.is_empty());
}

#[test]
fn ended_lives_are_listed_and_read_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = keeper(dir.path());
    let lives = [0, 1_000, 2_000, 3_000].map(|second| BEGIN_NS + second * STEP_NS);
    for (key, life) in (1..).zip(lives) {
        write(&keeper, key, life, 1..20);
    }
    let archive = archive(dir.path(), "n");
    let at = |life_ns, number| LifePoint { life_ns, number };
    let series = descriptor("test.bytes", ValueType::Int).series_id();
    let query = EndedQuery {
        selectors: vec![Selector::parse("test.*").unwrap()],
        has: Arc::new([(series, at(lives[0], 15))].into()),
        known_until_ns: None,
        present: [(series, lives[3])].into(),
        series_max: 10,
    };
    let list = archive.ended(&query);
    assert!(!list.is_failed);
    let [one] = &list.series[..] else {
        panic!("{list:?}");
    };
    assert_eq!(
        (one.gap.after, one.gap.before),
        (at(lives[0], 15), at(lives[3], 0))
    );
    let found = archive.samples_of(&[one.gap]);
    let runs = found.runs.iter();
    let runs: Vec<_> = runs
        .map(|r| (r.life_ns, r.first, r.samples.len()))
        .collect();
    assert_eq!(
        runs,
        [(lives[0], 16, 4), (lives[1], 1, 19), (lives[2], 1, 19)]
    );
    // Without a present life the last one has ended too.
    let ended = EndedQuery {
        present: HashMap::new(),
        ..query.clone()
    };
    let found = archive.samples_of(&[archive.ended(&ended).series[0].gap]);
    assert_eq!(found.runs.len(), 4);
    // Series that the asking node does not know: those that began after what it knows.
    for (known_until_ns, expect) in [(None, 0), (Some(lives[1]), 1), (Some(lives[3]), 0)] {
        let unknown = EndedQuery {
            has: Arc::default(),
            known_until_ns,
            ..ended.clone()
        };
        assert_eq!(archive.ended(&unknown).series.len(), expect);
    }
    let whole = EndedQuery {
        has: Arc::new([(series, at(lives[3], 19))].into()),
        ..ended.clone()
    };
    let full = EndedQuery {
        series_max: 0,
        ..ended
    };
    assert!(archive.ended(&whole).series.is_empty());
    assert_eq!(archive.ended(&full).unlisted, 1);
}

#[test]
fn an_archive_that_cannot_be_read_has_failed_and_is_read_later() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = keeper(dir.path());
    write(&keeper, 1, BEGIN_NS, 1..20);
    drop(keeper);
    let (there, away) = (dir.path().join("nodes/n/log"), dir.path().join("away"));
    std::fs::rename(&there, &away).unwrap();
    std::fs::write(&there, "no directory").unwrap();
    let archive = archive(dir.path(), "n");
    let gaps = [gap(BEGIN_NS, 1, 10), gap(BEGIN_NS, 2, 10)];
    let failed = archive.samples_of(&gaps);
    assert_eq!((failed.runs.len(), failed.failed), (0, vec![0, 1]));
    assert!(archive.is_failing.load(Ordering::Relaxed));
    std::fs::remove_file(&there).unwrap();
    std::fs::rename(&away, &there).unwrap();
    assert_eq!(archive.samples_of(&gaps).runs.len(), 2);
    assert!(!archive.is_failing.load(Ordering::Relaxed));
}

#[test]
fn a_reading_ends_at_its_bound_and_the_next_one_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let keeper = keeper(dir.path());
    let count = SAMPLES_MAX as u64 + 5_000;
    write(&keeper, 1, BEGIN_NS, 1..count);
    let archive = archive(dir.path(), "n");
    let gaps = [gap(BEGIN_NS, 1, count), gap(BEGIN_NS, 10, 20)];
    let found = archive.samples_of(&gaps);
    let numbers = numbers_of(&found, 0);
    assert_eq!((numbers.len(), found.looked), (SAMPLES_MAX, 1));
    let after = *numbers.last().unwrap();
    let gaps = [gap(BEGIN_NS, after, count), gaps[1]];
    let found = archive.samples_of(&gaps);
    assert_eq!(
        numbers_of(&found, 0),
        (after + 1..count).collect::<Vec<_>>()
    );
    assert_eq!(numbers_of(&found, 1), (11..20).collect::<Vec<_>>());
}
