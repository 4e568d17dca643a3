//! SQL by SQLite's virtual tables over the live streams and their archive.
//!
//! Every process that may read an agent's segments can run SQL without the agent. Each metric is a
//! table; its rows are the samples in rings, log and Parquet files, each once; `newest` marks each
//! stream's newest sample.
//!
//! ```no_run
//! use std::sync::{Arc, atomic::AtomicBool};
//! use barograph_model::SqlLimits;
//! use barograph_query::{Database, ScopeChoice};
//! use barograph_stream::{RunDir, SystemClock};
//!
//! let clock = Arc::new(SystemClock::new());
//! let mut database = Database::open(&RunDir::find(), ScopeChoice::Readable, clock)?;
//! let sql = "SELECT device, value FROM disk_read_bytes WHERE newest";
//! let rows = database.run(sql, &SqlLimits::default(), &AtomicBool::new(false))?;
//! println!("{} devices", rows.len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The crate stands alone because it owns SQLite. With the feature `bundled` SQLite is compiled in;
//! with `loadable` the same tables are registered in the SQLite of a host program (`extension/`).

mod asof;
mod asof_samples;
mod catalogue;
mod cell;
mod control_columns;
mod documents;
mod error;
mod event_columns;
mod feed;
mod functions;
mod held;
mod hybrid;
mod latest;
mod listing;
mod live;
mod matching;
mod memory;
mod metric;
mod plan;
mod reading;
mod shape;
mod snapshot;
mod source;
mod sqlite;
mod stream;
mod system;
mod targets;
mod watch;

#[cfg(feature = "bundled")]
mod arrow;
#[cfg(feature = "bundled")]
mod database;
#[cfg(feature = "bundled")]
mod encode;
#[cfg(feature = "bundled")]
mod fair;
#[cfg(feature = "bundled")]
mod fault;
#[cfg(feature = "bundled")]
mod gathered;
#[cfg(feature = "bundled")]
mod guard;
#[cfg(feature = "bundled")]
mod moment;
#[cfg(feature = "bundled")]
mod pool;
#[cfg(feature = "bundled")]
mod reader;
#[cfg(feature = "bundled")]
mod rows;
#[cfg(feature = "bundled")]
mod table;
#[cfg(feature = "bundled")]
mod text;
#[cfg(feature = "bundled")]
mod texts;
#[cfg(feature = "bundled")]
mod times;

#[cfg(feature = "loadable")]
pub mod loadable;

pub use barograph_stream::ScopeChoice;
pub use error::QueryError;
pub use source::Views;
pub use targets::{StorageTarget, TargetFact, TargetValue, says_of_targets, storage_targets};

#[cfg(feature = "bundled")]
pub use crate::{
    database::{Database, Prepared},
    gathered::GatheredRows,
    guard::{GUEST_TEXT_BYTES_MAX, SQL_BYTES_MAX},
    moment::Moment,
    pool::{PoolConfig, QueryPool},
    reader::{NewestOfSeries, PastReader},
    rows::{Cell, Column, Field, RowView, Rows},
    table::Table,
    texts::TEXT_RESULT_BYTES_MAX,
};
