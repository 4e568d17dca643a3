//! Forecasts of a stream with their error: pure functions of the stream's past.
//!
//! A [`Predictor`] receives one value per step and predicts the next ones. A [`Forecaster`]
//! converts the looks at a stream to steps, runs the predictors, follows the one with the least
//! recent error, and calibrates the error of its forecasts. Nothing here reads a clock or a file,
//! and nothing is allocated per sample.

mod cascade;
mod conformal;
pub mod delphi;
mod equal_steps;
mod explain;
mod forecaster;
pub mod interference;
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

pub use cascade::{COARSER, Cascade, HorizonCoverage};
pub use equal_steps::{EqualSteps, Resampling};
pub use explain::{Explanation, FollowReason, LevelExplanation, MemberExplanation};
pub use forecaster::{Forecast, Forecaster, ForecasterConfig, LEVELS, LookEffect};
pub use predictor::Predictor;
pub use random::Random;
pub use select::WORST;
pub use shape::Shape;
pub use steps::GAP_STEPS_MAX;
