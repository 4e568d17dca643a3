//! Milliseconds, in which the configuration has times, as nanoseconds.

use barograph_model::NS_PER_MS;

/// Usual time between reads of attributes that hardly ever change, in milliseconds.
pub(crate) const ATTRIBUTES_INTERVAL_MS: u64 = 30_000;

/// The milliseconds in nanoseconds, at most the largest number.
pub(crate) fn ns(ms: u64) -> i64 {
    i64::try_from(ms)
        .unwrap_or(i64::MAX)
        .saturating_mul(NS_PER_MS)
}
