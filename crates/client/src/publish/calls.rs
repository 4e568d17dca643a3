//! Calls to this program while it runs: calls of its handlers, and settings of its knobs.
//!
//! Calls come in a file that the agent writes and every process of the user maps. A thread that has
//! nothing to do finds that out by a load and a compare ([`CallsSeen`]); the slower work is here,
//! under one lock. Frames read the clock now and then to see whether it is time to check for
//! another file; polls do so only while there is no file, and otherwise learn it from the word,
//! which the agent changes in a file that it closes. Handlers run without the lock, one at a time
//! and in the order of their calls, whichever thread polls.
//!
//! Order of locks: this one, then the one of `state`.

mod file;
mod hub;
mod identity;
mod inbox;
mod listen;
mod outbox;
mod schedule;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use barograph_model::{Clock as _, Name, text_start};
use barograph_stream::calls::{AckStatus, Call, CallKind};
use barograph_stream::ingest::{CallsSeen, IngestDeclaration};

use self::hub::{CallsWord, DeclaredHandler};
use super::PublishError;
use super::clock::clock;
use super::knob::{CheckedKnob, KnobCell};
use super::{home, state};

pub(super) use hub::Hub;
pub(super) use listen::listen;

/// Most calls that one poll handles, so that it ends however many come.
const CALLS_PER_POLL_MAX: usize = 256;
/// Longest text that is kept of a handler's failure, in bytes.
const FAILURE_BYTES_MAX: usize = 1_000;

/// The code of a handler; its error is reported to the caller.
pub(super) type HandlerCode = Box<dyn FnMut(&Call) -> Result<(), String> + Send>;

/// The word that threads look at while there is no file: it changes with every declaration.
static EPOCH: AtomicU32 = AtomicU32::new(0);
static HUB: Mutex<Hub> = Mutex::new(Hub::new());

/// The part of the new calls that a thread handles.
#[derive(Clone, Copy, PartialEq)]
enum CallsPart {
    All,
    Handlers,
}

pub(super) fn lock() -> MutexGuard<'static, Hub> {
    // The hub is changed in steps that each leave it valid, so a poisoned lock can be used.
    HUB.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns `None` while another thread holds the lock.
pub(super) fn try_lock() -> Option<MutexGuard<'static, Hub>> {
    match HUB.try_lock() {
        Ok(hub) => Some(hub),
        Err(TryLockError::Poisoned(hub)) => Some(hub.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A number that is unique in the process: for handlers, and for those who declare them.
pub(super) fn new_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// The origin of a declaration.
#[derive(Clone, Copy)]
pub(super) struct Declarer<'a> {
    pub generation: u32,
    pub owner: u64,
    /// The publication; `None` for the process.
    pub publication: Option<u32>,
    pub application: &'a str,
    pub labels: &'a [(String, String)],
}

/// Sets the handler for calls of a name; it replaces the handler that the publication, or the
/// process, had for that name.
pub(super) fn on(
    by: Declarer<'_>,
    name: &str,
    help: &str,
    code: HandlerCode,
) -> Result<(), PublishError> {
    Name::new(name)?;
    home::enter()?;
    let since_ns = clock().now_ns();
    let mut hub = lock();
    let ended = hub.belong_to(by.generation);
    let before = hub.declare_handler(by, name, help, since_ns, code);
    drop(hub);
    // Not under the lock: these are the program's values, and dropping them may do anything.
    ended.finish();
    before.map(drop)
}

/// Declares that a value of the process is a knob.
pub(super) fn knob(
    generation: u32,
    declaration: IngestDeclaration,
    full: &str,
    wanted: &CheckedKnob,
) -> Result<&'static KnobCell, PublishError> {
    home::enter()?;
    let since_ns = clock().now_ns();
    let mut hub = lock();
    let ended = hub.belong_to(generation);
    let declared = hub.declare_knob(declaration, full, wanted, since_ns);
    drop(hub);
    ended.finish();
    declared
}

/// Runs handlers, applies settings, and notes how far this thread has seen the calls. Returns the
/// number of both.
pub(super) fn poll(seen: &mut CallsSeen) -> usize {
    if home::enter().is_err() {
        return 0;
    }
    state::look_after();
    let hub = lock();
    if hub.is_idle() {
        hub.nothing_to_see(seen);
        return 0;
    }
    let (hub, looked, done) = run(hub, CallsPart::All);
    // The thread that runs handlers takes the rest, too.
    let is_left = !hub.is_running && !hub.inbox.is_empty();
    hub.note(seen, looked.word, looked.value);
    seen.framed = hub.framed(looked.value);
    // Without a file every poll counts towards the next search for it: with a file a poll is only a
    // load.
    seen.polled = if !is_left && !is_epoch(looked.word) {
        looked.value
    } else {
        looked.value.wrapping_sub(1)
    };
    done
}

/// Whether a word is the one that threads look at while there is no file.
#[inline]
pub(super) fn is_epoch(word: &AtomicU32) -> bool {
    std::ptr::eq(word, &raw const EPOCH)
}

