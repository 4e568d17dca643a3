//! Reports of what a source sees and misses: for `baro doctor`, the page and `GET /api/v1/sources`.

use serde::Serialize;

/// Something that a source could not see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingPart {
    /// The thing that is missing, in words.
    pub what: String,
    /// The reason why it is missing.
    pub why: String,
    /// The remedy: what would help.
    pub remedy: String,
}

impl MissingPart {
    /// Creates it from the missing thing, the reason and the remedy.
    pub fn new(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }
}

/// A description of what a source sees and what it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceCoverage {
    /// One sentence about the things that the source sees.
    pub sees: String,
    /// The things that the source does not see, each with its reason.
    pub missing: Vec<MissingPart>,
}

/// The count with its noun: `1 disk`, `2 disks`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The state of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// The last read gave everything that the source can read.
    Ok,
    /// The last read gave only a part of it.
    Partial,
    /// This machine does not have the interface.
    Unavailable,
    /// The last read failed or hangs.
    Down,
    /// The source is not read, by its configuration.
    Off,
}

impl SourceState {
    /// The name of the state in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Unavailable => "unavailable",
            Self::Down => "down",
            Self::Off => "off",
        }
    }
}

/// The interval of a source whose streams are under policies, with the limits that it results from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PaceReport {
    /// Configured interval, which holds without policies, in ns.
    pub configured_ns: i64,
    /// Time that the policies want between the last read and the next, in ns.
    pub wanted_ns: i64,
    /// Shortest interval that the source, the policies and the budget allow, in ns.
    pub shortest_ns: i64,
    /// Longest interval that the source and the policies allow, in ns.
    pub longest_ns: i64,
    /// Share of one core that the reads took recently.
    pub cpu_share: f64,
}

/// One element of `GET /api/v1/sources`. Sources that are off come last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceReport {
    /// Name of the source.
    pub source: &'static str,
    /// State of the source.
    pub state: SourceState,
    /// One sentence about the things that the source sees.
    pub sees: String,
    /// Number of its streams.
    pub streams: usize,
    /// The things that the source does not see, each with its reason.
    pub missing: Vec<MissingPart>,
    /// Number of reads since the start.
    pub polls: u64,
    /// Number of reads that failed in part or whole.
    pub errors: u64,
    /// Mean duration of a read, in ns.
    pub cost_ns_mean: i64,
    /// Present interval between reads, in ns.
    pub interval_ns: i64,
    /// The wishes and limits behind that interval, if policies decide it.
    pub pace: Option<PaceReport>,
    /// The newest fault, or `None` if there was never one.
    pub last_error: Option<String>,
}
