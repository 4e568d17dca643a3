//! Outcomes of the last statements over nodes, on each node: the table `query_nodes`.
//!
//! The document is for all users of the node. So it has neither the statements nor the reasons of
//! failures, which quote them: whoever has asked has both in the answer, with the number by which
//! the table knows the statement.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use barograph_stream::{QUERY_NODES_DOCUMENT, QueryNodesRow, RunDir};
use serde::Serialize;
use tracing::warn;

/// Most statements of which the nodes are kept.
const STATEMENTS_MAX: usize = 100;
/// Most rows of all statements. Of a statement with more nodes than that, those that have answered
/// are left out first.
const ROWS_MAX: usize = 4_096;

/// The result of a statement on one node, for whoever has asked.
#[derive(Debug, Serialize)]
pub(crate) struct AskedNode {
    pub node: String,
    /// `answered`, `failed`, `late` or `gone`.
    pub state: &'static str,
    /// The reason why there are no rows.
    pub reason: Option<String>,
    pub rows: usize,
    /// Time from the question until this was known, in ns.
    pub elapsed_ns: i64,
}

/// The last statements over nodes. It is shared by the threads of all clients.
pub(crate) struct QueryNodes {
    run_dir: RunDir,
    last: Mutex<LastStatements>,
}

#[derive(Default)]
struct LastStatements {
    /// Number of the newest statement since the start of the agent.
    newest: u64,
    rows: VecDeque<QueryNodesRow>,
}

impl QueryNodes {
    /// Begins without a statement.
    pub(crate) fn new(run_dir: &RunDir) -> Self {
        let nodes = Self {
            run_dir: run_dir.clone(),
            last: Mutex::default(),
        };
        nodes.publish(&VecDeque::new());
        nodes
    }

    /// Notes what has come of a statement of the time `ts`, ns since the epoch. Returns its number.
    pub(crate) fn note(&self, ts: i64, nodes: &[AskedNode]) -> u64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.add(ts, nodes);
        self.publish(&last.rows);
        last.newest
    }

    fn publish(&self, rows: &VecDeque<QueryNodesRow>) {
        let document = serde_json::to_vec(rows).unwrap_or_else(|_| b"[]".to_vec());
        let name = QUERY_NODES_DOCUMENT;
        if let Err(error) = self.run_dir.publish(name, &document, 0o644) {
            warn!(%error, name, "a document is not written");
        }
    }
}

impl LastStatements {
    fn add(&mut self, ts: i64, nodes: &[AskedNode]) {
        self.newest += 1;
        let oldest = self.newest.saturating_sub(STATEMENTS_MAX as u64);
        let room = ROWS_MAX.saturating_sub(nodes.len());
        while let Some(row) = self.rows.front()
            && (row.statement <= oldest || self.rows.len() > room)
        {
            // A statement is there as a whole.
            let statement = row.statement;
            self.rows.retain(|row| row.statement != statement);
        }
        let has_answered = |node: &&AskedNode| node.state == "answered";
        let others = nodes.iter().filter(|node| !has_answered(node));
        let told = others.chain(nodes.iter().filter(has_answered));
        let rows = told.take(ROWS_MAX).map(|node| QueryNodesRow {
            statement: self.newest,
            ts,
            node: node.node.clone(),
            state: node.state.to_owned(),
            rows: node.rows as u64,
            elapsed_ns: node.elapsed_ns,
        });
        self.rows.extend(rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(nodes: usize) -> Vec<AskedNode> {
        let node = |i: usize| AskedNode {
            node: format!("n{i}"),
            state: if i.is_multiple_of(2) {
                "answered"
            } else {
                "failed"
            },
            reason: Some("no such column: secret".into()),
            rows: 3,
            elapsed_ns: 7,
        };
        (0..nodes).map(node).collect()
    }

    #[test]
    fn the_last_statements_are_there_as_a_whole_and_without_their_text() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let nodes = QueryNodes::new(&run_dir);
        let read = || std::fs::read_to_string(dir.path().join(QUERY_NODES_DOCUMENT)).unwrap();
        assert_eq!(read(), "[]");
        assert_eq!(nodes.note(5, &asked(2)), 1);
        let rows: Vec<QueryNodesRow> = serde_json::from_str(&read()).unwrap();
        let states: Vec<(&str, &str)> = rows.iter().map(|r| (&*r.node, &*r.state)).collect();
        assert_eq!(states, [("n1", "failed"), ("n0", "answered")]);
        assert!(!read().contains("secret"));
        for _ in 1..STATEMENTS_MAX {
            nodes.note(6, &asked(2));
        }
        let kept = || {
            let rows: Vec<QueryNodesRow> = serde_json::from_str(&read()).unwrap();
            (rows.len(), rows[0].statement)
        };
        assert_eq!(kept(), (2 * STATEMENTS_MAX, 1));
        assert_eq!(nodes.note(7, &asked(2)), 101);
        assert_eq!(kept(), (2 * STATEMENTS_MAX, 2));
        nodes.note(8, &asked(ROWS_MAX - 2));
        assert_eq!(kept(), (ROWS_MAX, 101));
        nodes.note(9, &asked(2 * ROWS_MAX));
        assert_eq!(kept(), (ROWS_MAX, 103));
        let rows: Vec<QueryNodesRow> = serde_json::from_str(&read()).unwrap();
        assert!(rows.iter().all(|row| row.state == "failed"));
    }
}
