//! One bound on the memory that clients make a process hold, shared between them.
//!
//! The bound is a module of its own because all memory for answers, queries and bodies is claimed
//! here, whichever crate holds it: only a bound on the sum bounds the process.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The client that holds memory: a user's uid, [`CONTROL`] or [`UNKNOWN`].
pub type ClientNumber = u64;

/// Bytes of a piece of an answer: enough for the allocator to return its memory to the system at
/// once.
pub const PIECE_BYTES: usize = 256 << 10;
/// The client number of everyone who may control the process. Guests leave an eighth of the memory
/// to them.
pub const CONTROL: ClientNumber = u64::MAX;
/// The client number of everyone of whom nothing is known.
pub const UNKNOWN: ClientNumber = u64::MAX - 1;

/// Time that a claim sleeps while it waits for room, before it checks whether it is still wanted.
const WAIT: Duration = Duration::from_millis(20);

/// Bytes that may be held at once, by all clients together and by each.
#[derive(Debug)]
pub struct MemoryBudget {
    bytes_max: usize,
    held: Mutex<Held>,
    room: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    by_client: HashMap<ClientNumber, usize>,
    refused: u64,
}

impl MemoryBudget {
    /// Creates a budget of `bytes_max` bytes for all clients. One guest may hold at most three
    /// eighths of them, all guests together seven eighths.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            held: Mutex::default(),
            room: Condvar::new(),
        }
    }

    /// Returns a claim that holds no bytes yet.
    pub fn claim(self: &Arc<Self>, client: ClientNumber) -> MemoryClaim {
        MemoryClaim {
            budget: Arc::clone(self),
            client,
            bytes: 0,
        }
    }

    /// Bytes that are held now.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Number of claims that were refused for lack of room.
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    /// Most bytes that one guest may hold.
    pub fn bytes_max_of_one(&self) -> usize {
        3 * (self.bytes_max / 8)
    }

    /// Most bytes that `client` may hold, and most that all clients together may hold when it
    /// claims.
    fn bounds(&self, client: ClientNumber) -> (usize, usize) {
        match client {
            CONTROL => (self.bytes_max, self.bytes_max),
            _ => (self.bytes_max_of_one(), 7 * (self.bytes_max / 8)),
        }
    }

    fn has_room(&self, held: &Held, client: ClientNumber, more: usize) -> bool {
        let own = held.by_client.get(&client).copied().unwrap_or(0);
        let (own_max, all_max) = self.bounds(client);
        own.saturating_add(more) <= own_max && held.bytes.saturating_add(more) <= all_max
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // No code panics while it holds the lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that one piece of work holds; they are given back when the claim is dropped.
#[derive(Debug)]
pub struct MemoryClaim {
    budget: Arc<MemoryBudget>,
    client: ClientNumber,
    bytes: usize,
}

impl MemoryClaim {
    /// Claims `more` further bytes; returns whether there was room for them.
    #[must_use]
    pub fn grow(&mut self, more: usize) -> bool {
        let mut held = self.budget.lock();
        if !self.budget.has_room(&held, self.client, more) {
            held.refused += 1;
            return false;
        }
        add(&mut held, self.client, more);
        self.bytes += more;
        true
    }

    /// Claims like [`MemoryClaim::grow`], but waits for room as long as `go_on` returns true. A
    /// claim for more than its client may ever hold is refused at once.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "a reader's thread waits for memory"
    )]
    pub fn grow_when_there_is_room(&mut self, more: usize, go_on: &dyn Fn() -> bool) -> bool {
        let (own_max, _) = self.budget.bounds(self.client);
        let can_be = self.bytes.saturating_add(more) <= own_max;
        let mut held = self.budget.lock();
        while !self.budget.has_room(&held, self.client, more) {
            if !can_be || !go_on() {
                held.refused += 1;
                return false;
            }
            let waited = self.budget.room.wait_timeout(held, WAIT);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        add(&mut held, self.client, more);
        self.bytes += more;
        true
    }

    /// Claims bytes until at least `bytes` are held in all; returns whether there was room for
    /// them.
    #[must_use]
    pub fn reach(&mut self, bytes: usize) -> bool {
        bytes <= self.bytes || self.grow(bytes - self.bytes)
    }

    /// Gives back `bytes` bytes, or all if the claim holds fewer.
    pub fn give(&mut self, bytes: usize) {
        let given = bytes.min(self.bytes);
        if given == 0 {
            return;
        }
        let mut held = self.budget.lock();
        held.bytes -= given;
        if let Some(own) = held.by_client.get_mut(&self.client) {
            *own -= given;
            if *own == 0 {
                held.by_client.remove(&self.client);
            }
        }
        drop(held);
        self.bytes -= given;
        self.budget.room.notify_all();
    }

    /// Bytes that the claim holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn add(held: &mut Held, client: ClientNumber, more: usize) {
    held.bytes += more;
    *held.by_client.entry(client).or_default() += more;
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        self.give(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_holds_all_and_guests_leave_some_to_control() {
        let budget = Arc::new(MemoryBudget::new(800));
        let mut first = budget.claim(1);
        assert!(first.grow(200) && first.grow(100));
        assert!(!first.grow(1), "three eighths are a guest's share");
        assert!(!budget.claim(1).grow(1), "whichever claim it is");
        let (mut second, mut third) = (budget.claim(2), budget.claim(UNKNOWN));
        assert!(second.grow(300) && third.grow(100));
        assert!(!third.grow(1), "seven eighths are all guests'");
        let mut control = budget.claim(CONTROL);
        assert!(control.grow(100));
        assert!(!control.grow(1));
        assert_eq!((budget.bytes(), budget.refused()), (800, 4));
        drop((first, second, third, control));
        assert_eq!(budget.bytes(), 0);
        assert!(budget.lock().by_client.is_empty());
    }

    #[test]
    fn a_claim_waits_until_there_is_room() {
        let budget = Arc::new(MemoryBudget::new(800));
        let mut first = budget.claim(1);
        assert!(first.reach(300) && first.reach(200));
        assert_eq!(first.bytes(), 300);
        assert!(!budget.claim(1).grow_when_there_is_room(1, &|| false));
        // A claim that can never be met is refused at once.
        assert!(!budget.claim(1).grow_when_there_is_room(301, &|| true));
        assert!(!first.grow_when_there_is_room(1, &|| true));
        assert!(!budget.claim(CONTROL).grow_when_there_is_room(801, &|| true));
        let waiting = {
            let mut second = budget.claim(1);
            std::thread::spawn(move || second.grow_when_there_is_room(250, &|| true))
        };
        drop(first);
        assert!(waiting.join().unwrap());
    }
}
