//! Opens any bytes as a log segment, reads all of it, and follows it.
//!
//! Most random files end at a checksum. So the first byte of the input decides: if it is even, the
//! rest is the whole file; if it is odd, the rest is a list of edits of a segment with a few
//! streams, whose checksums are then made to match.

#![no_main]

use std::fs;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/archive/tests/exercise.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let (dir, whole) = place();
    let path = dir.path().join("fuzzed");
    let file = if choice % 2 == 0 {
        rest.to_vec()
    } else {
        exercise::overlay(whole.clone(), rest)
    };
    fs::write(&path, &file).expect("the temporary directory takes files");
    exercise::read_everything(&path);
});

/// The directory of the files, and an undamaged segment; one per process.
fn place() -> &'static (tempfile::TempDir, Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, Vec<u8>)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        let whole = fs::read(exercise::specimen(dir.path())).expect("it was written just now");
        (dir, whole)
    })
}
