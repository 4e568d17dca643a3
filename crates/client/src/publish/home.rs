//! The owner of this process's memory: the process that has opened a publisher, or a child of it.
//!
//! `fork()` calls our handlers (see [`super::fork`]); `_Fork`, `clone` and `vfork` do not. A child
//! with a copy of our memory finds that the kernel has wiped the mark, and takes over its copy, as
//! after `fork()`. A child that shares our memory, as `vfork` makes it, finds the mark of another
//! process: it must leave everything alone.

use std::sync::atomic::{AtomicPtr, Ordering};

use barograph_stream::ingest::ForkMark;

use super::{PublishError, calls, state, thread};

/// The mark. It is never freed once a publisher was opened, because threads may read it at any
/// time.
static MARK: AtomicPtr<ForkMark> = AtomicPtr::new(std::ptr::null_mut());

/// Mark of a child that can never have our state, because a thread of its parent was changing it.
const LOST: u32 = u32::MAX;

/// Marks this process's memory as its own, when a publisher is first opened.
pub(super) fn settle() {
    if mark().is_some() {
        return;
    }
    let made = Box::into_raw(Box::new(ForkMark::new(std::process::id())));
    let nobody = std::ptr::null_mut();
    let set = MARK.compare_exchange(nobody, made, Ordering::AcqRel, Ordering::Acquire);
    if set.is_err() {
        // Another thread was first; the mark that this one made stays, unused.
        debug_assert!(mark().is_some(), "a mark that is set stays");
    }
}

#[expect(
    unsafe_code,
    reason = "a pointer that is set once, to what is never freed"
)]
fn mark() -> Option<&'static ForkMark> {
    // SAFETY: the pointer is null, or from a box that was leaked.
    unsafe { MARK.load(Ordering::Acquire).as_ref() }
}

/// Checks that this process may use the state. Call it before any lock of publishing and before a
/// thread's seat is taken. Returns an error in a child that shares our memory, or that cannot have
/// our state.
pub fn enter() -> Result<(), PublishError> {
    let us = std::process::id();
    match mark().map(ForkMark::pid) {
        None => Ok(()),
        Some(pid) if pid == us => Ok(()),
        Some(0) => take_over(us),
        Some(_) => Err(PublishError::Borrowed),
    }
}

/// Marks this memory as the child's own, in the fork handler of the child.
pub(super) fn move_in() {
    if let Some(mark) = mark() {
        mark.set(std::process::id());
    }
}

/// Takes over the state in a child for which no handler ran: this is its only thread.
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
