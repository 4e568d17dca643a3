//! Forecasts over a segment: what is projected, what is counted, and which streams have no slot.

use barograph_model::{ManualClock, NS_PER_S, Projection, Quality, Sink as _, Unit};
use barograph_stream::{LatestSample, Segment, SegmentConfig, SegmentReader};

use super::*;

/// Forecasts over a segment of their own.
struct Bench {
    dir: tempfile::TempDir,
    clock: ManualClock,
}

impl Bench {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: ManualClock::at(NS_PER_S),
        }
    }

    fn streams(&self) -> (Streams<'_>, SegmentReader) {
        let path = self.dir.path().join("segment");
        let segment = Segment::create(&path, SegmentConfig::new("n"), 1).unwrap();
        let reader = segment.reader().unwrap();
        let streams = Streams::new(segment, &self.clock, None, 240 * NS_PER_S);
        (streams, reader)
    }
}

fn forecasts(patterns: &[&str], streams_max: usize) -> Forecasts {
    let config = ForecastConfig {
        streams: patterns.iter().map(|p| (*p).to_owned()).collect(),
        streams_max,
        ..ForecastConfig::default()
    };
    config.check().unwrap();
    Forecasts::new(&config, ForecastRoom::new(&config).unwrap())
}

fn descriptor(name: &str, kind: Kind, value_type: ValueType) -> Descriptor {
    Descriptor {
        name: Name::new(name).unwrap(),
        labels: Labels::new([("device", "sda")]).unwrap(),
        value_type,
        unit: Unit::new("bytes").unwrap(),
        kind,
        help: String::new(),
    }
}

fn added(forecasts: &mut Forecasts, of: &Descriptor, streams: &mut Streams<'_>) -> StreamKey {
    let key = streams.declare(of, None).unwrap();
    forecasts.stream_added(key, of, streams);
    key
}

/// The newest sample of a stream, and the time up to which it holds.
fn newest(reader: &SegmentReader, name: &str) -> Option<(Sample, i64)> {
    let directory = reader.directory();
    let mut entries = directory.entries.iter();
    let entry = entries.find(|e| e.descriptor.name.as_str() == name)?;
    match reader.stream(entry).latest() {
        LatestSample::Sample {
            sample, looked_ns, ..
        } => Some((sample, looked_ns)),
        _ => None,
    }
}

fn projection(reader: &SegmentReader, name: &str) -> Option<Projection> {
    let (sample, _) = newest(reader, name)?;
    assert_eq!(sample.quality, Quality::Predicted);
    match &sample.value {
        Value::Floats(floats) => Projection::from_floats(floats),
        other => panic!("{other:?}"),
    }
}

fn coverages(reader: &SegmentReader) -> Vec<String> {
    let directory = reader.directory();
    let all = directory.entries.iter().map(|e| e.descriptor.to_string());
    all.filter(|name| name.starts_with("forecast.coverage.ratio"))
        .collect()
}

fn look(second: i64, value: i64) -> Sample {
    Sample::measured(second * NS_PER_S, value)
}

#[test]
fn what_is_meant_is_projected_at_each_look() {
    let bench = Bench::new();
    let (mut streams, reader) = bench.streams();
    let mut forecasts = forecasts(&["disk.*"], 1);
    let read = descriptor("disk.read.bytes", Kind::Counter, ValueType::Int);
    let key = added(&mut forecasts, &read, &mut streams);
    for (name, kind, value_type) in [
        ("memory.free.bytes", Kind::Gauge, ValueType::Int),
        ("disk.state.text", Kind::State, ValueType::Text),
        ("disk.write.bytes", Kind::Counter, ValueType::Int),
    ] {
        let other = descriptor(name, kind, value_type);
        added(&mut forecasts, &other, &mut streams);
    }
    assert_eq!(forecasts.counts(), (1, 1));
    // No projection is published before the interval is known.
    forecasts.looked(key, &look(1, 1_000));
    forecasts.project(NS_PER_S, &mut streams);
    assert!(newest(&reader, "forecast.disk.read.bytes").is_none());
    forecasts.interval(key, NS_PER_S);
    for second in 2..200 {
        forecasts.looked(key, &look(second, second * 1_000));
        forecasts.project(second * NS_PER_S, &mut streams);
    }
    let (sample, _) = newest(&reader, "forecast.disk.read.bytes").unwrap();
    assert_eq!(sample.ts, 199 * NS_PER_S);
    let said = projection(&reader, "forecast.disk.read.bytes").unwrap();
    let knot = said.at(1.5).unwrap();
    assert!((knot.value - 200_500.0).abs() < 50.0, "{knot:?}");
    let document = serde_json::json!(forecasts.document());
    assert_eq!(document[0]["name"], "disk.read.bytes");
    assert_eq!(document[0]["horizon_ns"], NS_PER_S);
    let beyond = document.as_array().unwrap().last().unwrap();
    assert_eq!(beyond["name"], "disk.write.bytes");
    assert_eq!(beyond["reason"], "no place: forecast.streams_max is 1");
    forecasts.stream_removed(key, &mut streams);
    assert_eq!(forecasts.counts(), (1, 0), "it is for the other");
    assert!(newest(&reader, "forecast.disk.read.bytes").is_none());
}

