//! `twa(value, ts)` and `twa(value, ts, quality)`: the mean over time of the samples of one stream,
//! as an aggregate.

use std::sync::Arc;

use barograph_model::Quality;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Result};

use crate::error::usage;
use crate::live::Live;
use crate::memory::ScanClaim;

const NAME: &str = "twa";

/// The samples of a group, in the order in which SQLite passes them.
#[derive(Default)]
struct Samples {
    rows: Vec<Row>,
    claim: Option<ScanClaim>,
}

#[derive(Clone, Copy)]
struct Row {
    ts: i64,
    /// NaN if it is unknown.
    value: f64,
    /// Whether nobody looked after it.
    is_last_look: bool,
}

struct TimeWeighted(Arc<Live>);

/// Registers the aggregate on a connection.
pub(super) fn register(connection: &Connection, live: &Arc<Live>) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    for arguments in [2, 3] {
        let aggregate = TimeWeighted(Arc::clone(live));
        connection.create_aggregate_function(NAME, arguments, flags, aggregate)?;
    }
    Ok(())
}

impl Aggregate<Samples, Option<f64>> for TimeWeighted {
    fn init(&self, _: &mut Context<'_>) -> Result<Samples> {
        Ok(Samples::default())
    }

    fn step(&self, call: &mut Context<'_>, samples: &mut Samples) -> Result<()> {
        let ts = match call.get_raw(1) {
            ValueRef::Integer(ts) => ts,
            ValueRef::Null => return Ok(()),
            other => {
                return Err(usage(format!(
                    "{NAME}(value, ts): ts must be nanoseconds since the epoch, not {}",
                    other.data_type()
                )));
            }
        };
        let value = match call.get_raw(0) {
            ValueRef::Integer(value) => value as f64,
            ValueRef::Real(value) => value,
            ValueRef::Null => f64::NAN,
            other => {
                return Err(usage(format!(
                    "{NAME}(value, ts): the value must be a number, not {}",
                    other.data_type()
                )));
            }
        };
        let quality = (call.len() > 2).then(|| call.get_raw(2));
        let ended = ValueRef::Text(Quality::Ended.as_str().as_bytes());
        let before = samples.rows.capacity();
        samples.rows.push(Row {
            ts,
            value,
            is_last_look: quality == Some(ended),
        });
        let after = samples.rows.capacity();
        if after != before {
            let claim = samples.claim.get_or_insert_with(|| self.0.memory.claim());
            claim.set(after * size_of::<Row>())?;
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, samples: Option<Samples>) -> Result<Option<f64>> {
        Ok(samples.and_then(|samples| mean(samples.rows)))
    }
}

/// Each value holds until the next sample; the last one has no weight, since its duration is
/// unknown. A single sample is its own mean.
fn mean(mut rows: Vec<Row>) -> Option<f64> {
    // A stable sort: samples of the same time keep their order.
    rows.sort_by_key(|row| row.ts);
    let (mut area, mut held_ns) = (0.0, 0.0);
    for (at, row) in rows.iter().enumerate() {
        let Some(next) = rows.get(at + 1) else { break };
        let ns = next.ts.abs_diff(row.ts) as f64;
        if !row.is_last_look && !row.value.is_nan() && ns > 0.0 {
            area += row.value * ns;
            held_ns += ns;
        }
    }
    if held_ns > 0.0 {
        return Some(area / held_ns);
    }
    let known = rows.iter().rev().find(|row| !row.value.is_nan());
    known.map(|row| row.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_over_time() {
        let check = |rows: &[(i64, f64, bool)], expect: Option<f64>| {
            let row = |&(ts, value, is_last_look)| Row {
                ts,
                value,
                is_last_look,
            };
            assert_eq!(mean(rows.iter().map(row).collect()), expect, "{rows:?}");
        };
        check(&[], None);
        check(&[(5, f64::NAN, false)], None);
        check(&[(5, 7.0, false)], Some(7.0));
        check(
            &[(0, 0.0, false), (9, 10.0, false), (10, 0.0, false)],
            Some(1.0),
        );
        // In any order; at the same time.
        check(
            &[(10, 0.0, false), (0, 0.0, false), (9, 10.0, false)],
            Some(1.0),
        );
        check(&[(4, 1.0, false), (4, 3.0, false)], Some(3.0));
        // Nobody looked from 10 until 100.
        check(
            &[
                (0, 2.0, false),
                (10, 2.0, true),
                (100, 4.0, false),
                (110, 4.0, false),
            ],
            Some(3.0),
        );
        check(
            &[(0, f64::NAN, false), (10, 2.0, false), (20, 2.0, false)],
            Some(2.0),
        );
    }
}
