//! The application's side of an ingest file: creating it, declaring, giving out rings.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::Clock;

use super::layout::{
    self, BYTE_ORDER, DECLARATIONS_BYTES, DECLARED_BYTES_MAX, EXTENSION, HEAD_BYTES, HEADER_BYTES,
    INGEST_VERSION_MAJOR, INGEST_VERSION_MINOR, MAGIC, POSITION_MAX, RECORD_BYTES,
    RING_RECORDS_FIRST, declarations_at, file_bytes, head, header, refused_bits, ring_bytes,
    ring_state, rings_at, state,
};
use super::make::{UnnamedFile, io_error, shape, start_ticks};
use super::memory::IngestMemory;
use super::ring::RingPlace;
use super::{IngestDeclaration, ProducerConfig, ThreadRing, TimeSource};
use crate::{Incarnation, StreamError};

/// Number of random names that are tried: a name that is taken is no accident.
const NAMES_MAX: usize = 8;

/// An ingest file with the right to write to it. When it and all of its rings are dropped, the file
/// is closed, and stays until an agent has read it.
#[derive(Debug)]
pub struct Producer {
    map: Arc<IngestMemory>,
    incarnation: Incarnation,
    time_source: TimeSource,
    config: ProducerConfig,
    declared: Mutex<usize>,
    /// Number of rings that were ever used.
    rings: Mutex<u32>,
}

