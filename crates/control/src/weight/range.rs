//! The ranges of weights, and the way from a score to a weight.

use serde::{Deserialize, Serialize};

use crate::ControlError;

/// The weights that a back end takes, and the weight of a group for which nothing was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightRange {
    min: u32,
    default: u32,
    max: u32,
}

impl WeightRange {
    /// The range of bfq in both versions of control groups
    /// (<https://docs.kernel.org/block/bfq-iosched.html>).
    pub const BFQ: Self = Self {
        min: 1,
        default: 100,
        max: 1_000,
    };
    /// The range of `io.weight`
    /// (<https://docs.kernel.org/admin-guide/cgroup-v2.html>).
    pub const IO_WEIGHT: Self = Self {
        min: 1,
        default: 100,
        max: 10_000,
    };

    /// A range, for example one whose smallest weight is the default, so that nothing that is read
    /// gets less than a group without a weight.
    ///
    /// # Errors
    ///
    /// [`ControlError::Range`] unless 1 <= `min` <= `default` <= `max` and `min` < `max`.
    pub fn new(min: u32, default: u32, max: u32) -> Result<Self, ControlError> {
        match min >= 1 && min <= default && default <= max && min < max {
            true => Ok(Self { min, default, max }),
            false => Err(ControlError::Range { min, default, max }),
        }
    }

    /// The smallest weight.
    pub fn min(&self) -> u32 {
        self.min
    }

    /// The weight of a group for which nothing was set.
    pub fn default(&self) -> u32 {
        self.default
    }

    /// The largest weight.
    pub fn max(&self) -> u32 {
        self.max
    }

    /// The weight for a score in `0.0..=1.0`: the smallest for 0, the default for 0.5, the largest
    /// for 1. Between them equal steps of the score are equal ratios of weights, since schedulers
    /// share a device by ratios of weights. A score that is not a number counts as 0.
    pub fn weight(&self, score: f64) -> u32 {
        let score = match score.is_nan() {
            true => 0.0,
            false => score.clamp(0.0, 1.0),
        };
        let (low, high, share) = match score < 0.5 {
            true => (self.min, self.default, score * 2.0),
            false => (self.default, self.max, score * 2.0 - 1.0),
        };
        let (low, high) = (f64::from(low), f64::from(high));
        let weight = (low * (high / low).powf(share)).round();
        (weight as u32).clamp(self.min, self.max)
    }
}

/// The limit in bytes/s that stands for a weight where only limits can be set: what the group would
/// get of a device with this bandwidth beside one busy group with the default weight. `None` if the
/// bandwidth is not a positive number.
pub fn limit_of_weight(weight: u32, range: &WeightRange, bandwidth: f64) -> Option<u64> {
    if !(bandwidth.is_finite() && bandwidth > 0.0) {
        return None;
    }
    let weight = f64::from(weight.clamp(range.min, range.max));
    let limit = bandwidth * weight / (weight + f64::from(range.default));
    Some((limit as u64).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_use_the_whole_range_with_the_default_in_the_middle() {
        let floor = WeightRange::new(100, 100, 1_000).unwrap();
        let table = [
            (WeightRange::BFQ, 0.0, 1),
            (WeightRange::BFQ, 0.25, 10),
            (WeightRange::BFQ, 0.5, 100),
            (WeightRange::BFQ, 0.75, 316),
            (WeightRange::BFQ, 1.0, 1_000),
            (WeightRange::IO_WEIGHT, 0.0, 1),
            (WeightRange::IO_WEIGHT, 0.5, 100),
            (WeightRange::IO_WEIGHT, 0.75, 1_000),
            (WeightRange::IO_WEIGHT, 1.0, 10_000),
            (floor, 0.2, 100),
            (floor, 1.0, 1_000),
            (WeightRange::BFQ, f64::NAN, 1),
            (WeightRange::BFQ, f64::INFINITY, 1_000),
            (WeightRange::BFQ, -3.0, 1),
        ];
        for (range, score, expect) in table {
            assert_eq!(range.weight(score), expect, "{range:?}, {score}");
        }
    }

    #[test]
    fn ranges_without_order_are_refused() {
        let table = [(0, 1, 2), (1, 1, 1), (3, 2, 4), (1, 5, 4)];
        for (min, default, max) in table {
            let range = WeightRange::new(min, default, max);
            assert!(range.is_err(), "{min} {default} {max}");
        }
    }

    #[test]
    fn a_limit_is_the_share_beside_one_default_group() {
        let table = [
            (100, 120e6, Some(60_000_000)),
            (300, 120e6, Some(90_000_000)),
            (1, 1.0, Some(1)),
            (100, 0.0, None),
            (100, f64::NAN, None),
            (100, f64::INFINITY, None),
        ];
        for (weight, bandwidth, expect) in table {
            let limit = limit_of_weight(weight, &WeightRange::BFQ, bandwidth);
            assert_eq!(limit, expect, "{weight} of {bandwidth}");
        }
    }
}
