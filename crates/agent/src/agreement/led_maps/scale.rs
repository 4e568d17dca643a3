//! Slow servers are taken out of maps, and tried again after a while: as decisions, which are
//! carried out unless the controller is in a dry run, and taken back where they show no effect.

use std::collections::BTreeSet;

use barograph_control::{
    Alternative, ControlMode, Decision, DecisionOutcome, HOLD_OFF_NS, ProcessId, ScaleFinding,
    SlowServer,
};
use barograph_model::{NS_PER_S, cut};

use super::led_map::LedMap;
use super::out::{OUT_DOUBLINGS, OUT_NS, ScaleDecision, TakenOut};
use super::{ChangeBy, LedMaps};
use crate::controller_words::{MapChange, MapKey};
use crate::decisions::{ControllerMode, HoldOff, KeptDecision};
use crate::server_maps::{AskedOfMaps, MapControl};

/// Time after a change before the leader changes a map by itself.
const SETTLE_NS: i64 = 5 * NS_PER_S;
/// Time for which a server counts as slow after it was found to be.
const SEEN_NS: i64 = 10 * NS_PER_S;
/// At most one of so many servers is out at a time, and so many always stay.
const OUT_PARTS: usize = 4;
const SERVERS_MIN: usize = 2;
/// Time after which a server that is still slow is told of again.
const TOLD_AGAIN_NS: i64 = 60 * NS_PER_S;
/// What is observed of the effect.
const MEASURE: &str = "operations/s of the map's members, before and without the server";

/// What is to be done with a map, and why.
struct Scaling {
    change: MapChange,
    why: String,
    /// The server that was found to be slow.
    slow: Option<SlowServer>,
}

impl LedMaps {
    /// Takes a slow server out of a map, or tries one again; returns the time of the next look.
    pub(super) fn scale(&mut self, key: &MapKey, asked: &AskedOfMaps, now_ns: i64) -> i64 {
        let Some(map) = self.maps.get_mut(key) else {
            return i64::MAX;
        };
        if let Some(finding) = map.load.advance(now_ns) {
            map.judge(&finding, &self.control);
        }
        map.take_asked(asked);
        map.tell_slow(&self.control, now_ns);
        let next_ns = map.load.next_ns();
        let mode = self.control.mode();
        let scaling = map.scaling(mode, now_ns);
        // What cannot be carried out at present is no decision: it is looked at again.
        let Some(scaling) = scaling.filter(|it| map.check_change(&it.change).is_ok()) else {
            return next_ns;
        };
        let mode = match mode {
            Some(ControllerMode::DryRun) if scaling.slow.is_some() => ControlMode::DryRun,
            _ => ControlMode::Live,
        };
        let id = map.decide(key, &scaling, mode, &self.control);
        if mode == ControlMode::DryRun {
            let until_ns = now_ns.saturating_add(OUT_NS);
            let out = scaling.change.remove.iter();
            map.dry.extend(out.map(|server| (*server, until_ns)));
            return next_ns;
        }
        let before = map.out.clone();
        map.note_out(&scaling.change, id, now_ns);
        let by = ChangeBy::Leader(ScaleDecision {
            id,
            told: Some(scaling.why),
            takes_out: scaling.slow.and_then(|slow| {
                let windows = usize::try_from(slow.windows).unwrap_or(usize::MAX);
                Some((u32::try_from(slow.server).ok()?, windows))
            }),
        });
        if let Err(reason) = self.begin_change(key, &scaling.change, by, now_ns) {
            self.control.amend(id, |decision, _| {
                decision.outcome = DecisionOutcome::Failed { reason };
            });
            if let Some(map) = self.maps.get_mut(key) {
                // It is looked at again later, and not all the time.
                map.begun_ns = now_ns;
                map.out = before;
            }
        }
        next_ns
    }
}

impl LedMap {
    /// Takes in what was found of the effect of a server that is out.
    fn judge(&mut self, finding: &ScaleFinding, control: &MapControl) {
        let mut out = self.out.iter_mut();
        let Some((server, out)) = out.find(|(_, out)| out.on_trial) else {
            return;
        };
        out.on_trial = false;
        if let Some(id) = out.decision {
            control.amend(id, |decision, now_ns| {
                let (before, after) = (finding.before.1, finding.after.1);
                decision.observe(now_ns, MEASURE, before, after);
                let told = decision.clone();
                *decision = told.input("chance_of_no_effect", finding.chance);
            });
        }
        if !finding.is_effective {
            let why = format!("its absence has no effect: {}", finding.sentence());
            self.wanted_back.insert(*server, why);
        }
    }

