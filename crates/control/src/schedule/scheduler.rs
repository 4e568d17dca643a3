//! The scheduler of one storage: it knows the phases that have begun, asks the policy, and gives
//! grants for a time.
//!
//! A grant is a lease. Who has one tells now and then that it is still at work and how much it has
//! done; who does not is taken for dead, so that nobody waits for it. Who waits for longer than it
//! wants to goes on without a grant, and says so: then it counts as one that is served, and the
//! policy knows what shares the storage. Nobody is held up by a policy that starves it: who has
//! waited for too long is served beside the others, one phase of each user at a time, and that is
//! counted.

use std::collections::{BTreeMap, BTreeSet};

use super::terms::{BeginRefusal, PhaseBegin, PhaseState, SchedulerCounts, TakeBackRefusal};
use super::{
    ApplicationHistory, IoPhase, PhaseGrant, SchedulePlan, SchedulePolicy, ScheduleState,
    UserShares, UserStanding, nanoseconds, offered_load, seconds,
};

/// An application that was not seen for so many of its periods has ended.
const PERIODS_SEEN_MAX: f64 = 8.0;
/// The same in seconds, where its period is not known.
const UNKNOWN_SEEN_S_MAX: f64 = 3_600.0;
/// Most applications whose past is known; of the user that has the most, the one that was seen
/// least recently is forgotten.
const APPLICATIONS_MAX: usize = 4_096;
/// The offered load of so many applications is computed for each plan; that of more at most once
/// in [`LOAD_NS`].
const LOAD_APPLICATIONS: usize = 64;
/// See [`LOAD_APPLICATIONS`].
const LOAD_NS: i64 = 1_000_000_000;

/// The settings of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SchedulerConfig {
    /// The rule by which phases share the storage.
    pub policy: SchedulePolicy,
    /// Bytes/s of the storage when one phase alone uses it.
    pub bandwidth: f64,
    /// The time in ns after which a phase of which nothing was heard has ended.
    pub lease_ns: i64,
    /// A phase that has waited so many times as long as it takes alone, and for
    /// [`Self::starved_ns`], is served beside the others; of each user one at a time, and none of a
    /// user that is ahead of its share.
    pub starved_slowdown: f64,
    /// See [`Self::starved_slowdown`].
    pub starved_ns: i64,
    /// Most phases at a time.
    pub phases_max: usize,
    /// Most phases of one user at a time.
    pub phases_of_user_max: usize,
    /// Whether [`IoScheduler::step`] alone plans, once for all that has happened since the last
    /// one.
    pub plans_in_steps: bool,
}

impl SchedulerConfig {
    /// The usual bounds, for a policy and a storage: leases of 10 s, and help for who has waited
    /// 100 times as long as it takes alone, and for a minute.
    pub fn new(policy: SchedulePolicy, bandwidth: f64) -> Self {
        Self {
            policy,
            bandwidth,
            lease_ns: 10_000_000_000,
            starved_slowdown: 100.0,
            starved_ns: 60_000_000_000,
            phases_max: 10_000,
            phases_of_user_max: 1_000,
            plans_in_steps: false,
        }
    }

    /// The time from which on a phase has waited for too long; `None` if it has a grant, or was
    /// helped.
    fn starves_ns(&self, held: &Held) -> Option<i64> {
        let phase = &held.phase;
        if held.is_starved || phase.granted_ns.is_some() {
            return None;
        }
        let most_s = self.starved_slowdown * phase.alone_s(self.bandwidth);
        let most_ns = nanoseconds(most_s - phase.left_s(self.bandwidth));
        let slow_ns = phase.begun_ns.saturating_add(most_ns);
        Some(slow_ns.max(phase.waiting_ns.saturating_add(self.starved_ns)))
    }
}

#[derive(Clone, Debug)]
struct Held {
    phase: IoPhase,
    until_ns: i64,
    /// Whether it does I/O whatever the policy says.
    is_alone: bool,
    is_starved: bool,
    /// Whether it stops when its grant is taken away.
    yields: bool,
    /// Whether its grant was taken back: others are served first, until one of them has ended.
    is_put_back: bool,
}

