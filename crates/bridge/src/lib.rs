//! Foreign protocols: OTLP metrics and InfluxDB's line protocol are parsed into points here, and
//! [`Ingest`] is the trait through which the intake takes those points.
//!
//! The crate stands alone because it parses what strangers send. Its parsers are pure and bounded;
//! they use no clock, file or socket. The server receives the requests, and the intake decides
//! which points it accepts.

mod distribution;
mod elements;
mod line_protocol;
#[expect(
    missing_docs,
    reason = "fields have the names and the meaning that the published definitions give them"
)]
pub mod messages;
mod naming;
mod otlp;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use barograph_model::{Kind, Value, ValueType, cut};
use barograph_stream::ingest::PublicationReaders;
use thiserror::Error;

pub use distribution::{Distribution, QUANTILES};
pub use line_protocol::{TimePrecision, read_line_protocol};
pub use naming::{label_name, stream_words};
pub use otlp::{read_otlp_json, read_otlp_protobuf};

/// Most points of one request; further points are refused and counted.
pub const POINTS_MAX: usize = 1 << 16;
/// Most refusals of one request that are reported with a reason; the others are counted.
pub const REFUSALS_MAX: usize = 8;
/// Most bytes of the reason why a line or data point is refused; a longer one is cut.
pub const REASON_BYTES_MAX: usize = 1 << 10;

/// The writer of points: a service, or a measurement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PointSource {
    /// Its protocol; the same name in two protocols is two sources.
    pub protocol: BridgeProtocol,
    /// Name of the service or measurement, as it was sent.
    pub name: String,
    /// Labels of all its points, sorted.
    pub labels: Vec<(String, String)>,
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BridgeProtocol {
    /// OpenTelemetry's protocol.
    Otlp,
    /// InfluxDB's line protocol.
    LineProtocol,
}

impl BridgeProtocol {
    /// The source that losses without a known source are counted for.
    pub fn nobody(self) -> Arc<PointSource> {
        let name = match self {
            Self::Otlp => "otlp",
            Self::LineProtocol => "line_protocol",
        };
        Arc::new(PointSource {
            protocol: self,
            name: name.to_owned(),
            labels: Vec::new(),
        })
    }
}

/// Labels of a point, shared by all points that were sent with it.
pub type PointTags = Arc<[(String, String)]>;

/// Identity of the series of a point, by the names that were sent. Two series may get the same name
/// here; their origins tell them apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeriesOrigin {
    /// The source that sent it.
    pub source: Arc<PointSource>,
    /// Name of the metric or field.
    pub name: Arc<str>,
    /// Labels in addition to the source's, sorted by the name that was sent.
    pub labels: PointTags,
}

/// The properties of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesProperties {
    /// Gauge, counter or state.
    pub kind: Kind,
    /// Type of the values.
    pub value_type: ValueType,
    /// Unit, in the words that our streams use.
    pub unit: String,
    /// Description for people.
    pub help: String,
    /// Whether a value is the increase since the one before: such values are added up.
    pub is_delta: bool,
}

/// The measured content of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum PointValue {
    /// A single value.
    Value(Value),
    /// A distribution of values: its quantiles become series.
    Distribution(Box<Distribution>),
}

/// One point of a request: a value of a series at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Number of the line, from 1, or of the data point, from 0; refusals name it.
    pub place: u32,
    /// The series that the point belongs to.
    pub origin: SeriesOrigin,
    /// The properties of that series.
    pub about: Arc<SeriesProperties>,
    /// Time in ns since the epoch; none if the sender leaves it to the receiver.
    pub ts: Option<i64>,
    /// The measured value or distribution.
    pub measured: PointValue,
}

/// A line or data point that is refused, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointRefusal {
    /// Number of the line or data point, as in [`Point::place`].
    pub place: u32,
    /// The reason, for people.
    pub reason: String,
}

/// The refused lines or data points of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedPoints {
    /// Number of refused lines or data points.
    pub count: u64,
    /// The reason of the last refusal, in at most [`REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

/// The content of a parsed request.
#[derive(Clone, Debug, Default)]
pub struct ParsedRequest {
    /// The points that can be taken.
    pub points: Vec<Point>,
    /// The first refusals, at most [`REFUSALS_MAX`].
    pub refusals: Vec<PointRefusal>,
    /// All refused lines or data points, by source.
    pub refused: BTreeMap<Arc<PointSource>, RefusedPoints>,
}

impl ParsedRequest {
    /// Counts a line or data point that is refused.
    pub(crate) fn refuse(
        &mut self,
        source: &Arc<PointSource>,
        place: u32,
        reason: impl Into<String>,
    ) {
        let reason = cut(reason.into(), REASON_BYTES_MAX);
        let refused = self.refused.entry(Arc::clone(source)).or_default();
        refused.count += 1;
        refused.reason.clone_from(&reason);
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(PointRefusal { place, reason });
        }
    }

    /// The number of refused lines or data points.
    pub fn refused_count(&self) -> u64 {
        self.refused.values().map(|refused| refused.count).sum()
    }
}

/// The points that a user writes.
#[derive(Clone, Debug)]
pub struct IngestRequest {
    /// User id of the writer, from the kernel.
    pub uid: u32,
    /// The readers: the owner or all.
    pub readers: PublicationReaders,
    /// The points to be taken.
    pub points: Vec<Point>,
    /// Lines or data points that the parser refused, to be counted.
    pub refused: BTreeMap<Arc<PointSource>, RefusedPoints>,
}

/// The result of an intake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IngestResult {
    /// Number of points that were taken: they are on disk, if there is an archive.
    pub taken: u64,
    /// The first refusals, at most [`REFUSALS_MAX`].
    pub refusals: Vec<PointRefusal>,
    /// Number of lines or data points that were refused, wholly or in part.
    pub refused: u64,
}

/// The intake of points from other protocols. It blocks, within a bound: call it from threads that
/// may wait.
pub trait Ingest: Send + Sync + fmt::Debug {
    /// Takes the points; they are safe when this returns.
    ///
    /// # Errors
    ///
    /// The user may not write, or the intake is busy.
    fn ingest(&self, request: IngestRequest) -> Result<IngestResult, IngestFault>;
}

/// The reason why points were not taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IngestFault {
    /// This user may not write.
    #[error("{0}")]
    Refused(String),
    /// There are too many points at once, or the disk is behind: try again.
    #[error("{0}")]
    Busy(String),
}
