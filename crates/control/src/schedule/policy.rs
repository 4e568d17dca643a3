//! The policies: pure functions from what is known to grants.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{IoPhase, PhaseGrant, SchedulePlan, ScheduleState, nanoseconds, seconds};

/// Shortest time of ageing, in seconds.
const AGEING_S_MIN: f64 = 1e-3;
/// The time of ageing of a phase whose period is not known, in seconds.
const AGEING_S: f64 = 100.0;

/// A rule by which phases of I/O share the storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SchedulePolicy {
    /// First come, first served, one at a time (CLARISSE's slides).
    Fcfs,
    /// One at a time, each for so long while others wait; then the one that has waited longest.
    RoundRobin {
        /// Seconds of a turn.
        turn_s: f64,
    },
    /// So many at a time, first come first served, with shares by their priorities.
    Fair {
        /// Most at a time.
        most: usize,
    },
    /// The phase that would take least alone, to its end.
    ShortestFirst,
    /// The phase that has least left. One that has waited for long counts as shorter, so none
    /// waits for ever.
    LeastLeft {
        /// A phase counts as half as long when it has waited for so many seconds, as a third after
        /// twice as many, and so on.
        ageing_s: f64,
    },
    /// The most important application; of several, the one that came first.
    Priority,
    /// The phase that has been slowed down most, by the time that it would take alone.
    WorstSlowdown {
        /// Seconds for which a phase keeps its grant, while others wait.
        turn_s: f64,
    },
    /// Applications whose periods have the same order of magnitude are a set: one at a time of each
    /// set, and sets share by the inverse of their periods (Set-10 of IO-Sets, Boito et al.).
    Set10 {
        /// Most sets at a time, those with the shortest periods first.
        most: usize,
        /// Whether the first of a set is the one that has least left, by its period, and ages as in
        /// [`Self::LeastLeft`]; otherwise the one that came first, as published.
        by_left: bool,
    },
    /// The one of the others that fits what is known.
    Adaptive(AdaptiveConfig),
}

/// When an adaptive policy follows which other one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveConfig {
    /// From this offered load on, [`SchedulePolicy::WorstSlowdown`].
    pub overload: f64,
    /// If the median variation of the periods is larger, or fewer than half of them
    /// are known, [`SchedulePolicy::Fair`].
    pub variation_max: f64,
    /// Most phases at a time when periods are not known well.
    pub fair_most: usize,
    /// Most sets at a time otherwise.
    pub sets_most: usize,
    /// Seconds of a turn in overload.
    pub turn_s: f64,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self {
            overload: 1.0,
            variation_max: 1.0,
            fair_most: 2,
            sets_most: 4,
            turn_s: 1.0,
        }
    }
}

