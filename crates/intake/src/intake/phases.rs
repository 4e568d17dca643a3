//! Phases of I/O in the intake: reports go to the desk, and its answers into the files.

use std::sync::Arc;

use barograph_stream::Incarnation;
use barograph_stream::ingest::PhaseAnswer;
use tracing::debug;

use super::Intake;
use crate::phases::{PhaseDesk, REPORT_WORK};
use crate::process::PublishingProcess;

/// After phases were attended outside of a round, there is a rest of so many times as long as that
/// took: whoever knocks all the time has a fifth of the thread at most.
const REST_TIMES: i64 = 4;
/// Most records of a process that are gone through outside of a round.
const RECORDS_MAX: u64 = 1 << 10;

/// The desk, and the times of its work.
pub(super) struct IntakePhases {
    desk: Option<Arc<dyn PhaseDesk>>,
    /// No knocks for phases are attended before this monotonic time.
    due_ns: i64,
    /// Monotonic time of the desk's next step.
    next_ns: i64,
}

impl IntakePhases {
    pub(super) fn new(desk: Option<Arc<dyn PhaseDesk>>) -> Self {
        Self {
            desk,
            due_ns: i64::MIN,
            next_ns: i64::MAX,
        }
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
        self.phases.due_ns
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
        let ended_ns = self.clock.monotonic_ns();
        let took_ns = ended_ns.saturating_sub(begun_ns);
        self.phases.due_ns = ended_ns.saturating_add(took_ns.saturating_mul(REST_TIMES));
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
            if let Some(process) = self.roster.get(outcome.incarnation)
                && let Err(error) = process.file().answer_phase(&answer)
            {
                debug!(%error, "a phase of I/O is not answered");
            }
        }
        self.wake_phases(last);
    }

    fn wake_phases(&self, incarnation: Option<Incarnation>) {
        let process = incarnation.and_then(|incarnation| self.roster.get(incarnation));
        if let Some(process) = process
            && let Err(error) = process.file().wake_phases()
        {
            debug!(%error, "a process that waits for an answer is not woken");
        }
    }

    /// Tells all processes that nobody answers from now on.
    pub(super) fn end_phases(&mut self) {
        for process in self.roster.iter_mut() {
            process.set_schedules(None);
            if let Err(error) = process.file().wake_phases() {
                debug!(%error, "a process is not told that its I/O is not scheduled any more");
            }
        }
    }
}
