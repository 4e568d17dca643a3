//! The queue between the sampler and the archive's thread: it is bounded, and the sampler never
//! waits for it.
//!
//! One lock guards a batch that the sampler fills and the writer swaps for an empty one. Under the
//! lock the sampler counts and copies; the writer only swaps.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::{Sample, Selector, StreamKey, VALUE_BYTES_MAX, Value};
use barograph_stream::Incarnation;

use crate::log::{BatchStream, JournalBatch, MARKS_MAX, NUMBER_MAX, RingMark};
use crate::{ArchiveConfig, ArchiveLosses, DeclaredStream};

/// Keys from this number on are not streams of a segment; the table of keys stays smaller.
const KEYS_MAX: u32 = barograph_stream::STREAMS_MAX;
/// Bound of a buffer: offsets into its texts have 32 bits.
const BYTES_MAX: usize = 1 << 30;
/// Most ranges of positions that are remembered because a durable sample was lost in them; beyond
/// it the two oldest are joined, so that too much rather than too little counts as lost.
const LOSSY_MAX: usize = 16;

/// One event of a stream, in order.
#[derive(Clone, Debug)]
pub enum JournalEntry {
    /// A stream is registered.
    Declare(StreamKey, DeclaredStream),
    /// A sample was appended; the `u64` is its number in its life, from 1.
    Sample(StreamKey, u64, Sample),
    /// A sample was appended that came from a record which a program put into a ring: the mark
    /// names the ring and the position up to which it was read with this sample. Both are in the
    /// log, or neither.
    Read(StreamKey, u64, Sample, RingMark),
    /// A stream was retired; its key may be used for another one.
    Retire(StreamKey),
    /// The rings of a program are gone: their marks need not be kept any more.
    Forget(Incarnation),
}

/// A position in the journal: the number of entries accepted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct JournalPosition(pub u64);

/// The sampler's side of the queue. A clone shares the queue.
#[derive(Clone)]
pub struct Journal {
    pub(crate) shared: Arc<SharedJournal>,
}

impl Journal {
    /// Returns a journal that has no writer yet: entries wait, as far as there is room, until a
    /// [`Keeper`](crate::Keeper) is started with it.
    pub fn new(config: &ArchiveConfig) -> Self {
        let shared = Arc::new(SharedJournal::new(config));
        Self { shared }
    }

    /// Returns the losses since this journal was made.
    pub fn lost(&self) -> ArchiveLosses {
        self.shared.lock().lost.clone()
    }

    /// Sets the reason why nothing is written at present, and its remedy. Samples that are lost
    /// meanwhile count as failed. The writer clears the reason when it has written.
    pub fn set_trouble(&self, trouble: &str) {
        trouble.clone_into(&mut self.shared.lock().trouble);
    }

    /// Takes the entries and leaves the vector empty with its capacity: one short lock, and no
    /// system call unless somebody waits. Samples beyond the bound are lost and counted;
    /// declarations and retirements never are.
    pub fn submit(&self, entries: &mut Vec<JournalEntry>) -> JournalPosition {
        let mut state = self.shared.lock();
        let before = state.call;
        for entry in entries.drain(..) {
            state.accepted += 1;
            match entry {
                JournalEntry::Declare(key, declared) => state.declare(&self.shared, key, declared),
                JournalEntry::Sample(key, number, sample) => {
                    state.sample(&self.shared, key, number, &sample, None);
                }
                JournalEntry::Read(key, number, sample, mark) => {
                    state.sample(&self.shared, key, number, &sample, Some(mark));
                }
                JournalEntry::Retire(key) => state.retire(key),
                JournalEntry::Forget(incarnation) => state.forget(incarnation),
            }
        }
        if state.pending.bytes() >= self.shared.bytes_max / 2 {
            state.call = FlushUrgency::Now;
        }
        let call = state.asleep && state.call > before;
        let position = JournalPosition(state.accepted);
        drop(state);
        if call {
            self.shared.wake.notify_one();
        }
        position
    }

    /// Whether nothing up to `position` waits for the disk any more: each durable sample is synced,
    /// or it is counted as lost and that count is synced.
    pub fn is_settled(&self, position: JournalPosition) -> bool {
        let state = self.shared.lock();
        state.ended || state.is_synced(position.0)
    }

