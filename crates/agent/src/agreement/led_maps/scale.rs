//! Slow servers are taken out of maps, and tried again after a while.

use barograph_control::ProcessId;
use barograph_model::NS_PER_S;

use super::{LedMap, LedMaps};
use crate::controller_words::{MapChange, MapKey};

/// Time after a change before the leader changes a map by itself.
const SETTLE_NS: i64 = 5 * NS_PER_S;
/// Time for which a server counts as slow after it was found to be.
pub(super) const SEEN_NS: i64 = 10 * NS_PER_S;
/// Time for which a slow server is taken out; twice as long each time it is, up to 64 times.
const OUT_NS: i64 = 60 * NS_PER_S;
const OUT_DOUBLINGS: u32 = 6;
/// At most one of so many servers is out at a time, and so many always stay.
const OUT_PARTS: usize = 4;
const SERVERS_MIN: usize = 2;

/// A server that was taken out of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenOut {
    /// The time at which it is tried again.
    pub(super) until_ns: i64,
    /// How often it was taken out.
    pub(super) times: u32,
}

impl LedMaps {
    /// Takes a slow server out of a map, or tries one again; returns the time of the next look.
    pub(super) fn scale(&mut self, key: &MapKey, now_ns: i64) -> i64 {
        let Some((change, why)) = self.maps.get(key).and_then(|map| map.scaling(now_ns)) else {
            let map = self.maps.get(key);
            let out = map.into_iter().flat_map(|map| map.out.values());
            let next_ns = out.map(|out| out.until_ns).min();
            return next_ns.map_or(i64::MAX, |until_ns| until_ns.max(now_ns + SETTLE_NS));
        };
        let known = change.add.first().or(change.remove.first());
        let known = known.zip(self.maps.get(key));
        let known = known.and_then(|(server, map)| map.out.get(server).copied());
        if self.change(key, &change, now_ns).is_err() {
            return now_ns.saturating_add(SETTLE_NS);
        }
        let Some(map) = self.maps.get_mut(key) else {
            return i64::MAX;
        };
        map.why = Some(why);
        let times = known.map_or(0, |out| out.times);
        for server in &change.remove {
            let wait_ns = OUT_NS.saturating_mul(1 << times.min(OUT_DOUBLINGS));
            map.out.insert(
                *server,
                TakenOut {
                    until_ns: now_ns.saturating_add(wait_ns),
                    times: times + 1,
                },
            );
        }
        for server in &change.add {
            // How often it was out is remembered while it is tried.
            let until_ns = i64::MAX;
            map.out.insert(*server, TakenOut { until_ns, times });
        }
        now_ns.saturating_add(SETTLE_NS)
    }
}

impl LedMap {
    /// What is to be changed by itself, and why.
    fn scaling(&self, now_ns: i64) -> Option<(MapChange, String)> {
        let settled_ns = self.ends.last().map_or(i64::MIN, |end| end.age_ns);
        let is_settled = now_ns.saturating_sub(settled_ns) >= SETTLE_NS;
        if !self.controller.is_idle() || !is_settled {
            return None;
        }
        let servers = &self.controller.record().map.servers;
        let is_out = |number: &u32| !servers.contains(&ProcessId::from(*number));
        let out = self.out.keys().filter(|number| is_out(number)).count();
        let most_out = ((servers.len() + out) / OUT_PARTS).max(1);
        let slow = self.slowest.filter(|(slow, seen_ns)| {
            let is_fresh = now_ns.saturating_sub(*seen_ns) < SETTLE_NS;
            is_fresh && servers.contains(&slow.server) && servers.len() > SERVERS_MIN
        });
        if let (Some((slow, _)), true) = (slow, out < most_out) {
            let server = u32::try_from(slow.server).ok()?;
            let change = MapChange {
                remove: vec![server],
                ..MapChange::default()
            };
            let why = format!(
                "server {server} was {:.1} times slower than its peers",
                slow.ratio
            );
            return Some((change, why));
        }
        let mut due = self.out.iter();
        let due = due.find(|(number, out)| {
            out.until_ns <= now_ns && is_out(number) && self.servers.contains_key(number)
        });
        let (server, _) = due?;
        let change = MapChange {
            add: vec![*server],
            ..MapChange::default()
        };
        Some((change, format!("server {server} is tried again")))
    }
}
