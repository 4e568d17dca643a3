//! The documents: JSON files of a run directory in which an agent describes itself, with the fields
//! of their rows.
//!
//! They are a module of their own because the agent writes them, and SQL, the server and commands
//! read them. Some are written from types of the agent's own, which a test compares with these.

use std::collections::BTreeMap;
use std::path::PathBuf;

use barograph_model::Labels;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value as Json;

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
/// One row per device whose bandwidth is forecast, and one per writer on it.
pub const INTERFERENCE_DOCUMENT: &str = "interference.json";
/// Problems with the files of statements; empty if there are none.
pub const STATEMENTS_DOCUMENT: &str = "statements.json";
/// Addresses and version of the agent, and the directory of its archive.
pub const AGENT_DOCUMENT: &str = "agent.json";
/// One row per rule.
pub const RULES_DOCUMENT: &str = "rules.json";
/// One row per other node of the cluster; empty if the agent is in no cluster.
pub const PEERS_DOCUMENT: &str = "peers.json";
/// One row per insight of the cluster; empty if the agent is in no cluster.
pub const CLUSTER_INSIGHTS_DOCUMENT: &str = "cluster_insights.json";
/// One row per node of each of the last statements over nodes.
pub const QUERY_NODES_DOCUMENT: &str = "query_nodes.json";
/// One row per node to which the agent sends its streams; empty if the agent is in no cluster.
pub const SUBSCRIBERS_DOCUMENT: &str = "subscribers.json";
/// Counts of what the agent sends to other nodes, and why some refuse it; null without a cluster.
pub const CLUSTER_DOCUMENT: &str = "cluster.json";
/// One row per publication of a scope.
pub const PUBLICATIONS_DOCUMENT: &str = "publications.json";
/// One row per knob that programs of a scope offer.
pub const KNOBS_DOCUMENT: &str = "knobs.json";
/// One row per watch whose events the readers of a scope may read.
pub const WATCHES_DOCUMENT: &str = "watches.json";
/// One row per action of rules on events whose source the readers of a scope may read.
pub const ACTIONS_DOCUMENT: &str = "actions.json";
/// One row per handler that programs of a scope offer.
pub const HANDLERS_DOCUMENT: &str = "handlers.json";
/// One row per call into programs of a scope, with its outcome.
pub const CALLS_DOCUMENT: &str = "calls.json";

/// One row per controller: what it does at present, and by whom.
pub const CONTROLLERS_DOCUMENT: &str = "controllers.json";
/// One row per decision of a controller that the readers of a scope may read.
pub const DECISIONS_DOCUMENT: &str = "decisions.json";
/// The stream of each controller's decisions, labelled `controller`: rows as those of
/// [`DECISIONS_DOCUMENT`], as they are made and when they change.
pub const DECISION_STREAM: &str = "control.decision";
/// Phases of I/O of applications on scheduled volumes.
pub const IO_PHASES_DOCUMENT: &str = "io_phases.json";
/// Maps of servers: all of them on the node that leads, those of its programs on others.
pub const SERVER_MAPS_DOCUMENT: &str = "server_maps.json";
/// One row per server of a map, with its load.
pub const MAP_SERVERS_DOCUMENT: &str = "map_servers.json";

/// Name and SQL type of each column of a table that SQL makes of a document. A column is the field
/// of the same name in each row.
pub type DocumentColumns = &'static [(&'static str, &'static str)];

