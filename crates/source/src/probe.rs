//! Measurements of block devices: for `baro probe`, and stored for the source `disk`.
//!
//! A measurement only reads, past the page cache (`O_DIRECT`), for a bounded time and number of
//! bytes, at the idle I/O priority where there is `ionice`, and stops if other programs use the
//! device. Long reads at places spread over the device give the bandwidth, small reads at random
//! places the latency. Devices without platters are read by several threads, since one request at a
//! time does not keep them busy; devices with platters by one, and the fastest place counts, which
//! is usually the outermost.

mod measure;
mod records;

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use thiserror::Error;

use crate::util::command::{Commands, Program};
use crate::util::diskstats::{Counters, SECTOR_BYTES};
use crate::util::file::{HeldFile, SysRoot};
use crate::util::identity::Identity;
use crate::util::parse::{escape, lines, sole_number, words};

pub use records::{ProbeRecord, ProbeRecords, read, store};

const MIB: u64 = 1 << 20;
/// The time for which the device is watched for other programs' I/O before a measurement.
const WATCH: Duration = Duration::from_millis(200);
/// Its path in the packages of util-linux.
const IONICE: Program = Program {
    name: "ionice",
    paths: &["/usr/bin/ionice", "/bin/ionice"],
};

/// Limits of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeLimits {
    /// Longest duration, in nanoseconds; reads that have begun are waited for.
    pub time_ns_max: i64,
    /// Most bytes that are read.
    pub bytes_max: u64,
    /// Whether to go on although other programs use the device.
    pub force: bool,
}

impl Default for ProbeLimits {
    fn default() -> Self {
        Self {
            time_ns_max: 2 * NS_PER_S,
            bytes_max: 256 * MIB,
            force: false,
        }
    }
}

/// The result of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probe {
    /// The kernel's name of the device, as in the label `device`.
    pub device: String,
    /// The whole disk, if the device is a partition of one.
    pub partition_of: Option<String>,
    /// Model of the disk, if known.
    pub model: Option<String>,
    /// Serial number of the disk, if known.
    pub serial: Option<String>,
    /// Size of the device, in bytes.
    pub size_bytes: u64,
    /// Bandwidth of the long reads, in bytes per second.
    pub bytes_per_second: f64,
    /// Number of long reads that were under way at once.
    pub readers: usize,
    /// Number of bytes that the long reads read.
    pub sequential_bytes: u64,
    /// Median duration of the small reads.
    pub latency_p50_seconds: Option<f64>,
    /// The 99th percentile of the duration of the small reads.
    pub latency_p99_seconds: Option<f64>,
    /// Number of small reads.
    pub random_reads: usize,
    /// Length of one small read.
    pub random_read_bytes: u64,
    /// Share of the long reads that began with nothing but zeros: a device may answer for parts
    /// that were never written without reading anything.
    pub zeros_ratio: f64,
    /// Bytes that other programs read and wrote on the disk meanwhile.
    pub others_bytes: u64,
    /// Duration of the measurement.
    pub seconds: f64,
    /// I/O priority of the reads: `idle`, `lowest` (of the usual ones) or `unchanged`.
    pub io_priority: &'static str,
    /// Time of the measurement, in seconds since 1970.
    pub at_seconds: i64,
}

impl Probe {
    /// The part of the result that is stored.
    pub fn record(&self) -> ProbeRecord {
        ProbeRecord {
            bytes_per_second: self.bytes_per_second,
            latency_p50_seconds: self.latency_p50_seconds,
            latency_p99_seconds: self.latency_p99_seconds,
            size_bytes: self.size_bytes,
            serial: self.serial.clone(),
            at_seconds: self.at_seconds,
        }
    }
}

