//! The seam through which `server` reaches the past of streams without importing `query`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{Buckets, Columns, Descriptor, SqlFault};

/// A span of time, both ends included, in ns since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first instant.
    pub from: i64,
    /// The last instant.
    pub to: i64,
}

impl Span {
    /// The span of all representable time.
    pub const ALL: Self = Self {
        from: i64::MIN,
        to: i64::MAX,
    };

    /// Whether the instant `ts` is within the span.
    pub fn holds(&self, ts: i64) -> bool {
        (self.from..=self.to).contains(&ts)
    }

    /// Whether the two spans have an instant in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// A request for samples or buckets of the past.
pub struct PastRequest<'a> {
    /// Filter of series, by node and descriptor.
    pub wanted: &'a dyn Fn(&str, &Descriptor) -> bool,
    /// The span of time that is requested.
    pub span: Span,
    /// Most samples over all series; one more is a `Limit` fault, never a silent cut.
    pub samples_max: usize,
    /// Set when the asker has gone away: the read stops soon after.
    pub cancel: &'a AtomicBool,
    /// Called with the number of bytes that the answer holds so far; if it returns false, the read
    /// ends with a `Limit` fault. [`unbounded`] where the asker bounds samples alone.
    pub holds: &'a (dyn Fn(usize) -> bool + Sync),
}

/// Allows any number of bytes: for askers in a process of their own.
pub fn unbounded(_: usize) -> bool {
    true
}

/// Bytes that one sample takes in memory while it is read and written out: its time, value, number,
/// quality and error, both in the columns read and in the output.
pub const SAMPLE_BYTES: usize = 48;

/// One series that was known at some time.
#[derive(Clone, Debug)]
pub struct PastSeries {
    /// The node on which the series was measured.
    pub node: Arc<str>,
    /// The descriptor of the series.
    pub descriptor: Arc<Descriptor>,
    /// Times of its oldest and newest known sample; of a living stream, `to` is its last look.
    pub known: Span,
    /// The interval between looks at its resource, in ns; 0 if unknown or if the series has ended.
    pub interval_ns: i64,
    /// Whether the series has a ring; a series that has ended is unknown after its newest sample.
    pub is_living: bool,
}

/// The samples of one series in order of time.
#[derive(Clone, Debug)]
pub struct PastSamples {
    /// The series.
    pub series: PastSeries,
    /// Its samples, of all lives. `numbers` may be left empty.
    pub columns: Columns,
    /// Rows of the samples that are the first of another life of the stream, ascending. Nobody
    /// looked between such a sample and the one before it, even where an agent that was killed
    /// could not mark its last look.
    pub begins: Vec<usize>,
}

/// Reads rings, log and Parquet files as one. Blocking: call it from a thread that may wait.
pub trait Past: Send + Sync {
    /// Returns the series that were known within the span.
    fn series(&self, request: &PastRequest<'_>) -> Result<Vec<PastSeries>, SqlFault>;

    /// Returns the samples of each series; series without samples are left out.
    fn read(&self, request: &PastRequest<'_>) -> Result<Vec<PastSamples>, SqlFault>;

    /// Returns the series as buckets of `step_ns`, from the coarsest tier that fits (`samples_max`
    /// then bounds the buckets).
    fn buckets(
        &self,
        request: &PastRequest<'_>,
        step_ns: i64,
    ) -> Result<Vec<(PastSeries, Buckets)>, SqlFault>;

    /// Returns the past of another node, as far as it is mirrored here or kept here as an
    /// aggregator; `None` if there is no mirror of that name.
    fn of_node(&self, _node: &str) -> Result<Option<Box<dyn Past>>, SqlFault> {
        Ok(None)
    }
}
