//! Answers in the format of Prometheus' API: `{"status": …, "data": …}`, and its errors.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use barograph_model::{FAULT_BYTES_MAX, NS_PER_MS, cut};
use serde::ser::{SerializeSeq as _, SerializeStruct as _};
use serde::{Serialize, Serializer};

use super::promql::{FaultKind, Grid, LabelSet, PromFault, QueryAnswer};
use crate::deliver::AnswerPieces;
use crate::fault::Fault;

impl IntoResponse for PromFault {
    fn into_response(self) -> Response {
        let (status, kind) = match self.kind {
            FaultKind::BadData => (StatusCode::BAD_REQUEST, "bad_data"),
            FaultKind::Execution => (StatusCode::UNPROCESSABLE_ENTITY, "execution"),
            FaultKind::Timeout => (StatusCode::SERVICE_UNAVAILABLE, "timeout"),
            FaultKind::Canceled => (StatusCode::SERVICE_UNAVAILABLE, "canceled"),
            FaultKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            FaultKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let body = serde_json::json!({
            "status": "error", "errorType": kind, "error": cut(self.message, FAULT_BYTES_MAX),
        });
        (status, axum::Json(body)).into_response()
    }
}

impl From<Fault> for PromFault {
    fn from(fault: Fault) -> Self {
        let kind = match fault.kind {
            "busy" => FaultKind::Unavailable,
            "internal" => FaultKind::Internal,
            "limit" => FaultKind::Execution,
            _ => FaultKind::BadData,
        };
        Self {
            kind,
            message: fault.message,
        }
    }
}

/// Writes `{"status":"success","data":…}`.
pub(super) fn success(into: &mut AnswerPieces, data: &impl Serialize) -> Result<(), PromFault> {
    #[derive(Serialize)]
    struct Success<'a, T> {
        status: &'static str,
        data: &'a T,
    }
    let status = "success";
    Ok(into.json(&Success { status, data })?)
}

/// The data of an answer: `{"resultType":…,"result":…}`
pub(super) struct DataJson<'a> {
    pub answer: &'a QueryAnswer,
    pub grid: Grid,
    /// Whether the answer is of a range: all instants, not one.
    pub of_range: bool,
}

impl Serialize for DataJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("data", 2)?;
        let at = self.grid.start;
        let mut put = |kind: &'static str| out.serialize_field("resultType", kind);
        match self.answer {
            QueryAnswer::Matrix(series) => {
                put("matrix")?;
                let series = series.iter().map(|(labels, samples)| SeriesJson {
                    metric: LabelsJson(labels),
                    value: None,
                    values: Some(samples.iter().map(|(ts, v)| PointJson(*ts, *v)).collect()),
                });
                out.serialize_field("result", &series.collect::<Vec<_>>())?;
            }
            QueryAnswer::Text(text) => {
                put("string")?;
                out.serialize_field("result", &(TimeJson(at), text))?;
            }
            QueryAnswer::Scalar(values) if !self.of_range => {
                put("scalar")?;
                out.serialize_field("result", &PointJson(at, values[0]))?;
            }
            QueryAnswer::Scalar(values) => {
                put("matrix")?;
                let points = self.grid.times().zip(values);
                let series = SeriesJson {
                    metric: LabelsJson(&LabelSet::none()),
                    value: None,
                    values: Some(points.map(|(ts, v)| PointJson(ts, *v)).collect()),
                };
                out.serialize_field("result", &[series])?;
            }
            QueryAnswer::Vector(series) if !self.of_range => {
                put("vector")?;
                let present = series.iter().filter_map(|s| Some((s, s.points[0]?)));
                let present = present.map(|(s, value)| SeriesJson {
                    metric: LabelsJson(&s.labels),
                    value: Some(PointJson(at, value)),
                    values: None,
                });
                out.serialize_field("result", &present.collect::<Vec<_>>())?;
            }
            QueryAnswer::Vector(series) => {
                put("matrix")?;
                let mut sorted: Vec<_> = series.iter().collect();
                sorted.sort_by(|a, b| a.labels.cmp(&b.labels));
                let series = sorted.into_iter().map(|s| {
                    let points = self.grid.times().zip(&s.points);
                    let points = points.filter_map(|(ts, v)| Some(PointJson(ts, (*v)?)));
                    SeriesJson {
                        metric: LabelsJson(&s.labels),
                        value: None,
                        values: Some(points.collect()),
                    }
                });
                out.serialize_field("result", &series.collect::<Vec<_>>())?;
            }
        }
        out.end()
    }
}

#[derive(Serialize)]
struct SeriesJson<'a> {
    metric: LabelsJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<PointJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<PointJson>>,
}

/// Labels as a JSON object.
pub(super) struct LabelsJson<'a>(pub &'a LabelSet);

impl Serialize for LabelsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

/// A point like `[1700000000.5,"1"]`.
#[derive(Clone, Copy)]
struct PointJson(i64, f64);

impl Serialize for PointJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_seq(Some(2))?;
        out.serialize_element(&TimeJson(self.0))?;
        out.serialize_element(&number(self.1))?;
        out.end()
    }
}

/// A time in seconds, to the millisecond.
struct TimeJson(i64);

impl Serialize for TimeJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = self.0.div_euclid(NS_PER_MS);
        match ms % 1_000 {
            0 => serializer.serialize_i64(ms / 1_000),
            _ => serializer.serialize_f64(ms as f64 / 1e3),
        }
    }
}

/// A value as Prometheus writes it: the shortest form, without an exponent.
fn number(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 {
            "+Inf".into()
        } else {
            "-Inf".into()
        }
    } else {
        value.to_string()
    }
}
