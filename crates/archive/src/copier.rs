//! The copier waits for the object store on a thread of its own, so that no other thread does.
//!
//! The copier takes a few jobs at a time and reports the result of each. It decides nothing and
//! remembers nothing: the sealer finds the jobs in the manifest, each time anew, so a stop or a
//! crash loses none of them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::CopyTarget;
use crate::order::SealerMessage;
use crate::part::PartKey;

/// Most jobs that wait at once.
pub(crate) const JOBS_MAX: usize = 16;
/// Longest wait for a job under way when the writer ends; after that its thread is left behind.
const STOP_MAX: Duration = Duration::from_secs(5);

/// The operation on a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyOperation {
    /// The copy is made.
    Copy,
    /// The copy is deleted.
    Remove,
}

/// One operation at the object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyJob {
    pub(crate) what: CopyOperation,
    pub(crate) key: PartKey,
    /// Path of the file, relative to the archive's directory.
    pub(crate) path: PathBuf,
}

/// A finished job and its result.
pub(crate) type CopyDone = (CopyJob, Result<(), String>);

/// The queue between the sealer and the copier.
pub(crate) struct CopyQueue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    jobs: VecDeque<CopyJob>,
    busy: bool,
    /// Results of finished jobs. No more than were handed over together: the next jobs come after
    /// these are taken.
    done: Vec<CopyDone>,
    /// Wakes the sealer when no jobs are left; `None` once the writer ends.
    wake: Option<SyncSender<SealerMessage>>,
    ended: bool,
}

impl CopyQueue {
    pub(crate) fn new(wake: SyncSender<SealerMessage>) -> Self {
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
    pub(crate) fn take_done(&self) -> Vec<CopyDone> {
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
    pub(crate) fn hand_over(&self, jobs: impl Iterator<Item = CopyJob>) {
        self.lock().jobs.extend(jobs.take(JOBS_MAX));
        self.changed.notify_all();
    }

    /// Returns the next job, without waiting.
    pub(crate) fn begin(&self) -> Option<CopyJob> {
        let mut state = self.lock();
        let job = state.jobs.pop_front();
        state.busy = job.is_some();
        job
    }

    /// Waits for the next job, or for the end of the writer.
    fn wait(&self) {
        let idle = |state: &mut State| state.jobs.is_empty() && state.wake.is_some();
        drop(self.changed.wait_while(self.lock(), idle));
    }

    /// Whether the writer has ended.
    fn is_stopped(&self) -> bool {
        self.lock().wake.is_none()
    }

    /// Notes the result of a job. After a failure the other jobs are dropped: the sealer finds them
    /// again and decides when they are tried again.
    pub(crate) fn finish(&self, job: CopyJob, result: Result<(), String>) {
        let mut state = self.lock();
        if result.is_err() {
            state.jobs.clear();
        }
        state.done.push((job, result));
        state.busy = false;
        if let (true, Some(wake)) = (state.jobs.is_empty(), &state.wake) {
            // If the queue is full, the sealer has other orders, and takes the results after each
            // of them.
            let _ = wake.try_send(SealerMessage::Copied);
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
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell of the copier: its end waits for a target"
    )]
    pub(crate) fn wait_for_end(&self) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), STOP_MAX, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}

/// The body of the thread: does one job after the other, until the writer ends.
pub(crate) fn run(mut copier: Copier) {
    barograph_stream::give_way();
    while !copier.is_ended() {
        if copier.step(0) > 0 {
            copier.errands().wait();
        }
    }
}

/// The copier: does the jobs that the sealer hands over.
pub(crate) struct Copier {
    /// The field comes first, so that the end is reported before the target is dropped, which may
    /// wait for the network once more.
    ended: Ended,
    target: Box<dyn CopyTarget>,
    /// The archive's directory.
    root: PathBuf,
    stop: Arc<AtomicBool>,
    is_ended: bool,
}

impl Copier {
    pub(crate) fn new(
        errands: Arc<CopyQueue>,
        target: Box<dyn CopyTarget>,
        root: PathBuf,
        stop: Arc<AtomicBool>,
    ) -> Self {
        Self {
            ended: Ended(errands),
            target,
            root,
            stop,
            is_ended: false,
        }
    }

    /// Does one job, if there is one, and returns the time of the next step: now after a job,
    /// otherwise none before new jobs.
    pub(crate) fn step(&mut self, now_ns: i64) -> i64 {
        let (job, stop) = (self.errands().begin(), &*self.stop);
        let Some(job) = job.filter(|_| !stop.load(Ordering::Relaxed)) else {
            self.is_ended = stop.load(Ordering::Relaxed) || self.errands().is_stopped();
            return i64::MAX;
        };
        let result = match job.what {
            CopyOperation::Copy => {
                let local = self.root.join(&job.path);
                self.target.copy(&local, &job.path, stop)
            }
            CopyOperation::Remove => self.target.remove(&job.path, stop),
        };
        self.errands().finish(job, result);
        now_ns
    }

    /// Whether no job will be done any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    fn errands(&self) -> &CopyQueue {
        &self.ended.0
    }
}

/// A guard that marks the copier as ended, however the thread ends, so that nobody waits for it.
struct Ended(Arc<CopyQueue>);

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
