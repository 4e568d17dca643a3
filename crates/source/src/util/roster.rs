//! The things that a source follows by name (disks, interfaces, groups): which appeared and which
//! vanished. Their number is bounded. A known name costs no allocation, and no search while the
//! names come in the order of the previous round.

use crate::SourceError;
use crate::util::faults::Faults;

/// Things by their raw name.
#[derive(Debug)]
pub(crate) struct Roster<T> {
    /// Sorted by name.
    things: Vec<Thing<T>>,
    /// For the first, second… visit of a round, the index in `things` that it had in the previous
    /// round. It is only a guess: it counts if the name there is the requested one.
    order: Vec<usize>,
    /// Number of visits in this round.
    visits: usize,
    round: u64,
    max: usize,
    refused: usize,
}

#[derive(Debug)]
struct Thing<T> {
    name: Box<[u8]>,
    /// The round of its last visit.
    round: u64,
    it: T,
}

impl<T> Roster<T> {
    /// Creates a roster of at most `max` things.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            things: Vec::new(),
            order: Vec::new(),
            visits: 0,
            round: 0,
            max,
            refused: 0,
        }
    }

    /// Starts a round of visits.
    pub(crate) fn begin(&mut self) {
        self.round += 1;
        self.visits = 0;
        self.refused = 0;
    }

    /// The thing of this name, created if it is new. `None` if there are too many things, or if
    /// `make` returns `None`.
    pub(crate) fn visit(
        &mut self,
        name: &[u8],
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&mut T> {
        let visit = self.visits;
        self.visits += 1;
        let guess = self.order.get(visit).copied();
        let guess = guess.filter(|at| self.things.get(*at).is_some_and(|t| *t.name == *name));
        let at = match guess {
            Some(at) => at,
            None => {
                let at = self.place(name, make)?;
                match self.order.get_mut(visit) {
                    Some(known) => *known = at,
                    None if visit < self.max => self.order.resize(visit + 1, at),
                    None => {}
                }
                at
            }
        };
        let thing = &mut self.things[at];
        thing.round = self.round;
        Some(&mut thing.it)
    }

    /// The index of the thing of this name, created if it is new.
    fn place(&mut self, name: &[u8], make: impl FnOnce() -> Option<T>) -> Option<usize> {
        match self.things.binary_search_by(|t| (*t.name).cmp(name)) {
            Ok(at) => Some(at),
            Err(_) if self.things.len() >= self.max => {
                self.refused += 1;
                None
            }
            Err(at) => {
                let thing = Thing {
                    name: name.into(),
                    round: self.round,
                    it: make()?,
                };
                self.things.insert(at, thing);
                Some(at)
            }
        }
    }

    /// Ends the round: removes the things that were not visited.
    pub(crate) fn sweep(&mut self, mut gone: impl FnMut(&mut T)) {
        let round = self.round;
        self.things.retain_mut(|thing| {
            let stays = thing.round == round;
            if !stays {
                gone(&mut thing.it);
            }
            stays
        });
    }

    /// Adds a fault with the number of things, named by `what`, that did not fit in this round.
    pub(crate) fn report_refused(&self, what: &'static str, faults: &mut Faults) {
        if self.refused > 0 {
            faults.add(SourceError::TooMany {
                what,
                refused: self.refused,
                max: self.max,
            });
        }
    }

    /// The number of things that did not fit in this round.
    pub(crate) fn refused(&self) -> usize {
        self.refused
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.things.iter().map(|thing| (&*thing.name, &thing.it))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&[u8], &mut T)> {
        let things = self.things.iter_mut();
        things.map(|thing| (&*thing.name, &mut thing.it))
    }

    pub(crate) fn len(&self) -> usize {
        self.things.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_goes_and_is_bounded() {
        let mut roster = Roster::new(2);
        let mut round = |names: &[&str]| {
            roster.begin();
            for name in names {
                roster.visit(name.as_bytes(), || Some(name.to_string()));
            }
            let mut gone = Vec::new();
            roster.sweep(|thing| gone.push(thing.clone()));
            (gone, roster.len(), roster.refused())
        };
        assert_eq!(round(&["a", "b"]), (vec![], 2, 0));
        assert_eq!(round(&["b", "c"]), (vec!["a".to_owned()], 1, 1));
        assert_eq!(round(&["b", "c"]), (vec![], 2, 0));
    }

    /// Each name finds its own thing, whatever the order and whatever appeared or vanished in
    /// between.
    #[test]
    fn every_order_finds_the_same_things() {
        let mut roster = Roster::new(8);
        let rounds: [&[&str]; 9] = [
            &["b", "a", "c"],
            &["b", "a", "c"],
            &["c", "b", "a"],
            &["b", "aa", "a", "c"],
            &["b", "aa", "a", "c"],
            &["a", "c"],
            &["a", "a", "c"],
            &[],
            &["c", "b", "a"],
        ];
        for names in rounds {
            roster.begin();
            for name in names {
                let thing = roster.visit(name.as_bytes(), || Some(name.to_string()));
                assert_eq!(thing.map(|t| &**t), Some(*name), "{names:?}");
            }
            roster.sweep(|thing| assert!(!names.contains(&thing.as_str())));
            let mut sorted = names.to_vec();
            sorted.sort();
            sorted.dedup();
            let left: Vec<&str> = roster.iter().map(|(_, thing)| &**thing).collect();
            assert_eq!(left, sorted);
            assert!(roster.order.len() <= 8);
        }
    }

    #[test]
    fn nothing_made_is_nothing_kept() {
        let mut roster: Roster<()> = Roster::new(2);
        roster.begin();
        assert_eq!(roster.visit(b"a", || None), None);
        assert_eq!((roster.len(), roster.refused()), (0, 0));
    }
}
