//! What is relayed of maps between a node and the leader.

use barograph_stream::ingest::MapWords;

use super::{MapUse, ServerMaps, told_words};
use crate::controller_words::{MapKey, MapOrder, MapWord, process_text, servers_of};

/// Most maps, and samples of one map, in one report.
const MAPS_OF_REPORT_MAX: usize = 32;
const SAMPLES_OF_REPORT_MAX: usize = 256;
/// Time after which the leader is told how many operations have ended, if nothing else is new.
const COUNT_NS: i64 = 200_000_000;

/// What is relayed of maps in one report.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapBatch {
    pub maps: Vec<MapWord>,
}

/// What programs are told of an order; `None` if it makes no sense.
fn words_of(order: &MapOrder) -> Option<MapWords> {
    let servers = servers_of(&order.servers)?;
    Some(told_words(order.prepare, order.epoch, order.fence, servers))
}

/// The side of the node's controller.
impl ServerMaps {
    /// What the leader has not acknowledged, as far as one report has room.
    pub(crate) fn relay_batch(&self, now_ns: i64) -> MapBatch {
        let mut maps = self.maps();
        let mut batch = MapBatch::default();
        for (key, map) in &mut maps.maps {
            if batch.maps.len() >= MAPS_OF_REPORT_MAX {
                break;
            }
            let mut word = map.word(key);
            let is_heard = map.heard.as_ref().is_some_and(|heard| {
                let is_counted = heard.operations == word.operations;
                let is_due = now_ns.saturating_sub(map.counted_ns) >= COUNT_NS && !is_counted;
                let operations = word.operations;
                let heard = MapWord {
                    operations,
                    ..heard.clone()
                };
                heard == word && !is_due
            });
            if is_heard && map.samples.is_empty() {
                continue;
            }
            map.counted_ns = now_ns;
            let count = map.samples.len().min(SAMPLES_OF_REPORT_MAX);
            // A report that is lost loses its samples: the detector needs no certain one.
            let samples = map.samples.drain(..count);
            word.samples = samples
                .map(|(server, it)| (server, it.load, it.service_s, it.requests))
                .collect();
            batch.maps.push(word);
        }
        batch
    }

    /// Takes in that the leader has heard a batch. Servers of which it knows now may be told what
    /// its orders said.
    pub(crate) fn relay_heard(&self, batch: MapBatch) {
        let mut maps = self.maps();
        let maps = &mut *maps;
        for word in batch.maps {
            let key: MapKey = (word.user, word.name.clone());
            let Some(map) = maps.maps.get_mut(&key) else {
                continue;
            };
            for (id, used) in &mut map.uses {
                let MapUse::Server {
                    number, is_known, ..
                } = &mut used.of
                else {
                    continue;
                };
                let process = process_text(id.0);
                let mut told = word.servers.iter();
                *is_known |= told.any(|it| it.number == *number && it.process == process);
            }
            map.tell_all(&mut maps.outcomes);
            let is_over = map.uses.is_empty() && word.members == 0 && word.servers.is_empty();
            map.heard = Some(MapWord {
                samples: Vec::new(),
                ..word
            });
            // Who is gone is remembered for leaders to come, if a server of this node was there.
            if is_over && map.gone.is_empty() {
                maps.maps.remove(&key);
            }
        }
        self.ring_if(!maps.outcomes.is_empty());
    }

    /// A new leader is to hear of everything, and knows of no server.
    pub(crate) fn relay_anew(&self) {
        let mut maps = self.maps();
        for map in maps.maps.values_mut() {
            map.heard = None;
            for used in map.uses.values_mut() {
                if let MapUse::Server { is_known, .. } = &mut used.of {
                    *is_known = false;
                }
            }
        }
    }

    /// Takes in orders of the leader.
    pub(crate) fn relay_orders(&self, orders: &[MapOrder]) {
        let mut maps = self.maps();
        let maps = &mut *maps;
        for order in orders {
            let key: MapKey = (order.user, order.name.clone());
            let (Some(words), Some(map)) = (words_of(order), maps.maps.get_mut(&key)) else {
                continue;
            };
            if map.order(words) {
                map.tell_all(&mut maps.outcomes);
            }
        }
        self.ring_if(!maps.outcomes.is_empty());
    }

    fn ring_if(&self, is_awaited: bool) {
        if let (true, Some(bell)) = (is_awaited, self.bell.get()) {
            bell.ring();
        }
    }
}
