//! A server on an ephemeral port, over a segment that the test writes.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barograph_model::{
    ArchiveVerb, ClientNumber, ControlFault, ControlFaultKind, ControllerVerb, Descriptor, Kind,
    Labels, ManualClock, Name, Past, RequestSender, Selector, SqlEngine, SqlFault, SqlFaultKind,
    SqlRequest, SqlSink, StatementKind, Unit, ValueType,
};
use barograph_server::IngestConfig;
use barograph_server::{
    Control, HeldDemand, NodeInfo, Server, ServerConfig, ServerError, ServerLimits,
};
use barograph_stream::{RunDir, Segment, SegmentConfig, StreamWriter};
use barograph_testing::wait_until;
use serde_json::{Value, json};

use crate::client::{Events, Response, request, send, tcp, unix};
use crate::memory::MemoryPast;
use crate::ring_past::RingPast;

/// Start time of every test's clock.
pub(crate) const T0: i64 = 1_700_000_000_000_000_000;
pub(crate) const S: i64 = 1_000_000_000;

/// A fake SQL engine that answers with the statement; the statement `wait` runs until it is
/// cancelled.
#[derive(Default)]
pub(crate) struct FakeSql {
    pub asked: Mutex<Vec<SqlRequest>>,
    pub running: AtomicUsize,
    pub cancelled: AtomicUsize,
    pub made: AtomicUsize,
    pub cut: AtomicUsize,
}

/// Pieces of 256 KiB of a large answer: 64 MiB.
pub(crate) const LARGE_PIECES: usize = 256;

impl SqlEngine for FakeSql {
    fn query_into(
        &self,
        _: ClientNumber,
        request: &SqlRequest,
        mut sink: Box<dyn SqlSink>,
    ) -> Result<usize, SqlFault> {
        self.asked.lock().unwrap().push(request.clone());
        let kind = match request.sql.as_str() {
            "statement" => SqlFaultKind::Statement,
            "refused" => SqlFaultKind::Refused,
            "limit" => SqlFaultKind::Limit,
            "busy" => SqlFaultKind::Busy,
            "internal" => SqlFaultKind::Internal,
            "panic" => panic!("as asked"),
            "wait" => {
                self.running.fetch_add(1, Ordering::SeqCst);
                until(|| request.cancel.load(Ordering::SeqCst));
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                SqlFaultKind::Cancelled
            }
            "large" => {
                for _ in 0..LARGE_PIECES {
                    sink.put(vec![b'x'; 256 << 10]).inspect_err(|_| {
                        self.cut.fetch_add(1, Ordering::SeqCst);
                    })?;
                }
                self.made.fetch_add(1, Ordering::SeqCst);
                sink.end()?;
                return Ok(1);
            }
            _ => {
                sink.put(b"[{\"answer\":42}]".to_vec())?;
                sink.end()?;
                return Ok(1);
            }
        };
        Err(SqlFault {
            kind,
            message: format!("it was {}", request.sql),
        })
    }
}

/// Waits until another thread has done something.
#[track_caller]
pub(crate) fn until(done: impl FnMut() -> bool) {
    wait_until("it never happened", done);
}

/// The demands that are held at present.
static DEMANDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A demand that shows itself for as long as it is held.
struct ShownDemand(String);

impl ShownDemand {
    fn new(demand: String) -> Self {
        DEMANDS.lock().unwrap().push(demand.clone());
        Self(demand)
    }
}

impl Drop for ShownDemand {
    fn drop(&mut self) {
        DEMANDS.lock().unwrap().retain(|demand| *demand != self.0);
    }
}

/// Whether this is demanded at present. Each test has its own.
pub(crate) fn is_demanded(demand: &str) -> bool {
    DEMANDS.lock().unwrap().iter().any(|held| held == demand)
}

struct FakeControl;

impl Control for FakeControl {
    fn action(&self, request: &serde_json::Value) -> Result<serde_json::Value, ControlFault> {
        Ok(json!({ "asked": request }))
    }

