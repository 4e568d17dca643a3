//! Insights of a cluster on virtual time: nodes that stop, are cut off and lose messages.

use proptest::prelude::*;

use super::*;

const NOW_NS: i64 = 1_700_000_000 * NS_PER_S;
const TABLE: &str = "cluster_disk_busy_ratio";

fn statement(name: &str, what: &str) -> String {
    format!(
        "CREATE INSIGHT {name} ON CLUSTER AS SELECT {what}(value) AS value FROM {TABLE} WHERE newest"
    )
}

fn node(name: &str, kept: BTreeMap<String, ClusterInsight>) -> ClusterInsights {
    let mut node = ClusterInsights::new(name, kept);
    node.set_willing(true);
    node
}

/// Nodes on virtual time, whose messages may be lost.
struct Nodes {
    nodes: Vec<ClusterInsights>,
    is_up: Vec<bool>,
    /// The part of the cluster in which each node is.
    side: Vec<usize>,
    /// The insights that each node computes, as its event loop would.
    applied: Vec<BTreeMap<String, String>>,
    /// Streams that each node has in memory.
    inputs: Vec<(u64, u64)>,
    now_ns: i64,
    /// One of so many messages is lost; 0: none.
    lost: u64,
    random: u64,
    /// Messages that were sent.
    messages: usize,
}

fn name_of(at: usize) -> Arc<str> {
    format!("n{at}").into()
}

impl Nodes {
    fn new(number: usize) -> Self {
        let one = |at| node(&name_of(at), BTreeMap::new());
        Self {
            nodes: (0..number).map(one).collect(),
            is_up: vec![true; number],
            side: vec![0; number],
            applied: vec![BTreeMap::new(); number],
            inputs: vec![(10, 1); number],
            now_ns: NOW_NS,
            lost: 0,
            random: 1,
            messages: 0,
        }
    }

    fn chance(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.random >> 33) % below
    }

    fn is_linked(&self, a: usize, b: usize) -> bool {
        a != b && self.is_up[a] && self.is_up[b] && self.side[a] == self.side[b]
    }

    fn is_lost(&mut self) -> bool {
        self.messages += 1;
        self.lost > 0 && self.chance(self.lost) == 0
    }

    /// A second passes.
    fn second(&mut self) {
        self.now_ns += NS_PER_S;
        for at in 0..self.nodes.len() {
            if !self.is_up[at] {
                continue;
            }
            let linked: Vec<Arc<str>> = (0..self.nodes.len())
                .filter(|to| self.is_linked(at, *to))
                .map(name_of)
                .collect();
            let inputs = self.inputs[at];
            let node = &mut self.nodes[at];
            node.set_connected(linked.iter());
            node.set_inputs(|table| if table == TABLE { inputs } else { (0, 0) });
            node.decide(self.now_ns);
            let wanted = node.wanted();
            if self.applied[at] != wanted {
                let is_bad =
                    |sql: &String| sql.contains("bad_on") && sql.contains(&format!("bad_on_{at}"));
                let bad = wanted.iter().filter(|(_, sql)| is_bad(sql));
                let faults = bad
                    .map(|(name, _)| (name.clone(), "no".to_owned()))
                    .collect();
                node.set_running(&wanted, &faults, self.now_ns);
                self.applied[at] = wanted;
                self.applied[at].retain(|name, _| !faults.contains_key(name));
            }
            self.ask(at);
        }
    }

    fn ask(&mut self, at: usize) {
        let news = self.nodes[at].news();
        for (to, text) in self.nodes[at].due(self.now_ns) {
            for node in to {
                let to: usize = node[1..].parse().unwrap();
                if !self.is_linked(at, to) || self.is_lost() {
                    continue;
                }
                let asked = (&*text, true);
                let answer = self.nodes[to]
                    .asked(&name_of(at), asked, self.now_ns)
                    .unwrap();
                if !self.is_lost() {
                    let answer = (&*answer, true);
                    self.nodes[at]
                        .answered(&node, answer, news, self.now_ns)
                        .unwrap();
                }
            }
        }
    }

    fn seconds(&mut self, seconds: usize) {
        (0..seconds).for_each(|_| self.second());
    }

    fn runners(&self, name: &str) -> Vec<usize> {
        let up = (0..self.nodes.len()).filter(|at| self.is_up[*at]);
        up.filter(|at| self.applied[*at].contains_key(name))
            .collect()
    }

    fn restart(&mut self, at: usize) {
        let kept = self.nodes[at].kept().clone();
        self.nodes[at] = node(&name_of(at), kept);
        self.applied[at] = BTreeMap::new();
        self.is_up[at] = true;
    }
}

