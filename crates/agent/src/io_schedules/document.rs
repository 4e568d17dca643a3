//! What is published of phases of I/O: rows for SQL and the command line.

use std::collections::BTreeMap;

use barograph_control::{EndedPhase, MemberAnswer, MemberStage, PhaseState, VolumePhase};
use barograph_stream::{IoPhasesRow, user_name};

use super::relay::RelayedPhase;
use super::{ApplicationNames, Desk, IoSchedules, Volume};

/// Most rows of a document: the phases that are not over, and then the newest of the others.
pub(crate) const ROWS_MAX: usize = 2_000;
const NS_PER_S: f64 = 1e9;

/// All rows for the documents of users, with their users.
pub(crate) fn rows_of_users(schedules: &IoSchedules) -> Vec<(Option<u32>, IoPhasesRow)> {
    let rows = with_users(rows(schedules)).into_iter();
    rows.map(|(uid, row)| (Some(uid), row)).collect()
}

/// The rows of a user, or of all; those that are not over, then the others, newest first.
pub(crate) fn rows_of(
    schedules: &IoSchedules,
    user: Option<Option<u32>>,
    limit: usize,
) -> Vec<IoPhasesRow> {
    let mut rows = rows(schedules);
    rows.retain(|(uid, _)| user.is_none_or(|user| user == Some(*uid)));
    rows.truncate(limit);
    with_users(rows).into_iter().map(|(_, row)| row).collect()
}

/// Adds the names of users, which are read from files: not under the lock of the desk.
fn with_users(rows: Vec<(u32, IoPhasesRow)>) -> Vec<(u32, IoPhasesRow)> {
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let named = rows.into_iter().map(|(uid, row)| {
        let user = names.entry(uid).or_insert_with(|| user_name(uid)).clone();
        (uid, IoPhasesRow { user, ..row })
    });
    named.collect()
}

/// The phases of all volumes, with their users: those that are not over, and then the others, of
/// which the newest is first.
fn rows(schedules: &IoSchedules) -> Vec<(u32, IoPhasesRow)> {
    let monotonic_ns = schedules.clock.monotonic_ns();
    let ahead_ns = schedules.clock.now_ns().saturating_sub(monotonic_ns);
    let desk = schedules.desk();
    let times = RowTimes { ahead_ns };
    let open = desk.volumes.iter().flat_map(|volume| {
        let phases: Vec<VolumePhase<'_>> = volume.scheduler.phases().collect();
        let is_granted =
            |phase: &&VolumePhase<'_>| matches!(phase.state, PhaseState::Granted { .. });
        let at_work = phases.iter().filter(is_granted).count();
        let row = |phase: &VolumePhase<'_>| (phase.user, times.open(&desk, volume, phase, at_work));
        phases.iter().map(row).collect::<Vec<_>>()
    });
    let over = desk.volumes.iter().flat_map(|volume| {
        let ended = volume.scheduler.ended();
        ended.map(|phase| (phase.user, times.over(&desk, volume, phase)))
    });
    let mut over: Vec<_> = over.collect();
    over.sort_by_key(|(_, row)| std::cmp::Reverse(row.ended_ts));
    let relayed = times.relayed(&desk);
    open.chain(relayed).chain(over).collect()
}

struct RowTimes {
    /// The clock's time less the monotonic one.
    ahead_ns: i64,
}

impl RowTimes {
    fn ts(&self, monotonic_ns: i64) -> i64 {
        monotonic_ns.saturating_add(self.ahead_ns)
    }

    fn open(
        &self,
        desk: &Desk,
        volume: &Volume,
        phase: &VolumePhase<'_>,
        at_work: usize,
    ) -> IoPhasesRow {
        let of = phase.phase;
        let ApplicationNames { application, job } = names(desk, phase.user, of.application);
        let (state, share) = match phase.state {
            PhaseState::Waiting { .. } if volume.lets_all => ("alone", 0.0),
            PhaseState::Granted { share, .. } if phase.is_alone => ("alone", share),
            PhaseState::Granted { share, .. } => ("granted", share),
            _ => ("waiting", 0.0),
        };
        IoPhasesRow {
            id: of.id,
            volume: volume.name.clone(),
            application,
            job,
            processes: phase.members as u64,
            state: state.to_owned(),
            share,
            priority: of.priority.into(),
            begun_ts: self.ts(of.begun_ns),
            started_ts: of.granted_ns.map(|ns| self.ts(ns)),
            declared_bytes: of.bytes,
            done_bytes: of.bytes_done,
            period_s: of.period.map(|period| period.seconds),
            policy: volume.scheduler.scheduler().current().by.to_owned(),
            reason: volume.reason(phase, at_work),
            ..IoPhasesRow::default()
        }
    }

