//! The application's side of an ingest file: making it, declaring, handing out rings.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::Clock;
use rustix::fs::{FallocateFlags, fallocate};

use super::layout::{
    self, BYTE_ORDER, DECLARATIONS_BYTES, HEAD_BYTES, HEADER_BYTES, INGEST_VERSION_MAJOR,
    INGEST_VERSION_MINOR, MAGIC, RING_RECORDS_DEFAULT, RING_RECORDS_MAX, RING_RECORDS_MIN,
    RINGS_DEFAULT, RINGS_MAX, declarations_at, file_bytes, head, header, ring_bytes, ring_state,
    rings_at, state,
};
use super::{Declaration, Overflow, ThreadRing, TimeSource};
use crate::map::{Access, Map};
use crate::{Incarnation, StreamError};

/// What an ingest file is made for.
#[derive(Clone, Copy, Debug)]
pub struct ProducerConfig {
    /// Threads that may put at the same time; raised and lowered to the format's limits.
    pub rings_max: u32,
    /// Records of each ring; made a power of two.
    pub ring_records: u64,
    /// What a full ring does.
    pub overflow: Overflow,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            rings_max: RINGS_DEFAULT,
            ring_records: RING_RECORDS_DEFAULT,
            overflow: Overflow::default(),
        }
    }
}

/// An ingest file and the right to write it. Dropping it says goodbye; the file stays until an agent has
/// read it.
#[derive(Debug)]
pub struct Producer {
    map: Arc<Map>,
    file: File,
    path: PathBuf,
    incarnation: Incarnation,
    time_source: TimeSource,
    config: ProducerConfig,
    declared: Mutex<usize>,
    /// Rings that were ever used.
    rings: Mutex<u32>,
}

impl Producer {
    /// Makes the file in an agent's ingest directory. Memory for the header is reserved now, for rings as
    /// threads come, so that a full file system is an error and never a fault.
    pub fn create(
        directory: &Path,
        mut config: ProducerConfig,
        clock: &dyn Clock,
    ) -> Result<Self, StreamError> {
        config.rings_max = config.rings_max.clamp(1, RINGS_MAX);
        let records = config
            .ring_records
            .clamp(RING_RECORDS_MIN, RING_RECORDS_MAX);
        config.ring_records = records.next_power_of_two();
        let random = random_bytes();
        let incarnation = Incarnation(random.map_err(io_error("read", Path::new("/dev/urandom")))?);
        let path = directory.join(format!("{incarnation}.ingest"));
        let (file, map) = open(directory, &path, &config).map_err(|source| {
            let _ = fs::remove_file(&path);
            io_error("make", &path)(source)
        })?;
        let time_source = TimeSource::of_this_machine();
        let producer = Self {
            map: Arc::new(map),
            file,
            path,
            incarnation,
            time_source,
            config,
            declared: Mutex::default(),
            rings: Mutex::default(),
        };
        producer.write_header(clock);
        Ok(producer)
    }

