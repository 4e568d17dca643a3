//! Tests of the query API over HTTP: forms, statuses, and Prometheus' error kinds.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use barograph_model::{
    Buckets, Past, PastRequest, PastSamples, PastSeries, Sample, SqlFault, SqlFaultKind, Value,
    ValueType,
};
use barograph_server::ServerLimits;
use serde_json::{Value as Json, json};

use crate::fixture::{Fixture, S, T0, descriptor, until};
use crate::memory::MemoryPast;

fn fixture() -> Fixture {
    let mut past = MemoryPast::default();
    for (device, start) in [("vda", 0), ("vdb", 100)] {
        let samples = (0..60).map(|i| (T0 + i * S, Value::Int(start + i * 512)));
        let bytes = descriptor("disk.read.bytes", device, ValueType::Int);
        past.add(&bytes, samples, S, T0 + 59 * S);
    }
    let free = descriptor("pool.free.count", "vda", ValueType::Float);
    past.add(&free, [(T0, Value::Float(0.5))], S, T0 + 59 * S);
    let tier = descriptor("pool.tier.name", "vda", ValueType::Text);
    past.add(&tier, [(T0, Value::text("nvme"))], S, T0 + 59 * S);
    let fixture = Fixture::with_past(past);
    fixture.clock.advance(60 * S);
    fixture
}

fn encoded(query: &str) -> String {
    query.bytes().map(|b| format!("%{b:02X}")).collect()
}

#[track_caller]
fn data(fixture: &Fixture, path: &str) -> Json {
    let answer = fixture.get(path);
    assert_eq!(answer["status"], "success", "{answer}");
    answer["data"].clone()
}

#[test]
fn instant_queries() {
    let fixture = fixture();
    let rate = encoded("sum by (device) (rate(node_disk_read_bytes_total[10s]))");
    let expect = json!({ "resultType": "vector", "result": [
        { "metric": { "device": "vda" }, "value": [1_700_000_030, "512"] },
        { "metric": { "device": "vdb" }, "value": [1_700_000_030, "512"] },
    ]});
    let path = format!("/api/v1/query?query={rate}&time=1700000030&unheard_of=1");
    assert_eq!(data(&fixture, &path), expect);
    let body = format!("query={rate}&time=2023-11-14T22%3A13%3A50Z");
    let form = ["content-type: application/x-www-form-urlencoded"];
    let posted = fixture.ask("POST /api/v1/query", &form, body.as_bytes());
    assert_eq!(posted.status, 200, "{}", posted.text());
    assert_eq!(posted.json()["data"], expect);
    // At the present time, by either name; the answer has the name that was asked for.
    for name in [
        "node_disk_read_bytes_total",
        "barograph_disk_read_bytes_total",
    ] {
        let found = data(&fixture, &format!("/api/v1/query?query={name}"));
        let metric = json!({ "__name__": name, "device": "vda", "node": "n1" });
        let value = json!([1_700_000_060, (59 * 512).to_string()]);
        assert_eq!(
            found["result"][0],
            json!({ "metric": metric, "value": value })
        );
    }
    let check = |query: &str, expect: Json| {
        let path = format!("/api/v1/query?query={}&time=1700000001.5", encoded(query));
        assert_eq!(data(&fixture, &path), expect, "{query}");
    };
    check(
        "1/0",
        json!({ "resultType": "scalar", "result": [1_700_000_001.5, "+Inf"] }),
    );
    check(
        "\"a\"",
        json!({ "resultType": "string", "result": [1_700_000_001.5, "a"] }),
    );
    check("no_such", json!({ "resultType": "vector", "result": [] }));
    check(
        "barograph_pool_free_count[2s]",
        json!({ "resultType": "matrix", "result": [{
            "metric": { "__name__": "barograph_pool_free_count", "device": "vda", "node": "n1" },
            "values": [[1_700_000_000, "0.5"], [1_700_000_001, "0.5"]],
        }]}),
    );
}

#[test]
fn range_queries() {
    let fixture = fixture();
    let ask = |query: &str, range: &str| {
        data(
            &fixture,
            &format!("/api/v1/query_range?query={}&{range}", encoded(query)),
        )
    };
    let range = "start=1700000010&end=1700000020&step=5s";
    assert_eq!(
        ask(
            "rate(node_disk_read_bytes_total{device=~\"v.b\"}[5s])",
            range
        ),
        json!({ "resultType": "matrix", "result": [{
            "metric": { "device": "vdb", "node": "n1" },
            "values": [[1_700_000_010, "512"], [1_700_000_015, "512"], [1_700_000_020, "512"]],
        }]})
    );
    assert_eq!(
        ask("2", range),
        json!({ "resultType": "matrix", "result": [{
            "metric": {},
            "values": [[1_700_000_010, "2"], [1_700_000_015, "2"], [1_700_000_020, "2"]],
        }]})
    );
    // A series is left out at instants where it is absent.
    assert_eq!(
        ask("vector(time()) > 1700000012", range)["result"],
        json!([{
            "metric": {},
            "values": [[1_700_000_015, "1700000015"], [1_700_000_020, "1700000020"]],
        }])
    );
}

