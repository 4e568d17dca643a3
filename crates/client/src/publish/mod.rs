//! What an application says of itself while it runs: publications, their values, and frames of them.
//!
//! A put is a time stamp and three stores into a ring of the calling thread, in a file that an agent reads
//! whenever it likes (docs/design/0004-applications.md): no lock, no system call, no thread. The file is the
//! process's; [`Publisher`]s of one process share it. Without an agent the ring holds the newest values, and
//! an agent that comes later finds them.
//!
//! ```no_run
//! use barograph_client::publish::{PublicationConfig, PublishConfig, Publisher};
//! use barograph_model::{Kind, ValueType};
//!
//! let publisher = Publisher::open(PublishConfig::of("lulesh"));
//! let step = publisher.publication("lulesh", PublicationConfig::default())?;
//! let residual = step.value("residual", ValueType::Float, "1", Kind::Gauge, "distance from the solution")?;
//! for n in 0..1_000_u32 {
//!     residual.put_f64(1.0 / f64::from(n + 1));
//!     step.frame(n.into());
//! }
//! # Ok::<(), barograph_client::publish::PublishError>(())
//! ```
//!
//! A program that forks goes on in both processes: the child has a file of its own from its next put on.
//! Nothing here may be called from a signal handler.

mod agent;
mod config;
mod error;
mod fork;
mod place;
mod process;
mod publisher;
mod state;
mod thread;

pub use barograph_stream::ingest::{Overflow, RING_RECORDS_DEFAULT, RINGS_DEFAULT, Readers};
pub use config::{BLOCK_TIME_DEFAULT, PublicationConfig, PublishConfig};
pub use error::PublishError;
pub use publisher::{Publication, Publisher, ValueHandle};

/// What the C ABI is made of: puts by handle, and the cursor on which `baro.h` puts inline.
pub mod raw {
    pub use barograph_stream::ingest::Cursor;

    pub use super::publisher::value;
    pub use super::thread::{commit, frame, on_cursor, tell_agent, try_frame, try_put};
}
