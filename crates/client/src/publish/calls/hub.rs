//! The hub: all that the process knows of calls, and the steps that are done under its lock.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering as Memory};

use barograph_model::{Clock as _, HELP_BYTES_MAX, text_start};
use barograph_stream::calls::{AckStatus, Call, CallKind, CallSubject};
use barograph_stream::ingest::{CallsSeen, IngestDeclaration};
use barograph_stream::user_name;

use super::file::File;
use super::identity::ProcessIdentity;
use super::inbox::Inbox;
use super::listen::Listener;
use super::outbox::Outbox;
use super::schedule::{FrameReached, Schedule};
use super::{Declarer, EPOCH, HandlerCode, new_number};
use crate::publish::PublishError;
use crate::publish::clock::clock;
use crate::publish::knob::{self, CheckedKnob, DECLARED_MAX, KnobCell};
use crate::publish::state::{self, Pairs};
use crate::publish::thread;

/// Time between two checks whether the file is there, or has been replaced, in ns.
const LOOK_NS_MIN: i64 = 1_000_000_000;
/// Time between two readings of the clock by a thread, in ns.
const ASK_NS: i64 = 500_000_000;
/// Most polls and frames between two readings of the clock, in case the thread becomes slower.
const LOOKS_MAX: i64 = 64;
/// Like `LOOKS_MAX`, for a program that declares no handler and no knob: it only checks its own
/// file.
const LOOKS_IDLE_MAX: i64 = 1_024;

/// The calls state of the process.
pub(in crate::publish) struct Hub {
    /// Number of the opening of the publisher; 0 while nothing is declared.
    pub(super) generation: u32,
    /// Changes with every opening and fork, so that a thread in the middle of a step can tell and
    /// stop.
    pub(super) life: u32,
    /// Whether this is a child that has not repeated its declarations yet.
    pub(super) is_forked: bool,
    /// Handlers by name, in the order of their declarations: one of the process, and one of each
    /// publication.
    pub(super) handlers: BTreeMap<String, Vec<DeclaredHandler>>,
    pub(super) knobs: Vec<Knob>,
    pub(super) file: File,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    /// Settings that wait for a frame.
    schedule: Schedule,
    /// Whether a thread runs handlers.
    pub(super) is_running: bool,
    pub(super) listener: Option<Listener>,
    /// Time of the last search for the file, on the monotonic clock.
    pub(super) looked_ns: Option<i64>,
    pub(super) failure: Option<String>,
}

/// A handler that the process or one of its publications has declared.
pub(super) struct DeclaredHandler {
    /// `None` for a handler of the process.
    publication: Option<u32>,
    /// Labels of the publication.
    labels: Pairs,
    /// The process with these labels; `None` before they are known.
    subject: Option<CallSubject>,
    /// Time of the declaration, ns since the epoch; earlier calls are not for this handler.
    since_ns: i64,
    /// Owner of the handler.
    pub(super) owner: u64,
    /// Number of the handler, unique in the process.
    pub(super) number: u64,
    /// `None` while it runs, and after its publisher was closed.
    pub(super) code: Option<HandlerCode>,
}

/// A knob that is declared here.
pub(super) struct Knob {
    /// Name of the publication and of the knob.
    name: String,
    /// Labels of the publication.
    labels: Pairs,
    /// The process with these labels.
    subject: Option<CallSubject>,
    since_ns: i64,
    handle: u64,
    /// Publication whose frames a setting may wait for.
    publication: Option<u32>,
    cell: &'static KnobCell,
}

/// Result of a look: the word and its value.
pub(super) struct CallsWord {
    pub(super) word: &'static AtomicU32,
    pub(super) value: u32,
}

/// The remains of an opening, to be ended without the lock.
#[must_use]
pub(super) struct EndedHub {
    handlers: BTreeMap<String, Vec<DeclaredHandler>>,
    listener: Option<Listener>,
}

impl EndedHub {
    pub(super) fn finish(self) {
        if let Some(listener) = self.listener {
            listener.stop();
        }
        drop(self.handlers);
    }
}

impl Hub {
    pub(super) const fn new() -> Self {
        Self {
            generation: 0,
            life: 0,
            is_forked: false,
            handlers: BTreeMap::new(),
            knobs: Vec::new(),
            file: File::none(),
            inbox: Inbox::new(),
            outbox: Outbox::new(),
            schedule: Schedule::new(),
            is_running: false,
            listener: None,
            looked_ns: None,
            failure: None,
        }
    }

