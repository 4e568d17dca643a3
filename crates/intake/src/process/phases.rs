//! The phases of I/O of a process, and its answers.

use barograph_stream::StreamError;
use tracing::debug;

use super::PublishingProcess;
use crate::phases::{PhaseNews, PhaseProcess};

/// Minor version of the ingest format since which writers read answers to phases of I/O.
const PHASES_SINCE: u32 = 3;

impl PublishingProcess {
    /// What it has said of its phases of I/O.
    pub(crate) fn phases_mut(&mut self) -> &mut PhaseNews {
        &mut self.phases
    }

    /// The process as the desk for phases of I/O knows it.
    pub(crate) fn phase_process(&self) -> PhaseProcess {
        let job = self.labels.iter().find(|(name, _)| name == "job");
        PhaseProcess {
            incarnation: self.file.incarnation(),
            pid: self.file.pid(),
            start_ticks: self.file.start_ticks(),
            uid: self.uid(),
            application: self.application.clone(),
            job: job.map_or_else(String::new, |(_, job)| job.clone()),
        }
    }

    /// Tells the process whether its I/O is scheduled.
    pub(crate) fn set_schedules(&mut self, schedules: Option<bool>) {
        if self.file.version_minor() >= PHASES_SINCE
            && let Err(error) = self.file.set_schedules(schedules)
        {
            debug!(%error, "a process is not told whether its I/O is scheduled");
        }
    }

    /// Wakes its threads that wait for an answer to a phase of I/O.
    pub(crate) fn wake_phases(&mut self) -> Result<(), StreamError> {
        self.file.wake_phases()
    }
}
