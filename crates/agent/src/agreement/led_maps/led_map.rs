//! One map that a leader keeps: its controller, who uses it, and what is known of its servers.

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{
    ChangeEnd, ControllerOutput, ControllerWord, EpochController, NodeId, ProcessId, ProcessWord,
    ServerSample, SlowConfig, SlowServer, SlowServers,
};

use super::load::MapLoad;
use super::out::{ScaleDecision, TakenOut};
use super::saved::{RegisteredMap, home_of};
use crate::controller_words::{
    LedMapRow, MapChange, MapEnd, MapOrder, MapWord, SERVERS_MAX, ServerWord, process_of,
    servers_text,
};
use crate::server_maps::MapControl;

/// Most ends of changes that are remembered for each map.
const ENDS_MAX: usize = 16;

/// A map that the leader keeps.
pub(super) struct LedMap {
    /// Its place in the store.
    pub(super) register: usize,
    pub(super) application: String,
    /// The changes that are over, with the monotonic times of their ends in place of their ages.
    pub(super) ends: Vec<MapEnd>,
    pub(super) controller: EpochController,
    /// What nodes are told; its epoch is 0 until the record of this term is saved.
    pub(super) order: MapOrder,
    /// The number of the save that is under way.
    pub(super) saving: Option<u64>,
    /// The nodes that use the map, with the numbers by which the controller knows them.
    pub(super) nodes: BTreeMap<String, LedUse>,
    next_node: ProcessId,
    /// Since when no node uses it.
    pub(super) unused_ns: Option<i64>,
    /// The process and the node of each server that is at home, and the servers that are known to
    /// have ended.
    pub(super) servers: BTreeMap<u32, (u128, String)>,
    gone: BTreeSet<u32>,
    /// The nodes of servers that have not certainly ended where they were before.
    moved: BTreeMap<u32, String>,
    pub(super) slow: SlowServers,
    /// The server that was slower than its peers, and when that was seen.
    pub(super) slowest: Option<(SlowServer, i64)>,
    /// The server that was told of as slow last, and when.
    pub(super) slow_told: Option<(ProcessId, i64)>,
    pub(super) load: MapLoad,
    /// Servers that were taken out since they were slow.
    pub(super) out: BTreeMap<u32, TakenOut>,
    /// Servers that are wanted back, and why.
    pub(super) wanted_back: BTreeMap<u32, String>,
    /// Servers that would have been taken out, and until when that is not said again.
    pub(super) dry: BTreeMap<u32, i64>,
    /// The decision by which the change under way was begun.
    pub(super) deciding: Option<ScaleDecision>,
    pub(super) begun_ns: i64,
}

#[derive(Default)]
pub(super) struct LedUse {
    number: ProcessId,
    members: u64,
    running: u64,
}

impl LedMap {
    /// A map that was saved, or is new; nothing is heard of its programs yet.
    pub(super) fn new(map: RegisteredMap, controller: EpochController, now_ns: i64) -> Self {
        let out = map.out.into_iter();
        Self {
            register: map.register,
            controller,
            order: MapOrder {
                user: map.key.0,
                name: map.key.1,
                ..MapOrder::default()
            },
            saving: None,
            nodes: BTreeMap::new(),
            next_node: 0,
            unused_ns: Some(now_ns),
            servers: BTreeMap::new(),
            gone: BTreeSet::new(),
            moved: BTreeMap::new(),
            slow: SlowServers::new(SlowConfig::default()),
            slowest: None,
            slow_told: None,
            load: MapLoad::default(),
            out: out
                .map(|it| (it, TakenOut::by_earlier_leader(now_ns)))
                .collect(),
            wanted_back: BTreeMap::new(),
            dry: BTreeMap::new(),
            deciding: None,
            begun_ns: now_ns,
            ends: Vec::new(),
            application: map.application,
        }
    }

    /// The servers of the map with a change.
    pub(super) fn servers_after(&self, change: &MapChange) -> BTreeSet<ProcessId> {
        let mut servers = self.controller.record().map.servers.clone();
        servers.extend(change.add.iter().map(|it| ProcessId::from(*it)));
        for server in &change.remove {
            servers.remove(&ProcessId::from(*server));
        }
        servers
    }

    /// Whether a change can be carried out: each server has to be fenced, or has to have ended.
    pub(super) fn check_change(&self, change: &MapChange) -> Result<(), String> {
        if let Some(unknown) = change.add.iter().find(|it| !self.servers.contains_key(it)) {
            return Err(format!("server {unknown} is not there: start it first"));
        }
        let of_map = self.controller.record().map.servers.iter();
        let mut of_map = of_map.filter_map(|it| u32::try_from(*it).ok());
        let is_gone = |it: &u32| self.controller.is_gone(ProcessId::from(*it));
        let is_away = |it: &u32| !self.servers.contains_key(it) && !is_gone(it);
        match of_map.find(is_away) {
            None => Ok(()),
            Some(away) => Err(format!(
                "nothing is heard of server {away}, and a change waits for it: say so if its \
                 process has certainly ended (gone)"
            )),
        }
    }

