//! The owner of this process's memory: the process that has opened a publisher, or a child of it.
//!
//! `fork()` calls our handlers (see [`super::fork`]); `_Fork`, `clone` and `vfork` do not. A child
//! with a copy of our memory finds that the kernel has wiped the mark, and takes over its copy, as
//! after `fork()`. A child that shares our memory, as `vfork` makes it, finds the mark of another
//! process: it must leave everything alone.

use std::sync::atomic::{AtomicPtr, Ordering};

use barograph_stream::ingest::ForkMark;

use super::PublishError;

/// The mark of the owner, and what a child does before it becomes the owner.
struct Home {
    mark: ForkMark,
    disown: fn() -> bool,
}

/// The home of this process. It is never freed once a publisher was opened, because threads may
/// read it at any time.
static HOME: AtomicPtr<Home> = AtomicPtr::new(std::ptr::null_mut());

/// Mark of a child that can never have our state, because a thread of its parent was changing it.
const LOST: u32 = u32::MAX;

/// Marks this process's memory as its own, when a publisher is first opened. `disown` lets go of
/// all that is the parent's in a child for which no fork handler ran, and returns false if a thread
/// of the parent was changing it.
pub(super) fn settle(disown: fn() -> bool) {
    if home().is_some() {
        return;
    }
    let mark = ForkMark::new(std::process::id());
    let made = Box::into_raw(Box::new(Home { mark, disown }));
    let nobody = std::ptr::null_mut();
    let set = HOME.compare_exchange(nobody, made, Ordering::AcqRel, Ordering::Acquire);
    if set.is_err() {
        // Another thread was first; the home that this one made stays, unused.
        debug_assert!(home().is_some(), "a home that is set stays");
    }
}

#[expect(
    unsafe_code,
    reason = "a pointer that is set once, to what is never freed"
)]
fn home() -> Option<&'static Home> {
    // SAFETY: the pointer is null, or from a box that was leaked.
    unsafe { HOME.load(Ordering::Acquire).as_ref() }
}

/// Checks that this process may use the state. Call it before any lock of publishing and before a
/// thread's seat is taken. Returns an error in a child that shares our memory, or that cannot have
/// our state.
pub fn enter() -> Result<(), PublishError> {
    let Some(home) = home() else { return Ok(()) };
    let us = std::process::id();
    match home.mark.pid() {
        pid if pid == us => Ok(()),
        // This is the only thread of a child.
        0 if (home.disown)() => {
            home.mark.set(us);
            Ok(())
        }
        0 => {
            home.mark.set(LOST);
            Err(PublishError::Borrowed)
        }
        _ => Err(PublishError::Borrowed),
    }
}

/// Marks this memory as the child's own, in the fork handler of the child.
pub(super) fn move_in() {
    if let Some(home) = home() {
        home.mark.set(std::process::id());
    }
}
