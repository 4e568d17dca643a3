//! What a source says of itself: for `baro doctor`, the page and `GET /api/v1/sources`.

use serde::Serialize;

use crate::SourceSpec;
use crate::catalogue::{catalogue, cost_of, gives_of, switch_of};

/// Something that a source could not see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// Why.
    pub why: String,
    /// What would help.
    pub remedy: String,
}

impl Missing {
    /// What, why and what would help.
    pub fn new(what: impl Into<String>, why: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
            remedy: remedy.into(),
        }
    }
}

/// What a source sees, and what not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In one sentence.
    pub sees: String,
    /// What is not seen, and why.
    pub missing: Vec<Missing>,
}

/// `1 disk`, `2 disks`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// How well a source does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// All that it knows to read was read.
    Ok,
    /// Some of it.
    Partial,
    /// This machine does not have the interface.
    Unavailable,
    /// The last read failed or hangs.
    Down,
    /// It is not read, as it is configured.
    Off,
}

impl SourceState {
    /// The word of the JSON form.
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

/// How often a source is read while policies decide about its streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PaceReport {
    /// Time between reads without policies.
    pub configured_ns: i64,
    /// What they want, until the next read after the last.
    pub wanted_ns: i64,
    /// What source, policies and budget leave them: no sooner,
    pub shortest_ns: i64,
    /// and no later.
    pub longest_ns: i64,
    /// The share of one core that its reads took of late.
    pub cpu_share: f64,
}

/// One element of `GET /api/v1/sources`. Those of sources that are off come last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceReport {
    /// Name of the source.
    pub source: &'static str,
    /// How well it does.
    pub state: SourceState,
    /// What it sees, in one sentence.
    pub sees: String,
    /// How many streams it has.
    pub streams: usize,
    /// What it does not see, and why.
    pub missing: Vec<Missing>,
    /// Reads since the start.
    pub polls: u64,
    /// Reads that failed in part or whole.
    pub errors: u64,
    /// Mean time of a read.
    pub cost_ns_mean: i64,
    /// Time between reads, at present.
    pub interval_ns: i64,
    /// What decides about that, if policies do.
    pub pace: Option<PaceReport>,
    /// The newest fault, if there ever was one.
    pub last_error: Option<String>,
}

impl SourceReport {
    /// Of a source that is not read: what it would give, what that costs, and how it is switched on.
    pub fn off(spec: &SourceSpec) -> Self {
        let off = Missing::new(
            gives_of(spec.name),
            format!("it is off; it costs: {}", cost_of(spec.name)),
            switch_of(spec.name),
        );
        Self {
            source: spec.name,
            state: SourceState::Off,
            sees: String::new(),
            streams: 0,
            missing: vec![off],
            polls: 0,
            errors: 0,
            cost_ns_mean: 0,
            interval_ns: 0,
            pace: None,
            last_error: None,
        }
    }
}

/// What sources report of themselves, and after them those that are off.
pub fn with_those_that_are_off(reports: &[SourceReport]) -> Vec<SourceReport> {
    let is_off = |spec: &SourceSpec| reports.iter().all(|report| report.source != spec.name);
    let off = catalogue()
        .filter(is_off)
        .map(|spec| SourceReport::off(&spec));
    reports.iter().cloned().chain(off).collect()
}
