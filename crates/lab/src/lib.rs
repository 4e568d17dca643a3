//! What forecasts and interval policies are judged by.
//!
//! A [`Trace`] is what a stream truly was, tick by tick: recorded (`traces/`), made ([`generate`]) or read from what
//! others wrote ([`Trace::parse`]). [`replay`](mod@replay) lets a policy look at it now and then, and counts what that
//! cost and for how much of the time what was said between looks was right. Nothing here reads a clock or a file: bytes
//! are arguments, results are plain data.

pub mod accuracy;
pub mod between;
pub mod cases;
mod document;
mod error;
pub mod evaluation;
pub mod figures;
mod generate;
mod optimal;
pub mod page;
pub mod plot;
pub mod record;
mod report;
pub mod suite;
mod trace;

pub mod replay;

pub use document::{DocumentError, fill, placeholders};
pub use error::TraceError;
pub use generate::{Family, Hacc, generate, hacc};
pub use optimal::{Frontier, forgetful_frontier, renewal_frontier};
pub use report::{FIXED_TICKS, Row, Table, frontier, is_ahead};
pub use trace::{BYTES_MAX, COLUMNS_MAX, Column, ROWS_MAX, Trace};
