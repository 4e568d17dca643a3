//! The copier: the thread that waits for the object store, so that nobody else does.
//!
//! It is handed a few errands at a time and says what became of them. It decides nothing and remembers nothing:
//! what is to be done is found in the manifest by the sealer, each time anew, so a stop or a crash loses none of it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Target;
use crate::manifest::PartKey;
use crate::seal::{NICE, Order};

/// Most errands that wait at once.
pub(crate) const JOBS_MAX: usize = 16;
/// Longest wait for an errand under way when the writer ends; then it is left to itself.
const STOP_MAX: Duration = Duration::from_secs(5);

/// What is done with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// It is made.
    Copy,
    /// It is removed.
    Remove,
}

/// One thing to do at the object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) what: Errand,
    pub(crate) key: PartKey,
    /// The file, relative to the archive's directory.
    pub(crate) path: PathBuf,
}

/// What became of it.
pub(crate) type Done = (Job, Result<(), String>);

/// Between the sealer and the copier.
pub(crate) struct Errands {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    busy: bool,
    /// At most as many as were handed over: more are, when these are taken.
    done: Vec<Done>,
    /// Wakes the sealer when there is no more to do; `None` when the writer ends.
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
        // Nothing that holds it can leave half a value behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done since this was asked last.
    pub(crate) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut self.lock().done)
    }

    /// Whether there is nothing to do, and all that was done is taken.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.jobs.is_empty() && !state.busy && state.done.is_empty()
    }

    /// Whether the thread is gone, so that nothing will be done any more.
    pub(crate) fn is_ended(&self) -> bool {
        self.lock().ended
    }

    /// Hands over what is to be done, up to [`JOBS_MAX`].
    pub(crate) fn hand_over(&self, jobs: impl Iterator<Item = Job>) {
        self.lock().jobs.extend(jobs.take(JOBS_MAX));
        self.changed.notify_all();
    }

    /// The next errand, without waiting.
    #[cfg(test)]
    pub(crate) fn begin(&self) -> Option<Job> {
        Self::begin_in(&mut self.lock())
    }

    fn begin_in(state: &mut State) -> Option<Job> {
        let job = state.jobs.pop_front();
        state.busy = job.is_some();
        job
    }

    /// The next errand, when there is one; `None` when the writer ends.
    fn wait(&self) -> Option<Job> {
        let idle = |state: &mut State| state.jobs.is_empty() && state.wake.is_some();
        let waited = self.changed.wait_while(self.lock(), idle);
        Self::begin_in(&mut waited.unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes what became of an errand. After a failure the others are left: when they are tried again is the
    /// sealer's to say, who finds them again.
    pub(crate) fn finish(&self, job: Job, result: Result<(), String>) {
        let mut state = self.lock();
        if result.is_err() {
            state.jobs.clear();
        }
        state.done.push((job, result));
        state.busy = false;
        if let (true, Some(wake)) = (state.jobs.is_empty(), &state.wake) {
            // A sealer that has other orders looks after each of them.
            let _ = wake.try_send(Order::Copied);
        }
    }

    /// Nothing more is begun.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.jobs.clear();
        state.wake = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for the thread, but not for ever; whether it has ended.
    pub(crate) fn wait_for_end(&self) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), STOP_MAX, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended
    }
}

/// The thread: one errand after the other, until the writer ends.
pub(crate) fn run(
    errands: &Arc<Errands>,
    mut target: Box<dyn Target>,
    root: &Path,
    stop: &AtomicBool,
) {
    let ended = Ended(Arc::clone(errands));
    // Without it copying would only be less polite.
    let _ = rustix::process::setpriority_process(None, NICE);
    while let Some(job) = errands.wait() {
        let result = match job.what {
            _ if stop.load(Ordering::Relaxed) => return,
            Errand::Copy => target.copy(&root.join(&job.path), &job.path, stop),
            Errand::Remove => target.remove(&job.path, stop),
        };
        errands.finish(job, result);
    }
    // Before the target goes, which may wait for a network once more.
    drop(ended);
}

/// However the thread ends, nobody waits for it afterwards.
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
