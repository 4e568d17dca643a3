//! Statements that run on other nodes: from a client of this node to the fabric's thread, and from
//! other nodes to this node's SQL engine.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barograph_fabric::transport::{Transport, ZenohWaker};
use barograph_fabric::{ANSWER_BYTES_MAX, AskedStatement, FabricNode, NodeAnswer, NodeAnswers};
use barograph_model::{
    BigIntegers, Clock, ControlFault, ControlFaultKind, ResultFormat, SqlEngine, SqlFault,
    SqlFaultKind, SqlLimits, SqlRequest,
};
use serde::Deserialize;
use serde_json::{Value as Json, json};

/// Most statements on their way to the fabric's thread, and to the engine.
const WAITING_MAX: usize = 32;
/// Time that answers of other nodes may be later than the patience of the asker.
const GRACE: Duration = Duration::from_millis(500);

/// A statement for other nodes.
pub(crate) struct NodeQuestion {
    sql: String,
    /// Names of the nodes; all that are known if there are none.
    nodes: Vec<String>,
    until_ns: i64,
    /// Gets the answers; `None` if too many statements wait.
    reply: SyncSender<Option<NodeAnswers>>,
}

/// The way to the fabric's thread. It is closed while this node is in no cluster.
#[derive(Clone, Default)]
pub(crate) struct NodeQueries(Arc<Mutex<Option<OpenWay>>>);

/// The sender of questions, and what wakes the fabric's thread to read them.
type OpenWay = (SyncSender<NodeQuestion>, ZenohWaker);

impl NodeQueries {
    /// Opens the way.
    pub(crate) fn open(&self, waker: ZenohWaker) -> Receiver<NodeQuestion> {
        let (to, from) = sync_channel(WAITING_MAX);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((to, waker));
        from
    }

    /// Asks other nodes. The receiver gets their answers by `until_ns`, in ns since the epoch.
    fn ask(
        &self,
        sql: &str,
        nodes: &[String],
        until_ns: i64,
    ) -> Result<Receiver<Option<NodeAnswers>>, ControlFault> {
        let way = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (to, waker) = way.as_ref().ok_or_else(|| {
            let text = "this node is in no cluster: `baro up --cluster NAME …`";
            fault(ControlFaultKind::Refused, text)
        })?;
        let (reply, answers) = sync_channel(1);
        let question = NodeQuestion {
            sql: sql.to_owned(),
            nodes: nodes.to_vec(),
            until_ns,
            reply,
        };
        match to.try_send(question) {
            Ok(()) => waker.wake(),
            Err(TrySendError::Full(_)) => return Err(busy()),
            Err(TrySendError::Disconnected(_)) => {
                let text = "this node is leaving its cluster";
                return Err(fault(ControlFaultKind::Busy, text));
            }
        }
        Ok(answers)
    }
}

fn busy() -> ControlFault {
    let text = "too many statements for other nodes wait already: try again";
    fault(ControlFaultKind::Busy, text)
}

fn fault(kind: ControlFaultKind, message: &str) -> ControlFault {
    ControlFault {
        kind,
        message: message.to_owned(),
    }
}

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
    pub others: NodeQueries,
    /// Gives the time until which other nodes are waited for.
    pub clock: Arc<dyn Clock>,
}

