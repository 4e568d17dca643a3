//! The application's side of one ring: one thread writes, the agent reads at any time.
//!
//! A record is written without regard to the reader. Before the writer enters a new part of the
//! ring, it announces how far it may write (`RESERVED`); the reader loads that position after its
//! copy, and so knows which copied records may have been overwritten meanwhile. `COMMITTED` alone
//! decides which records are complete, so a frame appears as a whole or not at all.
//!
//! Functions that depend on the memory model are generic over [`Word`] so that loom can run them.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barograph_model::Clock;

use super::layout::{
    BLOB_BYTES_MAX, PIECE_BYTES, RECORD_BYTES, RESERVED_PARTS, RING_RECORDS_FIRST, SERIES_MAX,
    head, header, kind, ring_state, what,
};
use super::memory::IngestMemory;
use super::{CallsSeen, OverflowPolicy, RingCursor, TickPair};
use crate::line::Word;

/// Announces that records before `limit` may now be written. A reader that has seen a word of one
/// of them, and then (after an acquire fence) loads the limit, sees this or a later one.
#[inline(always)]
fn announce<W: Word>(reserved: &W, limit: u64) {
    reserved.set(limit, Ordering::Relaxed);
    W::barrier(Ordering::Release);
}

/// Stores the words of a record.
#[inline(always)]
fn store<W: Word>(slot: &[W], record: [u64; 3]) {
    for (word, value) in slot.iter().zip(record) {
        word.set(value, Ordering::Relaxed);
    }
}

/// Publishes the records before `position`: a reader that sees the position sees the records.
#[inline(always)]
fn publish<W: Word>(committed: &W, position: u64) {
    committed.set(position, Ordering::Release);
}

/// Number of refused puts between two attempts to get memory for a ring.
const PUTS_BETWEEN_TRIES: u32 = 1_024;

/// The place of a ring in its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingPlace {
    pub ring: u32,
    pub head_at: usize,
    pub records_at: usize,
    pub records: u64,
}

/// A ring with the right to write to it, for one thread at a time.
#[derive(Debug)]
pub struct ThreadRing {
    /// Points into memory of `map`.
    cursor: NonNull<RingCursor>,
    map: Arc<IngestMemory>,
    place: RingPlace,
    overflow: OverflowPolicy,
    dropped: u64,
    /// Number of records, from the first on, that have memory.
    filled: u64,
    /// Number of puts that are refused before the next attempt to get memory.
    patience: u32,
}

// Only C programs follow the pointers of the cursor, and they keep them to their thread; the code
// here reaches the ring through the map.
#[expect(unsafe_code, reason = "raw pointers are not Send by themselves")]
// SAFETY: they point into `map`, which lives as long as this and is `Send + Sync`; no ring shares
// it.
unsafe impl Send for ThreadRing {}

impl ThreadRing {
    /// Takes over a free ring; its positions continue where the last thread left them.
    pub(super) fn new(
        map: Arc<IngestMemory>,
        place: RingPlace,
        overflow: OverflowPolicy,
        clock: &dyn Clock,
    ) -> Self {
        let word = |at| map.word(place.head_at + at).load(Ordering::Acquire);
        let (position, dropped) = (word(head::COMMITTED), word(head::DROPPED));
        // Announced records have memory; the first got it before the ring was given out.
        let filled = word(head::RESERVED).max(RING_RECORDS_FIRST);
        let ring = Self {
            cursor: map.cursors().of(place.ring),
            filled: filled.min(place.records),
            map,
            place,
            overflow,
            dropped,
            patience: 0,
        };
        let cursor = ring.at();
        cursor.owner.store(0, Ordering::Relaxed);
        cursor.limit.store(position, Ordering::Relaxed);
        cursor.position.set(position);
        cursor.mask.set(place.records - 1);
        cursor.records.set(ring.map.word(place.records_at));
        cursor
            .committed
            .set(ring.map.word(place.head_at + head::COMMITTED));
        cursor.asleep.set(ring.map.word(header::ASLEEP));
        ring.tell_time(clock);
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        ring.set(head::THREAD, thread as u64);
        ring.set(head::STATE, ring_state::IN_USE);
        ring
    }

    /// The cursor, for inline puts.
    pub fn cursor(&mut self) -> *mut RingCursor {
        self.cursor.as_ptr()
    }

