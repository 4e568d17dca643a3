//! What each user may ask of the board, so that none keeps others from it: calls per second, and waits at once.

use std::collections::HashMap;

use barograph_model::NS_PER_S;

use crate::request::FireError;

/// Calls per second of a user who may not control: each is a write to disk that others wait for.
const GUEST_CALLS_PER_S: f64 = 200.0;
/// And so many at once.
const GUEST_CALLS_MAX: f64 = 1_000.0;
/// Users whose calls are counted before those who have made none for long are forgotten.
const GUESTS_MAX: usize = 1_024;
/// Calls of one user who may not control that are waited for at once: each wait holds one of the server's places.
pub const GUEST_WAITS_MAX: usize = 4;

/// How many calls each user who may not control has left: a bucket that fills at a steady rate.
#[derive(Default)]
pub struct Guests {
    left: HashMap<u32, (f64, i64)>,
    waits: HashMap<u32, usize>,
}

impl Guests {
    /// One call of a user.
    pub fn take(&mut self, uid: u32, now_ns: i64) -> Result<(), FireError> {
        if self.left.len() >= GUESTS_MAX {
            let is_full =
                |left: f64, since_ns: i64| filled(left, since_ns, now_ns) >= GUEST_CALLS_MAX;
            self.left
                .retain(|_, (left, since_ns)| !is_full(*left, *since_ns));
        }
        let entry = self.left.entry(uid).or_insert((GUEST_CALLS_MAX, now_ns));
        *entry = (filled(entry.0, entry.1, now_ns), now_ns);
        if entry.0 < 1.0 {
            return Err(FireError::Busy(format!(
                "more than {GUEST_CALLS_PER_S} calls per second of one user: try again"
            )));
        }
        entry.0 -= 1.0;
        Ok(())
    }

    /// One wait of a user begins; refused before its call is made.
    pub fn begin_wait(&mut self, uid: u32) -> Result<(), FireError> {
        let waits = self.waits.entry(uid).or_default();
        if *waits >= GUEST_WAITS_MAX {
            return Err(FireError::Busy(format!(
                "nothing was fired: {GUEST_WAITS_MAX} calls of this user are waited for already; \
                 fire without waiting (wait_s), or let one of them end"
            )));
        }
        *waits += 1;
        Ok(())
    }

    /// A wait of this user has ended: another may begin.
    pub fn end_wait(&mut self, uid: u32) {
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
