//! Limits of each user's calls, so that no user keeps others from the board: calls per second, and
//! simultaneous waits.

use std::collections::HashMap;

use barograph_model::NS_PER_S;

use crate::request::CallError;

/// Calls per second of a user who may not control: each is a write to disk for which others wait.
const GUEST_CALLS_PER_S: f64 = 200.0;
/// Most calls at once of such a user.
const GUEST_CALLS_MAX: f64 = 1_000.0;
/// Most users whose calls are counted before those with full buckets are forgotten.
const GUESTS_MAX: usize = 1_024;
/// Most simultaneous waits of one user who may not control: each wait holds one of the server's
/// places.
pub(crate) const GUEST_WAITS_MAX: usize = 4;

/// The number of calls that each user who may not control has left, as token buckets that fill at a
/// steady rate.
#[derive(Default)]
pub(crate) struct Guests {
    left: HashMap<u32, (f64, i64)>,
    waits: HashMap<u32, usize>,
}

impl Guests {
    /// Counts one call of a user; fails if the bucket is empty.
    pub(crate) fn take(&mut self, uid: u32, now_ns: i64) -> Result<(), CallError> {
        if self.left.len() >= GUESTS_MAX {
            let is_full =
                |left: f64, since_ns: i64| filled(left, since_ns, now_ns) >= GUEST_CALLS_MAX;
            self.left
                .retain(|_, (left, since_ns)| !is_full(*left, *since_ns));
        }
        let entry = self.left.entry(uid).or_insert((GUEST_CALLS_MAX, now_ns));
        *entry = (filled(entry.0, entry.1, now_ns), now_ns);
        if entry.0 < 1.0 {
            return Err(CallError::Busy(format!(
                "more than {GUEST_CALLS_PER_S} calls per second of one user: try again"
            )));
        }
        entry.0 -= 1.0;
        Ok(())
    }

    /// Counts the beginning of a user's wait; fails, before the call is made, if there are too
    /// many.
    pub(crate) fn begin_wait(&mut self, uid: u32) -> Result<(), CallError> {
        let waits = self.waits.entry(uid).or_default();
        if *waits >= GUEST_WAITS_MAX {
            return Err(CallError::Busy(format!(
                "nothing was fired: {GUEST_WAITS_MAX} calls of this user are waited for already; \
                 fire without waiting (wait_s), or let one of them end"
            )));
        }
        *waits += 1;
        Ok(())
    }

    /// Counts the end of a user's wait.
    pub(crate) fn end_wait(&mut self, uid: u32) {
        if let Some(waits) = self.waits.get_mut(&uid) {
            *waits -= 1;
            if *waits == 0 {
                self.waits.remove(&uid);
            }
        }
    }
}

fn filled(left: f64, since_ns: i64, now_ns: i64) -> f64 {
    let seconds = now_ns.saturating_sub(since_ns).max(0) as f64 / NS_PER_S as f64;
    (left + seconds * GUEST_CALLS_PER_S).min(GUEST_CALLS_MAX)
}
