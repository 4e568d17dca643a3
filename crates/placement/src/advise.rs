//! Advisers: which target a block is written to, what is fetched before it is asked for, and which
//! blocks get replicas.
//!
//! They are the three services of Apollo's middleware experiment (apollo.md 4.4.2: HDPE, HDFE and
//! HDRE), as pure functions of the state of targets. `baseline` has what they are compared
//! with. Each gives a [`crate::PlacementDecision`].

mod baseline;
mod heat;
mod place;
mod prefetch;
mod replicate;
mod sequence;

pub use baseline::BaselinePolicy;
pub use heat::{HEAT_SEGMENTS_MAX, SegmentHeat};
pub use place::{PlaceConfig, PlaceRequest, SplitRule, advise_place};
pub use prefetch::{CachedSegment, PrefetchConfig, PrefetchRequest, advise_prefetch};
pub use replicate::{ReplicaConfig, ReplicaRequest, advise_replicas};
pub use sequence::{
    PredictedSegment, READERS_MAX, SUCCESSORS_MAX, SegmentSequences, TRANSITIONS_MAX,
};
