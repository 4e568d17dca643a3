//! Aggregates of one series over buckets of time.

use crate::{ValueType, Values};

/// Aggregates of one series, one row per bucket, in order of time; all columns have the same
/// length. `min`, `max` and `mean` ignore NaN; `last` may be NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Starts of the buckets, ns since the epoch: multiples of the step.
    pub ts: Vec<i64>,
    /// Number of samples in the bucket; 0 where an earlier value held all the time.
    pub count: Vec<u64>,
    /// Time in the bucket during which the value is known, in ns: the length of the bucket, less
    /// the part in which nobody looked. 0 where this is unknown, as in buckets that were stored
    /// before it was recorded.
    pub held_ns: Vec<u64>,
    /// Smallest value that held; NaN if the bucket has only NaN.
    pub min: Values,
    /// Largest value that held; NaN if the bucket has only NaN.
    pub max: Values,
    /// Mean weighted by the time for which values held; where that time is 0, the mean over the
    /// samples. NaN for texts.
    pub mean: Vec<f64>,
    /// Mean over the samples, each counted once; NaN where there are no samples, and for texts.
    pub sample_mean: Vec<f64>,
    /// Last value of the bucket.
    pub last: Values,
}

impl Buckets {
    /// Returns an empty table for values of this type.
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

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.ts.len()
    }

    /// Whether there are no buckets.
    pub fn is_empty(&self) -> bool {
        self.ts.is_empty()
    }
}