impl NodeSql {
    /// Runs a statement on these nodes, or on all that are known, and puts their rows together.
    #[expect(
        clippy::disallowed_methods,
        reason = "a client's thread waits for other nodes, for a bounded time"
    )]
    pub(crate) fn ask(&self, sql: &str, nodes: &[String]) -> Result<Json, ControlFault> {
        let is_here = nodes.is_empty() || nodes.contains(&self.node);
        let others: Vec<String> = nodes
            .iter()
            .filter(|node| **node != self.node)
            .cloned()
            .collect();
        let mut answers = BTreeMap::new();
        let until_ns = self.clock.now_ns().saturating_add(self.patience_ns);
        let asked = match nodes.is_empty() || !others.is_empty() {
            true => Some(self.others.ask(sql, &others, until_ns)?),
            false => None,
        };
        if is_here {
            let ClientSql { engine, limits } = &self.engine;
            let own = match run(&**engine, sql, *limits, Arc::default()) {
                Ok(rows) => NodeAnswer::Rows(rows),
                // What is wrong here is wrong everywhere: the asker is told at once.
                Err(error)
                    if matches!(error.kind, SqlFaultKind::Statement | SqlFaultKind::Refused) =>
                {
                    return Err(fault(ControlFaultKind::Statement, &error.message));
                }
                Err(error) => NodeAnswer::Failed(error.message),
            };
            answers.insert(Arc::from(&*self.node), own);
        }
        if let Some(asked) = asked {
            let patience = Duration::from_nanos(self.patience_ns.unsigned_abs());
            let others = asked.recv_timeout(patience + GRACE);
            let others = others.map_err(|_| {
                fault(
                    ControlFaultKind::Busy,
                    "the fabric does not answer: try again",
                )
            })?;
            answers.extend(others.ok_or_else(busy)?);
        }
        Ok(together(answers))
    }
}

/// The rows of one node: `{"columns": […], "rows": [[…]], …}`.
#[derive(Deserialize)]
struct NodeTable {
    columns: Vec<String>,
    rows: Vec<Vec<Json>>,
}

/// The rows of all nodes, each with the name of its node, and what has come of each node.
fn together(answers: BTreeMap<Arc<str>, NodeAnswer>) -> Json {
    let mut columns = vec!["node".to_owned()];
    let mut rows = Vec::new();
    let mut nodes = Vec::new();
    for (node, answer) in answers {
        let table = match answer {
            NodeAnswer::Rows(bytes) => serde_json::from_slice::<NodeTable>(&bytes)
                .map_err(|_| ("failed", "its rows cannot be read".to_owned())),
            NodeAnswer::Failed(reason) => Err(("failed", reason)),
            NodeAnswer::Late => Err(("late", "it did not answer in time".to_owned())),
            NodeAnswer::Gone => Err(("gone", "it is not connected".to_owned())),
        };
        let (state, reason, count) = match table {
            Ok(table) => {
                let places: Vec<usize> = table
                    .columns
                    .iter()
                    .map(|name| place(&mut columns, name))
                    .collect();
                let count = table.rows.len();
                let of_node = |row| (Arc::clone(&node), places.clone(), row);
                rows.extend(table.rows.into_iter().map(of_node));
                ("answered", None, count)
            }
            Err((state, reason)) => (state, Some(reason), 0),
        };
        nodes.push(json!({"node": &*node, "state": state, "reason": reason, "rows": count}));
    }
    let rows: Vec<Vec<Json>> = rows
        .into_iter()
        .map(|(node, places, row): (Arc<str>, Vec<usize>, Vec<Json>)| {
            let mut cells = vec![Json::Null; columns.len()];
            cells[0] = json!(&*node);
            for (place, cell) in places.into_iter().zip(row) {
                if let Some(slot) = cells.get_mut(place).filter(|_| place > 0) {
                    *slot = cell;
                }
            }
            cells
        })
        .collect();
    json!({"columns": columns, "rows": rows, "nodes": nodes})
}

/// The place of a column in the answer; a new one is added at the end. The first is the node's name,
/// whatever the statement calls `node`.
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

/// The statements of other nodes, on the fabric's thread and on the one that runs them. That is one
/// thread for all nodes together, so that clients of this node keep the others.
pub(crate) struct NodeQueryDesk {
    questions: Receiver<NodeQuestion>,
    waiting: BTreeMap<u64, SyncSender<Option<NodeAnswers>>>,
    to_engine: SyncSender<AskedStatement>,
    answers: Receiver<(AskedStatement, Result<Vec<u8>, String>)>,
}

