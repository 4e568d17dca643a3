//! Opens any bytes as an ingest file, reads declarations and rings, and sets tails.
//!
//! Most random files end at the header's checks. So the first byte of the input decides: if it is
//! even, the rest is the whole file; if it is odd, the rest is written over a file with two rings,
//! in pieces of a position (two bytes), a length (one byte) and that many bytes. Positions count
//! only bytes that have a meaning, not the room between them.

#![no_main]

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stream/tests/ingest_exercise.rs"]
mod exercise;
#[path = "../../crates/stream/tests/ingest_specimen.rs"]
mod specimen;

/// The ranges that positions count: header, heads, declarations, and then each ring.
const PARTS: [Range<usize>; 5] = [
    0..256,
    4_096..4_608,
    8_192..8_592,
    1_056_768..1_062_912,
    1_064_960..1_071_104,
];

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let (path, whole) = place();
    let file = if choice % 2 == 0 {
        rest.to_vec()
    } else {
        overlay(whole.clone(), rest)
    };
    fs::write(path, file).expect("the temporary directory takes files");
    exercise::read_everything(path);
});

/// The path of the file, and its undamaged contents; one per process.
fn place() -> (&'static Path, &'static Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    let (_, path, whole) = PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        let whole = fs::read(specimen::small(dir.path())).expect("it was written just now");
        let path = dir.path().join("fuzzed.ingest");
        (dir, path, whole)
    });
    (path, whole)
}

fn overlay(mut file: Vec<u8>, mut edits: &[u8]) -> Vec<u8> {
    let places: usize = PARTS.iter().map(Range::len).sum();
    while let [a, b, length, rest @ ..] = edits {
        let mut place = usize::from(u16::from_le_bytes([*a, *b])) % places;
        let part = PARTS.iter().find(|part| {
            let is_in = place < part.len();
            place -= if is_in { 0 } else { part.len() };
            is_in
        });
        let at = part.map_or(0, |part| part.start) + place;
        let (new, others) = rest.split_at(usize::from(*length).min(rest.len()));
        let room = new.len().min(file.len() - at);
        file[at..at + room].copy_from_slice(&new[..room]);
        edits = others;
    }
    file
}
