//! PromQL over [`Past`]: the subset that dashboards use, evaluated series by series.
//!
//! The text is parsed by `promql-parser`; what the values are is decided here, after Prometheus 3: ranges
//! and look-back are open on the left, rates extrapolate and count resets as there. Streams
//! append a value only when it changes, so a selector reads looks, not samples: see `select.rs`.

mod aggregate;
mod binary;
mod calendar;
mod eval;
mod functions;
mod labels;
mod live;
mod plan;
mod range;
mod regexes;
mod select;
mod series;

use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Clock, Past};

pub use calendar::days_since_epoch;
pub use eval::Answer;
pub use labels::{LabelSet, NAME};
pub use plan::{QUERY_BYTES_MAX, Query, matchers};
pub use regexes::Regexes;
pub use select::{Matching, identities, look_back_ns};
pub use series::{Grid, Series};

/// Most instants of one answer, as Prometheus has it.
pub const STEPS_MAX: usize = 11_000;

/// What an evaluation may use, and whom it asks.
pub struct Context<'a> {
    /// What was.
    pub past: &'a dyn Past,
    /// Measures the time that is left.
    pub clock: &'a dyn Clock,
    /// Set when nobody waits for the answer any more.
    pub cancel: &'a AtomicBool,
    /// Most samples that one selector reads.
    pub samples_max: usize,
    /// Most points, present or not, that a query holds at once; labels count by their bytes, 16 a point.
    pub points_max: usize,
    /// When to give up, by the clock's monotonic time.
    pub until_ns: i64,
    /// Told how many bytes the samples of a read, or the points of the query, take; whether there
    /// is room.
    pub holds: &'a (dyn Fn(usize) -> bool + Sync),
}

impl Context<'_> {
    /// Whether to go on.
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

/// Why there is no answer, in the words of Prometheus' API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The request is wrong.
    BadData,
    /// It could not be evaluated.
    Execution,
    /// It took too long.
    Timeout,
    /// The asker went away.
    Canceled,
    /// Too much at once.
    Unavailable,
    /// Our side failed.
    Internal,
}

/// An error with its kind.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct PromFault {
    /// Whose fault.
    pub kind: FaultKind,
    /// For people.
    pub message: String,
}

impl PromFault {
    /// The request is wrong.
    pub fn bad(message: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::BadData,
            message: message.into(),
        }
    }

    /// The time is up.
    pub fn timeout() -> Self {
        let message =
            "query timed out: ask for a shorter time, larger steps or fewer series".into();
        let kind = FaultKind::Timeout;
        Self { kind, message }
    }

    /// It could not be evaluated.
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
