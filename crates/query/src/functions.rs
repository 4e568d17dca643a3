//! Functions over the streams: `history`, `rate`, `quantile`, `family`, `topk`, computed in Rust over
//! whole rings, and the scalars `iso` and `now_ns`.
//!
//! Means and quantiles are over the samples, which are changes: a value that held for an hour is one
//! sample, as is one that held for a second.

use std::sync::Arc;

use barograph_model::{Kind, NS_PER_S, Sample, Selector, Value};
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Result};

use crate::error::{internal, usage};
use crate::listing::{Arguments, Batches, Cell, Listing, Row};
use crate::live::Live;
use crate::stream::Stream;

/// All table functions.
pub(crate) static FUNCTIONS: [Listing; 5] = [
    Listing {
        name: "history",
        kind: "function",
        help: "samples of the streams that match, raw or per bucket of step ns",
        columns: &[
            ("ts", "INTEGER"),
            ("value", ""),
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("node", "TEXT"),
            ("min", ""),
            ("max", ""),
            ("mean", "REAL"),
            ("last", ""),
            ("count", "INTEGER"),
        ],
        arguments: &["pattern", "start", "stop", "step"],
        produce: history,
    },
    Listing {
        name: "rate",
        kind: "function",
        help: "change per second between samples; NULL where a counter was reset",
        columns: &[
            ("ts", "INTEGER"),
            ("value", "REAL"),
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "start", "stop"],
        produce: rate,
    },
    Listing {
        name: "quantile",
        kind: "function",
        help: "a quantile (0 to 1) of the samples of each stream that matches",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("value", "REAL"),
            ("count", "INTEGER"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "q", "start", "stop"],
        produce: quantile,
    },
    Listing {
        name: "family",
        kind: "function",
        help: "the newest sample of every stream whose name starts with the prefix",
        columns: &[
            ("suffix", "TEXT"),
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("ts", "INTEGER"),
            ("value", ""),
            ("unit", "TEXT"),
            ("age_ns", "INTEGER"),
            ("node", "TEXT"),
        ],
        arguments: &["prefix"],
        produce: family,
    },
    Listing {
        name: "topk",
        kind: "function",
        help: "the k largest newest values among the streams that match",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("ts", "INTEGER"),
            ("value", ""),
            ("unit", "TEXT"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "k"],
        produce: topk,
    },
];

/// Makes the scalar functions of a connection.
pub(crate) fn register_scalars(connection: &Connection, live: &Arc<Live>) -> Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("iso", 1, pure, |call| {
        call.get::<Option<i64>>(0)?.map(iso).transpose()
    })?;
    let live = Arc::clone(live);
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("now_ns", 0, flags, move |_| Ok(live.now_ns()))
}

/// RFC 3339 in UTC with nanoseconds.
fn iso(ts: i64) -> Result<String> {
    let time = jiff::Timestamp::from_nanosecond(i128::from(ts)).map_err(|_| {
        usage(format!(
            "iso({ts}): not a time in nanoseconds since the epoch"
        ))
    })?;
    Ok(time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string())
}

/// Streams that match the pattern in argument 0.
fn matching(live: &Live, arguments: &Arguments) -> Result<Vec<Arc<Stream>>> {
    let selector = Selector::parse(arguments.text(0)?).map_err(|e| usage(e.to_string()))?;
    let snapshot = live.current().map_err(internal)?;
    let matches = |s: &&Arc<Stream>| selector.matches(s.name(), &s.entry.descriptor.labels);
    Ok(snapshot.streams.iter().filter(matches).cloned().collect())
}

/// Start and stop, both included; open where not given.
#[derive(Clone, Copy)]
struct Span {
    start: i64,
    stop: i64,
}

impl Span {
    fn read(arguments: &Arguments, first: usize) -> Result<Self> {
        let start = arguments.int(first)?.unwrap_or(i64::MIN);
        let stop = arguments.int(first + 1)?.unwrap_or(i64::MAX);
        Ok(Self { start, stop })
    }

    fn samples(self, stream: &Stream) -> Vec<Sample> {
        let (mut scratch, mut out) = (Vec::new(), Vec::new());
        stream.samples(&mut scratch, |_, sample| {
            if (self.start..=self.stop).contains(&sample.ts) {
                out.push(sample);
            }
        });
        out
    }
}

/// What every row of a stream repeats.
struct Identity {
    name: Cell,
    labels: Cell,
    node: Cell,
}

impl Identity {
    fn of(stream: &Stream) -> Self {
        Self {
            name: stream.name().into(),
            labels: stream.labels_json().into(),
            node: Arc::clone(&stream.node).into(),
        }
    }

    fn cells(&self) -> [Cell; 3] {
        [self.name.clone(), self.labels.clone(), self.node.clone()]
    }
}

