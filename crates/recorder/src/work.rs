//! Work that may wait for a disk, beside a loop that must not: a job is done on a thread of its
//! own, or, where a whole agent runs in one thread, when the owner of the queue runs it.
//!
//! It is a module of its own because archives, scopes and the agent all start such jobs.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The way to run work that may wait for a disk.
#[derive(Clone, Debug)]
pub enum Work {
    /// Each job has a thread of its own, and so has each loop of an archive.
    Threads,
    /// Jobs wait in a queue until its owner runs them, and the loops of archives are stepped
    /// ([`History::step`](crate::History::step)).
    Stepped(JobQueue),
}

impl Work {
    /// Starts a job. Fails if the system has no thread for it, or the queue no room.
    pub fn start<T: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Job<T>> {
        match self {
            Self::Threads => {
                let thread = std::thread::Builder::new().name(name.to_owned());
                thread.spawn(job).map(Job::Running)
            }
            Self::Stepped(queue) => queue.push(job).map(Job::Queued),
        }
    }

    /// Whether the loops of archives are stepped.
    pub fn is_stepped(&self) -> bool {
        matches!(self, Self::Stepped(_))
    }
}

/// A job that was started. Dropping it lets the job go on, and forgets its result.
pub enum Job<T> {
    /// A thread does the job.
    Running(JoinHandle<T>),
    /// The job is in a queue, or was.
    Queued(Arc<Mutex<QueuedJob<T>>>),
}

impl<T> Job<T> {
    /// Whether the job has ended.
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Running(thread) => thread.is_finished(),
            Self::Queued(job) => matches!(&*locked(job), QueuedJob::Ended(_)),
        }
    }

    /// Waits for the job, and returns its result, or the panic of its thread. A job that waits in a
    /// queue is done now, by the caller.
    pub fn join(self) -> std::thread::Result<T> {
        match self {
            Self::Running(thread) => thread.join(),
            Self::Queued(job) => {
                let queued = std::mem::replace(&mut *locked(&job), QueuedJob::Taken);
                match queued {
                    QueuedJob::Waiting(job) => Ok(job()),
                    QueuedJob::Ended(result) => Ok(result),
                    QueuedJob::Taken => Err(Box::new("the job has panicked")),
                }
            }
        }
    }
}

/// A job of a queue.
pub enum QueuedJob<T> {
    /// A job that was not begun.
    Waiting(Box<dyn FnOnce() -> T + Send>),
    /// A job that has ended.
    Ended(T),
    /// A job that is under way, or whose result was taken.
    Taken,
}

type Waiting = Box<dyn FnOnce() + Send>;

/// Jobs that wait until the owner of the queue runs them, oldest first. A clone is the same queue.
#[derive(Clone)]
pub struct JobQueue {
    jobs: Arc<Mutex<VecDeque<Waiting>>>,
    jobs_max: usize,
}

impl JobQueue {
    /// Returns an empty queue with room for `jobs_max` jobs. A job beyond that is not started.
    pub fn new(jobs_max: usize) -> Self {
        Self {
            jobs: Arc::default(),
            jobs_max,
        }
    }

    /// Runs the oldest job; returns false if there is none.
    pub fn run_next(&self) -> bool {
        // The lock is released before the job runs, since it may start others.
        let job = locked(&self.jobs).pop_front();
        job.map(|job| job()).is_some()
    }

    /// Forgets all jobs that wait.
    pub fn clear(&self) {
        // They are dropped without the lock.
        let jobs = std::mem::take(&mut *locked(&self.jobs));
        drop(jobs);
    }

    fn push<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Arc<Mutex<QueuedJob<T>>>> {
        let mut jobs = locked(&self.jobs);
        if jobs.len() >= self.jobs_max {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let queued = Arc::new(Mutex::new(QueuedJob::Waiting(Box::new(job))));
        let ours = Arc::clone(&queued);
        jobs.push_back(Box::new(move || {
            let queued = std::mem::replace(&mut *locked(&ours), QueuedJob::Taken);
            // If it is not waiting, somebody waited for it and has done it.
            if let QueuedJob::Waiting(job) = queued {
                let result = job();
                *locked(&ours) = QueuedJob::Ended(result);
            }
        }));
        Ok(queued)
    }
}

impl fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobQueue")
            .field("jobs", &locked(&self.jobs).len())
            .field("jobs_max", &self.jobs_max)
            .finish()
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // Ignoring poison is sound: each change is one assignment.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_by_a_thread_by_the_queue_or_by_who_waits() {
        assert_eq!(Work::Threads.start("a", || 1).unwrap().join().unwrap(), 1);
        let queue = JobQueue::new(2);
        let work = Work::Stepped(queue.clone());
        let (first, second) = (
            work.start("a", || 1).unwrap(),
            work.start("b", || 2).unwrap(),
        );
        assert!(work.start("c", || 3).is_err(), "the queue is full");
        assert!(queue.run_next() && first.is_finished() && !second.is_finished());
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (1, 2));
        // The job that was waited for is not done again.
        assert!(queue.run_next() && !queue.run_next());
    }
}