    /// Whether nothing is declared, so that no call can come.
    pub(super) fn is_idle(&self) -> bool {
        self.handlers.is_empty() && self.knobs.is_empty()
    }

    /// Lets go of the calls in a child, right after the fork: they are the parent's.
    pub(in crate::publish) fn disown(&mut self) {
        self.life = self.life.wrapping_add(1);
        self.is_forked = self.generation != 0;
        self.is_running = false;
        self.inbox.forget();
        self.outbox.forget();
        self.schedule.forget();
        self.looked_ns = None;
        // The listener's thread does not exist in this process.
        mem::forget(self.listener.take());
        EPOCH.fetch_add(1, Memory::Release);
    }

    /// Changes to another generation; returns the declarations of the one before.
    pub(super) fn belong_to(&mut self, generation: u32) -> EndedHub {
        if self.generation == generation {
            return EndedHub {
                handlers: BTreeMap::new(),
                listener: None,
            };
        }
        let mut before = mem::replace(self, Self::new());
        self.generation = generation;
        self.life = before.life.wrapping_add(1);
        self.file = before.file;
        self.failure = before.failure.take();
        EPOCH.fetch_add(1, Memory::Release);
        EndedHub {
            handlers: before.handlers,
            listener: before.listener,
        }
    }

    /// Sets a handler and returns the one that was there before.
    pub(super) fn declare_handler(
        &mut self,
        by: Declarer<'_>,
        name: &str,
        help: &str,
        since_ns: i64,
        code: HandlerCode,
    ) -> Result<Option<HandlerCode>, PublishError> {
        self.renew()?;
        if self.handler_mut(name, by.publication).is_none() {
            if self.handlers.values().map(Vec::len).sum::<usize>() >= DECLARED_MAX {
                return Err(PublishError::Full { name: name.into() });
            }
            let help = text_start(help, HELP_BYTES_MAX);
            let labels = {
                let mut state = state::lock();
                let (application, of) = (by.application, by.publication);
                state.handler(by.generation, application, by.labels, of, name, help)?;
                of.map_or_else(Pairs::new, |of| state.labels_of(of))
            };
            let named = self.handlers.entry(name.to_owned()).or_default();
            named.push(DeclaredHandler {
                publication: by.publication,
                labels,
                subject: None,
                since_ns,
                owner: by.owner,
                number: 0,
                code: None,
            });
        }
        self.know_ourselves()?;
        let declared = self.handler_mut(name, by.publication);
        let Some(declared) = declared else {
            return Err(PublishError::Closed);
        };
        declared.owner = by.owner;
        declared.number = new_number();
        let before = declared.code.replace(code);
        EPOCH.fetch_add(1, Memory::Release);
        Ok(before)
    }

    fn handler_mut(
        &mut self,
        name: &str,
        publication: Option<u32>,
    ) -> Option<&mut DeclaredHandler> {
        let mut named = self.handlers.get_mut(name)?.iter_mut();
        named.find(|t| t.publication == publication)
    }

    /// The handlers that a call matches, in the order in which they run: publications, and `None`
    /// for the process.
    pub(super) fn meant(&self, call: &Call) -> Vec<Option<u32>> {
        let named = self.handlers.get(&call.name).map_or(&[][..], Vec::as_slice);
        let meant = named.iter().filter(|t| t.is_meant(call));
        meant.map(|t| t.publication).collect()
    }

    /// Takes a handler out to run it, and the number with which it is given back; `None` if it is
    /// gone.
    pub(super) fn take_handler(
        &mut self,
        name: &str,
        publication: Option<u32>,
    ) -> Option<(u64, HandlerCode)> {
        let declared = self.handler_mut(name, publication)?;
        Some((declared.number, declared.code.take()?))
    }

    pub(super) fn declare_knob(
        &mut self,
        declaration: IngestDeclaration,
        full: &str,
        wanted: &CheckedKnob,
        since_ns: i64,
    ) -> Result<&'static KnobCell, PublishError> {
        self.renew()?;
        let generation = self.generation;
        let publication = match &declaration {
            IngestDeclaration::Value { publication, .. } => Some(*publication),
            _ => None,
        };
        let (value, labels) = {
            let mut state = state::lock();
            let labels = publication.map_or_else(Pairs::new, |of| state.labels_of(of));
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
        state::lock().knob(
            generation,
            full,
            IngestDeclaration::Knob { value, min, max },
        )?;
        self.outbox.put(self.knobs.len());
        self.knobs.push(Knob {
            name: full.to_owned(),
            labels,
            subject: None,
            since_ns,
            handle,
            publication,
            cell,
        });
        self.know_ourselves()?;
        EPOCH.fetch_add(1, Memory::Release);
        self.flush();
        Ok(cell)
    }

