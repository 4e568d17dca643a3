//! Compiled expressions: they are evaluated over one row of newest samples and one group's
//! aggregates.
//!
//! They are separate from the compiler because this part runs at every change of an input.

use std::sync::Arc;

use barograph_model::Quality;

use crate::slot::Slot;
use crate::text::{self, Wild};
use crate::value::{Arith, Cmp, Convert, Known, Val, arith, compare};

/// A column of a metric's table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Value,
    Ts,
    Error,
    Quality,
    /// The node of this graph; it is constant.
    Node(Arc<str>),
    Label(Arc<str>),
}

impl Field {
    /// Whether it is fixed for the life of a stream.
    pub fn is_static(&self) -> bool {
        matches!(self, Self::Node(_) | Self::Label(_))
    }
}

/// A column of one of the tables in FROM.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    pub from: usize,
    pub field: Field,
}

/// A scalar function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Abs,
    Round,
    Min,
    Max,
    Coalesce,
    Nullif,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Literal(Val),
    Column(Column),
    /// The aggregate of the SELECT with this index.
    Aggregate(usize),
    Negate(Box<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    Arith(Arith, Box<Expr>, Box<Expr>),
    Compare(Cmp, Convert, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Like(Wild, Box<Expr>, Box<Expr>),
    Case {
        arms: Vec<(Expr, Expr)>,
        otherwise: Option<Box<Expr>>,
    },
    Call(Function, Vec<Expr>),
}

/// The values that an expression may read.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub slots: &'a [Slot],
    /// One slot per table of FROM; empty for a group without rows.
    pub inputs: &'a [u32],
    pub aggregates: &'a [Known],
}

/// Why a value could not be computed, in the words of SQLite.
pub(crate) type Fault = &'static str;

pub(crate) const OVERFLOW: Fault = "integer overflow";

impl Expr {
    pub fn eval(&self, row: Row<'_>) -> Result<Known, Fault> {
        Ok(match self {
            Self::Literal(val) => Known::exact(val.clone()),
            Self::Column(column) => column.eval(row),
            Self::Aggregate(n) => row.aggregates.get(*n).cloned().unwrap_or(Known::NULL),
            Self::Negate(e) => arith(Arith::Sub, &Known::exact(Val::Int(0)), &e.eval(row)?),
            Self::Not(e) => not(&e.eval(row)?),
            Self::IsNull(e) => Known::exact(Val::truth(e.eval(row)?.val.is_null())),
            Self::Arith(op, a, b) => arith(*op, &a.eval(row)?, &b.eval(row)?),
            Self::Compare(op, convert, a, b) => {
                compare(*op, *convert, &a.eval(row)?, &b.eval(row)?)
            }
            Self::And(a, b) => junction(false, &a.eval(row)?, &b.eval(row)?),
            Self::Or(a, b) => junction(true, &a.eval(row)?, &b.eval(row)?),
            Self::Like(wild, a, b) => like(*wild, &a.eval(row)?, &b.eval(row)?),
            Self::Case { arms, otherwise } => case(arms, otherwise.as_deref(), row)?,
            Self::Call(function, args) => call(*function, args, row)?,
        })
    }

    /// Whether the expression is true for the row, and whether the inputs' errors leave this open.
    pub fn holds(&self, row: Row<'_>) -> Result<(bool, bool), Fault> {
        let known = self.eval(row)?;
        Ok((known.val.is_true() == Some(true), open(&known) > 0.0))
    }

    /// Whether it reads only values that are fixed for the life of the streams.
    pub fn is_static(&self) -> bool {
        let mut fixed = true;
        self.visit(&mut |e| match e {
            Self::Column(column) => fixed &= column.field.is_static(),
            Self::Aggregate(_) => fixed = false,
            _ => {}
        });
        fixed
    }

    /// Calls `look` with this expression and all expressions in it.
    pub fn visit<'a>(&'a self, look: &mut dyn FnMut(&'a Self)) {
        look(self);
        match self {
            Self::Literal(_) | Self::Column(_) | Self::Aggregate(_) => {}
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
            Self::Literal(val) => matches!(val, Val::Real(_)),
            Self::Column(_) | Self::Aggregate(_) => leaf(self),
            Self::Negate(e) => real(e),
            Self::Arith(_, a, b) => real(a) || real(b),
            Self::Not(_) | Self::IsNull(_) | Self::Compare(..) => false,
            Self::And(..) | Self::Or(..) | Self::Like(..) => false,
            Self::Case { arms, otherwise } => {
                arms.iter().any(|(_, e)| real(e)) || otherwise.as_deref().is_some_and(real)
            }
            Self::Call(Function::Round, _) => true,
            Self::Call(Function::Nullif, args) => args.first().is_some_and(real),
            Self::Call(_, args) => args.iter().any(real),
        }
    }
}

impl Column {
    fn eval(&self, row: Row<'_>) -> Known {
        let Some(slot) = row.inputs.get(self.from).map(|&i| &row.slots[i as usize]) else {
            return Known::NULL;
        };
        let dynamic = |read: fn(&crate::slot::Newest) -> Known| {
            slot.newest.as_ref().map_or(Known::NULL, read)
        };
        match &self.field {
            Field::Node(node) => Known::exact(Val::Text(node.clone())),
            Field::Label(name) => Known::exact(slot.label(name)),
            Field::Value => dynamic(|s| Known {
                val: s.val.clone(),
                err: s.error,
            }),
            Field::Ts => dynamic(|s| Known::exact(Val::Int(s.ts))),
            Field::Error => dynamic(|s| Known::exact(Val::real(s.error))),
            Field::Quality => dynamic(|s| Known::exact(quality(s.quality))),
        }
    }
}

