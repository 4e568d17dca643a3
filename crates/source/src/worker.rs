//! The reads of slow sources, which may wait for a disk or a server and may hang. The poller asks
//! for a read, and takes its batch in one of its next turns. Nothing can pile up: a source whose
//! batch was not taken yet is not read again.
//!
//! [`ReaderPool`] reads on as many threads as are needed. One thread is enough while reads are
//! short. Reads that still wait for it at the poller's next turn get threads of their own, so that
//! one that hangs delays no other for longer than [`FIRST_LOOK_NS`].

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_MS};

use crate::batch::Outbox;
use crate::{Source, SourceBatch, SourceCoverage, SourceError};

/// Time after which the poller first looks whether a read that it asked for has ended. It looks
/// again whenever the read has taken twice as long.
pub(crate) const FIRST_LOOK_NS: i64 = 20 * NS_PER_MS;

/// The result of one read of a slow source.
#[derive(Debug)]
pub(crate) struct ReadOutcome {
    pub(crate) result: Result<(), SourceError>,
    /// Times at which the read began and ended, in ns of the monotonic clock.
    pub(crate) begun_ns: i64,
    pub(crate) ended_ns: i64,
    pub(crate) cost_ns: i64,
    pub(crate) report: SourceCoverage,
    pub(crate) refused: u64,
    /// Whether this machine has nothing of the kind that the source reads.
    pub(crate) is_absent: bool,
}

/// A slow source, and the batch that it fills.
struct SlowSource {
    source: Box<dyn Source>,
    batch: SourceBatch,
}

impl SlowSource {
    fn read(&mut self, clock: &dyn Clock) -> ReadOutcome {
        let start_ns = clock.monotonic_ns();
        self.batch.begin(start_ns);
        let result = self.source.read(clock.now_ns(), &mut self.batch);
        let ended_ns = clock.monotonic_ns();
        ReadOutcome {
            is_absent: result.is_ok() && self.source.is_absent(),
            result,
            begun_ns: start_ns,
            ended_ns,
            cost_ns: ended_ns.saturating_sub(start_ns),
            report: self.source.report(),
            refused: self.batch.refused(),
        }
    }
}

/// The place of a source after its read.
#[derive(Default)]
enum ReadSlot {
    #[default]
    Empty,
    /// A thread reads the source.
    Reading,
    Read(Box<SlowSource>, ReadOutcome),
    /// The source has panicked, and is gone.
    Panicked,
}

/// A read that was asked for.
struct SlowRead {
    source: Box<SlowSource>,
    slot: Arc<Mutex<ReadSlot>>,
}

impl SlowRead {
    /// Reads, and puts the source into its slot.
    fn run(self, clock: &dyn Clock) {
        let Self { mut source, slot } = self;
        *lock(&slot) = ReadSlot::Reading;
        // A source that has panicked is dropped, so that nobody sees what it left half done.
        let read = catch_unwind(AssertUnwindSafe(move || {
            let outcome = source.read(clock);
            (source, outcome)
        }));
        *lock(&slot) = match read {
            Ok((source, outcome)) => ReadSlot::Read(source, outcome),
            Err(_) => ReadSlot::Panicked,
        };
    }
}

/// The poller's side of a slow source.
pub(crate) struct Worker {
    /// `None` while it is read, and after it has panicked.
    source: Option<Box<SlowSource>>,
    slot: Arc<Mutex<ReadSlot>>,
    /// Monotonic time at which the present read was asked for.
    asked_ns: Option<i64>,
    stall_ns: i64,
}

/// The result of asking for a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadRequest {
    Started,
    /// The previous read has not ended, or its batch was not taken.
    Busy,
    /// The source has panicked.
    Panicked,
}

impl Worker {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self {
            stall_ns: source.stall_ns(),
            source: Some(Box::new(SlowSource {
                source,
                batch: SourceBatch::new(),
            })),
            slot: Arc::default(),
            asked_ns: None,
        }
    }

    /// Asks for a read.
    pub(crate) fn ask(&mut self, monotonic_ns: i64, pool: &ReaderPool) -> ReadRequest {
        if self.asked_ns.is_some() {
            return ReadRequest::Busy;
        }
        let Some(source) = self.source.take() else {
            return ReadRequest::Panicked;
        };
        self.asked_ns = Some(monotonic_ns);
        pool.read(SlowRead {
            source,
            slot: Arc::clone(&self.slot),
        });
        ReadRequest::Started
    }

    /// Takes the batch of a read that has ended. Apply the outbox before the next read is asked
    /// for.
    pub(crate) fn take(&mut self) -> Option<(ReadOutcome, &mut Outbox)> {
        self.asked_ns?;
        if !self.has_ended() {
            return None;
        }
        match std::mem::take(&mut *lock(&self.slot)) {
            ReadSlot::Empty | ReadSlot::Reading => None,
            ReadSlot::Read(source, outcome) => {
                self.asked_ns = None;
                let source = self.source.insert(source);
                Some((outcome, source.batch.outbox()))
            }
            ReadSlot::Panicked => {
                self.asked_ns = None;
                None
            }
        }
    }

    /// Returns whether [`Worker::take`] has something to take.
    pub(crate) fn has_ended(&self) -> bool {
        let slot = lock(&self.slot);
        self.asked_ns.is_some() && !matches!(*slot, ReadSlot::Empty | ReadSlot::Reading)
    }

    /// Returns whether the present read waits for a thread.
    pub(crate) fn is_waiting(&self) -> bool {
        self.asked_ns.is_some() && matches!(*lock(&self.slot), ReadSlot::Empty)
    }

    /// Returns whether a read runs, or waits for a thread.
    pub(crate) fn is_reading(&self) -> bool {
        self.asked_ns.is_some() && !self.has_ended()
    }

    /// Time that the present read has taken, in ns; `None` if none runs.
    pub(crate) fn busy_for_ns(&self, monotonic_ns: i64) -> Option<i64> {
        Some(monotonic_ns.saturating_sub(self.asked_ns?))
    }

    /// Longest time that a read may take before it counts as hung, in ns.
    pub(crate) fn stall_ns(&self) -> i64 {
        self.stall_ns
    }
}

