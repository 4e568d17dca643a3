//! Redis streams, as Apollo uses them: XADD and XREVRANGE over a unix socket.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use barograph_client::SystemClock;
use barograph_model::{Clock as _, NS_PER_S};

use super::{PeerServer, installed, start};
use crate::measure::{LatencySpread, each_ns, now};
use crate::report::Report;
use crate::scratch::Scratch;

const PIPELINE: usize = 100;
const APPENDS: usize = 200_000;

struct Redis {
    stream: BufReader<UnixStream>,
    socket: PathBuf,
    _server: Option<PeerServer>,
    _scratch: Option<Scratch>,
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
                    socket,
                    _server: Some(server),
                    _scratch: Some(scratch),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        report.skipped("redis", "it did not open its socket");
        None
    }

    /// Another client of the same server, which ends with the first one.
    fn another(&self) -> Option<Self> {
        let stream = UnixStream::connect(&self.socket).ok()?;
        Some(Self {
            stream: BufReader::new(stream),
            socket: self.socket.clone(),
            _server: None,
            _scratch: None,
        })
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
        self.texts(&mut |_| {})
    }

    /// Reads one reply of the protocol; `take` is given each of its texts.
    fn texts(&mut self, take: &mut dyn FnMut(&[u8])) -> Option<()> {
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
                        take(&body[..bytes as usize]);
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

/// Returns the age of entries when a client that waits for them has them, in ns. Another client
/// appends them at this rate, each with the time at which it was written.
pub(crate) fn stream_age(report: &mut Report, per_s: u64, seconds: u64) -> Option<LatencySpread> {
    let mut writer = Redis::start(report)?;
    let mut reader = writer.another()?;
    let writing = std::thread::spawn(move || -> Option<Redis> {
        let clock = SystemClock::new();
        let begin = now();
        for entry in 0..per_s * seconds {
            let due = Duration::from_nanos(entry * NS_PER_S as u64 / per_s);
            std::thread::sleep(due.saturating_sub(begin.elapsed()));
            let at_ns = format!("t{}", clock.now_ns());
            writer.send(&[&["XADD", "fact", "MAXLEN", "~", "1024", "*", "at", &at_ns]])?;
            writer.reply()?;
        }
        Some(writer)
    });
    let clock = SystemClock::new();
    let (mut ages, mut last) = (Vec::new(), "0".to_owned());
    while !writing.is_finished() {
        reader.send(&[&["XREAD", "BLOCK", "100", "STREAMS", "fact", &last]])?;
        let mut times = Vec::new();
        reader.texts(&mut |text| {
            let text = String::from_utf8_lossy(text);
            match text.strip_prefix('t') {
                Some(at_ns) => times.extend(at_ns.parse::<i64>()),
                None if text.contains('-') => last = text.into_owned(),
                None => {}
            }
        })?;
        let now_ns = clock.now_ns();
        ages.extend(times.iter().map(|at_ns| (now_ns - at_ns) as f64));
    }
    writing.join().ok()??;
    (!ages.is_empty()).then(|| LatencySpread::of(&mut ages))
}

/// Returns the entries per second that one client appends, pipelined, and another one reads.
pub(crate) fn moved_per_s(report: &mut Report) -> Option<f64> {
    let mut writer = Redis::start(report)?;
    let mut reader = writer.another()?;
    let one: &[&str] = &["XADD", "fact", "*", "value", "0123456789abcdef"];
    let many = vec![one; PIPELINE];
    let begin = now();
    let writing = std::thread::spawn(move || -> Option<Redis> {
        for _ in 0..APPENDS / PIPELINE {
            writer.send(&many)?;
            for _ in 0..PIPELINE {
                writer.reply()?;
            }
        }
        Some(writer)
    });
    let (mut read, mut last) = (0, "0".to_owned());
    while read < APPENDS {
        reader.send(&[&[
            "XREAD", "COUNT", "1000", "BLOCK", "1000", "STREAMS", "fact", &last,
        ]])?;
        let before = read;
        reader.texts(&mut |text| match text {
            b"0123456789abcdef" => read += 1,
            text if text.contains(&b'-') => last = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        })?;
        if read == before && writing.is_finished() {
            return None;
        }
    }
    let per_s = APPENDS as f64 / begin.elapsed().as_secs_f64();
    writing.join().ok()??;
    Some(per_s)
}
