//! Costs of the nodes of a cluster for each other: messages, bytes, memory and processor time,
//! against the number of nodes and the shape of the cluster (docs/design/scale.md).
//!
//!     cargo run --release --locked -p barograph-fabric --example scale -- flat 64
//!     cargo run --release --locked -p barograph-fabric --example scale -- tree 1024 32
//!     cargo run --release --locked -p barograph-fabric --example scale -- site 1000 25 10
//!
//! Whole `FabricNode`s run in one thread on virtual time, over a network in memory; their segments
//! and mirrors are files below the directory for temporary files. `flat N`: each node mirrors all
//! others. `tree N R`: racks of R nodes, of which one is the head, which mirrors its rack; one node
//! above mirrors the heads. `site N R C`: as many clusters, each such a tree, which know nothing of
//! each other. Zenoh's own part is not in it.

mod common;

use std::cell::Cell;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use barograph_fabric::transport::{
    HELLO_VERSION, Hello, MemoryNetwork, MemoryTransport, Transport as _,
};
use barograph_fabric::{FabricNode, MirrorBounds, NodeConfig};
use barograph_model::{
    Clock as _, Descriptor, Labels, NS_PER_S, Name, Pattern, Sample, Unit, Value, ValueType,
};
use barograph_stream::{Incarnation, RunDir, Segment, SegmentConfig, StreamWriter, SystemClock};

use crate::common::{Send, TappedTransport};

const START_NS: i64 = 1_700_000_000 * NS_PER_S;
/// Streams of each node that are mirrored; all of them change once a second.
const STREAMS: usize = 50;
/// Samples of a stream in memory.
const DEPTH: u32 = 64;
/// Virtual time before and during the measurement, in s.
const WARM_S: i64 = 10;
const MEASURED_S: i64 = 20;
/// Rounds in a second: a question and its answer take two.
const ROUNDS: i64 = 5;

/// What a node has sent.
#[derive(Default)]
struct Sent {
    messages: Cell<u64>,
    bytes: Cell<u64>,
}

/// A transport that counts what is sent.
fn counting(inner: MemoryTransport, sent: Rc<Sent>) -> TappedTransport {
    let send: Send = Box::new(move |inner, to, message| {
        let bytes = sent.bytes.get() + message.len() as u64;
        sent.bytes.set(bytes);
        sent.messages.set(sent.messages.get() + 1);
        inner.send(to, message)
    });
    TappedTransport { inner, send }
}

/// Role of a node in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Equal,
    Leaf,
    Head,
    Top,
}

struct Member {
    role: Role,
    segment: Segment,
    writers: Vec<StreamWriter>,
    node: FabricNode<TappedTransport>,
    sent: Rc<Sent>,
    run_dir: PathBuf,
    /// Time of the processor in its steps, in ns.
    busy_ns: u64,
}

impl Member {
    fn new(
        network: &MemoryNetwork,
        (name, role, mirrored): (&str, Role, &str),
        number: u64,
        dir: &Path,
    ) -> Result<Self, Box<dyn Error>> {
        let incarnation = Incarnation(u128::from(number + 1).to_be_bytes());
        let run_dir = RunDir::new(dir.join(name));
        std::fs::create_dir_all(run_dir.path())?;
        let config = SegmentConfig {
            incarnation: Some(incarnation),
            streams_max: STREAMS as u32,
            ..SegmentConfig::new(name)
        };
        let mut segment = Segment::create(&run_dir.segment(), config, START_NS)?;
        let mut writers = Vec::new();
        for stream in 0..STREAMS {
            let descriptor = Descriptor {
                labels: Labels::new([("device", format!("d{stream}"))])?,
                ..Descriptor::gauge(
                    Name::new("disk.busy.ratio")?,
                    ValueType::Float,
                    Unit::new("ratio")?,
                )
            };
            writers.push(segment.register(&descriptor, Some(DEPTH), START_NS)?);
        }
        let hello = Hello {
            version: HELLO_VERSION,
            incarnation,
            start_ns: START_NS,
            cluster: "site".into(),
            node: name.into(),
        };
        let sent = Rc::<Sent>::default();
        let transport = counting(network.join(hello)?, Rc::clone(&sent));
        let config = NodeConfig {
            run_dir,
            incarnation,
            nodes: vec![Pattern::new(mirrored)],
            wanted: vec!["disk.*".into()],
            scopes: vec![Pattern::new("all")],
            mirrors_max: usize::MAX,
            bounds: MirrorBounds {
                streams_max: STREAMS,
                depth_max: DEPTH,
                ring_bytes_max: 16 << 20,
            },
            window_bytes: 512 << 10,
        };
        let node = FabricNode::new(transport, Arc::new(segment.reader()?), config, START_NS);
        Ok(Self {
            role,
            segment,
            writers,
            node,
            sent,
            run_dir: dir.join(name),
            busy_ns: 0,
        })
    }

    /// Writes a sample of each stream.
    fn put(&mut self, now_ns: i64) -> Result<(), Box<dyn Error>> {
        for (stream, writer) in self.writers.iter_mut().enumerate() {
            let value = ((now_ns / NS_PER_S) as f64 * 0.7 + stream as f64)
                .sin()
                .abs();
            writer.append(&Sample::measured(now_ns, Value::Float(value)))?;
        }
        self.segment.heartbeat(now_ns);
        Ok(())
    }