    fn execute(&self, sql: &str, _: Option<StatementKind>) -> Result<Value, ControlFault> {
        let kind = match sql {
            "statement" => ControlFaultKind::Statement,
            "busy" => ControlFaultKind::Busy,
            "internal" => ControlFaultKind::Internal,
            _ => return Ok(json!({ "name": "made", "sql": sql })),
        };
        Err(ControlFault {
            kind,
            message: format!("it was {sql}"),
        })
    }

    fn test(&self, sql: &str, _: &AtomicBool) -> Result<Value, ControlFault> {
        self.execute(sql, None)
            .map(|_| json!({ "rows": [{ "value": 7 }] }))
    }

    fn ask_nodes(&self, sql: &str, nodes: &[String], _: bool) -> Result<Value, ControlFault> {
        self.execute(sql, None)
            .map(|_| json!({ "columns": ["node"], "rows": [], "nodes": nodes }))
    }

    fn demand(
        &self,
        node: &str,
        selectors: &[Selector],
        user: Option<u32>,
    ) -> Result<HeldDemand, String> {
        let shown: Vec<String> = selectors.iter().map(ToString::to_string).collect();
        let demand = format!("{} of {node}", shown.join(" "));
        if demand.contains("refused") {
            return Err(format!("no room for {demand} of {user:?}"));
        }
        Ok(Box::new(ShownDemand::new(demand)))
    }

    fn reload(&self) -> Result<Value, ControlFault> {
        Ok(json!({ "left_out": [], "needs_restart": ["http"] }))
    }

    fn archive(&self, verb: ArchiveVerb) -> Result<Value, ControlFault> {
        match verb {
            ArchiveVerb::Seal => Ok(json!({ "sealed": true })),
            ArchiveVerb::Compact => Err(ControlFault {
                kind: ControlFaultKind::Busy,
                message: "it was compact".into(),
            }),
        }
    }

    fn plan(&self, request: &Value, asker: &RequestSender) -> Result<Value, ControlFault> {
        self.fire(request, asker)
    }

    fn advise(&self, request: &Value, asker: &RequestSender) -> Result<Value, ControlFault> {
        self.fire(request, asker)
    }

    fn report(&self, request: &Value, asker: &RequestSender) -> Result<Value, ControlFault> {
        self.fire(request, asker)
    }

    fn decisions(&self, request: &Value, asker: &RequestSender) -> Result<Value, ControlFault> {
        self.fire(request, asker)
    }

    fn phases(&self, request: &Value, asker: &RequestSender) -> Result<Value, ControlFault> {
        self.fire(request, asker)
    }

    fn maps(&self, request: &Value, asker: &RequestSender) -> Result<Value, ControlFault> {
        self.fire(request, asker)
    }

    fn controllers(
        &self,
        _: ControllerVerb,
        request: &Value,
        asker: &RequestSender,
    ) -> Result<Value, ControlFault> {
        self.fire(request, asker)
    }

    fn fire(&self, request: &Value, asker: &RequestSender) -> Result<Value, ControlFault> {
        let kind = match request["name"].as_str() {
            Some("unknown") => ControlFaultKind::Unknown,
            Some("refused") => ControlFaultKind::Refused,
            Some("busy") => ControlFaultKind::Busy,
            _ => {
                let RequestSender {
                    uid,
                    pid,
                    via,
                    may_control,
                } = asker;
                return Ok(json!({ "uid": uid, "pid": pid, "via": via, "any": may_control }));
            }
        };
        Err(ControlFault {
            kind,
            message: "as asked".into(),
        })
    }
}

