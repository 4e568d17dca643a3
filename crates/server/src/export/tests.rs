//! Tests of exports over a real segment: which samples are taken from it.

mod delivery;

use std::sync::Arc;

use barograph_model::{
    Descriptor, Kind, Labels, NS_PER_S, Name, Sample, Selector, Unit, Value, ValueType,
};
use barograph_stream::{RunDir, Segment, SegmentConfig, StreamWriter};
use prost::Message as _;

use crate::export::otlp::Otlp;
use crate::export::remote_write::RemoteWrite;
use crate::export::status::ExportCounters;
use crate::export::{BATCH_BYTES_MAX, BATCH_SAMPLES_MAX, Batch, ExportSelection};
use crate::view::{ServedView, ServedViews};
use barograph_bridge::messages::{
    AnyValueContent, ExportMetricsServiceRequest, MetricData, NumberValue, PromLabel, WriteRequest,
};

const T0: i64 = 1_700_000_000 * NS_PER_S;
const MS: i64 = 1_000_000;
const STALE: u64 = 0x7ff0_0000_0000_0002;

struct Rig {
    segment: Segment,
    views: ServedViews,
    _dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let config = SegmentConfig::new("n1");
        Self {
            segment: Segment::create(&run_dir.segment(), config, T0).unwrap(),
            views: ServedViews::new(run_dir),
            _dir: dir,
        }
    }

    fn view(&self) -> Arc<ServedView> {
        self.views.current(T0).unwrap()
    }

    /// Registers a stream of one device; a name that ends in `bytes` is a counter. Rings hold eight
    /// samples.
    fn stream(&mut self, name: &str, device: &str, value_type: ValueType) -> StreamWriter {
        let is_counter = name.ends_with("bytes");
        let descriptor = Descriptor {
            name: Name::new(name).unwrap(),
            labels: Labels::new([("device", device)]).unwrap(),
            value_type,
            unit: Unit::new(if is_counter { "bytes" } else { "ratio" }).unwrap(),
            kind: if is_counter {
                Kind::Counter
            } else {
                Kind::Gauge
            },
            help: "What it is.".into(),
        };
        self.segment.register(&descriptor, Some(8), T0).unwrap()
    }
}

fn put(writer: &mut StreamWriter, at_ns: i64, value: impl Into<Value>) {
    writer.look(&Sample::measured(at_ns, value)).unwrap();
}

fn all() -> ExportSelection {
    selection(&["*"], &[])
}

fn selection(select: &[&str], leave_out: &[&str]) -> ExportSelection {
    let read = |patterns: &[&str]| {
        let selectors = patterns.iter().map(|text| Selector::parse(text).unwrap());
        selectors.collect()
    };
    ExportSelection {
        select: read(select),
        leave_out: read(leave_out),
    }
}

fn remote_write(selection: ExportSelection) -> (RemoteWrite, Arc<ExportCounters>) {
    let counters = Arc::new(ExportCounters::new("remote_write"));
    (RemoteWrite::new(selection, Arc::clone(&counters)), counters)
}

fn written(batch: &Batch) -> WriteRequest {
    let body = snap::raw::Decoder::new()
        .decompress_vec(&batch.body)
        .unwrap();
    WriteRequest::decode(&*body).unwrap()
}

/// A request as lines like `__name__=a,device=b: 1@0 2@1000`, one per series; times in ms after
/// `T0`.
fn lines(batch: Option<&Batch>) -> Vec<String> {
    let Some(batch) = batch else {
        return Vec::new();
    };
    let pair = |label: &PromLabel| format!("{}={}", label.name, label.value);
    let series = written(batch).timeseries.into_iter().map(|series| {
        let labels: Vec<String> = series.labels.iter().map(pair).collect();
        let samples = series.samples.iter().map(|s| {
            let after = s.timestamp - T0 / MS;
            match s.value.to_bits() {
                STALE => format!("stale@{after}"),
                _ => format!("{}@{after}", s.value),
            }
        });
        format!(
            "{}: {}",
            labels.join(","),
            samples.collect::<Vec<_>>().join(" ")
        )
    });
    series.collect()
}

#[test]
fn a_stream_that_ends_after_it_was_taken() {
    let mut rig = Rig::new();
    let mut read = rig.stream("disk.read.bytes", "vda", ValueType::Int);
    let (mut work, _) = remote_write(all());
    let view = rig.view();
    assert!(!work.look(&view));
    // More was taken than was seen, and nothing more can be seen.
    put(&mut read, T0, 1);
    assert!(work.next(T0).is_some());
    rig.segment.retire(read);
    assert!(!work.look(&view));
}

