//! The JSON of the HTTP interface (`docs/design/0001-one-node.md`), shared by all code that prints
//! it.

use barograph_model::{Labels, Value, base64};
use serde_json::{Map, Value as Json, json};

use crate::{LatestValue, NodeStatus, StreamInfo};

/// `[{"name","labels","ts","value","quality","error","age_ns","looked_ts","unit","stale"}]`; fields
/// that a stream without a sample lacks are null.
pub fn latest_json(values: &[LatestValue]) -> Json {
    let one = |v: &LatestValue| {
        let sample = v.sample.as_ref();
        json!({
            "name": v.descriptor.name.as_str(),
            "labels": labels_json(&v.descriptor.labels),
            "unit": v.descriptor.unit.as_str(),
            "ts": sample.map(|s| s.ts),
            "value": sample.map(|s| value_json(&s.value)),
            "quality": sample.map(|s| s.quality.as_str()),
            "error": sample.map(|s| float_json(f64::from(s.error))),
            "age_ns": sample.map(|_| v.age_ns),
            "looked_ts": sample.map(|_| v.looked_ns),
            "stale": v.stale,
        })
    };
    values.iter().map(one).collect()
}

/// `[{"name","labels","type","unit","kind","help","id","depth","samples","interval_ns"}]`.
pub fn streams_json(streams: &[StreamInfo]) -> Json {
    let one = |s: &StreamInfo| {
        json!({
            "name": s.descriptor.name.as_str(),
            "labels": labels_json(&s.descriptor.labels),
            "type": s.descriptor.value_type.as_str(),
            "unit": s.descriptor.unit.as_str(),
            "kind": s.descriptor.kind.as_str(),
            "help": s.descriptor.help,
            "id": s.series.to_string(),
            "depth": s.depth,
            "samples": s.samples,
            "interval_ns": s.interval_ns,
        })
    };
    streams.iter().map(one).collect()
}

/// `{"node","incarnation","pid","started_ts","heartbeat_age_ns","alive","streams","streams_max",
/// "refused","samples"}`.
pub fn status_json(status: &NodeStatus) -> Json {
    json!({
        "node": status.node,
        "incarnation": status.incarnation.to_string(),
        "pid": status.pid,
        "started_ts": status.started_ns,
        "heartbeat_age_ns": status.heartbeat_age_ns,
        "alive": status.alive,
        "streams": status.streams,
        "streams_max": status.streams_max,
        "refused": status.refused,
        "samples": status.samples,
    })
}

/// Converts a value. NaN and infinities become null, because JSON has none; bytes become base64;
/// JSON stays the text that it is.
pub fn value_json(value: &Value) -> Json {
    match value {
        Value::Int(v) => Json::from(*v),
        Value::Float(v) => float_json(*v),
        Value::Bool(v) => Json::from(*v),
        Value::Text(v) | Value::Json(v) => Json::from(&**v),
        Value::Bytes(v) => Json::from(base64(v)),
        Value::Floats(v) => Json::Array(v.iter().copied().map(float_json).collect()),
    }
}

fn float_json(value: f64) -> Json {
    serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number)
}

fn labels_json(labels: &Labels) -> Json {
    Json::Object(
        labels
            .iter()
            .map(|(n, v)| (n.to_owned(), Json::from(v)))
            .collect::<Map<_, _>>(),
    )
}
