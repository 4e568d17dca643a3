//! Maps as they are saved in the store of the nodes that may lead.
//!
//! The store keeps a record for each key for ever: what an older replica has of a key that is not
//! there any more would come back. So maps are not keys. The store has a fixed number of registers,
//! each with a map or none, and one whose map was removed is used again for another.
//!
//! A map that is removed leaves the number of its last epoch, and all maps that begin after it have
//! greater ones. So what is still told of a map that was removed, or runs by it somewhere, is never
//! taken for a new map of the same name.

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{EpochChange, EpochRecord, NodeId, ProcessId, RECORDS_MAX, ServerMap};
use barograph_model::fnv1a;
use barograph_stream::ingest::ServerSet;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};

use crate::controller_words::{MapKey, SERVERS_MAX, servers_of, servers_text};

/// What the key of a register begins with.
const KEY: &str = "map/";
/// The greatest number of a node.
const HOME_MAX: NodeId = (1 << 24) - 1;

/// A register as it is saved.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedRegister {
    /// No map that was removed had a later epoch, as far as was known when this was saved.
    floor: u64,
    map: Option<SavedMap>,
}

/// A map as it is saved.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedMap {
    user: u32,
    name: String,
    application: String,
    term: u64,
    epoch: u64,
    servers: String,
    last_epoch: u64,
    change: Option<SavedChange>,
    /// Servers that are out since they were slow.
    out: String,
    /// The homes of servers from 0 on, as base64: three bytes each, which are 0 for one without.
    homes: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedChange {
    epoch: u64,
    servers: String,
    is_committed: bool,
}

/// A map that was saved.
#[derive(Debug)]
pub(super) struct RegisteredMap {
    pub register: usize,
    pub key: MapKey,
    pub application: String,
    pub record: EpochRecord,
    /// Servers that are out since they were slow.
    pub out: Vec<u32>,
}

/// The registers of the store.
#[derive(Debug, Default)]
pub(super) struct MapRegisters {
    used: BTreeSet<usize>,
    floor: u64,
}

impl MapRegisters {
    /// The registers of these records with their maps, and the number of those that make no sense.
    pub(super) fn read(records: &BTreeMap<String, String>) -> (Self, Vec<RegisteredMap>, u64) {
        let (mut registers, mut maps, mut refused) = (Self::default(), Vec::new(), 0);
        for (key, text) in records {
            let Some((floor, map)) = read(key, text) else {
                refused += 1;
                continue;
            };
            registers.floor = registers.floor.max(floor);
            if let Some(map) = map {
                registers.used.insert(map.register);
                maps.push(map);
            }
        }
        (registers, maps, refused)
    }

    /// Takes a register for a new map, and says its first epoch. There is none if all registers
    /// have a map.
    pub(super) fn take(&mut self) -> Option<(usize, u64)> {
        let free = (0..RECORDS_MAX).find(|at| !self.used.contains(at))?;
        self.used.insert(free);
        Some((free, self.floor + 1))
    }

    /// Gives back the register of a map that is removed; what is saved of it from now on.
    pub(super) fn give_back(&mut self, register: usize, last_epoch: u64) -> String {
        self.used.remove(&register);
        self.floor = self.floor.max(last_epoch);
        self.text(None)
    }

    /// What is saved of a map.
    pub(super) fn saved(
        &self,
        key: &MapKey,
        application: &str,
        record: &EpochRecord,
        out: impl Iterator<Item = u32>,
    ) -> String {
        self.text(Some(SavedMap {
            user: key.0,
            name: key.1.clone(),
            application: application.to_owned(),
            term: record.term,
            epoch: record.map.epoch,
            servers: text_of(&record.map.servers),
            last_epoch: record.last_epoch,
            change: record.change.as_ref().map(|change| SavedChange {
                epoch: change.map.epoch,
                servers: text_of(&change.map.servers),
                is_committed: change.is_committed,
            }),
            out: servers_text(&out.collect::<ServerSet>()),
            homes: homes_text(&record.homes),
        }))
    }

    fn text(&self, map: Option<SavedMap>) -> String {
        let floor = self.floor;
        serde_json::to_string(&SavedRegister { floor, map }).unwrap_or_default()
    }
}

/// The key of a register in the store.
pub(super) fn key_of(register: usize) -> String {
    format!("{KEY}{register}")
}

fn read(key: &str, text: &str) -> Option<(u64, Option<RegisteredMap>)> {
    let register: usize = key.strip_prefix(KEY)?.parse().ok()?;
    let saved: SavedRegister = serde_json::from_str(text).ok()?;
    let Some(map) = saved.map else {
        return Some((saved.floor, None));
    };
    let of = |epoch, servers: &str| {
        let servers = servers_of(servers)?.iter().map(ProcessId::from).collect();
        Some(ServerMap { epoch, servers })
    };
    let change = match &map.change {
        None => None,
        Some(change) => Some(EpochChange {
            map: of(change.epoch, &change.servers)?,
            is_committed: change.is_committed,
        }),
    };
    let record = EpochRecord {
        term: map.term,
        map: of(map.epoch, &map.servers)?,
        last_epoch: map.last_epoch,
        change,
        homes: homes_of(&map.homes)?,
    };
    let map = RegisteredMap {
        register: (register < RECORDS_MAX).then_some(register)?,
        key: (map.user, map.name),
        application: map.application,
        record,
        out: servers_of(&map.out)?.iter().collect(),
    };
    Some((saved.floor, Some(map)))
}