#[test]
fn a_name_that_is_shut_out_does_not_come_back_as_another() {
    let fixture = fixture();
    let names = |matcher: &str| {
        let query = encoded(&format!("{{device='vda',{matcher}}}"));
        let found = data(&fixture, &format!("/api/v1/query?query={query}"));
        let name = |s: &Json| s["metric"]["__name__"].as_str().unwrap().to_owned();
        let mut names: Vec<_> = found["result"]
            .as_array()
            .unwrap()
            .iter()
            .map(name)
            .collect();
        names.sort();
        names.join(" ")
    };
    let others = "barograph_pool_free_count barograph_pool_tier_name_info";
    let shared = "node_disk_read_bytes_total";
    let own = "barograph_disk_read_bytes_total";
    assert_eq!(names(""), format!("{others} {shared}"));
    assert_eq!(names("__name__!='node_disk_read_bytes_total'"), others);
    assert_eq!(names("__name__!~'node_.*'"), others);
    assert_eq!(names("__name__=~'.+',__name__!~'node_.*'"), others);
    let asked = "__name__=~'barograph_.*',__name__!~'node_.*'";
    assert_eq!(names(asked), format!("{own} {others}"));
    assert_eq!(names("__name__=~'.*_disk_.*'"), shared);
    assert_eq!(names("__name__='barograph_disk_read_bytes_total'"), own);
    assert_eq!(
        names("__name__!='barograph_disk_read_bytes_total'"),
        format!("{others} {shared}")
    );
}

/// A past that is read until it is cancelled.
struct Endless;

impl Endless {
    fn wait<T>(request: &PastRequest<'_>) -> Result<T, SqlFault> {
        while !request.cancel.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Err(SqlFault {
            kind: SqlFaultKind::Cancelled,
            message: "as the test has it".into(),
        })
    }
}

impl Past for Endless {
    fn series(&self, request: &PastRequest<'_>) -> Result<Vec<PastSeries>, SqlFault> {
        match request.samples_max {
            // In the test, `about` waits here; queries wait where they read.
            7 => Self::wait(request),
            _ => Ok(Vec::new()),
        }
    }

    fn read(&self, request: &PastRequest<'_>) -> Result<Vec<PastSamples>, SqlFault> {
        Self::wait(request)
    }

    fn buckets(
        &self,
        request: &PastRequest<'_>,
        _: i64,
    ) -> Result<Vec<(PastSeries, Buckets)>, SqlFault> {
        Self::wait(request)
    }
}

#[test]
fn the_time_ends_what_is_being_read() {
    let check = |fixture: &Fixture, path: &str| {
        let found = fixture.ask(&format!("GET /api/v1/{path}"), &[], b"");
        let body = found.json();
        assert_eq!(
            (found.status, &body["errorType"]),
            (503, &json!("timeout")),
            "{path}: {body}"
        );
    };
    // The fixture's clock stands still, so it does not end the time.
    let reads = Fixture::made(|_| {}, Some(Arc::new(Endless)));
    check(&reads, "query?query=up&timeout=1ms");
    check(
        &reads,
        "query_range?query=up&start=1&end=9&step=1&timeout=1ms",
    );
    let lists = Fixture::made(|l| l.history_samples_max = 7, Some(Arc::new(Endless)));
    check(&lists, "series?match[]=up&timeout=1ms");
    let short = |l: &mut ServerLimits| l.sql.time_ns_max = 1_000_000;
    let limited = Fixture::made(short, Some(Arc::new(Endless)));
    check(&limited, "query?query=up");
}

