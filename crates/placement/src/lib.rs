//! Where data and tasks go.
//!
//! [`Rendezvous`] maps keys to targets by weighted hashing, and [`BoundedLoad`] keeps each target
//! below a bound. [`target_weights`] makes weights of the live state of targets, so that what is
//! known of them counts as far as it is fresh.
//!
//! The crate stands alone because stored data depends on its hash, and because middleware that
//! places data uses it without an agent. It reads no clock, file or socket: times, states
//! and random choices are arguments.

mod bounded;
mod error;
mod hash;
mod reading;
mod rendezvous;
mod target;

pub use bounded::{BoundedLoad, BoundedPlacement, bounded_assignment};
pub use error::PlacementError;
pub use hash::KeyHash;
pub use reading::{Estimate, Reading, ReadingForecast, STALENESS_S_DEFAULT};
pub use rendezvous::{
    DomainId, RankedTarget, Rendezvous, RendezvousTarget, ReplicaTargets, TARGETS_MAX, TargetId,
};
pub use target::{
    BlockRequest, IoDirection, TargetExclusion, TargetState, TargetTier, TargetWeight,
    WeightConfig, exclusion, service_times, target_weights,
};
