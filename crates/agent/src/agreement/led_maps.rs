//! The maps of servers that a leader keeps: a controller of epochs for each, whose members are
//! nodes, and a detector of servers that are slower than their peers.

mod led_map;
mod load;
mod out;
mod saved;
mod scale;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barograph_control::{
    ChangeRefusal, ControllerOutput, ControllerWord, EpochController, EpochRecord, EpochTimes,
    ProcessId, RECORDS_MAX, ServerMap,
};
use barograph_model::{NS_PER_MS, NS_PER_S, cut};

use led_map::LedMap;
use out::ScaleDecision;
use saved::{MapRegisters, RegisteredMap, home_of, key_of};

use crate::controller_words::{
    LedMapRow, MAP_NAME_BYTES_MAX, MapChange, MapKey, MapOrder, MapWord, servers_of, servers_text,
};
use crate::server_maps::{MapControl, ToldMaps};

/// Longest time in which members end their operations; less than the patience of programs.
const TIMES: EpochTimes = EpochTimes {
    drain_ns: 5 * NS_PER_S,
    repeat_ns: 500 * NS_PER_MS,
};
/// Most maps that a leader keeps, and of one user.
const MAPS_MAX: usize = RECORDS_MAX;
const MAPS_OF_USER_MAX: usize = 32;
/// Most bytes of the name of an application that is saved with a map.
const APPLICATION_BYTES_MAX: usize = 32;
/// Time without a program that uses a map after which it makes room for another one.
const UNUSED_NS: i64 = 600 * NS_PER_S;
/// Time between two times at which the controller is told of the maps.
const TOLD_NS: i64 = 500 * NS_PER_MS;

/// What a leader has to do for its maps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MapOutput {
    /// Save a text under a key. The map, if it is there still, waits for that.
    Save(Option<MapKey>, String, String),
    /// These nodes are to be told of a map.
    Tell(MapKey, Vec<String>),
}

/// The maps of a leader.
pub(crate) struct LedMaps {
    term: u64,
    control: Arc<MapControl>,
    registers: MapRegisters,
    maps: BTreeMap<MapKey, LedMap>,
    outputs: Vec<MapOutput>,
    /// The time at which the controller was told last.
    told_ns: i64,
    /// Records that make no sense, and maps for which there was no room.
    pub refused: u64,
}

/// Who begins a change.
enum ChangeBy<'a> {
    /// A person or a program, from a node.
    Asked(&'a str),
    /// The leader, by a decision.
    Leader(ScaleDecision),
}

impl LedMaps {
    /// The maps of the records that leaders before this one have saved.
    pub(crate) fn take_over(
        term: u64,
        control: &Arc<MapControl>,
        records: &BTreeMap<String, String>,
        now_ns: i64,
    ) -> Self {
        let (registers, saved, refused) = MapRegisters::read(records);
        let mut maps = Self {
            term,
            control: Arc::clone(control),
            registers,
            maps: BTreeMap::new(),
            outputs: Vec::new(),
            told_ns: i64::MIN,
            refused,
        };
        for map in saved {
            maps.begin(map, now_ns);
        }
        maps
    }

    /// What is to be done since the last call.
    pub(crate) fn take_outputs(&mut self) -> Vec<MapOutput> {
        std::mem::take(&mut self.outputs)
    }

    fn begin(&mut self, map: RegisteredMap, now_ns: i64) {
        let key = map.key.clone();
        let record = map.record.clone();
        let (controller, outputs) = EpochController::take_over(self.term, record, [], TIMES);
        let map = LedMap::new(map, controller, now_ns);
        self.maps.insert(key.clone(), map);
        self.apply(&key, outputs, now_ns);
    }

    /// Takes in what a node says of a map.
    pub(crate) fn hear(&mut self, node: &str, word: &MapWord, now_ns: i64) {
        let key: MapKey = (word.user, word.name.clone());
        if !self.maps.contains_key(&key) && !self.begin_new(&key, word, now_ns) {
            return;
        }
        let Some(map) = self.maps.get_mut(&key) else {
            return;
        };
        let outputs = map.hear(node, word, now_ns);
        self.apply(&key, outputs, now_ns);
    }

    /// Begins a map that was not there; returns false if there is none, or no room.
    fn begin_new(&mut self, key: &MapKey, word: &MapWord, now_ns: i64) -> bool {
        let first = servers_of(&word.declared).filter(|servers| !servers.is_empty());
        // A node whose programs have ended tells of maps that were removed.
        let Some(first) = first.filter(|_| word.members > 0) else {
            return false;
        };
        let taken = match word.name.len() <= MAP_NAME_BYTES_MAX && self.has_room(key.0, now_ns) {
            true => self.registers.take(),
            false => None,
        };
        let Some((register, epoch)) = taken else {
            self.refused += 1;
            return false;
        };
        let record = EpochRecord {
            term: self.term,
            map: ServerMap {
                epoch,
                servers: first.iter().map(ProcessId::from).collect(),
            },
            last_epoch: epoch,
            change: None,
            homes: BTreeMap::new(),
        };
        let map = RegisteredMap {
            register,
            key: key.clone(),
            application: cut(word.application.clone(), APPLICATION_BYTES_MAX),
            record,
            out: Vec::new(),
        };
        self.begin(map, now_ns);
        true
    }