#[test]
fn an_insight_runs_where_most_of_its_inputs_are_and_moves_when_that_node_dies() {
    let mut nodes = Nodes::new(4);
    nodes.inputs[2] = (100, 1);
    nodes.seconds(10);
    nodes.nodes[0]
        .create("tier.busy", &statement("tier.busy", "sum"), nodes.now_ns)
        .unwrap();
    nodes.seconds(1);
    assert_eq!(
        nodes.runners("tier.busy"),
        [0],
        "where it was made, at once"
    );
    let mut most = 0;
    for _ in 0..15 {
        nodes.second();
        assert!(!nodes.runners("tier.busy").is_empty(), "never nobody");
        most = most.max(nodes.runners("tier.busy").len());
    }
    assert_eq!(nodes.runners("tier.busy"), [2]);
    assert_eq!(most, 2, "the other one begins before this one ends");
    nodes.is_up[2] = false;
    nodes.seconds(2);
    let now = nodes.runners("tier.busy");
    assert_eq!(now.len(), 1, "another took it over at once");
    nodes.restart(2);
    nodes.seconds(20);
    assert_eq!(
        nodes.runners("tier.busy"),
        [2],
        "it has most of the inputs again"
    );
    // What is little better is not worth a move.
    nodes.inputs[3] = (105, 9);
    nodes.seconds(20);
    assert_eq!(nodes.runners("tier.busy"), [2]);
    let reports = nodes.nodes[1].reports();
    assert_eq!(
        (reports[0].runs_on.len(), &*reports[0].runs_on[0]),
        (1, "n2")
    );
    nodes.nodes[3].drop("tier.busy", nodes.now_ns).unwrap();
    nodes.seconds(3);
    assert_eq!(nodes.runners("tier.busy"), [] as [usize; 0]);
    assert!((0..4).all(|at| !nodes.nodes[at].has("tier.busy")));
}

#[test]
fn two_halves_compute_both_and_one_stops_afterwards() {
    let mut nodes = Nodes::new(4);
    nodes.nodes[0]
        .create("a.b", &statement("a.b", "sum"), nodes.now_ns)
        .unwrap();
    nodes.seconds(20);
    nodes.side = vec![0, 0, 1, 1];
    nodes.seconds(10);
    assert_eq!(nodes.runners("a.b").len(), 2);
    let (one, other) = (nodes.side.iter().position(|side| *side == 0), 2);
    nodes.nodes[one.unwrap()]
        .create("a.b", &statement("a.b", "min"), nodes.now_ns)
        .unwrap();
    nodes.seconds(1);
    nodes.nodes[other]
        .create("a.b", &statement("a.b", "max"), nodes.now_ns)
        .unwrap();
    nodes.side = vec![0; 4];
    nodes.seconds(20);
    assert_eq!(nodes.runners("a.b").len(), 1);
    let digests: Vec<String> = nodes.nodes.iter().map(|node| node.known.digest()).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0]));
    let sql = nodes.nodes[1].kept()["a.b"].sql.clone().unwrap();
    assert!(sql.contains("max("), "the later change counts: {sql}");
}

#[test]
fn what_is_dropped_and_made_again_at_once_is_told() {
    let mut nodes = Nodes::new(2);
    let sql = statement("a.b", "sum");
    nodes.nodes[0].create("a.b", &sql, nodes.now_ns).unwrap();
    nodes.seconds(2);
    nodes.nodes[0].drop("a.b", nodes.now_ns).unwrap();
    nodes.nodes[0].create("a.b", &sql, nodes.now_ns).unwrap();
    nodes.seconds(2);
    assert_eq!(nodes.nodes[1].reports()[0].runs_on, ["n0"]);
}

