//! The points that a query holds at once: they are claimed before they are made, and given back
//! when they are dropped.
//!
//! The module stands alone because a bound on each result does not bound a query: every operand is
//! held until its partner is evaluated.

use std::cell::Cell;

use super::{LabelSet, PromFault, VectorSeries};

/// Bytes of one point: the rest of a series is counted in these.
const POINT_BYTES: usize = size_of::<Option<f64>>();

/// Points between two checks of the memory.
const TOLD_POINTS: usize = 1 << 14;

impl std::fmt::Debug for PointCounter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Points")
            .field("max", &self.max)
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}

/// The counter of the points of one query.
pub(super) struct PointCounter<'h> {
    max: usize,
    live: Cell<usize>,
    /// Whether there is memory for this many bytes.
    holds: &'h dyn Fn(usize) -> bool,
}

impl<'h> PointCounter<'h> {
    /// Makes a counter with none; it allows at most `max` points, and at most as many as `holds`
    /// allows.
    pub(super) fn at_most(max: usize, holds: &'h dyn Fn(usize) -> bool) -> Self {
        let live = Cell::new(0);
        Self { max, live, holds }
    }

    /// Claims room for `points` points.
    pub(super) fn claim(&self, points: usize) -> Result<PointClaim<'_>, PromFault> {
        let mut claim = PointClaim { of: self, count: 0 };
        claim.grow(points)?;
        Ok(claim)
    }

    /// Makes a scalar with a value at each instant.
    pub(super) fn scalar(&self, values: impl ExactSizeIterator<Item = f64>) -> ScalarOutcome<'_> {
        let _claim = self.claim(values.len())?;
        let values = values.collect();
        Ok(Scalar { values, _claim })
    }

    /// The number of points in use.
    pub(super) fn live(&self) -> usize {
        self.live.get()
    }
}

/// A claim on points, which are in use until it is dropped.
#[derive(Debug)]
pub(super) struct PointClaim<'a> {
    of: &'a PointCounter<'a>,
    count: usize,
}

impl<'a> PointClaim<'a> {
    /// The counter that this claim belongs to.
    pub(super) fn points(&self) -> &'a PointCounter<'a> {
        self.of
    }

    /// Claims `points` more.
    pub(super) fn grow(&mut self, points: usize) -> Result<(), PromFault> {
        let live = self.of.live.get().saturating_add(points);
        if live > self.of.max {
            return Err(PromFault::execution(format!(
                "the query holds {live} points of series at once, more than {}: ask for fewer series or \
                 instants",
                self.of.max
            )));
        }
        // Checked in steps, since values are small and many.
        if live / TOLD_POINTS > self.of.live.get() / TOLD_POINTS
            && !(self.of.holds)(live.saturating_mul(POINT_BYTES))
        {
            return Err(PromFault::execution(
                "what is asked at once holds too much memory: ask again in a moment, or for fewer \
                 series or instants",
            ));
        }
        self.of.live.set(live);
        self.count += points;
        Ok(())
    }

    /// Gives `points` back.
    pub(super) fn give(&mut self, points: usize) {
        debug_assert!(points <= self.count, "{points} of {} points", self.count);
        let given = points.min(self.count);
        self.of.live.set(self.of.live.get().saturating_sub(given));
        self.count -= given;
    }

    /// Takes over the points of another claim.
    pub(super) fn join(&mut self, mut other: Self) {
        self.count += std::mem::take(&mut other.count);
    }
}

impl Drop for PointClaim<'_> {
    fn drop(&mut self) {
        self.give(self.count);
    }
}

/// A scalar at each instant, with its claim.
#[derive(Debug)]
pub(super) struct Scalar<'a> {
    pub values: Vec<f64>,
    _claim: PointClaim<'a>,
}

pub(super) type ScalarOutcome<'a> = Result<Scalar<'a>, PromFault>;

/// An instant vector with its claim.
#[derive(Debug)]
pub(super) struct Vector<'a> {
    pub series: Vec<VectorSeries>,
    pub claim: PointClaim<'a>,
}

impl<'a> Vector<'a> {
    /// Makes a vector of series with their claim, and gives back what was claimed beyond their
    /// weight.
    pub(super) fn of(series: Vec<VectorSeries>, mut claim: PointClaim<'a>) -> Self {
        let points = series.iter().map(VectorSeries::weight).sum();
        debug_assert!(points <= claim.count, "{points} of {} points", claim.count);
        claim.give(claim.count.saturating_sub(points));
        Self { series, claim }
    }

    /// Applies an operator to the series; the result must not weigh more than they do.
    pub(super) fn then(
        self,
        operator: impl FnOnce(Vec<VectorSeries>) -> Result<Vec<VectorSeries>, PromFault>,
    ) -> Result<Self, PromFault> {
        Ok(Self::of(operator(self.series)?, self.claim))
    }
}

impl VectorSeries {
    /// Its weight, in points.
    pub fn weight(&self) -> usize {
        weight(&self.labels, self.points.len())
    }
}

/// The weight of a series, in points: its values, and its labels by their bytes.
pub(super) fn weight(labels: &LabelSet, steps: usize) -> usize {
    let rest = size_of::<VectorSeries>() + labels.bytes();
    steps.saturating_add(rest.div_ceil(POINT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_come_and_go() {
        let points = PointCounter::at_most(10, &|_| true);
        let mut first = points.claim(6).unwrap();
        assert!(points.claim(5).is_err());
        assert_eq!(points.live(), 6, "what was refused is not held");
        let second = points.claim(4).unwrap();
        assert!(first.grow(1).is_err());
        first.give(3);
        first.join(second);
        assert_eq!(points.live(), 7);
        assert!(points.claim(usize::MAX).is_err());
        drop(first);
        assert_eq!(points.live(), 0);
    }
}
