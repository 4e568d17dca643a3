//! Opens any bytes as the snapshot of a tree, and finds each of its entries again.
//!
//! Random bytes would end at a checksum. So the first byte of the input decides: if it is even, the
//! rest is the whole file; if it is odd, the rest is a list of edits of a valid one, whose
//! checksums are then made to match.

#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/event/tests/it/exercise.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod exercise;

fuzz_target!(|input: &[u8]| {
    let Some((choice, rest)) = input.split_first() else {
        return;
    };
    let (_, path, whole) = place();
    match choice % 2 {
        0 => exercise::snapshot(path, rest),
        _ => exercise::snapshot(path, &exercise::forged_snapshot(whole, rest)),
    }
});

/// The directory, the path of the damaged file, and the undamaged contents; one per process.
fn place() -> &'static (tempfile::TempDir, PathBuf, Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        let whole = exercise::whole_snapshot(&dir.path().join("whole"));
        let path = dir.path().join("fuzzed");
        (dir, path, whole)
    })
}