#[test]
fn a_node_that_cannot_compute_it_leaves_it_to_another() {
    let mut nodes = Nodes::new(3);
    nodes.inputs[1] = (100, 1);
    let sql = statement("a.b", "sum").replace("AS value", "AS bad_on_1");
    nodes.nodes[0].create("a.b", &sql, nodes.now_ns).unwrap();
    let (mut tries, mut before) = (0, false);
    for _ in 0..200 {
        nodes.second();
        assert!(!nodes.runners("a.b").is_empty());
        assert!(!nodes.runners("a.b").contains(&1));
        let is_faulty = nodes.nodes[1].reports().iter().any(|one| one.fault == "no");
        tries += usize::from(is_faulty && !before);
        before = is_faulty;
    }
    assert!(
        (2..=4).contains(&tries),
        "it tries again, once a minute: {tries}"
    );
}

#[test]
fn a_silent_cluster_says_little() {
    let mut nodes = Nodes::new(8);
    nodes.nodes[0]
        .create("a.b", &statement("a.b", "sum"), nodes.now_ns)
        .unwrap();
    nodes.seconds(60);
    nodes.messages = 0;
    nodes.seconds(100);
    let each = nodes.messages / 8 / 100;
    assert!(
        each <= 2,
        "{each} messages and answers of a node in a second"
    );
}

#[test]
fn who_takes_nothing_computes_nothing_of_others() {
    let mut a = ClusterInsights::new("a", BTreeMap::new());
    let mut b = node("b", BTreeMap::new());
    b.create("a.b", &statement("a.b", "sum"), NOW_NS).unwrap();
    a.set_connected([Arc::from("b")].iter());
    b.set_connected([Arc::from("a")].iter());
    let question = b.due(NOW_NS).remove(0).1;
    let answer = a.asked("b", (&question, false), NOW_NS).unwrap();
    b.answered("a", (&answer, true), b.news(), NOW_NS).unwrap();
    assert!(!a.has("a.b"));
    let later_ns = NOW_NS + AGAIN_NS;
    let again = b.due(later_ns).remove(0).1;
    assert!(
        !again.contains("SELECT"),
        "it is not sent to who refuses it"
    );
    a.create("c.d", &statement("c.d", "sum"), NOW_NS).unwrap();
    a.decide(NOW_NS);
    assert_eq!(a.wanted().len(), 1, "its own");
}

#[test]
fn bad_statements_are_refused() {
    let mut node = node("a", BTreeMap::new());
    let mut refusal = |sql: &str| node.create("a.b", sql, NOW_NS).unwrap_err().to_string();
    let usage = "expected CREATE INSIGHT name ON CLUSTER AS SELECT …";
    assert_eq!(refusal("CREATE INSIGHT a.b AS SELECT 1"), usage);
    assert_eq!(refusal(&statement("c.d", "sum")), usage);
    let own =
        "CREATE INSIGHT a.b ON CLUSTER AS SELECT sum(value) FROM disk_busy_ratio WHERE newest";
    let reason = refusal(own);
    assert!(
        reason.contains("such as cluster_disk_busy_ratio; disk_busy_ratio is of one node"),
        "{reason}"
    );
    let strange =
        "CREATE INSIGHT a.b ON CLUSTER AS SELECT max(value) FROM \"cluster_{*}\" WHERE newest";
    assert_eq!(refusal(strange), "no metric has the table cluster_{*}");
    for number in 0..CLUSTER_INSIGHTS_MAX {
        let name = format!("a.b{number}");
        node.create(&name, &statement(&name, "sum"), NOW_NS)
            .unwrap();
    }
    let reason = node
        .create("x.y", &statement("x.y", "sum"), NOW_NS)
        .unwrap_err();
    assert!(reason.to_string().contains("64"), "{reason}");
    assert!(!node.has("x.y"));
    for number in 0..2 * CLUSTER_INSIGHTS_MAX {
        let name = format!("d.b{number}");
        let _ = node.drop(&name, NOW_NS);
    }
    assert!(node.kept().len() <= 2 * CLUSTER_INSIGHTS_MAX);
}

