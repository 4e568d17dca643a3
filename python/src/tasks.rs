//! Where tasks run: the decision of `crates/placement`, with plain numbers in and out. The typed
//! package makes objects of them.

use barograph_placement::{
    ClusterState, DataHolder, KeyHash, LocalityConfig, LocationPlace, LocationStrength, NodeState,
    Reading, TaskRequest, WaitingTask,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What Python says of a node: the attributes of `TaskNode`.
#[derive(FromPyObject)]
pub(crate) struct AskedNode {
    node: u64,
    queue_s: Option<f64>,
    link_bytes_s: Option<f64>,
    latency_s: Option<f64>,
    age_s: f64,
    is_open: bool,
}

impl AskedNode {
    fn state(&self) -> NodeState {
        let reading = |value: Option<f64>| value.map(|it| Reading::measured(it, self.age_s));
        NodeState {
            node: self.node,
            is_open: self.is_open,
            queue_s: reading(self.queue_s),
            link_bytes_per_s: reading(self.link_bytes_s),
            link_latency_s: reading(self.latency_s),
        }
    }
}

/// Node, wait and move in seconds, whether the wish was overridden, and the reason.
type Placed = (Option<u64>, f64, f64, bool, String);

/// Places a task.
#[pyfunction]
#[pyo3(signature = (key, nodes, holders, nbytes, node, rank, rank_nodes, hard, cost_s, wait_s_max, choices, patience, staleness_s))]
#[expect(
    clippy::too_many_arguments,
    reason = "the typed package names each of them"
)]
pub(crate) fn place_task(
    key: Vec<u8>,
    nodes: Vec<AskedNode>,
    holders: Vec<(u64, u64)>,
    nbytes: u64,
    node: Option<u64>,
    rank: Option<usize>,
    rank_nodes: Vec<u64>,
    hard: bool,
    cost_s: f64,
    wait_s_max: f64,
    choices: usize,
    patience: f64,
    staleness_s: f64,
) -> PyResult<Placed> {
    at_least_0("cost_s", cost_s)?;
    at_least_0("wait_s_max", wait_s_max)?;
    at_least_0("patience", patience)?;
    if staleness_s.is_nan() || staleness_s <= 0.0 {
        let text = format!("staleness_s is {staleness_s}: give seconds, more than 0");
        return Err(PyValueError::new_err(text));
    }
    let place = match (node, rank) {
        (Some(_), Some(_)) => {
            let text = "node and rank are both given: give one of them, or neither";
            return Err(PyValueError::new_err(text));
        }
        (Some(node), None) => LocationPlace::Node(node),
        (None, Some(rank)) => LocationPlace::Rank(rank),
        (None, None) => LocationPlace::Data,
    };
    let holders = holders.into_iter();
    let holders: Vec<_> = holders
        .map(|(node, bytes)| DataHolder { node, bytes })
        .collect();
    let request = TaskRequest {
        key: KeyHash::of(&key),
        place,
        strength: match hard {
            true => LocationStrength::Hard,
            false => LocationStrength::Soft { cost_s, wait_s_max },
        },
        bytes: nbytes,
        holders: &holders,
        now_ns: 0,
    };
    let nodes: Vec<_> = nodes.iter().map(AskedNode::state).collect();
    let cluster = ClusterState {
        nodes: &nodes,
        rank_nodes: &rank_nodes,
    };
    let config = LocalityConfig {
        tau_s: staleness_s,
        choices,
        patience,
    };
    let placed = barograph_placement::place_task(&request, &cluster, &config);
    let reason = placed.reason;
    Ok((
        placed.node,
        placed.wait_s,
        placed.move_s,
        reason.is_overridden(),
        reason.sentence(),
    ))
}

/// The waiting task that an idle node takes over, by its number.
#[pyfunction]
pub(crate) fn take_over(waiting: Vec<(u64, f64, f64)>) -> Option<u64> {
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|(task, wait_s, move_s)| WaitingTask {
            task,
            wait_s,
            move_s,
        })
        .collect();
    barograph_placement::take_over(&waiting).map(|it| it.task)
}

fn at_least_0(what: &str, given: f64) -> PyResult<()> {
    match given >= 0.0 {
        true => Ok(()),
        false => {
            let text = format!("{what} is {given}: give a number, from 0 up");
            Err(PyValueError::new_err(text))
        }
    }
}
