//! Forks: the child leaves the parent's file alone, and gets one of its own when it next puts.
#![expect(
    unsafe_code,
    reason = "asking to be told of forks; each block says why it is sound"
)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, RwLockWriteGuard};

use barograph_stream::gate;

use super::calls::{self, Hub};
use super::state::{self, State};
use super::{home, thread};

/// The locks on what is the process's while the process forks: nobody else may be halfway through it.
struct Held(UnsafeCell<Option<Guards>>);

/// In the order in which everyone takes them.
type Guards = (
    MutexGuard<'static, Hub>,
    MutexGuard<'static, State>,
    RwLockWriteGuard<'static, ()>,
);

// SAFETY: only `prepare`, `in_parent` and `in_child` reach into it, between taking the locks that it holds and
// giving them back; one thread forks at a time because of those very locks.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

/// Has the system call us at forks, from the first call on.
pub fn watch() {
    // Not a `Once`: a child that is forked while another thread is in it would wait for that thread for ever.
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    calls::settle();
    home::settle();
    if !IS_WATCHED.swap(true, Ordering::AcqRel) {
        // SAFETY: three functions that live as long as the process (a library with them is not unloaded).
        // Out of memory is the only failure; then children find out by themselves (see `home`).
        let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    }
}

extern "C" fn prepare() {
    let guards = (calls::lock(), state::lock(), gate::close());
    // SAFETY: the locks are ours now, so that nobody else is here (see `Held`).
    unsafe { *HELD.0.get() = Some(guards) };
}

extern "C" fn in_parent() {
    // SAFETY: the locks are still held by this thread, since `prepare`.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn in_child() {
    thread::disown();
    // SAFETY: as in the parent: the child's only thread is the copy of the one that took the locks.
    let guards = unsafe { (*HELD.0.get()).take() };
    if let Some((mut hub, mut state, _gate)) = guards {
        hub.disown();
        state.disown();
    }
    home::move_in();
}
