//! One plan and its report: the policy of the user and device, and the bandwidth that is expected.
//! The weight of the reader's own control group is `weighing`'s.

use barograph_control::{
    AugmentationConfig, AugmentationPlan, AugmentationPolicy, AugmentationRequest,
    BandwidthPrediction, ControlMode, DecisionOutcome, ErrorBound, MEASURED_BYTES_MIN,
    WeightFunction, WeightInputs, WeightParts, urgency_of_deadline,
};
use barograph_model::{ControlFault, ControlFaultKind, NS_PER_S, RequestSender, Selector};
use serde_json::{Value as Json, json};

use super::config::ControlModeConfig;
use super::device::FoundDevice;
use super::readers::PlannedRead;
use super::request::{PlanRequest, ReportRequest, TIER, wrong};
use super::weights::{GivenWeight, WeightTarget};
use super::{AUGMENTATION, ControlShared, unknown};
use crate::decisions::{ControllerMode, SwitchedMode};

/// The stream of the bandwidth that a reader of a device will get.
const AVAILABLE: &str = "disk.bandwidth.available";
/// The label of that stream that tells what the forecast is based on, if it has one.
const BASIS: &str = "basis";
/// A lease lasts so many times as long as the read is expected to take, but at least as long as is
/// configured and at most ten times that.
const LEASE_TIMES: f64 = 4.0;
const LEASE_TIMES_MAX: i64 = 10;
/// The share of the reported bytes that the kernel must have read from the device for a report to
/// count as a measurement of it: less was in memory already, or was not read at all.
const FROM_DEVICE_MIN: f64 = 0.5;

/// A bandwidth that is expected, and what it is based on.
struct Expected {
    bandwidth: Option<BandwidthPrediction>,
    basis: String,
}

/// What is read, as the weight depends on it.
pub(super) struct PlannedBytes {
    /// The base and the buckets of the plan.
    pub bytes: u64,
    /// The base and all buckets.
    pub bytes_max: u64,
}

/// One plan on its way.
pub(super) struct Planning<'a> {
    pub id: u64,
    pub request: &'a PlanRequest,
    pub device: &'a FoundDevice,
    expected: Expected,
    plan: AugmentationPlan,
    /// Whether the decision about the buckets is a dry run, and whether all of it is.
    is_dry: bool,
    pub is_all_dry: bool,
}

impl ControlShared {
    pub(super) fn plan(&self, body: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        if self.config.mode == ControlModeConfig::Off {
            return Err(ControlFault {
                kind: ControlFaultKind::Refused,
                message: "controllers are off (control.mode in the configuration): read what the error bound needs".into(),
            });
        }
        let now_ns = self.clock.monotonic_ns();
        self.readers().admit(asker.uid, now_ns)?;
        let request = PlanRequest::parse(body)?;
        // These could look themselves.
        let is_ours = asker.uid.is_some_and(|uid| uid == self.uid || uid == 0);
        let may_look = asker.may_control || is_ours;
        let device = self.trees.device(&request.place, may_look)?;
        let planning = self.augment(&request, &device, asker, now_ns);
        let lease_ns = self.lease_ns(&planning)?;
        let given = self.weigh(&planning, asker, (lease_ns, now_ns));
        let answer = planning.answer(&given, lease_ns);
        self.keep(planning, given, asker.uid, now_ns);
        Ok(answer)
    }

