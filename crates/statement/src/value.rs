//! Values as SQLite computes with them: storage classes, comparison, arithmetic.
//!
//! This module is separate because an insight must have the same result as the same SELECT in
//! SQLite, and these rules decide that (<https://www.sqlite.org/datatype3.html>).

use std::cmp::Ordering;
use std::sync::Arc;

use barograph_model::{Value, floats_json};

use crate::text;

/// One SQL value.
#[derive(Clone, Debug, PartialEq)]
pub enum SqlValue {
    /// NULL, which is also what SQLite makes of NaN.
    Null,
    /// An integer.
    Int(i64),
    /// A real number, never NaN.
    Real(f64),
    /// A text.
    Text(Arc<str>),
}

/// A value, and the half width of the interval that contains the true value; infinite if the value
/// depends on a choice that the errors of its inputs leave open.
#[derive(Clone, Debug, PartialEq)]
pub struct UncertainValue {
    /// The value.
    pub val: SqlValue,
    /// The half width, in the value's unit.
    pub err: f64,
}

impl UncertainValue {
    /// NULL, without an error.
    pub const NULL: Self = Self::exact(SqlValue::Null);

    /// A value without an error.
    pub const fn exact(val: SqlValue) -> Self {
        Self { val, err: 0.0 }
    }
}

/// The conversion of the operands of a comparison before it
/// (<https://www.sqlite.org/datatype3.html#type_conversions_prior_to_comparison>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonConversion {
    /// Neither operand is converted.
    None,
    /// Both operands are compared as texts.
    Text,
    /// Texts that are numbers are compared as numbers.
    Numeric,
}

/// An arithmetic operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the operator of its name")]
pub enum ArithmeticOp {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the operator of its name")]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl CompareOp {
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

impl SqlValue {
    /// A real; NaN becomes NULL, since SQLite has no NaN.
    pub fn real(v: f64) -> Self {
        if v.is_nan() {
            Self::Null
        } else {
            Self::Real(v)
        }
    }

    /// 1 or 0: SQLite's true and false.
    pub fn truth(v: bool) -> Self {
        Self::Int(i64::from(v))
    }

