//! The documents in the run directory, as JSON. `docs/design/0001-one-node.md` specifies them as
//! `GET /api/v1/sources` and `GET /api/v1/insights`.

use barograph_insight::{Graph, InsightReport, InsightTestRow};
use barograph_model::{Value, base64};
use barograph_source::SourceReport;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::account::{Account, account};

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
pub(crate) struct Insights<'a> {
    /// The insights.
    pub graph: &'a Graph,
    /// Reports of the sources, which explain why an insight lacks inputs.
    pub sources: &'a [SourceReport],
}

impl Serialize for Insights<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reports = self.graph.reports();
        serializer.collect_seq(reports.iter().map(|r| InsightRow::new(r, self.sources)))
    }
}

/// Returns the row of one insight, or null if no insight has this name (it was just dropped).
pub(crate) fn insight(graph: &Graph, name: &str, sources: &[SourceReport]) -> Json {
    let reports = graph.reports();
    let report = reports.iter().find(|report| report.name == name);
    json!(report.map(|report| InsightRow::new(report, sources)))
}

/// Returns one row of a test: its labels, and `value`.
pub(crate) fn test_row(row: &InsightTestRow) -> Json {
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
