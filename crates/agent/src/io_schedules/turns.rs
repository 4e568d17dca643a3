//! The decisions of one volume's scheduler: each grant and each wait is one, with what it was made
//! of, what was expected and what was observed. Beside that, whether turns have an effect: where
//! they have none, all do I/O at once for a time.
//!
//! It follows the plans of the scheduler and has no part in them, so a dry run is a plan that is
//! followed by nobody.

use std::collections::BTreeMap;

use barograph_control::{
    Alternative, ControlMode, Decision, DecisionOutcome, EndedPhase, FinishedPhase, PhaseGain,
    PhaseState, TurnsEffect, TurnsFinding, VolumePhase, VolumeScheduler,
};

use super::{ApplicationKey, ApplicationNames, Volume};
use crate::decisions::{ControllerMode, ControllerSwitches, DecisionBook, KeptDecision};

/// Most others that a decision names.
const OTHERS_MAX: usize = 8;
/// Most phases that are over and whose busy period is not.
const OVER_MAX: usize = 256;
const NS_PER_S: f64 = 1e9;

/// What is known at the time of a step.
pub(super) struct TurnContext<'a> {
    pub names: &'a BTreeMap<ApplicationKey, ApplicationNames>,
    pub book: &'a mut DecisionBook,
    pub switches: &'a ControllerSwitches,
    /// On the monotonic clock, and since the epoch.
    pub now_ns: i64,
    pub wall_ns: i64,
}

/// The decisions about the phases of a volume.
#[derive(Debug, Default)]
pub(super) struct VolumeTurns {
    open: BTreeMap<u64, OpenTurn>,
    /// The last decisions of phases that are over, until their busy period is.
    over: BTreeMap<u64, u64>,
    pub effect: TurnsEffect,
    /// The number of the plan that was followed last.
    followed: Option<u64>,
}

/// What holds for a phase since some time.
#[derive(Clone, Copy, Debug)]
struct OpenTurn {
    is_granted: bool,
    since_ns: i64,
    /// What was expected: the seconds of its wait, or those to its end.
    expected_s: f64,
    /// The decision; `None` if none was made, as in a pause.
    decision: Option<u64>,
    /// Whether it does I/O whatever was decided.
    is_dry: bool,
}

/// What is known of all phases at the time of a plan.
struct PlanView<'a> {
    phases: Vec<VolumePhase<'a>>,
    at_work: usize,
    load: Option<f64>,
}

impl<'a> PlanView<'a> {
    fn of(
        phases: impl Iterator<Item = VolumePhase<'a>>,
        scheduler: &VolumeScheduler,
        now_ns: i64,
    ) -> Self {
        let phases: Vec<VolumePhase<'a>> = phases.collect();
        Self {
            at_work: phases.iter().filter(is_granted).count(),
            load: scheduler.scheduler().load(now_ns),
            phases,
        }
    }
}

impl Volume {
    /// Does what is due at a time; returns the time of the next step.
    pub(super) fn attend(&mut self, context: &mut TurnContext<'_>) -> Option<i64> {
        let switched = context.switches.mode(&self.controller);
        let now_ns = context.now_ns;
        let mut held_ns = self.turns.effect.held_until(now_ns);
        let is_switched = switched.mode != ControllerMode::Live;
        self.share(is_switched || held_ns.is_some(), now_ns);
        let mut next_ns = self.scheduler.step(now_ns);
        if let Some(finding) = self.follow(switched.mode, context) {
            held_ns = self.turns.effect.held_until(now_ns);
            self.tell_hold_off(&finding, context);
            self.share(true, now_ns);
            next_ns = self.scheduler.step(now_ns);
        }
        let times = [next_ns, held_ns, switched.until_monotonic_ns];
        times.into_iter().flatten().min()
    }

    fn share(&mut self, lets_all: bool, now_ns: i64) {
        self.lets_all = lets_all;
        self.scheduler.let_all(lets_all, now_ns);
        self.turns.effect.share(lets_all);
    }

