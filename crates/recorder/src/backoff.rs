//! The wait before a failed start is tried again.
//!
//! It is a module of its own because archives and scopes start again in the same way.

use barograph_model::NS_PER_S;

/// Time until the next attempt after a first failure; it doubles with each further one.
const RETRY_NS_MIN: i64 = NS_PER_S / 2;
/// Longest time between two attempts. People make room on a full disk, and an attempt costs only
/// some system calls.
const RETRY_NS_MAX: i64 = 30 * NS_PER_S;

/// The time of the next attempt after those that failed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    next_ns: i64,
    backoff_ns: i64,
}

impl Backoff {
    /// Notes one more failure, at a monotonic time.
    pub fn failed(&mut self, monotonic_ns: i64) {
        let doubled_ns = self.backoff_ns.saturating_mul(2);
        self.backoff_ns = doubled_ns.clamp(RETRY_NS_MIN, RETRY_NS_MAX);
        self.next_ns = monotonic_ns.saturating_add(self.backoff_ns);
    }

    /// Whether the next attempt may be made.
    pub fn is_over(&self, monotonic_ns: i64) -> bool {
        monotonic_ns >= self.next_ns
    }
}
