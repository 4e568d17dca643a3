//! Statements on the nodes of the cluster: those of this node's clients, whose rows are put
//! together, and those of other nodes, which this node's SQL engine runs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use barograph_fabric::{ANSWER_BYTES_MAX, NodeAnswer, NodeReply, QuestionKind};
use barograph_model::{
    BigIntegers, Clock, ControlFault, ControlFaultKind, ResultFormat, SqlEngine, SqlFault,
    SqlFaultKind, SqlLimits, SqlRequest,
};
use barograph_query::GatheredRows;
use barograph_statement::{CombinedSelect, NODE_ROWS};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::node_questions::{AskedQuestions, NodeQuestions, answered, fault, meant};
use crate::query_nodes::{AskedNode, QueryNodes};

/// Name of the column with the node of a row.
const NODE: &str = "node";

/// The engine of the statements of clients, which sees what all users of the node may see, and the
/// limits of a statement.
#[derive(Clone)]
pub(crate) struct ClientSql {
    pub engine: Arc<dyn SqlEngine>,
    pub limits: SqlLimits,
}

/// Runs statements on nodes: on this one by its engine, and on others by the fabric.
pub(crate) struct NodeSql {
    /// Name of this node.
    pub node: String,
    /// Runs the statement on this node.
    pub engine: ClientSql,
    /// Time for which other nodes are waited for, in ns.
    pub patience_ns: i64,
    /// The way to other nodes.
    pub others: NodeQuestions,
    /// Gives the time until which other nodes are waited for.
    pub clock: Arc<dyn Clock>,
    /// The results of the last statements on each node.
    pub last: QueryNodes,
}

impl NodeSql {
    /// Runs a statement on these nodes, or on all that are known, and puts their rows together. If
    /// they are to be combined, the answer is that of one SELECT over the rows of all nodes.
    pub(crate) fn ask(
        &self,
        sql: &str,
        nodes: &[String],
        is_combined: bool,
    ) -> Result<Json, ControlFault> {
        if !is_combined {
            return Ok(self.answers(sql, nodes)?.with_nodes());
        }
        let select = CombinedSelect::parse(sql)
            .map_err(|error| fault(ControlFaultKind::Statement, &error.to_string()))?;
        let gathered = self.answers(select.partial(), nodes)?;
        let Gathered {
            table,
            nodes,
            statement,
            ..
        } = gathered;
        if table.columns.is_empty() {
            // No node has answered, and there is no table to select from.
            return Ok(json!({"columns": [], "rows": [], "nodes": nodes, "statement": statement}));
        }
        let whole = select.whole(&table.columns);
        let limits = (&self.engine.limits, &self.clock);
        let rows = table.select(NODE_ROWS, &whole, limits);
        let rows = rows.map_err(|error| fault(ControlFaultKind::Statement, &error.message))?;
        let table: NodeTable = serde_json::from_slice(&rows.to_json_table())
            .map_err(|error| fault(ControlFaultKind::Internal, &error.to_string()))?;
        Ok(json!({
            "columns": table.columns,
            "rows": table.rows,
            "nodes": nodes,
            "statement": statement,
        }))
    }

    /// Runs a statement on these nodes, or on all that are known.
    fn answers(&self, sql: &str, nodes: &[String]) -> Result<Gathered, ControlFault> {
        let (is_here, others) = meant(nodes, &self.node);
        let mut replies = Vec::new();
        let asked_ns = self.clock.now_ns();
        let until_ns = asked_ns.saturating_add(self.patience_ns);
        let question = (QuestionKind::Statement, sql);
        let asked = others.map(|others| self.others.ask(question, &others, until_ns));
        let asked = asked.transpose()?;
        if is_here {
            let ClientSql { engine, limits } = &self.engine;
            let own = match run(&**engine, sql, *limits, Arc::default()) {
                Ok(rows) => NodeAnswer::Answered(rows),
                // What is wrong here is wrong everywhere: the asker is told at once.
                Err(error)
                    if matches!(error.kind, SqlFaultKind::Statement | SqlFaultKind::Refused) =>
                {
                    return Err(fault(ControlFaultKind::Statement, &error.message));
                }
                Err(error) => NodeAnswer::Failed(error.message),
            };
            replies.push(NodeReply {
                node: Arc::from(&*self.node),
                answer: own,
                elapsed_ns: self.clock.now_ns().saturating_sub(asked_ns),
            });
        }
        if let Some(asked) = asked {
            let patience = Duration::from_nanos(self.patience_ns.unsigned_abs());
            replies.extend(asked.wait(patience)?);
        }
        let mut gathered = Gathered::of(replies);
        gathered.statement = self.last.note(asked_ns, &gathered.nodes);
        Ok(gathered)
    }
}

/// The rows of one node: `{"columns": […], "rows": [[…]], …}`.
#[derive(Deserialize)]
struct NodeTable {
    columns: Vec<String>,
    rows: Vec<Vec<Json>>,
}

/// The rows of all nodes.
struct Gathered {
    /// The rows as the nodes have returned them, under the names of all their columns.
    table: GatheredRows,
    /// The node of each row.
    of: Vec<Arc<str>>,
    /// The result on each node, by name.
    nodes: Vec<AskedNode>,
    /// Number of the statement in the table `query_nodes`.
    statement: u64,
}

