//! A chain of insights over many nodes on virtual time: each node computes a value from that of the
//! node before it (Apollo, Figure 7, with a node for each vertex).

use super::network::NetworkFaults;
use super::*;

/// Number of nodes after the first, unless `BAROGRAPH_HOPS` says another one.
const HOPS: usize = 8;
/// Longest time for one hop, in ns: an insight over the cluster is computed once a second.
const HOP_NS_MAX: i64 = NS_PER_S + NS_PER_S / 10;
/// Time between two looks at the ends of the chain, in ns.
const LOOK_NS: i64 = NS_PER_S / 20;
/// Time from the start of the last agent to the first look at the ends, in seconds.
const BEGIN_S: i64 = 45;
/// Number of looks: a minute in which new values arrive.
const LOOKS: i64 = 60 * NS_PER_S / LOOK_NS;

fn name(at: usize) -> String {
    format!("n{at:02}")
}

/// A node of the chain; it mirrors the one before it.
fn node(at: usize, dir: &Path, clock: &Arc<ManualClock>) -> SimulatedNode {
    let mut node = SimulatedNode::new(&name(at), &dir.join(name(at)), clock, at as u64);
    node.config.cluster.name = "chain".into();
    node.config.cluster.mirror = vec!["hop.*".into()];
    node.config.cluster.mirror_nodes = match at {
        0 => Vec::new(),
        _ => vec![name(at - 1)],
    };
    node.config.archive.enabled = false;
    node
}

/// The statement of a node's insight.
fn insight(at: usize) -> String {
    let from = match at {
        0 => "filesystem_free_bytes".to_owned(),
        _ => format!("cluster_hop_{}", name(at - 1)),
    };
    let name = name(at);
    format!("CREATE INSIGHT hop.{name} AS SELECT max(value) AS value FROM {from} WHERE newest")
}

#[test]
fn a_value_crosses_a_chain_of_nodes_in_a_second_for_each_hop() {
    let hops = std::env::var("BAROGRAPH_HOPS").map_or(HOPS, |hops| hops.parse().unwrap());
    let dir = memory_dir();
    let clock = virtual_time();
    let network = SimulatedNetwork::new(clock.clone(), 7);
    network.set_faults(NetworkFaults {
        delay_ms_max: 10,
        ..NetworkFaults::default()
    });
    let nodes: Vec<SimulatedNode> = (0..=hops).map(|at| node(at, dir.path(), &clock)).collect();
    let mut random = Random(11);
    let mut agents = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let mut agent = node.start();
        agent.join(&network);
        agent.execute(&insight(at)).unwrap();
        agents.push(agent);
        // Agents of several machines do not look at the same moment.
        clock.advance(random.below(NS_PER_S.unsigned_abs()) as i64);
    }
    let begin_ns = clock.monotonic_ns() + BEGIN_S * NS_PER_S;
    run(&clock, begin_ns, &mut agents);
    // The times at which the first node has had each value, and the last one has seen it.
    let mut first: Vec<(f64, i64)> = Vec::new();
    let mut delays = Vec::new();
    let mut last = None;
    for look in 1..=LOOKS {
        let now_ns = begin_ns + look * LOOK_NS;
        run(&clock, now_ns, &mut agents);
        let begun = agents[0].value("hop.n00").unwrap();
        if first.last().is_none_or(|(value, _)| *value != begun) {
            first.push((begun, now_ns));
        }
        let arrived = agents[hops].value(&format!("hop.{}", name(hops)));
        if arrived != last {
            last = arrived;
            let of = first.iter().find(|(value, _)| Some(*value) == arrived);
            // What was on its way at the first look began before it.
            delays.extend(
                of.filter(|of| of.1 > begin_ns + LOOK_NS)
                    .map(|of| now_ns - of.1),
            );
        }
    }
    let longest_ns = delays.iter().max().copied();
    let (seen, most_ns) = (delays.len(), hops as i64 * HOP_NS_MAX);
    assert!(seen >= 2, "{seen} values have crossed the chain: {first:?}");
    assert!(
        longest_ns.is_some_and(|ns| ns <= most_ns),
        "{delays:?} ns for {hops} hops"
    );
    println!("{hops} hops: {delays:?} ns");
    for agent in agents {
        agent.stop();
    }
}
