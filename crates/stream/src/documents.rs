//! Names of the documents: the JSON files of a run directory in which an agent describes itself.
//!
//! They are a module of their own because the agent writes these files, and SQL, the server and the
//! command line read them.

/// One row per source: its streams, its cost, and what is missing.
pub const SOURCES_DOCUMENT: &str = "sources.json";
/// One row per insight.
pub const INSIGHTS_DOCUMENT: &str = "insights.json";
/// The state of the archive; null if history is off.
pub const ARCHIVE_DOCUMENT: &str = "archive.json";
/// One row per stream that has a forecast: its predictors and their accuracy.
pub const FORECASTS_DOCUMENT: &str = "forecasts.json";
/// One row per policy and stream that it governs.
pub const POLICIES_DOCUMENT: &str = "policies.json";
/// Problems with the files of statements; empty if there are none.
pub const STATEMENTS_DOCUMENT: &str = "statements.json";
/// Addresses and version of the agent, and the directory of its archive.
pub const AGENT_DOCUMENT: &str = "agent.json";
/// One row per rule.
pub const RULES_DOCUMENT: &str = "rules.json";
/// One row per publication of a scope.
pub const PUBLICATIONS_DOCUMENT: &str = "publications.json";
/// One row per knob that programs of a scope offer.
pub const KNOBS_DOCUMENT: &str = "knobs.json";
/// One row per handler that programs of a scope offer.
pub const HANDLERS_DOCUMENT: &str = "handlers.json";
/// One row per call into programs of a scope, with its outcome.
pub const CALLS_DOCUMENT: &str = "calls.json";
