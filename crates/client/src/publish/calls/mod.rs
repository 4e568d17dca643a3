//! What reaches this program while it runs: triggers, which run its handlers, and settings of its knobs.
//!
//! They come in a file that the agent writes and every process of the user maps. A thread that has nothing to do
//! finds that out by a load and a compare ([`CallsSeen`]); what is slower is here, under one lock. Frames ask the
//! clock now and then whether it is time to see if another file is there; polls do while there is none, and are told
//! by a file that has no future: its agent moves the word. Handlers run without the lock, one at a time and in the order of their calls, whichever thread polls.
//!
//! Order of locks: this one, then the one of `state`.

mod file;
mod inbox;
mod listen;
mod outbox;
mod who;

use std::collections::BTreeMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use barograph_model::{Clock as _, HELP_BYTES_MAX, Name};
use barograph_stream::SystemClock;
use barograph_stream::calls::{AckStatus, Call, CallKind, Subject};
use barograph_stream::ingest::{CallsSeen, Declaration};

use self::file::File;
use self::inbox::Inbox;
use self::listen::Listener;
use self::outbox::Outbox;
use self::who::Who;
use super::PublishError;
use super::knob::{self, Cell, Wanted};
use super::publisher::cut;
use super::state::{self, Pairs};
use super::thread;

pub(super) use listen::listen;

/// Triggers and knobs of a process, each.
pub(super) const DECLARED_MAX: usize = 1_024;
/// Calls that one poll handles, so that it ends however many come.
const CALLS_PER_POLL_MAX: usize = 256;
/// How often it is looked whether the file is there, or another one, in ns.
const LOOK_NS_MIN: i64 = 1_000_000_000;
/// How often a thread asks the clock whether that is due, in ns…
const ASK_NS: i64 = 500_000_000;
/// …and after so many polls and frames at the latest, should it become slower.
const LOOKS_MAX: i64 = 64;
/// Longest text that is kept of a handler's failure.
const FAILURE_BYTES_MAX: usize = 1_000;

/// What runs when a trigger is fired; an error is told to who fired.
pub type Handler = Box<dyn FnMut(&Call) -> Result<(), String> + Send>;

/// What threads look at while there is no file: moves with every declaration.
static EPOCH: AtomicU32 = AtomicU32::new(0);
static CLOCK: OnceLock<SystemClock> = OnceLock::new();
static HUB: Mutex<Hub> = Mutex::new(Hub::new());

/// All of the process's.
pub(super) struct Hub {
    /// Which opening of the publisher; 0 while nothing is declared.
    generation: u32,
    /// Another one with every opening and fork: who was in the middle of something then leaves it.
    life: u32,
    /// This is a child, and has declared nothing yet.
    is_forked: bool,
    triggers: BTreeMap<String, Trigger>,
    knobs: Vec<Knob>,
    /// This process as calls mean it; none before something is declared.
    subject: Option<Subject>,
    file: File,
    inbox: Inbox,
    outbox: Outbox,
    /// A thread runs handlers.
    is_running: bool,
    listener: Option<Listener>,
    /// Monotonic; when it was last looked for the file.
    looked_ns: Option<i64>,
    failure: Option<String>,
}

/// A name that is handled here.
struct Trigger {
    /// Calls from before are not for us. Ns since the epoch.
    since_ns: i64,
    /// Whose handler it is.
    owner: u64,
    /// Of the handler, among all.
    number: u64,
    /// None while it runs, and when its publisher was closed.
    handler: Option<Handler>,
}

/// A knob that is set here.
struct Knob {
    /// Its publication's name and its own.
    name: String,
    /// Of its publication.
    labels: Pairs,
    /// The process with these.
    subject: Option<Subject>,
    since_ns: i64,
    /// Of its stream.
    handle: u64,
    cell: &'static Cell,
}

/// What a thread does of what has come.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    All,
    Triggers,
}

pub(super) fn lock() -> MutexGuard<'static, Hub> {
    // What it guards is changed in steps that leave it whole.
    HUB.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clock() -> &'static SystemClock {
    CLOCK.get_or_init(SystemClock::new)
}

