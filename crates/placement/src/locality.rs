//! Where a task runs: at its data, unless the queue there is so long that it is cheaper to move the
//! data.
//!
//! The cost of a node is the wait in its queue and the time to move there what it has not: bytes by
//! the measured bandwidth of its link, and latency. The task goes to the node that holds the data
//! unless another one costs less by more than the wish for a location is worth. The other
//! one is the better of two that are drawn by the key of the task (Mitzenmacher, "The power of
//! two choices in randomized load balancing", 2001), so that tasks that are placed by the same
//! readings do not all go to one node.
//!
//! A move that gains a task something costs all tasks behind it the time of the move, and queues of
//! equal load differ by chance, the more the longer they are. So a task has patience: it moves only
//! for a gain above the geometric mean of the usual queue and the time of the move. Where queues
//! are short, that is nearly nothing; where they are long, a task is not moved for what
//! will even out.
//!
//! The words are those of Swift/T: a location is a rank or a node, hard or soft. A soft one of
//! Swift/T knows neither bytes nor queues nor a bound of waiting; here it has a cost and a longest
//! wait, and the decision says why it was overridden. A hard one is never overridden.

mod reason;

pub use reason::LocalityReason;

use crate::decision::{PlacementAction, PlacementAlternative, PlacementDecision, PredictedEffect};
use crate::hash::KeyHash;
use crate::reading::{Reading, known};

/// The name of the adviser in its records.
const ADVISER: &str = "locality";
/// Most nodes that are drawn beside those that hold the data.
const CHOICES_MAX: usize = 64;

/// Where a task is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocationPlace {
    /// On the node of a rank of its application.
    Rank(usize),
    /// On a node.
    Node(u64),
    /// Where most of its data is.
    Data,
}

/// How much the location matters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocationStrength {
    /// It is there or nowhere.
    Hard,
    /// It is there unless another node is better.
    Soft {
        /// What another place costs beside moving the data, in seconds, for example for caches
        /// that are cold there.
        cost_s: f64,
        /// The longest wait at the place; beyond it the better one of the others is taken.
        wait_s_max: f64,
    },
}

/// Bytes of a task's data on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHolder {
    /// The number of the node.
    pub node: u64,
    /// How many bytes of the data it has.
    pub bytes: u64,
}

/// A task that is to be placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskRequest<'a> {
    /// The hash of its key, by which other nodes are drawn.
    pub key: KeyHash,
    /// Where it is to run.
    pub place: LocationPlace,
    /// How much that matters.
    pub strength: LocationStrength,
    /// All bytes that it reads.
    pub bytes: u64,
    /// The nodes that have some of them.
    pub holders: &'a [DataHolder],
    /// The time, in ns on the caller's clock.
    pub now_ns: i64,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeState {
    /// The number of the node.
    pub node: u64,
    /// Whether it takes tasks: it is neither dead nor drained.
    pub is_open: bool,
    /// Seconds until a task that comes now begins.
    pub queue_s: Option<Reading>,
    /// Bytes/s at which data comes to it.
    pub link_bytes_per_s: Option<Reading>,
    /// Seconds until the first byte comes.
    pub link_latency_s: Option<Reading>,
}

/// The nodes of a cluster, and where the ranks of the application are.
#[derive(Clone, Copy, Debug)]
pub struct ClusterState<'a> {
    /// The nodes, by number.
    pub nodes: &'a [NodeState],
    /// The node of each rank.
    pub rank_nodes: &'a [u64],
}

/// How tasks are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalityConfig {
    /// The time constant of staleness, in seconds.
    pub tau_s: f64,
    /// How many nodes are drawn beside those that hold the data.
    pub choices: usize,
    /// The least gain for which a task moves, by the geometric mean of the usual queue and the
    /// time of the move: 0 for every gain.
    pub patience: f64,
}

impl Default for LocalityConfig {
    fn default() -> Self {
        Self {
            tau_s: crate::reading::STALENESS_S_DEFAULT,
            choices: 2,
            patience: 1.0,
        }
    }
}

/// Where a task goes, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalityDecision {
    /// The node; `None` if the task cannot run now.
    pub node: Option<u64>,
    /// The expected wait there, in seconds.
    pub wait_s: f64,
    /// The expected time to move data there, in seconds.
    pub move_s: f64,
    /// Why it is this node.
    pub reason: LocalityReason,
}

