//! A thread and its ring: the put itself, and the slow path if it finds no room.

use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use barograph_stream::SystemClock;
use barograph_stream::ingest::{CallsSeen, RingCursor, ThreadRing, TimeSource, kind};

use super::process::Process;
use super::state::{self, LOST_WITHOUT_FILE};
use super::{PublishError, home, sizes};

/// Number of puts of a thread without a ring after which it asks for one again.
const PUTS_BETWEEN_REQUESTS: u32 = 1_024;
/// Number of bits of a series or publication in a handle; the kind is above them, the generation
/// above that.
const SERIES_BITS: u32 = 24;
const SERIES_MASK: u32 = (1 << SERIES_BITS) - 1;

thread_local! {
    static SEAT: RefCell<Seat> = const { RefCell::new(Seat::EMPTY) };
}

static HOOK: OnceLock<fn(*mut RingCursor)> = OnceLock::new();

/// Registers a hook that is called in every thread that gets a ring, with a cursor through which
/// other languages may put, and again with null when the ring goes. It is called only where records
/// are stamped by the processor's counter. The cursor belongs to the thread, and must not be used
/// after the call with null.
pub fn on_cursor(hook: fn(*mut RingCursor)) {
    // Under the lock that forks wait for.
    if let Ok(_state) = state::enter() {
        let _ = HOOK.set(hook);
    }
}

/// The state of a thread: its ring and clock.
struct Seat {
    ring: Option<ThreadRing>,
    time_source: TimeSource,
    clock: Option<SystemClock>,
    process: Weak<Process>,
    /// Number of puts until this thread asks for a ring again.
    patience: u32,
    /// Used while there is no ring; with a ring it is in the ring's cursor.
    calls: CallsSeen,
}

/// Content of a put.
#[derive(Clone, Copy)]
enum Content<'a> {
    Word(u64),
    Bytes(&'a [u8]),
}

/// Builds a handle: generation, kind, series.
pub(super) const fn handle(generation: u32, kind: u8, series: u32) -> u64 {
    (generation as u64) << 32 | (kind as u64) << SERIES_BITS | (series & SERIES_MASK) as u64
}

pub(super) const fn generation_of(handle: u64) -> u32 {
    (handle >> 32) as u32
}

pub(super) const fn series_of(handle: u64) -> u32 {
    handle as u32 & SERIES_MASK
}

const fn kind_of(handle: u64) -> u8 {
    (handle >> SERIES_BITS) as u8
}

/// The owner field in the cursor of a ring of this generation: a handle without its series and
/// kind. One comparison checks both the type of a put and its file.
const fn owner(generation: u32) -> u64 {
    (generation as u64) << (32 - SERIES_BITS)
}

/// Puts eight bytes.
#[inline(always)]
pub(super) fn put(handle: u64, kind: u8, word: u64) {
    if handle != 0 && !try_put(handle, kind, word) {
        let _ = put_slowly(handle, kind, Content::Word(word));
    }
}

/// Puts eight bytes if that takes no system call and no lock; returns false if nothing was put.
#[inline(always)]
pub fn try_put(handle: u64, kind: u8, word: u64) -> bool {
    let done = SEAT.try_with(|seat| {
        let mut seat = seat.try_borrow_mut().ok()?;
        let now = seat.now();
        let ring = seat.ring_of(handle, kind)?;
        ring.put(kind, series_of(handle), now, word).then_some(())
    });
    matches!(done, Ok(Some(())))
}

/// Puts a text, bytes, JSON or an array. An error is the reason why it was dropped; the loss is
/// counted.
pub fn put_bytes(handle: u64, kind: u8, bytes: &[u8]) -> Result<(), PublishError> {
    if handle == 0 {
        return Ok(());
    }
    put_slowly(handle, kind, Content::Bytes(bytes))
}

