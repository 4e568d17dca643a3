//! Controllers of storage: how much of an augmentation is read, with which I/O weight it is read,
//! and what was decided and why.
//!
//! The policies are those of Tango (Qiao et al., "Tango: A Cross-layer Approach to Managing I/O
//! Interference over Local Ephemeral Storage"): an [`AugmentationPolicy`] maps the predicted
//! bandwidth of a device to a number of buckets, never fewer than the error bound needs, and a
//! [`WeightFunction`] maps what is to be read to a weight. Both are pure, so that a simulation and
//! the agent run the same code. A [`Decision`] records what a policy proposed, what limits made of
//! it, what was done and what came of it. [`cgroup`] carries weights out: it is the one module
//! that touches files.
//!
//! What many processes agree on is CLARISSE's (its slides, and what they leave open): a
//! [`SchedulePolicy`] says which phases of I/O may go on now, an [`EpochController`] changes
//! the map of servers while members do I/O, and [`SlowServers`] finds a server that is slower
//! than its peers.
//!
//! The crate stands alone because it is the boundary between proposals and the system: what is
//! written to a control group is written here, and what was written can be restored.

mod augment;
mod bound;
pub mod cgroup;
mod decision;
mod effect;
mod epoch;
mod error;
mod leadership;
mod schedule;
mod slow;
mod weight;

pub use augment::{
    AugmentationConfig, AugmentationPlan, AugmentationPolicy, AugmentationRequest, BUCKETS_MAX,
    BandwidthHistory, BandwidthPrediction, BandwidthThresholds, Bucket, MEASURED_BYTES_MIN,
    ProbeRead, Tier,
};
pub use bound::{ErrorBound, ErrorMetric};
pub use decision::{
    Alternative, ControlMode, Decision, DecisionEffect, DecisionLimit, DecisionOutcome,
    DecisionValue,
};
pub use effect::{
    FinishedPhase, HOLD_OFF_NS, PhaseGain, ScaleEffect, ScaleFinding, TurnsEffect, TurnsFinding,
    TurnsVerdict, WeightEffect, WeightFinding, WeightVerdict,
};
pub use epoch::{
    ChangeEnd, ChangeRefusal, ControllerMessage, ControllerOutput, ControllerWord, DatasetMap,
    EpochChange, EpochController, EpochMember, EpochNode, EpochOrder, EpochRecord, EpochServer,
    EpochStart, EpochTimes, EpochUse, EpochUseId, MemberOutput, NodeId, NodeOutput, NodeServer,
    NodeTell, NodeWord, OperationStart, ProcessId, ProcessWord, ServerAnswer, ServerMap,
    ToldEpochs,
};
pub use error::ControlError;
pub use leadership::{
    LEADERS_MAX, LeaderElection, LeaderRecord, LeaderReplica, LeaderTimes, LeaderWord,
    LeadershipState, RECORD_BYTES_MAX, RECORD_KEY_BYTES_MAX, RECORDS_MAX, ReplicaAnswer,
    ReplicaRefusal, SaveEnd,
};
pub use schedule::{
    AdaptiveConfig, ApplicationHistory, BeginRefusal, EndedPhase, IoPhase, IoScheduler,
    MemberAnswer, MemberBounds, MemberId, MemberReport, MemberStage, PhaseBegin, PhaseGrant,
    PhasePeriod, PhaseState, SchedulePlan, SchedulePolicy, ScheduleState, SchedulerConfig,
    SchedulerCounts, TakeBackRefusal, USER_AHEAD_S_MAX, UserShares, UserStanding, VolumePhase,
    VolumeScheduler, offered_load,
};
pub use slow::{ServerSample, SlowConfig, SlowServer, SlowServers};
pub use weight::{
    PaperCorners, PaperWeight, WeightFunction, WeightInputs, WeightParts, WeightProposal,
    WeightRange, limit_of_weight, urgency_of_deadline,
};
