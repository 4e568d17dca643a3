//! The maps of servers that a leader keeps: a controller of epochs for each, whose members are
//! nodes, and a detector of servers that are slower than their peers.

mod saved;
mod scale;

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{
    ChangeEnd, ChangeRefusal, ControllerOutput, ControllerWord, EpochController, EpochRecord,
    EpochTimes, ProcessId, ProcessWord, ServerMap, ServerSample, SlowConfig, SlowServer,
    SlowServers,
};
use barograph_model::{NS_PER_MS, NS_PER_S};

use saved::{key_of, key_text, record_of, text_of};
use scale::{SEEN_NS, TakenOut};

use crate::controller_words::{
    LedMapRow, MAP_NAME_BYTES_MAX, MapChange, MapEnd, MapKey, MapOrder, MapWord, SERVERS_MAX,
    process_of, servers_of, servers_text,
};

/// Longest time in which members end their operations; less than the patience of programs.
const TIMES: EpochTimes = EpochTimes {
    drain_ns: 5 * NS_PER_S,
    repeat_ns: 500 * NS_PER_MS,
};
/// Most maps that a leader keeps, and of one user.
const MAPS_MAX: usize = 256;
const MAPS_OF_USER_MAX: usize = 32;
/// Most ends of changes that are remembered for each map.
const ENDS_MAX: usize = 16;

/// A map that the leader keeps.
struct LedMap {
    /// The changes that are over, with the monotonic times of their ends in place of their ages.
    ends: Vec<MapEnd>,
    controller: EpochController,
    /// What nodes are told; its epoch is 0 until the record of this term is saved.
    order: MapOrder,
    /// The number of the save that is under way.
    saving: Option<u64>,
    /// The nodes that use the map, with the numbers by which the controller knows them.
    nodes: BTreeMap<String, LedUse>,
    next_node: ProcessId,
    /// The process and the node of each server, and those that have certainly ended.
    servers: BTreeMap<u32, (u128, String)>,
    gone: BTreeSet<u32>,
    slow: SlowServers,
    /// The server that was slower than its peers, and when that was seen.
    slowest: Option<(SlowServer, i64)>,
    /// Servers that were taken out since they were slow.
    out: BTreeMap<u32, TakenOut>,
    begun_ns: i64,
    /// Why the change under way was begun, if the leader began it by itself.
    why: Option<String>,
    application: String,
}

#[derive(Default)]
struct LedUse {
    number: ProcessId,
    members: u64,
    running: u64,
}

/// What a leader has to do for its maps.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MapOutput {
    /// Save a record under a key.
    Save(MapKey, String, String),
    /// These nodes are to be told of a map.
    Tell(MapKey, Vec<String>),
}

/// The maps of a leader.
pub(crate) struct LedMaps {
    term: u64,
    /// Whether slow servers are taken out, and added again.
    scales_down: bool,
    maps: BTreeMap<MapKey, LedMap>,
    outputs: Vec<MapOutput>,
    /// Records that make no sense, and maps for which there was no room.
    pub refused: u64,
}

impl LedMaps {
    /// The maps of the records that leaders before this one have saved.
    pub(crate) fn take_over(
        (term, scales_down): (u64, bool),
        records: &BTreeMap<String, String>,
    ) -> Self {
        let mut maps = Self {
            term,
            scales_down,
            maps: BTreeMap::new(),
            outputs: Vec::new(),
            refused: 0,
        };
        for (key, text) in records {
            let Some((key, record)) = key_of(key).zip(record_of(text)) else {
                maps.refused += 1;
                continue;
            };
            maps.begin(key, record, "");
        }
        maps
    }

    /// What is to be done since the last call.
    pub(crate) fn take_outputs(&mut self) -> Vec<MapOutput> {
        std::mem::take(&mut self.outputs)
    }

