//! Prometheus' node_exporter: a scrape of only the disk statistics.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::{PeerServer, installed, start};
use crate::measure::{each_ns, keep};
use crate::report::Report;

/// A running node_exporter.
pub(crate) struct Exporter {
    port: u16,
    /// The server process.
    pub server: PeerServer,
}

impl Exporter {
    /// Starts an exporter on a free port of loopback.
    pub(crate) fn start(report: &mut Report) -> Option<Self> {
        let program = installed(report, "node_exporter", "prometheus-node-exporter")?;
        let port = TcpListener::bind("127.0.0.1:0")
            .ok()?
            .local_addr()
            .ok()?
            .port();
        let listen = format!("--web.listen-address=127.0.0.1:{port}");
        let server = start(Command::new(program).arg(listen))?;
        let exporter = Self { port, server };
        for _ in 0..200 {
            if exporter.scrape("?collect[]=diskstats").is_some() {
                return Some(exporter);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        report.skipped("node_exporter", "it did not open its port");
        None
    }

    /// Makes one scrape; returns the bytes of the answer.
    pub(crate) fn scrape(&self, query: &str) -> Option<usize> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let request =
            format!("GET /metrics{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()
    }
}

/// Returns the median microseconds of a scrape of the disk statistics.
pub(crate) fn scrape_us(report: &mut Report) -> Option<f64> {
    let exporter = Exporter::start(report)?;
    let spread = each_ns(200, || keep(exporter.scrape("?collect[]=diskstats")));
    Some(spread.p50 / 1e3)
}