/// Ends a frame if that takes no system call and no lock; `None` if it has not ended. Returns
/// whether the agent wants to be woken, and whether [`apply_now`](super::poll::apply_now) is due,
/// which is reported once.
#[inline(always)]
pub fn try_frame(handle: u64, number: u64) -> Option<(bool, bool)> {
    let ended = SEAT.try_with(|seat| {
        let mut seat = seat.try_borrow_mut().ok()?;
        let now = seat.now();
        let ring = seat.ring_of(handle, kind::FRAME)?;
        let is_whole = ring.frame(series_of(handle), now, number);
        // Counted once per frame: a frame that was not completed comes again.
        is_whole.then(|| {
            let is_due = ring.calls().is_frame_due();
            (ring.is_agent_asleep(), is_due)
        })
    });
    ended.ok().flatten()
}

/// Publishes the puts of this thread.
#[inline(always)]
pub fn commit() {
    let is_agent_asleep = SEAT.try_with(|seat| {
        let mut seat = seat.try_borrow_mut().ok()?;
        let ring = seat.ring.as_mut()?;
        ring.commit();
        Some(ring.is_agent_asleep())
    });
    if matches!(is_agent_asleep, Ok(Some(true))) {
        tell_agent();
    }
}

/// Wakes the agent of this thread's ring, if it asks for it; for use after a commit through a
/// cursor.
#[cold]
pub fn tell_agent() {
    let process = SEAT.try_with(|seat| seat.try_borrow().ok()?.process.upgrade());
    if let Ok(Some(process)) = process
        && !process.tell_agent()
    {
        // Its directory may have been removed and made again.
        state::look_after();
    }
}

/// Whether a poll has anything to do or to look for.
#[inline(always)]
pub fn is_poll_due() -> bool {
    with_seat_calls(|calls| calls.is_poll_due()).unwrap_or(false)
}

/// Makes this thread's next poll and frame look at the calls in any case: something was declared.
pub(super) fn look_anew() {
    with_seat_calls(|calls| *calls = CallsSeen::nothing());
}

/// The position up to which this thread has seen the calls; kept in its cursor if it has one.
pub fn calls_seen() -> CallsSeen {
    with_seat_calls(|calls| *calls).unwrap_or(CallsSeen::nothing())
}

/// Whether the end of a frame has anything to do or to look for.
#[inline(always)]
pub(super) fn is_frame_due() -> bool {
    with_seat_calls(CallsSeen::is_frame_due).unwrap_or(false)
}

/// The publication and the number of the frame whose end is this thread's last record.
pub(super) fn frame_just_ended() -> Option<(u32, u64)> {
    let ended = SEAT.try_with(|seat| seat.try_borrow().ok()?.ring.as_ref()?.frame_just_ended());
    ended.ok().flatten()
}

/// The calls that this thread has seen; `None` while its seat is in use.
#[inline(always)]
pub(super) fn with_seat_calls<T>(work: impl FnOnce(&mut CallsSeen) -> T) -> Option<T> {
    let done = SEAT.try_with(|seat| Some(work(seat.try_borrow_mut().ok()?.calls())));
    done.ok().flatten()
}

/// Runs `work` with what this thread has seen of the calls; the seat is free meanwhile.
pub(super) fn with_calls(work: impl FnOnce(&mut CallsSeen) -> usize) -> usize {
    let Some(mut seen) = with_seat_calls(|calls| *calls) else {
        return 0;
    };
    let done = work(&mut seen);
    with_seat_calls(|calls| *calls = seen);
    done
}

/// Whether this thread has puts that are not published yet.
pub(super) fn is_uncommitted() -> bool {
    let found = SEAT.try_with(|seat| {
        let seat = seat.try_borrow().ok()?;
        Some(seat.ring.as_ref()?.is_uncommitted())
    });
    matches!(found, Ok(Some(true)))
}

/// Puts eight bytes if there is room now; returns false if not, without counting a loss.
pub(super) fn put_at_once(handle: u64, kind: u8, word: u64) -> bool {
    if home::enter().is_err() {
        return false;
    }
    let is_put = SEAT.try_with(|seat| {
        let mut seat = seat.try_borrow_mut().ok()?;
        let process = seat.sit(generation_of(handle)).ok()?;
        let time = process.now();
        let ring = seat.ring.as_mut()?;
        Some(ring.put(kind, series_of(handle), time, word))
    });
    matches!(is_put, Ok(Some(true)))
}

