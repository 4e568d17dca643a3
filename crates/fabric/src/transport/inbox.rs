//! Messages and events that wait at a node to be received. Both transports use it, so that both
//! have the same bounds.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{
    BYTES_WAITING_MAX, EVENTS_WAITING_MAX, MESSAGES_WAITING_MAX, SendFault, TransportCounts,
    TransportEvent,
};

/// The events and messages that wait at a node to be received.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    events: VecDeque<TransportEvent>,
    messages: VecDeque<(Arc<str>, Vec<u8>)>,
    waiting_bytes: usize,
    /// Counts of what was carried so far.
    pub(super) counts: TransportCounts,
}

impl Inbox {
    /// Adds an event other than a message.
    pub(super) fn report(&mut self, event: TransportEvent) {
        if self.events.len() < EVENTS_WAITING_MAX {
            self.events.push_back(event);
        } else {
            self.counts.events_lost += 1;
        }
    }

    /// Adds a message, if there is room for it.
    pub(super) fn take_in(&mut self, from: Arc<str>, message: Vec<u8>) -> Result<(), SendFault> {
        let bytes = self.waiting_bytes + message.len();
        if self.messages.len() >= MESSAGES_WAITING_MAX || bytes > BYTES_WAITING_MAX {
            return Err(SendFault::Full);
        }
        self.waiting_bytes = bytes;
        self.messages.push_back((from, message));
        Ok(())
    }

    /// Removes the next event: messages come last.
    pub(super) fn next(&mut self) -> Option<TransportEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let (from, bytes) = self.messages.pop_front()?;
        self.waiting_bytes -= bytes.len();
        self.counts.received += 1;
        Some(TransportEvent::Message { from, bytes })
    }
}
