//! Measurement of time and processor time, and statistics of many measurements.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Operations of one batch: enough to hide the cost of the clock, few enough to escape most
/// preemption.
const BATCH: usize = 500;

/// Returns the present time of the monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "benchmarks measure the system's time"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Keeps this thread on one processor, if there are two: on the same one, a reader and a writer
/// never run at the same time.
pub(crate) fn stay_on(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    if std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2) {
        let _ = sched_setaffinity(None, &set);
    }
}

/// Returns the processor time of this thread, in seconds.
pub(crate) fn thread_cpu_s() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Returns the median nanoseconds of one `operation`, over batches of [`BATCH`] for about `for_`.
pub(crate) fn batch_ns(for_: Duration, mut operation: impl FnMut()) -> f64 {
    let started = now();
    let mut batches = Vec::new();
    while started.elapsed() < for_ || batches.len() < 100 {
        let begin = now();
        for _ in 0..BATCH {
            operation();
        }
        batches.push(begin.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    median(&mut batches)
}

/// Returns the median and the 99th percentile of single operations that take a microsecond or more,
/// in ns.
pub(crate) fn each_ns(count: usize, mut operation: impl FnMut()) -> LatencySpread {
    for _ in 0..count / 10 {
        operation();
    }
    let mut times: Vec<f64> = (0..count)
        .map(|_| {
            let begin = now();
            operation();
            begin.elapsed().as_nanos() as f64
        })
        .collect();
    LatencySpread::of(&mut times)
}

/// Returns the processor time of this thread for one operation in ns, over `count` of them.
pub(crate) fn cpu_ns(count: usize, mut operation: impl FnMut()) -> f64 {
    let begin = thread_cpu_s();
    for _ in 0..count {
        operation();
    }
    (thread_cpu_s() - begin) * 1e9 / count as f64
}

/// The median and the 99th percentile of many measurements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatencySpread {
    /// Half of the measurements are below.
    pub p50: f64,
    /// 99 of 100 measurements are below.
    pub p99: f64,
}

impl LatencySpread {
    /// Returns the spread of measurements in any order.
    pub(crate) fn of(times: &mut [f64]) -> Self {
        let p50 = median(times);
        Self {
            p50,
            p99: times[times.len() * 99 / 100],
        }
    }
}

/// Returns the middle one of the measurements, of which there must be at least one.
pub(crate) fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Keeps a value from being optimised away.
pub(crate) fn keep<T>(value: T) {
    black_box(value);
}
