//! What is said to a scheduler and by it: phases that begin, what they may do, and why not.

/// A phase that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseBegin {
    /// Its application.
    pub application: u64,
    /// The user of the application.
    pub user: u32,
    /// The bytes that it will read and write, as far as it knows.
    pub bytes: Option<u64>,
    /// 1 to 10, 10 for the most important application.
    pub priority: u8,
    /// Whether it stops when its grant is taken away. One that does not keeps its grant to the end,
    /// whatever the policy says.
    pub yields: bool,
}

/// Why a phase is not scheduled: its I/O goes on as if there were no scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginRefusal {
    /// The user has too many phases.
    TooManyOfUser,
    /// There are too many phases.
    TooMany,
}

/// Why a grant is not taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeBackRefusal {
    /// The phase has ended, or waits.
    #[error("the phase has no grant any more")]
    NoGrant,
    /// It never says during a phase how far it is, so it does not look whether it may go on.
    #[error("the program does not stop within a phase: it never says how far it is (`step`)")]
    NeverStops,
    /// Nobody waits for it.
    #[error("no other phase of the volume waits, so it would have its grant again at once")]
    NobodyWaits,
}

/// What a phase may do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PhaseState {
    /// It may do I/O with this share until then, and longer if it tells of itself before.
    Granted {
        /// Its share of the storage.
        share: f64,
        /// The time at which the grant ends.
        until_ns: i64,
    },
    /// It waits, and is forgotten at this time if nothing is heard of it.
    Waiting {
        /// The time at which it is forgotten.
        until_ns: i64,
    },
    /// The scheduler does not know it: it has ended, or its lease was over.
    Unknown,
}

/// Numbers of what has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerCounts {
    /// Phases that have begun.
    pub begun: u64,
    /// Phases that have ended by themselves.
    pub ended: u64,
    /// Phases of which nothing was heard any more.
    pub expired: u64,
    /// Phases that were not scheduled, since there were too many.
    pub refused: u64,
    /// Phases that went on without a grant.
    pub went_alone: u64,
    /// Phases that were served beside others since they had waited for too long.
    pub starved: u64,
}
