//! A slow source on a thread of its own, and the one slot through which the thread hands over its
//! newest batch. The thread reads only when it is asked, and it is asked only when the slot is
//! empty: nothing can pile up.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::Clock;

use crate::batch::Outbox;
use crate::{Batch, Report, Source, SourceError};

/// Wakes the agent's loop when a batch is ready.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// The result of one read by the thread.
#[derive(Debug)]
pub(crate) struct ReadOutcome {
    pub(crate) result: Result<(), SourceError>,
    pub(crate) cost_ns: i64,
    pub(crate) report: Report,
    pub(crate) refused: u64,
    /// Whether this machine has nothing of the kind that the source reads.
    pub(crate) is_absent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// A read was asked for or runs, since this monotonic time.
    Busy(i64),
    /// The thread has ended.
    Ended,
}

struct State {
    phase: Phase,
    stop: bool,
    outbox: Outbox,
    outcome: Option<ReadOutcome>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The poller's side of a slow source.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    stall_ns: i64,
    /// The outbox that is exchanged with that of the slot, so that a handover allocates nothing.
    spare: Outbox,
}

/// The result of asking for a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadRequest {
    Started,
    /// The previous read has not ended, or its result is still in the slot.
    Busy,
    Ended,
}

impl Worker {
    /// Starts the thread. The error is the system's, if it cannot create a thread.
    pub(crate) fn start(
        source: Box<dyn Source>,
        clock: Arc<dyn Clock>,
        wake: Wake,
    ) -> std::io::Result<Self> {
        let name = format!("baro-{}", source.name());
        let (worker, reader) = Self::assemble(source, clock, wake);
        std::thread::Builder::new()
            .name(name)
            .spawn(move || run(reader))?;
        Ok(worker)
    }

    /// Makes both sides of a slow source, without a thread.
    fn assemble(source: Box<dyn Source>, clock: Arc<dyn Clock>, wake: Wake) -> (Self, SlowReader) {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                phase: Phase::Idle,
                stop: false,
                outbox: Outbox::default(),
                outcome: None,
            }),
            changed: Condvar::new(),
        });
        let stall_ns = source.stall_ns();
        let reader = SlowReader {
            shared: Arc::clone(&shared),
            source,
            batch: Batch::new(),
            clock,
            wake,
        };
        let worker = Self {
            shared,
            stall_ns,
            spare: Outbox::default(),
        };
        (worker, reader)
    }

    /// Asks for a read.
    pub(crate) fn ask(&self, monotonic_ns: i64) -> ReadRequest {
        let mut state = self.shared.lock();
        match state.phase {
            Phase::Ended => ReadRequest::Ended,
            Phase::Busy(_) => ReadRequest::Busy,
            Phase::Idle if state.outcome.is_some() => ReadRequest::Busy,
            Phase::Idle => {
                state.phase = Phase::Busy(monotonic_ns);
                self.shared.changed.notify_all();
                ReadRequest::Started
            }
        }
    }

    /// Takes the newest batch out of the slot, if one is there. Apply the outbox before the next
    /// call.
    pub(crate) fn take(&mut self) -> Option<(ReadOutcome, &mut Outbox)> {
        let mut state = self.shared.lock();
        let outcome = state.outcome.take()?;
        self.spare.clear();
        std::mem::swap(&mut self.spare, &mut state.outbox);
        drop(state);
        Some((outcome, &mut self.spare))
    }

    /// How long the present read has taken, in ns; `None` if none runs.
    pub(crate) fn busy_for_ns(&self, monotonic_ns: i64) -> Option<i64> {
        match self.shared.lock().phase {
            Phase::Busy(since_ns) => Some(monotonic_ns.saturating_sub(since_ns)),
            Phase::Idle | Phase::Ended => None,
        }
    }

    /// How long a read may take before it counts as hung, in ns.
    pub(crate) fn stall_ns(&self) -> i64 {
        self.stall_ns
    }

    /// Asks the thread to end after its present read.
    pub(crate) fn stop(&self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
    }

    /// Waits at most this long for the thread to end, and returns whether it has ended.
    #[expect(
        clippy::disallowed_methods,
        reason = "the shell of the thread of a slow source"
    )]
    pub(crate) fn ended_within(&self, wait: Duration) -> bool {
        let alive = |state: &mut State| state.phase != Phase::Ended;
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), wait, alive);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.phase == Phase::Ended
    }
}

