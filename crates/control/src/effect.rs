//! Whether what controllers do has the effect for which they do it: from what was observed with and
//! without it, with a stated confidence. What has none is taken back, and held off for a time.
//!
//! A weight takes from others, so it has to show that it gives something (`weights`). Turns are
//! what the administrator has asked for, so it has to show that they give nothing (`turns`). A
//! server that is taken out of a map carries no load any more, so it has to show that its members
//! do more without it (`scale`).

mod rank;
mod scale;
mod turns;
mod weights;

pub use scale::{ScaleEffect, ScaleFinding};
pub use turns::{FinishedPhase, PhaseGain, TurnsEffect, TurnsFinding, TurnsVerdict};
pub use weights::{WeightEffect, WeightFinding, WeightVerdict};

/// The time for which a controller without effect is held off, in ns: 10 minutes.
pub const HOLD_OFF_NS: i64 = 600_000_000_000;