/// A number that nothing else has: for handlers, and for who declares them.
pub(super) fn new_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// Who declares something.
#[derive(Clone, Copy)]
pub(super) struct Declarer<'a> {
    pub generation: u32,
    pub owner: u64,
    pub application: &'a str,
    pub labels: &'a [(String, String)],
}

/// Has calls of a name handled; a handler that was there before gives way.
pub(super) fn on(
    by: Declarer<'_>,
    name: &str,
    help: &str,
    handler: Handler,
) -> Result<(), PublishError> {
    Name::new(name)?;
    let since_ns = clock().now_ns();
    let mut hub = lock();
    let ended = hub.belong_to(by.generation);
    let before = hub.declare_trigger(by, name, help, since_ns, handler);
    drop(hub);
    // Not under the lock: they are the program's, and may do anything when they are dropped.
    ended.finish();
    before.map(drop)
}

/// Has a value of the process's be a knob.
pub(super) fn knob(
    generation: u32,
    declaration: Declaration,
    full: &str,
    wanted: &Wanted,
) -> Result<&'static Cell, PublishError> {
    let since_ns = clock().now_ns();
    let mut hub = lock();
    let ended = hub.belong_to(generation);
    let declared = hub.declare_knob(declaration, full, wanted, since_ns);
    drop(hub);
    ended.finish();
    declared
}

/// Runs handlers, applies settings, and notes what was seen. Gives how many of both.
pub(super) fn poll(seen: &mut CallsSeen) -> usize {
    let hub = lock();
    if hub.is_idle() {
        hub.nothing_to_see(seen);
        return 0;
    }
    let (hub, looked, done) = run(hub, Part::All);
    // Who runs handlers takes what is left, too.
    let is_left = !hub.is_running && !hub.inbox.is_empty();
    hub.note(seen, looked.word, looked.value);
    seen.framed = looked.value;
    // Without a file every poll counts those until it is looked for one: with one it is but a load.
    seen.polled = if !is_left && !is_epoch(looked.word) {
        looked.value
    } else {
        looked.value.wrapping_sub(1)
    };
    done
}

/// Whether a word is what threads look at while there is no file.
#[inline]
pub(super) fn is_epoch(word: &AtomicU32) -> bool {
    std::ptr::eq(word, &raw const EPOCH)
}

/// Applies settings alone.
pub(super) fn apply(seen: &mut CallsSeen) -> usize {
    let mut hub = lock();
    if hub.is_idle() {
        hub.nothing_to_see(seen);
        return 0;
    }
    let looked = hub.look();
    let done = hub.apply_all();
    hub.flush();
    hub.note(seen, looked.word, looked.value);
    seen.framed = looked.value;
    done
}

/// A publisher goes, and its handlers with it.
pub(super) fn leave(generation: u32, owner: u64) {
    let mut hub = lock();
    if hub.generation != generation {
        return;
    }
    hub.flush();
    let of_owner = |t: &&mut Trigger| t.owner == owner;
    let triggers = hub.triggers.values_mut().filter(of_owner);
    let left = triggers.filter_map(|t| {
        // One that runs is not put back.
        t.number = new_number();
        t.handler.take()
    });
    let left: Vec<Handler> = left.collect();
    drop(hub);
    drop(left);
}

/// The last publisher of a generation goes.
pub(super) fn end(generation: u32) {
    let mut hub = lock();
    if hub.generation == generation {
        let ended = hub.belong_to(0);
        drop(hub);
        ended.finish();
    }
}

/// Calls that were written over before this process saw them.
pub(super) fn missed() -> u64 {
    lock().inbox.missed()
}

/// What the handler that failed last has said.
pub(super) fn failure() -> Option<String> {
    lock().failure.clone()
}

/// What a look has found.
struct Looked {
    word: &'static AtomicU32,
    value: u32,
}

