//! Compiled expressions: they are evaluated over one row of newest samples and one group's
//! aggregates.
//!
//! They are separate from the compiler because this part runs at every change of an input.

use std::sync::Arc;

use crate::text::{self, WildcardKind};
use crate::value::{
    ArithmeticOp, CompareOp, ComparisonConversion, SqlValue, UncertainValue, arith, compare,
};

/// A column of a metric's table.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnField {
    /// The sample's value.
    Value,
    /// The sample's time, in ns since the epoch.
    Ts,
    /// The half width of the interval in which the true value lies, in the stream's unit.
    Error,
    /// The sample's quality, as text.
    Quality,
    /// The node of this graph; it is constant.
    Node(Arc<str>),
    /// The value of the label of this name.
    Label(Arc<str>),
}

impl ColumnField {
    /// Returns whether the column is fixed for the life of a stream.
    pub fn is_static(&self) -> bool {
        matches!(self, Self::Node(_) | Self::Label(_))
    }
}

/// A column of one of the tables in FROM.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnRef {
    /// The table's place in FROM, counted from 0.
    pub from: usize,
    /// The column of that table.
    pub field: ColumnField,
}

/// A scalar function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant is the SQL function of its name")]
pub enum ScalarFunction {
    Abs,
    Round,
    Min,
    Max,
    Coalesce,
    Nullif,
}

