//! Tests of values that come in by other protocols, through the socket of whole agents into SQL.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use barograph_agent::Agent;
use barograph_model::SqlLimits;
use barograph_query::{Cell, Database, ScopeChoice};
use barograph_testing::wait_until;

use crate::applications::{number, our_scope, run_dir};
use crate::config;

/// Posts to `read.sock`; returns status and body.
fn post(dir: &Path, path: &str, content_type: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(dir.join("run/read.sock")).unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {content_type}"
    );
    let length = body.len();
    // A refusal may be answered before the whole request is sent.
    let _ = write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

pub(crate) fn lines(dir: &Path, lines: &str) -> (u16, String) {
    post(dir, "/api/v2/write?precision=ns", "text/plain", lines)
}

fn otlp(dir: &Path, metrics: &str) -> (u16, String) {
    let request = format!(
        r#"{{"resourceMetrics": [{{"resource": {{"attributes": [
            {{"key": "service.name", "value": {{"stringValue": "Shop"}}}},
            {{"key": "job", "value": {{"stringValue": "17"}}}}]}},
            "scopeMetrics": [{{"metrics": [{metrics}]}}]}}]}}"#
    );
    post(dir, "/v1/metrics", "application/json", &request)
}

/// Like [`number`], over all scopes at once, since listings cover all of them.
fn number_of_all(dir: &Path, sql: &str) -> Option<i64> {
    let clock = Arc::new(barograph_stream::SystemClock::new());
    let mut database = Database::open(&run_dir(dir), ScopeChoice::Readable, clock).ok()?;
    let rows = database.run(sql, &SqlLimits::default(), &AtomicBool::new(false));
    match rows.ok()?.get(0, 0)? {
        Cell::Int(n) => Some(*n),
        _ => None,
    }
}

pub(crate) fn now_ns() -> i64 {
    use barograph_model::Clock as _;
    barograph_stream::SystemClock::new().now_ns()
}

#[test]
fn lines_are_in_sql_when_they_are_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let agent = Agent::start(config(dir.path())).unwrap();
    let t = now_ns() - 1_000_000;
    // The order of lines within a request does not matter.
    let body = format!(
        "cpu,Host=a usage=2.5,cores=4i {}\ncpu,Host=a usage=1.5,ok=t,note=\"x\" {t}\ncpu,Host=b usage=7 {t}",
        t + 5
    );
    assert_eq!(lines(dir.path(), &body), (204, String::new()));
    let scope = our_scope(dir.path());
    let usage = "SELECT count(*) FROM app_cpu_usage WHERE Host = 'a'";
    assert_eq!(number(&scope, usage), Some(2));
    let exact =
        format!("SELECT count(*) FROM app_cpu_usage WHERE ts = {t} AND Host = 'b' AND value = 7.0");
    assert_eq!(number(&scope, &exact), Some(1));
    assert_eq!(number(&scope, "SELECT value FROM app_cpu_cores"), Some(4));
    let listed = "SELECT taken FROM publications WHERE name = 'cpu' AND pid IS NULL";
    wait_until("it is listed", || {
        number_of_all(dir.path(), listed) == Some(6)
    });
    // Acknowledged values are on disk, so the next agent has them.
    agent.stop();
    let _agent = Agent::start(config(dir.path())).unwrap();
    assert_eq!(number(&scope, usage), Some(2));
}

#[test]
fn what_is_out_of_order_is_refused_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let t = now_ns() - 1_000_000_000;
    assert_eq!(lines(dir.path(), &format!("m v=1i {t}")).0, 204);
    // The same line again, as clients send it if an answer was lost.
    assert_eq!(lines(dir.path(), &format!("m v=1i {t}")).0, 204);
    let body = format!(
        "m v=2i {}\nm v=3i {}\nm v=1.5\nbad\nm v=4i {}",
        t - 1,
        t + 3_600_000_000_000,
        t + 1
    );
    let (status, answer) = lines(dir.path(), &body);
    assert_eq!(status, 400, "{answer}");
    for reason in [
        "line 1: m: it is older than the newest of its series",
        "line 2: m: its time is more than 1 s in the future",
        "line 3: m: it is float64, and its series is int64",
        "line 4: there are no fields",
        "lines dropped=4",
    ] {
        assert!(answer.contains(reason), "{answer}");
    }
    let scope = our_scope(dir.path());
    assert_eq!(number(&scope, "SELECT count(*) FROM app_m_v"), Some(2));
    assert_eq!(number(&scope, "SELECT max(value) FROM app_m_v"), Some(4));
    let lost = "SELECT CAST(sum(value) AS INTEGER) FROM app_process_lost_count WHERE newest";
    wait_until("the loss is told", || number(&scope, lost) == Some(4));
    let listed = "SELECT sum(\"count\") FROM loss WHERE what LIKE '%make no sense%'";
    wait_until("the loss is listed", || {
        number_of_all(dir.path(), listed) == Some(4)
    });
    // The reason is also listed for lines that were refused before they had a series.
    for (source, part) in [
        ("line_protocol", "there are no fields"),
        ("m", "more than 1 s in the future"),
    ] {
        let told = format!(
            "SELECT count(*) FROM publications WHERE name = '{source}' AND refusal LIKE '%{part}%'"
        );
        wait_until("the reason is told", || {
            number_of_all(dir.path(), &told) == Some(1)
        });
    }
    let histogram = r#"{"name": "h", "exponentialHistogram": {"aggregationTemporality": 2,
        "dataPoints": [{"timeUnixNano": "1", "count": "1"}]}}"#;
    assert_eq!(otlp(dir.path(), histogram).0, 200);
    let told = "SELECT count(*) FROM publications WHERE application = 'Shop' AND refusal LIKE '%exponential%'";
    wait_until("the reason is told", || {
        number_of_all(dir.path(), told) == Some(1)
    });
}

