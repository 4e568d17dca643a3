//! Tests of the reading endpoints, of unknown paths, and of malformed requests.

use barograph_model::{Quality, Sample, Value, ValueType};
use barograph_server::Site;
use serde_json::json;

use crate::fixture::{Fixture, S, T0, descriptor};

/// Two disks with two samples each, a float that is not finite, a text, and a stream without
/// samples.
fn disks() -> (Fixture, Vec<barograph_stream::StreamWriter>) {
    let mut fixture = Fixture::new();
    let mut writers = Vec::new();
    for (n, device) in ["vdb", "vda"].into_iter().enumerate() {
        let mut writer = fixture.register(&descriptor("disk.read.bytes", device, ValueType::Int));
        for i in 0..2 {
            writer
                .look(&Sample::measured(T0 + i * S, (1 << 60) + i + n as i64))
                .unwrap();
        }
        fixture.segment.expect_interval(&writer, S);
        writers.push(writer);
    }
    let mut ratio = fixture.register(&descriptor("disk.busy.ratio", "vda", ValueType::Float));
    ratio.look(&Sample::derived(T0, f64::NAN)).unwrap();
    let mut tier = fixture.register(&descriptor("disk.tier.name", "vda", ValueType::Text));
    let guess = Sample {
        quality: Quality::Predicted,
        error: 0.5,
        ..Sample::measured(T0, 0)
    };
    tier.look(&Sample {
        value: Value::text("nvme \"x\""),
        ..guess
    })
    .unwrap();
    let empty = fixture.register(&descriptor("memory.free", "none", ValueType::Bool));
    writers.extend([ratio, tier, empty]);
    (fixture, writers)
}

#[test]
fn streams_are_listed_in_order() {
    let (fixture, _writers) = disks();
    let all = fixture.get("/api/v1/streams");
    let names: Vec<String> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|s| {
            format!(
                "{} {}",
                s["name"].as_str().unwrap(),
                s["labels"]["device"].as_str().unwrap()
            )
        })
        .collect();
    let expect = [
        "disk.busy.ratio vda",
        "disk.read.bytes vda",
        "disk.read.bytes vdb",
        "disk.tier.name vda",
        "memory.free none",
    ];
    assert_eq!(names, expect);
    let one = fixture.get("/api/v1/streams?match=disk.read.bytes{device=vda}");
    let id = descriptor("disk.read.bytes", "vda", ValueType::Int)
        .series_id()
        .to_string();
    assert_eq!(
        one,
        json!([{
            "name": "disk.read.bytes", "labels": {"device": "vda"}, "type": "int64", "unit": "bytes",
            "kind": "counter", "help": "What it is.", "id": id, "depth": 1024, "samples": 2,
            "interval_ns": S,
        }])
    );
    assert_eq!(fixture.get("/api/v1/streams?match=no.such"), json!([]));
    let two = fixture.get("/api/v1/streams?match=memory.*&match=*.ratio");
    assert_eq!(two.as_array().unwrap().len(), 2);
}

#[test]
fn a_stream_that_comes_or_goes_is_seen_at_once() {
    let (mut fixture, mut writers) = disks();
    assert_eq!(
        fixture
            .get("/api/v1/streams?match=memory.*")
            .as_array()
            .unwrap()
            .len(),
        1
    );
    fixture.segment.retire(writers.pop().unwrap());
    assert_eq!(fixture.get("/api/v1/streams?match=memory.*"), json!([]));
    let _cached = fixture.register(&descriptor("memory.cached", "none", ValueType::Int));
    assert_eq!(
        fixture.get("/api/v1/streams?match=memory.*")[0]["name"],
        "memory.cached"
    );
}

#[test]
fn latest_says_how_old_it_is() {
    let (fixture, mut writers) = disks();
    writers[1]
        .look(&Sample::measured(T0 + 3 * S, (1 << 60) + 2))
        .unwrap();
    fixture.clock.advance(5 * S);
    assert_eq!(
        fixture.get("/api/v1/latest?match=*.bytes{device=vda}"),
        json!([{
            "name": "disk.read.bytes", "labels": {"device": "vda"}, "ts": T0 + S,
            "value": (1i64 << 60) + 2, "quality": "measured", "error": 0.0,
            "age_ns": 2 * S, "looked_ts": T0 + 3 * S, "unit": "bytes", "stale": false,
        }])
    );
    let not_finite = fixture.get("/api/v1/latest?match=disk.busy.ratio");
    assert_eq!(
        (&not_finite[0]["value"], &not_finite[0]["quality"]),
        (&json!(null), &json!("derived"))
    );
    let text = fixture.get("/api/v1/latest?match=disk.tier.name");
    assert_eq!(
        (&text[0]["value"], &text[0]["error"]),
        (&json!("nvme \"x\""), &json!(0.5))
    );
    assert_eq!(
        fixture.get("/api/v1/latest?match=memory.free"),
        json!([]),
        "it has no sample"
    );
}

