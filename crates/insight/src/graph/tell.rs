//! The graph's report on one insight, and the reasons why an insight has no value.
//!
//! It is separate from the graph since it only reads it.

use super::Graph;
use crate::curated;
use crate::report::{InsightReport, InsightState, NoValueReason};

impl Graph {
    pub(super) fn report(&self, id: u32) -> Option<InsightReport> {
        let insight = self.insights[id as usize].as_ref()?;
        let groups = insight.groups();
        let tables = insight.plan.tables();
        let empty = tables.iter().filter(|&&t| self.is_empty(t));
        let empty: Vec<&str> = empty
            .map(|&t| self.store.tables[t as usize].dotted.as_str())
            .collect();
        let (state, reason) = match insight.failure() {
            Some(reason) => (InsightState::Failed, reason),
            None if groups > 0 => (InsightState::Live, String::new()),
            None if !empty.is_empty() => (
                InsightState::Waiting,
                format!("no samples yet of {}", empty.join(", ")),
            ),
            None => (InsightState::Waiting, "no row gives a value".into()),
        };
        let mut lacks = Vec::new();
        if state == InsightState::Waiting {
            self.follow_down(id, &mut vec![false; self.insights.len()], &mut lacks);
        }
        Some(InsightReport {
            name: insight.name.as_str().into(),
            table: insight.name.table(),
            sql: insight.sql.clone(),
            builtin: insight.builtin,
            unit: insight.unit.as_str().into(),
            help: insight.help.clone(),
            inputs: tables
                .iter()
                .map(|&t| self.store.tables[t as usize].dotted.clone())
                .collect(),
            groups,
            state,
            reason,
            lacks,
            evaluations: insight.evaluations,
            cost_ns: insight.cost_ns,
        })
    }

    /// Returns whether no stream of a table has a sample.
    fn is_empty(&self, table: u32) -> bool {
        let slots = &self.store.tables[table as usize].slots;
        slots
            .iter()
            .all(|&s| self.store.slots[s as usize].newest.is_none())
    }

    /// Finds the reasons why an insight has no value, by following its inputs. The recursion is as
    /// deep as the chain of insights (`depth_max`), and visits each insight once.
    fn follow_down(&self, id: u32, seen: &mut [bool], lacks: &mut Vec<NoValueReason>) {
        let Some(insight) = &self.insights[id as usize] else {
            return;
        };
        if std::mem::replace(&mut seen[id as usize], true) {
            return;
        }
        let name = insight.name.to_string();
        if let Some(reason) = insight.failure() {
            let insight = name;
            lacks.push(NoValueReason::Failure { insight, reason });
            return;
        }
        let (when, helps) = curated::no_value(&insight.sql).unwrap_or_default();
        let says = (when.to_owned(), helps.to_owned());
        let tables = insight.plan.tables();
        let empty: Vec<u32> = tables.into_iter().filter(|&t| self.is_empty(t)).collect();
        if empty.is_empty() {
            let insight = name;
            lacks.push(NoValueReason::Row { insight, says });
            return;
        }
        for table in empty {
            let table = &self.store.tables[table as usize];
            match table.made_by {
                Some(below) => self.follow_down(below, seen, lacks),
                None => {
                    let name = table.dotted.clone();
                    let says = says.clone();
                    let told = |l: &NoValueReason| matches!(l, NoValueReason::Metric { name: n, .. } if *n == name);
                    if !lacks.iter().any(told) {
                        lacks.push(NoValueReason::Metric { name, says });
                    }
                }
            }
        }
    }
}
