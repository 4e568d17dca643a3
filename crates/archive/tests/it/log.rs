//! Log segments as files: what is submitted is read back, and whatever happens to the bytes, no
//! sample is read that was not there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_archive::{ArchiveError, Journal, JournalEntry, LogPart};
use barograph_model::{Quality, Sample, Span, StreamKey, Value, ValueType};
use proptest::prelude::*;

use crate::exercise;
use crate::support::{
    Everything, SOON, add, config, declare, dir_in_memory, everything, read, sample, segments,
    start, told,
};

fn commit(journal: &Journal, mut entries: Vec<JournalEntry>) {
    let position = journal.submit(&mut entries);
    assert!(journal.wait_durable(position, SOON));
}

/// Writes a segment with streams of every type, losses, two frames of samples, and an end.
fn specimen(dir: &Path) -> PathBuf {
    let keeper = start(config(dir)).unwrap();
    let journal = keeper.journal();
    commit(
        &journal,
        vec![
            declare(0, "durable.int", ValueType::Int, -5),
            declare(1, "durable.text", ValueType::Text, 5),
            sample(0, 1, -10, 7),
            sample(1, 2, -9, Value::text("été")),
            sample(9, 1, 0, 1),
        ],
    );
    commit(
        &journal,
        vec![
            declare(2, "durable.bool", ValueType::Bool, 6),
            sample(0, 2, 100, 8),
            sample(2, 1, 101, true),
            sample(1, 3, 102, Value::text("x")),
        ],
    );
    drop(keeper);
    segments(dir).remove(0)
}

fn whole(path: &Path) -> Everything {
    let mut found = Everything::new();
    add(&LogPart::open(path).unwrap(), &mut found);
    found
}

/// Asserts that the samples found are the first ones of each series.
fn assert_begins(found: &Everything, all: &Everything, what: &str) {
    for (series, samples) in found {
        let all = all
            .get(series)
            .unwrap_or_else(|| panic!("{what}: {series:?}"));
        assert!(all.starts_with(samples), "{what}: {series:?} {samples:?}");
    }
}

