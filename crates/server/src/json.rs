//! JSON forms of streams and samples. Integers stay integers; a float that is not finite (NaN,
//! infinities) is `null`, since JSON cannot express it.

use barograph_model::{
    Buckets, PastSamples, PastSeries, Sample, Value, Values, base64, predicted_sample,
};
use barograph_stream::{LabelsJson, LatestSample};
use serde::{Serialize, Serializer};

use crate::view::{ServedStream, ServedView};

/// A value as number, bool, string (bytes as base64, JSON as its text), list of numbers, or null.
#[derive(Debug, Clone)]
pub(crate) struct ValueJson(pub Value);

impl Serialize for ValueJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Value::Int(v) => serializer.serialize_i64(*v),
            Value::Float(v) => serializer.serialize_f64(*v),
            Value::Bool(v) => serializer.serialize_bool(*v),
            Value::Text(v) | Value::Json(v) => serializer.serialize_str(v),
            Value::Bytes(v) => serializer.serialize_str(&base64(v)),
            Value::Floats(v) => serializer.collect_seq(&**v),
        }
    }
}

/// The descriptor of a stream, with its number of samples.
#[derive(Debug, Serialize)]
pub(crate) struct StreamJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    name: &'a str,
    labels: LabelsJson<'a>,
    #[serde(rename = "type")]
    value_type: &'static str,
    unit: &'a str,
    kind: &'static str,
    help: &'a str,
    id: String,
    depth: u32,
    samples: u64,
    interval_ns: i64,
}

impl<'a> StreamJson<'a> {
    /// Describes one stream; `index` is its number in a watcher's messages.
    pub(crate) fn of(stream: &'a ServedStream, index: Option<usize>) -> Self {
        let d = &stream.entry.descriptor;
        Self {
            index,
            name: d.name.as_str(),
            labels: LabelsJson(&d.labels),
            value_type: d.value_type.as_str(),
            unit: d.unit.as_str(),
            kind: d.kind.as_str(),
            help: &d.help,
            id: stream.entry.series.to_string(),
            depth: stream.entry.depth,
            samples: stream.handle.count().unwrap_or(0),
            interval_ns: stream.interval_ns(),
        }
    }
}

/// The newest sample of a stream.
#[derive(Debug, Serialize)]
pub(crate) struct LatestJson<'a> {
    name: &'a str,
    labels: LabelsJson<'a>,
    ts: i64,
    value: ValueJson,
    quality: &'static str,
    error: f32,
    age_ns: i64,
    looked_ts: i64,
    unit: &'a str,
    stale: bool,
}

impl<'a> LatestJson<'a> {
    /// The newest sample, or `None` if the stream has no sample or has ended.
    pub(crate) fn of(stream: &'a ServedStream, now_ns: i64) -> Option<Self> {
        let (sample, looked_ns) = newest(stream)?;
        Some(Self::of_sample(stream, sample, looked_ns, now_ns))
    }

    /// Like [`LatestJson::of`], but with the value that is predicted for now if the stream has a
    /// forecast.
    pub(crate) fn of_predicted(
        view: &'a ServedView,
        stream: &'a ServedStream,
        now_ns: i64,
    ) -> Option<Self> {
        let (measured, looked_ns) = newest(stream)?;
        let said = || {
            let (said, looked_ns) = newest(view.projections_of(stream)?)?;
            predicted_sample(&said.value, looked_ns, now_ns)
        };
        let predicted = if looked_ns < now_ns { said() } else { None };
        let sample = predicted.unwrap_or(measured);
        Some(Self::of_sample(stream, sample, looked_ns, now_ns))
    }

    fn of_sample(stream: &'a ServedStream, sample: Sample, looked_ns: i64, now_ns: i64) -> Self {
        let d = &stream.entry.descriptor;
        Self {
            name: d.name.as_str(),
            labels: LabelsJson(&d.labels),
            ts: sample.ts,
            value: ValueJson(sample.value),
            quality: sample.quality.as_str(),
            error: sample.error,
            age_ns: now_ns.saturating_sub(looked_ns).max(0),
            looked_ts: looked_ns,
            unit: d.unit.as_str(),
            stale: stream.is_stale(looked_ns, now_ns),
        }
    }
}

/// The newest sample of a stream, and the time of the last look at its resource.
fn newest(stream: &ServedStream) -> Option<(Sample, i64)> {
    match stream.handle.latest() {
        LatestSample::Sample {
            sample, looked_ns, ..
        } => Some((sample, looked_ns)),
        LatestSample::Empty | LatestSample::Gone => None,
    }
}

/// A column as a list of values in the form of [`ValueJson`].
#[derive(Debug, Clone, Copy)]
struct ColumnJson<'a>(&'a Values);

