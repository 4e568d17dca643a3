//! The places among the histories of scopes that an aggregator keeps of other nodes: how many there
//! are, and how often one is opened.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use barograph_model::NS_PER_S;

/// A node, and a scope of its applications; an empty one stands for the node's own streams.
pub(crate) type HistoryKey = (String, String);

/// Most histories of scopes of all nodes together, and of one node: each is an archive with threads
/// of its own.
const PLACES_MAX: usize = 256;
const PLACES_OF_NODE_MAX: usize = 32;
/// Time for which a history has its place at least, even if it is closed before, in ns: the history
/// of a scope that comes and goes is opened no more often.
const PLACE_NS_MIN: i64 = 30 * NS_PER_S;

/// The places of the histories that are open, or were opened a moment ago.
#[derive(Debug, Default)]
pub(crate) struct ScopePlaces(BTreeMap<HistoryKey, ScopePlace>);

#[derive(Debug)]
struct ScopePlace {
    /// Held by the history.
    held: Weak<()>,
    /// Time at which it was opened, in ns of the monotonic clock.
    opened_ns: i64,
}

impl ScopePlaces {
    /// Takes a place for the history of a scope, which holds it while it is open, or tells why
    /// there is none.
    pub(crate) fn take(
        &mut self,
        key: &HistoryKey,
        monotonic_ns: i64,
    ) -> Result<Arc<()>, &'static str> {
        self.0.retain(|_, place| place.is_taken(monotonic_ns));
        if self.0.contains_key(key) {
            return Err("it was closed a moment ago, and is opened again in half a minute at most");
        }
        let of_node = self.0.keys().filter(|other| other.0 == key.0);
        if of_node.count() >= PLACES_OF_NODE_MAX {
            return Err("32 histories of publications of this node are kept already");
        }
        if self.0.len() >= PLACES_MAX {
            return Err("256 histories of publications are kept already");
        }
        let held = Arc::new(());
        let place = ScopePlace {
            held: Arc::downgrade(&held),
            opened_ns: monotonic_ns,
        };
        self.0.insert(key.clone(), place);
        Ok(held)
    }

    /// Gives the place of a history back that could not be opened.
    pub(crate) fn release(&mut self, key: &HistoryKey) {
        self.0.remove(key);
    }
}

impl ScopePlace {
    fn is_taken(&self, monotonic_ns: i64) -> bool {
        let age_ns = monotonic_ns.saturating_sub(self.opened_ns);
        self.held.strong_count() > 0 || age_ns < PLACE_NS_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(node: usize, scope: usize) -> HistoryKey {
        (format!("n{node}"), format!("u{scope}"))
    }

    #[test]
    fn each_node_has_a_share_of_the_places() {
        let mut places = ScopePlaces::default();
        let mut held = Vec::new();
        for node in 0..PLACES_MAX {
            let before = held.len();
            held.extend((0..64).filter_map(|scope| places.take(&key(node, scope), 0).ok()));
            assert!(held.len() - before <= PLACES_OF_NODE_MAX);
        }
        assert_eq!(held.len(), PLACES_MAX);
        let told = |places: &mut ScopePlaces, key, now_ns| places.take(&key, now_ns).unwrap_err();
        assert!(told(&mut places, key(0, 99), 0).contains("32 histories"));
        assert!(told(&mut places, key(99, 0), 0).contains("256 histories"));
        // They are held for as long as they are open; then there is room again.
        assert!(places.take(&key(99, 0), 9 * PLACE_NS_MIN).is_err());
        held.clear();
        assert!(places.take(&key(99, 0), 9 * PLACE_NS_MIN).is_ok());
        assert_eq!(places.0.len(), 1);
    }

    #[test]
    fn what_is_closed_and_wanted_again_waits_and_what_has_failed_does_not() {
        let mut places = ScopePlaces::default();
        let mut opened = 0;
        // A node tells a scope and takes it back, for ten minutes.
        for second in 0..600 {
            opened += u32::from(places.take(&key(0, 0), second * NS_PER_S).is_ok());
        }
        assert_eq!(opened, 20);
        // Another scope each second.
        let fits = |second: &i64| {
            let scope = *second as usize;
            places.take(&key(1, scope), second * NS_PER_S).is_ok()
        };
        assert!((1_000..1_600).filter(fits).count() <= 20 * PLACES_OF_NODE_MAX);
        let held = places.take(&key(2, 0), 0).unwrap();
        assert!(places.take(&key(2, 0), 9 * PLACE_NS_MIN).is_err());
        drop(held);
        places.release(&key(2, 0));
        assert!(places.take(&key(2, 0), 1).is_ok());
    }
}
