//! Whether the statement that runs must stop: its asker has gone, or its time is over.
//!
//! It stands alone because two ask it: SQLite's progress handler between its own instructions, and a
//! scan that waits for the archive within one of them.

#[cfg(feature = "bundled")]
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

#[cfg(feature = "bundled")]
use crate::sqlite::LentFlag;

/// The watch over the statements of one connection, one at a time. A host program's connection has
/// none: its statements stop when it stops them.
#[derive(Default)]
pub(crate) struct Watch {
    #[cfg(feature = "bundled")]
    cancel: LentFlag,
    #[cfg(feature = "bundled")]
    deadline_ns: AtomicI64,
    #[cfg(feature = "bundled")]
    cancelled: AtomicBool,
    #[cfg(feature = "bundled")]
    statement: AtomicU64,
}

#[cfg(feature = "bundled")]
impl Watch {
    /// Watches during `then`, which prepares and steps one statement.
    pub(crate) fn over<R>(
        &self,
        deadline_ns: i64,
        cancel: &AtomicBool,
        then: impl FnOnce() -> R,
    ) -> R {
        self.deadline_ns.store(deadline_ns, Ordering::Relaxed);
        self.cancelled.store(false, Ordering::Relaxed);
        self.statement.fetch_add(1, Ordering::Relaxed);
        self.cancel.lend(cancel, then)
    }

    /// Whether the statement must stop. To be called only on the thread that steps it.
    pub(crate) fn must_stop(&self, monotonic_ns: i64) -> bool {
        if self.cancel.is_set() {
            self.cancelled.store(true, Ordering::Relaxed);
            return true;
        }
        monotonic_ns > self.deadline_ns.load(Ordering::Relaxed)
    }

    /// Whether it was stopped because its asker has gone.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Another for every statement.
    pub(crate) fn statement(&self) -> u64 {
        self.statement.load(Ordering::Relaxed)
    }
}

#[cfg(not(feature = "bundled"))]
impl Watch {
    /// The host interrupts between the steps of its own statement.
    pub(crate) fn must_stop(&self, _monotonic_ns: i64) -> bool {
        false
    }

    /// Statements cannot be told apart here.
    pub(crate) fn statement(&self) -> u64 {
        0
    }
}