/// Applies settings only; `ended` is the publication and the number of the frame that this thread
/// has just ended.
pub(super) fn apply(seen: &mut CallsSeen, ended: Option<(u32, u64)>) -> usize {
    if home::enter().is_err() {
        return 0;
    }
    state::look_after();
    let mut hub = lock();
    if hub.is_idle() {
        hub.nothing_to_see(seen);
        return 0;
    }
    let looked = hub.look();
    let done = hub.apply_all();
    hub.reach(ended);
    hub.flush();
    hub.note(seen, looked.word, looked.value);
    seen.framed = hub.framed(looked.value);
    done
}

/// Removes the handlers of a publisher that is dropped.
pub(super) fn leave(generation: u32, owner: u64) {
    if home::enter().is_err() {
        return;
    }
    let mut hub = lock();
    if hub.generation != generation {
        return;
    }
    let is_last = state::lock().is_last(generation);
    let listener = if is_last { hub.listener.take() } else { None };
    drop(hub);
    if let Some(listener) = listener {
        // The listener ends the call that it is in, and answers it.
        listener.stop();
    }
    let mut hub = lock();
    if hub.generation != generation {
        return;
    }
    hub.flush();
    let of_owner = |t: &&mut DeclaredHandler| t.owner == owner;
    let handlers = hub.handlers.values_mut().flatten().filter(of_owner);
    let left = handlers.filter_map(|t| {
        // A handler that is running is not put back.
        t.number = new_number();
        t.code.take()
    });
    let left: Vec<HandlerCode> = left.collect();
    drop(hub);
    drop(left);
}

/// Ends a generation with its last publisher.
pub(super) fn end(generation: u32) {
    let mut hub = lock();
    if hub.generation == generation {
        let ended = hub.belong_to(0);
        drop(hub);
        ended.finish();
    }
}

/// Number of calls that were overwritten before this process saw them.
pub(super) fn missed() -> u64 {
    home::enter().map_or(0, |()| lock().inbox.missed())
}

/// Message of the handler that failed last.
pub(super) fn failure() -> Option<String> {
    home::enter().ok()?;
    lock().failure.clone()
}

/// Looks for calls and handles them. The lock is released while a handler runs.
fn run(
    mut hub: MutexGuard<'static, Hub>,
    part: CallsPart,
) -> (MutexGuard<'static, Hub>, CallsWord, usize) {
    let mut looked = hub.look();
    let mut done = 0;
    // Settings that have expired while they waited for a frame.
    hub.reach(None);
    if hub.is_running {
        // Calls are handled in their order: the other thread will come to them. Knobs do not wait
        // for it.
        if part == CallsPart::All {
            done = hub.apply_all();
        }
        hub.flush();
        return (hub, looked, done);
    }
    hub.is_running = true;
    let life = hub.life;
    while done < CALLS_PER_POLL_MAX
        && let Some(call) = hub.inbox.next(part == CallsPart::Handlers)
    {
        done += 1;
        if call.kind == CallKind::Knob {
            hub.set(&call);
            continue;
        }
        hub = handle(hub, &call, life);
        if hub.life != life {
            // Another life has begun, a child's or another publisher's: nothing here is ours.
            return (hub, looked, done);
        }
        hub.flush();
        looked = hub.look();
    }
    hub.is_running = false;
    hub.flush();
    (hub, looked, done)
}

/// Runs the handlers of a call, one after the other, and notes its outcome: failed if one of them
/// has.
fn handle(mut hub: MutexGuard<'static, Hub>, call: &Call, life: u32) -> MutexGuard<'static, Hub> {
    if call.is_expired(clock().now_ns()) {
        hub.finish(call, AckStatus::Expired);
        return hub;
    }
    let meant = hub.meant(call);
    let mut ended = match meant.is_empty() {
        true => AckStatus::Failed,
        false => AckStatus::Done,
    };
    for publication in meant {
        let failure;
        (hub, failure) = run_handler(hub, call, publication);
        if hub.life != life {
            return hub;
        }
        if let Some(text) = failure {
            let text = format!("{}: {text}", call.name);
            hub.failure = Some(text_start(&text, FAILURE_BYTES_MAX).to_owned());
            ended = AckStatus::Failed;
        }
    }
    hub.finish(call, ended);
    hub
}

/// Runs the handler that the process or a publication has for a call, without the lock. Returns the
/// reason if it failed.
fn run_handler(
    mut hub: MutexGuard<'static, Hub>,
    call: &Call,
    publication: Option<u32>,
) -> (MutexGuard<'static, Hub>, Option<String>) {
    let Some((number, mut code)) = hub.take_handler(&call.name, publication) else {
        return (hub, Some("its publisher was closed".to_owned()));
    };
    drop(hub);
    // State that a panic leaves behind is the handler's own.
    let ended = catch_unwind(AssertUnwindSafe(|| code(call)));
    let failure = match ended {
        Ok(ended) => ended.err(),
        Err(panic) => Some(text_of(panic.as_ref())),
    };
    let mut hub = lock();
    if let Err(unwanted) = hub.give_back(&call.name, number, code) {
        drop(hub);
        drop(unwanted);
        hub = lock();
    }
    (hub, failure)
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic").to_owned()
}