    /// Determines the identity of this process, for calls with a target.
    fn know_ourselves(&mut self) -> Result<(), PublishError> {
        let mut state = state::lock();
        let process = state.process(self.generation)?;
        let (application, labels) = state.process_labels();
        drop(state);
        self.file.look_for(&process.run_dir);
        let who = ProcessIdentity {
            incarnation: process.producer.incarnation(),
            application,
            labels,
            pid: std::process::id(),
            user: user_name(rustix::process::geteuid().as_raw()),
        };
        // The agent learns of the declarations now, not only at the next put.
        process.tell_agent();
        for handler in self.handlers.values_mut().flatten() {
            handler.subject = Some(who.subject(&handler.labels));
        }
        for knob in &mut self.knobs {
            knob.subject = Some(who.subject(&knob.labels));
        }
        Ok(())
    }

    /// Repeats all declarations, in a child that needs it.
    fn renew(&mut self) -> Result<(), PublishError> {
        if !self.is_forked {
            return Ok(());
        }
        // Before others can know of the declarations.
        let now_ns = clock().now_ns();
        // This makes the file, with all declarations in it.
        self.know_ourselves()?;
        let _ = state::take_remade();
        self.is_forked = false;
        let handlers = self.handlers.values_mut().flatten();
        handlers.for_each(|t| t.since_ns = now_ns);
        self.knobs.iter_mut().for_each(|k| k.since_ns = now_ns);
        (0..self.knobs.len()).for_each(|knob| self.outbox.put(knob));
        Ok(())
    }

    /// Takes the calls that have come since the last look.
    pub(super) fn look(&mut self) -> CallsWord {
        // With another file this process is another callee.
        self.is_forked |= state::take_remade();
        if self.renew().is_ok() {
            let now_ns = clock().monotonic_ns();
            if self.looked_ns.is_none_or(|at| now_ns - at >= LOOK_NS_MIN) {
                self.looked_ns = Some(now_ns);
                self.file.follow();
            }
        }
        // Before the calls are read: a call that comes after it is seen by the next look.
        let word = self.word();
        let value = word.load(Memory::Acquire);
        if !self.is_forked {
            let (handlers, knobs, schedule) = (&self.handlers, &self.knobs, &self.schedule);
            let is_ours = |call: &Call| match call.kind {
                CallKind::Trigger => {
                    let named = handlers.get(&call.name);
                    named.is_some_and(|named| named.iter().any(|t| t.is_meant(call)))
                }
                CallKind::Knob => knobs.iter().any(|k| k.is_meant(call)) && !schedule.has(call),
            };
            self.inbox.take(&mut self.file, &mut self.outbox, &is_ours);
        }
        CallsWord { word, value }
    }