    /// Follows the plan that holds; returns why turns are held off from now on, if they are.
    fn follow(
        &mut self,
        mode: ControllerMode,
        context: &mut TurnContext<'_>,
    ) -> Option<TurnsFinding> {
        let plans = self.scheduler.scheduler().plans();
        if self.turns.followed.replace(plans) == Some(plans) {
            return None;
        }
        let held_off = self.follow_ends(context);
        let view = PlanView::of(self.scheduler.phases(), &self.scheduler, context.now_ns);
        let turns = &mut self.turns;
        let mut news = Vec::new();
        for phase in &view.phases {
            let before = turns.open.get(&phase.phase.id).copied();
            if before.is_some_and(|turn| turn.is_granted == is_granted(&phase)) {
                continue;
            }
            match before {
                Some(turn) => turn.settle(context),
                None => turns.effect.begin(phase.phase.id),
            }
            news.push(phase);
        }
        let decided = news.into_iter().map(|phase| {
            let turn = self.decide(phase, &view, mode, context);
            (phase.phase.id, turn)
        });
        let decided: Vec<(u64, OpenTurn)> = decided.collect();
        self.turns.open.extend(decided);
        held_off
    }

    /// Settles the decisions about phases that are over.
    fn follow_ends(&mut self, context: &mut TurnContext<'_>) -> Option<TurnsFinding> {
        let scheduler = &self.scheduler;
        let known = |id: &u64| scheduler.scheduler().phase(*id).is_some();
        let gone = self.turns.open.keys().filter(|id| !known(id));
        let gone: Vec<u64> = gone.copied().collect();
        let mut held_off = None;
        for id in gone {
            let Some(turn) = self.turns.open.remove(&id) else {
                continue;
            };
            turn.settle(context);
            if let Some(decision) = turn.decision {
                self.turns.over.insert(id, decision);
            }
            let ended = self.scheduler.ended().find(|ended| ended.id == id);
            let finished = finished(ended, context.now_ns);
            let verdict = self.turns.effect.end(id, &finished, context.now_ns);
            self.turns.tell_gains(&verdict.gains, context.book);
            held_off = held_off.or(verdict.held_off);
        }
        if self.turns.open.is_empty() || self.turns.over.len() > OVER_MAX {
            self.turns.over.clear();
        }
        held_off
    }

    /// Makes the decision that a phase may do I/O, or that it waits.
    fn decide(
        &self,
        phase: &VolumePhase<'_>,
        view: &PlanView<'_>,
        mode: ControllerMode,
        context: &mut TurnContext<'_>,
    ) -> OpenTurn {
        let mut turn = OpenTurn {
            is_granted: is_granted(&phase),
            since_ns: context.now_ns,
            expected_s: self.expected_s(phase, view),
            decision: None,
            is_dry: self.lets_all,
        };
        // In a pause nothing is decided; while turns are held off, neither.
        if mode == ControllerMode::Paused || (mode == ControllerMode::Live && self.lets_all) {
            return turn;
        }
        let decision_id = context.switches.next_id();
        let decision = self.decision((decision_id, turn), phase, view, context);
        let ApplicationNames { application, job } = names(context, phase);
        let label = match &*job {
            "" => application,
            job => format!("{application}, job {job}"),
        };
        let mut decision = Decision {
            subject: label.clone(),
            ..decision
        };
        let mode = match mode {
            ControllerMode::DryRun => ControlMode::DryRun,
            _ => ControlMode::Live,
        };
        decision.carry_out(mode, |_| Ok(DecisionOutcome::Done));
        context.book.keep(KeptDecision {
            uid: Some(phase.user),
            device: self.name.clone(),
            label,
            plan: decision_id,
            decision,
        });
        turn.decision = Some(decision_id);
        turn
    }

