//! Where blocks are, and what it is expected to cost to read them: many blocks in one question to
//! each server.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::PoisonError;

use barograph_model::NS_PER_S;

use super::config::{ServerAddress, StagingMap};
use super::{StagingClient, is_later, no_servers, nonsense};
use crate::block::BlockInfo;
use crate::error::StagingError;
use crate::key::BlockKey;
use crate::read_times::{ReadCost, ReadTimes};
use crate::wire::{Answer, LOCATE_BYTES_MAX, LOCATE_KEYS_MAX, LocatedBlocks, Request};

/// What reads from each tier of each server have cost this client.
pub(super) type ServerTimes = BTreeMap<(u64, u8), ReadTimes>;

/// A copy of a block on a server.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockReplica {
    /// The number of the server.
    pub server: u64,
    /// What the server knows of the block.
    pub info: BlockInfo,
    /// The directory that it is in; `None` in memory, and for the directories of a server of
    /// another user.
    pub path: Option<String>,
    /// Whether the server is on the node of this client.
    pub is_on_node: bool,
    /// Expected seconds to read it whole from here: by what reads of this tier have cost this
    /// client, or else by what the server has seen over such sockets; `None` if neither has read
    /// there.
    pub read_s: Option<f64>,
}

/// Where many blocks are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocateAnswer {
    /// The epoch of the map of servers that was asked.
    pub epoch: u64,
    /// The replicas of each block, in the order of the question: confirmed ones first, of these
    /// the newest, and of these the one that is read soonest. Empty for a block that is nowhere.
    pub blocks: Vec<Vec<BlockReplica>>,
    /// The servers that could not be asked: blocks that are there alone are missing.
    pub unreachable: Vec<u64>,
}

impl StagingClient {
    /// Where many blocks are. Their replicas are asked, and where these do not have a block for
    /// certain, all other servers, since a block of a former map may be there.
    ///
    /// # Errors
    ///
    /// No server that was asked can be reached; their epoch is over and no newer map has come.
    pub fn locate(&self, keys: &[BlockKey]) -> Result<LocateAnswer, StagingError> {
        self.in_epoch(|map| {
            let mut search = Search {
                client: self,
                map,
                keys,
                answer: LocateAnswer {
                    epoch: map.epoch,
                    blocks: vec![Vec::new(); keys.len()],
                    unreachable: Vec::new(),
                },
                last: None,
                has_answer: keys.is_empty(),
            };
            search.run()?;
            let Search { mut answer, .. } = search;
            answer
                .blocks
                .iter_mut()
                .for_each(|found| found.sort_by(by_worth));
            Ok(answer)
        })
    }

    /// Takes in what a read has cost.
    pub(super) fn observe_read(&self, server: u64, info: &BlockInfo, bytes: &[u8], begun_ns: i64) {
        let took_ns = self.clock.monotonic_ns().saturating_sub(begun_ns);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let times = times.entry((server, info.tier)).or_default();
        times.observe(bytes.len() as u64, took_ns as f64 / NS_PER_S as f64);
    }

    /// Forgets what servers have cost that are in a map no longer.
    pub(super) fn keep_times(&self, map: &StagingMap) {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.retain(|(server, _), _| map.servers.contains_key(server));
    }

    fn read_cost(&self, server: u64, tier: u8) -> Option<ReadCost> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        times.get(&(server, tier))?.cost()
    }
}

