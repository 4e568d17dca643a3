//! The system's clock as a `model::Clock`; it is here because only this crate and the agent may ask
//! the system for the time.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use barograph_model::Clock;

use crate::ingest::ticks_now;

/// Wall time from `CLOCK_REALTIME`, monotonic time from `CLOCK_MONOTONIC`.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that all others are handed"
)]
impl SystemClock {
    /// Creates a clock whose monotonic time starts now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock that all others are handed"
)]
impl Clock for SystemClock {
    fn now_ns(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_nanos() as i64,
            Err(before) => -(before.duration().as_nanos() as i64),
        }
    }

    fn monotonic_ns(&self) -> i64 {
        self.start.elapsed().as_nanos() as i64
    }

    fn ticks(&self) -> u64 {
        ticks_now()
    }
}
