//! The order in which several archives delete history when space runs out: guests first, beginning
//! with the one that has the most bytes; the node's own only when no guest has anything left.
//!
//! This module stands alone because archives that one process writes share a file system and know
//! nothing of one another, and each would delete its own history for what another one has written.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::NS_PER_S;

/// Longest turn of an archive that deletes nothing; after it the archive is passed over, as unable
/// to.
const TURN_NS_MAX: i64 = 60 * NS_PER_S;
/// Time without a request after which a shortage is over, and a turn from then does not count for
/// the next one. Archives ask every few seconds while there is a shortage.
const ASKED_NS_MAX: i64 = 30 * NS_PER_S;

/// Rank of an archive: whose history it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArchiveRank {
    /// The node's own history, which is deleted last.
    #[default]
    Own,
    /// History of what programs publish.
    Guest,
}

/// The archives that are written by one process.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    archives: BTreeMap<u64, Known>,
}

/// State of one archive.
#[derive(Clone, Copy, Debug)]
struct Known {
    rank: ArchiveRank,
    /// Device of its file system, if known.
    device: Option<u64>,
    /// Bytes that it could delete.
    bytes: u64,
    /// Bytes that it deleted and that are not free yet.
    waiting: u64,
    turn: Option<Turn>,
}

/// The turn of an archive to delete history.
#[derive(Clone, Copy, Debug)]
struct Turn {
    since_ns: i64,
    /// Time at which an archive last asked whose turn it is.
    asked_ns: i64,
    /// Bytes that the archive could delete when the turn began.
    bytes: u64,
}

/// The place of one archive among its neighbours, for as long as it is written.
#[derive(Debug)]
pub(crate) struct NeighbourPlace {
    all: Neighbours,
    id: u64,
}

