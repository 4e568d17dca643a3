//! The agent's servers: the newest value over HTTP, and sampling that stays punctual under the
//! worst queries.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use barograph_client::Observer;
use barograph_model::Selector;

use super::agent::Agent;
use crate::http::Connection;
use crate::measure::{LatencySpread, each_ns, keep, now};
use crate::peers;
use crate::report::{Fault, Report};

const ONE: &str = "/api/v1/latest?match=memory.available.bytes";
const REQUESTS: usize = 3_000;

/// Measures `GET /api/v1/latest` over kept connections.
pub(super) fn http(report: &mut Report) -> Result<(), Fault> {
    let exporter = peers::node_exporter::scrape_us(report);
    let peers: Vec<(&str, f64)> = exporter
        .map(|us| ("node_exporter diskstats", us))
        .into_iter()
        .collect();
    let agent = Agent::start("http", "")?;
    let unix = Connection::new(UnixStream::connect(agent.scratch.0.join("read.sock"))?);
    let tcp = TcpStream::connect(("127.0.0.1", agent.port))?;
    tcp.set_nodelay(true)?;
    let unix = requests(unix, ONE)?;
    let tcp = requests(Connection::new(tcp), ONE)?;
    report.row(
        "read.latest",
        "GET /api/v1/latest, TCP, p50",
        tcp.p50 / 1e3,
        "us",
        &peers,
    );
    report.row(
        "read.latest",
        "GET /api/v1/latest, unix socket, p50",
        unix.p50 / 1e3,
        "us",
        &peers,
    );
    report.row(
        "read.latest",
        "GET /api/v1/latest, unix socket, p99",
        unix.p99 / 1e3,
        "us",
        &[],
    );
    Ok(())
}

fn requests<S: std::io::Read + std::io::Write>(
    mut over: Connection<S>,
    path: &str,
) -> Result<LatencySpread, Fault> {
    match over.get(path) {
        Some((200, 3..)) => {}
        other => return Err(format!("GET {path}: {other:?}").into()),
    }
    Ok(each_ns(REQUESTS, || keep(over.get(path))))
}

const WATCHED: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Queries, each repeated by a client of its own.
const HOSTILE: [&str; 8] = [
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
    "SELECT count(*) FROM streams a, streams b, streams c, streams d",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "SELECT a.name FROM streams a, streams b, streams c ORDER BY a.help || b.help || c.help",
    "SELECT group_concat(a.help || b.help) FROM streams a, streams b, streams c",
    "SELECT hex(zeroblob(100000000))",
    "SELECT count(*) FROM memory_available_bytes a, memory_available_bytes b, memory_available_bytes c",
    "SELECT DISTINCT a.name || b.name || c.name FROM streams a, streams b, streams c",
];

/// Measures how late sources are polled, without clients and under eight clients with the worst
/// queries.
pub(super) fn hostile(report: &mut Report) -> Result<(), Fault> {
    let agent = Agent::start("hostile", "")?;
    let observer = agent.observer()?;
    let calm = skew(&observer)?;
    let (over, ended) = (AtomicBool::new(false), AtomicUsize::new(0));
    let socket = agent.scratch.0.join("read.sock");
    let stormy = std::thread::scope(|scope| {
        for sql in HOSTILE {
            let (socket, over, ended) = (&socket, &over, &ended);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let Ok(stream) = UnixStream::connect(socket) else {
                        continue;
                    };
                    keep(Connection::new(stream).post("/api/v1/sql", sql));
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let stormy = skew(&observer);
        over.store(true, Ordering::Relaxed);
        stormy
    })?;
    let ms = 1e3;
    report.row(
        "poll.skew",
        "8 hostile queries, p50",
        stormy.p50 * ms,
        "ms",
        &[("no query", calm.p50 * ms)],
    );
    report.row(
        "poll.skew",
        "8 hostile queries, p99",
        stormy.p99 * ms,
        "ms",
        &[("no query", calm.p99 * ms)],
    );
    let ended = ended.load(Ordering::Relaxed) as f64;
    report.row(
        "poll.skew",
        "hostile queries that ended meanwhile",
        ended,
        "queries",
        &[],
    );
    Ok(())
}

/// Returns the lateness of every poll in seconds: it is read more often than it changes, and each
/// sample counts once, however long its source waits for the next poll.
fn skew(observer: &Observer) -> Result<LatencySpread, Fault> {
    let selector = Selector::parse("source.skew.seconds")?;
    let begin = now();
    let mut newest_ts = BTreeMap::new();
    let mut seen = Vec::new();
    while begin.elapsed() < WATCHED {
        for latest in observer.latest(&selector) {
            let Some(sample) = latest.sample else {
                continue;
            };
            let source = format!("{:?}", latest.descriptor.labels);
            let before = newest_ts.insert(source, sample.ts);
            // What was there at the first look is of a poll before it.
            if before.is_some_and(|ts| ts != sample.ts) {
                seen.extend(sample.value.as_f64());
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    if seen.is_empty() {
        return Err("no source says its skew".into());
    }
    Ok(LatencySpread::of(&mut seen))
}
