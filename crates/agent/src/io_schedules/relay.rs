//! Volumes that several nodes share: the phases of this node are relayed to the leader of the
//! cluster, whose scheduler has those of all nodes (`agreement.rs`).
//!
//! The desk never waits for the leader. It notes what is to be relayed, and the answers that have
//! come. While no leader is heard, nobody waits for one.

use std::collections::{BTreeMap, BTreeSet};

use barograph_control::{
    MemberAnswer, MemberBounds, MemberId, MemberReport, MemberStage, SchedulerCounts,
};
use barograph_intake::PhaseOutcome;
use barograph_stream::Incarnation;
use barograph_stream::ingest::GrantState;

use super::{ApplicationNames, IoSchedules, VolumeState, application_of, outcome};
use crate::controller_words::{AnswerWord, PhaseWord, REPORT_PARTS_MAX, process_of, process_text};

/// A phase of this node on a shared volume.
#[derive(Clone, Debug)]
pub(super) struct RelayedPhase {
    pub volume: usize,
    pub names: ApplicationNames,
    pub said: MemberReport,
    /// Monotonic time at which it began.
    pub begun_ns: i64,
    pub answer: Option<MemberAnswer>,
}

/// The phases of this node on shared volumes.
#[derive(Debug, Default)]
pub(super) struct Relay {
    pub phases: BTreeMap<MemberId, RelayedPhase>,
    /// Phases that the leader has not acknowledged as they are.
    changed: BTreeSet<MemberId>,
    /// Processes that have ended, and of which the leader has not acknowledged that.
    left: BTreeSet<u128>,
    outcomes: Vec<PhaseOutcome>,
    /// Phases of each user.
    of_users: BTreeMap<u32, usize>,
    /// Whether no leader is heard.
    is_alone: bool,
    /// Whether this node leads: the schedulers of its shared volumes are those of all nodes.
    pub leads: bool,
    /// What has happened on this node, by volume.
    counts: BTreeMap<usize, SchedulerCounts>,
}

/// What is relayed in one report.
#[derive(Clone, Debug, Default)]
pub(crate) struct RelayBatch {
    pub phases: Vec<PhaseWord>,
    pub left: Vec<String>,
    /// What it is about, for its acknowledgement.
    of: Vec<(MemberId, MemberReport)>,
    processes: Vec<u128>,
}

impl RelayBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.phases.is_empty() && self.left.is_empty()
    }
}

impl Relay {
    /// Takes in a report of a process.
    pub(super) fn report(
        &mut self,
        (volume, id): (usize, MemberId),
        names: &ApplicationNames,
        said: MemberReport,
        (now_ns, bounds): (i64, MemberBounds),
    ) {
        let is_new = !self.phases.contains_key(&id);
        if is_new && said.stage == MemberStage::Ended {
            return;
        }
        let of_user = self.of_users.get(&said.user).copied().unwrap_or(0);
        let is_full = self.phases.len() >= bounds.most || of_user >= bounds.of_user_most;
        if is_new {
            let counts = self.counts.entry(volume).or_default();
            counts.begun += 1;
            counts.refused += u64::from(is_full);
            counts.went_alone += u64::from(self.is_alone && !is_full);
            if self.is_alone || is_full {
                return self.outcomes.push(outcome(id, MemberAnswer::Unscheduled));
            }
            self.of_users.insert(said.user, of_user + 1);
        }
        let fresh = RelayedPhase {
            volume,
            names: names.clone(),
            said,
            begun_ns: now_ns,
            answer: None,
        };
        let phase = self.phases.entry(id).or_insert(fresh);
        phase.said = said;
        if said.stage == MemberStage::Waiting && self.is_alone {
            self.outcomes.push(outcome(id, MemberAnswer::Unscheduled));
        }
        self.changed.insert(id);
        // Its end is of no interest to a leader that was never asked.
        if said.stage == MemberStage::Ended {
            self.counts.entry(volume).or_default().ended += 1;
            if self.is_alone {
                self.forget(id);
            }
        }
    }

    /// Takes in that a process has ended; returns whether it had phases.
    pub(super) fn leave(&mut self, process: u128) -> bool {
        let first = MemberId { process, phase: 0 };
        let last = MemberId {
            process,
            phase: u64::MAX,
        };
        let of_process = self.phases.range(first..=last);
        let of_process: Vec<MemberId> = of_process.map(|(id, _)| *id).collect();
        if of_process.is_empty() {
            return false;
        }
        of_process.into_iter().for_each(|id| self.forget(id));
        if !self.is_alone {
            self.left.insert(process);
        }
        true
    }

