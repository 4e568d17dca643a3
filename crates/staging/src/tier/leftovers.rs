//! What is to be removed from a store of objects, and was not yet: whoever serves a client does not
//! wait for a network to have something removed that is in force no longer.

use std::collections::VecDeque;

use crate::block::UserId;

/// Most objects that wait for their removal. Those beyond it stay, and are found by the next start.
const LEFTOVERS_MAX: usize = 1 << 16;

/// An object that is to be removed. Until then its room is taken.
pub(crate) struct Leftover {
    pub(crate) name: Box<str>,
    pub(crate) user: UserId,
    pub(crate) bytes: u64,
}

/// Objects that are to be removed, the oldest first.
#[derive(Default)]
pub(crate) struct Leftovers {
    queue: VecDeque<Leftover>,
    /// Objects that were taken out and are being removed.
    taken: usize,
    /// Objects for which there was no place.
    forgotten: u64,
}

impl Leftovers {
    pub(crate) fn push(&mut self, leftover: Leftover) {
        match self.queue.len() < LEFTOVERS_MAX {
            true => self.queue.push_back(leftover),
            false => self.forgotten += 1,
        }
    }

    /// Takes the oldest one out. It counts until [`Leftovers::end`].
    pub(crate) fn take(&mut self) -> Option<Leftover> {
        let leftover = self.queue.pop_front()?;
        self.taken += 1;
        Some(leftover)
    }

    /// Ends the removal of one, which comes back if it failed.
    pub(crate) fn end(&mut self, back: Option<Leftover>) {
        self.taken = self.taken.saturating_sub(1);
        if let Some(leftover) = back {
            self.queue.push_front(leftover);
        }
    }

    /// Whether nothing is left that a next start would find.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.taken == 0 && self.forgotten == 0
    }

    /// Whether there is something to take out.
    pub(crate) fn has_some(&self) -> bool {
        !self.queue.is_empty()
    }
}
