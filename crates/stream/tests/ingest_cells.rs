//! Cells of an ingest file: words to which an application adds, and how far an agent has come with
//! them.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use barograph_stream::StreamError;
use barograph_stream::ingest::{
    CELLS_AT, CELLS_MAX, CellUse, CellsTold, IngestDeclaration, IngestFile, OverflowPolicy,
};

use crate::ingest::Both;

/// Header fields of the format.
const CELLS: usize = 176;
const CELLS_INTERVAL: usize = 184;

/// A file with cells, of a producer that does not know of cells.
fn with_cells(count: u64, interval_ns: u64) -> (Both, Result<IngestFile, StreamError>) {
    let both = Both::small();
    both.producer().declare(&IngestDeclaration::Cell {
        value: 0,
        cell: 2,
        scale: 1e-9,
        used_as: CellUse::Sum,
    });
    put(&both, CELLS, count);
    put(&both, CELLS_INTERVAL, interval_ns);
    let opened = IngestFile::open(both.path());
    (both, opened)
}

fn put(both: &Both, at: usize, word: u64) {
    let file = OpenOptions::new().write(true).open(both.path()).unwrap();
    file.write_all_at(&word.to_le_bytes(), at as u64).unwrap();
}

#[test]
fn what_was_added_is_read_and_maxima_begin_anew() {
    let (both, file) = with_cells(3, 7);
    let mut file = file.unwrap();
    assert_eq!((file.has_cells(), file.cells_interval_ns()), (true, 7));
    file.look().unwrap();
    let mut declared = Vec::new();
    file.declarations(&mut |d| declared.push(d)).unwrap();
    assert!(matches!(
        declared[..],
        [IngestDeclaration::Cell { cell: 2, .. }]
    ));
    put(&both, CELLS_AT + 16, u64::MAX);
    put(&both, CELLS_AT + 24, 5);
    let mut cells = Vec::new();
    file.read_cells(&mut cells).unwrap();
    assert_eq!(cells, [0, 0, u64::MAX], "the fourth is none");
    file.clear_cell(2).unwrap();
    // Indexes that are not cells are ignored.
    file.clear_cell(3).unwrap();
    file.clear_cell(usize::MAX / 8).unwrap();
    file.read_cells(&mut cells).unwrap();
    assert_eq!(cells, [0, 0, 0]);
}

#[test]
fn the_next_agent_knows_how_far_the_one_before_had_come() {
    let (both, file) = with_cells(1, 7);
    let told = CellsTold {
        frames: 3,
        clock: 99,
    };
    let file = file.unwrap();
    assert_eq!(file.cells_told().unwrap(), CellsTold::default());
    file.set_cells_told(told).unwrap();
    let next = IngestFile::open(both.path()).unwrap();
    assert_eq!(next.cells_told().unwrap(), told);
}

#[test]
fn more_cells_than_there_is_room_for_are_damage() {
    for (count, is_possible) in [
        (0, true),
        (CELLS_MAX, true),
        (CELLS_MAX + 1, false),
        (u64::MAX, false),
    ] {
        let (_both, file) = with_cells(count, u64::MAX);
        assert_eq!(file.is_ok(), is_possible, "{count}");
        if let Ok(file) = file {
            assert_eq!(file.has_cells(), count > 0);
            assert_eq!(file.cells_interval_ns(), i64::MAX);
        }
    }
}

#[test]
fn a_lock_that_is_held_is_a_life_whatever_the_process_became() {
    let mut both = Both::new(1, 256, OverflowPolicy::DropOldest);
    both.file.look().unwrap();
    assert!(!both.file.is_orphan());
    // The process goes on, as after an exec, but its file does not.
    drop(both.producer.take());
    both.file.look().unwrap();
    assert!(both.file.is_orphan());
}
