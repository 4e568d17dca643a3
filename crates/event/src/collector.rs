//! The trait of what collects file events, so that one conformance suite tests all collectors and
//! one thread of the agent serves each.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use thiserror::Error;

use crate::event::FileEvent;

/// A source of file events.
///
/// It never waits and owns no thread: a thread of the agent waits for [`Self::readable`] or
/// [`Self::due_ns`], calls [`Self::collect`], has the events written, and calls
/// [`Self::acknowledge`] when they are durable.
pub trait Collector: Send {
    /// Takes what is there and appends it to `events`, about `events_max` at most. `now_ns` is the
    /// time in ns since the epoch, `monotonic_ns` that of the monotonic clock.
    ///
    /// # Errors
    ///
    /// The source cannot be read now. What was appended before stands.
    fn collect(
        &mut self,
        events: &mut Vec<FileEvent>,
        events_max: usize,
        now: (i64, i64),
    ) -> Result<Collected, CollectorFault>;

    /// Takes in that nothing can be collected at present: what the operating system has for the
    /// collector may be moved into memory, as far as there is room, so that it loses nothing
    /// meanwhile.
    fn hold(&mut self) {}

    /// Takes in that all events up to this index are durable: the source may forget them.
    ///
    /// # Errors
    ///
    /// The source could not be told. It is told again with the next call.
    fn acknowledge(&mut self, index: u64) -> Result<(), CollectorFault>;

    /// The number from which on recorded events have to be told to [`Self::learn`] before the first
    /// [`Self::collect`], and a time before which there are none of them, in ns since the epoch;
    /// `None` if the collector knows what it has told.
    fn learns_from(&self) -> Option<(u64, i64)> {
        None
    }

    /// Takes in an event that was collected and recorded in an earlier life. The events come in the
    /// order of their numbers.
    fn learn(&mut self, event: &FileEvent) {
        let _ = event;
    }

    /// Whether events have the numbers of the source, which are the same in every life. Then events
    /// that nobody records can be acknowledged as well.
    fn has_numbers_of_source(&self) -> bool {
        false
    }

    /// A descriptor that is readable when there is something to collect; `None` if the source has
    /// none, and is to be looked at by the clock.
    fn readable(&self) -> Option<BorrowedFd<'_>>;

    /// Time of the monotonic clock, in ns, from which [`Self::collect`] has work to do even if
    /// nothing is readable; `i64::MAX` if there is none.
    fn due_ns(&self) -> i64;

    /// What is known of the source.
    fn status(&self) -> CollectorStatus;
}

/// Outcome of a call to [`Collector::collect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// Everything that was there was taken.
    All,
    /// There is more: call again.
    More,
}

/// What is known of a source of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectorStatus {
    /// Number of directories whose place is known.
    pub directories: u64,
    /// Number of watches of the kernel.
    pub watches: u64,
    /// Events collected so far.
    pub events: u64,
    /// Gaps so far: times at which events were lost.
    pub gaps: u64,
    /// Events found by comparing after a gap.
    pub reconciled: u64,
    /// Events whose path is incomplete.
    pub unresolved: u64,
    /// Records that made no sense, and were passed over.
    pub senseless: u64,
    /// Whether a walk is under way: the first one, or one after a gap.
    pub is_walking: bool,
    /// What is wrong at present, with its remedy; empty if nothing is.
    pub trouble: String,
}

/// The reason why a source cannot be read.
#[derive(Debug, Error)]
pub enum CollectorFault {
    /// The operating system has refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The source is not what it should be; the text says what to do.
    #[error("{0}")]
    Unusable(String),
}
