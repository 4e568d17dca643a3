//! How many buckets may be in the making at once, over all threads that make them.
//!
//! It stands alone because a step may be so short that every sample has a bucket of its own: then buckets
//! are larger than what they are made of, and only their number bounds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::Fold;
use super::number::Cell;
use crate::ArchiveError;

/// What a bucket counts for in bytes: itself while it is made, and its row of the finished columns. The
/// texts themselves are shared by those that are equal.
pub const BUCKET_BYTES: usize = 2 * size_of::<Cell<Arc<str>>>();

/// Buckets between two questions whether there is room for them.
const ASKED_BUCKETS: usize = 1 << 14;

/// A bound on buckets. It is looked at whenever a fold has made some thousand more: so many a thread may be ahead of it. What
/// was taken is given back when it is dropped.
pub struct Budget<'h> {
    used: Arc<AtomicUsize>,
    max: usize,
    /// What one bucket counts for.
    each: usize,
    /// What was taken of `used` here.
    held: AtomicUsize,
    /// Whether there is room for so many buckets.
    holds: Option<&'h (dyn Fn(usize) -> bool + Sync)>,
    /// There was no room.
    is_refused: AtomicBool,
}

impl std::fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("used", &self.used)
            .field("max", &self.max)
            .finish_non_exhaustive()
    }
}

impl<'h> Budget<'h> {
    /// At most so many buckets.
    pub fn of(buckets_max: usize) -> Self {
        Self::new(Arc::default(), buckets_max, 1)
    }

    /// At most so many buckets, and as many as there is room for by what `holds` says of their number.
    pub fn asking(buckets_max: usize, holds: &'h (dyn Fn(usize) -> bool + Sync)) -> Self {
        let mut budget = Self::of(buckets_max);
        budget.holds = Some(holds);
        budget
    }

    /// Whether it was room that was missing.
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
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
            holds: None,
            is_refused: AtomicBool::new(false),
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
        let now = used.saturating_add(taken);
        if now > self.max {
            return Err(ArchiveError::TooManyBuckets);
        }
        // Asked in steps, since buckets are small and many; and ahead, for there may be no further question.
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

    /// Adds samples to a fold: `add` takes them from a row on, and gives the row to go on from.
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

    /// The newest sample of a fold held until this time, if it is of this life.
    pub fn hold_until(&self, fold: &mut Fold, life: i64, ts: i64) -> Result<(), ArchiveError> {
        let mut is_done = false;
        while !is_done {
            self.grow(fold, |fold| is_done = fold.hold_until(life, ts))?;
        }
        Ok(())
    }

    /// Adds to a fold what came after it; what held last held until its first sample.
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

impl Drop for Budget<'_> {
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

    #[test]
    fn room_is_asked_for_before_there_are_more() {
        let asked = AtomicUsize::new(0);
        let holds = |buckets: usize| {
            asked.store(buckets, Ordering::Relaxed);
            buckets <= 3 * ASKED_BUCKETS
        };
        let budget = Budget::asking(usize::MAX, &holds);
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
