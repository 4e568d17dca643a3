//! Everything that an agent uses of its environment, as one argument: clock, file system, random
//! numbers, jobs that wait for disks, and the process's own usage. [`World::real`] is that of the
//! machine; tests make others.
//!
//! It stands alone because it is the only place of the agent that makes a clock or names the disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use barograph_archive::{DiskStorage, Storage};
use barograph_model::Clock;
use barograph_stream::{Incarnation, SystemClock};
use rustix::time::{ClockId, clock_gettime};

use crate::Work;

/// The environment of an agent. Clones share it.
#[derive(Clone)]
pub struct World {
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// The file system of archives and statements.
    pub storage: Arc<dyn Storage>,
    /// Random numbers.
    pub randomness: Arc<dyn Randomness>,
    /// The way to run work that may wait for a disk.
    pub work: Work,
    /// The meter of what this process has used.
    pub meter: Arc<dyn ProcessMeter>,
}

impl World {
    /// The machine's clock, disk and random numbers, threads, and this process.
    pub fn real() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            storage: Arc::new(DiskStorage),
            randomness: Arc::new(SystemRandomness),
            work: Work::Threads,
            meter: Arc::new(KernelMeter {
                statm: File::open("/proc/self/statm").ok(),
            }),
        }
    }
}

/// A source of random numbers.
pub trait Randomness: Send + Sync {
    /// Draws the identity of a segment's life.
    fn incarnation(&self) -> io::Result<Incarnation>;
}

/// The random numbers of the system.
struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn incarnation(&self) -> io::Result<Incarnation> {
        Incarnation::draw()
    }
}

/// A meter of one process.
pub trait ProcessMeter: Send + Sync {
    /// Processor time of all threads so far, in seconds.
    fn cpu_seconds(&self) -> f64;
    /// Resident memory in bytes, shared pages included; `None` if it cannot be read.
    fn resident_bytes(&self) -> Option<i64>;
}

/// The kernel's counters of this process.
struct KernelMeter {
    statm: Option<File>,
}

impl ProcessMeter for KernelMeter {
    #[expect(clippy::disallowed_methods, reason = "the meter of the process")]
    fn cpu_seconds(&self) -> f64 {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
    }

    /// Reads the second number of `/proc/self/statm`, the resident pages (proc_pid_statm(5)).
    fn resident_bytes(&self) -> Option<i64> {
        let mut buffer = [0u8; 128];
        let bytes = self.statm.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let statm = std::str::from_utf8(&buffer[..bytes]).ok()?;
        let pages: i64 = statm.split(' ').nth(1)?.parse().ok()?;
        Some(pages * rustix::param::page_size() as i64)
    }
}
