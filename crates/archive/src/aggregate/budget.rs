//! The budget of buckets that are built at the same time, over all threads that build them.
//!
//! This module stands alone because a step may be so short that every sample has a bucket of its
//! own: then buckets are larger than the samples that they are made of, and only their number
//! bounds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Fold;
use super::number::BucketCell;
use crate::ArchiveError;

/// Bytes of a bucket: itself while it is built, and its row of the finished columns. Equal texts
/// share their memory.
pub const BUCKET_BYTES: usize = 2 * size_of::<BucketCell<Arc<str>>>();

/// Buckets between two calls that check whether there is room for them.
const ASKED_BUCKETS: usize = 1 << 14;

/// A bound on buckets. It is checked whenever a fold has made some thousand more: each thread may
/// exceed it by that many. What was taken is returned when the budget is dropped.
pub struct BucketBudget<'h> {
    used: Arc<AtomicUsize>,
    max: usize,
    /// Weight of one bucket in the unit of `used`.
    each: usize,
    /// The part of `used` that this budget took.
    held: AtomicUsize,
    /// A function that returns whether there is room for so many buckets.
    holds: Option<&'h (dyn Fn(usize) -> bool + Sync)>,
    /// Whether that function found no room.
    is_refused: AtomicBool,
}

impl std::fmt::Debug for BucketBudget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("used", &self.used)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl<'h> BucketBudget<'h> {
    /// Returns a budget of at most so many buckets.
    pub fn of(buckets_max: usize) -> Self {
        Self::new(Arc::default(), buckets_max, 1)
    }

    /// Returns a budget of at most so many buckets, which also asks `holds` whether there is room
    /// for a number of buckets.
    pub fn asking(buckets_max: usize, holds: &'h (dyn Fn(usize) -> bool + Sync)) -> Self {
        let mut budget = Self::of(buckets_max);
        budget.holds = Some(holds);
        budget
    }

    /// Whether the budget ended because `holds` found no room.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Returns a budget of as many buckets as fit into what is left of `bytes_max` bytes, of which
    /// `used` are taken, here and by others.
    pub fn within(used: Arc<AtomicUsize>, bytes_max: usize) -> Self {
        Self::new(used, bytes_max, BUCKET_BYTES)
    }

    fn new(used: Arc<AtomicUsize>, max: usize, each: usize) -> Self {
        Self {
            used,
            max,
            each,
            held: AtomicUsize::new(0),
            holds: None,
            is_refused: AtomicBool::new(false),
        }
    }

    /// Changes the number of taken buckets from `before` to `after`.
    pub fn settle(&self, before: usize, after: usize) -> Result<(), ArchiveError> {
        if after <= before {
            let given = (before - after).saturating_mul(self.each);
            self.held.fetch_sub(given, Ordering::Relaxed);
            self.used.fetch_sub(given, Ordering::Relaxed);
            return Ok(());
        }
        let taken = (after - before).saturating_mul(self.each);
        self.held.fetch_add(taken, Ordering::Relaxed);
        let used = self.used.fetch_add(taken, Ordering::Relaxed);
        let now = used.saturating_add(taken);
        if now > self.max {
            return Err(ArchiveError::TooManyBuckets);
        }
        // The call is made in steps, since buckets are small and many, and ahead, since there may
        // be no further call.
        let steps = now / ASKED_BUCKETS;
        if let Some(holds) = self.holds
            && steps > used / ASKED_BUCKETS
            && !holds((steps + 1).saturating_mul(ASKED_BUCKETS))
        {
            self.is_refused.store(true, Ordering::Relaxed);
            return Err(ArchiveError::TooManyBuckets);
        }
        Ok(())
    }

    /// Runs a function that makes a fold grow, and takes the new buckets from the budget.
    pub(crate) fn grow(
        &self,
        fold: &mut Fold,
        add: impl FnOnce(&mut Fold),
    ) -> Result<(), ArchiveError> {
        let before = fold.weight();
        add(fold);
        self.settle(before, fold.weight())
    }

    /// Adds samples to a fold: `add` takes them from a row on, and returns the row to continue
    /// from.
    pub fn add(
        &self,
        fold: &mut Fold,
        rows: usize,
        mut add: impl FnMut(&mut Fold, usize) -> usize,
    ) -> Result<(), ArchiveError> {
        let mut at = 0;
        while at < rows {
            self.grow(fold, |fold| at = add(fold, at))?;
        }
        Ok(())
    }

    /// Counts the newest sample of a fold as held until this time, if it is of this life.
    pub fn hold_until(&self, fold: &mut Fold, life: i64, ts: i64) -> Result<(), ArchiveError> {
        let mut is_done = false;
        while !is_done {
            self.grow(fold, |fold| is_done = fold.hold_until(life, ts))?;
        }
        Ok(())
    }

    /// Merges a fold of later samples into `fold`; the last value of `fold` held until the first
    /// later sample.
    pub fn merge(&self, fold: &mut Fold, later: Fold) -> Result<(), ArchiveError> {
        fold.cut.span.to = fold.cut.span.to.max(later.cut.span.to);
        if let Some((life, ts)) = later.head() {
            self.hold_until(fold, life, ts)?;
        }
        let before = fold.weight() + later.weight();
        fold.merge(later);
        self.settle(before, fold.weight())
    }
}

impl Drop for BucketBudget<'_> {
    fn drop(&mut self) {
        self.used.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_given_back() {
        let used = Arc::new(AtomicUsize::new(BUCKET_BYTES));
        let budget = BucketBudget::within(Arc::clone(&used), 5 * BUCKET_BYTES);
        budget.settle(0, 4).unwrap();
        assert_eq!(used.load(Ordering::Relaxed), 5 * BUCKET_BYTES);
        assert!(matches!(
            budget.settle(4, 5),
            Err(ArchiveError::TooManyBuckets)
        ));
        budget.settle(5, 2).unwrap();
        budget.settle(2, 4).unwrap();
        drop(budget);
        assert_eq!(used.load(Ordering::Relaxed), BUCKET_BYTES);
    }

    #[test]
    fn room_is_asked_for_before_there_are_more() {
        let asked = AtomicUsize::new(0);
        let holds = |buckets: usize| {
            asked.store(buckets, Ordering::Relaxed);
            buckets <= 3 * ASKED_BUCKETS
        };
        let budget = BucketBudget::asking(usize::MAX, &holds);
        budget.settle(0, ASKED_BUCKETS - 1).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 0);
        budget.settle(0, 1).unwrap();
        assert_eq!(asked.load(Ordering::Relaxed), 2 * ASKED_BUCKETS);
        budget.settle(0, ASKED_BUCKETS).unwrap();
        assert!(!budget.is_refused());
        assert!(budget.settle(0, ASKED_BUCKETS).is_err());
        assert!(budget.is_refused());
    }
}
