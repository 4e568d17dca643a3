//! OTLP metrics: the newest value of every stream that was looked at recently, as gauges and sums.
//!
//! The module stands alone because names, units and times follow OpenTelemetry: dotted names like
//! ours, units in UCUM, the start time of each sum, and one time for all points of a round. Looks
//! are at different instants, but receivers that also make a series of the resource (Prometheus:
//! `target_info`) date it by the points, and refuse the whole request if that time goes back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use barograph_model::{Descriptor, Kind, Value};
use barograph_stream::LatestSample;
use prost::Message as _;

use crate::export::receiver::ExportSelection;
use crate::export::sender::ExportProtocol;
use crate::export::{BATCH_BYTES_MAX, BATCH_SAMPLES_MAX, Batch};
use crate::prometheus::exposition::is_old;
use crate::view::{ServedStream, ServedView, StreamId};
use barograph_bridge::messages::{
    AggregationTemporality, ExportMetricsServiceRequest, ExportMetricsServiceResponse, Gauge,
    InstrumentationScope, KeyValue, Metric, MetricData, NumberDataPoint, NumberValue, Resource,
    ResourceMetrics, ScopeMetrics, Sum,
};

/// OTLP over HTTP, binary protobuf.
pub(super) const PROTOCOL: ExportProtocol = ExportProtocol {
    path: "/v1/metrics",
    headers: &[("content-type", "application/x-protobuf")],
    // "Retryable response codes" of the OTLP specification.
    passes: |status| matches!(status.as_u16(), 429 | 502 | 503 | 504),
};

/// Bytes of each point: times, value and the message around it.
const POINT_BYTES: usize = 40;

/// The maker of requests from the newest values.
#[derive(Debug)]
pub(super) struct Otlp {
    selection: ExportSelection,
    /// Start time of each sum: the time of its first point, ns since the epoch.
    starts: HashMap<StreamId, u64>,
    waiting: VecDeque<Batch>,
}

