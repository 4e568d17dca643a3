//! Time as an argument. Only `agent`, `stream` and tests create a clock; all other code receives
//! one.

use std::sync::atomic::{AtomicI64, Ordering};

/// Nanoseconds in a second.
pub const NS_PER_S: i64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const NS_PER_MS: i64 = 1_000_000;

/// A length of time in seconds.
pub fn seconds(ns: i64) -> f64 {
    ns as f64 / NS_PER_S as f64
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since the Unix epoch (may jump when the system clock is set).
    fn now_ns(&self) -> i64;
    /// Nanoseconds since an arbitrary start, never going back.
    fn monotonic_ns(&self) -> i64;
    /// The processor's counter, by which programs time what they publish. A clock that has none
    /// counts nanoseconds.
    fn ticks(&self) -> u64 {
        self.monotonic_ns().unsigned_abs()
    }
}

/// A clock that moves only when it is advanced; for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_ns: AtomicI64,
}

impl ManualClock {
    /// Creates a clock that stands at `now_ns`, both as wall and as monotonic time.
    pub fn at(now_ns: i64) -> Self {
        Self {
            now_ns: AtomicI64::new(now_ns),
        }
    }

    /// Moves the clock forward.
    pub fn advance(&self, by_ns: i64) {
        self.now_ns.fetch_add(by_ns, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ns(&self) -> i64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> i64 {
        self.now_ns.load(Ordering::SeqCst)
    }
}
