//! Names that were moved from somewhere, until it is known where to.

use std::collections::VecDeque;

use crate::directories::PathOf;
use crate::event::ObjectId;
use crate::scan::Name;

/// Most names that wait at a time. The kernel tells both halves of a move at once, so that more
/// than one wait only if several programs move at the same time.
const WAITING_MAX: usize = 64;

/// A name that was moved from somewhere.
#[derive(Debug)]
pub(super) struct Moved {
    pub(super) cookie: u32,
    pub(super) name: Name,
    /// The path when it was moved.
    pub(super) path: PathOf,
    pub(super) is_directory: bool,
    /// Time of the monotonic clock at which it counts as moved out of the tree, in ns.
    pub(super) until_ns: i64,
}

/// Names that were moved from somewhere, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Moves(VecDeque<Moved>);

impl Moves {
    /// Takes in a name; the one that it displaces has waited for long enough.
    pub(super) fn push(&mut self, moved: Moved) -> Option<Moved> {
        self.0.push_back(moved);
        match self.0.len() > WAITING_MAX {
            true => self.0.pop_front(),
            false => None,
        }
    }

    /// The name that was moved with this cookie.
    pub(super) fn take(&mut self, cookie: u32) -> Option<Moved> {
        let at = self.0.iter().position(|moved| moved.cookie == cookie)?;
        self.0.remove(at)
    }

    /// This name, if it waits.
    pub(super) fn take_name(&mut self, name: &Name) -> Option<Moved> {
        let at = self.0.iter().position(|moved| moved.name == *name)?;
        self.0.remove(at)
    }

    /// A name that was in this directory.
    pub(super) fn take_from(&mut self, dir: ObjectId) -> Option<Moved> {
        let at = self.0.iter().position(|moved| moved.name.dir == dir)?;
        self.0.remove(at)
    }

    /// A name whose time is over.
    pub(super) fn overdue(&mut self, now_ns: i64) -> Option<Moved> {
        match self.0.front() {
            Some(first) if first.until_ns <= now_ns => self.0.pop_front(),
            _ => None,
        }
    }

    /// Time at which the first one is overdue.
    pub(super) fn due_ns(&self) -> i64 {
        self.0.front().map_or(i64::MAX, |first| first.until_ns)
    }
}