    /// Takes in that a node is not heard any more.
    pub(super) fn forget_node(&mut self, node: &str, now_ns: i64) -> Vec<ControllerOutput> {
        self.load.forget(node);
        self.moved.retain(|_, on| on != node);
        let gone = self.nodes.remove(node);
        self.look_whether_used(now_ns);
        gone.map_or_else(Vec::new, |gone| self.controller.member_gone(gone.number))
    }

    fn look_whether_used(&mut self, now_ns: i64) {
        match self.nodes.is_empty() {
            true => drop(self.unused_ns.get_or_insert(now_ns)),
            false => self.unused_ns = None,
        }
    }

    /// The nodes that are these members, or have these servers.
    pub(super) fn nodes_of(
        &self,
        members: &BTreeSet<ProcessId>,
        servers: &BTreeSet<ProcessId>,
    ) -> Vec<String> {
        let of_servers = servers.iter().filter_map(|server| {
            let (_, node) = self.servers.get(&u32::try_from(*server).ok()?)?;
            Some(node)
        });
        let of_servers: BTreeSet<&String> = of_servers.collect();
        let nodes = self.nodes.iter();
        let nodes =
            nodes.filter(|(node, of)| members.contains(&of.number) || of_servers.contains(node));
        nodes.map(|(node, _)| node.clone()).collect()
    }

    /// What holds for all nodes, from a word to one of them.
    pub(super) fn tell(&mut self, word: &ControllerWord) {
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

    /// Takes in the end of a change.
    pub(super) fn end(&mut self, end: &ChangeEnd, control: &MapControl, now_ns: i64) {
        let (epoch, reason) = match end {
            ChangeEnd::Switched(map) => (map.epoch, None),
            ChangeEnd::Aborted { epoch, reason } => (*epoch, Some(reason.clone())),
            ChangeEnd::Deposed => return,
        };
        let decision = self.deciding.take();
        let why = decision.as_ref().and_then(|it| it.told.clone());
        if let Some(decision) = decision {
            self.settle(decision, reason.as_deref(), control, now_ns);
        }
        if self.ends.len() >= ENDS_MAX {
            self.ends.remove(0);
        }
        self.ends.push(MapEnd {
            epoch,
            age_ns: now_ns,
            took_ns: now_ns.saturating_sub(self.begun_ns).max(0),
            reason,
            why,
        });
    }

    /// Takes in what a node says.
    pub(super) fn hear(
        &mut self,
        node: &str,
        word: &MapWord,
        now_ns: i64,
    ) -> Vec<ControllerOutput> {
        let mut outputs = Vec::new();
        let is_server = |number: u32| number < SERVERS_MAX;
        let home = home_of(node);
        for (number, _) in word.gone.iter().filter(|it| is_server(it.0)) {
            // Where a server is not at home, the end of a process before says nothing.
            if self.controller.may_be_on(ProcessId::from(*number), home) {
                outputs.extend(self.server_gone(*number, Some(home)));
            }
        }
        self.moved.retain(|_, on| on != node);
        for server in word.servers.iter().filter(|it| is_server(it.number)) {
            outputs.extend(self.hear_server((node, home), server));
        }
        outputs.extend(self.hear_members(node, word));
        self.look_whether_used(now_ns);
        self.load.hear(node, word);
        let samples = word.samples.iter().filter(|it| is_server(it.0));
        for (server, load, service_s, _) in samples {
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

    fn hear_server(
        &mut self,
        (node, home): (&str, NodeId),
        server: &ServerWord,
    ) -> Vec<ControllerOutput> {
        let number = ProcessId::from(server.number);
        let Some(process) = process_of(&server.process) else {
            return Vec::new();
        };
        if !self.controller.may_be_on(number, home) {
            self.moved.insert(server.number, node.to_owned());
            return Vec::new();
        }
        let mut outputs = Vec::new();
        let at = (process, node.to_owned());
        if self.servers.insert(server.number, at.clone()) != Some(at) {
            self.gone.remove(&server.number);
            self.moved.remove(&server.number);
            outputs.extend(self.controller.server_there(number, home));
        }
        if server.fence > 0 {
            let epoch = server.fence;
            let fenced = ProcessWord::Fenced { epoch };
            outputs.extend(self.controller.hear_server(number, &fenced));
        }
        outputs
    }

    /// Takes in that a server has certainly ended at home: its node says so, or somebody.
    pub(super) fn server_gone(&mut self, number: u32, by: Option<NodeId>) -> Vec<ControllerOutput> {
        self.servers.remove(&number);
        self.gone.insert(number);
        self.controller.server_gone(ProcessId::from(number), by)
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

    fn moved_servers(&self) -> Vec<(u32, String, Option<String>)> {
        let moved = self.moved.iter();
        let moved = moved.map(|(number, node)| {
            let before = self.servers.get(number).map(|(_, node)| node.clone());
            (*number, node.clone(), before)
        });
        moved.collect()
    }

    /// The map, for those who look at it.
    pub(super) fn row(&self, (user, name): (u32, &str), now_ns: i64) -> LedMapRow {
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
            moved_servers: self.moved_servers(),
            slow: self
                .slowest_now(now_ns)
                .map(|(slow, _)| (slow.server, slow.ratio, slow.false_alarms)),
            out_servers: self.servers_out().collect(),
            operations_s: self.load.effect.operations_s(),
            loads: self.load.rows(),
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
