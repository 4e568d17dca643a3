//! What a stream will be, and how far off that may be: pure functions of what it was.
//!
//! A [`Predictor`] sees one value per step and says what the next ones will be. [`Forecaster`] makes steps of the
//! looks at a stream, runs the predictors, follows the one that was best of late, and calibrates the error of what
//! it says. Nothing here reads a clock or a file, and nothing is allocated for a sample.

mod cascade;
mod conformal;
pub mod delphi;
mod equal_steps;
mod explain;
mod forecaster;
pub mod interval;
mod members;
mod predictor;
pub mod predictors;
mod project;
mod random;
mod said;
mod select;
mod shape;
mod steps;
mod straight;

pub use cascade::{COARSER, Cascade, Coverage};
pub use equal_steps::{EqualSteps, Resampling};
pub use explain::{Explanation, LevelExplanation, MemberExplanation, Reason};
pub use forecaster::{Forecast, Forecaster, ForecasterConfig, LEVELS, Taken};
pub use predictor::Predictor;
pub use random::Random;
pub use select::WORST;
pub use shape::Shape;
pub use steps::GAP_STEPS_MAX;
