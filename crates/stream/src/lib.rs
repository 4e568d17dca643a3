//! Streams in shared memory that every process on the node can read.
//!
//! The agent owns one [`Segment`]: a file of stream descriptors, one cache line per stream with its
//! newest sample, and one ring per stream with its newest samples. [`SegmentReader`]s in any
//! process map the file read-only and read it without a system call or a lock. All `unsafe` code
//! for shared memory is in this crate, in `map.rs` and under `ingest/`.
//! `docs/reference/segment-format.md` defines the byte layout.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests wait for real threads, programs and disks"
    )
)]

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "segments are little-endian, and reading them takes 64-bit loads from read-only memory"
);

mod access;
mod acl;
pub mod bytes;
pub mod calls;
mod clock;
mod control_event;
mod documents;
mod ended;
mod entry;
mod environment;
mod error;
mod file_lock;
mod follow;
pub mod gate;
mod handle;
mod incarnation;
pub mod ingest;
mod layout;
mod line;
mod map;
mod mirrors;
mod priority;
mod reader;
mod run_dir;
mod segment;
mod slots;
mod stale;
mod trusted_dir;
mod user;
mod writer;

pub use access::{ScopeReader, make_public_dir, make_scope_dir};
pub use acl::{AccessList, Grantee};
pub use clock::SystemClock;
pub use control_event::{
    CONTROL_EVENT_BYTES_MAX, CONTROL_EVENT_KIND_BYTES_MAX, CONTROL_EVENT_PROPERTIES_MAX,
    CONTROL_EVENT_PUBLICATION, CONTROL_EVENT_STREAM_OF_AGENTS, CONTROL_EVENT_STREAM_OF_PROGRAMS,
    CONTROL_EVENT_VALUE, ControlEventContent, ControlEventFault, ControlEventRecord,
    ControlEventSource, ControlProperties, is_control_event_stream,
};
pub use documents::{
    ACTIONS_COLUMNS, ACTIONS_DOCUMENT, AGENT_DOCUMENT, ARCHIVE_DOCUMENT, ActionsRow, AgentDocument,
    CALLS_COLUMNS, CALLS_DOCUMENT, CLUSTER_DOCUMENT, CLUSTER_INSIGHTS_COLUMNS,
    CLUSTER_INSIGHTS_DOCUMENT, CONTROLLERS_COLUMNS, CONTROLLERS_DOCUMENT, CallsRow,
    ClusterInsightsRow, ControllersRow, DECISION_STREAM, DECISIONS_COLUMNS, DECISIONS_DOCUMENT,
    DecisionsRow, DocumentColumns, FORECASTS_COLUMNS, FORECASTS_DOCUMENT, ForecastsRow,
    HANDLERS_DOCUMENT, HandlersRow, INSIGHTS_COLUMNS, INSIGHTS_DOCUMENT, INTERFERENCE_COLUMNS,
    INTERFERENCE_DOCUMENT, IO_PHASES_COLUMNS, IO_PHASES_DOCUMENT, InsightsRow, InterferenceRow,
    InterferenceStep, IoPhasesRow, KNOBS_COLUMNS, KNOBS_DOCUMENT, KnobsRow, LabelsJson,
    MAP_SERVERS_COLUMNS, MAP_SERVERS_DOCUMENT, MapServersRow, MissingRow, PEERS_COLUMNS,
    PEERS_DOCUMENT, POLICIES_COLUMNS, POLICIES_DOCUMENT, PUBLICATIONS_COLUMNS,
    PUBLICATIONS_DOCUMENT, PeersRow, PoliciesRow, PublicationsRow, QUERY_NODES_COLUMNS,
    QUERY_NODES_DOCUMENT, QueryNodesRow, RULES_COLUMNS, RULES_DOCUMENT, RulesRow,
    SERVER_MAPS_COLUMNS, SERVER_MAPS_DOCUMENT, SOURCES_COLUMNS, SOURCES_DOCUMENT,
    STATEMENTS_DOCUMENT, SUBSCRIBERS_COLUMNS, SUBSCRIBERS_DOCUMENT, ServerMapsRow, SourcesRow,
    StatementsRow, SubscribersRow, WATCHES_COLUMNS, WATCHES_DOCUMENT, WatchesRow,
};
pub use entry::{DirectoryEntry, StreamDirectory, value_bytes_max};
pub use environment::environment;
pub use error::StreamError;
pub use file_lock::FileLock;
pub use follow::{
    FollowedStream, LOOK_NS, PartId, ScopeChoice, SegmentFollower, SegmentPart, SegmentTicks,
};
pub use handle::{LatestSample, RingScan, StreamReader, WaitOutcome};
pub use incarnation::Incarnation;
pub use layout::{
    CELL_BYTES, DEPTH_DEFAULT, DEPTH_MAX, DESCRIPTOR_BYTES, NODE_BYTES_MAX, SLOTS_BYTES_MAX,
    STREAMS_DEFAULT, STREAMS_MAX, VALUE_BYTES_DEFAULT, VERSION_MAJOR, VERSION_MINOR, WAKE_BITS,
};
pub use line::NUMBER_MAX;
pub use mirrors::UnknownNode;
pub use priority::{NICE, give_way};
pub use reader::{HEARTBEAT_AGE_NS_MAX, SegmentReader, SegmentState};
pub use run_dir::{
    AgentLock, AgentSocket, MIRRORS_MAX, NODE_NAME_BYTES_MAX, NODES_DIR, RunDir, SCOPE_OF_ALL,
    SCOPES_DIR, SCOPES_MAX, is_node_name, is_scope,
};
pub use segment::{Segment, SegmentConfig};
pub use stale::{MIRROR_LOOKS_NS, STALE_AGE_NS_MIN, STALE_INTERVALS};
pub use trusted_dir::{DOCUMENT_BYTES_MAX, TrustedDir};
pub use user::user_name;
pub use writer::StreamWriter;