    #[inline(always)]
    #[expect(unsafe_code, reason = "the cursor lies in memory of the map")]
    fn at(&self) -> &RingCursor {
        // SAFETY: a cursor of `map`, which lives as long as this. Its fields are cells, touched
        // only by the thread with this ring, and atomics; in a child they are zeros, which are
        // valid.
        unsafe { self.cursor.as_ref() }
    }

    /// Identifies the handles whose puts may go to this ring; 0 if it is no longer to be used.
    #[inline(always)]
    pub fn owner(&self) -> u64 {
        self.at().owner.load(Ordering::Relaxed)
    }

    /// Sets [`Self::owner`].
    pub fn set_owner(&mut self, owner: u64) {
        self.at().owner.store(owner, Ordering::Relaxed);
        if self.map.is_retired() {
            // The file was given up meanwhile.
            self.at().owner.store(0, Ordering::Relaxed);
        }
    }

    /// The calls that this thread has seen.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the cursor lies in memory of the map")]
    pub fn calls(&mut self) -> &mut CallsSeen {
        // SAFETY: only the thread with this ring touches them, and here it has exclusive access.
        unsafe { &mut *self.at().calls.get() }
    }

    /// Whether the ring belongs to this process; no child, however created, has ring or file.
    #[inline(always)]
    pub fn is_here(&self) -> bool {
        !self.at().records.get().is_null()
    }

    /// Whether the file of the ring was given up.
    pub fn is_retired(&self) -> bool {
        self.map.is_retired()
    }

    /// Whether puts are refused because there is no memory: waiting for the agent does not help.
    pub fn is_starved(&self) -> bool {
        self.patience > 0
    }

    /// Puts a value of eight bytes with a kind ([`kind`]) and series, created at `time` (in the
    /// unit of the file). Returns false if there is no room: try again later, or
    /// [`Self::drop_one`].
    #[inline(always)]
    pub fn put(&mut self, kind: u8, series: u32, time: u64, payload: u64) -> bool {
        let cursor = self.at();
        if cursor.position.get() >= cursor.limit.load(Ordering::Relaxed) && !self.reserve(1) {
            return false;
        }
        self.write(what(kind, series), time, payload);
        true
    }

    /// Puts a text, byte string or array of at most [`Self::blob_bytes_max`] bytes; a longer one is
    /// cut (a text between two characters).
    pub fn put_bytes(&mut self, kind: u8, series: u32, time: u64, bytes: &[u8]) -> bool {
        let bytes = cut(kind, bytes, self.blob_bytes_max());
        let pieces = bytes.chunks(PIECE_BYTES);
        let needed = pieces.len() as u64 + 1;
        let cursor = self.at();
        let is_there = cursor.position.get() + needed <= cursor.limit.load(Ordering::Relaxed);
        if !is_there && !self.reserve(needed) {
            return false;
        }
        self.write(what(kind, series), time, bytes.len() as u64);
        for (number, piece) in (0..).zip(pieces) {
            let mut padded = [0; PIECE_BYTES];
            padded[..piece.len()].copy_from_slice(piece);
            let word =
                |at: usize| u64::from_le_bytes(padded[at..at + 8].try_into().expect("eight bytes"));
            self.write(what(kind::PIECE, number), word(0), word(8));
        }
        true
    }

    /// Ends a frame of a publication: publishes its marker and all that was put before.
    #[inline(always)]
    pub fn frame(&mut self, publication: u32, time: u64, number: u64) -> bool {
        let has_room = self.put(kind::FRAME, publication, time, number);
        self.commit();
        has_room
    }

    /// Publication and number of the frame that the last record ends; `None` if that is another
    /// record. It also sees frames that C programs end inline.
    pub fn frame_just_ended(&self) -> Option<(u32, u64)> {
        if !self.is_here() {
            return None;
        }
        let position = self.at().position.get().checked_sub(1)?;
        let place = (position & self.at().mask.get()) as usize;
        let at = self.place.records_at + place * RECORD_BYTES;
        // Only this thread writes here.
        let word = |word: usize| self.map.word(at + word * 8).load(Ordering::Relaxed);
        let what = word(0) as u32;
        let is_frame = what >> SERIES_MAX.count_ones() == u32::from(kind::FRAME);
        is_frame.then(|| (what & SERIES_MAX, word(2)))
    }

    /// Publishes all that was put.
    #[inline(always)]
    pub fn commit(&mut self) {
        if let Some(committed) = self.pointed(&self.at().committed) {
            publish(committed, self.at().position.get());
        }
    }

