//! Tests of requests to receivers that fail, refuse, hang up or do not answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use barograph_model::{ManualClock, NS_PER_S, ValueType};
use barograph_stream::StreamWriter;

use super::{Rig, T0, all, put};
use crate::export::line::ExportLine;
use crate::export::{ExportHeaders, ExportReceiver};

/// Sends no answer and keeps the connection.
const SILENCE: &str = "silence";
/// Closes the connection without an answer.
const HANG_UP: &str = "hang up";

/// A server that answers each request with the next of `answers`, and keeps the bodies.
struct FakeReceiver {
    url: String,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl FakeReceiver {
    fn start(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&bodies);
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for answer in answers {
                let (socket, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(socket);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
                assert!(head.starts_with("POST "), "{head}");
                let head = head.to_ascii_lowercase();
                let (_, rest) = head.split_once("content-length: ").unwrap();
                let length = rest.split("\r\n").next().unwrap().parse().unwrap();
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                kept.lock().unwrap().push(body);
                match *answer {
                    SILENCE => silent.push(reader),
                    HANG_UP => {}
                    answer => {
                        let answer = format!("HTTP/1.1 {answer}\r\nConnection: close\r\n\r\n");
                        reader.get_mut().write_all(answer.as_bytes()).unwrap();
                    }
                }
            }
        });
        Self { url, bodies }
    }

    fn receiver(&self) -> ExportReceiver {
        ExportReceiver {
            url: self.url.clone(),
            every_ns: 15 * NS_PER_S,
            selection: all(),
            headers: ExportHeaders::default(),
            ca_file: None,
            timeout: Duration::from_secs(20),
            insecure: false,
        }
    }
}

/// Numbers of sent, failed and lost after each turn; after a turn the clock advances by its pause,
/// in seconds.
fn turns(
    line: &mut ExportLine,
    rig: &Rig,
    clock: &ManualClock,
    pauses: &[i64],
) -> Vec<(u64, u64, u64)> {
    let mut counts = Vec::new();
    for pause in pauses {
        line.turn(&rig.view(), clock, &|| false);
        let now = line.counters().now();
        counts.push((now.sent_samples, now.failed_requests, now.lost_samples));
        clock.advance(pause * NS_PER_S);
    }
    counts
}

#[test]
fn a_failed_write_is_tried_again_as_it_was() {
    let mut rig = Rig::new();
    let mut busy = rig.stream("disk.busy.ratio", "vda", ValueType::Float);
    put(&mut busy, T0, 0.5);
    let fake = FakeReceiver::start(&["503 Busy", "429 Slow Down\r\nRetry-After: 100", "204 Done"]);
    let mut line = ExportLine::remote_write(&fake.receiver()).unwrap();
    let clock = ManualClock::at(T0);
    let counts = turns(&mut line, &rig, &clock, &[2, 50, 60, 0]);
    // The four turns: at once, after the backoff, before the time that was asked for, and after it.
    assert_eq!(counts, [(0, 1, 0), (0, 2, 0), (0, 2, 0), (1, 2, 0)]);
    let bodies = fake.bodies.lock().unwrap();
    assert!(bodies.len() == 3 && bodies.iter().all(|body| body == &bodies[0]));
}

#[test]
fn a_refused_write_is_lost_and_the_next_one_goes() {
    let mut rig = Rig::new();
    let mut busy = rig.stream("disk.busy.ratio", "vda", ValueType::Float);
    put(&mut busy, T0, 0.5);
    put(&mut busy, T0 + 1, 0.6);
    put(&mut busy, T0 + NS_PER_S, 0.7);
    let fake = FakeReceiver::start(&["404 Nobody here", "301 Elsewhere\r\nLocation: /x", "200 OK"]);
    let mut line = ExportLine::remote_write(&fake.receiver()).unwrap();
    let clock = ManualClock::at(T0 + NS_PER_S);
    let mut seen = turns(&mut line, &rig, &clock, &[20]);
    for at in [30, 60] {
        put(&mut busy, T0 + at * NS_PER_S, at as f64);
        seen.extend(turns(&mut line, &rig, &clock, &[30]));
    }
    // Two samples have the same millisecond: one is lost before anything is sent.
    assert_eq!(seen, [(0, 1, 3), (0, 2, 4), (1, 2, 4)]);
}

#[test]
fn one_sample_that_is_refused_takes_none_with_it() {
    let mut rig = Rig::new();
    let mut writers: Vec<StreamWriter> = ["vda", "vdb", "vdc", "vdd"]
        .iter()
        .map(|device| rig.stream("disk.busy.ratio", device, ValueType::Float))
        .collect();
    for writer in &mut writers {
        for i in 0..2 {
            put(writer, T0 + i * NS_PER_S, 0.5 + i as f64);
        }
    }
    // The whole request; two devices; one; its first sample. Then the other halves.
    let fake = FakeReceiver::start(&[
        "400 out of bounds",
        "400 out of bounds",
        "400 out of bounds",
        "400 out of bounds",
        "204 Done",
        "204 Done",
        "204 Done",
    ]);
    let mut line = ExportLine::remote_write(&fake.receiver()).unwrap();
    let clock = ManualClock::at(T0 + 2 * NS_PER_S);
    assert_eq!(turns(&mut line, &rig, &clock, &[0]), [(7, 4, 1)]);
}