    /// Whether there is room for another map of a user, if need be in place of the one that nobody
    /// has used for the longest time.
    fn has_room(&mut self, user: u32, now_ns: i64) -> bool {
        let of_user = self.maps.keys().filter(|(of, _)| *of == user).count();
        let (is_full, user_is_full) = (self.maps.len() >= MAPS_MAX, of_user >= MAPS_OF_USER_MAX);
        if !is_full && !user_is_full {
            return true;
        }
        let unused = self.maps.iter();
        let unused = unused.filter(|((of, _), _)| !user_is_full || *of == user);
        let unused = unused.filter_map(|(key, map)| Some((map.unused_ns?, key)));
        let longest = unused.min().map(|(since_ns, key)| (since_ns, key.clone()));
        let longest = longest.filter(|(since_ns, _)| now_ns.saturating_sub(*since_ns) >= UNUSED_NS);
        longest.is_some_and(|(_, key)| self.remove(&key))
    }

    /// Removes a map that no node uses; returns whether it was there.
    fn remove(&mut self, key: &MapKey) -> bool {
        let Some(map) = self.maps.remove(key) else {
            return false;
        };
        let last_epoch = map.controller.record().last_epoch;
        let last_epoch = last_epoch.max(map.controller.record().map.epoch);
        let text = self.registers.give_back(map.register, last_epoch);
        let saved_key = key_of(map.register);
        self.outputs.push(MapOutput::Save(None, saved_key, text));
        true
    }

    /// Takes in that a node is not heard any more: it is no member. Whether its servers have
    /// ended is not known.
    pub(crate) fn forget_node(&mut self, node: &str, now_ns: i64) {
        let keys: Vec<MapKey> = self.maps.keys().cloned().collect();
        for key in keys {
            let Some(map) = self.maps.get_mut(&key) else {
                continue;
            };
            let outputs = map.forget_node(node, now_ns);
            self.apply(&key, outputs, now_ns);
        }
    }

    /// Takes in what came of a save.
    pub(crate) fn saved(&mut self, sequence: u64, is_saved: bool, now_ns: i64) {
        let found = self.maps.iter_mut();
        let found = found
            .filter(|(_, map)| map.saving == Some(sequence))
            .map(|(key, map)| {
                map.saving = None;
                (key.clone(), map.controller.saved(is_saved, now_ns))
            });
        let found: Vec<_> = found.collect();
        for (key, outputs) in found {
            self.apply(&key, outputs, now_ns);
        }
    }

    /// Notes the number of a save.
    pub(crate) fn saving(&mut self, key: &MapKey, sequence: Option<u64>) {
        if let Some(map) = self.maps.get_mut(key) {
            map.saving = sequence;
        }
    }

    /// Changes a map as somebody on a node asks; returns the epoch that was begun.
    ///
    /// # Errors
    ///
    /// Nothing is done, for the reason given.
    pub(crate) fn change(
        &mut self,
        key: &MapKey,
        change: &MapChange,
        from: &str,
        now_ns: i64,
    ) -> Result<u64, String> {
        let map = self.maps.get(key);
        let map = map.ok_or("no program of this user uses a map of this name")?;
        if change.forget {
            if map.unused_ns.is_none() {
                return Err("programs use the map: it is removed when they have ended".into());
            }
            let epoch = map.controller.record().map.epoch;
            self.remove(key);
            return Ok(epoch);
        }
        for server in &change.gone {
            let Some(map) = self.maps.get_mut(key) else {
                break;
            };
            let outputs = map.server_gone(*server, None);
            self.apply(key, outputs, now_ns);
        }
        self.begin_change(key, change, ChangeBy::Asked(from), now_ns)
    }

    /// Begins a change, which is told of as a sentence if it is refused.
    fn begin_change(
        &mut self,
        key: &MapKey,
        change: &MapChange,
        by: ChangeBy<'_>,
        now_ns: i64,
    ) -> Result<u64, String> {
        let map = self.maps.get_mut(key);
        let map = map.ok_or("there is no such map any more")?;
        if change.add.is_empty() && change.remove.is_empty() {
            return Ok(map.controller.record().map.epoch);
        }
        let servers = map.servers_after(change);
        map.check_change(change)?;
        let begun = map.controller.change(servers);
        let outputs = begun.map_err(|refusal| {
            String::from(match refusal {
                ChangeRefusal::Busy => {
                    "a change of the map is under way: try again when it is over"
                }
                ChangeRefusal::NoServers => "the map would have no server",
                ChangeRefusal::Unchanged => "these are its servers already",
                ChangeRefusal::Deposed => "another node leads now: try again",
            })
        })?;
        map.begun_ns = now_ns;
        map.deciding = Some(match by {
            ChangeBy::Leader(decision) => decision,
            ChangeBy::Asked(from) => map.asked_change(change, from, &self.control),
        });
        let epoch = map.controller.record().last_epoch;
        self.apply(key, outputs, now_ns);
        Ok(epoch)
    }

