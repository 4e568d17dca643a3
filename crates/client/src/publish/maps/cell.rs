//! What a process remembers of its use of a map, beside what is in its file. It is in static memory
//! of plain words: no lock, nothing to make, and a child of a fork may have it.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use barograph_stream::ingest::MAPS_MAX;

/// Shortest time between two frames of a use.
const FRAME_NS: i64 = 50_000_000;

/// Shortest time between two knocks for requests that were refused: whoever sends those all the
/// time is not to keep the agent at work.
const KNOCK_NS: i64 = 10_000_000;

/// What is remembered of a slot.
#[derive(Debug)]
pub(super) struct MapCell {
    /// The greatest fence with which a server has refused an operation, or which a server was told.
    fence: AtomicU64,
    /// The epoch for which operations wait, and since when.
    prepare: AtomicU64,
    since_ns: AtomicI64,
    /// The process that has waited for an agent in vain: a child may wait anew.
    alone: AtomicU32,
    /// The monotonic time of the next frame, and its number.
    frame_due_ns: AtomicI64,
    frame: AtomicU64,
    /// The monotonic time before which nobody knocks for a request that was refused.
    knock_due_ns: AtomicI64,
    /// 1 more than the epoch that was said last.
    epoch: AtomicU64,
    /// Requests that were served, and their bytes.
    requests: AtomicU64,
    bytes: AtomicU64,
}

/// What was served so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServedTotals {
    pub requests: u64,
    pub bytes: u64,
}

static CELLS: [MapCell; MAPS_MAX] = [const { MapCell::new() }; MAPS_MAX];

/// The cell of a slot.
pub(super) fn of(slot: u8) -> &'static MapCell {
    &CELLS[usize::from(slot) % MAPS_MAX]
}

impl MapCell {
    const fn new() -> Self {
        Self {
            fence: AtomicU64::new(0),
            prepare: AtomicU64::new(0),
            since_ns: AtomicI64::new(0),
            alone: AtomicU32::new(0),
            frame_due_ns: AtomicI64::new(0),
            frame: AtomicU64::new(0),
            knock_due_ns: AtomicI64::new(0),
            epoch: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Forgets everything: the slot is another map's from now on.
    pub(super) fn reset(&self) {
        self.fence.store(0, Ordering::Relaxed);
        self.prepare.store(0, Ordering::Relaxed);
        self.alone.store(0, Ordering::Relaxed);
        self.frame_due_ns.store(0, Ordering::Relaxed);
        self.epoch.store(0, Ordering::Relaxed);
        self.requests.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    pub(super) fn fence(&self) -> u64 {
        self.fence.load(Ordering::Relaxed)
    }

    /// Raises the fence, and returns the greatest.
    pub(super) fn raise_fence(&self, fence: u64) -> u64 {
        self.fence.fetch_max(fence, Ordering::Relaxed).max(fence)
    }

    /// Forgets a fence that no map in force has come up to: the server that told of it may be
    /// wrong.
    pub(super) fn forget_fence(&self, fence: u64) {
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.fence.compare_exchange(fence, 0, success, failure);
    }

    /// The time since which operations of this process wait for an epoch.
    pub(super) fn suspended_since(&self, prepare: u64, now_ns: i64) -> i64 {
        if self.prepare.load(Ordering::Acquire) != prepare {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            // If two threads are first, their times are the same within a moment.
            self.prepare.store(prepare, Ordering::Release);
        }
        self.since_ns.load(Ordering::Relaxed)
    }

    /// Whether this process has waited for an agent in vain.
    pub(super) fn is_alone(&self) -> bool {
        let alone = self.alone.load(Ordering::Relaxed);
        alone != 0 && alone == std::process::id()
    }

    pub(super) fn set_alone(&self) {
        self.alone.store(std::process::id(), Ordering::Relaxed);
    }

    /// The number of a frame, if one is due.
    pub(super) fn take_frame(&self, now_ns: i64) -> Option<u64> {
        let due_ns = self.frame_due_ns.load(Ordering::Relaxed);
        if now_ns < due_ns {
            return None;
        }
        let next_ns = now_ns.saturating_add(FRAME_NS);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self
            .frame_due_ns
            .compare_exchange(due_ns, next_ns, success, failure);
        taken.is_ok().then(|| self.next_frame())
    }

    /// The number of the next frame.
    pub(super) fn next_frame(&self) -> u64 {
        self.frame.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether to knock for a request that was refused.
    pub(super) fn take_knock(&self, now_ns: i64) -> bool {
        let due_ns = self.knock_due_ns.load(Ordering::Relaxed);
        let is_due = now_ns >= due_ns;
        if is_due {
            let next_ns = now_ns.saturating_add(KNOCK_NS);
            self.knock_due_ns.store(next_ns, Ordering::Relaxed);
        }
        is_due
    }

    /// Whether an epoch is another than the last one for which this was asked.
    #[inline]
    pub(super) fn take_epoch(&self, epoch: u64) -> bool {
        let mark = epoch.wrapping_add(1);
        self.epoch.load(Ordering::Relaxed) != mark
            && self.epoch.swap(mark, Ordering::Relaxed) != mark
    }

    /// Counts a request that was served.
    pub(super) fn count_served(&self, bytes: u64) -> ServedTotals {
        ServedTotals {
            requests: self.requests.fetch_add(1, Ordering::Relaxed) + 1,
            bytes: self
                .bytes
                .fetch_add(bytes, Ordering::Relaxed)
                .saturating_add(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_remembers_what_was_seen_first_and_the_greatest_fence() {
        let cell = MapCell::new();
        assert_eq!(cell.suspended_since(5, 100), 100);
        assert_eq!(cell.suspended_since(5, 200), 100);
        assert_eq!(cell.suspended_since(6, 300), 300);
        assert_eq!(cell.raise_fence(7), 7);
        assert_eq!(cell.raise_fence(3), 7);
        cell.forget_fence(6);
        assert_eq!(cell.fence(), 7, "another one");
        cell.forget_fence(7);
        assert_eq!(cell.fence(), 0);
        assert!(!cell.is_alone());
        cell.set_alone();
        assert!(cell.is_alone());
    }

    #[test]
    fn frames_have_a_distance() {
        let cell = MapCell::new();
        let due: Vec<_> = (0..200)
            .filter_map(|ms| cell.take_frame(ms * 1_000_000))
            .collect();
        assert_eq!(due, [0, 1, 2, 3]);
        assert_eq!(cell.count_served(5).bytes, 5);
        let totals = cell.count_served(7);
        assert_eq!((totals.requests, totals.bytes), (2, 12));
        cell.reset();
        assert_eq!(cell.count_served(1).requests, 1);
    }
}
