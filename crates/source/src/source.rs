//! The seam between the poller and what it reads.

use crate::{Batch, Report, STALL_NS, SourceError};

/// Code that reads one kernel or service interface.
pub trait Source: Send {
    /// The name in configuration, reports and the `source` label.
    fn name(&self) -> &'static str;

    /// Reads once and puts what was found. `now_ns` is wall time, for the samples; what happened
    /// since the last read is measured by [`Batch::monotonic_ns`].
    ///
    /// On a partial failure, puts what was read and returns the fault as well. An interface that
    /// this machine does not have is no fault: it belongs in the report.
    fn read(&mut self, now_ns: i64, batch: &mut Batch) -> Result<(), SourceError>;

    /// What the last read saw, and what it could not see and why.
    fn report(&self) -> Report;

    /// Whether a read may wait for something outside this machine's control; such a source is read
    /// on a thread of its own.
    fn is_slow(&self) -> bool {
        false
    }

    /// How long a read of a slow source may take before it counts as hung, by the monotonic clock.
    /// More than [`STALL_NS`] where programs are run that may take longer.
    fn stall_ns(&self) -> i64 {
        STALL_NS
    }
}