impl Otlp {
    pub(super) fn new(selection: ExportSelection) -> Self {
        Self {
            selection,
            starts: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Makes the requests of a round from the present values; returns the number of samples of the
    /// last round that were never sent.
    pub(super) fn begin(&mut self, view: &Arc<ServedView>, now_ns: i64) -> u64 {
        let given_up = self.waiting.iter().map(|batch| batch.samples).sum();
        self.waiting.clear();
        let node = view.segment().node();
        let mut starts = HashMap::new();
        let (mut metrics, mut points, mut bytes) = (Vec::<Metric>::new(), 0, 0);
        for at in self.selection.of(view) {
            let stream = &view.streams[at];
            let Some((mut point, size)) = point(stream, now_ns) else {
                continue;
            };
            let descriptor = &stream.entry.descriptor;
            if descriptor.kind == Kind::Counter {
                // The time at which counting began before the first look is unknown; by the OTLP
                // data model ("unknown start time") a sum then starts at its first point.
                let known = self.starts.get(&stream.id()).copied();
                point.start_time_unix_nano = known.unwrap_or(point.time_unix_nano);
                starts.insert(stream.id(), point.start_time_unix_nano);
            }
            if points == BATCH_SAMPLES_MAX || (points > 0 && bytes + size > BATCH_BYTES_MAX) {
                self.waiting
                    .push_back(request(&node, std::mem::take(&mut metrics), points));
                (points, bytes) = (0, 0);
            }
            points += 1;
            bytes += size;
            add(&mut metrics, descriptor, point);
        }
        if points > 0 {
            self.waiting.push_back(request(&node, metrics, points));
        }
        self.starts = starts;
        given_up
    }

    /// The next request of this round.
    pub(super) fn next(&mut self) -> Option<Batch> {
        self.waiting.pop_front()
    }
}

/// The number of points that the receiver rejected although it answered with success, and the
/// reason.
pub(super) fn rejected(answer: &[u8]) -> Option<(u64, String)> {
    let partial = ExportMetricsServiceResponse::decode(answer)
        .ok()?
        .partial_success?;
    let points = u64::try_from(partial.rejected_data_points).ok()?;
    (points > 0).then_some((points, partial.error_message))
}

/// The newest number of a stream, unless it is old, and its approximate size in bytes.
fn point(stream: &ServedStream, now_ns: i64) -> Option<(NumberDataPoint, usize)> {
    let LatestSample::Sample {
        sample, looked_ns, ..
    } = stream.handle.latest()
    else {
        return None;
    };
    if is_old(stream, looked_ns, now_ns) {
        return None;
    }
    let value = match sample.value {
        Value::Int(v) => NumberValue::AsInt(v),
        Value::Float(v) => NumberValue::AsDouble(v),
        Value::Bool(v) => NumberValue::AsInt(v.into()),
        Value::Text(_) | Value::Bytes(_) | Value::Json(_) | Value::Floats(_) => return None,
    };
    let descriptor = &stream.entry.descriptor;
    let pairs = || descriptor.labels.iter().filter(|(_, v)| !v.is_empty());
    let size = pairs().map(|(n, v)| n.len() + v.len() + 10).sum::<usize>()
        + POINT_BYTES
        + descriptor.name.as_str().len()
        + descriptor.help.len();
    let point = NumberDataPoint {
        attributes: pairs().map(|(n, v)| KeyValue::new(n, v)).collect(),
        start_time_unix_nano: 0,
        time_unix_nano: u64::try_from(now_ns).unwrap_or(0),
        flags: 0,
        value: Some(value),
    };
    Some((point, size))
}

/// Adds a point to the metric of its name. Streams are sorted by name, so that metric is the last
/// one, or new.
fn add(metrics: &mut Vec<Metric>, descriptor: &Descriptor, point: NumberDataPoint) {
    let is_sum = descriptor.kind == Kind::Counter;
    let unit = ucum(descriptor.unit.as_str());
    let fits = |metric: &&mut Metric| {
        metric.name == descriptor.name.as_str()
            && metric.unit == unit
            && matches!(metric.data, Some(MetricData::Sum(_))) == is_sum
    };
    if let Some(metric) = metrics.last_mut().filter(fits) {
        match &mut metric.data {
            Some(MetricData::Sum(sum)) => sum.data_points.push(point),
            Some(MetricData::Gauge(gauge)) => gauge.data_points.push(point),
            // `metric.data` is always a sum or a gauge.
            _ => {}
        }
        return;
    }
    let data_points = vec![point];
    let data = match is_sum {
        true => MetricData::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        false => MetricData::Gauge(Gauge { data_points }),
    };
    metrics.push(Metric {
        name: descriptor.name.as_str().into(),
        description: descriptor.help.clone(),
        unit,
        data: Some(data),
    });
}

fn request(node: &str, metrics: Vec<Metric>, points: usize) -> Batch {
    let scope = InstrumentationScope {
        name: "barograph".into(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let attributes = [
        ("host.name", node),
        ("service.name", "barograph"),
        // There is one agent per node: the id stays the same over restarts, so that series go on.
        ("service.instance.id", node),
    ];
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes.map(|(k, v)| KeyValue::new(k, v)).into(),
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics,
            }],
        }],
    };
    Batch {
        may_be_there: false,
        body: request.encode_to_vec(),
        samples: points as u64,
    }
}

/// Translates a unit to UCUM (ucum.org); counted things become an annotation in braces.
fn ucum(unit: &str) -> String {
    let (unit, per_second) = match unit.strip_suffix("/s") {
        Some(unit) => (unit, "/s"),
        None => (unit, ""),
    };
    let known = match unit {
        "" => return per_second.trim_start_matches('/').into(),
        "bytes" => "By",
        "seconds" => "s",
        "ratio" => "1",
        "watts" => "W",
        "joules" => "J",
        "celsius" => "Cel",
        "percent" => "%",
        counted => return format!("{{{counted}}}{per_second}"),
    };
    format!("{known}{per_second}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        let check = |unit: &str, expect: &str| assert_eq!(ucum(unit), expect, "{unit}");
        check("bytes", "By");
        check("bytes/s", "By/s");
        check("seconds", "s");
        check("ratio", "1");
        check("ops/s", "{ops}/s");
        check("count", "{count}");
        check("watts", "W");
        check("", "");
    }

    #[test]
    fn a_partial_success_is_read() {
        let answer = |points: i64| {
            ExportMetricsServiceResponse {
                partial_success: Some(barograph_bridge::messages::ExportMetricsPartialSuccess {
                    rejected_data_points: points,
                    error_message: "too many".into(),
                }),
            }
            .encode_to_vec()
        };
        assert_eq!(rejected(&answer(3)), Some((3, "too many".into())));
        assert_eq!(rejected(&answer(0)), None);
        assert_eq!(rejected(&answer(-1)), None);
        assert_eq!(rejected(b""), None);
        assert_eq!(rejected(b"{}"), None);
    }
}
