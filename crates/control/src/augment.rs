//! The augmentation: how much of it is read beyond what the error bound needs (Tango,
//! section III-C, step 2, and Algorithm 1, lines 6 and 7).
//!
//! `buckets` counts buckets and errors, `thresholds` has the plot and how its two ends are learnt,
//! and `policy` has the state between steps: hysteresis and probes.

mod buckets;
mod policy;
mod thresholds;

pub use buckets::{BUCKETS_MAX, Bucket, Tier};
pub use policy::{
    AugmentationConfig, AugmentationPlan, AugmentationPolicy, AugmentationRequest,
    BandwidthPrediction, MEASURED_BYTES_MIN, ProbeRead,
};
pub use thresholds::{BandwidthHistory, BandwidthThresholds};
