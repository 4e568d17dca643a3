//! Compares with the real Prometheus: with the same samples, every query must give the same answer.
//!
//! Needs `prometheus` and `promtool`, as in Debian's package `prometheus`. Without them the test
//! prints so and passes, except with CI=true. Samples are not at the instants of queries:
//! Prometheus 2 and 3 differ in whether an edge belongs to a range (ours is as in 3).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use barograph_model::{Descriptor, Kind, Labels, Name, Unit, Value, ValueType};
use serde_json::Value as Json;

use crate::client::{request, send, tcp};
use crate::fixture::{Fixture, S, T0};
use crate::memory::MemoryPast;

const MS: i64 = 1_000_000;
/// Scrape interval of Prometheus, and interval of looks here, in seconds.
const EVERY_S: i64 = 15;
const LOOKS: i64 = 480;
/// Rounding may differ, since sums are added in another order.
const TOLERANCE: f64 = 1e-9;
/// Seconds after which an unchanged value is appended again.
const REPEAT_S: i64 = 240;

struct Made {
    descriptor: Descriptor,
    /// Number of the look, and value.
    samples: Vec<(i64, f64)>,
}

fn at(look: i64) -> i64 {
    T0 + look * EVERY_S * S + 137 * MS
}

/// Random numbers that are the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn stream(name: &str, labels: &[(&str, &str)], kind: Kind) -> Descriptor {
    Descriptor {
        name: Name::new(name).unwrap(),
        labels: Labels::new(labels.iter().copied()).unwrap(),
        value_type: ValueType::Float,
        unit: Unit::new("").unwrap(),
        kind,
        help: "Made up.".into(),
    }
}

/// Counters with resets and standstills, gauges with plateaus, and series that are absent at times.
fn made() -> Vec<Made> {
    let mut chance = Chance(7);
    let mut all = Vec::new();
    for job in ["web", "db"] {
        for instance in ["1", "2", "3"] {
            let mut value = chance.below(1_000) as f64 * 1e6;
            let samples = (0..LOOKS).map(|look| {
                match chance.below(60) {
                    0 => value = 0.0,
                    1..30 => {}
                    n => value += n as f64 * 1.5,
                }
                (look, value)
            });
            let labels = [("instance", instance), ("job", job)];
            let samples = samples.collect();
            let descriptor = stream("t.requests", &labels, Kind::Counter);
            all.push(Made {
                descriptor,
                samples,
            });
        }
    }
    for (room, phase) in [("hall", 0.0), ("attic", 1.0), ("cellar", 2.0)] {
        let samples = (0..LOOKS).map(|look| {
            let t = (look / 4) as f64 / 10.0 + phase;
            (look, (t.sin() * 1e4).round() / 1e3)
        });
        let samples = samples.collect();
        let descriptor = stream("t.temperature", &[("room", room)], Kind::Gauge);
        all.push(Made {
            descriptor,
            samples,
        });
    }
    // One series for each job, as a divisor, which starts late or ends early.
    for (job, from, to) in [("web", 100, 400), ("db", 0, 300)] {
        let samples = (from..to).map(|look| (look, 8.0 + (look / 50) as f64));
        let samples = samples.collect();
        let descriptor = stream("t.cores", &[("job", job)], Kind::Gauge);
        all.push(Made {
            descriptor,
            samples,
        });
    }
    let odd = [
        f64::NAN,
        f64::INFINITY,
        -0.0,
        f64::NEG_INFINITY,
        1e300,
        -1e-300,
    ];
    for (name, start) in [("a", 0), ("b", 2)] {
        let samples = (0..LOOKS).map(|look| (look, odd[(start + look as usize / 30) % 6]));
        let samples = samples.collect();
        let descriptor = stream("t.odd", &[("name", name)], Kind::Gauge);
        all.push(Made {
            descriptor,
            samples,
        });
    }
    all
}

/// A past in which every look is a sample.
fn all_samples(made: &[Made]) -> MemoryPast {
    let mut past = MemoryPast::default();
    for series in made {
        let samples = series
            .samples
            .iter()
            .map(|(look, v)| (at(*look), Value::Float(*v)));
        past.add(&series.descriptor, samples, 0, 0);
    }
    past
}

