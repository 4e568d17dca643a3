//! The reads of a measurement, on any file that can be read at an offset.

use std::os::fd::{AsFd, OwnedFd};

use barograph_model::{Clock, NS_PER_S};
use rustix::io::Errno;

use super::{MIB, ProbeError, ProbeLimits};

/// Number of reads at once on a device without platters.
pub(super) const READERS: usize = 4;
/// Most places at which long reads are made.
const PLACES: u64 = 16;
/// Length of one long read.
const LONG_BYTES: usize = MIB as usize;
/// Most small reads of a measurement.
const SMALL_READS_MAX: usize = 512;
/// Share of the time that the long reads may take.
const SEQUENTIAL_SHARE: f64 = 0.7;
/// Alignment of memory for direct I/O: that of the largest logical block.
const ALIGNMENT: usize = LONG_BYTES;

/// The device to read from.
pub(super) struct ProbeTarget<'a> {
    pub(super) fd: &'a OwnedFd,
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u64,
    pub(super) readers: usize,
}

/// The result of the reads.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) bytes_per_second: f64,
    pub(super) sequential_bytes: u64,
    /// Bytes that were read to wake the device and to move to the places.
    other_bytes: u64,
    pub(super) zeros_ratio: f64,
    /// Durations of the small reads, sorted.
    pub(super) latencies_ns: Vec<i64>,
    pub(super) random_read_bytes: u64,
}

impl Measured {
    /// All bytes that were read.
    pub(super) fn bytes(&self) -> u64 {
        let random = self.random_read_bytes * self.latencies_ns.len() as u64;
        self.sequential_bytes + self.other_bytes + random
    }

    /// The quantile of the duration of the small reads at this share, in seconds.
    pub(super) fn latency(&self, share: f64) -> Option<f64> {
        let rank = (self.latencies_ns.len() as f64 * share).ceil() as usize;
        let ns = self.latencies_ns.get(rank.saturating_sub(1))?;
        Some(*ns as f64 / NS_PER_S as f64)
    }
}

/// The reads of one reader in one round.
#[derive(Clone, Copy, Default)]
struct Stretch {
    bytes: u64,
    reads: u64,
    zeros: u64,
}

/// A buffer that is aligned for direct I/O.
struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Self {
        let memory = vec![0; LONG_BYTES + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        // If the offset to an aligned address is unknown, none is used: the kernel then refuses the
        // read.
        let start = if start <= ALIGNMENT { start } else { 0 };
        Self { memory, start }
    }

    fn piece(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + bytes.min(LONG_BYTES)]
    }
}

/// Makes the reads within the limits. `check` gets the number of bytes read so far, and its error
/// ends the measurement.
pub(super) fn measure(
    target: &ProbeTarget<'_>,
    limits: &ProbeLimits,
    clock: &dyn Clock,
    fault: impl Fn(Errno) -> ProbeError,
    check: impl Fn(u64) -> Result<u64, ProbeError>,
) -> Result<Measured, ProbeError> {
    let mut measured = Measured {
        random_read_bytes: target.block_bytes.min(MIB),
        ..Measured::default()
    };
    let mut buffers: Vec<Buffer> = (0..target.readers.max(1)).map(|_| Buffer::new()).collect();
    // A sleeping device is woken before the time is measured.
    read_at(target, &mut buffers[0], 0, measured.random_read_bytes).map_err(&fault)?;
    measured.other_bytes = measured.random_read_bytes;
    let start_ns = clock.monotonic_ns();
    let until_ns = start_ns.saturating_add((limits.time_ns_max as f64 * SEQUENTIAL_SHARE) as i64);
    sequential(
        target,
        limits,
        clock,
        until_ns,
        &mut buffers,
        &mut measured,
        &check,
    )
    .map_err(|e| e.or(&fault))?;
    let until_ns = start_ns.saturating_add(limits.time_ns_max);
    random(
        target,
        limits,
        clock,
        until_ns,
        &mut buffers[0],
        &mut measured,
    )
    .map_err(&fault)?;
    measured.latencies_ns.sort_unstable();
    Ok(measured)
}

/// The reason why the long reads ended early.
enum End {
    Read(Errno),
    Checked(ProbeError),
}

impl End {
    fn or(self, fault: &impl Fn(Errno) -> ProbeError) -> ProbeError {
        match self {
            Self::Read(errno) => fault(errno),
            Self::Checked(error) => error,
        }
    }
}

