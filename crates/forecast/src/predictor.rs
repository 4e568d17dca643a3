//! The common interface of all predictors.

/// A predictor of the next values of a series in equal steps.
///
/// Its inputs are finite; they may be of any magnitude, and may repeat a value for ever. If its own
/// arithmetic overflows, it may return a value that is not finite: the caller then uses the last
/// value instead.
pub trait Predictor {
    /// The name in the documents: lower case, words joined by hyphens.
    fn name(&self) -> &'static str;

    /// Takes in the value one step after the one before. It allocates nothing.
    fn observe(&mut self, value: f64);

    /// The value predicted `steps` after the newest, 1 or more. Before the first value: 0.
    fn predict(&self, steps: u32) -> f64;

    /// The values predicted 1, 2, … steps after the newest. Predictors that go from step to step
    /// compute all of them at the cost of the last one.
    fn path(&self, expected: &mut [f64]) {
        for (step, expected) in (1..).zip(expected) {
            *expected = self.predict(step);
        }
    }

    /// Forgets the values before, which are not right before the next one: after a gap or a reset.
    /// Learned parameters may stay.
    fn forget(&mut self);
}
