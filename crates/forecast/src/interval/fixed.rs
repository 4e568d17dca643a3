//! The fixed policy: always the same interval.

use super::{INTERVAL_NS_MAX, INTERVAL_NS_MIN, clamp};

/// The interval, brought into the bounds of all policies.
pub(super) fn interval_ns(wanted_ns: i64) -> i64 {
    clamp(wanted_ns, INTERVAL_NS_MIN, INTERVAL_NS_MAX)
}