fn quality(quality: Quality) -> Val {
    Val::Text(quality.as_str().into())
}

fn not(a: &Known) -> Known {
    match a.val.is_true() {
        None => Known::NULL,
        Some(truth) => Known {
            val: Val::truth(!truth),
            err: open(a),
        },
    }
}

/// The error of a truth value: 0 if it is certain, infinite if it is open.
fn open(a: &Known) -> f64 {
    let certain = a.err == 0.0 || a.val.as_f64().is_some_and(|v| v.abs() > a.err);
    if certain { 0.0 } else { f64::INFINITY }
}

/// AND (`decisive` is false) and OR (`decisive` is true) in three-valued logic.
fn junction(decisive: bool, a: &Known, b: &Known) -> Known {
    let certain = |k: &Known| k.val.is_true() == Some(decisive) && open(k) == 0.0;
    let err = if certain(a) || certain(b) {
        0.0
    } else {
        open(a).max(open(b))
    };
    let val = match (a.val.is_true(), b.val.is_true()) {
        (Some(x), _) if x == decisive => Val::truth(decisive),
        (_, Some(y)) if y == decisive => Val::truth(decisive),
        (Some(_), Some(_)) => Val::truth(!decisive),
        _ => Val::Null,
    };
    Known { val, err }
}

fn like(wild: Wild, text: &Known, pattern: &Known) -> Known {
    match (text.val.as_text(), pattern.val.as_text()) {
        (Some(t), Some(p)) => {
            let err = if text.err + pattern.err > 0.0 {
                f64::INFINITY
            } else {
                0.0
            };
            Known {
                val: Val::truth(text::matches(wild, &p, &t)),
                err,
            }
        }
        _ => Known::NULL,
    }
}

fn case(arms: &[(Expr, Expr)], otherwise: Option<&Expr>, row: Row<'_>) -> Result<Known, Fault> {
    let mut doubt = 0.0_f64;
    for (condition, result) in arms {
        let truth = condition.eval(row)?;
        doubt = doubt.max(open(&truth));
        if truth.val.is_true() == Some(true) {
            let known = result.eval(row)?;
            return Ok(Known {
                err: known.err.max(doubt),
                ..known
            });
        }
    }
    let known = otherwise.map_or(Ok(Known::NULL), |e| e.eval(row))?;
    Ok(Known {
        err: known.err.max(doubt),
        ..known
    })
}

fn call(function: Function, args: &[Expr], row: Row<'_>) -> Result<Known, Fault> {
    match function {
        Function::Abs => abs(&args[0].eval(row)?),
        Function::Round => {
            let digits = args
                .get(1)
                .map_or(Ok(Known::exact(Val::Int(0))), |e| e.eval(row))?;
            Ok(round(&args[0].eval(row)?, &digits))
        }
        Function::Min => extreme(args, row, Cmp::Lt),
        Function::Max => extreme(args, row, Cmp::Gt),
        Function::Coalesce => {
            for arg in args {
                let known = arg.eval(row)?;
                if !known.val.is_null() {
                    return Ok(known);
                }
            }
            Ok(Known::NULL)
        }
        Function::Nullif => {
            let (a, b) = (args[0].eval(row)?, args[1].eval(row)?);
            let same = compare(Cmp::Eq, Convert::None, &a, &b);
            let val = if same.val.is_true() == Some(true) {
                Val::Null
            } else {
                a.val
            };
            Ok(Known {
                val,
                err: a.err.max(same.err),
            })
        }
    }
}

fn abs(a: &Known) -> Result<Known, Fault> {
    let val = match &a.val {
        Val::Null => Val::Null,
        Val::Int(v) => Val::Int(v.checked_abs().ok_or(OVERFLOW)?),
        other => Val::real(other.as_f64().unwrap_or(0.0).abs()),
    };
    Ok(Known { val, err: a.err })
}

/// Rounds half away from zero. With digits, the decimal expansion of the binary value is rounded,
/// so a tie that binary cannot represent (2.675) may end one digit away from SQLite's result.
fn round(a: &Known, digits: &Known) -> Known {
    const DIGITS_MAX: i64 = 30;
    /// From this value on every real is whole.
    const WHOLE: f64 = 4_503_599_627_370_496.0;
    let (Some(v), Val::Int(digits)) = (a.val.as_f64(), digits.val.number()) else {
        return Known::NULL;
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
    Known {
        val: Val::real(rounded),
        err,
    }
}

/// Scalar min and max: NULL if any argument is NULL. Of equal values, which may be an integer and a
/// real, min takes the last and max the first, as SQLite does. The extreme moves by no more than
/// any argument.
fn extreme(args: &[Expr], row: Row<'_>, better: Cmp) -> Result<Known, Fault> {
    let mut best = args[0].eval(row)?;
    let mut err = best.err;
    for arg in &args[1..] {
        let known = arg.eval(row)?;
        if best.val.is_null() || known.val.is_null() {
            return Ok(Known::NULL);
        }
        err = err.max(known.err);
        let ordering = known.val.order(&best.val);
        if (better == Cmp::Lt && ordering.is_le()) || (better == Cmp::Gt && ordering.is_gt()) {
            best = known;
        }
    }
    Ok(Known { err, ..best })
}
