//! Redis streams, as Apollo uses them: XADD and XREVRANGE over a unix socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

use super::{PeerServer, installed, start};
use crate::cases::Scratch;
use crate::measure::{each_ns, now};
use crate::report::Report;

const PIPELINE: usize = 100;
const APPENDS: usize = 200_000;

struct Redis {
    stream: BufReader<UnixStream>,
    _server: PeerServer,
    _scratch: Scratch,
}

impl Redis {
    fn start(report: &mut Report) -> Option<Self> {
        let program = installed(report, "redis", "redis-server")?;
        let scratch = Scratch::new("redis").ok()?;
        let socket = scratch.0.join("redis.sock");
        let mut command = Command::new(program);
        command.args([
            "--port",
            "0",
            "--save",
            "",
            "--appendonly",
            "no",
            "--unixsocket",
        ]);
        command.arg(&socket).args(["--dir"]).arg(&scratch.0);
        let server = start(&mut command)?;
        for _ in 0..200 {
            if let Ok(stream) = UnixStream::connect(&socket) {
                return Some(Self {
                    stream: BufReader::new(stream),
                    _server: server,
                    _scratch: scratch,
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        report.skipped("redis", "it did not open its socket");
        None
    }

    fn send(&mut self, commands: &[&[&str]]) -> Option<()> {
        let mut bytes = Vec::new();
        for words in commands {
            write!(bytes, "*{}\r\n", words.len()).ok()?;
            for word in *words {
                write!(bytes, "${}\r\n{word}\r\n", word.len()).ok()?;
            }
        }
        self.stream.get_mut().write_all(&bytes).ok()
    }

    /// Reads one reply of the protocol and discards it.
    fn reply(&mut self) -> Option<()> {
        let mut left = 1;
        while left > 0 {
            let mut line = String::new();
            self.stream.read_line(&mut line).ok()?;
            let (kind, rest) = line.trim_end().split_at_checked(1)?;
            left -= 1;
            match kind {
                "*" => left += rest.parse::<i64>().ok()?.max(0),
                "$" => {
                    let bytes = rest.parse::<i64>().ok()?;
                    if bytes >= 0 {
                        let mut body = vec![0; bytes as usize + 2];
                        self.stream.read_exact(&mut body).ok()?;
                    }
                }
                "-" => return None,
                _ => {}
            }
        }
        Some(())
    }
}

/// Returns the median microseconds of reading the newest entry of a stream.
pub(crate) fn latest_us(report: &mut Report) -> Option<f64> {
    let mut redis = Redis::start(report)?;
    redis.send(&[&["XADD", "fact", "*", "value", "3.14"]])?;
    redis.reply()?;
    let spread = each_ns(5_000, || {
        let _ = redis.send(&[&["XREVRANGE", "fact", "+", "-", "COUNT", "1"]]);
        let _ = redis.reply();
    });
    Some(spread.p50 / 1e3)
}

/// Returns the entries per second that one pipelining client appends.
pub(crate) fn appends_per_s(report: &mut Report) -> Option<f64> {
    let mut redis = Redis::start(report)?;
    let one: &[&str] = &[
        "XADD",
        "fact",
        "MAXLEN",
        "~",
        "1024",
        "*",
        "value",
        "0123456789abcdef",
    ];
    let many = vec![one; PIPELINE];
    let begin = now();
    for _ in 0..APPENDS / PIPELINE {
        redis.send(&many)?;
        for _ in 0..PIPELINE {
            redis.reply()?;
        }
    }
    Some(APPENDS as f64 / begin.elapsed().as_secs_f64())
}
