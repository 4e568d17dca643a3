//! Counters and the newest error of the reads of one source.

use crate::SourceError;

#[derive(Default)]
pub(crate) struct Books {
    pub(crate) polls: u64,
    pub(crate) errors: u64,
    pub(crate) missed: u64,
    pub(crate) cost_ns: i64,
    pub(crate) skew_ns: i64,
    pub(crate) samples_last: usize,
    pub(crate) failing: bool,
    pub(crate) stalled: bool,
    pub(crate) facts_refused: u64,
    pub(crate) last_error: Option<String>,
}

impl Books {
    /// Counts a read that has ended.
    pub(crate) fn close(&mut self, result: Result<(), SourceError>, cost_ns: i64) {
        self.polls += 1;
        self.cost_ns = self.cost_ns.saturating_add(cost_ns.max(0));
        self.stalled = false;
        self.failing = false;
        if let Err(fault) = result {
            self.errors += 1;
            self.fail(fault.to_string());
        }
    }

    pub(crate) fn cost_ns_mean(&self) -> i64 {
        self.cost_ns / (self.polls.max(1) as i64)
    }

    pub(crate) fn fail(&mut self, reason: String) {
        self.failing = true;
        self.last_error = Some(reason);
    }
}
