//! The clock by which calls expire, and looks at files are due.

use std::sync::OnceLock;

use barograph_model::Clock as _;
use barograph_stream::SystemClock;

static CLOCK: OnceLock<SystemClock> = OnceLock::new();

/// Makes the clock, so that no thread is about to make it while another one forks.
pub(super) fn settle() {
    clock();
}

pub(super) fn clock() -> &'static SystemClock {
    CLOCK.get_or_init(SystemClock::new)
}

/// The present time on the monotonic clock by which looks are due.
pub(super) fn monotonic_ns() -> i64 {
    clock().monotonic_ns()
}
