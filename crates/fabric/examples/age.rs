//! Age of the newest value of a mirror, on virtual time, over a network that delays and loses
//! messages (docs/design/0009-many-nodes.md).
//!
//!     cargo run --release --locked -p barograph-fabric --example age
//!
//! Two `FabricNode`s in one thread, over a network in memory. A look each millisecond at one stream
//! of the mirror gives the time since the value that it has was put. It stands beside `scale`,
//! which measures cost, and the benchmark `mirror.age`, which measures real time over zenoh on
//! loopback.

mod common;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use barograph_fabric::transport::{
    HELLO_VERSION, Hello, MemoryNetwork, MemoryTransport, Transport as _,
};
use barograph_fabric::{FabricNode, MirrorBounds, NodeConfig};
use barograph_model::{
    Descriptor, Labels, NS_PER_MS, NS_PER_S, Name, Pattern, Sample, Unit, Value, ValueType,
};
use barograph_stream::{
    DirectoryEntry, Incarnation, LatestSample, RunDir, Segment, SegmentConfig, SegmentReader,
    StreamWriter,
};

use crate::common::{Send, TappedTransport};

const START_NS: i64 = 1_700_000_000 * NS_PER_S;
/// Time between two steps of the simulation, in ns.
const TICK_NS: i64 = NS_PER_MS / 10;
/// The pause of an agent between two frames, in which it gathers what has changed, in ns.
const GATHER_NS: i64 = NS_PER_MS / 2;
/// Virtual time before and during the measurement, in s.
const WARM_S: i64 = 5;
const MEASURED_S: i64 = 60;
/// Samples of a stream in memory.
const DEPTH: u32 = 1_024;

/// Faults of the network: delay and loss of messages.
#[derive(Clone, Copy)]
struct Faults {
    delay_ns: i64,
    /// Messages that are lost, in percent.
    lost: u64,
}

/// Messages on the way from a node, with the time of their arrival.
type HeldMessages = Rc<RefCell<VecDeque<(i64, String, Vec<u8>)>>>;

/// A transport that delays each message and loses some, and the messages that are on the way.
fn delaying(
    inner: MemoryTransport,
    mut random: u64,
    faults: Faults,
    now_ns: Rc<Cell<i64>>,
) -> (TappedTransport, HeldMessages) {
    let held = HeldMessages::default();
    let on_the_way = Rc::clone(&held);
    let send: Send = Box::new(move |_, to, message| {
        // Knuth's MMIX generator.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        if (random >> 33) % 100 >= faults.lost {
            let at_ns = now_ns.get() + faults.delay_ns;
            let message = (at_ns, to.to_owned(), message);
            on_the_way.borrow_mut().push_back(message);
        }
        Ok(())
    });
    (TappedTransport { inner, send }, held)
}

/// The changes of the owner's streams.
#[derive(Clone, Copy)]
struct Load {
    streams: usize,
    /// Time between two changes of a stream, in ns; the streams change one after the other.
    interval_ns: i64,
}

struct Member {
    segment: Segment,
    writers: Vec<StreamWriter>,
    node: FabricNode<TappedTransport>,
    held: HeldMessages,
    run_dir: RunDir,
}

impl Member {
    fn new(
        (name, number): (&str, u8),
        streams: usize,
        dir: &Path,
        transport: impl FnOnce(Hello) -> Result<(TappedTransport, HeldMessages), Box<dyn Error>>,
    ) -> Result<Self, Box<dyn Error>> {
        let run_dir = RunDir::new(dir.join(name));
        std::fs::create_dir_all(run_dir.path())?;
        let incarnation = Incarnation([number; 16]);
        let config = SegmentConfig {
            incarnation: Some(incarnation),
            ..SegmentConfig::new(name)
        };
        let mut segment = Segment::create(&run_dir.segment(), config, START_NS)?;
        let mut writers = Vec::new();
        for stream in 0..streams {
            let (name, unit) = (Name::new("disk.write.bytes")?, Unit::new("bytes")?);
            let descriptor = Descriptor {
                labels: Labels::new([("device", format!("d{stream}"))])?,
                ..Descriptor::gauge(name, ValueType::Int, unit)
            };
            writers.push(segment.register(&descriptor, Some(DEPTH), START_NS)?);
        }
        let config = NodeConfig {
            run_dir: run_dir.clone(),
            incarnation,
            nodes: vec![Pattern::new("*")],
            wanted: vec!["disk.*".into()],
            scopes: Vec::new(),
            mirrors_max: 16,
            bounds: MirrorBounds {
                streams_max: 1_024,
                depth_max: DEPTH,
                ring_bytes_max: 64 << 20,
            },
            window_bytes: 512 << 10,
        };
        let (transport, held) = transport(Hello {
            version: HELLO_VERSION,
            incarnation,
            start_ns: START_NS,
            cluster: "two".into(),
            node: name.into(),
        })?;
        let reader = Arc::new(segment.reader()?);
        let node = FabricNode::new(transport, reader, config, START_NS);
        Ok(Self {
            segment,
            writers,
            node,
            held,
            run_dir,
        })
    }

