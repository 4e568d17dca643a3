//! One plan and its report: the policy of the user and device, the bandwidth that is expected, and
//! the weight of the reader's own control group.

use std::sync::{Arc, PoisonError};

use barograph_client::Observer;
use barograph_control::{
    AugmentationPlan, AugmentationRequest, BandwidthPrediction, ControlMode, Decision,
    DecisionOutcome, ErrorBound, MEASURED_BYTES_MIN, WeightFunction, WeightInputs, WeightParts,
    urgency_of_deadline,
};
use barograph_model::{ControlFault, ControlFaultKind, NS_PER_S, RequestSender, Selector};
use serde_json::{Value as Json, json};

use super::config::{ControlModeConfig, WeightRights};
use super::device::FoundDevice;
use super::process::ReaderProcess;
use super::readers::PlannedRead;
use super::request::{PlanRequest, ReportRequest, wrong};
use super::weights::{WeightTarget, WeightWish};
use super::{ControlShared, unknown};

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
struct PlannedBytes {
    /// The base and the buckets of the plan.
    bytes: u64,
    /// The base and all buckets.
    bytes_max: u64,
}

/// What came of the wish for a weight.
#[derive(Default)]
struct GivenWeight {
    weight: Option<u32>,
    /// Why there is none.
    reason: Option<String>,
    decision: Option<Decision>,
}

/// One plan on its way.
struct Planning<'a> {
    id: u64,
    request: &'a PlanRequest,
    device: &'a FoundDevice,
    expected: Expected,
    plan: AugmentationPlan,
    is_dry: bool,
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
        let is_dry = request.dry_run || self.config.mode == ControlModeConfig::DryRun;
        let mut readers = self.readers();
        let id = readers.next_id();
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
        let plan = match is_dry {
            true => reader.policy.clone().plan(&ask),
            false => reader.policy.plan(&ask),
        };
        Planning {
            id,
            request,
            device,
            expected,
            plan,
            is_dry,
        }
    }

    /// The forecast of the device's bandwidth, if there is a fresh one.
    fn forecast(&self, device: &FoundDevice) -> Option<Expected> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if observer.is_none() {
            let opened = Observer::open_public(self.run_dir.clone(), Arc::clone(&self.clock));
            *observer = opened.ok();
        }
        let observer = observer.as_ref()?;
        let names = [Some(&device.name), device.disk.as_ref()];
        names.into_iter().flatten().find_map(|name| {
            let selector = Selector::parse(AVAILABLE).ok()?;
            let newest = observer.latest(&selector.with_label("device", name));
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

    /// Sets the weight of the asker's own control group, or says why there is none.
    fn weigh(
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
        let target = weights.target(&self.trees, &process, planning.device)?;
        let inputs = planning.inputs(&bytes);
        let proposal = planning.function(&target, &bytes).propose(&inputs);
        let id = self.readers().next_id();
        let made_ns = self.clock.now_ns();
        let mut decision = proposal
            .decision(id, made_ns, &target.group, &inputs)
            .input("file", target.backend.file())
            .input("lease_s", lease_ns as f64 / NS_PER_S as f64);
        let (min, max) = (target.range.min(), target.range.max());
        decision.limit("range of the file", f64::from(min), f64::from(max));
        let mode = match planning.is_dry {
            true => ControlMode::DryRun,
            false => ControlMode::Live,
        };
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
        let weight = decision.number().map(|weight| weight as u32);
        let reason = match (&decision.outcome, weight) {
            (DecisionOutcome::Done, _) => None,
            (DecisionOutcome::DryRun, Some(weight)) => {
                Some(format!("a dry run: it would be {weight}"))
            }
            (DecisionOutcome::Failed { reason } | DecisionOutcome::Deferred { reason }, _) => {
                Some(reason.clone())
            }
            _ => Some("it was not set".into()),
        };
        Ok(GivenWeight {
            weight: weight.filter(|_| reason.is_none()),
            reason,
            decision: Some(decision),
        })
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

    fn keep(&self, planning: Planning<'_>, given: GivenWeight, uid: Option<u32>, now_ns: i64) {
        let Planning {
            id,
            request,
            device,
            expected,
            plan,
            is_dry,
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
        };
        self.readers().keep(uid, kept, now_ns);
    }

    pub(super) fn report(&self, body: &Json, asker: &RequestSender) -> Result<Json, ControlFault> {
        let report = ReportRequest::parse(body)?;
        let id = report.decision;
        let (device, read_before, predicted) = {
            let mut readers = self.readers();
            let plan = readers.plan(asker.uid, id).ok_or_else(|| unknown(id))?;
            if plan.is_reported {
                return Err(wrong(format!("decision {id} was reported already")));
            }
            plan.is_reported = true;
            (plan.device.clone(), plan.read_bytes, plan.predicted)
        };
        let ended = self.weights().end(id, "the read was reported");
        let refusal = self.refusal(&report, &device, read_before);
        let now_ns = self.clock.monotonic_ns();
        let mut readers = self.readers();
        if let (None, Some(bandwidth)) = (&refusal, report.bandwidth()) {
            let reader = readers.device(asker.uid, &device.name, &self.config, now_ns);
            reader.observe(bandwidth);
        }
        if let Some(plan) = readers.plan(asker.uid, id) {
            self.note(plan, &report, (predicted, refusal.as_deref()));
            if let (Some(weight), Some(reason)) = (plan.weight.as_mut(), ended) {
                weight.revert(&reason);
            }
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
    fn bytes(&self) -> PlannedBytes {
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
    fn function(&self, target: &WeightTarget, bytes: &PlannedBytes) -> WeightFunction {
        let urgency = f64::from(u8::from(self.urgency(bytes).is_some()));
        let coefficients = WeightParts {
            priority: 2.0 + urgency,
            bytes: 1.0,
            looseness: 1.0,
            urgency,
        };
        WeightFunction::new(target.range, bytes.bytes_max).with_coefficients(coefficients)
    }

    fn inputs(&self, bytes: &PlannedBytes) -> WeightInputs {
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
