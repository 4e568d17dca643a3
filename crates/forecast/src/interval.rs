//! Interval policies: pure functions of a stream's past that decide when it is looked at again.
//!
//! An [`IntervalPolicy`] uses only the values: fixed, and Apollo's adaptive intervals, repaired.
//! [`ErrorBounded`] looks again when the value assumed between looks may be too far off,
//! [`Sentinel`] when a cheap stream shows that a dear one has moved. [`LookBudget`] shares looks
//! between streams. A [`LookPlanner`] plans the looks at one stream by any of them, and the
//! projection that is published until the next look.

mod aimd;
mod bounded;
mod budget;
mod derived;
mod fixed;
mod gaps;
mod planner;
mod risk;
mod sentinel;

use barograph_model::NS_PER_S;

pub use aimd::{Aimd, PublishedAimd};
pub use bounded::{
    AssumedValue, BoundedConfig, ComparedLook, ErrorBound, ErrorBounded, LookPlan, ValueBasis,
};
pub use budget::{LookBudget, LookRequest, LookShare};
pub use derived::MoveOutcome;
pub use planner::{LookMethod, LookPlanner, ProjectionBuffers};
pub use sentinel::{Sentinel, SentinelConfig, SentinelStep};

/// Number of changes over which the complex policy averages.
pub const WINDOW: usize = 10;
/// Shortest interval of all policies, in ns.
pub const INTERVAL_NS_MIN: i64 = 1_000_000;
/// Longest interval of all policies, in ns.
pub const INTERVAL_NS_MAX: i64 = 86_400 * NS_PER_S;

/// A policy that decides when a stream is read again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntervalPolicy {
    /// Always the same interval.
    Fixed {
        /// The interval, in ns.
        interval_ns: i64,
    },
    /// Adaptive: a change is small when it is at most `threshold` of the last value.
    AimdSimple(Aimd),
    /// Adaptive: a change is small when it is at most `threshold` times the average of the last
    /// [`WINDOW`] changes. At 1 and above, a value that varies as it always did lengthens the
    /// interval, as intended in the paper; the released code used 0.1.
    AimdComplex(Aimd),
}

/// The state of a policy for one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyState {
    /// Interval for the stream at present, in ns.
    pub interval_ns: i64,
    last: Option<f64>,
    changes: [f64; WINDOW],
    changes_len: usize,
    changes_next: usize,
}

impl IntervalPolicy {
    /// Returns the state before the first value.
    pub fn start(&self) -> PolicyState {
        let interval_ns = match self {
            Self::Fixed { interval_ns } => fixed::interval_ns(*interval_ns),
            Self::AimdSimple(a) | Self::AimdComplex(a) => aimd::bounded(a, a.start_ns as f64),
        };
        PolicyState {
            interval_ns,
            last: None,
            changes: [0.0; WINDOW],
            changes_len: 0,
            changes_next: 0,
        }
    }

    /// Returns the state after one more value. A value that is not finite changes nothing.
    pub fn next(&self, state: PolicyState, value: f64) -> PolicyState {
        if !value.is_finite() {
            return state;
        }
        match self {
            Self::Fixed { .. } => state,
            Self::AimdSimple(aimd) => aimd::simple(aimd, state, value),
            Self::AimdComplex(aimd) => aimd::complex(aimd, state, value),
        }
    }
}

pub(crate) fn clamp(ns: i64, min_ns: i64, max_ns: i64) -> i64 {
    ns.max(min_ns).min(max_ns)
}
