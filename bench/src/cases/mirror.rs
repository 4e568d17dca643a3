//! `mirror.age`, `mirror.read`, `mirror.flow` and `fabric.rate`: two nodes over zenoh on loopback,
//! in one process. A value is written at one of them, and read in the mirror of the other.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barograph_client::SystemClock;
use barograph_fabric::transport::{
    HELLO_VERSION, Hello, Transport as _, ZenohConfig, ZenohTransport, ZenohWaker,
};
use barograph_fabric::{FabricNode, MirrorBounds, NodeConfig};
use barograph_model::{Clock, NS_PER_S, Pattern};
use barograph_stream::{
    Incarnation, RunDir, Segment, SegmentConfig, SegmentReader, StreamReader, StreamWriter,
};

use super::{Scratch, descriptor};
use crate::measure::{LatencySpread, batch_ns, keep, now};
use crate::peers;
use crate::report::{Fault, Report};

/// Changes per second whose age is measured: the target's rate.
pub(crate) const CHANGES_PER_S: u64 = 1_000;
const SECONDS: u64 = 10;
/// Streams, and samples of each that are written at a time, where the rate is measured.
const STREAMS: usize = 1_000;
const BURST: usize = 100;
/// Samples that are moved where the rate is measured.
const MOVED: usize = 20_000_000;
/// Longest wait for something that takes a moment.
const PATIENCE: Duration = Duration::from_secs(30);
/// Shortest time between two wakes of a node because of new samples, and longest wait for them:
/// those of the agent.
const NEWS_PAUSE: Duration = Duration::from_micros(500);
const NEWS_WAIT: Duration = Duration::from_millis(500);

/// Measures the age of changes and the cost of a read.
pub(super) fn age(report: &mut Report) -> Result<(), Fault> {
    let mut pair = Pair::start(1)?;
    let reader = pair.mirrored(0)?;
    let read_ns = batch_ns(Duration::from_secs(1), || keep(reader.latest_f64()));
    report.row(
        "mirror.read",
        "newest value of a mirrored stream",
        read_ns,
        "ns",
        &[],
    );
    let mut ages = pair.ages(&reader)?;
    drop(pair);
    let spread = LatencySpread::of(&mut ages);
    let redis = peers::redis::stream_age(report, CHANGES_PER_S, SECONDS);
    let nats = peers::nats::stream_age(report, CHANGES_PER_S, SECONDS);
    let of = |part: fn(&LatencySpread) -> f64| {
        let theirs = [("redis", &redis), ("nats", &nats)].into_iter();
        theirs.filter_map(move |(peer, spread)| Some((peer, part(spread.as_ref()?) / 1e6)))
    };
    for (what, ours, theirs) in [
        ("p50", spread.p50, of(|spread| spread.p50)),
        ("p99", spread.p99, of(|spread| spread.p99)),
    ] {
        let peers: Vec<(&str, f64)> = theirs.collect();
        let case = format!("age of a change where it is read, {what}, {CHANGES_PER_S} a second");
        report.row("mirror.age", &case, ours / 1e6, "ms", &peers);
    }
    Ok(())
}

/// Measures the age of changes while a million of them a second are sent (SOS, off the node).
pub(super) fn flow(report: &mut Report) -> Result<(), Fault> {
    let mut pair = Pair::start(STREAMS)?;
    let reader = pair.mirrored(STREAMS - 1)?;
    let mut ages = pair.ages(&reader)?;
    let seen = 100.0 * ages.len() as f64 / (CHANGES_PER_S * SECONDS) as f64;
    let spread = LatencySpread::of(&mut ages);
    let per_s = STREAMS as u64 * CHANGES_PER_S;
    for (what, age_ns) in [("p50", spread.p50), ("p99", spread.p99)] {
        let case = format!("age of a change where it is read, {what}, {per_s} a second in all");
        report.row("mirror.flow", &case, age_ns / 1e6, "ms", &[]);
    }
    let case = "changes of one of the streams that were read";
    report.row("mirror.flow", case, seen, "%", &[]);
    Ok(())
}

