//! The scheduler of one volume of a node, whose phases are those of processes.
//!
//! Processes of one application do I/O together, and wait for each other within it (collective
//! I/O), so they have one grant: the first process that begins begins a phase of the application,
//! and others join it until one of them has ended. Who begins after that belongs to the next phase
//! of the application, so an application that always has a process at work does not hold up others
//! for ever.
//!
//! Each report of a process is what holds from then on, so one that is doubled, or that a restarted
//! agent hears first, does no harm.

mod ended;
mod hosts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{
    BeginRefusal, IoPhase, IoScheduler, PhaseBegin, PhaseState, SchedulerConfig, SchedulerCounts,
    TakeBackRefusal,
};
pub use ended::EndedPhase;

/// A phase of I/O of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId {
    /// The process, by a number that no other one has.
    pub process: u128,
    /// The number that the process has given the phase.
    pub phase: u64,
}

/// What a process says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStage {
    /// It wants to do I/O, and waits.
    Waiting,
    /// It does I/O with a grant.
    Granted,
    /// It does I/O without a grant, since it has waited for too long or hears nothing.
    Alone,
    /// It has ended.
    Ended,
}

/// A report of a process on one of its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberReport {
    /// What the process does now.
    pub stage: MemberStage,
    /// Its application and user, and its priority. They count when the phase begins.
    pub application: u64,
    /// The user of the process.
    pub user: u32,
    /// 1 to 10, 10 for the most important application.
    pub priority: u8,
    /// The bytes that it will read and write, as far as it knows.
    pub bytes: Option<u64>,
    /// The bytes that it has read and written.
    pub bytes_done: u64,
    /// The time in ns after which it has ended if nothing more is heard of it; `None` for the lease
    /// of the scheduler. It is for processes that do not know themselves when they end.
    pub lease_ns: Option<i64>,
    /// A number that all phases of this process have in common, if it has several files and so
    /// several numbers: that of one of them.
    pub host: Option<u128>,
}

/// The answer to a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemberAnswer {
    /// It is to wait.
    Wait,
    /// It may do I/O.
    Go {
        /// The share of the storage of its application.
        share: f64,
    },
    /// It is not scheduled, since there are too many, or since nobody is at present.
    Unscheduled,
}

/// A phase of an application, for those who look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumePhase<'a> {
    /// What the scheduler knows of it.
    pub phase: &'a IoPhase,
    /// The user.
    pub user: u32,
    /// The processes of it that have not ended.
    pub members: usize,
    /// What it may do.
    pub state: PhaseState,
    /// Whether a process of it does I/O without a grant.
    pub is_alone: bool,
}

#[derive(Clone, Debug)]
struct Member {
    user: u32,
    host: Option<u128>,
    phase: u64,
    bytes_done: u64,
    answered: Option<MemberAnswer>,
    /// Whether it has reported to be at work with a grant.
    is_at_work: bool,
    /// When it was heard last, and when it has ended if nothing more is heard of it.
    heard_ns: i64,
    lapses_ns: Option<i64>,
}

/// A phase of an application.
#[derive(Clone, Debug)]
struct Group {
    key: (u32, u64),
    members: BTreeSet<MemberId>,
    /// The bytes of all members, also of those that have ended.
    bytes_done: u64,
    /// Of processes with several files: by the host and the file.
    done_of_hosts: BTreeMap<(u128, u128), u64>,
    is_alone: bool,
    begun_ns: i64,
    bytes: Option<u64>,
    started_ns: Option<i64>,
}

/// The scheduler of a volume.
#[derive(Clone, Debug)]
pub struct VolumeScheduler {
    scheduler: IoScheduler,
    members: BTreeMap<MemberId, Member>,
    groups: BTreeMap<u64, Group>,
    /// The phase of a user's application that others may join.
    open: BTreeMap<(u32, u64), u64>,
    answers: Vec<(MemberId, MemberAnswer)>,
    /// Processes with leases of their own, by the ends of these.
    lapses: BTreeSet<(i64, MemberId)>,
    /// Processes at work of each user.
    of_users: BTreeMap<u32, usize>,
    bounds: MemberBounds,
    ended: VecDeque<EndedPhase>,
    /// Phases of processes that were not scheduled, since there were too many processes.
    refused: u64,
    /// Processes that were not answered yet.
    fresh: Vec<MemberId>,
    /// The number of the plan whose answers were noted, and its grants.
    answered: Option<u64>,
    /// Whether all do I/O at once, whatever the plan says.
    lets_all: bool,
    /// Whether that has changed since the last step.
    are_all_due: bool,
    granted: BTreeMap<u64, f64>,
}

