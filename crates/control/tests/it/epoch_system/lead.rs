//! A leader of a system with node controllers: it makes orders of what the controller of epochs
//! says, and of words of nodes what members and servers say to it. It does what `led_maps.rs` of
//! the agent does.

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{
    ControllerOutput, ControllerWord, EpochController, EpochOrder, EpochRecord, EpochTimes,
    NodeServer, NodeWord, ProcessId, ProcessWord,
};

/// Time without a word after which a node is no member.
const NODE_NS: i64 = 600_000_000;

pub(super) struct Lead {
    pub(super) term: u64,
    /// The node that leads. It may lead again, in a later term.
    pub(super) name: u64,
    pub(super) controller: EpochController,
    /// What nodes are told; its epoch is 0 before the record of this term is saved.
    order: EpochOrder,
    pub(super) nodes: BTreeMap<u64, LedNode>,
    /// The process of each server that is at home.
    servers: BTreeMap<ProcessId, u128>,
    /// Whether it hears reports: another one has been elected otherwise, of which it does not know.
    pub(super) is_heard: bool,
}

#[derive(Default)]
pub(super) struct LedNode {
    life: u64,
    pub(super) sequence: u64,
    heard_ns: i64,
    is_member: bool,
}

impl Lead {
    pub(super) fn take_over(
        name: u64,
        store: &EpochRecord,
        times: EpochTimes,
    ) -> (Self, Vec<ControllerOutput>) {
        let term = store.term;
        let (controller, outputs) = EpochController::take_over(term, store.clone(), [], times);
        let lead = Self {
            term,
            name,
            controller,
            order: EpochOrder::default(),
            nodes: BTreeMap::new(),
            servers: BTreeMap::new(),
            is_heard: true,
        };
        (lead, outputs)
    }

    /// What nodes are told, once there is something.
    pub(super) fn order(&self) -> Option<&EpochOrder> {
        (self.order.map.epoch > 0).then_some(&self.order)
    }

    /// Takes in a word to a member or server; all nodes are told the same.
    pub(super) fn tell(&mut self, word: &ControllerWord) {
        let order = &mut self.order;
        match word {
            ControllerWord::Prepare { epoch } => order.prepare = *epoch,
            ControllerWord::Abort { .. } => order.prepare = 0,
            ControllerWord::Fence { epoch } => order.fence = order.fence.max(*epoch),
            ControllerWord::Switch { map } => {
                order.map = map.clone();
                order.fence = order.fence.max(map.epoch);
                if order.prepare <= map.epoch {
                    order.prepare = 0;
                }
            }
        }
    }

    /// Without members nobody was told of what holds.
    pub(super) fn tell_first(&mut self) {
        if self.controller.is_saved() && self.order.map.epoch == 0 {
            let map = self.controller.record().map.clone();
            self.tell(&ControllerWord::Switch { map });
        }
    }

    /// Whether each server of the map is there or has ended, and those that come are there.
    pub(super) fn may_change(&self, servers: &BTreeSet<ProcessId>) -> bool {
        let is_there = |server: &ProcessId| self.servers.contains_key(server);
        let mut of_map = self.controller.record().map.servers.iter();
        let all_are_known = of_map.all(|it| is_there(it) || self.controller.is_gone(*it));
        all_are_known && servers.iter().all(is_there)
    }

    /// Takes in that somebody knows that a server has ended at home.
    pub(super) fn server_gone(&mut self, server: ProcessId) -> Vec<ControllerOutput> {
        self.servers.remove(&server);
        self.controller.server_gone(server, None)
    }

    /// Whether a report is newer than those that were heard of the node.
    pub(super) fn take_report(
        &mut self,
        node: u64,
        (life, sequence): (u64, u64),
        now_ns: i64,
    ) -> bool {
        let known = self.nodes.entry(node).or_default();
        if (life, sequence) <= (known.life, known.sequence) {
            return false;
        }
        (known.life, known.sequence, known.heard_ns) = (life, sequence, now_ns);
        true
    }

    /// Nodes that are silent for too long are no members.
    pub(super) fn forget_nodes(&mut self, now_ns: i64) -> Vec<ControllerOutput> {
        let silent = self
            .nodes
            .extract_if(.., |_, it| it.heard_ns + NODE_NS < now_ns);
        let silent: Vec<(u64, LedNode)> = silent.collect();
        let mut outputs = Vec::new();
        for (node, _) in silent.into_iter().filter(|(_, known)| known.is_member) {
            outputs.extend(self.controller.member_gone(node));
        }
        outputs
    }

    pub(super) fn hear(&mut self, node: u64, word: &NodeWord) -> Vec<ControllerOutput> {
        let mut outputs = Vec::new();
        for (number, _) in &word.gone {
            if self.controller.may_be_on(*number, node) {
                self.servers.remove(number);
                outputs.extend(self.controller.server_gone(*number, Some(node)));
            }
        }
        for NodeServer {
            number,
            process,
            fence,
        } in &word.servers
        {
            if !self.controller.may_be_on(*number, node) {
                continue;
            }
            if self.servers.insert(*number, *process) != Some(*process) {
                outputs.extend(self.controller.server_there(*number, node));
            }
            if *fence > 0 {
                let fenced = ProcessWord::Fenced { epoch: *fence };
                outputs.extend(self.controller.hear_server(*number, &fenced));
            }
        }
        outputs.extend(self.hear_members(node, word));
        outputs
    }

    fn hear_members(&mut self, node: u64, word: &NodeWord) -> Vec<ControllerOutput> {
        let Some(known) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        if word.members == 0 {
            return match std::mem::take(&mut known.is_member) {
                true => self.controller.member_gone(node),
                false => Vec::new(),
            };
        }
        known.is_member = true;
        let uses = ProcessWord::Uses { epoch: word.epoch };
        let mut outputs = self.controller.hear_member(node, &uses);
        if word.prepared > word.epoch {
            let (epoch, running) = (word.prepared, word.running);
            let said = match word.is_drained {
                true => ProcessWord::Drained { epoch },
                false => ProcessWord::Suspended { epoch, running },
            };
            outputs.extend(self.controller.hear_member(node, &said));
        }
        outputs
    }
}