    /// Does what is due; returns the time of the next call.
    pub(crate) fn step(&mut self, now_ns: i64) -> i64 {
        let asked = self.control.take_asked();
        let keys: Vec<MapKey> = self.maps.keys().cloned().collect();
        let mut next_ns = i64::MAX;
        for key in keys {
            let Some(map) = self.maps.get_mut(&key) else {
                continue;
            };
            let outputs = map.controller.tick(now_ns);
            self.apply(&key, outputs, now_ns);
            next_ns = next_ns.min(self.scale(&key, &asked, now_ns));
            let map = self.maps.get(&key);
            let due_ns = map.and_then(|map| map.controller.next_ns());
            next_ns = next_ns.min(due_ns.unwrap_or(i64::MAX));
        }
        self.tell(now_ns);
        next_ns
    }

    /// Tells the controller what holds, if that is due.
    fn tell(&mut self, now_ns: i64) {
        if now_ns.saturating_sub(self.told_ns) < TOLD_NS {
            return;
        }
        self.told_ns = now_ns;
        let told = ToldMaps {
            leads: true,
            maps: self.rows(None, now_ns),
            ..ToldMaps::default()
        };
        let told = self.maps.iter().fold(told, |mut told, (key, map)| {
            told.sentences.push((key.0, map.sentence(&key.1, now_ns)));
            told.in_effect.extend(map.in_effect());
            told.held_off.extend(map.hold_off(now_ns, &self.control));
            told
        });
        self.control.tell(told);
    }

    /// What a node is told of a map; `None` before the record of this term is saved.
    pub(crate) fn order(&self, key: &MapKey, node: &str) -> Option<MapOrder> {
        let map = self.maps.get(key).filter(|map| map.order.epoch > 0)?;
        let servers = map.controller.servers_of(home_of(node)).iter();
        let servers = servers.filter_map(|it| u32::try_from(*it).ok()).collect();
        Some(MapOrder {
            homes: servers_text(&servers),
            ..map.order.clone()
        })
    }

    /// The maps, for those who look at them.
    pub(crate) fn rows(&self, user: Option<u32>, now_ns: i64) -> Vec<LedMapRow> {
        let of = self.maps.iter();
        let of = of.filter(|((of, _), _)| user.is_none_or(|user| user == *of));
        let rows = of.map(|((user, name), map)| map.row((*user, name), now_ns));
        rows.collect()
    }

    fn apply(&mut self, key: &MapKey, outputs: Vec<ControllerOutput>, now_ns: i64) {
        let Some(map) = self.maps.get_mut(key) else {
            return;
        };
        let before = map.order.clone();
        let (mut members, mut servers) = (BTreeSet::new(), BTreeSet::new());
        for output in outputs {
            match output {
                ControllerOutput::Save(record) => {
                    let out = map.out.keys().copied();
                    let text = self.registers.saved(key, &map.application, &record, out);
                    let saved_key = key_of(map.register);
                    let save = MapOutput::Save(Some(key.clone()), saved_key, text);
                    self.outputs.push(save);
                }
                ControllerOutput::ToMember(member, message) => {
                    map.tell(&message.what);
                    members.insert(member);
                }
                ControllerOutput::ToServer(server, message) => {
                    map.tell(&message.what);
                    servers.insert(server);
                }
                ControllerOutput::Ended(end) => map.end(&end, &self.control, now_ns),
            }
        }
        if map.controller.is_saved() && before.epoch == 0 {
            // Without members nobody was told of what holds. A leader that takes a committed change
            // over tells what the one before it did: without the map, nodes would not hear of the
            // fence either.
            let record = map.controller.record().clone();
            map.tell(&ControllerWord::Switch { map: record.map });
            if let Some(change) = record.change {
                let epoch = change.map.epoch;
                map.tell(&ControllerWord::Prepare { epoch });
            }
        }
        // What is said again has changed nothing, and the words before may have been lost.
        let nodes: Vec<String> = match map.order == before {
            true => map.nodes_of(&members, &servers),
            false => map.nodes.keys().cloned().collect(),
        };
        if !nodes.is_empty() {
            self.outputs.push(MapOutput::Tell(key.clone(), nodes));
        }
    }
}

impl Drop for LedMaps {
    fn drop(&mut self) {
        // Another node leads from now on, or none.
        self.control.tell(ToldMaps::default());
    }
}
