//! The last differences between values, and predictions by weights over them: shared by NLMS and
//! RLS.
//!
//! Differences have no level, so a counter at 10^12 is predicted as well as one at 0, and weights
//! of 0 are persistence.

use super::{JUMP_MAX, STEPS_MAX, finite_or, without_dust};

/// Largest predicted difference, as a multiple of the largest of the last differences: weights that
/// do not (yet, or any longer) describe a stable series must not make the path diverge.
const GROWTH_MAX: f64 = 2.0;

/// The newest value, and the `N` differences before it.
#[derive(Clone, Debug)]
pub(super) struct Lags<const N: usize> {
    /// Newest first; 0 where unknown.
    differences: [f64; N],
    /// Number of known differences; `None` before the first value.
    known: Option<usize>,
    last: f64,
}

impl<const N: usize> Default for Lags<N> {
    fn default() -> Self {
        Self {
            differences: [0.0; N],
            known: None,
            last: 0.0,
        }
    }
}

impl<const N: usize> Lags<N> {
    /// The difference between `value` and the last value, if all differences before it are known
    /// and one is not 0: the predictor learns it from [`Lags::differences`] before it is pushed.
    pub(super) fn lesson(&self, value: f64) -> Option<f64> {
        let jump = value - self.last;
        let is_known = self.known == Some(N) && jump.abs() < JUMP_MAX;
        // Where nothing moved, nothing can predict a move, and nothing is forgotten either.
        (is_known && self.differences.iter().any(|difference| *difference != 0.0))
            .then(|| without_dust(jump))
    }

    pub(super) fn differences(&self) -> &[f64; N] {
        &self.differences
    }

    pub(super) fn push(&mut self, value: f64) {
        let jump = value - self.last;
        self.last = value;
        match self.known {
            Some(known) if jump.abs() < JUMP_MAX => {
                self.differences.copy_within(0..N - 1, 1);
                self.differences[0] = without_dust(jump);
                self.known = Some((known + 1).min(N));
            }
            _ => {
                self.differences = [0.0; N];
                self.known = Some(0);
            }
        }
    }

    pub(super) fn forget(&mut self) {
        self.differences = [0.0; N];
        self.known = None;
    }

    pub(super) fn predict(&self, weights: &[f64; N], steps: u32) -> f64 {
        let mut recursion = Recursion::new(self, weights);
        for _ in 1..steps.clamp(1, STEPS_MAX) {
            recursion.step();
            recursion.shift();
        }
        recursion.step();
        finite_or(recursion.expected, self.last)
    }

    pub(super) fn path(&self, weights: &[f64; N], expected: &mut [f64]) {
        let mut recursion = Recursion::new(self, weights);
        let near = expected.len().min(STEPS_MAX as usize);
        let (near, far) = expected.split_at_mut(near);
        for expected in near.iter_mut() {
            recursion.step();
            recursion.shift();
            *expected = finite_or(recursion.expected, self.last);
        }
        far.fill(near.last().copied().unwrap_or(self.last));
    }
}

/// The recursion of a path: each predicted difference is a lag of the next.
struct Recursion<'a, const N: usize> {
    weights: &'a [f64; N],
    differences: [f64; N],
    bound: f64,
    difference: f64,
    expected: f64,
}

impl<'a, const N: usize> Recursion<'a, N> {
    fn new(lags: &Lags<N>, weights: &'a [f64; N]) -> Self {
        let largest = lags
            .differences
            .iter()
            .fold(0.0, |most: f64, difference| most.max(difference.abs()));
        Self {
            weights,
            differences: lags.differences,
            bound: GROWTH_MAX * largest,
            difference: 0.0,
            expected: lags.last,
        }
    }

    fn step(&mut self) {
        let difference = dot(self.weights, &self.differences);
        self.difference = difference.clamp(-self.bound, self.bound);
        self.expected += self.difference;
    }

    fn shift(&mut self) {
        self.differences.copy_within(0..N - 1, 1);
        self.differences[0] = self.difference;
    }
}

/// The dot product, in several sums, so that the processor can compute several products at once;
/// the order is the same everywhere.
pub(super) fn dot<const N: usize>(left: &[f64; N], right: &[f64; N]) -> f64 {
    let mut sums = [0.0; 4];
    let (left, left_rest) = left.as_chunks::<4>();
    let (right, right_rest) = right.as_chunks::<4>();
    for (left, right) in left.iter().zip(right) {
        for lane in 0..4 {
            sums[lane] += left[lane] * right[lane];
        }
    }
    let rest: f64 = left_rest.iter().zip(right_rest).map(|(l, r)| l * r).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<const N: usize>(values: &[f64]) -> Lags<N> {
        let mut lags = Lags::default();
        values.iter().for_each(|value| lags.push(*value));
        lags
    }

    #[test]
    fn differences_are_newest_first_and_lessons_wait_for_all() {
        let lags: Lags<3> = of(&[5.0, 6.0, 8.0, 11.0]);
        assert_eq!(lags.differences(), &[3.0, 2.0, 1.0]);
        assert_eq!(lags.lesson(15.0), Some(4.0));
        assert_eq!(of::<3>(&[5.0, 6.0, 8.0]).lesson(15.0), None);
        assert_eq!(of::<3>(&[5.0; 9]).lesson(15.0), None);
        assert_eq!(lags.lesson(1e200), None);
    }

    #[test]
    fn the_recursion_feeds_on_itself_within_bounds() {
        let lags: Lags<2> = of(&[0.0, 1.0, 3.0]);
        // Fibonacci: 2 + 1, but never more than twice 2.
        let mut path = [0.0; 4];
        lags.path(&[1.0, 1.0], &mut path);
        assert_eq!(path, [6.0, 10.0, 14.0, 18.0]);
        assert_eq!(lags.predict(&[1.0, 1.0], 4), 18.0);
        assert_eq!(lags.predict(&[f64::NAN, 1.0], 4), 3.0);
        assert_eq!(lags.predict(&[0.0, 0.0], u32::MAX), 3.0);
    }

    #[test]
    fn a_product_of_any_length() {
        assert_eq!(dot(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 32.0);
        assert_eq!(dot(&[1.0; 10], &[2.0; 10]), 20.0);
    }
}