impl LocalityDecision {
    /// The record of the decision.
    pub fn record(&self, request: &TaskRequest, cluster: &ClusterState) -> PlacementDecision {
        let key = request.key.number();
        let sentence = self.reason.sentence();
        let mut record = PlacementDecision::nothing(request.now_ns, ADVISER, key, &sentence);
        if let Some(node) = self.node {
            record.action = PlacementAction::RunOn { node };
            record.effect = PredictedEffect::Seconds(self.wait_s + self.move_s);
            record.alternative(PlacementAlternative {
                of: node,
                score: self.wait_s + self.move_s,
                why_not: "",
            });
        }
        if let LocalityReason::MovingIsCheaper {
            place, at_place_s, ..
        }
        | LocalityReason::WaitIsTooLong {
            place, at_place_s, ..
        } = self.reason
        {
            record.alternative(PlacementAlternative {
                of: place,
                score: at_place_s,
                why_not: "it is where the task was to run, and the wait there is too long",
            });
        }
        let is_input = |it: &&NodeState| {
            Some(it.node) == self.node || request.holders.iter().any(|of| of.node == it.node)
        };
        for state in cluster.nodes.iter().filter(is_input) {
            record.input("queue s", state.node, state.queue_s);
            record.input("link bytes/s", state.node, state.link_bytes_per_s);
        }
        record
    }
}

/// A node that a task may go to, with its expected times.
#[derive(Clone, Copy, Debug)]
struct NodeCost {
    node: u64,
    wait_s: f64,
    move_s: f64,
}

impl NodeCost {
    fn total_s(&self) -> f64 {
        self.wait_s + self.move_s
    }

    fn chosen(&self, reason: LocalityReason) -> LocalityDecision {
        LocalityDecision {
            node: Some(self.node),
            wait_s: self.wait_s,
            move_s: self.move_s,
            reason,
        }
    }
}

/// Places a task.
pub fn place_task(
    request: &TaskRequest,
    cluster: &ClusterState,
    config: &LocalityConfig,
) -> LocalityDecision {
    let usual = Usual::of(cluster.nodes, config.tau_s);
    let cost = |node: &NodeState| usual.cost(node, request, config.tau_s);
    let at_place = places(request, cluster);
    let at_place = at_place.into_iter().filter(|it| it.is_open).map(&cost);
    let at_place = at_place.min_by(|a, b| a.total_s().total_cmp(&b.total_s()));
    let (cost_s, wait_s_max) = match (request.strength, at_place) {
        (LocationStrength::Hard, Some(place)) => {
            let wait_s = place.wait_s;
            return place.chosen(LocalityReason::HardKept { wait_s });
        }
        (LocationStrength::Hard, None) => return nowhere(LocalityReason::HardIsClosed),
        (LocationStrength::Soft { cost_s, wait_s_max }, _) => (cost_s.max(0.0), wait_s_max),
    };
    let drawn = drawn(request.key, cluster.nodes, config.choices);
    let is_place = |it: &&NodeState| at_place.is_some_and(|place| place.node == it.node);
    let other = drawn.into_iter().filter(|it| !is_place(it)).map(cost);
    let other = other.min_by(|a, b| a.total_s().total_cmp(&b.total_s()));
    match (at_place, other) {
        (Some(place), Some(other)) => {
            let evens_out_s = (usual.queue_s * other.move_s).sqrt();
            let cost_s = cost_s + config.patience.max(0.0) * evens_out_s;
            weigh(&place, &other, cost_s, wait_s_max)
        }
        (Some(place), None) => place.chosen(LocalityReason::AtPlace {
            wait_s: place.wait_s,
        }),
        (None, Some(other)) => other.chosen(match request.holders.is_empty() {
            true if request.place == LocationPlace::Data => LocalityReason::NoData,
            _ => LocalityReason::PlaceIsClosed,
        }),
        (None, None) => nowhere(LocalityReason::NoNodes),
    }
}

fn weigh(place: &NodeCost, other: &NodeCost, cost_s: f64, wait_s_max: f64) -> LocalityDecision {
    let other_s = other.total_s() + cost_s;
    // Where nothing is known of links, moving has no end, and neither is less.
    if other_s < place.total_s() {
        return other.chosen(LocalityReason::MovingIsCheaper {
            place: place.node,
            at_place_s: place.total_s(),
            elsewhere_s: other_s,
        });
    }
    if place.wait_s > wait_s_max && other.wait_s < place.wait_s {
        return other.chosen(LocalityReason::WaitIsTooLong {
            place: place.node,
            at_place_s: place.wait_s,
            wait_s_max,
        });
    }
    let wait_s = place.wait_s;
    place.chosen(LocalityReason::AtPlace { wait_s })
}

fn nowhere(reason: LocalityReason) -> LocalityDecision {
    LocalityDecision {
        node: None,
        wait_s: 0.0,
        move_s: 0.0,
        reason,
    }
}

