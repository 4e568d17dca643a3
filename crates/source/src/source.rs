//! The trait between the poller and the interfaces that it reads.

use barograph_model::NS_PER_S;

use crate::{SourceBatch, SourceCoverage, SourceError};

/// Longest time of a read that does not count as hung, unless [`Source::stall_ns`] sets another
/// one: a hung source is reported as down and not read again until its read ends.
pub const STALL_NS: i64 = 5 * NS_PER_S;

/// Shortest time between reads of a source of whose kind this machine has nothing.
pub const ABSENT_NS: i64 = 60 * NS_PER_S;

/// Code that reads one kernel or service interface.
pub trait Source: Send {
    /// The name of the source in the configuration, in reports and in the label `source`.
    fn name(&self) -> &'static str;

    /// Reads the interface once and puts the facts that were found. `now_ns` is wall time, for the
    /// samples; times between reads are measured with [`SourceBatch::monotonic_ns`].
    ///
    /// On a partial failure, puts what was read and returns the fault as well. An interface that
    /// this machine does not have is no fault: it belongs in the report.
    fn read(&mut self, now_ns: i64, batch: &mut SourceBatch) -> Result<(), SourceError>;

    /// Describes what the last read saw, what it could not see, and why.
    fn report(&self) -> SourceCoverage;

    /// Whether this machine has nothing of the kind that the source reads, by the last read, such
    /// as a file system that is not mounted. Such a source is read at most every [`ABSENT_NS`], and
    /// at once when the mount table changes.
    fn is_absent(&self) -> bool {
        false
    }

    /// Whether a read may wait for something outside this machine's control; such a source is read
    /// by a pool of threads, never by the loop.
    fn is_slow(&self) -> bool {
        false
    }

    /// Longest time of a slow source's read that does not count as hung, in ns of the monotonic
    /// clock. It is more than [`STALL_NS`] for a source that runs programs which may take longer.
    fn stall_ns(&self) -> i64 {
        STALL_NS
    }
}
