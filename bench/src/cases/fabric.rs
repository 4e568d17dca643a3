//! `fabric.frames`: samples that one core reads from rings, writes as frames, and takes in from
//! them: all of the way between two nodes but the network.

use std::sync::Arc;

use barograph_fabric::frame::{Announcement, FeedReach};
use barograph_fabric::{MirrorSink, Publisher, Subscriber, SubscriberConfig};
use barograph_model::{NS_PER_S, Sample, StreamKey};
use barograph_stream::{Incarnation, StreamWriter};

use super::{Scratch, descriptor, segment};
use crate::measure::thread_cpu_s;
use crate::report::{Fault, Report};

const STREAMS: usize = 1_000;
const ROUNDS: usize = 200;

/// A sink that keeps nothing.
#[derive(Default)]
struct Nowhere {
    streams: u32,
    samples: u64,
}

impl MirrorSink for Nowhere {
    fn declare(&mut self, _: &Announcement) -> Option<StreamKey> {
        self.streams += 1;
        Some(StreamKey(self.streams))
    }

    fn retire(&mut self, _: StreamKey) {}

    fn append(&mut self, _: StreamKey, _: u64, _: &Sample) {
        self.samples += 1;
    }

    fn expect_interval(&mut self, _: StreamKey, _: i64) {}

    fn recall(&mut self, _: StreamKey, _: u64, _: &Sample) {}

    fn confirm(&mut self, _: StreamKey, _: i64) {}

    fn miss(&mut self, _: StreamKey, _: u64, _: u64) {}
}

/// Measures streams that change once between two frames, as polled ones do, and bursts.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    for burst in [1, 100] {
        let case = format!("1000 streams, {burst} samples each between two looks");
        let (samples_s, bytes) = rate(burst)?;
        let id = "fabric.frames";
        report.row(id, &case, samples_s, "samples/s", &[]);
        report.row(id, &format!("{case}: size"), bytes, "bytes/sample", &[]);
    }
    Ok(())
}

/// Returns samples per second of processor time, and bytes per sample.
fn rate(burst: i64) -> Result<(f64, f64), Fault> {
    let scratch = Scratch::new("fabric")?;
    let mut segment = segment(&scratch)?;
    let writers = (0..STREAMS).map(|i| segment.register(&descriptor(i), None, 0));
    let mut writers = writers.collect::<Result<Vec<StreamWriter>, _>>()?;
    let mut publisher = Publisher::new(Arc::new(segment.reader()?));
    let mut subscriber = Subscriber::new(SubscriberConfig {
        incarnation: Incarnation([1; 16]),
        first_feed: 1,
        selectors: vec!["*".into()],
        reach: FeedReach::Rings,
        window_bytes: 16 << 20,
        streams_max: STREAMS,
        scope: "".into(),
    });
    let node: Arc<str> = "subscriber".into();
    let mut sink = Nowhere::default();
    let mut ts = NS_PER_S;
    let mut spent_s = 0.0;
    for round in 0..ROUNDS as i64 {
        for writer in &mut writers {
            for sample in 0..burst {
                writer.append_f64(ts + sample * 1_000, (round * burst + sample) as f64 / 8.0)?;
            }
        }
        ts += NS_PER_S;
        let begun_s = thread_cpu_s();
        while let Some(message) = subscriber.due(ts) {
            publisher.receive(&node, &message, ts)?;
        }
        while let Some((_, frame)) = publisher.due(ts) {
            subscriber.receive(&frame, ts, &mut sink)?;
        }
        spent_s += thread_cpu_s() - begun_s;
    }
    let samples = sink.samples as f64;
    Ok((samples / spent_s, publisher.counts().bytes as f64 / samples))
}
