//! The application's side of one ring: one thread writes, the agent reads whenever it likes.
//!
//! A record is written without a look at the reader. Before the writer enters a new part of the ring it
//! announces how far it may write (`RESERVED`); who reads looks at that after its copy, and knows which of
//! the records it has copied may have been written over meanwhile. What is whole is told by `COMMITTED`
//! alone, so that a frame appears at once, or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use barograph_model::Clock;

use super::layout::{
    BLOB_BYTES_MAX, PIECE_BYTES, RECORD_BYTES, RESERVED_PARTS, head, header, kind, ring_state, what,
};
use super::{Overflow, Pair};
use crate::map::Map;

/// Where a thread writes next: what a put needs, in one cache line. C programs have the same struct
/// (`baro_cursor` in `baro.h`) and put through it inline.
#[derive(Debug)]
#[repr(C)]
pub struct Cursor {
    /// The next record's position.
    pub position: u64,
    /// Up to here records may be written without asking.
    pub limit: u64,
    /// Records of the ring, less one.
    pub mask: u64,
    /// The first record.
    pub records: *const AtomicU64,
    /// Where commits are published.
    pub committed: *const AtomicU64,
    /// Not 0 while the agent wants to be told of commits.
    pub asleep: *const AtomicU64,
    /// Free for who holds the ring: by it a put knows whether its handle is of this ring's file.
    pub owner: u64,
}

/// A ring and the right to write it: for one thread at a time.
#[derive(Debug)]
pub struct ThreadRing {
    cursor: Cursor,
    map: Arc<Map>,
    head_at: usize,
    records_at: usize,
    overflow: Overflow,
    dropped: u64,
}

// SAFETY is not in question: the pointers of the cursor are only followed by C programs, which keep them to
// their thread; here the ring is reached through the map.
#[expect(unsafe_code, reason = "raw pointers are not Send by themselves")]
// SAFETY: they point into `map`, which lives as long as this and is `Send + Sync`.
unsafe impl Send for ThreadRing {}

impl ThreadRing {
    /// Takes over a ring that is free; its positions go on where the last thread left them.
    pub(super) fn new(
        map: Arc<Map>,
        head_at: usize,
        records_at: usize,
        ring_records: u64,
        overflow: Overflow,
        clock: &dyn Clock,
    ) -> Self {
        let position = map.word(head_at + head::COMMITTED).load(Ordering::Acquire);
        let dropped = map.word(head_at + head::DROPPED).load(Ordering::Relaxed);
        let cursor = Cursor {
            position,
            limit: position,
            mask: ring_records - 1,
            records: map.word(records_at),
            committed: map.word(head_at + head::COMMITTED),
            asleep: map.word(header::ASLEEP),
            owner: 0,
        };
        let ring = Self {
            cursor,
            map,
            head_at,
            records_at,
            overflow,
            dropped,
        };
        ring.tell_time(clock);
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        ring.set(head::THREAD, thread as u64);
        ring.set(head::STATE, ring_state::IN_USE);
        ring
    }

    /// What inline puts work on.
    pub fn cursor(&mut self) -> &mut Cursor {
        &mut self.cursor
    }

    /// Puts a value of eight bytes of a kind ([`kind`]) and series, created at `time` (as the file's time
    /// source counts). False when there was no room: try again later, or [`Self::drop_one`].
    #[inline(always)]
    pub fn put(&mut self, kind: u8, series: u32, time: u64, payload: u64) -> bool {
        if self.cursor.position >= self.cursor.limit && !self.reserve(1) {
            return false;
        }
        self.write(what(kind, series), time, payload);
        true
    }

