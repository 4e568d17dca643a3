//! Files that are not segments, not quite, or no longer.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use barograph_stream::{
    DESCRIPTOR_BYTES, Segment, SegmentConfig, SegmentReader, StreamError, VERSION_MAJOR,
};
use proptest::prelude::*;

use crate::exercise::read_everything;
use crate::pattern::{mix, rounds};
use crate::specimen::{SLOTS, small};

const HEADER_BYTES: u64 = 4096;
/// Header and lines; the offset at which descriptors begin.
const DESCRIPTORS_AT: u64 = HEADER_BYTES + SLOTS as u64 * 64;
/// The end of the last ring: nine of eight cells, and eight slots of each size, from the next page
/// on.
const RINGS_END: usize = 16_384 + 9 * 8 * 24 + 8 * (128 + 128 + 64 + 64 + 128);
/// Number of samples that `read_everything` finds in the undamaged segment.
const WHOLE: usize = 8 * (1 + 7 + 7 + 7 + 1 + 3);

fn writable(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

#[test]
fn the_undamaged_segment_is_read_to_the_end() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read_everything(&small(dir.path())), Some(WHOLE));
}

#[test]
fn other_versions() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let check = |major: u32, minor: u32, readable: bool| {
        let file = writable(&path);
        file.write_all_at(&major.to_le_bytes(), 8).unwrap();
        file.write_all_at(&minor.to_le_bytes(), 12).unwrap();
        match SegmentReader::open(&path) {
            Ok(_) => assert!(readable, "{major}.{minor}"),
            Err(StreamError::Version {
                major: m, minor: n, ..
            }) => {
                assert!(!readable);
                assert_eq!((m, n), (major, minor));
            }
            Err(other) => panic!("{major}.{minor}: {other}"),
        }
    };
    check(VERSION_MAJOR, 0, true);
    check(VERSION_MAJOR, 7, true);
    check(VERSION_MAJOR - 1, 0, false);
    check(VERSION_MAJOR + 1, 0, false);
    check(u32::MAX, u32::MAX, false);
    // A writer replaces a file that it cannot read.
    let segment = Segment::create(&path, SegmentConfig::new("n1"), 1).unwrap();
    assert!(segment.reader().is_ok());
}

#[test]
fn cut_short() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(small(dir.path())).unwrap();
    let path = dir.path().join("cut");
    let odd = (0..200).map(|i| mix(i) as usize % whole.len());
    for length in (0..whole.len())
        .step_by(512)
        .chain([1, 7, 8, 4095, 4097])
        .chain(odd)
    {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(read_everything(&path), None, "{length} bytes");
        if length as u64 >= HEADER_BYTES {
            // Even if the header agrees with the length, rings and descriptors must not be followed
            // out of the file.
            let file = writable(&path);
            file.write_all_at(&(length as u64).to_le_bytes(), 24)
                .unwrap();
            let found = read_everything(&path);
            let lacks = found.is_none_or(|n| n < WHOLE);
            let cut = length < RINGS_END || !length.is_multiple_of(8);
            assert_eq!(lacks, cut, "{length} bytes");
        }
    }
}

#[test]
fn not_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("below");
    std::fs::create_dir(&below).unwrap();
    assert!(matches!(
        SegmentReader::open(&below),
        Err(StreamError::Corrupt { .. })
    ));
    assert!(matches!(
        SegmentReader::open(&dir.path().join("absent")),
        Err(StreamError::NoAgent { .. })
    ));
    // Opening a pipe would block until it has a writer.
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(matches!(
        SegmentReader::open(&pipe),
        Err(StreamError::Corrupt { .. })
    ));
}

#[test]
fn every_byte_of_header_lines_and_descriptors_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let file = writable(&path);
    let end = DESCRIPTORS_AT + u64::from(SLOTS) * DESCRIPTOR_BYTES as u64;
    for at in (0..512).chain(HEADER_BYTES..end) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        let random = mix(at) as u8;
        for damaged in [!byte[0], byte[0] ^ 1, byte[0] ^ 0x80, 0, 0xff, random] {
            file.write_all_at(&[damaged], at).unwrap();
            read_everything(&path);
        }
        file.write_all_at(&byte, at).unwrap();
    }
    assert_eq!(read_everything(&path), Some(WHOLE), "all was put back");
}

