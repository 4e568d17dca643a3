//! A request for the past of some streams, from the moment when rules ask for it until it has been
//! answered or its time is over.
//!
//! It is apart from the reading ([`super::past`]): a disk may take any time, and rules wait for it
//! for a bounded time.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barograph_model::{Descriptor, NS_PER_S, Sample, StreamKey};
use barograph_rule::FiringSummary;
use barograph_stream::{DirectoryEntry, RunDir};

/// Longest wait of rules for the past.
const WAIT_NS_MAX: i64 = 2 * NS_PER_S;

/// The reason that people are given for a past that is late.
pub(crate) const LATE: &str = "the archive was not read in time";

/// A stream whose past is wanted.
#[derive(Clone, Debug)]
pub(crate) struct PastStream {
    pub key: StreamKey,
    /// The run directory of the segment that has it: the node's, a scope's or a mirror's.
    pub run_dir: RunDir,
    pub node: Arc<str>,
    /// The stream in that segment.
    pub of_owner: Arc<DirectoryEntry>,
    /// The descriptor by which rules know it.
    pub descriptor: Arc<Descriptor>,
    /// The length of the past, in ns.
    pub length_ns: i64,
}

impl PastStream {
    /// The path of the run directory that has it.
    pub(crate) fn dir(&self) -> &Path {
        self.run_dir.path()
    }
}

/// The past of one stream, as far as it was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FoundPast {
    /// Summaries of the samples before the others, where those were too many.
    pub older: Vec<FiringSummary>,
    /// In order of time; those that the ring holds are among them.
    pub samples: Vec<Sample>,
    /// The reason why there may be more than was found.
    pub lack: Option<&'static str>,
}

impl FoundPast {
    /// Nothing was found, for this reason.
    pub(crate) fn lacking(lack: &'static str) -> Self {
        Self {
            lack: Some(lack),
            ..Self::default()
        }
    }

    /// The time of the oldest that was found.
    pub(crate) fn oldest_ns(&self) -> Option<i64> {
        let older = self.older.first().map(|s| s.ts);
        older.or_else(|| self.samples.first().map(|s| s.ts))
    }
}

/// The past of several streams.
pub(crate) type FoundPasts = Vec<(StreamKey, FoundPast)>;

/// An event of the reader of the past.
pub(crate) enum PastEvent {
    /// The past of some of the streams of the request.
    Found(FoundPasts),
    /// The reader ended, or could not begin.
    Ended,
}

/// The order to a reader. It ends early when the request is dropped.
#[derive(Clone)]
pub(crate) struct PastOrder {
    pub streams: Vec<PastStream>,
    pub cancel: Arc<AtomicBool>,
}

/// A request under way.
pub(crate) struct RuleBackfill {
    order: PastOrder,
    /// The streams whose past was not found yet.
    left: BTreeSet<StreamKey>,
    until_ns: i64,
}

impl RuleBackfill {
    /// Begins at `now_ns` of the monotonic clock.
    pub(crate) fn new(streams: Vec<PastStream>, now_ns: i64) -> Self {
        Self {
            left: streams.iter().map(|stream| stream.key).collect(),
            order: PastOrder {
                streams,
                cancel: Arc::default(),
            },
            until_ns: now_ns.saturating_add(WAIT_NS_MAX),
        }
    }

    /// The order for a reader.
    pub(crate) fn order(&self) -> PastOrder {
        self.order.clone()
    }

    /// The streams of the request.
    pub(crate) fn streams(&self) -> &[PastStream] {
        &self.order.streams
    }

    /// The time at which nobody waits any longer, in ns of the monotonic clock.
    pub(crate) fn deadline_ns(&self) -> i64 {
        self.until_ns
    }

    /// Notes that these were found.
    pub(crate) fn found(&mut self, found: &FoundPasts) {
        for (key, _) in found {
            self.left.remove(key);
        }
    }

    /// The answer for the streams that are left when the reading has ended or is not waited for any
    /// longer.
    pub(crate) fn late(&self) -> FoundPasts {
        let left = self.left.iter();
        left.map(|key| (*key, FoundPast::lacking(LATE))).collect()
    }
}

impl Drop for RuleBackfill {
    fn drop(&mut self) {
        self.order.cancel.store(true, Ordering::Relaxed);
    }
}
