//! Parquet files of samples and of buckets: how they are written, and read back by series.
//!
//! It stands alone because it owns one format: what is in a file is in
//! `docs/reference/archive-format.md`. Other programs read the columns as they are; we read them by an
//! index of our own, which stands before Parquet's footer: it tells which rows are whose, so that no name is
//! decoded to find them, and holds a checksum of every column chunk, which Parquet's writer lacks.

mod check;
mod column;
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
mod write;
mod write_tier;

use std::path::Path;

use barograph_model::Span;

use crate::{ArchiveError, Tier};

pub use index::{Index, IndexSeries, Life};
pub use read::ParquetPart;
pub use write::RawWriter;
pub use write_tier::TierWriter;

pub(crate) use column::{Numbered, Numbers};
pub(crate) use group::{SampleGroup, TierGroup};
pub(crate) use plan::{Piece, plan};

/// The version of the index that is written, and the newest that is understood: one number for all tiers, since who does not
/// know a version has only that number to go by. The first knows neither bytes nor arrays nor how many bytes the
/// texts of a series have, and of tiers only means over samples. The third has last looks among its qualities.
const FORMAT: u32 = 3;

/// Most rows of a row group, here and in a file that is read.
const GROUP_ROWS_MAX: usize = 256 << 10;
/// A row group of so many rows ends with the name that it holds last, so that other programs find a name in few of them.
/// Fewer rows would tear apart the times that streams of one source share (see [`PAGE_ROWS`]).
const GROUP_ROWS_OF_NAMES: usize = 64 << 10;
/// Most bytes of texts, JSON, bytes and arrays in a row group that is written: bounds the writer's memory.
const GROUP_TEXT_BYTES_MAX: usize = 4 << 20;
/// Rows of a page. The more rows, the more of what series share is found by zstd: a third of the bytes of
/// times lies between this and pages of 8 Ki. One series is then found by unpacking some megabytes.
const PAGE_ROWS: usize = 128 << 10;
/// Bytes of a page before compression, when rows are long: times have one page for all of their row group.
const PAGE_BYTES: usize = 2 << 20;
/// Parquet's end: the footer's length and the magic.
const END_BYTES: u64 = 8;
/// Most rows of a chunk that a reader is handed.
const CHUNK_ROWS_MAX: usize = 64 << 10;

/// What a file is, apart from its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Where it was measured.
    pub node: String,
    /// How finely it holds the past.
    pub tier: Tier,
    /// Log segments that it holds, both included.
    pub sequences: (u64, u64),
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Samples, or buckets.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Times of the rows, ns since the epoch; a bucket lasts until its end. Without rows `from` is
    /// after `to`.
    pub span: Span,
    /// CRC-32 of the whole file.
    pub crc32: u32,
}

/// Times of nothing: whatever it is widened by.
const NOWHEN: Span = Span {
    from: i64::MAX,
    to: i64::MIN,
};

/// The least span that holds both.
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

fn io_error(what: &'static str, path: &Path, source: std::io::Error) -> ArchiveError {
    ArchiveError::Io {
        what,
        path: path.to_owned(),
        source,
    }
}