    fn word(&self) -> &'static AtomicU32 {
        match self.file.word() {
            Some(word) if !self.file.is_over() => word,
            _ => &EPOCH,
        }
    }

    pub(super) fn apply_all(&mut self) -> usize {
        let mut done = 0;
        while let Some(call) = self.inbox.next_setting() {
            self.set(&call);
            done += 1;
        }
        done
    }

    /// Applies a setting to the matching knobs, or keeps it for the frame that it names.
    pub(super) fn set(&mut self, call: &Call) {
        let mut ended = AckStatus::Done;
        if call.is_expired(clock().now_ns()) {
            ended = AckStatus::Expired;
        } else if call.at_frame.is_some() {
            let knobs = self.knobs.iter().enumerate();
            let meant = knobs.filter(|(_, knob)| knob.is_meant(call));
            if self
                .schedule
                .add(call, meant.map(|(index, _)| index).collect())
            {
                return;
            }
            ended = AckStatus::Refused;
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

    /// Applies the settings for a frame of a publication that has ended, if any, and gives up those
    /// that are too late.
    pub(super) fn reach(&mut self, ended: Option<(u32, u64)>) {
        if self.schedule.is_empty() {
            return;
        }
        let (knobs, outbox) = (&self.knobs, &mut self.outbox);
        let reached = |knob: usize, at_frame: u64| match ended {
            Some((of, number)) if knobs.get(knob).is_some_and(|k| k.publication == Some(of)) => {
                match number.cmp(&at_frame) {
                    Ordering::Less => FrameReached::NotYet,
                    Ordering::Equal => FrameReached::Now,
                    Ordering::Greater => FrameReached::TooLate,
                }
            }
            _ => FrameReached::NotYet,
        };
        let mut set = |knob: usize, call: &Call| match knobs.get(knob) {
            Some(k) if k.cell.apply(&call.payload, call.version) => {
                outbox.put(knob);
                AckStatus::Done
            }
            _ => AckStatus::Refused,
        };
        let now_ns = clock().now_ns();
        let decided = self.schedule.attend(now_ns, &reached, &mut set);
        for (call, status) in decided {
            self.finish(&call, status);
        }
    }

    /// The value that a thread that ends frames has seen: while settings wait for a frame, each
    /// frame must come here.
    pub(super) fn framed(&self, value: u32) -> u32 {
        match self.schedule.is_empty() {
            true => value,
            false => value.wrapping_sub(1),
        }
    }

    pub(super) fn finish(&mut self, call: &Call, ended: AckStatus) {
        self.inbox.handled(call, ended);
        self.outbox.acknowledge(call.id, ended);
    }

    /// Puts acknowledgements and values of knobs, as far as there is room.
    pub(super) fn flush(&mut self) {
        if !self.is_forked && self.generation != 0 {
            let knobs = &self.knobs;
            let value_of = |knob: usize| {
                let knob = knobs.get(knob)?;
                Some((knob.handle, knob.cell.value_type() as u8, knob.cell.word()))
            };
            self.outbox.flush(self.generation, &value_of);
        }
    }

    /// Puts a handler back that has run, unless it has been replaced meanwhile.
    pub(super) fn give_back(
        &mut self,
        name: &str,
        number: u64,
        code: HandlerCode,
    ) -> Result<(), HandlerCode> {
        let mut named = self.handlers.get_mut(name).into_iter().flatten();
        match named.find(|t| t.number == number) {
            Some(t) => {
                t.code = Some(code);
                Ok(())
            }
            None => Err(code),
        }
    }

    /// Sets the word that a thread looks at, and when it reads the clock again.
    pub(super) fn note(&self, seen: &mut CallsSeen, word: &'static AtomicU32, value: u32) {
        if seen.word.is_none_or(|before| !std::ptr::eq(before, word)) {
            // The values that it has seen were of another word.
            seen.polled = value.wrapping_sub(1);
            seen.framed = value.wrapping_sub(1);
        }
        seen.word = Some(word);
        pace(seen, LOOKS_MAX);
    }

    /// Makes a thread look for the next declaration: nothing is declared yet.
    pub(super) fn nothing_to_see(&self, seen: &mut CallsSeen) {
        let value = EPOCH.load(Memory::Acquire);
        seen.word = Some(&EPOCH);
        seen.polled = value;
        seen.framed = value;
        // By the clock, frames check whether the file needs attention.
        pace(seen, LOOKS_IDLE_MAX);
    }
}

/// Sets the number of frames, and of polls that look for a file, until the clock is read again.
fn pace(seen: &mut CallsSeen, looks_max: i64) {
    let now_ns = clock().monotonic_ns();
    let each_ns = (now_ns - seen.asked_ns) / i64::from(seen.step.max(1));
    let step = (ASK_NS / each_ns.max(1)).clamp(1, looks_max);
    seen.step = step as u32;
    seen.left = seen.step;
    seen.asked_ns = now_ns;
}

impl DeclaredHandler {
    /// Whether a call of this name matches the handler.
    fn is_meant(&self, call: &Call) -> bool {
        is_meant(self.subject.as_ref(), self.since_ns, call)
    }
}

impl Knob {
    fn is_meant(&self, call: &Call) -> bool {
        self.name == call.name && is_meant(self.subject.as_ref(), self.since_ns, call)
    }
}

/// Whether a call matches a subject that existed when it was issued.
fn is_meant(subject: Option<&CallSubject>, since_ns: i64, call: &Call) -> bool {
    call.issued_ns >= since_ns && subject.is_some_and(|us| call.target.matches(us))
}