impl Serialize for ColumnJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Values::Int(column) => serializer.collect_seq(column),
            Values::Float(column) => serializer.collect_seq(column),
            Values::Bool(column) => serializer.collect_seq(column),
            Values::Text(column) | Values::Json(column) => {
                serializer.collect_seq(column.iter().map(|text| &**text))
            }
            Values::Bytes(column) => serializer.collect_seq(column.iter().map(|v| base64(v))),
            Values::Floats(column) => serializer.collect_seq(column.iter().map(|v| &**v)),
        }
    }
}

/// The fixed properties of a series of the past.
#[derive(Debug, Serialize)]
struct SeriesJson<'a> {
    name: &'a str,
    labels: LabelsJson<'a>,
    node: &'a str,
    unit: &'a str,
    kind: &'static str,
    interval_ns: i64,
}

impl<'a> SeriesJson<'a> {
    fn of(series: &'a PastSeries) -> Self {
        let d = &series.descriptor;
        Self {
            name: d.name.as_str(),
            labels: LabelsJson(&d.labels),
            node: &series.node,
            unit: d.unit.as_str(),
            kind: d.kind.as_str(),
            interval_ns: series.interval_ns,
        }
    }
}

/// The samples of a series in columns, oldest first.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryJson<'a> {
    #[serde(flatten)]
    series: SeriesJson<'a>,
    ts: &'a [i64],
    value: ColumnJson<'a>,
    quality: Vec<&'static str>,
    /// Indices of the samples that begin another life of the stream. Since the sample before one of
    /// them nobody looked, even if an agent that was killed could not mark its last look.
    begins: &'a [usize],
}

impl<'a> HistoryJson<'a> {
    /// Makes the JSON form of the samples.
    pub(crate) fn of(samples: &'a PastSamples) -> Self {
        let columns = &samples.columns;
        Self {
            series: SeriesJson::of(&samples.series),
            ts: &columns.ts,
            value: ColumnJson(&columns.values),
            quality: columns.quality.iter().map(|q| q.as_str()).collect(),
            begins: &samples.begins,
        }
    }
}

/// The buckets of a series in columns, oldest first.
#[derive(Debug, Serialize)]
pub(crate) struct BucketsJson<'a> {
    #[serde(flatten)]
    series: SeriesJson<'a>,
    step_ns: i64,
    ts: &'a [i64],
    count: &'a [u64],
    min: ColumnJson<'a>,
    max: ColumnJson<'a>,
    mean: &'a [f64],
    held_ns: &'a [u64],
    sample_mean: &'a [f64],
    last: ColumnJson<'a>,
}

impl<'a> BucketsJson<'a> {
    /// Makes the JSON form of the buckets of a series, each `step_ns` long.
    pub(crate) fn of(series: &'a PastSeries, step_ns: i64, buckets: &'a Buckets) -> Self {
        Self {
            series: SeriesJson::of(series),
            step_ns,
            ts: &buckets.ts,
            count: &buckets.count,
            min: ColumnJson(&buckets.min),
            max: ColumnJson(&buckets.max),
            mean: &buckets.mean,
            held_ns: &buckets.held_ns,
            sample_mean: &buckets.sample_mean,
            last: ColumnJson(&buckets.last),
        }
    }
}

/// One sample of a tick: `[index, ts, value, quality, error]`.
pub(crate) type TickSample = (usize, i64, ValueJson, &'static str, f32);

/// The `tick` event of a watch.
#[derive(Debug, Default, Serialize)]
pub(crate) struct TickJson {
    /// Time of the tick by the agent's clock.
    pub ts: i64,
    /// New samples, oldest first within each stream.
    pub samples: Vec<TickSample>,
    /// Streams that were looked at since the last tick, with the time of the last look.
    pub looked: Vec<(usize, i64)>,
    /// Streams whose interval has changed since it was last sent, with the interval in ns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<(usize, i64)>,
    /// Numbers of samples that were left out, by stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<(usize, u64)>,
    /// Ticks that were skipped since the last one, because the client was too slow.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// Streams that match but are beyond the limit of one watcher.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands out references"
)]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_type() {
        for (value, expect) in [
            (Value::Int(i64::MAX), "9223372036854775807"),
            (Value::Float(f64::NAN), "null"),
            (Value::Bool(true), "true"),
            (Value::text("a\"b"), r#""a\"b""#),
            (Value::Bytes([0xfb, 0xff].into()), r#""+/8=""#),
            (Value::Json("[1]".into()), r#""[1]""#),
            (Value::Floats([0.5, f64::INFINITY].into()), "[0.5,null]"),
        ] {
            let mut column = Values::new(value.value_type());
            assert!(column.push(&value));
            let found = serde_json::to_string(&ColumnJson(&column)).unwrap();
            assert_eq!(found, format!("[{expect}]"));
            let found = serde_json::to_string(&ValueJson(value)).unwrap();
            assert_eq!(found, expect);
        }
    }
}