/// A compiled expression.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the SQL operator of its name")]
pub enum Expr {
    Literal(SqlValue),
    Column(ColumnRef),
    /// The value with this number among those that the environment computes: an aggregate of an
    /// insight, or a function of a stream in a rule.
    Computed(usize),
    Negate(Box<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    Arith(ArithmeticOp, Box<Expr>, Box<Expr>),
    Compare(CompareOp, ComparisonConversion, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Like(WildcardKind, Box<Expr>, Box<Expr>),
    Case {
        arms: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Call(ScalarFunction, Vec<Expr>),
}

/// The values that an expression is evaluated over.
pub trait ExprInput: Copy {
    /// Returns the value of a column; NULL if the row has no such table or label.
    fn column(self, column: &ColumnRef) -> UncertainValue;
    /// Returns the computed value with this number; see [`Expr::Computed`].
    fn computed(self, number: usize) -> UncertainValue;
}

/// The reason why a value could not be computed, in SQLite's words.
pub type EvalFault = &'static str;

/// An integer result that does not fit in 64 bits.
pub const OVERFLOW: EvalFault = "integer overflow";

impl Expr {
    /// Computes the expression over an input.
    pub fn eval(&self, input: impl ExprInput) -> Result<UncertainValue, EvalFault> {
        Ok(match self {
            Self::Literal(val) => UncertainValue::exact(val.clone()),
            Self::Column(column) => input.column(column),
            Self::Computed(number) => input.computed(*number),
            Self::Negate(e) => arith(
                ArithmeticOp::Sub,
                &UncertainValue::exact(SqlValue::Int(0)),
                &e.eval(input)?,
            ),
            Self::Not(e) => not(&e.eval(input)?),
            Self::IsNull(e) => UncertainValue::exact(SqlValue::truth(e.eval(input)?.val.is_null())),
            Self::Arith(op, a, b) => arith(*op, &a.eval(input)?, &b.eval(input)?),
            Self::Compare(op, convert, a, b) => {
                compare(*op, *convert, &a.eval(input)?, &b.eval(input)?)
            }
            Self::And(a, b) => junction(false, &a.eval(input)?, &b.eval(input)?),
            Self::Or(a, b) => junction(true, &a.eval(input)?, &b.eval(input)?),
            Self::Like(wild, a, b) => like(*wild, &a.eval(input)?, &b.eval(input)?),
            Self::Case { arms, otherwise } => case(arms, otherwise.as_deref(), input)?,
            Self::Call(function, args) => call(*function, args, input)?,
        })
    }

    /// Returns whether the expression is true of the input, and whether the errors of the inputs
    /// leave that open.
    pub fn holds(&self, input: impl ExprInput) -> Result<(bool, bool), EvalFault> {
        let known = self.eval(input)?;
        Ok((known.val.is_true() == Some(true), open(&known) > 0.0))
    }

    /// Returns whether the expression reads only values that are fixed for the life of the streams.
    pub fn is_static(&self) -> bool {
        let mut fixed = true;
        self.visit(&mut |e| match e {
            Self::Column(column) => fixed &= column.field.is_static(),
            Self::Computed(_) => fixed = false,
            _ => {}
        });
        fixed
    }

    /// Calls `look` with this expression and all expressions in it.
    pub fn visit<'a>(&'a self, look: &mut dyn FnMut(&'a Self)) {
        look(self);
        match self {
            Self::Literal(_) | Self::Column(_) | Self::Computed(_) => {}
            Self::Negate(e) | Self::Not(e) | Self::IsNull(e) => e.visit(look),
            Self::Arith(_, a, b)
            | Self::Compare(_, _, a, b)
            | Self::And(a, b)
            | Self::Or(a, b)
            | Self::Like(_, a, b) => {
                a.visit(look);
                b.visit(look);
            }
            Self::Case { arms, otherwise } => {
                for (condition, result) in arms {
                    condition.visit(look);
                    result.visit(look);
                }
                if let Some(e) = otherwise {
                    e.visit(look);
                }
            }
            Self::Call(_, args) => args.iter().for_each(|e| e.visit(look)),
        }
    }

    /// Whether the result may be a real; `leaf` decides this for columns and aggregates.
    pub fn may_be_real(&self, leaf: &dyn Fn(&Self) -> bool) -> bool {
        let real = |e: &Self| e.may_be_real(leaf);
        match self {
            Self::Literal(val) => matches!(val, SqlValue::Real(_)),
            Self::Column(_) | Self::Computed(_) => leaf(self),
            Self::Negate(e) => real(e),
            Self::Arith(_, a, b) => real(a) || real(b),
            Self::Not(_) | Self::IsNull(_) | Self::Compare(..) => false,
            Self::And(..) | Self::Or(..) | Self::Like(..) => false,
            Self::Case { arms, otherwise } => {
                arms.iter().any(|(_, e)| real(e)) || otherwise.as_deref().is_some_and(real)
            }
            Self::Call(ScalarFunction::Round, _) => true,
            Self::Call(ScalarFunction::Nullif, args) => args.first().is_some_and(real),
            Self::Call(_, args) => args.iter().any(real),
        }
    }
}

fn not(a: &UncertainValue) -> UncertainValue {
    match a.val.is_true() {
        None => UncertainValue::NULL,
        Some(truth) => UncertainValue {
            val: SqlValue::truth(!truth),
            err: open(a),
        },
    }
}

/// The error of a truth value: 0 if it is certain, infinite if it is open.
fn open(a: &UncertainValue) -> f64 {
    let certain = a.err == 0.0 || a.val.as_f64().is_some_and(|v| v.abs() > a.err);
    if certain { 0.0 } else { f64::INFINITY }
}

/// AND (`decisive` is false) and OR (`decisive` is true) in three-valued logic.
fn junction(decisive: bool, a: &UncertainValue, b: &UncertainValue) -> UncertainValue {
    let certain = |k: &UncertainValue| k.val.is_true() == Some(decisive) && open(k) == 0.0;
    let err = if certain(a) || certain(b) {
        0.0
    } else {
        open(a).max(open(b))
    };
    let val = match (a.val.is_true(), b.val.is_true()) {
        (Some(x), _) if x == decisive => SqlValue::truth(decisive),
        (_, Some(y)) if y == decisive => SqlValue::truth(decisive),
        (Some(_), Some(_)) => SqlValue::truth(!decisive),
        _ => SqlValue::Null,
    };
    UncertainValue { val, err }
}

fn like(wild: WildcardKind, text: &UncertainValue, pattern: &UncertainValue) -> UncertainValue {
    match (text.val.as_text(), pattern.val.as_text()) {
        (Some(t), Some(p)) => {
            let err = if text.err + pattern.err > 0.0 {
                f64::INFINITY
            } else {
                0.0
            };
            UncertainValue {
                val: SqlValue::truth(text::matches(wild, &p, &t)),
                err,
            }
        }
        _ => UncertainValue::NULL,
    }
}

fn case(
    arms: &[(Expr, Expr)],
    otherwise: Option<&Expr>,
    input: impl ExprInput,
) -> Result<UncertainValue, EvalFault> {
    let mut doubt = 0.0_f64;
    for (condition, result) in arms {
        let truth = condition.eval(input)?;
        doubt = doubt.max(open(&truth));
        if truth.val.is_true() == Some(true) {
            let known = result.eval(input)?;
            return Ok(UncertainValue {
                err: known.err.max(doubt),
                ..known
            });
        }
    }
    let known = otherwise.map_or(Ok(UncertainValue::NULL), |e| e.eval(input))?;
    Ok(UncertainValue {
        err: known.err.max(doubt),
        ..known
    })
}

fn call(
    function: ScalarFunction,
    args: &[Expr],
    input: impl ExprInput,
) -> Result<UncertainValue, EvalFault> {
    match function {
        ScalarFunction::Abs => abs(&args[0].eval(input)?),
        ScalarFunction::Round => {
            let digits = args
                .get(1)
                .map_or(Ok(UncertainValue::exact(SqlValue::Int(0))), |e| {
                    e.eval(input)
                })?;
            Ok(round(&args[0].eval(input)?, &digits))
        }
        ScalarFunction::Min => extreme(args, input, CompareOp::Lt),
        ScalarFunction::Max => extreme(args, input, CompareOp::Gt),
        ScalarFunction::Coalesce => {
            for arg in args {
                let known = arg.eval(input)?;
                if !known.val.is_null() {
                    return Ok(known);
                }
            }
            Ok(UncertainValue::NULL)
        }
        ScalarFunction::Nullif => {
            let (a, b) = (args[0].eval(input)?, args[1].eval(input)?);
            let same = compare(CompareOp::Eq, ComparisonConversion::None, &a, &b);
            let val = if same.val.is_true() == Some(true) {
                SqlValue::Null
            } else {
                a.val
            };
            Ok(UncertainValue {
                val,
                err: a.err.max(same.err),
            })
        }
    }
}

fn abs(a: &UncertainValue) -> Result<UncertainValue, EvalFault> {
    let val = match &a.val {
        SqlValue::Null => SqlValue::Null,
        SqlValue::Int(v) => SqlValue::Int(v.checked_abs().ok_or(OVERFLOW)?),
        other => SqlValue::real(other.as_f64().unwrap_or(0.0).abs()),
    };
    Ok(UncertainValue { val, err: a.err })
}

/// Rounds half away from zero. With digits, the decimal expansion of the binary value is rounded,
/// so a tie that binary cannot represent (2.675) may end one digit away from SQLite's result.
fn round(a: &UncertainValue, digits: &UncertainValue) -> UncertainValue {
    const DIGITS_MAX: i64 = 30;
    /// From this value on every real is whole.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let (Some(v), SqlValue::Int(digits)) = (a.val.as_f64(), digits.val.number()) else {
        return UncertainValue::NULL;
    };
    let digits = digits.clamp(0, DIGITS_MAX);
    let rounded = if v.abs() > WHOLE {
        v
    } else if digits == 0 {
        (v + if v < 0.0 { -0.5 } else { 0.5 }).trunc()
    } else {
        format!("{v:.*}", digits as usize).parse().unwrap_or(v)
    };
    let err = if a.err > 0.0 { a.err + 1.0 } else { 0.0 };
    UncertainValue {
        val: SqlValue::real(rounded),
        err,
    }
}

/// Computes scalar min and max: NULL if any argument is NULL. Of equal values, which may be an
/// integer and a real, min takes the last and max the first, as SQLite does. The extreme moves by
/// no more than any argument.
fn extreme(
    args: &[Expr],
    input: impl ExprInput,
    better: CompareOp,
) -> Result<UncertainValue, EvalFault> {
    let mut best = args[0].eval(input)?;
    let mut err = best.err;
    for arg in &args[1..] {
        let known = arg.eval(input)?;
        if best.val.is_null() || known.val.is_null() {
            return Ok(UncertainValue::NULL);
        }
        err = err.max(known.err);
        let ordering = known.val.order(&best.val);
        if (better == CompareOp::Lt && ordering.is_le())
            || (better == CompareOp::Gt && ordering.is_gt())
        {
            best = known;
        }
    }
    Ok(UncertainValue { err, ..best })
}
