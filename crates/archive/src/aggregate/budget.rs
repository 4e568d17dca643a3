//! How many buckets may be in the making at once, over all threads that make them.
//!
//! It stands alone because a step may be so short that every sample has a bucket of its own: then buckets
//! are larger than what they are made of, and only their number bounds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Fold;
use super::number::Cell;
use crate::ArchiveError;

/// What a bucket counts for in bytes: itself while it is made, and its row of the finished columns. The
/// texts themselves are shared by those that are equal.
pub const BUCKET_BYTES: usize = 2 * size_of::<Cell<Arc<str>>>();

/// A bound on buckets. It is looked at after each run of samples, of at most one row group: so many buckets
/// a thread may be ahead of it. What was taken is given back when it is dropped.
#[derive(Debug)]
pub struct Budget {
    used: Arc<AtomicUsize>,
    max: usize,
    /// What one bucket counts for.
    each: usize,
    /// What was taken of `used` here.
    held: AtomicUsize,
}

impl Budget {
    /// At most so many buckets.
    pub fn of(buckets_max: usize) -> Self {
        Self::new(Arc::default(), buckets_max, 1)
    }

    /// As many as fit into what is left of so many bytes, of which `used` are taken, here and by others.
    pub fn within(used: Arc<AtomicUsize>, bytes_max: usize) -> Self {
        Self::new(used, bytes_max, BUCKET_BYTES)
    }

    fn new(used: Arc<AtomicUsize>, max: usize, each: usize) -> Self {
        Self {
            used,
            max,
            each,
            held: AtomicUsize::new(0),
        }
    }

    /// There were so many buckets, and now there are so many.
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
        match used.saturating_add(taken) > self.max {
            true => Err(ArchiveError::TooManyBuckets),
            false => Ok(()),
        }
    }

    /// Lets a fold grow.
    pub(crate) fn grow(
        &self,
        fold: &mut Fold,
        add: impl FnOnce(&mut Fold),
    ) -> Result<(), ArchiveError> {
        let before = fold.weight();
        add(fold);
        self.settle(before, fold.weight())
    }

    /// Adds to a fold what came after it.
    pub(crate) fn merge(&self, fold: &mut Fold, later: Fold) -> Result<(), ArchiveError> {
        let before = fold.weight() + later.weight();
        fold.merge(later);
        self.settle(before, fold.weight())
    }
}

impl Drop for Budget {
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
        let budget = Budget::within(Arc::clone(&used), 5 * BUCKET_BYTES);
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
}