impl SchedulePolicy {
    /// The name of the policy in decisions and on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::RoundRobin { .. } => "round-robin",
            Self::Fair { .. } => "fair",
            Self::ShortestFirst => "shortest-first",
            Self::LeastLeft { .. } => "least-left",
            Self::Priority => "priority",
            Self::WorstSlowdown { .. } => "worst-slowdown",
            Self::Set10 { by_left: false, .. } => "set-10",
            Self::Set10 { by_left: true, .. } => "set-10-least-left",
            Self::Adaptive(_) => "adaptive",
        }
    }

    /// Decides which phases may do I/O from now on: those of users that are ahead of their shares
    /// after those of the others ([`UserShares`](super::UserShares)), and of these by the rule.
    pub fn plan(&self, state: &ScheduleState<'_>) -> SchedulePlan {
        let all = state.phases.iter();
        let phases: Vec<&IoPhase> = match self {
            // Who is more important is not held back for others.
            Self::Priority => {
                let highest = all.clone().map(|phase| phase.priority).max();
                all.filter(|it| Some(it.priority) == highest).collect()
            }
            _ => all.collect(),
        };
        self.choose(state, &state.users.candidates(phases))
    }

    /// Decides among the phases that may be next.
    fn choose(&self, state: &ScheduleState<'_>, phases: &[&IoPhase]) -> SchedulePlan {
        let by = self.name();
        let planned = |grants: Vec<PhaseGrant>| SchedulePlan {
            grants,
            until_ns: None,
            is_new_turn: false,
            by,
        };
        let of = |phase: Option<&IoPhase>| planned(phase.into_iter().map(alone).collect());
        let all = || phases.iter().copied();
        match *self {
            Self::Fcfs => of(all().min_by(|a, b| earlier(a, b))),
            Self::RoundRobin { turn_s } => in_turns(state, phases, by, turn_s, |a, b| {
                let had_turn = a.granted_ns.is_some().cmp(&b.granted_ns.is_some());
                let waited = a.waiting_ns.cmp(&b.waiting_ns);
                had_turn.then(waited).then(a.id.cmp(&b.id))
            }),
            Self::Fair { most } => planned(fair(phases, most)),
            Self::ShortestFirst => {
                let holder = all().find(|it| it.granted_ns.is_some());
                of(holder.or_else(|| first_by(phases, |it| it.alone_s(state.bandwidth))))
            }
            Self::LeastLeft { ageing_s } => {
                of(first_by(phases, |phase| aged_s(state, phase, ageing_s)))
            }
            Self::Priority => of(all().min_by(|a, b| {
                let more = b.priority.cmp(&a.priority);
                more.then_with(|| earlier(a, b))
            })),
            Self::WorstSlowdown { turn_s } => in_turns(state, phases, by, turn_s, |a, b| {
                let slowdown = |phase: &IoPhase| phase.slowdown(state.now_ns, state.bandwidth);
                let worse = slowdown(b).total_cmp(&slowdown(a));
                worse.then_with(|| earlier(a, b))
            }),
            Self::Set10 { most, by_left } => planned(sets(state, phases, most, by_left)),
            Self::Adaptive(config) => config.choose(state).choose(state, phases),
        }
    }
}

impl AdaptiveConfig {
    /// The policy that fits what is known.
    pub fn choose(&self, state: &ScheduleState<'_>) -> SchedulePolicy {
        if state.offered_load.is_some_and(|load| load >= self.overload) {
            return SchedulePolicy::WorstSlowdown {
                turn_s: self.turn_s,
            };
        }
        let periods = state.phases.iter().filter_map(|phase| phase.period);
        let mut variations: Vec<f64> = periods.map(|it| it.variation).collect();
        let is_known = variations.len() * 2 >= state.phases.len();
        let middle = variations.len() / 2;
        let median = (!variations.is_empty())
            .then(|| *variations.select_nth_unstable_by(middle, f64::total_cmp).1);
        match is_known && median.is_some_and(|it| it <= self.variation_max) {
            true => SchedulePolicy::Set10 {
                most: self.sets_most,
                by_left: true,
            },
            false => SchedulePolicy::Fair {
                most: self.fair_most,
            },
        }
    }
}

/// All of the storage for one phase.
fn alone(phase: &IoPhase) -> PhaseGrant {
    PhaseGrant {
        id: phase.id,
        share: 1.0,
    }
}

fn earlier(a: &IoPhase, b: &IoPhase) -> Ordering {
    a.begun_ns.cmp(&b.begun_ns).then(a.id.cmp(&b.id))
}

/// The phase of which a number is least.
fn first_by<'a>(phases: &[&'a IoPhase], number: impl Fn(&IoPhase) -> f64) -> Option<&'a IoPhase> {
    let numbered = phases.iter().map(|phase| (number(phase), *phase));
    let first = numbered.min_by(|a, b| least(*a, *b));
    first.map(|(_, phase)| phase)
}

/// The order by a number, and of equal ones by the begin.
fn least((of_a, a): (f64, &IoPhase), (of_b, b): (f64, &IoPhase)) -> Ordering {
    of_a.total_cmp(&of_b).then_with(|| earlier(a, b))
}

/// Seconds that a phase has left alone, divided by one more than the time since its begin has of
/// the time of ageing: so none waits for ever for shorter ones.
fn aged_s(state: &ScheduleState<'_>, phase: &IoPhase, ageing_s: f64) -> f64 {
    let since_s = seconds(state.now_ns.saturating_sub(phase.begun_ns)).max(0.0);
    phase.left_s(state.bandwidth) / (1.0 + since_s / ageing_s.max(AGEING_S_MIN))
}