#[test]
fn those_beyond_are_counted_as_long_as_they_are_there() {
    let bench = Bench::new();
    let (mut streams, _) = bench.streams();
    let mut forecasts = forecasts(&["*"], 2);
    let of = |at: usize| descriptor(&format!("a.b{at}"), Kind::Gauge, ValueType::Float);
    let all: Vec<Descriptor> = (0..100).map(of).collect();
    let mut keys = Vec::new();
    for of in &all {
        keys.push(added(&mut forecasts, of, &mut streams));
    }
    let rest = |forecasts: &Forecasts| {
        let document = serde_json::json!(forecasts.document());
        let rows = document.as_array().unwrap();
        let streams = rows.iter().filter_map(|row| row["streams"].as_u64());
        (rows.len(), streams.sum::<u64>())
    };
    assert_eq!((forecasts.counts(), rest(&forecasts)), ((2, 98), (65, 98)));
    for key in keys.drain(50..) {
        forecasts.stream_removed(key, &mut streams);
    }
    assert_eq!((forecasts.counts(), rest(&forecasts)), ((2, 48), (48, 48)));
    // A slot that becomes free goes to the stream that has waited longest, not to the next one that
    // asks.
    forecasts.stream_removed(keys[0], &mut streams);
    let again = descriptor("a.c", Kind::Gauge, ValueType::Float);
    added(&mut forecasts, &again, &mut streams);
    assert_eq!(forecasts.counts(), (2, 48));
}

/// The names of the streams that have a forecast.
fn followed(forecasts: &Forecasts) -> Vec<&str> {
    let all = forecasts.by_key.iter().flatten();
    all.map(|followed| followed.name.as_str()).collect()
}

#[test]
fn who_waits_has_what_becomes_free_and_is_forecast_from_then_on() {
    let bench = Bench::new();
    let (mut streams, reader) = bench.streams();
    let mut forecasts = forecasts(&["*"], 2);
    let names = ["a.b", "a.c", "a.d", "a.e", "a.f"];
    let all = names.map(|name| descriptor(name, Kind::Gauge, ValueType::Int));
    let keys = all
        .each_ref()
        .map(|of| added(&mut forecasts, of, &mut streams));
    for key in keys {
        forecasts.interval(key, NS_PER_S);
    }
    // The look after the slot was given counts.
    streams.look(keys[2], &look(1, 7));
    forecasts.beat(NS_PER_S, &mut streams);
    assert_eq!(followed(&forecasts), ["a.b", "a.c"]);
    // A waiting stream can end, and one that a policy wants as well keeps its ticket, with the
    // policy's step.
    forecasts.stream_removed(keys[3], &mut streams);
    forecasts.follow(keys[4], &all[4], 5 * NS_PER_S, &mut streams);
    forecasts.stream_removed(keys[1], &mut streams);
    assert_eq!(
        followed(&forecasts),
        ["a.b"],
        "taken up once a second alone"
    );
    assert_eq!(forecasts.counts(), (2, 1));
    forecasts.beat(2 * NS_PER_S, &mut streams);
    assert_eq!(followed(&forecasts), ["a.b", "a.d"]);
    for second in 2..9 {
        forecasts.held(keys[2], second * NS_PER_S, &streams);
        forecasts.project(second * NS_PER_S, &mut streams);
    }
    let said = projection(&reader, "forecast.a.d").unwrap();
    assert_eq!(said.at(1.0).unwrap().value, 7.0);
    forecasts.stream_removed(keys[0], &mut streams);
    forecasts.beat(3 * NS_PER_S, &mut streams);
    let last = forecasts.by_key[keys[4].0 as usize].as_ref().unwrap();
    assert_eq!(last.interval_ns, 5 * NS_PER_S);
    assert_eq!(forecasts.counts(), (2, 0));
}

