//! The documents in the run directory, as JSON: what the contract of
//! `docs/design/0001-one-node.md` calls `GET /api/v1/sources` and `GET /api/v1/insights`.

use barograph_insight::{Graph, InsightReport, TestRow};
use barograph_model::{Value, base64};
use barograph_source::SourceReport;
use serde_json::{Value as Json, json};

use crate::account::account;

/// Reports of the sources.
pub const SOURCES_DOCUMENT: &str = "sources.json";
/// The insights.
pub const INSIGHTS_DOCUMENT: &str = "insights.json";
/// How the archive is doing; null when history is off.
pub const ARCHIVE_DOCUMENT: &str = "archive.json";
/// Who predicts each stream that is forecast, and how well.
pub const FORECASTS_DOCUMENT: &str = "forecasts.json";
/// What is wanted of the streams that policies are for, and what came of it.
pub const POLICIES_DOCUMENT: &str = "policies.json";
/// Addresses and version of the agent, and where its archive is.
pub const AGENT_DOCUMENT: &str = "agent.json";

/// The whole of `sources.json`.
pub fn sources(reports: &[SourceReport]) -> Json {
    json!(reports)
}

/// The whole of `insights.json`.
pub fn insights(graph: &Graph, sources: &[SourceReport]) -> Json {
    let reports = graph.reports();
    reports.iter().map(|r| insight_json(r, sources)).collect()
}

/// One insight; null when there is none of this name (it was just dropped).
pub fn insight(graph: &Graph, name: &str, sources: &[SourceReport]) -> Json {
    graph
        .reports()
        .iter()
        .find(|r| r.name == name)
        .map_or(Json::Null, |r| insight_json(r, sources))
}

fn insight_json(report: &InsightReport, sources: &[SourceReport]) -> Json {
    let account = account(report, sources);
    json!({
        "name": report.name,
        "table": report.table,
        "sql": report.sql,
        "builtin": report.builtin,
        "unit": report.unit,
        "help": report.help,
        "inputs": report.inputs,
        "groups": report.groups,
        "state": account.state,
        "reason": account.reason,
        "remedy": account.remedy,
        "evaluations": report.evaluations,
        "cost_ns_mean": report.cost_ns / report.evaluations.max(1),
    })
}

/// One row of a test: the labels and `value`.
pub fn test_row(row: &TestRow) -> Json {
    let mut object: serde_json::Map<String, Json> = row
        .labels
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    let value = match &row.value {
        None => Json::Null,
        Some(Value::Int(v)) => json!(v),
        Some(Value::Float(v)) => json!(v),
        Some(Value::Bool(v)) => json!(v),
        Some(Value::Text(v) | Value::Json(v)) => json!(&**v),
        Some(Value::Bytes(v)) => json!(base64(v)),
        Some(Value::Floats(v)) => json!(&**v),
    };
    object.insert("value".into(), value);
    Json::Object(object)
}