    /// The word to which a field of the cursor points; `None` in a child, whose cursor is zeros.
    #[inline(always)]
    #[expect(unsafe_code, reason = "the cursor has pointers, for C programs")]
    fn pointed(&self, field: &Cell<*const AtomicU64>) -> Option<&AtomicU64> {
        // SAFETY: null, or a word of `map`, which lives as long as this.
        unsafe { field.get().as_ref() }
    }

    /// Whether an agent wants to be woken for commits. Check it after a commit.
    #[inline(always)]
    pub fn is_agent_asleep(&self) -> bool {
        let asleep = self.pointed(&self.at().asleep);
        asleep.is_some_and(|asleep| asleep.load(Ordering::Relaxed) != 0)
    }

    /// Whether something was put that is not yet published.
    pub fn is_uncommitted(&self) -> bool {
        let committed = self.pointed(&self.at().committed);
        committed.is_some_and(|c| c.load(Ordering::Relaxed) != self.at().position.get())
    }

    /// Makes room for `records` records after the position.
    #[cold]
    pub fn reserve(&mut self, records: u64) -> bool {
        let capacity = self.place.records;
        if records > capacity / 2 || !self.map.is_ours() || self.map.is_retired() {
            return false;
        }
        let position = self.at().position.get();
        let committed = self.map.word(self.place.head_at + head::COMMITTED);
        if position.saturating_sub(committed.load(Ordering::Relaxed)) >= capacity / 4 {
            // A frame larger than the ring cannot appear as a whole.
            self.commit();
        }
        // A ring gets memory as it is used: each time as much again as it has, until it has all.
        let part = self.filled.min(capacity / RESERVED_PARTS);
        let mut limit = position + records.max(part);
        if self.overflow == OverflowPolicy::Block {
            let tail = self.map.word(self.place.head_at + head::TAIL);
            let end = tail.load(Ordering::Acquire).saturating_add(capacity);
            if position + records > end {
                self.commit();
                return false;
            }
            limit = limit.min(end);
        }
        if !self.fill(limit.min(capacity)) {
            self.commit();
            return false;
        }
        // Pairs with the reads of `IngestFile::drain`.
        announce(self.map.word(self.place.head_at + head::RESERVED), limit);
        self.at().limit.store(limit, Ordering::Relaxed);
        if self.map.is_retired() {
            // The file was given up meanwhile.
            self.at().limit.store(0, Ordering::Relaxed);
        }
        true
    }

    /// Ensures that the first `records` records have memory.
    fn fill(&mut self, records: u64) -> bool {
        if records <= self.filled {
            return true;
        }
        if self.patience > 0 {
            self.patience -= 1;
            return false;
        }
        let at = self.place.records_at + self.filled as usize * RECORD_BYTES;
        let bytes = (records - self.filled) as usize * RECORD_BYTES;
        match self.map.reserve(at, bytes) {
            Ok(()) => self.filled = records,
            Err(_) => self.patience = PUTS_BETWEEN_TRIES,
        }
        self.patience == 0
    }

    /// Counts a value that was dropped.
    pub fn drop_one(&mut self) {
        self.dropped += 1;
        self.set(head::DROPPED, self.dropped);
    }

    /// Number of values dropped in the life of this ring.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Stores a pair of clocks, for an agent that reads the ring much later.
    pub fn tell_time(&self, clock: &dyn Clock) {
        let pair = TickPair::take(clock);
        self.set(head::PAIR_TICKS, pair.ticks);
        self.set(head::PAIR_NS, pair.ns as u64);
        // With words of two pairs, the check does not match.
        self.set(head::PAIR_CHECK, pair.ticks ^ pair.ns as u64);
    }

    /// Longest text, byte string or array, in bytes: a quarter of the ring.
    pub fn blob_bytes_max(&self) -> usize {
        let quarter = self.place.records as usize / 4;
        BLOB_BYTES_MAX.min((quarter - 1) * PIECE_BYTES)
    }

    /// Number of records that a text, byte string or array takes.
    pub fn records_of(&self, bytes: usize) -> u64 {
        bytes.div_ceil(PIECE_BYTES) as u64 + 1
    }

    #[inline(always)]
    fn write(&mut self, what: u64, time: u64, payload: u64) {
        let cursor = self.at();
        let position = cursor.position.get();
        let at = self.place.records_at + (position & cursor.mask.get()) as usize * RECORD_BYTES;
        let words = self
            .map
            .words(at, 3)
            .expect("records lie in the file: checked when the ring was made");
        store(words, [position << 32 | what, time, payload]);
        cursor.position.set(position + 1);
    }