    /// Seconds that a phase is expected to wait, if it waits: for those that do I/O. Otherwise the
    /// seconds to its end, with its share.
    fn expected_s(&self, phase: &VolumePhase<'_>, view: &PlanView<'_>) -> f64 {
        let left_s = |it: &VolumePhase<'_>| it.phase.left_s(self.bandwidth);
        match phase.state {
            PhaseState::Granted { share, .. } => left_s(phase) / share.max(1e-6),
            _ => view.phases.iter().filter(is_granted).map(left_s).sum(),
        }
    }

    fn decision(
        &self,
        (id, turn): (u64, OpenTurn),
        phase: &VolumePhase<'_>,
        view: &PlanView<'_>,
        context: &TurnContext<'_>,
    ) -> Decision {
        let of = phase.phase;
        let now_ns = context.now_ns;
        let since_s = |ns: i64| now_ns.saturating_sub(ns) as f64 / NS_PER_S;
        let (share, until_ns) = match phase.state {
            PhaseState::Granted { share, until_ns } => (share, until_ns),
            PhaseState::Waiting { until_ns } => (0.0, until_ns),
            PhaseState::Unknown => (0.0, now_ns),
        };
        let by = self.scheduler.scheduler().current().by;
        let mut decision = Decision::new(id, context.wall_ns, &self.controller, "", share)
            .because(&self.reason(phase, view.at_work))
            .input("phase", of.id as f64)
            .input("policy", by)
            .input("priority", f64::from(of.priority))
            .input("since_begin_s", since_s(of.begun_ns))
            .input("heard_s", since_s(until_ns.saturating_sub(self.lease_ns)))
            .input("done_bytes", of.bytes_done as f64)
            .input("processes", phase.members as f64)
            .input("at_work", view.at_work as f64)
            .input("waiting", (view.phases.len() - view.at_work) as f64)
            .input("bandwidth_bytes_per_s", self.bandwidth)
            .input("expected_s", turn.expected_s);
        if let Some(bytes) = of.bytes {
            decision = decision.input("declared_bytes", bytes as f64);
        }
        if let Some(period) = of.period {
            decision = decision.input("period_s", period.seconds);
        }
        if let Some(load) = view.load {
            decision = decision.input("load", load);
        }
        if turn.is_granted {
            decision = decision.input("waited_s", since_s(of.waiting_ns));
        }
        self.with_others(decision, phase, view, context)
    }

    /// Adds those that wait, which could have had the grant. Other users' are not named.
    fn with_others(
        &self,
        mut decision: Decision,
        phase: &VolumePhase<'_>,
        view: &PlanView<'_>,
        context: &TurnContext<'_>,
    ) -> Decision {
        let others = view
            .phases
            .iter()
            .filter(|it| !is_granted(it) && it.phase.id != phase.phase.id);
        let by = self.scheduler.scheduler().current().by;
        for (n, other) in others.enumerate() {
            if n >= OTHERS_MAX {
                decision.dropped += 1;
                continue;
            }
            let who = match other.user == phase.user {
                true => names(context, other).application,
                false => "an application of another user".to_owned(),
            };
            let waited_ns = context.now_ns.saturating_sub(other.phase.waiting_ns);
            let left_s = other.phase.left_s(self.bandwidth);
            decision = decision.alternative(&Alternative {
                what: format!("{who} does I/O (phase {})", other.phase.id),
                why_not: format!(
                    "by {by} it waits, since {:.1} s, with {left_s:.1} s left",
                    waited_ns as f64 / NS_PER_S
                ),
            });
        }
        decision
    }