    /// Hands over the messages that arrive by now.
    fn deliver(&mut self, now_ns: i64) {
        let mut held = self.held.borrow_mut();
        while let Some((_, to, message)) = held.pop_front_if(|(at_ns, ..)| *at_ns <= now_ns) {
            // The receiver is there for as long as the simulation is.
            let _ = self.node.transport().inner.send(&to, message);
        }
    }

    /// Puts the time into the streams whose turn it is.
    fn put(&mut self, now_ns: i64, load: Load) -> Result<(), Box<dyn Error>> {
        let apart_ns = load.interval_ns / load.streams as i64;
        if (now_ns - START_NS) % apart_ns == 0 {
            let turn = (now_ns - START_NS) / apart_ns;
            let stream = turn as usize % load.streams;
            let sample = Sample::measured(now_ns, Value::Int(now_ns));
            self.writers[stream].append(&sample)?;
            self.segment.heartbeat(now_ns);
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let loads = [
        ("1 stream, 1,000 changes a second", 1, NS_PER_MS),
        ("50 streams, each a change a second", 50, NS_PER_S),
    ];
    for (title, streams, interval_ns) in loads {
        println!("{title}");
        let load = Load {
            streams,
            interval_ns,
        };
        for lost in [0, 1] {
            for delay_ms in [0, 1, 10] {
                let dir = std::env::temp_dir().join(format!("age-{}", std::process::id()));
                let delay_ns = delay_ms * NS_PER_MS;
                let outcome = measure(load, Faults { delay_ns, lost }, &dir);
                std::fs::remove_dir_all(&dir)?;
                println!("  delay {delay_ms} ms, {lost} % lost: {}", outcome?);
            }
        }
    }
    Ok(())
}

fn measure(load: Load, faults: Faults, dir: &Path) -> Result<String, Box<dyn Error>> {
    let network = MemoryNetwork::default();
    let now = Rc::new(Cell::new(START_NS));
    let transport = |hello: Hello| {
        let random = u64::from(hello.incarnation.0[0]);
        let inner = network.join(hello)?;
        Ok(delaying(inner, random, faults, Rc::clone(&now)))
    };
    let mut owner = Member::new(("owner", 1), load.streams, dir, transport)?;
    let mut here = Member::new(("here", 2), 0, dir, transport)?;
    let mut ages_ns = Vec::new();
    let mut newest_ns = None;
    let begin_ns = START_NS + WARM_S * NS_PER_S;
    while now.get() < begin_ns + MEASURED_S * NS_PER_S {
        now.set(now.get() + TICK_NS);
        let now_ns = now.get();
        owner.put(now_ns, load)?;
        owner.deliver(now_ns);
        here.deliver(now_ns);
        if (now_ns - START_NS) % GATHER_NS == 0 {
            owner.node.step(now_ns);
        }
        here.node.step(now_ns);
        if now_ns > begin_ns && (now_ns - START_NS) % NS_PER_MS == 0 {
            // While its ring begins anew, a stream has no value.
            newest_ns = mirrored(&here)?.or(newest_ns);
            ages_ns.push(now_ns - newest_ns.ok_or("nothing is mirrored")?);
        }
    }
    ages_ns.sort_unstable();
    let of = |percent: usize| ages_ns[(ages_ns.len() - 1) * percent / 100] as f64 / 1e6;
    let peers = here.node.peers();
    let peer = peers.first().ok_or("nobody is known")?;
    let looks = ages_ns.len();
    Ok(format!(
        "age p50 {:.1}, p99 {:.1}, most {:.1} ms in {looks} looks; {} samples, {} missed, {} holes",
        of(50),
        of(99),
        of(100),
        peer.samples,
        peer.missed,
        peer.holes,
    ))
}

/// The time at which the newest value of the first stream of the mirror was put.
fn mirrored(here: &Member) -> Result<Option<i64>, Box<dyn Error>> {
    let reader = SegmentReader::of(&here.run_dir.mirror("owner"))?;
    let entries = reader.directory().entries;
    let is_first = |e: &&DirectoryEntry| e.descriptor.labels.get("device") == Some("d0");
    let latest = entries
        .iter()
        .find(is_first)
        .map(|e| reader.stream(e).latest());
    Ok(match latest {
        Some(LatestSample::Sample { sample, .. }) => Some(sample.ts),
        _ => None,
    })
}
