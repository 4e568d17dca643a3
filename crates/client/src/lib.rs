//! Client library: reads streams from shared memory in the caller's own process (newest values, the
//! past from rings and archive, a watch on new samples, SQL), publishes a program's own values
//! ([`publish`]), and calls handlers of programs ([`fire`]).
//!
//! An [`Observer`] maps the segment of the node's agent into the calling process; no query costs a
//! message to anyone. It has no global state, needs no thread, and goes on when the agent restarts:
//! it resolves its streams anew, and marks values that are out of date ([`LatestValue::stale`]).
//!
//! The streams of other nodes of a cluster, as far as this node mirrors them, are memory of this
//! node too: [`Observer::of_node`].
//!
//! ```no_run
//! use std::sync::Arc;
//! use barograph_client::{Observer, RunDir, SystemClock};
//! use barograph_model::Selector;
//!
//! let observer = Observer::open(RunDir::find(), Arc::new(SystemClock::new()))?;
//! for disk in observer.latest(&Selector::parse("disk.busy.ratio")?) {
//!     println!("{} {:?}", disk.descriptor, disk.sample);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advice;
mod archive;
mod control_door;
mod control_events;
mod demand;
mod error;
mod events;
mod expected;
mod file_bytes;
mod fire;
mod history;
mod http;
mod json;
mod mesh;
mod nodes;
mod observer;
mod packed;
mod placing;
pub mod publish;
mod reading;
mod sql;
mod stream;
mod tiered;
mod values;
mod view;
mod view_follower;
mod watch;

pub use advice::{
    Advice, AdviceQuestion, AdviceTarget, AdvisedBlock, AdvisedPiece, PlacementAdviser,
};
pub use archive::{ARCHIVE_SAMPLES_DEFAULT, ArchiveRange, ArchiveView};
pub use barograph_event::{EventFlags, EventKind, FileEvent, ObjectId};
pub use barograph_model::NEAR_MAX;
pub use barograph_query::{Cell, Field, Moment, Rows, StorageTarget, Table, TargetValue};
pub use barograph_stream::calls::CallPayload;
pub use barograph_stream::{
    AgentSocket, CONTROL_EVENT_BYTES_MAX, CONTROL_EVENT_KIND_BYTES_MAX,
    CONTROL_EVENT_PROPERTIES_MAX, HEARTBEAT_AGE_NS_MAX, Incarnation, RunDir, SCOPE_OF_ALL,
    SCOPES_MAX, STALE_AGE_NS_MIN, STALE_INTERVALS, SystemClock, UnknownNode, is_scope,
};
pub use control_door::DECISION_WAIT_MAX;
pub use control_events::{
    CONTROL_DISPATCH_MAX, CONTROL_PAST_MAX, ControlCounts, ControlEvent, ControlFilter,
    ControlFilterFault, ControlSubscription, control_event_json,
};
pub use demand::{DemandError, HeldDemand};
pub use error::ClientError;
pub use events::{
    EventFeed, EventFilter, EventGap, EventMark, EventPosition, EventStart, FeedItem,
    POSITION_BYTES_MAX, PositionFault, event_json, gap_json,
};
pub use file_bytes::FileBytes;
pub use fire::{Fire, FireError, Fired, NodeFired, fire};
pub use history::{HISTORY_SAMPLES_DEFAULT, History, HistoryRange};
pub use json::{latest_json, status_json, streams_json, value_json};
pub use mesh::{append_points, points_bytes};
pub use observer::Observer;
pub use packed::{
    AppendError, AppendedArray, ReplacementFile, SpoolFile, append_array, replace_file,
};
pub use placing::{PlaceError, TierDir, join_file, place_file, plan_tiers};
pub use reading::{
    FetchedBytes, ReadAnswer, ReadDecision, ReaderConfig, ReaderQuestions, WantedReading,
};
pub use stream::{StreamHandle, Woken};
pub use tiered::{ArrayBytes, FilePart, PARTS_MAX, TieredBytes};
pub use values::{LatestValue, NodeStatus, StreamInfo};
pub use watch::{UPDATES_MAX, Update, Watch};
