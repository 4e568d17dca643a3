//! Where data and tasks go.
//!
//! [`Rendezvous`] maps keys to targets by weighted hashing, and [`BoundedLoad`] keeps each target
//! below a bound. [`target_weights`] makes weights of the live state of targets, so that what is
//! known of them counts as far as it is fresh. The advisers propose where a block is written
//! ([`advise_place`]), what is fetched before it is asked for ([`advise_prefetch`]) and what gets
//! replicas ([`advise_replicas`]); each leaves a [`PlacementDecision`]. [`place_task`] weighs the
//! way to the data against the queue there, and [`Locations`] says where data is.
//!
//! The crate stands alone because stored data depends on its hash, and because middleware that
//! places data uses it without an agent. It reads no clock, file or socket: times, states
//! and random choices are arguments.

mod advise;
mod bounded;
mod decision;
mod error;
mod hash;
mod ledger;
mod locality;
mod locations;
mod reading;
mod rendezvous;
mod target;

pub use advise::{
    BaselinePolicy, CachedSegment, HEAT_SEGMENTS_MAX, PlaceConfig, PlaceRequest, PredictedSegment,
    PrefetchConfig, PrefetchRequest, READERS_MAX, ReplicaConfig, ReplicaRequest, SUCCESSORS_MAX,
    SegmentHeat, SegmentSequences, SplitRule, TRANSITIONS_MAX, advise_place, advise_prefetch,
    advise_replicas,
};
pub use bounded::{BoundedLoad, BoundedPlacement, bounded_assignment};
pub use decision::{
    DECISION_PARTS_MAX, DecisionInput, PlacedPiece, PlacementAction, PlacementAlternative,
    PlacementDecision, PredictedEffect,
};
pub use error::PlacementError;
pub use hash::KeyHash;
pub use ledger::{LEDGER_ENTRIES_MAX, PlacementLedger};
pub use locality::{
    ClusterState, DataHolder, LocalityConfig, LocalityDecision, LocalityReason, LocationPlace,
    LocationStrength, NodeState, TaskRequest, WaitingTask, place_task, take_over,
};
pub use locations::{
    KeyLocation, LOCATION_KEY_BYTES_MAX, LOCATION_KEYS_MAX, LOCATION_REPLICAS_MAX, LinkCost,
    LocateAnswer, LocatedReplica, LocationChanges, LocationPut, Locations, READ_COSTS_MAX,
    ReadCosts, Replica, TierCost,
};
pub use reading::{Estimate, Reading, ReadingForecast, STALENESS_S_DEFAULT};
pub use rendezvous::{
    DomainId, RankedTarget, Rendezvous, RendezvousTarget, ReplicaTargets, TARGETS_MAX, TargetId,
};
pub use target::{
    BlockRequest, IoDirection, TargetExclusion, TargetState, TargetTier, TargetWeight,
    WeightConfig, exclusion, service_times, target_weights,
};