/// The scheduler of one storage.
#[derive(Clone, Debug)]
pub struct IoScheduler {
    config: SchedulerConfig,
    phases: BTreeMap<u64, Held>,
    /// By user and application, so that nobody spoils what is known of another user's, with the
    /// time at which each was seen last.
    histories: BTreeMap<(u32, u64), (ApplicationHistory, i64)>,
    /// Open phases of each user.
    of_users: BTreeMap<u32, usize>,
    shares: UserShares,
    /// Phases that do I/O whatever the policy says.
    beside: BTreeSet<u64>,
    /// Users of whom a phase is served since it has waited for too long.
    helped: BTreeSet<u32>,
    plan: SchedulePlan,
    /// Whether something has happened since the plan.
    is_stale: bool,
    /// The number of plans so far.
    plans: u64,
    /// No lease ends, and nobody has waited for too long, before this time.
    quiet_until_ns: i64,
    /// The offered load, and the time of it.
    load: Option<(Option<f64>, i64)>,
    /// Phases whose leases were over in the last step.
    expired: Vec<u64>,
    /// Phases that have waited for too long, as of the last survey, with their users.
    starving: Vec<(u32, u64)>,
    last_id: u64,
    counts: SchedulerCounts,
}

impl IoScheduler {
    /// A scheduler without phases.
    pub fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            phases: BTreeMap::new(),
            histories: BTreeMap::new(),
            of_users: BTreeMap::new(),
            shares: UserShares::default(),
            beside: BTreeSet::new(),
            helped: BTreeSet::new(),
            plan: SchedulePlan {
                grants: Vec::new(),
                until_ns: None,
                is_new_turn: false,
                by: config.policy.name(),
            },
            is_stale: false,
            plans: 0,
            quiet_until_ns: i64::MIN,
            load: None,
            expired: Vec::new(),
            starving: Vec::new(),
            last_id: 0,
            counts: SchedulerCounts::default(),
        }
    }

    /// What has happened so far.
    pub fn counts(&self) -> SchedulerCounts {
        self.counts
    }

    /// The number of plans so far: while it stays, no phase has another state.
    pub fn plans(&self) -> u64 {
        self.plans
    }

    /// How far users are ahead of their shares, as of the last change.
    pub fn shares(&self) -> &UserShares {
        &self.shares
    }

    /// The plan that holds.
    pub fn current(&self) -> &SchedulePlan {
        &self.plan
    }

    /// Begins a phase, and returns its number.
    ///
    /// # Errors
    ///
    /// It is not scheduled, and its I/O goes on.
    pub fn begin(&mut self, begin: &PhaseBegin, now_ns: i64) -> Result<u64, BeginRefusal> {
        let of_user = self.of_users.get(&begin.user).copied().unwrap_or(0);
        let refusal = match () {
            () if of_user >= self.config.phases_of_user_max => Some(BeginRefusal::TooManyOfUser),
            () if self.phases.len() >= self.config.phases_max => Some(BeginRefusal::TooMany),
            () => None,
        };
        if let Some(refusal) = refusal {
            self.counts.refused += 1;
            return Err(refusal);
        }
        let history = self.history((begin.user, begin.application), now_ns);
        history.begin(seconds(now_ns));
        let period = history.period();
        self.last_id += 1;
        self.counts.begun += 1;
        let id = self.last_id;
        let held = Held {
            phase: IoPhase {
                id,
                application: begin.application,
                user: begin.user,
                begun_ns: now_ns,
                bytes: begin.bytes,
                bytes_done: 0,
                granted_ns: None,
                waiting_ns: now_ns,
                priority: begin.priority,
                period,
            },
            until_ns: now_ns.saturating_add(self.config.lease_ns),
            is_alone: false,
            is_starved: false,
            yields: begin.yields,
            is_put_back: false,
        };
        let starves_ns = self.config.starves_ns(&held).unwrap_or(i64::MAX);
        let quiet_ns = held.until_ns.min(starves_ns);
        self.quiet_until_ns = self.quiet_until_ns.min(quiet_ns);
        self.phases.insert(id, held);
        self.of_users.insert(begin.user, of_user + 1);
        self.shares.begin(begin.user, begin.priority, now_ns);
        self.change(now_ns);
        Ok(id)
    }

    /// Takes in that a phase is still there, how much it has done, and whether it does I/O without
    /// a grant; returns what it may do.
    pub fn renew(&mut self, id: u64, bytes_done: u64, is_alone: bool, now_ns: i64) -> PhaseState {
        let until_ns = now_ns.saturating_add(self.config.lease_ns);
        let Some(held) = self.phases.get_mut(&id) else {
            return PhaseState::Unknown;
        };
        held.until_ns = until_ns;
        // A clock that goes back.
        self.quiet_until_ns = self.quiet_until_ns.min(until_ns);
        held.phase.bytes_done = held.phase.bytes_done.max(bytes_done);
        if is_alone && !held.is_alone {
            held.is_alone = true;
            self.beside.insert(id);
            self.counts.went_alone += 1;
            self.change(now_ns);
        }
        self.state(id)
    }

    /// Takes in that a phase will read and write more than it has said.
    pub fn declare_more(&mut self, id: u64, bytes: u64) {
        if let Some(held) = self.phases.get_mut(&id) {
            let declared = held.phase.bytes.unwrap_or(0);
            held.phase.bytes = Some(declared.saturating_add(bytes));
        }
    }

    /// Takes in that a phase stops when its grant is taken away.
    pub fn set_yields(&mut self, id: u64) {
        if let Some(held) = self.phases.get_mut(&id) {
            held.yields = true;
        }
    }

    /// Takes a grant back: the phase waits from its next word on, until another phase has ended.
    ///
    /// # Errors
    ///
    /// The phase goes on.
    pub fn take_back(&mut self, id: u64, now_ns: i64) -> Result<(), TakeBackRefusal> {
        let is_waiting = |held: &&Held| held.phase.granted_ns.is_none();
        let others_wait = self.phases.values().any(|held| is_waiting(&held));
        let held = self.phases.get_mut(&id).filter(|it| !is_waiting(&&**it));
        let held = held.ok_or(TakeBackRefusal::NoGrant)?;
        if !held.yields || held.is_alone {
            return Err(TakeBackRefusal::NeverStops);
        }
        if !others_wait {
            return Err(TakeBackRefusal::NobodyWaits);
        }
        held.is_put_back = true;
        held.is_starved = false;
        self.change(now_ns);
        Ok(())
    }

    /// Lets phases be served in their own order again whose grants were taken back.
    fn forget_put_back(&mut self) {
        self.phases
            .values_mut()
            .for_each(|held| held.is_put_back = false);
    }

    /// What is known of a phase.
    pub fn phase(&self, id: u64) -> Option<&IoPhase> {
        self.phases.get(&id).map(|held| &held.phase)
    }

    /// The share of the storage's time that all applications need, as far as that is known.
    pub fn load(&self, now_ns: i64) -> Option<f64> {
        let is_current = |(history, seen_ns): &&(ApplicationHistory, i64)| {
            let period = history.period();
            let most_s = period.map_or(UNKNOWN_SEEN_S_MAX, |it| it.seconds * PERIODS_SEEN_MAX);
            seconds(now_ns.saturating_sub(*seen_ns)) <= most_s
        };
        let histories = self.histories.values().filter(is_current);
        offered_load(histories.map(|(history, _)| history))
    }

    /// What a phase may do.
    pub fn state(&self, id: u64) -> PhaseState {
        let Some(held) = self.phases.get(&id) else {
            return PhaseState::Unknown;
        };
        let until_ns = held.until_ns;
        match self.plan.grants.iter().find(|grant| grant.id == id) {
            Some(grant) => PhaseState::Granted {
                share: grant.share,
                until_ns,
            },
            None => PhaseState::Waiting { until_ns },
        }
    }

    /// Ends a phase. One that is not known any more changes nothing: it was ended twice, or its
    /// lease was over.
    pub fn end(&mut self, id: u64, bytes_done: u64, now_ns: i64) {
        let Some(phase) = self.remove(id, now_ns) else {
            return;
        };
        self.counts.ended += 1;
        self.forget_put_back();
        let alone_s = phase.bytes_done.max(bytes_done) as f64 / self.config.bandwidth;
        let history = self.history((phase.user, phase.application), now_ns);
        history.end(seconds(now_ns), alone_s);
        self.change(now_ns);
    }

    /// Does what is due at a time; returns the time of the next step, `None` without phases.
    pub fn step(&mut self, now_ns: i64) -> Option<i64> {
        self.expired.clear();
        let plan_ns = self.plan.until_ns;
        let is_due = plan_ns.is_some_and(|until_ns| now_ns >= until_ns);
        if is_due || self.is_stale || now_ns >= self.quiet_until_ns {
            self.survey(now_ns);
            if is_due || self.is_stale || self.starving.iter().any(|it| self.is_helped(it.0)) {
                self.replan(now_ns);
            }
        }
        let next_ns = self.plan.until_ns.unwrap_or(i64::MAX);
        let next_ns = next_ns.min(self.quiet_until_ns);
        (!self.phases.is_empty()).then(|| next_ns.max(now_ns.saturating_add(1)))
    }

    /// The phases whose leases were over in the last step.
    pub fn expired(&self) -> &[u64] {
        &self.expired
    }

    /// Forgets phases whose leases are over, and notes who has waited for too long.
    fn survey(&mut self, now_ns: i64) {
        self.quiet_until_ns = i64::MAX;
        self.starving.clear();
        for (id, held) in &self.phases {
            if held.until_ns <= now_ns {
                self.expired.push(*id);
                continue;
            }
            self.quiet_until_ns = self.quiet_until_ns.min(held.until_ns);
            match self.config.starves_ns(held) {
                Some(at_ns) if at_ns > now_ns => {
                    self.quiet_until_ns = self.quiet_until_ns.min(at_ns);
                }
                Some(_) => self.starving.push((held.phase.user, *id)),
                None => {}
            }
        }
        if !self.expired.is_empty() {
            self.is_stale = true;
            self.forget_put_back();
        }
        self.counts.expired += self.expired.len() as u64;
        for at in 0..self.expired.len() {
            self.remove(self.expired[at], now_ns);
        }
        self.shares.settle(now_ns);
    }

    /// Whether a phase of a user that has waited for too long is served beside the others: if the
    /// user is not ahead, and no other phase of it is.
    fn is_helped(&self, user: u32) -> bool {
        self.shares.standing(user) == UserStanding::Within && !self.helped.contains(&user)
    }

    /// Plans anew, now or at the next step.
    fn change(&mut self, now_ns: i64) {
        self.is_stale = true;
        if !self.config.plans_in_steps {
            self.replan(now_ns);
        }
    }

    fn replan(&mut self, now_ns: i64) {
        self.is_stale = false;
        self.plans += 1;
        self.shares.settle(now_ns);
        let offered_load = self.recent_load(now_ns);
        let held: Vec<u64> = self.plan.grants.iter().map(|grant| grant.id).collect();
        let others = self.phases.values().filter(|held| !held.is_put_back);
        let phases: Vec<IoPhase> = others.map(|held| held.phase.clone()).collect();
        self.plan = self.config.policy.plan(&ScheduleState {
            now_ns,
            bandwidth: self.config.bandwidth,
            phases: &phases,
            users: &self.shares,
            offered_load,
        });
        self.keep_holders(&held);
        self.help();
        self.add_beside();
        self.follow(&held, now_ns);
    }

    /// Notes what the plan means for phases and for users.
    fn follow(&mut self, before: &[u64], now_ns: i64) {
        let plan = &self.plan;
        let granted: BTreeSet<u64> = plan.grants.iter().map(|grant| grant.id).collect();
        for id in before.iter().filter(|id| !granted.contains(id)) {
            if let Some(held) = self.phases.get_mut(id) {
                held.phase.wait(now_ns);
                let starves_ns = self.config.starves_ns(held).unwrap_or(i64::MAX);
                self.quiet_until_ns = self.quiet_until_ns.min(starves_ns);
            }
        }
        let phases = &mut self.phases;
        let served = plan.grants.iter().filter_map(|grant| {
            let phase = &mut phases.get_mut(&grant.id)?.phase;
            phase.grant(plan.is_new_turn, now_ns);
            Some((phase.user, grant.share))
        });
        let far_ns = self.shares.follow(served);
        let times = self.plan.until_ns.into_iter().chain(far_ns);
        self.plan.until_ns = times.min();
    }

    /// Marks those who have waited for too long, the one that began first of each user.
    fn help(&mut self) {
        for (user, id) in std::mem::take(&mut self.starving) {
            if !self.is_helped(user) {
                continue;
            }
            if let Some(held) = self.phases.get_mut(&id) {
                held.is_starved = true;
                self.helped.insert(user);
                self.beside.insert(id);
                self.counts.starved += 1;
            }
        }
    }

    fn remove(&mut self, id: u64, now_ns: i64) -> Option<IoPhase> {
        let held = self.phases.remove(&id)?;
        let user = held.phase.user;
        if let Some(count) = self.of_users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&user);
            }
        }
        if held.is_starved {
            self.helped.remove(&user);
        }
        self.beside.remove(&id);
        let grant = self.plan.grants.iter().find(|grant| grant.id == id);
        let served = grant.map_or(0.0, |grant| grant.share);
        self.shares.end(user, held.phase.priority, served, now_ns);
        Some(held.phase)
    }

    /// Leaves the grant to those who have one and do not stop for others; the policy's choice has
    /// the places that are left.
    fn keep_holders(&mut self, before: &[u64]) {
        let keeps = |held: &Held| !held.yields && !held.is_alone && held.phase.granted_ns.is_some();
        let kept = before.iter().copied();
        let kept: Vec<u64> = kept
            .filter(|id| self.phases.get(id).is_some_and(keeps))
            .collect();
        let granted: BTreeSet<u64> = self.plan.grants.iter().map(|grant| grant.id).collect();
        if kept.iter().all(|id| granted.contains(id)) {
            return;
        }
        let places = self.plan.grants.len();
        let others = self.plan.grants.iter().filter(|it| !kept.contains(&it.id));
        let others = others.take(places.saturating_sub(kept.len()));
        let others: Vec<u64> = others.map(|it| it.id).collect();
        let ids: Vec<u64> = kept.into_iter().chain(others).collect();
        let share = 1.0 / ids.len() as f64;
        self.plan.grants = ids.into_iter().map(|id| PhaseGrant { id, share }).collect();
    }

    /// Adds grants for those who do I/O whatever the policy says, each with the share of one.
    fn add_beside(&mut self) {
        if self.beside.is_empty() {
            return;
        }
        let granted: BTreeSet<u64> = self.plan.grants.iter().map(|grant| grant.id).collect();
        let beside: Vec<u64> = self.beside.difference(&granted).copied().collect();
        let (planned, added) = (granted.len() as f64, beside.len() as f64);
        let all = planned + added;
        self.plan
            .grants
            .iter_mut()
            .for_each(|grant| grant.share *= planned / all);
        let share = 1.0 / all;
        self.plan
            .grants
            .extend(beside.into_iter().map(|id| PhaseGrant { id, share }));
    }

    /// The offered load of a plan.
    fn recent_load(&mut self, now_ns: i64) -> Option<f64> {
        let is_recent = |at_ns: i64| (0..LOAD_NS).contains(&now_ns.saturating_sub(at_ns));
        match self.load {
            Some((load, at_ns)) if self.histories.len() > LOAD_APPLICATIONS && is_recent(at_ns) => {
                load
            }
            _ => {
                let load = self.load(now_ns);
                self.load = Some((load, now_ns));
                load
            }
        }
    }

    fn history(&mut self, key: (u32, u64), now_ns: i64) -> &mut ApplicationHistory {
        if !self.histories.contains_key(&key) && self.histories.len() >= APPLICATIONS_MAX {
            self.forget_one();
        }
        let (history, seen_ns) = self.histories.entry(key).or_default();
        *seen_ns = now_ns;
        history
    }

    /// Forgets an application of the user that has the most.
    fn forget_one(&mut self) {
        let mut of_users: BTreeMap<u32, usize> = BTreeMap::new();
        for (user, _) in self.histories.keys() {
            *of_users.entry(*user).or_default() += 1;
        }
        let most = of_users.into_iter().max_by_key(|(_, count)| *count);
        let of_most = self.histories.iter();
        let of_most = of_most.filter(|((user, _), _)| most.is_some_and(|(most, _)| most == *user));
        let oldest = of_most.min_by_key(|(_, (_, seen_ns))| *seen_ns);
        if let Some(oldest) = oldest.map(|(key, _)| *key) {
            self.histories.remove(&oldest);
        }
    }
}
