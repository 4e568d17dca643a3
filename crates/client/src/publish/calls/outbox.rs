//! The outbox: acknowledgements, and values of knobs, that the process has to put. They are put as
//! soon as the calling thread has room in its ring, without waiting for it.

use std::collections::VecDeque;

use barograph_stream::calls::AckStatus;
use barograph_stream::ingest::kind;

use crate::publish::thread;

/// Most acknowledgements that wait for room; beyond it the oldest are dropped: their calls expire.
const WAITING_MAX: usize = 2_048;

pub(super) struct Outbox {
    /// Id of the call, and its outcome.
    acknowledgements: VecDeque<(u64, AckStatus)>,
    /// Knobs whose value is to be put, by index.
    knobs: Vec<usize>,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self {
            acknowledgements: VecDeque::new(),
            knobs: Vec::new(),
        }
    }

    pub(super) fn forget(&mut self) {
        self.acknowledgements.clear();
        self.knobs.clear();
    }

    pub(super) fn acknowledge(&mut self, id: u64, status: AckStatus) {
        if self.acknowledgements.len() >= WAITING_MAX {
            self.acknowledgements.pop_front();
        }
        self.acknowledgements.push_back((id, status));
    }

    pub(super) fn put(&mut self, knob: usize) {
        if !self.knobs.contains(&knob) {
            self.knobs.push(knob);
        }
    }

    /// Puts what waits, values before acknowledgements, and commits it, unless the thread is in the
    /// middle of a frame: then it is published with that frame.
    pub(super) fn flush(
        &mut self,
        generation: u32,
        value_of: &dyn Fn(usize) -> Option<(u64, u8, u64)>,
    ) {
        if self.acknowledgements.is_empty() && self.knobs.is_empty() {
            return;
        }
        let is_in_frame = thread::is_uncommitted();
        let before = self.knobs.len() + self.acknowledgements.len();
        self.knobs.retain(|knob| match value_of(*knob) {
            Some((handle, kind, word)) => !thread::put_at_once(handle, kind, word),
            None => false,
        });
        // An acknowledgement never precedes a value that waits for room: a program that
        // sees that a knob was set must find its value.
        while let Some((id, status)) = self.acknowledgements.front()
            && self.knobs.is_empty()
        {
            let handle = thread::handle(generation, kind::ACK, *status as u32);
            if !thread::put_at_once(handle, kind::ACK, *id) {
                break;
            }
            self.acknowledgements.pop_front();
        }
        let is_said = self.knobs.len() + self.acknowledgements.len() < before;
        if is_said && !is_in_frame {
            thread::commit();
        }
    }
}
