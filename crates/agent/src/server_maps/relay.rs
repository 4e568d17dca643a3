//! What is relayed of maps between a node and the leader.

use barograph_stream::ingest::{MapWords, ServerSet};
use serde::{Deserialize, Serialize};

use super::{MapKey, MapUse, ServerMaps, told_words};

/// Most maps, and samples of one map, in one report.
const MAPS_OF_REPORT_MAX: usize = 32;
const SAMPLES_OF_REPORT_MAX: usize = 256;
/// Servers that a map may have, and half-bytes of their set.
const SERVERS_MAX: u32 = 1_024;
const DIGITS: usize = SERVERS_MAX as usize / 4;

/// What a node says of a map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MapWord {
    /// The user, and the name of the map.
    pub user: u32,
    pub name: String,
    /// The application of the first process that used it.
    pub application: String,
    /// Processes that are members, and their operations that run.
    pub members: u64,
    pub running: u64,
    /// The epoch that the node has been told.
    pub epoch: u64,
    /// The epoch for which all of its members suspend operations; 0 for none.
    pub prepared: u64,
    /// Whether none of an epoch before that one runs.
    pub is_drained: bool,
    /// The greatest fence with which a server has refused a member.
    pub refused: u64,
    /// The servers that the programs of the members have declared.
    pub declared: String,
    /// The servers of this node.
    pub servers: Vec<ServerWord>,
    /// Servers whose processes have certainly ended, with these.
    pub gone: Vec<(u32, String)>,
    /// Requests that were measured: the server, bytes times one more than the requests before it,
    /// and seconds.
    pub samples: Vec<(u32, u64, f64)>,
}

/// A server of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ServerWord {
    pub number: u32,
    pub process: String,
    /// It serves nothing of epochs before this one any more; 0 if it has not said that.
    pub fence: u64,
}

/// What the leader says of a map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MapOrder {
    pub user: u32,
    pub name: String,
    /// The epoch that is being prepared; 0 for none.
    pub prepare: u64,
    /// The epoch in force.
    pub epoch: u64,
    /// The first epoch that is served.
    pub fence: u64,
    /// The servers of the epoch in force.
    pub servers: String,
}

/// What is relayed of maps in one report.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapBatch {
    pub maps: Vec<MapWord>,
}

/// A set of servers as text: hexadecimal digits, of which the first has the servers 0 to 3.
pub(crate) fn servers_text(servers: &ServerSet) -> String {
    let mut digits = vec![0_u32; DIGITS];
    for server in servers.iter() {
        digits[server as usize / 4] |= 1 << (server % 4);
    }
    let text = digits
        .iter()
        .filter_map(|digit| char::from_digit(*digit, 16));
    let text: String = text.collect();
    text.trim_end_matches('0').to_owned()
}

/// The set of a text; `None` if it is none.
pub(crate) fn servers_of(text: &str) -> Option<ServerSet> {
    let mut servers = ServerSet::EMPTY;
    if text.len() > DIGITS {
        return None;
    }
    for (at, digit) in (0_u32..).zip(text.chars()) {
        let digit = digit.to_digit(16)?;
        let bits = (0..4).filter(|bit| digit >> bit & 1 == 1);
        bits.for_each(|bit| {
            servers.insert(at * 4 + bit);
        });
    }
    Some(servers)
}

impl MapOrder {
    /// What programs are told of it; `None` if it makes no sense.
    fn words(&self) -> Option<MapWords> {
        let servers = servers_of(&self.servers)?;
        Some(told_words(self.prepare, self.epoch, self.fence, servers))
    }
}

/// The side of the node's controller.
impl ServerMaps {
    /// What the leader has not acknowledged, as far as one report has room.
    pub(crate) fn relay_batch(&self) -> MapBatch {
        let mut maps = self.maps();
        let mut batch = MapBatch::default();
        for (key, map) in &mut maps.maps {
            if batch.maps.len() >= MAPS_OF_REPORT_MAX {
                break;
            }
            let mut word = map.word(key);
            if map.heard.as_ref() == Some(&word) && map.samples.is_empty() {
                continue;
            }
            let count = map.samples.len().min(SAMPLES_OF_REPORT_MAX);
            // A report that is lost loses its samples: the detector needs no certain one.
            let samples = map.samples.drain(..count);
            word.samples = samples
                .map(|(server, sample)| (server, sample.load, sample.service_s))
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
                let process = crate::agreement::process_text(id.0);
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
            let (Some(words), Some(map)) = (order.words(), maps.maps.get_mut(&key)) else {
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
