//! The rule for when a value is out of date although its agent lives. It stands alone because all
//! readers that say "stale" mean the same.

use barograph_model::NS_PER_S;

use crate::SegmentReader;

/// A value whose resource was not looked at for so many of its intervals is stale…
pub const STALE_INTERVALS: i64 = 3;
/// Least age of a stale value, because a busy machine may be late.
pub const STALE_AGE_NS_MIN: i64 = NS_PER_S;

/// Shortest time between two messages to a mirror that an unchanged value was looked at again, in
/// ns.
pub const MIRROR_LOOKS_NS: i64 = NS_PER_S;

impl SegmentReader {
    /// Whether the next look at the resource of a stream of this segment is overdue at `now_ns`, if
    /// the last one was at `looked_ns` and there is one in each `interval_ns`; never if the
    /// interval is not known (0). In a mirror, looks that are more frequent than
    /// [`MIRROR_LOOKS_NS`] count as being that far apart.
    #[inline]
    pub fn is_overdue(&self, now_ns: i64, looked_ns: i64, interval_ns: i64) -> bool {
        is_overdue(now_ns, looked_ns, interval_ns)
            && (!self.is_mirror()
                || is_overdue(now_ns, looked_ns, interval_ns.max(MIRROR_LOOKS_NS)))
    }
}

/// A look that is as far in the future is treated the same way: the clock has been set back since.
fn is_overdue(now_ns: i64, looked_ns: i64, interval_ns: i64) -> bool {
    let away_ns = now_ns.saturating_sub(looked_ns).saturating_abs();
    let late_ns = interval_ns.saturating_mul(STALE_INTERVALS);
    interval_ns > 0 && away_ns > late_ns.max(STALE_AGE_NS_MIN)
}
