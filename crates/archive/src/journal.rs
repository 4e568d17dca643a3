//! The hand-over from the sampler to the archive's thread: bounded, and never waited for.
//!
//! One lock guards a batch that the sampler fills and the writer swaps for an empty one. What the
//! sampler does under it is counting and copying; what the writer does is the swap.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barograph_model::{Descriptor, Sample, Selector, StreamKey, VALUE_BYTES_MAX, Value};
use barograph_stream::Incarnation;

use crate::log::{Batch, MARKS_MAX, Mark, NUMBER_MAX, Stream};
use crate::{ArchiveConfig, Losses};

/// Keys at and above this are not streams of a segment; a table is kept below it.
const KEYS_MAX: u32 = barograph_stream::STREAMS_MAX;
/// Places in a buffer's texts have 32 bits.
const BYTES_MAX: usize = 1 << 30;
/// Most stretches of positions that are remembered because something durable in them was lost;
/// beyond it the two oldest become one, so that too much rather than too little counts as lost.
const LOSSY_MAX: usize = 16;

/// One stream, as it is declared to the journal before its samples.
#[derive(Clone, Debug)]
pub struct Declared {
    /// What it is.
    pub descriptor: Arc<Descriptor>,
    /// When it was registered in the segment (`created_ns`).
    pub life: i64,
    /// Samples that its ring holds: the log must follow before they are gone.
    pub depth: u32,
}

/// What happened to a stream, in order.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A stream begins.
    Declare(StreamKey, Declared),
    /// A sample was appended, as the `u64`th of its life.
    Sample(StreamKey, u64, Sample),
    /// The same, and it came of a record that a program put into a ring: which ring, and up to where it was
    /// read with this sample. Both are in the log, or neither.
    Read(StreamKey, u64, Sample, Mark),
    /// A stream has ended; its key may be used for another.
    Retire(StreamKey),
    /// A program's rings are gone: how far they were read need not be known any more.
    Forget(Incarnation),
}

/// How far the journal has come: entries accepted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(pub u64);

/// The sampler's side. Cheap to clone.
#[derive(Clone)]
pub struct Journal {
    pub(crate) shared: Arc<Shared>,
}

impl Journal {
    /// A journal that nobody writes yet: what is submitted waits, as far as there is room, until a
    /// [`Keeper`](crate::Keeper) is started with it.
    pub fn new(config: &ArchiveConfig) -> Self {
        let shared = Arc::new(Shared::new(config));
        Self { shared }
    }

    /// What was lost since this journal was made.
    pub fn lost(&self) -> Losses {
        self.shared.lock().lost.clone()
    }

    /// Says why nothing is written just now, and what to do about it. What is lost meanwhile counts as failed.
    /// The writer takes it back when it has written.
    pub fn set_trouble(&self, trouble: &str) {
        trouble.clone_into(&mut self.shared.lock().trouble);
    }

    /// Takes the entries and leaves the vector empty with its capacity: one short lock, no system
    /// call unless somebody waits. Samples beyond the bound are lost and counted; declarations
    /// and ends never are.
    pub fn submit(&self, entries: &mut Vec<Entry>) -> Position {
        let mut state = self.shared.lock();
        let before = state.call;
        for entry in entries.drain(..) {
            state.accepted += 1;
            match entry {
                Entry::Declare(key, declared) => state.declare(&self.shared, key, declared),
                Entry::Sample(key, number, sample) => {
                    state.sample(&self.shared, key, number, &sample, None);
                }
                Entry::Read(key, number, sample, mark) => {
                    state.sample(&self.shared, key, number, &sample, Some(mark));
                }
                Entry::Retire(key) => state.retire(key),
                Entry::Forget(incarnation) => state.forget(incarnation),
            }
        }
        if state.pending.bytes() >= self.shared.bytes_max / 2 {
            state.call = Call::Now;
        }
        let call = state.asleep && state.call > before;
        let position = Position(state.accepted);
        drop(state);
        if call {
            self.shared.wake.notify_one();
        }
        position
    }

    /// Whether nothing up to `position` waits for the disk any more: each durable sample is synced, or it is
    /// counted as lost and that count is synced.
    pub fn is_settled(&self, position: Position) -> bool {
        let state = self.shared.lock();
        state.ended || state.is_synced(position.0)
    }

