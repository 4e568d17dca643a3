//! Functions of values and of labels; functions of ranges are in `range.rs`.

use std::cmp::Ordering;
use std::f64::consts::PI;

use promql_parser::label::{MatchOp, Matcher};
use promql_parser::parser::token::T_EQL_REGEX;

use super::calendar::Utc;
use super::live::Vector;
use super::series::Merged;
use super::{LabelSet, PromFault, VectorSeries};

/// Longest label that a function makes, in bytes.
const LABEL_BYTES_MAX: usize = 4 << 10;

/// A function of one value and its scalar arguments.
pub(super) type Elementwise = fn(f64, &[f64]) -> f64;

/// The function of a value with this name.
pub(super) fn elementwise(name: &str) -> Option<Elementwise> {
    Some(match name {
        "abs" => |v, _| v.abs(),
        "ceil" => |v, _| v.ceil(),
        "floor" => |v, _| v.floor(),
        "round" => |v, to| round(v, to.first().copied().unwrap_or(1.0)),
        "clamp" => |v, to| clamp(v, to[0], to[1]),
        "clamp_min" => |v, to| clamp(v, to[0], f64::INFINITY),
        "clamp_max" => |v, to| clamp(v, f64::NEG_INFINITY, to[0]),
        "sqrt" => |v, _| v.sqrt(),
        "exp" => |v, _| v.exp(),
        "ln" => |v, _| v.ln(),
        "log2" => |v, _| v.log2(),
        "log10" => |v, _| v.log10(),
        "sgn" => |v, _| {
            if v == 0.0 || v.is_nan() {
                v
            } else {
                v.signum()
            }
        },
        "deg" => |v, _| v * 180.0 / PI,
        "rad" => |v, _| v * PI / 180.0,
        "sin" => |v, _| v.sin(),
        "cos" => |v, _| v.cos(),
        "tan" => |v, _| v.tan(),
        "asin" => |v, _| v.asin(),
        "acos" => |v, _| v.acos(),
        "atan" => |v, _| v.atan(),
        "sinh" => |v, _| v.sinh(),
        "cosh" => |v, _| v.cosh(),
        "tanh" => |v, _| v.tanh(),
        "asinh" => |v, _| v.asinh(),
        "acosh" => |v, _| v.acosh(),
        "atanh" => |v, _| v.atanh(),
        _ => return of_time(name),
    })
}

/// The function of a time with this name; without an argument it is applied to the instant itself.
pub(super) fn of_time(name: &str) -> Option<Elementwise> {
    Some(match name {
        "minute" => |v, _| Utc::of(v).minute as f64,
        "hour" => |v, _| Utc::of(v).hour as f64,
        "day_of_week" => |v, _| Utc::of(v).weekday as f64,
        "day_of_month" => |v, _| Utc::of(v).day as f64,
        "day_of_year" => |v, _| Utc::of(v).day_of_year as f64,
        "days_in_month" => |v, _| Utc::of(v).days_in_month() as f64,
        "month" => |v, _| Utc::of(v).month as f64,
        "year" => |v, _| Utc::of(v).year as f64,
        _ => return None,
    })
}

/// Rounds to the nearest multiple of `to`; halves go up. It uses the inverse, so that 0.1 leaves no
/// rounding errors.
fn round(v: f64, to: f64) -> f64 {
    let inverse = 1.0 / to;
    (v * inverse + 0.5).floor() / inverse
}

/// Limits a value. NaN bounds give NaN. With an upper bound below the lower one the result has no
/// meaning; `eval.rs` drops such points.
fn clamp(v: f64, min: f64, max: f64) -> f64 {
    if v.is_nan() || min.is_nan() || max.is_nan() {
        return f64::NAN;
    }
    v.min(max).max(min)
}

/// Adds a value to a sum and to its rounding error (Neumaier's method).
pub(super) fn add((sum, lost): &mut (f64, f64), value: f64) {
    let total = *sum + value;
    if total.is_finite() {
        *lost += match sum.abs() >= value.abs() {
            true => (*sum - total) + value,
            false => (value - total) + *sum,
        };
    }
    *sum = total;
}