/// The file of a generation, which is made if there is none: without a lock once this thread has
/// seen it.
#[inline]
pub(super) fn process_of(generation: u32) -> Option<Arc<Process>> {
    seen_process(generation).or_else(|| find_process(generation))
}

/// Like [`process_of`], if there is a file already.
#[inline]
pub(super) fn existing_process_of(generation: u32) -> Option<Arc<Process>> {
    seen_process(generation).or_else(|| state::existing(generation))
}

#[inline]
fn seen_process(generation: u32) -> Option<Arc<Process>> {
    let seen = SEAT.try_with(|seat| seat.try_borrow().ok()?.process.upgrade());
    let is_usable =
        |process: &Arc<Process>| process.generation == generation && process.producer.is_usable();
    seen.ok().flatten().filter(is_usable)
}

#[cold]
fn find_process(generation: u32) -> Option<Arc<Process>> {
    let process = state::process(generation).ok()?;
    let _ = SEAT.try_with(|seat| {
        let mut seat = seat.try_borrow_mut().ok()?;
        // With a ring, it is the file of the ring.
        if seat.ring.is_none() {
            seat.process = Arc::downgrade(&process);
        }
        Some(())
    });
    Some(process)
}

/// Gives the ring back, with all its puts.
pub(super) fn leave() {
    let _ = SEAT.try_with(|seat| seat.try_borrow_mut().map(|mut seat| seat.leave()));
}

/// Lets go of the ring in a child, right after the fork: it is the parent's, and nothing is written
/// into it.
pub(super) fn disown() {
    let _ = SEAT.try_with(|seat| {
        if let Ok(mut seat) = seat.try_borrow_mut() {
            let parents = std::mem::replace(&mut *seat, Seat::EMPTY);
            std::mem::forget(parents);
            tell_hook(ptr::null_mut());
        }
    });
}

/// Ends a frame on the slow path.
pub(super) fn put_frame_slowly(handle: u64, number: u64) {
    let _ = put_slowly(handle, kind::FRAME, Content::Word(number));
}

#[cold]
fn put_slowly(handle: u64, kind: u8, content: Content<'_>) -> Result<(), PublishError> {
    let has_ring = SEAT.try_with(|seat| {
        let seat = seat.try_borrow().ok()?;
        seat.ring.as_ref().map(ThreadRing::is_here)
    });
    if !matches!(has_ring, Ok(Some(true))) {
        // Before the seat is taken: a child may have to leave it alone.
        home::enter()?;
    }
    let put = SEAT.try_with(|seat| match seat.try_borrow_mut() {
        Ok(mut seat) => seat.put_slowly(handle, kind, content),
        Err(_) => Err(Given::Up(PublishError::NoRoom)),
    });
    match put {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Given::Counted(why))) => Err(why),
        Ok(Err(Given::Up(why))) => {
            count_lost(handle);
            Err(why)
        }
        Err(_) => {
            count_lost(handle);
            Err(PublishError::NoRoom)
        }
    }
}