#[test]
fn streams_of_two_segments_are_told_apart() {
    let mut rig = Rig::new();
    let run_dir = rig.views.run_dir().scope("all");
    std::fs::create_dir_all(run_dir.path()).unwrap();
    let config = SegmentConfig::new("n1");
    let segment = Segment::create(&run_dir.segment(), config, T0).unwrap();
    let mut read = rig.stream("disk.read.bytes", "vda", ValueType::Int);
    // The stream in the other segment has the same slot.
    let own = std::mem::replace(&mut rig.segment, segment);
    let mut step = rig.stream("app.solver.step", "vda", ValueType::Int);
    put(&mut read, T0, 1);
    put(&mut step, T0, 2);
    let (mut work, _) = remote_write(all());
    work.look(&rig.view());
    let first = lines(work.next(T0).as_ref());
    assert_eq!(first.len(), 2, "{first:?}");
    // The directory changes: neither sample is sent again.
    let mut other = rig.stream("app.solver.other", "vda", ValueType::Int);
    put(&mut other, T0 + NS_PER_S, 3);
    put(&mut read, T0 + NS_PER_S, 4);
    work.look(&rig.view());
    let next = lines(work.next(T0 + NS_PER_S).as_ref());
    assert_eq!(next.len(), 2, "{next:?}");
    assert!(next.iter().all(|line| line.contains("@1000")), "{next:?}");
    drop(own);
}

#[test]
fn every_sample_goes_once() {
    let mut rig = Rig::new();
    let mut read = rig.stream("disk.read.bytes", "vda", ValueType::Int);
    let mut busy = rig.stream("disk.busy.ratio", "vda", ValueType::Float);
    let mut text = rig.stream("disk.scheduler.text", "vda", ValueType::Text);
    let (mut work, counters) = remote_write(all());
    assert!(!work.look(&rig.view()));
    assert!(work.next(T0).is_none());

    put(&mut read, T0, 1);
    put(&mut read, T0 + NS_PER_S, 2);
    put(&mut busy, T0, 0.5);
    put(&mut text, T0, Value::text("none"));
    work.look(&rig.view());
    let first = work.next(T0 + NS_PER_S);
    assert_eq!(
        lines(first.as_ref()),
        [
            "__name__=barograph_disk_busy_ratio,device=vda,node=n1: 0.5@0",
            "__name__=node_disk_read_bytes_total,device=vda,node=n1: 1@0 2@1000",
        ]
    );
    assert_eq!(first.unwrap().samples, 3);
    assert!(work.next(T0 + NS_PER_S).is_none());

    put(&mut busy, T0 + NS_PER_S, f64::NAN);
    let second = work.next(T0 + NS_PER_S);
    assert_eq!(
        lines(second.as_ref()),
        ["__name__=barograph_disk_busy_ratio,device=vda,node=n1: NaN@1000"]
    );
    assert_eq!(counters.now().lost_samples, 0);
}

#[test]
fn what_left_the_ring_is_counted() {
    let mut rig = Rig::new();
    let mut read = rig.stream("disk.read.bytes", "vda", ValueType::Int);
    let (mut work, counters) = remote_write(all());
    for i in 0..4 {
        put(&mut read, T0 + i * NS_PER_S, i);
    }
    assert!(work.look(&rig.view()), "half a ring of news is urgent");
    for i in 4..20 {
        put(&mut read, T0 + i * NS_PER_S, i);
    }
    work.look(&rig.view());
    let batch = work.next(T0 + 20 * NS_PER_S).unwrap();
    let sent = written(&batch).timeseries[0].samples.len() as u64;
    assert!(
        (7..=8).contains(&sent),
        "what a ring of eight holds: {sent}"
    );
    assert_eq!(sent + counters.now().lost_samples, 20);
    assert!(!work.look(&rig.view()));
}

#[test]
fn times_of_a_series_only_grow() {
    let mut rig = Rig::new();
    let mut busy = rig.stream("disk.busy.ratio", "vda", ValueType::Float);
    let (mut work, counters) = remote_write(all());
    // Two samples in one millisecond, one two seconds back, and one after them.
    for (at_ns, value) in [
        (5_000 * MS, 0.1),
        (5_000 * MS + 1, 0.2),
        (3_000 * MS, 0.3),
        (5_001 * MS, 0.4),
    ] {
        put(&mut busy, T0 + at_ns, value);
    }
    work.look(&rig.view());
    let batch = work.next(T0 + 6 * NS_PER_S);
    let expect = "__name__=barograph_disk_busy_ratio,device=vda,node=n1: 0.1@5000 0.4@5001";
    assert_eq!(lines(batch.as_ref()), [expect]);
    assert_eq!(counters.now().lost_samples, 2);
    // The clock was set back before the sent samples: from now on the new time counts.
    put(&mut busy, T0 + 2_000 * MS, 0.5);
    let batch = work.next(T0 + 2_000 * MS);
    let expect = "__name__=barograph_disk_busy_ratio,device=vda,node=n1: 0.5@2000";
    assert_eq!(lines(batch.as_ref()), [expect]);
}

