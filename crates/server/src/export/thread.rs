//! The exporting thread: it looks at the segment each second and gives every receiver its turn.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use barograph_model::Clock;
use barograph_stream::RunDir;
use tracing::warn;

use crate::ServerError;
use crate::export::line::ExportLine;
use crate::export::receiver::ExportConfig;
use crate::export::status::ExportStatus;
use crate::view::ServedViews;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Longest wait of a stop for a request that is under way.
const STOP_MAX: Duration = Duration::from_secs(1);

/// Receivers whose configuration is checked, before anything is sent.
pub struct Exports {
    lines: Vec<ExportLine>,
}

impl Exports {
    /// Checks the receivers. Returns `None` if there are none: then there is no thread and no
    /// connection.
    pub fn prepare(config: &ExportConfig) -> Result<Option<Self>, ServerError> {
        let mut lines = Vec::new();
        if let Some(receiver) = &config.otlp {
            lines.push(ExportLine::otlp(receiver)?);
        }
        if let Some(receiver) = &config.remote_write {
            lines.push(ExportLine::remote_write(receiver)?);
        }
        Ok((!lines.is_empty()).then_some(Self { lines }))
    }

    /// The counts of these receivers, which are updated while the thread runs.
    pub fn status(&self) -> ExportStatus {
        ExportStatus(self.lines.iter().map(ExportLine::counters).collect())
    }

    /// Starts the thread; it reads the segment of this run directory.
    pub fn start(self, run_dir: RunDir, clock: Arc<dyn Clock>) -> Result<Exporter, ServerError> {
        let state = Arc::new(State::default());
        let ours = Arc::clone(&state);
        let mut lines = self.lines;
        lines.iter().for_each(ExportLine::announce);
        let thread = std::thread::Builder::new()
            .name("baro-export".into())
            .spawn(move || {
                barograph_stream::give_way();
                serve(&mut lines, &ServedViews::new(run_dir), &*clock, &ours);
                ours.set(Phase::Ended);
            })
            .map_err(|source| ServerError::Threads { source })?;
        Ok(Exporter {
            state,
            thread: Some(thread),
        })
    }
}

/// A running export. Dropping it stops it in bounded time; samples that are not sent by then stay
/// unsent.
pub struct Exporter {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.state.set(Phase::Stopping);
        let has_ended = self.state.wait(STOP_MAX, |phase| phase == Phase::Ended);
        // A thread that still waits for its receiver ends with its request, or with the process.
        if let Some(thread) = self.thread.take().filter(|_| has_ended)
            && thread.join().is_err()
        {
            warn!("the exporting thread had panicked");
        }
    }
}

fn serve(lines: &mut [ExportLine], views: &ServedViews, clock: &dyn Clock, state: &State) {
    let stopped = || state.phase() != Phase::Running;
    while !stopped() {
        // Without a segment there is nothing to send; it is looked for again at the next look.
        if let Ok(view) = views.current(clock.now_ns()) {
            for line in &mut *lines {
                line.turn(&view, clock, &stopped);
            }
        }
        state.wait(LOOK, |phase| phase != Phase::Running);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Running,
    Stopping,
    Ended,
}

/// The life phase of the thread, shared with its owner.
#[derive(Debug, Default)]
struct State {
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl State {
    fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.changed.notify_all();
    }

    /// Waits until `done` or until the time is up; returns whether it is done.
    #[expect(
        clippy::disallowed_methods,
        reason = "the end of an export waits for a request that is under way"
    )]
    fn wait(&self, time_max: Duration, done: impl Fn(Phase) -> bool) -> bool {
        let phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(phase, time_max, |phase| !done(*phase));
        let (phase, _) = waited.unwrap_or_else(PoisonError::into_inner);
        done(*phase)
    }
}
