//! I/O scheduling: which of the phases of I/O that have begun may go on now, and with which share
//! of the storage.
//!
//! A policy is a pure function of what is known of all phases at a time ([`SchedulePolicy::plan`]),
//! so an agent and a simulation run the same code. CLARISSE has one of them, first come, first
//! served (its slides, "Parallel I/O scheduling"). `policy` has it and others, `users` has which
//! phases it chooses among, so that it is fair between users first, `history` learns from past
//! phases how often an application does I/O and how much, `scheduler` gives grants for a time by a
//! policy, and `volume` makes phases of applications of what their processes report.

mod history;
mod policy;
mod scheduler;
mod terms;
mod users;
mod volume;

pub use history::{ApplicationHistory, PhasePeriod, offered_load};
pub use policy::{AdaptiveConfig, SchedulePolicy};
pub use scheduler::{IoScheduler, SchedulerConfig};
pub use terms::{BeginRefusal, PhaseBegin, PhaseState, SchedulerCounts, TakeBackRefusal};
pub use users::{USER_AHEAD_S_MAX, UserShares, UserStanding};
pub use volume::{
    EndedPhase, MemberAnswer, MemberBounds, MemberId, MemberReport, MemberStage, VolumePhase,
    VolumeScheduler,
};

/// A phase of I/O that has begun and has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct IoPhase {
    /// The number of the phase, given by the caller.
    pub id: u64,
    /// The number of its application, which has one phase at a time.
    pub application: u64,
    /// The user of the application.
    pub user: u32,
    /// The time at which it began, in ns on the caller's clock.
    pub begun_ns: i64,
    /// The bytes that it will read and write, as far as it has said so.
    pub bytes: Option<u64>,
    /// The bytes that it has read and written.
    pub bytes_done: u64,
    /// The time since which it has a grant; `None` if it waits.
    pub granted_ns: Option<i64>,
    /// The time since which it waits; that of its begin, or of the end of its last grant.
    pub waiting_ns: i64,
    /// 1 to 10, 10 for the most important application.
    pub priority: u8,
    /// How often its application does I/O, if that is known.
    pub period: Option<PhasePeriod>,
}

impl IoPhase {
    /// Takes in a plan: the phase has a grant from now on, goes on with it, or waits.
    pub fn follow(&mut self, plan: &SchedulePlan, now_ns: i64) {
        let is_granted = plan.grants.iter().any(|grant| grant.id == self.id);
        match is_granted {
            true => self.grant(plan.is_new_turn, now_ns),
            false => self.wait(now_ns),
        }
    }

    fn grant(&mut self, is_new_turn: bool, now_ns: i64) {
        // In a new turn the same phase goes on if nobody is before it.
        if self.granted_ns.is_none() || is_new_turn {
            self.granted_ns = Some(now_ns);
        }
    }

    fn wait(&mut self, now_ns: i64) {
        if self.granted_ns.take().is_some() {
            self.waiting_ns = now_ns;
        }
    }

    /// Seconds that are left alone on the storage. Of a phase that has not said how much it reads
    /// and writes, or has said too little, as much as it has done is expected to be left, and a
    /// second at least.
    pub fn left_s(&self, bandwidth: f64) -> f64 {
        let declared = self
            .bytes
            .and_then(|bytes| bytes.checked_sub(self.bytes_done));
        match declared.filter(|left| *left > 0) {
            Some(left) => left as f64 / bandwidth,
            None => self.done_s(bandwidth).max(UNKNOWN_LEFT_S),
        }
    }

    /// Seconds that the phase takes alone on the storage, as far as that is known.
    pub fn alone_s(&self, bandwidth: f64) -> f64 {
        self.done_s(bandwidth) + self.left_s(bandwidth)
    }

    /// How many times as long as alone the phase will have taken at least when it ends: 1
    /// at the begin.
    pub fn slowdown(&self, now_ns: i64, bandwidth: f64) -> f64 {
        let since_s = seconds(now_ns.saturating_sub(self.begun_ns)).max(0.0);
        ((since_s + self.left_s(bandwidth)) / self.alone_s(bandwidth)).max(1.0)
    }

    fn done_s(&self, bandwidth: f64) -> f64 {
        self.bytes_done as f64 / bandwidth
    }
}

/// What is known at the time of a plan.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleState<'a> {
    /// The time, in ns on the caller's clock.
    pub now_ns: i64,
    /// Bytes/s of the storage when one phase alone uses it.
    pub bandwidth: f64,
    /// All phases that have begun and not ended, in any order.
    pub phases: &'a [IoPhase],
    /// How far users are ahead of their shares, as of this time.
    pub users: &'a UserShares,
    /// The share of the storage's time that all applications together need, from their histories; 1
    /// and more is overload. `None` if too little is known.
    pub offered_load: Option<f64>,
}

/// The permission of a phase to do I/O now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseGrant {
    /// The number of the phase.
    pub id: u64,
    /// Its share of the storage, beside the shares of the other grants; all are 1 in sum.
    pub share: f64,
}

/// Which phases may do I/O from now on.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulePlan {
    /// The grants; a phase without one waits.
    pub grants: Vec<PhaseGrant>,
    /// The time at which to plan anew even if no phase begins or ends; `None` if that
    /// is not needed.
    pub until_ns: Option<i64>,
    /// Whether a turn begins with it, of whichever phase.
    pub is_new_turn: bool,
    /// The policy that decided, which an adaptive one has chosen.
    pub by: &'static str,
}

/// Least that is expected to be left of a phase of unknown size, in seconds alone.
const UNKNOWN_LEFT_S: f64 = 1.0;
/// Nanoseconds of a second.
const NS_PER_S: f64 = 1e9;

pub(crate) fn seconds(ns: i64) -> f64 {
    ns as f64 / NS_PER_S
}

fn nanoseconds(seconds: f64) -> i64 {
    // A conversion of floats saturates.
    (seconds * NS_PER_S) as i64
}
