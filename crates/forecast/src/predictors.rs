//! The predictors that need no training, and the code that they share: keeping results finite, and
//! extending weights over past differences to a path.
//!
//! None is given the scale or the noise of its stream, and no constant here was fitted to a trace.
//! All of them follow these rules: a jump of more than [`JUMP_MAX`] between two values is no trend,
//! but a new start; a prediction that would not be finite is replaced by the last value; errors too
//! small to be squared count as 0 (numbers near the smallest double are slow to compute with, and
//! have no meaning).

mod holt;
mod kalman;
mod lags;
mod nlms;
mod periods;
mod persistence;
mod rls;
mod spectral;

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod series;
#[cfg(test)]
mod tango;

pub use holt::Holt;
pub use kalman::Kalman;
pub use nlms::Nlms;
pub(crate) use periods::seasons;
pub use persistence::Persistence;
pub use rls::Rls;
pub use spectral::{Period, Spectral};

/// The farthest step that predictors which go from step to step compute; steps beyond it get the
/// same prediction. Coarser steps, not more of them, reach farther.
pub const STEPS_MAX: u32 = 256;

/// The largest difference between two values that is learned from: its square is still finite.
pub const JUMP_MAX: f64 = 1e150;

/// The smallest error that can be squared.
const ERROR_MIN: f64 = 1e-150;

/// Returns `expected` if it is finite, else `last`.
fn finite_or(expected: f64, last: f64) -> f64 {
    if expected.is_finite() { expected } else { last }
}

/// Returns 0 if `value` is too small to be squared, else `value`.
fn without_dust(value: f64) -> f64 {
    if value.abs() < ERROR_MIN { 0.0 } else { value }
}

/// Moves an exponentially weighted mean; it becomes 0 before it is a denormal number.
fn moved(mean: f64, towards: f64, share: f64) -> f64 {
    let mean = mean + share * (towards - mean);
    if mean < ERROR_MIN * ERROR_MIN {
        0.0
    } else {
        mean
    }
}

/// Index of the least value; the first of equal ones.
fn least(of: &[f64]) -> usize {
    let mut at = 0;
    for (index, value) in of.iter().enumerate() {
        if *value < of[at] {
            at = index;
        }
    }
    at
}