impl Gathered {
    fn of(mut replies: Vec<NodeReply>) -> Self {
        replies.sort_by(|one, other| one.node.cmp(&other.node));
        let mut gathered = Self {
            table: GatheredRows::default(),
            of: Vec::new(),
            nodes: Vec::new(),
            statement: 0,
        };
        for reply in replies {
            let NodeReply {
                node,
                answer,
                elapsed_ns,
            } = reply;
            let table = answered(answer).and_then(|bytes| {
                serde_json::from_slice::<NodeTable>(&bytes)
                    .map_err(|_| ("failed", "its rows cannot be read".to_owned()))
            });
            let (state, reason, rows) = match table {
                Ok(table) => ("answered", None, gathered.take(&node, table)),
                Err((state, reason)) => (state, Some(reason), 0),
            };
            gathered.nodes.push(AskedNode {
                node: node.to_string(),
                state,
                reason,
                rows,
                elapsed_ns,
            });
        }
        gathered
    }

    /// Adds the rows of a node; returns how many.
    fn take(&mut self, node: &Arc<str>, table: NodeTable) -> usize {
        let columns = &mut self.table.columns;
        let places: Vec<usize> = table
            .columns
            .iter()
            .map(|name| place(columns, name))
            .collect();
        let count = table.rows.len();
        for row in table.rows {
            let mut cells = vec![Json::Null; columns.len()];
            for (place, cell) in places.iter().zip(row) {
                cells[*place] = cell;
            }
            self.table.rows.push(cells);
            self.of.push(Arc::clone(node));
        }
        count
    }

    /// The rows, each with the name of its node in the first column, whatever the statement calls
    /// `node`.
    fn with_nodes(self) -> Json {
        let GatheredRows { mut columns, rows } = self.table;
        let own = columns.iter().position(|name| name == NODE);
        own.map(|at| columns.remove(at));
        let width = columns.len();
        columns.insert(0, NODE.to_owned());
        let with_node = |(node, mut cells): (Arc<str>, Vec<Json>)| {
            if let Some(at) = own.filter(|at| *at < cells.len()) {
                cells.remove(at);
            }
            // A later node may have brought further columns.
            cells.resize(width, Json::Null);
            cells.insert(0, json!(&*node));
            cells
        };
        let rows = self.of.into_iter().zip(rows).map(with_node);
        let rows: Vec<Vec<Json>> = rows.collect();
        json!({
            "columns": columns,
            "rows": rows,
            "nodes": self.nodes,
            "statement": self.statement,
        })
    }
}

/// The place of a column; a new one is added at the end.
fn place(columns: &mut Vec<String>, name: &str) -> usize {
    let found = columns.iter().position(|column| column == name);
    found.unwrap_or_else(|| {
        columns.push(name.to_owned());
        columns.len() - 1
    })
}

/// Runs a statement in this node's engine.
fn run(
    engine: &dyn SqlEngine,
    sql: &str,
    limits: SqlLimits,
    cancel: Arc<AtomicBool>,
) -> Result<Vec<u8>, SqlFault> {
    let request = SqlRequest {
        sql: sql.to_owned(),
        format: ResultFormat::JsonTable,
        big_integers: BigIntegers::Number,
        limits: SqlLimits {
            bytes_max: limits.bytes_max.min(ANSWER_BYTES_MAX),
            ..limits
        },
        cancel,
    };
    Ok(engine.query(&request)?.body)
}

/// Runs the statements of other nodes, one after the other.
pub(crate) struct NodeQueryWorker {
    pub asked: AskedQuestions,
    pub engine: ClientSql,
    pub clock: Arc<dyn Clock>,
    /// Set when the agent stops.
    pub cancel: Arc<AtomicBool>,
}

impl NodeQueryWorker {
    /// Runs statements until the fabric has ended.
    pub(crate) fn run(self) {
        while let Ok(asked) = self.asked.wait() {
            let left_ns = asked.until_ns.saturating_sub(self.clock.now_ns());
            let ClientSql { engine, limits } = &self.engine;
            let limits = SqlLimits {
                time_ns_max: limits.time_ns_max.min(left_ns.max(1)),
                ..*limits
            };
            let outcome = run(&**engine, &asked.text, limits, Arc::clone(&self.cancel));
            self.asked
                .answer(asked, outcome.map_err(|fault| fault.message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_nodes_are_put_together_by_the_names_of_columns() {
        let rows = |text: &str| NodeAnswer::Answered(text.as_bytes().to_vec());
        let answers = [
            (
                "b",
                rows(r#"{"columns":["y","n","node"],"rows":[[7,3,"other"]],"elapsed_ns":1}"#),
            ),
            (
                "a",
                rows(r#"{"columns":["n","x"],"rows":[[1,"u"],[2,null]],"elapsed_ns":1}"#),
            ),
            ("c", NodeAnswer::Late),
            ("d", NodeAnswer::Gone),
            ("e", NodeAnswer::Failed("no table x".into())),
            ("f", rows("nonsense")),
        ];
        let reply = |(node, answer): (&str, NodeAnswer)| NodeReply {
            node: node.into(),
            answer,
            elapsed_ns: 5,
        };
        let whole = Gathered::of(answers.map(reply).to_vec()).with_nodes();
        assert_eq!(whole["columns"], json!(["node", "n", "x", "y"]));
        let expect = json!([["a", 1, "u", null], ["a", 2, null, null], ["b", 3, null, 7]]);
        assert_eq!(whole["rows"], expect);
        let states: Vec<&str> = whole["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["state"].as_str().unwrap())
            .collect();
        assert_eq!(
            states,
            ["answered", "answered", "late", "gone", "failed", "failed"]
        );
        assert_eq!(whole["nodes"][4]["reason"], "no table x");
        assert_eq!(whole["nodes"][0]["rows"], 2);
        assert_eq!(whole["nodes"][0]["elapsed_ns"], 5);
    }
}
