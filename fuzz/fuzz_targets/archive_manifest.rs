//! Damages the manifest of an archive, with a checksum that is made to match.
//!
//! The input is a list of changes: each is a position (two bytes) and a byte.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/archive/tests/manifest_exercise.rs"]
mod exercise;

fuzz_target!(|input: &[u8]| {
    let (dir, manifest, whole) = place();
    let changes = input.chunks_exact(3);
    let changes: Vec<_> = changes
        .map(|c| (u16::from_le_bytes([c[0], c[1]]), c[2]))
        .collect();
    fs::write(manifest, exercise::forge(whole, &changes)).expect("the directory takes files");
    exercise::read_everything(dir.path());
});

/// The directory of the archive, its manifest, and the undamaged manifest; one per process.
fn place() -> &'static (tempfile::TempDir, PathBuf, Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("there is a temporary directory");
        exercise::specimen(dir.path());
        let manifest = dir.path().join("nodes/n1/manifest.json");
        let whole = fs::read(&manifest).expect("it was written just now");
        (dir, manifest, whole)
    })
}
