//! The intake's parts, its events, and the stages and results of its steps.

use std::sync::Arc;

use barograph_call::Board;
use barograph_stream::Incarnation;

use crate::bridge::Bridge;
use crate::config::ApplicationsConfig;
use crate::counts::IngestCounts;
use crate::door::Knocks;
use crate::event_door::EventStreams;
use crate::scope::ScopeSettings;

/// The parts that an intake is made of.
pub(crate) struct IntakeParts {
    pub settings: ScopeSettings,
    pub limits: ApplicationsConfig,
    /// Counts of ingest files for the agent's own streams.
    pub counts: Arc<IngestCounts>,
    pub board: Arc<Board>,
    pub bridge: Bridge,
    pub events: EventStreams,
}

/// Everything that can happen to the intake, apart from the passing of time and what its users put.
pub(crate) enum IntakeEvent {
    /// Knocks were read from the door.
    Knocks(Knocks),
    /// These processes have begun or ended a phase of I/O, and may wait for an answer.
    Phases(Vec<Incarnation>),
    /// The request to stop, after everything that is committed was taken in.
    Stop,
}

/// The time of the next step, in ns of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// At this time; knocks wait until then.
    At(i64),
    /// At this time, or as soon as somebody knocks.
    AtOrKnock(i64),
    /// Never: everything is taken in.
    Never,
}

/// The stage of the steps. Times are those at which a stage ends at the latest.
#[derive(Clone, Copy)]
pub(super) enum IntakeStage {
    /// The steps wait for the scopes of earlier lives and for the rate of the counter.
    Beginning(i64),
    /// The steps make rounds.
    Running,
    /// The steps make last rounds until nothing is left to take in, and all of it is safe.
    Ending(i64),
    Ended,
}

/// The result of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundEnd {
    pub has_news: bool,
    /// Whether work is left that only the round's bounds have put off.
    pub has_more: bool,
}
