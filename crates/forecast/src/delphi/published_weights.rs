//! Made by `cargo run --release -p barograph-forecast --example delphi -- train`: do not edit.

use super::published::Weights;

/// A place to begin.
pub const WEIGHTS: Weights = Weights {
    neurons: [[0.0; 6]; 7],
    stack: [0.0; 8],
};

/// Of that training.
#[cfg(test)]
pub const SEED: u64 = 0;
