//! What readers send: a request for a plan, and the report of what came of it. Bodies are foreign:
//! everything is bounded, and what is wrong is told with what to send instead.

use barograph_control::{BUCKETS_MAX, Bucket, ErrorBound, ErrorMetric};
use barograph_model::{ControlFault, ControlFaultKind, cut};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

/// Most bytes of the label of a plan; longer ones are cut.
const LABEL_BYTES_MAX: usize = 128;
/// Most bytes of a path.
const PATH_BYTES_MAX: usize = 4_096;
/// The priorities of readers, and that of one that gives none.
const PRIORITIES: (f64, f64) = (1.0, 10.0);
const PRIORITY_DEFAULT: f64 = 5.0;
/// The tier of all buckets of a request: they lie on the device of the plan.
pub(super) const TIER: u8 = 0;

/// A request for a plan, checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlanRequest {
    pub place: PlanPlace,
    pub label: String,
    pub buckets: Vec<Bucket>,
    pub base_bytes: u64,
    /// The error of the base, in the metric of the bound.
    pub base_error: f64,
    pub bound: Option<ErrorBound>,
    pub priority: f64,
    pub interval_s: Option<f64>,
    pub dry_run: bool,
}

/// What a reader says of where its data lie.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PlanPlace {
    /// The path of a file.
    Path(String),
    /// The name of a block device, or the number of the device of a file system, such as `8:1`.
    Device(String),
}

/// What came of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportRequest {
    /// The number of the decision.
    pub decision: u64,
    /// The bytes that were read.
    pub bytes: u64,
    /// The time that it took.
    pub seconds: f64,
    /// The error that was reached.
    #[serde(default)]
    pub nrmse: Option<f64>,
}

