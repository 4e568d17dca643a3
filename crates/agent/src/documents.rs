//! The documents in the run directory, as JSON: what the contract of
//! `docs/design/0001-one-node.md` calls `GET /api/v1/sources` and `GET /api/v1/insights`.

use std::path::Path;

use barograph_insight::{Graph, InsightReport, TestRow};
use barograph_model::{Labels, Value, base64};
use barograph_source::SourceReport;
use barograph_stream::RunDir;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};
use tracing::warn;

use crate::account::{Account, account};

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
/// What is wrong with the files of statements; empty when nothing is.
pub const STATEMENTS_DOCUMENT: &str = "statements.json";
/// Addresses and version of the agent, and where its archive is.
pub const AGENT_DOCUMENT: &str = "agent.json";

/// Writes one, for all who may read the run directory. Rows go straight into its bytes: thousands of them must not keep a sampler waiting.
pub fn publish(run_dir: &RunDir, name: &str, document: &impl Serialize) {
    let written = serde_json::to_vec(document).map_err(|error| error.to_string());
    let published = written.and_then(|bytes| {
        let published = run_dir.publish(name, &bytes, 0o644);
        published.map_err(|error| error.to_string())
    });
    if let Err(error) = published {
        warn!(error, "a document is not up to date");
    }
}

/// Says in the agent's document where its archive is by now.
pub fn name_archive(run_dir: &RunDir, dir: Option<&Path>) {
    let Ok(Some(bytes)) = run_dir.document(AGENT_DOCUMENT) else {
        return; // It has not been written yet, and will have it.
    };
    if let Ok(Json::Object(mut document)) = serde_json::from_slice(&bytes) {
        document.insert("archive".into(), json!(dir));
        publish(run_dir, AGENT_DOCUMENT, &document);
    }
}

/// Labels as an object.
pub struct LabelsJson<'a>(pub &'a Labels);

impl Serialize for LabelsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter())
    }
}

/// One row of `insights.json`.
#[derive(Serialize)]
struct InsightRow<'a> {
    #[serde(flatten)]
    account: Account,
    name: &'a str,
    table: &'a str,
    sql: &'a str,
    builtin: bool,
    unit: &'a str,
    help: &'a str,
    inputs: &'a [String],
    groups: usize,
    evaluations: u64,
    cost_ns_mean: u64,
}

impl<'a> InsightRow<'a> {
    fn new(report: &'a InsightReport, sources: &[SourceReport]) -> Self {
        Self {
            account: account(report, sources),
            name: &report.name,
            table: &report.table,
            sql: &report.sql,
            builtin: report.builtin,
            unit: &report.unit,
            help: &report.help,
            inputs: &report.inputs,
            groups: report.groups,
            evaluations: report.evaluations,
            cost_ns_mean: report.cost_ns / report.evaluations.max(1),
        }
    }
}

/// The whole of `insights.json`.
pub struct Insights<'a> {
    /// The insights.
    pub graph: &'a Graph,
    /// The sources, for why an insight lacks its inputs.
    pub sources: &'a [SourceReport],
}

impl Serialize for Insights<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reports = self.graph.reports();
        serializer.collect_seq(reports.iter().map(|r| InsightRow::new(r, self.sources)))
    }
}

/// One insight; null when there is none of this name (it was just dropped).
pub fn insight(graph: &Graph, name: &str, sources: &[SourceReport]) -> Json {
    let reports = graph.reports();
    let report = reports.iter().find(|report| report.name == name);
    json!(report.map(|report| InsightRow::new(report, sources)))
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
