//! Fork handlers: a child leaves the parent's file alone, and gets one of its own at its next put.
#![expect(
    unsafe_code,
    reason = "asking to be told of forks; each block says why it is sound"
)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, RwLockWriteGuard};

use barograph_stream::gate;

use super::calls::{self, Hub};
use super::state::{self, PublishState};
use super::{clock, home, thread};

/// The locks on the state of the process, held while it forks, so that no other thread is in the
/// middle of a change.
struct ForkGuards(UnsafeCell<Option<Guards>>);

/// Guards of these locks, in the order in which all code takes them.
type Guards = (
    MutexGuard<'static, Hub>,
    MutexGuard<'static, PublishState>,
    RwLockWriteGuard<'static, ()>,
);

// SAFETY: only `prepare`, `in_parent` and `in_child` access it, between taking the locks that it
// holds and releasing them; these very locks let only one thread fork at a time.
unsafe impl Sync for ForkGuards {}

static HELD: ForkGuards = ForkGuards(UnsafeCell::new(None));

/// Registers the fork handlers at the first call.
pub(crate) fn watch() {
    // Not a `Once`: a child that is forked while another thread is in it would wait for that thread
    // for ever.
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    clock::settle();
    home::settle(disown);
    if !IS_WATCHED.swap(true, Ordering::AcqRel) {
        // SAFETY: three functions that live as long as the process (a library with them is not
        // unloaded). The only failure is a lack of memory; then children detect the fork by
        // themselves (see `home`).
        let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    }
}

/// Lets go of all that is the parent's, in a child for which no handler ran. Returns false if a
/// thread of the parent, which does not exist here, was changing it.
fn disown() -> bool {
    let (Some(mut hub), Some(mut state)) = (calls::try_lock(), state::try_lock()) else {
        return false;
    };
    thread::disown();
    hub.disown();
    state.disown();
    true
}

extern "C" fn prepare() {
    let guards = (calls::lock(), state::lock(), gate::close());
    // SAFETY: this thread holds the locks now, so that no other thread is here (see `ForkGuards`).
    unsafe { *HELD.0.get() = Some(guards) };
}

extern "C" fn in_parent() {
    // SAFETY: this thread has held the locks since `prepare`.
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