#[test]
fn places_pass_from_one_thread_s_streams_to_another_s() {
    let (bench, other) = (Bench::new(), Bench::new());
    let ((mut ours, _), (mut theirs, _)) = (bench.streams(), other.streams());
    let config = ForecastConfig {
        streams: vec!["*".into()],
        streams_max: 1,
        ..ForecastConfig::default()
    };
    let room = ForecastRoom::new(&config).unwrap();
    let [mut node, mut scope] = [(); 2].map(|()| Forecasts::new(&config, Arc::clone(&room)));
    let of = descriptor("a.b", Kind::Gauge, ValueType::Int);
    let key = added(&mut node, &of, &mut ours);
    let residual = descriptor("solver.residual", Kind::Gauge, ValueType::Int);
    let put = theirs.declare(&residual, None).unwrap();
    scope.stream_of_user_added(put, &residual, "eve", &mut theirs);
    let late = descriptor("a.c", Kind::Gauge, ValueType::Int);
    added(&mut node, &late, &mut ours);
    assert_eq!(room.counts(), (1, 2));
    node.stream_removed(key, &mut ours);
    node.beat(NS_PER_S, &mut ours);
    scope.beat(NS_PER_S, &mut theirs);
    assert_eq!(
        (followed(&node), followed(&scope)),
        (vec![], vec!["solver.residual"])
    );
    // The stream finds its own pace, as if it had had a slot at once.
    let one = scope.by_key[put.0 as usize].as_ref().unwrap();
    assert!(one.pace.is_some());
    drop(scope);
    node.beat(2 * NS_PER_S, &mut ours);
    assert_eq!((followed(&node), room.counts()), (vec!["a.c"], (1, 0)));
}

#[test]
fn coverage_is_told_every_ten_seconds_and_ends_with_its_stream() {
    let bench = Bench::new();
    let (mut streams, reader) = bench.streams();
    let mut forecasts = forecasts(&["disk.*"], 9);
    let of = descriptor("disk.queue.count", Kind::Gauge, ValueType::Int);
    let key = added(&mut forecasts, &of, &mut streams);
    forecasts.interval(key, NS_PER_S);
    let mut told = Vec::new();
    for second in 1..300 {
        forecasts.looked(key, &look(second, second * second % 7));
        forecasts.beat(second * NS_PER_S, &mut streams);
        let newest = newest(&reader, "forecast.coverage.ratio");
        told.extend(newest.map(|(sample, looked_ns)| (sample.value, looked_ns / NS_PER_S)));
    }
    let (value, first) = &told[0];
    assert!(
        *first > 32 && (0.0..=1.0).contains(&value.as_f64().unwrap()),
        "{value:?} {first}"
    );
    let mut looks: Vec<i64> = told.iter().map(|(_, looked)| *looked).collect();
    looks.dedup();
    assert!(
        looks.len() > 20 && looks.windows(2).all(|w| w[1] - w[0] >= 10),
        "{looks:?}"
    );
    let expect = "forecast.coverage.ratio{device=sda,horizon=1,stream=disk.queue.count}";
    assert!(
        coverages(&reader).contains(&expect.to_owned()),
        "{:?}",
        coverages(&reader)
    );
    forecasts.stream_removed(key, &mut streams);
    assert_eq!(coverages(&reader), Vec::<String>::new());
}

#[test]
fn a_capacity_stays_between_nothing_and_its_total() {
    let bench = Bench::new();
    let (mut streams, reader) = bench.streams();
    let mut forecasts = forecasts(&["filesystem.available.bytes"], 9);
    let names = ["filesystem.available.bytes", "filesystem.total.bytes"];
    let [available, total] = names.map(|name| descriptor(name, Kind::Gauge, ValueType::Int));
    let available = added(&mut forecasts, &available, &mut streams);
    let total = added(&mut forecasts, &total, &mut streams);
    forecasts.interval(available, NS_PER_S);
    forecasts.interval(total, NS_PER_S);
    let mut ends = |forecasts: &mut Forecasts, second: i64, free: i64, of: i64| {
        forecasts.looked(total, &look(second, of));
        forecasts.looked(available, &look(second, free));
        forecasts.project(second * NS_PER_S, &mut streams);
        let said = projection(&reader, "forecast.filesystem.available.bytes").unwrap();
        let values = said.knots().iter().map(|knot| knot.value);
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), v| {
            (v.min(least), v.max(most))
        })
    };
    // The capacity falls until there is little left, then rises.
    for second in 1..200 {
        ends(&mut forecasts, second, 2_010 - second * 10, 2_100);
    }
    assert_eq!(ends(&mut forecasts, 200, 10, 2_100).0, 0.0);
    for second in 201..=400 {
        ends(&mut forecasts, second, 10 + (second - 200) * 10, 2_100);
    }
    assert_eq!(ends(&mut forecasts, 401, 2_020, 2_100).1, 2_100.0);
    // The file system was made larger.
    assert_eq!(ends(&mut forecasts, 402, 2_030, 2_150).1, 2_150.0);
    forecasts.stream_removed(total, &mut streams);
    assert_eq!(
        forecasts.by_key[available.0 as usize]
            .as_ref()
            .unwrap()
            .shape,
        Shape::Gauge
    );
}

