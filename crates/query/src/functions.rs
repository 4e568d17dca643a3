//! Functions over all samples of streams in rings, log and Parquet files: `history`, `rate`,
//! `quantile`, `topk`, `gaps`, `asof`, `family`, `frames`, computed in Rust over columns, and the
//! scalars `iso`, `instant` and `now_ns`.
//!
//! Samples are changes, so means and quantiles are over time: a value that held for an hour weighs
//! 3,600 times as much as one that held for a second.

mod family;
mod forecast;
mod frames;
mod gaps;
mod history;
mod publications;
mod quantile;
mod rate;
mod topk;
mod twa;
mod wide;

use std::ops::Range;
use std::sync::Arc;

use barograph_archive::aggregate::BucketBudget;
use barograph_model::{Buckets, Span, instant_ns};
use rusqlite::functions::FunctionFlags;
#[cfg(feature = "bundled")]
use rusqlite::types::Value;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result};

use crate::asof;
use crate::cell::SeriesCells;
use crate::error::usage;
use crate::feed::apart;
use crate::listing::{Arguments, Callable, Listing};
use crate::live::Live;
use crate::reading::{KnownSeries, Reading};

#[cfg(feature = "bundled")]
pub(crate) use family::FAMILIES_MAX;
pub(crate) use family::families;
pub(crate) use publications::publications;
pub(crate) use wide::{Wide, WideForm};

/// Rows that are made at once: their cells are larger than the samples.
const ROWS_AT_ONCE: usize = 1_024;

/// All table functions.
pub(crate) static FUNCTIONS: [Listing; 10] = [
    Listing {
        name: "history",
        kind: "function",
        help: "samples of the streams that match, or buckets of a step, whose value is the mean over the time for which a value is known (held_ns)",
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
            ("held_ns", "INTEGER"),
            ("sample_mean", "REAL"),
        ],
        arguments: &["pattern", "start", "stop", "step"],
        produce: history::history,
    },
    Listing {
        name: "rate",
        kind: "function",
        help: "change per second between samples, or from bucket to bucket; NULL where a counter was reset",
        columns: &[
            ("ts", "INTEGER"),
            ("value", "REAL"),
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "start", "stop", "step"],
        produce: rate::rate,
    },
    Listing {
        name: "quantile",
        kind: "function",
        help: "a quantile (0 to 1) of each stream that matches: over time, and of its samples",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("value", "REAL"),
            ("count", "INTEGER"),
            ("node", "TEXT"),
            ("held_ns", "INTEGER"),
            ("sample_value", "REAL"),
        ],
        arguments: &["pattern", "q", "start", "stop"],
        produce: quantile::quantile,
    },
    Listing {
        name: "topk",
        kind: "function",
        help: "the k streams that match with the largest newest values, or with the largest means over a time range",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("ts", "INTEGER"),
            ("value", ""),
            ("unit", "TEXT"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "k", "start", "stop"],
        produce: topk::topk,
    },
    Listing {
        name: "gaps",
        kind: "function",
        help: "times in which nobody looked at the streams that match: from the last look (ts) until the next sample; NULL if there is none yet",
        columns: &[
            ("ts", "INTEGER"),
            ("until", "INTEGER"),
            ("gap_ns", "INTEGER"),
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "start", "stop"],
        produce: gaps::gaps,
    },
    Listing {
        name: "asof",
        kind: "function",
        help: "the sample of each stream that matches that held at a given time",
        columns: &[
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("sample_ts", "INTEGER"),
            ("value", ""),
            ("unit", "TEXT"),
            ("age_ns", "INTEGER"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "ts"],
        produce: asof::asof,
    },
    Listing {
        name: "family",
        kind: "function",
        help: "a row for each time, node and labels, with a column for each metric of a family: family('disk')",
        columns: &[("ts", "INTEGER"), ("node", "TEXT")],
        arguments: &["prefix", "start", "stop", "step"],
        produce: family::without_columns,
    },
    Listing {
        name: "frames",
        kind: "function",
        help: "a row for each committed frame of a publication, with a column for each value: frames('lulesh')",
        columns: &[("ts", "INTEGER"), ("frame", "INTEGER"), ("node", "TEXT")],
        arguments: &["publication", "start", "stop"],
        produce: frames::without_columns,
    },
    Listing {
        name: "forecast",
        kind: "function",
        help: "forecasts of the streams that match, with their errors: at a horizon from now ('30s'), or at each point of the projection",
        columns: &[
            ("ts", "INTEGER"),
            ("value", "REAL"),
            ("error", "REAL"),
            ("quality", "TEXT"),
            ("name", "TEXT"),
            ("labels", "TEXT"),
            ("unit", "TEXT"),
            ("after_ns", "INTEGER"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "horizon"],
        produce: forecast::forecast,
    },
    Listing {
        name: "time_to",
        kind: "function",
        help: "time in ns from now at which the streams that match are predicted to reach a level (1e9, '10 GiB', '90 %'; by default 0 for what is available or free)",
        columns: &[
            ("ts", "INTEGER"),
            ("stream", "TEXT"),
            ("labels", "TEXT"),
            ("level", "REAL"),
            ("value", "REAL"),
            ("reach_ns", "INTEGER"),
            ("reach_early_ns", "INTEGER"),
            ("reach_late_ns", "INTEGER"),
            ("basis", "TEXT"),
            ("horizon_ns", "INTEGER"),
            ("unit", "TEXT"),
            ("node", "TEXT"),
        ],
        arguments: &["pattern", "level"],
        produce: forecast::time_to,
    },
];

/// A family or publication as a table of this name.
pub(crate) fn wide_table(wide: &Arc<Wide>, name: &str) -> Callable {
    let of = Arc::clone(wide);
    Callable {
        name: name.into(),
        columns: wide.columns(),
        arguments: wide.form.arguments(),
        needs_argument: false,
        produce: Box::new(move |live, arguments| match of.form {
            WideForm::Family => family::rows(&of, live, arguments),
            WideForm::Frames => frames::rows(&of, live, arguments),
        }),
    }
}

/// Registers `iso`, which needs no streams.
pub(crate) fn register_iso(connection: &Connection) -> Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("iso", 1, pure, |call| {
        call.get::<Option<i64>>(0)?.map(iso).transpose()
    })
}

