//! OTLP's JSON, where it differs from what serde makes of the messages: 64-bit numbers as texts,
//! doubles that are no JSON numbers, and one-ofs by the names of their members
//! (opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding").

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

use super::{
    AggregationTemporality, AnyValue, AnyValueContent, ExponentialHistogram, Gauge, Histogram,
    KeyValue, Metric, MetricData, NumberDataPoint, NumberValue, Sum, Summary,
};

/// A metric whose data are members.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MetricJson {
    name: String,
    description: String,
    unit: String,
    gauge: Option<Gauge>,
    sum: Option<Sum>,
    histogram: Option<Histogram>,
    exponential_histogram: Option<ExponentialHistogram>,
    summary: Option<Summary>,
}

impl From<MetricJson> for Metric {
    fn from(json: MetricJson) -> Self {
        let gauge = json.gauge.map(MetricData::Gauge);
        let sum = json.sum.map(MetricData::Sum);
        let histogram = json.histogram.map(MetricData::Histogram);
        let exponential = json
            .exponential_histogram
            .map(MetricData::ExponentialHistogram);
        let summary = json.summary.map(MetricData::Summary);
        Self {
            name: json.name,
            description: json.description,
            unit: json.unit,
            data: gauge.or(sum).or(histogram).or(exponential).or(summary),
        }
    }
}

/// A data point whose value is a member.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NumberDataPointJson {
    attributes: Vec<KeyValue>,
    #[serde(deserialize_with = "integer")]
    start_time_unix_nano: u64,
    #[serde(deserialize_with = "integer")]
    time_unix_nano: u64,
    flags: u32,
    #[serde(deserialize_with = "optional_double")]
    as_double: Option<f64>,
    #[serde(deserialize_with = "optional_integer")]
    as_int: Option<i64>,
}

impl From<NumberDataPointJson> for NumberDataPoint {
    fn from(json: NumberDataPointJson) -> Self {
        let double = json.as_double.map(NumberValue::AsDouble);
        Self {
            attributes: json.attributes,
            start_time_unix_nano: json.start_time_unix_nano,
            time_unix_nano: json.time_unix_nano,
            flags: json.flags,
            value: double.or(json.as_int.map(NumberValue::AsInt)),
        }
    }
}

/// A value of any type, with one member per type.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AnyValueJson {
    string_value: Option<String>,
    bool_value: Option<bool>,
    #[serde(deserialize_with = "optional_integer")]
    int_value: Option<i64>,
    #[serde(deserialize_with = "optional_double")]
    double_value: Option<f64>,
    array_value: Option<IgnoredAny>,
    kvlist_value: Option<IgnoredAny>,
    bytes_value: Option<IgnoredAny>,
}

impl From<AnyValueJson> for AnyValue {
    fn from(json: AnyValueJson) -> Self {
        let text = json.string_value.map(AnyValueContent::Text);
        let bool = json.bool_value.map(AnyValueContent::Bool);
        let int = json.int_value.map(AnyValueContent::Int);
        let double = json.double_value.map(AnyValueContent::Double);
        let list = json.array_value.map(|_| AnyValueContent::List(Vec::new()));
        let map = json.kvlist_value.map(|_| AnyValueContent::Map(Vec::new()));
        let bytes = json.bytes_value.map(|_| AnyValueContent::Bytes(Vec::new()));
        let number = bool.or(int).or(double);
        Self {
            value: text.or(number).or(list).or(map).or(bytes),
        }
    }
}

/// Parses an integer, which may be a text.
pub(super) fn integer<'de, D: Deserializer<'de>, T: Integer>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(NumberVisitor::<T>(PhantomData))
}

pub(super) fn optional_integer<'de, D: Deserializer<'de>, T: Integer>(
    from: D,
) -> Result<Option<T>, D::Error> {
    integer(from).map(Some)
}

/// Parses a list of integers, which may be texts.
pub(super) fn integers<'de, D: Deserializer<'de>, T: Integer>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(ListVisitor::<T>(PhantomData))
}

/// Parses a double: a number, `"NaN"`, `"Infinity"` or `"-Infinity"`.
pub(super) fn double<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    integer(from)
}

pub(super) fn optional_double<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    double(from).map(Some)
}

pub(super) fn doubles<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    integers(from)
}

/// Parses a temporality: a number, as the specification demands, or a name, as protobuf's own
/// libraries write it.
pub(super) fn temporality<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Number(i32),
        Name(String),
    }
    Ok(match Form::deserialize(from)? {
        Form::Number(number) => number,
        Form::Name(name) if name == "AGGREGATION_TEMPORALITY_DELTA" => {
            AggregationTemporality::Delta.into()
        }
        Form::Name(name) if name == "AGGREGATION_TEMPORALITY_CUMULATIVE" => {
            AggregationTemporality::Cumulative.into()
        }
        Form::Name(_) => AggregationTemporality::Unspecified.into(),
    })
}

/// Types of numbers that JSON may hold as numbers or as texts.
pub(super) trait Integer: Sized + FromStr {
    fn of_i64(number: i64) -> Option<Self>;
    fn of_u64(number: u64) -> Option<Self>;
    fn of_f64(number: f64) -> Option<Self>;
}

impl Integer for u64 {
    fn of_i64(number: i64) -> Option<Self> {
        Self::try_from(number).ok()
    }

    fn of_u64(number: u64) -> Option<Self> {
        Some(number)
    }

    fn of_f64(_: f64) -> Option<Self> {
        None
    }
}

impl Integer for i64 {
    fn of_i64(number: i64) -> Option<Self> {
        Some(number)
    }

    fn of_u64(number: u64) -> Option<Self> {
        Self::try_from(number).ok()
    }

    fn of_f64(_: f64) -> Option<Self> {
        None
    }
}

impl Integer for f64 {
    fn of_i64(number: i64) -> Option<Self> {
        Some(number as Self)
    }

    fn of_u64(number: u64) -> Option<Self> {
        Some(number as Self)
    }

    fn of_f64(number: f64) -> Option<Self> {
        Some(number)
    }
}

struct NumberVisitor<T>(PhantomData<T>);

impl<T: Integer> Visitor<'_> for NumberVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or one in quotes")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::of_i64(number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::of_u64(number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::of_f64(number).ok_or_else(|| E::custom("a number is not an integer"))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse()
            .map_err(|_| E::custom("a text is not a number"))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Integer> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
        struct One<T>(T);

        impl<'de, T: Integer> Deserialize<'de> for One<T> {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                integer(from).map(One)
            }
        }

        let mut list = Vec::new();
        while let Some(One(number)) = from.next_element()? {
            list.push(number);
        }
        Ok(list)
    }
}
