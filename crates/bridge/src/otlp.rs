//! Turns OTLP metrics into points, and decides which are counters, which are gauges, and which are
//! refused.
//!
//! The module stands alone because it translates between OpenTelemetry's data model
//! (opentelemetry.io/docs/specs/otel/metrics/data-model) and our streams.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use barograph_model::{Kind, UNIT_BYTES_MAX, Value, ValueType};
use prost::Message as _;

use crate::distribution::Distribution;
use crate::elements::{ELEMENTS_MAX, json_is_bounded, protobuf_is_bounded};
use crate::messages::{
    AggregationTemporality, AnyValue, AnyValueContent, ExportMetricsServiceRequest, Histogram,
    HistogramDataPoint, KeyValue, Metric, MetricData, NumberDataPoint, NumberValue, Resource,
    Summary, SummaryDataPoint,
};
use crate::{
    BridgeProtocol, POINTS_MAX, ParsedRequest, Point, PointSource, PointTags, PointValue,
    SeriesOrigin, SeriesProperties,
};

/// Flag of a data point without a value.
const NO_RECORDED_VALUE: u32 = 1;
/// The name of a service without one, from the specification of resources.
const UNKNOWN_SERVICE: &str = "unknown_service";
const SERVICE_NAME: &str = "service.name";
/// Prefixes of resource attributes that describe where the service runs, not what is measured: they
/// do not become labels.
const NO_LABELS: [&str; 8] = [
    "telemetry.",
    "process.",
    "os.",
    "host.",
    "container.",
    "k8s.",
    "cloud.",
    SERVICE_NAME,
];

/// Parses a request in protobuf.
///
/// # Errors
///
/// Returns a text if it is malformed or has too many messages.
pub fn read_otlp_protobuf(body: &[u8]) -> Result<ParsedRequest, String> {
    if !protobuf_is_bounded(body) {
        return Err(format!("the request has more than {ELEMENTS_MAX} messages"));
    }
    let request = ExportMetricsServiceRequest::decode(body);
    let request = request.map_err(|e| format!("the body is not a request of OTLP metrics: {e}"))?;
    Ok(read(request))
}

/// Parses a request in JSON.
///
/// # Errors
///
/// Returns a text if it is malformed or has too many objects.
pub fn read_otlp_json(body: &[u8]) -> Result<ParsedRequest, String> {
    if !json_is_bounded(body) {
        return Err(format!("the request has more than {ELEMENTS_MAX} objects"));
    }
    let request: Result<ExportMetricsServiceRequest, _> = serde_json::from_slice(body);
    let request = request.map_err(|e| format!("the body is not a request of OTLP metrics: {e}"))?;
    Ok(read(request))
}

fn read(request: ExportMetricsServiceRequest) -> ParsedRequest {
    let mut parsed = ParsedRequest::default();
    let mut place = 0;
    for resource in request.resource_metrics {
        let source = source(resource.resource.unwrap_or_default());
        let scopes = resource.scope_metrics.into_iter();
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let mut reader = Reader {
                parsed: &mut parsed,
                source: &source,
                name: metric.name.as_str().into(),
                place: &mut place,
            };
            reader.metric(metric);
        }
    }
    parsed
}

/// The source of a resource: its service, with the other attributes as labels.
fn source(resource: Resource) -> Arc<PointSource> {
    let mut name = UNKNOWN_SERVICE.to_owned();
    let mut labels = BTreeMap::new();
    for attribute in resource.attributes {
        let Some(Ok(value)) = attribute.value.and_then(text) else {
            continue;
        };
        if attribute.key == SERVICE_NAME && !value.is_empty() {
            name = value;
        } else if !NO_LABELS.iter().any(|no| attribute.key.starts_with(no)) && !value.is_empty() {
            labels.insert(attribute.key, value);
        }
    }
    Arc::new(PointSource {
        protocol: BridgeProtocol::Otlp,
        name,
        labels: labels.into_iter().collect(),
    })
}

