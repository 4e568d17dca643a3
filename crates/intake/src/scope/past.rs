//! The record of earlier lives of the agent in a scope's archive.
//!
//! It is read by a job beside the intake where the archive comes up late, since the files of an
//! archive may be many and their disk slow. Meanwhile the scope takes in as if it had no past.

use std::sync::Arc;

use barograph_model::Clock;
use barograph_recorder::Job;
use barograph_stream::RunDir;
use tracing::warn;

use super::{Scope, ScopeSettings};
use crate::door::knock;
use crate::ledger::{LossLedger, PastLoss};
use crate::newest::NewestTimes;

pub(super) struct ScopePast {
    newest: NewestTimes,
    losses: Vec<PastLoss>,
}

impl ScopePast {
    /// Reads the time of each series' newest sample, and the losses. Only indexes and the samples
    /// of losses are read. The present life of the scope began at `opened_ns`.
    pub(super) fn read(
        run_dir: &RunDir,
        node: &str,
        clock: &Arc<dyn Clock>,
        opened_ns: i64,
    ) -> Self {
        Self {
            losses: PastLoss::read(run_dir, node, clock, opened_ns),
            newest: NewestTimes::read(run_dir, node, clock),
        }
    }

    /// Adds the past to what the scope knows of its present life.
    pub(super) fn add_to(self, newest: &mut NewestTimes, ledger: &mut LossLedger) {
        newest.add(self.newest);
        ledger.add_past(self.losses);
    }
}

/// The progress of reading a scope's past.
pub(super) enum PastReading {
    /// The archive has not come up yet.
    Awaited,
    /// The archive has come up, and the job that reads it is to be started. Whether the lack of a
    /// thread for it was told.
    Due { is_told: bool },
    /// A job reads.
    Running(Job<ScopePast>),
    /// The past was read, or cannot be.
    Done,
}

impl PastReading {
    pub(super) fn is_finished(&self) -> bool {
        matches!(self, Self::Running(job) if job.is_finished())
    }
}

impl Scope<'_> {
    /// Begins to read the past, if that is still to be done. The job knocks when it ends, so that
    /// the intake thread takes the result. If the job cannot be started now, the next call tries
    /// again.
    pub(super) fn begin_past(&mut self, settings: &ScopeSettings, clock: &Arc<dyn Clock>) {
        let PastReading::Due { is_told } = self.past else {
            return;
        };
        let (run_dir, opened_ns) = (self.run_dir.clone(), self.opened_ns);
        let work = settings.shared.world.work.clone();
        let (settings, clock) = (settings.clone(), Arc::clone(clock));
        let read = move || {
            let past = ScopePast::read(&run_dir, &settings.node, &clock, opened_ns);
            knock(&settings.run_dir.ingest_socket());
            past
        };
        match work.start(&format!("past-{}", self.name), read) {
            Ok(job) => self.past = PastReading::Running(job),
            Err(error) => {
                if !is_told {
                    warn!(%error, scope = self.name, "the past of a scope is read later");
                }
                self.past = PastReading::Due { is_told: true };
            }
        }
    }

    /// Takes the past that a job reads, and waits for it if it is not finished.
    pub(super) fn take_past(&mut self) {
        let PastReading::Running(job) = std::mem::replace(&mut self.past, PastReading::Done) else {
            return;
        };
        // A panic of its thread was already reported.
        if let Ok(past) = job.join() {
            past.add_to(&mut self.newest, &mut self.ledger);
            self.tell_due(self.streams.now_ns());
        }
    }
}