/// The bounds on processes at work in a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberBounds {
    /// Most at a time.
    pub most: usize,
    /// Most of one user at a time.
    pub of_user_most: usize,
}

impl VolumeScheduler {
    /// A scheduler without phases. It plans and answers in [`Self::step`] alone, so that many
    /// reports at once cost one plan.
    pub fn new(config: SchedulerConfig, bounds: MemberBounds) -> Self {
        Self {
            scheduler: IoScheduler::new(SchedulerConfig {
                plans_in_steps: true,
                ..config
            }),
            members: BTreeMap::new(),
            groups: BTreeMap::new(),
            open: BTreeMap::new(),
            answers: Vec::new(),
            lapses: BTreeSet::new(),
            of_users: BTreeMap::new(),
            bounds,
            ended: VecDeque::new(),
            refused: 0,
            fresh: Vec::new(),
            answered: None,
            lets_all: false,
            are_all_due: false,
            granted: BTreeMap::new(),
        }
    }

    /// What has happened so far. Of processes that were refused, each counts.
    pub fn counts(&self) -> SchedulerCounts {
        let counts = self.scheduler.counts();
        SchedulerCounts {
            refused: counts.refused.saturating_add(self.refused),
            ..counts
        }
    }

    /// The newest phases that are over, oldest first.
    pub fn ended(&self) -> impl Iterator<Item = &EndedPhase> {
        self.ended.iter()
    }

    /// The scheduler of the phases of applications.
    pub fn scheduler(&self) -> &IoScheduler {
        &self.scheduler
    }

    /// Lets all do I/O at once from the next step on, and goes on to plan; or gives turns again.
    /// Who does I/O then, against the plan, is served beside it until it ends.
    pub fn let_all(&mut self, lets_all: bool, now_ns: i64) {
        if std::mem::replace(&mut self.lets_all, lets_all) == lets_all {
            return;
        }
        self.are_all_due = true;
        if lets_all {
            return;
        }
        // Who has only just begun was not let go yet.
        let let_go = self.members.values();
        let let_go = let_go.filter(|it| it.answered == Some(MemberAnswer::Unscheduled));
        for id in let_go.map(|member| member.phase).collect::<BTreeSet<u64>>() {
            let is_waiting = matches!(self.scheduler.state(id), PhaseState::Waiting { .. });
            if let Some(group) = self.groups.get_mut(&id).filter(|_| is_waiting) {
                group.is_alone = true;
                let done = group.bytes_done;
                self.scheduler.renew(id, done, true, now_ns);
            }
        }
    }

    /// Takes a grant back, as [`IoScheduler::take_back`] does.
    ///
    /// # Errors
    ///
    /// The phase goes on.
    pub fn take_back(&mut self, phase: u64, now_ns: i64) -> Result<(), TakeBackRefusal> {
        self.scheduler.take_back(phase, now_ns)
    }

    /// Takes in a report of a process.
    pub fn report(&mut self, id: MemberId, report: &MemberReport, now_ns: i64) {
        match (report.stage, self.members.contains_key(&id)) {
            (MemberStage::Ended, true) => self.end(id, report.bytes_done, now_ns),
            // It ended before anything was heard of it, or twice.
            (MemberStage::Ended, false) => {}
            (_, true) => self.renew(id, report, now_ns),
            (_, false) => match self.begin(id, report, now_ns) {
                Ok(()) => self.renew(id, report, now_ns),
                Err(_) => self.answers.push((id, MemberAnswer::Unscheduled)),
            },
        }
    }

    /// Takes in that a process has ended, with all of its phases.
    pub fn leave(&mut self, process: u128, now_ns: i64) {
        let first = MemberId { process, phase: 0 };
        let last = MemberId {
            process,
            phase: u64::MAX,
        };
        let of_process: Vec<MemberId> = self.members.range(first..=last).map(|it| *it.0).collect();
        for id in of_process {
            let done = self.members.get(&id).map_or(0, |member| member.bytes_done);
            self.end(id, done, now_ns);
        }
    }

