//! What a stream will be, and how far off that may be: pure functions of what it was.
//!
//! A [`Predictor`] sees one value per step and says what the next ones will be. `Forecaster` makes steps of the
//! looks at a stream, runs the predictors, follows the one that was best of late, and calibrates the error of what
//! it says. Nothing here reads a clock or a file, and nothing is allocated for a sample.

pub mod interval;

mod predictor;

pub use predictor::Predictor;
