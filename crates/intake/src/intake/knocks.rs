//! Knocks: programs that sleep tell that they have news.

use super::{Intake, SWEEP_MAX};
use crate::door::Knocks;
use crate::timing::after_rest;

impl Intake<'_> {
    /// Wakes the processes that have knocked. If there were so many that some were lost, checks all
    /// sleeping processes for news.
    pub(super) fn hear(&mut self, knocks: Knocks) {
        let mut strangers = Vec::new();
        for incarnation in knocks.from {
            if !self.roster.wake(incarnation) {
                strangers.push(incarnation);
            }
        }
        if !strangers.is_empty() && self.clock.monotonic_ns() >= self.directory.next_ns() {
            // Searches for all new files, so that an older process, for example the parent of the
            // one that knocked, gets its instance numbers first.
            self.scan();
        }
        for incarnation in strangers {
            if !self.roster.has(incarnation) {
                self.welcome(incarnation);
            }
        }
        self.is_deaf |= knocks.is_burst;
        self.sweep();
    }

    /// Checks sleeping processes for news after knocks may have been lost.
    pub(super) fn sweep(&mut self) {
        let begun_ns = self.clock.monotonic_ns();
        if self.is_deaf && begun_ns >= self.next_sweep_ns {
            self.is_deaf = false;
            self.roster.begin_sweep();
        }
        if self.roster.is_sweeping() {
            self.roster.sweep(SWEEP_MAX);
            self.next_sweep_ns = after_rest(begun_ns, self.clock.monotonic_ns());
        }
    }
}
