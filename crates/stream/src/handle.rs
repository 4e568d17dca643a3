//! A handle on one stream: the newest sample, scans of the ring, waiting.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use barograph_model::{Quality, Sample, Value, ValueType, text_start};
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::entry::{DirectoryEntry, ValueSlots};
use crate::layout::{CELL_BYTES, LINE_BYTES, TEXT_SLOT_BYTES, WAKE_BITS, header, state};
use crate::line::{
    self, CELL_WORDS, GENERATION_NEVER, LINE_WORDS, NewestCell, RawCell, ReadAttempt,
};
use crate::map::FileMap;

/// The newest sample of a stream, with its last look and its number.
#[derive(Clone, Debug, PartialEq)]
pub enum LatestSample {
    /// The stream has a sample.
    Sample {
        /// The newest sample: the last change.
        sample: Sample,
        /// Time of the last look at the resource, ns since the epoch: the value held at least until
        /// then.
        looked_ns: i64,
        /// Number of samples so far; the difference between two reads is the number of samples
        /// between.
        count: u64,
    },
    /// The stream is registered and has no sample yet. (Also returned if the writer overtook this
    /// reader tens of thousands of times in a row: a ring of two samples, or memory that no writer
    /// of ours wrote.)
    Empty,
    /// The stream has ended.
    Gone,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// There are samples beyond the given number.
    News,
    /// No sample came in time.
    TimedOut,
    /// The stream has ended.
    Gone,
    /// The agent has ended or was replaced.
    Closed,
}

/// The result of a scan of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingScan {
    /// Number of the last sample seen: pass it to the next scan.
    pub cursor: u64,
    /// Number of samples between the given cursor and the oldest one that the ring still held.
    pub lost: u64,
}

/// A handle on one stream: it is resolved once and then read without limit. Cheap to clone, `Send`
/// and `Sync`.
#[derive(Clone, Debug)]
pub struct StreamReader {
    map: Arc<FileMap>,
    line_at: usize,
    wake_bit: NonZeroU32,
    generation: u32,
    /// Offset of the number of the first sample.
    first_at: usize,
    ring_at: usize,
    text_at: usize,
    depth: u64,
    value_type: ValueType,
    slots: ValueSlots,
}

/// Lost races for the line's cells after which the ring is read instead: to win against that too, a
/// writer would have to go once round the ring during one copy.
const LINE_RACES_MAX: usize = 64;
/// Lost races after which a reader gives up. From `LINE_RACES_MAX` on it yields between two
/// attempts.
const RACES_MAX: usize = 1 << 16;
/// Pause between two looks where the system does not allow waiting on a futex.
const NO_FUTEX_PAUSE: Duration = Duration::from_millis(1);
/// Pause between two looks where the system can wait on one futex but not on several.
const NO_WAITV_PAUSE: Duration = Duration::from_millis(10);

impl StreamReader {
    /// Creates a handle on `entry`; its reads return [`LatestSample::Gone`] if the entry is not of
    /// the segment of `map` (`here` is false) or lies outside it.
    pub(crate) fn new(
        map: &Arc<FileMap>,
        (lines_at, first_at): (usize, usize),
        entry: &DirectoryEntry,
        here: bool,
    ) -> Self {
        let mut handle = Self {
            map: Arc::clone(map),
            line_at: lines_at.saturating_add(entry.slot.saturating_mul(LINE_BYTES)),
            wake_bit: NonZeroU32::new(1 << (entry.slot % WAKE_BITS)).expect("one bit is set"),
            generation: u32::from(entry.generation),
            first_at,
            ring_at: entry.ring_at,
            text_at: entry.text_at,
            depth: u64::from(entry.depth),
            value_type: entry.descriptor.value_type,
            slots: entry.slots,
        };
        // All accesses below rely on this check.
        let depth = entry.depth as usize;
        let inside = |at, bytes| map.words(at, bytes / 8).is_some();
        if !here
            || !inside(handle.line_at, LINE_BYTES)
            || !inside(handle.first_at, 8)
            || !inside(handle.ring_at, depth * CELL_BYTES)
            || !inside(handle.text_at, handle.slots_bytes())
        {
            handle.generation = GENERATION_NEVER;
            // Any valid words will do: none have this generation.
            (handle.line_at, handle.first_at) = (0, 0);
        }
        handle
    }