    /// The phases of this node on shared volumes, unless this node leads and has those of all.
    fn relayed(&self, desk: &Desk) -> Vec<(u32, IoPhasesRow)> {
        let mut groups: BTreeMap<_, Vec<&RelayedPhase>> = BTreeMap::new();
        let phases = desk.relay.phases.values();
        for phase in phases.filter(|it| it.said.stage != MemberStage::Ended && !desk.relay.leads) {
            let of = (phase.volume, phase.said.user, phase.said.application);
            groups.entry(of).or_default().push(phase);
        }
        let rows = groups.into_iter().map(|((volume, user, _), phases)| {
            (user, self.relayed_row(&desk.volumes[volume], &phases))
        });
        rows.collect()
    }

    /// The row of the processes of an application that a leader schedules.
    fn relayed_row(&self, volume: &Volume, phases: &[&RelayedPhase]) -> IoPhasesRow {
        let share = phases.iter().filter_map(|it| match it.answer {
            Some(MemberAnswer::Go { share }) => Some(share),
            _ => None,
        });
        let share = share.reduce(f64::max);
        let is_off = |it: &&RelayedPhase| it.answer == Some(MemberAnswer::Unscheduled);
        let (state, reason) = match share {
            Some(_) => ("granted", "by the leader of the cluster"),
            None if phases.iter().any(is_off) => ("alone", "no leader of the cluster is heard"),
            None => ("waiting", "for the leader of the cluster"),
        };
        let begun_ns = phases.iter().map(|it| it.begun_ns).min();
        let names = phases
            .first()
            .map(|it| it.names.clone())
            .unwrap_or_default();
        let priority = phases.iter().map(|it| it.said.priority).max();
        IoPhasesRow {
            volume: volume.name.clone(),
            application: names.application,
            job: names.job,
            processes: phases.len() as u64,
            state: state.to_owned(),
            share: share.unwrap_or(0.0),
            priority: priority.unwrap_or_default().into(),
            begun_ts: self.ts(begun_ns.unwrap_or_default()),
            done_bytes: phases.iter().map(|it| it.said.bytes_done).sum(),
            reason: reason.to_owned(),
            ..IoPhasesRow::default()
        }
    }

    fn over(&self, desk: &Desk, volume: &Volume, phase: &EndedPhase) -> IoPhasesRow {
        let ApplicationNames { application, job } = names(desk, phase.user, phase.application);
        let reason = match (phase.has_expired, phase.was_alone, phase.started_ns) {
            (true, ..) => "nothing was heard of it for the time of its lease",
            (_, true, _) => "it did I/O without a grant",
            (_, _, None) => "it ended while it waited",
            _ => "",
        };
        let started_ns = phase.started_ns.unwrap_or(phase.ended_ns);
        IoPhasesRow {
            id: phase.id,
            volume: volume.name.clone(),
            application,
            job,
            state: if phase.has_expired {
                "expired"
            } else {
                "ended"
            }
            .to_owned(),
            begun_ts: self.ts(phase.begun_ns),
            started_ts: phase.started_ns.map(|ns| self.ts(ns)),
            ended_ts: Some(self.ts(phase.ended_ns)),
            waited_s: Some(started_ns.saturating_sub(phase.begun_ns) as f64 / NS_PER_S),
            took_s: Some(phase.ended_ns.saturating_sub(started_ns) as f64 / NS_PER_S),
            declared_bytes: phase.bytes,
            done_bytes: phase.bytes_done,
            reason: reason.to_owned(),
            ..IoPhasesRow::default()
        }
    }
}

fn names(desk: &Desk, user: u32, application: u64) -> ApplicationNames {
    let names = desk.names.get(&(user, application));
    names.cloned().unwrap_or_default()
}