/// The type of a document's rows, and the columns of the table that SQL makes of them. A field with
/// an SQL type is a column; the fields after the semicolon are in the document and not in the
/// table. A row of another version may have other fields: those that are unknown are ignored, and
/// those that are missing, null or of another type are empty.
macro_rules! document_rows {
    ($row:ident, $columns:ident of $document:ident:
     $($(#[$attribute:meta])* $column:ident: $of:ty = $sql:literal,)*
     $(; $($field:ident: $type:ty,)*)?) => {
        #[doc = concat!("One row of [`", stringify!($document), "`].")]
        #[expect(missing_docs, reason = "the guides describe the columns")]
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $row {
            $(
                $(#[$attribute])*
                #[serde(deserialize_with = "or_empty")]
                pub $column: $of,
            )*
            $($(
                #[serde(deserialize_with = "or_empty")]
                pub $field: $type,
            )*)?
        }

        #[doc = concat!("Columns of the table made of [`", stringify!($document), "`].")]
        pub const $columns: DocumentColumns = &[$((bare(stringify!($column)), $sql)),*];
    };
}

/// Reads a field. One that is null or of another type, as an agent of another version may write it,
/// is empty, so that the rest of the row can be shown.
fn or_empty<'de, T: DeserializeOwned + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Json::deserialize(deserializer)?).unwrap_or_default())
}

/// The name without the mark of a name that is a keyword of Rust.
const fn bare(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

document_rows! {
    SourcesRow, SOURCES_COLUMNS of SOURCES_DOCUMENT:
    source: String = "TEXT",
    state: String = "TEXT",
    sees: String = "TEXT",
    streams: u64 = "INTEGER",
    missing: Vec<MissingRow> = "TEXT",
    polls: u64 = "INTEGER",
    errors: u64 = "INTEGER",
    cost_ns_mean: i64 = "REAL",
    interval_ns: i64 = "INTEGER",
    last_error: Option<String> = "TEXT",
    ;
    pace: Option<Json>,
}

document_rows! {
    InsightsRow, INSIGHTS_COLUMNS of INSIGHTS_DOCUMENT:
    name: String = "TEXT",
    table: String = "TEXT",
    sql: String = "TEXT",
    builtin: bool = "BOOLEAN",
    unit: String = "TEXT",
    help: String = "TEXT",
    inputs: Vec<String> = "TEXT",
    groups: u64 = "INTEGER",
    state: String = "TEXT",
    reason: String = "TEXT",
    remedy: String = "TEXT",
    evaluations: u64 = "INTEGER",
    cost_ns_mean: i64 = "REAL",
}

document_rows! {
    ForecastsRow, FORECASTS_COLUMNS of FORECASTS_DOCUMENT:
    name: Option<String> = "TEXT",
    labels: BTreeMap<String, String> = "TEXT",
    horizon_ns: Option<i64> = "INTEGER",
    step_ns: Option<i64> = "INTEGER",
    follows: Option<String> = "TEXT",
    reason: String = "TEXT",
    since_step: Option<u64> = "INTEGER",
    steps: Option<u64> = "INTEGER",
    switches: Option<u64> = "INTEGER",
    compared: Option<u64> = "INTEGER",
    confidence: Option<f64> = "REAL",
    coverage: Option<f64> = "REAL",
    error: Option<f64> = "REAL",
    credit: Option<f64> = "REAL",
    losses: BTreeMap<String, Option<f64>> = "TEXT",
    ;
    streams: u64,
    looks: u64,
}

document_rows! {
    PoliciesRow, POLICIES_COLUMNS of POLICIES_DOCUMENT:
    name: String = "TEXT",
    streams: String = "TEXT",
    kind: String = "TEXT",
    error: Option<String> = "TEXT",
    confidence: Option<f64> = "REAL",
    stream: Option<String> = "TEXT",
    labels: Option<BTreeMap<String, String>> = "TEXT",
    source: Option<String> = "TEXT",
    interval_ns: Option<i64> = "INTEGER",
    wait_ns: Option<i64> = "INTEGER",
    said: Option<String> = "TEXT",
    wrong_share: Option<f64> = "REAL",
    looks: Option<u64> = "INTEGER",
    looks_per_s: Option<f64> = "REAL",
    saved_share: Option<f64> = "REAL",
    reason: String = "TEXT",
    origin: String = "TEXT",
    sql: Option<String> = "TEXT",
    help: String = "TEXT",
    ;
    interval_min_ms: Option<i64>,
    interval_max_ms: Option<i64>,
    sentinel: Option<String>,
    pressure: Option<String>,
    weight: Option<f64>,
}

document_rows! {
    InterferenceRow, INTERFERENCE_COLUMNS of INTERFERENCE_DOCUMENT:
    device: String = "TEXT",
    writer: Option<String> = "TEXT",
    periodic: Option<bool> = "BOOLEAN",
    period_ns: Option<i64> = "INTEGER",
    period_error_ns: Option<i64> = "INTEGER",
    next_ts: Option<i64> = "INTEGER",
    jitter_ns: Option<i64> = "INTEGER",
    burst_bytes: Option<f64> = "REAL",
    burst_bytes_spread: Option<f64> = "REAL",
    bursts: Option<u64> = "INTEGER",
    rate: Option<f64> = "REAL",
    capacity: Option<f64> = "REAL",
    capacity_source: Option<String> = "TEXT",
    bandwidth: Option<f64> = "REAL",
    error: Option<f64> = "REAL",
    confidence: Option<f64> = "REAL",
    follows: Option<String> = "TEXT",
    reason: String = "TEXT",
    ts: i64 = "INTEGER",
    ;
    steps: Vec<InterferenceStep>,
    left_out: u64,
}

/// The bandwidth that is forecast for one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InterferenceStep {
    /// Time at which the step begins, in ns since the epoch.
    pub ts: i64,
    /// Bandwidth, in bytes per second.
    pub bandwidth: f64,
    /// Half width of its interval, in bytes per second.
    pub error: f64,
    /// The model that is followed.
    pub follows: String,
}

document_rows! {
    PeersRow, PEERS_COLUMNS of PEERS_DOCUMENT:
    node: String = "TEXT",
    state: String = "TEXT",
    heard_ts: i64 = "INTEGER",
    round_trip_ns: Option<i64> = "INTEGER",
    ahead_ns: Option<i64> = "INTEGER",
    streams: u64 = "INTEGER",
    samples: u64 = "INTEGER",
    missed: u64 = "INTEGER",
    holes: u64 = "INTEGER",
    fault: Option<String> = "TEXT",
}

document_rows! {
    ClusterInsightsRow, CLUSTER_INSIGHTS_COLUMNS of CLUSTER_INSIGHTS_DOCUMENT:
    name: String = "TEXT",
    runs_on: Vec<String> = "TEXT",
    sql: String = "TEXT",
    changed_by: String = "TEXT",
    changed_ts: i64 = "INTEGER",
    inputs: BTreeMap<String, u64> = "TEXT",
    fault: String = "TEXT",
}

document_rows! {
    SubscribersRow, SUBSCRIBERS_COLUMNS of SUBSCRIBERS_DOCUMENT:
    node: String = "TEXT",
    scope: String = "TEXT",
    state: String = "TEXT",
    samples: u64 = "INTEGER",
    bytes: u64 = "INTEGER",
    past: u64 = "INTEGER",
    lost: u64 = "INTEGER",
    unsent_streams: u64 = "INTEGER",
    unsent_streams_max: u64 = "INTEGER",
    ended_unsent: u64 = "INTEGER",
    ended_unread: u64 = "INTEGER",
    searches_failed: u64 = "INTEGER",
}

document_rows! {
    QueryNodesRow, QUERY_NODES_COLUMNS of QUERY_NODES_DOCUMENT:
    statement: u64 = "INTEGER",
    ts: i64 = "INTEGER",
    node: String = "TEXT",
    state: String = "TEXT",
    rows: u64 = "INTEGER",
    elapsed_ns: i64 = "INTEGER",
}

document_rows! {
    RulesRow, RULES_COLUMNS of RULES_DOCUMENT:
    name: String = "TEXT",
    call: String = "TEXT",
    sql: String = "TEXT",
    help: String = "TEXT",
    state: String = "TEXT",
    reason: String = "TEXT",
    subjects: usize = "INTEGER",
    holding: usize = "INTEGER",
    beyond: usize = "INTEGER",
    left_out: u64 = "INTEGER",
    fired: u64 = "INTEGER",
    suppressed: u64 = "INTEGER",
    failed: u64 = "INTEGER",
    missed: u64 = "INTEGER",
    evaluations: u64 = "INTEGER",
    made_ts: i64 = "INTEGER",
    last_fired_ts: Option<i64> = "INTEGER",
}

document_rows! {
    WatchesRow, WATCHES_COLUMNS of WATCHES_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    name: String = "TEXT",
    path: String = "TEXT",
    collector: String = "TEXT",
    state: String = "TEXT",
    events: u64 = "INTEGER",
    directories: u64 = "INTEGER",
    watches: u64 = "INTEGER",
    gaps: u64 = "INTEGER",
    reconciled: u64 = "INTEGER",
    unresolved: u64 = "INTEGER",
    senseless: u64 = "INTEGER",
    idx: u64 = "INTEGER",
    durable_idx: u64 = "INTEGER",
    waiting_bytes: u64 = "INTEGER",
    recorded_again: u64 = "INTEGER",
    trouble: String = "TEXT",
}

document_rows! {
    ActionsRow, ACTIONS_COLUMNS of ACTIONS_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    id: u64 = "INTEGER",
    rule: String = "TEXT",
    state: String = "TEXT",
    source: String = "TEXT",
    idx: u64 = "INTEGER",
    key: String = "TEXT",
    delivery: String = "TEXT",
    attempts: u32 = "INTEGER",
    attempts_max: u32 = "INTEGER",
    enqueued_ts: i64 = "INTEGER",
    started_ts: Option<i64> = "INTEGER",
    due_ts: Option<i64> = "INTEGER",
    ended_ts: Option<i64> = "INTEGER",
    reason: String = "TEXT",
}

document_rows! {
    ControllersRow, CONTROLLERS_COLUMNS of CONTROLLERS_DOCUMENT:
    name: String = "TEXT",
    level: String = "TEXT",
    about: String = "TEXT",
    mode: String = "TEXT",
    by: String = "TEXT",
    since_ts: Option<i64> = "INTEGER",
    until_ts: Option<i64> = "INTEGER",
    reason: String = "TEXT",
    decisions: u64 = "INTEGER",
    outcomes: Json = "TEXT",
    last_ts: Option<i64> = "INTEGER",
    last_id: Option<u64> = "INTEGER",
    held_off: Vec<Json> = "TEXT",
}

document_rows! {
    DecisionsRow, DECISIONS_COLUMNS of DECISIONS_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    id: u64 = "INTEGER",
    plan: u64 = "INTEGER",
    made_ts: i64 = "INTEGER",
    controller: String = "TEXT",
    device: String = "TEXT",
    user: String = "TEXT",
    label: String = "TEXT",
    subject: String = "TEXT",
    proposal: Json = "REAL",
    value: Json = "REAL",
    reason: String = "TEXT",
    inputs: BTreeMap<String, Json> = "TEXT",
    alternatives: Vec<Json> = "TEXT",
    limits: Vec<Json> = "TEXT",
    outcome: String = "TEXT",
    outcome_reason: String = "TEXT",
    effect: Option<Json> = "TEXT",
    dropped: u64 = "INTEGER",
}

document_rows! {
    IoPhasesRow, IO_PHASES_COLUMNS of IO_PHASES_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    id: u64 = "INTEGER",
    volume: String = "TEXT",
    application: String = "TEXT",
    job: String = "TEXT",
    user: String = "TEXT",
    processes: u64 = "INTEGER",
    state: String = "TEXT",
    share: f64 = "REAL",
    priority: u64 = "INTEGER",
    begun_ts: i64 = "INTEGER",
    started_ts: Option<i64> = "INTEGER",
    ended_ts: Option<i64> = "INTEGER",
    waited_s: Option<f64> = "REAL",
    took_s: Option<f64> = "REAL",
    declared_bytes: Option<u64> = "INTEGER",
    done_bytes: u64 = "INTEGER",
    period_s: Option<f64> = "REAL",
    policy: String = "TEXT",
    reason: String = "TEXT",
}

document_rows! {
    ServerMapsRow, SERVER_MAPS_COLUMNS of SERVER_MAPS_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    name: String = "TEXT",
    user: String = "TEXT",
    application: String = "TEXT",
    seen_by: String = "TEXT",
    epoch: u64 = "INTEGER",
    next_epoch: Option<u64> = "INTEGER",
    stage: String = "TEXT",
    servers: Vec<u32> = "TEXT",
    nodes: u64 = "INTEGER",
    members: u64 = "INTEGER",
    running: u64 = "INTEGER",
    operations_s: Option<f64> = "REAL",
    out_servers: Vec<u32> = "TEXT",
    gone_servers: Vec<u32> = "TEXT",
    slow_server: Option<u64> = "INTEGER",
    slow_ratio: Option<f64> = "REAL",
    changed_ts: Option<i64> = "INTEGER",
    change_s: Option<f64> = "REAL",
    aborted: String = "TEXT",
}

document_rows! {
    MapServersRow, MAP_SERVERS_COLUMNS of MAP_SERVERS_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    map: String = "TEXT",
    user: String = "TEXT",
    server: u32 = "INTEGER",
    state: String = "TEXT",
    requests_s: Option<f64> = "REAL",
    service_s: Option<f64> = "REAL",
    slow_ratio: Option<f64> = "REAL",
}

document_rows! {
    PublicationsRow, PUBLICATIONS_COLUMNS of PUBLICATIONS_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    name: String = "TEXT",
    labels: BTreeMap<String, String> = "TEXT",
    application: String = "TEXT",
    user: String = "TEXT",
    pid: Option<u32> = "INTEGER",
    incarnation: String = "TEXT",
    started_ts: i64 = "INTEGER",
    values: u64 = "INTEGER",
    frame: Option<u64> = "INTEGER",
    taken: u64 = "INTEGER",
    lost: u64 = "INTEGER",
    missed: u64 = "INTEGER",
    dropped: u64 = "INTEGER",
    damaged: u64 = "INTEGER",
    refused: u64 = "INTEGER",
    refusal: String = "TEXT",
    newest_ts: i64 = "INTEGER",
    left_out: u64 = "INTEGER",
    ;
    cut: u64,
}

document_rows! {
    KnobsRow, KNOBS_COLUMNS of KNOBS_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    publication: String = "TEXT",
    name: String = "TEXT",
    labels: BTreeMap<String, String> = "TEXT",
    r#type: String = "TEXT",
    min: Json = "",
    max: Json = "",
    unit: String = "TEXT",
    value: Json = "",
    ts: Option<i64> = "INTEGER",
    help: String = "TEXT",
    application: String = "TEXT",
    user: String = "TEXT",
    pid: u32 = "INTEGER",
    incarnation: String = "TEXT",
    ;
    left_out: u64,
}

document_rows! {
    CallsRow, CALLS_COLUMNS of CALLS_DOCUMENT:
    #[serde(skip_serializing)]
    scope: String = "TEXT",
    id: u64 = "INTEGER",
    ts: i64 = "INTEGER",
    name: String = "TEXT",
    kind: String = "TEXT",
    user: String = "TEXT",
    publications: Vec<String> = "TEXT",
    target: BTreeMap<String, String> = "TEXT",
    incarnation: Option<String> = "TEXT",
    payload: Option<String> = "TEXT",
    payload_bytes: u64 = "INTEGER",
    at_frame: Option<u64> = "INTEGER",
    by_user: Option<u32> = "INTEGER",
    by_pid: Option<u32> = "INTEGER",
    via: Option<String> = "TEXT",
    expires_ts: i64 = "INTEGER",
    matched: u64 = "INTEGER",
    acknowledged: u64 = "INTEGER",
    failed: u64 = "INTEGER",
    refused: u64 = "INTEGER",
    late: u64 = "INTEGER",
    expired: u64 = "INTEGER",
    gone: u64 = "INTEGER",
    state: String = "TEXT",
    last_ack_ts: Option<i64> = "INTEGER",
}

/// Something that a source does not see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MissingRow {
    /// The thing that it does not see.
    #[serde(deserialize_with = "or_empty")]
    pub what: String,
    /// The reason.
    #[serde(deserialize_with = "or_empty")]
    pub why: String,
    /// The change that would help.
    #[serde(deserialize_with = "or_empty")]
    pub remedy: String,
}

/// One row of [`HANDLERS_DOCUMENT`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandlersRow {
    /// The scope, which whoever reads the document sets from the name of its directory.
    #[serde(skip_serializing, deserialize_with = "or_empty")]
    pub scope: String,
    /// Name of the handler.
    #[serde(deserialize_with = "or_empty")]
    pub name: String,
    /// The publication that it belongs to, if it is not the program's.
    #[serde(deserialize_with = "or_empty")]
    pub publication: Option<String>,
    /// Labels of that publication.
    #[serde(deserialize_with = "or_empty")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The purpose of the handler.
    #[serde(deserialize_with = "or_empty")]
    pub help: String,
    /// The application, as its programs name themselves.
    #[serde(deserialize_with = "or_empty")]
    pub application: String,
    /// The name of the user who runs the program.
    #[serde(deserialize_with = "or_empty")]
    pub user: String,
    /// The process.
    #[serde(deserialize_with = "or_empty")]
    pub pid: u32,
    /// The life of the process.
    #[serde(deserialize_with = "or_empty")]
    pub incarnation: String,
    /// Number of rows of the same user that found no room.
    #[serde(deserialize_with = "or_empty")]
    pub left_out: u64,
}