    /// Waits until everything up to `position` that belongs to durable streams is synced (true), or
    /// the timeout has passed or the writer has failed (false). It is also false, at once, when a
    /// durable sample that was submitted together with that position found no room.
    pub fn wait_durable(&self, position: Position, timeout: Duration) -> bool {
        let mut state = self.shared.lock();
        state.waiting += 1;
        let waited = self.shared.done.wait_timeout_while(state, timeout, |s| {
            !s.ended && !s.is_lost(position.0) && !s.is_synced(position.0)
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        !state.is_lost(position.0) && state.is_synced(position.0)
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

/// How urgently the writer is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    /// When the time to flush has come.
    #[default]
    Flush,
    /// When a group of durable samples has had time to gather.
    Commit,
    /// At once.
    Now,
}

/// What the sampler, the writer and those who ask how it is share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Wakes the writer.
    pub wake: Condvar,
    /// Wakes those who wait for a sync.
    pub done: Condvar,
    bytes_max: usize,
    durable: Vec<Selector>,
    leave_out: Vec<Selector>,
}

/// What the lock guards.
#[derive(Default)]
pub(crate) struct State {
    /// What waits for the writer.
    pub pending: Batch,
    pub call: Call,
    /// Whether the writer sleeps: only then is it worth a system call to wake it.
    pub asleep: bool,
    /// The writer is to finish.
    pub stop: bool,
    /// The writer has finished.
    pub ended: bool,
    /// Entries accepted.
    accepted: u64,
    /// The position of the last durable sample.
    last_durable: u64,
    /// Up to here all that is durable is synced.
    pub synced: u64,
    /// From where to where a durable sample was lost; the last may go up to the end of `pending`.
    lossy: Vec<(u64, u64)>,
    /// How many wait for a sync.
    pub waiting: usize,
    /// Handles of keys.
    keys: Vec<Handle>,
    /// By handle.
    streams: Vec<Slot>,
    /// Handles that are free.
    pub free: Vec<u32>,
    /// Counts the batches: what was counted in another batch counts no more.
    batch: u64,
    /// The pending batch had no room for a sample: it takes no other, so that what is in the log of a ring
    /// and what is counted as lost of it lie in one order.
    is_full: bool,
    /// How far programs' rings are in the log already, where samples were submitted before that was known.
    had: HashMap<(Incarnation, u32), u64>,
    /// What was lost since the start.
    pub lost: Losses,
    /// Bytes of the batch that the writer has.
    pub writing_bytes: usize,
    /// Why nothing is written just now.
    pub trouble: String,
}

/// What a key stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Handle {
    /// Nothing.
    #[default]
    None,
    /// A stream that is not archived.
    LeftOut,
    /// A stream.
    Of(u32),
}

#[derive(Debug)]
struct Slot {
    stream: Arc<Stream>,
    durable: bool,
    /// Its last number that was accepted or lost.
    last: u64,
    /// The batch that `waits` counts in.
    batch: u64,
    /// Its samples that wait.
    waits: u32,
    /// Where in the pending batch it is declared.
    declared_at: Option<usize>,
}

/// Whether a record up to this mark is in the log.
fn has(had: &HashMap<(Incarnation, u32), u64>, mark: &Mark) -> bool {
    let to = had.get(&(mark.incarnation, mark.ring));
    to.is_some_and(|to| mark.position <= *to)
}

impl Shared {
    pub fn new(config: &ArchiveConfig) -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            done: Condvar::new(),
            bytes_max: config.buffer_bytes_max.min(BYTES_MAX),
            durable: config.durable.clone(),
            leave_out: config.leave_out.clone(),
        }
    }

    /// The state; a thread that panicked while it held the lock left at worst a sample uncounted.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the writer at once.
    pub fn call_now(&self) {
        self.lock().call = Call::Now;
        self.wake.notify_one();
    }

    /// Tells the writer to finish.
    pub fn stop(&self) {
        self.lock().stop = true;
        self.wake.notify_one();
    }
}

impl State {
    fn declare(&mut self, shared: &Shared, key: StreamKey, declared: Declared) {
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
            stream: Arc::new(Stream {
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
        shared: &Shared,
        key: StreamKey,
        number: u64,
        sample: &Sample,
        from: Option<Mark>,
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
        let room =
            !self.ended && self.pending.bytes() + Batch::cost(sample, from) <= shared.bytes_max;
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
            self.call = Call::Now;
        }
        if slot.durable {
            self.pending.durable = true;
            self.last_durable = self.accepted;
            self.call(Call::Commit);
        }
        self.pending.push(handle, number, sample);
        if let Some(from) = from {
            self.pending.mark(from);
        }
    }

    /// Calls the writer at least so urgently. The field is written only where it changes: this is called for each
    /// sample, and reading a word right after one byte of it was written is slow.
    fn call(&mut self, call: Call) {
        if self.call < call {
            self.call = call;
        }
    }

    fn lose(&mut self, durable: bool, fits: bool) {
        for losses in [&mut self.pending.losses, &mut self.lost] {
            // A full buffer while nothing can be written is the disk's failure.
            if fits && self.trouble.is_empty() && !self.ended {
                losses.overflow_samples += 1;
            } else {
                losses.failed_samples += 1;
            }
        }
        if !durable {
            return;
        }
        // The count is synced as the sample would have been: who is told that it was lost is not told of a
        // loss that a kill takes back.
        self.pending.durable = true;
        self.last_durable = self.accepted;
        self.call(Call::Commit);
        // The stretch ends where the pending batch will.
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
        // Streams that come and go while nothing is written must not pile up.
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

    /// While nothing is written they must not pile up either: the next start is asked again.
    fn forget(&mut self, incarnation: Incarnation) {
        self.had.retain(|(of, _), _| *of != incarnation);
        if self.pending.forgets.len() < MARKS_MAX {
            self.pending.forgets.push(incarnation);
        }
    }

    /// A writer begins, which has found these marks and these losses. What was submitted before it came and is in
    /// its log by an earlier life of the agent is not written again.
    pub fn begin(&mut self, marks: &[Mark], losses: &Losses) {
        (self.stop, self.ended) = (false, false);
        self.call = Call::Now;
        self.pending.losses.add(losses);
        if self.accepted == 0 {
            // Whoever submits from now on has been told the marks.
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
        self.synced >= wanted
    }

    /// Swaps what waits for the empty batch.
    pub fn take(&mut self, empty: &mut Batch) {
        std::mem::swap(&mut self.pending, empty);
        empty.end = self.accepted;
        self.batch += 1;
        self.is_full = false;
        self.call = Call::Flush;
        self.writing_bytes = empty.bytes();
        for (handle, _) in &empty.declares {
            self.streams[*handle as usize].declared_at = None;
        }
        if let Some((_, to)) = self.lossy.last_mut() {
            *to = (*to).min(self.accepted);
        }
    }
}
