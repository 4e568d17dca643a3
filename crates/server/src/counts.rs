//! Counters of requests, and of everything that the server refused or dropped.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of requests since the server's start, also of refused and dropped ones, and of watchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests that came, refused ones too.
    pub requests: u64,
    /// Number of watchers that are connected now.
    pub watchers: u64,
    /// Connections that were refused because the bound was reached.
    pub refused_connections: u64,
    /// Watchers that were refused because the bound was reached.
    pub refused_watchers: u64,
    /// Ticks that were not sent, because the watcher was too slow or memory was short.
    pub skipped_ticks: u64,
}

/// The counters behind [`RequestCounts`], shared by all connections.
#[derive(Debug, Default)]
pub(crate) struct RequestCounters {
    pub requests: AtomicU64,
    pub watchers: AtomicU64,
    pub refused_connections: AtomicU64,
    pub refused_watchers: AtomicU64,
    pub skipped_ticks: AtomicU64,
}

impl RequestCounters {
    /// Reads the present counts.
    pub(crate) fn now(&self) -> RequestCounts {
        RequestCounts {
            requests: self.requests.load(Ordering::Relaxed),
            watchers: self.watchers.load(Ordering::Relaxed),
            refused_connections: self.refused_connections.load(Ordering::Relaxed),
            refused_watchers: self.refused_watchers.load(Ordering::Relaxed),
            skipped_ticks: self.skipped_ticks.load(Ordering::Relaxed),
        }
    }
}
