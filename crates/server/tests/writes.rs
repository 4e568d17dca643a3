//! Tests of writes by other protocols over real sockets: who may write, what the intake gets, and
//! how writes are answered.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use barograph_bridge::{
    Ingest, IngestFault, IngestRequest, IngestResult, PointRefusal, RefusedPoints,
};
use barograph_server::IngestConfig;
use barograph_stream::ingest::PublicationReaders;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use crate::client::Response;
use crate::fixture::Fixture;

/// A fake intake that takes all points except those with a wrong name.
#[derive(Debug, Default)]
struct FakeIngest(Mutex<Vec<IngestRequest>>);

impl Ingest for FakeIngest {
    fn ingest(&self, request: IngestRequest) -> Result<IngestResult, IngestFault> {
        let names: Vec<&str> = request.points.iter().map(|p| &*p.origin.name).collect();
        if names.contains(&"busy") {
            return Err(IngestFault::Busy("it was busy".into()));
        }
        if names.contains(&"refused") {
            return Err(IngestFault::Refused("it was refused".into()));
        }
        let wrong = request.points.iter().filter(|p| &*p.origin.name == "wrong");
        let refusals: Vec<PointRefusal> = wrong
            .map(|point| PointRefusal {
                place: point.place,
                reason: "it was wrong".into(),
            })
            .collect();
        let refused = refusals.len() as u64;
        let taken = request.points.len() as u64 - refused;
        self.0.lock().unwrap().push(request);
        Ok(IngestResult {
            taken,
            refusals,
            refused,
        })
    }
}

struct Bench {
    fixture: Fixture,
    ingest: Arc<FakeIngest>,
}

impl Bench {
    fn new(over_tcp: bool) -> Self {
        let ingest = Arc::new(FakeIngest::default());
        let ingesting = IngestConfig {
            to: Arc::clone(&ingest) as Arc<dyn Ingest>,
            over_tcp,
        };
        let small = |limits: &mut barograph_server::ServerLimits| limits.ingest_bytes_max = 10_000;
        Self {
            fixture: Fixture::with_ingest(small, ingesting),
            ingest,
        }
    }

    fn post(&self, path: &str, headers: &[&str], body: &[u8]) -> Response {
        let socket = self.fixture.run_dir.read_socket();
        self.fixture
            .ask_unix(socket, &format!("POST {path}"), headers, body)
    }

    /// The last request that the intake got.
    fn last(&self) -> IngestRequest {
        self.ingest.0.lock().unwrap().last().cloned().unwrap()
    }
}

const OTLP: &str = r#"{"resourceMetrics": [{"scopeMetrics": [{"metrics": [
    {"name": "NAME", "gauge": {"dataPoints": [{"asInt": "1", "timeUnixNano": "17"}]}}]}]}]}"#;

#[test]
fn line_protocol_is_handed_over_and_answered() {
    let bench = Bench::new(false);
    for path in [
        "/write?db=x&u=me&p=secret",
        "/api/v2/write?org=o&bucket=b&precision=s",
    ] {
        let answer = bench.post(
            path,
            &["authorization: Token x"],
            b"cpu,host=a usage=1.5 17\n",
        );
        assert_eq!((answer.status, answer.text()), (204, ""), "{path}");
        let request = bench.last();
        let ours = rustix::process::getuid().as_raw();
        assert_eq!(
            (request.uid, request.readers),
            (ours, PublicationReaders::Owner)
        );
        let factor = if path.contains("precision=s") {
            1_000_000_000
        } else {
            1
        };
        assert_eq!(request.points[0].ts, Some(17 * factor));
    }
    bench.post("/write?readers=all", &[], b"cpu v=1");
    assert_eq!(bench.last().readers, PublicationReaders::All);
    bench.post("/write", &["x-barograph-readers: all"], b"cpu v=1");
    assert_eq!(bench.last().readers, PublicationReaders::All);
    assert_eq!(bench.post("/write", &[], b"").status, 204);
}

#[test]
fn a_part_that_is_refused_is_named_by_its_line() {
    let bench = Bench::new(false);
    let answer = bench.post("/write", &[], b"a v=1\nb\nc wrong=1,v=2\n");
    assert_eq!(answer.status, 400);
    let body = answer.json();
    assert_eq!(
        (&body["code"], &body["line"]),
        (&json!("invalid"), &json!(2))
    );
    let expect = "partial write: line 2: there are no fields; line 3: it was wrong; \
                  values taken=2, lines dropped=2";
    assert_eq!(
        (&body["message"], &body["error"]),
        (&json!(expect), &json!(expect))
    );
    // The agent counts the lines that were not parsed, too.
    assert_eq!(
        bench.last().refused.values().cloned().collect::<Vec<_>>(),
        [RefusedPoints {
            count: 1,
            reason: "there are no fields".into()
        }]
    );
}

#[test]
fn otlp_is_answered_in_its_own_form() {
    let bench = Bench::new(false);
    let json_type = "content-type: application/json; charset=utf-8";
    let post = |name: &str| {
        let body = OTLP.replace("NAME", name);
        bench.post("/v1/metrics", &[json_type], body.as_bytes())
    };
    let taken = post("temperature");
    assert_eq!((taken.status, taken.json()), (200, json!({})));
    assert_eq!(bench.last().points[0].ts, Some(17));
    let partly = post("wrong");
    let expect = json!({"partialSuccess": {
        "rejectedDataPoints": "1",
        "errorMessage": "it was wrong",
    }});
    assert_eq!((partly.status, partly.json()), (200, expect));
    let busy = post("busy");
    assert_eq!((busy.status, busy.header("retry-after")), (503, Some("1")));
    assert_eq!(busy.json(), json!({"code": 14, "message": "it was busy"}));
    assert_eq!(post("refused").status, 403);

    let protobuf = "content-type: application/x-protobuf";
    let empty = bench.post("/v1/metrics", &[protobuf], b"");
    assert_eq!((empty.status, empty.text()), (200, ""));
    let broken = bench.post("/v1/metrics", &[protobuf], &[0xff; 20]);
    assert_eq!(broken.status, 400);
    assert_eq!(
        broken.header("content-type"),
        Some("application/x-protobuf")
    );
    assert_eq!(
        broken.body[..2],
        [0x08, 3],
        "a status with INVALID_ARGUMENT"
    );
    let neither = bench.post("/v1/metrics", &["content-type: text/plain"], b"x");
    assert_eq!(neither.status, 415);
}