#[test]
fn latest_may_be_predicted() {
    let (mut fixture, _writers) = disks();
    let mut of = descriptor("forecast.disk.read.bytes", "vda", ValueType::Floats);
    of.kind = barograph_model::Kind::State;
    let mut said = fixture.register(&of);
    let knots = vec![0.0, 100.0, 0.0, 4.0, 140.0, f64::INFINITY];
    said.look(&Sample::measured(T0 + S, Value::Floats(knots.into())))
        .unwrap();
    fixture.clock.advance(3 * S);
    let path = "/api/v1/latest?match=disk.read.bytes";
    let measured = fixture.get(path);
    assert_eq!(
        fixture.get(&format!("{path}&allow_predicted=false")),
        measured
    );
    let found = fixture.get(&format!("{path}&allow_predicted=true"));
    assert_eq!(
        found[0],
        json!({
            "name": "disk.read.bytes", "labels": {"device": "vda"}, "ts": T0 + 3 * S,
            "value": 120.0, "quality": "predicted", "error": null,
            "age_ns": 2 * S, "looked_ts": T0 + S, "unit": "bytes", "stale": false,
        })
    );
    assert_eq!(found[1], measured[1]);
    let refused = fixture.ask(&format!("GET {path}&allow_predicted=maybe"), &[], b"");
    assert_eq!(refused.status, 400);
}

#[test]
fn history_is_in_columns_and_half_open() {
    let (fixture, _writers) = disks();
    let all = fixture.get("/api/v1/history?match=disk.read.bytes{device=vdb}");
    assert_eq!(
        all,
        json!([{
            "name": "disk.read.bytes", "labels": {"device": "vdb"}, "node": "n1", "unit": "bytes",
            "kind": "counter", "interval_ns": S, "ts": [T0, T0 + S], "value": [1i64 << 60, (1i64 << 60) + 1],
            "quality": ["measured", "measured"],
            "begins": [],
        }])
    );
    let check = |range: &str, expect: &[i64]| {
        let found = fixture.get(&format!(
            "/api/v1/history?match=disk.read.bytes{{device=vdb}}&{range}"
        ));
        assert_eq!(found[0]["ts"], json!(expect), "{range}");
    };
    check(&format!("start={}", T0 + 1), &[T0 + S]);
    check(&format!("start={T0}&stop={}", T0 + S), &[T0]);
    check("start=2023-11-14T22:13:21Z", &[T0 + S]);
    check("stop=2023-11-14T22:13:21Z", &[T0]);
    fixture.clock.advance(60 * S);
    check("start=-1min&stop=-59s", &[T0]);
    check("start=-59s", &[T0 + S]);
    for nothing in [
        format!("stop={T0}"),
        format!("start={T0}&stop={T0}"),
        "start=-1s".into(),
    ] {
        let found = fixture.get(&format!("/api/v1/history?match=disk.read.bytes&{nothing}"));
        assert_eq!(found, json!([]), "{nothing}");
    }
    fixture
        .ask("GET /api/v1/history?start=2&stop=1", &[], b"")
        .expect_fault(400, "usage", "after stop=1");
}

#[test]
fn history_in_buckets() {
    let (mut fixture, mut writers) = disks();
    for i in 2..12 {
        writers[0]
            .look(&Sample::measured(T0 + i * S, 100 + i))
            .unwrap();
    }
    let vdb = "/api/v1/history?match=disk.read.bytes{device=vdb}";
    // Buckets are whole: the start is in the middle of the first one.
    let found = fixture.get(&format!(
        "{vdb}&start={}&stop={}&step=5s",
        T0 + 7 * S,
        T0 + 11 * S
    ));
    assert_eq!(
        found,
        json!([{
            "name": "disk.read.bytes", "labels": {"device": "vdb"}, "node": "n1", "unit": "bytes",
            "kind": "counter", "interval_ns": S, "step_ns": 5 * S, "ts": [T0 + 5 * S, T0 + 10 * S],
            "count": [5, 2], "min": [105, 110], "max": [109, 111], "mean": [107.0, 110.5],
            "held_ns": [0, 0], "sample_mean": [107.0, 110.5], "last": [109, 111],
        }])
    );
    let in_ns = fixture.get(&format!("{vdb}&start={}&step=5000000000", T0 + 5 * S));
    assert_eq!(in_ns[0]["ts"], found[0]["ts"]);
    fixture.clock.advance(12 * S);
    let steps = |query: &str| {
        let found = fixture.get(&format!("{vdb}&{query}"));
        (
            found[0]["step_ns"].as_i64().unwrap() / S,
            found[0]["ts"].as_array().unwrap().len(),
        )
    };
    // From the first sample until now, both included: 13 s.
    assert_eq!(steps("points=13"), (1, 12), "it begins with what is known");
    assert_eq!(steps("points=7"), (2, 6));
    // Only 13 s of the hour are known, and the step is chosen for them.
    assert_eq!(steps("start=-1h&points=2"), (10, 2));
    let mut text = fixture.register(&descriptor("disk.scheduler.name", "vda", ValueType::Text));
    text.look(&Sample::measured(T0, Value::text("none")))
        .unwrap();
    let found = fixture.get("/api/v1/history?match=disk.scheduler.name&step=1h");
    assert_eq!(
        (&found[0]["mean"], &found[0]["last"]),
        (&json!([null]), &json!(["none"]))
    );
    for (query, message) in [
        ("step=often", "is not a length of time"),
        ("step=1s&points=5", "not both"),
        ("points=0", "not between 1 and"),
        ("start=never", "RFC 3339"),
    ] {
        fixture
            .ask(&format!("GET {vdb}&{query}"), &[], b"")
            .expect_fault(400, "usage", message);
    }
}

