//! The estimate of one writer's load from its byte counter: a schedule, or a constant rate.

use super::fit::fit;
use super::schedule::{NotPeriodic, Schedule};
use super::{Activity, CounterReading};

/// The load that a writer puts on the device, as far as its counter tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriterEstimate {
    /// The schedule, or the reason why there is none. A writer without one counts as a constant
    /// load of `mean_rate`.
    pub schedule: Result<Schedule, NotPeriodic>,
    /// Mean rate, in bytes per second.
    pub mean_rate: f64,
    /// Mean rate outside bursts, in bytes per second.
    pub background_rate: f64,
    /// Bytes that a running burst is expected to write still; 0 without a schedule.
    pub outstanding: f64,
}

impl WriterEstimate {
    /// Estimates the load from readings of the writer's counter, oldest first: see
    /// [`Activity::of`].
    pub fn of(readings: &[CounterReading]) -> Self {
        Self::of_activity(&Activity::of(readings))
    }

    /// Estimates the load from bursts that were found.
    pub fn of_activity(activity: &Activity) -> Self {
        let fit = fit(activity);
        let running = activity.bursts.last().filter(|_| activity.is_running);
        let outstanding = match (&fit, running) {
            (Ok(schedule), Some(running)) => (schedule.bytes - running.bytes).max(0.0),
            _ => 0.0,
        };
        Self {
            schedule: fit,
            mean_rate: activity.mean_rate,
            background_rate: activity.background_rate,
            outstanding,
        }
    }
}