    fn begin(&mut self, key: MapKey, record: EpochRecord, application: &str) {
        let (controller, outputs) = EpochController::take_over(self.term, record, [], TIMES);
        let map = LedMap {
            controller,
            order: MapOrder {
                user: key.0,
                name: key.1.clone(),
                ..MapOrder::default()
            },
            saving: None,
            nodes: BTreeMap::new(),
            next_node: 0,
            servers: BTreeMap::new(),
            gone: BTreeSet::new(),
            slow: SlowServers::new(SlowConfig::default()),
            slowest: None,
            out: BTreeMap::new(),
            begun_ns: 0,
            why: None,
            ends: Vec::new(),
            application: application.to_owned(),
        };
        self.maps.insert(key.clone(), map);
        self.apply(&key, outputs, 0);
    }

    /// Takes in what a node says of a map.
    pub(crate) fn hear(&mut self, node: &str, word: &MapWord, now_ns: i64) {
        let key: MapKey = (word.user, word.name.clone());
        if !self.maps.contains_key(&key) {
            let of_user = self.maps.keys().filter(|(user, _)| *user == word.user);
            let is_full = self.maps.len() >= MAPS_MAX || of_user.count() >= MAPS_OF_USER_MAX;
            let first = servers_of(&word.declared).filter(|servers| !servers.is_empty());
            let is_long = word.name.len() > MAP_NAME_BYTES_MAX;
            let Some(first) = first.filter(|_| !is_full && !is_long) else {
                self.refused += u64::from(is_full || is_long);
                return;
            };
            let record = EpochRecord {
                term: self.term,
                map: ServerMap {
                    epoch: 1,
                    servers: first.iter().map(ProcessId::from).collect(),
                },
                last_epoch: 1,
                change: None,
            };
            self.begin(key.clone(), record, &word.application);
        }
        let Some(map) = self.maps.get_mut(&key) else {
            return;
        };
        let outputs = map.hear(node, word, now_ns);
        self.apply(&key, outputs, now_ns);
    }

