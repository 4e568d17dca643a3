//! The part of WHERE and ORDER BY that a metric's table handles itself, and the encoding in which
//! the plan passes through SQLite to the scan.
//!
//! Each handled constraint is a *superset* filter: SQLite tests every row again, so its own rules
//! of comparison (text against number, NULL, collations) always decide.

use std::ffi::CStr;

use rusqlite::Result;
use rusqlite::types::ValueRef;
use rusqlite::vtab::{Filters, IndexConstraintOp, IndexInfo};

use crate::shape::ShapeColumn;

/// The scan must return its rows by time, oldest first.
const ASCENDING: i32 = 1;
/// The scan must return its rows by time, newest first.
const DESCENDING: i32 = 2;
/// The statement reads the time since the last look.
const NEEDS_NOW: i32 = 4;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanPlan {
    pub(crate) order: Option<RowOrder>,
    pub(crate) needs_now: bool,
    /// Return only each stream's newest sample.
    pub(crate) newest: bool,
    /// Bounds of the time stamp, both included.
    pub(crate) from: Option<i64>,
    pub(crate) to: Option<i64>,
    /// Index of a column (a label or the node) and the text that it must equal.
    pub(crate) texts: Vec<(usize, String)>,
}

/// The order of rows by time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowOrder {
    Ascending,
    Descending,
}

/// The size of a table, for SQLite's choice between plans.
pub(crate) struct TableSize {
    pub(crate) streams: usize,
    pub(crate) samples: u64,
}

/// Tells SQLite which constraints and which order the scan handles.
pub(crate) fn choose(
    info: &mut IndexInfo,
    columns: &[ShapeColumn],
    size: &TableSize,
) -> Result<()> {
    let mut text = String::new();
    let mut used = Vec::new();
    let (mut rows, mut samples) = (size.samples as f64, size.samples as f64);
    for (i, constraint) in info.constraints().enumerate() {
        let column = usize::try_from(constraint.column()).unwrap_or(usize::MAX);
        let Some(kind) = columns.get(column) else {
            continue;
        };
        let Some(operator) = operator(kind, &constraint.operator()) else {
            continue;
        };
        if !constraint.is_usable() || (operator == '=' && info.collation(i)? != "BINARY") {
            continue;
        }
        match (kind, operator) {
            (ShapeColumn::Newest, _) => {
                (rows, samples) = (size.streams as f64, size.streams as f64)
            }
            (ShapeColumn::Ts, '=') => rows /= 100.0,
            (ShapeColumn::Ts, _) => rows /= 4.0,
            _ => {
                rows /= size.streams.max(1) as f64;
                samples /= size.streams.max(1) as f64;
            }
        }
        used.push(i);
        text.push_str(&format!("{}{operator}{column} ", letter(kind)));
    }
    for (argument, i) in (1..).zip(&used) {
        info.constraint_usage(*i).set_argv_index(argument);
    }
    if used.len() == 1 && text == NEWEST_ALONE.to_string_lossy() {
        info.set_idx_cstr(NEWEST_ALONE); // The most common plan, without an allocation.
    } else if !used.is_empty() {
        info.set_idx_str(&text);
    }

    let order = order(info, columns);
    let mut number = match order {
        None => 0,
        Some(RowOrder::Ascending) => ASCENDING,
        Some(RowOrder::Descending) => DESCENDING,
    };
    info.set_order_by_consumed(order.is_some());
    let asks_age = |(i, c): (usize, &ShapeColumn)| {
        *c == ShapeColumn::AgeNs && info.col_used() & (1 << i.min(63)) != 0
    };
    if columns.iter().enumerate().any(asks_age) {
        number |= NEEDS_NOW;
    }
    info.set_idx_num(number);
    info.set_estimated_rows((rows as i64).max(1));
    info.set_estimated_cost(samples + rows + 1.0);
    Ok(())
}

/// The plan of `newest = 1` and nothing else.
const NEWEST_ALONE: &CStr = c"n=5 ";

/// The letter for the kind of column that a constraint is on.
fn letter(column: &ShapeColumn) -> char {
    match column {
        ShapeColumn::Ts => 't',
        ShapeColumn::Newest => 'n',
        _ => 'l',
    }
}

fn operator(column: &ShapeColumn, operator: &IndexConstraintOp) -> Option<char> {
    use IndexConstraintOp as Op;
    let equal = matches!(
        operator,
        Op::SQLITE_INDEX_CONSTRAINT_EQ | Op::SQLITE_INDEX_CONSTRAINT_IS
    );
    match column {
        ShapeColumn::Ts | ShapeColumn::Node | ShapeColumn::Label(_) | ShapeColumn::Newest
            if equal =>
        {
            Some('=')
        }
        ShapeColumn::Newest if *operator == Op::SQLITE_INDEX_CONSTRAINT_NE => Some('!'),
        ShapeColumn::Ts => match operator {
            Op::SQLITE_INDEX_CONSTRAINT_GT | Op::SQLITE_INDEX_CONSTRAINT_GE => Some('>'),
            Op::SQLITE_INDEX_CONSTRAINT_LT | Op::SQLITE_INDEX_CONSTRAINT_LE => Some('<'),
            _ => None,
        },
        _ => None,
    }
}