/// The body of a request for a plan.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanBody {
    path: Option<String>,
    device: Option<String>,
    label: Option<String>,
    buckets: Vec<BucketBody>,
    #[serde(default)]
    base_bytes: u64,
    base_nrmse: Option<f64>,
    base_error: Option<f64>,
    error: Option<BoundBody>,
    priority: Option<f64>,
    interval_s: Option<f64>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketBody {
    bytes: u64,
    /// The error after the bucket; null, as JSON writes what is no number, keeps no bound.
    nrmse: Option<f64>,
    /// The same in the metric of the bound.
    error: Option<f64>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BoundBody {
    Nrmse(f64),
    Psnr(f64),
    PsnrMax(f64),
    Linf(f64),
}

/// How the errors of buckets become errors in the metric of a bound.
#[derive(Clone, Copy)]
struct BoundMetric {
    bound: Option<ErrorBound>,
    /// The error of a bucket in this metric, of its NRMSE; `None` if it does not follow from that.
    of_nrmse: Option<fn(f64) -> f64>,
}

impl PlanRequest {
    /// Reads the body of a request.
    pub(super) fn parse(body: &Json) -> Result<Self, ControlFault> {
        let body: PlanBody = read(body, "a plan")?;
        if body.buckets.len() > BUCKETS_MAX {
            return Err(wrong(format!(
                "{} buckets: send the first {BUCKETS_MAX} at most",
                body.buckets.len()
            )));
        }
        let metric = BoundMetric::of(body.error)?;
        // An error that is not known keeps no bound.
        let base_error = metric.error(body.base_nrmse, body.base_error);
        let mut buckets = Vec::with_capacity(body.buckets.len());
        for (at, bucket) in body.buckets.iter().enumerate() {
            let error_after = metric.error(bucket.nrmse, bucket.error);
            buckets.push(Bucket {
                bytes: bucket.bytes,
                error_after: error_after.ok_or_else(|| needs_error(at))?,
                tier: TIER,
            });
        }
        let priority = body.priority.unwrap_or(PRIORITY_DEFAULT);
        if !(PRIORITIES.0..=PRIORITIES.1).contains(&priority) {
            return Err(wrong(format!(
                "priority is {priority}: send 1 (least) to 10"
            )));
        }
        if body.interval_s.is_some_and(|it| it.is_nan() || it <= 0.0) {
            return Err(wrong(
                "interval_s must be more than 0: leave it out if it is not known".into(),
            ));
        }
        Ok(Self {
            place: place(body.path, body.device)?,
            label: cut(body.label.unwrap_or_default(), LABEL_BYTES_MAX),
            buckets,
            base_bytes: body.base_bytes,
            base_error: base_error.unwrap_or(f64::NAN),
            bound: metric.bound,
            priority,
            interval_s: body.interval_s,
            dry_run: body.dry_run,
        })
    }
}

impl ReportRequest {
    /// Reads the body of a report.
    pub(super) fn parse(body: &Json) -> Result<Self, ControlFault> {
        let report: Self = read(body, "a report")?;
        match report.seconds.is_finite() && report.seconds >= 0.0 {
            true => Ok(report),
            false => Err(wrong(format!(
                "seconds is {}: send the time that the read took",
                report.seconds
            ))),
        }
    }

    /// The bandwidth of the read in bytes/s; `None` if nothing was read, or in no time.
    pub(super) fn bandwidth(&self) -> Option<f64> {
        let bandwidth = self.bytes as f64 / self.seconds;
        (self.bytes > 0 && self.seconds > 0.0 && bandwidth.is_finite()).then_some(bandwidth)
    }
}

impl BoundMetric {
    fn of(bound: Option<BoundBody>) -> Result<Self, ControlFault> {
        let same: fn(f64) -> f64 = |nrmse| nrmse;
        // For the policy, errors that fall are as an NRMSE, and ratios that rise are as a PSNR.
        let (bound, value, of_nrmse) = match bound {
            None => {
                return Ok(Self {
                    bound: None,
                    of_nrmse: Some(same),
                });
            }
            Some(BoundBody::Nrmse(value)) => (ErrorBound::nrmse(value), value, Some(same)),
            Some(BoundBody::Linf(value)) => (ErrorBound::nrmse(value), value, None),
            Some(BoundBody::Psnr(value)) => {
                let of_nrmse: fn(f64) -> f64 = psnr_of_nrmse;
                (ErrorBound::psnr(value), value, Some(of_nrmse))
            }
            Some(BoundBody::PsnrMax(value)) => (ErrorBound::psnr(value), value, None),
        };
        let is_error = bound.metric == ErrorMetric::Nrmse;
        match value.is_nan() || (is_error && value < 0.0) {
            true => Err(wrong(format!(
                "an error bound of {value} cannot be kept: send a number of at least 0"
            ))),
            false => Ok(Self {
                bound: Some(bound),
                of_nrmse,
            }),
        }
    }

    /// The error in this metric, of what was sent; `None` if it does not follow from that.
    fn error(&self, nrmse: Option<f64>, sent: Option<f64>) -> Option<f64> {
        let derived = || Some(nrmse.map_or(f64::NAN, self.of_nrmse?));
        sent.or_else(derived)
    }
}

fn needs_error(bucket: usize) -> ControlFault {
    wrong(format!(
        "the error of bucket {bucket} does not follow from its nrmse: send it as error, in the metric of the bound"
    ))
}

/// The PSNR by range, in decibels: 20 lg of the range over the root mean square.
fn psnr_of_nrmse(nrmse: f64) -> f64 {
    -20.0 * nrmse.log10()
}

fn place(path: Option<String>, device: Option<String>) -> Result<PlanPlace, ControlFault> {
    match (path, device) {
        (_, Some(device)) => Ok(PlanPlace::Device(cut(device, PATH_BYTES_MAX))),
        (Some(path), None) if path.starts_with('/') && path.len() <= PATH_BYTES_MAX => {
            Ok(PlanPlace::Path(path))
        }
        (Some(_), None) => Err(wrong(format!(
            "the path must be absolute, and of {PATH_BYTES_MAX} bytes at most"
        ))),
        (None, None) => Err(wrong(
            "send where the data lie: path, or device (a name such as sda, or the number of the file system, such as 8:1)"
                .into(),
        )),
    }
}

/// Reads a body of a request for something.
pub(super) fn read<T: DeserializeOwned>(body: &Json, what: &str) -> Result<T, ControlFault> {
    T::deserialize(body).map_err(|error| wrong(format!("this is no request for {what}: {error}")))
}

/// A refusal of what was sent.
pub(super) fn wrong(message: String) -> ControlFault {
    ControlFault {
        kind: ControlFaultKind::Statement,
        message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(body: &Json) -> Result<PlanRequest, String> {
        PlanRequest::parse(body).map_err(|fault| fault.message)
    }

    #[test]
    fn errors_are_in_the_metric_of_the_bound() {
        let bucket = |error: Json| json!({ "bytes": 5, "nrmse": 0.01, "error": error });
        let null = Json::Null;
        let table = [
            (json!(null), null.clone(), None, 0.01),
            (
                json!({"nrmse": 0.1}),
                null.clone(),
                Some(ErrorBound::nrmse(0.1)),
                0.01,
            ),
            (
                json!({"psnr": 30}),
                null.clone(),
                Some(ErrorBound::psnr(30.0)),
                40.0,
            ),
            (
                json!({"psnr_max": 30}),
                json!(35),
                Some(ErrorBound::psnr(30.0)),
                35.0,
            ),
            (
                json!({"linf": 3}),
                json!(2.5),
                Some(ErrorBound::nrmse(3.0)),
                2.5,
            ),
        ];
        for (bound, error, expect, after) in table {
            let body = json!({ "device": "sda", "buckets": [bucket(error)], "error": bound });
            let request = plan(&body).unwrap();
            assert_eq!(request.bound, expect, "{body}");
            assert_eq!(request.buckets[0].error_after, after, "{body}");
            assert!(request.base_error.is_nan());
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let buckets = json!([{ "bytes": 1, "nrmse": 0.5 }]);
        let many: Vec<Json> = vec![buckets[0].clone(); BUCKETS_MAX + 1];
        let table = [
            (json!(7), "invalid type"),
            (json!({}), "missing field `buckets`"),
            (json!({"buckets": []}), "send where the data lie"),
            (json!({"path": "a/b", "buckets": []}), "absolute"),
            (
                json!({"device": "a", "buckets": many}),
                "send the first 4096",
            ),
            (
                json!({"device": "a", "buckets": [], "priority": 11}),
                "send 1 (least) to 10",
            ),
            (
                json!({"device": "a", "buckets": [], "interval_s": 0}),
                "interval_s",
            ),
            (
                json!({"device": "a", "buckets": [], "error": {"nrmse": -1}}),
                "at least 0",
            ),
            (
                json!({"device": "a", "buckets": [], "error": {"l2": 1}}),
                "unknown variant `l2`",
            ),
            (
                json!({"device": "a", "buckets": [{"bytes": -1}]}),
                "invalid value",
            ),
            (
                json!({"device": "a", "buckets": buckets, "error": {"linf": 1}}),
                "send it as error",
            ),
            (
                json!({"device": "a", "buckets": [], "x": 1}),
                "unknown field `x`",
            ),
        ];
        for (body, expect) in table {
            let refused = plan(&body).unwrap_err();
            assert!(refused.contains(expect), "{body}: {refused}");
        }
    }

    #[test]
    fn a_bandwidth_needs_bytes_and_time() {
        let table = [
            (
                json!({"decision": 1, "bytes": 10, "seconds": 2.0}),
                Some(5.0),
            ),
            (json!({"decision": 1, "bytes": 0, "seconds": 2.0}), None),
            (json!({"decision": 1, "bytes": 10, "seconds": 0.0}), None),
            (json!({"decision": 1, "bytes": 10, "seconds": 1e-320}), None),
        ];
        for (body, expect) in table {
            let report = ReportRequest::parse(&body).unwrap();
            assert_eq!(report.bandwidth(), expect, "{body}");
        }
        let refused = ReportRequest::parse(&json!({"decision": 1, "bytes": 1, "seconds": -1}));
        assert!(refused.is_err());
    }
}
