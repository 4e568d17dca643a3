//! Functions of a range, computed from the looks within a window.

use barograph_model::seconds;

use super::PromFault;
use super::functions::{add, quantile};

/// The looks of one series within a range.
pub(super) struct RangeWindow<'a> {
    /// Times of the looks, ascending, ns since the epoch.
    pub ts: &'a [i64],
    pub values: &'a [f64],
    /// End of the range, ns since the epoch.
    pub end: i64,
    /// The instant of the answer, ns since the epoch: the end, except with `offset` and `@`.
    pub at: i64,
    /// Length of the range, in ns.
    pub range_ns: i64,
    /// The scalar argument, or NaN.
    pub argument: f64,
}

/// A function of a window; it may have no value.
pub(super) type RangeFunction = fn(&RangeWindow<'_>) -> Option<f64>;

/// The range function with this name.
pub(super) fn function(name: &str) -> Result<RangeFunction, PromFault> {
    Ok(match name {
        "rate" => |w| Some(extrapolated(w, true)? / seconds(w.range_ns)),
        "increase" => |w| extrapolated(w, true),
        "delta" => |w| extrapolated(w, false),
        "irate" => |w| instantaneous(w, true),
        "idelta" => |w| instantaneous(w, false),
        "deriv" => |w| Some(regression(w, w.ts[0])?.0),
        "predict_linear" => |w| {
            let (slope, intercept) = regression(w, w.at)?;
            Some(slope * w.argument + intercept)
        },
        "changes" => |w| Some(pairs(w, |a, b| a != b && !(a.is_nan() && b.is_nan()))),
        "resets" => |w| Some(pairs(w, |a, b| b < a)),
        "avg_over_time" => |w| Some(mean(w.values)),
        "sum_over_time" => |w| Some(sum(w.values)),
        "min_over_time" => |w| w.values.iter().copied().reduce(|a, b| best(a, b, b < a)),
        "max_over_time" => |w| w.values.iter().copied().reduce(|a, b| best(a, b, b > a)),
        "count_over_time" => |w| Some(w.values.len() as f64),
        "last_over_time" => |w| w.values.last().copied(),
        "first_over_time" => |w| w.values.first().copied(),
        "present_over_time" => |_| Some(1.0),
        "stdvar_over_time" => |w| Some(variance(w.values)),
        "stddev_over_time" => |w| Some(variance(w.values).sqrt()),
        "quantile_over_time" => |w| Some(quantile(w.argument, &mut w.values.to_vec())),
        other => {
            return Err(PromFault::bad(format!(
                "the function {other}() is not supported"
            )));
        }
    })
}

/// The growth within the whole range, extrapolated as far as the looks near its edges allow. For a
/// counter, resets are added, and it is not extrapolated below zero before its first look.
fn extrapolated(w: &RangeWindow<'_>, is_counter: bool) -> Option<f64> {
    let [first, .., last] = w.values else {
        return None;
    };
    let mut growth = last - first;
    if is_counter {
        let resets = w.values.windows(2).filter(|v| v[1] < v[0]);
        growth += resets.map(|v| v[0]).sum::<f64>();
    }
    let (first_ts, last_ts) = (w.ts[0], w.ts[w.ts.len() - 1]);
    let sampled = seconds(last_ts - first_ts);
    if sampled <= 0.0 {
        return None;
    }
    let between = sampled / (w.ts.len() - 1) as f64;
    let threshold = between * 1.1;
    let mut before = seconds(first_ts - w.end.saturating_sub(w.range_ns));
    let mut after = seconds(w.end - last_ts);
    if before >= threshold {
        before = between / 2.0;
    }
    if is_counter && growth > 0.0 && *first >= 0.0 {
        before = before.min(sampled * (first / growth));
    }
    if after >= threshold {
        after = between / 2.0;
    }
    Some(growth * ((sampled + before + after) / sampled))
}

/// The growth or rate between the last two looks.
fn instantaneous(w: &RangeWindow<'_>, is_rate: bool) -> Option<f64> {
    let [.., before, last] = *w.values else {
        return None;
    };
    if !is_rate {
        return Some(last - before);
    }
    let grown = if last < before { last } else { last - before };
    let apart = w.ts[w.ts.len() - 1] - w.ts[w.ts.len() - 2];
    (apart > 0).then(|| grown / seconds(apart))
}

/// Slope per second and value at `origin` of the best-fitting straight line.
fn regression(w: &RangeWindow<'_>, origin: i64) -> Option<(f64, f64)> {
    let n = w.values.len() as f64;
    let first = *w.values.first()?;
    if w.values.len() < 2 {
        return None;
    }
    if w.values.iter().all(|v| *v == first) {
        let value = if first.is_infinite() { f64::NAN } else { first };
        return Some((if first.is_infinite() { f64::NAN } else { 0.0 }, value));
    }
    let [mut sum_x, mut sum_y, mut sum_xy, mut sum_xx] = [(0.0, 0.0); 4];
    for (ts, y) in w.ts.iter().zip(w.values) {
        let x = seconds(ts - origin);
        add(&mut sum_x, x);
        add(&mut sum_y, *y);
        add(&mut sum_xy, x * y);
        add(&mut sum_xx, x * x);
    }
    let [x, y, xy, xx] = [sum_x, sum_y, sum_xy, sum_xx].map(|(sum, rest)| sum + rest);
    let slope = (xy - x * y / n) / (xx - x * x / n);
    Some((slope, y / n - slope * x / n))
}

fn pairs(w: &RangeWindow<'_>, counts: fn(f64, f64) -> bool) -> f64 {
    let pairs = w.values.windows(2).filter(|v| counts(v[0], v[1]));
    pairs.count() as f64
}

/// The better of two values; NaN only if both are NaN.
fn best(a: f64, b: f64, b_is_better: bool) -> f64 {
    if b_is_better || a.is_nan() { b } else { a }
}

/// The sum, with its rounding error compensated.
pub(super) fn sum(values: &[f64]) -> f64 {
    let mut total = (0.0, 0.0);
    for value in values {
        add(&mut total, *value);
    }
    if f64::is_infinite(total.0) {
        total.0
    } else {
        total.0 + total.1
    }
}

/// The mean, even if the sum is beyond the range of a float.
pub(super) fn mean(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let total = sum(values);
    if total.is_infinite() && values.iter().all(|v| v.is_finite()) {
        return values.iter().map(|v| v / n).sum();
    }
    total / n
}

/// The population's variance, by Welford's method.
pub(super) fn variance(values: &[f64]) -> f64 {
    let (mut mean, mut squares) = (0.0, 0.0);
    for (n, value) in values.iter().enumerate() {
        let off = value - mean;
        mean += off / (n + 1) as f64;
        squares += off * (value - mean);
    }
    squares / values.len() as f64
}
