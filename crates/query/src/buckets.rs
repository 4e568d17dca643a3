//! Buckets of samples, and what two lists of buckets of one series are together.
//!
//! It stands alone because it is arithmetic over columns: the archive has its own for what it holds,
//! this is for what only the rings hold, and for the seam.

use std::cmp::Ordering;

use barograph_model::{Buckets, Columns, Value, ValueType, Values};

/// The samples by buckets of `step_ns`, in order of time; times are rounded down to the step.
pub(crate) fn of(columns: &Columns, step_ns: i64) -> Buckets {
    let start = |row: usize| columns.ts[row].div_euclid(step_ns).saturating_mul(step_ns);
    let mut rows: Vec<usize> = (0..columns.len()).collect();
    rows.sort_by_key(|&row| start(row)); // Stable: within a bucket the last is the newest.
    let mut buckets = Buckets::new(columns.values.value_type());
    for members in rows.chunk_by(|&a, &b| start(a) == start(b)) {
        let values = || members.iter().filter_map(|&row| columns.values.get(row));
        let known = || values().filter(|value| !is_nan(value));
        let (mut sum, mut numbers) = (0.0, 0u64);
        for number in known().filter_map(|value| value.as_f64()) {
            sum += number;
            numbers += 1;
        }
        let nan = Value::Float(f64::NAN);
        let Some(last) = values().last() else {
            continue;
        };
        buckets.ts.push(start(members[0]));
        buckets.count.push(members.len() as u64);
        let least = known().min_by(order).unwrap_or_else(|| nan.clone());
        buckets.min.push(&least);
        buckets.max.push(&known().max_by(order).unwrap_or(nan));
        let mean = if numbers == 0 {
            f64::NAN
        } else {
            sum / numbers as f64
        };
        buckets.mean.push(mean);
        buckets.last.push(&last);
    }
    buckets
}

/// Both, in order of time; where both have a bucket, `b` is the later.
pub(crate) fn merge(a: &Buckets, b: &Buckets) -> Buckets {
    if a.is_empty() || b.is_empty() {
        return if a.is_empty() { b.clone() } else { a.clone() };
    }
    let mut both = Buckets::new(joint_type(a, b));
    let (mut i, mut j) = (0, 0);
    while i < a.len() || j < b.len() {
        let order = match (a.ts.get(i), b.ts.get(j)) {
            (Some(a), Some(b)) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        match order {
            Ordering::Less => push(&mut both, a, i),
            Ordering::Greater => push(&mut both, b, j),
            Ordering::Equal => {
                push(&mut both, a, i);
                add(&mut both, b, j);
            }
        }
        i += usize::from(order != Ordering::Greater);
        j += usize::from(order != Ordering::Less);
    }
    both
}

/// Tiers know floats only: with raw integers they make floats.
fn joint_type(a: &Buckets, b: &Buckets) -> ValueType {
    let types = [&a.min, &a.last, &b.min, &b.last].map(Values::value_type);
    let first = types[0];
    if types.iter().all(|one| *one == first) {
        first
    } else if types.contains(&ValueType::Text) {
        ValueType::Text
    } else {
        ValueType::Float
    }
}

fn put(column: &mut Values, value: Option<Value>) {
    let Some(value) = value else { return };
    if !column.push(&value) {
        let as_column = match column {
            Values::Text(_) => Value::text(&value.to_string()),
            _ => Value::Float(value.as_f64().unwrap_or(f64::NAN)),
        };
        column.push(&as_column);
    }
}

fn push(to: &mut Buckets, from: &Buckets, row: usize) {
    to.ts.push(from.ts[row]);
    to.count.push(from.count[row]);
    put(&mut to.min, from.min.get(row));
    put(&mut to.max, from.max.get(row));
    to.mean.push(from.mean[row]);
    put(&mut to.last, from.last.get(row));
}

/// Adds a later bucket to the last of `to`.
fn add(to: &mut Buckets, from: &Buckets, row: usize) {
    let mut one = Buckets::new(to.last.value_type());
    push(&mut one, from, row);
    let at = to.len() - 1;
    let (count, more) = (to.count[at], one.count[0]);
    let (mean, other) = (to.mean[at], one.mean[0]);
    to.count[at] = count + more;
    to.mean[at] = match (mean.is_nan(), other.is_nan()) {
        (true, _) => other,
        (_, true) => mean,
        _ => (mean * count as f64 + other * more as f64) / (count + more) as f64,
    };
    extend(&mut to.min, at, one.min.get(0), Ordering::Less);
    extend(&mut to.max, at, one.max.get(0), Ordering::Greater);
    if let Some(last) = one.last.get(0) {
        replace(&mut to.last, at, last);
    }
}

/// Replaces the value at `at` when the new one lies beyond it; what is not known does not count.
fn extend(column: &mut Values, at: usize, new: Option<Value>, beyond: Ordering) {
    let (Some(old), Some(new)) = (column.get(at), new) else {
        return;
    };
    if !is_nan(&new) && (is_nan(&old) || order(&new, &old) == beyond) {
        replace(column, at, new);
    }
}

fn replace(column: &mut Values, at: usize, value: Value) {
    match (column, value) {
        (Values::Int(column), Value::Int(value)) => column[at] = value,
        (Values::Float(column), Value::Float(value)) => column[at] = value,
        (Values::Bool(column), Value::Bool(value)) => column[at] = value,
        (Values::Text(column), Value::Text(value)) => column[at] = value,
        _ => {} // `push` has made them one type.
    }
}

fn is_nan(value: &Value) -> bool {
    matches!(value, Value::Float(v) if v.is_nan())
}

pub(crate) fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => a.total_cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        // A stream has one type.
        _ => Ordering::Equal,
    }
}
