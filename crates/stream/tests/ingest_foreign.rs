//! Files that are not ingest files, not quite, or no longer, and writers with bad intentions.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_stream::StreamError;
use barograph_stream::ingest::{INGEST_VERSION_MAJOR, IngestFile, RING_RECORDS_MAX, RINGS_MAX};
use proptest::prelude::*;

use crate::ingest_exercise::{Found, read_everything};
use crate::ingest_specimen::{PUTS, RECORDS, small};
use crate::pattern::{mix, rounds};

const HEADS_AT: u64 = 4_096;
const HEAD_BYTES: u64 = 256;
const DECLARATIONS_AT: u64 = 8_192;
const RINGS_AT: u64 = DECLARATIONS_AT + (1 << 20);
const RING_BYTES: u64 = 8_192;
/// The contents of the undamaged file.
const WHOLE: Option<Found> = Some(Found {
    declarations: 9,
    records: PUTS,
    missed: 0,
    damaged: 0,
});

fn writable(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

fn specimen() -> (tempfile::TempDir, PathBuf, File) {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let file = writable(&path);
    (dir, path, file)
}

fn set(file: &File, at: u64, word: u64) {
    file.write_all_at(&word.to_le_bytes(), at).unwrap();
}

/// The offsets of all words that have a meaning.
fn words() -> impl Iterator<Item = u64> {
    let heads = (0..2).flat_map(|ring| {
        let at = HEADS_AT + ring * HEAD_BYTES;
        at..at + 136
    });
    let rings = (0..2).flat_map(|ring| {
        let at = RINGS_AT + ring * RING_BYTES;
        at..at + 24 * 40
    });
    let places = (0..256)
        .chain(heads)
        .chain(DECLARATIONS_AT..DECLARATIONS_AT + 400)
        .chain(rings);
    places.step_by(8)
}

#[test]
fn the_undamaged_file_is_read_to_the_end() {
    let (_dir, path, _) = specimen();
    assert_eq!(read_everything(&path), WHOLE);
    // Its tails were moved to the end.
    let again = Found {
        declarations: 9,
        ..Found::default()
    };
    assert_eq!(read_everything(&path), Some(again));
}

#[test]
fn other_versions() {
    let (_dir, path, file) = specimen();
    for (major, minor) in [
        (INGEST_VERSION_MAJOR, 7),
        (INGEST_VERSION_MAJOR - 1, 0),
        (INGEST_VERSION_MAJOR + 1, 0),
        (u32::MAX, u32::MAX),
    ] {
        set(&file, 8, u64::from(major) | u64::from(minor) << 32);
        match IngestFile::open(&path) {
            Ok(_) => assert_eq!(major, INGEST_VERSION_MAJOR),
            Err(StreamError::Version {
                major: m, minor: n, ..
            }) => assert_eq!((m, n), (major, minor)),
            Err(other) => panic!("{major}.{minor}: {other}"),
        }
    }
}

#[test]
fn not_an_ingest_file() {
    let dir = tempfile::tempdir().unwrap();
    assert!(IngestFile::open(dir.path()).is_err());
    assert!(IngestFile::open(&dir.path().join("absent")).is_err());
    let pipe = dir.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    assert!(matches!(
        IngestFile::open(&pipe),
        Err(StreamError::Corrupt { .. })
    ));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(small(dir.path()), &link).unwrap();
    assert!(IngestFile::open(&link).is_err(), "it may lead anywhere");
}

#[test]
fn cut_short() {
    let (dir, path, _) = specimen();
    let whole = std::fs::read(&path).unwrap();
    let cut = dir.path().join("cut");
    let odd = (0..100).map(|i| mix(i) as usize % whole.len());
    for length in [0, 1, 7, 8, 255, 256, 4_095, 4_096, 8_192, whole.len() - 1]
        .into_iter()
        .chain(odd)
    {
        std::fs::write(&cut, &whole[..length]).unwrap();
        assert_eq!(read_everything(&cut), None, "{length} bytes");
    }
    std::fs::write(&cut, &whole).unwrap();
    // Cut after it was opened.
    let mut file = IngestFile::open(&cut).unwrap();
    file.look().unwrap();
    writable(&cut).set_len(RINGS_AT + 100).unwrap();
    file.declarations(&mut |_| ()).unwrap();
    assert!(file.drain(1_000, &mut |_| ()).is_err());
    writable(&cut).set_len(100).unwrap();
    assert!(file.look().is_err());
    assert!(!file.is_drained());
    let _ = file.is_orphan();
}

#[test]
fn every_word_damaged() {
    let (_dir, path, file) = specimen();
    let length = file.metadata().unwrap().len();
    for at in words() {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at).unwrap();
        let was = u64::from_le_bytes(word);
        for damaged in [
            u64::MAX,
            i64::MAX as u64,
            1 << 63,
            length,
            !was,
            was.wrapping_add(1),
            was ^ 0xff << 24,
            was ^ 1 << 32,
            0,
            mix(at),
        ] {
            // The last reader has set these.
            (0..2).for_each(|ring| set(&file, HEADS_AT + ring * HEAD_BYTES + 128, 0));
            set(&file, at, damaged);
            read_everything(&path);
        }
        set(&file, at, was);
    }
    (0..2).for_each(|ring| set(&file, HEADS_AT + ring * HEAD_BYTES + 128, 0));
    assert_eq!(read_everything(&path), WHOLE, "all was put back");
}

