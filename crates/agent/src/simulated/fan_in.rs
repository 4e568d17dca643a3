//! An insight over a value of each of many nodes, on virtual time: one whole agent, and nodes that
//! have a segment and their part in the cluster alone.

use barograph_fabric::transport::{HELLO_VERSION, Hello};
use barograph_fabric::{FabricNode, MirrorBounds, NodeConfig};
use barograph_model::{Descriptor, Sample, Unit, ValueType};
use barograph_stream::{Segment, SegmentConfig, StreamWriter};

use super::network::{FaultyTransport, NetworkFaults, step_node};
use super::*;

/// Number of nodes whose values are combined, unless `BAROGRAPH_FAN_IN` says another one.
const NODES: usize = 24;
/// Longest time of a message on the way, in ms.
const DELAY_MS_MAX: u64 = 10;
/// Time between two values of a node, in ns.
const PUT_NS: i64 = NS_PER_S;
/// Time after which all nodes are mirrored and their values combined, in seconds.
const BEGIN_S: i64 = 20;
/// Time between two looks at the insights, in ns, and their number.
const LOOK_NS: i64 = NS_PER_S / 20;
const LOOKS: i64 = 20 * NS_PER_S / LOOK_NS;
/// Greatest age of the oldest value in an insight, in ns: a node puts one each second, it is on the
/// way, and the insight is computed once a second.
const AGE_NS_MAX: i64 = PUT_NS + NS_PER_S + NS_PER_S / 20;

/// A node that puts a value each second: the time since the start.
struct Leaf {
    clock: Arc<ManualClock>,
    _dir: tempfile::TempDir,
    segment: Segment,
    writer: StreamWriter,
    node: FabricNode<FaultyTransport>,
    next_put_ns: i64,
    next_step_ns: i64,
}

impl Leaf {
    fn new(at: usize, network: &SimulatedNetwork, clock: &Arc<ManualClock>, phase_ns: i64) -> Self {
        let (dir, now_ns) = (memory_dir(), clock.now_ns());
        let run_dir = RunDir::new(dir.path());
        let (name, incarnation) = (
            format!("n{at:04}"),
            Incarnation((at as u128 + 1).to_be_bytes()),
        );
        let config = SegmentConfig {
            incarnation: Some(incarnation),
            streams_max: 4,
            ..SegmentConfig::new(&name)
        };
        let mut segment = Segment::create(&run_dir.segment(), config, now_ns).unwrap();
        let name_of = barograph_model::Name::new("fan.value.seconds").unwrap();
        let unit = Unit::new("seconds").unwrap();
        let descriptor = Descriptor::gauge(name_of, ValueType::Float, unit);
        let writer = segment.register(&descriptor, Some(16), now_ns).unwrap();
        let transport = network.join(Hello {
            version: HELLO_VERSION,
            incarnation,
            start_ns: now_ns,
            cluster: "fan".into(),
            node: name.as_str().into(),
        });
        let config = NodeConfig {
            run_dir,
            incarnation,
            nodes: Vec::new(),
            wanted: Vec::new(),
            scopes: Vec::new(),
            mirrors_max: 0,
            bounds: MirrorBounds {
                streams_max: 4,
                depth_max: 16,
                ring_bytes_max: 1 << 20,
            },
            window_bytes: 64 << 10,
        };
        let reader = Arc::new(segment.reader().unwrap());
        Self {
            clock: Arc::clone(clock),
            _dir: dir,
            node: FabricNode::new(transport, reader, config, now_ns),
            segment,
            writer,
            next_put_ns: now_ns + phase_ns,
            next_step_ns: now_ns,
        }
    }

    /// Does what is due, and returns the time of the next step.
    fn step(&mut self) -> i64 {
        let now_ns = self.clock.now_ns();
        if now_ns >= self.next_put_ns {
            self.next_put_ns += PUT_NS;
            let seconds = (now_ns - START_NS) as f64 / 1e9;
            self.writer
                .append(&Sample::measured(now_ns, seconds))
                .unwrap();
            self.segment.heartbeat(now_ns);
            self.next_step_ns = now_ns;
        }
        if now_ns >= self.next_step_ns {
            self.next_step_ns = step_node(&mut self.node, &*self.clock);
        }
        self.next_step_ns.min(self.next_put_ns)
    }
}

/// Runs the agent and the leaves until `end_ns`.
fn run_all(clock: &ManualClock, end_ns: i64, agent: &mut SimulatedAgent<'_>, leaves: &mut [Leaf]) {
    while clock.monotonic_ns() < end_ns {
        let next_ns = leaves.iter_mut().map(Leaf::step).min().unwrap_or(end_ns);
        let next_ns = next_ns.min(agent.step()).min(end_ns);
        clock.advance((next_ns - clock.monotonic_ns()).max(0));
    }
}

#[test]
fn an_insight_combines_the_values_of_many_nodes_within_two_seconds() {
    let nodes = std::env::var("BAROGRAPH_FAN_IN").map_or(NODES, |nodes| nodes.parse().unwrap());
    let (dir, clock) = (memory_dir(), virtual_time());
    let network = SimulatedNetwork::new(clock.clone(), 17);
    network.set_faults(NetworkFaults {
        delay_ms_max: DELAY_MS_MAX,
        ..NetworkFaults::default()
    });
    let mut sink = SimulatedNode::new("sink", dir.path(), &clock, 1);
    sink.config.cluster.name = "fan".into();
    sink.config.cluster.mirror = vec!["fan.*".into()];
    sink.config.cluster.mirrors_max = nodes;
    sink.config.archive.enabled = false;
    let mut agent = sink.start();
    agent.join(&network);
    for (name, what) in [("oldest", "min(value)"), ("nodes", "count(*)")] {
        let from = "FROM cluster_fan_value_seconds WHERE newest";
        let sql = format!("CREATE INSIGHT all.{name} AS SELECT {what} AS value {from}");
        agent.execute(&sql).unwrap();
    }
    let mut random = Random(19);
    let phases = (0..nodes).map(|at| (at, random.below(PUT_NS.unsigned_abs()) as i64));
    let leaves = phases.map(|(at, phase_ns)| Leaf::new(at, &network, &clock, phase_ns));
    let mut leaves: Vec<Leaf> = leaves.collect();
    let begin_ns = clock.monotonic_ns() + BEGIN_S * NS_PER_S;
    run_all(&clock, begin_ns, &mut agent, &mut leaves);
    assert_eq!(agent.value("all.nodes"), Some(nodes as f64));
    let mut ages_ns = Vec::new();
    for look in 1..=LOOKS {
        let now_ns = begin_ns + look * LOOK_NS;
        run_all(&clock, now_ns, &mut agent, &mut leaves);
        let put_ns = START_NS + (agent.value("all.oldest").unwrap() * 1e9) as i64;
        ages_ns.push(now_ns - put_ns);
    }
    assert_eq!(agent.value("all.nodes"), Some(nodes as f64));
    ages_ns.sort_unstable();
    let of = |percent: usize| ages_ns[(ages_ns.len() - 1) * percent / 100];
    println!(
        "{nodes} nodes: p50 {} ns, p99 {} ns, most {} ns",
        of(50),
        of(99),
        of(100)
    );
    assert!(
        of(0) >= 0 && of(100) <= AGE_NS_MAX,
        "{} to {} ns",
        of(0),
        of(100)
    );
    agent.stop();
}
