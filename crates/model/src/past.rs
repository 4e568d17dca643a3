//! The seam through which `server` reaches the past of streams without importing `query`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::{Buckets, Columns, Descriptor, SqlFault};

/// A stretch of time: both ends included, ns since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first instant.
    pub from: i64,
    /// The last instant.
    pub to: i64,
}

impl Span {
    /// All of time.
    pub const ALL: Self = Self {
        from: i64::MIN,
        to: i64::MAX,
    };

    /// Whether an instant is in it.
    pub fn holds(&self, ts: i64) -> bool {
        (self.from..=self.to).contains(&ts)
    }

    /// Whether the two have an instant in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// What is wanted of the past.
pub struct PastRequest<'a> {
    /// Which series, by node and descriptor.
    pub wanted: &'a dyn Fn(&str, &Descriptor) -> bool,
    /// When.
    pub span: Span,
    /// Most samples over all series; one more is a `Limit` fault, never a silent cut.
    pub samples_max: usize,
    /// Set by the asker who has gone away: the read stops soon after.
    pub cancel: &'a AtomicBool,
    /// Told how many bytes the answer holds so far; when it says no, the read ends with a `Limit`
    /// fault. [`unbounded`] where the asker bounds samples alone.
    pub holds: &'a (dyn Fn(usize) -> bool + Sync),
}

/// Says yes to every number of bytes: for askers in a process of their own.
pub fn unbounded(_: usize) -> bool {
    true
}

/// What one sample takes in memory while it is read and written out: its time, value, number,
/// quality and error, in what is read and in what is made of it.
pub const SAMPLE_BYTES: usize = 48;

/// One series that was known at some time.
#[derive(Clone, Debug)]
pub struct PastSeries {
    /// Where it was measured.
    pub node: Arc<str>,
    /// What it is.
    pub descriptor: Arc<Descriptor>,
    /// Its oldest and newest sample known; of a living stream `to` is its last look.
    pub known: Span,
    /// How often its resource is looked at, in ns; 0 when nobody has said or it has ended.
    pub interval_ns: i64,
    /// Whether it has a ring: nothing is known of one that has ended after its newest sample.
    pub is_living: bool,
}

/// Reads what rings, log and Parquet hold as one. Blocking: call it from a thread that may wait.
pub trait Past: Send + Sync {
    /// The series that were known within the span.
    fn series(&self, request: &PastRequest<'_>) -> Result<Vec<PastSeries>, SqlFault>;

    /// Their samples in order of time, each series by itself (series with none are left out; numbers
    /// may be left empty).
    fn read(&self, request: &PastRequest<'_>) -> Result<Vec<(PastSeries, Columns)>, SqlFault>;

    /// The same by buckets of `step_ns`, from the coarsest tier that fits (`samples_max` bounds the
    /// buckets then).
    fn buckets(
        &self,
        request: &PastRequest<'_>,
        step_ns: i64,
    ) -> Result<Vec<(PastSeries, Buckets)>, SqlFault>;
}