    /// Plans for what was reported, notes the answers, and does what is due at a time; returns the
    /// time of the next step.
    pub fn step(&mut self, now_ns: i64) -> Option<i64> {
        self.lapse(now_ns);
        let next_ns = self.scheduler.step(now_ns);
        for id in self.scheduler.expired().to_vec() {
            self.expire(id, now_ns);
        }
        let plans = self.scheduler.plans();
        if self.answered.replace(plans) != Some(plans) {
            self.answer_plan(now_ns);
        }
        if std::mem::take(&mut self.are_all_due) {
            self.fresh = self.members.keys().copied().collect();
        }
        if self.lets_all {
            for group in self.groups.values_mut() {
                group.started_ns.get_or_insert(now_ns);
            }
        }
        for id in std::mem::take(&mut self.fresh) {
            let phase = self.members.get(&id).map(|member| member.phase);
            let share = phase.map(|phase| self.granted.get(&phase).copied());
            if let Some(share) = share {
                self.answer(id, share);
            }
        }
        let lapses = self.lapses.first().map(|(lapses_ns, _)| *lapses_ns);
        next_ns.into_iter().chain(lapses).min()
    }

    /// The answers that are new since the last call, as of the last step.
    pub fn take_answers(&mut self) -> Vec<(MemberId, MemberAnswer)> {
        std::mem::take(&mut self.answers)
    }