#[test]
fn names_that_meet_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let (status, answer) = lines(dir.path(), "a-b,user=x frame=1i\na/b,user=x frame=2i");
    // The two sources have one name: the second is another instance.
    assert_eq!((status, &*answer), (204, ""));
    let scope = our_scope(dir.path());
    let by_user = "SELECT value FROM app_a_b_frame_ WHERE user_ = 'x' AND instance = '2'";
    assert_eq!(number(&scope, by_user), Some(2));
    let (status, answer) = lines(dir.path(), "m,a=1 V=1i\nm,a=1 v=2i");
    assert_eq!(status, 400);
    assert!(
        answer.contains("is the stream of another series"),
        "{answer}"
    );
    assert_eq!(number(&scope, "SELECT count(*) FROM app_m_v"), Some(1));
}

#[test]
fn otlp_becomes_counters_gauges_and_quantiles() {
    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let send = |at: i64, done: i64, buckets: &str, count: i64| {
        let metrics = format!(
            r#"{{"name": "done", "unit": "{{request}}", "sum": {{"isMonotonic": true, "aggregationTemporality": 1,
                "dataPoints": [{{"asInt": "{done}", "timeUnixNano": "{at}",
                    "attributes": [{{"key": "http.route", "value": {{"stringValue": "/a"}}}}]}}]}}}},
            {{"name": "time", "unit": "s", "histogram": {{"aggregationTemporality": 2, "dataPoints": [
                {{"timeUnixNano": "{at}", "count": "{count}", "sum": 2.5, "bucketCounts": [{buckets}],
                  "explicitBounds": [1, 2]}}]}}}},
            {{"name": "wide", "exponentialHistogram": {{"dataPoints": [{{}}]}}}}"#
        );
        otlp(dir.path(), &metrics)
    };
    let t = now_ns() - 1_000_000;
    let (status, answer) = send(t, 5, "0, 4, 0", 4);
    assert_eq!(status, 200);
    assert!(answer.contains("\"rejectedDataPoints\":\"1\""), "{answer}");
    assert!(
        answer.contains("exponential histograms are not taken"),
        "{answer}"
    );
    assert_eq!(send(t + 10, 3, "100, 4, 0", 104).0, 200);
    let scope = our_scope(dir.path());
    let done = "SELECT max(value) FROM app_shop_done WHERE http_route = '/a' AND job = '17' AND application = 'Shop'";
    assert_eq!(number(&scope, done), Some(8), "deltas add up");
    let count = "SELECT max(value) FROM app_shop_time_count";
    assert_eq!(number(&scope, count), Some(104));
    // The median is of the hundred values that came in between, which are all below one second.
    let median = "SELECT count(*) FROM app_shop_time_p50 WHERE value = 0.5 AND error = 0.5 AND quality = 'derived'";
    assert_eq!(number(&scope, median), Some(1));
    let kind = "SELECT count(*) FROM streams WHERE name = 'app.shop.done' AND kind = 'counter' AND unit = 'request'";
    assert_eq!(number(&scope, kind), Some(1));
}

#[test]
fn numbers_are_bounded_and_scopes_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let mut few = config(dir.path());
    few.applications.bridged_max = 3;
    let _agent = Agent::start(few).unwrap();
    let (status, answer) = lines(dir.path(), "m a=1,b=1,c=1,d=1");
    assert_eq!(status, 400);
    assert!(answer.contains("bridged_max"), "{answer}");
    let scope = our_scope(dir.path());
    let streams = "SELECT count(*) FROM streams WHERE name LIKE 'app.m.%'";
    assert_eq!(number(&scope, streams), Some(3));
    let (status, _) = post(dir.path(), "/write?readers=all", "text/plain", "n a=1");
    assert_eq!(status, 400, "the bound is the user's, not the scope's");

    let dir = tempfile::tempdir().unwrap();
    let _agent = Agent::start(config(dir.path())).unwrap();
    let (status, _) = post(dir.path(), "/write?readers=all", "text/plain", "n a=1i");
    assert_eq!(status, 204);
    let all = run_dir(dir.path()).scope("all");
    assert_eq!(number(&all, "SELECT value FROM app_n_a"), Some(1));
}

#[test]
fn without_applications_nothing_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut off = config(dir.path());
    off.applications.enabled = false;
    let _agent = Agent::start(off).unwrap();
    let (status, answer) = lines(dir.path(), "m a=1");
    assert_eq!(status, 403);
    assert!(answer.contains("enabled = false"), "{answer}");
}