/// The text of a scalar; none without a value, an error if the value cannot be a label.
fn text(value: AnyValue) -> Option<Result<String, ()>> {
    Some(match value.value? {
        AnyValueContent::Text(text) => Ok(text),
        AnyValueContent::Bool(value) => Ok(value.to_string()),
        AnyValueContent::Int(value) => Ok(value.to_string()),
        AnyValueContent::Double(value) => Ok(value.to_string()),
        AnyValueContent::List(_) | AnyValueContent::Map(_) | AnyValueContent::Bytes(_) => Err(()),
    })
}

/// The reader of the data points of one metric.
struct Reader<'a> {
    parsed: &'a mut ParsedRequest,
    source: &'a Arc<PointSource>,
    name: Arc<str>,
    place: &'a mut u32,
}

impl Reader<'_> {
    fn metric(&mut self, metric: Metric) {
        let about = |kind, value_type, is_delta| SeriesProperties {
            kind,
            value_type,
            unit: unit(&metric.unit),
            help: metric.description.clone(),
            is_delta,
        };
        match metric.data {
            Some(MetricData::Gauge(gauge)) => {
                let about = about(Kind::Gauge, ValueType::Float, false);
                self.numbers(gauge.data_points, &about);
            }
            Some(MetricData::Sum(sum)) => {
                let is_delta = temporality(sum.aggregation_temporality);
                let Some(is_delta) = is_delta else {
                    return self.refuse_all(sum.data_points.len(), UNSPECIFIED);
                };
                let about = match sum.is_monotonic {
                    true => about(Kind::Counter, ValueType::Int, is_delta),
                    false => about(Kind::Gauge, ValueType::Float, is_delta),
                };
                self.numbers(sum.data_points, &about);
            }
            Some(MetricData::Histogram(histogram)) => {
                let is_delta = temporality(histogram.aggregation_temporality);
                let Some(is_delta) = is_delta else {
                    return self.refuse_all(histogram.data_points.len(), UNSPECIFIED);
                };
                self.histogram(histogram, &about(Kind::Gauge, ValueType::Float, is_delta));
            }
            Some(MetricData::Summary(summary)) => {
                self.summary(summary, &about(Kind::Gauge, ValueType::Float, false));
            }
            Some(MetricData::ExponentialHistogram(histogram)) => self.refuse_all(
                histogram.data_points.len(),
                "exponential histograms are not taken: have the sender use explicit buckets",
            ),
            None => {}
        }
    }

    fn numbers(&mut self, points: Vec<NumberDataPoint>, about: &SeriesProperties) {
        // All gauges are floats, since one gauge may have integers and floats. Counters keep the
        // type in which they are sent.
        let of_ints = Arc::new(about.clone());
        let of_floats = Arc::new(SeriesProperties {
            value_type: ValueType::Float,
            ..about.clone()
        });
        for point in points {
            let (about, value) = match point.value {
                Some(NumberValue::AsInt(v)) if about.value_type == ValueType::Int => {
                    (&of_ints, Value::Int(v))
                }
                Some(NumberValue::AsInt(v)) => (&of_floats, Value::Float(v as f64)),
                Some(NumberValue::AsDouble(v)) => (&of_floats, Value::Float(v)),
                None => (&of_floats, Value::Float(f64::NAN)),
            };
            self.point(
                point.flags,
                point.attributes,
                |point| {
                    point.add("", about, finite(value)?);
                    Ok(())
                },
                point.time_unix_nano,
            );
        }
    }

    fn histogram(&mut self, histogram: Histogram, about: &SeriesProperties) {
        let family = Family::of(about);
        for point in histogram.data_points {
            let HistogramDataPoint {
                attributes,
                time_unix_nano,
                count,
                sum,
                bucket_counts,
                explicit_bounds,
                flags,
                min,
                max,
            } = point;
            self.point(
                flags,
                attributes,
                |point| {
                    let distribution = Distribution {
                        bounds: explicit_bounds,
                        counts: bucket_counts,
                        min,
                        max,
                        is_delta: about.is_delta,
                    };
                    // Without buckets there are only a count and a sum.
                    let has_buckets = !distribution.counts.is_empty();
                    if has_buckets {
                        distribution.check()?;
                    }
                    let sum = sum.map(|sum| finite(Value::Float(sum))).transpose()?;
                    point.add(".count", &family.count, count_value(count)?);
                    if let Some(sum) = sum {
                        point.add(".sum", &family.sum, sum);
                    }
                    if has_buckets {
                        let measured = PointValue::Distribution(Box::new(distribution));
                        point.push("", &family.quantile, measured);
                    }
                    Ok(())
                },
                time_unix_nano,
            );
        }
    }

    fn summary(&mut self, summary: Summary, about: &SeriesProperties) {
        const QUANTILES_MAX: usize = 16;
        let family = Family::of(about);
        for point in summary.data_points {
            let SummaryDataPoint {
                attributes,
                time_unix_nano,
                count,
                sum,
                quantile_values,
                flags,
            } = point;
            self.point(
                flags,
                attributes,
                |point| {
                    if quantile_values.len() > QUANTILES_MAX {
                        return Err(format!("a summary has at most {QUANTILES_MAX} quantiles"));
                    }
                    let sum = finite(Value::Float(sum))?;
                    point.add(".count", &family.count, count_value(count)?);
                    point.add(".sum", &family.sum, sum);
                    // An empty summary has no quantiles: senders give NaN.
                    let told = quantile_values.iter().filter(|q| q.value.is_finite());
                    for quantile in told {
                        let name = quantile_name(quantile.quantile)?;
                        point.add(&name, &family.quantile, Value::Float(quantile.value));
                    }
                    Ok(())
                },
                time_unix_nano,
            );
        }
    }

    /// Adds the points that `make` makes of one data point: all of them, or none and a refusal.
    fn point(
        &mut self,
        flags: u32,
        attributes: Vec<KeyValue>,
        make: impl FnOnce(&mut Made<'_>) -> Result<(), String>,
        time_unix_nano: u64,
    ) {
        let place = *self.place;
        *self.place = place.saturating_add(1);
        if flags & NO_RECORDED_VALUE != 0 {
            return;
        }
        let before = self.parsed.points.len();
        let made = self
            .named(attributes, time_unix_nano)
            .and_then(|(labels, ts)| {
                make(&mut Made {
                    points: &mut self.parsed.points,
                    place,
                    source: self.source,
                    name: &self.name,
                    labels,
                    ts,
                })
            });
        let made = match made {
            Ok(()) if self.parsed.points.len() > POINTS_MAX => {
                Err(format!("more than {POINTS_MAX} values in one request"))
            }
            made => made,
        };
        if let Err(reason) = made {
            self.parsed.points.truncate(before);
            let reason = format!("{}: {reason}", self.name);
            self.parsed.refuse(self.source, place, reason);
        }
    }

    /// The labels and time of a data point.
    fn named(
        &self,
        attributes: Vec<KeyValue>,
        time_unix_nano: u64,
    ) -> Result<(PointTags, Option<i64>), String> {
        if self.name.is_empty() {
            return Err("a metric has no name".into());
        }
        let mut labels = Vec::with_capacity(attributes.len());
        for attribute in attributes {
            match attribute.value.and_then(text) {
                None => {}
                Some(Ok(value)) => labels.push((attribute.key, value)),
                Some(Err(())) => {
                    let key = attribute.key;
                    return Err(format!("the attribute {key:?} is a list, and no label"));
                }
            }
        }
        labels.sort();
        let ts = match i64::try_from(time_unix_nano) {
            Ok(0) => None,
            Ok(ns) => Some(ns),
            Err(_) => return Err("its time is out of range".into()),
        };
        Ok((labels.into(), ts))
    }

    fn refuse_all(&mut self, points: usize, reason: &str) {
        for _ in 0..points {
            let place = *self.place;
            *self.place = place.saturating_add(1);
            let reason = format!("{}: {reason}", self.name);
            self.parsed.refuse(self.source, place, reason);
        }
    }
}

