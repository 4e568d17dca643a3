//! Verification of an archive that is written to: unfinished files are no defects.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_archive::{ArchiveLayout, verify};
use barograph_model::NS_PER_S;

use crate::seal::append;
use crate::support::{config, dir_in_memory, parquet_files, start};

/// Interval of samples: two of each stream per hour.
const STEP_NS: i64 = 1_800 * NS_PER_S;

#[path = "../manifest_exercise.rs"]
mod exercise;

/// Each digit of the manifest is replaced by another, and each byte by one that is not JSON: it is
/// read without harm.
#[test]
fn a_manifest_that_lies_does_no_harm() {
    let dir = dir_in_memory();
    exercise::specimen(dir.path());
    let manifest = ArchiveLayout::new(dir.path(), "n1").manifest();
    let whole = fs::read(&manifest).unwrap();
    assert_eq!(exercise::forge(&whole, &[]), whole);
    for at in 0..whole.len() as u16 {
        for byte in [b'9', b'-', b'0', 0xFF] {
            fs::write(&manifest, exercise::forge(&whole, &[(at, byte)])).unwrap();
            exercise::read_everything(dir.path());
        }
    }
}

#[test]
fn an_archive_that_is_written_to_is_whole() {
    let dir = dir_in_memory();
    let keeper = start(config(dir.path())).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let verifier = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::SeqCst) || rounds == 0 {
                let verified = verify(dir.path(), &mut |_, _| {}).unwrap();
                assert_eq!(verified.findings, []);
                assert_eq!((verified.twice, verified.missing), (0, 0), "{verified:?}");
                // Three streams grow together.
                assert_eq!(verified.samples % 3, 0);
                rounds += 1;
            }
        });
        for life in 1..=16 {
            append(&keeper, life, 1..=20, STEP_NS);
            match life % 4 {
                0 => drop(keeper.compact().unwrap()),
                _ => keeper.seal().unwrap(),
            }
        }
        done.store(true, Ordering::SeqCst);
        verifier.join().unwrap();
    });
    let verified = verify(dir.path(), &mut |_, _| {}).unwrap();
    assert_eq!(verified.samples, 16 * 3 * 20);
}

/// Files are merged while the others are read; there are more than are held open.
#[test]
fn what_is_merged_while_the_rest_is_read_is_not_missing() {
    let dir = dir_in_memory();
    let keeper = start(config(dir.path())).unwrap();
    for life in 1..=2 {
        append(&keeper, life, 1..=120, STEP_NS);
        keeper.seal().unwrap();
    }
    append(&keeper, 3, 1..=120, STEP_NS);
    assert!(parquet_files(dir.path()).len() > 300);
    let mut merged = false;
    let verified = verify(dir.path(), &mut |done, all| {
        assert!(done <= all + 1_000);
        if !std::mem::replace(&mut merged, true) {
            keeper.compact().unwrap();
        }
    })
    .unwrap();
    assert!(merged);
    assert_eq!(verified.findings, []);
    assert_eq!((verified.twice, verified.missing), (0, 0), "{verified:?}");
    assert_eq!(verified.samples, 3 * 3 * 120);
}

/// Files are moved into place, and then listed in the manifest.
#[test]
fn files_that_are_just_being_made_are_no_damage() {
    let dir = dir_in_memory();
    let keeper = start(config(dir.path())).unwrap();
    let manifest = ArchiveLayout::new(dir.path(), "n1").manifest();
    append(&keeper, 1, 1..=20, STEP_NS);
    keeper.seal().unwrap();
    let (before, known) = (
        fs::read(&manifest).unwrap(),
        parquet_files(dir.path()).len(),
    );
    append(&keeper, 2, 1..=20, STEP_NS);
    keeper.seal().unwrap();
    drop(keeper);
    let after = fs::read(&manifest).unwrap();
    // The manifest from before the commit; the log is gone already, and no file that counts has its
    // samples.
    fs::write(&manifest, &before).unwrap();
    let found = verify(dir.path(), &mut |_, _| {}).unwrap().findings;
    let (new, gone): (Vec<_>, Vec<_>) = found
        .iter()
        .partition(|finding| finding.what.starts_with("is not in the manifest"));
    assert_eq!(new.len(), parquet_files(dir.path()).len() - known);
    assert!(
        gone.len() == 1 && gone[0].what.starts_with("is gone"),
        "{gone:?}"
    );
    let verified = verify(dir.path(), &mut |_, _| {
        fs::write(&manifest, &after).unwrap()
    });
    assert_eq!(verified.unwrap().findings, []);
}
