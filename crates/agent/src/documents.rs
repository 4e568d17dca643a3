//! The documents in the run directory, as JSON. `docs/design/0001-one-node.md` specifies them as
//! `GET /api/v1/sources` and `GET /api/v1/insights`.

use std::collections::BTreeMap;

use barograph_insight::{Graph, InsightReport, InsightTestRow};
use barograph_model::{Value, base64};
use barograph_source::{SourceReport, with_those_that_are_off};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::account::{InsightAccount, account, grounds};

/// One row of `insights.json`.
#[derive(Serialize)]
struct InsightRow<'a> {
    #[serde(flatten)]
    account: InsightAccount,
    #[serde(flatten)]
    texts: InsightTexts<'a>,
    #[serde(flatten)]
    counts: InsightCounts,
}

/// The part of a row that stays the same as long as the statement does.
#[derive(PartialEq, Serialize)]
struct InsightTexts<'a> {
    name: &'a str,
    table: &'a str,
    sql: &'a str,
    builtin: bool,
    unit: &'a str,
    help: &'a str,
    inputs: &'a [String],
}

/// The part of a row that changes with each evaluation.
#[derive(Serialize)]
struct InsightCounts {
    groups: usize,
    evaluations: u64,
    cost_ns_mean: u64,
}

impl<'a> InsightRow<'a> {
    fn new(report: &'a InsightReport, sources: &[SourceReport]) -> Self {
        Self {
            account: account(report, sources),
            texts: InsightTexts::new(report),
            counts: InsightCounts::new(report),
        }
    }
}

impl<'a> InsightTexts<'a> {
    fn new(report: &'a InsightReport) -> Self {
        Self {
            name: &report.name,
            table: &report.table,
            sql: &report.sql,
            builtin: report.builtin,
            unit: &report.unit,
            help: &report.help,
            inputs: &report.inputs,
        }
    }
}

impl InsightCounts {
    fn new(report: &InsightReport) -> Self {
        Self {
            groups: report.groups,
            evaluations: report.evaluations,
            cost_ns_mean: report.cost_ns / report.evaluations.max(1),
        }
    }
}

/// The rows of `sources.json` as they were rendered last: a row that did not change, as those of
/// sources that are off or absent, is not rendered again.
#[derive(Default)]
pub(crate) struct RenderedSources {
    rows: Vec<(SourceReport, Vec<u8>)>,
}

impl RenderedSources {
    /// Returns the whole of `sources.json`.
    pub(crate) fn render(&mut self, sources: &[SourceReport]) -> serde_json::Result<Vec<u8>> {
        let mut before = std::mem::take(&mut self.rows).into_iter();
        for report in with_those_that_are_off(sources) {
            let row = match before.next() {
                Some(same) if same.0 == report => same,
                _ => {
                    let row = serde_json::to_vec(&report)?;
                    (report, row)
                }
            };
            self.rows.push(row);
        }
        Ok(array(self.rows.iter().map(|(_, row)| &row[..])))
    }
}

/// Returns an array of rendered rows.
fn array<'a>(rows: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut array = vec![b'['];
    for row in rows {
        if array.len() > 1 {
            array.push(b',');
        }
        array.extend_from_slice(row);
    }
    array.push(b']');
    array
}

/// The rows of `insights.json` as they were rendered last: texts are rendered once for each
/// statement, and a row that did not change is not rendered again.
#[derive(Default)]
pub(crate) struct RenderedInsights {
    by_name: BTreeMap<String, RenderedRow>,
    /// The reports of the sources on which the accounts of these rows are based.
    sources: Vec<SourceReport>,
}

struct RenderedRow {
    report: InsightReport,
    account: InsightAccount,
    /// The fields of [`InsightTexts`], without braces.
    texts: Vec<u8>,
    row: Vec<u8>,
}

impl RenderedInsights {
    /// Returns the whole of `insights.json`.
    pub(crate) fn render(
        &mut self,
        graph: &Graph,
        sources: &[SourceReport],
    ) -> serde_json::Result<Vec<u8>> {
        let are_sources_alike = sources
            .iter()
            .map(grounds)
            .eq(self.sources.iter().map(grounds));
        if !are_sources_alike {
            self.sources = sources.to_vec();
        }
        let mut before = std::mem::take(&mut self.by_name);
        let mut rows = Vec::new();
        for report in graph.reports() {
            let rendered = before.remove(&report.name);
            let account = match &rendered {
                Some(row) if are_sources_alike && row.is_for_same_reason(&report) => {
                    row.account.clone()
                }
                _ => account(&report, sources),
            };
            rows.push(RenderedRow::render(rendered, report, account)?);
        }
        let document = array(rows.iter().map(|row| &row.row[..]));
        let named = rows.into_iter().map(|row| (row.report.name.clone(), row));
        self.by_name = named.collect();
        Ok(document)
    }
}

