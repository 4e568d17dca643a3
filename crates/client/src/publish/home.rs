//! Whose memory this is: that of the process which has opened a publisher, or of a child of it.
//!
//! `fork()` calls our handlers (see [`super::fork`]); `_Fork`, `clone` and `vfork` do not. A child that has a copy of
//! our memory finds the mark wiped, by the kernel, and takes over what it has a copy of, as after `fork()`. A child
//! that shares our memory, as `vfork` makes it, finds the mark of another process: it must leave everything alone.

use std::sync::atomic::{AtomicPtr, Ordering};

use barograph_stream::ingest::ForkMark;

use super::{PublishError, calls, state, thread};

/// For good, once a publisher was opened: threads may look at it at any time.
static MARK: AtomicPtr<ForkMark> = AtomicPtr::new(std::ptr::null_mut());

/// What a child says that can never have our state: a thread of its parent was changing it.
const LOST: u32 = u32::MAX;

/// Marks this process's memory as its own, from the first opening on.
pub(super) fn settle() {
    if mark().is_some() {
        return;
    }
    let made = Box::into_raw(Box::new(ForkMark::new(std::process::id())));
    let nobody = std::ptr::null_mut();
    let set = MARK.compare_exchange(nobody, made, Ordering::AcqRel, Ordering::Acquire);
    if set.is_err() {
        // Another thread was first; what this one made stays, unused.
        debug_assert!(mark().is_some(), "a mark that is set stays");
    }
}

#[expect(
    unsafe_code,
    reason = "a pointer that is set once, to what is never freed"
)]
fn mark() -> Option<&'static ForkMark> {
    // SAFETY: null, or of a box that was leaked.
    unsafe { MARK.load(Ordering::Acquire).as_ref() }
}

/// To be asked before any lock of publishing is taken and before a thread's seat is: an error in a child that
/// shares our memory, or that can have none of our state.
pub fn enter() -> Result<(), PublishError> {
    let us = std::process::id();
    match mark().map(ForkMark::pid) {
        None => Ok(()),
        Some(pid) if pid == us => Ok(()),
        Some(0) => take_over(us),
        Some(_) => Err(PublishError::Borrowed),
    }
}

/// In a child, by the handler of a fork: this memory is its own from now on.
pub(super) fn move_in() {
    if let Some(mark) = mark() {
        mark.set(std::process::id());
    }
}

/// In a child that no handler has prepared: it is its only thread.
fn take_over(us: u32) -> Result<(), PublishError> {
    let Some(mark) = mark() else { return Ok(()) };
    let (Some(mut hub), Some(mut state)) = (calls::try_lock(), state::try_lock()) else {
        mark.set(LOST);
        return Err(PublishError::Borrowed);
    };
    thread::disown();
    hub.disown();
    state.disown();
    mark.set(us);
    Ok(())
}