#[test]
fn every_byte_of_the_declarations_damaged() {
    let (_dir, path, file) = specimen();
    for at in DECLARATIONS_AT..DECLARATIONS_AT + 300 {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        for damaged in [!byte[0], byte[0] ^ 1, byte[0] ^ 0x80, 0, 0xff] {
            file.write_all_at(&[damaged], at).unwrap();
            let found = read_everything(&path).unwrap();
            assert!(found.declarations <= 6 + 300 / 8, "{found:?}");
        }
        file.write_all_at(&byte, at).unwrap();
    }
}

#[test]
fn a_value_that_cannot_be_read_keeps_its_place_among_the_others() {
    let (_dir, path, file) = specimen();
    // The type of the third value, `flag`, becomes one of a later version.
    let mut declared = vec![0; 400];
    file.read_exact_at(&mut declared, DECLARATIONS_AT).unwrap();
    let at = declared.windows(4).position(|w| w == b"flag").unwrap() as u64;
    file.write_all_at(&[77], DECLARATIONS_AT + at - 4).unwrap();
    let mut file = IngestFile::open(&path).unwrap();
    file.look().unwrap();
    let mut names = Vec::new();
    file.declarations(&mut |declaration| {
        if let barograph_stream::ingest::IngestDeclaration::Value { name, .. } = declaration {
            names.push(name);
        }
    })
    .unwrap();
    assert_eq!(
        names,
        ["count", "size", "", "text", "blob", "document", "mesh"]
    );
}

#[test]
fn one_drain_of_the_largest_rings_full_of_nothing_is_bounded() {
    let (_dir, path, file) = specimen();
    let heads = u64::from(RINGS_MAX) * HEAD_BYTES;
    let declarations_at = HEADS_AT + heads;
    let rings_at = declarations_at + (1 << 20);
    let bytes = rings_at + u64::from(RINGS_MAX) * RING_RECORDS_MAX * 24;
    if file.set_len(bytes).is_err() {
        return; // A file system without sparse files cannot be attacked with them.
    }
    for (at, word) in [
        (24, bytes),
        (96, declarations_at),
        (120, u64::from(RINGS_MAX)),
        (128, u64::MAX),
        (136, rings_at),
        (144, RING_RECORDS_MAX),
    ] {
        set(&file, at, word);
    }
    for ring in 0..u64::from(RINGS_MAX) {
        for word in [0, 8, 32, 40] {
            set(&file, HEADS_AT + ring * HEAD_BYTES + word, u64::MAX);
        }
        set(&file, HEADS_AT + ring * HEAD_BYTES + 128, 0);
    }
    let mut file = IngestFile::open(&path).unwrap();
    file.look().unwrap();
    assert_eq!(file.positions().len(), RINGS_MAX as usize);
    assert_eq!(file.dropped(), u64::MAX);
    for _ in 0..20 {
        let before: Vec<u64> = file.positions().collect();
        let drained = file
            .drain(5_000, &mut |_| panic!("nothing is there"))
            .unwrap();
        assert!(drained.has_more && drained.damaged <= 5_000, "{drained:?}");
        let moved = before.iter().zip(file.positions()).filter(|(a, b)| *a != b);
        assert!((1..=5_000).contains(&moved.count()));
    }
}