/// The first phase by an order, one at a time, each for a turn while others wait.
fn in_turns(
    state: &ScheduleState<'_>,
    phases: &[&IoPhase],
    by: &'static str,
    turn_s: f64,
    order: impl Fn(&IoPhase, &IoPhase) -> Ordering,
) -> SchedulePlan {
    let turn_ns = nanoseconds(turn_s).max(1);
    let end_ns = |phase: &IoPhase| Some(phase.granted_ns?.saturating_add(turn_ns));
    let holder = phases
        .iter()
        .copied()
        .find(|it| end_ns(it).is_some_and(|end_ns| end_ns > state.now_ns));
    // One whose turn is over goes on only if nobody is before it.
    let next = holder.or_else(|| phases.iter().copied().min_by(|a, b| order(a, b)));
    let turn_end_ns = state.now_ns.saturating_add(turn_ns);
    let until_ns = holder.and_then(end_ns).unwrap_or(turn_end_ns);
    SchedulePlan {
        grants: next.into_iter().map(alone).collect(),
        until_ns: next.filter(|_| state.phases.len() > 1).map(|_| until_ns),
        is_new_turn: holder.is_none(),
        by,
    }
}

/// The first phases of all users before the second ones. Users share by the highest priorities of
/// theirs, and the phases of each by their own.
fn fair(phases: &[&IoPhase], most: usize) -> Vec<PhaseGrant> {
    let mut all: Vec<&IoPhase> = phases.to_vec();
    all.sort_by(|a, b| earlier(a, b));
    let mut of_users: BTreeMap<u32, usize> = BTreeMap::new();
    let ranked = all.into_iter().map(|phase| {
        let rank = of_users.entry(phase.user).or_default();
        *rank += 1;
        (*rank, phase)
    });
    let mut ranked: Vec<(usize, &IoPhase)> = ranked.collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.truncate(most.max(1));
    let weight = |phase: &IoPhase| f64::from(phase.priority.max(1));
    let mut weights: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for (_, phase) in &ranked {
        let (highest, sum) = weights.entry(phase.user).or_default();
        *highest = highest.max(weight(phase));
        *sum += weight(phase);
    }
    shared(ranked.into_iter().map(|(_, phase)| {
        let (highest, sum) = weights.get(&phase.user).copied().unwrap_or((1.0, 1.0));
        (phase, highest * weight(phase) / sum)
    }))
}

fn sets(
    state: &ScheduleState<'_>,
    phases: &[&IoPhase],
    most: usize,
    by_left: bool,
) -> Vec<PhaseGrant> {
    // By what is left, or by the begin alone.
    let left_s = |phase: &IoPhase| match by_left {
        true => aged_s(
            state,
            phase,
            phase.period.map_or(AGEING_S, |period| period.seconds),
        ),
        false => 0.0,
    };
    let set = |phase: &IoPhase| phase.period.map(|period| period.set());
    // An application of which nothing is known yet holds up those with the longest periods alone.
    let slowest = phases.iter().copied().filter_map(set).max().unwrap_or(0);
    let mut heads: BTreeMap<i32, (f64, &IoPhase)> = BTreeMap::new();
    for phase in phases {
        let phase = (left_s(phase), *phase);
        let head = heads
            .entry(set(phase.1).unwrap_or(slowest))
            .or_insert(phase);
        if least(phase, *head).is_lt() {
            *head = phase;
        }
    }
    let heads = heads.into_iter().take(most.max(1));
    shared(heads.map(|(set, (_, head))| (head, 10_f64.powi(-set.clamp(-12, 12)))))
}

/// Grants with shares by weights.
fn shared<'a>(weighed: impl Iterator<Item = (&'a IoPhase, f64)>) -> Vec<PhaseGrant> {
    let weighed: Vec<_> = weighed.collect();
    let sum: f64 = weighed.iter().map(|(_, weight)| weight).sum();
    let grant = |(phase, weight): &(&IoPhase, f64)| PhaseGrant {
        id: phase.id,
        share: weight / sum,
    };
    weighed.iter().map(grant).collect()
}
