//! The samples of one bucket, by type: the innermost loops.

use std::fmt::Debug;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub(super) struct BucketCell<T: Aggregable> {
    pub start: i64,
    pub count: u64,
    /// Number of samples that are not NaN.
    pub known: u64,
    pub sum: T::Sum,
    /// Time for which values that are not NaN held, in ns.
    pub held_ns: u64,
    /// Sum of these values, each times the ns that it held.
    pub area: f64,
    pub min: T,
    pub max: T,
    pub last: T,
}

/// A type of values that can be aggregated.
pub(super) trait Aggregable: Clone + std::fmt::Debug {
    /// The sum of any number of values.
    type Sum: Copy + std::fmt::Debug;
    const ZERO: Self::Sum;
    /// Returns the bucket of at least one sample, in order. Each value held until the next one; the
    /// time of the last one is added later.
    fn cell(start: i64, ts: &[i64], values: &[Self]) -> BucketCell<Self>;
    /// Returns the value's part in a mean over time: itself, 0 if it is not a number, `None` for
    /// NaN.
    fn known(&self) -> Option<f64>;
    /// Limits a mean to the range of its values, so that a mean of equal values is that value.
    fn between(mean: f64, min: &Self, max: &Self) -> f64;
    fn add(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn lesser(a: Self, b: Self) -> Self;
    fn greater(a: Self, b: Self) -> Self;
    fn mean(sum: Self::Sum, known: u64) -> f64;
    /// Returns the sum that has this mean.
    fn sum(mean: f64, known: u64) -> Self::Sum;
    /// Returns the bytes that the value owns outside of itself.
    fn bytes(&self) -> usize {
        0
    }
}

impl<T: Aggregable> BucketCell<T> {
    /// Returns a bucket in which an earlier value held for `ns` ns; `None` for NaN.
    pub(super) fn held(start: i64, ns: u64, value: &T) -> Option<Self> {
        let known = value.known()?;
        Some(Self {
            start,
            count: 0,
            known: 0,
            sum: T::ZERO,
            held_ns: ns,
            area: known * ns as f64,
            min: value.clone(),
            max: value.clone(),
            last: value.clone(),
        })
    }

    /// Returns the mean of the samples.
    pub(super) fn sample_mean(&self) -> f64 {
        T::mean(self.sum, self.known)
    }

    /// Returns the mean over the time in which values held, or that of the samples if this time is
    /// 0.
    pub(super) fn mean(&self) -> f64 {
        if self.held_ns == 0 {
            return self.sample_mean();
        }
        T::between(self.area / self.held_ns as f64, &self.min, &self.max)
    }

    /// Merges a bucket of later samples.
    pub(super) fn merge(&mut self, later: Self) {
        // Counts of tiers are not trusted.
        self.count = self.count.saturating_add(later.count);
        self.known = self.known.saturating_add(later.known);
        self.sum = T::add(self.sum, later.sum);
        self.held_ns = self.held_ns.saturating_add(later.held_ns);
        self.area += later.area;
        self.min = T::lesser(self.min.clone(), later.min);
        self.max = T::greater(self.max.clone(), later.max);
        self.last = later.last;
    }
}

/// Returns for how long all but the last of these values held, in ns, and the sum of each times
/// that. `known` returns a value's part and a mask of its time, which is 0 for NaN.
fn held<T>(ts: &[i64], values: &[T], known: impl Fn(&T) -> (f64, u64)) -> (u64, f64) {
    let (mut held_ns, mut area) = (0_u64, 0.0);
    for (pair, value) in ts.windows(2).zip(values) {
        // The time is 0 where the clock was set back.
        let ns = pair[1].saturating_sub(pair[0]).max(0) as u64;
        let (value, mask) = known(value);
        held_ns = held_ns.saturating_add(ns & mask);
        // Infinity times 0 would be NaN: a value that held for no time adds nothing.
        area += if ns > 0 { value * ns as f64 } else { 0.0 };
    }
    (held_ns, area)
}

impl Aggregable for f64 {
    type Sum = f64;
    const ZERO: f64 = 0.0;