/// Registers the scalar functions on a connection.
pub(crate) fn register_scalars(connection: &Connection, live: &Arc<Live>) -> Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    register_iso(connection)?;
    let clock = Arc::clone(live);
    // Deterministic, as SQLite's own functions of time: the same for all rows of a statement, so
    // that it can bound a scan.
    connection.create_scalar_function("instant", 1, pure, move |call| match call.get_raw(0) {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(ns) => Ok(Some(ns)),
        ValueRef::Text(text) => {
            let text = String::from_utf8_lossy(text);
            let ns = instant_ns(&text, clock.now_ns());
            ns.map(Some).map_err(|e| usage(e.to_string()))
        }
        other => Err(usage(format!(
            "instant() takes a text or nanoseconds since the epoch, not {}",
            other.data_type()
        ))),
    })?;
    #[cfg(feature = "bundled")]
    let clock = Arc::clone(live);
    #[cfg(feature = "bundled")]
    connection.create_scalar_function("instant_beside", 2, pure, move |call| {
        instant_beside(call.get_raw(0), call.get_raw(1), clock.now_ns())
    })?;
    twa::register(connection, live)?;
    let live = Arc::clone(live);
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("now_ns", 0, flags, move |_| Ok(live.now_ns()))
}

/// The meaning of a text that is compared with `column`: beside a number it is a time, beside a
/// text it is itself (see `times`).
#[cfg(feature = "bundled")]
fn instant_beside(column: ValueRef<'_>, text: ValueRef<'_>, now_ns: i64) -> Result<Value> {
    let ValueRef::Text(text) = text else {
        return Ok(Value::Null);
    };
    let text = String::from_utf8_lossy(text);
    match column {
        ValueRef::Integer(_) | ValueRef::Real(_) => {
            let ns = instant_ns(&text, now_ns).map_err(|e| usage(e.to_string()))?;
            Ok(Value::Integer(ns))
        }
        ValueRef::Text(_) if text == "now" || text.starts_with('-') => Err(usage(format!(
            "{text:?} is compared with a text, which has the name of a time: compare it with \
             iso(instant('{text}')), or give the text another name"
        ))),
        ValueRef::Text(_) | ValueRef::Null | ValueRef::Blob(_) => {
            Ok(Value::Text(text.into_owned()))
        }
    }
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

/// Start and stop, both included; open if not given.
fn span(live: &Live, arguments: &Arguments, first: usize) -> Result<Span> {
    let now_ns = live.now_ns();
    Ok(Span {
        from: arguments.instant(first, now_ns)?.unwrap_or(i64::MIN),
        to: arguments.instant(first + 1, now_ns)?.unwrap_or(i64::MAX),
    })
}

/// The length of buckets in ns, if it is given.
fn step(arguments: &Arguments, index: usize) -> Result<Option<i64>> {
    let step = arguments.duration(index)?;
    if step.is_some_and(|step| step <= 0) {
        return Err(arguments.wrong(
            index,
            "a positive number of nanoseconds, or a text like '10s'",
        ));
    }
    Ok(step)
}

/// The series of a reading in buckets. They count as the statement's memory as long as the budget
/// lives.
fn buckets(
    live: &Live,
    reading: &Arc<Reading>,
    span: Span,
    step_ns: i64,
) -> Result<(Vec<Buckets>, Arc<BucketBudget<'static>>)> {
    let (threads, budget) = (live.threads(), live.memory.budget());
    let (of, room) = (Arc::clone(reading), Arc::clone(&budget));
    let all = apart(live, move |cancel| {
        of.buckets(span, step_ns, threads, cancel, &room)
    })?;
    Ok((all, budget))
}

/// Rows of buckets, whose memory counts until the last row is returned.
struct OfBuckets<I> {
    rows: I,
    _budget: Arc<BucketBudget<'static>>,
}

impl<I: Iterator> Iterator for OfBuckets<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        self.rows.next()
    }
}

/// Splits rows into runs that are made at once.
fn runs(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = rows.end;
    rows.step_by(ROWS_AT_ONCE)
        .map(move |from| from..end.min(from + ROWS_AT_ONCE))
}

fn identities(reading: &Reading) -> Vec<SeriesCells> {
    reading.series.iter().map(KnownSeries::cells).collect()
}

#[cfg(test)]
mod tests {
    use super::iso;

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