const UNSPECIFIED: &str = "its temporality is not said: it is neither cumulative nor delta";

/// Whether the temporality is delta; none if it is unspecified.
fn temporality(number: i32) -> Option<bool> {
    match AggregationTemporality::try_from(number) {
        Ok(AggregationTemporality::Delta) => Some(true),
        Ok(AggregationTemporality::Cumulative) => Some(false),
        Ok(AggregationTemporality::Unspecified) | Err(_) => None,
    }
}

/// The properties of the series that one histogram or summary becomes.
struct Family {
    count: Arc<SeriesProperties>,
    sum: Arc<SeriesProperties>,
    quantile: Arc<SeriesProperties>,
}

impl Family {
    fn of(about: &SeriesProperties) -> Self {
        let counter = SeriesProperties {
            kind: Kind::Counter,
            ..about.clone()
        };
        Self {
            count: Arc::new(SeriesProperties {
                value_type: ValueType::Int,
                unit: "count".into(),
                ..counter.clone()
            }),
            sum: Arc::new(counter),
            quantile: Arc::new(SeriesProperties {
                is_delta: false,
                ..about.clone()
            }),
        }
    }
}

/// Collects the points of one data point.
struct Made<'a> {
    points: &'a mut Vec<Point>,
    place: u32,
    source: &'a Arc<PointSource>,
    name: &'a Arc<str>,
    labels: PointTags,
    ts: Option<i64>,
}