    /// Whether the value is NULL.
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
            Self::Text(t) => leading_number(t),
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

impl From<&Value> for SqlValue {
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
pub fn compare(
    op: CompareOp,
    convert: ComparisonConversion,
    a: &UncertainValue,
    b: &UncertainValue,
) -> UncertainValue {
    if a.val.is_null() || b.val.is_null() {
        return UncertainValue::NULL;
    }
    let ordering = match (convert, &a.val, &b.val) {
        (
            ComparisonConversion::Text,
            SqlValue::Text(x),
            y @ (SqlValue::Int(_) | SqlValue::Real(_)),
        ) => x.as_bytes().cmp(y.as_text().unwrap_or_default().as_bytes()),
        (
            ComparisonConversion::Text,
            x @ (SqlValue::Int(_) | SqlValue::Real(_)),
            SqlValue::Text(y),
        ) => x.as_text().unwrap_or_default().as_bytes().cmp(y.as_bytes()),
        (ComparisonConversion::Numeric, x, y) => numeric(x).order(&numeric(y)),
        (_, x, y) => x.order(y),
    };
    let slack = a.err + b.err;
    let open = slack > 0.0
        && match (a.val.as_f64(), b.val.as_f64()) {
            (Some(x), Some(y)) => (x - y).abs() <= slack,
            _ => true,
        };
    UncertainValue {
        val: SqlValue::truth(op.holds(ordering)),
        err: if open { f64::INFINITY } else { 0.0 },
    }
}

fn numeric(v: &SqlValue) -> SqlValue {
    match v {
        SqlValue::Text(t) => whole_number(t).unwrap_or_else(|| v.clone()),
        other => other.clone(),
    }
}

/// The number at the start of a text, as arithmetic uses it; 0 if there is none.
fn leading_number(string: &str) -> SqlValue {
    let string = string.trim_start_matches(text::is_space);
    let end = text::number_end(string);
    parse(&string[..end]).unwrap_or(SqlValue::Int(0))
}

/// The number that a whole text is, apart from spaces around it; `None` if it is something else.
pub fn whole_number(string: &str) -> Option<SqlValue> {
    let string = string.trim_matches(text::is_space);
    if text::number_end(string) == string.len() {
        parse(string)
    } else {
        None
    }
}

/// Parses a number that [`text::number_end`] delimits: an integer if it has neither point nor
/// exponent and fits.
fn parse(number: &str) -> Option<SqlValue> {
    if number.is_empty() {
        return None;
    }
    match number.parse::<i64>() {
        Ok(v) => Some(SqlValue::Int(v)),
        Err(_) => number.parse::<f64>().ok().map(SqlValue::real),
    }
}

/// `a op b` for arithmetic: integers stay integers until they overflow; x / 0 is NULL.
pub fn arith(op: ArithmeticOp, a: &UncertainValue, b: &UncertainValue) -> UncertainValue {
    let val = match (a.val.number(), b.val.number()) {
        (SqlValue::Null, _) | (_, SqlValue::Null) => return UncertainValue::NULL,
        (SqlValue::Int(x), SqlValue::Int(y)) => arith_int(op, x, y),
        (x, y) => arith_real(op, &x, &y),
    };
    if val.is_null() {
        return UncertainValue::NULL;
    }
    if a.err == 0.0 && b.err == 0.0 {
        return UncertainValue::exact(val);
    }
    let err = arith_err(op, a, b, matches!(val, SqlValue::Int(_)));
    UncertainValue {
        val,
        err: if err.is_nan() { f64::INFINITY } else { err },
    }
}

fn arith_int(op: ArithmeticOp, x: i64, y: i64) -> SqlValue {
    let exact = match op {
        ArithmeticOp::Add => x.checked_add(y),
        ArithmeticOp::Sub => x.checked_sub(y),
        ArithmeticOp::Mul => x.checked_mul(y),
        ArithmeticOp::Div | ArithmeticOp::Rem if y == 0 => return SqlValue::Null,
        ArithmeticOp::Div => x.checked_div(y),
        ArithmeticOp::Rem => Some(x.wrapping_rem(y)),
    };
    exact.map_or_else(
        || arith_real(op, &SqlValue::Int(x), &SqlValue::Int(y)),
        SqlValue::Int,
    )
}

fn arith_real(op: ArithmeticOp, x: &SqlValue, y: &SqlValue) -> SqlValue {
    let (Some(a), Some(b)) = (x.as_f64(), y.as_f64()) else {
        return SqlValue::Null;
    };
    match op {
        ArithmeticOp::Add => SqlValue::real(a + b),
        ArithmeticOp::Sub => SqlValue::real(a - b),
        ArithmeticOp::Mul => SqlValue::real(a * b),
        ArithmeticOp::Div if b == 0.0 => SqlValue::Null,
        ArithmeticOp::Div => SqlValue::real(a / b),
        // SQLite takes the remainder of the integer parts, as a real.
        ArithmeticOp::Rem => match arith_int(ArithmeticOp::Rem, whole(x), whole(y)) {
            SqlValue::Int(v) => SqlValue::Real(v as f64),
            other => other,
        },
    }
}

fn whole(v: &SqlValue) -> i64 {
    match v {
        SqlValue::Int(v) => *v,
        SqlValue::Real(v) => *v as i64,
        _ => 0,
    }
}

/// The greatest distance of the true result from the computed one, by interval arithmetic.
fn arith_err(op: ArithmeticOp, a: &UncertainValue, b: &UncertainValue, truncated: bool) -> f64 {
    let (x, y) = (
        a.val.as_f64().unwrap_or(0.0).abs(),
        b.val.as_f64().unwrap_or(0.0).abs(),
    );
    match op {
        ArithmeticOp::Add | ArithmeticOp::Sub => a.err + b.err,
        // An exact 0 times anything is 0.
        ArithmeticOp::Mul => mul(x, b.err) + mul(y, a.err) + mul(a.err, b.err),
        ArithmeticOp::Div if y <= b.err => f64::INFINITY,
        ArithmeticOp::Div => {
            let err = (x * b.err + y * a.err) / (y * (y - b.err));
            if truncated { err + 1.0 } else { err }
        }
        ArithmeticOp::Rem => f64::INFINITY,
    }
}

fn mul(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_numbers() {
        let check =
            |text: &str, expect: SqlValue| assert_eq!(leading_number(text), expect, "{text:?}");
        check("", SqlValue::Int(0));
        check("x1", SqlValue::Int(0));
        check("-", SqlValue::Int(0));
        check(".", SqlValue::Int(0));
        check(" 12abc", SqlValue::Int(12));
        check("-7", SqlValue::Int(-7));
        check("1.5x", SqlValue::Real(1.5));
        check("1.", SqlValue::Real(1.0));
        check(".5", SqlValue::Real(0.5));
        check("2e3", SqlValue::Real(2000.0));
        check("2e", SqlValue::Int(2));
        check(
            "9223372036854775808",
            SqlValue::Real(9_223_372_036_854_775_808.0),
        );
        assert_eq!(whole_number(" 12 "), Some(SqlValue::Int(12)));
        assert_eq!(whole_number("12abc"), None);
        assert_eq!(whole_number(""), None);
    }

    #[test]
    fn integers_and_reals_compare_exactly() {
        let check = |a: i64, b: f64, expect: Ordering| {
            assert_eq!(
                SqlValue::Int(a).order(&SqlValue::Real(b)),
                expect,
                "{a} {b}"
            );
            assert_eq!(
                SqlValue::Real(b).order(&SqlValue::Int(a)),
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
        let known = |v: f64, err: f64| UncertainValue {
            val: SqlValue::Real(v),
            err,
        };
        let check = |op: ArithmeticOp, a: UncertainValue, b: UncertainValue, expect: f64| {
            assert_eq!(arith(op, &a, &b).err, expect, "{op:?} {a:?} {b:?}");
        };
        check(ArithmeticOp::Add, known(1.0, 0.5), known(2.0, 0.25), 0.75);
        check(ArithmeticOp::Mul, known(2.0, 0.5), known(-4.0, 1.0), 4.5);
        check(
            ArithmeticOp::Mul,
            known(0.0, 0.0),
            known(4.0, f64::INFINITY),
            0.0,
        );
        check(ArithmeticOp::Div, known(4.0, 1.0), known(2.0, 0.0), 0.5);
        // 4/2 = 2; 5/1 = 5 is the farthest corner.
        check(ArithmeticOp::Div, known(4.0, 1.0), known(2.0, 1.0), 3.0);
        check(
            ArithmeticOp::Div,
            known(4.0, 1.0),
            known(1.0, 1.0),
            f64::INFINITY,
        );
        let open = compare(
            CompareOp::Lt,
            ComparisonConversion::None,
            &known(1.0, 0.5),
            &known(1.2, 0.0),
        );
        assert_eq!(
            open,
            UncertainValue {
                val: SqlValue::Int(1),
                err: f64::INFINITY
            }
        );
        let sure = compare(
            CompareOp::Lt,
            ComparisonConversion::None,
            &known(1.0, 0.5),
            &known(1.6, 0.0),
        );
        assert_eq!(sure, UncertainValue::exact(SqlValue::Int(1)));
    }
}