/// The reason why a device was not measured.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// No file has this name.
    #[error("there is no {}: `ls /sys/block` names the disks", path.display())]
    Absent {
        /// The path that was looked up.
        path: PathBuf,
    },
    /// The file is no block device.
    #[error("{} is no block device: name one such as /dev/nvme0n1 (`ls /sys/block`)", path.display())]
    NoBlockDevice {
        /// The path of the file.
        path: PathBuf,
    },
    /// The user has no right to read the device.
    #[error("{} may not be read by this user: run baro probe with sudo, or as a user of the group disk", path.display())]
    Denied {
        /// Path of the device.
        path: PathBuf,
    },
    /// Reading the device is forbidden even to those with the right to read the file.
    #[error("{} is forbidden here, even to root: the rules of a container (its devices control group) or of a security module keep it; run baro probe where the device is allowed", path.display())]
    Forbidden {
        /// Path of the device.
        path: PathBuf,
    },
    /// A file of `/sys` that the measurement needs cannot be read.
    #[error("{} cannot be read, mount /sys", path.display())]
    NoSysfs {
        /// Path of the file.
        path: PathBuf,
    },
    /// The device is smaller than the least that can be measured.
    #[error("{device} has {size_bytes} bytes: at least 1 MiB is needed")]
    TooSmall {
        /// Name of the device.
        device: String,
        /// Size of the device, in bytes.
        size_bytes: u64,
    },
    /// Other programs use the device.
    #[error(
        "{device} is busy with the work of others ({bytes} bytes in {seconds:.1} s, busy {busy_percent:.0} % of it): try again when it is idle, or measure what is left of it with --force"
    )]
    Busy {
        /// Name of the device.
        device: String,
        /// Bytes that they read and wrote.
        bytes: u64,
        /// Time in which they did.
        seconds: f64,
        /// Share of that time in which the device had any requests, in percent.
        busy_percent: f64,
    },
    /// The limits leave nothing to measure.
    #[error("{0}")]
    Limits(&'static str),
    /// Any other error of the kernel.
    #[error("{}: {}", path.display(), std::io::Error::from(*errno))]
    Io {
        /// Path of the device.
        path: PathBuf,
        /// The kernel's error number.
        errno: Errno,
    },
}

/// A block device, found in `/sys`.
struct Device {
    name: String,
    partition_of: Option<String>,
    path: PathBuf,
    /// Its directory in `/sys/block`.
    dir: PathBuf,
    /// The directory of the whole disk.
    disk_dir: PathBuf,
}

/// Measures a block device, named by a path or a name below `/dev`. Blocks this thread for up to
/// `time_ns_max`.
#[expect(
    clippy::disallowed_methods,
    reason = "a command watches disks that it probes"
)]
pub fn probe(device: &str, limits: &ProbeLimits, clock: &dyn Clock) -> Result<Probe, ProbeError> {
    if limits.bytes_max < 2 * MIB {
        return Err(ProbeError::Limits("at least 2 MiB must be read"));
    }
    if limits.time_ns_max < NS_PER_S / 10 {
        return Err(ProbeError::Limits("at least 0.1 seconds are needed"));
    }
    let device = Device::find(device)?;
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&device.path, flags, Mode::empty());
    let fd = fd.map_err(|errno| device.fault(errno))?;
    let size_bytes = device.number("size")?.saturating_mul(SECTOR_BYTES);
    if size_bytes < MIB {
        return Err(ProbeError::TooSmall {
            device: device.name,
            size_bytes,
        });
    }
    let io_priority = lower_priority();
    let started_ns = clock.monotonic_ns();
    let before = device.counters()?;
    std::thread::sleep(WATCH);
    device.check_idle(&before, 0, clock.monotonic_ns() - started_ns, limits)?;
    let target = measure::ProbeTarget {
        fd: &fd,
        size_bytes,
        block_bytes: device.block_bytes(),
        readers: device.readers(),
    };
    let before = device.counters()?;
    let began_ns = clock.monotonic_ns();
    let check = |own_bytes: u64| {
        let elapsed_ns = clock.monotonic_ns() - began_ns;
        device.check_idle(&before, own_bytes, elapsed_ns, limits)
    };
    let measured = measure::measure(&target, limits, clock, |errno| device.fault(errno), check)?;
    let others_bytes = check(measured.bytes())?;
    let identity = Identity::of(&device.disk_dir);
    let readers = target.readers;
    Ok(Probe {
        partition_of: device.partition_of,
        device: device.name,
        model: identity.model,
        serial: identity.serial,
        size_bytes,
        bytes_per_second: measured.bytes_per_second,
        readers,
        sequential_bytes: measured.sequential_bytes,
        latency_p50_seconds: measured.latency(0.5),
        latency_p99_seconds: measured.latency(0.99),
        random_reads: measured.latencies_ns.len(),
        random_read_bytes: measured.random_read_bytes,
        zeros_ratio: measured.zeros_ratio,
        others_bytes,
        seconds: (clock.monotonic_ns() - started_ns) as f64 / NS_PER_S as f64,
        io_priority,
        at_seconds: clock.now_ns() / NS_PER_S,
    })
}