fn order(info: &IndexInfo, columns: &[ShapeColumn]) -> Option<RowOrder> {
    let mut terms = info.order_bys();
    let term = terms.next()?;
    let by_time = usize::try_from(term.column())
        .ok()
        .and_then(|i| columns.get(i))?
        == &ShapeColumn::Ts;
    if !by_time || terms.next().is_some() {
        return None;
    }
    Some(if term.is_order_by_desc() {
        RowOrder::Descending
    } else {
        RowOrder::Ascending
    })
}

impl ScanPlan {
    /// Decodes the plan in the scan, with the values of its constraints.
    pub(crate) fn read(number: i32, text: Option<&str>, args: &Filters<'_>) -> Self {
        let mut plan = Self {
            order: match number & (ASCENDING | DESCENDING) {
                ASCENDING => Some(RowOrder::Ascending),
                DESCENDING => Some(RowOrder::Descending),
                _ => None,
            },
            needs_now: number & NEEDS_NOW != 0,
            ..Self::default()
        };
        let constraints = text.unwrap_or_default().split_ascii_whitespace();
        for (constraint, value) in constraints.zip(args.iter()) {
            let (what, column) = constraint.split_at(2);
            plan.constrain(what, column.parse().unwrap_or(usize::MAX), value);
        }
        plan
    }

    fn constrain(&mut self, what: &str, column: usize, value: ValueRef<'_>) {
        match (what, value) {
            ("n=", ValueRef::Integer(value)) => self.newest |= value == 1,
            ("n!", ValueRef::Integer(value)) => self.newest |= value == 0,
            ("t=" | "t<" | "t>", ValueRef::Integer(value)) => self.bound(what, value, value),
            // A cast of a float saturates; SQLite tests the rows again that this lets through.
            ("t=" | "t<" | "t>", ValueRef::Real(value)) if !value.is_nan() => {
                self.bound(what, value.floor() as i64, value.ceil() as i64);
            }
            ("l=", ValueRef::Text(text)) => {
                if let Ok(text) = std::str::from_utf8(text) {
                    self.texts.push((column, text.to_owned()));
                }
            }
            _ => {}
        }
    }

    fn bound(&mut self, what: &str, floor: i64, ceil: i64) {
        if what != "t<" {
            self.from = Some(self.from.map_or(floor, |from| from.max(floor)));
        }
        if what != "t>" {
            self.to = Some(self.to.map_or(ceil, |to| to.min(ceil)));
        }
    }

    /// Whether a time stamp is within the bounds.
    pub(crate) fn takes(&self, ts: i64) -> bool {
        self.from.is_none_or(|from| ts >= from) && self.to.is_none_or(|to| ts <= to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::NEWEST_INDEX;

    #[test]
    fn constraints_only_narrow_to_supersets() {
        let check = |what: &str, column: usize, value: ValueRef<'_>, expect: ScanPlan| {
            let mut plan = ScanPlan::default();
            plan.constrain(what, column, value);
            assert_eq!(plan, expect, "{what}{column} {value:?}");
        };
        let bounds = |from, to| ScanPlan {
            from,
            to,
            ..ScanPlan::default()
        };
        check("t=", 0, ValueRef::Integer(7), bounds(Some(7), Some(7)));
        check("t>", 0, ValueRef::Integer(7), bounds(Some(7), None));
        check("t<", 0, ValueRef::Integer(7), bounds(None, Some(7)));
        check("t>", 0, ValueRef::Real(7.5), bounds(Some(7), None));
        check("t<", 0, ValueRef::Real(7.5), bounds(None, Some(8)));
        check(
            "t>",
            0,
            ValueRef::Real(-1e300),
            bounds(Some(i64::MIN), None),
        );
        check("t=", 0, ValueRef::Text(b"7"), ScanPlan::default());
        check("t<", 0, ValueRef::Null, ScanPlan::default());
        check(
            "n=",
            5,
            ValueRef::Integer(1),
            ScanPlan {
                newest: true,
                ..ScanPlan::default()
            },
        );
        check("n=", 5, ValueRef::Integer(0), ScanPlan::default());
        check("n=", 5, ValueRef::Real(1.0), ScanPlan::default());
        check(
            "n!",
            5,
            ValueRef::Integer(0),
            ScanPlan {
                newest: true,
                ..ScanPlan::default()
            },
        );
        check("n!", 5, ValueRef::Integer(1), ScanPlan::default());
        check(
            "l=",
            6,
            ValueRef::Text(b"vda"),
            ScanPlan {
                texts: vec![(6, "vda".into())],
                ..ScanPlan::default()
            },
        );
        check("l=", 6, ValueRef::Integer(5), ScanPlan::default());
    }

    #[test]
    fn newest_alone_names_its_column() {
        assert_eq!(NEWEST_ALONE.to_str().unwrap(), format!("n={NEWEST_INDEX} "));
    }
}