    /// Publishes that a server is slow, now and then.
    fn tell_slow(&mut self, control: &MapControl, now_ns: i64) {
        let Some((slow, _)) = self.slowest_now(now_ns) else {
            return;
        };
        let was_told = self.slow_told.is_some_and(|(server, told_ns)| {
            server == slow.server && now_ns.saturating_sub(told_ns) < TOLD_AGAIN_NS
        });
        if !was_told {
            self.slow_told = Some((slow.server, now_ns));
            let confidence = (1.0 - slow.false_alarms).max(0.0);
            control.publish("io.server.slow", slow.ratio, confidence);
        }
    }

    /// The server that is slower than its peers, as far as that was seen lately.
    pub(super) fn slowest_now(&self, now_ns: i64) -> Option<(SlowServer, i64)> {
        let is_fresh = |seen_ns: i64| now_ns.saturating_sub(seen_ns) < SEEN_NS;
        self.slowest.filter(|(_, seen_ns)| is_fresh(*seen_ns))
    }

    /// Takes in what people have asked for.
    fn take_asked(&mut self, asked: &AskedOfMaps) {
        if asked.resumes {
            self.load.effect.resume();
            self.dry.clear();
        }
        for (server, out) in &self.out {
            let reverted = asked.reverts.iter();
            let reverted = reverted.filter(|(id, _)| out.decision == Some(*id));
            let mut why = reverted.map(|(_, why)| why).chain(&asked.takes_back);
            if let Some(why) = why.next() {
                self.wanted_back.insert(*server, why.clone());
            }
        }
    }

    fn is_out(&self, server: u32) -> bool {
        let servers = &self.controller.record().map.servers;
        !servers.contains(&ProcessId::from(server))
    }