impl Producer {
    /// Creates the file in an agent's ingest directory. Memory is reserved for the header now and
    /// for rings as threads come and put, so that a full file system is an error and never a fault.
    /// If the process may not create a file of this size, the file has fewer and smaller rings.
    pub fn create(
        directory: &Path,
        config: ProducerConfig,
        clock: &dyn Clock,
    ) -> Result<Self, StreamError> {
        let config = shape(config, directory)?;
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::try_create(directory, config, clock) {
                Err(StreamError::Io { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists && tries < NAMES_MAX => {}
                made => return made,
            }
        }
    }

    fn try_create(
        directory: &Path,
        config: ProducerConfig,
        clock: &dyn Clock,
    ) -> Result<Self, StreamError> {
        let incarnation = config.incarnation.map_or_else(Incarnation::draw, Ok);
        let incarnation = incarnation.map_err(io_error("name", directory))?;
        let path = directory.join(format!("{incarnation}.{EXTENSION}"));
        let unnamed = UnnamedFile::make(directory, incarnation, &config)?;
        let bytes = file_bytes(config.rings_max, config.ring_records);
        let memory = IngestMemory::new(&unnamed.file, path.clone(), bytes, config.rings_max)
            .map_err(io_error("map", &path))?;
        let producer = Self {
            map: Arc::new(memory),
            incarnation,
            time_source: TimeSource::of_this_machine(),
            config,
            declared: Mutex::default(),
            rings: Mutex::default(),
        };
        producer.write_header(clock);
        unnamed.name(&path).map_err(io_error("name", &path))?;
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
        set(header::PID, self.map.pid().into());
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
        // No agent has been notified of this file yet.
        set(header::ASLEEP, 1);
        // Stored last: without it the file is not valid.
        let magic = u64::from_le_bytes(MAGIC);
        self.map.set(header::MAGIC, magic, Ordering::Release);
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        self.map.path()
    }

    /// Identity of this life of the process.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Unit of the records' times.
    pub fn time_source(&self) -> TimeSource {
        self.time_source
    }

    /// Adds a declaration; returns false, and counts it, if there is no room left.
    pub fn declare(&self, declaration: &IngestDeclaration) -> bool {
        if !self.map.is_ours() {
            return false;
        }
        let mut declared = lock(&self.declared);
        let at = declarations_at(self.config.rings_max) + *declared;
        let bytes = declaration.encode();
        let fits = |bytes: &Vec<u8>| *declared + bytes.len() <= DECLARED_BYTES_MAX;
        let Some(bytes) = bytes.filter(fits) else {
            self.count(header::UNDECLARED, 1);
            return false;
        };
        // Reserved first: a full file system gives an error here, but would be a fault at a store.
        if self.map.reserve(at, bytes.len()).is_err() {
            self.count(header::UNDECLARED, 1);
            return false;
        }
        self.map.copy_in(at, &bytes);
        *declared += bytes.len();
        let all = *declared as u64;
        self.map.set(header::DECLARED, all, Ordering::Release);
        true
    }

    /// Returns a ring for the calling thread. It is one whose thread has ended and whose records
    /// were all read; or else a new one; or, if there is no room for that, one whose thread has
    /// ended: its records continue where that thread left them, and the overflow policy applies if
    /// it is full. `None` if all rings are in use, or there is no memory.
    pub fn thread(&self, clock: &dyn Clock) -> Option<ThreadRing> {
        if !self.map.is_ours() {
            return None;
        }
        let mut used = lock(&self.rings);
        let word = |ring: u32, at: usize| self.map.word(head_at(ring) + at).load(Ordering::Acquire);
        let has_ended = |ring: &u32| {
            word(*ring, head::STATE) == ring_state::ENDED
                && word(*ring, head::COMMITTED) < POSITION_MAX
        };
        let unread = |ring: &u32| {
            let committed = word(*ring, head::COMMITTED);
            committed.saturating_sub(word(*ring, head::TAIL))
        };
        let ended = (0..*used).filter(has_ended).min_by_key(unread);
        let ring = match ended {
            Some(ended) if unread(&ended) == 0 => ended,
            _ if *used < self.config.rings_max && self.reserve_ring(*used) => {
                *used += 1;
                self.map.cursors().set_used(*used);
                *used - 1
            }
            other => other?,
        };
        let place = RingPlace {
            ring,
            head_at: head_at(ring),
            records_at: self.records_at(ring),
            records: self.config.ring_records,
        };
        let ring = ThreadRing::new(Arc::clone(&self.map), place, self.config.overflow, clock);
        let all = u64::from(*used);
        self.map.set(header::RINGS_USED, all, Ordering::Release);
        Some(ring)
    }

    /// Counts values of a thread that has no ring.
    pub fn count_homeless(&self, values: u64) {
        self.count(header::HOMELESS, values);
    }

    /// Number of values of threads that had no ring.
    pub fn homeless(&self) -> u64 {
        self.word(header::HOMELESS)
    }

    /// Whether an agent currently refuses the value with this number, and takes none of its puts.
    pub fn is_refused(&self, value: u32) -> bool {
        let place = refused_bits::place(value);
        place.is_some_and(|(at, bit)| self.word(at) & bit != 0)
    }

    /// Number of declarations of this file that an agent currently refuses.
    pub fn refused(&self) -> u64 {
        self.word(header::REFUSED)
    }

    /// Whether the file belongs to this process: a child of its creator does not have it.
    pub fn is_ours(&self) -> bool {
        self.map.is_ours()
    }

    /// Whether the file was given up, because it was cut short or by [`Self::retire`]: puts are
    /// lost until there is another file.
    pub fn is_retired(&self) -> bool {
        self.map.is_retired()
    }

    /// Whether the file is here and was not given up. It makes no system call.
    #[inline]
    pub fn is_usable(&self) -> bool {
        self.map.is_usable()
    }

    /// Gives up the file: the next put of each thread finds no room.
    pub fn retire(&self) {
        if self.map.is_ours() {
            self.map.cursors().retire();
        }
    }

    /// Whether the file is still where it was created. It makes a system call.
    pub fn is_in_place(&self) -> bool {
        self.map.is_in_place()
    }

    /// Gives up the file in a child, right after a fork: nothing here belongs to the child.
    pub fn abandon(&self) {
        self.map.abandon();
    }

    /// Number of records that are committed and that the agent has not yet marked as taken.
    pub fn unread(&self) -> u64 {
        let used = *lock(&self.rings);
        let unread = |ring| {
            let word = |at| self.word(head_at(ring) + at);
            word(head::COMMITTED).saturating_sub(word(head::TAIL))
        };
        (0..used).map(unread).fold(0, u64::saturating_add)
    }

    /// Whether an agent wants to be woken for commits. Check it after a commit.
    #[inline(always)]
    pub fn is_agent_asleep(&self) -> bool {
        self.word(header::ASLEEP) != 0
    }

    /// Marks the agent as notified: one message is enough. Call it *before* the message is sent:
    /// the agent may finish and be asleep again before the caller goes on, and its new request must
    /// not be overwritten. Call [`Self::ask_to_be_told`] if sending fails.
    pub fn agent_was_told(&self) {
        self.set_asleep(0);
    }

    /// Marks the agent as not notified, so that the next commit tries again.
    pub fn ask_to_be_told(&self) {
        self.set_asleep(1);
    }

    fn set_asleep(&self, asleep: u64) {
        if self.map.is_ours() {
            self.map.set(header::ASLEEP, asleep, Ordering::Relaxed);
        }
    }

    /// A word of the file; 0 in a child, which does not have the file.
    #[inline]
    pub(super) fn word(&self, at: usize) -> u64 {
        if !self.map.is_here() {
            return 0;
        }
        self.map.word(at).load(Ordering::Relaxed)
    }

    /// Like [`Self::word`], before everything that is read later.
    pub(super) fn word_acquired(&self, at: usize) -> u64 {
        if !self.map.is_here() {
            return 0;
        }
        self.map.word(at).load(Ordering::Acquire)
    }

    /// A futex word of the file; `None` in a child.
    pub(super) fn half_word(&self, at: usize) -> Option<&AtomicU32> {
        self.map.is_here().then(|| self.map.half_word(at))
    }

    /// Words of the file; `None` in a child, or if they are not all inside.
    #[inline]
    pub(super) fn words(&self, at: usize, count: usize) -> Option<&[AtomicU64]> {
        match self.map.is_here() {
            true => self.map.words(at, count),
            false => None,
        }
    }

    /// Copies words into the file, which is this process's.
    pub(super) fn words_in(&self, at: usize, words: &[u64]) {
        self.map.words_in(at, words.iter().copied());
    }

    /// Stores a word after everything that was stored before.
    pub(super) fn store(&self, at: usize, word: u64) {
        self.map.set(at, word, Ordering::Release);
    }

    /// The number of rings for which the file has room.
    pub(super) fn rings_max(&self) -> u32 {
        self.config.rings_max
    }

    /// Reserves memory for the slots of server maps.
    pub(super) fn reserve_maps(&self) -> bool {
        let bytes = DECLARATIONS_BYTES - DECLARED_BYTES_MAX;
        let at = layout::maps_at(self.config.rings_max);
        self.map.reserve(at, bytes).is_ok()
    }

    fn count(&self, at: usize, more: u64) {
        if self.map.is_ours() {
            self.map.word(at).fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Number of values dropped by full rings, in the life of the file.
    pub fn dropped(&self) -> u64 {
        let used = *lock(&self.rings);
        let dropped = |ring| self.word(head_at(ring) + head::DROPPED);
        (0..used).map(dropped).fold(0, u64::saturating_add)
    }

    /// Reserves memory for a ring's head and its first records.
    fn reserve_ring(&self, ring: u32) -> bool {
        let records = RING_RECORDS_FIRST.min(self.config.ring_records) as usize;
        let reserve = |at, bytes| self.map.reserve(at, bytes).is_ok();
        reserve(head_at(ring), HEAD_BYTES) && reserve(self.records_at(ring), records * RECORD_BYTES)
    }

    fn records_at(&self, ring: u32) -> usize {
        rings_at(self.config.rings_max) + ring as usize * self.ring_bytes()
    }

    fn ring_bytes(&self) -> usize {
        ring_bytes(self.config.ring_records)
    }
}

fn head_at(ring: u32) -> usize {
    HEADER_BYTES + ring as usize * HEAD_BYTES
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded data is always written as a whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const _: () = assert!(layout::RESERVED_PARTS >= 4, "a part is less than a lap");
