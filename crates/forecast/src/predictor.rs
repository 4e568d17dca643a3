//! The seam of all predictors.

/// Says what comes next, from values in equal steps.
///
/// What it is given is finite; it may be of any magnitude, and steps may repeat a value for ever. Where its own
/// arithmetic overflows it may say what is not finite: whoever asks takes the last value instead.
pub trait Predictor {
    /// As the documents call it: lower case, words joined by hyphens.
    fn name(&self) -> &'static str;

    /// The value one step after the one before. Allocates nothing.
    fn observe(&mut self, value: f64);

    /// The value expected `steps` after the newest, 1 or more. Before anything is known: 0.
    fn predict(&self, steps: u32) -> f64;

    /// The values expected 1, 2, … steps after the newest. Those that go from step to step say all of them at the
    /// cost of the last.
    fn path(&self, expected: &mut [f64]) {
        for (step, expected) in (1..).zip(expected) {
            *expected = self.predict(step);
        }
    }

    /// The values before are not those right before what comes: a gap, a reset. What was learned may stay.
    fn forget(&mut self);
}
