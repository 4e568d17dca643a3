//! Publishing: the values that an application reports while it runs, in publications and frames.
//!
//! A put is a time stamp and three stores into a ring of the calling thread, in a file that an
//! agent reads at any time (docs/design/0004-applications.md): no lock, no system call, no thread.
//! Each process has one file; all [`Publisher`]s of the process share it. Without an agent the ring
//! holds the newest values, and an agent that starts later finds them.
//!
//! ```no_run
//! use barograph_client::publish::{PublicationConfig, PublishConfig, Publisher};
//! use barograph_model::{Kind, ValueType};
//!
//! let publisher = Publisher::open(PublishConfig::of("lulesh"));
//! let step = publisher.publication("lulesh", PublicationConfig::default())?;
//! let help = "distance from the solution";
//! let residual = step.value("residual", ValueType::Float, "1", Kind::Gauge, help)?;
//! for n in 0..1_000_u32 {
//!     residual.put_f64(1.0 / f64::from(n + 1));
//!     step.frame(n.into());
//! }
//! # Ok::<(), barograph_client::publish::PublishError>(())
//! ```
//!
//! A program that forks goes on in both processes: the child has a file of its own from its next
//! put on. Nothing here may be called from a signal handler.
//!
//! Calls go the other way: they run handlers ([`Publication::on`], or the process's own
//! [`Publisher::on`]), settings change knobs ([`Publication::knob`]). Both happen where the program
//! allows it ([`Publisher::poll`], a frame), or, for handlers, on a thread that sleeps until then
//! ([`Publisher::listen`]).

mod agent;
mod calls;
mod clock;
mod config;
mod control_event;
mod control_handles;
mod declare;
mod error;
mod fork;
mod home;
mod knob;
mod leftovers;
mod maps;
mod phase;
mod place;
mod poll;
mod process;
mod publisher;
mod sizes;
mod state;
mod thread;
mod value;

pub use barograph_stream::ControlEventContent;
pub use barograph_stream::calls::{Call, CallPayload};
pub use barograph_stream::ingest::{
    OverflowPolicy, PublicationReaders, RING_RECORDS_DEFAULT, RINGS_DEFAULT_MIN,
};
pub use config::{BLOCK_TIME_DEFAULT, PublicationConfig, PublishConfig};
pub(crate) use control_event::life_of_this_process;
pub use error::PublishError;
pub(crate) use fork::watch as watch_forks;
pub use knob::{Knob, KnobConfig, KnobValue};
pub use maps::{
    MAP_WAIT_DEFAULT, MapFenced, MapFollower, MapOperation, MapRequest, MapServer, MapStart,
    RawOperation, RawRequest, SERVER_NUMBERS, ServerMap, ServerSet, ToldMap,
};
pub use phase::{IO_PRIORITY_DEFAULT, IO_WAIT_DEFAULT, IoGrant, IoPhase, IoPhaseConfig, IoVolume};
pub use publisher::{Publication, Publisher};
pub use value::ValueHandle;

/// The interface on which the C ABI is built: puts by handle, and the cursor on which `baro.h` puts
/// inline.
pub mod raw {
    pub use barograph_stream::ingest::{CallsSeen, RingCursor, kind};

    pub use super::declare::{knob, value};
    pub use super::home::enter;
    pub use super::knob::KnobCell;
    pub use super::poll::{apply_now, frame, is_resting, poll_now};
    pub use super::thread::{
        calls_seen, commit, is_poll_due, on_cursor, put_bytes, tell_agent, try_frame, try_put,
    };
    pub use super::value::is_refused;
}
