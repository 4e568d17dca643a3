//! The way from a node to the leader: it reports what its programs do, and hears orders.

use barograph_model::{NS_PER_MS, NS_PER_S};
use tracing::warn;

use super::AgreementCore;
use crate::controller_words::{AgreementWord, NodeOrders, NodeReport};
use crate::io_schedules::RelayBatch;
use crate::server_maps::MapBatch;

/// Time after which a report that was not heard is sent again.
const REPEAT_NS: i64 = 300 * NS_PER_MS;
/// Time between two reports of a node that has phases, also if nothing has changed.
const REPORT_NS: i64 = 500 * NS_PER_MS;
/// Time without orders after which another leader is looked for.
const SILENCE_NS: i64 = NS_PER_S;
/// Time without orders after which the programs of a node go on alone.
const ALONE_NS: i64 = 2 * NS_PER_S;

/// The way from this node to the leader.
pub(super) struct NodeRelay {
    pub(super) life: u64,
    pub(super) sequence: u64,
    /// The leader and its term.
    pub(super) leader: Option<(String, u64)>,
    pub(super) begins: bool,
    pub(super) in_flight: Option<InFlight>,
    pub(super) reported_ns: i64,
    /// The time at which the leader was told of maps again that it has heard.
    pub(super) repeated_ns: i64,
    pub(super) asked_ns: i64,
    /// Since when this leader is followed, or the time of its newest orders.
    pub(super) leader_ns: i64,
    /// The time of the newest orders of any leader, or since which they are awaited.
    pub(super) heard_ns: Option<i64>,
    pub(super) is_alone: bool,
}

pub(super) struct InFlight {
    pub(super) sequence: u64,
    pub(super) batch: RelayBatch,
    pub(super) maps: MapBatch,
    pub(super) sent_ns: i64,
}

impl AgreementCore {
    pub(super) fn hear_orders(&mut self, from: &str, orders: &NodeOrders, now_ns: i64) {
        let leader = self.relay.leader.as_ref();
        let is_ours = leader.is_some_and(|(leader, term)| leader == from && orders.term >= *term);
        if !is_ours {
            return;
        }
        // If the same node leads again, in a later term, it knows nothing of this one.
        self.relay.follow((from.to_owned(), orders.term), now_ns);
        (self.relay.heard_ns, self.relay.leader_ns) = (Some(now_ns), now_ns);
        if self.relay.is_alone {
            self.relay.is_alone = false;
            self.schedules.set_alone(false);
            self.schedules.relay_anew();
            self.maps.relay_anew();
        }
        let in_flight = self
            .relay
            .in_flight
            .take_if(|it| it.sequence <= orders.heard);
        if let Some(in_flight) = in_flight {
            self.relay.begins = false;
            self.schedules.relay_heard(&in_flight.batch);
            self.maps
                .relay_heard((orders.term, in_flight.sequence), in_flight.maps);
        }
        let of = (orders.term, orders.heard);
        self.maps.relay_orders(of, &orders.maps);
        if !orders.answers.is_empty() {
            let awaited = self.schedules.relay_answers(&orders.answers);
            self.awaited = self.awaited.or(awaited);
        }
    }

    pub(super) fn step_relay(&mut self, now_ns: i64) -> i64 {
        let is_asked = now_ns < self.asked_until_ns;
        let is_open = self.schedules.relays() || self.maps.are_used() || is_asked;
        let relay = &mut self.relay;
        if !is_open && !relay.is_alone {
            // Nobody waits for the leader.
            (relay.heard_ns, relay.in_flight) = (None, None);
            relay.leader_ns = now_ns;
            return i64::MAX;
        }
        let heard_ns = *relay.heard_ns.get_or_insert(now_ns);
        let silent_ns = now_ns.saturating_sub(heard_ns);
        if silent_ns >= ALONE_NS && !relay.is_alone {
            relay.is_alone = true;
            warn!("no leader of the cluster is heard: shared volumes are not scheduled meanwhile");
            let awaited = self.schedules.set_alone(true);
            self.awaited = self.awaited.or(awaited);
        }
        let relay = &mut self.relay;
        let silent_ns = now_ns.saturating_sub(relay.leader_ns);
        if silent_ns >= SILENCE_NS && relay.leader.is_some() && !relay.is_led_by(&self.own) {
            relay.lose();
        }
        if relay.leader.is_none() {
            let due_ns = relay.asked_ns.saturating_add(REPORT_NS);
            if now_ns < due_ns {
                return due_ns;
            }
            relay.asked_ns = now_ns;
            let others = self.leaders.iter().filter(|node| **node != self.own);
            let asks = others.map(|node| (node.clone(), AgreementWord::Who));
            self.outputs.extend(asks);
            return now_ns.saturating_add(REPORT_NS);
        }
        self.report(now_ns)
    }

    /// Reports what has changed, if the report before was heard, or repeats it.
    pub(super) fn report(&mut self, now_ns: i64) -> i64 {
        let relay = &mut self.relay;
        let Some((leader, _)) = relay.leader.clone() else {
            return i64::MAX;
        };
        if let Some(in_flight) = &relay.in_flight {
            let due_ns = in_flight.sent_ns.saturating_add(REPEAT_NS);
            if now_ns < due_ns {
                return due_ns;
            }
        }
        if relay.begins && relay.in_flight.is_none() {
            self.schedules.relay_anew();
            self.maps.relay_anew();
        }
        let repeats = now_ns >= relay.repeated_ns.saturating_add(REPORT_NS);
        let (batch, maps) = (
            self.schedules.relay_batch(),
            self.maps.relay_batch(repeats, now_ns),
        );
        if repeats {
            relay.repeated_ns = now_ns;
        }
        let due_ns = relay.reported_ns.saturating_add(REPORT_NS);
        let is_empty = batch.is_empty() && maps.maps.is_empty();
        if is_empty && now_ns < due_ns && !relay.begins {
            return due_ns;
        }
        relay.sequence += 1;
        relay.reported_ns = now_ns;
        let report = NodeReport {
            life: relay.life,
            sequence: relay.sequence,
            begins: relay.begins,
            phases: batch.phases.clone(),
            left: batch.left.clone(),
            maps: maps.maps.clone(),
        };
        relay.in_flight = Some(InFlight {
            sequence: relay.sequence,
            batch,
            maps,
            sent_ns: now_ns,
        });
        self.outputs.push((leader, AgreementWord::Report(report)));
        now_ns.saturating_add(REPEAT_NS)
    }
}

impl NodeRelay {
    pub(super) fn is_led_by(&self, node: &str) -> bool {
        let leader = self.leader.as_ref();
        leader.is_some_and(|(leader, _)| leader == node)
    }

    /// Follows a leader of this term, unless a later one is known.
    pub(super) fn follow(&mut self, (leader, term): (String, u64), now_ns: i64) {
        let known = self.leader.as_ref();
        let is_new = known.is_none_or(|(_, known)| *known < term);
        if !is_new {
            return;
        }
        let is_other = known.is_none_or(|known| *known != (leader.clone(), term));
        self.leader = Some((leader, term));
        if is_other {
            (self.begins, self.in_flight) = (true, None);
            self.leader_ns = now_ns;
        }
    }

    pub(super) fn lose(&mut self) {
        (self.leader, self.in_flight, self.begins) = (None, None, true);
    }
}