#[test]
fn status_tells_of_the_archive() {
    let (fixture, _writers) = disks();
    assert_eq!(
        fixture.get("/api/v1/status")["archive"],
        json!(null),
        "none is kept"
    );
    let document = json!({"dir": "/a", "bytes": 4096, "oldest_ts": T0, "losses": {"torn_bytes": 0}, "trouble": ""});
    let write = |text: &str| {
        fixture
            .run_dir
            .publish("archive.json", text.as_bytes(), 0o644)
            .unwrap()
    };
    write(&document.to_string());
    assert_eq!(fixture.get("/api/v1/status")["archive"], document);
    write("null");
    assert_eq!(
        fixture.get("/api/v1/status")["archive"],
        json!(null),
        "it is off"
    );
    write("{");
    fixture.ask("GET /api/v1/status", &[], b"").expect_fault(
        500,
        "internal",
        "archive.json is not as it should be",
    );
}

#[test]
fn status_counts() {
    let (fixture, _writers) = disks();
    let states =
        json!([{"state": "ok"}, {"state": "partial"}, {"state": "down"}, {"state": "off"}]);
    fixture
        .run_dir
        .publish("sources.json", states.to_string().as_bytes(), 0o644)
        .unwrap();
    let status = fixture.get("/api/v1/status");
    let incarnation = fixture.segment.reader().unwrap().incarnation().to_string();
    let http = format!("http://{}", fixture.server().http_addr().unwrap());
    assert_eq!(
        status,
        json!({
            "node": "n1", "version": "9.9", "incarnation": incarnation, "pid": std::process::id(),
            "started_ts": T0 - S, "now_ts": T0, "streams": 5, "streams_max": 8192, "samples": 6,
            "sources_up": 2, "sources": 3, "run_dir": fixture.dir.path(), "http": http,
            "archive": null,
        })
    );
    fixture
        .run_dir
        .publish("sources.json", b"{", 0o644)
        .unwrap();
    fixture
        .ask("GET /api/v1/status", &[], b"")
        .expect_fault(500, "internal", "sources.json");
}

#[test]
fn documents_pass_through() {
    let fixture = Fixture::new();
    for name in ["sources", "insights"] {
        assert_eq!(
            fixture.get(&format!("/api/v1/{name}")),
            json!([]),
            "not yet written"
        );
        let document = format!("[{{\"{name}\": 1}}]");
        fixture
            .run_dir
            .publish(&format!("{name}.json"), document.as_bytes(), 0o644)
            .unwrap();
        let found = fixture.ask(&format!("GET /api/v1/{name}"), &[], b"");
        assert_eq!(found.text(), document);
    }
}

#[test]
fn health_follows_the_heartbeat() {
    let fixture = Fixture::new();
    let healthy = fixture.get("/healthz");
    assert_eq!(
        (&healthy["status"], &healthy["node"]),
        (&json!("ok"), &json!("n1"))
    );
    assert_eq!(healthy["incarnation"].as_str().unwrap().len(), 32);
    fixture.clock.advance(5 * S);
    assert_eq!(fixture.ask("GET /healthz", &[], b"").status, 200);
    fixture.clock.advance(1);
    let stopped = fixture.ask("GET /healthz", &[], b"");
    stopped.expect_fault(503, "internal", "has not ticked for 5.0 s");
    assert_eq!(stopped.json()["status"], "stopped");
    fixture.segment.heartbeat(T0 + 5 * S);
    assert_eq!(fixture.ask("GET /healthz", &[], b"").status, 200);
    fixture.segment.close();
    assert_eq!(fixture.ask("GET /healthz", &[], b"").status, 503);
}

