//! Forks: the child leaves the parent's file alone, and gets one of its own when it next puts.
#![expect(
    unsafe_code,
    reason = "asking to be told of forks; each block says why it is sound"
)]

use std::cell::UnsafeCell;
use std::sync::{MutexGuard, Once};

use super::state::{self, State};
use super::thread;

/// The lock on the process's state while the process forks: nobody else may be halfway through it.
struct Held(UnsafeCell<Option<MutexGuard<'static, State>>>);

// SAFETY: only `prepare`, `in_parent` and `in_child` reach into it, between taking the lock that it holds and
// giving it back; one thread forks at a time because of that very lock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Has the system call us at forks, from the first call on.
pub(super) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: three functions that live as long as the process (a library with them is not unloaded).
        // Out of memory is the only failure; then children share the parent's file, as without this.
        let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    });
}

extern "C" fn prepare() {
    let guard = state::lock();
    // SAFETY: the lock is ours now, so that nobody else is here (see `Held`).
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn in_parent() {
    // SAFETY: the lock is still held by this thread, since `prepare`.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn in_child() {
    thread::disown();
    // SAFETY: as in the parent: the child's only thread is the copy of the one that took the lock.
    let guard = unsafe { (*HELD.0.get()).take() };
    if let Some(mut guard) = guard {
        guard.disown();
    }
}