    /// Waits until everything up to `position` that belongs to durable streams is synced (true), or
    /// the timeout has passed or the writer has failed (false). The result is also false, at once,
    /// if a durable sample that was submitted together with that position found no room.
    #[expect(
        clippy::disallowed_methods,
        reason = "a caller waits until its entries are synced"
    )]
    pub fn wait_durable(&self, position: JournalPosition, timeout: Duration) -> bool {
        let mut state = self.shared.lock();
        state.waiting += 1;
        let waited = self.shared.done.wait_timeout_while(state, timeout, |s| {
            !s.ended && !s.is_lost(position.0) && !s.is_synced(position.0)
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        !state.is_lost(position.0) && state.is_synced(position.0)
    }

    /// Whether a durable sample that was submitted together with that position found no room.
    pub fn is_lost(&self, position: JournalPosition) -> bool {
        self.shared.lock().is_lost(position.0)
    }

    /// Asks the writer to write at once, and waits until everything up to `position` is with the
    /// operating system (true), or the timeout has passed or the writer has failed (false).
    #[expect(
        clippy::disallowed_methods,
        reason = "a caller waits until its entries are written"
    )]
    pub fn wait_written(&self, position: JournalPosition, timeout: Duration) -> bool {
        self.shared.call_now();
        let mut state = self.shared.lock();
        state.waiting += 1;
        let waited = self
            .shared
            .done
            .wait_timeout_while(state, timeout, |s| !s.ended && s.written < position.0);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state.written >= position.0
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

/// The urgency with which the writer is needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FlushUrgency {
    /// At the end of the flush interval.
    #[default]
    Flush,
    /// At the end of the commit interval, in which a group of durable samples gathers.
    Commit,
    /// At once.
    Now,
}

/// The state that the sampler, the writer and the callers of `status` share.
pub(crate) struct SharedJournal {
    state: Mutex<JournalState>,
    /// Wakes the writer.
    wake: Condvar,
    /// Wakes the threads that wait for a write or a sync.
    pub done: Condvar,
    bytes_max: usize,
    durable: Vec<Selector>,
    leave_out: Vec<Selector>,
}

/// The state that the lock guards.
#[derive(Default)]
pub(crate) struct JournalState {
    /// The batch that waits for the writer.
    pub pending: JournalBatch,
    pub call: FlushUrgency,
    /// Whether the writer sleeps: only then a system call to wake it is useful.
    pub asleep: bool,
    /// Whether the writer is to finish.
    pub stop: bool,
    /// Whether the writer has finished.
    pub ended: bool,
    /// Number of entries accepted.
    accepted: u64,
    /// The position of the last durable sample.
    last_durable: u64,
    /// Position up to which all entries are written, and all durable samples synced.
    pub written: u64,
    /// Ranges of positions in which a durable sample was lost; the last one may reach to the end of
    /// `pending`.
    lossy: Vec<(u64, u64)>,
    /// Number of threads that wait for a write or a sync.
    pub waiting: usize,
    /// The handle of each key.
    keys: Vec<Handle>,
    /// The stream of each handle.
    streams: Vec<Slot>,
    pub free: Vec<u32>,
    /// Number of the pending batch: a slot's count from another batch is void.
    batch: u64,
    /// Whether the pending batch had no room for a sample. It then takes no other, so that the
    /// archived and the lost samples of a ring follow one another in order.
    is_full: bool,
    /// Positions of programs' rings up to which the log has their records, if samples were
    /// submitted before these positions were known.
    had: HashMap<(Incarnation, u32), u64>,
    /// The losses since the start.
    pub lost: ArchiveLosses,
    /// Size of the batch that the writer has taken, in bytes.
    pub writing_bytes: usize,
    /// The reason why nothing is written at present; empty if all is well.
    pub trouble: String,
}

/// The meaning of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Handle {
    /// No stream.
    #[default]
    None,
    /// A stream that is left out of the archive.
    LeftOut,
    /// An archived stream, by its index in `streams`.
    Of(u32),
}

#[derive(Debug)]
struct Slot {
    stream: Arc<BatchStream>,
    durable: bool,
    /// Number of its last sample that was accepted or lost.
    last: u64,
    /// The batch in which `waits` counts.
    batch: u64,
    /// Number of its samples in that batch.
    waits: u32,
    /// Index of its declaration in the pending batch.
    declared_at: Option<usize>,
}