/// The readers of slow sources: threads, of which there are none before the first read, or the
/// caller.
pub(crate) struct ReaderPool {
    shared: Arc<PoolShared>,
    is_inline: bool,
}

struct PoolShared {
    clock: Arc<dyn Clock>,
    state: Mutex<PoolState>,
    /// Signalled when there is a read, or the pool ends.
    work: Condvar,
    /// Signalled when a read or a thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct PoolState {
    reads: VecDeque<SlowRead>,
    threads: usize,
    /// Threads that do not read, those that are being started among them.
    idle: usize,
    is_over: bool,
    /// Whether the system had no thread when one was asked for last.
    is_refused: bool,
}

impl ReaderPool {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = PoolShared {
            clock,
            state: Mutex::default(),
            work: Condvar::new(),
            ended: Condvar::new(),
        };
        Self {
            shared: Arc::new(shared),
            is_inline: false,
        }
    }

    /// A pool without threads: whoever asks for a read makes it.
    pub(crate) fn inline(clock: Arc<dyn Clock>) -> Self {
        let mut pool = Self::new(clock);
        pool.is_inline = true;
        pool
    }

    fn read(&self, read: SlowRead) {
        if self.is_inline {
            return read.run(&*self.shared.clock);
        }
        let mut state = lock(&self.shared.state);
        state.reads.push_back(read);
        if state.threads == 0 {
            self.start_thread(&mut state);
        }
        // A thread that wakes does not find the pool locked.
        drop(state);
        self.shared.work.notify_one();
    }

    /// Starts threads for reads that still wait since the poller's last turn, unless idle threads
    /// are about to take them. There are never more threads than slow sources, since each is read
    /// by one.
    pub(crate) fn relieve(&self) {
        let mut state = lock(&self.shared.state);
        while state.idle < state.reads.len() && self.start_thread(&mut state) {}
    }

    /// Returns whether the system had a thread.
    fn start_thread(&self, state: &mut PoolState) -> bool {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("baro-slow".into());
        if let Err(error) = thread.spawn(move || shared.run()) {
            // The read waits until one of the poller's next turns has more luck. If that takes
            // long, its source counts as down.
            if !std::mem::replace(&mut state.is_refused, true) {
                tracing::warn!(%error, "no thread to read slow sources");
            }
            return false;
        }
        state.is_refused = false;
        state.threads += 1;
        state.idle += 1;
        true
    }

    /// Waits at most this long until this condition holds. It is checked after each read.
    #[expect(
        clippy::disallowed_methods,
        reason = "a command without a loop waits for slow sources"
    )]
    pub(crate) fn wait_until(&self, holds: impl Fn() -> bool, longest: Duration) -> bool {
        let state = lock(&self.shared.state);
        let waited = self
            .shared
            .ended
            .wait_timeout_while(state, longest, |_| !holds());
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Ends the threads, and waits for them at most this long. Reads that have not begun are not
    /// made.
    #[expect(
        clippy::disallowed_methods,
        reason = "the end of the pool waits for its threads"
    )]
    pub(crate) fn stop(&self, longest: Duration) {
        self.end();
        let state = lock(&self.shared.state);
        let is_any = |state: &mut PoolState| state.threads > 0;
        let waited = self.shared.ended.wait_timeout_while(state, longest, is_any);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn end(&self) {
        let mut state = lock(&self.shared.state);
        state.is_over = true;
        let reads = std::mem::take(&mut state.reads);
        self.shared.work.notify_all();
        // Sources may wait when they are dropped.
        drop(state);
        drop(reads);
    }
}

impl Drop for ReaderPool {
    fn drop(&mut self) {
        self.end();
    }
}

impl PoolShared {
    /// A thread of the pool: it reads until there is nothing to read and another thread waits, or
    /// the pool ends.
    fn run(&self) {
        let mut state = lock(&self.state);
        while !state.is_over {
            if let Some(read) = state.reads.pop_front() {
                state.idle -= 1;
                drop(state);
                read.run(&*self.clock);
                state = lock(&self.state);
                state.idle += 1;
                self.ended.notify_all();
            } else if state.idle > 1 {
                break;
            } else {
                let waited = self.work.wait(state);
                state = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.idle -= 1;
        state.threads -= 1;
        self.ended.notify_all();
    }
}

/// Locks. Ignoring poison is sound: nothing here panics under a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
