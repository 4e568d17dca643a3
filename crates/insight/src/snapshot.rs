//! The test of a statement, computed outside the graph: the graph's owner only copies the tables
//! that the statement reads, and the caller does the work.
//!
//! It is separate from the graph because this part alone runs on another thread: the graph's owner
//! must not wait for the statement of a client.

use std::sync::Arc;

use barograph_statement::ast::{Query, TableFactor};

use crate::plan::{InsightPlan, selects};
use crate::report::{self, InsightTestRow};
use crate::slot::SlotStore;
use crate::{Graph, GraphLimits, InsightError, statement};

/// A statement to be tested: it is parsed, but not yet checked against the existing tables.
#[derive(Debug)]
pub struct TestQuery {
    query: Query,
    tables: Vec<String>,
}

impl TestQuery {
    /// Parses a SELECT, or the SELECT in a CREATE INSIGHT statement. The bounds of the text are the
    /// default ones.
    pub fn parse(sql: &str) -> Result<Self, InsightError> {
        let query = statement::parse_select(sql)?;
        let from = selects(&query)?.into_iter().flat_map(|select| &select.from);
        let relations = from.flat_map(|tables| {
            let joined = tables.joins.iter().map(|join| &join.relation);
            std::iter::once(&tables.relation).chain(joined)
        });
        // Anything that is not a table is refused when the statement is planned.
        let mut tables: Vec<String> = relations
            .filter_map(|relation| match relation {
                TableFactor::Table { name, .. } => name.0.first()?.as_ident(),
                _ => None,
            })
            .map(|ident| ident.value.to_ascii_lowercase())
            .collect();
        tables.sort_unstable();
        tables.dedup();
        Ok(Self { query, tables })
    }

    /// Returns the names of the tables that the statement reads, in lower case, each once.
    pub fn tables(&self) -> &[String] {
        &self.tables
    }
}

/// A copy of some tables of a graph at one moment.
#[derive(Debug)]
pub struct TableSnapshot {
    store: SlotStore,
    limits: GraphLimits,
    node: Arc<str>,
}

impl TableSnapshot {
    /// Computes the rows of the statement from these tables. Between rows it calls `go_on`, and
    /// fails if that returns false.
    pub fn test(
        &self,
        question: &TestQuery,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<InsightTestRow>, InsightError> {
        let plan = InsightPlan::new(&question.query, &self.store, &self.node)?;
        report::test(&plan, &self.store, &self.limits, go_on)
    }
}

impl Graph {
    /// Copies the present contents of these tables. The cost depends on their number of streams
    /// only, not on what the statement computes.
    pub fn snapshot(&self, tables: &[String]) -> TableSnapshot {
        TableSnapshot {
            store: self.store().copy_of(tables),
            limits: self.limits().clone(),
            node: Arc::from(self.limits().node.as_str()),
        }
    }

    /// Computes the rows of a SELECT, or of the SELECT in a CREATE statement. The graph does not
    /// change.
    pub fn test(&self, sql: &str) -> Result<Vec<InsightTestRow>, InsightError> {
        let question = TestQuery::parse(sql)?;
        self.snapshot(question.tables()).test(&question, &|| true)
    }
}