impl RenderedRow {
    /// Whether the state of this row's insight has the same reason as in a newer report.
    fn is_for_same_reason(&self, report: &InsightReport) -> bool {
        let before = &self.report;
        (before.state, &before.reason, &before.lacks)
            == (report.state, &report.reason, &report.lacks)
    }

    fn render(
        before: Option<Self>,
        report: InsightReport,
        account: InsightAccount,
    ) -> serde_json::Result<Self> {
        let texts = match before {
            Some(same) if same.report == report && same.account == account => return Ok(same),
            Some(like) if InsightTexts::new(&like.report) == InsightTexts::new(&report) => {
                like.texts
            }
            _ => fields(&InsightTexts::new(&report))?,
        };
        let mut row = vec![b'{'];
        row.extend(fields(&account)?);
        row.push(b',');
        row.extend_from_slice(&texts);
        row.push(b',');
        row.extend(fields(&InsightCounts::new(&report))?);
        row.push(b'}');
        Ok(Self {
            report,
            account,
            texts,
            row,
        })
    }
}

/// Returns the fields of an object, without its braces.
fn fields(object: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(object)?;
    bytes.pop();
    bytes.remove(0);
    Ok(bytes)
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

#[cfg(test)]
mod tests {
    use barograph_insight::GraphLimits;
    use barograph_model::{Descriptor, Name, Sample, Sink, StreamKey, Unit, ValueType};
    use barograph_source::SourceState;

    use super::*;

    struct Nowhere;

    impl Sink for Nowhere {
        fn declare(&mut self, _: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
            Some(StreamKey(9))
        }
        fn retire(&mut self, _: StreamKey) {}
        fn put(&mut self, _: StreamKey, _: &Sample) {}
        fn expect_interval(&mut self, _: StreamKey, _: i64) {}
    }

    #[test]
    fn rows_that_are_kept_are_as_those_that_are_rendered_anew() {
        let mut graph = Graph::new(GraphLimits::default());
        let level = Descriptor::gauge(
            Name::new("a.level").unwrap(),
            ValueType::Int,
            Unit::new("count").unwrap(),
        );
        graph.know_metric(&level.name);
        graph.know_metric(&Name::new("disk.read.bytes").unwrap());
        graph.stream_added(StreamKey(1), &level);
        let mut rendered = RenderedInsights::default();
        let mut source = SourceReport {
            source: "disk",
            state: SourceState::Ok,
            sees: "1 disk".into(),
            streams: 0,
            missing: Vec::new(),
            polls: 0,
            errors: 0,
            cost_ns_mean: 1,
            interval_ns: 1,
            pace: None,
            last_error: None,
        };
        let mut rendered_sources = RenderedSources::default();
        let mut check = |graph: &Graph, source: &SourceReport| {
            let sources = std::slice::from_ref(source);
            let bytes = rendered_sources.render(sources).unwrap();
            let anew = serde_json::to_vec(&with_those_that_are_off(sources));
            assert!(bytes == anew.unwrap());
            let bytes = rendered.render(graph, sources).unwrap();
            let anew = Insights { graph, sources };
            assert_eq!(
                String::from_utf8(bytes).unwrap(),
                serde_json::to_string(&anew).unwrap()
            );
        };
        check(&graph, &source);
        for sql in [
            "CREATE INSIGHT d AS SELECT value FROM disk_read_bytes",
            "CREATE INSIGHT b AS SELECT value FROM a_level",
            r#"CREATE INSIGHT c HELP '"a\b"' AS SELECT value FROM a_level"#,
            "CREATE OR REPLACE INSIGHT b AS SELECT value + 1 AS value FROM a_level",
            "DROP INSIGHT b",
        ] {
            graph.execute(sql, &mut Nowhere).unwrap();
            check(&graph, &source);
            graph.sample(StreamKey(1), &Sample::measured(1, sql.len() as i64));
            graph.evaluate(1, &mut Nowhere);
            check(&graph, &source);
            check(&graph, &source);
            source.polls += 1;
            check(&graph, &source);
        }
        source.sees = "2 disks".into();
        check(&graph, &source);
        source.state = SourceState::Down;
        check(&graph, &source);
        source.last_error = Some("it hangs".into());
        check(&graph, &source);
    }
}