/// The number by which a map knows a node. It is the same to all leaders. With 24 bits, a server
/// that moves is taken for one that stays with a probability of 6e-8; more would not fit into a
/// record for as many servers as a map may have.
pub(super) fn home_of(node: &str) -> NodeId {
    let hash = fnv1a(node.as_bytes());
    let folded = (hash ^ hash >> 24 ^ hash >> 48) & HOME_MAX;
    // 0 means none.
    folded.max(1)
}

fn homes_text(homes: &BTreeMap<ProcessId, NodeId>) -> String {
    let Some(last) = homes
        .keys()
        .copied()
        .filter(|it| *it < u64::from(SERVERS_MAX))
        .max()
    else {
        return String::new();
    };
    let homes = (0..=last).map(|server| homes.get(&server).copied().unwrap_or(0));
    let bytes = homes.flat_map(|home| {
        let [first, second, third, ..] = home.to_le_bytes();
        [first, second, third]
    });
    BASE64.encode(bytes.collect::<Vec<u8>>())
}

fn homes_of(text: &str) -> Option<BTreeMap<ProcessId, NodeId>> {
    let bytes = BASE64.decode(text).ok()?;
    let (homes, rest) = bytes.as_chunks::<3>();
    if !rest.is_empty() || homes.len() > SERVERS_MAX as usize {
        return None;
    }
    let homes = homes.iter().map(|[first, second, third]| {
        NodeId::from(u32::from_le_bytes([*first, *second, *third, 0]))
    });
    let homes = (0..).zip(homes).filter(|(_, home)| *home != 0);
    Some(homes.collect())
}

fn text_of(servers: &BTreeSet<ProcessId>) -> String {
    let servers = servers.iter().filter_map(|it| u32::try_from(*it).ok());
    servers_text(&servers.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use barograph_control::RECORD_BYTES_MAX;
    use barograph_fabric::WORD_BYTES_MAX;

    #[test]
    fn registers_are_used_again_and_epochs_are_not() {
        let mut registers = MapRegisters::default();
        let record = |epoch| EpochRecord {
            term: 3,
            map: ServerMap {
                epoch,
                servers: [0, 70].into(),
            },
            last_epoch: epoch + 1,
            change: None,
            homes: [(0, home_of("a")), (70, home_of("b"))].into(),
        };
        let key = (7, "a map/of\"one".to_owned());
        assert_eq!(registers.take(), Some((0, 1)));
        assert_eq!(registers.take(), Some((1, 1)));
        let text = registers.saved(&key, "solver", &record(8), [70].into_iter());
        let of_other = registers.give_back(1, 5);
        let records: BTreeMap<String, String> = [
            (key_of(0), text),
            (key_of(1), of_other),
            ("map/x".to_owned(), "{}".to_owned()),
            ("other".to_owned(), "{}".to_owned()),
        ]
        .into();
        let (mut read, maps, refused) = MapRegisters::read(&records);
        assert_eq!(refused, 2);
        let [map] = &maps[..] else { panic!("{maps:?}") };
        assert_eq!((map.register, &map.key, &map.record), (0, &key, &record(8)));
        assert_eq!((&*map.application, &map.out[..]), ("solver", &[70][..]));
        assert_eq!(
            read.take(),
            Some((1, 6)),
            "after the epochs of what was there"
        );
        let all: Vec<_> = std::iter::from_fn(|| read.take()).collect();
        assert_eq!(all.len(), RECORDS_MAX - 2);
        assert!(read.give_back(9, 2).contains("\"floor\":5"));
        assert_eq!(read.take(), Some((9, 6)));
    }

    /// A record of the longest name and the largest set fits into the store.
    #[test]
    fn the_longest_record_fits() {
        let all: BTreeSet<ProcessId> = (0..1_024).collect();
        let map = |epoch| ServerMap {
            epoch,
            servers: all.clone(),
        };
        let record = EpochRecord {
            term: u64::MAX,
            map: map(u64::MAX),
            last_epoch: u64::MAX,
            change: Some(EpochChange {
                map: map(u64::MAX),
                is_committed: false,
            }),
            homes: all.iter().map(|server| (*server, HOME_MAX)).collect(),
        };
        let key = (
            u32::MAX,
            "\u{1}".repeat(crate::controller_words::MAP_NAME_BYTES_MAX),
        );
        let registers = MapRegisters {
            floor: u64::MAX,
            ..MapRegisters::default()
        };
        let text = registers.saved(&key, &"\u{1}".repeat(64), &record, 0..1_024);
        assert!(
            text.len() <= RECORD_BYTES_MAX,
            "{} bytes of a record",
            text.len()
        );
        // As many of them are one word of a replica, which has them as texts in JSON.
        let in_word = serde_json::to_string(&text).unwrap().len() + key_of(RECORDS_MAX).len() + 128;
        let in_word = in_word * RECORDS_MAX;
        assert!(in_word <= WORD_BYTES_MAX, "{in_word} bytes of a word");
    }
}