/// Looks, and does what there is to do. The lock is given up while a handler runs.
fn run(mut hub: MutexGuard<'static, Hub>, part: Part) -> (MutexGuard<'static, Hub>, Looked, usize) {
    let mut looked = hub.look();
    let mut done = 0;
    if hub.is_running {
        // In the order of their calls: the other thread comes to them. Knobs do not wait for it.
        if part == Part::All {
            done = hub.apply_all();
        }
        hub.flush();
        return (hub, looked, done);
    }
    hub.is_running = true;
    let life = hub.life;
    while done < CALLS_PER_POLL_MAX
        && let Some(call) = hub.inbox.next(part == Part::Triggers)
    {
        done += 1;
        if call.kind == CallKind::Knob {
            hub.set(&call);
            continue;
        }
        hub = handle(hub, &call, life);
        if hub.life != life {
            // A child's, or another publisher's: nothing of it is ours.
            return (hub, looked, done);
        }
        hub.flush();
        looked = hub.look();
    }
    hub.is_running = false;
    hub.flush();
    (hub, looked, done)
}

/// Runs the handler of a call, and notes how it ended.
fn handle(mut hub: MutexGuard<'static, Hub>, call: &Call, life: u32) -> MutexGuard<'static, Hub> {
    if call.is_expired(clock().now_ns()) {
        hub.finish(call, AckStatus::Expired);
        return hub;
    }
    let trigger = hub.triggers.get_mut(&call.name);
    let taken = trigger.and_then(|t| Some((t.number, t.handler.take()?)));
    let Some((number, mut handler)) = taken else {
        hub.finish(call, AckStatus::Failed);
        hub.failure = Some(format!("{}: its publisher was closed", call.name));
        return hub;
    };
    drop(hub);
    // What a panic leaves behind is the handler's own.
    let ended = catch_unwind(AssertUnwindSafe(|| handler(call)));
    let failure = match ended {
        Ok(ended) => ended.err(),
        Err(panic) => Some(text_of(panic.as_ref())),
    };
    let mut hub = lock();
    let given_back = hub.give_back(&call.name, number, handler);
    if hub.life == life {
        let is_failed = failure.is_some();
        if let Some(text) = failure {
            let text = format!("{}: {text}", call.name);
            hub.failure = Some(cut(&text, FAILURE_BYTES_MAX).to_owned());
        }
        hub.finish(
            call,
            if is_failed {
                AckStatus::Failed
            } else {
                AckStatus::Done
            },
        );
    }
    if let Err(unwanted) = given_back {
        drop(hub);
        drop(unwanted);
        hub = lock();
    }
    hub
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic").to_owned()
}

/// What is left of an opening, to be ended without the lock.
#[must_use]
struct Ended {
    triggers: BTreeMap<String, Trigger>,
    listener: Option<Listener>,
}

impl Ended {
    fn finish(self) {
        if let Some(listener) = self.listener {
            listener.stop();
        }
        drop(self.triggers);
    }
}

impl Hub {
    const fn new() -> Self {
        Self {
            generation: 0,
            life: 0,
            is_forked: false,
            triggers: BTreeMap::new(),
            knobs: Vec::new(),
            subject: None,
            file: File::none(),
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            is_running: false,
            listener: None,
            looked_ns: None,
            failure: None,
        }
    }

    /// Nothing is declared: nothing can come.
    fn is_idle(&self) -> bool {
        self.triggers.is_empty() && self.knobs.is_empty()
    }

    /// In a child, right after the fork: what has come is the parent's.
    pub fn disown(&mut self) {
        self.life = self.life.wrapping_add(1);
        self.is_forked = self.generation != 0;
        self.is_running = false;
        self.inbox.forget();
        self.outbox.forget();
        self.looked_ns = None;
        // Its thread is not in this process.
        mem::forget(self.listener.take());
        EPOCH.fetch_add(1, Ordering::Release);
    }

    /// Takes up another generation; what was declared in the one before is given back.
    fn belong_to(&mut self, generation: u32) -> Ended {
        if self.generation == generation {
            return Ended {
                triggers: BTreeMap::new(),
                listener: None,
            };
        }
        let mut before = mem::replace(self, Self::new());
        self.generation = generation;
        self.life = before.life.wrapping_add(1);
        self.file = before.file;
        self.failure = before.failure.take();
        EPOCH.fetch_add(1, Ordering::Release);
        Ended {
            triggers: before.triggers,
            listener: before.listener,
        }
    }

    /// Gives the handler that was there before.
    fn declare_trigger(
        &mut self,
        by: Declarer<'_>,
        name: &str,
        help: &str,
        since_ns: i64,
        handler: Handler,
    ) -> Result<Option<Handler>, PublishError> {
        self.renew()?;
        if !self.triggers.contains_key(name) {
            let full = || PublishError::Full { name: name.into() };
            if self.triggers.len() >= DECLARED_MAX {
                return Err(full());
            }
            let help = cut(help, HELP_BYTES_MAX);
            state::lock().trigger(by.generation, by.application, by.labels, name, help)?;
        }
        self.know_ourselves()?;
        let number = new_number();
        let trigger = self.triggers.entry(name.to_owned()).or_insert(Trigger {
            since_ns,
            owner: by.owner,
            number,
            handler: None,
        });
        trigger.owner = by.owner;
        trigger.number = number;
        let before = trigger.handler.replace(handler);
        EPOCH.fetch_add(1, Ordering::Release);
        Ok(before)
    }

    fn declare_knob(
        &mut self,
        declaration: Declaration,
        full: &str,
        wanted: &Wanted,
        since_ns: i64,
    ) -> Result<&'static Cell, PublishError> {
        self.renew()?;
        let generation = self.generation;
        let (value, labels) = {
            let mut state = state::lock();
            let labels = state.labels_of(&declaration);
            (state.value(generation, declaration)?, labels)
        };
        let handle = thread::handle(generation, wanted.value_type() as u8, value);
        if let Some(known) = self.knobs.iter().find(|k| k.handle == handle) {
            known.cell.check_same(full, wanted)?;
            return Ok(known.cell);
        }
        if self.knobs.len() >= DECLARED_MAX {
            return Err(PublishError::Full { name: full.into() });
        }
        let cell = knob::cell(full, &labels, wanted)?;
        cell.begin(wanted);
        let (min, max) = wanted.bounds();
        state::lock().knob(generation, full, Declaration::Knob { value, min, max })?;
        self.outbox.put(self.knobs.len());
        self.knobs.push(Knob {
            name: full.to_owned(),
            labels,
            subject: None,
            since_ns,
            handle,
            cell,
        });
        self.know_ourselves()?;
        EPOCH.fetch_add(1, Ordering::Release);
        self.flush();
        Ok(cell)
    }

    /// Looks who this process is, for calls that are not for all.
    fn know_ourselves(&mut self) -> Result<(), PublishError> {
        let mut state = state::lock();
        let process = state.process(self.generation)?;
        let (application, labels) = state.process_labels();
        drop(state);
        self.file.look_for(&process.run_dir);
        let who = Who {
            incarnation: process.producer.incarnation(),
            application,
            labels,
            pid: std::process::id(),
            user: who::user_name(rustix::process::geteuid().as_raw()),
        };
        self.subject = Some(who.subject(&[]));
        for knob in &mut self.knobs {
            knob.subject = Some(who.subject(&knob.labels));
        }
        Ok(())
    }

    /// In a child that needs it: declares everything anew.
    fn renew(&mut self) -> Result<(), PublishError> {
        if !self.is_forked {
            return Ok(());
        }
        // Before others can know of the declarations.
        let now_ns = clock().now_ns();
        // This makes the file, with all of them in it.
        self.know_ourselves()?;
        self.is_forked = false;
        self.triggers.values_mut().for_each(|t| t.since_ns = now_ns);
        self.knobs.iter_mut().for_each(|k| k.since_ns = now_ns);
        (0..self.knobs.len()).for_each(|knob| self.outbox.put(knob));
        Ok(())
    }

    /// Takes what has come since the last look.
    fn look(&mut self) -> Looked {
        if self.renew().is_ok() {
            let now_ns = clock().monotonic_ns();
            if self.looked_ns.is_none_or(|at| now_ns - at >= LOOK_NS_MIN) {
                self.looked_ns = Some(now_ns);
                self.file.follow();
            }
        }
        // Before the calls: what comes after it is seen by the next look.
        let word = self.word();
        let value = word.load(Ordering::Acquire);
        if !self.is_forked {
            let (triggers, knobs) = (&self.triggers, &self.knobs);
            let us = self.subject.as_ref();
            let is_since = |t: &Trigger, call: &Call| call.issued_ns >= t.since_ns;
            let is_ours = |call: &Call| match call.kind {
                CallKind::Trigger => {
                    let trigger = triggers.get(&call.name);
                    trigger.is_some_and(|t| is_since(t, call))
                        && us.is_some_and(|us| call.target.matches(us))
                }
                CallKind::Knob => knobs.iter().any(|k| k.is_meant(call)),
            };
            self.inbox.take(&mut self.file, &mut self.outbox, &is_ours);
        }
        Looked { word, value }
    }

    fn word(&self) -> &'static AtomicU32 {
        match self.file.word() {
            Some(word) if !self.file.is_over() => word,
            _ => &EPOCH,
        }
    }

    fn apply_all(&mut self) -> usize {
        let mut done = 0;
        while let Some(call) = self.inbox.next_setting() {
            self.set(&call);
            done += 1;
        }
        done
    }

    /// Applies a setting to the knobs that are meant.
    fn set(&mut self, call: &Call) {
        let mut ended = AckStatus::Done;
        if call.is_expired(clock().now_ns()) {
            ended = AckStatus::Expired;
        } else {
            for (index, knob) in self.knobs.iter().enumerate() {
                if !knob.is_meant(call) {
                    continue;
                }
                if knob.cell.apply(&call.payload, call.version) {
                    self.outbox.put(index);
                } else {
                    ended = AckStatus::Refused;
                }
            }
        }
        self.finish(call, ended);
    }

    fn finish(&mut self, call: &Call, ended: AckStatus) {
        self.inbox.handled(call, ended);
        self.outbox.acknowledge(call.id, ended);
    }

    /// Says what there is to say, as far as it finds room.
    fn flush(&mut self) {
        if !self.is_forked && self.generation != 0 {
            let knobs = &self.knobs;
            let value_of = |knob: usize| {
                let knob = knobs.get(knob)?;
                Some((knob.handle, knob.cell.value_type() as u8, knob.cell.word()))
            };
            self.outbox.flush(self.generation, &value_of);
        }
    }

    /// Puts a handler back that has run, unless there is another by now.
    fn give_back(&mut self, name: &str, number: u64, handler: Handler) -> Result<(), Handler> {
        match self.triggers.get_mut(name) {
            Some(t) if t.number == number => {
                t.handler = Some(handler);
                Ok(())
            }
            _ => Err(handler),
        }
    }

    /// Tells a thread what to look at, and when to ask the clock again.
    fn note(&self, seen: &mut CallsSeen, word: &'static AtomicU32, value: u32) {
        if seen.word.is_none_or(|before| !std::ptr::eq(before, word)) {
            // It was of another word.
            seen.polled = value.wrapping_sub(1);
            seen.framed = value.wrapping_sub(1);
        }
        seen.word = Some(word);
        let now_ns = clock().monotonic_ns();
        let each_ns = (now_ns - seen.asked_ns) / i64::from(seen.step.max(1));
        let step = (ASK_NS / each_ns.max(1)).clamp(1, LOOKS_MAX);
        seen.step = step as u32;
        seen.left = seen.step;
        seen.asked_ns = now_ns;
    }

    /// Nothing is declared: the next declaration is what there is to see.
    fn nothing_to_see(&self, seen: &mut CallsSeen) {
        let value = EPOCH.load(Ordering::Acquire);
        *seen = CallsSeen {
            word: Some(&EPOCH),
            polled: value,
            framed: value,
            left: u32::MAX,
            ..CallsSeen::nothing()
        };
    }
}

impl Knob {
    fn is_meant(&self, call: &Call) -> bool {
        let us = self.subject.as_ref();
        self.name == call.name
            && call.issued_ns >= self.since_ns
            && us.is_some_and(|us| call.target.matches(us))
    }
}
