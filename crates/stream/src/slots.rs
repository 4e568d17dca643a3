//! Bookkeeping of free slots and free ring memory, for the one writer; it touches no shared memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use crate::layout::CELL_BYTES;

/// The size of a ring in the ring area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RingShape {
    /// Number of samples.
    pub depth: u32,
    /// Bytes of each of the value slots that follow the cells; 0 if there are none.
    pub slot_bytes: u32,
}

impl RingShape {
    pub(crate) fn cells_bytes(self) -> usize {
        (self.depth as usize * CELL_BYTES).next_multiple_of(64)
    }

    /// Bytes of cells and slots.
    pub(crate) fn bytes(self) -> usize {
        self.cells_bytes() + self.depth as usize * self.slot_bytes as usize
    }
}

/// A slot with its ring, as it is given to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotGrant {
    /// Index of the descriptor and of the line.
    pub slot: u32,
    /// Generation to write under: the slot's previous one plus one.
    pub generation: u16,
    /// Offset of the ring from the start of the ring area.
    pub ring_at: usize,
}

/// Free slots and rings. Freed slots are reused oldest first, so that the 16-bit generation of a
/// slot repeats as late as possible. Freed rings are merged with free memory beside them, so that
/// rings of any other shape find room there.
#[derive(Debug)]
pub(crate) struct Slots {
    max: u32,
    used: u32,
    free_slots: VecDeque<(u32, u16)>,
    free_rings: Extents,
}

impl Slots {
    /// Creates room for `max` streams in a ring area of `ring_bytes_max` bytes.
    pub(crate) fn new(max: u32, ring_bytes_max: usize) -> Self {
        Self {
            max,
            used: 0,
            free_slots: VecDeque::new(),
            free_rings: Extents::of(ring_bytes_max),
        }
    }

    /// Number of slots that have ever been used: readers look at no others.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Takes a slot and a ring; `None` if there is no room.
    pub(crate) fn take(&mut self, shape: RingShape) -> Option<SlotGrant> {
        if self.free_slots.is_empty() && self.used == self.max {
            return None;
        }
        let ring_at = self.free_rings.take(shape.bytes())?;
        let (slot, generation) = self.free_slots.pop_front().unwrap_or_else(|| {
            self.used += 1;
            (self.used - 1, 1)
        });
        Some(SlotGrant {
            slot,
            generation,
            ring_at,
        })
    }

    /// Gives a slot and its ring back; the slot's next generation is `next_generation`.
    pub(crate) fn give(&mut self, grant: SlotGrant, shape: RingShape, next_generation: u16) {
        self.free_slots.push_back((grant.slot, next_generation));
        self.free_rings.give(grant.ring_at, shape.bytes());
    }

    /// The free piece of the ring area that contains this place, which must be free.
    pub(crate) fn free_around(&self, place: &Range<usize>) -> Range<usize> {
        let before = self.free_rings.by_place.range(..=place.start).next_back();
        before.map_or(0..0, |(at, bytes)| *at..at + bytes)
    }

    /// Takes back a grant whose ring could not be reserved: nothing was written to it.
    pub(crate) fn undo(&mut self, grant: SlotGrant, shape: RingShape) {
        self.free_slots.push_front((grant.slot, grant.generation));
        self.free_rings.give(grant.ring_at, shape.bytes());
    }
}

/// The free pieces of an area, of which no two touch: by place, and by size for the search.
#[derive(Debug, Default)]
struct Extents {
    by_place: BTreeMap<usize, usize>,
    by_size: BTreeSet<(usize, usize)>,
}

impl Extents {
    fn of(bytes: usize) -> Self {
        let mut extents = Self::default();
        extents.insert(0, bytes);
        extents
    }

    /// Takes from the start of the smallest piece that has room, the first of several such pieces.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        let (found, at) = *self.by_size.range((bytes, 0)..).next()?;
        self.remove(at, found);
        self.insert(at + bytes, found - bytes);
        Some(at)
    }

    fn give(&mut self, mut at: usize, mut bytes: usize) {
        let before = self.by_place.range(..at).next_back();
        if let Some((before_at, before_bytes)) = before.map(|(a, b)| (*a, *b))
            && before_at + before_bytes == at
        {
            self.remove(before_at, before_bytes);
            (at, bytes) = (before_at, before_bytes + bytes);
        }
        if let Some(after) = self.by_place.get(&(at + bytes)).copied() {
            self.remove(at + bytes, after);
            bytes += after;
        }
        self.insert(at, bytes);
    }

    fn insert(&mut self, at: usize, bytes: usize) {
        if bytes > 0 {
            self.by_place.insert(at, bytes);
            self.by_size.insert((bytes, at));
        }
    }

    fn remove(&mut self, at: usize, bytes: usize) {
        self.by_place.remove(&at);
        self.by_size.remove(&(bytes, at));
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
        assert_eq!((c.slot, c.generation, c.ring_at), (a.slot, 2, a.ring_at));
        assert_eq!(slots.used(), 2);
    }

    #[test]
    fn no_room_is_none() {
        let mut slots = Slots::new(1, 1 << 20);
        assert!(slots.take(SMALL).is_some());
        assert!(slots.take(SMALL).is_none());
        assert!(Slots::new(9, 64).take(TEXT).is_none());
    }

    #[test]
    fn what_rings_of_one_shape_leave_is_room_for_others() {
        let room = 64 * TEXT.bytes();
        let mut slots = Slots::new(1_000, room);
        let many: Vec<SlotGrant> = std::iter::from_fn(|| slots.take(SMALL)).collect();
        assert!(many.len() > 64 && slots.take(TEXT).is_none());
        // In an order in which neighbours are not freed one after the other.
        let (even, odd): (Vec<_>, Vec<_>) =
            (0..many.len()).partition(|n: &usize| n.is_multiple_of(2));
        for n in even.into_iter().chain(odd) {
            slots.give(many[n], SMALL, 2);
        }
        let texts = std::iter::from_fn(|| slots.take(TEXT)).count();
        assert_eq!(texts, 64);
        assert!(slots.free_rings.by_place.is_empty() && slots.free_rings.by_size.is_empty());
    }

    proptest! {
        #[test]
        fn live_rings_never_overlap(steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0usize..8), 1..200)) {
            let mut slots = Slots::new(16, 1 << 16);
            let mut live: Vec<(SlotGrant, RingShape)> = Vec::new();
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
                let free = &slots.free_rings;
                let taken: usize = spans.iter().map(|(from, to)| to - from).sum();
                prop_assert_eq!(free.by_place.values().sum::<usize>() + taken, 1 << 16);
                let by_size: Vec<_> = free.by_size.iter().map(|(bytes, at)| (*at, *bytes)).collect();
                prop_assert_eq!(by_size.len(), free.by_place.len());
                let is_apart = |w: &[(&usize, &usize)]| w[0].0 + w[0].1 < *w[1].0;
                let by_place: Vec<_> = free.by_place.iter().collect();
                prop_assert!(by_place.windows(2).all(is_apart));
            }
        }
    }
}
