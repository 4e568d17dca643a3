//! I/O weights: how large a share of a device a read asks for.
//!
//! `paper` has the weight function as it is printed, `function` the one that is used, and `range`
//! the ranges of the back ends, with what stands for a weight where there is none.

mod function;
mod paper;
mod range;

pub use function::{
    WeightFunction, WeightInputs, WeightParts, WeightProposal, urgency_of_deadline,
};
pub use paper::{PaperCorners, PaperWeight};
pub use range::{WeightRange, limit_of_weight};