    /// Reads the newest sample.
    pub fn latest(&self) -> LatestSample {
        for race in 0..RACES_MAX {
            match self.attempt(race) {
                ReadAttempt::Gone => return LatestSample::Gone,
                ReadAttempt::Empty => return LatestSample::Empty,
                ReadAttempt::Raced => {}
                ReadAttempt::Sample(newest) => {
                    // A long value lies in the ring, where the writer can overtake the copy.
                    if let Some(sample) = self.decode(&newest) {
                        return LatestSample::Sample {
                            looked_ns: (newest.looked as i64).max(sample.ts),
                            sample,
                            count: newest.count,
                        };
                    }
                }
            }
            pause(race);
        }
        LatestSample::Empty
    }

    /// The newest value of a numeric stream and its time, without allocation: `(ts, value)`.
    #[inline]
    pub fn latest_f64(&self) -> Option<(i64, f64)> {
        let ReadAttempt::Sample(NewestCell { cell, .. }) = self.newest() else {
            return None;
        };
        let value = match self.value_type {
            ValueType::Float => f64::from_bits(cell[1]),
            ValueType::Int => cell[1] as i64 as f64,
            ValueType::Bool => f64::from(u8::from(cell[1] != 0)),
            _ => return None,
        };
        Some((cell[0] as i64, value))
    }

    /// Number of the newest sample, or `None` if the stream has ended. It is the number of samples
    /// so far, also of those before a mirror began.
    #[inline]
    pub fn count(&self) -> Option<u64> {
        let (generation, count) = line::split(self.line()[line::SEQUENCE].load(Ordering::Acquire));
        (generation == self.generation).then_some(count)
    }

    /// Number of the first sample that the ring has had. A mirror may begin in the middle of a
    /// stream's life.
    fn first(&self) -> u64 {
        self.map.word(self.first_at).load(Ordering::Relaxed)
    }

    /// The cursor of a reader that has seen the samples up to `cursor`. One that has seen none (0)
    /// begins where the ring began: what a mirror has never had is not lost.
    pub fn cursor_from(&self, cursor: u64) -> u64 {
        let count = self.count().unwrap_or_default();
        match cursor {
            0 => self.first().min(count).saturating_sub(1),
            cursor => cursor,
        }
    }

    /// Time of the last look at the resource, ns since the epoch; 0 if there was none, or if the
    /// stream has ended.
    pub fn looked_ns(&self) -> i64 {
        let looked = self.line()[line::LOOKED].load(Ordering::Acquire);
        self.count().map_or(0, |_| looked as i64)
    }

    /// Samples that the ring can hold.
    pub fn depth(&self) -> u64 {
        self.depth
    }

    /// The type of the stream's values.
    pub fn value_type(&self) -> ValueType {
        self.value_type
    }

    /// Appends the samples after number `cursor` to `out`, oldest first, as far as the ring holds
    /// them. `None` if the stream has ended.
    pub fn scan(&self, cursor: u64, out: &mut Vec<Sample>) -> Option<RingScan> {
        self.scan_some(cursor, u64::MAX, out)
    }

    /// Appends samples as [`Self::scan`] does, at most `limit` of them; the next call continues at
    /// the returned cursor.
    pub fn scan_some(&self, cursor: u64, limit: u64, out: &mut Vec<Sample>) -> Option<RingScan> {
        let base = out.len();
        let count = self.count()?;
        if cursor >= count {
            return Some(RingScan {
                cursor: count,
                lost: 0,
            });
        }
        // Another process has written it: no number is believed beyond what there is.
        let first = self.first().min(count);
        let oldest = line::oldest_whole(count, self.depth).max(first);
        let from = (cursor + 1).max(oldest);
        let last = count.min(from.saturating_add(limit) - 1);
        for number in from..=last {
            let cell = line::copy(self.ring_cell(number));
            // Samples that the writer overtook meanwhile are dropped below.
            out.push(self.sample_of(cell, number));
        }
        let Some(whole) = line::whole_since(self.line(), self.generation, self.depth) else {
            out.truncate(base);
            return None;
        };
        let first = whole.clamp(from, last + 1);
        out.drain(base..base + (first - from) as usize);
        Some(RingScan {
            cursor: last,
            lost: first - cursor - 1,
        })
    }