/// What the thread that runs statements of other nodes needs.
pub(crate) struct NodeQueryWorker {
    asked: Receiver<AskedStatement>,
    answers: SyncSender<(AskedStatement, Result<Vec<u8>, String>)>,
    engine: ClientSql,
    waker: ZenohWaker,
    clock: Arc<dyn Clock>,
    /// Set when the agent stops.
    cancel: Arc<AtomicBool>,
}

impl NodeQueryWorker {
    /// Runs statements until the desk is gone.
    pub(crate) fn run(self) {
        for asked in &self.asked {
            let left_ns = asked.until_ns.saturating_sub(self.clock.now_ns());
            let ClientSql { engine, limits } = &self.engine;
            let limits = SqlLimits {
                time_ns_max: limits.time_ns_max.min(left_ns.max(1)),
                ..*limits
            };
            let outcome = run(&**engine, &asked.sql, limits, Arc::clone(&self.cancel));
            let outcome = outcome.map_err(|fault| fault.message);
            if self.answers.send((asked, outcome)).is_err() {
                return;
            }
            self.waker.wake();
        }
    }
}

impl NodeQueryDesk {
    /// A desk, and the work of the thread beside it.
    pub(crate) fn new(
        questions: Receiver<NodeQuestion>,
        engine: ClientSql,
        waker: ZenohWaker,
        (clock, cancel): (Arc<dyn Clock>, Arc<AtomicBool>),
    ) -> (Self, NodeQueryWorker) {
        let (to_engine, asked) = sync_channel(WAITING_MAX);
        let (to_desk, answers) = sync_channel(WAITING_MAX);
        let desk = Self {
            questions,
            waiting: BTreeMap::new(),
            to_engine,
            answers,
        };
        let worker = NodeQueryWorker {
            asked,
            answers: to_desk,
            engine,
            waker,
            clock,
            cancel,
        };
        (desk, worker)
    }

    /// Moves statements and answers between the fabric, the engine and the clients of this node.
    pub(crate) fn step<T: Transport>(&mut self, fabric: &mut FabricNode<T>, now_ns: i64) {
        while let Ok(question) = self.questions.try_recv() {
            let NodeQuestion {
                sql,
                nodes,
                until_ns,
                reply,
            } = question;
            match fabric.ask(&sql, &nodes, (now_ns, until_ns)) {
                Some(number) => drop(self.waiting.insert(number, reply)),
                // The client may have gone.
                None => drop(reply.try_send(None)),
            }
        }
        while let Some((number, answers)) = fabric.answers(now_ns) {
            if let Some(reply) = self.waiting.remove(&number) {
                let _ = reply.try_send(Some(answers));
            }
        }
        while let Some(asked) = fabric.asked(now_ns) {
            if let Err(TrySendError::Full(asked) | TrySendError::Disconnected(asked)) =
                self.to_engine.try_send(asked)
            {
                fabric.answer(&asked, Err("too many statements of other nodes wait here"));
            }
        }
        loop {
            match self.answers.try_recv() {
                Ok((asked, Ok(rows))) => fabric.answer(&asked, Ok(&rows)),
                Ok((asked, Err(reason))) => fabric.answer(&asked, Err(&reason)),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_nodes_are_put_together_by_the_names_of_columns() {
        let rows = |text: &str| NodeAnswer::Rows(text.as_bytes().to_vec());
        let answers = BTreeMap::from([
            (
                "a".into(),
                rows(r#"{"columns":["n","x"],"rows":[[1,"u"],[2,null]],"elapsed_ns":1}"#),
            ),
            (
                "b".into(),
                rows(r#"{"columns":["y","n","node"],"rows":[[7,3,"other"]],"elapsed_ns":1}"#),
            ),
            ("c".into(), NodeAnswer::Late),
            ("d".into(), NodeAnswer::Gone),
            ("e".into(), NodeAnswer::Failed("no table x".into())),
            ("f".into(), rows("nonsense")),
        ]);
        let whole = together(answers);
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
    }
}