    fn step(&mut self, now_ns: i64, clock: &SystemClock) {
        let began_ns = clock.monotonic_ns();
        self.node.step(now_ns);
        self.busy_ns += clock.monotonic_ns().abs_diff(began_ns);
    }
}

/// A node of the study: its name, its role, and the pattern of the nodes that it mirrors.
type StudiedNode = (String, Role, String);

/// The nodes of one cluster, and the number of clusters.
fn shape(arguments: &[String]) -> Option<(Vec<StudiedNode>, usize)> {
    let count = |at: usize| arguments.get(at)?.parse::<usize>().ok().filter(|n| *n > 0);
    let nodes = count(1)?;
    match arguments.first()?.as_str() {
        "flat" => {
            let node = |i| (format!("n{i}"), Role::Equal, "*".to_owned());
            Some(((0..nodes).map(node).collect(), 1))
        }
        kind @ ("tree" | "site") => {
            let size = count(2)?;
            let node = |i: usize| match i % size {
                0 => (
                    format!("head{}", i / size),
                    Role::Head,
                    format!("r{}-*", i / size),
                ),
                place => (
                    format!("r{}-{place}", i / size),
                    Role::Leaf,
                    "nobody".to_owned(),
                ),
            };
            let top = ("top".to_owned(), Role::Top, "head*".to_owned());
            let clusters = if kind == "site" { count(3)? } else { 1 };
            Some(((0..nodes).map(node).chain([top]).collect(), clusters))
        }
        _ => None,
    }
}

/// Bytes of the files below a directory that are in memory or on disk.
fn bytes_below(dir: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        bytes += match found.is_dir() {
            true => bytes_below(&entry.path())?,
            false => found.blocks() * 512,
        };
    }
    Ok(bytes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((shape, clusters)) = shape(&arguments) else {
        let usage = "usage: scale flat NODES | scale tree NODES NODES_OF_A_RACK | \
                     scale site NODES NODES_OF_A_RACK CLUSTERS";
        return Err(usage.into());
    };
    let dir = std::env::temp_dir().join(format!("scale-{}", std::process::id()));
    let outcome = measure(&arguments.join(" "), (&shape, clusters), &dir);
    std::fs::remove_dir_all(&dir)?;
    outcome
}

fn measure(
    title: &str,
    (shape, clusters): (&[StudiedNode], usize),
    dir: &Path,
) -> Result<(), Box<dyn Error>> {
    let clock = SystemClock::new();
    let mut members = Vec::new();
    for cluster in 0..clusters {
        let network = MemoryNetwork::default();
        let dir = dir.join(format!("c{cluster}"));
        for (name, role, mirrored) in shape {
            let number = members.len() as u64;
            let named = (name.as_str(), *role, mirrored.as_str());
            members.push(Member::new(&network, named, number, &dir)?);
        }
    }
    let run = |members: &mut Vec<Member>, from_s: i64, to_s: i64| -> Result<(), Box<dyn Error>> {
        for second in from_s..to_s {
            for round in 0..ROUNDS {
                let now_ns = START_NS + second * NS_PER_S + round * NS_PER_S / ROUNDS;
                for member in members.iter_mut() {
                    if round == 0 {
                        member.put(now_ns)?;
                    }
                    member.step(now_ns, &clock);
                }
            }
        }
        Ok(())
    };
    run(&mut members, 1, WARM_S)?;
    for member in &mut members {
        member.busy_ns = 0;
        member.sent.messages.set(0);
        member.sent.bytes.set(0);
    }
    run(&mut members, WARM_S, WARM_S + MEASURED_S)?;
    println!(
        "{title}: {} nodes, {STREAMS} streams each, one sample a second",
        members.len()
    );
    for role in [Role::Equal, Role::Leaf, Role::Head, Role::Top] {
        let of_role: Vec<_> = members.iter().filter(|one| one.role == role).collect();
        if !of_role.is_empty() {
            report(role, &of_role)?;
        }
    }
    Ok(())
}

/// Prints what a node of this role costs, as a mean over all of them.
fn report(role: Role, of_role: &[&Member]) -> Result<(), Box<dyn Error>> {
    let count = of_role.len() as f64;
    let per_second = |sum: u64| sum as f64 / count / MEASURED_S as f64;
    let messages = of_role.iter().map(|m| m.sent.messages.get()).sum();
    let bytes = of_role.iter().map(|m| m.sent.bytes.get()).sum();
    let busy_ns = of_role.iter().map(|m| m.busy_ns).sum();
    let peers = of_role.iter().flat_map(|m| m.node.peers());
    let (mut mirrors, mut missed) = (0_u64, 0);
    for peer in peers {
        mirrors += u64::from(peer.samples > 0);
        missed += peer.missed;
    }
    let mut memory = 0;
    for member in of_role {
        let nodes = member.run_dir.join("nodes");
        memory += if nodes.exists() {
            bytes_below(&nodes)?
        } else {
            0
        };
    }
    println!(
        "{role:?}: {count} nodes, {:.1} mirrors each, {:.1} messages/s and {:.0} bytes/s sent, \
             {:.2} MB of mirrors, {:.3} ms of processor time a second, {missed} samples missed",
        mirrors as f64 / count,
        per_second(messages),
        per_second(bytes),
        memory as f64 / count / 1e6,
        per_second(busy_ns) / 1e6,
    );
    Ok(())
}