    /// What is told of a volume where another node leads: the phases of this node, by process.
    pub(super) fn state(&self, volume: usize) -> VolumeState {
        let of_volume = self.phases.values().filter(|it| it.volume == volume);
        let open = of_volume.filter(|it| it.said.stage != MemberStage::Ended);
        let (waiting, granted): (Vec<_>, Vec<_>) =
            open.partition(|it| it.said.stage == MemberStage::Waiting);
        VolumeState {
            waiting: waiting.len(),
            granted: granted.len(),
            counts: self.counts.get(&volume).copied().unwrap_or_default(),
            ..VolumeState::default()
        }
    }

    pub(super) fn take_outcomes(&mut self) -> Vec<PhaseOutcome> {
        std::mem::take(&mut self.outcomes)
    }

    fn forget(&mut self, id: MemberId) {
        self.changed.remove(&id);
        let Some(phase) = self.phases.remove(&id) else {
            return;
        };
        let user = phase.said.user;
        match self.of_users.get_mut(&user) {
            Some(of_user) if *of_user > 1 => *of_user -= 1,
            _ => drop(self.of_users.remove(&user)),
        }
    }

    fn answer(&mut self, id: MemberId, answer: MemberAnswer) {
        if let Some(phase) = self.phases.get_mut(&id)
            && phase.answer.replace(answer) != Some(answer)
        {
            self.outcomes.push(outcome(id, answer));
        }
    }
}

/// The side of the node's controller.
impl IoSchedules {
    /// Whether some process of this node has a phase on a shared volume, or the leader is to hear
    /// of its end.
    pub(crate) fn relays(&self) -> bool {
        let desk = self.desk();
        !desk.relay.phases.is_empty() || !desk.relay.left.is_empty()
    }

    /// What has changed since the leader acknowledged it, as far as one report has room.
    pub(crate) fn relay_batch(&self) -> RelayBatch {
        let desk = self.desk();
        let mut batch = RelayBatch::default();
        for id in desk.relay.changed.iter().take(REPORT_PARTS_MAX) {
            let Some(phase) = desk.relay.phases.get(id) else {
                continue;
            };
            let said = &phase.said;
            batch.phases.push(PhaseWord {
                volume: desk.volumes[phase.volume].name.clone(),
                process: process_text(id.process),
                phase: id.phase,
                stage: match said.stage {
                    MemberStage::Ended => 0,
                    MemberStage::Waiting => 1,
                    MemberStage::Granted => 2,
                    MemberStage::Alone => 3,
                },
                user: said.user,
                application: phase.names.application.clone(),
                job: phase.names.job.clone(),
                priority: said.priority,
                bytes: said.bytes,
                done: said.bytes_done,
                lease_ns: said.lease_ns,
                host: said.host.map(process_text),
            });
            batch.of.push((*id, *said));
        }
        for process in desk.relay.left.iter().take(REPORT_PARTS_MAX) {
            batch.left.push(process_text(*process));
            batch.processes.push(*process);
        }
        batch
    }

    /// Takes in that the leader has heard a batch.
    pub(crate) fn relay_heard(&self, batch: &RelayBatch) {
        let mut desk = self.desk();
        let relay = &mut desk.relay;
        for (id, said) in &batch.of {
            let is_as_said = relay.phases.get(id).is_some_and(|it| it.said == *said);
            if is_as_said && said.stage == MemberStage::Ended {
                relay.forget(*id);
            } else if is_as_said {
                relay.changed.remove(id);
            }
        }
        for process in &batch.processes {
            relay.left.remove(process);
        }
    }

    /// A new leader is to hear of everything.
    pub(crate) fn relay_anew(&self) {
        let mut desk = self.desk();
        let relay = &mut desk.relay;
        relay.left.clear();
        let phases = relay.phases.iter();
        let ended = phases.filter(|(_, phase)| phase.said.stage == MemberStage::Ended);
        let ended: Vec<MemberId> = ended.map(|(id, _)| *id).collect();
        ended.into_iter().for_each(|id| relay.forget(id));
        relay.changed = relay.phases.keys().copied().collect();
    }

    /// Takes in answers of the leader; returns a process that is to be told.
    pub(crate) fn relay_answers(&self, answers: &[AnswerWord]) -> Option<Incarnation> {
        let mut desk = self.desk();
        let before = desk.relay.outcomes.len();
        for word in answers {
            let Some(process) = process_of(&word.process) else {
                continue;
            };
            let answer = match word.state {
                1 => MemberAnswer::Wait,
                2 if word.share.is_finite() => MemberAnswer::Go {
                    share: word.share.clamp(0.0, 1.0),
                },
                _ => MemberAnswer::Unscheduled,
            };
            let phase = word.phase;
            desk.relay.answer(MemberId { process, phase }, answer);
        }
        desk.changes += 1;
        let new = desk.relay.outcomes.get(before);
        new.map(|outcome| outcome.incarnation)
    }