/// Counts a lost value of a thread that has no ring.
fn count_lost(handle: u64) {
    match state::process(generation_of(handle)) {
        Ok(process) => process.producer.count_homeless(1),
        Err(_) => {
            LOST_WITHOUT_FILE.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The reason why a value was dropped, and whether the loss has been counted.
enum Given {
    Counted(PublishError),
    Up(PublishError),
}

fn tell_hook(cursor: *mut RingCursor) {
    if let Some(hook) = HOOK.get() {
        hook(cursor);
    }
}

impl Seat {
    const EMPTY: Self = Self {
        ring: None,
        time_source: TimeSource::Counter,
        clock: None,
        process: Weak::new(),
        patience: 0,
        calls: CallsSeen::nothing(),
    };

    #[inline(always)]
    fn now(&self) -> u64 {
        match &self.clock {
            None => barograph_stream::ingest::ticks_now(),
            Some(clock) => self.time_source.now(clock),
        }
    }

    #[inline(always)]
    fn calls(&mut self) -> &mut CallsSeen {
        match &mut self.ring {
            Some(ring) if ring.is_here() => ring.calls(),
            _ => &mut self.calls,
        }
    }

    /// The ring, if it belongs to the handle's file and the handle has the kind of the put.
    #[inline(always)]
    fn ring_of(&mut self, handle: u64, kind: u8) -> Option<&mut ThreadRing> {
        let ring = self.ring.as_mut()?;
        let is_ours = handle >> SERIES_BITS == ring.owner() | u64::from(kind);
        is_ours.then_some(ring)
    }

    /// Puts on the slow path, after doing all that it takes.
    fn put_slowly(&mut self, handle: u64, kind: u8, content: Content<'_>) -> Result<(), Given> {
        if !is_of_type(kind_of(handle), kind, content) {
            return Err(Given::Up(PublishError::Type));
        }
        let process = self.sit(generation_of(handle)).map_err(Given::Up)?;
        let time = process.now();
        let no_room = || PublishError::NoRoom;
        let ring = self.ring.as_mut().ok_or_else(|| Given::Up(no_room()))?;
        let records = match content {
            Content::Word(_) => 1,
            Content::Bytes(bytes) => {
                let bytes = bytes.len();
                let bytes_max = match kind_of(handle) {
                    // The agent keeps the beginning of a longer text.
                    kind::TEXT => ring.blob_bytes_max(),
                    _ => sizes::of(series_of(handle)).min(ring.blob_bytes_max()),
                };
                if bytes > bytes_max {
                    return Err(Given::Up(PublishError::TooLong { bytes, bytes_max }));
                }
                ring.records_of(bytes)
            }
        };
        let put = |ring: &mut ThreadRing| match content {
            Content::Word(word) => ring.put(kind, series_of(handle), time, word),
            Content::Bytes(bytes) => ring.put_bytes(kind, series_of(handle), time, bytes),
        };
        if put(ring) || (process.wait_for_room(ring, records) && put(ring)) {
            return Ok(());
        }
        ring.drop_one();
        Err(Given::Counted(no_room()))
    }

    /// Makes sure that this thread has a ring in the file of this generation.
    fn sit(&mut self, generation: u32) -> Result<Arc<Process>, PublishError> {
        if let Some(ring) = &self.ring
            && ring.is_here()
            && !ring.is_retired()
            && let Some(process) = self.process.upgrade()
            && process.generation == generation
        {
            return Ok(process);
        }
        if self.patience > 0 && self.ring.is_none() {
            self.patience -= 1;
            return Err(PublishError::NoRoom);
        }
        let process = state::process(generation)?;
        self.leave();
        let Some(mut ring) = process.producer.thread(&process.clock) else {
            self.patience = PUTS_BETWEEN_REQUESTS;
            return Err(PublishError::NoRoom);
        };
        // It has seen nothing of another file's calls.
        *ring.calls() = CallsSeen::nothing();
        ring.set_owner(owner(generation));
        self.time_source = process.producer.time_source();
        self.clock = (self.time_source == TimeSource::Realtime).then_some(process.clock);
        self.process = Arc::downgrade(&process);
        let ring = self.ring.insert(ring);
        if self.time_source == TimeSource::Counter {
            tell_hook(ring.cursor());
        }
        Ok(process)
    }

    fn leave(&mut self) {
        let Some(mut ring) = self.ring.take() else {
            return;
        };
        if ring.is_here() {
            self.calls = *ring.calls();
        }
        tell_hook(ptr::null_mut());
        let process = self.process.upgrade();
        if let Some(process) = &process {
            ring.tell_time(&process.clock);
        }
        drop(ring);
        if let Some(process) = process {
            process.tell_agent();
        }
        self.process = Weak::new();
    }
}

impl Drop for Seat {
    /// Gives the ring back when the thread ends.
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whether a value of this type accepts this put.
fn is_of_type(declared: u8, kind: u8, content: Content<'_>) -> bool {
    match content {
        Content::Word(_) => declared == kind,
        // A value that is declared as text accepted all of these before they had types of their
        // own.
        Content::Bytes(_) => match declared {
            kind::TEXT => true,
            kind::BYTES => kind != kind::FLOATS,
            kind::JSON => matches!(kind, kind::JSON | kind::TEXT),
            _ => declared == kind,
        },
    }
}