/// One question to many servers.
struct Search<'a> {
    client: &'a StagingClient,
    map: &'a StagingMap,
    keys: &'a [BlockKey],
    answer: LocateAnswer,
    last: Option<StagingError>,
    has_answer: bool,
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), StagingError> {
        let replicas = self.client.config.replicas.max(1);
        let orders: Vec<Vec<u64>> = self
            .keys
            .iter()
            .map(|key| self.client.order(key, self.map))
            .collect();
        self.ask_all(&orders, |place| place < replicas)?;
        let is_certain = |found: &Vec<BlockReplica>| found.iter().any(|it| it.info.is_confirmed);
        let certain: Vec<bool> = self.answer.blocks.iter().map(is_certain).collect();
        let rest: Vec<Vec<u64>> = orders
            .into_iter()
            .zip(certain)
            .map(|(order, is_certain)| if is_certain { Vec::new() } else { order })
            .collect();
        self.ask_all(&rest, |place| place >= replicas)?;
        match self.has_answer {
            true => Ok(()),
            false => Err(self.last.take().unwrap_or_else(no_servers)),
        }
    }

    /// Asks each server for the blocks that have it at a place of their order.
    fn ask_all(
        &mut self,
        orders: &[Vec<u64>],
        is_asked: impl Fn(usize) -> bool,
    ) -> Result<(), StagingError> {
        let mut wanted: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, order) in orders.iter().enumerate() {
            let asked = order.iter().enumerate().filter(|(at, _)| is_asked(*at));
            for (_, server) in asked {
                wanted.entry(*server).or_default().push(index);
            }
        }
        for (server, indices) in wanted {
            for part in parts(&indices, self.keys) {
                match self.ask(server, part) {
                    Ok(()) => self.has_answer = true,
                    Err(error) if is_later(&error, self.map.epoch) => return Err(error),
                    Err(error) => {
                        if !self.answer.unreachable.contains(&server) {
                            self.answer.unreachable.push(server);
                        }
                        self.last = Some(error);
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, server: u64, indices: &[usize]) -> Result<(), StagingError> {
        let keys = indices.iter().map(|index| self.keys[*index].clone());
        let request = Request::Locate {
            epoch: self.map.epoch,
            keys: keys.collect(),
        };
        let Answer::Places(located) = self.client.simple(self.map, server, &request)? else {
            return Err(nonsense());
        };
        if located.blocks.len() != indices.len() {
            return Err(nonsense());
        }
        let blocks = indices.iter().zip(&located.blocks);
        for (index, info) in blocks.filter_map(|(index, info)| Some((index, (*info)?))) {
            let replica = self.replica(server, info, &located);
            self.answer.blocks[*index].push(replica);
        }
        Ok(())
    }

    fn replica(&self, server: u64, info: BlockInfo, located: &LocatedBlocks) -> BlockReplica {
        let tier = located.tiers.get(usize::from(info.tier));
        let own = self.client.read_cost(server, info.tier);
        let cost = own.or_else(|| tier?.cost);
        let address = self.map.servers.get(&server);
        BlockReplica {
            server,
            info,
            path: tier.and_then(|tier| tier.path.clone()),
            is_on_node: matches!(address, Some(ServerAddress::Unix(_))),
            read_s: cost
                .map(|cost| cost.read_s(info.bytes))
                .filter(|seconds| seconds.is_finite()),
        }
    }
}

/// The replica to be read first comes first.
fn by_worth(one: &BlockReplica, other: &BlockReplica) -> Ordering {
    let seconds = |it: &BlockReplica| it.read_s.unwrap_or(f64::INFINITY);
    (other.info.is_confirmed.cmp(&one.info.is_confirmed))
        .then(other.info.version.cmp(&one.info.version))
        .then(seconds(one).total_cmp(&seconds(other)))
        .then(other.is_on_node.cmp(&one.is_on_node))
        .then(one.server.cmp(&other.server))
}

/// Parts of a question that fit into one frame each.
fn parts<'a>(indices: &'a [usize], keys: &[BlockKey]) -> Vec<&'a [usize]> {
    let mut parts = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (at, index) in indices.iter().enumerate() {
        let more = keys[*index].wire_bytes();
        let is_full = at - begin == LOCATE_KEYS_MAX || bytes + more > LOCATE_BYTES_MAX;
        if is_full && at > begin {
            parts.push(&indices[begin..at]);
            (begin, bytes) = (at, 0);
        }
        bytes += more;
    }
    if begin < indices.len() {
        parts.push(&indices[begin..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_fit_into_frames() {
        let long = BlockKey::named("d", &[7; 4_096]).unwrap();
        let keys: Vec<BlockKey> = (0..30).map(|_| long.clone()).collect();
        let all: Vec<usize> = (0..30).collect();
        let found = parts(&all, &keys);
        assert_eq!(
            found.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [11, 11, 8]
        );
        let keys: Vec<BlockKey> = (0..2_500)
            .map(|n| BlockKey::numbered("d", n).unwrap())
            .collect();
        let all: Vec<usize> = (0..2_500).collect();
        let found = parts(&all, &keys);
        assert_eq!(
            found.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [1_000, 1_000, 500]
        );
        assert_eq!(found.concat(), all);
        assert!(parts(&[], &keys).is_empty());
    }
}
