//! Shares between users: who has used the storage for longer than its share begins nothing more
//! before the others.
//!
//! Each user with an open phase has a share of the storage's time, by the highest priority of its
//! open phases. How many seconds a user is ahead of its share is an account: the time that its
//! phases were served flows in, its share flows out. Who waits with an open phase may be behind;
//! who has none gathers no credit, so absence is not saved up, and what it was ahead is forgiven as
//! the others are served. If all are ahead, the one that is least ahead is not.
//!
//! Policies choose among the phases of users that are not ahead. One that is ahead ends the phase
//! that it has begun, so no phase is cut into pieces for the sake of other users, unless it is far
//! ahead. What is counted is time, which the scheduler sees, and not bytes, which a program states.

use std::collections::BTreeMap;

use super::{IoPhase, nanoseconds, seconds};

/// A user that is less than this ahead, in seconds, is not.
const AHEAD_S_MIN: f64 = 1e-3;
/// A user that is so many seconds ahead is far ahead; none is farther behind.
pub const USER_AHEAD_S_MAX: f64 = 60.0;
/// Least time after which there is a plan since a user may be far ahead, in seconds.
const AHEAD_PLAN_S: f64 = 0.1;
/// Most users without an open phase of which it is known that they are ahead; the one that is least
/// ahead is forgotten.
const USERS_AWAY_MAX: usize = 4_096;
/// The weight of a user whose phases say nothing.
const WEIGHT: f64 = 5.0;

/// How much of its share a user has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum UserStanding {
    /// Not more than its share: all of its phases may be next.
    #[default]
    Within,
    /// More than its share: it goes on with what it has begun.
    Ahead,
    /// More by [`USER_AHEAD_S_MAX`]: its phases wait until it has not had more than its share.
    FarAhead,
}

#[derive(Clone, Debug)]
struct UserShare {
    /// Seconds that the user is ahead, by its weight.
    lead: f64,
    weight: f64,
    /// The share of the storage that its phases have now.
    served: f64,
    /// Open phases by priority.
    open: [u32; 10],
    is_far: bool,
}

/// How far each user is ahead of its share.
#[derive(Clone, Debug, Default)]
pub struct UserShares {
    users: BTreeMap<u32, UserShare>,
    at_ns: Option<i64>,
    /// The weights of users with open phases.
    weights: f64,
    /// Users with open phases.
    open: usize,
    /// The least lead of users with open phases, if all are ahead; 0 otherwise.
    least: f64,
}

impl UserShare {
    fn new() -> Self {
        Self {
            lead: 0.0,
            weight: WEIGHT,
            served: 0.0,
            open: [0; 10],
            is_far: false,
        }
    }

    fn is_open(&self) -> bool {
        self.open.iter().any(|count| *count > 0)
    }

    fn ahead_s(&self, least: f64) -> f64 {
        (self.lead - least).max(0.0) * self.weight
    }

    fn standing(&self, least: f64) -> UserStanding {
        match () {
            () if self.is_far => UserStanding::FarAhead,
            () if self.ahead_s(least) > AHEAD_S_MIN => UserStanding::Ahead,
            () => UserStanding::Within,
        }
    }
}

impl UserShares {
    /// Takes in that a phase of a user begins.
    pub fn begin(&mut self, user: u32, priority: u8, now_ns: i64) {
        self.advance(now_ns);
        let share = self.users.entry(user).or_insert_with(UserShare::new);
        share.open[place(priority)] += 1;
        self.weigh(user);
    }

    /// Takes in that a phase of a user has ended, which had this share of the storage.
    pub fn end(&mut self, user: u32, priority: u8, served: f64, now_ns: i64) {
        self.advance(now_ns);
        let Some(share) = self.users.get_mut(&user) else {
            return;
        };
        let open = &mut share.open[place(priority)];
        *open = open.saturating_sub(1);
        share.served = (share.served - served).max(0.0);
        if !share.is_open() {
            share.served = 0.0;
            share.lead = share.lead.max(0.0);
        }
        self.weigh(user);
    }

    /// Brings the account of all users to a time, before a plan.
    pub fn settle(&mut self, now_ns: i64) {
        self.advance(now_ns);
        for share in self.users.values_mut() {
            let ahead_s = share.ahead_s(self.least);
            share.is_far = match share.is_far {
                true => ahead_s > AHEAD_S_MIN,
                false => ahead_s >= USER_AHEAD_S_MAX - AHEAD_S_MIN,
            };
        }
        self.forget();
    }

    /// Takes in which shares of the storage the phases of users have from now on; returns the
    /// time at which one of them will be far ahead, if nothing happens before.
    pub fn follow(&mut self, grants: impl IntoIterator<Item = (u32, f64)>) -> Option<i64> {
        self.users.values_mut().for_each(|share| share.served = 0.0);
        for (user, served) in grants {
            if let Some(share) = self.users.get_mut(&user) {
                share.served += served;
            }
        }
        let weights = self.weights;
        let far_s = self.users.values().filter_map(|share| {
            let rate = share.served - share.weight / weights;
            let is_rising = share.served > 0.0 && rate > 1e-9 && !share.is_far;
            let left_s = USER_AHEAD_S_MAX - share.ahead_s(self.least);
            is_rising.then(|| (left_s / rate).max(AHEAD_PLAN_S))
        });
        let far_s = far_s.fold(f64::INFINITY, f64::min);
        let at_ns = self.at_ns.filter(|_| far_s.is_finite())?;
        Some(at_ns.saturating_add(nanoseconds(far_s).max(1)))
    }