/// The nodes where a task is to run.
fn places<'a>(request: &TaskRequest, cluster: &ClusterState<'a>) -> Vec<&'a NodeState> {
    let nodes = cluster.nodes.iter();
    match request.place {
        LocationPlace::Node(node) => nodes.filter(|it| it.node == node).collect(),
        LocationPlace::Rank(rank) => {
            let node = cluster.rank_nodes.get(rank);
            nodes.filter(|it| Some(&it.node) == node).collect()
        }
        LocationPlace::Data => {
            let most = request.holders.iter().map(|it| it.bytes).max();
            let holds = |node: u64| {
                let mut holders = request.holders.iter();
                holders.any(|it| it.node == node && Some(it.bytes) == most)
            };
            nodes.filter(|it| holds(it.node)).collect()
        }
    }
}

/// Open nodes that are drawn by a key, at most so many.
fn drawn(key: KeyHash, nodes: &[NodeState], choices: usize) -> Vec<&NodeState> {
    let draws = (0..choices.min(CHOICES_MAX) as u64).filter_map(|draw| {
        // A draw that hits a closed node is repeated some times.
        let mut tries = (0..4_u64).map(|attempt| key.salted(draw + attempt * CHOICES_MAX as u64));
        tries.find_map(|hash| {
            let index = (u128::from(hash.number()) * nodes.len() as u128) >> 64;
            nodes.get(index as usize).filter(|it| it.is_open)
        })
    });
    draws.collect()
}

/// What is expected where nothing is known: the mean of the other nodes.
struct Usual {
    queue_s: f64,
    link_bytes_per_s: Option<f64>,
}

impl Usual {
    fn of(nodes: &[NodeState], tau_s: f64) -> Self {
        let mean = |of: fn(&NodeState) -> Option<Reading>| {
            let open = nodes.iter().filter(|it| it.is_open);
            let known = open.filter_map(|it| known(of(it), tau_s));
            let (sum, trusts) = known.fold((0.0, 0.0), |(sum, trusts), it| {
                (sum + it.value * it.trust, trusts + it.trust)
            });
            (trusts > 0.0).then(|| sum / trusts)
        };
        Self {
            queue_s: mean(|it| it.queue_s).unwrap_or(0.0),
            link_bytes_per_s: mean(|it| it.link_bytes_per_s),
        }
    }

    /// What is not trusted in full is drawn to what is usual.
    fn cost(&self, node: &NodeState, request: &TaskRequest, tau_s: f64) -> NodeCost {
        let wait_s = match known(node.queue_s, tau_s) {
            Some(queue) => queue.trust * queue.value + (1.0 - queue.trust) * self.queue_s,
            None => self.queue_s,
        };
        let held = request.holders.iter().filter(|it| it.node == node.node);
        let held = held.map(|it| it.bytes).max().unwrap_or(0);
        let missing = request.bytes.saturating_sub(held);
        let move_s = match missing {
            0 => 0.0,
            missing => self.move_s(node, missing as f64, tau_s),
        };
        NodeCost {
            node: node.node,
            wait_s,
            move_s,
        }
    }

    fn move_s(&self, node: &NodeState, bytes: f64, tau_s: f64) -> f64 {
        let link = known(node.link_bytes_per_s, tau_s).map(|it| it.value);
        let latency_s = known(node.link_latency_s, tau_s).map_or(0.0, |it| it.value);
        match link.or(self.link_bytes_per_s) {
            Some(bytes_per_s) if bytes_per_s > 0.0 => latency_s + bytes / bytes_per_s,
            _ => f64::INFINITY,
        }
    }
}

/// A task that waits at a node, as another one sees it that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitingTask {
    /// The number of the task.
    pub task: u64,
    /// Seconds until it begins where it is.
    pub wait_s: f64,
    /// Seconds to move its data to the idle node, and what its location is worth beside that.
    pub move_s: f64,
}

