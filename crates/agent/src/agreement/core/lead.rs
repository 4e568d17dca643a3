//! What a node does while it leads: it hears reports of all nodes, and orders.

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{MemberAnswer, MemberId};
use barograph_model::NS_PER_S;

use super::super::led_maps::{LedMaps, MapOutput};
use super::{AgreementCore, Candidate};
use crate::controller_words::{
    ANSWERS_MAX, AgreementWord, MapKey, NodeOrders, NodeReport, process_of,
};
use crate::io_schedules::answer_word;

/// Time without reports after which the phases of a node are not waited for any more.
const NODE_NS: i64 = 5 * NS_PER_S;
/// Most phases of processes of which a leader keeps anything; those beyond wait for their patience.
const TOLD_MAX: usize = 1 << 18;
/// Most nodes whose reports a leader takes in.
const NODES_MAX: usize = 16_384;

/// What this node knows of others while it leads.
pub(super) struct Lead {
    pub(super) term: u64,
    pub(super) nodes: BTreeMap<String, LedNode>,
    /// The newest answer to each phase.
    pub(super) told: BTreeMap<MemberId, MemberAnswer>,
    /// The node of each process.
    pub(super) homes: BTreeMap<u128, String>,
    pub(super) maps: LedMaps,
}

#[derive(Default)]
pub(super) struct LedNode {
    pub(super) life: u64,
    pub(super) sequence: u64,
    pub(super) heard_ns: i64,
    /// Phases and maps of which it is to be told.
    pub(super) untold: BTreeSet<MemberId>,
    pub(super) untold_maps: BTreeSet<MapKey>,
    /// Whether it is to be told that a report was heard.
    pub(super) is_awaited: bool,
}

impl AgreementCore {
    pub(super) fn hear_report(&mut self, from: &str, report: &NodeReport, now_ns: i64) {
        let Some(lead) = &mut self.lead else {
            return self.tell_leader(from);
        };
        if !lead.nodes.contains_key(from) && lead.nodes.len() >= NODES_MAX {
            return;
        }
        let node = lead.nodes.entry(from.to_owned()).or_default();
        let is_other = report.begins || report.life != node.life;
        let is_late = report.life < node.life
            || (report.life == node.life && report.sequence <= node.sequence);
        if is_late {
            return;
        }
        (node.life, node.sequence) = (report.life, report.sequence);
        (node.heard_ns, node.is_awaited) = (now_ns, true);
        if is_other {
            node.untold.clear();
            self.forget_processes(from);
        }
        let Some(lead) = &mut self.lead else {
            return;
        };
        for word in &report.maps {
            lead.maps.hear(from, word, now_ns);
            if let Some(node) = lead.nodes.get_mut(from) {
                node.untold_maps.insert((word.user, word.name.clone()));
            }
        }
        for process in &report.left {
            let process = process_of(process);
            // Only a node on which it is says that it has ended.
            let process = process.filter(|it| lead.homes.get(it).is_some_and(|of| of == from));
            if let Some(process) = process {
                lead.forget(process);
                self.schedules.hear_leave(process);
            }
        }
        for phase in &report.phases {
            if lead.told.len() >= TOLD_MAX {
                break;
            }
            let process = process_of(&phase.process);
            let home = process.and_then(|process| lead.homes.get(&process));
            if home.is_some_and(|home| home != from) {
                continue;
            }
            let Some(node) = lead.nodes.get_mut(from) else {
                continue;
            };
            match self.schedules.hear_phase(phase) {
                Some(id) if phase.stage == 0 => {
                    node.untold.remove(&id);
                    lead.end(id);
                }
                Some(id) => {
                    lead.homes.insert(id.process, from.to_owned());
                    node.untold.insert(id);
                }
                // This node has no such volume: its phases are not scheduled.
                None => {
                    let Some(process) = process else { continue };
                    let phase = phase.phase;
                    let id = MemberId { process, phase };
                    lead.told.insert(id, MemberAnswer::Unscheduled);
                    node.untold.insert(id);
                }
            }
        }
    }

