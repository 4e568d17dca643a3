//! The index of slots by hash: cells of 32 bits, some 5 bytes for each slot.
//!
//! A cell has the number of a slot and, in the bits that such numbers do not need, a tag of its
//! hash, so that the slots themselves are seldom looked at in vain. Cells are probed one after
//! another (linear probing). The table grows by a quarter instead of twofold, and a slot cannot be
//! removed: the owner builds a new index.

/// Cells at first.
const CELLS_MIN: usize = 64;
/// A cell without a slot.
const EMPTY: u32 = 0;

/// Slots by hash.
#[derive(Debug, Default)]
pub(super) struct SlotIndex {
    cells: Box<[u32]>,
    len: usize,
    /// Bits of a cell that are the number of a slot, counted from 1.
    slot_bits: u32,
}

impl SlotIndex {
    /// Number of slots.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.cells)
    }

    /// The slot with this hash for which `is_it` is true.
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.cells.is_empty() {
            return None;
        }
        let mask = self.mask();
        let tag = self.tag(hash);
        let mut at = self.home(hash);
        // There is an empty cell always.
        loop {
            let cell = self.cells[at];
            if cell == EMPTY {
                return None;
            }
            if cell & !mask == tag && is_it((cell & mask) - 1) {
                return Some((cell & mask) - 1);
            }
            at += 1;
            if at == self.cells.len() {
                at = 0;
            }
        }
    }

    /// Adds a slot that the index does not have. `hash_of` gives the hash of one that it has.
    /// Numbers of slots should be dense, since the index has at least as many cells.
    pub(super) fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let is_far = u64::from(slot) + 1 > u64::from(self.mask());
        // Seven of eight cells are filled at most.
        if (self.len + 1) * 8 > self.cells.len() * 7 || is_far {
            let least = (slot as usize + 2).max(CELLS_MIN);
            self.grow(
                (self.cells.len() + self.cells.len() / 4).max(least),
                hash_of,
            );
        }
        self.put(hash, slot);
        self.len += 1;
    }

    fn grow(&mut self, cells: usize, hash_of: impl Fn(u32) -> u64) {
        let (old, mask) = (std::mem::take(&mut self.cells), self.mask());
        self.cells = vec![EMPTY; cells].into();
        self.slot_bits = usize::BITS - cells.leading_zeros();
        for cell in old.iter().filter(|cell| **cell != EMPTY) {
            let slot = (cell & mask) - 1;
            self.put(hash_of(slot), slot);
        }
    }

    fn put(&mut self, hash: u64, slot: u32) {
        let cell = self.tag(hash) | (slot + 1);
        let mut at = self.home(hash);
        while self.cells[at] != EMPTY {
            at += 1;
            if at == self.cells.len() {
                at = 0;
            }
        }
        self.cells[at] = cell;
    }

    /// The bits of a cell that are the number of a slot.
    fn mask(&self) -> u32 {
        1_u32
            .checked_shl(self.slot_bits)
            .map_or(u32::MAX, |bit| bit - 1)
    }

    fn tag(&self, hash: u64) -> u32 {
        hash as u32 & !self.mask()
    }

    /// The cell at which probing begins.
    fn home(&self, hash: u64) -> usize {
        // The upper half of the hash as a fraction of the number of cells.
        (((hash >> 32) * self.cells.len() as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mixes the bits of a number well (SplitMix64).
    fn mix(n: u64) -> u64 {
        let z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    #[test]
    fn slots_are_found_by_any_hash() {
        // Good hashes, and those of which many are alike.
        for hash in [mix, |n| mix(n / 50), |n| n % 7, |n| u64::MAX - n % 3] {
            let mut index = SlotIndex::default();
            assert_eq!(index.find(hash(0), |_| true), None);
            for slot in 0..3_000 {
                index.insert(hash(slot), slot as u32, |at| hash(u64::from(at)));
            }
            assert_eq!(index.len(), 3_000);
            for slot in 0..3_000 {
                let found = index.find(hash(slot), |at| u64::from(at) == slot);
                assert_eq!(found, Some(slot as u32));
            }
            assert_eq!(index.find(hash(1), |at| at == 3_000), None);
        }
    }

    #[test]
    fn a_million_slots_take_six_megabytes_and_few_looks() {
        let mut index = SlotIndex::default();
        for slot in 0..1_000_000 {
            index.insert(mix(slot), slot as u32, |at| mix(u64::from(at)));
        }
        assert!(index.bytes() <= 6_000_000, "{}", index.bytes());
        let looks = std::cell::Cell::new(0_u32);
        for n in 1_000_000..1_100_000 {
            let found = index.find(mix(n), |_| {
                looks.set(looks.get() + 1);
                false
            });
            assert_eq!(found, None);
        }
        // Most slots that are looked at are those that were meant.
        assert!(looks.get() < 5_000, "{}", looks.get());
    }
}