#[test]
fn what_users_put_at_no_known_pace_has_steps_of_its_own() {
    let bench = Bench::new();
    let (mut streams, reader) = bench.streams();
    let mut forecasts = forecasts(&["solver.*"], 9);
    let of = descriptor("solver.residual", Kind::Gauge, ValueType::Float);
    let key = streams.declare(&of, None).unwrap();
    forecasts.stream_of_user_added(key, &of, "eve", &mut streams);
    let put = |at: i64| Sample::measured(at * 40_000_000 + at % 3 * 1_000_000, at as f64);
    for at in 0..31 {
        forecasts.looked(key, &put(at));
        forecasts.project(at * 40_000_000, &mut streams);
        assert!(
            newest(&reader, "forecast.solver.residual").is_none(),
            "{at}"
        );
    }
    for at in 31..200 {
        forecasts.looked(key, &put(at));
        forecasts.project(at * 40_000_000, &mut streams);
    }
    let followed = forecasts.by_key[key.0 as usize].as_ref().unwrap();
    assert!((39_000_000..=41_000_000).contains(&followed.interval_ns));
    let said = projection(&reader, "forecast.solver.residual").unwrap();
    let knot = said.at(0.4).unwrap();
    assert!((knot.value - 209.0).abs() < 1.0, "{knot:?}");
}

#[test]
fn a_flood_is_followed_a_second_at_a_time_and_told_seldom() {
    let bench = Bench::new();
    let (mut streams, reader) = bench.streams();
    let mut forecasts = forecasts(&["solver.*"], 9);
    let of = descriptor("solver.residual", Kind::Gauge, ValueType::Int);
    let key = streams.declare(&of, None).unwrap();
    forecasts.stream_of_user_added(key, &of, "eve", &mut streams);
    for at in 0..5_000 {
        forecasts.looked(key, &Sample::measured(at * 1_000_000, at));
    }
    assert!(forecasts.unheeded > 2_000 && forecasts.unheeded < 3_000);
    forecasts.project(NS_PER_S, &mut streams);
    let told = newest(&reader, "forecast.solver.residual").unwrap();
    forecasts.beat(NS_PER_S, &mut streams);
    forecasts.looked(key, &Sample::measured(5_000_000_000, 5_000));
    forecasts.project(NS_PER_S + 1_000_000, &mut streams);
    assert_eq!(
        newest(&reader, "forecast.solver.residual").unwrap(),
        told,
        "too soon"
    );
    forecasts.project(NS_PER_S + 10_000_000, &mut streams);
    let (sample, _) = newest(&reader, "forecast.solver.residual").unwrap();
    assert_eq!(sample.ts, 5_000_000_000);
}

#[test]
fn what_is_said_of_a_stream_that_stands_still_is_not_said_again() {
    let bench = Bench::new();
    let (mut streams, reader) = bench.streams();
    let mut forecasts = forecasts(&["disk.*"], 9);
    let of = descriptor("disk.size.bytes", Kind::Gauge, ValueType::Int);
    let key = added(&mut forecasts, &of, &mut streams);
    forecasts.interval(key, NS_PER_S);
    // A look that finds an insight's inputs unchanged is a look, too.
    streams.look(key, &look(1, 7));
    forecasts.looked(key, &look(1, 7));
    let mut appended = Vec::new();
    for second in 2..1_400 {
        forecasts.held(key, second * NS_PER_S, &streams);
        forecasts.project(second * NS_PER_S, &mut streams);
        let (sample, looked_ns) = newest(&reader, "forecast.disk.size.bytes").unwrap();
        assert_eq!(looked_ns, second * NS_PER_S);
        appended.push(sample.ts / NS_PER_S);
    }
    appended.dedup();
    let late = appended.iter().filter(|second| **second > 700).count();
    // As many as for any value that holds for long.
    assert!(late <= 4, "{appended:?}");
}
