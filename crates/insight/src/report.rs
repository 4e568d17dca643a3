//! The graph's reports on its insights, and the test of a statement before it is created.

use std::collections::BTreeMap;

use barograph_model::{Labels, Value};

use crate::plan::InsightPlan;
use crate::rows::{GroupOutcome, InsightRows};
use crate::slot::SlotStore;
use crate::{GraphLimits, InsightError};
use barograph_statement::SqlValue;

/// The state of an insight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsightState {
    /// At least one of its groups has a value, and none fails.
    Live,
    /// The insight has no value yet, or none at present.
    Waiting,
    /// At least one of its groups cannot be computed.
    Failed,
}

impl InsightState {
    /// `live`, `waiting` or `failed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// A reason why an insight has no value, found by following its inputs to the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoValueReason {
    /// A measured metric has no sample.
    Metric {
        /// Dotted name of the metric.
        name: String,
        /// The condition under which this happens, and the remedy, from the statement of the
        /// insight that reads the metric (`-- No value: …; …`). Both may be empty.
        says: (String, String),
    },
    /// All inputs of an insight have samples, but no row gives a value.
    Row {
        /// Name of the insight.
        insight: String,
        /// The condition under which this happens, and the remedy, from the insight's statement.
        /// Both may be empty.
        says: (String, String),
    },
    /// An insight fails.
    Failure {
        /// Name of the insight.
        insight: String,
        /// The reason of the failure.
        reason: String,
    },
}

/// The report on one insight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InsightReport {
    /// The dotted name of the insight.
    pub name: String,
    /// The name of its table in SQL.
    pub table: String,
    /// The statement that made it.
    pub sql: String,
    /// Whether it is built in.
    pub builtin: bool,
    /// Unit of its values; may be empty.
    pub unit: String,
    /// Help text: the meaning of its values.
    pub help: String,
    /// Dotted names of the metrics and insights that it reads.
    pub inputs: Vec<String>,
    /// Number of its groups that have a value now.
    pub groups: usize,
    /// State of the insight.
    pub state: InsightState,
    /// Reason why it is not live; empty if it is.
    pub reason: String,
    /// The reasons that following its inputs found; empty unless it waits.
    pub lacks: Vec<NoValueReason>,
    /// Number of its runs.
    pub evaluations: u64,
    /// Total time of its runs, in ns; 0 without a clock.
    pub cost_ns: u64,
}

/// One row of a tested statement.
#[derive(Clone, Debug, PartialEq)]
pub struct InsightTestRow {
    /// The labels of the stream that the row would become.
    pub labels: Labels,
    /// Its value; `None` for NULL, which gives no sample.
    pub value: Option<Value>,
}

/// Computes a plan once over the newest samples, outside the graph, as long as `go_on` returns
/// true. The rows are sorted by labels.
pub(crate) fn test(
    plan: &InsightPlan,
    store: &SlotStore,
    limits: &GraphLimits,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<InsightTestRow>, InsightError> {
    let mut found: BTreeMap<Labels, Option<Value>> = BTreeMap::new();
    for branch in &plan.branches {
        let mut rows =
            InsightRows::build(branch, store, limits).map_err(InsightError::statement)?;
        if !rows.refresh(branch, &store.slots, go_on, |_| {}) {
            return Err(InsightError::Stopped);
        }
        for (cell, state) in rows.cells.iter().enumerate() {
            let known = match &state.outcome {
                GroupOutcome::Absent => continue,
                GroupOutcome::Failed(fault) => return Err(InsightError::statement(*fault)),
                GroupOutcome::Row { known, .. } => known,
            };
            let pairs = rows.labels(branch, &store.slots, cell as u32);
            let labels = Labels::new(pairs.iter().map(|(n, v)| (n.as_str(), &**v)))?;
            let value = match &known.val {
                SqlValue::Null => None,
                SqlValue::Int(v) => Some(Value::Int(*v)),
                SqlValue::Real(v) => Some(Value::Float(*v)),
                SqlValue::Text(t) => Some(Value::text(t)),
            };
            if found.len() >= limits.groups_max {
                return Err(InsightError::limit(
                    "groups".into(),
                    limits.groups_max,
                    "groups_max",
                ));
            }
            if let Some(twice) = found.insert(labels.clone(), value).map(|_| labels) {
                return Err(InsightError::statement(format!(
                    "two rows have the labels {}: select a label that tells them apart",
                    if twice.is_empty() {
                        "{}".into()
                    } else {
                        twice.to_string()
                    },
                )));
            }
        }
    }
    Ok(found
        .into_iter()
        .map(|(labels, value)| InsightTestRow { labels, value })
        .collect())
}