/// Whether the log has the record that ends at this mark.
fn has(had: &HashMap<(Incarnation, u32), u64>, mark: &RingMark) -> bool {
    let to = had.get(&(mark.incarnation, mark.ring));
    to.is_some_and(|to| mark.position <= *to)
}

impl SharedJournal {
    pub(crate) fn new(config: &ArchiveConfig) -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
            bytes_max: config.buffer_bytes_max.min(BYTES_MAX),
            durable: config.durable.clone(),
            leave_out: config.leave_out.clone(),
        }
    }

    /// Locks the state. A thread that panicked while it held the lock left at worst a sample
    /// uncounted.
    pub(crate) fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how urgently the writer is needed, and whether it is to stop.
    pub(crate) fn urgency(&self) -> (FlushUrgency, bool) {
        let state = self.lock();
        (state.call, state.stop)
    }

    /// Waits until the urgency is another than was seen, at most so long; not at all if the time is
    /// not positive.
    #[expect(
        clippy::disallowed_methods,
        reason = "a caller waits until its entries are synced"
    )]
    pub(crate) fn wait(&self, at_most_ns: i64, seen: (FlushUrgency, bool)) {
        if at_most_ns <= 0 {
            return;
        }
        let at_most = Duration::from_nanos(at_most_ns.unsigned_abs());
        let mut state = self.lock();
        state.asleep = true;
        let waited = self
            .wake
            .wait_timeout_while(state, at_most, |state| (state.call, state.stop) == seen);
        waited.unwrap_or_else(PoisonError::into_inner).0.asleep = false;
    }

    /// Wakes the writer at once.
    pub(crate) fn call_now(&self) {
        self.lock().call = FlushUrgency::Now;
        self.wake.notify_one();
    }

    /// Makes the writer finish.
    pub(crate) fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_one();
    }
}

impl JournalState {
    fn declare(&mut self, shared: &SharedJournal, key: StreamKey, declared: DeclaredStream) {
        self.retire(key);
        let at = key.0 as usize;
        if key.0 >= KEYS_MAX {
            return;
        }
        if at >= self.keys.len() {
            self.keys.resize(at + 1, Handle::None);
        }
        let of = &declared.descriptor;
        let meant = |selectors: &[Selector]| {
            let mut selectors = selectors.iter();
            selectors.any(|selector| selector.matches(of.name.as_str(), &of.labels))
        };
        if meant(&shared.leave_out) {
            self.keys[at] = Handle::LeftOut;
            return;
        }
        let slot = Slot {
            durable: meant(&shared.durable),
            stream: Arc::new(BatchStream {
                id: of.series_id(),
                declared,
            }),
            last: 0,
            batch: self.batch,
            waits: 0,
            declared_at: Some(self.pending.declares.len()),
        };
        let stream = Arc::clone(&slot.stream);
        let handle = match self.free.pop() {
            Some(handle) => {
                self.streams[handle as usize] = slot;
                handle
            }
            None => {
                self.streams.push(slot);
                (self.streams.len() - 1) as u32
            }
        };
        self.pending.declares.push((handle, stream));
        self.keys[at] = Handle::Of(handle);
    }

    fn sample(
        &mut self,
        shared: &SharedJournal,
        key: StreamKey,
        number: u64,
        sample: &Sample,
        from: Option<RingMark>,
    ) {
        let handle = match self.keys.get(key.0 as usize) {
            Some(Handle::Of(handle)) => *handle,
            Some(Handle::LeftOut) => return,
            Some(Handle::None) | None => {
                self.pending.losses.failed_samples += 1;
                self.lost.failed_samples += 1;
                return;
            }
        };
        let slot = &mut self.streams[handle as usize];
        if slot.batch != self.batch {
            slot.batch = self.batch;
            slot.waits = 0;
        }
        let declared = &slot.stream.declared;
        let is_text = matches!(sample.value, Value::Text(_));
        let fits = sample.value.value_type() == declared.descriptor.value_type
            && (is_text || sample.value.bytes() <= VALUE_BYTES_MAX)
            && (slot.last + 1..=NUMBER_MAX).contains(&number);
        let room = !self.ended
            && self.pending.bytes() + JournalBatch::cost(sample, from) <= shared.bytes_max;
        slot.last = slot.last.max(number.min(NUMBER_MAX));
        if !self.had.is_empty() && from.is_some_and(|mark| has(&self.had, &mark)) {
            return;
        }
        if !fits || !room || self.is_full {
            let durable = slot.durable;
            self.is_full |= fits;
            self.lose(durable, fits);
            return;
        }
        slot.waits += 1;
        if slot.waits > declared.depth / 2 {
            self.call = FlushUrgency::Now;
        }
        if slot.durable {
            self.pending.durable = true;
            self.last_durable = self.accepted;
            self.call(FlushUrgency::Commit);
        }
        self.pending.push(handle, number, sample);
        if let Some(from) = from {
            self.pending.mark(from);
        }
    }

