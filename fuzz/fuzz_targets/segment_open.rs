//! Opens any bytes as a segment file, and reads its directory, every newest sample and every ring.
//!
//! Most random files end at the header's checks. So the first byte of the input decides: if it is
//! even, the rest is the whole file; if it is odd, the rest is written over a segment with a few
//! streams, in pieces of a position (three bytes), a length (one byte) and that many bytes.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/stream/tests/exercise.rs"]
mod exercise;
#[path = "../../crates/stream/tests/specimen.rs"]
mod specimen;

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

/// The path of the file, and the undamaged segment; one per process.
fn place() -> (&'static Path, &'static Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    let (_, path, whole) = PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        let whole = fs::read(specimen::small(dir.path())).expect("it was written just now");
        let path = dir.path().join("fuzzed");
        (dir, path, whole)
    });
    (path, whole)
}

fn overlay(mut file: Vec<u8>, mut edits: &[u8]) -> Vec<u8> {
    while let [a, b, c, length, rest @ ..] = edits {
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % file.len();
        let (new, others) = rest.split_at(usize::from(*length).min(rest.len()));
        let room = new.len().min(file.len() - at);
        file[at..at + room].copy_from_slice(&new[..room]);
        edits = others;
    }
    file
}
