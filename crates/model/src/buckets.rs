//! Aggregates of one series by time.

use crate::{ValueType, Values};

/// Buckets of one series in order of time; all columns have the same length. NaN is not counted in
/// `min`, `max` and `mean`, but is a `last`.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Starts, ns since the epoch: multiples of the step.
    pub ts: Vec<i64>,
    /// Samples; 0 where a value of before held all the time.
    pub count: Vec<u64>,
    /// For how long values that are known held in the bucket, in ns: as long as the bucket is, unless nobody looked for
    /// part of it. 0 where that is not known, as in buckets that were kept before it was counted.
    pub held_ns: Vec<u64>,
    /// Smallest values that held; where a bucket has only NaN, NaN.
    pub min: Values,
    /// Largest values.
    pub max: Values,
    /// Means over the time in which values held; where that is 0 over the samples. NaN for texts.
    pub mean: Vec<f64>,
    /// Means over the samples, each counted once; NaN where there are none, and for texts.
    pub sample_mean: Vec<f64>,
    /// Last values.
    pub last: Values,
}

impl Buckets {
    /// None, of this type.
    pub fn new(value_type: ValueType) -> Self {
        Self {
            ts: Vec::new(),
            count: Vec::new(),
            held_ns: Vec::new(),
            min: Values::new(value_type),
            max: Values::new(value_type),
            mean: Vec::new(),
            sample_mean: Vec::new(),
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
