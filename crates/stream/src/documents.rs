//! Names of the documents: the JSON files of a run directory in which an agent describes itself.
//!
//! They stand alone because the agent writes these files and SQL, the server and the command line
//! read them.

/// One row for each source: what it sees, its cost, and what is missing.
pub const SOURCES_DOCUMENT: &str = "sources.json";
/// One row for each insight.
pub const INSIGHTS_DOCUMENT: &str = "insights.json";
/// The archive's state; null when history is off.
pub const ARCHIVE_DOCUMENT: &str = "archive.json";
/// One row for each stream that has a forecast: its predictors and how good they are.
pub const FORECASTS_DOCUMENT: &str = "forecasts.json";
/// One row for each policy and stream that it governs.
pub const POLICIES_DOCUMENT: &str = "policies.json";
/// Problems with the files of statements; empty when there is none.
pub const STATEMENTS_DOCUMENT: &str = "statements.json";
/// Addresses and version of the agent, and the directory of its archive.
pub const AGENT_DOCUMENT: &str = "agent.json";
/// One row for each trigger that was made by CREATE TRIGGER.
pub const TRIGGERS_DOCUMENT: &str = "declared_triggers.json";
/// One row for each publication of a scope.
pub const PUBLICATIONS_DOCUMENT: &str = "publications.json";
/// One row for each knob that programs of a scope offer.
pub const KNOBS_DOCUMENT: &str = "knobs.json";
/// One row for each handler that programs of a scope offer.
pub const HANDLERS_DOCUMENT: &str = "handlers.json";
/// One row for each call into programs of a scope, and its outcome.
pub const CALLS_DOCUMENT: &str = "calls.json";