fn each(
    streams: Vec<Arc<Stream>>,
    rows: impl Fn(&Stream) -> Vec<Row> + 'static,
) -> Result<Batches> {
    Ok(Box::new(
        streams.into_iter().map(move |stream| Ok(rows(&stream))),
    ))
}

fn history(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let span = Span::read(arguments, 1)?;
    let step = arguments.int(3)?;
    if step.is_some_and(|step| step <= 0) {
        return Err(arguments.wrong(3, "a positive number of nanoseconds"));
    }
    each(matching(live, arguments)?, move |stream| {
        let identity = Identity::of(stream);
        let samples = span.samples(stream);
        match step {
            None => samples.iter().map(|s| raw_row(s, &identity)).collect(),
            Some(step) => buckets(samples, step, &identity),
        }
    })
}

fn raw_row(sample: &Sample, identity: &Identity) -> Row {
    let value = Cell::from(&sample.value);
    let mean = sample.value.as_f64().into();
    let [name, labels, node] = identity.cells();
    let (min, max, last) = (value.clone(), value.clone(), value.clone());
    vec![
        sample.ts.into(),
        value,
        name,
        labels,
        node,
        min,
        max,
        mean,
        last,
        1.into(),
    ]
}

/// One row per bucket that has samples, in order of time; times are rounded down to the step.
fn buckets(mut samples: Vec<Sample>, step: i64, identity: &Identity) -> Vec<Row> {
    let bucket = |sample: &Sample| sample.ts.div_euclid(step);
    samples.sort_by_key(bucket); // Stable: within a bucket the last is the newest.
    let cell = |known: Option<Cell>| known.unwrap_or(Cell::Null);
    let row = |members: &[Sample]| {
        let is_nan = |s: &&Sample| matches!(s.value, Value::Float(v) if v.is_nan());
        let known = || members.iter().filter(|s| !is_nan(s));
        let numbers: Vec<f64> = known().filter_map(|s| s.value.as_f64()).collect();
        let by = |a: &&Sample, b: &&Sample| order(&a.value, &b.value);
        let min = known().min_by(by).map(|s| Cell::from(&s.value));
        let max = known().max_by(by).map(|s| Cell::from(&s.value));
        let last = members.last().map(|s| Cell::from(&s.value));
        let mean: Cell = (!numbers.is_empty())
            .then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
            .into();
        let value = if numbers.is_empty() {
            cell(last.clone())
        } else {
            mean.clone()
        };
        let ts = bucket(&members[0]).saturating_mul(step);
        let [name, labels, node] = identity.cells();
        let count = (members.len() as i64).into();
        vec![
            ts.into(),
            value,
            name,
            labels,
            node,
            cell(min),
            cell(max),
            mean,
            cell(last),
            count,
        ]
    };
    samples
        .chunk_by(|a, b| bucket(a) == bucket(b))
        .map(row)
        .collect()
}

fn order(a: &Value, b: &Value) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        // A stream has one type.
        _ => std::cmp::Ordering::Equal,
    }
}

fn rate(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let span = Span::read(arguments, 1)?;
    each(matching(live, arguments)?, move |stream| {
        let identity = Identity::of(stream);
        let is_counter = stream.entry.descriptor.kind == Kind::Counter;
        let samples = span.samples(stream);
        let row = |pair: &[Sample]| {
            let value: Cell = per_second(&pair[0], &pair[1], is_counter).into();
            let [name, labels, node] = identity.cells();
            vec![pair[1].ts.into(), value, name, labels, node]
        };
        samples.windows(2).map(row).collect()
    })
}

fn per_second(before: &Sample, after: &Sample, is_counter: bool) -> Option<f64> {
    let seconds = after.ts.checked_sub(before.ts).filter(|ns| *ns > 0)? as f64 / NS_PER_S as f64;
    let change = match (&before.value, &after.value) {
        // In integers as far as they reach: large counters have small differences.
        (Value::Int(a), Value::Int(b)) => b
            .checked_sub(*a)
            .map_or(*b as f64 - *a as f64, |d| d as f64),
        (a, b) => b.as_f64()? - a.as_f64()?,
    };
    (!is_counter || change >= 0.0).then_some(change / seconds)
}

fn quantile(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let q = arguments.real(1)?;
    if !(0.0..=1.0).contains(&q) {
        return Err(arguments.wrong(1, "between 0 and 1"));
    }
    let span = Span::read(arguments, 2)?;
    each(matching(live, arguments)?, move |stream| {
        let samples = span.samples(stream);
        let numbers = samples
            .iter()
            .filter_map(|s| s.value.as_f64())
            .filter(|v| !v.is_nan());
        let mut numbers: Vec<f64> = numbers.collect();
        let count = numbers.len();
        let Some(value) = nearest_quantile(&mut numbers, q) else {
            return Vec::new();
        };
        let [name, labels, node] = Identity::of(stream).cells();
        vec![vec![
            name,
            labels,
            value.into(),
            (count as i64).into(),
            node,
        ]]
    })
}