    /// The phases of applications that have begun and not ended.
    pub fn phases(&self) -> impl Iterator<Item = VolumePhase<'_>> {
        self.groups.iter().filter_map(|(id, group)| {
            Some(VolumePhase {
                phase: self.scheduler.phase(*id)?,
                user: group.key.0,
                members: self.processes_of(group),
                state: self.scheduler.state(*id),
                is_alone: group.is_alone,
            })
        })
    }

    fn begin(
        &mut self,
        id: MemberId,
        report: &MemberReport,
        now_ns: i64,
    ) -> Result<(), BeginRefusal> {
        let of_user = self.of_users.get(&report.user).copied().unwrap_or(0);
        let refusal = match () {
            () if self.members.len() >= self.bounds.most => Some(BeginRefusal::TooMany),
            () if of_user >= self.bounds.of_user_most => Some(BeginRefusal::TooManyOfUser),
            () => None,
        };
        if let Some(refusal) = refusal {
            self.refused += 1;
            return Err(refusal);
        }
        let key = (report.user, report.application);
        let joined = self.phase_of_host(id, report);
        let phase = match joined.or_else(|| self.open.get(&key).copied()) {
            Some(phase) => {
                if let Some(bytes) = report.bytes {
                    self.scheduler.declare_more(phase, bytes);
                }
                phase
            }
            None => {
                let begin = PhaseBegin {
                    application: report.application,
                    user: report.user,
                    bytes: report.bytes,
                    priority: report.priority.clamp(1, 10),
                    yields: false,
                };
                let phase = self.scheduler.begin(&begin, now_ns)?;
                self.open.insert(key, phase);
                let group = Group {
                    key,
                    members: BTreeSet::new(),
                    bytes_done: 0,
                    done_of_hosts: BTreeMap::new(),
                    is_alone: false,
                    begun_ns: now_ns,
                    bytes: None,
                    started_ns: None,
                };
                self.groups.insert(phase, group);
                phase
            }
        };
        if let Some(group) = self.groups.get_mut(&phase) {
            group.members.insert(id);
            let known = self.scheduler.phase(phase);
            group.bytes = known.and_then(|known| known.bytes);
        }
        let member = Member {
            user: report.user,
            host: report.host,
            phase,
            bytes_done: 0,
            answered: None,
            is_at_work: false,
            heard_ns: now_ns,
            lapses_ns: None,
        };
        self.members.insert(id, member);
        self.fresh.push(id);
        self.of_users.insert(report.user, of_user + 1);
        Ok(())
    }

    fn renew(&mut self, id: MemberId, report: &MemberReport, now_ns: i64) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let more = report.bytes_done.saturating_sub(member.bytes_done);
        member.bytes_done = member.bytes_done.saturating_add(more);
        member.host = report.host;
        let phase = member.phase;
        let lease_ns = report.lease_ns.map(|lease_ns| lease_ns.max(0));
        let lapses_ns = lease_ns.map(|lease_ns| now_ns.saturating_add(lease_ns));
        member.heard_ns = now_ns;
        let before = std::mem::replace(&mut member.lapses_ns, lapses_ns);
        if before != lapses_ns {
            before.map(|before| self.lapses.remove(&(before, id)));
            self.lapses
                .extend(lapses_ns.map(|lapses_ns| (lapses_ns, id)));
        }
        // Who reports twice to be at work looks at its grant in between.
        let yields = match report.stage {
            MemberStage::Granted => std::mem::replace(&mut member.is_at_work, true),
            _ => {
                member.is_at_work = false;
                false
            }
        };
        // Where all may, this is no word against the plan.
        let is_alone = report.stage == MemberStage::Alone && !self.lets_all;
        if yields {
            self.scheduler.set_yields(phase);
        }
        let Some(group) = self.groups.get_mut(&phase) else {
            return;
        };
        group.is_alone |= is_alone;
        group.add(id.process, report.host, more);
        let done = group.bytes_done;
        self.scheduler.renew(phase, done, is_alone, now_ns);
    }

    fn end(&mut self, id: MemberId, bytes_done: u64, now_ns: i64) {
        if let Some((phase, done)) = self.end_as_of(id, bytes_done, now_ns) {
            self.scheduler.renew(phase, done, false, now_ns);
        }
    }

    /// Ends a process of which something was heard at `ended_ns`. If others of its phase have not
    /// ended, returns the phase, and what it has done.
    fn end_as_of(&mut self, id: MemberId, bytes_done: u64, ended_ns: i64) -> Option<(u64, u64)> {
        let member = self.forget(id)?;
        let group = self.groups.get_mut(&member.phase)?;
        let more = bytes_done.saturating_sub(member.bytes_done);
        group.add(id.process, member.host, more);
        group.members.remove(&id);
        let (key, done, is_empty) = (group.key, group.bytes_done, group.members.is_empty());
        // Who begins from now on belongs to the next phase.
        if self.open.get(&key) == Some(&member.phase) {
            self.open.remove(&key);
        }
        if !is_empty {
            return Some((member.phase, done));
        }
        // One that has had a grant since it was heard has not ended before that.
        let ended_ns = ended_ns.max(group.started_ns.unwrap_or(ended_ns));
        self.close(member.phase, false, ended_ns);
        self.scheduler.end(member.phase, done, ended_ns);
        None
    }

    /// Ends processes whose own leases are over, as of the time at which each was heard last.
    fn lapse(&mut self, now_ns: i64) {
        while let Some((lapses_ns, id)) = self.lapses.first().copied()
            && lapses_ns <= now_ns
        {
            self.lapses.pop_first();
            self.answered = None;
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            let (done, heard_ns) = (member.bytes_done, member.heard_ns);
            member.lapses_ns = None;
            self.end_as_of(id, done, heard_ns);
            // If it does more, it is to ask again.
            self.answers.push((id, MemberAnswer::Wait));
        }
    }

    fn forget(&mut self, id: MemberId) -> Option<Member> {
        let member = self.members.remove(&id)?;
        if let Some(lapses_ns) = member.lapses_ns {
            self.lapses.remove(&(lapses_ns, id));
        }
        if let Some(count) = self.of_users.get_mut(&member.user) {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&member.user);
            }
        }
        Some(member)
    }

    /// Forgets a phase whose lease was over.
    fn expire(&mut self, phase: u64, now_ns: i64) {
        let members = self.groups.get(&phase).map(|group| group.members.clone());
        for id in members.into_iter().flatten() {
            self.forget(id);
            self.answers.push((id, MemberAnswer::Unscheduled));
        }
        self.close(phase, true, now_ns);
    }

    /// Notes the answers that a plan has changed.
    fn answer_plan(&mut self, now_ns: i64) {
        let grants = self.scheduler.current().grants.iter();
        let granted: BTreeMap<u64, f64> = grants.map(|grant| (grant.id, grant.share)).collect();
        let before = std::mem::replace(&mut self.granted, granted.clone());
        let ended = before.keys().filter(|id| !granted.contains_key(id));
        let changed: Vec<(u64, Option<f64>)> = ended
            .map(|id| (*id, None))
            .chain(granted.iter().map(|(id, share)| (*id, Some(*share))))
            .filter(|(id, share)| before.get(id).copied() != *share)
            .collect();
        for (phase, share) in changed {
            let Some(group) = self.groups.get_mut(&phase) else {
                continue;
            };
            if share.is_some() {
                group.started_ns.get_or_insert(now_ns);
            }
            for id in group.members.clone() {
                self.answer(id, share);
            }
        }
    }

    /// Notes the answer to a process, if it is another one than before.
    fn answer(&mut self, id: MemberId, share: Option<f64>) {
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let answer = match (self.lets_all, member.answered, share) {
            // Who has a grant goes on with it.
            (true, Some(go @ MemberAnswer::Go { .. }), _) => go,
            (true, ..) => MemberAnswer::Unscheduled,
            (false, _, Some(share)) => MemberAnswer::Go { share },
            (false, _, None) => MemberAnswer::Wait,
        };
        if member.answered.replace(answer) != Some(answer) {
            self.answers.push((id, answer));
        }
    }
}