/// The thread's side of a slow source.
struct SlowReader {
    shared: Arc<Shared>,
    source: Box<dyn Source>,
    batch: Batch,
    clock: Arc<dyn Clock>,
    wake: Wake,
}

/// What the thread does after a step.
#[derive(Debug, PartialEq, Eq)]
enum NextStep {
    /// It waits until it is asked for a read, or to stop.
    Wait,
    End,
}

impl SlowReader {
    /// Reads the source if a read was asked for, and hands its batch over.
    fn step(&mut self) -> NextStep {
        let state = self.shared.lock();
        let (stop, phase) = (state.stop, state.phase);
        drop(state);
        match phase {
            _ if stop => return NextStep::End,
            Phase::Busy(_) => {}
            Phase::Idle | Phase::Ended => return NextStep::Wait,
        }
        let start_ns = self.clock.monotonic_ns();
        self.batch.begin(start_ns);
        let result = self.source.read(self.clock.now_ns(), &mut self.batch);
        let outcome = ReadOutcome {
            is_absent: result.is_ok() && self.source.is_absent(),
            result,
            cost_ns: self.clock.monotonic_ns().saturating_sub(start_ns),
            report: self.source.report(),
            refused: self.batch.refused(),
        };
        let mut state = self.shared.lock();
        std::mem::swap(&mut state.outbox, self.batch.outbox());
        state.outcome = Some(outcome);
        state.phase = Phase::Idle;
        drop(state);
        (self.wake)();
        NextStep::Wait
    }
}

impl Drop for SlowReader {
    /// Marks the thread as ended, even if the source panicked. The agent's loop is woken to see
    /// that.
    fn drop(&mut self) {
        self.shared.lock().phase = Phase::Ended;
        self.shared.changed.notify_all();
        (self.wake)();
    }
}

/// The shell of the thread: it alone waits.
fn run(mut reader: SlowReader) {
    let shared = Arc::clone(&reader.shared);
    while reader.step() == NextStep::Wait {
        let waiting = |state: &mut State| !state.stop && !matches!(state.phase, Phase::Busy(_));
        let waited = shared.changed.wait_while(shared.lock(), waiting);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use barograph_model::{ManualClock, NS_PER_S};

    use super::*;

    /// A source whose reads take a second of a manual clock.
    struct Slow(Arc<ManualClock>);

    impl Source for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn read(&mut self, _: i64, _: &mut Batch) -> Result<(), SourceError> {
            self.0.advance(NS_PER_S);
            Ok(())
        }

        fn report(&self) -> Report {
            Report::default()
        }
    }

    #[test]
    fn a_read_is_made_when_it_is_asked_for_and_its_slot_is_empty() {
        let clock = Arc::new(ManualClock::at(7 * NS_PER_S));
        let wakes = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&wakes);
        let wake = Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let theirs: Arc<dyn Clock> = clock.clone();
        let source = Box::new(Slow(Arc::clone(&clock)));
        let (mut worker, mut reader) = Worker::assemble(source, theirs, wake);
        assert_eq!(reader.step(), NextStep::Wait);
        assert!(worker.take().is_none(), "nobody asked");
        let now_ns = clock.monotonic_ns();
        assert_eq!(worker.ask(now_ns), ReadRequest::Started);
        assert_eq!(worker.busy_for_ns(now_ns + 5), Some(5));
        assert_eq!(worker.ask(now_ns), ReadRequest::Busy);
        assert_eq!(reader.step(), NextStep::Wait);
        assert_eq!(wakes.load(Ordering::SeqCst), 1);
        assert_eq!(worker.ask(now_ns), ReadRequest::Busy, "the slot is full");
        let cost_ns = worker.take().map(|(outcome, _)| outcome.cost_ns);
        assert_eq!(cost_ns, Some(NS_PER_S));
        assert_eq!(worker.ask(now_ns), ReadRequest::Started);
        worker.stop();
        assert_eq!(reader.step(), NextStep::End);
        drop(reader);
        assert_eq!(worker.ask(now_ns), ReadRequest::Ended);
        assert!(worker.ended_within(Duration::ZERO));
        assert_eq!(wakes.load(Ordering::SeqCst), 2, "the loop sees the end");
    }
}