#[test]
fn what_may_have_arrived_is_not_lost() {
    // The first answer ends the first attempt, the second refuses the retry, because the sample is
    // there already; `expect` is the loss.
    let check = |answers: &'static [&'static str], expect: u64| {
        let mut rig = Rig::new();
        let mut busy = rig.stream("disk.busy.ratio", "vda", ValueType::Float);
        put(&mut busy, T0, 0.5);
        let fake = FakeReceiver::start(answers);
        let mut receiver = fake.receiver();
        if answers[0] == SILENCE {
            receiver.timeout = Duration::from_secs(2);
        }
        let mut line = ExportLine::remote_write(&receiver).unwrap();
        let counts = turns(&mut line, &rig, &ManualClock::at(T0), &[2, 0]);
        assert_eq!(counts, [(0, 1, 0), (0, 2, expect)], "{answers:?}");
    };
    check(&["504 Gateway Timeout", "400 out of order"], 0);
    check(&[HANG_UP, "400 out of order"], 0);
    check(&[SILENCE, "400 out of order"], 0);
    check(&[HANG_UP, "409 out of order, as Thanos says"], 0);
    check(&["503 Busy", "400 out of order"], 1);
}

#[test]
fn otlp_does_not_count_what_may_have_arrived() {
    // A batch that could not be sent is replaced by newer values.
    let check = |answers: &'static [&'static str], expect: u64| {
        let mut rig = Rig::new();
        let mut busy = rig.stream("disk.busy.ratio", "vda", ValueType::Float);
        put(&mut busy, T0, 0.5);
        let fake = FakeReceiver::start(answers);
        let mut line = ExportLine::otlp(&fake.receiver()).unwrap();
        let clock = ManualClock::at(T0);
        turns(&mut line, &rig, &clock, &[15]);
        put(&mut busy, T0 + 15 * NS_PER_S, 0.6);
        let counts = turns(&mut line, &rig, &clock, &[0]);
        assert_eq!(counts, [(1, 1, expect)], "{answers:?}");
    };
    check(&[HANG_UP, "200 OK"], 0);
    check(&["504 Gateway Timeout", "200 OK"], 0);
    check(&["502 Bad Gateway", "200 OK"], 1);
}

#[test]
fn who_refuses_everything_is_left_alone() {
    let mut rig = Rig::new();
    let mut writers: Vec<StreamWriter> = (0..100)
        .map(|i| rig.stream("disk.busy.ratio", &format!("d{i}"), ValueType::Float))
        .collect();
    for writer in &mut writers {
        put(writer, T0, 0.5);
    }
    let fake = FakeReceiver::start(&["400 no"; 25]);
    let mut line = ExportLine::remote_write(&fake.receiver()).unwrap();
    let clock = ManualClock::at(T0);
    let counts = turns(&mut line, &rig, &clock, &[0, 0, 0]);
    assert_eq!(counts.last(), Some(&(0, 25, 100)));
}

#[test]
fn each_time_that_everything_is_refused_is_logged_with_its_end() {
    keep_log();
    let mut rig = Rig::new();
    let mut writers: Vec<StreamWriter> = (0..100)
        .map(|i| rig.stream("disk.busy.ratio", &format!("d{i}"), ValueType::Float))
        .collect();
    let episode = [["400 no"; 25].as_slice(), &["204 Done"]].concat();
    let fake = FakeReceiver::start(episode.repeat(2).leak());
    let mut line = ExportLine::remote_write(&fake.receiver()).unwrap();
    let clock = ManualClock::at(T0);
    let mut counts = Vec::new();
    for round in 0..4 {
        for writer in &mut writers {
            put(writer, T0 + round * 100 * NS_PER_S, 0.5 + round as f64);
        }
        // One turn makes 16 requests at most.
        counts.extend(turns(&mut line, &rig, &clock, &[0, 100]).pop());
    }
    let expect = [(0, 25, 100), (100, 25, 100), (100, 50, 200), (200, 50, 200)];
    assert_eq!(counts, expect);
    let episode = [
        "samples are refused, and lost; the others are sent without them",
        "25 requests in a row are refused: exports are lost until one is accepted",
        "exports arrive again",
    ];
    assert_eq!(logged(&fake.url), episode.repeat(2));
}

/// Log of the tests of this process.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct LogWriter;

impl std::io::Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Keeps what is logged from now on. The log is that of all tests of this process, because tracing
/// decides once for all threads whether anybody reads a message.
fn keep_log() {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| {
        let log = tracing_subscriber::fmt().with_ansi(false);
        log.with_writer(|| LogWriter).init();
        tracing::callsite::rebuild_interest_cache();
    });
}

/// The messages about the receiver at this address, in order.
fn logged(url: &str) -> Vec<String> {
    let log = LOG.lock().unwrap();
    let text = String::from_utf8_lossy(&log);
    let about = text.lines().filter(|line| line.contains(url));
    let messages = about.filter_map(|line| line.split_once("line: ")?.1.split_once(" to="));
    messages.map(|(message, _)| message.to_owned()).collect()
}

#[test]
fn nobody_there_is_a_failure_and_no_loss() {
    let mut rig = Rig::new();
    let mut busy = rig.stream("disk.busy.ratio", "vda", ValueType::Float);
    put(&mut busy, T0, 0.5);
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let fake = FakeReceiver {
        url: nobody,
        bodies: Arc::default(),
    };
    let mut line = ExportLine::remote_write(&fake.receiver()).unwrap();
    let counts = turns(&mut line, &rig, &ManualClock::at(T0), &[0]);
    assert_eq!(counts, [(0, 1, 0)]);
}
