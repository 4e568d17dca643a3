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
mod otlp_json;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use barograph_model::{Kind, Value, ValueType, cut};
use barograph_stream::ingest::Readers;
use thiserror::Error;

pub use distribution::{Distribution, QUANTILES};
pub use line_protocol::{Precision, read_line_protocol};
pub use naming::{label_name, stream_words};
pub use otlp::{read_otlp_json, read_otlp_protobuf};

/// Most points of one request; what is beyond is refused and counted.
pub const POINTS_MAX: usize = 1 << 16;
/// Refusals of one request that are told in words; the others are counted.
pub const REFUSALS_MAX: usize = 8;
/// Bytes of a reason for which a line or data point is refused; what is longer is cut.
pub const REASON_BYTES_MAX: usize = 1 << 10;

/// Who wrote: a service, or a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// By which protocol; one name in two of them is two sources.
    pub protocol: Protocol,
    /// The service's or measurement's name, as it was sent.
    pub name: String,
    /// Labels of all that it writes, sorted.
    pub labels: Vec<(String, String)>,
}

/// What a request is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// OpenTelemetry's.
    Otlp,
    /// InfluxDB's.
    LineProtocol,
}

impl Protocol {
    /// The source to which losses without one are counted.
    pub fn nobody(self) -> Arc<Source> {
        let name = match self {
            Self::Otlp => "otlp",
            Self::LineProtocol => "line_protocol",
        };
        Arc::new(Source {
            protocol: self,
            name: name.to_owned(),
            labels: Vec::new(),
        })
    }
}

/// Labels of a point, shared by all that came with it.
pub type Tags = Arc<[(String, String)]>;

/// Which series a point belongs to, by what was sent: two of them may have one name here, and are told
/// apart by this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// Whose.
    pub source: Arc<Source>,
    /// Name of the metric or field.
    pub name: Arc<str>,
    /// Labels beside the source's, sorted by the name that was sent.
    pub labels: Tags,
}

/// What the values of a series are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Gauge, counter or state.
    pub kind: Kind,
    /// Type of the values.
    pub value_type: ValueType,
    /// Unit, in the words of our streams.
    pub unit: String,
    /// For people.
    pub help: String,
    /// Whether a value is what came since the one before: they are added up.
    pub is_delta: bool,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Measured {
    /// A value of the series.
    Value(Value),
    /// How values were distributed: of it the quantiles are told, each a series.
    Distribution(Box<Distribution>),
}

/// One point of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The line, counted from 1, or the data point, counted from 0: a refusal names it.
    pub place: u32,
    /// Of which series.
    pub origin: Origin,
    /// What its values are.
    pub about: Arc<About>,
    /// ns since the epoch; none when the sender leaves it to the receiver.
    pub ts: Option<i64>,
    /// The value.
    pub measured: Measured,
}

/// What is not taken, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// As in [`Point::place`].
    pub place: u32,
    /// For people.
    pub reason: String,
}

/// What of a source cannot be taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many lines or data points.
    pub count: u64,
    /// Why the last of them is not, in at most [`REASON_BYTES_MAX`] bytes.
    pub reason: String,
}

/// What a request brought.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// What can be taken.
    pub points: Vec<Point>,
    /// The first that cannot, at most [`REFUSALS_MAX`].
    pub refusals: Vec<Refusal>,
    /// Lines or data points that cannot be taken, by source.
    pub refused: HashMap<Arc<Source>, Refused>,
}

impl Parsed {
    /// Counts one that cannot be taken.
    pub(crate) fn refuse(&mut self, source: &Arc<Source>, place: u32, reason: impl Into<String>) {
        let reason = cut(reason.into(), REASON_BYTES_MAX);
        let refused = self.refused.entry(Arc::clone(source)).or_default();
        refused.count += 1;
        refused.reason.clone_from(&reason);
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Refusal { place, reason });
        }
    }

    /// How many lines or data points cannot be taken.
    pub fn refused_count(&self) -> u64 {
        self.refused.values().map(|refused| refused.count).sum()
    }
}

/// What a user writes.
#[derive(Clone, Debug)]
pub struct IngestRequest {
    /// The user, by the kernel's word.
    pub uid: u32,
    /// Who may read it: the owner or all.
    pub readers: Readers,
    /// The points.
    pub points: Vec<Point>,
    /// What was refused before it came here, to be counted.
    pub refused: HashMap<Arc<Source>, Refused>,
}

/// What became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    /// Points taken: they are on disk, where there is an archive.
    pub taken: u64,
    /// The first that were refused, at most [`REFUSALS_MAX`].
    pub refusals: Vec<Refusal>,
    /// Lines or data points of which something was refused.
    pub refused: u64,
}

/// Takes what other protocols bring. Blocking, within a bound: whoever calls it may wait.
pub trait Ingest: Send + Sync + fmt::Debug {
    /// Takes the points; they are safe when this returns.
    fn ingest(&self, request: IngestRequest) -> Result<Ingested, IngestFault>;
}

/// Why nothing is known to be taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum IngestFault {
    /// This user may not write.
    #[error("{0}")]
    Refused(String),
    /// Too much at once, or the disk is behind: try again.
    #[error("{0}")]
    Busy(String),
}
