//! Aggregates of one series by time.

use crate::{ValueType, Values};

/// Buckets of one series in order of time; all columns have the same length. NaN is not counted in
/// `min`, `max` and `mean`, but is a `last`.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Starts, ns since the epoch: multiples of the step.
    pub ts: Vec<i64>,
    /// Samples.
    pub count: Vec<u64>,
    /// Smallest values; where a bucket has only NaN, NaN.
    pub min: Values,
    /// Largest values.
    pub max: Values,
    /// Means of the samples; NaN for texts.
    pub mean: Vec<f64>,
    /// Last values.
    pub last: Values,
}

impl Buckets {
    /// None, of this type.
    pub fn new(value_type: ValueType) -> Self {
        Self {
            ts: Vec::new(),
            count: Vec::new(),
            min: Values::new(value_type),
            max: Values::new(value_type),
            mean: Vec::new(),
            last: Values::new(value_type),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ts.is_empty()
    }
}
