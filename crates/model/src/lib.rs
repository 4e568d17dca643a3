//! The types that every part of barograph shares: samples, descriptors of streams, patterns, and
//! the seams (`Sink`, `Past`, `Clock`, `SqlEngine`) through which samples, time and SQL reach code
//! that must not own them.
//!
//! It is a crate of its own because everything imports it: no I/O, no clock call, no serialization.

mod buckets;
mod budget;
mod clock;
mod columns;
mod config_error;
mod control;
mod cut;
mod descriptor;
mod hash;
mod host;
mod level;
mod near;
mod past;
mod pattern;
mod projection;
mod sample;
mod sink;
mod sql;
mod time_text;

pub use buckets::Buckets;
pub use budget::{CONTROL, ClientNumber, MemoryBudget, MemoryClaim, PIECE_BYTES, UNKNOWN};
pub use clock::{Clock, ManualClock, NS_PER_MS, NS_PER_S, seconds};
pub use columns::{Columns, Values};
pub use config_error::ConfigError;
pub use control::{
    ArchiveVerb, CALL_EXPIRES_DEFAULT, CALL_EXPIRES_MAX, CALL_EXPIRES_MIN, CALL_PAYLOAD_BYTES_MAX,
    ControlFault, ControlFaultKind, ControllerVerb, FIRE_PATH, FIRE_WAIT_MAX, RequestSender,
    StatementKind,
};
pub use cut::{FAULT_BYTES_MAX, cut};
pub use descriptor::{
    CLUSTER_NODE_LABEL, CLUSTER_PREFIX, Descriptor, HELP_BYTES_MAX, Kind, LABELS_BYTES_MAX,
    LABELS_MAX, Labels, ModelError, NAME_BYTES_MAX, Name, SeriesId, UNIT_BYTES_MAX, Unit,
    table_name,
};
pub use hash::fnv1a;
pub use host::{is_http, is_local_http, is_loopback};
pub use level::Level;
pub use near::{NEAR_MAX, near};
pub use past::{Past, PastRequest, PastSamples, PastSeries, SAMPLE_BYTES, Span, unbounded};
pub use pattern::{Pattern, SELECTOR_BYTES_MAX, Selector};
pub use projection::{
    FORECAST_PREFIX, KNOT_PARTS, KNOTS_MAX, Knot, LevelReach, Projection, predicted_sample,
    projections_among,
};
pub use sample::{
    EXACT_MAX, Quality, Sample, TEXT_BYTES_MAX, VALUE_BYTES_MAX, Value, ValueType, base64,
    floats_json, hex, text_start,
};
pub use sink::{IntervalRequest, Sink, StreamKey};
pub use sql::{
    BigIntegers, ResultFormat, SqlEngine, SqlFault, SqlFaultKind, SqlLimits, SqlReply, SqlRequest,
    SqlSink,
};
pub use time_text::{DAY_S, days_since_epoch, duration_ns, instant_ns};
