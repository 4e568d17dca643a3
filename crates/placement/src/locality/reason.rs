//! Why a task goes where it goes: as data, for programs, and as a sentence, for people.

/// The reason for the node of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocalityReason {
    /// It goes where it was to run.
    AtPlace {
        /// The expected wait there, in seconds.
        wait_s: f64,
    },
    /// It goes where it must run, however long it waits.
    HardKept {
        /// The expected wait there, in seconds.
        wait_s: f64,
    },
    /// It must run at a place that is unknown or takes no tasks.
    HardIsClosed,
    /// It was to run at a place that is unknown or takes no tasks.
    PlaceIsClosed,
    /// It was to run at its data, and nobody holds any.
    NoData,
    /// Another node has it done earlier, with the move of the data.
    MovingIsCheaper {
        /// The node where it was to run.
        place: u64,
        /// Wait and move there, in seconds.
        at_place_s: f64,
        /// Wait, move, cost and patience for the node that it goes to, in seconds.
        elsewhere_s: f64,
    },
    /// The wait is longer than its bound.
    WaitIsTooLong {
        /// The node where it was to run.
        place: u64,
        /// The wait there, in seconds.
        at_place_s: f64,
        /// The bound, in seconds.
        wait_s_max: f64,
    },
    /// There is no node that takes tasks, among those that were drawn.
    NoNodes,
}

impl LocalityReason {
    /// Whether the wish for a location was overridden.
    pub fn is_overridden(&self) -> bool {
        matches!(
            self,
            Self::PlaceIsClosed | Self::MovingIsCheaper { .. } | Self::WaitIsTooLong { .. }
        )
    }

    /// The reason as a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Self::AtPlace { wait_s } => {
                format!("the task runs where it was to run, after {wait_s:.3} s")
            }
            Self::HardKept { wait_s } => {
                format!("the task must run at its place, however long it waits: {wait_s:.3} s")
            }
            Self::HardIsClosed => {
                "the task must run at a place that is unknown or takes no tasks".to_owned()
            }
            Self::PlaceIsClosed => {
                "the place of the task is unknown or takes no tasks, so it runs elsewhere"
                    .to_owned()
            }
            Self::NoData => "no node holds data of the task, so it runs anywhere".to_owned(),
            Self::MovingIsCheaper {
                place,
                at_place_s,
                elsewhere_s,
            } => format!(
                "node {place} would cost {at_place_s:.3} s of waiting and moving data, and another one {elsewhere_s:.3} s"
            ),
            Self::WaitIsTooLong {
                place,
                at_place_s,
                wait_s_max,
            } => format!(
                "the wait at node {place} is {at_place_s:.3} s, longer than the bound of {wait_s_max:.3} s"
            ),
            Self::NoNodes => "no node takes the task".to_owned(),
        }
    }
}
