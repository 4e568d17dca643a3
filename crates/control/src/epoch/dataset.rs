//! Where the blocks of a dataset are: each is on the servers of the epoch in which it was written,
//! so a change of the map moves nothing.

use super::{ProcessId, ServerMap};

/// The maps of a dataset, by the first block of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatasetMap {
    intervals: Vec<(u64, ServerMap)>,
}

impl DatasetMap {
    /// Notes that blocks from this one on are written with a map. Blocks that were written before
    /// stay where they are; a map of an earlier epoch than the last one changes nothing.
    pub fn extend(&mut self, first_block: u64, map: &ServerMap) {
        let last = self.intervals.last();
        if last.is_some_and(|(from, last)| map.epoch <= last.epoch || first_block < *from) {
            return;
        }
        // An epoch in which nothing was written has no blocks.
        if self
            .intervals
            .last()
            .is_some_and(|(from, _)| *from == first_block)
        {
            self.intervals.pop();
        }
        self.intervals.push((first_block, map.clone()));
    }

    /// The map with which a block was written or is to be written; `None` before the first one.
    pub fn map_of(&self, block: u64) -> Option<&ServerMap> {
        let after = self.intervals.partition_point(|(from, _)| *from <= block);
        let (_, map) = self.intervals.get(after.checked_sub(1)?)?;
        Some(map)
    }

    /// Whether some block is still on a server.
    pub fn needs(&self, server: ProcessId) -> bool {
        let mut maps = self.intervals.iter();
        maps.any(|(_, map)| map.servers.contains(&server))
    }
}