#[test]
fn a_version_from_the_far_future_is_refused() {
    let mut node = node("a", BTreeMap::new());
    let sql = statement("a.b", "sum");
    let theirs = |version| {
        let insight = ClusterInsight {
            version,
            by: "b".into(),
            sql: Some(sql.clone()),
        };
        serde_json::json!({"digest": "", "offers": {}, "insights": {"a.b": insight}}).to_string()
    };
    let now_ms = milliseconds(NOW_NS);
    node.asked("b", (&theirs(u64::MAX), true), NOW_NS).unwrap();
    assert!(!node.has("a.b") && node.refused() == 1);
    node.asked("b", (&theirs(now_ms + 3_600_000), true), NOW_NS)
        .unwrap();
    assert!(node.has("a.b"), "clocks may be apart");
    node.drop("a.b", NOW_NS).unwrap();
    assert!(
        !node.has("a.b"),
        "a change here is later than all that is known"
    );
}

/// Something that happens to a cluster of five nodes.
#[derive(Clone, Debug)]
enum Trouble {
    Create(usize, usize),
    Drop(usize, usize),
    Stop(usize),
    Start(usize),
    Cut(usize),
    Heal,
    Inputs(usize, u64),
    Lose(u64),
    Pass(usize),
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let node = 0..5usize;
    prop_oneof![
        (node.clone(), 0..3usize).prop_map(|(at, which)| Trouble::Create(at, which)),
        (node.clone(), 0..3usize).prop_map(|(at, which)| Trouble::Drop(at, which)),
        node.clone().prop_map(Trouble::Stop),
        node.clone().prop_map(Trouble::Start),
        node.clone().prop_map(Trouble::Cut),
        Just(Trouble::Heal),
        (node, 0..200u64).prop_map(|(at, inputs)| Trouble::Inputs(at, inputs)),
        (0..6u64).prop_map(Trouble::Lose),
        (1..12usize).prop_map(Trouble::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever happens: afterwards all nodes know the same insights, and each runs on one node.
    #[test]
    fn in_the_end_each_insight_runs_once(troubles in prop::collection::vec(trouble(), 1..40), seed: u64) {
        let mut nodes = Nodes::new(5);
        nodes.random = seed;
        for trouble in troubles {
            let name = |which: usize| format!("i.{which}");
            match trouble {
                Trouble::Create(at, which) if nodes.is_up[at] => {
                    let sql = statement(&name(which), "sum");
                    let now_ns = nodes.now_ns;
                    nodes.nodes[at].create(&name(which), &sql, now_ns).unwrap();
                }
                Trouble::Drop(at, which) if nodes.is_up[at] => {
                    let now_ns = nodes.now_ns;
                    nodes.nodes[at].drop(&name(which), now_ns).unwrap();
                }
                Trouble::Stop(at) => nodes.is_up[at] = false,
                Trouble::Start(at) if !nodes.is_up[at] => nodes.restart(at),
                Trouble::Cut(at) => nodes.side[at] = 1,
                Trouble::Heal => nodes.side = vec![0; 5],
                Trouble::Inputs(at, inputs) => nodes.inputs[at] = (inputs, inputs / 2),
                Trouble::Lose(lost) => nodes.lost = lost,
                Trouble::Pass(seconds) => nodes.seconds(seconds),
                _ => {}
            }
        }
        (nodes.lost, nodes.side) = (0, vec![0; 5]);
        for at in 0..5 {
            if !nodes.is_up[at] {
                nodes.restart(at);
            }
        }
        nodes.seconds(60);
        for at in 1..5 {
            prop_assert_eq!(nodes.nodes[at].kept(), nodes.nodes[0].kept());
        }
        let live: Vec<String> = nodes.nodes[0].known.live().map(|(name, _)| name.clone()).collect();
        for name in live {
            prop_assert_eq!(nodes.runners(&name).len(), 1, "{}", name);
        }
    }

    #[test]
    fn whatever_comes_is_taken_or_refused(text in ".{0,200}", version: u64, sql in ".{0,80}") {
        let mut node = node("a", BTreeMap::new());
        node.set_connected([Arc::from("b")].iter());
        let _ = node.asked("b", (&text, true), NOW_NS);
        let message = serde_json::json!({
            "digest": text, "offers": {"a.b": {"inputs": version, "own": version, "runs": true}},
            "insights": {"a.b": {"version": version, "by": text, "sql": sql}},
        });
        let _ = node.asked("b", (&message.to_string(), true), NOW_NS);
        node.decide(NOW_NS);
    }
}