#[test]
fn a_segment_tells_what_is_in_it() {
    let dir = dir_in_memory();
    let part = LogPart::open(&specimen(dir.path())).unwrap();
    assert_eq!(
        (part.node(), part.sequence(), part.is_closed()),
        ("n1", 1, true)
    );
    assert_eq!((part.rows(), part.span()), (5, Span { from: -10, to: 102 }));
    assert_eq!(part.losses().failed_samples, 1);
    assert_eq!(part.bytes(), fs::metadata(part.path()).unwrap().len());
    let told = part.series().iter().map(|s| {
        let Span { from, to } = s.span;
        let (life, depth, before, archived, rows) = (s.life, s.depth, s.before, s.archived, s.rows);
        format!(
            "{} {life} {depth}: {before} {archived} {rows} {from}..={to}",
            s.descriptor
        )
    });
    insta::assert_snapshot!(told.collect::<Vec<_>>().join("\n"), @r#"
    durable.int{device=vda,mount=/é,{}"} -5 1048576: 0 2 2 -10..=100
    durable.text{device=vda,mount=/é,{}"} 5 1048576: 0 3 2 -9..=102
    durable.bool{device=vda,mount=/é,{}"} 6 1048576: 0 1 1 101..=101
    "#);
    assert_eq!(part.series()[0].id, part.series()[0].descriptor.series_id());
}

#[test]
fn reads_what_is_wanted_of_a_span() {
    let dir = dir_in_memory();
    let part = LogPart::open(&specimen(dir.path())).unwrap();
    let rows = |from, to| {
        let chunks = read(&part, Span { from, to });
        chunks
            .iter()
            .map(|(_, columns)| columns.len())
            .sum::<usize>()
    };
    assert_eq!(rows(i64::MIN, i64::MAX), 5);
    assert_eq!(rows(-10, -10), 1);
    assert_eq!(rows(-9, 100), 2);
    assert_eq!(rows(103, i64::MAX), 0);
    let mut seen = Vec::new();
    let wanted = |s: &barograph_archive::LogSeries| s.descriptor.value_type == ValueType::Text;
    let cancel = AtomicBool::new(false);
    part.read(&wanted, Span::ALL, &cancel, &mut |series, columns| {
        seen.push((series, columns.numbers));
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, [(1, vec![2, 3])]);
    cancel.store(true, Ordering::Relaxed);
    let cancelled = part.read(&wanted, Span::ALL, &cancel, &mut |_, _| Ok(()));
    assert!(matches!(cancelled, Err(ArchiveError::Cancelled)));
}

#[test]
fn a_segment_cut_at_any_byte_has_what_was_whole() {
    let dir = dir_in_memory();
    let path = specimen(dir.path());
    let (bytes, all) = (fs::read(&path).unwrap(), whole(&path));
    let mut rows = 0;
    for length in 0..=bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        let mut found = Everything::new();
        if let Ok(part) = LogPart::open(&path) {
            add(&part, &mut found);
            assert!(part.rows() >= rows && part.bytes() <= length as u64);
            rows = part.rows();
        }
        assert_begins(&found, &all, &format!("{length} bytes"));
    }
    assert_eq!(rows, 5);
}

#[test]
fn a_segment_with_any_byte_changed_invents_nothing() {
    let dir = dir_in_memory();
    let path = specimen(dir.path());
    let (bytes, all) = (fs::read(&path).unwrap(), whole(&path));
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            fs::write(&path, &damaged).unwrap();
            let mut found = Everything::new();
            if let Ok(part) = LogPart::open(&path) {
                add(&part, &mut found);
            }
            assert_begins(&found, &all, &format!("byte {at} ^ {flip}"));
        }
    }
}

#[test]
fn a_reader_follows_its_writer_and_a_cut() {
    let dir = dir_in_memory();
    let path = specimen(dir.path());
    let (bytes, all) = (fs::read(&path).unwrap(), whole(&path));
    fs::write(&path, &bytes[..128]).unwrap();
    let mut part = LogPart::open(&path).unwrap();
    assert!(!part.follow().unwrap());
    let mut changes = 0;
    for length in 129..=bytes.len() {
        // The file grows in place, as its writer makes it grow.
        fs::write(&path, &bytes[..length]).unwrap();
        changes += usize::from(part.follow().unwrap());
    }
    assert_eq!(changes, 6, "frames, of which one says that it is the last");
    assert!(part.is_closed() && !part.follow().unwrap());
    let mut found = Everything::new();
    add(&part, &mut found);
    assert_eq!(found, all);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(bytes.len() as u64 - 48).unwrap();
    // The frames in its index are gone: a read ends before them, and the next look starts anew.
    read(&part, Span::ALL);
    assert!(part.follow().unwrap() && !part.is_closed());
    file.set_len(128).unwrap();
    assert_eq!(read(&part, Span::ALL), []);
    assert!(part.follow().unwrap());
    assert_eq!((part.rows(), part.series().len()), (0, 0));
}

#[test]
fn torn_tails_are_cut_and_counted_and_strangers_set_aside() {
    let dir = dir_in_memory();
    let path = specimen(dir.path());
    let (bytes, all) = (fs::read(&path).unwrap(), whole(&path));
    let length = bytes.len() as u64;
    let place = |sequence: u64| path.with_file_name(format!("{sequence:016}.log"));
    let header = |sequence: u64| {
        let mut header = bytes[..128].to_vec();
        header[16..24].copy_from_slice(&sequence.to_le_bytes());
        let crc = crc32fast::hash(&header[..124]);
        header[124..].copy_from_slice(&crc.to_le_bytes());
        header
    };
    let torn = [header(2), bytes[128..bytes.len() - 48 - 3].to_vec()].concat();
    fs::write(place(2), &torn).unwrap();
    fs::write(place(3), b"BARO").unwrap();
    fs::write(place(4), vec![0; 5_000]).unwrap();
    fs::write(place(5), &bytes).unwrap(); // It claims to be the first.
    fs::write(dir.path().join("nodes/n1/tmp/half"), b"made").unwrap();
    let keeper = start(config(dir.path())).unwrap();
    let status = keeper.status();
    assert_eq!(status.losses.corrupt_files, 2);
    assert!(status.losses.torn_bytes > 4 && status.losses.torn_bytes < 200);
    assert_eq!(fs::metadata(&path).unwrap().len(), length);
    assert!(place(4).with_extension("corrupt").exists());
    assert!(!place(3).exists() && !dir.path().join("nodes/n1/tmp/half").exists());
    assert_eq!(whole(&path), all);
    assert_begins(&whole(&place(2)), &all, "torn");
    drop(keeper);
    let keeper = start(config(dir.path())).unwrap();
    assert_eq!(keeper.status().losses, status.losses, "counted once");
    assert!(place(6).exists(), "the count has been written");
}

#[test]
fn a_segment_of_a_later_version_is_left_alone() {
    let dir = dir_in_memory();
    let path = specimen(dir.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 3;
    let crc = crc32fast::hash(&bytes[..124]);
    bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let refused = start(config(dir.path())).unwrap_err();
    assert!(matches!(
        refused,
        ArchiveError::Newer {
            found: 3,
            known: 2,
            ..
        }
    ));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// A step of a random life of an archive.
#[derive(Clone, Debug)]
enum Step {
    Declare(u32, u8),
    Sample(u32, u64, Sample),
    Retire(u32),
    Commit,
    Seal,
    Restart,
}

/// Returns the type of the stream with this key.
fn type_of(key: u32) -> ValueType {
    ValueType::from_u8([1, 2, 3, 4, 6, 7, 8][key as usize]).unwrap()
}

fn value(key: u32) -> BoxedStrategy<Value> {
    match type_of(key) {
        ValueType::Int => any::<i64>().prop_map(Value::Int).boxed(),
        ValueType::Float => any::<u64>()
            .prop_map(|bits| Value::Float(f64::from_bits(bits)))
            .boxed(),
        ValueType::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        ValueType::Text => "\\PC{0,200}"
            .prop_map(|text| Value::Text(text.into()))
            .boxed(),
        ValueType::Bytes => prop::collection::vec(any::<u8>(), 0..300)
            .prop_map(|bytes| Value::Bytes(bytes.into()))
            .boxed(),
        ValueType::Json => "\\PC{0,20}"
            .prop_map(|text| Value::Json(text.into()))
            .boxed(),
        ValueType::Floats => prop::collection::vec(0.0..1.0, 0..50)
            .prop_map(|floats: Vec<f64>| Value::Floats(floats.into()))
            .boxed(),
    }
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..7_u32;
    // Each key has its own type, so that most samples fit.
    let sample = (key.clone(), 1..4_u64, any::<i64>(), any::<f32>(), 0..4_u8);
    let sample = sample.prop_flat_map(|(key, gap, ts, error, quality)| {
        value(key).prop_map(move |value| {
            let quality = Quality::from_u8(quality).unwrap();
            let sample = Sample {
                ts,
                value,
                quality,
                error,
            };
            Step::Sample(key, gap, sample)
        })
    });
    prop_oneof![
        3 => (key.clone(), 0..3_u8).prop_map(|(key, name)| Step::Declare(key, name)),
        30 => sample,
        1 => key.prop_map(Step::Retire),
        2 => Just(Step::Commit),
        1 => Just(Step::Seal),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_is_what_was_submitted(steps in prop::collection::vec(step(), 0..120)) {
        let dir = dir_in_memory();
        let mut keeper = start(config(dir.path())).unwrap();
        let mut entries = Vec::new();
        let mut expect = Everything::new();
        let mut living: BTreeMap<u32, ((String, i64), u64)> = BTreeMap::new();
        for (life, step) in (1..).zip(steps) {
            match step {
                Step::Declare(key, name) => {
                    let value_type = type_of(key);
                    let name = ["durable", "other", "unwanted.thing"][usize::from(name)];
                    entries.push(declare(key, name, value_type, life));
                    living.insert(key, ((name.to_owned(), life), 0));
                }
                Step::Sample(key, gap, sample) => {
                    let Some((series, number)) = living.get_mut(&key) else { continue };
                    *number += gap;
                    if !series.0.starts_with("unwanted") {
                        expect.entry(series.clone()).or_default().push((*number, told(&sample)));
                    }
                    entries.push(JournalEntry::Sample(StreamKey(key), *number, sample));
                }
                Step::Retire(key) => {
                    living.remove(&key);
                    entries.push(JournalEntry::Retire(StreamKey(key)));
                }
                Step::Commit => commit(&keeper.journal(), std::mem::take(&mut entries)),
                Step::Seal => {
                    keeper.journal().submit(&mut entries);
                    keeper.seal().unwrap();
                }
                Step::Restart => {
                    keeper.journal().submit(&mut entries);
                    living.clear();
                    drop(keeper);
                    keeper = start(config(dir.path())).unwrap();
                }
            }
        }
        keeper.journal().submit(&mut entries);
        prop_assert!(keeper.status().losses.is_none());
        drop(keeper);
        let mut found = everything(dir.path());
        // Sealed files are by hour: where time jumps, numbers do too.
        found.values_mut().for_each(|samples| samples.sort());
        prop_assert_eq!(found, expect);
    }

    #[test]
    fn any_bytes_behind_a_header_are_read_without_harm(
        cut in 0..2_000_usize,
        tail in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let dir = dir_in_memory();
        let path = specimen(dir.path());
        let all = whole(&path);
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(128.max(cut));
        bytes.extend(tail);
        fs::write(&path, &bytes).unwrap();
        assert_begins(&whole(&path), &all, "a foreign tail");
    }

    #[test]
    fn any_fields_under_checksums_that_hold_are_read_without_harm(
        edits in prop::collection::vec(
            (any::<u16>(), prop::collection::vec(any::<u8>(), 1..9)), 1..8),
    ) {
        let dir = dir_in_memory();
        let path = exercise::specimen(dir.path());
        let bytes = fs::read(&path).unwrap();
        let edits = edits.into_iter().flat_map(|(at, new)| {
            let mut edit = u32::from(at).to_le_bytes()[..3].to_vec();
            edit.push(new.len() as u8);
            edit.extend(new);
            edit
        });
        fs::write(&path, exercise::overlay(bytes, &edits.collect::<Vec<u8>>())).unwrap();
        exercise::read_everything(&path);
    }
}

#[test]
fn values_of_any_length_go_through_the_log_and_the_files() {
    let dir = dir_in_memory();
    let mut config = config(dir.path());
    config.buffer_bytes_max = 64 << 20;
    let keeper = start(config).unwrap();
    let mut entries = Vec::new();
    let mut expect = Everything::new();
    for key in 3..7 {
        entries.push(declare(key, "durable", type_of(key), i64::from(key)));
        let of = expect
            .entry(("durable".into(), i64::from(key)))
            .or_default();
        for (number, length) in (1..).zip([0, 8, 65_536, 65_536, 16, 8_192].repeat(12)) {
            let at = number as u8 % 64;
            let value = match type_of(key) {
                ValueType::Bytes => Value::Bytes(vec![at; length].into()),
                ValueType::Floats => Value::Floats(vec![f64::from(at); length / 8].into()),
                ValueType::Json => Value::Json(char::from(at).to_string().repeat(length).into()),
                _ => Value::Text(char::from(at).to_string().repeat(length).into()),
            };
            let sample = Sample::measured(number as i64, 0);
            let sample = Sample { value, ..sample };
            of.push((number, told(&sample)));
            entries.push(JournalEntry::Sample(StreamKey(key), number, sample));
        }
    }
    let too_long = Sample {
        value: Value::Bytes(vec![0; 65_537].into()),
        ..Sample::measured(1, 0)
    };
    commit(&keeper.journal(), entries);
    let mut late = vec![JournalEntry::Sample(StreamKey(4), 1_000, too_long)];
    keeper.journal().submit(&mut late);
    assert_eq!(everything(dir.path()), expect);
    keeper.seal().unwrap();
    assert_eq!(keeper.status().losses.failed_samples, 1);
    drop(keeper);
    assert_eq!(everything(dir.path()), expect);
}

#[test]
fn the_exercise_reads_an_undamaged_segment() {
    let dir = dir_in_memory();
    let path = exercise::specimen(dir.path());
    assert_eq!(exercise::read_everything(&path), 21);
    let same = exercise::overlay(fs::read(&path).unwrap(), &[]);
    assert_eq!(same, fs::read(&path).unwrap());
}
