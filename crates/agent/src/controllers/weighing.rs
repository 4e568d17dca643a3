//! The weight of a reader's own control group: whether it may have one, what is set, and whether
//! raised weights have an effect (docs/design/0011-control.md).

use barograph_control::{
    ControlMode, Decision, DecisionOutcome, HOLD_OFF_NS, WeightFinding, WeightVerdict,
};
use barograph_model::{NS_PER_S, RequestSender};
use tracing::info;

use super::config::WeightRights;
use super::device::FoundDevice;
use super::plan::Planning;
use super::process::ReaderProcess;
use super::readers::PlannedRead;
use super::request::ReportRequest;
use super::weights::{EndedWeight, GivenWeight, WeightTarget, WeightWish};
use super::{ControlShared, WEIGHT};
use crate::decisions::{ControllerMode, KeptDecision};

impl ControlShared {
    /// Sets the weight of the asker's own control group, or says why there is none.
    pub(super) fn weigh(
        &self,
        planning: &Planning<'_>,
        asker: &RequestSender,
        (lease_ns, now_ns): (i64, i64),
    ) -> GivenWeight {
        self.try_weigh(planning, asker, (lease_ns, now_ns))
            .unwrap_or_else(|reason| GivenWeight {
                reason: Some(reason),
                ..GivenWeight::default()
            })
    }

    fn try_weigh(
        &self,
        planning: &Planning<'_>,
        asker: &RequestSender,
        (lease_ns, now_ns): (i64, i64),
    ) -> Result<GivenWeight, String> {
        self.check_right(asker)?;
        let bytes = planning.bytes();
        if bytes.bytes == 0 {
            return Err("nothing is to be read".into());
        }
        let process = ReaderProcess::open(&self.trees, asker.pid, asker.uid)?;
        let mut weights = self.weights();
        // Under this lock, since a pause ends all weights under it.
        let switched = self.mode(WEIGHT);
        if switched.mode == ControllerMode::Paused {
            return Err(format!("weights are {}", switched.told()));
        }
        let target = weights.target(&self.trees, &process, planning.device)?;
        let inputs = planning.inputs(&bytes);
        let proposal = planning.function(&target, &bytes).propose(&inputs);
        let id = self.schedules.switches().next_id();
        let made_ns = self.clock.now_ns();
        let mut decision = proposal
            .decision(id, made_ns, &target.group, &inputs)
            .input("file", target.backend.file())
            .input("lease_s", lease_ns as f64 / NS_PER_S as f64);
        let (min, max) = (target.range.min(), target.range.max());
        decision.limit("range of the file", f64::from(min), f64::from(max));
        let mode = match planning.is_all_dry || switched.mode == ControllerMode::DryRun {
            true => ControlMode::DryRun,
            false => ControlMode::Live,
        };
        let arm = self.compare(&mut decision, (mode, &target), planning, (asker, now_ns));
        let mut before = None;
        decision.carry_out(mode, |weight| {
            let wish = WeightWish {
                plan: planning.id,
                uid: asker.uid,
                process,
                weight: weight as u32,
                until_ns: now_ns.saturating_add(lease_ns),
                now_ns,
            };
            let (set, ended) = weights.hold(&target, wish)?;
            before = ended;
            Ok(set.into())
        });
        drop(weights);
        self.mark(before.into_iter().collect());
        Ok(given(decision, arm))
    }

    /// Puts the weight off if it is raised and this read is one without, for the comparison, or if
    /// raised weights are held off. Returns what the read is in the comparison.
    fn compare(
        &self,
        decision: &mut Decision,
        (mode, target): (ControlMode, &WeightTarget),
        planning: &Planning<'_>,
        (asker, now_ns): (&RequestSender, i64),
    ) -> Option<bool> {
        let is_raised = decision.number()? > f64::from(target.range.default());
        if mode == ControlMode::DryRun || !is_raised {
            return None;
        }
        let mut readers = self.readers();
        let device = &planning.device.name;
        let reader = readers.device(asker.uid, device, &self.config, now_ns);
        let reason = match reader.weights.next(now_ns) {
            WeightVerdict::Weigh => return Some(true),
            WeightVerdict::Compare => {
                "this read has none, so that reads with a raised weight can be compared with it"
                    .into()
            }
            WeightVerdict::HeldOff { until_ns } => {
                let left_s = until_ns.saturating_sub(now_ns) / NS_PER_S;
                let found = reader.weights.last().map(WeightFinding::sentence);
                format!(
                    "raised weights are held off for {left_s} s more, since they have shown no effect: {}",
                    found.unwrap_or_default()
                )
            }
        };
        let is_compared = reader.weights.held_until(now_ns).is_none();
        decision.outcome = DecisionOutcome::Deferred { reason };
        is_compared.then_some(false)
    }