/// Measures how many samples a second arrive, if they are written in bursts.
pub(super) fn rate(report: &mut Report) -> Result<(), Fault> {
    let mut pair = Pair::start(STREAMS)?;
    let last = pair.mirrored(STREAMS - 1)?;
    let begin = now();
    let mut written = 0;
    while written < MOVED {
        pair.owner.burst()?;
        written += STREAMS * BURST;
        // The last stream is sent last: with it, the others have come.
        let wanted = (written / STREAMS) as u64;
        while last.count().is_some_and(|count| count < wanted) {
            if begin.elapsed() > 4 * PATIENCE {
                return Err("the samples did not arrive".into());
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    let samples_s = written as f64 / begin.elapsed().as_secs_f64();
    drop(pair);
    let redis = peers::redis::moved_per_s(report);
    let nats = peers::nats::moved_per_s(report);
    let peers = [("redis", redis), ("nats", nats)].into_iter();
    let peers: Vec<(&str, f64)> = peers
        .filter_map(|(peer, per_s)| Some((peer, per_s?)))
        .collect();
    let case = format!("samples from one node to another, {STREAMS} streams in bursts of {BURST}");
    report.row("fabric.rate", &case, samples_s, "samples/s", &peers);
    Ok(())
}

/// The ages of all samples when a reader who waits for them has them, in ns.
fn ages(reader: &StreamReader, is_over: &AtomicBool) -> Vec<f64> {
    let clock = SystemClock::new();
    let (mut ages, mut samples) = (Vec::new(), Vec::new());
    let mut cursor = reader.count().unwrap_or(0);
    while !is_over.load(Ordering::Acquire) {
        reader.wait(cursor, Duration::from_millis(100));
        samples.clear();
        let Some(scan) = reader.scan(cursor, &mut samples) else {
            break;
        };
        cursor = scan.cursor;
        let now_ns = clock.now_ns();
        ages.extend(samples.iter().map(|sample| (now_ns - sample.ts) as f64));
    }
    ages
}

/// Two nodes, of which the second mirrors the first.
struct Pair {
    owner: Owner,
    mirror: Arc<SegmentReader>,
    _here: Node,
    _there: Node,
    _scratch: [Scratch; 2],
}

/// The segment that is mirrored.
struct Owner {
    segment: Segment,
    writers: Vec<StreamWriter>,
}

/// A node with a thread of its own. Dropping it ends the thread.
struct Node {
    is_over: Arc<AtomicBool>,
    waker: ZenohWaker,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.waker.wake();
        for thread in self.threads.drain(..) {
            // A thread that has failed has left its part of the figures out.
            let _ = thread.join();
        }
    }
}

impl Pair {
    /// Starts both nodes; the first has so many streams, each with one sample.
    fn start(streams: usize) -> Result<Self, Fault> {
        let address = {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            listener.local_addr()?.to_string()
        };
        let scratch = [Scratch::new("owner")?, Scratch::new("mirror")?];
        let clock = SystemClock::new();
        let made = |at: usize, name: &str| {
            let run_dir = RunDir::new(&scratch[at].0);
            let config = SegmentConfig::new(name);
            Segment::create(&run_dir.segment(), config, clock.now_ns())
        };
        let (mut segment, own) = (made(0, "owner")?, made(1, "mirror")?);
        let mut writers = Vec::new();
        for stream in 0..streams {
            let mut writer = segment.register(&descriptor(stream), None, clock.now_ns())?;
            writer.append_f64(clock.now_ns(), 0.0)?;
            writers.push(writer);
        }
        let there = Node::start("owner", 1, &scratch[0], (&address, None))?;
        let here = Node::start("mirror", 2, &scratch[1], ("127.0.0.1:0", Some(&address)))?;
        drop(own);
        let mirrors = RunDir::new(&scratch[1].0).mirror("owner");
        let begin = now();
        let mirror = loop {
            if let Ok(mirror) = SegmentReader::of(&mirrors)
                && mirror.directory().entries.len() == streams
            {
                break mirror;
            }
            if begin.elapsed() > PATIENCE {
                return Err("the mirror did not appear".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        Ok(Self {
            owner: Owner { segment, writers },
            mirror: Arc::new(mirror),
            _here: here,
            _there: there,
            _scratch: scratch,
        })
    }

    /// The ages of the changes of one stream, in ns, while all streams change at a steady rate.
    fn ages(&mut self, reader: &StreamReader) -> Result<Vec<f64>, Fault> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (owner, over) = (&mut self.owner, &is_over);
            let writing = scope.spawn(move || {
                let written = owner.write_steadily();
                over.store(true, Ordering::Release);
                written
            });
            let ages = ages(reader, &is_over);
            writing.join().map_err(|_| "the writer failed")??;
            Ok(ages)
        })
    }

    /// A reader of a mirrored stream that has a sample.
    fn mirrored(&self, stream: usize) -> Result<StreamReader, Fault> {
        let wanted = descriptor(stream);
        let entries = self.mirror.directory().entries;
        let entry = entries.iter().find(|entry| entry.descriptor == wanted);
        let reader = self
            .mirror
            .stream(entry.ok_or("the stream is not mirrored")?);
        let begin = now();
        while reader.count() == Some(0) {
            if begin.elapsed() > PATIENCE {
                return Err("the first sample did not arrive".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(reader)
    }
}

impl Owner {
    /// Writes all streams at a steady rate; each sample has the time at which it was written.
    fn write_steadily(&mut self) -> Result<(), String> {
        let clock = SystemClock::new();
        let begin = now();
        for change in 0..CHANGES_PER_S * SECONDS {
            let due = Duration::from_nanos(change * NS_PER_S as u64 / CHANGES_PER_S);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
            for writer in &mut self.writers {
                let written = writer.append_f64(clock.now_ns(), change as f64);
                written.map_err(|error| error.to_string())?;
            }
            self.segment.wake(u32::MAX);
        }
        Ok(())
    }

    /// Writes a burst to all streams.
    fn burst(&mut self) -> Result<(), Fault> {
        let clock = SystemClock::new();
        for writer in &mut self.writers {
            for sample in 0..BURST {
                writer.append_f64(clock.now_ns(), sample as f64)?;
            }
        }
        self.segment.wake(u32::MAX);
        Ok(())
    }
}

impl Node {
    fn start(
        name: &str,
        number: u8,
        scratch: &Scratch,
        (listen, peer): (&str, Option<&str>),
    ) -> Result<Self, Fault> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let run_dir = RunDir::new(&scratch.0);
        let segment = Arc::new(SegmentReader::of(&run_dir)?);
        let incarnation = Incarnation([number; 16]);
        let config = ZenohConfig {
            hello: Hello {
                version: HELLO_VERSION,
                incarnation,
                start_ns: clock.now_ns(),
                cluster: "bench".into(),
                node: name.into(),
            },
            listen: vec![listen.into()],
            peers: peer.into_iter().map(str::to_owned).collect(),
            death_ns: 2 * NS_PER_S,
            credentials: None,
            revocation_list: None,
        };
        let transport = ZenohTransport::open(&config, Arc::clone(&clock))?;
        let waker = transport.waker();
        let config = NodeConfig {
            run_dir,
            incarnation,
            nodes: vec![Pattern::new("*")],
            wanted: vec!["*".into()],
            scopes: vec![Pattern::new("all")],
            mirrors_max: 1,
            bounds: MirrorBounds {
                streams_max: STREAMS,
                depth_max: 1_024,
                ring_bytes_max: 256 << 20,
            },
            window_bytes: 4 << 20,
        };
        let now_ns = clock.now_ns();
        let mut node = FabricNode::new(transport, Arc::clone(&segment), config, now_ns);
        let is_over = Arc::new(AtomicBool::new(false));
        let (ours, theirs) = (Arc::clone(&is_over), Arc::clone(&is_over));
        let stepping = std::thread::spawn(move || {
            while !ours.load(Ordering::Acquire) {
                let deadline_ns = node.step(clock.now_ns());
                if let Some(event) = node.transport().receive(deadline_ns) {
                    node.take_in(event, clock.now_ns());
                }
            }
        });
        let news = waker.clone();
        let waking = std::thread::spawn(move || {
            while !theirs.load(Ordering::Acquire) {
                let seen = segment.tick();
                news.wake();
                std::thread::sleep(NEWS_PAUSE);
                segment.wait_tick(seen, NEWS_WAIT);
            }
        });
        Ok(Self {
            is_over,
            waker,
            threads: vec![stepping, waking],
        })
    }
}
