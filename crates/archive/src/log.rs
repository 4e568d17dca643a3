//! Log segments: files of checksummed frames with one writer and any number of readers.
//!
//! This module stands alone because others read the bytes too: `docs/reference/archive-format.md`
//! describes them one by one. `format` has the bytes, `batch` the samples that the sampler handed
//! over, `writer` writes batches to segments, `reader` reads them; `marks` records how far
//! programs' rings were read, and `newest` which segment must exist.

mod batch;
mod contents;
mod format;
mod marks;
mod newest;
mod reader;
mod scan;
mod writer;
mod written;

pub(crate) use batch::{BatchStream, JournalBatch};
pub use contents::LogSeries;
pub(crate) use format::{HEADER_BYTES, NUMBER_MAX, cut_node, is_empty};
pub use marks::RingMark;
pub(crate) use marks::{MARKS_MAX, RingMarks};
pub(crate) use newest::NewestSegment;
pub use reader::LogPart;
pub(crate) use writer::LogWriter;
pub(crate) use written::WrittenSegment;