    fn cell(start: i64, ts: &[i64], values: &[Self]) -> BucketCell<Self> {
        let (held_ns, area) = held(ts, values, |v| if v.is_nan() { (0.0, 0) } else { (*v, !0) });
        let (mut known, mut sum) = (0, Self::ZERO);
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for v in values {
            let there = !v.is_nan();
            known += u64::from(there);
            sum += if there { *v } else { 0.0 };
            // Comparisons with NaN are false.
            min = if *v < min { *v } else { min };
            max = if *v > max { *v } else { max };
        }
        if known == 0 {
            (min, max) = (f64::NAN, f64::NAN);
        }
        BucketCell {
            start,
            count: values.len() as u64,
            known,
            sum,
            held_ns,
            area,
            min,
            max,
            last: values[values.len() - 1],
        }
    }

    fn known(&self) -> Option<f64> {
        (!self.is_nan()).then_some(*self)
    }

    fn between(mean: f64, min: &Self, max: &Self) -> f64 {
        // `clamp` would panic if the bounds are NaN.
        mean.max(*min).min(*max)
    }

    fn add(a: f64, b: f64) -> f64 {
        a + b
    }

    /// Returns the lesser of two numbers; NaN only if both are NaN.
    fn lesser(a: Self, b: Self) -> Self {
        if b < a || a.is_nan() { b } else { a }
    }

    fn greater(a: Self, b: Self) -> Self {
        if b > a || a.is_nan() { b } else { a }
    }

    fn mean(sum: f64, known: u64) -> f64 {
        sum / known as f64
    }

    fn sum(mean: f64, known: u64) -> f64 {
        if known == 0 { 0.0 } else { mean * known as f64 }
    }
}

impl Aggregable for i64 {
    type Sum = i128;
    const ZERO: i128 = 0;

    fn cell(start: i64, ts: &[i64], values: &[Self]) -> BucketCell<Self> {
        let (held_ns, area) = held(ts, values, |v| (*v as f64, !0));
        let (mut sum, mut min, mut max) = (Self::ZERO, i64::MAX, i64::MIN);
        for v in values {
            sum += i128::from(*v);
            min = min.min(*v);
            max = max.max(*v);
        }
        BucketCell {
            start,
            count: values.len() as u64,
            known: values.len() as u64,
            sum,
            held_ns,
            area,
            min,
            max,
            last: values[values.len() - 1],
        }
    }

    fn known(&self) -> Option<f64> {
        Some(*self as f64)
    }

    fn between(mean: f64, min: &Self, max: &Self) -> f64 {
        mean.max(*min as f64).min(*max as f64)
    }

    fn add(a: i128, b: i128) -> i128 {
        a.saturating_add(b)
    }

    fn lesser(a: Self, b: Self) -> Self {
        a.min(b)
    }

    fn greater(a: Self, b: Self) -> Self {
        a.max(b)
    }

    fn mean(sum: i128, known: u64) -> f64 {
        sum as f64 / known as f64
    }

    fn sum(mean: f64, known: u64) -> i128 {
        (mean * known as f64).round() as i128
    }
}

/// Texts, bytes, JSON and arrays.
impl<T: ?Sized + Debug> Aggregable for Arc<T> {
    type Sum = ();
    const ZERO: () = ();

    fn cell(start: i64, ts: &[i64], values: &[Self]) -> BucketCell<Self> {
        let (held_ns, area) = held(ts, values, |_| (0.0, !0));
        let last = &values[values.len() - 1];
        BucketCell {
            start,
            count: values.len() as u64,
            known: 0,
            sum: Self::ZERO,
            held_ns,
            area,
            min: Arc::clone(last),
            max: Arc::clone(last),
            last: Arc::clone(last),
        }
    }

    fn known(&self) -> Option<f64> {
        Some(0.0)
    }

    fn between(_: f64, _: &Self, _: &Self) -> f64 {
        f64::NAN
    }

    fn add((): (), (): ()) {}

    /// Returns the later value: texts, bytes, JSON and arrays have no order.
    fn lesser(_: Self, later: Self) -> Self {
        later
    }

    fn greater(_: Self, later: Self) -> Self {
        later
    }

    fn mean((): (), _: u64) -> f64 {
        f64::NAN
    }

    fn sum(_: f64, _: u64) {}

    fn bytes(&self) -> usize {
        size_of_val(&**self)
    }
}
