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

/// Name and SQL type of each column of a table that SQL makes of a document. A column is the field
/// of the same name in each row; a test of the writer checks that its rows have these fields.
pub type DocumentColumns = &'static [(&'static str, &'static str)];

/// Columns of the table `sources`, made of [`SOURCES_DOCUMENT`].
pub const SOURCES_COLUMNS: DocumentColumns = &[
    ("source", "TEXT"),
    ("state", "TEXT"),
    ("sees", "TEXT"),
    ("streams", "INTEGER"),
    ("missing", "TEXT"),
    ("polls", "INTEGER"),
    ("errors", "INTEGER"),
    ("cost_ns_mean", "REAL"),
    ("interval_ns", "INTEGER"),
    ("last_error", "TEXT"),
];

/// Columns of the table `insights`, made of [`INSIGHTS_DOCUMENT`].
pub const INSIGHTS_COLUMNS: DocumentColumns = &[
    ("name", "TEXT"),
    ("table", "TEXT"),
    ("sql", "TEXT"),
    ("builtin", "BOOLEAN"),
    ("unit", "TEXT"),
    ("help", "TEXT"),
    ("inputs", "TEXT"),
    ("groups", "INTEGER"),
    ("state", "TEXT"),
    ("reason", "TEXT"),
    ("remedy", "TEXT"),
    ("evaluations", "INTEGER"),
    ("cost_ns_mean", "REAL"),
];

/// Columns of the table `forecasts`, made of [`FORECASTS_DOCUMENT`].
pub const FORECASTS_COLUMNS: DocumentColumns = &[
    ("name", "TEXT"),
    ("labels", "TEXT"),
    ("horizon_ns", "INTEGER"),
    ("step_ns", "INTEGER"),
    ("follows", "TEXT"),
    ("reason", "TEXT"),
    ("since_step", "INTEGER"),
    ("steps", "INTEGER"),
    ("switches", "INTEGER"),
    ("compared", "INTEGER"),
    ("confidence", "REAL"),
    ("coverage", "REAL"),
    ("error", "REAL"),
    ("credit", "REAL"),
    ("losses", "TEXT"),
];

/// Columns of the table `policies`, made of [`POLICIES_DOCUMENT`].
pub const POLICIES_COLUMNS: DocumentColumns = &[
    ("name", "TEXT"),
    ("streams", "TEXT"),
    ("kind", "TEXT"),
    ("error", "TEXT"),
    ("confidence", "REAL"),
    ("stream", "TEXT"),
    ("labels", "TEXT"),
    ("source", "TEXT"),
    ("interval_ns", "INTEGER"),
    ("wait_ns", "INTEGER"),
    ("said", "TEXT"),
    ("wrong_share", "REAL"),
    ("looks", "INTEGER"),
    ("looks_per_s", "REAL"),
    ("saved_share", "REAL"),
    ("reason", "TEXT"),
    ("origin", "TEXT"),
    ("sql", "TEXT"),
    ("help", "TEXT"),
];

/// Columns of the table `rules`, made of [`RULES_DOCUMENT`].
pub const RULES_COLUMNS: DocumentColumns = &[
    ("name", "TEXT"),
    ("call", "TEXT"),
    ("sql", "TEXT"),
    ("help", "TEXT"),
    ("state", "TEXT"),
    ("reason", "TEXT"),
    ("subjects", "INTEGER"),
    ("holding", "INTEGER"),
    ("beyond", "INTEGER"),
    ("left_out", "INTEGER"),
    ("fired", "INTEGER"),
    ("suppressed", "INTEGER"),
    ("failed", "INTEGER"),
    ("missed", "INTEGER"),
    ("evaluations", "INTEGER"),
    ("made_ts", "INTEGER"),
    ("last_fired_ts", "INTEGER"),
];

/// Columns of the table `publications`, made of [`PUBLICATIONS_DOCUMENT`].
/// `scope` is the name of the directory, and no field.
pub const PUBLICATIONS_COLUMNS: DocumentColumns = &[
    ("scope", "TEXT"),
    ("name", "TEXT"),
    ("labels", "TEXT"),
    ("application", "TEXT"),
    ("user", "TEXT"),
    ("pid", "INTEGER"),
    ("incarnation", "TEXT"),
    ("started_ts", "INTEGER"),
    ("values", "INTEGER"),
    ("frame", "INTEGER"),
    ("taken", "INTEGER"),
    ("lost", "INTEGER"),
    ("missed", "INTEGER"),
    ("dropped", "INTEGER"),
    ("damaged", "INTEGER"),
    ("refused", "INTEGER"),
    ("refusal", "TEXT"),
    ("newest_ts", "INTEGER"),
    ("left_out", "INTEGER"),
];

/// Columns of the table `knobs`, made of [`KNOBS_DOCUMENT`].
/// `scope` is the name of the directory, and no field.
pub const KNOBS_COLUMNS: DocumentColumns = &[
    ("scope", "TEXT"),
    ("publication", "TEXT"),
    ("name", "TEXT"),
    ("labels", "TEXT"),
    ("type", "TEXT"),
    ("min", ""),
    ("max", ""),
    ("unit", "TEXT"),
    ("value", ""),
    ("ts", "INTEGER"),
    ("help", "TEXT"),
    ("application", "TEXT"),
    ("user", "TEXT"),
    ("pid", "INTEGER"),
    ("incarnation", "TEXT"),
];

/// Columns of the table `calls`, made of [`CALLS_DOCUMENT`].
/// `scope` is the name of the directory, and no field.
pub const CALLS_COLUMNS: DocumentColumns = &[
    ("scope", "TEXT"),
    ("id", "INTEGER"),
    ("ts", "INTEGER"),
    ("name", "TEXT"),
    ("kind", "TEXT"),
    ("user", "TEXT"),
    ("publications", "TEXT"),
    ("target", "TEXT"),
    ("incarnation", "TEXT"),
    ("payload", "TEXT"),
    ("payload_bytes", "INTEGER"),
    ("at_frame", "INTEGER"),
    ("by_user", "INTEGER"),
    ("by_pid", "INTEGER"),
    ("via", "TEXT"),
    ("expires_ts", "INTEGER"),
    ("matched", "INTEGER"),
    ("acknowledged", "INTEGER"),
    ("failed", "INTEGER"),
    ("refused", "INTEGER"),
    ("late", "INTEGER"),
    ("expired", "INTEGER"),
    ("gone", "INTEGER"),
    ("state", "TEXT"),
    ("last_ack_ts", "INTEGER"),
];