#[test]
fn the_end_of_a_series_is_told() {
    let mut rig = Rig::new();
    let mut gone = rig.stream("disk.busy.ratio", "gone", ValueType::Float);
    let mut back = rig.stream("disk.busy.ratio", "back", ValueType::Float);
    let never = rig.stream("disk.busy.ratio", "never", ValueType::Float);
    let (mut work, counters) = remote_write(all());
    put(&mut gone, T0, 0.1);
    put(&mut back, T0, 0.2);
    work.look(&rig.view());
    work.next(T0).unwrap();
    // This sample is seen, but not sent.
    put(&mut gone, T0 + NS_PER_S, 0.3);
    work.look(&rig.view());
    for writer in [gone, back, never] {
        rig.segment.retire(writer);
    }
    let mut back = rig.stream("disk.busy.ratio", "back", ValueType::Float);
    put(&mut back, T0 + 2 * NS_PER_S, 0.4);
    work.look(&rig.view());
    let batch = work.next(T0 + 3 * NS_PER_S);
    assert_eq!(
        lines(batch.as_ref()),
        [
            "__name__=barograph_disk_busy_ratio,device=gone,node=n1: stale@3000",
            "__name__=barograph_disk_busy_ratio,device=back,node=n1: 0.4@2000",
        ]
    );
    assert_eq!(batch.unwrap().samples, 1, "an end is no sample");
    assert_eq!(counters.now().lost_samples, 1);
}

#[test]
fn one_stream_for_each_set_of_labels() {
    let mut rig = Rig::new();
    // Both names become `barograph_a_b`.
    for name in ["a.b", "a_b"] {
        let mut writer = rig.stream(name, "vda", ValueType::Float);
        put(&mut writer, T0, 0.5);
    }
    let (mut work, _) = remote_write(all());
    work.look(&rig.view());
    assert_eq!(lines(work.next(T0).as_ref()).len(), 1);
}

#[test]
fn requests_are_bounded_and_fair() {
    let mut rig = Rig::new();
    let long = "x".repeat(240);
    let devices: Vec<String> = (0..1_000).map(|i| format!("{long}{i:04}")).collect();
    let mut writers: Vec<StreamWriter> = devices
        .iter()
        .map(|device| rig.stream("disk.busy.ratio", device, ValueType::Float))
        .collect();
    for writer in &mut writers {
        for i in 0..5 {
            put(writer, T0 + i * NS_PER_S, i as f64);
        }
    }
    let (mut work, counters) = remote_write(all());
    work.look(&rig.view());
    let mut seen = std::collections::HashMap::<Vec<PromLabel>, Vec<f64>>::new();
    while let Some(batch) = work.next(T0 + 10 * NS_PER_S) {
        let request = written(&batch);
        let samples: usize = request.timeseries.iter().map(|s| s.samples.len()).sum();
        assert!(samples <= BATCH_SAMPLES_MAX && samples as u64 == batch.samples);
        assert!(request.encoded_len() <= BATCH_BYTES_MAX);
        for series in request.timeseries {
            let values = series.samples.iter().map(|s| s.value);
            seen.entry(series.labels).or_default().extend(values);
        }
    }
    assert_eq!(seen.len(), devices.len());
    assert!(
        seen.values()
            .all(|values| values == &[0.0, 1.0, 2.0, 3.0, 4.0])
    );
    assert_eq!(counters.now().lost_samples, 0);
}