/// A past as streams have it: values that changed, or were unchanged for long.
fn changes_only(made: &[Made]) -> MemoryPast {
    let mut past = MemoryPast::default();
    for series in made {
        let mut newest: Option<(i64, f64)> = None;
        let samples = series.samples.iter().filter(|&&(look, value)| {
            let same = |&(then, old): &(i64, f64)| {
                old.to_bits() == value.to_bits() && (look - then) * EVERY_S < REPEAT_S
            };
            let is_new = newest.as_ref().is_none_or(|n| !same(n));
            if is_new {
                newest = Some((look, value));
            }
            is_new
        });
        let samples: Vec<_> = samples
            .map(|(look, v)| (at(*look), Value::Float(*v)))
            .collect();
        let looked = at(series.samples.last().unwrap().0);
        past.add(&series.descriptor, samples, EVERY_S * S, looked);
    }
    past
}

fn openmetrics(made: &[Made]) -> String {
    let mut text = String::new();
    let mut family = String::new();
    for series in made {
        let name = format!("barograph_{}", series.descriptor.name.table());
        let is_counter = series.descriptor.kind == Kind::Counter;
        let (kind, suffix) = if is_counter {
            ("counter", "_total")
        } else {
            ("gauge", "")
        };
        if name != family {
            writeln!(text, "# TYPE {name} {kind}").unwrap();
            family.clone_from(&name);
        }
        let labels: String = series
            .descriptor
            .labels
            .iter()
            .map(|(n, v)| format!("{n}=\"{v}\","))
            .collect();
        for (look, value) in &series.samples {
            let value = match value {
                v if v.is_nan() => "NaN".into(),
                v if v.is_infinite() => if *v > 0.0 { "+Inf" } else { "-Inf" }.into(),
                v => format!("{v:?}"),
            };
            let ms = at(*look) / MS;
            let time = format!("{}.{:03}", ms / 1_000, ms % 1_000);
            writeln!(text, "{name}{suffix}{{{labels}node=\"n1\"}} {value} {time}").unwrap();
        }
    }
    text + "# EOF\n"
}

/// A Prometheus process with these samples that scrapes nothing.
struct Real {
    process: Child,
    address: SocketAddr,
}

impl Real {
    fn start(dir: &Path, made: &[Made]) -> Self {
        let (samples, config, data) = (
            dir.join("samples.om"),
            dir.join("prometheus.yml"),
            dir.join("data"),
        );
        std::fs::write(&samples, openmetrics(made)).unwrap();
        std::fs::write(&config, "global: {}\n").unwrap();
        let blocks = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&samples, &data])
            .output()
            .unwrap();
        assert!(blocks.status.success(), "{blocks:?}");
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut process = Command::new("prometheus")
            .arg(option("config.file", &config))
            .arg(option("storage.tsdb.path", &data))
            .args([
                "--storage.tsdb.retention.time=100y",
                "--web.listen-address=127.0.0.1:0",
            ])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut address: Option<SocketAddr> = None;
        let mut line = String::new();
        // It logs both, in either order.
        let mut is_ready = false;
        while !is_ready || address.is_none() {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended");
            if let Some((_, rest)) = line.split_once("msg=\"Listening on\" address=") {
                address = rest.split_whitespace().next().and_then(|a| a.parse().ok());
            }
            is_ready |= line.contains("ready to receive web requests");
        }
        // The log is not used any more, but a full pipe must not stop the process.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let address = address.expect("it says where it listens");
        Self { process, address }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn is_there(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").output();
    asked.is_ok_and(|a| a.status.success())
}

