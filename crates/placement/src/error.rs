//! The errors of placement: one enum, each variant with the target or the value that it is about.

use thiserror::Error;

/// The reason why something cannot be placed as it was asked.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlacementError {
    /// A target that is listed twice.
    #[error("target {target} is listed twice: give each target a number of its own")]
    TargetTwice {
        /// The number of the target.
        target: u64,
    },
    /// A weight that is no number of at least 0.
    #[error("target {target} has weight {weight}: give a finite number of at least 0")]
    Weight {
        /// The number of the target.
        target: u64,
        /// The weight.
        weight: f64,
    },
    /// More targets than one map may have.
    #[error("{targets} targets are more than {most}: group them, and hash into the groups first")]
    TooManyTargets {
        /// The number of targets.
        targets: usize,
        /// The most that there may be.
        most: usize,
    },
    /// A factor of bounded load with which not all keys have room.
    #[error("a load factor of {factor} leaves keys without room: give a finite number from 1 on")]
    Factor {
        /// The factor.
        factor: f64,
    },
}
