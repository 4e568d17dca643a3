//! The free parts of a memory file, as pure bookkeeping: first fit from the lowest address, so that
//! what is used stays together.

use std::collections::BTreeMap;

/// The unit in which parts are given, in bytes: a cache line.
pub(crate) const UNIT_BYTES: usize = 64;

/// Free parts of a range of bytes. Neighbours are always merged.
#[derive(Debug)]
pub(crate) struct Extents {
    free: BTreeMap<usize, usize>,
}

/// Bytes that a block of this length takes.
pub(crate) fn rounded(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(UNIT_BYTES)
}

impl Extents {
    /// A range that is free.
    pub(crate) fn new(from: usize, to: usize) -> Self {
        Self {
            free: BTreeMap::from([(from, to - from)]),
        }
    }

    /// Takes a part of a rounded length; `None` if there is none in one piece.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        let fits = |(_, free): &(&usize, &usize)| **free >= bytes;
        let (at, free) = self.free.iter().find(fits)?;
        let (at, free) = (*at, *free);
        self.free.remove(&at);
        if free > bytes {
            self.free.insert(at + bytes, free - bytes);
        }
        Some(at)
    }

    /// Gives a part back.
    pub(crate) fn give(&mut self, mut at: usize, mut bytes: usize) {
        if let Some((before, length)) = self.free.range(..at).next_back()
            && before + length == at
        {
            (at, bytes) = (*before, length + bytes);
        }
        if let Some(after) = self.free.remove(&(at + bytes)) {
            bytes += after;
        }
        self.free.insert(at, bytes);
    }

    /// The free parts: where they begin and their lengths.
    pub(crate) fn free(&self) -> impl Iterator<Item = (usize, usize)> {
        self.free.iter().map(|(at, bytes)| (*at, *bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_low_and_merged() {
        let mut extents = Extents::new(64, 64 * 9);
        let taken: Vec<_> = [128, 64, 256, 128].map(|bytes| extents.take(bytes)).into();
        assert_eq!(taken, [Some(64), Some(192), Some(256), None]);
        extents.give(64, 128);
        extents.give(256, 256);
        assert_eq!(extents.take(256), Some(256));
        extents.give(256, 256);
        extents.give(192, 64);
        assert_eq!(extents.free().collect::<Vec<_>>(), [(64, 512)]);
    }
}
