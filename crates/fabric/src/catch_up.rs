//! Bounds of what the subscribers of a node take of it together while they catch up from its
//! archive.
//!
//! A feed that catches up holds the answer to its search for ended lives, and each feed holds the
//! series whose last samples are still to be read. Both are bounded for a feed; here they are
//! bounded for all feeds of a publisher. Nothing is lost at a bound: a feed waits for its turn, or
//! it ends, and its subscriber asks again from where it is.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::NS_PER_S;

/// Most feeds that catch up at a time. The others wait in line, and are sent meanwhile what the
/// rings have of the streams that their subscribers know.
pub const CATCH_UPS_MAX: usize = 8;
/// Most series that have ended during feeds and are still to be sent, of all feeds together. A feed
/// that would need more ends.
pub(crate) const ENDED_TOTAL_MAX: usize = 1 << 16;
/// Time after which a feed that catches up ends if others wait, in ns. Its subscriber asks again
/// and is the last in line then, so that a slow subscriber holds nobody up for ever.
const TURN_NS_MAX: i64 = 300 * NS_PER_S;

/// The line of the feeds that catch up, and the number of their ended series. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CatchUps(Arc<Mutex<CatchUpLine>>);

#[derive(Debug, Default)]
struct CatchUpLine {
    /// The tickets, in the order in which they were drawn. The first [`CATCH_UPS_MAX`] have their
    /// turn.
    tickets: VecDeque<u64>,
    next_ticket: u64,
    ended: usize,
}

impl CatchUps {
    /// Draws a ticket, which is the last in line.
    pub(crate) fn draw(&self) -> CatchUpTicket {
        let mut line = self.line();
        let number = line.next_ticket;
        line.next_ticket += 1;
        line.tickets.push_back(number);
        CatchUpTicket {
            catch_ups: self.clone(),
            number,
            begun_ns: None,
        }
    }

    /// Takes a place for an ended series.
    pub(crate) fn place(&self) -> EndedPlace {
        self.line().ended += 1;
        EndedPlace(self.clone())
    }

    /// Whether there are so many ended series that no further ones may be noted.
    pub(crate) fn is_full(&self) -> bool {
        self.line().ended >= ENDED_TOTAL_MAX
    }

    /// Number of feeds that catch up, and of those that wait for their turn.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let all = self.line().tickets.len();
        (all.min(CATCH_UPS_MAX), all.saturating_sub(CATCH_UPS_MAX))
    }

    fn line(&self) -> MutexGuard<'_, CatchUpLine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a feed in the line. Dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct CatchUpTicket {
    catch_ups: CatchUps,
    number: u64,
    /// Time at which the turn was seen to have begun, ns since the epoch.
    begun_ns: Option<i64>,
}

impl CatchUpTicket {
    /// Whether it is this feed's turn.
    pub(crate) fn is_turn(&self) -> bool {
        let line = self.catch_ups.line();
        let mut first = line.tickets.iter().take(CATCH_UPS_MAX);
        first.any(|number| *number == self.number)
    }

    /// Whether the turn has taken so long that others are to have theirs.
    pub(crate) fn is_over(&mut self, now_ns: i64) -> bool {
        if !self.is_turn() {
            return false;
        }
        let begun_ns = *self.begun_ns.get_or_insert(now_ns);
        let (_, waiting) = self.catch_ups.counts();
        waiting > 0 && now_ns.saturating_sub(begun_ns) >= TURN_NS_MAX
    }
}

impl Drop for CatchUpTicket {
    fn drop(&mut self) {
        let mut line = self.catch_ups.line();
        line.tickets.retain(|number| *number != self.number);
    }
}

/// The place of an ended series among those of all feeds, until it is dropped.
#[derive(Debug)]
pub(crate) struct EndedPlace(CatchUps);

impl Drop for EndedPlace {
    fn drop(&mut self) {
        self.0.line().ended -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_in_the_order_of_the_line_and_end_if_others_wait() {
        let catch_ups = CatchUps::default();
        let mut tickets: Vec<CatchUpTicket> = Vec::new();
        tickets.resize_with(CATCH_UPS_MAX, || catch_ups.draw());
        assert!(tickets.iter().all(CatchUpTicket::is_turn));
        assert!(!tickets[0].is_over(0));
        assert!(!tickets[0].is_over(TURN_NS_MAX), "nobody waits");
        let (mut next, last) = (catch_ups.draw(), catch_ups.draw());
        assert_eq!(catch_ups.counts(), (CATCH_UPS_MAX, 2));
        assert!(tickets[0].is_over(TURN_NS_MAX));
        assert!(!tickets[0].is_over(TURN_NS_MAX - 1));
        assert!(!next.is_turn() && !next.is_over(2 * TURN_NS_MAX));
        drop(tickets.remove(3));
        assert!(next.is_turn() && !last.is_turn());
        assert!(!next.is_over(2 * TURN_NS_MAX), "its turn has just begun");
        drop((tickets, next));
        assert!(last.is_turn());
        assert_eq!(catch_ups.counts(), (1, 0));
    }

    #[test]
    fn ended_series_have_so_many_places() {
        let catch_ups = CatchUps::default();
        let mut places = Vec::new();
        places.resize_with(ENDED_TOTAL_MAX, || catch_ups.place());
        assert!(catch_ups.is_full());
        drop(places.pop());
        assert!(!catch_ups.is_full());
    }
}
