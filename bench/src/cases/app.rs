//! `app.put` and `app.drain`: the cost of a value for the application that puts it, and for the
//! agent that reads it.

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

use barograph_stream::SystemClock;
use barograph_stream::ingest::{IngestFile, Producer, ProducerConfig, ThreadRing, kind};

use super::Scratch;
use crate::measure::{cpu_ns, keep, thread_cpu_s};
use crate::report::{Fault, Report};

/// Number of values of one measurement.
const PUTS: usize = 10_000_000;
const PUTS_SOCKET: usize = 500_000;
/// Bytes of a value with its series and its time.
const RECORD_BYTES: usize = 24;
/// Number of records of the bare ring, as many as ours has.
const RING_RECORDS: usize = 1 << 16;
/// Number of records that are ready for a drain: less than a ring, which can be lapped by an
/// eighth.
const READY: u64 = 50_000;
const DRAINS: usize = 200;

/// Measures puts of doubles with a time stamp, in frames of one and of a thousand.
pub(super) fn put(report: &mut Report) -> Result<(), Fault> {
    let scratch = Scratch::new("app-put")?;
    let clock = SystemClock::new();
    let producer = Producer::create(&scratch.0, ProducerConfig::default(), &clock)?;
    let mut ring = producer.thread(&clock).ok_or("no ring")?;
    let source = producer.time_source();
    for per_frame in [1, 1_000] {
        let (mut n, mut frame) = (0u64, 0);
        let ours = cpu_ns(PUTS, || {
            n += 1;
            let value = (n as f64).to_bits();
            keep(ring.put(kind::FLOAT, 0, source.now(&clock), value));
            if n.is_multiple_of(per_frame) {
                frame += 1;
                keep(ring.frame(0, source.now(&clock), frame));
                keep(producer.is_agent_asleep());
            }
        });
        let bare = bare_ring(per_frame);
        let socket = socket_write(per_frame as usize)?;
        report.row(
            "app.put",
            &format!("double with time stamp, frames of {per_frame}"),
            ours,
            "ns",
            &[
                ("bare ring, no time stamp", bare),
                ("unix socket, a write per frame", socket),
            ],
        );
    }
    Ok(())
}

/// Measures the floor: three stores into memory, and one that publishes them.
fn bare_ring(per_frame: u64) -> f64 {
    let words: Vec<AtomicU64> = (0..3 * RING_RECORDS).map(|_| AtomicU64::new(0)).collect();
    let published = AtomicU64::new(0);
    let mut n = 0u64;
    let ns = cpu_ns(PUTS, || {
        let at = 3 * (n as usize & (RING_RECORDS - 1));
        words[at].store(n, Ordering::Relaxed);
        words[at + 1].store(n, Ordering::Relaxed);
        words[at + 2].store((n as f64).to_bits(), Ordering::Relaxed);
        n += 1;
        if n.is_multiple_of(per_frame) {
            published.store(n, Ordering::Release);
        }
    });
    keep((words, published));
    ns
}

/// Measures the least that a client of a server does: it passes the frame's bytes to the kernel.
fn socket_write(per_frame: usize) -> Result<f64, Fault> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let frame = vec![0u8; RECORD_BYTES * per_frame];
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while theirs.read(&mut buffer).is_ok_and(|length| length > 0) {
                black_box(&buffer);
            }
        });
        let mut failed = false;
        let frames = PUTS_SOCKET / per_frame;
        let ns = cpu_ns(frames, || failed |= ours.write_all(&frame).is_err());
        drop(ours);
        if failed {
            return Err("the socket was closed".into());
        }
        Ok(ns / per_frame as f64)
    })
}

/// Measures the records per second that one thread of the agent reads, checks and passes on.
pub(super) fn drain(report: &mut Report) -> Result<(), Fault> {
    let socket = socket_read()?;
    for (case, length) in [("doubles", None), ("texts of 100 bytes", Some(100))] {
        let scratch = Scratch::new("app-drain")?;
        let clock = SystemClock::new();
        let producer = Producer::create(&scratch.0, ProducerConfig::default(), &clock)?;
        let mut ring = producer.thread(&clock).ok_or("no ring")?;
        let mut file = IngestFile::open(producer.path())?;
        let (mut seconds, mut records) = (0.0, 0);
        for _ in 0..DRAINS {
            fill(&mut ring, length);
            let begin = thread_cpu_s();
            file.look()?;
            let drained = file.drain(u64::MAX, &mut |record| keep(record))?;
            seconds += thread_cpu_s() - begin;
            if drained.missed + drained.damaged > 0 {
                return Err("records were lost".into());
            }
            records += drained.records;
        }
        let peers = [("unix socket, a read per record", socket)];
        let peers = if length.is_none() { &peers[..] } else { &[] };
        report.row(
            "app.drain",
            &format!("{case}, one core"),
            records as f64 / seconds,
            "records/s",
            peers,
        );
    }
    Ok(())
}

fn fill(ring: &mut ThreadRing, length: Option<usize>) {
    let text = [b'x'; 128];
    match length {
        None => (0..READY).for_each(|n| keep(ring.put(kind::FLOAT, 0, n, n))),
        // Each value takes one place for itself and one for every 16 bytes.
        Some(length) => (0..READY / (1 + length.div_ceil(16) as u64)).for_each(|n| {
            keep(ring.put_bytes(kind::TEXT, 0, n, &text[..length]));
        }),
    }
    ring.commit();
}

/// Measures the records per second that a server reads from a socket.
fn socket_read() -> Result<f64, Fault> {
    const BURST: usize = 1_000;
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let burst = vec![0u8; RECORD_BYTES * BURST];
    let mut record = [0u8; RECORD_BYTES];
    let mut seconds = 0.0;
    for _ in 0..DRAINS {
        ours.write_all(&burst)?;
        let begin = thread_cpu_s();
        for _ in 0..BURST {
            theirs.read_exact(&mut record)?;
            black_box(&record);
        }
        seconds += thread_cpu_s() - begin;
    }
    Ok((DRAINS * BURST) as f64 / seconds)
}