    /// Has the policy decide about the buckets. A dry run leaves the policy as it is.
    fn augment<'a>(
        &self,
        request: &'a PlanRequest,
        device: &'a FoundDevice,
        asker: &RequestSender,
        now_ns: i64,
    ) -> Planning<'a> {
        let forecast = self.forecast(device);
        let switched = self.mode(AUGMENTATION);
        let is_all_dry = request.dry_run || self.config.mode == ControlModeConfig::DryRun;
        let is_dry = is_all_dry || switched.mode == ControllerMode::DryRun;
        let id = self.schedules.switches().next_id();
        let mut readers = self.readers();
        let reader = readers.device(asker.uid, &device.name, &self.config, now_ns);
        let expected = forecast.unwrap_or_else(|| match reader.measured() {
            Some(measured) => Expected {
                bandwidth: Some(measured),
                basis: "measured".into(),
            },
            None => Expected {
                bandwidth: None,
                basis: "none".into(),
            },
        });
        let ask = request.ask(expected.bandwidth);
        let plan = match (switched.mode, is_dry) {
            (ControllerMode::Paused, _) => paused_plan(request, &switched),
            (_, true) => reader.policy.clone().plan(&ask),
            (_, false) => reader.policy.plan(&ask),
        };
        Planning {
            id,
            request,
            device,
            expected,
            plan,
            is_dry,
            is_all_dry,
        }
    }

    /// The forecast of the device's bandwidth, if there is a fresh one.
    fn forecast(&self, device: &FoundDevice) -> Option<Expected> {
        let names = [Some(&device.name), device.disk.as_ref()];
        names.into_iter().flatten().find_map(|name| {
            let selector = Selector::parse(AVAILABLE).ok()?.with_label("device", name);
            let newest = self.with_observer(|observer| observer.latest(&selector))?;
            let newest = newest.into_iter().find(|newest| !newest.stale)?;
            let sample = newest.sample?;
            let bandwidth = sample.value.as_f64().filter(|it| *it > 0.0)?;
            let labels = &newest.descriptor.labels;
            let basis = labels.iter().find(|(name, _)| *name == BASIS);
            Some(Expected {
                bandwidth: Some(BandwidthPrediction {
                    bandwidth,
                    half_width: f64::from(sample.error),
                }),
                basis: basis.map_or("forecast", |(_, value)| value).to_owned(),
            })
        })
    }

    fn lease_ns(&self, planning: &Planning<'_>) -> Result<i64, ControlFault> {
        let least = self.config.lease_ns();
        let least = least.map_err(|error| ControlFault {
            kind: ControlFaultKind::Internal,
            message: error.to_string(),
        })?;
        let bandwidth = planning.expected.bandwidth.map(|it| it.bandwidth);
        let Some(bandwidth) = bandwidth.filter(|it| *it > 0.0) else {
            return Ok(least);
        };
        let seconds = planning.bytes().bytes as f64 / bandwidth * LEASE_TIMES;
        let wanted = (seconds * NS_PER_S as f64) as i64;
        Ok(wanted.clamp(least, least.saturating_mul(LEASE_TIMES_MAX)))
    }

    fn keep(&self, planning: Planning<'_>, given: GivenWeight, uid: Option<u32>, now_ns: i64) {
        let Planning {
            id,
            request,
            device,
            expected,
            plan,
            is_dry,
            is_all_dry: _,
        } = planning;
        let ask = request.ask(expected.bandwidth);
        let made_ns = self.clock.now_ns();
        let mut augmentation = plan
            .decision(id, made_ns, &request.label, &ask)
            .input("base_bytes", request.base_bytes as f64)
            .input("priority", request.priority)
            .input("bandwidth_basis", &*expected.basis);
        if let Some(interval_s) = request.interval_s {
            augmentation = augmentation.input("interval_s", interval_s);
        }
        if let Some(reason) = &given.reason {
            augmentation = augmentation.input("no_weight", &**reason);
        }
        if is_dry {
            augmentation.carry_out(ControlMode::DryRun, |_| Ok(DecisionOutcome::Done));
        }
        let kept = PlannedRead {
            augmentation,
            weight: given.decision,
            label: request.label.clone(),
            predicted: expected.bandwidth.map(|it| it.bandwidth),
            read_bytes: self.trees.read_bytes(device),
            device: device.clone(),
            is_reported: false,
            had_raised_weight: given.had_raised_weight,
        };
        self.readers().keep(uid, kept, now_ns);
    }

    pub(super) fn report(&self, body: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        let report = ReportRequest::parse(body)?;
        if let Some(answer) = self.report_placement(&report, asker) {
            return answer;
        }
        let id = report.decision;
        let (device, read_before, predicted, arm) = {
            let mut readers = self.readers();
            let plan = readers.plan(asker.uid, id).ok_or_else(|| unknown(id))?;
            if plan.is_reported {
                return Err(wrong(format!("decision {id} was reported already")));
            }
            plan.is_reported = true;
            let known = (plan.device.clone(), plan.read_bytes, plan.predicted);
            (known.0, known.1, known.2, plan.had_raised_weight)
        };
        let ended = self.weights().end(id, "the read was reported");
        let refusal = self.refusal(&report, &device, read_before);
        let now_ns = self.clock.monotonic_ns();
        let mut readers = self.readers();
        let (mut finding, mut without) = (None, None);
        if let (None, Some(bandwidth)) = (&refusal, report.bandwidth()) {
            let reader = readers.device(asker.uid, &device.name, &self.config, now_ns);
            reader.observe(bandwidth);
            without = reader.weights.without();
            finding = arm.and_then(|had| reader.weights.observe(had, bandwidth, now_ns));
        }
        if let Some(plan) = readers.plan(asker.uid, id) {
            self.note(plan, &report, (predicted, refusal.as_deref()));
            self.note_weight(plan, &report, without);
            if let (Some(weight), Some(reason)) = (plan.weight.as_mut(), ended) {
                weight.revert(&reason);
            }
        }
        drop(readers);
        if let Some(finding) = finding {
            self.judge_weights(asker.uid, &device, &finding);
        }
        Ok(json!({ "decision": id, "measured": refusal.is_none(), "reason": refusal }))
    }

    /// Why a report is no measurement of the device; `None` if it is one.
    fn refusal(
        &self,
        report: &ReportRequest,
        device: &FoundDevice,
        before: Option<u64>,
    ) -> Option<String> {
        if report.bandwidth().is_none() {
            return Some("nothing was read, or in no time".into());
        }
        if report.bytes < MEASURED_BYTES_MIN {
            return Some(format!(
                "{} bytes are too few to measure the device: it takes {MEASURED_BYTES_MIN}",
                report.bytes
            ));
        }
        let read = self.trees.read_bytes(device)?.checked_sub(before?)?;
        let is_from_device = read as f64 >= report.bytes as f64 * FROM_DEVICE_MIN;
        (!is_from_device).then(|| {
            format!(
                "{read} bytes were read from {} meanwhile, of {} that were reported: the others were in memory, so this does not measure the device",
                device.name, report.bytes
            )
        })
    }

    /// Writes into a decision what came of it.
    fn note(
        &self,
        plan: &mut PlannedRead,
        report: &ReportRequest,
        (predicted, refusal): (Option<f64>, Option<&str>),
    ) {
        let decision = &mut plan.augmentation;
        decision.carry_out(ControlMode::Live, |_| Ok(DecisionOutcome::Done));
        let measured = report.bandwidth().unwrap_or(f64::NAN);
        let predicted = predicted.unwrap_or(f64::NAN);
        let observed_ns = self.clock.now_ns();
        decision.observe(
            observed_ns,
            "read bytes/s, as predicted and as reported",
            predicted,
            measured,
        );
        let mut told = decision
            .clone()
            .input("reported_bytes", report.bytes as f64)
            .input("reported_s", report.seconds);
        if let Some(nrmse) = report.nrmse {
            told = told.input("reported_nrmse", nrmse);
        }
        if let Some(refusal) = refusal {
            told = told.input("not_measured", refusal);
        }
        *decision = told;
    }
}

