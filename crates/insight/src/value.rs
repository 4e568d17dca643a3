//! Values as SQLite computes with them: storage classes, comparison, arithmetic.
//!
//! It is a module of its own because an insight must have the same result as the same SELECT in
//! SQLite, and this module decides that (<https://www.sqlite.org/datatype3.html>).

use std::cmp::Ordering;
use std::sync::Arc;

use barograph_model::{Value, floats_json};

use crate::text;

/// One SQL value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Val {
    Null,
    Int(i64),
    Real(f64),
    Text(Arc<str>),
}

/// A value, and the half width of the interval that contains the true value; infinite if the value
/// depends on a choice that the errors of its inputs leave open.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub val: Val,
    pub err: f64,
}

impl Known {
    pub const NULL: Self = Self::exact(Val::Null);

    pub const fn exact(val: Val) -> Self {
        Self { val, err: 0.0 }
    }
}

/// How the operands of a comparison are converted before it
/// (<https://www.sqlite.org/datatype3.html#type_conversions_prior_to_comparison>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Convert {
    None,
    Text,
    Numeric,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arith {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Cmp {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Eq => ordering.is_eq(),
            Self::Ne => ordering.is_ne(),
            Self::Lt => ordering.is_lt(),
            Self::Le => ordering.is_le(),
            Self::Gt => ordering.is_gt(),
            Self::Ge => ordering.is_ge(),
        }
    }
}

impl Val {
    /// A real; NaN becomes NULL, since SQLite has no NaN.
    pub fn real(v: f64) -> Self {
        if v.is_nan() {
            Self::Null
        } else {
            Self::Real(v)
        }
    }

    pub fn truth(v: bool) -> Self {
        Self::Int(i64::from(v))
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Whether the value counts as true; `None` for NULL.
    pub fn is_true(&self) -> Option<bool> {
        match self {
            Self::Null => None,
            Self::Int(v) => Some(*v != 0),
            other => other.as_f64().map(|v| v != 0.0),
        }
    }

    /// The value as a number: text counts as the number at its start. `None` for NULL.
    pub fn as_f64(&self) -> Option<f64> {
        match self.number() {
            Self::Int(v) => Some(v as f64),
            Self::Real(v) => Some(v),
            _ => None,
        }
    }

    /// The value as an operand of arithmetic: text becomes the number at its start, or 0.
    pub fn number(&self) -> Self {
        match self {
            Self::Text(t) => text::leading_number(t),
            other => other.clone(),
        }
    }

    /// The value as text; `None` for NULL.
    pub fn as_text(&self) -> Option<Arc<str>> {
        match self {
            Self::Null => None,
            Self::Int(v) => Some(v.to_string().into()),
            Self::Real(v) => Some(text::real(*v).into()),
            Self::Text(t) => Some(t.clone()),
        }
    }

    /// SQLite's order of values that are not NULL: numbers by value, then text by bytes.
    pub fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Real(a), Self::Real(b)) => a.partial_cmp(b).unwrap_or(Ordering::Equal),
            (Self::Int(a), Self::Real(b)) => int_real(*a, *b),
            (Self::Real(a), Self::Int(b)) => int_real(*b, *a).reverse(),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            _ => self.class().cmp(&other.class()),
        }
    }

    fn class(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Int(_) | Self::Real(_) => 1,
            Self::Text(_) => 2,
        }
    }
}

impl From<&Value> for Val {
    fn from(value: &Value) -> Self {
        match value {
            Value::Int(v) => Self::Int(*v),
            Value::Float(v) => Self::real(*v),
            Value::Bool(v) => Self::truth(*v),
            Value::Text(v) | Value::Json(v) => Self::Text(v.clone()),
            Value::Floats(v) => Self::Text(floats_json(v).into()),
            // Insights do not use bytes, and have no class for them.
            Value::Bytes(_) => Self::Null,
        }
    }
}

/// Compares exactly; a cast to float would round.
fn int_real(a: i64, b: f64) -> Ordering {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    if b >= TWO_63 {
        return Ordering::Less;
    }
    if b < -TWO_63 {
        return Ordering::Greater;
    }
    let whole = b as i64;
    a.cmp(&whole)
        .then_with(|| (whole as f64).partial_cmp(&b).unwrap_or(Ordering::Equal))
}

/// `a op b` for a comparison: 0, 1 or NULL. If the error intervals overlap, the result is open and
/// its error infinite.
pub(crate) fn compare(op: Cmp, convert: Convert, a: &Known, b: &Known) -> Known {
    if a.val.is_null() || b.val.is_null() {
        return Known::NULL;
    }
    let ordering = match (convert, &a.val, &b.val) {
        (Convert::Text, Val::Text(x), y @ (Val::Int(_) | Val::Real(_))) => {
            x.as_bytes().cmp(y.as_text().unwrap_or_default().as_bytes())
        }
        (Convert::Text, x @ (Val::Int(_) | Val::Real(_)), Val::Text(y)) => {
            x.as_text().unwrap_or_default().as_bytes().cmp(y.as_bytes())
        }
        (Convert::Numeric, x, y) => numeric(x).order(&numeric(y)),
        (_, x, y) => x.order(y),
    };
    let slack = a.err + b.err;
    let open = slack > 0.0
        && match (a.val.as_f64(), b.val.as_f64()) {
            (Some(x), Some(y)) => (x - y).abs() <= slack,
            _ => true,
        };
    Known {
        val: Val::truth(op.holds(ordering)),
        err: if open { f64::INFINITY } else { 0.0 },
    }
}

