//! Counts of the exports, for the agent's own streams and other readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one receiver since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportCounts {
    /// The protocol: `otlp` or `remote_write`.
    pub to: &'static str,
    /// Samples that the receiver took.
    pub sent_samples: u64,
    /// Requests that failed; every attempt counts.
    pub failed_requests: u64,
    /// Samples that the receiver will never get: refused, overwritten in the ring, or out of order.
    pub lost_samples: u64,
}

/// The counts of all receivers, shared with the exporting thread. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ExportStatus(pub(super) Vec<Arc<ExportCounters>>);

impl ExportStatus {
    /// The present counts, one item for each configured receiver.
    pub fn counts(&self) -> impl Iterator<Item = ExportCounts> {
        self.0.iter().map(|counters| counters.now())
    }
}

/// The counters behind [`ExportCounts`].
#[derive(Debug)]
pub(super) struct ExportCounters {
    pub to: &'static str,
    sent_samples: AtomicU64,
    failed_requests: AtomicU64,
    lost_samples: AtomicU64,
}

impl ExportCounters {
    pub(super) fn new(to: &'static str) -> Self {
        Self {
            to,
            sent_samples: AtomicU64::new(0),
            failed_requests: AtomicU64::new(0),
            lost_samples: AtomicU64::new(0),
        }
    }

    pub(super) fn sent(&self, samples: u64) {
        self.sent_samples.fetch_add(samples, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed_requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost(&self, samples: u64) {
        self.lost_samples.fetch_add(samples, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> ExportCounts {
        ExportCounts {
            to: self.to,
            sent_samples: self.sent_samples.load(Ordering::Relaxed),
            failed_requests: self.failed_requests.load(Ordering::Relaxed),
            lost_samples: self.lost_samples.load(Ordering::Relaxed),
        }
    }
}
