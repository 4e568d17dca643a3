//! Aggregates that are updated by deltas: a changed row is taken out of its group and added again.
//!
//! Counts and integer sums are exact by deltas. Sums of reals would drift, so a group that holds a
//! real is summed anew, with the same compensation as SQLite's. A minimum or maximum is searched
//! anew only if the row that held it got worse.

use std::cmp::Ordering;

use barograph_statement::{EvalFault, Expr, OVERFLOW, whole_number};
use barograph_statement::{SqlValue, UncertainValue};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AggregateKind {
    /// `count(*)`
    Rows,
    Count,
    Sum,
    Total,
    Avg,
    Min,
    Max,
}

/// An aggregate call; `count(*)` has no argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Aggregate {
    pub kind: AggregateKind,
    pub arg: Option<Expr>,
}

impl Aggregate {
    pub(crate) fn may_be_real(&self, column: &dyn Fn(&Expr) -> bool) -> bool {
        match self.kind {
            AggregateKind::Rows | AggregateKind::Count => false,
            AggregateKind::Total | AggregateKind::Avg => true,
            AggregateKind::Sum | AggregateKind::Min | AggregateKind::Max => {
                self.arg.as_ref().is_some_and(|e| e.may_be_real(column))
            }
        }
    }
}

/// The state of one aggregate over one group; rows whose value is NULL do not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct AggregateState {
    count: i64,
    /// Sum of the integers; no number of rows that fits in memory overflows it.
    ints: i128,
    /// Number of rows whose value is a real.
    reals: u32,
    /// Number of rows whose value has an error.
    inexact: u32,
    best: Option<SqlValue>,
    /// Whether `best` must be searched anew.
    stale: bool,
}

impl AggregateState {
    pub(crate) fn add(&mut self, kind: AggregateKind, known: &UncertainValue) {
        if known.val.is_null() {
            return;
        }
        self.count += 1;
        self.inexact += u32::from(known.err > 0.0);
        match kind {
            AggregateKind::Rows | AggregateKind::Count => {}
            AggregateKind::Sum | AggregateKind::Total | AggregateKind::Avg => {
                match summand(&known.val) {
                    SqlValue::Int(v) => self.ints += i128::from(v),
                    _ => self.reals += 1,
                }
            }
            AggregateKind::Min | AggregateKind::Max => {
                let order = self
                    .best
                    .as_ref()
                    .map(|best| (best.order(&known.val), best));
                match order {
                    // Of equal values such as 1 and 1.0 the first row's is taken, as in SQLite.
                    Some((Ordering::Equal, best)) => {
                        self.stale |= matches!(best, SqlValue::Int(_))
                            != matches!(known.val, SqlValue::Int(_));
                    }
                    Some((_, best)) if better(kind, best, &known.val) => {}
                    // Even a stale `best` bounds the values of the other rows.
                    _ => {
                        self.best = Some(known.val.clone());
                        self.stale = false;
                    }
                }
            }
        }
    }

    pub(crate) fn remove(&mut self, kind: AggregateKind, known: &UncertainValue) {
        if known.val.is_null() {
            return;
        }
        self.count -= 1;
        self.inexact -= u32::from(known.err > 0.0);
        match kind {
            AggregateKind::Rows | AggregateKind::Count => {}
            AggregateKind::Sum | AggregateKind::Total | AggregateKind::Avg => {
                match summand(&known.val) {
                    SqlValue::Int(v) => self.ints -= i128::from(v),
                    _ => self.reals -= 1,
                }
            }
            AggregateKind::Min | AggregateKind::Max => {
                let held = self
                    .best
                    .as_ref()
                    .is_some_and(|b| b.order(&known.val).is_eq());
                self.stale |= held;
            }
        }
    }

    /// Computes the aggregate's value; `rows` returns the group's values again, in order.
    pub(crate) fn finish<'a, I>(
        &mut self,
        kind: AggregateKind,
        rows: impl Fn() -> I,
    ) -> Result<UncertainValue, EvalFault>
    where
        I: Iterator<Item = &'a UncertainValue>,
    {
        let val = match kind {
            AggregateKind::Rows | AggregateKind::Count => {
                return Ok(UncertainValue::exact(SqlValue::Int(self.count)));
            }
            AggregateKind::Total if self.count == 0 => {
                return Ok(UncertainValue::exact(SqlValue::Real(0.0)));
            }
            _ if self.count == 0 => {
                (self.best, self.stale) = (None, false);
                return Ok(UncertainValue::NULL);
            }
            AggregateKind::Sum if self.reals == 0 => {
                SqlValue::Int(i64::try_from(self.ints).map_err(|_| OVERFLOW)?)
            }
            AggregateKind::Sum | AggregateKind::Total => SqlValue::real(self.sum(rows())),
            AggregateKind::Avg => SqlValue::real(self.sum(rows()) / self.count as f64),
            AggregateKind::Min | AggregateKind::Max => self.extreme(kind, rows()),
        };
        let err = if self.inexact == 0 {
            0.0
        } else {
            self.error(kind, rows())
        };
        Ok(UncertainValue { val, err })
    }

    fn sum<'a>(&self, rows: impl Iterator<Item = &'a UncertainValue>) -> f64 {
        if self.reals == 0 {
            return self.ints as f64;
        }
        compensated(rows.filter_map(|known| known.val.as_f64()))
    }

    fn extreme<'a>(
        &mut self,
        kind: AggregateKind,
        rows: impl Iterator<Item = &'a UncertainValue>,
    ) -> SqlValue {
        if self.stale {
            let values = rows.map(|known| &known.val).filter(|v| !v.is_null());
            self.best = values
                .reduce(|a, b| if better(kind, b, a) { b } else { a })
                .cloned();
            self.stale = false;
        }
        self.best.clone().unwrap_or(SqlValue::Null)
    }

    /// Returns the error of the aggregate: that of a sum is at most the sum of the errors, that of
    /// an extreme at most the largest.
    fn error<'a>(
        &self,
        kind: AggregateKind,
        rows: impl Iterator<Item = &'a UncertainValue>,
    ) -> f64 {
        let errors = rows
            .filter(|known| !known.val.is_null())
            .map(|known| known.err);
        match kind {
            AggregateKind::Avg => errors.sum::<f64>() / self.count as f64,
            AggregateKind::Min | AggregateKind::Max => errors.fold(0.0, f64::max),
            _ => errors.sum(),
        }
    }
}

fn better(kind: AggregateKind, a: &SqlValue, b: &SqlValue) -> bool {
    let wanted = if kind == AggregateKind::Min {
        Ordering::Less
    } else {
        Ordering::Greater
    };
    a.order(b) == wanted
}

/// Returns the summand of a value: text that is a number counts as that number, other text as the
/// real 0.
fn summand(val: &SqlValue) -> SqlValue {
    match val {
        SqlValue::Text(t) => whole_number(t).unwrap_or(SqlValue::Real(0.0)),
        other => other.clone(),
    }
}

/// Returns the compensated sum of Kahan, Babuška and Neumaier, as in SQLite.
fn compensated(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut rest) = (0.0_f64, 0.0_f64);
    for v in values {
        let next = sum + v;
        rest += if sum.abs() > v.abs() {
            (sum - next) + v
        } else {
            (v - next) + sum
        };
        sum = next;
    }
    if rest.is_finite() { sum + rest } else { sum }
}