pub(crate) struct Fixture {
    pub server: Option<Server>,
    pub segment: Segment,
    pub clock: Arc<ManualClock>,
    pub sql: Arc<FakeSql>,
    pub run_dir: RunDir,
    pub dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// Starts a server with this past.
    pub(crate) fn with_past(past: MemoryPast) -> Self {
        Self::made(|_| {}, Some(Arc::new(past)))
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServerLimits)) -> Self {
        Self::made(change, None)
    }

    pub(crate) fn made(
        change: impl FnOnce(&mut ServerLimits),
        past: Option<Arc<dyn Past>>,
    ) -> Self {
        Self::made_of(change, past, None)
    }

    /// Starts a server with this intake.
    pub(crate) fn with_ingest(
        change: impl FnOnce(&mut ServerLimits),
        ingest: IngestConfig,
    ) -> Self {
        Self::made_of(change, None, Some(ingest))
    }

    fn made_of(
        change: impl FnOnce(&mut ServerLimits),
        past: Option<Arc<dyn Past>>,
        ingest: Option<IngestConfig>,
    ) -> Self {
        let mut limits = ServerLimits {
            place_time_max: Duration::from_millis(50),
            ..ServerLimits::default()
        };
        change(&mut limits);
        let dir = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(dir.path());
        let segment = segment(&run_dir);
        let clock = Arc::new(ManualClock::at(T0));
        let sql = Arc::new(FakeSql::default());
        let http = Some("127.0.0.1:0".parse().unwrap());
        let config = ServerConfig {
            http,
            limits,
            ingest,
            events: None,
        };
        let past = past.unwrap_or_else(|| Arc::new(RingPast::new(run_dir.clone())));
        let server = Some(start_over(config, &run_dir, &clock, &sql, past).unwrap());
        Self {
            server,
            segment,
            clock,
            sql,
            run_dir,
            dir,
        }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().expect("it was not stopped")
    }

    pub(crate) fn stop(&mut self) {
        self.server.take().expect("it was not stopped").stop();
    }

    pub(crate) fn ask(&self, line: &str, headers: &[&str], body: &[u8]) -> Response {
        self.ask_raw(&request(line, headers, body))
    }

    pub(crate) fn ask_raw(&self, bytes: &[u8]) -> Response {
        send(tcp(self.server().http_addr().unwrap()), bytes)
    }

    pub(crate) fn ask_unix(
        &self,
        socket: PathBuf,
        line: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Response {
        send(unix(&socket), &request(line, headers, body))
    }

    /// The JSON of a request that succeeds.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Value {
        let response = self.ask(&format!("GET {path}"), &[], b"");
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        assert_eq!(response.header("content-type"), Some("application/json"));
        response.json()
    }

    pub(crate) fn watch(&self, query: &str) -> Events {
        Events::open(
            unix(&self.run_dir.read_socket()),
            &format!("/api/v1/watch?{query}"),
        )
    }

    pub(crate) fn register(&mut self, descriptor: &Descriptor) -> StreamWriter {
        self.segment.register(descriptor, None, T0).unwrap()
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.run_dir.control_token()).unwrap()
    }
}

pub(crate) fn start(
    config: ServerConfig,
    run_dir: &RunDir,
    clock: &Arc<ManualClock>,
    sql: &Arc<FakeSql>,
) -> Result<Server, ServerError> {
    let past = Arc::new(RingPast::new(run_dir.clone()));
    start_over(config, run_dir, clock, sql, past)
}

fn start_over(
    config: ServerConfig,
    run_dir: &RunDir,
    clock: &Arc<ManualClock>,
    sql: &Arc<FakeSql>,
    past: Arc<dyn Past>,
) -> Result<Server, ServerError> {
    let info = NodeInfo {
        version: "9.9".into(),
        started_ns: T0 - S,
    };
    Server::start(
        config,
        run_dir.clone(),
        sql.clone(),
        past,
        Arc::new(FakeControl),
        clock.clone(),
        info,
    )
}

pub(crate) fn segment(run_dir: &RunDir) -> Segment {
    Segment::create(&run_dir.segment(), SegmentConfig::new("n1"), T0).unwrap()
}

/// A descriptor of `name{device=…}`; a name that ends in `bytes` is a counter of bytes.
pub(crate) fn descriptor(name: &str, device: &str, value_type: ValueType) -> Descriptor {
    let counter = name.ends_with("bytes");
    Descriptor {
        name: Name::new(name).unwrap(),
        labels: Labels::new([("device", device)]).unwrap(),
        value_type,
        unit: Unit::new(if counter { "bytes" } else { "" }).unwrap(),
        kind: if counter { Kind::Counter } else { Kind::Gauge },
        help: "What it is.".into(),
    }
}
