//! What a query holds at once, in points: claimed before it is made, given back when it goes.
//!
//! It stands alone because a bound of each result alone does not bound a query: every operand waits
//! until its partner is there.

use std::cell::Cell;

use super::{LabelSet, PromFault, Series};

/// Bytes of one point: what else a series has is counted in these.
const POINT_BYTES: usize = size_of::<Option<f64>>();

/// Points between two questions whether there is room for them.
const TOLD_POINTS: usize = 1 << 14;

impl std::fmt::Debug for Points<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Points")
            .field("max", &self.max)
            .field("live", &self.live)
            .finish_non_exhaustive()
    }
}

/// The points of one query.
pub struct Points<'h> {
    max: usize,
    live: Cell<usize>,
    /// Whether there is room for so many bytes.
    holds: &'h dyn Fn(usize) -> bool,
}

impl<'h> Points<'h> {
    /// None yet, at most so many, and at most as many as there is room for.
    pub fn at_most(max: usize, holds: &'h dyn Fn(usize) -> bool) -> Self {
        let live = Cell::new(0);
        Self { max, live, holds }
    }

    /// Room for so many points.
    pub fn claim(&self, points: usize) -> Result<Claim<'_>, PromFault> {
        let mut claim = Claim { of: self, count: 0 };
        claim.grow(points)?;
        Ok(claim)
    }

    /// A scalar at each instant.
    pub fn scalar(&self, values: impl ExactSizeIterator<Item = f64>) -> ScalarOutcome<'_> {
        let _claim = self.claim(values.len())?;
        let values = values.collect();
        Ok(Scalar { values, _claim })
    }

    /// How many there are.
    pub fn live(&self) -> usize {
        self.live.get()
    }
}

/// So many points are in use until this is dropped.
#[derive(Debug)]
pub struct Claim<'a> {
    of: &'a Points<'a>,
    count: usize,
}

impl<'a> Claim<'a> {
    /// Whose this is.
    pub fn points(&self) -> &'a Points<'a> {
        self.of
    }

    /// Room for some more.
    pub fn grow(&mut self, points: usize) -> Result<(), PromFault> {
        let live = self.of.live.get().saturating_add(points);
        if live > self.of.max {
            return Err(PromFault::execution(format!(
                "the query holds {live} points of series at once, more than {}: ask for fewer series or \
                 instants",
                self.of.max
            )));
        }
        // Told in steps, since values are small and many.
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

    /// Gives some back.
    pub fn give(&mut self, points: usize) {
        debug_assert!(points <= self.count, "{points} of {} points", self.count);
        let given = points.min(self.count);
        self.of.live.set(self.of.live.get().saturating_sub(given));
        self.count -= given;
    }

    /// Takes over another.
    pub fn join(&mut self, mut other: Self) {
        self.count += std::mem::take(&mut other.count);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.give(self.count);
    }
}

/// A scalar at each instant, and its claim.
#[derive(Debug)]
pub struct Scalar<'a> {
    pub values: Vec<f64>,
    _claim: Claim<'a>,
}

pub type ScalarOutcome<'a> = Result<Scalar<'a>, PromFault>;

/// An instant vector, and its claim.
#[derive(Debug)]
pub struct Vector<'a> {
    pub series: Vec<Series>,
    pub claim: Claim<'a>,
}

impl<'a> Vector<'a> {
    /// Series for which at least as much was claimed as they are.
    pub fn of(series: Vec<Series>, mut claim: Claim<'a>) -> Self {
        let points = series.iter().map(Series::weight).sum();
        debug_assert!(points <= claim.count, "{points} of {} points", claim.count);
        claim.give(claim.count.saturating_sub(points));
        Self { series, claim }
    }

    /// What an operator makes of the series: no more than they are.
    pub fn then(
        self,
        operator: impl FnOnce(Vec<Series>) -> Result<Vec<Series>, PromFault>,
    ) -> Result<Self, PromFault> {
        Ok(Self::of(operator(self.series)?, self.claim))
    }
}

impl Series {
    /// What it counts for.
    pub fn weight(&self) -> usize {
        weight(&self.labels, self.points.len())
    }
}

/// What a series counts for: its points, and its labels by their bytes.
pub fn weight(labels: &LabelSet, steps: usize) -> usize {
    let rest = size_of::<Series>() + labels.bytes();
    steps.saturating_add(rest.div_ceil(POINT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_come_and_go() {
        let points = Points::at_most(10, &|_| true);
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
