//! The predictors that need no training, and what they share: how they stay finite, and how weights over past
//! differences become a path.
//!
//! None is told the scale or the noise of its stream, and no constant here was fitted to a trace. All of them hold to
//! this: a jump of more than [`JUMP_MAX`] between two values is no trend, and begins anew; what would not be finite is
//! said to be the last value; errors too small to be squared are none (numbers near the smallest a double can hold
//! are slow to compute with, and mean nothing).

mod holt;
mod kalman;
mod lags;
mod nlms;
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
pub use persistence::Persistence;
pub use rls::Rls;
pub use spectral::{Period, Spectral};

/// The farthest step that those which go from step to step compute; what is asked beyond is what is said of it.
/// Coarser steps, not more of them, see farther.
pub const STEPS_MAX: u32 = 256;

/// The largest difference between two values that is learned from: its square is still finite.
pub const JUMP_MAX: f64 = 1e150;

/// The least error that can be squared.
const ERROR_MIN: f64 = 1e-150;

/// `expected`, if it is finite.
fn finite_or(expected: f64, last: f64) -> f64 {
    if expected.is_finite() { expected } else { last }
}

/// 0, if `value` is as good as that.
fn without_dust(value: f64) -> f64 {
    if value.abs() < ERROR_MIN { 0.0 } else { value }
}

/// Moves an exponentially weighted mean, and lets it be 0 before it is a denormal.
fn moved(mean: f64, towards: f64, share: f64) -> f64 {
    let mean = mean + share * (towards - mean);
    if mean < ERROR_MIN * ERROR_MIN {
        0.0
    } else {
        mean
    }
}

/// Where the least is; the first of equals.
fn least(of: &[f64]) -> usize {
    let mut at = 0;
    for (index, value) in of.iter().enumerate() {
        if *value < of[at] {
            at = index;
        }
    }
    at
}
