//! Parquet files of samples and of buckets: how they are written, and read back by series.
//!
//! This module stands alone because it owns one format, which `docs/reference/archive-format.md`
//! describes. Other programs read the columns as in any Parquet file; we read them through an index
//! of our own, which lies before Parquet's footer. It shows which rows belong to which series, so
//! that no name is decoded to find them, and holds a checksum of every column chunk, which
//! Parquet's writer lacks.

mod check;
mod column;
mod event_rows;
mod footer;
mod group;
mod index;
mod page;
mod plan;
mod read;
mod rows;
mod schema;
mod seal;
mod series_writer;
mod sink;
mod wanted;
mod write;
mod write_tier;

use std::path::Path;

use barograph_model::Span;

use crate::{ArchiveError, Tier};

pub use event_rows::{EventFields, EventReader};
pub use index::{IndexSeries, LifeRows, ParquetIndex};
pub use read::ParquetPart;
pub use write::RawWriter;
pub use write_tier::TierWriter;

pub(crate) use column::{ColumnNumbers, NumberBuffers};
pub(crate) use group::{SampleGroup, TierGroup};
pub(crate) use plan::{RowsPiece, plan};

/// The version of the index that is written, and the newest that is understood: one number for all
/// tiers, since a reader that does not know a version has only that number to go by. Version 1 has
/// neither bytes nor arrays nor the number of bytes of a series' texts, and only means over samples
/// in tiers. Version 3 has last looks among its qualities. Version 4 has columns of file events.
const FORMAT: u32 = 4;
/// The version of files without columns of file events.
const FORMAT_PLAIN: u32 = 3;

/// Most rows of a row group, both when written and when read.
const GROUP_ROWS_MAX: usize = 256 << 10;
/// Rows from which a row group ends with the last series of a name, so that a name is in few row
/// groups for other programs. Fewer rows would separate the times that streams of one source share
/// (see [`PAGE_ROWS`]).
const GROUP_ROWS_OF_NAMES: usize = 64 << 10;
/// Most bytes of texts, JSON, bytes and arrays in a row group that is written; it bounds the
/// writer's memory.
const GROUP_TEXT_BYTES_MAX: usize = 4 << 20;
/// Rows of a page. The more rows, the more repetition between series is found by zstd: compared
/// with pages of 8 Ki, the difference is a third of the bytes of times. To read a single series,
/// some megabytes are unpacked.
const PAGE_ROWS: usize = 128 << 10;
/// Bytes of a page before compression, if rows are long; times have one page for all of their row
/// group.
const PAGE_BYTES: usize = 2 << 20;
/// Size of the end of a Parquet file in bytes: the footer's length and the magic.
const END_BYTES: u64 = 8;
/// Most rows of a chunk that is passed to a reader.
const CHUNK_ROWS_MAX: usize = 64 << 10;

/// The identity of a file, apart from its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// Name of the node that measured the samples.
    pub node: String,
    /// Tier of the rows.
    pub tier: Tier,
    /// The first and the last log segment that the file holds.
    pub sequences: (u64, u64),
}

/// Size and checksum of a file that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// Number of samples or buckets.
    pub rows: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Times of the rows in ns since the epoch; a bucket lasts until its end. Without rows `from`
    /// is after `to`.
    pub span: Span,
    /// CRC-32 of the whole file.
    pub crc32: u32,
}

/// The empty span, which any union replaces.
const NOWHEN: Span = Span {
    from: i64::MAX,
    to: i64::MIN,
};

/// Returns the smallest span that contains both.
fn widen(a: Span, b: Span) -> Span {
    Span {
        from: a.from.min(b.from),
        to: a.to.max(b.to),
    }
}

fn corrupt(path: &Path, reason: impl Into<String>, at: u64) -> ArchiveError {
    ArchiveError::Corrupt {
        path: path.to_owned(),
        reason: reason.into(),
        at,
    }
}
