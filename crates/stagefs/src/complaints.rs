//! What goes wrong, told to the log of the mount: the same thing seldom.

use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Clock, NS_PER_S};

/// The time between two complaints.
const EVERY_NS: i64 = 10 * NS_PER_S;

/// The log of a mount. Of what goes wrong in a moment it tells the first thing, and how much more
/// there was.
pub(crate) struct Complaints {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    told_ns: Option<i64>,
    untold: u64,
}

impl Complaints {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            last: Mutex::default(),
        }
    }

    pub(crate) fn tell(&self, text: &str) {
        let now_ns = self.clock.monotonic_ns();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_soon = |told_ns: i64| now_ns.saturating_sub(told_ns) < EVERY_NS;
        if last.told_ns.is_some_and(is_soon) {
            last.untold += 1;
            return;
        }
        let untold = std::mem::take(&mut last.untold);
        last.told_ns = Some(now_ns);
        drop(last);
        match untold {
            0 => tracing::warn!("{text}"),
            _ => tracing::warn!("{text} (and {untold} complaints before)"),
        }
    }
}