    /// Forgets the processes of a node.
    pub(super) fn forget_processes(&mut self, node: &str) {
        let Some(lead) = &mut self.lead else {
            return;
        };
        let of_node = lead.homes.iter().filter(|(_, home)| *home == node);
        let of_node: Vec<u128> = of_node.map(|(process, _)| *process).collect();
        for process in of_node {
            lead.forget(process);
            self.schedules.hear_leave(process);
        }
    }

    pub(super) fn step_lead(&mut self, now_ns: i64) -> i64 {
        let Some(lead) = &self.lead else {
            return i64::MAX;
        };
        let silent = lead.nodes.iter();
        let silent = silent.filter(|(_, node)| now_ns.saturating_sub(node.heard_ns) >= NODE_NS);
        let silent: Vec<String> = silent.map(|(name, _)| name.clone()).collect();
        for node in &silent {
            self.forget_processes(node);
        }
        let Some(lead) = &mut self.lead else {
            return i64::MAX;
        };
        for node in &silent {
            lead.nodes.remove(node);
            lead.maps.forget_node(node, now_ns);
        }
        let maps_ns = lead.maps.step(now_ns);
        if let Some(candidate) = &mut self.candidate {
            lead.settle_maps(candidate);
        }
        let (next_ns, answers) = self.schedules.lead_step();
        for (id, answer) in answers {
            lead.told.insert(id, answer);
            let home = lead.homes.get(&id.process);
            if let Some(node) = home.and_then(|home| lead.nodes.get_mut(home)) {
                node.untold.insert(id);
            }
        }
        for (name, node) in &mut lead.nodes {
            while node.is_awaited || !node.untold.is_empty() || !node.untold_maps.is_empty() {
                let rest = node.untold.iter().nth(ANSWERS_MAX).copied();
                let rest = rest.map(|rest| node.untold.split_off(&rest));
                let now = std::mem::replace(&mut node.untold, rest.unwrap_or_default());
                node.is_awaited = false;
                let answers = now.iter().filter_map(|id| {
                    let answer = lead.told.get(id)?;
                    Some(answer_word(*id, *answer))
                });
                let orders = NodeOrders {
                    term: lead.term,
                    heard: node.sequence,
                    answers: answers.collect(),
                    maps: std::mem::take(&mut node.untold_maps)
                        .iter()
                        .filter_map(|key| lead.maps.order(key, name))
                        .collect(),
                };
                self.outputs
                    .push((name.clone(), AgreementWord::Orders(orders)));
            }
        }
        let oldest = lead.nodes.values().map(|node| node.heard_ns).min();
        let silent_ns = oldest.map_or(i64::MAX, |heard_ns| heard_ns.saturating_add(NODE_NS));
        next_ns.unwrap_or(i64::MAX).min(silent_ns).min(maps_ns)
    }
}

impl Lead {
    /// Saves what the maps have to save, and notes who is to be told of them.
    pub(super) fn settle_maps(&mut self, candidate: &mut Candidate) {
        for output in self.maps.take_outputs() {
            match output {
                MapOutput::Save(key, name, text) => {
                    let sequence = candidate.election.save(&name, text);
                    if let Some(key) = key {
                        self.maps.saving(&key, sequence);
                    }
                }
                MapOutput::Tell(key, nodes) => {
                    for node in nodes {
                        if let Some(node) = self.nodes.get_mut(&node) {
                            node.untold_maps.insert(key.clone());
                        }
                    }
                }
            }
        }
    }

    /// A phase has ended, and its process is known for as long as it has others.
    pub(super) fn end(&mut self, id: MemberId) {
        self.told.remove(&id);
        let first = MemberId { phase: 0, ..id };
        let last = MemberId {
            phase: u64::MAX,
            ..id
        };
        if self.told.range(first..=last).next().is_none() {
            self.homes.remove(&id.process);
        }
    }

    pub(super) fn forget(&mut self, process: u128) {
        self.homes.remove(&process);
        let first = MemberId { process, phase: 0 };
        let last = MemberId {
            process,
            phase: u64::MAX,
        };
        let of_process: Vec<MemberId> = self.told.range(first..=last).map(|(id, _)| *id).collect();
        for id in of_process {
            self.told.remove(&id);
        }
    }
}