pub(crate) const QUERIES: &[&str] = &[
    "barograph_t_requests_total",
    "barograph_t_requests_total{job=\"web\"}",
    "barograph_t_requests_total{job!=\"web\"}",
    "barograph_t_requests_total{instance=~\"1|2\"}",
    "barograph_t_requests_total{instance!~\"1|2\",nothing=\"\"}",
    "{__name__=~\"barograph_t_(cores|temperature)\"}",
    "{room=\"hall\"}",
    "barograph_t_temperature offset 10m",
    "barograph_t_temperature offset -10m",
    "barograph_t_temperature @ 1700003000",
    "barograph_t_temperature @ end()",
    "rate(barograph_t_requests_total[1m])",
    "rate(barograph_t_requests_total[5m])",
    "rate(barograph_t_requests_total[1h])",
    "rate(barograph_t_requests_total[5m] offset 7m)",
    "increase(barograph_t_requests_total[10m])",
    "irate(barograph_t_requests_total[5m])",
    "delta(barograph_t_temperature[10m])",
    "idelta(barograph_t_temperature[5m])",
    "deriv(barograph_t_temperature[10m])",
    "predict_linear(barograph_t_temperature[10m], 3600)",
    "changes(barograph_t_temperature[10m])",
    "resets(barograph_t_requests_total[30m])",
    "avg_over_time(barograph_t_temperature[7m])",
    "min_over_time(barograph_t_temperature[7m])",
    "max_over_time(barograph_t_temperature[7m])",
    "sum_over_time(barograph_t_temperature[7m])",
    "count_over_time(barograph_t_temperature[7m])",
    "count_over_time(barograph_t_cores[7m])",
    "last_over_time(barograph_t_cores[7m])",
    "stddev_over_time(barograph_t_temperature[7m])",
    "stdvar_over_time(barograph_t_temperature[7m])",
    "quantile_over_time(0.9, barograph_t_temperature[7m])",
    "present_over_time(barograph_t_cores[2m])",
    "absent_over_time(barograph_t_cores{job=\"web\"}[2m])",
    "absent(barograph_t_cores{job=\"web\"})",
    "min_over_time(barograph_t_odd[10m])",
    "max_over_time(barograph_t_odd[10m])",
    "count_over_time(barograph_t_odd[10m])",
    "changes(barograph_t_odd[20m])",
    "barograph_t_odd",
    "abs(barograph_t_temperature)",
    "ceil(barograph_t_temperature)",
    "floor(barograph_t_temperature)",
    "round(barograph_t_temperature)",
    "round(barograph_t_temperature, 0.3)",
    "clamp(barograph_t_temperature, -1, 2.5)",
    "clamp_min(barograph_t_temperature, 0)",
    "clamp_max(barograph_t_temperature, 0)",
    "clamp(barograph_t_odd, -5, 5)",
    "sqrt(barograph_t_temperature)",
    "exp(barograph_t_temperature)",
    "ln(barograph_t_temperature)",
    "log2(barograph_t_temperature)",
    "log10(barograph_t_temperature)",
    "sgn(barograph_t_odd)",
    "time()",
    "timestamp(barograph_t_temperature)",
    "timestamp(barograph_t_cores)",
    "vector(scalar(barograph_t_cores{job=\"web\"}))",
    "scalar(barograph_t_temperature)",
    "hour() + minute() / 60",
    "day_of_week(barograph_t_requests_total * 1000)",
    "label_replace(barograph_t_temperature, \"place\", \"the $1\", \"room\", \"(.).*\")",
    "label_join(barograph_t_requests_total, \"all\", \"-\", \"job\", \"instance\")",
    "sum(barograph_t_requests_total)",
    "sum by (job) (rate(barograph_t_requests_total[5m]))",
    "sum without (instance) (rate(barograph_t_requests_total[5m]))",
    "avg by (job) (barograph_t_requests_total)",
    "min(barograph_t_temperature)",
    "max(barograph_t_temperature)",
    "count by (job) (barograph_t_requests_total > 5e8)",
    "stddev(barograph_t_temperature)",
    "stdvar by (node) (barograph_t_temperature)",
    "group by (job) (barograph_t_requests_total)",
    "quantile(0.3, barograph_t_temperature)",
    "topk(2, barograph_t_requests_total)",
    "topk by (job) (1, rate(barograph_t_requests_total[10m]))",
    "bottomk(2, barograph_t_temperature)",
    "max(barograph_t_odd)",
    "min(barograph_t_odd)",
    "barograph_t_temperature + 1",
    "2 ^ barograph_t_temperature",
    "barograph_t_temperature % 3",
    "-barograph_t_temperature",
    "barograph_t_temperature > 0",
    "0 > barograph_t_temperature",
    "barograph_t_temperature > bool 0",
    "barograph_t_temperature == barograph_t_temperature",
    "barograph_t_temperature != bool 0",
    "sum by (room) (barograph_t_temperature atan2 barograph_t_temperature)",
    "barograph_t_requests_total / on(job) group_left barograph_t_cores",
    "barograph_t_requests_total * on(job) group_left(node) barograph_t_cores",
    "barograph_t_cores - on(job) group_right sum by (job, instance) (barograph_t_requests_total)",
    "sum by (job) (barograph_t_requests_total) / ignoring(node) barograph_t_cores",
    "sum by (job) (rate(barograph_t_requests_total[5m])) > on(job) barograph_t_cores / 20",
    "barograph_t_requests_total and on(job) barograph_t_cores",
    "barograph_t_requests_total unless on(job) barograph_t_cores",
    "barograph_t_cores or barograph_t_temperature",
    "barograph_t_cores or on(node) barograph_t_temperature",
    "100 * (1 - avg(rate(barograph_t_requests_total[2m])) / 1000)",
    "1 + 2 * 3",
];

