//! The laboratory that evaluates forecasts, interval policies and policies of I/O scheduling.
//!
//! A [`Trace`] has the true values of streams, tick by tick: recorded (`traces/`), made
//! ([`generate`]) or read from files of other programs ([`Trace::parse`]). [`replay`](mod@replay)
//! lets a policy look at a trace at some ticks, and counts the cost of these looks and the share of
//! time in which the policy's values between them were right. [`storage`] has applications compute
//! and do I/O under a policy that schedules them; [`io_record`] has those that were recorded, and
//! [`mapping`] maps them to several servers.
//! Nothing here reads a clock or a file: bytes are arguments, results are plain data.

pub mod accuracy;
pub mod between;
pub mod cases;
mod document;
mod error;
pub mod evaluation;
pub mod figures;
mod generate;
pub mod io_record;
pub mod mapping;
mod optimal;
pub mod page;
pub mod plot;
pub mod record;
mod report;
pub mod storage;
pub mod suite;
mod trace;

pub mod replay;

pub use document::{DocumentError, fill, placeholders};
pub use error::TraceError;
pub use generate::{Family, Hacc, generate, hacc};
pub use optimal::{Frontier, forgetful_frontier, renewal_frontier};
pub use report::{FIXED_TICKS, Row, Table, frontier, is_ahead};
pub use trace::{BYTES_MAX, COLUMNS_MAX, Column, ROWS_MAX, Trace};