    /// Whether no leader is heard. Those who wait go on then; returns one of them.
    pub(crate) fn set_alone(&self, is_alone: bool) -> Option<Incarnation> {
        let mut desk = self.desk();
        let relay = &mut desk.relay;
        if relay.is_alone == is_alone {
            return None;
        }
        relay.is_alone = is_alone;
        desk.changes += 1;
        if !is_alone {
            return None;
        }
        let relay = &mut desk.relay;
        let waiting = relay.phases.iter();
        let waiting = waiting.filter(|(_, phase)| phase.said.stage == MemberStage::Waiting);
        let waiting: Vec<(MemberId, usize)> = waiting.map(|(id, it)| (*id, it.volume)).collect();
        let first = waiting.first().map(|(id, _)| *id);
        for (id, volume) in waiting {
            relay.counts.entry(volume).or_default().went_alone += 1;
            relay.answer(id, MemberAnswer::Unscheduled);
        }
        first.map(|id| Incarnation(id.process.to_le_bytes()))
    }
}

/// The side of the leader.
impl IoSchedules {
    /// Begins or ends to lead: the schedulers of shared volumes begin anew.
    pub(crate) fn lead(&self, leads: bool) {
        let mut desk = self.desk();
        desk.relay.leads = leads;
        desk.changes += 1;
        for volume in desk.volumes.iter_mut().filter(|it| it.is_shared) {
            volume.begin_anew(&self.config);
        }
    }

    /// Takes in a phase of a process of any node. An error if this node has no shared volume of
    /// that name.
    pub(crate) fn hear_phase(&self, word: &PhaseWord) -> Option<MemberId> {
        let now_ns = self.clock.monotonic_ns();
        let process = process_of(&word.process)?;
        let mut desk = self.desk();
        let mut volumes = desk.volumes.iter();
        let volume = volumes.position(|it| it.is_shared && it.name == word.volume)?;
        let stage = match word.stage {
            0 => MemberStage::Ended,
            1 => MemberStage::Waiting,
            2 => MemberStage::Granted,
            _ => MemberStage::Alone,
        };
        let names = ApplicationNames {
            application: word.application.clone(),
            job: word.job.clone(),
        };
        let said = MemberReport {
            stage,
            application: application_of(&names),
            user: word.user,
            priority: word.priority,
            bytes: word.bytes,
            bytes_done: word.done,
            lease_ns: word.lease_ns,
            host: word.host.as_deref().and_then(process_of),
        };
        let phase = word.phase;
        let id = MemberId { process, phase };
        desk.volumes[volume].scheduler.report(id, &said, now_ns);
        desk.name((word.user, said.application), names);
        desk.changes += 1;
        Some(id)
    }

    /// Takes in that a process of any node has ended.
    pub(crate) fn hear_leave(&self, process: u128) {
        let now_ns = self.clock.monotonic_ns();
        let mut desk = self.desk();
        for volume in desk.volumes.iter_mut().filter(|it| it.is_shared) {
            volume.scheduler.leave(process, now_ns);
        }
        desk.changes += 1;
    }

    /// Steps the schedulers of shared volumes; returns the time of the next step on the monotonic
    /// clock, and the answers that are new.
    pub(crate) fn lead_step(&self) -> (Option<i64>, Vec<(MemberId, MemberAnswer)>) {
        let now = (self.clock.monotonic_ns(), self.clock.now_ns());
        let mut desk = self.desk();
        let next_ns = self.attend(&mut desk, now, true);
        let mut answers = Vec::new();
        for volume in desk.volumes.iter_mut().filter(|it| it.is_shared) {
            answers.extend(volume.scheduler.take_answers());
        }
        desk.changes += u64::from(!answers.is_empty());
        (next_ns, answers)
    }
}

/// The answer to a phase as a word.
pub(crate) fn answer_word(id: MemberId, answer: MemberAnswer) -> AnswerWord {
    let (state, share) = match answer {
        MemberAnswer::Wait => (GrantState::Waiting, 0.0),
        MemberAnswer::Go { share } => (GrantState::Granted, share),
        MemberAnswer::Unscheduled => (GrantState::Unscheduled, 0.0),
    };
    AnswerWord {
        process: process_text(id.process),
        phase: id.phase,
        state: state as u8,
        share,
    }
}