/// The quantile `q` of the values, interpolated linearly between neighbours. Sorts the values.
pub(super) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if !(0.0..=1.0).contains(&q) {
        return f64::INFINITY.copysign(q - 0.5);
    }
    values.sort_by(ascending);
    let rank = q * (values.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = (below + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[below] * (1.0 - weight) + values[above] * weight
}

/// Orders floats; NaN comes first, whatever its sign.
pub(super) fn ascending(a: &f64, b: &f64) -> Ordering {
    let order = a.partial_cmp(b);
    order.unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}

/// `label_replace(v, target, replacement, source, pattern)`.
pub(super) fn label_replace<'a>(
    vector: Vector<'a>,
    [to, with, from, pattern]: [&str; 4],
) -> Outcome<'a> {
    check_label(to, "label_replace")?;
    // The parser's way to an anchored expression, with Go's interpretation of braces.
    let matcher = Matcher::new_matcher(T_EQL_REGEX, String::new(), pattern.into());
    let Ok(Matcher {
        op: MatchOp::Re(expression),
        ..
    }) = matcher
    else {
        return Err(PromFault::bad(format!(
            "invalid regular expression in label_replace(): {pattern}"
        )));
    };
    labelled(vector, to, |labels| {
        let captures = expression.captures(labels.get(from).unwrap_or_default())?;
        let mut value = String::new();
        captures.expand(with, &mut value);
        Some(value)
    })
}

/// `label_join(v, target, separator, source…)`.
pub(super) fn label_join<'a>(
    vector: Vector<'a>,
    to: &str,
    separator: &str,
    from: &[&str],
) -> Outcome<'a> {
    check_label(to, "label_join")?;
    labelled(vector, to, |labels| {
        let values: Vec<&str> = from.iter().map(|f| labels.get(f).unwrap_or("")).collect();
        Some(values.join(separator))
    })
}

type Outcome<'a> = Result<Vector<'a>, PromFault>;

/// Sets a label of each series to the value computed from its labels, if there is one.
fn labelled<'a>(
    vector: Vector<'a>,
    to: &str,
    value: impl Fn(&LabelSet) -> Option<String>,
) -> Outcome<'a> {
    let Vector { series, mut claim } = vector;
    let mut merged = Merged::default();
    for mut series in series {
        if let Some(value) = value(&series.labels) {
            // Nested functions could make labels of any length, each from the last one.
            if value.len() > LABEL_BYTES_MAX {
                return Err(PromFault::execution(format!(
                    "the label {to} would have {} bytes, at most {LABEL_BYTES_MAX}: join fewer",
                    value.len()
                )));
            }
            let before = series.weight();
            series.labels.set(to, &value);
            claim.grow(series.weight().saturating_sub(before))?;
        }
        merged.add(series)?;
    }
    Ok(Vector::of(merged.done(), claim))
}

fn check_label(name: &str, function: &str) -> Result<(), PromFault> {
    let begins = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if begins && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Ok(());
    }
    Err(PromFault::bad(format!(
        "invalid destination label name in {function}(): {name}"
    )))
}

/// Sorts the series by their value at the only instant; NaN is last in both orders.
pub(super) fn sort(vector: &mut [VectorSeries], descending: bool) {
    let value = |s: &VectorSeries| s.points.first().copied().flatten().unwrap_or(f64::NAN);
    vector.sort_by(|a, b| {
        let (a, b) = (value(a), value(b));
        match (a.is_nan(), b.is_nan()) {
            (false, false) if descending => ascending(&b, &a),
            (false, false) => ascending(&a, &b),
            (a, b) => a.cmp(&b),
        }
    });
}

/// The labels of an absent series: those that were asked for by equality, if asked for once.
pub(super) fn labels_of_absent<'a>(asked: impl Iterator<Item = (&'a str, &'a str)>) -> LabelSet {
    let asked: Vec<_> = asked.filter(|(name, _)| *name != super::NAME).collect();
    let once = |name: &str| asked.iter().filter(|(n, _)| *n == name).count() == 1;
    asked.iter().copied().filter(|(n, _)| once(n)).collect()
}
