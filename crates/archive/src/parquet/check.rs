//! A check of a whole file: every checksum, every row, and the parts that only other programs read.

use std::sync::atomic::AtomicBool;

use ::parquet::data_type::{ByteArrayType, Int64Type};
use barograph_model::Span;

use super::column::{ColumnCursor, RowGroupChunks};
use super::footer::{self, GroupBounds};
use super::index::ParquetIndex;
use super::plan::RowsPiece;
use super::read::ParquetPart;
use super::rows::words;
use super::schema::{raw, tier};
use crate::{ArchiveError, Tier};

impl ParquetPart {
    /// Reads the whole file: checksums of all columns and every row. Checks that the columns that
    /// our own reader does not need, and Parquet's footer, agree with the index. Returns the number
    /// of rows.
    pub fn check(&self) -> Result<u64, ArchiveError> {
        let index = self.index()?;
        for group in &index.groups {
            for chunk in &group.chunks {
                self.chunk(chunk)?;
            }
        }
        self.check_places(&index)?;
        let mut bounds = Vec::new();
        for (group, pieces) in self.plan(&index, &|_| true, Span::ALL) {
            let chunks = RowGroupChunks {
                part: self,
                index: &index,
                group,
            };
            bounds.push(check_group(&chunks, &pieces)?);
        }
        footer::check(self, &index, self.version(), &bounds)?;
        self.count(&index)
    }

    fn count(&self, index: &ParquetIndex) -> Result<u64, ArchiveError> {
        let go_on = AtomicBool::new(false);
        let mut rows = 0;
        if index.about.tier == Tier::Raw {
            self.read(&|_| true, Span::ALL, &go_on, &mut |_, _, columns| {
                rows += columns.len() as u64;
                Ok(())
            })?;
        } else {
            self.read_buckets(&|_| true, Span::ALL, &go_on, &mut |_, buckets| {
                rows += buckets.len() as u64;
                Ok(())
            })?;
        }
        Ok(rows)
    }
}

/// Checks that names, labels, units, lives and numbers are those of the index; returns the bounds
/// by which other readers skip the group.
fn check_group(
    chunks: &RowGroupChunks<'_>,
    pieces: &[RowsPiece],
) -> Result<GroupBounds, ArchiveError> {
    let of_raw = chunks.index.about.tier == Tier::Raw;
    let places = if of_raw {
        [raw::NAME, raw::LABELS, raw::UNIT]
    } else {
        [tier::NAME, tier::LABELS, tier::UNIT]
    };
    let mut columns = places.map(ColumnCursor::<ByteArrayType>::new);
    let mut life = ColumnCursor::<Int64Type>::new(raw::LIFE);
    let mut number = ColumnCursor::<Int64Type>::new(raw::NUMBER);
    // The times are the first column of either kind of file.
    let mut ts = ColumnCursor::<Int64Type>::new(raw::TS);
    let (mut texts, mut ints) = (Vec::new(), Vec::new());
    let mut bounds: Option<GroupBounds> = None;
    for piece in pieces {
        let series = &chunks.index.series[piece.series];
        let words = words(&series.descriptor);
        for (at, column) in columns.iter_mut().enumerate() {
            texts.clear();
            column.read(chunks, piece, &mut texts)?;
            if texts.iter().any(|text| *text != words[at]) {
                return Err(chunks.bad(places[at], "is not what the index says"));
            }
        }
        ints.clear();
        ts.read(chunks, piece, &mut ints)?;
        GroupBounds::widen(&mut bounds, &ints, &words);
        if !of_raw {
            continue;
        }
        let expect = series.lives[piece.life];
        ints.clear();
        life.read(chunks, piece, &mut ints)?;
        if ints.iter().any(|life| *life != expect.life) {
            return Err(chunks.bad(raw::LIFE, "is not what the index says"));
        }
        ints.clear();
        number.read(chunks, piece, &mut ints)?;
        let mut rows = ints.iter().zip(expect.first + piece.before..);
        if expect.is_whole() && rows.any(|(number, expect)| *number as u64 != expect) {
            return Err(chunks.bad(raw::NUMBER, "is not what the index says"));
        }
    }
    bounds.ok_or_else(|| chunks.bad(raw::TS, "has no rows"))
}