impl Made<'_> {
    fn add(&mut self, ending: &str, about: &Arc<SeriesProperties>, value: Value) {
        self.push(ending, about, PointValue::Value(value));
    }

    fn push(&mut self, ending: &str, about: &Arc<SeriesProperties>, measured: PointValue) {
        let name = match ending {
            "" => Arc::clone(self.name),
            ending => format!("{}{ending}", self.name).into(),
        };
        self.points.push(Point {
            place: self.place,
            origin: SeriesOrigin {
                source: Arc::clone(self.source),
                name,
                labels: Arc::clone(&self.labels),
            },
            about: Arc::clone(about),
            ts: self.ts,
            measured,
        });
    }
}

fn finite(value: Value) -> Result<Value, String> {
    match value {
        Value::Float(v) if !v.is_finite() => Err("its value is no number".into()),
        value => Ok(value),
    }
}

fn count_value(count: u64) -> Result<Value, String> {
    let count = i64::try_from(count).map_err(|_| "its count is out of range")?;
    Ok(Value::Int(count))
}

/// The suffix of a quantile: `.p99` for 0.99, `.p99_9` for 0.999.
fn quantile_name(q: f64) -> Result<String, String> {
    if !(0.0..=1.0).contains(&q) {
        return Err(format!("{q} is not a quantile"));
    }
    // Computed in thousandths of a percent: 0.999 * 100 is not 99.9 in binary.
    let percent = (q * 1e5).round() as u64;
    let (whole, rest) = (percent / 1_000, percent % 1_000);
    let mut name = format!(".p{whole}");
    if rest > 0 {
        let digits = format!("{rest:03}");
        // Writing to a String cannot fail.
        let _ = write!(name, "_{}", digits.trim_end_matches('0'));
    }
    Ok(name)
}

/// Translates a UCUM unit to ours; an unknown unit stays as it is.
fn unit(ucum: &str) -> String {
    let (unit, per_second) = match ucum.strip_suffix("/s") {
        Some(unit) => (unit, "/s"),
        None => (ucum, ""),
    };
    let known = match unit {
        "By" => "bytes",
        "s" => "seconds",
        "W" => "watts",
        "J" => "joules",
        "Cel" => "celsius",
        "%" => "percent",
        other => {
            let annotation = other.strip_prefix('{').and_then(|o| o.strip_suffix('}'));
            annotation.unwrap_or(other)
        }
    };
    let mut unit = format!("{known}{per_second}");
    if unit.len() > UNIT_BYTES_MAX {
        // A unit that is too long is dropped; it is only a word.
        unit.clear();
    }
    unit
}