    /// Appends the last `limit` samples to `out`, oldest first. `None` if the stream has ended.
    pub fn tail(&self, limit: u64, out: &mut Vec<Sample>) -> Option<RingScan> {
        let count = self.count()?;
        self.scan(count.saturating_sub(limit), out)
    }

    /// Sleeps until there are samples beyond number `after`, at most `timeout`.
    #[expect(
        clippy::disallowed_methods,
        reason = "a wait ends by the system's clock"
    )]
    pub fn wait(&self, after: u64, timeout: Duration) -> WaitOutcome {
        let word = self.map.half_word(header::TICK);
        let started = Instant::now();
        loop {
            let seen = word.load(Ordering::Acquire);
            match self.count() {
                None => return WaitOutcome::Gone,
                Some(count) if count > after => return WaitOutcome::News,
                Some(_) => {}
            }
            if self.map.word(header::STATE).load(Ordering::Acquire) != state::LIVE {
                return WaitOutcome::Closed;
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return WaitOutcome::TimedOut;
            }
            sleep_on(word, seen, left, self.wake_bit);
        }
    }

    #[inline(always)]
    fn line(&self) -> &[AtomicU64] {
        self.map
            .words(self.line_at, LINE_WORDS)
            .expect("checked when the handle was made")
    }

    fn ring_cell(&self, number: u64) -> &[AtomicU64] {
        let index = ((number - 1) % self.depth) as usize;
        self.map
            .words(self.ring_at + index * CELL_BYTES, CELL_WORDS)
            .expect("checked when the handle was made")
    }

    #[inline(always)]
    fn newest(&self) -> ReadAttempt {
        match self.attempt(0) {
            ReadAttempt::Raced => self.newest_despite_writer(),
            settled => settled,
        }
    }

    #[cold]
    fn newest_despite_writer(&self) -> ReadAttempt {
        for race in 1..RACES_MAX {
            pause(race);
            let attempt = self.attempt(race);
            if attempt != ReadAttempt::Raced {
                return attempt;
            }
        }
        ReadAttempt::Raced
    }

    #[inline(always)]
    fn attempt(&self, race: usize) -> ReadAttempt {
        if race < LINE_RACES_MAX {
            line::read(self.line(), self.generation)
        } else {
            self.newest_of_ring()
        }
    }

    fn newest_of_ring(&self) -> ReadAttempt {
        let Some(count) = self.count() else {
            return ReadAttempt::Gone;
        };
        if count == 0 {
            return ReadAttempt::Empty;
        }
        let cell = line::copy(self.ring_cell(count));
        match line::whole_since(self.line(), self.generation, self.depth) {
            None => ReadAttempt::Gone,
            Some(whole) if whole <= count => ReadAttempt::Sample(NewestCell {
                cell,
                count,
                // The look in the line may already be that of a later sample.
                looked: cell[0],
            }),
            Some(_) => ReadAttempt::Raced,
        }
    }

    fn decode(&self, newest: &NewestCell) -> Option<Sample> {
        if self.slots == ValueSlots::None {
            return Some(self.sample_of(newest.cell, newest.count));
        }
        let sample = self.sample_of(newest.cell, newest.count);
        let whole = line::whole_since(self.line(), self.generation, self.depth)?;
        (whole <= newest.count).then_some(sample)
    }

    /// Decodes the sample of a cell. A value that fits no cell is read from its slot in the ring as
    /// it is now: the caller checks afterwards that it was whole.
    fn sample_of(&self, cell: RawCell, number: u64) -> Sample {
        let [ts, bits, meta] = cell;
        let value = match self.value_type {
            ValueType::Int => Value::Int(bits as i64),
            ValueType::Float => Value::Float(f64::from_bits(bits)),
            ValueType::Bool => Value::Bool(bits != 0),
            ValueType::Text | ValueType::Bytes | ValueType::Json | ValueType::Floats => {
                let length = match self.slots {
                    ValueSlots::Long(_) => usize::try_from(bits).unwrap_or(usize::MAX),
                    ValueSlots::Short | ValueSlots::None => usize::from((meta >> 40) as u8),
                };
                self.value_of(length, number)
            }
        };
        // A quality that a later version adds is at least not a measurement.
        let quality = Quality::from_u8((meta >> 32) as u8).unwrap_or(Quality::Reconciled);
        Sample {
            ts: ts as i64,
            value,
            quality,
            error: f32::from_bits(meta as u32),
        }
    }

    /// Reads the value in the slot of sample `number`, of `length` bytes but never more than the
    /// slot has.
    fn value_of(&self, length: usize, number: u64) -> Value {
        let bytes_max = self.slots.value_bytes_max() as usize;
        let length = length.min(bytes_max);
        let index = ((number - 1) % self.depth) as usize;
        let at = self.text_at + index * self.slots.slot_bytes() as usize;
        if self.value_type == ValueType::Floats {
            let words = self.map.words_out(at, length / 8);
            return Value::Floats(words.map(f64::from_bits).collect());
        }
        let mut short = [0u8; TEXT_SLOT_BYTES];
        let mut long = Vec::new();
        let bytes = match self.slots {
            ValueSlots::Long(_) => {
                long.resize(length, 0);
                &mut long[..]
            }
            ValueSlots::Short | ValueSlots::None => &mut short[..length],
        };
        self.map
            .copy_out(at, bytes)
            .expect("checked when the handle was made");
        if self.value_type == ValueType::Bytes {
            return Value::Bytes(Arc::from(&*bytes));
        }
        let text = String::from_utf8_lossy(bytes);
        let text = Arc::from(text_start(&text, bytes_max));
        match self.value_type {
            ValueType::Json => Value::Json(text),
            _ => Value::Text(text),
        }
    }

    fn slots_bytes(&self) -> usize {
        self.depth as usize * self.slots.slot_bytes() as usize
    }
}