    /// Puts a text, bytes or an array; at most [`BLOB_BYTES_MAX`], what is longer is cut.
    pub fn put_bytes(&mut self, kind: u8, series: u32, time: u64, bytes: &[u8]) -> bool {
        let bytes = &bytes[..bytes.len().min(self.blob_bytes_max())];
        let pieces = bytes.chunks(PIECE_BYTES);
        let needed = pieces.len() as u64 + 1;
        if self.cursor.position + needed > self.cursor.limit && !self.reserve(needed) {
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

    /// Ends a frame of a publication: the marker, and with it all that was put before, is published.
    #[inline(always)]
    pub fn frame(&mut self, publication: u32, time: u64, number: u64) -> bool {
        let has_room = self.put(kind::FRAME, publication, time, number);
        self.commit();
        has_room
    }

    /// Publishes what was put.
    #[inline(always)]
    pub fn commit(&mut self) {
        let committed = self.map.word(self.head_at + head::COMMITTED);
        committed.store(self.cursor.position, Ordering::Release);
    }

    /// Whether an agent wants to be told of what is committed. After a commit.
    #[inline(always)]
    pub fn is_agent_asleep(&self) -> bool {
        self.map.word(header::ASLEEP).load(Ordering::Relaxed) != 0
    }

    /// Makes room for so many records beyond the position.
    #[cold]
    pub fn reserve(&mut self, records: u64) -> bool {
        let capacity = self.cursor.mask + 1;
        if records > capacity / 2 {
            return false;
        }
        let position = self.cursor.position;
        let committed = self.map.word(self.head_at + head::COMMITTED);
        if position.saturating_sub(committed.load(Ordering::Relaxed)) >= capacity / 4 {
            // A frame larger than the ring cannot appear at once.
            self.commit();
        }
        let mut limit = position + records.max(capacity / RESERVED_PARTS);
        if self.overflow == Overflow::Block {
            let tail = self.map.word(self.head_at + head::TAIL);
            let end = tail.load(Ordering::Acquire).saturating_add(capacity);
            if position + records > end {
                self.commit();
                return false;
            }
            limit = limit.min(end);
        }
        self.set(head::RESERVED, limit);
        // The records are written after this is seen (pairs with the reads of `IngestFile::drain`).
        fence(Ordering::Release);
        self.cursor.limit = limit;
        true
    }

    /// Counts a value that was given up.
    pub fn drop_one(&mut self) {
        self.dropped += 1;
        self.set(head::DROPPED, self.dropped);
    }

    /// Values given up in the life of this ring.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Leaves a pair of clocks for who reads this after a long time.
    pub fn tell_time(&self, clock: &dyn Clock) {
        let pair = Pair::take(clock);
        self.set(head::PAIR_TICKS, pair.ticks);
        self.set(head::PAIR_NS, pair.ns as u64);
    }

    /// Longest text, bytes or array: a quarter of the ring.
    pub fn blob_bytes_max(&self) -> usize {
        let quarter = (self.cursor.mask + 1) as usize / 4;
        BLOB_BYTES_MAX.min((quarter - 1) * PIECE_BYTES)
    }

    /// Records that a text, bytes or array takes.
    pub fn records_of(&self, bytes: usize) -> u64 {
        bytes.div_ceil(PIECE_BYTES) as u64 + 1
    }

    #[inline(always)]
    fn write(&mut self, what: u64, time: u64, payload: u64) {
        let position = self.cursor.position;
        let at = self.records_at + (position & self.cursor.mask) as usize * RECORD_BYTES;
        let words = self
            .map
            .words(at, 3)
            .expect("records lie in the file: checked when the ring was made");
        words[0].store(position << 32 | what, Ordering::Relaxed);
        words[1].store(time, Ordering::Relaxed);
        words[2].store(payload, Ordering::Relaxed);
        self.cursor.position = position + 1;
    }

    fn set(&self, at: usize, value: u64) {
        self.map.set(self.head_at + at, value, Ordering::Relaxed);
    }
}

impl Drop for ThreadRing {
    fn drop(&mut self) {
        self.commit();
        self.map.set(
            self.head_at + head::STATE,
            ring_state::ENDED,
            Ordering::Release,
        );
    }
}
