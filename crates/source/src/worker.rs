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
pub(crate) struct Outcome {
    pub(crate) result: Result<(), SourceError>,
    pub(crate) cost_ns: i64,
    pub(crate) report: Report,
    pub(crate) refused: u64,
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
    outcome: Option<Outcome>,
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
pub(crate) enum Asked {
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
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                phase: Phase::Idle,
                stop: false,
                outbox: Outbox::default(),
                outcome: None,
            }),
            changed: Condvar::new(),
        });
        let theirs = Ending(shared.clone());
        let stall_ns = source.stall_ns();
        std::thread::Builder::new()
            .name(format!("baro-{}", source.name()))
            .spawn(move || run(&theirs, source, &*clock, &*wake))?;
        Ok(Self {
            shared,
            stall_ns,
            spare: Outbox::default(),
        })
    }

    /// Asks for a read.
    pub(crate) fn ask(&self, monotonic_ns: i64) -> Asked {
        let mut state = self.shared.lock();
        match state.phase {
            Phase::Ended => Asked::Ended,
            Phase::Busy(_) => Asked::Busy,
            Phase::Idle if state.outcome.is_some() => Asked::Busy,
            Phase::Idle => {
                state.phase = Phase::Busy(monotonic_ns);
                self.shared.changed.notify_all();
                Asked::Started
            }
        }
    }

    /// Takes the newest batch out of the slot, if one is there. Apply the outbox before the next
    /// call.
    pub(crate) fn take(&mut self) -> Option<(Outcome, &mut Outbox)> {
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

/// Marks the thread as ended when dropped, even if the source panicked.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().phase = Phase::Ended;
        self.0.changed.notify_all();
    }
}

fn run(
    ending: &Ending,
    mut source: Box<dyn Source>,
    clock: &dyn Clock,
    wake: &(dyn Fn() + Send + Sync),
) {
    let shared = &*ending.0;
    let mut batch = Batch::new();
    loop {
        let waiting = |state: &mut State| !state.stop && !matches!(state.phase, Phase::Busy(_));
        let waited = shared.changed.wait_while(shared.lock(), waiting);
        if waited.unwrap_or_else(PoisonError::into_inner).stop {
            return;
        }
        let start_ns = clock.monotonic_ns();
        batch.begin(start_ns);
        let result = source.read(clock.now_ns(), &mut batch);
        let cost_ns = clock.monotonic_ns().saturating_sub(start_ns);
        let report = source.report();
        let mut state = shared.lock();
        std::mem::swap(&mut state.outbox, batch.outbox());
        state.outcome = Some(Outcome {
            result,
            cost_ns,
            report,
            refused: batch.refused(),
        });
        state.phase = Phase::Idle;
        drop(state);
        wake();
    }
}