    fn set(&self, at: usize, value: u64) {
        if self.is_here() {
            self.map
                .set(self.place.head_at + at, value, Ordering::Relaxed);
        }
    }
}

fn cut(kind: u8, bytes: &[u8], bytes_max: usize) -> &[u8] {
    let is_middle = |at: &usize| bytes.get(*at).is_some_and(|b| b & 0xc0 == 0x80);
    let mut end = bytes.len().min(bytes_max);
    // A character has at most three bytes after its first; invalid UTF-8 is cut anywhere.
    if kind == kind::TEXT {
        let begins = |at: &usize| !is_middle(at);
        end = (end.saturating_sub(3)..=end)
            .rev()
            .find(begins)
            .unwrap_or(end);
    }
    &bytes[..end]
}

impl Drop for ThreadRing {
    fn drop(&mut self) {
        if !self.map.is_ours() {
            // In a child this is a copy: the ring belongs to the parent.
            return;
        }
        self.commit();
        self.map.set(
            self.place.head_at + head::STATE,
            ring_state::ENDED,
            Ordering::Release,
        );
    }
}

#[cfg(test)]
mod tests {
    //! The protocol under loom. The reader loads what `IngestFile` reads with `pread`.

    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU64 as LoomU64, fence};
    use loom::thread;

    const CAPACITY: u64 = 2;

    struct Memory {
        committed: LoomU64,
        reserved: LoomU64,
        records: Vec<LoomU64>,
    }

    impl Memory {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                committed: LoomU64::new(0),
                reserved: LoomU64::new(0),
                records: (0..3 * CAPACITY).map(|_| LoomU64::new(0)).collect(),
            })
        }

        fn slot(&self, position: u64) -> &[LoomU64] {
            let at = 3 * (position % CAPACITY) as usize;
            &self.records[at..at + 3]
        }

        /// Announces and writes the records, then publishes all of them at once.
        fn frame(&self, positions: std::ops::Range<u64>) {
            for position in positions.clone() {
                announce(&self.reserved, position + 1);
                store(self.slot(position), whole(position));
            }
            publish(&self.committed, positions.end);
        }
    }

    fn whole(position: u64) -> [u64; 3] {
        [position + 1, position + 10, position + 100]
    }

    /// Reads from `position` on; returns how many records were missed, and how many were read.
    fn read(memory: &Memory, position: u64) -> (u64, u64) {
        let committed = memory.committed.get(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let from = position.max(committed.saturating_sub(CAPACITY));
        let copies: Vec<[u64; 3]> = (from..committed)
            .map(|at| [0, 1, 2].map(|word| memory.slot(at)[word].get(Ordering::Relaxed)))
            .collect();
        fence(Ordering::Acquire);
        let reserved = memory.reserved.get(Ordering::Relaxed);
        let first = reserved.saturating_sub(CAPACITY).max(from).min(committed);
        for (at, copy) in (from..).zip(copies) {
            assert!(at < first || copy == whole(at), "{copy:?} at {at}");
        }
        (first - position, committed - first)
    }

    #[test]
    fn what_is_committed_is_whole_or_known_to_be_lost() {
        loom::model(|| {
            let memory = Memory::new();
            let writer = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    memory.frame(0..1);
                    memory.frame(1..2);
                    memory.frame(2..3);
                })
            };
            let (missed, seen) = read(&memory, 0);
            let (more_missed, more_seen) = read(&memory, missed + seen);
            writer.join().unwrap();
            let before = missed + seen + more_missed + more_seen;
            let (last_missed, last_seen) = read(&memory, before);
            assert_eq!(before + last_missed + last_seen, 3);
        });
    }

    #[test]
    fn a_frame_of_two_appears_at_once() {
        loom::model(|| {
            let memory = Memory::new();
            let writer = {
                let memory = Arc::clone(&memory);
                thread::spawn(move || {
                    memory.frame(0..2);
                    memory.frame(2..4);
                })
            };
            let (missed, seen) = read(&memory, 0);
            assert!((missed + seen) % 2 == 0, "half a frame");
            writer.join().unwrap();
        });
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let text = "aé€𝄞".as_bytes();
        let lengths = |bytes_max| cut(kind::TEXT, text, bytes_max).len();
        let cuts: Vec<_> = (0..=text.len() + 1).map(lengths).collect();
        assert_eq!(cuts, [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10]);
        assert_eq!(cut(kind::BYTES, text, 5).len(), 5);
        assert_eq!(cut(kind::TEXT, &[0x80; 9], 5).len(), 5);
    }
}
