//! Damaged records, lines, buffers and snapshots are refused or read. The fuzz targets do the same
//! with more of them.

use std::path::PathBuf;
use std::sync::OnceLock;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::exercise;

#[test]
fn what_is_whole_is_read() {
    exercise::event_record(&exercise::whole_record());
    exercise::changelog_records(&exercise::whole_log());
    exercise::changelog_lines(exercise::LINES);
    let buffer = exercise::whole_buffer();
    assert_eq!(barograph_event::count_fanotify_events(&buffer), (5, 0));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("snapshot");
    let whole = exercise::whole_snapshot(&path);
    assert_eq!(exercise::forged_snapshot(&whole, &[]), whole);
    let count = barograph_event::snapshot_door::read(&path);
    assert_eq!(count, Some(exercise::SNAPSHOT_ENTRIES as usize));
}

/// A device that gives the record with the greatest index again and again: nothing could follow it.
#[test]
fn the_greatest_index_is_none() {
    let input = [&[0x4d, 0x01, 0x6b, 0x02, 0x02, 0x02, 0x35][..], &[0xff; 29]].concat();
    let whole = exercise::whole_log();
    exercise::changelog_records(&exercise::overlay(&whole, &input[1..], true));
    let mut log = whole;
    log[8..16].copy_from_slice(&u64::MAX.to_ne_bytes());
    exercise::changelog_records(&log);
}

proptest! {
    #[test]
    fn damaged_records_are_read_or_refused(edits in vec(any::<u8>(), 0..30)) {
        exercise::event_record(&exercise::overlay(&exercise::whole_record(), &edits, true));
        exercise::changelog_records(&exercise::overlay(&exercise::whole_log(), &edits, true));
        exercise::changelog_lines(&exercise::overlay(exercise::LINES, &edits, true));
        exercise::fanotify_buffer(&exercise::overlay(&exercise::whole_buffer(), &edits, true));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..400)) {
        exercise::event_record(&bytes);
        exercise::changelog_records(&bytes);
        exercise::changelog_lines(&bytes);
        exercise::fanotify_buffer(&bytes);
    }

    #[test]
    fn forged_snapshots_are_read_or_refused(edits in vec(any::<u8>(), 0..30)) {
        let (_, path, whole) = place();
        exercise::snapshot(path, &exercise::forged_snapshot(whole, &edits));
    }
}

/// The directory, the path of the damaged snapshot, and the undamaged contents; one per process.
fn place() -> &'static (tempfile::TempDir, PathBuf, Vec<u8>) {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf, Vec<u8>)> = OnceLock::new();
    PLACE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("snapshot");
        let whole = exercise::whole_snapshot(&path);
        (dir, path, whole)
    })
}
