//! PromQL over [`Past`]: the subset that dashboards use, evaluated series by series.
//!
//! The text is parsed by `promql-parser`; the meaning follows Prometheus 3: ranges and look-back
//! are open on the left, and rates extrapolate and count resets in the same way. Streams append a
//! value only when it changes, so a selector reads looks, not samples: see `select.rs`.

mod aggregate;
mod binary;
mod calendar;
mod eval;
mod functions;
mod live;
mod plan;
mod range;
mod regexes;
mod select;
mod series;

use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Clock, Past};

pub use super::labels::{LabelSet, NAME};
pub use eval::QueryAnswer;
pub use plan::{PromQuery, QUERY_BYTES_MAX, matchers};
pub use regexes::Regexes;
pub use select::{Matching, identities, look_back_ns};
pub use series::{Grid, VectorSeries};

/// Most instants of one answer, the same as in Prometheus.
pub const STEPS_MAX: usize = 11_000;

/// The data source and the bounds of an evaluation.
pub struct QueryContext<'a> {
    /// The samples of the past.
    pub past: &'a dyn Past,
    /// The clock for the time limit.
    pub clock: &'a dyn Clock,
    /// Set when nobody waits for the answer any more.
    pub cancel: &'a AtomicBool,
    /// Most samples that one selector reads.
    pub samples_max: usize,
    /// Most points, present or not, that a query holds at once; labels count by their bytes, 16 to
    /// a point.
    pub points_max: usize,
    /// Time at which the query is given up, by the clock's monotonic time, in ns.
    pub until_ns: i64,
    /// Called with the number of bytes that the samples of a read, or the points of the query,
    /// take; returns whether there is room.
    pub holds: &'a (dyn Fn(usize) -> bool + Sync),
}

impl QueryContext<'_> {
    /// Fails if the query was cancelled or its time is up.
    pub fn check(&self) -> Result<(), PromFault> {
        if self.cancel.load(Ordering::Relaxed) {
            let message = "the asker has gone away".into();
            let kind = FaultKind::Canceled;
            return Err(PromFault { kind, message });
        }
        match self.clock.monotonic_ns() > self.until_ns {
            true => Err(PromFault::timeout()),
            false => Ok(()),
        }
    }
}

/// The kinds of errors in Prometheus' API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The request is wrong.
    BadData,
    /// The query could not be evaluated.
    Execution,
    /// The query took too long.
    Timeout,
    /// The client went away.
    Canceled,
    /// There are too many requests at once.
    Unavailable,
    /// The server failed.
    Internal,
}

/// An error with its kind.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PromFault {
    /// The kind of the error.
    pub kind: FaultKind,
    /// The message for people.
    pub message: String,
}

impl PromFault {
    /// The error for a wrong request.
    pub fn bad(message: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::BadData,
            message: message.into(),
        }
    }

    /// The error for a query whose time is up.
    pub fn timeout() -> Self {
        let message =
            "query timed out: ask for a shorter time, larger steps or fewer series".into();
        let kind = FaultKind::Timeout;
        Self { kind, message }
    }

    /// The error for a query that could not be evaluated.
    pub fn execution(message: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Execution,
            message: message.into(),
        }
    }
}

impl From<barograph_model::SqlFault> for PromFault {
    fn from(fault: barograph_model::SqlFault) -> Self {
        use barograph_model::SqlFaultKind as Kind;
        let kind = match fault.kind {
            Kind::Statement => FaultKind::BadData,
            Kind::Refused | Kind::Limit => FaultKind::Execution,
            Kind::Cancelled => FaultKind::Canceled,
            Kind::Busy => FaultKind::Unavailable,
            Kind::Internal => FaultKind::Internal,
        };
        Self {
            kind,
            message: fault.message,
        }
    }
}
