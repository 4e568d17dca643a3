//! The inbox: calls that have come and are not handled yet, and a memory of those that were, so
//! that none runs twice.

use std::collections::VecDeque;

use barograph_stream::calls::{AckStatus, Call, CallKind, NextCall};

use super::file::File;
use super::outbox::Outbox;

/// Most calls that wait for a poll; beyond it the oldest are dropped and counted.
const WAITING_MAX: usize = 1_024;
/// Most calls that are remembered: more than a file holds, so that a call that is read again is
/// recognized.
const HANDLED_MAX: usize = 1_024;
/// Most calls that one look takes, so that it ends even if they are written faster.
const TAKEN_MAX: usize = 1_024;

/// A call that was handled, and its outcome.
struct Handled {
    id: u64,
    issued_ns: i64,
    status: AckStatus,
}

pub(super) struct Inbox {
    waiting: VecDeque<Call>,
    handled: VecDeque<Handled>,
    /// The greatest id of those, whatever was forgotten since: a greater one is new.
    handled_id_max: u64,
    missed: u64,
}

impl Inbox {
    pub(super) const fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            handled: VecDeque::new(),
            handled_id_max: 0,
            missed: 0,
        }
    }

    /// Forgets everything: the calls are another process's.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.handled.clear();
        self.handled_id_max = 0;
        self.missed = 0;
    }

    /// Takes the new calls in the file that are for this process. Those that were handled already
    /// are acknowledged again.
    pub(super) fn take(
        &mut self,
        file: &mut File,
        outbox: &mut Outbox,
        is_ours: &dyn Fn(&Call) -> bool,
    ) {
        for _ in 0..TAKEN_MAX {
            match file.next() {
                NextCall::Call(call) => {
                    if is_ours(&call) {
                        self.admit(call, outbox);
                    }
                }
                NextCall::Missed(count) => self.missed = self.missed.saturating_add(count),
                NextCall::Nothing => return,
            }
        }
    }

    fn admit(&mut self, call: Call, outbox: &mut Outbox) {
        let is_same = |id: u64, issued_ns: i64| id == call.id && issued_ns == call.issued_ns;
        if call.id <= self.handled_id_max {
            let mut handled = self.handled.iter();
            if let Some(before) = handled.find(|h| is_same(h.id, h.issued_ns)) {
                outbox.acknowledge(call.id, before.status);
                return;
            }
        }
        if self.waiting.iter().any(|w| is_same(w.id, w.issued_ns)) {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
            self.missed = self.missed.saturating_add(1);
        }
        self.waiting.push_back(call);
    }

    /// The oldest waiting call, or the oldest that waits for a handler.
    pub(super) fn next(&mut self, is_for_handler: bool) -> Option<Call> {
        if !is_for_handler {
            return self.waiting.pop_front();
        }
        self.next_of(CallKind::Trigger)
    }

    /// The oldest waiting setting of a knob.
    pub(super) fn next_setting(&mut self) -> Option<Call> {
        self.next_of(CallKind::Knob)
    }

    fn next_of(&mut self, kind: CallKind) -> Option<Call> {
        let at = self.waiting.iter().position(|call| call.kind == kind)?;
        self.waiting.remove(at)
    }

    pub(super) fn handled(&mut self, call: &Call, status: AckStatus) {
        if self.handled.len() >= HANDLED_MAX {
            self.handled.pop_front();
        }
        self.handled_id_max = self.handled_id_max.max(call.id);
        self.handled.push_back(Handled {
            id: call.id,
            issued_ns: call.issued_ns,
            status,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn has_for_handlers(&self) -> bool {
        self.waiting.iter().any(|c| c.kind == CallKind::Trigger)
    }

    pub(super) fn missed(&self) -> u64 {
        self.missed
    }
}
