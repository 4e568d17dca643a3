//! Apollo's Figures 4 and 6, rebuilt on one node: anatomy and throughput.

use std::sync::Barrier;
use std::time::Instant;

use barograph_model::{Clock as _, Sample, StreamKey};
use barograph_source::{SourceBatch, SourcesConfig, all_sources};
use barograph_stream::{SegmentReader, StreamWriter, SystemClock};

use super::insight::{NullSink, graph};
use super::{Scratch, descriptor, segment};
use crate::measure::{each_ns, keep, now};
use crate::report::{Fault, Report};

/// Measures Figure 4: the parts of a poll (hook and publish) and of an insight (input, compute,
/// publish).
pub(super) fn anatomy(report: &mut Report) -> Result<(), Fault> {
    poll(report)?;
    insight(report)
}

fn poll(report: &mut Report) -> Result<(), Fault> {
    let clock = SystemClock::new();
    let config = SourcesConfig::default();
    let mut sources = all_sources(&config);
    let source = sources
        .iter_mut()
        .find(|s| s.name() == "disk")
        .ok_or("no disk source")?;
    let mut batch = SourceBatch::new();
    let hook = each_ns(500, || {
        batch.begin(clock.monotonic_ns());
        let _ = source.read(clock.now_ns(), &mut batch);
    });
    let facts = batch.samples().len().max(1);

    let scratch = Scratch::new("anatomy")?;
    let mut segment = segment(&scratch)?;
    let mut writers: Vec<StreamWriter> = (0..facts)
        .map(|i| segment.register(&descriptor(i), None, 0))
        .collect::<Result<_, _>>()?;
    let mut ts = 0;
    let publish = each_ns(500, || {
        ts += 1;
        let mut mask = 0;
        for writer in &mut writers {
            let _ = writer.look(&Sample::measured(ts, ts as f64));
            mask |= writer.wake_bit();
        }
        segment.wake(mask);
    });
    let whole = hook.p50 + publish.p50;
    report.row(
        "apollo.fig4",
        &format!("poll of {facts} disk facts: hook"),
        hook.p50 / whole * 100.0,
        "%",
        &[("apollo paper", 97.5)],
    );
    report.row(
        "apollo.fig4",
        "poll: publish and wake",
        publish.p50 / whole * 100.0,
        "%",
        &[("apollo paper", 1.8)],
    );
    report.row("apollo.fig4", "poll: whole", whole / 1e3, "us", &[]);
    Ok(())
}

fn insight(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("anatomy")?;
    let mut segment = segment(&scratch)?;
    let mut writer = segment.register(&descriptor(0), None, 0)?;
    let mut ts = 1;
    let mut sink = NullSink::default();
    let mut one = graph(1, 1, &mut sink)?;
    let compute = each_ns(20_000, || {
        ts += 1;
        one.sample(StreamKey(0), &Sample::measured(ts, ts as f64));
        one.evaluate(ts, &mut sink);
    });
    let append = each_ns(20_000, || {
        ts += 1;
        keep(writer.look(&Sample::measured(ts, ts as f64)).is_ok());
    });
    let whole = compute.p50 + append.p50;
    report.row(
        "apollo.fig4",
        "insight: input and compute",
        compute.p50 / whole * 100.0,
        "%",
        &[],
    );
    report.row(
        "apollo.fig4",
        "insight: publish",
        append.p50 / whole * 100.0,
        "%",
        &[],
    );
    Ok(())
}

/// Measures Figure 6a: samples per second of 1 to 40 publishers, each with a stream of its own.
pub(super) fn throughput(report: &mut Report) -> Result<(), Fault> {
    const EACH: usize = 2_000_000;
    for threads in [1, 2, 4, 8, 16, 32, 40] {
        let scratch = Scratch::new("throughput")?;
        let mut segment = segment(&scratch)?;
        let writers: Vec<StreamWriter> = (0..threads)
            .map(|i| segment.register(&descriptor(i), None, 0))
            .collect::<Result<_, _>>()?;
        let barrier = Barrier::new(threads);
        // Each thread records its begin and end: with fewer cores than threads, a thread that
        // measured them might not run until all are done.
        let spans: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
            let running: Vec<_> = writers
                .into_iter()
                .map(|mut writer| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        let begin = now();
                        for ts in 0..EACH as i64 {
                            let _ = writer.append_f64(ts, ts as f64);
                        }
                        (begin, now())
                    })
                })
                .collect();
            running
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .collect()
        });
        let begin = spans.iter().map(|s| s.0).min().ok_or("no publisher")?;
        let end = spans.iter().map(|s| s.1).max().ok_or("no publisher")?;
        let reader = SegmentReader::open(&scratch.0.join("segment"))?;
        let directory = reader.directory();
        let count = |e| reader.stream(e).count().unwrap_or(0);
        if directory.entries.iter().map(count).sum::<u64>() != (threads * EACH) as u64 {
            return Err("samples were not appended".into());
        }
        let seconds = (end - begin).as_secs_f64();
        let rate = (threads * EACH) as f64 / seconds;
        report.row(
            "apollo.fig6",
            &format!("{threads} publishers"),
            rate,
            "samples/s",
            &[("apollo paper's peak", 70_000.0)],
        );
    }
    let scratch = Scratch::new("subscribe")?;
    let mut segment = segment(&scratch)?;
    let mut writer = segment.register(&descriptor(0), None, 0)?;
    (0..1024).try_for_each(|ts| writer.append_f64(ts, 0.5))?;
    let reader = SegmentReader::open(&scratch.0.join("segment"))?;
    let handle = reader.stream(&reader.directory().entries[0]);
    let mut out = Vec::with_capacity(1024);
    let scan = each_ns(5_000, || {
        out.clear();
        keep(handle.scan(0, &mut out));
    });
    report.row(
        "apollo.fig6",
        "subscriber, ring scans",
        out.len() as f64 / scan.p50 * 1e9,
        "samples/s",
        &[],
    );
    Ok(())
}
