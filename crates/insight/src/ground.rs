//! What a statement would give, computed beside the graph: whoever owns the graph only copies what
//! the statement reads, and the work is done by whoever asks.
//!
//! Apart from the graph because it is the one part that runs on another thread: the graph's owner
//! must not wait for a stranger's statement.

use std::sync::Arc;

use barograph_statement::ast::{Query, TableFactor};

use crate::plan::{Plan, selects};
use crate::report::{self, TestRow};
use crate::slot::Store;
use crate::{Graph, InsightError, Limits, statement};

/// A statement to be tested: parsed, and not yet compared with the tables that there are.
#[derive(Debug)]
pub struct Question {
    query: Query,
    tables: Vec<String>,
}

impl Question {
    /// Reads a SELECT, or the SELECT of a CREATE INSIGHT statement. The bounds of the text are
    /// those of every graph.
    pub fn parse(sql: &str) -> Result<Self, InsightError> {
        let query = statement::parse_select(sql)?;
        let from = selects(&query)?.into_iter().flat_map(|select| &select.from);
        let relations = from.flat_map(|tables| {
            let joined = tables.joins.iter().map(|join| &join.relation);
            std::iter::once(&tables.relation).chain(joined)
        });
        // What is no table is refused when the statement is planned.
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

    /// The tables that it reads, in lower case, each once.
    pub fn tables(&self) -> &[String] {
        &self.tables
    }
}

/// A copy of what some tables of a graph hold at one moment.
#[derive(Debug)]
pub struct Ground {
    store: Store,
    limits: Limits,
    node: Arc<str>,
}

impl Ground {
    /// What the question gives on this ground. `go_on` is asked between rows, and the test ends
    /// without an answer when it says no.
    pub fn test(
        &self,
        question: &Question,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Vec<TestRow>, InsightError> {
        let plan = Plan::new(&question.query, &self.store, &self.node)?;
        report::test(&plan, &self.store, &self.limits, go_on)
    }
}

impl Graph {
    /// Copies what these tables hold now. It costs a copy of each of their streams, and nothing
    /// that depends on what the statement computes.
    pub fn ground(&self, tables: &[String]) -> Ground {
        Ground {
            store: self.store().copy_of(tables),
            limits: self.limits().clone(),
            node: Arc::from(self.limits().node.as_str()),
        }
    }

    /// What the SELECT (or the CREATE around one) would give now; changes nothing.
    pub fn test(&self, sql: &str) -> Result<Vec<TestRow>, InsightError> {
        let question = Question::parse(sql)?;
        self.ground(question.tables()).test(&question, &|| true)
    }
}