/// The waiting task that an idle node takes over: the one that begins earlier by most, if any
/// does. Of equal ones the first is taken. Tasks with hard locations must not be among them.
pub fn take_over(waiting: &[WaitingTask]) -> Option<WaitingTask> {
    let gain_s = |it: &WaitingTask| it.wait_s - it.move_s;
    let gaining = waiting.iter().filter(|it| gain_s(it) > 0.0);
    let best = gaining.reduce(|best, it| if gain_s(it) > gain_s(best) { it } else { best });
    best.copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(node: u64, queue_s: f64) -> NodeState {
        NodeState {
            node,
            is_open: true,
            queue_s: Some(Reading::measured(queue_s, 0.0)),
            link_bytes_per_s: Some(Reading::measured(100.0, 0.0)),
            link_latency_s: Some(Reading::measured(0.1, 0.0)),
        }
    }

    const HOLDER: &[DataHolder] = &[DataHolder {
        node: 1,
        bytes: 200,
    }];
    const SOFT: LocationStrength = LocationStrength::Soft {
        cost_s: 0.0,
        wait_s_max: f64::INFINITY,
    };

    fn request(strength: LocationStrength) -> TaskRequest<'static> {
        TaskRequest {
            key: KeyHash::of(b"task"),
            place: LocationPlace::Data,
            strength,
            bytes: 200,
            holders: HOLDER,
            now_ns: 0,
        }
    }

    fn placed(request: &TaskRequest, nodes: &[NodeState]) -> LocalityDecision {
        let cluster = ClusterState {
            nodes,
            rank_nodes: &[1, 2],
        };
        let decision = place_task(
            request,
            &cluster,
            &LocalityConfig {
                choices: 16,
                patience: 0.0,
                ..LocalityConfig::default()
            },
        );
        let record = decision.record(request, &cluster);
        assert_eq!(record.reason, decision.reason.sentence());
        decision
    }

    /// Moving takes 2.1 s.
    #[test]
    fn a_task_stays_until_moving_is_cheaper() {
        let soft = |cost_s, wait_s_max| LocationStrength::Soft { cost_s, wait_s_max };
        let never = f64::INFINITY;
        // Queue at the data, queue elsewhere, strength, and where the task goes.
        let table = [
            (2.0, 0.0, soft(0.0, never), 1),
            (2.2, 0.0, soft(0.0, never), 2),
            (2.2, 0.2, soft(0.0, never), 1),
            (2.2, 0.0, soft(1.0, never), 1),
            (3.2, 0.0, soft(1.0, never), 2),
            (2.0, 0.0, soft(0.0, 1.0), 2),
            (2.0, 2.5, soft(0.0, 1.0), 1),
            (1e9, 0.0, LocationStrength::Hard, 1),
        ];
        for (at_data, elsewhere, strength, expect) in table {
            let nodes = [node(1, at_data), node(2, elsewhere)];
            let decision = placed(&request(strength), &nodes);
            assert_eq!(decision.node, Some(expect), "{at_data}: {decision:?}");
        }
    }

    #[test]
    fn a_closed_place_is_told() {
        let mut closed = node(1, 0.0);
        closed.is_open = false;
        let nodes = [closed, node(2, 5.0)];
        let hard = placed(&request(LocationStrength::Hard), &nodes);
        assert_eq!(
            (hard.node, hard.reason),
            (None, LocalityReason::HardIsClosed)
        );
        let soft = placed(&request(SOFT), &nodes);
        assert_eq!(
            (soft.node, soft.reason),
            (Some(2), LocalityReason::PlaceIsClosed)
        );
        assert_eq!(placed(&request(SOFT), &[]).reason, LocalityReason::NoNodes);
    }

    #[test]
    fn ranks_and_nodes_are_places() {
        let nodes = [node(1, 0.0), node(2, 0.0)];
        for (place, expect) in [
            (LocationPlace::Rank(1), Some(2)),
            (LocationPlace::Rank(7), None),
            (LocationPlace::Node(2), Some(2)),
            (LocationPlace::Data, Some(1)),
        ] {
            let request = TaskRequest {
                place,
                ..request(LocationStrength::Hard)
            };
            assert_eq!(placed(&request, &nodes).node, expect, "{place:?}");
        }
    }

    #[test]
    fn unknown_queues_and_links_keep_a_task_at_its_data() {
        let mut nodes = [node(1, 1e3), node(2, 0.0)];
        for state in &mut nodes {
            state.link_bytes_per_s = None;
        }
        assert_eq!(placed(&request(SOFT), &nodes).node, Some(1));
        nodes = [node(1, 1e3), node(2, 0.0)];
        nodes[0].queue_s = Some(Reading::measured(1e3, 1e6));
        assert_eq!(placed(&request(SOFT), &nodes).node, Some(1));
    }

    #[test]
    fn an_idle_node_takes_what_gains_most() {
        let task = |task, wait_s, move_s| WaitingTask {
            task,
            wait_s,
            move_s,
        };
        let waiting = [task(1, 1.0, 1.5), task(2, 5.0, 1.5), task(3, 5.0, f64::NAN)];
        assert_eq!(take_over(&waiting).map(|it| it.task), Some(2));
        assert_eq!(take_over(&waiting[..1]), None);
    }
}