/// Pauses between two attempts: first for a moment, later by yielding to other threads.
fn pause(race: usize) {
    if race < LINE_RACES_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Sleeps while `word` is `seen` or until someone wakes one of `bits`, at most `left`. It may end
/// early without a reason, so the caller looks again.
#[expect(
    clippy::disallowed_methods,
    reason = "readers sleep on a stream until it has news"
)]
pub(crate) fn sleep_on(word: &AtomicU32, seen: u32, left: Duration, bits: NonZeroU32) {
    // The system call takes an absolute time.
    let until = deadline(left);
    match futex::wait_bitset(word, futex::Flags::empty(), seen, Some(&until), bits) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
        // No futexes here (a sandbox): look at intervals instead.
        Err(_) => std::thread::sleep(left.min(NO_FUTEX_PAUSE)),
    }
}

/// Sleeps while every word has the given value, at most `left`: [`sleep_on`] for several words. It
/// looks at intervals instead where the kernel lacks `futex_waitv` (it came with Linux 5.16), or
/// where there are more words than it takes.
#[expect(
    clippy::disallowed_methods,
    reason = "readers sleep on a stream until it has news"
)]
pub(crate) fn sleep_on_any(words: &[(&AtomicU32, u32)], left: Duration) {
    let wait = |(word, seen): &(&AtomicU32, u32)| {
        let mut wait = futex::Wait::new();
        wait.uaddr = futex::WaitPtr::new(word.as_ptr().cast());
        wait.val = u64::from(*seen);
        wait.flags = futex::WaitFlags::SIZE_U32;
        wait
    };
    let waits: Vec<futex::Wait> = words.iter().map(wait).collect();
    let until = deadline(left);
    let flags = futex::WaitvFlags::empty();
    match futex::waitv(&waits, flags, Some(&until), ClockId::Monotonic) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
        Err(_) => std::thread::sleep(left.min(NO_WAITV_PAUSE)),
    }
}

/// Returns the time `left` from now, on the monotonic clock.
#[expect(
    clippy::disallowed_methods,
    reason = "readers sleep on a stream until it has news"
)]
fn deadline(left: Duration) -> Timespec {
    let now = clock_gettime(ClockId::Monotonic);
    let ns = now.tv_nsec + i64::from(left.subsec_nanos());
    let seconds = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
    Timespec {
        tv_sec: now
            .tv_sec
            .saturating_add(seconds)
            .saturating_add(ns / 1_000_000_000),
        tv_nsec: ns % 1_000_000_000,
    }
}