fn sequential(
    target: &ProbeTarget<'_>,
    limits: &ProbeLimits,
    clock: &dyn Clock,
    until_ns: i64,
    buffers: &mut [Buffer],
    measured: &mut Measured,
    check: &impl Fn(u64) -> Result<u64, ProbeError>,
) -> Result<(), End> {
    let small = measured.random_read_bytes;
    let spare = small * (PLACES + 1 + SMALL_READS_MAX as u64);
    let budget = limits.bytes_max.saturating_sub(spare).max(MIB);
    let places = places(target.size_bytes, budget);
    let (mut all, mut all_ns, mut fastest) = (Stretch::default(), 0, 0.0_f64);
    for round in places.chunks(buffers.len()) {
        // The move to the place is not part of the measured time.
        for ((offset, _), buffer) in round.iter().zip(buffers.iter_mut()) {
            read_at(target, buffer, *offset, small).map_err(End::Read)?;
            measured.other_bytes += small;
        }
        let began_ns = clock.monotonic_ns();
        let stretch = in_parallel(target, clock, until_ns, round, buffers).map_err(End::Read)?;
        let took_ns = (clock.monotonic_ns() - began_ns).max(1);
        fastest = fastest.max(stretch.bytes as f64 * NS_PER_S as f64 / took_ns as f64);
        all_ns += took_ns;
        all.bytes += stretch.bytes;
        all.reads += stretch.reads;
        all.zeros += stretch.zeros;
        measured.sequential_bytes = all.bytes;
        check(measured.bytes()).map_err(End::Checked)?;
        if clock.monotonic_ns() >= until_ns {
            break;
        }
    }
    let mean = all.bytes as f64 * NS_PER_S as f64 / all_ns.max(1) as f64;
    measured.bytes_per_second = if target.readers > 1 { mean } else { fastest };
    measured.zeros_ratio = all.zeros as f64 / all.reads.max(1) as f64;
    Ok(())
}

/// The places to read, as offset and length in whole MiB, spread from the beginning of the device
/// to its end.
fn places(size_bytes: u64, budget: u64) -> Vec<(u64, u64)> {
    let size = size_bytes / MIB;
    let count = PLACES.min(size).min(budget / MIB).max(1);
    let each = (budget / MIB / count).min(size / count).max(1);
    let last = size.saturating_sub(each);
    let at = |i: u64| last * i / (count - 1).max(1);
    (0..count).map(|i| (at(i) * MIB, each * MIB)).collect()
}

/// Reads all places at once, with one reader for each.
fn in_parallel(
    target: &ProbeTarget<'_>,
    clock: &dyn Clock,
    until_ns: i64,
    places: &[(u64, u64)],
    buffers: &mut [Buffer],
) -> Result<Stretch, Errno> {
    if let ([place], Some(buffer)) = (places, buffers.first_mut()) {
        return stretch(target, clock, until_ns, *place, buffer);
    }
    std::thread::scope(|scope| {
        let pairs = places.iter().zip(buffers.iter_mut());
        let readers: Vec<_> = pairs
            .map(|(place, buffer)| {
                scope.spawn(move || stretch(target, clock, until_ns, *place, buffer))
            })
            .collect();
        let mut all = Stretch::default();
        for reader in readers {
            let one = reader.join().unwrap_or(Err(Errno::INTR))?;
            all.bytes += one.bytes;
            all.reads += one.reads;
            all.zeros += one.zeros;
        }
        Ok(all)
    })
}

/// Makes long reads one after the other, at least one.
fn stretch(
    target: &ProbeTarget<'_>,
    clock: &dyn Clock,
    until_ns: i64,
    (offset, bytes): (u64, u64),
    buffer: &mut Buffer,
) -> Result<Stretch, Errno> {
    /// Bytes at the beginning of a read that are compared with zeros.
    const LOOK_BYTES: usize = 4096;
    let mut done = Stretch::default();
    while done.bytes < bytes {
        let got = read_at(target, buffer, offset + done.bytes, LONG_BYTES as u64)?;
        if got == 0 {
            break;
        }
        done.bytes += got as u64;
        done.reads += 1;
        let seen = buffer.piece(got.min(LOOK_BYTES));
        done.zeros += u64::from(seen.iter().all(|b| *b == 0));
        if clock.monotonic_ns() >= until_ns {
            break;
        }
    }
    Ok(done)
}

fn random(
    target: &ProbeTarget<'_>,
    limits: &ProbeLimits,
    clock: &dyn Clock,
    until_ns: i64,
    buffer: &mut Buffer,
    measured: &mut Measured,
) -> Result<(), Errno> {
    let bytes = measured.random_read_bytes;
    let blocks = (target.size_bytes / bytes).max(1);
    let mut state = clock.now_ns() as u64 | 1;
    while measured.latencies_ns.len() < SMALL_READS_MAX
        && measured.bytes() + bytes <= limits.bytes_max
    {
        // xorshift64: any spread will do.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let began_ns = clock.monotonic_ns();
        read_at(target, buffer, state % blocks * bytes, bytes)?;
        let ended_ns = clock.monotonic_ns();
        measured.latencies_ns.push(ended_ns - began_ns);
        if ended_ns >= until_ns {
            break;
        }
    }
    Ok(())
}

