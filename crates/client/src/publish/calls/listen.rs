//! The listener: a thread that sleeps until a handler is called, for programs that do not want to
//! poll.
#![expect(
    unsafe_code,
    reason = "signals are kept from the thread; each block says why it is sound"
)]

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use barograph_stream::calls::CallsReader;
use rustix::thread::futex;

use super::{CallsPart, lock, run};
use crate::publish::clock::clock;
use crate::publish::{PublishError, home, state};
use barograph_model::Clock as _;

/// Longest sleep; then the thread checks for another file.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Longest wait for the end of the thread, which may be in a handler, in ns.
const END_NS_MAX: i64 = 1_000_000_000;

/// The thread, and the flag that ends it.
pub(super) struct Listener {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Starts the thread, unless there is one.
pub(in crate::publish) fn listen(generation: u32) -> Result<(), PublishError> {
    home::enter()?;
    let mut hub = lock();
    let ended = hub.belong_to(generation);
    let listened = match &hub.listener {
        Some(listener) if !listener.thread.is_finished() => Ok(()),
        _ => state::lock()
            .process(generation)
            .and_then(|_| start(hub.life).map_err(|e| PublishError::Thread(Arc::new(e))))
            .map(|listener| hub.listener = Some(listener)),
    };
    drop(hub);
    ended.finish();
    listened
}

fn start(life: u32) -> io::Result<Listener> {
    let stop = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&stop);
    // The program's signal handlers run in the program's threads, except those of faults.
    let before = block_signals();
    let started = thread::Builder::new()
        .name("baro-listen".into())
        .spawn(move || attend(life, &is_over));
    restore_signals(&before);
    let thread = started?;
    Ok(Listener { stop, thread })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a thread of an application listens for calls"
)]
fn attend(life: u32, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        let hub = lock();
        if hub.life != life {
            return;
        }
        let (hub, looked, _) = run(hub, CallsPart::Handlers);
        if hub.life != life {
            return;
        }
        let has_more = hub.inbox.has_for_handlers() && !hub.is_running;
        let reader = hub.file.reader();
        drop(hub);
        match reader {
            _ if has_more => {}
            Some(reader) if !reader.is_closed() => {
                reader.wait(looked.value, SLEEP_MAX);
            }
            _ => thread::park_timeout(SLEEP_MAX),
        }
    }
}

impl Listener {
    /// Ends the thread; if it is in a handler that takes long, it ends after that.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread of an application listens for calls"
    )]
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        if self.thread.thread().id() == thread::current().id() {
            // A handler closes the publisher.
            return;
        }
        let started_ns = clock().monotonic_ns();
        while !self.thread.is_finished() {
            self.wake();
            if clock().monotonic_ns() - started_ns > END_NS_MAX {
                return;
            }
            // The thread may have been about to sleep.
            thread::sleep(Duration::from_micros(200));
        }
        let _ = self.thread.join();
    }

    fn wake(&self) {
        self.thread.thread().unpark();
        if let Some(word) = lock().file.reader().map(CallsReader::word) {
            let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
        }
    }
}

fn block_signals() -> libc::sigset_t {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `sigfillset` writes the whole set, `sigdelset` changes it, `pthread_sigmask` reads it
    // and writes the other; a set may be all zeros.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        // A fault whose signal is blocked ends the process even if there is a handler; and this
        // thread writes to the process's file, which somebody may cut short.
        for fault in [libc::SIGBUS, libc::SIGSEGV, libc::SIGFPE, libc::SIGILL] {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set is the one that `block_signals` returned.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut());
    }
}
