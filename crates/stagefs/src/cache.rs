//! Blocks that were read of late. A block never changes, so a copy of it is never old.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::entry::BlockRef;

/// A few whole blocks, for programs that read them piece by piece.
pub(crate) struct BlockCache {
    bytes_max: u64,
    /// The one that was used last is the last one.
    blocks: Mutex<VecDeque<(BlockRef, Arc<Vec<u8>>)>>,
}

impl BlockCache {
    /// A cache of so many bytes, or one block if that has more.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            blocks: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, block: BlockRef) -> Option<Arc<Vec<u8>>> {
        let mut blocks = self.lock();
        let place = blocks.iter().rposition(|(it, _)| *it == block)?;
        let found = blocks.remove(place)?;
        let bytes = Arc::clone(&found.1);
        blocks.push_back(found);
        Some(bytes)
    }

    pub(crate) fn put(&self, block: BlockRef, bytes: &Arc<Vec<u8>>) {
        let mut blocks = self.lock();
        blocks.retain(|(it, _)| *it != block);
        blocks.push_back((block, Arc::clone(bytes)));
        let mut held: u64 = blocks.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        while held > self.bytes_max && blocks.len() > 1 {
            let gone = blocks.pop_front();
            held -= gone.map_or(0, |(_, bytes)| bytes.len() as u64);
        }
    }

    pub(crate) fn forget(&self, block: BlockRef) {
        self.lock().retain(|(it, _)| *it != block);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(BlockRef, Arc<Vec<u8>>)>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_last_stays() {
        let cache = BlockCache::new(250);
        let block = |number| BlockRef { writer: 1, number };
        let bytes = Arc::new(vec![0; 100]);
        cache.put(block(1), &bytes);
        cache.put(block(2), &bytes);
        assert!(cache.get(block(1)).is_some());
        cache.put(block(3), &bytes);
        let has = |number| cache.get(block(number)).is_some();
        assert_eq!([has(1), has(2), has(3)], [true, false, true]);
        cache.put(block(4), &Arc::new(vec![0; 1_000]));
        assert_eq!([has(1), has(3), has(4)], [false, false, true]);
        cache.forget(block(4));
        assert!(!has(4));
    }
}
