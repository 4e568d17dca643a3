//! The copier: the thread that waits for the object store, so that no other thread does.
//!
//! The copier takes a few jobs at a time and reports the result of each. It decides nothing and
//! remembers nothing: the sealer finds the jobs in the manifest, each time anew, so a stop or a
//! crash loses none of them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Target;
use crate::order::Order;
use crate::part::PartKey;

/// Most jobs that wait at once.
pub(crate) const JOBS_MAX: usize = 16;
/// Longest wait for a job under way when the writer ends; after that its thread is left behind.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The operation on a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// The copy is made.
    Copy,
    /// The copy is deleted.
    Remove,
}

/// One operation at the object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) what: Errand,
    pub(crate) key: PartKey,
    /// Path of the file, relative to the archive's directory.
    pub(crate) path: PathBuf,
}

/// A finished job and its result.
pub(crate) type Done = (Job, Result<(), String>);

/// The queue between the sealer and the copier.
pub(crate) struct Errands {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    busy: bool,
    /// Results of finished jobs. No more than were handed over together: the next jobs come after
    /// these are taken.
    done: Vec<Done>,
    /// Wakes the sealer when no jobs are left; `None` once the writer ends.
    wake: Option<SyncSender<Order>>,
    ended: bool,
}

impl Errands {
    pub(crate) fn new(wake: SyncSender<Order>) -> Self {
        let state = State {
            jobs: VecDeque::new(),
            busy: false,
            done: Vec::new(),
            wake: Some(wake),
            ended: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of the lock can leave a half-written value behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the results since the last call.
    pub(crate) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut self.lock().done)
    }

    /// Whether no job is left, and all results are taken.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.jobs.is_empty() && !state.busy && state.done.is_empty()
    }

    /// Whether the thread has ended, so that no job will be done any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.lock().ended
    }

    /// Hands over jobs, up to [`JOBS_MAX`].
    pub(crate) fn hand_over(&self, jobs: impl Iterator<Item = Job>) {
        self.lock().jobs.extend(jobs.take(JOBS_MAX));
        self.changed.notify_all();
    }

    /// Returns the next job, without waiting.
    #[cfg(test)]
    pub(crate) fn begin(&self) -> Option<Job> {
        Self::begin_in(&mut self.lock())
    }

    fn begin_in(state: &mut State) -> Option<Job> {
        let job = state.jobs.pop_front();
        state.busy = job.is_some();
        job
    }

    /// Waits for the next job; `None` when the writer ends.
    fn wait(&self) -> Option<Job> {
        let idle = |state: &mut State| state.jobs.is_empty() && state.wake.is_some();
        let waited = self.changed.wait_while(self.lock(), idle);
        Self::begin_in(&mut waited.unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes the result of a job. After a failure the other jobs are dropped: the sealer finds them
    /// again and decides when they are tried again.
    pub(crate) fn finish(&self, job: Job, result: Result<(), String>) {
        let mut state = self.lock();
        if result.is_err() {
            state.jobs.clear();
        }
        state.done.push((job, result));
        state.busy = false;
        if let (true, Some(wake)) = (state.jobs.is_empty(), &state.wake) {
            // If the queue is full, the sealer has other orders, and takes the results after each
            // of them.
            let _ = wake.try_send(Order::Copied);
        }
    }

    /// Drops the waiting jobs; no other is begun.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.jobs.clear();
        state.wake = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the thread, at most [`STOP_MAX`]; returns whether it has ended.
    pub(crate) fn wait_for_end(&self) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), STOP_MAX, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}

/// The body of the thread: does one job after the other, until the writer ends.
pub(crate) fn run(
    errands: &Arc<Errands>,
    mut target: Box<dyn Target>,
    root: &Path,
    stop: &AtomicBool,
) {
    let ended = Ended(Arc::clone(errands));
    barograph_stream::give_way();
    while let Some(job) = errands.wait() {
        let result = match job.what {
            _ if stop.load(Ordering::Relaxed) => return,
            Errand::Copy => target.copy(&root.join(&job.path), &job.path, stop),
            Errand::Remove => target.remove(&job.path, stop),
        };
        errands.finish(job, result);
    }
    // The end is reported before the target is dropped, which may wait for the network once more.
    drop(ended);
}

/// A guard that marks the copier as ended, however the thread ends, so that nobody waits for it.
struct Ended(Arc<Errands>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        state.jobs.clear();
        state.busy = false;
        drop(state);
        self.0.changed.notify_all();
    }
}
