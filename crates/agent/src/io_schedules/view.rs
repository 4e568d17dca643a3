//! The schedulers of volumes as controllers, for those who look at them and switch them.

use std::sync::Arc;

use barograph_control::{
    MemberId, MemberReport, MemberStage, PhaseState, TurnsFinding, VolumePhase, VolumeScheduler,
};
use barograph_model::RequestSender;

use super::{IoSchedules, Volume};
use crate::decisions::{Controller, ControllerLevel, DecisionTally, HoldOff};

/// A phase that nobody has: what would become of it is asked of a copy of the scheduler.
const NOBODY: MemberId = MemberId {
    process: u128::MAX,
    phase: u64::MAX,
};

/// The controller of a volume.
pub(crate) struct VolumeController {
    schedules: Arc<IoSchedules>,
    /// Its place in the list of volumes.
    at: usize,
}

/// The controllers of all volumes.
pub(crate) fn volume_controllers(
    schedules: &Arc<IoSchedules>,
) -> impl Iterator<Item = VolumeController> {
    (0..schedules.volumes().len()).map(|at| VolumeController {
        schedules: Arc::clone(schedules),
        at,
    })
}

impl VolumeController {
    fn with<T>(&self, of: impl FnOnce(&mut Volume) -> T) -> T {
        of(&mut self.schedules.desk().volumes[self.at])
    }
}

impl Controller for VolumeController {
    fn name(&self) -> String {
        self.with(|volume| volume.controller.clone())
    }

    fn level(&self) -> ControllerLevel {
        match self.with(|volume| volume.is_shared) {
            true => ControllerLevel::Global,
            false => ControllerLevel::Node,
        }
    }

    fn about(&self) -> String {
        self.with(|volume| format!("which programs may do I/O below {}", volume.path.display()))
    }

    fn held_off(&self) -> Vec<HoldOff> {
        let clock = &self.schedules.clock;
        let (now_ns, wall_ns) = (clock.monotonic_ns(), clock.now_ns());
        let held = self.with(|volume| {
            let until_ns = volume.turns.effect.held_until(now_ns)?;
            Some((until_ns, volume.turns.effect.last().copied()))
        });
        let of = |(until_ns, finding): (i64, Option<TurnsFinding>)| HoldOff {
            what: "turns".into(),
            until_ns: until_ns.saturating_sub(now_ns).saturating_add(wall_ns),
            reason: finding.map_or_else(String::new, |finding| finding.sentence()),
            is_whole: true,
        };
        held.map(of).into_iter().collect()
    }

    fn end_hold_off(&self) -> bool {
        let now_ns = self.schedules.clock.monotonic_ns();
        self.with(|volume| {
            let was_held = volume.turns.effect.held_until(now_ns).is_some();
            volume.turns.effect.resume();
            was_held
        })
    }

    fn tally(&self) -> DecisionTally {
        let name = self.name();
        self.schedules.with_book(|book| book.tally(&name))
    }

    fn explain(&self, asker: &RequestSender) -> Vec<String> {
        let now_ns = self.schedules.clock.monotonic_ns();
        // What a copy would do is asked outside of the lock.
        let (mut told, copy, bandwidth) = self.with(|volume| {
            let told = volume.explain(now_ns);
            (told, volume.scheduler.clone(), volume.bandwidth)
        });
        told.insert(1, would(copy, bandwidth, asker, now_ns));
        told
    }

    // The next step of the intake lets all go. It is due when somebody who waits asks again.
    fn paused(&self, _: &str) {}
}

impl Volume {
    fn explain(&self, now_ns: i64) -> Vec<String> {
        let scheduler = self.scheduler.scheduler();
        let phases: Vec<VolumePhase<'_>> = self.scheduler.phases().collect();
        let at_work = phases.iter().filter(is_granted).count();
        let load = scheduler.load(now_ns).map_or_else(
            || "how much the applications need is not known yet".to_owned(),
            |load| format!("the applications need {:.0} % of its time", load * 100.0),
        );
        let mut told = vec![format!(
            "the plan that holds is by {}: {at_work} may do I/O, {} wait; {load}",
            scheduler.current().by,
            phases.len() - at_work
        )];
        let effect = &self.turns.effect;
        told.push(match effect.last() {
            Some(finding) => format!("the effect of turns: {}", finding.sentence()),
            None => format!(
                "the effect of turns is judged from 30 busy periods with several phases on; {} were seen",
                effect.periods()
            ),
        });
        if self.lets_all {
            told.push(
                "at present nobody waits: it is paused, in a dry run or held off, and who begins does I/O at once"
                    .into(),
            );
        }
        told
    }
}

/// What a phase of another application would be told now.
fn would(mut copy: VolumeScheduler, bandwidth: f64, asker: &RequestSender, now_ns: i64) -> String {
    let report = MemberReport {
        stage: MemberStage::Waiting,
        application: u64::MAX,
        user: asker.uid.unwrap_or(u32::MAX),
        priority: 5,
        bytes: Some(bandwidth as u64),
        bytes_done: 0,
        lease_ns: None,
        host: None,
    };
    copy.report(NOBODY, &report, now_ns);
    copy.step(now_ns);
    let phases: Vec<VolumePhase<'_>> = copy.phases().collect();
    let ours = phases.iter().find(|it| it.phase.application == u64::MAX);
    let left_s = |phase: &VolumePhase<'_>| phase.phase.left_s(bandwidth);
    match ours.map(|it| it.state) {
        Some(PhaseState::Granted { share, .. }) => format!(
            "a new application with a second of I/O would begin at once, with {:.0} % of the volume",
            share * 100.0
        ),
        Some(_) => format!(
            "a new application with a second of I/O would wait, about {:.1} s for those that do I/O",
            phases.iter().filter(is_granted).map(left_s).sum::<f64>()
        ),
        None => "a new application would not be scheduled, since there are too many".into(),
    }
}

fn is_granted(phase: &&VolumePhase<'_>) -> bool {
    matches!(phase.state, PhaseState::Granted { .. })
}

impl IoSchedules {
    /// Takes a grant back that a decision has given: its phase waits from its next word on.
    ///
    /// # Errors
    ///
    /// Why it cannot be taken back.
    pub(crate) fn revert(&self, decision: u64, reason: &str) -> Result<(), String> {
        let now_ns = self.clock.monotonic_ns();
        let mut desk = self.desk();
        let mut volumes = desk.volumes.iter_mut();
        let found = volumes.find_map(|volume| Some((volume.phase_of(decision)?, volume)));
        let Some((phase, volume)) = found else {
            return Err("it is not in effect any more".into());
        };
        if volume.lets_all {
            return Err(
                "nobody waits on the volume at present: it is paused, in a dry run or held off"
                    .into(),
            );
        }
        let taken = volume.scheduler.take_back(phase, now_ns);
        taken.map_err(|refusal| refusal.to_string())?;
        if let Some(decision) = desk.book.get_mut(decision) {
            decision.revert(reason);
        }
        desk.changes += 1;
        Ok(())
    }
}
