//! When a stream wants to be looked at again: pure functions of what was seen of it.
//!
//! [`IntervalPolicy`] knows values alone: fixed, and Apollo's adaptive intervals, repaired. [`ErrorBounded`] looks
//! again when what is said of the stream may be too far off, [`Sentinel`] when a stream that costs little says that
//! one that costs much has moved. [`Budget`] shares looks between streams.

mod aimd;
mod bounded;
mod budget;
mod fixed;
mod gaps;
mod risk;
mod sentinel;

use barograph_model::NS_PER_S;

pub use aimd::{Aimd, PublishedAimd};
pub use bounded::{Bound, BoundedConfig, ErrorBounded, Looked, Outlook, Plan, Said};
pub use budget::{Budget, Share, Want};
pub use sentinel::{Sentinel, SentinelConfig, Step};

/// How many changes the complex policy averages.
pub const WINDOW: usize = 10;
/// The shortest interval that any policy may ask for.
pub const INTERVAL_NS_MIN: i64 = 1_000_000;
/// The longest.
pub const INTERVAL_NS_MAX: i64 = 86_400 * NS_PER_S;

/// What decides when a stream is read again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum IntervalPolicy {
    /// Always after the same time.
    Fixed {
        /// That time.
        interval_ns: i64,
    },
    /// A change is little when it is at most `threshold` of the last value.
    AimdSimple(Aimd),
    /// A change is little when it is at most `threshold` times the average of the last [`WINDOW`]
    /// changes. At 1 and above, a value that bounces as it always did relaxes the interval, as the
    /// paper wants; the released code used 0.1.
    AimdComplex(Aimd),
}

/// What a policy remembers of one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PolicyState {
    /// What the stream asks for at present.
    pub interval_ns: i64,
    last: Option<f64>,
    changes: [f64; WINDOW],
    changes_len: usize,
    changes_next: usize,
}

impl IntervalPolicy {
    /// Before the first value.
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

    /// After one more value. A value that is no number teaches nothing.
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
