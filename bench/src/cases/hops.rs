//! Apollo's Figure 7, rebuilt: the time from a changed fact to the insight's new value, by inputs
//! and by hops, inside the graph and until a reader in another process runs again.

use std::process::{Command, Stdio};
use std::time::Duration;

use barograph_model::{Clock as _, Descriptor, Sample, Sink, StreamKey};
use barograph_stream::{
    Segment, SegmentReader, StreamReader, StreamWriter, SystemClock, WaitOutcome,
};

use super::insight::{chain, change, empty};
use super::{Scratch, descriptor, segment};
use crate::measure::LatencySpread;
use crate::report::{Fault, Report};

const CHANGES: usize = 2_000;
const GAP: Duration = Duration::from_micros(300);
const PATIENCE: Duration = Duration::from_secs(5);

/// Measures the figure.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    for degree in [1, 40, 80, 160, 320, 640] {
        let one = change(degree, 1, false)?;
        report.row(
            "apollo.fig7",
            &format!("degree {degree}, one input changes"),
            one.wall_ns / 1e3,
            "us",
            &[],
        );
    }
    let all = change(640, 1, true)?;
    report.row(
        "apollo.fig7",
        "degree 640, all inputs change",
        all.wall_ns / 1e3,
        "us",
        &[],
    );
    for hops in [1, 2, 4, 8, 16, 32] {
        report.row(
            "apollo.fig7",
            &format!("{hops} hops"),
            change(1, hops, false)?.wall_ns / 1e3,
            "us",
            &[],
        );
    }
    for hops in [1, 8, 32] {
        let told = told(hops)?;
        report.row(
            "apollo.fig7",
            &format!("{hops} hops, reader in another process told, p50"),
            told.p50 / 1e3,
            "us",
            &[],
        );
    }
    Ok(())
}

/// Returns the delays that this process sees on the last hop's stream.
fn told(hops: usize) -> Result<LatencySpread, Fault> {
    let scratch = Scratch::new("hops")?;
    let clock = SystemClock::new();
    let base_ns = clock.now_ns();
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--role=hops")
        .arg(&scratch.0)
        .args([hops.to_string(), base_ns.to_string()])
        .stdout(Stdio::null())
        .spawn()?;
    let handle = appear(&scratch, &format!("hop{hops}.count"))?;
    let mut delays = Vec::new();
    let mut seen = 0;
    while delays.len() < CHANGES {
        if handle.wait(seen, PATIENCE) != WaitOutcome::News {
            return Err("the insights fell silent".into());
        }
        // The value is the time of its fact: an insight's own time may differ.
        let Some((_, made)) = handle.latest_f64() else {
            continue;
        };
        delays.push((clock.now_ns() - base_ns) as f64 - made);
        seen = handle.count().unwrap_or(seen);
    }
    child.kill()?;
    child.wait()?;
    Ok(LatencySpread::of(&mut delays))
}

fn appear(scratch: &Scratch, name: &str) -> Result<StreamReader, Fault> {
    for _ in 0..1_000 {
        if let Ok(reader) = SegmentReader::open(&scratch.0.join("segment"))
            && let Some(entry) = reader
                .directory()
                .entries
                .iter()
                .find(|e| e.descriptor.name.as_str() == name)
        {
            return Ok(reader.stream(entry));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("the insights did not start".into())
}

/// A sink that writes to a segment, as the agent's does.
struct Published {
    segment: Segment,
    writers: Vec<StreamWriter>,
    mask: u32,
}

impl Sink for Published {
    fn declare(&mut self, descriptor: &Descriptor, depth: Option<u32>) -> Option<StreamKey> {
        self.writers
            .push(self.segment.register(descriptor, depth, 0).ok()?);
        Some(StreamKey(self.writers.len() as u32 - 1))
    }
    fn retire(&mut self, _: StreamKey) {}
    fn put(&mut self, key: StreamKey, sample: &Sample) {
        let writer = &mut self.writers[key.0 as usize];
        if writer.look(sample).is_ok() {
            self.mask |= writer.wake_bit();
        }
    }
    fn expect_interval(&mut self, _: StreamKey, _: i64) {}
}

/// The helper process: puts a fact of the present time, computes its insights, wakes the readers,
/// and sleeps.
pub(super) fn publisher(arguments: &[String]) -> Result<(), Fault> {
    let [directory, hops, base_ns] = arguments else {
        return Err("hops DIR HOPS BASE".into());
    };
    let scratch = std::mem::ManuallyDrop::new(Scratch(directory.into()));
    let base_ns: i64 = base_ns.parse()?;
    let clock = SystemClock::new();
    let mut sink = Published {
        segment: segment(&scratch)?,
        writers: Vec::new(),
        mask: 0,
    };
    let fact = sink
        .declare(&descriptor(0), None)
        .ok_or("no room for the fact")?;
    let mut graph = empty();
    graph.stream_added(fact, &descriptor(0));
    chain(&mut graph, hops.parse()?)?;
    for n in 0..4 * CHANGES {
        let ts = clock.now_ns();
        let sample = Sample::measured(ts, (ts - base_ns) as f64);
        sink.put(fact, &sample);
        graph.sample(fact, &sample);
        graph.evaluate(ts, &mut sink);
        sink.segment.wake(std::mem::take(&mut sink.mask));
        // The reader looks for the streams that the first change created.
        std::thread::sleep(if n == 0 { 200 * GAP } else { GAP });
    }
    Ok(())
}