#[test]
fn bodies_are_unpacked_within_their_bound() {
    let bench = Bench::new(false);
    let packed = |text: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    };
    let gzip = "content-encoding: gzip";
    let small = bench.post("/write", &[gzip], &packed(b"cpu v=1"));
    assert_eq!(small.status, 204);
    let bomb = bench.post("/write", &[gzip], &packed(&[b'\n'; 10_001]));
    assert_eq!(bomb.status, 413);
    assert_eq!(bench.post("/write", &[], &[b'\n'; 10_001]).status, 413);
    assert_eq!(bench.post("/write", &[gzip], b"cpu v=1").status, 400);
    let other = bench.post("/write", &["content-encoding: br"], b"cpu v=1");
    assert_eq!(other.status, 415);
}

#[test]
fn what_is_not_understood_is_refused() {
    let bench = Bench::new(false);
    let check = |path: &str, body: &[u8], status: u16, expect: &str| {
        let answer = bench.post(path, &[], body);
        let message = answer.json()["message"].to_string();
        assert_eq!(answer.status, status, "{path}: {message}");
        assert!(message.contains(expect), "{path}: {message}");
    };
    check("/write?precision=d", b"a v=1", 400, "precision=d");
    check("/write?readers=group", b"a v=1", 400, "readers=group");
    check("/write?what=1", b"a v=1", 400, "what");
    check("/write", b"a v=\"\xff\"", 400, "UTF-8");
    check("/write", b"a busy=1", 503, "it was busy");
    check("/write", b"a refused=1", 403, "it was refused");
    assert!(bench.ingest.0.lock().unwrap().is_empty());
}

#[test]
fn tcp_is_off_unless_it_is_on() {
    let line = "POST /write";
    let off = Bench::new(false);
    let refused = off.fixture.ask(line, &[], b"a v=1");
    assert_eq!(refused.status, 403);
    assert!(refused.text().contains("http_ingest"), "{}", refused.text());

    let on = Bench::new(true);
    assert_eq!(on.fixture.ask(line, &[], b"a v=1").status, 204);
    let ours = rustix::process::getuid().as_raw();
    assert_eq!(on.last().uid, ours, "as the kernel lists it");
    // A web page may not write, not even our own.
    let address = on.fixture.server().http_addr().unwrap();
    let host = format!("host: {address}");
    for from_page in [
        &*format!("origin: http://{address}"),
        "sec-fetch-site: none",
    ] {
        let refused = on.fixture.ask(line, &[&host, from_page], b"a v=1");
        assert_eq!(refused.status, 403, "{from_page}");
    }

    let nowhere = Fixture::new();
    let refused = nowhere.ask_unix(nowhere.run_dir.read_socket(), line, &[], b"a v=1");
    assert_eq!(refused.status, 403);
}

#[test]
fn another_user_is_who_the_kernel_says() {
    use std::os::unix::fs::PermissionsExt as _;

    let bench = Bench::new(false);
    let nobody = rustix::process::Uid::from_raw(65_534);
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(bench.fixture.dir.path(), all).unwrap();
    let uid = std::thread::scope(|scope| {
        let peer = scope.spawn(|| {
            // This changes only this thread, and only root can do it; other users stay who they
            // are.
            let is_nobody = rustix::thread::set_thread_res_uid(nobody, nobody, nobody).is_ok();
            assert_eq!(bench.post("/write", &[], b"a v=1").status, 204);
            if is_nobody {
                nobody
            } else {
                rustix::process::getuid()
            }
        });
        peer.join().unwrap()
    });
    assert_eq!(bench.last().uid, uid.as_raw());
}

#[test]
fn clients_that_ask_first_are_answered() {
    let bench = Bench::new(false);
    let (socket, headers) = (bench.fixture.run_dir.read_socket(), &[]);
    let ask = |what: &str| bench.fixture.ask_unix(socket.clone(), what, headers, b"");
    for what in ["GET /ping", "HEAD /ping", "GET /ping?verbose=true"] {
        let answer = ask(what);
        assert_eq!((answer.status, answer.text()), (204, ""), "{what}");
        let version = answer.header("x-influxdb-version").unwrap();
        assert!(version.starts_with("1.8."), "{what}: {version}");
    }
    let health = ask("GET /health");
    assert_eq!(health.status, 200);
    let body = health.json();
    assert_eq!(
        (&body["status"], &body["checks"]),
        (&json!("pass"), &json!([]))
    );
    assert_eq!(ask("HEAD /health").status, 200);
    // A client that may not write gets the reason.
    let refused = bench.fixture.ask("GET /health", &[], b"");
    assert_eq!(
        (refused.status, &refused.json()["status"]),
        (503, &json!("fail"))
    );
    assert!(refused.text().contains("http_ingest"), "{}", refused.text());
    assert_eq!(bench.fixture.ask("GET /ping", &[], b"").status, 204);
}