impl Device {
    fn find(name: &str) -> Result<Self, ProbeError> {
        let path = Path::new("/dev").join(name);
        let meta = fs::metadata(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::PermissionDenied => ProbeError::Denied { path: path.clone() },
            _ => ProbeError::Absent { path: path.clone() },
        })?;
        if !meta.file_type().is_block_device() {
            return Err(ProbeError::NoBlockDevice { path });
        }
        let number = meta.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let no_sysfs = |_| ProbeError::NoSysfs { path: link.clone() };
        let dir = link.canonicalize().map_err(no_sysfs)?;
        let named = |dir: &Path| {
            use std::os::unix::ffi::OsStrExt;
            let name = dir.file_name().unwrap_or_default();
            escape(name.as_bytes()).replace('!', "/")
        };
        let parent = dir.parent().filter(|_| dir.join("partition").exists());
        Ok(Self {
            name: named(&dir),
            partition_of: parent.map(named),
            disk_dir: parent.unwrap_or(&dir).to_owned(),
            path,
            dir,
        })
    }

    fn fault(&self, errno: Errno) -> ProbeError {
        let path = self.path.clone();
        match errno {
            // A refusal by the mode of the file is EACCES; a refusal by the rules of a control
            // group is EPERM.
            Errno::ACCESS => ProbeError::Denied { path },
            Errno::PERM => ProbeError::Forbidden { path },
            errno => ProbeError::Io { path, errno },
        }
    }

    fn number(&self, name: &str) -> Result<u64, ProbeError> {
        number(&self.dir.join(name))
    }

    /// The length of small reads: a logical block, but at least 4 KiB, as most programs read.
    fn block_bytes(&self) -> u64 {
        let logical = number(&self.disk_dir.join("queue/logical_block_size"));
        let logical = logical.ok().filter(|b| b.is_power_of_two() && *b <= MIB);
        logical.unwrap_or(4096).max(4096)
    }

    fn readers(&self) -> usize {
        match number(&self.disk_dir.join("queue/rotational")) {
            Ok(0) => measure::READERS,
            _ => 1,
        }
    }

    fn counters(&self) -> Result<Counters, ProbeError> {
        let path = self.disk_dir.join("stat");
        let mut bytes = Vec::new();
        let read = HeldFile::short_records(path.clone()).read_and_close(&mut bytes);
        let first = read.ok().and_then(|()| lines(&bytes).next());
        let counters = first.and_then(|line| Counters::parse(words(line)));
        counters.ok_or(ProbeError::NoSysfs { path })
    }

    /// The bytes that other programs moved on the whole disk since `before`; an error if that is
    /// too much.
    fn check_idle(
        &self,
        before: &Counters,
        own_bytes: u64,
        elapsed_ns: i64,
        limits: &ProbeLimits,
    ) -> Result<u64, ProbeError> {
        /// Share of the time in which a disk without requests of our own may be busy.
        const BUSY_PERCENT_MAX: f64 = 10.0;
        let Some(step) = self.counters()?.since(before) else {
            return Ok(0);
        };
        let bytes = (step.read_bytes.saturating_add(step.write_bytes)).saturating_sub(own_bytes);
        let seconds = elapsed_ns.max(1) as f64 / NS_PER_S as f64;
        let busy_percent = (step.busy_ms as f64 / 10.0 / seconds).min(100.0);
        // A system disk always has a little to do.
        let moves_much = bytes as f64 > (own_bytes / 20) as f64 + MIB as f64 * seconds.max(1.0);
        let works_much = own_bytes == 0 && busy_percent > BUSY_PERCENT_MAX;
        if limits.force || !(moves_much || works_much) {
            return Ok(bytes);
        }
        Err(ProbeError::Busy {
            device: self.name.clone(),
            bytes,
            seconds,
            busy_percent,
        })
    }
}

fn number(path: &Path) -> Result<u64, ProbeError> {
    let mut bytes = Vec::new();
    let read = HeldFile::short_records(path.to_owned()).read_and_close(&mut bytes);
    let value = read.ok().and_then(|()| sole_number(&bytes));
    value.ok_or_else(|| ProbeError::NoSysfs {
        path: path.to_owned(),
    })
}

/// Lowers this thread's I/O priority below that of all others, as far as the kernel and the
/// scheduler of the device support it. Threads that are started later inherit it. Returns the name
/// of the priority.
fn lower_priority() -> &'static str {
    let commands = Commands::new(&SysRoot::new(Path::new("/")), Duration::from_secs(2));
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    if commands
        .run(IONICE, &["-c", "3", "-p", &thread], "ionice")
        .is_ok()
    {
        return "idle";
    }
    // Without an I/O class of its own, a thread with nice 19 gets the lowest of the usual
    // priorities.
    match rustix::process::setpriority_process(None, 19) {
        Ok(()) => "lowest",
        Err(_) => "unchanged",
    }
}