impl Neighbours {
    pub(crate) fn join(&self, rank: ArchiveRank, root: &Path) -> NeighbourPlace {
        let device = std::fs::metadata(root).ok().map(|metadata| metadata.dev());
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        let known = Known {
            rank,
            device,
            bytes: 0,
            waiting: 0,
            turn: None,
        };
        state.archives.insert(id, known);
        drop(state);
        let all = self.clone();
        NeighbourPlace { all, id }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of the lock can leave a half-written value behind.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NeighbourPlace {
    /// Sets how many bytes this archive could delete, and how many of the deleted ones are not free
    /// yet.
    pub(crate) fn tell(&self, bytes: u64, waiting: u64) {
        if let Some(own) = self.all.lock().archives.get_mut(&self.id) {
            (own.bytes, own.waiting) = (bytes, waiting);
        }
    }

    /// Returns the bytes that the other archives on this file system deleted and that are not free
    /// yet.
    pub(crate) fn waiting(&self) -> u64 {
        let state = self.all.lock();
        let others = state.nearby(self.id).filter(|(id, _)| *id != self.id);
        others.fold(0, |sum, (_, known)| sum.saturating_add(known.waiting))
    }

    /// Whether it is this archive's turn to delete history, when the file system has too little
    /// room.
    pub(crate) fn is_to_give(&self, now_ns: i64) -> bool {
        let mut state = self.all.lock();
        let mut nearby: Vec<(u64, Known)> = state.nearby(self.id).collect();
        // Guests come first, the largest of them at the head.
        nearby.sort_by_key(|(id, known)| {
            (known.rank == ArchiveRank::Own, u64::MAX - known.bytes, *id)
        });
        for (id, known) in nearby {
            if id == self.id {
                return true;
            }
            if known.bytes > 0 && !state.has_had_its_turn(id, now_ns) {
                return false;
            }
        }
        true
    }

    /// Returns how many bytes this archive is to delete of those that all guests together have
    /// beyond a bound: the largest guest that can delete takes all of it.
    pub(crate) fn beyond(&self, bytes_max: u64, now_ns: i64) -> u64 {
        let mut state = self.all.lock();
        let all = state.archives.iter();
        let guests = all.filter(|(_, known)| known.rank == ArchiveRank::Guest);
        let mut guests: Vec<(u64, u64)> = guests.map(|(id, known)| (known.bytes, *id)).collect();
        let sum = guests
            .iter()
            .fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
        let beyond = sum.saturating_sub(bytes_max);
        if beyond == 0 {
            return 0;
        }
        guests.sort_by_key(|(bytes, id)| (u64::MAX - bytes, *id));
        for (bytes, id) in guests {
            if id == self.id {
                return beyond;
            }
            if bytes > 0 && !state.has_had_its_turn(id, now_ns) {
                return 0;
            }
        }
        0
    }
}

impl Drop for NeighbourPlace {
    fn drop(&mut self) {
        self.all.lock().archives.remove(&self.id);
    }
}

impl State {
    /// Notes that it is the turn of an archive; returns whether it has been for so long that others
    /// continue without it.
    fn has_had_its_turn(&mut self, id: u64, now_ns: i64) -> bool {
        let Some(known) = self.archives.get_mut(&id) else {
            return true;
        };
        let bytes = known.bytes;
        let is_same = |turn: &Turn| {
            bytes >= turn.bytes && now_ns.saturating_sub(turn.asked_ns) < ASKED_NS_MAX
        };
        let turn = known.turn.filter(is_same).unwrap_or(Turn {
            since_ns: now_ns,
            asked_ns: now_ns,
            bytes,
        });
        known.turn = Some(Turn {
            asked_ns: now_ns,
            ..turn
        });
        now_ns.saturating_sub(turn.since_ns) >= TURN_NS_MAX
    }

    /// Returns the archives on the same file system as this one, which is included.
    fn nearby(&self, id: u64) -> impl Iterator<Item = (u64, Known)> {
        let device = self.archives.get(&id).and_then(|known| known.device);
        let all = self.archives.iter().map(|(id, known)| (*id, *known));
        all.filter(move |(other, known)| *other == id || known.device == device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_give_way_first_and_the_largest_at_their_head() {
        let all = Neighbours::default();
        let root = std::env::temp_dir();
        let own = all.join(ArchiveRank::Own, &root);
        assert!(own.is_to_give(0));
        let (small, large) = (
            all.join(ArchiveRank::Guest, &root),
            all.join(ArchiveRank::Guest, &root),
        );
        let turns = |now_ns| [&own, &small, &large].map(|place| place.is_to_give(now_ns));
        own.tell(1_000, 0);
        small.tell(10, 0);
        large.tell(20, 5);
        assert_eq!(turns(1), [false, false, true]);
        assert_eq!(own.waiting(), 5);
        assert_eq!(
            (large.beyond(25, 1), small.beyond(25, 1), own.beyond(25, 1)),
            (5, 0, 0)
        );
        large.tell(0, 0);
        assert_eq!(turns(2), [false, true, false]);
        small.tell(0, 0);
        assert!(own.is_to_give(3));
        // A guest that could delete and does not is passed over at last; if it deletes something it
        // gets time again.
        large.tell(20, 0);
        assert_eq!(turns(10), [false, false, true]);
        let mut now_ns = 10;
        while now_ns < 10 + TURN_NS_MAX {
            assert!(!own.is_to_give(now_ns));
            now_ns += 5 * NS_PER_S;
        }
        assert!(own.is_to_give(10 + TURN_NS_MAX));
        large.tell(19, 0);
        assert!(!own.is_to_give(11 + TURN_NS_MAX));
        // At a later shortage it has all of its time anew.
        assert!(!own.is_to_give(11 + 2 * TURN_NS_MAX));
        drop(large);
        assert!(own.is_to_give(12 + 2 * TURN_NS_MAX));
    }

    #[test]
    fn a_guest_that_cannot_let_go_of_what_is_beyond_is_passed_over() {
        let all = Neighbours::default();
        let root = std::env::temp_dir();
        let (small, large) = (
            all.join(ArchiveRank::Guest, &root),
            all.join(ArchiveRank::Guest, &root),
        );
        small.tell(10, 0);
        large.tell(20, 0);
        let mut now_ns = 0;
        while now_ns < TURN_NS_MAX {
            assert_eq!(small.beyond(25, now_ns), 0);
            now_ns += 5 * NS_PER_S;
        }
        assert_eq!((small.beyond(25, now_ns), large.beyond(25, now_ns)), (5, 5));
        large.tell(19, 0);
        assert_eq!((small.beyond(25, now_ns), large.beyond(25, now_ns)), (0, 4));
    }
}