    /// How a user stands, as of the last [`Self::settle`].
    pub fn standing(&self, user: u32) -> UserStanding {
        let share = self.users.get(&user);
        share.map_or(UserStanding::Within, |share| share.standing(self.least))
    }

    /// Seconds that a user is ahead of its share, beside the one that is least ahead.
    pub fn ahead_s(&self, user: u32) -> f64 {
        let share = self.users.get(&user);
        share.map_or(0.0, |share| share.ahead_s(self.least))
    }

    /// The number of users that are known: those with open phases, and those that are ahead.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Whether no user is known.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The phases that may be next: those of users that are not ahead, and what others have begun.
    pub(super) fn candidates<'a>(&self, phases: Vec<&'a IoPhase>) -> Vec<&'a IoPhase> {
        let mut standings = self.users.values().map(|share| share.standing(self.least));
        if standings.all(|standing| standing == UserStanding::Within) {
            return phases;
        }
        let mut candidates = Vec::with_capacity(phases.len());
        // What users that are ahead have begun: `None` if it is being served, or what was served
        // last.
        let mut begun: BTreeMap<u32, Option<&IoPhase>> = BTreeMap::new();
        for phase in &phases {
            match self.standing(phase.user) {
                UserStanding::Within => candidates.push(*phase),
                UserStanding::Ahead if phase.granted_ns.is_some() => {
                    candidates.push(phase);
                    begun.insert(phase.user, None);
                }
                UserStanding::Ahead if phase.waiting_ns > phase.begun_ns => {
                    let last = begun.entry(phase.user).or_insert(Some(phase));
                    if last.is_some_and(|last| last.waiting_ns < phase.waiting_ns) {
                        *last = Some(phase);
                    }
                }
                UserStanding::Ahead | UserStanding::FarAhead => {}
            }
        }
        candidates.extend(begun.into_values().flatten());
        if !candidates.is_empty() {
            return candidates;
        }
        // Of those that a policy asks about all are ahead: the least of them.
        let least = phases.iter().map(|phase| phase.user);
        let least = least.min_by(|a, b| self.lead(*a).total_cmp(&self.lead(*b)).then(a.cmp(b)));
        let of_least = phases.into_iter().filter(|phase| Some(phase.user) == least);
        of_least.collect()
    }

    fn lead(&self, user: u32) -> f64 {
        self.users.get(&user).map_or(0.0, |share| share.lead)
    }

    fn advance(&mut self, now_ns: i64) {
        let since_ns = now_ns.saturating_sub(self.at_ns.unwrap_or(now_ns));
        self.at_ns = Some(now_ns);
        if since_ns <= 0 {
            return;
        }
        let since_s = seconds(since_ns);
        // While nobody does I/O the time is as that of one user.
        let weights = if self.weights > 0.0 {
            self.weights
        } else {
            WEIGHT
        };
        // A user alone is forgiven what it was ahead of others.
        let forgiven = if self.open == 1 {
            since_s / weights
        } else {
            0.0
        };
        for share in self.users.values_mut() {
            let rate = share.served / share.weight - 1.0 / weights;
            share.lead += since_s * rate;
            if share.is_open() {
                let lead = share.lead - forgiven.min(share.lead.max(0.0));
                share.lead = lead.max(-USER_AHEAD_S_MAX / share.weight);
            } else {
                share.lead = (share.lead - forgiven).max(0.0);
            }
        }
        self.compare();
    }

    /// Finds out who is least ahead.
    fn compare(&mut self) {
        let open = || self.users.values().filter(|share| share.is_open());
        self.open = open().count();
        self.weights = open().map(|share| share.weight).sum();
        let least = open().map(|share| share.lead).fold(f64::INFINITY, f64::min);
        self.least = if least.is_finite() {
            least.max(0.0)
        } else {
            0.0
        };
    }

    /// The weight of a user is the highest priority of its open phases.
    fn weigh(&mut self, user: u32) {
        if let Some(share) = self.users.get_mut(&user) {
            let highest = share.open.iter().rposition(|count| *count > 0);
            share.weight = highest.map_or(share.weight, |place| (place + 1) as f64);
        }
        self.compare();
    }

    /// Forgets users that have no open phase and are not ahead.
    fn forget(&mut self) {
        self.users
            .retain(|_, share| share.is_open() || share.lead > 0.0);
        let away = self.users.iter().filter(|(_, share)| !share.is_open());
        let mut away: Vec<(f64, u32)> = away.map(|(user, share)| (share.lead, *user)).collect();
        if away.len() > USERS_AWAY_MAX {
            away.sort_by(|a, b| b.0.total_cmp(&a.0));
            for (_, user) in away.drain(USERS_AWAY_MAX..) {
                self.users.remove(&user);
            }
        }
    }
}

/// Where phases of a priority are counted.
fn place(priority: u8) -> usize {
    usize::from(priority.clamp(1, 10)) - 1
}
