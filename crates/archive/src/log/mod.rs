//! Log segments: checksummed frames, written by one, read by any.
//!
//! It stands alone because the bytes are a format that others read too: `docs/reference/archive-format.md`
//! has them one by one. `format` is the bytes, `batch` what the sampler handed over, `writer` puts
//! the one into the other, `reader` takes it out again; `marks` says what of programs' rings is in it,
//! and `newest` which segment must be there.

mod batch;
mod contents;
mod format;
mod marks;
mod newest;
mod reader;
mod scan;
mod writer;

pub(crate) use batch::{Batch, Stream};
pub use contents::LogSeries;
pub(crate) use format::{HEADER_BYTES, NUMBER_MAX, cut_node, is_empty};
pub use marks::Mark;
pub(crate) use marks::{MARKS_MAX, Marks};
pub(crate) use newest::Newest;
pub use reader::LogPart;
pub(crate) use writer::{Kept, LogWriter};
