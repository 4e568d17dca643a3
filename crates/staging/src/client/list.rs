//! Lists over all servers.

use std::collections::BTreeMap;
use std::vec;

use super::{StagingClient, is_later, nonsense};
use crate::block::BlockInfo;
use crate::error::StagingError;
use crate::key::BlockKey;
use crate::store::{ListPage, ListQuery};
use crate::wire::{Answer, Request};

impl StagingClient {
    /// A page of the blocks of all servers, each once with its highest version.
    ///
    /// # Errors
    ///
    /// So many servers cannot be reached that blocks could be missing: as many as there are
    /// replicas.
    pub fn list(&self, query: &ListQuery) -> Result<ListPage, StagingError> {
        self.in_epoch(|map| {
            let mut blocks: BTreeMap<BlockKey, BlockInfo> = BTreeMap::new();
            let (mut next, mut gone): (Option<BlockKey>, usize) = (None, 0);
            for server in map.servers.keys() {
                let request = Request::List {
                    epoch: map.epoch,
                    query: query.clone(),
                };
                let page = match self.simple(map, *server, &request) {
                    Ok(Answer::Page(page)) => page,
                    Ok(_) => return Err(nonsense()),
                    Err(error) if is_later(&error, map.epoch) => return Err(error),
                    Err(error) => {
                        gone += 1;
                        if gone >= self.config.replicas.max(1) {
                            return Err(error);
                        }
                        continue;
                    }
                };
                for (key, info) in page.blocks {
                    let best = blocks.entry(key).or_insert(info);
                    if info.version > best.version {
                        *best = info;
                    }
                }
                next = match (next, page.next) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
            // Behind the shortest page, blocks of its server are missing.
            if let Some(next) = &next {
                blocks.retain(|key, _| key <= next);
            }
            let blocks = blocks.into_iter().collect();
            Ok(ListPage { blocks, next })
        })
    }
}

/// A list that is fetched page by page while it is read.
#[derive(Debug, Default)]
pub struct ListCursor {
    query: ListQuery,
    page: vec::IntoIter<(BlockKey, BlockInfo)>,
    is_last: bool,
}

impl ListCursor {
    /// A cursor before the first block of a list.
    pub fn new(query: ListQuery) -> Self {
        Self {
            query,
            ..Self::default()
        }
    }

    /// The next block; `None` behind the last one.
    ///
    /// # Errors
    ///
    /// As for [`StagingClient::list`]; the next call tries the same page again.
    pub fn next(
        &mut self,
        client: &StagingClient,
    ) -> Result<Option<(BlockKey, BlockInfo)>, StagingError> {
        loop {
            if let Some(block) = self.page.next() {
                return Ok(Some(block));
            }
            if self.is_last {
                return Ok(None);
            }
            let page = client.list(&self.query)?;
            self.page = page.blocks.into_iter();
            self.is_last = page.next.is_none();
            self.query.after = page.next.or(self.query.after.take());
        }
    }
}
