//! What leaders do: they hear reports of nodes, save and order, and are followed by others.

use std::collections::BTreeSet;

use barograph_control::{ChangeEnd, ControllerOutput, NodeWord};

use super::super::lead::Lead;
use super::super::{FAULTS_NS, MS, QUIET_NS, SERVERS, TIMES};
use super::{ELECTION_NS, LEADERS, Parcel, System};

impl System {
    fn begin_leader(&mut self) {
        self.leaders_begun += 1;
        self.store.term += 1;
        let name = self.random.below(LEADERS);
        let (lead, outputs) = Lead::take_over(name, &self.store, TIMES);
        let term = lead.term;
        self.leads.insert(term, lead);
        self.carry_out(term, outputs);
    }

    pub(super) fn carry_out(&mut self, term: u64, outputs: Vec<ControllerOutput>) {
        let Some(lead) = self.leads.get_mut(&term) else {
            return;
        };
        let before = lead.order().cloned();
        let mut is_said = false;
        for output in outputs {
            let lead = self.leads.get_mut(&term).unwrap();
            match output {
                ControllerOutput::Save(record) => {
                    // A leader dies before or after its record is taken, or its answer.
                    let is_taken = record.term >= self.store.term;
                    if self.is_faulty && self.random.is(7 * self.faults.leaders) {
                        self.leads.remove(&term);
                        if self.random.is(500) && is_taken {
                            self.store = record;
                        }
                        return;
                    }
                    if is_taken {
                        self.store = record;
                    }
                    self.send(Parcel::Saved { term, is_taken });
                }
                ControllerOutput::ToMember(_, message) | ControllerOutput::ToServer(_, message) => {
                    is_said = true;
                    lead.tell(&message.what);
                }
                ControllerOutput::Ended(ChangeEnd::Deposed) => {
                    self.leads.remove(&term);
                    return;
                }
                ControllerOutput::Ended(end) => self.ends.push(end),
            }
        }
        let lead = self.leads.get_mut(&term).unwrap();
        lead.tell_first();
        if is_said || lead.order() != before.as_ref() {
            self.order_all(term);
        }
    }

    /// Tells all nodes what holds; a leader may die in between.
    fn order_all(&mut self, term: u64) {
        let nodes: Vec<u64> = self.leads[&term].nodes.keys().copied().collect();
        for node in nodes {
            self.order(node, term);
            if self.is_faulty && self.random.below(3_000) < self.faults.leaders {
                self.leads.remove(&term);
                return;
            }
        }
    }

    fn order(&mut self, node: u64, term: u64) {
        let lead = &self.leads[&term];
        let parcel = Parcel::Orders {
            node,
            name: lead.name,
            term,
            heard: lead.nodes.get(&node).map_or(0, |it| it.sequence),
            order: lead
                .order()
                .map(|order| (order.clone(), lead.controller.servers_of(node).clone())),
        };
        self.send(parcel);
    }

    pub(super) fn hear_report(
        &mut self,
        (node, name): (u64, u64),
        of: (u64, u64),
        word: &NodeWord,
    ) {
        let now_ns = self.now_ns;
        let lead = self.leads.values_mut().next_back();
        let Some(lead) = lead.filter(|it| it.is_heard && it.name == name) else {
            return;
        };
        let term = lead.term;
        if !lead.take_report(node, of, now_ns) {
            return;
        }
        let outputs = lead.hear(node, word);
        self.carry_out(term, outputs);
        if self.leads.contains_key(&term) {
            self.order(node, term);
        }
    }

    pub(super) fn lead(&mut self) {
        for term in self.leads.keys().copied().collect::<Vec<u64>>() {
            let Some(lead) = self.leads.get_mut(&term) else {
                continue;
            };
            let mut outputs = lead.forget_nodes(self.now_ns);
            outputs.extend(lead.controller.tick(self.now_ns));
            self.carry_out(term, outputs);
        }
        self.change();
        self.say_gone();
        self.elect();
        if self.is_faulty && self.random.is(2) && self.leads.len() > 1 {
            self.leads.pop_first();
        }
    }

    fn change(&mut self) {
        let wants = self.random.is(if self.is_faulty { 10 } else { 2 });
        if !wants || self.now_ns >= FAULTS_NS + QUIET_NS / 2 {
            return;
        }
        let count = 1 + self.random.below(SERVERS);
        let servers: BTreeSet<u64> = (0..count).map(|_| self.random.below(SERVERS)).collect();
        let Some((term, lead)) = self.leads.iter_mut().next_back() else {
            return;
        };
        if lead.may_change(&servers) {
            let (term, outputs) = (*term, lead.controller.change(servers));
            self.carry_out(term, outputs.unwrap_or_default());
        }
    }

    /// Somebody says of a server that it has ended where it was, which is true: its node was
    /// restarted, and saw nothing of that.
    fn say_gone(&mut self) {
        let often = if self.is_faulty { 2 } else { 20 };
        if !self.random.is(often) {
            return;
        }
        let Some((term, lead)) = self.leads.iter_mut().next_back() else {
            return;
        };
        let homes = &lead.controller.record().homes;
        let mut moved = self.servers.iter();
        let moved = moved.find(|it| homes.get(&it.number).is_some_and(|home| *home != it.node));
        if let Some(server) = moved {
            let (term, outputs) = (*term, lead.server_gone(server.number));
            self.carry_out(term, outputs);
        }
    }

    fn elect(&mut self) {
        let newest = self.leads.values_mut().next_back();
        let newest = newest.filter(|it| it.is_heard);
        match (newest, self.election_ns) {
            (Some(lead), None) if self.is_faulty && self.random.is(self.faults.leaders) => {
                // It goes on for a while, but its reports are over.
                lead.is_heard = false;
                self.election_ns = Some(self.now_ns + ELECTION_NS);
            }
            (None, None) => {
                let later_ns = self.random.below(100) as i64 * MS;
                self.election_ns = Some(self.now_ns + ELECTION_NS + later_ns);
            }
            (_, Some(at_ns)) if self.now_ns >= at_ns => {
                self.election_ns = None;
                self.begin_leader();
            }
            _ => {}
        }
    }
}