#[test]
fn errors() {
    let fixture = fixture();
    let check = |path: &str, status: u16, kind: &str, part: &str| {
        let found = fixture.ask(&format!("GET /api/v1/{path}"), &[], b"");
        let body = found.json();
        assert_eq!(
            (found.status, &body["errorType"]),
            (status, &json!(kind)),
            "{path}: {body}"
        );
        assert_eq!(body["status"], "error");
        let message = body["error"].as_str().unwrap();
        assert!(message.contains(part), "{path}: {message}");
    };
    check("query", 400, "bad_data", "query");
    check("query?query=(", 400, "bad_data", "query");
    check("query?query=up&time=noon", 400, "bad_data", "time");
    check("query?query=up&timeout=x", 400, "bad_data", "timeout");
    check(
        "query_range?query=up&start=2&end=1&step=1",
        400,
        "bad_data",
        "before start",
    );
    check(
        "query_range?query=up&start=1&end=2&step=0",
        400,
        "bad_data",
        "step",
    );
    check(
        "query_range?query=up&start=0&end=11001&step=1",
        400,
        "bad_data",
        "11000 points",
    );
    check(
        "query_range?query=up[5m]&start=0&end=1&step=1",
        400,
        "bad_data",
        "range vector",
    );
    check(
        "query_range?query=%22a%22&start=0&end=1&step=1",
        400,
        "bad_data",
        "string",
    );
    check(
        "query_range?query=up&start=0&end=1",
        400,
        "bad_data",
        "step",
    );
    check("series", 400, "bad_data", "match[]");
    check("series?match[]=rate(up[5m])", 400, "bad_data", "match[]");
    check("labels?match[]={", 400, "bad_data", "match[]");
    check(
        "query?query=abs(%7B__name__=~%22.%2B%22%7D)",
        422,
        "execution",
        "same labelset",
    );
}

#[test]
fn what_there_is() {
    let fixture = fixture();
    let get = |path: &str| data(&fixture, &format!("/api/v1/{path}"));
    assert_eq!(
        get("label/__name__/values"),
        json!([
            "barograph_pool_free_count",
            "barograph_pool_tier_name_info",
            "node_disk_read_bytes_total"
        ])
    );
    assert_eq!(get("labels"), json!(["__name__", "device", "node"]));
    assert_eq!(get("labels?match[]=nothing"), json!([]));
    assert_eq!(get("label/device/values"), json!(["vda", "vdb"]));
    assert_eq!(
        get("label/device/values?match[]=barograph_pool_free_count"),
        json!(["vda"])
    );
    assert_eq!(get("label/device/values?start=1&end=2"), json!([]));
    assert_eq!(get("label/no_such/values"), json!([]));
    let series =
        json!([{ "__name__": "node_disk_read_bytes_total", "device": "vdb", "node": "n1" }]);
    assert_eq!(
        get("series?match[]=node_disk_read_bytes_total%7Bdevice!=%22vda%22%7D"),
        series
    );
    assert_eq!(
        get("metadata?metric=node_disk_read_bytes_total"),
        json!({ "node_disk_read_bytes_total": [{ "type": "counter", "help": "What it is.", "unit": "" }] })
    );
    assert_eq!(
        get("metadata?limit=1").as_object().map(|m| m.len()),
        Some(1)
    );
    assert_eq!(get("status/buildinfo")["application"], "barograph");
    // Our own paths work beside them.
    assert_eq!(fixture.get("/api/v1/status")["node"], "n1");
}

#[test]
fn rings_answer_where_there_is_no_archive() {
    let mut fixture = Fixture::new();
    let mut writer = fixture.register(&descriptor("disk.read.bytes", "vda", ValueType::Int));
    fixture.segment.expect_interval(&writer, S);
    for i in 0..10 {
        // Unchanged from 5 s on: looked at, but not appended.
        writer
            .look(&Sample::measured(T0 + i * S, i.min(5) * 100))
            .unwrap();
    }
    fixture.clock.advance(9 * S);
    let value = |query: &str| {
        let found = data(&fixture, &format!("/api/v1/query?query={}", encoded(query)));
        found["result"][0]["value"][1].clone()
    };
    assert_eq!(value("node_disk_read_bytes_total"), "500");
    assert_eq!(value("rate(node_disk_read_bytes_total[3s])"), "0");
    assert_eq!(
        value("count_over_time(node_disk_read_bytes_total[1m])"),
        "10"
    );
    assert_eq!(
        value("increase(node_disk_read_bytes_total[4s] offset 4s)"),
        "400"
    );
}

#[test]
fn no_more_at_once_than_there_is_room_for() {
    let fixture = Fixture::with(|limits| limits.large_answers_max = 1);
    let mut held = Some(std::thread::scope(|scope| {
        // A statement that waits takes the only place.
        let waiting = scope.spawn(|| {
            use std::io::Write as _;
            let mut socket = crate::client::tcp(fixture.server().http_addr().unwrap());
            socket
                .write_all(&crate::client::request("POST /api/v1/sql", &[], b"wait"))
                .unwrap();
            socket
        });
        waiting.join().unwrap()
    }));
    until(|| {
        fixture
            .sql
            .running
            .load(std::sync::atomic::Ordering::SeqCst)
            == 1
    });
    let refused = fixture.ask("GET /api/v1/query?query=1", &[], b"");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["errorType"], "unavailable");
    held.take();
    until(|| {
        fixture
            .sql
            .cancelled
            .load(std::sync::atomic::Ordering::SeqCst)
            == 1
    });
    until(|| fixture.ask("GET /api/v1/query?query=1", &[], b"").status == 200);
}
