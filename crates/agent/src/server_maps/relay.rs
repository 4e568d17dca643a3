//! What is relayed of maps between a node and the leader.

use std::collections::BTreeSet;
use std::ops::Bound;

use barograph_control::{EpochOrder, NodeWord, ProcessId, ServerMap};

use super::{Maps, NodeMap, ServerMaps};
use crate::controller_words::{MapKey, MapOrder, MapWord, servers_of};

/// Most maps, and samples of one map, in one report.
const MAPS_OF_REPORT_MAX: usize = 32;
const SAMPLES_OF_REPORT_MAX: usize = 256;
/// Time after which the leader is told how many operations have ended, if nothing else is new.
const COUNT_NS: i64 = 200_000_000;

/// What is relayed of maps in one report.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapBatch {
    pub maps: Vec<MapWord>,
    /// The same, as the controllers of this node have said it.
    said: Vec<(MapKey, NodeWord)>,
}

impl MapBatch {
    fn add(&mut self, key: &MapKey, map: &mut NodeMap, (mut word, said): (MapWord, NodeWord)) {
        let count = map.samples.len().min(SAMPLES_OF_REPORT_MAX);
        // A report that is lost loses its samples: the detector needs no certain one.
        let samples = map.samples.drain(..count);
        word.samples = samples
            .map(|(server, it)| (server, it.load, it.service_s, it.requests))
            .collect();
        self.maps.push(word);
        self.said.push((key.clone(), said));
    }

    fn has(&self, key: &MapKey) -> bool {
        self.said.iter().any(|(of, _)| of == key)
    }
}

impl NodeMap {
    /// Whether the leader has not heard this word. How many operations have ended is said with what
    /// else is new, or after a while.
    fn is_news(&self, word: &MapWord, now_ns: i64) -> bool {
        let Some(heard) = &self.heard else {
            return true;
        };
        let is_counted = heard.operations == word.operations;
        let is_due = !is_counted && now_ns.saturating_sub(self.counted_ns) >= COUNT_NS;
        let heard = MapWord {
            operations: word.operations,
            ..heard.clone()
        };
        is_due || heard != *word || !self.samples.is_empty()
    }
}

/// What holds by an order, and the servers whose home is this node; `None` if it makes no sense.
fn order_of(order: &MapOrder) -> Option<(EpochOrder, BTreeSet<ProcessId>)> {
    let set = |text: &str| Some(servers_of(text)?.iter().map(ProcessId::from).collect());
    let of = EpochOrder {
        prepare: order.prepare,
        fence: order.fence,
        map: ServerMap {
            epoch: order.epoch,
            servers: set(&order.servers)?,
        },
    };
    Some((of, set(&order.homes)?))
}

/// The side of the node's controller.
impl ServerMaps {
    /// What the leader has not acknowledged, as far as one report has room. If `repeats`, also what
    /// it has: it answers each word by what it orders, of which an earlier one may have been lost.
    pub(crate) fn relay_batch(&self, repeats: bool, now_ns: i64) -> MapBatch {
        let mut maps = self.maps();
        let mut batch = MapBatch::default();
        for (key, map) in &mut maps.maps {
            if batch.maps.len() >= MAPS_OF_REPORT_MAX {
                break;
            }
            let word = map.word(key);
            if map.is_news(&word.0, now_ns) {
                map.counted_ns = now_ns;
                batch.add(key, map, word);
            }
        }
        if repeats {
            maps.repeat(&mut batch);
        }
        batch
    }

    /// Takes in that the leader of a term has heard the batch of the report of this number.
    pub(crate) fn relay_heard(&self, (term, sequence): (u64, u64), batch: MapBatch) {
        let mut maps = self.maps();
        for (key, said) in batch.said {
            if let Some(map) = maps.maps.get_mut(&key) {
                map.said = Some((term, sequence, said));
            }
        }
        for word in batch.maps {
            maps.heard(word);
        }
    }

    /// Takes in orders of the leader of a term, which had heard the reports up to this number.
    pub(crate) fn relay_orders(&self, (term, heard): (u64, u64), orders: &[MapOrder]) {
        let mut maps = self.maps();
        for order in orders {
            let key: MapKey = (order.user, order.name.clone());
            let (Some((order, homes)), Some(map)) = (order_of(order), maps.maps.get_mut(&key))
            else {
                continue;
            };
            let said = map.said.as_ref();
            let said = said.filter(|(of, sequence, _)| *of == term && *sequence <= heard);
            let said = said.map(|(_, _, said)| (said, &homes));
            let tell = map.node.hear(term, &order, said);
            maps.tell(tell);
        }
        let is_awaited = !maps.outcomes.is_empty();
        drop(maps);
        if let (true, Some(bell)) = (is_awaited, self.bell.get()) {
            bell.ring();
        }
    }

    /// The leader is to hear of everything again.
    pub(crate) fn relay_anew(&self) {
        let mut maps = self.maps();
        let all = maps.maps.values_mut();
        all.for_each(|map| (map.heard, map.said) = (None, None));
    }
}

impl Maps {
    /// Adds what the leader has heard, as far as there is room: one map after the other.
    fn repeat(&mut self, batch: &mut MapBatch) {
        let after = (Bound::Excluded(&self.repeated), Bound::Unbounded);
        let keys = self
            .maps
            .range(after)
            .chain(self.maps.range(..=&self.repeated));
        let keys = keys.map(|(key, _)| key).filter(|key| !batch.has(key));
        let room = MAPS_OF_REPORT_MAX - batch.maps.len();
        let keys: Vec<MapKey> = keys.take(room).cloned().collect();
        for key in keys {
            if let Some(map) = self.maps.get_mut(&key) {
                let word = map.word(&key);
                batch.add(&key, map, word);
                self.repeated = key;
            }
        }
    }

    /// Takes in that the leader has heard a word.
    fn heard(&mut self, word: MapWord) {
        let key: MapKey = (word.user, word.name.clone());
        let Some(map) = self.maps.get_mut(&key) else {
            return;
        };
        // Who is gone is remembered for leaders to come, if a server of this node was there.
        if map.node.is_unused() && word.members == 0 && word.servers.is_empty() {
            self.maps.remove(&key);
            return;
        }
        map.heard = Some(MapWord {
            samples: Vec::new(),
            ..word
        });
    }
}
