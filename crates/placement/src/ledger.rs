//! What an adviser has placed itself since the state of targets was read.
//!
//! State is some seconds old, and in these seconds a burst of writes has gone to the target that
//! looked best. So an adviser keeps what it has placed, and takes it off the free bytes and onto
//! the queues of readings that are older. Where several advisers decide by the same readings, each
//! takes the others to do as it does.

use std::collections::{BTreeMap, VecDeque};

use crate::reading::{Reading, known};
use crate::rendezvous::TargetId;
use crate::target::TargetState;

/// Most placements that are kept; older ones are taken to be in the readings, and counted.
pub const LEDGER_ENTRIES_MAX: usize = 65_536;

/// The placements of one adviser that readings may not show yet.
#[derive(Clone, Debug)]
pub struct PlacementLedger {
    /// Time in ns, target and bytes, oldest first.
    entries: VecDeque<(i64, TargetId, u64)>,
    keep_ns: i64,
    advisers: f64,
    forgotten: u64,
}

impl PlacementLedger {
    /// A ledger that keeps placements for so many ns, of one of so many advisers who place alike.
    pub fn new(keep_ns: i64, advisers: u32) -> Self {
        Self {
            entries: VecDeque::new(),
            keep_ns: keep_ns.max(0),
            advisers: f64::from(advisers.max(1)),
            forgotten: 0,
        }
    }

    /// Notes a placement.
    pub fn placed(&mut self, now_ns: i64, target: TargetId, bytes: u64) {
        let oldest_ns = now_ns.saturating_sub(self.keep_ns);
        while self.entries.front().is_some_and(|it| it.0 < oldest_ns) {
            self.entries.pop_front();
        }
        if self.entries.len() == LEDGER_ENTRIES_MAX {
            self.entries.pop_front();
            self.forgotten += 1;
        }
        self.entries.push_back((now_ns, target, bytes));
    }

    /// How many placements were forgotten before their time, since there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// The state of targets with what was placed since their readings. A queue is shortened
    /// meanwhile by what the target writes at its bandwidth.
    pub fn applied(&self, targets: &[TargetState], now_ns: i64, tau_s: f64) -> Vec<TargetState> {
        let mut by_target: BTreeMap<TargetId, Vec<(i64, u64)>> = BTreeMap::new();
        for (placed_ns, target, bytes) in &self.entries {
            let entries = by_target.entry(*target).or_default();
            entries.push((*placed_ns, *bytes));
        }
        let rows = targets.iter().map(|target| {
            let mut target = *target;
            let placed = by_target.get(&target.id).map_or(&[][..], Vec::as_slice);
            if let Some(free) = &mut target.free_bytes {
                free.value = (free.value - self.since(placed, free, now_ns)).max(0.0);
            }
            let bandwidth = known(target.write_bytes_per_s, tau_s).map_or(0.0, |it| it.value);
            if let Some(queue) = &mut target.queue_bytes {
                let written = bandwidth * queue.age_s.max(0.0);
                let placed = self.since(placed, queue, now_ns);
                // What came after the reading may have been written as well, but not before.
                queue.value = (queue.value + placed - written).max(0.0);
            }
            target
        });
        rows.collect()
    }

    /// Bytes that were placed after a reading.
    fn since(&self, placed: &[(i64, u64)], reading: &Reading, now_ns: i64) -> f64 {
        let age_ns = (reading.age_s.max(0.0) * 1e9) as i64;
        let read_ns = now_ns.saturating_sub(age_ns);
        let after = placed.iter().filter(|(placed_ns, _)| *placed_ns >= read_ns);
        after.map(|(_, bytes)| *bytes as f64).sum::<f64>() * self.advisers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TargetTier;

    #[test]
    fn what_was_placed_after_a_reading_is_taken_off_it() {
        let target = TargetState {
            free_bytes: Some(Reading::measured(1_000.0, 2.0)),
            queue_bytes: Some(Reading::measured(0.0, 2.0)),
            ..TargetState::unknown(TargetId(1), TargetTier::Nvme, 1.0)
        };
        let mut ledger = PlacementLedger::new(10_000_000_000, 2);
        // Seconds of the placement; the reading is of second 3, and it is second 5 now.
        for (second, bytes) in [(1, 500), (4, 100), (5, 20)] {
            ledger.placed(second * 1_000_000_000, TargetId(1), bytes);
        }
        let applied = ledger.applied(&[target], 5_000_000_000, 30.0)[0];
        assert_eq!(applied.free_bytes.map(|it| it.value), Some(760.0));
        assert_eq!(applied.queue_bytes.map(|it| it.value), Some(240.0));
        ledger.placed(i64::MAX, TargetId(1), u64::MAX);
        assert_eq!((ledger.entries.len(), ledger.forgotten()), (1, 0));
    }
}
