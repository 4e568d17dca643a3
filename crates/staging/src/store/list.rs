//! Lists of blocks, page by page.

use std::ops::Bound;
use std::sync::Arc;

use super::stock::BlockStore;
use crate::block::{BlockInfo, INFO_BYTES, UserId};
use crate::key::{BlockKey, BlockName};

/// Most blocks of a page.
const PAGE_BLOCKS_MAX: usize = 1_000;
/// Most bytes of the keys of a page: a page fits into a frame.
const PAGE_BYTES_MAX: usize = 48 << 10;
/// Blocks that are looked at for one page, so that a list does not hold the store for long.
const LOOKS_MAX: usize = 20_000;

/// Which blocks are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// The beginning of the names of datasets.
    pub dataset: String,
    /// The beginning of the names of blocks; if it is not empty, numbered blocks are left out.
    pub name: Vec<u8>,
    /// The key after which the list begins: the last one of the page before.
    pub after: Option<BlockKey>,
    /// Most blocks that are wanted; 0 for as many as a page may have, which is 1,000.
    pub blocks_max: u32,
}

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Blocks, sorted by key.
    pub blocks: Vec<(BlockKey, BlockInfo)>,
    /// The key after which the next page begins, if there may be one. It may have no block here.
    pub next: Option<BlockKey>,
}

impl BlockStore {
    /// A page of a user's blocks.
    pub fn list(&self, user: UserId, query: &ListQuery) -> ListPage {
        let state = self.lock();
        let mut page = ListPage::default();
        let Some(blocks) = state.users.get(&user) else {
            return page;
        };
        // No key is before the number 0 of its dataset.
        let first = BlockKey::numbered(&query.dataset, 0).ok();
        let from = match (&query.after, &first) {
            (Some(after), Some(first)) if after < first => Bound::Included(first),
            (Some(after), _) => Bound::Excluded(after),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let blocks_max = match query.blocks_max {
            0 => PAGE_BLOCKS_MAX,
            wanted => PAGE_BLOCKS_MAX.min(wanted as usize),
        };
        let mut bytes = 0;
        let mut last: Option<&Arc<BlockKey>> = None;
        let range = blocks.blocks.range::<BlockKey, _>((from, Bound::Unbounded));
        for (looks, (key, entry)) in range.enumerate() {
            if !key.dataset().starts_with(&query.dataset) {
                return page;
            }
            let is_full = page.blocks.len() == blocks_max || bytes >= PAGE_BYTES_MAX;
            if is_full || looks >= LOOKS_MAX {
                page.next = last.map(|key| BlockKey::clone(key));
                return page;
            }
            last = Some(key);
            let is_named = match key.name() {
                BlockName::Bytes(name) => name.starts_with(&query.name),
                BlockName::Number(_) => query.name.is_empty(),
            };
            if is_named {
                bytes += key.wire_bytes() + INFO_BYTES;
                page.blocks.push((BlockKey::clone(key), state.info(entry)));
            }
        }
        page
    }
}