    fn tell_hold_off(&self, finding: &TurnsFinding, context: &mut TurnContext<'_>) {
        let id = context.switches.next_id();
        let why = format!(
            "turns have no effect here, so all do I/O at once for {} s: {}",
            barograph_control::HOLD_OFF_NS / NS_PER_S as i64,
            finding.sentence()
        );
        let mut decision = Decision::new(id, context.wall_ns, &self.controller, "mode", 0.0);
        decision.value = "held_off".into();
        decision.proposed = "held_off".into();
        decision.outcome = DecisionOutcome::Done;
        let decision = decision
            .because(&why)
            .input("busy_periods", finding.periods as f64)
            .input("gain", finding.gain)
            .input("gain_at_most", finding.gain_max);
        tracing::warn!(volume = self.name, why, "I/O in turns is held off");
        context.book.keep(KeptDecision {
            uid: None,
            device: self.name.clone(),
            label: String::new(),
            plan: id,
            decision,
        });
    }

    /// Why a phase may go on or waits.
    pub(super) fn reason(&self, phase: &VolumePhase<'_>, at_work: usize) -> String {
        let by = self.scheduler.scheduler().current().by;
        match phase.state {
            _ if self.lets_all => "everybody does I/O at once at present".into(),
            PhaseState::Granted { .. } if phase.is_alone => {
                "it went on without a grant, since it had waited for as long as it wanted to".into()
            }
            PhaseState::Granted { .. } if at_work > 1 => {
                format!("by {by}, beside {} more", at_work - 1)
            }
            PhaseState::Granted { .. } => format!("by {by}"),
            _ => format!("by {by}, {at_work} before it"),
        }
    }

    /// The phase that has its grant by a decision; `None` if that is not in effect any more.
    pub(super) fn phase_of(&self, decision: u64) -> Option<u64> {
        let mut open = self.turns.open.iter();
        let found = open.find(|(_, turn)| turn.decision == Some(decision) && turn.is_granted);
        found.map(|(id, _)| *id)
    }
}

impl OpenTurn {
    /// Writes what was observed into the decision that is over now.
    fn settle(&self, context: &mut TurnContext<'_>) {
        let decision = self.decision.and_then(|id| context.book.get_mut(id));
        let Some(decision) = decision else {
            return;
        };
        let measure = match (self.is_granted, self.is_dry) {
            (true, _) => "seconds of I/O, as expected and as observed",
            (false, false) => "seconds of waiting, as expected and as observed",
            (false, true) => "seconds that it would have waited, and seconds that it did I/O",
        };
        let observed_s = context.now_ns.saturating_sub(self.since_ns) as f64 / NS_PER_S;
        decision.observe(context.wall_ns, measure, self.expected_s, observed_s);
    }
}

impl VolumeTurns {
    /// Notes in the last decisions about phases what turns gave them.
    fn tell_gains(&mut self, gains: &[PhaseGain], book: &mut DecisionBook) {
        for gain in gains {
            let decision = self.over.remove(&gain.id).and_then(|id| book.get_mut(id));
            if let Some(decision) = decision {
                let told = decision.clone();
                *decision = told
                    .input("took_s", gain.observed_s)
                    .input("all_at_once_s", gain.shared_s);
            }
        }
    }
}

fn is_granted(phase: &&VolumePhase<'_>) -> bool {
    matches!(phase.state, PhaseState::Granted { .. })
}

fn names(context: &TurnContext<'_>, phase: &VolumePhase<'_>) -> ApplicationNames {
    let names = context.names.get(&(phase.user, phase.phase.application));
    names.cloned().unwrap_or_default()
}

fn finished(ended: Option<&EndedPhase>, now_ns: i64) -> FinishedPhase {
    match ended {
        Some(ended) => FinishedPhase {
            begun_ns: ended.begun_ns,
            started_ns: ended.started_ns.unwrap_or(ended.ended_ns),
            ended_ns: ended.ended_ns,
            bytes: ended.bytes_done,
            is_lost: ended.has_expired,
        },
        None => FinishedPhase {
            begun_ns: now_ns,
            started_ns: now_ns,
            ended_ns: now_ns,
            bytes: 0,
            is_lost: true,
        },
    }
}
