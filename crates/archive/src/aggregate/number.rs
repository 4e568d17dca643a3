//! The samples of one bucket, by type: the innermost loops.

use std::fmt::Debug;
use std::sync::Arc;

/// One bucket.
#[derive(Clone, Debug)]
pub(super) struct Cell<T: Number> {
    pub start: i64,
    pub count: u64,
    /// Those that are not NaN.
    pub known: u64,
    pub sum: T::Sum,
    pub min: T,
    pub max: T,
    pub last: T,
}

/// What can be aggregated.
pub(super) trait Number: Clone + std::fmt::Debug {
    /// Holds the sum of any number of them.
    type Sum: Copy + std::fmt::Debug;
    const ZERO: Self::Sum;
    /// The samples of one bucket, at least one, in order.
    fn cell(start: i64, values: &[Self]) -> Cell<Self>;
    fn add(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn lesser(a: Self, b: Self) -> Self;
    fn greater(a: Self, b: Self) -> Self;
    fn mean(sum: Self::Sum, known: u64) -> f64;
    /// The sum that has this mean.
    fn sum(mean: f64, known: u64) -> Self::Sum;
    /// Bytes that it holds beside itself.
    fn bytes(&self) -> usize {
        0
    }
}

impl<T: Number> Cell<T> {
    /// Adds what came after.
    pub fn merge(&mut self, later: Self) {
        // Counts of tiers are foreign.
        self.count = self.count.saturating_add(later.count);
        self.known = self.known.saturating_add(later.known);
        self.sum = T::add(self.sum, later.sum);
        self.min = T::lesser(self.min.clone(), later.min);
        self.max = T::greater(self.max.clone(), later.max);
        self.last = later.last;
    }
}

impl Number for f64 {
    type Sum = f64;
    const ZERO: f64 = 0.0;

    fn cell(start: i64, values: &[Self]) -> Cell<Self> {
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
        Cell {
            start,
            count: values.len() as u64,
            known,
            sum,
            min,
            max,
            last: values[values.len() - 1],
        }
    }

    fn add(a: f64, b: f64) -> f64 {
        a + b
    }

    /// Of two numbers; NaN only where both are.
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

impl Number for i64 {
    type Sum = i128;
    const ZERO: i128 = 0;

    fn cell(start: i64, values: &[Self]) -> Cell<Self> {
        let (mut sum, mut min, mut max) = (Self::ZERO, i64::MAX, i64::MIN);
        for v in values {
            sum += i128::from(*v);
            min = min.min(*v);
            max = max.max(*v);
        }
        Cell {
            start,
            count: values.len() as u64,
            known: values.len() as u64,
            sum,
            min,
            max,
            last: values[values.len() - 1],
        }
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
impl<T: ?Sized + Debug> Number for Arc<T> {
    type Sum = ();
    const ZERO: () = ();

    fn cell(start: i64, values: &[Self]) -> Cell<Self> {
        let last = &values[values.len() - 1];
        Cell {
            start,
            count: values.len() as u64,
            known: 0,
            sum: Self::ZERO,
            min: Arc::clone(last),
            max: Arc::clone(last),
            last: Arc::clone(last),
        }
    }

    fn add((): (), (): ()) {}

    /// The later: a text is neither small nor large, nor is any of these.
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