fn read_at(
    target: &ProbeTarget<'_>,
    buffer: &mut Buffer,
    offset: u64,
    bytes: u64,
) -> Result<usize, Errno> {
    let piece = buffer.piece(bytes as usize);
    rustix::io::retry_on_intr(|| rustix::io::pread(target.fd.as_fd(), &mut *piece, offset))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// A clock on which each call takes a millisecond.
    struct Ticking(AtomicI64);

    impl Clock for Ticking {
        fn now_ns(&self) -> i64 {
            self.monotonic_ns()
        }

        fn monotonic_ns(&self) -> i64 {
            self.0.fetch_add(1_000_000, Ordering::SeqCst)
        }
    }

    fn file(mib: usize, byte: u8) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![byte; mib << 20]).unwrap();
        file.into()
    }

    fn run(
        fd: &OwnedFd,
        mib: u64,
        readers: usize,
        limits: ProbeLimits,
        check: impl Fn(u64) -> Result<u64, ProbeError>,
    ) -> Result<Measured, ProbeError> {
        let target = ProbeTarget {
            fd,
            size_bytes: mib * MIB,
            block_bytes: 4096,
            readers,
        };
        let clock = Ticking(AtomicI64::new(0));
        let fault = |errno| ProbeError::Io {
            path: "file".into(),
            errno,
        };
        measure(&target, &limits, &clock, fault, check)
    }

    #[test]
    fn no_more_is_read_than_allowed() {
        let fd = file(64, 7);
        for (readers, bytes_max) in [(1, 32 * MIB), (4, 32 * MIB), (4, 2 * MIB), (1, 256 * MIB)] {
            let limits = ProbeLimits {
                bytes_max,
                ..ProbeLimits::default()
            };
            let measured = run(&fd, 64, readers, limits, Ok).unwrap();
            assert!(measured.bytes() <= bytes_max, "{measured:?}");
            assert!(measured.sequential_bytes >= MIB && measured.bytes_per_second > 0.0);
            assert!(measured.latency(0.5).is_some() || bytes_max == 2 * MIB);
            assert_eq!(measured.zeros_ratio, 0.0);
        }
    }

    #[test]
    fn time_is_up_after_the_read_that_is_under_way() {
        let fd = file(64, 0);
        let limits = ProbeLimits {
            time_ns_max: 20_000_000,
            ..ProbeLimits::default()
        };
        let measured = run(&fd, 64, 1, limits, Ok).unwrap();
        // The clock is read fourteen times for the long reads and six times for the small ones.
        assert!(measured.sequential_bytes <= 14 * MIB, "{measured:?}");
        assert!(measured.latencies_ns.len() <= 6, "{measured:?}");
        assert_eq!(measured.zeros_ratio, 1.0);
    }

    #[test]
    fn rates_and_latencies_are_those_of_the_clock() {
        let fd = file(32, 1);
        let measured = run(&fd, 32, 1, ProbeLimits::default(), Ok).unwrap();
        // Two reads of 1 MiB at each place; the clock is read three times.
        assert_eq!(measured.bytes_per_second, 2.0 * MIB as f64 / 0.003);
        assert_eq!(measured.latency(0.5), Some(0.001));
        assert_eq!(measured.latency(0.99), Some(0.001));
        assert_eq!(measured.latencies_ns.len(), SMALL_READS_MAX);
    }

    /// Reads past the page cache, as for devices: the kernel refuses memory that is not aligned. A
    /// file system without such reads (tmpfs of older kernels) tests nothing.
    #[test]
    fn memory_and_places_are_as_direct_reads_want_them() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![5; 32 << 20]).unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
        let opened = rustix::fs::open(&path, flags, rustix::fs::Mode::empty());
        if matches!(opened, Err(Errno::INVAL)) {
            return eprintln!("no direct reads on this file system");
        }
        for readers in [1, READERS] {
            let fd = opened.as_ref().unwrap();
            let measured = run(fd, 32, readers, ProbeLimits::default(), Ok).unwrap();
            assert_eq!(measured.sequential_bytes, 32 * MIB);
            assert_eq!(measured.latencies_ns.len(), SMALL_READS_MAX);
        }
    }

    #[test]
    fn it_ends_where_it_meets_others() {
        let fd = file(32, 1);
        let check = |bytes| match bytes {
            0..4_000_000 => Ok(0),
            _ => Err(ProbeError::Limits("busy")),
        };
        let error = run(&fd, 32, 1, ProbeLimits::default(), check).unwrap_err();
        assert_eq!(error.to_string(), "busy");
    }

    #[test]
    fn places_are_inside_and_spread() {
        for (size, budget) in [
            (1, 1),
            (1, 300),
            (5, 256),
            (64, 256),
            (4_000_000, 253),
            (3, 2),
        ] {
            let places = places(size * MIB + 4096, budget * MIB);
            let read: u64 = places.iter().map(|(_, bytes)| bytes).sum();
            assert!(
                read <= (budget * MIB).max(MIB),
                "{size} {budget} {places:?}"
            );
            assert!(places.iter().all(|(at, bytes)| at + bytes <= size * MIB));
            assert!(places.len() as u64 == PLACES.min(size).min(budget));
        }
    }
}