/// The quantile between the two nearest values, linearly.
fn nearest_quantile(values: &mut [f64], q: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    let at = q * last as f64;
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    // Without the case of equality the difference of two infinities would be NaN.
    Some(if low == high {
        low
    } else {
        low + (high - low) * at.fract()
    })
}

fn family(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let prefix: Arc<str> = arguments.text(0)?.trim_end_matches('.').into();
    let snapshot = live.current().map_err(internal)?;
    let now_ns = live.now_ns();
    let suffix = move |name: &str| {
        let rest = name.strip_prefix(&*prefix)?;
        if rest.is_empty() {
            Some(String::new())
        } else {
            rest.strip_prefix('.').map(str::to_owned)
        }
    };
    let streams = snapshot
        .streams
        .iter()
        .filter(|s| suffix(s.name()).is_some())
        .cloned()
        .collect();
    each(streams, move |stream| {
        let (Some(suffix), Some((sample, _))) = (suffix(stream.name()), stream.latest()) else {
            return Vec::new();
        };
        let age_ns = now_ns.saturating_sub(stream.looked_ns(sample.ts));
        let [name, labels, node] = Identity::of(stream).cells();
        let (value, unit) = ((&sample.value).into(), stream.unit().into());
        let ts = sample.ts.into();
        vec![vec![
            suffix.into(),
            name,
            labels,
            ts,
            value,
            unit,
            age_ns.into(),
            node,
        ]]
    })
}

fn topk(live: &Arc<Live>, arguments: &Arguments) -> Result<Batches> {
    let k = arguments.int(1)?.and_then(|k| usize::try_from(k).ok());
    let k = k.ok_or_else(|| arguments.wrong(1, "a number of rows"))?;
    let newest = matching(live, arguments)?.into_iter().filter_map(|stream| {
        let (sample, _) = stream.latest()?;
        let number = sample.value.as_f64().filter(|v| !v.is_nan())?;
        Some((number, sample, stream))
    });
    let mut newest: Vec<_> = newest.collect();
    newest.sort_by(|a, b| b.0.total_cmp(&a.0));
    newest.truncate(k);
    let row = |(_, sample, stream): &(f64, Sample, Arc<Stream>)| {
        let [name, labels, node] = Identity::of(stream).cells();
        vec![
            name,
            labels,
            sample.ts.into(),
            (&sample.value).into(),
            stream.unit().into(),
            node,
        ]
    };
    Ok(Box::new(std::iter::once(Ok(newest
        .iter()
        .map(row)
        .collect()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let check =
            |from: (i64, Value), to: (i64, Value), is_counter: bool, expect: Option<f64>| {
                let (a, b) = (
                    Sample::measured(from.0, from.1),
                    Sample::measured(to.0, to.1),
                );
                assert_eq!(per_second(&a, &b, is_counter), expect, "{a:?} {b:?}");
            };
        let s = NS_PER_S;
        check((0, 10.into()), (2 * s, 30.into()), true, Some(10.0));
        check((0, 30.into()), (s, 10.into()), true, None);
        check((0, 30.into()), (s, 10.into()), false, Some(-20.0));
        check((s, 1.into()), (s, 2.into()), true, None);
        check((s, 1.into()), (0, 2.into()), true, None);
        let big = i64::MAX - 8;
        check((0, big.into()), (s, (big + 8).into()), true, Some(8.0));
        check((0, Value::text("a")), (s, Value::text("b")), false, None);
    }

    #[test]
    fn quantiles() {
        let check = |values: &[f64], q: f64, expect: Option<f64>| {
            assert_eq!(
                nearest_quantile(&mut values.to_vec(), q),
                expect,
                "{values:?} {q}"
            );
        };
        check(&[], 0.5, None);
        check(&[3.0], 0.9, Some(3.0));
        check(&[4.0, 1.0, 2.0, 3.0], 0.0, Some(1.0));
        check(&[4.0, 1.0, 2.0, 3.0], 0.5, Some(2.5));
        check(&[4.0, 1.0, 2.0, 3.0], 1.0, Some(4.0));
        check(&[f64::INFINITY, f64::INFINITY], 0.5, Some(f64::INFINITY));
    }

    #[test]
    fn times() {
        assert_eq!(iso(0).unwrap(), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(
            iso(1_700_000_000_123_456_789).unwrap(),
            "2023-11-14T22:13:20.123456789Z"
        );
        assert!(iso(i64::MIN).is_ok());
    }
}
