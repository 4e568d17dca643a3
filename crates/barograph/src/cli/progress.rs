//! How far a long command is, on a terminal.

use std::io::IsTerminal as _;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use barograph_client::SystemClock;
use barograph_model::Clock as _;

use super::{format, output};

/// What takes less time than this says nothing.
const FIRST_NS: i64 = 1_000_000_000;
/// Time between two lines.
const INTERVAL_NS: i64 = 200_000_000;

/// A line on standard error that is written over as the work goes on, by any thread.
pub(super) struct Progress {
    clock: SystemClock,
    next: Mutex<NextLine>,
}

struct NextLine {
    at_ns: i64,
    has_begun: bool,
}

impl Progress {
    /// The work begins now.
    pub(super) fn new() -> Self {
        let clock = SystemClock::new();
        let at_ns = clock.monotonic_ns() + FIRST_NS;
        let has_begun = false;
        Self {
            next: Mutex::new(NextLine { at_ns, has_begun }),
            clock,
        }
    }

    /// Shows a text if it is time for the next one. Texts should be of the same length.
    pub(super) fn tell(&self, text: impl FnOnce() -> String) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ns = self.clock.monotonic_ns();
        if now_ns >= next.at_ns {
            output::progress(&text(), true);
            next.at_ns = now_ns + INTERVAL_NS;
            next.has_begun = true;
        }
    }
}

/// Does work of which nobody knows how far it is, and shows for how long it goes on.
#[expect(
    clippy::disallowed_methods,
    reason = "the thread that shows how long a command works wakes for each line"
)]
pub(super) fn shown<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, is_done) = sync_channel::<()>(1);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (progress, clock) = (Progress::new(), SystemClock::new());
            let begun_ns = clock.monotonic_ns();
            let interval = Duration::from_nanos(INTERVAL_NS.unsigned_abs());
            while is_done.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let age_ns = clock.monotonic_ns() - begun_ns;
                progress.tell(|| format!("{what}: {:>8}", format::age(age_ns)));
            }
        });
        // Dropped, also by a panic of the work, it ends the thread.
        let _done = done;
        work()
    })
}

impl Drop for Progress {
    fn drop(&mut self) {
        let next = self.next.get_mut();
        if next.unwrap_or_else(PoisonError::into_inner).has_begun {
            output::progress("", false);
        }
    }
}
