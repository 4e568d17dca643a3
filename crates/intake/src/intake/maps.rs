//! Server maps in the intake: uses go to the desk, and what it tells goes into the files.

use std::sync::Arc;

use barograph_model::NS_PER_S;
use barograph_stream::Incarnation;
use barograph_stream::ingest::MapWords;
use tracing::debug;

use super::{Intake, PAUSE_NS};
use crate::maps::MapDesk;
use crate::phases::REPORT_WORK;
use crate::process::PublishingProcess;

/// Most times that the desk is asked again since what was written has been reported to it.
const ASKED_MAX: usize = 4;
/// Longest time for which a process that has closed its file with operations running is kept, until
/// it is certain that it has ended.
const HELD_NS_MAX: i64 = 300 * NS_PER_S;

/// The desk, and the time of its next step.
pub(super) struct IntakeMaps {
    desk: Option<Arc<dyn MapDesk>>,
    next_ns: i64,
}

impl IntakeMaps {
    pub(super) fn new(desk: Option<Arc<dyn MapDesk>>) -> Self {
        Self {
            desk,
            next_ns: i64::MAX,
        }
    }

    pub(super) fn next_ns(&self) -> i64 {
        self.next_ns
    }

    /// Hands the uses of a process to the desk, and its end, if it is quiet because it was killed.
    /// Returns the work of that.
    pub(super) fn report(
        &self,
        process: &mut PublishingProcess,
        is_quiet: bool,
        now_ns: i64,
    ) -> u64 {
        if !process.has_maps() || process.maps().has_left() {
            return 0;
        }
        let uses = match process.map_uses() {
            Ok(uses) => uses,
            Err(error) => {
                debug!(%error, "the uses of maps of a process are not read");
                return REPORT_WORK;
            }
        };
        let Some(desk) = self.desk.as_ref().filter(|desk| desk.uses_maps()) else {
            // What an agent before this one has told is kept: the servers know of it.
            let untold = uses.iter().filter(|(_, used)| used.told.is_none());
            let mut told = untold.filter(|(slot, _)| process.tell_map(*slot, 0, &MapWords::OFF));
            if told.by_ref().count() > 0 {
                wake(process);
            }
            return REPORT_WORK;
        };
        let reports = process.map_reports(&uses, now_ns);
        if !reports.is_empty() {
            process.maps_mut().set_known();
            desk.report(&process.phase_process(), &reports);
        }
        if is_quiet && process.maps().is_known() && process.file().has_surely_ended() {
            self.leave(process);
        }
        (1 + reports.len() as u64) * REPORT_WORK
    }

    /// Whether a process that is over is kept, since it is not certain that nothing of it runs.
    pub(super) fn holds(&self, process: &PublishingProcess, now_ns: i64) -> bool {
        process.maps().is_known()
            && process.quiet_ns(now_ns) < HELD_NS_MAX
            && !has_surely_left(process)
    }

    /// Tells the desk of the end of a process that has used maps.
    pub(super) fn leave(&self, process: &mut PublishingProcess) {
        if process.maps_mut().take_known()
            && let Some(desk) = &self.desk
        {
            let is_certain = has_surely_left(process);
            desk.leave(process.file().incarnation(), is_certain);
        }
    }
}

/// Whether nothing of a process runs, nor ever will: it has ended, or it has closed its file, after
/// which nothing begins, and nothing runs.
fn has_surely_left(process: &PublishingProcess) -> bool {
    let file = process.file();
    if file.has_surely_ended() {
        return true;
    }
    // The look that saw the end came before this read.
    let uses = process.map_uses();
    file.is_closed() && uses.is_ok_and(|uses| uses.iter().all(|(_, used)| used.running == 0))
}

fn wake(process: &mut PublishingProcess) {
    if let Err(error) = process.wake_phases() {
        debug!(%error, "a process that waits for a map is not woken");
    }
}

impl Intake<'_> {
    /// Writes what the desk tells into the files of the processes, and reports what they count
    /// after that.
    pub(super) fn tell_maps(&mut self) {
        let Some(desk) = self.maps.desk.clone() else {
            return;
        };
        for _ in 0..ASKED_MAX {
            self.maps.next_ns = desk.step().unwrap_or(i64::MAX);
            let mut told: Vec<Incarnation> = Vec::new();
            for outcome in desk.take_outcomes() {
                let Some(process) = self.roster.get_mut(outcome.incarnation) else {
                    continue;
                };
                let is_written = process.tell_map(outcome.slot, outcome.number, &outcome.words);
                if is_written && told.last() != Some(&outcome.incarnation) {
                    told.push(outcome.incarnation);
                }
            }
            if told.is_empty() {
                return;
            }
            let now_ns = self.clock.monotonic_ns();
            for incarnation in told {
                if let Some(process) = self.roster.get_mut(incarnation) {
                    wake(process);
                    self.maps.report(process, false, now_ns);
                }
            }
        }
        // What the last reports have led to is told at the next step, which is due.
        self.maps.next_ns = self.clock.monotonic_ns().saturating_add(PAUSE_NS);
    }
}
