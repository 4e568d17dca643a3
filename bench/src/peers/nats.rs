//! NATS: one client publishes over TCP on loopback, another one has subscribed. The server keeps
//! nothing: a message reaches who is connected, or nobody.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use barograph_client::SystemClock;
use barograph_model::{Clock as _, NS_PER_S};

use super::{PeerServer, installed, start};
use crate::measure::{LatencySpread, now};
use crate::report::Report;

const SUBJECT: &str = "fact";
/// Messages that are published in one write, where the rate is measured, and all of them.
const BATCH: usize = 100;
const MESSAGES: usize = 1_000_000;
/// Longest wait for a message.
const PATIENCE: Duration = Duration::from_secs(10);

struct Nats {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
    _server: Option<PeerServer>,
}

impl Nats {
    fn start(report: &mut Report) -> Option<Self> {
        let program = installed(report, "nats", "nats-server")?;
        let address = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?;
        let mut command = Command::new(program);
        command.args(["--addr", "127.0.0.1", "--port"]);
        command.arg(address.port().to_string());
        let server = start(&mut command)?;
        for _ in 0..200 {
            if let Some(client) = Self::connect(address) {
                return Some(Self {
                    _server: Some(server),
                    ..client
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        report.skipped("nats", "it did not open its port");
        None
    }

    fn connect(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut client = Self {
            stream: BufReader::new(stream),
            address,
            _server: None,
        };
        client.write(b"CONNECT {\"verbose\":false}\r\n")?;
        client.settle()?;
        Some(client)
    }

    /// Another client of the same server, which ends with the first one. It has subscribed when it
    /// is returned.
    fn subscriber(&self) -> Option<Self> {
        let mut client = Self::connect(self.address)?;
        client.write(format!("SUB {SUBJECT} 1\r\n").as_bytes())?;
        client.settle()?;
        Some(client)
    }

    fn write(&mut self, bytes: &[u8]) -> Option<()> {
        self.stream.get_mut().write_all(bytes).ok()
    }

    /// Waits until the server has done all that was written.
    fn settle(&mut self) -> Option<()> {
        self.write(b"PING\r\n")?;
        loop {
            let line = self.line()?;
            match line.split(' ').next()? {
                "PONG" => return Some(()),
                "-ERR" => return None,
                _ => {}
            }
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let bytes = self.stream.read_line(&mut line).ok()?;
        (bytes > 0).then(|| line.trim_end().to_owned())
    }

    /// The next message.
    fn message(&mut self) -> Option<Vec<u8>> {
        loop {
            let line = self.line()?;
            if line == "PING" {
                self.write(b"PONG\r\n")?;
            }
            let Some(head) = line.strip_prefix("MSG ") else {
                continue;
            };
            let bytes = head.rsplit(' ').next()?.parse::<usize>().ok()?;
            let mut body = vec![0; bytes + 2];
            self.stream.read_exact(&mut body).ok()?;
            body.truncate(bytes);
            return Some(body);
        }
    }
}

/// The bytes that publish a message.
fn published(message: &str) -> String {
    format!("PUB {SUBJECT} {}\r\n{message}\r\n", message.len())
}

/// Returns the age of messages when a subscriber that waits for them has them, in ns. Another
/// client publishes them at this rate, each with the time at which it was written.
pub(crate) fn stream_age(report: &mut Report, per_s: u64, seconds: u64) -> Option<LatencySpread> {
    let mut writer = Nats::start(report)?;
    let mut reader = writer.subscriber()?;
    let writing = std::thread::spawn(move || -> Option<Nats> {
        let clock = SystemClock::new();
        let begin = now();
        for message in 0..per_s * seconds {
            let due = Duration::from_nanos(message * NS_PER_S as u64 / per_s);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
            writer.write(published(&clock.now_ns().to_string()).as_bytes())?;
        }
        Some(writer)
    });
    let clock = SystemClock::new();
    let mut ages = Vec::new();
    for _ in 0..per_s * seconds {
        let at_ns = String::from_utf8(reader.message()?).ok()?;
        ages.push((clock.now_ns() - at_ns.parse::<i64>().ok()?) as f64);
    }
    writing.join().ok()??;
    (!ages.is_empty()).then(|| LatencySpread::of(&mut ages))
}

/// Returns the messages per second that one client publishes, many in one write, and another one
/// reads.
pub(crate) fn moved_per_s(report: &mut Report) -> Option<f64> {
    let mut writer = Nats::start(report)?;
    let mut reader = writer.subscriber()?;
    let batch = published("0123456789abcdef").repeat(BATCH);
    let begin = now();
    let writing = std::thread::spawn(move || -> Option<Nats> {
        for _ in 0..MESSAGES / BATCH {
            writer.write(batch.as_bytes())?;
        }
        Some(writer)
    });
    for _ in 0..MESSAGES {
        reader.message()?;
    }
    let per_s = MESSAGES as f64 / begin.elapsed().as_secs_f64();
    writing.join().ok()??;
    Some(per_s)
}