    fn write_header(&self, clock: &dyn Clock) {
        let set = |at, value| self.map.set(at, value, Ordering::Relaxed);
        let halves = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let rings = self.config.rings_max;
        set(
            header::VERSION,
            halves(INGEST_VERSION_MAJOR, INGEST_VERSION_MINOR),
        );
        set(header::ORDER, halves(BYTE_ORDER, HEADER_BYTES as u32));
        set(header::FILE_BYTES, self.map.bytes() as u64);
        self.map.copy_in(header::INCARNATION, &self.incarnation.0);
        set(header::CREATED, clock.now_ns() as u64);
        set(header::PID, std::process::id().into());
        set(header::START_TICKS, start_ticks("self").unwrap_or(0));
        set(header::STATE, state::OPEN);
        set(header::TIME_SOURCE, self.time_source as u64);
        set(header::DECLARATIONS_AT, declarations_at(rings) as u64);
        set(header::DECLARATIONS_BYTES, DECLARATIONS_BYTES as u64);
        set(header::HEADS_AT, HEADER_BYTES as u64);
        set(header::RINGS_MAX, rings.into());
        set(header::RINGS_AT, rings_at(rings) as u64);
        set(header::RING_RECORDS, self.config.ring_records);
        set(header::OVERFLOW, self.config.overflow as u64);
        // Nobody has told an agent of this file yet.
        set(header::ASLEEP, 1);
        // Last: without it the file is none.
        let magic = u64::from_le_bytes(MAGIC);
        self.map.set(header::MAGIC, magic, Ordering::Release);
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// This life of the process.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// What the times of its records count.
    pub fn time_source(&self) -> TimeSource {
        self.time_source
    }

    /// Adds a declaration; false when there is no more room, which is counted.
    pub fn declare(&self, declaration: &Declaration) -> bool {
        let mut declared = lock(&self.declared);
        let at = declarations_at(self.config.rings_max) + *declared;
        let bytes = declaration.encode();
        let fits = |bytes: &Vec<u8>| *declared + bytes.len() <= DECLARATIONS_BYTES;
        let Some(bytes) = bytes.filter(fits) else {
            self.count(header::UNDECLARED, 1);
            return false;
        };
        // Reserved first: a file system that is full gives an error here, and a fault in a store.
        if reserve(&self.file, at, bytes.len()).is_err() {
            self.count(header::UNDECLARED, 1);
            return false;
        }
        self.map.copy_in(at, &bytes);
        *declared += bytes.len();
        let all = *declared as u64;
        self.map.set(header::DECLARED, all, Ordering::Release);
        true
    }

    /// A ring for the calling thread: one whose thread has ended and whose records were read, or a new
    /// one, or, when there is no more room, one whose thread has ended: its records go on where that
    /// thread left them, and what is full does what the policy says. `None` when all are in use, or there is no memory.
    pub fn thread(&self, clock: &dyn Clock) -> Option<ThreadRing> {
        let mut used = lock(&self.rings);
        let word = |ring: u32, at: usize| self.map.word(head_at(ring) + at).load(Ordering::Acquire);
        let has_ended = |ring: &u32| word(*ring, head::STATE) == ring_state::ENDED;
        let unread = |ring: &u32| {
            let committed = word(*ring, head::COMMITTED);
            committed.saturating_sub(word(*ring, head::TAIL))
        };
        let ended = (0..*used).filter(has_ended).min_by_key(unread);
        let ring = match ended {
            Some(ended) if unread(&ended) == 0 => ended,
            _ if *used < self.config.rings_max && self.reserve_ring(*used) => {
                *used += 1;
                *used - 1
            }
            other => other?,
        };
        let head_at = head_at(ring);
        let ring = ThreadRing::new(
            Arc::clone(&self.map),
            head_at,
            self.records_at(ring),
            self.config.ring_records,
            self.config.overflow,
            clock,
        );
        let all = u64::from(*used);
        self.map.set(header::RINGS_USED, all, Ordering::Release);
        Some(ring)
    }

    /// Counts values of a thread that has no ring.
    pub fn count_homeless(&self, values: u64) {
        self.count(header::HOMELESS, values);
    }

    /// Values of threads that had no ring.
    pub fn homeless(&self) -> u64 {
        self.map.word(header::HOMELESS).load(Ordering::Relaxed)
    }

    /// Whether an agent wants to be told of what is committed. After a commit.
    #[inline(always)]
    pub fn is_agent_asleep(&self) -> bool {
        self.map.word(header::ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// The agent was told: once is enough.
    pub fn agent_was_told(&self) {
        self.map.set(header::ASLEEP, 0, Ordering::Relaxed);
    }

    /// A pointer to the word of [`Self::is_agent_asleep`], for inline commits; it lives as long as this.
    pub fn asleep_word(&self) -> *const std::sync::atomic::AtomicU64 {
        self.map.word(header::ASLEEP)
    }

    fn count(&self, at: usize, more: u64) {
        self.map.word(at).fetch_add(more, Ordering::Relaxed);
    }

    /// Values given up by rings that were full, in the life of the file.
    pub fn dropped(&self) -> u64 {
        let used = *lock(&self.rings);
        let dropped = |ring| self.map.word(head_at(ring) + head::DROPPED);
        let each = (0..used).map(|ring| dropped(ring).load(Ordering::Relaxed));
        each.fold(0, u64::saturating_add)
    }

    fn reserve_ring(&self, ring: u32) -> bool {
        reserve(&self.file, self.records_at(ring), self.ring_bytes()).is_ok()
    }

    fn records_at(&self, ring: u32) -> usize {
        rings_at(self.config.rings_max) + ring as usize * self.ring_bytes()
    }

    fn ring_bytes(&self) -> usize {
        ring_bytes(self.config.ring_records)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let closed = state::CLOSED;
        self.map.set(header::STATE, closed, Ordering::Release);
    }
}

fn head_at(ring: u32) -> usize {
    HEADER_BYTES + ring as usize * HEAD_BYTES
}

/// A file that only the owner and the agent can open: where the directory is another user's, its group is
/// the agent's and comes with the directory's set-group-id bit.
fn open(directory: &Path, path: &Path, config: &ProducerConfig) -> io::Result<(File, Map)> {
    let owner = fs::metadata(directory)?.uid();
    let us = rustix::process::geteuid().as_raw();
    let mode = if owner == us || owner == 0 {
        0o600
    } else {
        0o660
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    // Whatever the umask was.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    let bytes = file_bytes(config.rings_max, config.ring_records);
    file.set_len(bytes as u64)?;
    reserve(&file, 0, declarations_at(config.rings_max))?;
    let map = Map::new(&file, bytes, Access::Write)?;
    Ok((file, map))
}

/// Has the file system set the bytes aside. One that cannot (ENOTSUP) is trusted to have them.
fn reserve(file: &File, at: usize, bytes: usize) -> io::Result<()> {
    let keep = FallocateFlags::empty();
    match fallocate(file, keep, at as u64, bytes as u64) {
        Ok(()) | Err(rustix::io::Errno::NOTSUP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// When a process began, in clock ticks since boot: tells its life from that of a later one of its number.
pub(super) fn start_ticks(pid: &str) -> Option<u64> {
    let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, parentheses too: fields are counted after the last one.
    let end = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn random_bytes() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StreamError {
    let path = path.to_owned();
    move |source| StreamError::Io { what, path, source }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What it guards is written whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const _: () = assert!(layout::RESERVED_PARTS >= 4, "a part is less than a lap");