/// The plan of a pause: what the bound needs, and no probe.
fn paused_plan(request: &PlanRequest, switched: &SwitchedMode) -> AugmentationPlan {
    let mut policy = AugmentationPolicy::new(AugmentationConfig::learnt(TIER));
    let plan = policy.plan(&request.ask(None));
    AugmentationPlan {
        probe: None,
        reason: format!(
            "{} of {} buckets: what the bound needs, since augmentation is {}",
            plan.buckets,
            request.buckets.len(),
            switched.told()
        ),
        ..plan
    }
}

impl PlanRequest {
    fn ask(&self, prediction: Option<BandwidthPrediction>) -> AugmentationRequest<'_> {
        AugmentationRequest {
            buckets: &self.buckets,
            base_error: self.base_error,
            base_bytes: self.base_bytes,
            bound: self.bound,
            prediction,
        }
    }
}

impl Planning<'_> {
    pub(super) fn bytes(&self) -> PlannedBytes {
        let all = self.request.buckets.iter();
        let all = all.fold(self.request.base_bytes, |sum, bucket| {
            sum.saturating_add(bucket.bytes)
        });
        PlannedBytes {
            bytes: self.request.base_bytes.saturating_add(self.plan.bytes),
            bytes_max: all,
        }
    }

    /// The share of the device that the read needs to be in time, if that is known: a read that is
    /// repeated has to end before the next one begins.
    fn urgency(&self, bytes: &PlannedBytes) -> Option<f64> {
        let bandwidth = self.expected.bandwidth?.bandwidth;
        let left_s = self.request.interval_s?;
        Some(urgency_of_deadline(bytes.bytes, bandwidth, left_s))
    }

    /// The function of the weight. An urgency that is not known does not count: as 0 it would give
    /// most readers less than those that ask for nothing.
    pub(super) fn function(&self, target: &WeightTarget, bytes: &PlannedBytes) -> WeightFunction {
        let urgency = f64::from(u8::from(self.urgency(bytes).is_some()));
        let coefficients = WeightParts {
            priority: 2.0 + urgency,
            bytes: 1.0,
            looseness: 1.0,
            urgency,
        };
        WeightFunction::new(target.range, bytes.bytes_max).with_coefficients(coefficients)
    }

    pub(super) fn inputs(&self, bytes: &PlannedBytes) -> WeightInputs {
        WeightInputs {
            priority: self.request.priority,
            bytes: bytes.bytes,
            // Without a bound, the error that the plan reaches is what the data are worth.
            bound: (self.request.bound).or(Some(ErrorBound::nrmse(self.plan.error))),
            urgency: self.urgency(bytes).unwrap_or(0.0),
        }
    }

    fn answer(&self, given: &GivenWeight, lease_ns: i64) -> Json {
        let bandwidth = self.expected.bandwidth;
        let probe = self.plan.probe;
        json!({
            "decision": self.id,
            "buckets": self.plan.buckets,
            "bytes": self.bytes().bytes,
            "degree": self.plan.degree,
            "error": self.plan.error,
            "is_bound_kept": self.plan.is_bound_kept,
            "probe": probe.map(|it| json!({ "bucket": it.bucket, "bytes": it.bytes })),
            "bandwidth": {
                "value": bandwidth.map(|it| it.bandwidth),
                "error": bandwidth.map(|it| it.half_width),
                "basis": self.expected.basis,
            },
            "device": self.device.name,
            "weight": given.weight,
            "weight_reason": given.reason,
            "lease_s": lease_ns as f64 / NS_PER_S as f64,
            "dry_run": self.is_dry,
            "reason": self.plan.reason,
        })
    }
}