#[test]
fn a_segment_that_cannot_be_read_is_an_error() {
    let fixture = Fixture::new();
    std::fs::remove_file(fixture.run_dir.segment()).unwrap();
    fixture
        .ask("GET /api/v1/latest", &[], b"")
        .expect_fault(503, "internal", "no agent serves");
    std::fs::write(fixture.run_dir.segment(), "x").unwrap();
    fixture
        .ask("GET /metrics", &[], b"")
        .expect_fault(503, "internal", "not a usable segment");
}

#[test]
fn the_page_is_whole_and_tagged() {
    let fixture = Fixture::new();
    let site = Site::EMBEDDED;
    let files = [
        ("/", "text/html; charset=utf-8", site.index_html),
        ("/app.js", "text/javascript; charset=utf-8", site.app_js),
        ("/app.css", "text/css; charset=utf-8", site.app_css),
        ("/later.js", "text/javascript; charset=utf-8", site.later_js),
        (
            "/later.js?2",
            "text/javascript; charset=utf-8",
            site.later_js,
        ),
    ];
    for (path, content_type, bytes) in files {
        let line = format!("GET {path}");
        let found = fixture.ask(&line, &[], b"");
        assert_eq!(
            (found.status, found.header("content-type")),
            (200, Some(content_type))
        );
        assert_eq!(found.body, bytes, "{path}");
        assert_eq!(found.header("cache-control"), Some("no-cache"));
        let etag = found.header("etag").unwrap();
        for held in [etag.to_owned(), format!("\"x\", W/{etag}"), "*".into()] {
            let again = fixture.ask(&line, &[&format!("if-none-match: {held}")], b"");
            assert_eq!((again.status, again.body.len()), (304, 0), "{path} {held}");
        }
        let other = fixture.ask(&line, &["if-none-match: \"x\""], b"");
        assert_eq!(other.status, 200);
        let head = fixture.ask(&format!("HEAD {path}"), &[], b"");
        assert_eq!((head.status, head.body.len()), (200, 0));
    }
}

#[test]
fn every_answer_is_kept_to_itself() {
    let fixture = Fixture::new();
    for path in ["/", "/api/v1/status", "/no", "/api/v1/latest?x", "/metrics"] {
        let found = fixture.ask(&format!("GET {path}"), &[], b"");
        let policy = found.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(found.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(found.header("access-control-allow-origin"), None);
        let expect = if path == "/" { "no-cache" } else { "no-store" };
        assert_eq!(found.header("cache-control"), Some(expect), "{path}");
    }
}

#[test]
fn bad_requests() {
    let fixture = Fixture::new();
    let check = |line: &str, (status, kind): (u16, &str), part: &str| {
        fixture.ask(line, &[], b"").expect_fault(status, kind, part);
    };
    let unknown = (404, "unknown");
    check("GET /api/v1/stream", unknown, "there is: /api/v1/streams");
    check("GET /api/v1/latest/x", unknown, "there is: /api/v1/latest");
    check("GET /nothing/like/it", unknown, "/healthz");
    check(&format!("GET /{}", "a".repeat(3000)), unknown, "/healthz");
    let method = (405, "usage");
    check(
        "POST /api/v1/latest",
        method,
        "/api/v1/latest does not take POST",
    );
    check("GET /api/v1/sql", method, "does not take GET");
    let usage = (400, "usage");
    check("GET /api/v1/latest?match=a{b", usage, "not closed");
    check("GET /api/v1/latest?match=%ff%fe", usage, "not UTF-8");
    check(
        "GET /api/v1/latest?macht=a",
        usage,
        "unknown parameter \"macht\"",
    );
    check("GET /api/v1/status?x=1", usage, "unknown parameter");
    check(
        "GET /api/v1/watch?every_ms=49",
        usage,
        "between 50 and 60000",
    );
    check(
        "GET /api/v1/watch?every_ms=60001",
        usage,
        "between 50 and 60000",
    );
    check("GET /api/v1/watch?every_ms=fast", usage, "not an integer");
    check("GET /api/v1/watch?match={a=b}", usage, "it has no name");
    let wrong_method = fixture.ask("DELETE /api/v1/insights", &[], b"");
    assert_eq!(wrong_method.header("allow"), Some("GET,HEAD,POST"));
}

/// Text that is not HTTP never reaches our code: hyper answers with the bare status.
#[test]
fn requests_that_are_none() {
    let fixture = Fixture::new();
    let check = |bytes: &[u8], expect: u16| {
        let found = fixture.ask_raw(bytes);
        assert_eq!(found.status, expect, "{}", String::from_utf8_lossy(bytes));
    };
    check(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400);
    check(b"GET\r\n\r\n", 400);
    check(b"GET / HTTP/9.9\r\n\r\n", 400);
    check(
        b"GET /api/v1/latest?match=\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        400,
    );
    let many: String = (0..100).map(|i| format!("x{i}: y\r\n")).collect();
    check(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes(), 431);
}