/// One row of [`STATEMENTS_DOCUMENT`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementsRow {
    /// The file of statements.
    #[serde(deserialize_with = "or_empty")]
    pub file: String,
    /// The present problem with writing it; empty if there is none.
    #[serde(deserialize_with = "or_empty")]
    pub trouble: String,
    /// The fault that it had when it was read; empty if it had none.
    #[serde(deserialize_with = "or_empty")]
    pub found: String,
}

/// The contents of [`AGENT_DOCUMENT`], of an agent or of one of its scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentDocument {
    /// Name of the node.
    #[serde(deserialize_with = "or_empty")]
    pub node: String,
    /// Version of the agent.
    #[serde(deserialize_with = "or_empty")]
    pub version: String,
    /// Its process.
    #[serde(deserialize_with = "or_empty")]
    pub pid: u32,
    /// Time of its start, in ns since the epoch.
    #[serde(deserialize_with = "or_empty")]
    pub started_ts: i64,
    /// The address of its page, if it has one.
    #[serde(deserialize_with = "or_empty")]
    pub http: Option<String>,
    /// Name of the scope; none in the document of the agent itself.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Its state directory; none in the document of a scope.
    #[serde(deserialize_with = "or_empty")]
    pub state: Option<PathBuf>,
    /// The directory of the archive, if history is kept and everyone may read it.
    #[serde(deserialize_with = "or_empty")]
    pub archive: Option<PathBuf>,
    /// Paths of the volumes whose I/O is scheduled; none in the document of a scope.
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<PathBuf>,
}

/// Labels that serialize as a JSON object.
#[derive(Clone, Copy, Debug)]
pub struct LabelsJson<'a>(pub &'a Labels);

impl Serialize for LabelsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_other_versions_are_empty_and_hide_nothing() {
        let text =
            r#"{"source": 5, "state": "ok", "polls": null, "cost_ns_mean": "much", "new": 1}"#;
        let row: SourcesRow = serde_json::from_str(text).unwrap();
        let expect = SourcesRow {
            state: "ok".into(),
            ..SourcesRow::default()
        };
        assert_eq!(row, expect);
        let agent: AgentDocument = serde_json::from_str(r#"{"node": "n", "pid": -1}"#).unwrap();
        assert_eq!((agent.node.as_str(), agent.pid), ("n", 0));
    }
}
