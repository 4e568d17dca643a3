//! Which slots and which ring memory are free. Pure bookkeeping of the one writer; no memory here.

use std::collections::{HashMap, VecDeque};

use crate::layout::CELL_BYTES;

/// A piece of the ring area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RingShape {
    /// Samples.
    pub depth: u32,
    /// Bytes of each of the slots that follow the cells; 0: there are none.
    pub slot_bytes: u32,
}

impl RingShape {
    /// Bytes of the cells.
    pub fn cells_bytes(self) -> usize {
        (self.depth as usize * CELL_BYTES).next_multiple_of(64)
    }

    /// Bytes of cells and slots.
    pub fn bytes(self) -> usize {
        self.cells_bytes() + self.depth as usize * self.slot_bytes as usize
    }
}

/// A slot handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Index of descriptor and line.
    pub slot: u32,
    /// Generation to write under; the slot's previous one plus one.
    pub generation: u16,
    /// Offset of the ring from the start of the ring area.
    pub ring_at: usize,
    /// Whether the ring memory has never been used (must be reserved).
    pub fresh: bool,
}

/// Free slots and rings. Freed slots are reused oldest first, so that a slot's 16-bit generation
/// comes round as late as possible.
#[derive(Debug)]
pub struct Slots {
    max: u32,
    used: u32,
    ring_end: usize,
    ring_bytes_max: usize,
    free_slots: VecDeque<(u32, u16)>,
    free_rings: HashMap<RingShape, Vec<usize>>,
}

impl Slots {
    /// Room for `max` streams in a ring area of `ring_bytes_max`.
    pub fn new(max: u32, ring_bytes_max: usize) -> Self {
        Self {
            max,
            used: 0,
            ring_end: 0,
            ring_bytes_max,
            free_slots: VecDeque::new(),
            free_rings: HashMap::new(),
        }
    }

    /// Slots that have ever been used: readers look at no others.
    pub fn used(&self) -> u32 {
        self.used
    }

    /// A slot and a ring, or `None` when there is no room.
    pub fn take(&mut self, shape: RingShape) -> Option<Grant> {
        if self.free_slots.is_empty() && self.used == self.max {
            return None;
        }
        let (ring_at, fresh) = match self.free_rings.get_mut(&shape).and_then(Vec::pop) {
            Some(at) => (at, false),
            None if self.ring_end + shape.bytes() <= self.ring_bytes_max => {
                let at = self.ring_end;
                self.ring_end += shape.bytes();
                (at, true)
            }
            None => return None,
        };
        let (slot, generation) = self.free_slots.pop_front().unwrap_or_else(|| {
            self.used += 1;
            (self.used - 1, 1)
        });
        Some(Grant {
            slot,
            generation,
            ring_at,
            fresh,
        })
    }

    /// Gives a slot and its ring back; the slot's next generation is `next_generation`.
    pub fn give(&mut self, grant: Grant, shape: RingShape, next_generation: u16) {
        self.free_slots.push_back((grant.slot, next_generation));
        self.free_rings
            .entry(shape)
            .or_default()
            .push(grant.ring_at);
    }

    /// Takes a grant back whose fresh ring could not be reserved: nothing was written.
    pub fn undo(&mut self, grant: Grant, shape: RingShape) {
        self.free_slots.push_front((grant.slot, grant.generation));
        if grant.fresh && grant.ring_at + shape.bytes() == self.ring_end {
            self.ring_end = grant.ring_at;
        } else {
            self.free_rings
                .entry(shape)
                .or_default()
                .push(grant.ring_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: RingShape = RingShape {
        depth: 4,
        slot_bytes: 0,
    };
    const TEXT: RingShape = RingShape {
        depth: 4,
        slot_bytes: 128,
    };

    #[test]
    fn slots_are_reused_oldest_first_with_a_new_generation() {
        let mut slots = Slots::new(3, 1 << 20);
        let a = slots.take(SMALL).unwrap();
        let b = slots.take(SMALL).unwrap();
        slots.give(a, SMALL, 2);
        slots.give(b, SMALL, 2);
        let c = slots.take(SMALL).unwrap();
        assert_eq!((c.slot, c.generation, c.fresh), (a.slot, 2, false));
        assert_eq!(slots.used(), 2);
    }

    #[test]
    fn no_room_is_none() {
        let mut slots = Slots::new(1, 1 << 20);
        assert!(slots.take(SMALL).is_some());
        assert!(slots.take(SMALL).is_none());
        assert!(Slots::new(9, 64).take(TEXT).is_none());
    }

    proptest! {
        #[test]
        fn live_rings_never_overlap(steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0usize..8), 1..200)) {
            let mut slots = Slots::new(16, 1 << 16);
            let mut live: Vec<(Grant, RingShape)> = Vec::new();
            for (add, text, pick) in steps {
                let shape = if text { TEXT } else { SMALL };
                if add {
                    live.extend(slots.take(shape).map(|g| (g, shape)));
                } else if !live.is_empty() {
                    let (grant, shape) = live.remove(pick % live.len());
                    slots.give(grant, shape, grant.generation.wrapping_add(1));
                }
                let mut spans: Vec<_> = live.iter().map(|(g, s)| (g.ring_at, g.ring_at + s.bytes())).collect();
                spans.sort_unstable();
                prop_assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0));
                let mut ids: Vec<_> = live.iter().map(|(g, _)| g.slot).collect();
                ids.sort_unstable();
                ids.dedup();
                prop_assert_eq!(ids.len(), live.len());
            }
        }
    }
}
