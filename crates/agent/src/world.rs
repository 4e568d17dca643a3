//! The outside of an agent as one argument: time, the storage of the archive, and what the process
//! has used. [`World::real`] is the one of the machine; tests make others.
//!
//! It stands alone because it is the only place of this crate that makes a clock or names the disk.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use barograph_archive::{DiskStorage, Storage};
use barograph_model::Clock;
use barograph_stream::SystemClock;
use rustix::time::{ClockId, clock_gettime};

/// The outside of an agent. A clone is the same outside.
#[derive(Clone)]
pub struct World {
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// The file system of the archive.
    pub storage: Arc<dyn Storage>,
    /// The meter of what this process has used.
    pub meter: Arc<dyn ProcessMeter>,
}

impl World {
    /// The machine's clock and disk, and this process.
    pub fn real() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            storage: Arc::new(DiskStorage),
            meter: Arc::new(KernelMeter {
                statm: File::open("/proc/self/statm").ok(),
            }),
        }
    }
}

/// A meter of one process.
pub trait ProcessMeter: Send + Sync {
    /// Processor time of all threads so far, in seconds.
    fn cpu_seconds(&self) -> f64;
    /// Resident memory in bytes, shared pages included; `None` if it cannot be read.
    fn resident_bytes(&self) -> Option<i64>;
}

/// What the kernel counts of this process.
struct KernelMeter {
    statm: Option<File>,
}

impl ProcessMeter for KernelMeter {
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