fn numeric(v: &Val) -> Val {
    match v {
        Val::Text(t) => text::whole_number(t).unwrap_or_else(|| v.clone()),
        other => other.clone(),
    }
}

/// `a op b` for arithmetic: integers stay integers until they overflow; x / 0 is NULL.
pub(crate) fn arith(op: Arith, a: &Known, b: &Known) -> Known {
    let val = match (a.val.number(), b.val.number()) {
        (Val::Null, _) | (_, Val::Null) => return Known::NULL,
        (Val::Int(x), Val::Int(y)) => arith_int(op, x, y),
        (x, y) => arith_real(op, &x, &y),
    };
    if val.is_null() {
        return Known::NULL;
    }
    if a.err == 0.0 && b.err == 0.0 {
        return Known::exact(val);
    }
    let err = arith_err(op, a, b, matches!(val, Val::Int(_)));
    Known {
        val,
        err: if err.is_nan() { f64::INFINITY } else { err },
    }
}

fn arith_int(op: Arith, x: i64, y: i64) -> Val {
    let exact = match op {
        Arith::Add => x.checked_add(y),
        Arith::Sub => x.checked_sub(y),
        Arith::Mul => x.checked_mul(y),
        Arith::Div | Arith::Rem if y == 0 => return Val::Null,
        Arith::Div => x.checked_div(y),
        Arith::Rem => Some(x.wrapping_rem(y)),
    };
    exact.map_or_else(|| arith_real(op, &Val::Int(x), &Val::Int(y)), Val::Int)
}

fn arith_real(op: Arith, x: &Val, y: &Val) -> Val {
    let (Some(a), Some(b)) = (x.as_f64(), y.as_f64()) else {
        return Val::Null;
    };
    match op {
        Arith::Add => Val::real(a + b),
        Arith::Sub => Val::real(a - b),
        Arith::Mul => Val::real(a * b),
        Arith::Div if b == 0.0 => Val::Null,
        Arith::Div => Val::real(a / b),
        // SQLite takes the remainder of the integer parts, as a real.
        Arith::Rem => match arith_int(Arith::Rem, whole(x), whole(y)) {
            Val::Int(v) => Val::Real(v as f64),
            other => other,
        },
    }
}

fn whole(v: &Val) -> i64 {
    match v {
        Val::Int(v) => *v,
        Val::Real(v) => *v as i64,
        _ => 0,
    }
}

/// The greatest distance of the true result from the computed one, by interval arithmetic.
fn arith_err(op: Arith, a: &Known, b: &Known, truncated: bool) -> f64 {
    let (x, y) = (
        a.val.as_f64().unwrap_or(0.0).abs(),
        b.val.as_f64().unwrap_or(0.0).abs(),
    );
    match op {
        Arith::Add | Arith::Sub => a.err + b.err,
        // An exact 0 times anything is 0.
        Arith::Mul => mul(x, b.err) + mul(y, a.err) + mul(a.err, b.err),
        Arith::Div if y <= b.err => f64::INFINITY,
        Arith::Div => {
            let err = (x * b.err + y * a.err) / (y * (y - b.err));
            if truncated { err + 1.0 } else { err }
        }
        Arith::Rem => f64::INFINITY,
    }
}

fn mul(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_reals_compare_exactly() {
        let check = |a: i64, b: f64, expect: Ordering| {
            assert_eq!(Val::Int(a).order(&Val::Real(b)), expect, "{a} {b}");
            assert_eq!(
                Val::Real(b).order(&Val::Int(a)),
                expect.reverse(),
                "{b} {a}"
            );
        };
        check(1, 1.0, Ordering::Equal);
        check(1, 1.5, Ordering::Less);
        check(-1, -1.5, Ordering::Greater);
        check(i64::MAX, 9_223_372_036_854_775_807.0, Ordering::Less);
        check(i64::MIN, -9_223_372_036_854_775_808.0, Ordering::Equal);
        check(i64::MIN, f64::NEG_INFINITY, Ordering::Greater);
        check((1 << 53) + 1, 9_007_199_254_740_992.0, Ordering::Greater);
    }

    #[test]
    fn errors_propagate() {
        let known = |v: f64, err: f64| Known {
            val: Val::Real(v),
            err,
        };
        let check = |op: Arith, a: Known, b: Known, expect: f64| {
            assert_eq!(arith(op, &a, &b).err, expect, "{op:?} {a:?} {b:?}");
        };
        check(Arith::Add, known(1.0, 0.5), known(2.0, 0.25), 0.75);
        check(Arith::Mul, known(2.0, 0.5), known(-4.0, 1.0), 4.5);
        check(Arith::Mul, known(0.0, 0.0), known(4.0, f64::INFINITY), 0.0);
        check(Arith::Div, known(4.0, 1.0), known(2.0, 0.0), 0.5);
        // 4/2 = 2; 5/1 = 5 is the farthest corner.
        check(Arith::Div, known(4.0, 1.0), known(2.0, 1.0), 3.0);
        check(Arith::Div, known(4.0, 1.0), known(1.0, 1.0), f64::INFINITY);
        let open = compare(Cmp::Lt, Convert::None, &known(1.0, 0.5), &known(1.2, 0.0));
        assert_eq!(
            open,
            Known {
                val: Val::Int(1),
                err: f64::INFINITY
            }
        );
        let sure = compare(Cmp::Lt, Convert::None, &known(1.0, 0.5), &known(1.6, 0.0));
        assert_eq!(sure, Known::exact(Val::Int(1)));
    }
}