#[test]
fn cut_and_grown_while_it_is_read() {
    let (dir, path, _) = specimen();
    let whole = std::fs::read(&path).unwrap();
    let changing = dir.path().join("changing");
    std::fs::write(&changing, &whole).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = writable(&changing);
            for seed in 0u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let _ = file.set_len(mix(seed) % (2 * whole.len() as u64));
                let _ = file.write_all_at(&whole[..8_192], 0);
                let _ = file.set_len(whole.len() as u64);
                let _ = file.write_all_at(&whole, 0);
            }
        });
        let mut read = 0;
        for _ in 0..rounds(2_000, 100_000) {
            read += u64::from(read_everything(&changing).is_some());
        }
        stop.store(true, Ordering::Relaxed);
        assert!(read > 0);
    });
}

#[derive(Clone, Copy, Debug)]
struct Edit {
    at: u64,
    word: u64,
}

/// Edits that get past the checks of the header: heads, declarations, records.
fn edit() -> impl Strategy<Value = Edit> {
    let place = prop_oneof![
        1 => (0..32u64).prop_map(|word| 8 * word),
        2 => (0..2u64, 0..17u64).prop_map(|(ring, word)| HEADS_AT + ring * HEAD_BYTES + 8 * word),
        2 => (0..50u64).prop_map(|word| DECLARATIONS_AT + 8 * word),
        8 => (0..2u64, 0..3 * RECORDS).prop_map(|(ring, word)| RINGS_AT + ring * RING_BYTES + 8 * word),
    ];
    let word = prop_oneof![
        any::<u64>(),
        0..600u64,
        Just(u64::MAX),
        // The first word of a record of any kind.
        (0..600u64, 0..17u64, 0..70u64)
            .prop_map(|(position, kind, series)| position << 32 | kind << 24 | series),
        any::<u32>().prop_map(|low| u64::MAX - u64::from(low)),
    ];
    (place, word).prop_map(|(at, word)| Edit { at, word })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds(400, 100_000) as u32))]

    #[test]
    fn any_bytes_at_all(start in any::<[u8; 32]>(), filler in any::<u64>(), length in 0usize..20_000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.ingest");
        let mut bytes: Vec<u8> = (0..length as u64).map(|i| mix(filler ^ i) as u8).collect();
        bytes.iter_mut().zip(start).for_each(|(b, s)| *b = s);
        std::fs::write(&path, &bytes).unwrap();
        prop_assert_eq!(read_everything(&path), None);
    }

    #[test]
    fn damaged_in_many_places(edits in prop::collection::vec(edit(), 1..40)) {
        let (_dir, path, file) = specimen();
        for edit in &edits {
            set(&file, edit.at, edit.word);
        }
        if let Some(found) = read_everything(&path) {
            prop_assert!(found.records <= 4 * RECORDS);
        }
    }

    #[test]
    fn records_of_any_kind_in_the_right_places(
        words in prop::collection::vec((0..17u64, 0..5u64, prop_oneof![0..40u64, 0..70_000u64, any::<u64>()]), RECORDS as usize),
        start in prop_oneof![0..1_000u64, Just((1 << 32) - 100), Just(u64::MAX - 300)],
        reserved in 0..300u64,
    ) {
        let (_dir, path, file) = specimen();
        let committed = start.saturating_add(RECORDS);
        for (position, &(kind, series, payload)) in (start..).zip(&words) {
            let at = RINGS_AT + (position % RECORDS) * 24;
            set(&file, at, position << 32 | kind << 24 | series);
            set(&file, at + 16, payload);
        }
        set(&file, HEADS_AT, committed);
        set(&file, HEADS_AT + 8, start.saturating_add(reserved));
        set(&file, HEADS_AT + 128, start);
        let found = read_everything(&path).unwrap();
        prop_assert!(found.records <= RECORDS + PUTS);
        prop_assert!(found.records + found.damaged + found.missed >= 3);
    }
}
