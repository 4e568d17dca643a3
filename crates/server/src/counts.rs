//! What the server has had to refuse or drop: each loss is counted somewhere, and it is here.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the server has had to refuse or drop since its start, and who watches now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Watchers connected.
    pub watchers: u64,
    /// Connections refused for lack of room.
    pub refused_connections: u64,
    /// Watchers refused for lack of room.
    pub refused_watchers: u64,
    /// Ticks that watchers were too slow for.
    pub skipped_ticks: u64,
}

/// The counters behind [`Counts`], shared by all connections.
#[derive(Debug, Default)]
pub struct Counters {
    pub watchers: AtomicU64,
    pub refused_connections: AtomicU64,
    pub refused_watchers: AtomicU64,
    pub skipped_ticks: AtomicU64,
}

impl Counters {
    /// The counts as they are now.
    pub fn now(&self) -> Counts {
        Counts {
            watchers: self.watchers.load(Ordering::Relaxed),
            refused_connections: self.refused_connections.load(Ordering::Relaxed),
            refused_watchers: self.refused_watchers.load(Ordering::Relaxed),
            skipped_ticks: self.skipped_ticks.load(Ordering::Relaxed),
        }
    }
}
