//! `read.woken`: the time from an append in one process until a waiting reader in another process
//! runs again.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use barograph_model::{Clock as _, Sample};
use barograph_stream::{
    LatestSample, Segment, SegmentReader, StreamReader, StreamWriter, SystemClock, WaitOutcome,
};
use rustix::thread::futex;

use super::{Scratch, descriptor, segment};
use crate::measure::{LatencySpread, now};
use crate::report::{Fault, Report};

const ROUNDS: u64 = 2_000;
const REPEATS: usize = 3;
const GAP: Duration = Duration::from_micros(300);
const PATIENCE: Duration = Duration::from_secs(5);

/// Measures waking through the segment beside a bare futex between two threads: in turn, in one
/// run.
pub(super) fn run(report: &mut Report) -> Result<(), Fault> {
    let (mut bare, mut threads, mut processes) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        bare.extend(bare_futex());
        threads.extend(across_threads()?);
        processes.extend(across_processes(false)?);
    }
    let (bare, threads, processes) = (
        LatencySpread::of(&mut bare),
        LatencySpread::of(&mut threads),
        LatencySpread::of(&mut processes),
    );
    let polled = LatencySpread::of(&mut across_processes(true)?);
    let floor = |ns: f64| [("bare futex, two threads", ns / 1e3)];
    report.row(
        "read.woken",
        "waiting reader in another thread, p50",
        threads.p50 / 1e3,
        "us",
        &floor(bare.p50),
    );
    report.row(
        "read.woken",
        "waiting reader in another process, p50",
        processes.p50 / 1e3,
        "us",
        &floor(bare.p50),
    );
    report.row(
        "read.woken",
        "waiting reader in another process, p99",
        processes.p99 / 1e3,
        "us",
        &floor(bare.p99),
    );
    report.row(
        "read.woken",
        "reader that polls, another process, p50",
        polled.p50 / 1e3,
        "us",
        &[],
    );
    Ok(())
}

fn across_threads() -> Result<Vec<f64>, Fault> {
    let scratch = Scratch::new("woken-threads")?;
    let mut segment = segment(&scratch)?;
    let writer = segment.register(&descriptor(0), None, 0)?;
    let handle = appear(&scratch)?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let telling =
            scope.spawn(|| tell(&segment, writer, || over.load(Ordering::Relaxed)).is_ok());
        let delays = delays(&handle, false);
        over.store(true, Ordering::Relaxed);
        if !telling.join().unwrap_or(false) {
            return Err("the writer failed".into());
        }
        delays
    })
}

fn across_processes(poll: bool) -> Result<Vec<f64>, Fault> {
    let scratch = Scratch::new("woken")?;
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--role=waker")
        .arg(&scratch.0)
        .stdout(Stdio::null())
        .spawn()?;
    let delays = delays(&appear(&scratch)?, poll);
    child.kill()?;
    child.wait()?;
    delays
}

/// Returns the delays from the time in each sample until this thread has read it.
fn delays(handle: &StreamReader, poll: bool) -> Result<Vec<f64>, Fault> {
    let clock = SystemClock::new();
    let mut delays = Vec::new();
    let mut seen = 0;
    while seen < ROUNDS {
        if poll {
            std::hint::spin_loop();
        } else if handle.wait(seen, PATIENCE) != WaitOutcome::News {
            return Err("the writer fell silent".into());
        }
        let LatestSample::Sample { sample, count, .. } = handle.latest() else {
            continue;
        };
        if count > seen {
            delays.push((clock.now_ns() - sample.ts) as f64);
            seen = count;
        }
    }
    Ok(delays)
}

fn appear(scratch: &Scratch) -> Result<StreamReader, Fault> {
    for _ in 0..1_000 {
        if let Ok(reader) = SegmentReader::open(&scratch.0.join("segment"))
            && let Some(entry) = reader.directory().entries.first()
        {
            return Ok(reader.stream(entry));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("the writer did not start".into())
}

/// The helper process: appends the present time, wakes the readers, sleeps.
pub(super) fn waker(arguments: &[String]) -> Result<(), Fault> {
    let [directory] = arguments else {
        return Err("waker DIR".into());
    };
    let scratch = std::mem::ManuallyDrop::new(Scratch(directory.into()));
    let mut segment = segment(&scratch)?;
    let writer = segment.register(&descriptor(0), None, 0)?;
    tell(&segment, writer, || false)
}

/// Appends the present time, wakes the readers and sleeps, until `over` returns true, and at most
/// for twice the rounds that a reader needs.
fn tell(segment: &Segment, mut writer: StreamWriter, over: impl Fn() -> bool) -> Result<(), Fault> {
    let clock = SystemClock::new();
    std::thread::sleep(Duration::from_millis(200));
    for n in 0..2 * ROUNDS {
        if over() {
            break;
        }
        writer.append(&Sample::measured(clock.now_ns(), n as f64))?;
        segment.wake(writer.wake_bit());
        std::thread::sleep(GAP);
    }
    Ok(())
}

/// Measures the floor: the same with only a word and the kernel.
fn bare_futex() -> Vec<f64> {
    let word = AtomicU32::new(0);
    let started = now();
    let sent = AtomicU64::new(0);
    let mut delays = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            for _ in 0..ROUNDS {
                sent.store(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
                word.fetch_add(1, Ordering::Release);
                let _ = futex::wake(&word, futex::Flags::empty(), 1);
                std::thread::sleep(GAP);
            }
        });
        let mut seen = 0;
        while u64::from(seen) < ROUNDS {
            let _ = futex::wait(&word, futex::Flags::empty(), seen, None);
            let value = word.load(Ordering::Acquire);
            if value != seen {
                seen = value;
                delays.push(
                    started.elapsed().as_nanos() as f64 - sent.load(Ordering::Relaxed) as f64,
                );
            }
        }
    });
    delays
}
