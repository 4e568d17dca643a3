//! `insight.dag`: the cost of a hop, a wide insight and a long chain.

use std::time::Duration;

use barograph_insight::{Graph, GraphLimits};
use barograph_model::{Descriptor, Sample, Sink, StreamKey};

use super::named;
use crate::measure::{batch_ns, cpu_ns, keep};
use crate::report::{Fault, Report};

/// A sink that stores nothing, and counts its samples.
#[derive(Default)]
pub(super) struct NullSink {
    streams: u32,
    /// Number of samples so far.
    pub puts: u64,
}

impl Sink for NullSink {
    fn declare(&mut self, _: &Descriptor, _: Option<u32>) -> Option<StreamKey> {
        self.streams += 1;
        Some(StreamKey(1_000_000 + self.streams))
    }
    fn retire(&mut self, _: StreamKey) {}
    fn put(&mut self, _: StreamKey, sample: &Sample) {
        keep(sample);
        self.puts += 1;
    }
    fn expect_interval(&mut self, _: StreamKey, _: i64) {}
}

/// Adds a chain of insights over the sum of one metric.
pub(super) fn chain(graph: &mut Graph, hops: usize) -> Result<(), Fault> {
    for hop in 1..=hops {
        let from = match hop {
            1 => "bench_value_count".to_owned(),
            _ => format!("hop{}_count", hop - 1),
        };
        graph.create(
            &format!("CREATE INSIGHT hop{hop}.count AS SELECT sum(value) FROM {from}"),
            false,
        )?;
    }
    Ok(())
}

/// Returns a graph that may be as deep as the figures need.
pub(super) fn empty() -> Graph {
    Graph::new(GraphLimits {
        depth_max: 128,
        ..GraphLimits::default()
    })
}

/// Returns a graph with `inputs` streams of one metric and a chain of `hops` insights over their
/// sum.
pub(super) fn graph(inputs: u32, hops: usize, sink: &mut NullSink) -> Result<Graph, Fault> {
    let mut graph = empty();
    for i in 0..inputs {
        graph.stream_added(StreamKey(i), &named("bench.value.count", i as usize));
        graph.sample(StreamKey(i), &Sample::measured(1, f64::from(i)));
    }
    chain(&mut graph, hops)?;
    graph.evaluate(1, sink);
    Ok(graph)
}

/// The cost of a change, from its input to the last output.
pub(super) struct ChangeCost {
    /// Median time in ns.
    pub wall_ns: f64,
    /// Mean processor time in ns.
    pub cpu_ns: f64,
}

/// Measures a change of one of `inputs` streams (or of `all`), which `hops` insights follow.
pub(super) fn change(inputs: u32, hops: usize, all: bool) -> Result<ChangeCost, Fault> {
    let mut sink = NullSink::default();
    let mut graph = graph(inputs, hops, &mut sink)?;
    let (before, mut ts) = (sink.puts, 1);
    let changing = if all { inputs } else { 1 };
    let mut operation = || {
        ts += 1;
        for i in 0..changing {
            graph.sample(
                StreamKey(i),
                &Sample::measured(ts, f64::from(i) + ts as f64),
            );
        }
        graph.evaluate(ts, &mut sink);
    };
    let wall_ns = batch_ns(Duration::from_millis(200), &mut operation);
    let cpu_ns = cpu_ns(5_000, &mut operation);
    // Otherwise something other than the work was measured.
    if sink.puts - before != (ts - 1) as u64 * hops as u64 {
        return Err(format!(
            "{} outputs of {} changes over {hops} hops",
            sink.puts - before,
            ts - 1
        )
        .into());
    }
    Ok(ChangeCost { wall_ns, cpu_ns })
}

/// Measures the rows of the targets, in processor time.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let rows = [
        ("one hop, one input changes", change(1, 1, false)?),
        ("32 hops, one input changes", change(1, 32, false)?),
        ("640 inputs, one changes", change(640, 1, false)?),
        ("640 inputs, all change", change(640, 1, true)?),
    ];
    for (case, change) in rows {
        report.row(
            "insight.dag",
            &format!("{case}, processor"),
            change.cpu_ns / 1e3,
            "us",
            &[],
        );
    }
    Ok(())
}
