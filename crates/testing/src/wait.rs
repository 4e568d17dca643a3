//! Waiting for what another thread or process does, by looking again and again.
//!
//! It stands alone because tests that start threads or programs have no other way to learn that
//! these are done. A test of one loop steps the loop instead, and waits for nothing.

use std::time::Duration;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// Most looks: half a minute, on a machine that is as busy as it may be.
const LOOKS_MAX: usize = 6_000;

/// Waits until `found` finds something.
///
/// # Panics
///
/// With `what`, if it finds nothing in half a minute.
#[expect(clippy::disallowed_methods, reason = "only tests wait here")]
#[track_caller]
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{what}");
}

/// Waits until a condition holds.
///
/// # Panics
///
/// With `what`, if it does not hold in half a minute.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}
