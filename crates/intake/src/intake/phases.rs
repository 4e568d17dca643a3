//! Phases of I/O in the intake: reports go to the desk, and its answers into the files.

use std::sync::Arc;

use barograph_stream::Incarnation;
use barograph_stream::ingest::PhaseAnswer;
use tracing::debug;

use super::Intake;
use crate::phases::{PhaseDesk, REPORT_WORK};
use crate::process::PublishingProcess;

/// Phases may be attended outside of rounds for one part in so many of the thread's time, so
/// whoever knocks all the time does not keep it from the values of others.
const TIME_PARTS: i64 = 5;
/// Time that may be saved for that: knocks that come together are attended together.
const SAVED_NS_MAX: i64 = 5_000_000;
/// Most records of a process that are gone through outside of a round.
const RECORDS_MAX: u64 = 1 << 10;

/// The desk, and the times of its work.
pub(super) struct IntakePhases {
    desk: Option<Arc<dyn PhaseDesk>>,
    /// Time that was left for knocks at `counted_ns`; negative if too much was spent.
    left_ns: i64,
    counted_ns: i64,
    /// Monotonic time of the desk's next step.
    next_ns: i64,
}

impl IntakePhases {
    pub(super) fn new(desk: Option<Arc<dyn PhaseDesk>>) -> Self {
        Self {
            desk,
            left_ns: SAVED_NS_MAX,
            counted_ns: 0,
            next_ns: i64::MAX,
        }
    }

    /// Counts the time of work outside of a round.
    pub(super) fn spend(&mut self, begun_ns: i64, ended_ns: i64) {
        let since_ns = ended_ns.saturating_sub(self.counted_ns).max(0);
        let saved_ns = self.left_ns.saturating_add(since_ns / TIME_PARTS);
        let took_ns = ended_ns.saturating_sub(begun_ns).max(0);
        self.left_ns = saved_ns.min(SAVED_NS_MAX).saturating_sub(took_ns);
        self.counted_ns = ended_ns;
    }

    /// Whether I/O is scheduled, as programs are told.
    pub(super) fn schedules(&self) -> Option<bool> {
        Some(self.desk.as_ref().is_some_and(|desk| desk.schedules()))
    }

    pub(super) fn next_ns(&self) -> i64 {
        self.next_ns
    }

    /// Hands the reports of a process to the desk, and its end, if it is quiet because it was
    /// killed. Returns the work of that.
    pub(super) fn report(&self, process: &mut PublishingProcess, is_quiet: bool) -> u64 {
        let Some(desk) = &self.desk else {
            return 0;
        };
        let work = process.phases_mut().len() * REPORT_WORK;
        if work > 0 {
            let reports = process.phases_mut().take();
            desk.report(&process.phase_process(), &reports);
        }
        let has_phases = process.phases_mut().is_open();
        if has_phases && is_quiet && process.file().is_orphan() {
            self.leave(process);
        }
        work
    }

    /// Tells the desk of the end of a process that has had phases.
    pub(super) fn leave(&self, process: &mut PublishingProcess) {
        if process.phases_mut().take_open()
            && let Some(desk) = &self.desk
        {
            desk.leave(process.file().incarnation());
        }
    }
}

impl Intake<'_> {
    /// The monotonic time before which no knocks for phases are attended.
    pub(crate) fn phases_due_ns(&self) -> i64 {
        let phases = &self.phases;
        let spent_ns = phases.left_ns.saturating_neg().max(0);
        phases
            .counted_ns
            .saturating_add(spent_ns.saturating_mul(TIME_PARTS))
    }

    /// Looks at processes that wait for an answer, and answers.
    pub(super) fn attend_phases(&mut self, from: &[Incarnation]) {
        if from.is_empty() {
            return;
        }
        let begun_ns = self.clock.monotonic_ns();
        self.timing.attend(&**self.clock);
        for incarnation in from {
            if !self.roster.has(*incarnation) {
                self.welcome(*incarnation);
            }
            if let Some((number, process)) = self.roster.take(*incarnation) {
                let allowed = self.rates.allowed(process.uid(), begun_ns);
                self.attend_one(number, process, allowed.min(RECORDS_MAX));
            }
        }
        self.answer_phases();
        self.tell_maps();
        let ended_ns = self.clock.monotonic_ns();
        self.phases.spend(begun_ns, ended_ns);
    }

    /// Writes the answers of the desk into the files of the processes.
    pub(super) fn answer_phases(&mut self) {
        let Some(desk) = self.phases.desk.clone() else {
            return;
        };
        self.phases.next_ns = desk.step().unwrap_or(i64::MAX);
        let mut last = None;
        for outcome in desk.take_outcomes() {
            let answer = PhaseAnswer {
                phase: outcome.phase,
                state: outcome.state,
                share: outcome.share,
            };
            // The answers to one process stand together: it is woken once.
            if last.is_some_and(|last| last != outcome.incarnation) {
                self.wake_phases(last);
            }
            last = Some(outcome.incarnation);
            if let Some(process) = self.roster.get_mut(outcome.incarnation)
                && let Err(error) = process.file().answer_phase(&answer)
            {
                debug!(%error, "a phase of I/O is not answered");
            }
        }
        self.wake_phases(last);
    }

    fn wake_phases(&mut self, incarnation: Option<Incarnation>) {
        let process = incarnation.and_then(|incarnation| self.roster.get_mut(incarnation));
        if let Some(process) = process
            && let Err(error) = process.wake_phases()
        {
            debug!(%error, "a process that waits for an answer is not woken");
        }
    }

    /// Tells all processes that nobody answers from now on. Those that wait find that out when they
    /// ask again.
    pub(super) fn end_phases(&mut self) {
        for process in self.roster.iter_mut() {
            process.set_schedules(None);
        }
    }
}