    fn check_right(&self, asker: &RequestSender) -> Result<(), String> {
        match self.config.weights {
            WeightRights::Off => Err("weights are off (control.weights in the configuration)".into()),
            WeightRights::Controllers if !asker.may_control => Err(
                "a weight needs the right to control: ask by control.sock, or let the administrator set control.weights = \"everyone\""
                    .into(),
            ),
            _ => Ok(()),
        }
    }

    /// Writes into the decision about a weight what the read got, beside the reads without one.
    pub(super) fn note_weight(
        &self,
        plan: &mut PlannedRead,
        report: &ReportRequest,
        without: Option<f64>,
    ) {
        let (Some(weight), Some(true)) = (plan.weight.as_mut(), plan.had_raised_weight) else {
            return;
        };
        weight.observe(
            self.clock.now_ns(),
            "read bytes/s, without a raised weight (median) and as reported with it",
            without.unwrap_or(f64::NAN),
            report.bandwidth().unwrap_or(f64::NAN),
        );
    }

    /// Takes in what a comparison has found: if raised weights have no effect, those that the
    /// reader has on the device are taken back.
    pub(super) fn judge_weights(
        &self,
        uid: Option<u32>,
        device: &FoundDevice,
        finding: &WeightFinding,
    ) {
        if finding.is_effective {
            return;
        }
        let why = format!(
            "raised weights of this reader have no effect on {}, so they are held off for {} s: {}",
            device.name,
            HOLD_OFF_NS / NS_PER_S,
            finding.sentence()
        );
        let plans = self.readers().weighed(uid, &device.name);
        let mut weights = self.weights();
        let ended = plans.into_iter().filter_map(|plan| {
            let reason = weights.end(plan, "raised weights have no effect")?;
            Some(EndedWeight { plan, reason })
        });
        let ended: Vec<EndedWeight> = ended.collect();
        drop(weights);
        self.mark(ended);
        info!(device = device.name, why, "I/O weights are held off");
        let id = self.schedules.switches().next_id();
        let mut decision = Decision::new(id, self.clock.now_ns(), WEIGHT, "mode", 0.0)
            .because(&why)
            .input("reads_with_weight", finding.with.0 as f64)
            .input("reads_without_weight", finding.without.0 as f64)
            .input("with_bytes_per_s", finding.with.1)
            .input("without_bytes_per_s", finding.without.1)
            .input("probability_by_chance", finding.chance);
        decision.proposed = "held_off".into();
        decision.value = "held_off".into();
        decision.outcome = DecisionOutcome::Done;
        self.keep_change(KeptDecision {
            uid,
            device: device.name.clone(),
            label: String::new(),
            plan: id,
            decision,
        });
    }
}

fn given(decision: Decision, arm: Option<bool>) -> GivenWeight {
    let weight = decision.number().map(|weight| weight as u32);
    let reason = match (&decision.outcome, weight) {
        (DecisionOutcome::Done, _) => None,
        (DecisionOutcome::DryRun, Some(weight)) => Some(format!("a dry run: it would be {weight}")),
        (DecisionOutcome::Failed { reason } | DecisionOutcome::Deferred { reason }, _) => {
            Some(reason.clone())
        }
        _ => Some("it was not set".into()),
    };
    // A weight that could not be set is not compared.
    let had_raised_weight = arm.filter(|had| !had || reason.is_none());
    GivenWeight {
        weight: weight.filter(|_| reason.is_none()),
        reason,
        decision: Some(decision),
        had_raised_weight,
    }
}