/// Both refuse these queries, for the same reason.
const REFUSED: &[&str] = &[
    "barograph_t_requests_total + on(job) barograph_t_cores",
    "barograph_t_cores + on(job) barograph_t_requests_total",
    "rate({__name__=~\"barograph_t_.*\"}[5m]) + on(node) barograph_t_cores",
    "barograph_t_requests_total > 5 +",
    "sum(",
    "rate(barograph_t_requests_total)",
];

/// The series of an answer by their labels, with their points.
fn series_of(answer: &Json) -> BTreeMap<String, Vec<(String, f64)>> {
    let number = |v: &Json| match v.as_str().unwrap() {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        text => text.parse().unwrap(),
    };
    let point = |p: &Json| (p[0].to_string(), number(&p[1]));
    let result = &answer["data"]["result"];
    if answer["data"]["resultType"] == "scalar" {
        return [("scalar".to_owned(), vec![point(result)])].into();
    }
    let series = result.as_array().unwrap().iter();
    series
        .map(|s| {
            let points = match s["values"].as_array() {
                Some(points) => points.iter().map(point).collect(),
                None => vec![point(&s["value"])],
            };
            (s["metric"].to_string(), points)
        })
        .collect()
}

fn compare(what: &str, real: &Json, ours: &Json) -> Result<usize, String> {
    if real["status"] != ours["status"] || real["data"]["resultType"] != ours["data"]["resultType"]
    {
        return Err(format!("{what}:\n  theirs {real}\n  ours   {ours}"));
    }
    let (theirs, ours) = (series_of(real), series_of(ours));
    let (keys, our_keys) = (theirs.keys(), ours.keys());
    if !keys.clone().eq(our_keys.clone()) {
        let lists = (keys.collect::<Vec<_>>(), our_keys.collect::<Vec<_>>());
        return Err(format!("{what}: series {lists:?}"));
    }
    let mut points = 0;
    for (labels, theirs) in theirs {
        let ours = &ours[&labels];
        if theirs.len() != ours.len() {
            return Err(format!(
                "{what}: {labels}: {} and {} points",
                theirs.len(),
                ours.len()
            ));
        }
        for ((t, v), (our_t, our_v)) in theirs.iter().zip(ours) {
            let is_near = (v - our_v).abs() <= TOLERANCE * v.abs().max(1e-6);
            let same = v == our_v || v.is_nan() && our_v.is_nan() || is_near;
            if t != our_t || !same {
                return Err(format!(
                    "{what}: {labels} at {t}: {v}, ours at {our_t}: {our_v}"
                ));
            }
            points += 1;
        }
    }
    Ok(points)
}

fn encoded(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}

fn ask(address: SocketAddr, path: &str) -> (u16, Json) {
    let found = send(
        tcp(address),
        &request(
            &format!("GET /api/v1/{path}"),
            &["accept-encoding: identity"],
            b"",
        ),
    );
    let body = match found.header("transfer-encoding") {
        Some(_) => unchunked(&found.body),
        None => found.body.clone(),
    };
    (
        found.status,
        serde_json::from_slice(&body).unwrap_or_else(|e| panic!("{path}: {e}")),
    )
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|w| w == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return whole;
        }
        whole.extend_from_slice(&body[end + 2..end + 2 + length]);
        body = &body[end + 2 + length + 2..];
    }
}