    /// Takes in that a node is not heard any more: it is no member. Whether its servers have
    /// ended is not known.
    pub(crate) fn forget_node(&mut self, node: &str, now_ns: i64) {
        let keys: Vec<MapKey> = self.maps.keys().cloned().collect();
        for key in keys {
            let Some(map) = self.maps.get_mut(&key) else {
                continue;
            };
            let Some(gone) = map.nodes.remove(node) else {
                continue;
            };
            let outputs = map.controller.member_gone(gone.number);
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

    /// Begins a change, which is told of as a sentence.
    pub(crate) fn change(
        &mut self,
        key: &MapKey,
        change: &MapChange,
        now_ns: i64,
    ) -> Result<u64, String> {
        if !self.maps.contains_key(key) {
            return Err("no program of this user uses a map of this name".into());
        }
        for server in &change.gone {
            let Some(map) = self.maps.get_mut(key) else {
                break;
            };
            let outputs = map.server_gone(*server);
            self.apply(key, outputs, now_ns);
        }
        let Some(map) = self.maps.get_mut(key) else {
            return Err("there is no such map any more".into());
        };
        let mut servers = map.controller.record().map.servers.clone();
        servers.extend(change.add.iter().map(|it| ProcessId::from(*it)));
        for server in &change.remove {
            servers.remove(&ProcessId::from(*server));
        }
        if change.add.is_empty() && change.remove.is_empty() {
            return Ok(map.controller.record().map.epoch);
        }
        if let Some(unknown) = change.add.iter().find(|it| !map.servers.contains_key(it)) {
            return Err(format!("server {unknown} is not there: start it first"));
        }
        // Each server has to be fenced, or has to have ended.
        let of_map = map.controller.record().map.servers.iter();
        let mut of_map = of_map.filter_map(|it| u32::try_from(*it).ok());
        let is_away = |it: &u32| !map.servers.contains_key(it) && !map.gone.contains(it);
        if let Some(away) = of_map.find(is_away) {
            return Err(format!(
                "nothing is heard of server {away}, and a change waits for it: say so if its \
                 process has certainly ended (gone)"
            ));
        }
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
        (map.begun_ns, map.why) = (now_ns, None);
        for server in &change.add {
            map.slow.forget(ProcessId::from(*server));
            // People know better than the leader.
            map.out.remove(server);
        }
        let epoch = map.controller.record().last_epoch;
        self.apply(key, outputs, now_ns);
        Ok(epoch)
    }

    /// Does what is due; returns the time of the next call.
    pub(crate) fn step(&mut self, now_ns: i64) -> i64 {
        let keys: Vec<MapKey> = self.maps.keys().cloned().collect();
        let mut next_ns = i64::MAX;
        for key in keys {
            let Some(map) = self.maps.get_mut(&key) else {
                continue;
            };
            let outputs = map.controller.tick(now_ns);
            self.apply(&key, outputs, now_ns);
            if self.scales_down {
                next_ns = next_ns.min(self.scale(&key, now_ns));
            }
            let map = self.maps.get(&key);
            let due_ns = map.and_then(|map| map.controller.next_ns());
            next_ns = next_ns.min(due_ns.unwrap_or(i64::MAX));
        }
        next_ns
    }

    /// What a node is told of a map; `None` before the record of this term is saved.
    pub(crate) fn order(&self, key: &MapKey) -> Option<MapOrder> {
        let map = self.maps.get(key)?;
        (map.order.epoch > 0).then(|| map.order.clone())
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
        for output in outputs {
            match output {
                ControllerOutput::Save(record) => {
                    let text = text_of(&record);
                    let saved_key = key_text(key);
                    self.outputs
                        .push(MapOutput::Save(key.clone(), saved_key, text));
                }
                ControllerOutput::ToMember(_, message) | ControllerOutput::ToServer(_, message) => {
                    map.tell(&message.what);
                }
                ControllerOutput::Ended(end) => map.end(&end, now_ns),
            }
        }
        if map.controller.is_saved() && map.order.epoch == 0 {
            // Without members nobody was told of what holds, and what a leader before this one has
            // committed is fenced before it holds.
            map.tell(&ControllerWord::Switch {
                map: map.controller.record().map.clone(),
            });
        }
        if map.order != before {
            let nodes = map.nodes.keys().cloned().collect();
            self.outputs.push(MapOutput::Tell(key.clone(), nodes));
        }
    }
}

impl LedMap {
    /// What holds for all nodes, from a word to one of them.
    fn tell(&mut self, word: &ControllerWord) {
        match word {
            ControllerWord::Prepare { epoch } => self.order.prepare = *epoch,
            ControllerWord::Abort { .. } => self.order.prepare = 0,
            ControllerWord::Fence { epoch } => self.order.fence = self.order.fence.max(*epoch),
            ControllerWord::Switch { map } => {
                let servers = map.servers.iter();
                let servers = servers.filter_map(|it| u32::try_from(*it).ok()).collect();
                self.order.epoch = map.epoch;
                self.order.servers = servers_text(&servers);
                self.order.fence = self.order.fence.max(map.epoch);
                if self.order.prepare <= map.epoch {
                    self.order.prepare = 0;
                }
            }
        }
    }

    fn end(&mut self, end: &ChangeEnd, now_ns: i64) {
        let (epoch, reason) = match end {
            ChangeEnd::Switched(map) => (map.epoch, None),
            ChangeEnd::Aborted { epoch, reason } => (*epoch, Some(reason.clone())),
            ChangeEnd::Deposed => return,
        };
        if self.ends.len() >= ENDS_MAX {
            self.ends.remove(0);
        }
        self.ends.push(MapEnd {
            epoch,
            age_ns: now_ns,
            took_ns: now_ns.saturating_sub(self.begun_ns).max(0),
            reason,
            why: self.why.take(),
        });
    }

    fn hear(&mut self, node: &str, word: &MapWord, now_ns: i64) -> Vec<ControllerOutput> {
        let mut outputs = Vec::new();
        let is_server = |number: u32| number < SERVERS_MAX;
        for (number, process) in word.gone.iter().filter(|it| is_server(it.0)) {
            // Of a server that is at work again elsewhere, the end of a process before says
            // nothing.
            let process = process_of(process);
            let is_newest = match self.servers.get(number) {
                Some((known, _)) => Some(*known) == process,
                None => process.is_some(),
            };
            if is_newest && !self.gone.contains(number) {
                outputs.extend(self.server_gone(*number));
            }
        }
        for server in word.servers.iter().filter(|it| is_server(it.number)) {
            let Some(process) = process_of(&server.process) else {
                continue;
            };
            let at = (process, node.to_owned());
            if self.servers.insert(server.number, at.clone()) != Some(at) {
                self.gone.remove(&server.number);
                outputs.extend(self.controller.server_back(ProcessId::from(server.number)));
            }
            if server.fence > 0 {
                let fenced = ProcessWord::Fenced {
                    epoch: server.fence,
                };
                let number = ProcessId::from(server.number);
                outputs.extend(self.controller.hear_server(number, &fenced));
            }
        }
        outputs.extend(self.hear_members(node, word));
        let samples = word.samples.iter().filter(|it| is_server(it.0));
        for (server, load, service_s) in samples {
            let found = self.slow.observe(&ServerSample {
                server: ProcessId::from(*server),
                ts_ns: now_ns,
                load: *load,
                service_s: *service_s,
            });
            if found.is_some() {
                self.slowest = found.map(|found| (found, now_ns));
            }
        }
        outputs
    }

    fn server_gone(&mut self, number: u32) -> Vec<ControllerOutput> {
        self.servers.remove(&number);
        self.gone.insert(number);
        self.controller.server_gone(ProcessId::from(number))
    }

    fn hear_members(&mut self, node: &str, word: &MapWord) -> Vec<ControllerOutput> {
        if word.members == 0 {
            // It has to be told of the map as long as it has servers.
            let is_used = !word.servers.is_empty();
            let Some(known) = self.nodes.get_mut(node) else {
                if is_used {
                    self.nodes.insert(node.to_owned(), LedUse::default());
                }
                return Vec::new();
            };
            let number = known.number;
            match is_used {
                true => *known = LedUse::default(),
                false => drop(self.nodes.remove(node)),
            }
            return match number {
                0 => Vec::new(),
                number => self.controller.member_gone(number),
            };
        }
        let known = self.nodes.entry(node.to_owned()).or_default();
        if known.number == 0 {
            self.next_node += 1;
            known.number = self.next_node;
        }
        (known.members, known.running) = (word.members, word.running);
        let number = known.number;
        let uses = ProcessWord::Uses { epoch: word.epoch };
        let mut outputs = self.controller.hear_member(number, &uses);
        if word.prepared > word.epoch {
            let said = match word.is_drained {
                true => ProcessWord::Drained {
                    epoch: word.prepared,
                },
                false => ProcessWord::Suspended {
                    epoch: word.prepared,
                    running: word.running,
                },
            };
            outputs.extend(self.controller.hear_member(number, &said));
        }
        outputs
    }

    fn row(&self, (user, name): (u32, &str), now_ns: i64) -> LedMapRow {
        let record = self.controller.record();
        let change = record.change.as_ref();
        let servers = record.map.servers.iter();
        LedMapRow {
            user,
            name: name.to_owned(),
            application: self.application.clone(),
            epoch: record.map.epoch,
            servers: servers.filter_map(|it| u32::try_from(*it).ok()).collect(),
            next_epoch: change.map(|change| change.map.epoch),
            stage: match change {
                None => "in force",
                Some(change) if change.is_committed => "fences its servers",
                Some(_) => "waits for its members",
            }
            .to_owned(),
            nodes: self.nodes.len(),
            members: self.nodes.values().map(|node| node.members).sum(),
            running: self.nodes.values().map(|node| node.running).sum(),
            running_servers: self.servers.keys().copied().collect(),
            gone_servers: self.gone.iter().copied().collect(),
            slow: self
                .slowest
                .filter(|(_, seen_ns)| now_ns.saturating_sub(*seen_ns) < SEEN_NS)
                .map(|(slow, _)| (slow.server, slow.ratio, slow.false_alarms)),
            changes: self
                .ends
                .iter()
                .map(|end| MapEnd {
                    age_ns: now_ns.saturating_sub(end.age_ns),
                    ..end.clone()
                })
                .collect(),
        }
    }
}