#[test]
fn every_word_of_header_lines_and_descriptors_extreme() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let file = writable(&path);
    let length = file.metadata().unwrap().len();
    let end = DESCRIPTORS_AT + u64::from(SLOTS) * DESCRIPTOR_BYTES as u64;
    for at in (0..512).chain(HEADER_BYTES..end).step_by(8) {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at).unwrap();
        for extreme in [
            u64::MAX,
            i64::MAX as u64,
            1 << 63,
            length,
            length - 8,
            u64::MAX - length,
            u64::MAX << 48,
            1 << 20,
            mix(at),
        ] {
            file.write_all_at(&extreme.to_le_bytes(), at).unwrap();
            read_everything(&path);
        }
        file.write_all_at(&word, at).unwrap();
    }
    assert_eq!(read_everything(&path), Some(WHOLE), "all was put back");
}

#[test]
fn damaged_in_many_places() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let whole = std::fs::read(&path).unwrap();
    for seed in 0..rounds(2_000, 200_000) {
        let mut bytes = whole.clone();
        for step in 0..1 + mix(seed) % 40 {
            let random = mix(seed * 64 + step);
            // The first lines of the header are damaged rarely: most damage should get past the
            // checks there.
            let from = if random.is_multiple_of(16) {
                0
            } else {
                HEADER_BYTES
            };
            let at = from + (random >> 8) % (bytes.len() as u64 - from);
            bytes[at as usize] = (random >> 56) as u8;
        }
        writable(&path).write_all_at(&bytes, 0).unwrap();
        read_everything(&path);
    }
}

#[test]
fn slots_beyond_all_limits() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let file = writable(&path);
    // A sparse file, as long as its header claims, with more slots than any segment has.
    let bytes: u64 = 1 << 40;
    if file.set_len(bytes).is_err() {
        return; // A file system without sparse files cannot be attacked with them.
    }
    file.write_all_at(&bytes.to_le_bytes(), 24).unwrap();
    file.write_all_at(&u32::MAX.to_le_bytes(), 88).unwrap();
    for slots in [u32::MAX, (1 << 20) + 1, 0] {
        file.write_all_at(&slots.to_le_bytes(), 128).unwrap();
        assert_eq!(read_everything(&path), None, "{slots} slots");
    }
}

#[test]
fn a_text_that_is_not_utf_8_makes_an_absent_stream() {
    let dir = tempfile::tempdir().unwrap();
    let path = small(dir.path());
    let names = || -> Vec<String> {
        let directory = SegmentReader::open(&path).unwrap().directory();
        let names = directory.entries.iter().map(|e| e.descriptor.to_string());
        names.collect()
    };
    assert_eq!(names()[0], "here.int64{device=vda}");
    // Slot 0 is retired; this is the name in slot 1.
    let at = DESCRIPTORS_AT + DESCRIPTOR_BYTES as u64 + 96;
    writable(&path).write_all_at(&[0xff], at).unwrap();
    assert_eq!(names()[0], "here.float64{device=vda}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(rounds(256, 100_000) as u32))]

    #[test]
    fn any_bytes_at_all(start in any::<[u8; 32]>(), filler in any::<u64>(), length in 0usize..20_000) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("segment");
        let mut bytes: Vec<u8> = (0..length as u64).map(|i| mix(filler ^ i) as u8).collect();
        bytes.iter_mut().zip(start).for_each(|(b, s)| *b = s);
        std::fs::write(&path, &bytes).unwrap();
        prop_assert_eq!(read_everything(&path), None);
    }

    #[test]
    fn any_descriptor_at_all(descriptor in prop::collection::vec(any::<u8>(), 96), lengths in any::<[u8; 6]>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = small(dir.path());
        let file = writable(&path);
        let at = DESCRIPTORS_AT + DESCRIPTOR_BYTES as u64;
        let mut bytes = descriptor;
        bytes[..8].copy_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        bytes[34..40].fill(0); // A ring that begins somewhere in the file, or near it.
        bytes[42..48].fill(0);
        bytes[49..52].fill(0);
        bytes[52] %= 10;
        bytes[53] %= 5;
        for (place, length) in [54, 55, 56, 57, 58, 59].into_iter().zip(lengths) {
            bytes[place] = length;
        }
        file.write_all_at(&bytes, at).unwrap();
        prop_assert!(read_everything(&path).is_some());
    }
}
