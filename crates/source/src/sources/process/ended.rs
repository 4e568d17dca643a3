//! The bytes of processes that have ended.
//!
//! When a process waits for a child that has ended, the kernel adds the child's bytes to its own
//! (`wait_task_zombie` in `kernel/exit.c`). Bytes that the child's counters showed already would
//! then be counted twice, and its parent, such as a shell, would be named as the one who wrote
//! them. They are taken off the parent's counters. Bytes of children that no scan has seen stay
//! there.

use std::collections::HashMap;

use super::parse::ProcessIo;
use super::{Active, Known, Seen};
use crate::util::rate::per_second;

/// Takes the bytes of processes that have ended since the last scan, `elapsed_ns` ago, off those
/// that waited for them.
pub(super) fn settle(
    ended: &HashMap<u32, Seen>,
    known: &mut HashMap<u32, Known>,
    active: &mut [Active],
    elapsed_ns: i64,
) {
    let mut left: HashMap<u32, ProcessIo> = HashMap::new();
    #[expect(
        clippy::iter_over_hash_type,
        reason = "a sum does not depend on the order"
    )]
    for seen in ended.values() {
        if let Some(heir) = heir(seen, ended, known) {
            let sum = left.entry(heir).or_default();
            *sum = sum.plus(seen.io);
        }
    }
    for heir in active {
        let seen = known.get_mut(&heir.pid).and_then(|k| k.seen.as_mut());
        if let (Some(left), Some(seen)) = (left.get(&heir.pid), seen) {
            heir.inherit(seen, *left, elapsed_ns);
        }
    }
}

/// Returns the living process that the bytes of an ended one have gone to: its parent, or if that
/// has ended too, its parent's.
fn heir(ended: &Seen, all: &HashMap<u32, Seen>, known: &HashMap<u32, Known>) -> Option<u32> {
    let mut parent = ended.parent;
    // Numbers that are used again may form a circle.
    for _ in 0..=all.len() {
        if let Some(living) = known.get(&parent) {
            // A process that began later only has the number.
            let is_parent = living.seen.is_some_and(|seen| seen.start <= ended.start);
            return is_parent.then_some(parent);
        }
        parent = all.get(&parent)?.parent;
    }
    None
}

impl Active {
    fn inherit(&mut self, seen: &mut Seen, left: ProcessIo, elapsed_ns: i64) {
        let Some(moved) = self.moved else { return };
        // A parent that ignores its children does not get their bytes.
        let taken = |moved: u64, left: u64| if left <= moved { left } else { 0 };
        let taken = ProcessIo {
            read_bytes: taken(moved.read_bytes, left.read_bytes),
            write_bytes: taken(moved.write_bytes, left.write_bytes),
            cancelled_bytes: taken(moved.cancelled_bytes, left.cancelled_bytes),
        };
        seen.inherited = seen.inherited.plus(taken);
        let own = moved.minus(taken);
        seen.read = per_second(own.read_bytes, elapsed_ns);
        seen.write = per_second(own.write_bytes, elapsed_ns);
        self.read = seen.read.unwrap_or(0.0);
        self.write = seen.write.unwrap_or(0.0);
    }
}
