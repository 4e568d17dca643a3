//! File events: what happened to a file, when, where and by whom, in one model for all sources.
//!
//! A [`Collector`] reads one source of events (inotify, fanotify, a Lustre ChangeLog, comparing two
//! walks of a tree) and gives [`FileEvent`]s with the paths that held when they happened. The agent
//! makes a stream of each source: [`encode`] turns an event into the bytes of a sample, and
//! [`decode`] reads them again. So the log, the rings, the archive and the ways to other nodes are
//! those of all streams.
//!
//! The crate stands alone because it parses foreign bytes, and because its parts are tested without
//! an agent. It keeps nothing on disk but the snapshots of trees.

pub mod changelog;
mod collector;
mod directories;
mod event;
mod fanotify;
mod inotify;
mod record;
mod scan;
mod snapshot;

pub use collector::{Collected, Collector, CollectorFault, CollectorStatus};
pub use directories::{DirectoryTable, PathFault, PathOf};
pub use event::{
    EventFlags, EventKind, FileEvent, MARK_KEY, NativeRecord, ObjectId, PATH_BYTES_MAX,
};
#[doc(hidden)]
pub use fanotify::count_fanotify_events;
pub use fanotify::{FanotifyCollector, FanotifyConfig, FanotifyGroup, FanotifyQueue};
pub use inotify::{InotifyCollector, InotifyConfig};
pub use record::{EventRecord, RECORD_BYTES_MAX, RecordFault, decode, encode};
pub use scan::{EventKinds, Mounts, SCAN_THREADS_MAX, ScanCollector, TreeConfig};
#[doc(hidden)]
pub use snapshot::door as snapshot_door;

/// Name of the streams of events. Each has the label [`SOURCE_LABEL`].
pub const EVENT_STREAM: &str = "events";
/// The label with the name of the source.
pub const SOURCE_LABEL: &str = "source";