    /// Raises the urgency to at least `call`. The field is written only if it changes: this
    /// function runs for each sample, and reading a word right after one byte of it was written is
    /// slow.
    fn call(&mut self, call: FlushUrgency) {
        if self.call < call {
            self.call = call;
        }
    }

    fn lose(&mut self, durable: bool, fits: bool) {
        for losses in [&mut self.pending.losses, &mut self.lost] {
            // If nothing can be written, a full buffer is the disk's failure.
            if fits && self.trouble.is_empty() && !self.ended {
                losses.overflow_samples += 1;
            } else {
                losses.failed_samples += 1;
            }
        }
        if !durable {
            return;
        }
        // The count of losses is synced as the sample would have been: a loss that was reported
        // must not be undone by a kill.
        self.pending.durable = true;
        self.last_durable = self.accepted;
        self.call(FlushUrgency::Commit);
        // The range ends where the pending batch will end.
        if self.lossy.last().is_none_or(|last| last.1 != u64::MAX) {
            self.lossy.push((self.accepted, u64::MAX));
            if self.lossy.len() > LOSSY_MAX {
                let (from, _) = self.lossy.remove(0);
                self.lossy[0].0 = from;
            }
        }
    }

    fn retire(&mut self, key: StreamKey) {
        let Some(Handle::Of(handle)) = self.keys.get_mut(key.0 as usize).map(std::mem::take) else {
            return;
        };
        let slot = &mut self.streams[handle as usize];
        let waits = slot.batch == self.batch && slot.waits > 0;
        // Streams that come and go while nothing is written must not accumulate.
        if let Some(at) = slot.declared_at.filter(|_| !waits) {
            self.pending.declares.swap_remove(at);
            if let Some((moved, _)) = self.pending.declares.get(at) {
                self.streams[*moved as usize].declared_at = Some(at);
            }
            self.free.push(handle);
        } else {
            self.pending.retires.push(handle);
        }
    }

    /// While nothing is written, these must not accumulate either: at the next start the program is
    /// looked for again.
    fn forget(&mut self, incarnation: Incarnation) {
        self.had.retain(|(of, _), _| *of != incarnation);
        if self.pending.forgets.len() < MARKS_MAX {
            self.pending.forgets.push(incarnation);
        }
    }

    /// Starts the writing, by a writer that found these marks and losses in its log. Entries that
    /// were submitted before and that an earlier run of the agent already wrote to the log are not
    /// written again.
    pub(crate) fn begin(&mut self, marks: &[RingMark], losses: &ArchiveLosses) {
        (self.stop, self.ended) = (false, false);
        self.call = FlushUrgency::Now;
        self.pending.losses.add(losses);
        if self.accepted == 0 {
            // From now on the submitter knows the marks.
            return;
        }
        let places = marks.iter().map(|m| ((m.incarnation, m.ring), m.position));
        self.had = places.collect();
        let had = &self.had;
        self.pending.drop_records(|mark| has(had, mark));
    }

    fn is_lost(&self, position: u64) -> bool {
        let mut lossy = self.lossy.iter();
        lossy.any(|&(from, to)| (from..=to).contains(&position))
    }

    fn is_synced(&self, position: u64) -> bool {
        let wanted = if position >= self.last_durable {
            self.last_durable
        } else {
            position
        };
        self.written >= wanted
    }

    /// Swaps the pending batch for the empty one.
    pub(crate) fn take(&mut self, empty: &mut JournalBatch) {
        std::mem::swap(&mut self.pending, empty);
        empty.end = self.accepted;
        self.batch += 1;
        self.is_full = false;
        self.call = FlushUrgency::Flush;
        self.writing_bytes = empty.bytes();
        for (handle, _) in &empty.declares {
            self.streams[*handle as usize].declared_at = None;
        }
        if let Some((_, to)) = self.lossy.last_mut() {
            *to = (*to).min(self.accepted);
        }
    }
}