    /// The servers that were taken out and are not in the map again.
    pub(super) fn servers_out(&self) -> impl Iterator<Item = u32> + '_ {
        let out = self.out.keys().copied();
        out.filter(|server| self.is_out(*server))
    }

    /// What is to be done by itself, and why.
    fn scaling(&self, mode: Option<ControllerMode>, now_ns: i64) -> Option<Scaling> {
        let since_ns = self.ends.last().map_or(i64::MIN, |end| end.age_ns);
        let since_ns = since_ns.max(self.begun_ns);
        let is_settled = now_ns.saturating_sub(since_ns) >= SETTLE_NS;
        if !self.controller.is_idle() || !is_settled {
            return None;
        }
        let is_there = |server: &u32| self.servers.contains_key(server);
        let wanted = self
            .wanted_back
            .iter()
            .find(|(server, _)| self.is_out(**server) && is_there(server));
        if let Some((server, why)) = wanted {
            return Some(Scaling::adds(
                *server,
                format!("server {server} is wanted back: {why}"),
            ));
        }
        // A dry run takes nothing out, and tries again what is out.
        mode?;
        if let Some(slow) = self.slow_to_take_out(now_ns) {
            return Some(slow);
        }
        let due = |(server, out): &(&u32, &TakenOut)| {
            out.until_ns <= now_ns && self.is_out(**server) && is_there(server)
        };
        let (server, _) = self.out.iter().find(due)?;
        Some(Scaling::adds(
            *server,
            format!("server {server} is tried again"),
        ))
    }

    fn slow_to_take_out(&self, now_ns: i64) -> Option<Scaling> {
        let servers = &self.controller.record().map.servers;
        let (slow, seen_ns) = self.slowest?;
        let server = u32::try_from(slow.server).ok()?;
        let out = self.servers_out().count();
        let most_out = ((servers.len() + out) / OUT_PARTS).max(1);
        let is_fresh = now_ns.saturating_sub(seen_ns) < SETTLE_NS;
        let is_said = self
            .dry
            .get(&server)
            .is_some_and(|until_ns| now_ns < *until_ns);
        let is_held = self.load.effect.held_until(now_ns).is_some();
        let may_go = servers.contains(&slow.server) && servers.len() > SERVERS_MIN;
        if !is_fresh || !may_go || out >= most_out || is_said || is_held {
            return None;
        }
        Some(Scaling {
            change: MapChange {
                remove: vec![server],
                ..MapChange::default()
            },
            why: format!(
                "server {server} was {:.1} times slower than its peers",
                slow.ratio
            ),
            slow: Some(slow),
        })
    }

    /// Keeps the decision to do something; returns its number.
    fn decide(
        &self,
        key: &MapKey,
        scaling: &Scaling,
        mode: ControlMode,
        control: &MapControl,
    ) -> u64 {
        let servers = self.servers_after(&scaling.change);
        let mut decision = self.decision(key, &servers, &scaling.why, control);
        if let Some(slow) = &scaling.slow {
            decision = decision
                .input("server", slow.server as f64)
                .input("times_slower", slow.ratio)
                .input("windows", f64::from(slow.windows))
                .input("servers_compared", slow.servers as f64)
                .input("false_alarms_per_window", slow.false_alarms)
                .alternative(&Alternative {
                    what: format!("server {} stays in the map", slow.server),
                    why_not: "operations that it takes part in wait for it".into(),
                });
        }
        if let Some(operations_s) = self.load.effect.operations_s() {
            decision = decision.input("operations_per_s", operations_s);
        }
        decision.carry_out(mode, |_| Ok(under_way()));
        self.keep(key, decision, control)
    }

    fn decision(
        &self,
        key: &MapKey,
        servers: &BTreeSet<ProcessId>,
        why: &str,
        control: &MapControl,
    ) -> Decision {
        let before = &self.controller.record().map;
        control
            .decision(&key.1, servers.len(), why)
            .input("epoch", before.epoch as f64)
            .input("servers", &*numbers(before.servers.iter()))
            .input("servers_after", &*numbers(servers.iter()))
            .input("nodes", self.nodes.len() as f64)
    }

    fn keep(&self, (user, name): &MapKey, decision: Decision, control: &MapControl) -> u64 {
        let id = decision.id;
        control.keep(KeptDecision {
            uid: Some(*user),
            device: cut(name.clone(), 64),
            label: self.application.clone(),
            plan: id,
            decision,
        });
        id
    }

    /// Keeps a change that was asked for as a decision of whoever asked.
    pub(super) fn asked_change(
        &mut self,
        change: &MapChange,
        from: &str,
        control: &MapControl,
    ) -> ScaleDecision {
        let key = (self.order.user, self.order.name.clone());
        let servers = self.servers_after(change);
        let why = format!("it was asked for on node {from}");
        let mut decision = self.decision(&key, &servers, &why, control);
        decision.outcome = under_way();
        let id = self.keep(&key, decision, control);
        for server in change.add.iter().chain(&change.remove) {
            self.slow.forget(ProcessId::from(*server));
            // People know better than the leader: what they take out, it does not add again.
            self.out.remove(server);
            self.wanted_back.remove(server);
        }
        ScaleDecision {
            id,
            told: None,
            takes_out: None,
        }
    }

    /// Notes which servers are out by a change that is begun.
    fn note_out(&mut self, change: &MapChange, decision: u64, now_ns: i64) {
        let times = |server: &u32| self.out.get(server).map_or(0, |out| out.times);
        let taken = change.remove.first().map(|server| (*server, times(server)));
        let tried = change.add.first().map(|server| (*server, times(server)));
        if let Some((server, times)) = taken {
            let wait_ns = OUT_NS.saturating_mul(1 << times.min(OUT_DOUBLINGS));
            let out = TakenOut {
                until_ns: now_ns.saturating_add(wait_ns),
                times: times + 1,
                decision: Some(decision),
                on_trial: false,
            };
            self.out.insert(server, out);
        }
        if let Some((server, times)) = tried {
            self.slow.forget(ProcessId::from(server));
            // How often it was out is remembered while it is tried, and the decision that took it
            // out until this change is over.
            let out = TakenOut {
                until_ns: now_ns.saturating_add(OUT_NS),
                times,
                decision: self.out.get(&server).and_then(|out| out.decision),
                on_trial: false,
            };
            self.out.insert(server, out);
        }
    }

    /// Writes into a decision what came of its change.
    pub(super) fn settle(
        &mut self,
        decision: ScaleDecision,
        aborted: Option<&str>,
        control: &MapControl,
        now_ns: i64,
    ) {
        let epoch = self.controller.record().map.epoch as f64;
        if let Some(reason) = aborted {
            let reason = reason.to_owned();
            control.amend(decision.id, |decision, _| {
                decision.outcome = DecisionOutcome::Failed { reason };
            });
            control.publish("io.epoch.aborted", epoch, 1.0);
            if let Some((server, _)) = decision.takes_out {
                self.out.remove(&server);
            }
            return;
        }
        control.amend(decision.id, |decision, _| decision.resume());
        control.publish("io.epoch.changed", epoch, 1.0);
        match decision.takes_out {
            Some((server, windows)) => {
                let on_trial = self.load.effect.begin_trial(windows);
                // A trial before this one ends without a finding.
                self.out.values_mut().for_each(|out| out.on_trial = false);
                if let Some(out) = self.out.get_mut(&server) {
                    out.on_trial = on_trial;
                }
            }
            None => self.load.effect.end_trial(),
        }
        self.settle_returned(control, now_ns);
    }

    /// Notes in their decisions that servers are in the map again.
    fn settle_returned(&mut self, control: &MapControl, now_ns: i64) {
        let servers = &self.controller.record().map.servers;
        for (server, out) in &mut self.out {
            if !servers.contains(&ProcessId::from(*server)) {
                continue;
            }
            out.on_trial = false;
            let wanted = self.wanted_back.remove(server);
            // One that was tried after its time stays in the record as it was done.
            if let (Some(id), Some(why)) = (out.decision.take(), wanted) {
                control.amend(id, |decision, _| decision.revert(&why));
                // Its absence was not what was wanted: how often it was out counts for nothing.
                out.times = 0;
                out.until_ns = now_ns;
            }
        }
        self.out
            .retain(|server, out| out.times > 0 || !servers.contains(&ProcessId::from(*server)));
    }

    /// The decisions that can be taken back.
    pub(super) fn in_effect(&self) -> impl Iterator<Item = u64> + '_ {
        let out = self.out.iter().filter(|(server, _)| self.is_out(**server));
        out.filter_map(|(_, out)| out.decision)
    }

    /// What is held off, since it has shown no effect.
    pub(super) fn hold_off(&self, now_ns: i64, control: &MapControl) -> Option<HoldOff> {
        let until_ns = self.load.effect.held_until(now_ns)?;
        let finding = self.load.effect.last().map(ScaleFinding::sentence);
        Some(HoldOff {
            what: "taking servers out of a map".into(),
            until_ns: control.wall_ns_of(until_ns),
            reason: finding.unwrap_or_default(),
            is_whole: false,
        })
    }

    /// What is done with the map, as a sentence.
    pub(super) fn sentence(&self, name: &str, now_ns: i64) -> String {
        let servers = &self.controller.record().map.servers;
        let out: Vec<ProcessId> = self.servers_out().map(ProcessId::from).collect();
        let out = match out.is_empty() {
            true => String::new(),
            false => format!("; taken out, since slow: {}", numbers(out.iter())),
        };
        let slow = self.slowest_now(now_ns);
        let slow = slow.map_or_else(String::new, |(slow, _)| {
            format!(
                "; server {} is {:.1} times slower than its peers",
                slow.server, slow.ratio
            )
        });
        let effect = match (self.load.effect.last(), self.load.effect.is_on_trial()) {
            (_, true) => "; what its absence gives is being observed".to_owned(),
            (Some(finding), _) => {
                format!("; the last one that was taken out: {}", finding.sentence())
            }
            (None, _) => String::new(),
        };
        let held = match self.load.effect.held_until(now_ns) {
            Some(until_ns) => format!(
                "; none is taken out for {} of {} s more",
                until_ns.saturating_sub(now_ns) / NS_PER_S,
                HOLD_OFF_NS / NS_PER_S
            ),
            None => String::new(),
        };
        let count = servers.len();
        format!("map {name} has {count} servers{out}{slow}{effect}{held}")
    }
}

impl Scaling {
    fn adds(server: u32, why: String) -> Self {
        Self {
            change: MapChange {
                add: vec![server],
                ..MapChange::default()
            },
            why,
            slow: None,
        }
    }
}

fn under_way() -> DecisionOutcome {
    DecisionOutcome::Deferred {
        reason: "its change of the map is under way".into(),
    }
}

/// The numbers of servers as text, as many as a decision has room for.
fn numbers<'a>(servers: impl Iterator<Item = &'a ProcessId>) -> String {
    let numbers: Vec<String> = servers.map(ToString::to_string).collect();
    numbers.join(", ")
}