#[test]
fn otlp_has_gauges_and_sums_of_what_is_fresh() {
    let mut rig = Rig::new();
    let mut work = Otlp::new(selection(&["disk.*"], &[]));
    let mut writers: Vec<StreamWriter> = [
        ("disk.busy.ratio", "vda", Value::Float(0.5)),
        ("disk.old.ratio", "vda", Value::Float(0.5)),
        ("disk.read.bytes", "vda", Value::Int(i64::MAX)),
        ("disk.read.bytes", "vdb", Value::Int(7)),
        ("disk.scheduler.text", "vda", Value::text("none")),
        ("disk.up.flag", "vda", Value::Bool(true)),
        ("other.ratio", "vda", Value::Float(0.5)),
    ]
    .into_iter()
    .map(|(name, device, value)| {
        let mut writer = rig.stream(name, device, value.value_type());
        let late = if name == "disk.old.ratio" { -60 } else { 1 };
        put(&mut writer, T0 + late * NS_PER_S, value);
        writer
    })
    .collect();
    let mut round = |now_ns: i64| {
        assert_eq!(work.begin(&rig.view(), now_ns), 0);
        let batch = work.next().unwrap();
        assert!(work.next().is_none());
        otlp_lines(&batch)
    };
    assert_eq!(
        round(T0 + 2 * NS_PER_S),
        [
            "disk.busy.ratio [1] gauge: vda 0.5 0..2000",
            "disk.read.bytes [By] sum: vda 9223372036854775807 2000..2000, vdb 7 2000..2000",
            "disk.up.flag [1] gauge: vda 1 0..2000",
        ]
    );
    put(&mut writers[2], T0 + 5 * NS_PER_S, 1);
    assert_eq!(
        round(T0 + 5 * NS_PER_S)[1],
        "disk.read.bytes [By] sum: vda 1 2000..5000, vdb 7 2000..5000"
    );
}

/// Lines like `name [unit] kind: device value start..time, …`; times in ms after `T0`, 0 means no
/// start.
fn otlp_lines(batch: &Batch) -> Vec<String> {
    let request = ExportMetricsServiceRequest::decode(&*batch.body).unwrap();
    let [resource] = &request.resource_metrics[..] else {
        panic!("one resource")
    };
    let attributes: Vec<&str> = resource
        .resource
        .as_ref()
        .unwrap()
        .attributes
        .iter()
        .map(|a| a.key.as_str())
        .collect();
    assert_eq!(
        attributes,
        ["host.name", "service.name", "service.instance.id"]
    );
    let after = |ns: u64| if ns == 0 { 0 } else { (ns as i64 - T0) / MS };
    let metrics = resource.scope_metrics[0].metrics.iter().map(|metric| {
        let (kind, points) = match metric.data.as_ref().unwrap() {
            MetricData::Gauge(gauge) => ("gauge", &gauge.data_points),
            MetricData::Sum(sum) => {
                assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
                ("sum", &sum.data_points)
            }
            other => unreachable!("{other:?}"),
        };
        let points = points.iter().map(|point| {
            let value = point.attributes[0].value.as_ref().unwrap();
            let Some(AnyValueContent::Text(device)) = &value.value else {
                unreachable!("attributes are texts")
            };
            let value = match point.value.unwrap() {
                NumberValue::AsDouble(v) => v.to_string(),
                NumberValue::AsInt(v) => v.to_string(),
            };
            format!(
                "{device} {value} {}..{}",
                after(point.start_time_unix_nano),
                after(point.time_unix_nano)
            )
        });
        format!(
            "{} [{}] {kind}: {}",
            metric.name,
            metric.unit,
            points.collect::<Vec<_>>().join(", ")
        )
    });
    metrics.collect()
}

#[test]
fn what_is_left_out_is_not_sent() {
    let mut rig = Rig::new();
    let mut writers = [
        ("disk.busy.ratio", "vda"),
        ("disk.busy.ratio", "loop0"),
        ("disk.read.bytes", "vda"),
        ("tier.used.ratio", "vda"),
    ]
    .map(|(name, device)| rig.stream(name, device, ValueType::Int));
    for writer in &mut writers {
        put(writer, T0, 1);
    }
    let check = |select: &[&str], leave_out: &[&str], expect: &[&str]| {
        let (mut work, _) = remote_write(selection(select, leave_out));
        work.look(&rig.view());
        let mut found = lines(work.next(T0).as_ref());
        found.sort();
        assert_eq!(found.len(), expect.len(), "{leave_out:?}: {found:?}");
        for (line, part) in found.iter().zip(expect) {
            assert!(line.contains(part), "{leave_out:?}: {found:?}");
        }
        let mut work = Otlp::new(selection(select, leave_out));
        work.begin(&rig.view(), T0);
        let sent = work.next().map_or(0, |batch| batch.samples);
        assert_eq!(sent, expect.len() as u64, "{leave_out:?}");
    };
    let (busy, tier, read) = ("disk_busy_ratio,device=vda", "tier_used", "disk_read");
    check(&["*"], &["*{device=loop*}"], &[busy, tier, read]);
    check(&["disk.*"], &["*{device=loop*}", "*.bytes"], &[busy]);
    check(&["*"], &["*"], &[]);
}
