//! Decides whether the running statement must stop: its client has gone, or its time is over.
//!
//! It stands alone because two callers need it: SQLite's progress handler between instructions, and
//! a scan that waits for the archive within one instruction.

#[cfg(feature = "bundled")]
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

#[cfg(feature = "bundled")]
use crate::sqlite::LentFlag;

/// The watch over the statements of one connection, one at a time. A host program's connection has
/// none: the host stops its statements itself.
#[derive(Default)]
pub(crate) struct StatementWatch {
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
impl StatementWatch {
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

    /// Whether the statement must stop. May only be called on the thread that steps it.
    pub(crate) fn must_stop(&self, monotonic_ns: i64) -> bool {
        if self.cancel.is_set() {
            self.cancelled.store(true, Ordering::Relaxed);
            return true;
        }
        monotonic_ns > self.deadline_ns.load(Ordering::Relaxed)
    }

    /// Whether the statement was stopped because its client has gone.
    pub(crate) fn was_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// A number that is different for every statement.
    pub(crate) fn statement(&self) -> u64 {
        self.statement.load(Ordering::Relaxed)
    }
}

#[cfg(not(feature = "bundled"))]
impl StatementWatch {
    /// The host interrupts its own statement between steps.
    pub(crate) fn must_stop(&self, _monotonic_ns: i64) -> bool {
        false
    }

    /// Always 0: statements cannot be told apart here.
    pub(crate) fn statement(&self) -> u64 {
        0
    }
}
