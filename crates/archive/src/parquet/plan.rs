//! The plan of a read: the index shows which rows of which row groups are wanted, before a byte of
//! them is read.

use std::ops::Range;

use barograph_model::Span;

use super::CHUNK_ROWS_MAX;
use super::index::{IndexSeries, ParquetIndex};

/// Consecutive rows of one series and life in one row group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowsPiece {
    /// Index of the series in the file's index.
    pub series: usize,
    /// Index of the life in the series; 0 in tiers.
    pub life: usize,
    /// Number of rows of that life before these.
    pub before: u64,
    /// Rows of the row group.
    pub rows: Range<usize>,
}

/// Returns the pieces of each row group, in order; a piece has at most [`CHUNK_ROWS_MAX`] rows.
pub(crate) fn plan(
    index: &ParquetIndex,
    span: Span,
    wanted: &dyn Fn(usize, &IndexSeries) -> bool,
) -> Vec<Vec<RowsPiece>> {
    let mut plan = vec![Vec::new(); index.groups.len()];
    let mut start = 0;
    let mut group = 0;
    for (at, series) in index.series.iter().enumerate() {
        if !series.span.meets(&span) || !wanted(at, series) {
            continue;
        }
        let mut row = series.first_row;
        let lives = series.lives.iter().map(|life| life.rows);
        let whole = series.lives.is_empty().then_some(series.rows);
        for (life, rows) in lives.chain(whole).enumerate() {
            let mut before = 0;
            while before < rows {
                // The index was checked: its groups have as many rows as its series.
                while row >= start + u64::from(index.groups[group].rows) {
                    start += u64::from(index.groups[group].rows);
                    group += 1;
                }
                let from = (row - start) as usize;
                let room = index.groups[group].rows as usize - from;
                let now = (rows - before).min(room.min(CHUNK_ROWS_MAX) as u64);
                plan[group].push(RowsPiece {
                    series: at,
                    life,
                    before,
                    rows: from..from + now as usize,
                });
                before += now;
                row += now;
            }
        }
    }
    plan
}
