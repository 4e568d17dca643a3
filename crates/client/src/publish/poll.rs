//! The moments at which a thread handles calls of its process: polls, which run handlers, and ends
//! of frames, which apply settings.

use super::calls;
use super::thread::{
    commit, frame_just_ended, is_frame_due, is_poll_due, put_frame_slowly, tell_agent, try_frame,
    with_calls, with_seat_calls,
};

/// Ends a frame of the publication with this handle
/// ([`Publication::to_raw`](super::Publication::to_raw)), and publishes the puts of this thread.
#[inline(always)]
pub fn frame(handle: u64, number: u64) {
    if handle == 0 {
        return;
    }
    match try_frame(handle, number) {
        Some((false, false)) => {}
        Some((is_agent_asleep, has_calls)) => {
            if is_agent_asleep {
                tell_agent();
            }
            if has_calls {
                apply_now();
            }
        }
        None => {
            put_frame_slowly(handle, number);
            commit();
            apply();
        }
    }
}

/// Runs handlers and applies settings, if there are any; otherwise it costs a load and a compare.
/// Returns the number of both.
#[inline(always)]
pub(super) fn poll() -> usize {
    if is_poll_due() && !is_resting() {
        poll_now()
    } else {
        0
    }
}

/// Whether there is no file yet, and it is not time to look for one: then a poll that is due has
/// nothing to do. Call it once before each [`poll_now`], because it counts the calls.
#[inline]
pub fn is_resting() -> bool {
    let is_resting =
        with_seat_calls(|calls| calls.word.is_some_and(calls::is_epoch) && !calls.is_frame_due());
    is_resting.unwrap_or(false)
}

/// Runs handlers and applies settings. Returns the number of both.
#[cold]
pub fn poll_now() -> usize {
    with_calls(calls::poll)
}

/// Applies settings, if there are any, as a frame does.
#[inline(always)]
pub(super) fn apply() {
    if is_frame_due() {
        apply_now();
    }
}

/// Applies settings at the end of a frame; the last record of this thread shows which frame.
#[cold]
pub fn apply_now() {
    let ended = frame_just_ended();
    with_calls(|seen| calls::apply(seen, ended));
}
