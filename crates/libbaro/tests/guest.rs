//! The library as a guest in other programs: what they may do to it, and what it must not do to
//! them.

use std::path::Path;
use std::process::Output;

use barograph_stream::RunDir;
use barograph_stream::ingest::{IngestFile, RecordPayload};

use crate::build::{self, Language, command, must, program, workshop};

/// Runs `guest.c` in an existing run directory, and checks the files that it leaves, the oldest
/// first.
fn run(what: &str, check: impl FnOnce(&Output, &[Left])) {
    let workshop = workshop();
    let source = build::here().join("tests/programs/guest.c");
    let libraries = ["-lbaro", "-lpthread"];
    let Some(program) = program(workshop.path(), Language::C, &[source], &libraries) else {
        return;
    };
    let (dir, work) = (
        tempfile::tempdir_in("/dev/shm").unwrap(),
        tempfile::tempdir().unwrap(),
    );
    let mut command = command(&program, dir.path());
    command.env("PATH", "/bin:/usr/bin");
    let output = command.arg(what).arg(work.path()).output().unwrap();
    check(&output, &left(dir.path()));
}

#[derive(Debug)]
struct Left {
    pid: u32,
    frames: Vec<u64>,
    values: u64,
    declared: usize,
    bytes: u64,
    taken: u64,
    is_closed: bool,
}

fn left(run_dir: &Path) -> Vec<Left> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(RunDir::new(run_dir).ingest_dir()) else {
        return Vec::new();
    };
    let open =
        |e: std::io::Result<std::fs::DirEntry>| IngestFile::open(&e.unwrap().path()).unwrap();
    let mut files: Vec<IngestFile> = entries.map(open).collect();
    files.sort_by_key(IngestFile::created_ns);
    let read = |mut file: IngestFile| {
        let (mut frames, mut values, mut declared) = (Vec::new(), 0, 0);
        file.look().unwrap();
        file.declarations(&mut |_| declared += 1).unwrap();
        let drained = file.drain(u64::MAX, &mut |record| match record.payload {
            RecordPayload::Frame(number) => frames.push(number),
            _ => values += 1,
        });
        assert_eq!(drained.unwrap().damaged, 0);
        let metadata = std::fs::metadata(file.path()).unwrap();
        Left {
            pid: file.pid(),
            frames,
            values,
            declared,
            bytes: metadata.len(),
            taken: metadata.blocks() * 512,
            is_closed: file.is_closed(),
        }
    };
    files.into_iter().map(read).collect()
}

#[test]
fn a_program_that_closes_all_numbers_keeps_its_own_files() {
    run("descriptors", |output, left| {
        must(output);
        let [left] = left else {
            panic!("{left:?}");
        };
        // Frames of both threads.
        let last = left.frames.iter().filter(|n| **n == 99_999).count();
        assert_eq!((last, left.declared, left.is_closed), (2, 4, true));
        assert!(left.frames.contains(&1));
    });
}

#[test]
fn no_descriptor_is_kept() {
    run("none_open", |output, _| must(output));
}

#[test]
fn what_is_closed_is_an_error_and_no_crash() {
    run("closed", |output, left| {
        must(output);
        assert_eq!(left.len(), 1);
    });
}

#[test]
fn children_of_every_kind_leave_the_parents_file_alone() {
    run("children", |output, left| {
        must(output);
        let [parent, child, other] = left else {
            panic!("{left:?}");
        };
        assert_eq!(parent.frames, [1, 4]);
        assert_eq!((parent.declared, parent.is_closed), (3, true));
        assert_eq!((&child.frames[..], &other.frames[..]), (&[2][..], &[3][..]));
        assert_eq!((child.declared, other.is_closed), (3, true));
        assert!(parent.pid != child.pid && child.pid != other.pid);
    });
}

#[test]
fn a_file_that_is_cut_short_ends_no_program() {
    for what in ["truncated", "truncated_with_handler"] {
        run(what, |output, left| {
            must(output);
            let [anew] = left else {
                panic!("{what}: {left:?}");
            };
            assert!(anew.frames.contains(&77), "{what}");
            assert_eq!((anew.declared, anew.is_closed), (4, true), "{what}");
        });
    }
}

#[test]
fn a_limit_on_files_makes_it_smaller_and_is_no_signal() {
    run("limited", |output, left| {
        must(output);
        assert!(left[0].bytes <= 50 << 20, "{left:?}");
        assert!(left[0].values > 10_000);
    });
    run("limited_too_much", |output, left| {
        must(output);
        assert!(left.is_empty(), "{left:?}");
    });
}

#[test]
fn each_of_many_threads_has_a_ring_and_none_takes_much() {
    run("many", |output, left| {
        must(output);
        assert_eq!((left[0].values, left[0].frames.len()), (256, 256));
        // Header, declarations, and a head and the first records of each ring.
        assert!(left[0].taken < 256 * 40_000, "{left:?}");
    });
}

#[test]
fn a_put_that_is_too_long_says_so() {
    run("too_long", |output, left| {
        must(output);
        assert_eq!(left[0].values, 2);
    });
}

#[test]
fn a_run_directory_that_is_made_anew_gets_a_file_anew() {
    run("comes_back", |output, left| {
        must(output);
        let [anew] = left else {
            panic!("{left:?}");
        };
        assert_eq!(anew.frames.last(), Some(&77));
        assert_eq!((anew.declared, anew.is_closed), (3, true));
    });
}

#[test]
fn a_named_directory_is_not_made() {
    let workshop = workshop();
    let source = build::here().join("tests/programs/guest.c");
    let libraries = ["-lbaro", "-lpthread"];
    let Some(program) = program(workshop.path(), Language::C, &[source], &libraries) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let mistyped = dir.path().join("mistyped");
    let output = command(&program, &mistyped).arg("many").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("mistyped"), "{text}");
    assert!(!mistyped.exists());
}
