//! Buckets: the parts of an augmentation in the order in which they are read, with the error that
//! remains after each. A choice is a number of buckets from the first on.

use serde::{Deserialize, Serialize};

use crate::bound::ErrorBound;

/// Most buckets of one augmentation that a plan looks at. Those beyond are never read.
pub const BUCKETS_MAX: usize = 4_096;

/// The number of a storage tier: 0 is the slowest (Tango, table III).
pub type Tier = u8;

/// One part of an augmentation: it is read whole, after those before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The bytes to be read.
    pub bytes: u64,
    /// The error that remains after this bucket and those before it, in the metric of the bound.
    pub error_after: f64,
    /// The tier on which it lies.
    pub tier: Tier,
}

/// Buckets with the error of reading none of them, seen from one tier that is shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Augmentation<'a> {
    buckets: &'a [Bucket],
    base_error: f64,
    tier: Tier,
}

impl<'a> Augmentation<'a> {
    pub(crate) fn new(buckets: &'a [Bucket], base_error: f64, tier: Tier) -> Self {
        Self {
            buckets: &buckets[..buckets.len().min(BUCKETS_MAX)],
            base_error,
            tier,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// The error that remains after the first `count` buckets.
    pub(crate) fn error(&self, count: usize) -> f64 {
        match count.min(self.len()) {
            0 => self.base_error,
            count => self.buckets[count - 1].error_after,
        }
    }

    /// The bytes of the first `count` buckets, of all tiers.
    pub(crate) fn bytes(&self, count: usize) -> u64 {
        let all = self.buckets[..count.min(self.len())].iter();
        all.fold(0, |sum: u64, bucket| sum.saturating_add(bucket.bytes))
    }

    /// The bytes of the first `count` buckets that lie on the shared tier.
    pub(crate) fn shared_bytes(&self, count: usize) -> u64 {
        let all = self.buckets[..count.min(self.len())].iter();
        all.filter(|bucket| bucket.tier == self.tier)
            .fold(0, |sum: u64, bucket| sum.saturating_add(bucket.bytes))
    }

    /// The fewest buckets that keep the bound; `None` if not even all of them do.
    pub(crate) fn needed(&self, bound: &ErrorBound) -> Option<usize> {
        (0..=self.len()).find(|count| bound.is_kept_by(self.error(*count)))
    }

    /// The most buckets whose bytes on the shared tier are at most the share `degree` of all bytes
    /// there. Buckets of other tiers count nothing, but come in their order.
    pub(crate) fn within(&self, degree: f64) -> usize {
        let all = self.shared_bytes(self.len()) as f64;
        let budget = all * degree.clamp(0.0, 1.0);
        let mut sum = 0_u64;
        let fits = |bucket: &&Bucket| {
            if bucket.tier == self.tier {
                sum = sum.saturating_add(bucket.bytes);
            }
            sum as f64 <= budget
        };
        self.buckets.iter().take_while(fits).count()
    }

    /// The most buckets up to `count` that keep the bound. Errors that were measured may rise from
    /// one bucket to the next, so that one more bucket could break a bound that was kept.
    pub(crate) fn kept(&self, count: usize, bound: &ErrorBound) -> usize {
        let count = count.min(self.len());
        let kept = (0..=count).rev();
        let mut kept = kept.filter(|count| bound.is_kept_by(self.error(*count)));
        kept.next().unwrap_or(count)
    }

    /// The first bucket after `count` that has bytes on the shared tier.
    pub(crate) fn next_shared(&self, count: usize) -> Option<usize> {
        let shared = |index: &usize| {
            let bucket = &self.buckets[*index];
            bucket.tier == self.tier && bucket.bytes > 0
        };
        (count..self.len()).find(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKETS: [Bucket; 4] = [
        Bucket {
            bytes: 50,
            error_after: 0.1,
            tier: 1,
        },
        Bucket {
            bytes: 100,
            error_after: 0.01,
            tier: 0,
        },
        // A measured error may rise.
        Bucket {
            bytes: 100,
            error_after: 0.02,
            tier: 0,
        },
        Bucket {
            bytes: 200,
            error_after: 0.0,
            tier: 0,
        },
    ];

    #[test]
    fn buckets_are_counted_by_error_and_by_bytes_of_the_shared_tier() {
        let augmentation = Augmentation::new(&BUCKETS, 0.5, 0);
        assert_eq!(augmentation.bytes(4), 450);
        assert_eq!(augmentation.shared_bytes(4), 400);
        assert_eq!(augmentation.error(0), 0.5);
        for (bound, expect) in [(1.0, Some(0)), (0.1, Some(1)), (0.0, Some(4)), (-1.0, None)] {
            let needed = augmentation.needed(&ErrorBound::nrmse(bound));
            assert_eq!(needed, expect, "{bound}");
        }
        // The bucket of the fast tier passes with a degree of 0.
        let table = [
            (0.0, 1),
            (0.24, 1),
            (0.25, 2),
            (0.5, 3),
            (0.99, 3),
            (1.0, 4),
        ];
        for (degree, expect) in table {
            assert_eq!(augmentation.within(degree), expect, "{degree}");
        }
        // Three buckets would break what two keep.
        assert_eq!(augmentation.kept(3, &ErrorBound::nrmse(0.015)), 2);
        assert_eq!(augmentation.next_shared(0), Some(1));
        assert_eq!(augmentation.next_shared(4), None);
    }

    #[test]
    fn absurd_buckets_are_counted_without_panic() {
        let bucket = Bucket {
            bytes: u64::MAX,
            error_after: f64::NAN,
            tier: 0,
        };
        let many = vec![bucket; BUCKETS_MAX + 1];
        let augmentation = Augmentation::new(&many, f64::NAN, 0);
        assert_eq!(augmentation.len(), BUCKETS_MAX);
        assert_eq!(augmentation.bytes(usize::MAX), u64::MAX);
        assert_eq!(augmentation.within(1.0), BUCKETS_MAX);
        assert_eq!(augmentation.needed(&ErrorBound::nrmse(0.1)), None);
        let none = Augmentation::new(&[], 0.3, 0);
        assert_eq!((none.within(1.0), none.next_shared(0)), (0, None));
    }
}