/// The comparison of both answers to each query.
#[derive(Default)]
struct Comparison {
    failures: Vec<String>,
    points: usize,
}

impl Comparison {
    fn values(&mut self, kind: &str, theirs: SocketAddr, ours: SocketAddr) {
        let t0 = T0 / S;
        let end = t0 + LOOKS * EVERY_S;
        let after = [1, 700, 3_333].map(|s| t0 + s).into_iter();
        let times = after.chain([0, 200, 290, 400].map(|s| end + s));
        let ranges = [
            (t0 - 600, end + 600, 60),
            (t0 + 1_000, t0 + 1_100, 1),
            (t0, end, 1_000),
        ];
        let ranges = ranges
            .iter()
            .map(|(from, to, step)| format!("query_range?start={from}&end={to}&step={step}"));
        let all: Vec<_> = times
            .map(|t| format!("query?time={t}"))
            .chain(ranges)
            .collect();
        for query in QUERIES {
            for how in &all {
                let path = format!("{how}&query={}", encoded(query));
                let (theirs, ours) = (ask(theirs, &path).1, ask(ours, &path).1);
                match compare(&format!("{kind}: {query} {how}"), &theirs, &ours) {
                    Ok(found) => self.points += found,
                    Err(failure) => self.failures.push(failure),
                }
            }
        }
    }

    fn refusals(&mut self, theirs: SocketAddr, ours: SocketAddr) {
        for query in REFUSED {
            let path = format!("query?time={}&query={}", T0 / S + 3_333, encoded(query));
            let ((status, theirs), (our_status, ours)) = (ask(theirs, &path), ask(ours, &path));
            if status != our_status || theirs["errorType"] != ours["errorType"] {
                self.failures.push(format!(
                    "{query}:\n  theirs {status} {theirs}\n  ours   {our_status} {ours}"
                ));
            }
        }
    }

    fn lists(&mut self, theirs: SocketAddr, ours: SocketAddr) {
        let (t0, end) = (T0 / S, T0 / S + LOOKS * EVERY_S);
        for path in [
            "labels",
            "label/__name__/values",
            "label/room/values",
            "series",
        ] {
            let path = format!("{path}?start={t0}&end={end}&match[]=%7Bnode=%22n1%22%7D");
            let (theirs, ours) = (ask(theirs, &path).1, ask(ours, &path).1);
            if theirs != ours {
                self.failures
                    .push(format!("{path}:\n  theirs {theirs}\n  ours   {ours}"));
            }
        }
    }
}

#[test]
fn answers_are_those_of_prometheus() {
    let programs = ["prometheus", "promtool"].into_iter();
    let missing: Vec<&str> = programs.filter(|p| !is_there(p)).collect();
    if !missing.is_empty() {
        let ci = std::env::var("CI").unwrap_or_default();
        assert!(
            !["1", "true", "yes"].contains(&ci.as_str()),
            "{missing:?} not installed: CI needs Debian's prometheus"
        );
        eprintln!("skipped: {missing:?} not installed (apt-get install prometheus)");
        return;
    }
    let made = made();
    let dir = tempfile::tempdir().unwrap();
    let real = Real::start(dir.path(), &made);
    let mut found = Comparison::default();
    let pasts = [
        ("samples", all_samples(&made)),
        ("changes", changes_only(&made)),
    ];
    for (kind, past) in pasts {
        let fixture = Fixture::with_past(past);
        let ours = fixture.server().http_addr().unwrap();
        found.values(kind, real.address, ours);
        found.refusals(real.address, ours);
        found.lists(real.address, ours);
    }
    let Comparison { failures, points } = found;
    assert!(
        failures.is_empty(),
        "{} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
    eprintln!("{points} points of {} queries are equal", QUERIES.len());
    assert!(points > 50_000, "{points}: too few to say anything");
}
