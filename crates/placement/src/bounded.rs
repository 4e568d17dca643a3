//! Rendezvous hashing with bounded load (Mirrokni, Thorup, Zadimoghaddam, "Consistent hashing with
//! bounded loads", SODA 2018): no target has more keys than its share of all keys times a factor,
//! rounded up, and what does not fit goes to the next target in the order of the key's scores.
//!
//! There are two forms. [`BoundedLoad`] takes keys as they come, so that where a key goes depends
//! on the keys before. [`bounded_assignment`] knows all keys: its result does not depend on their
//! order, so that two processes agree and few keys move when the targets change.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use crate::error::PlacementError;
use crate::hash::KeyHash;
use crate::rendezvous::{RankedTarget, Rendezvous, TargetId};

/// Where a key went under a bound of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedPlacement {
    /// The target that has the key.
    pub target: TargetId,
    /// How many targets before it in the order of scores had no room.
    pub skipped: usize,
}

impl BoundedPlacement {
    /// Whether the key is at its first choice.
    pub fn is_first_choice(&self) -> bool {
        self.skipped == 0
    }
}

/// The loads of targets to which keys go as they come.
#[derive(Clone, Debug)]
pub struct BoundedLoad {
    rendezvous: Rendezvous,
    factor: f64,
    shares: Shares,
    loads: BTreeMap<TargetId, u64>,
    keys: u64,
}

impl BoundedLoad {
    /// Targets without keys.
    ///
    /// # Errors
    ///
    /// If the factor is not a finite number of at least 1.
    pub fn new(rendezvous: Rendezvous, factor: f64) -> Result<Self, PlacementError> {
        check(factor)?;
        Ok(Self {
            factor,
            shares: Shares::of(&rendezvous),
            loads: BTreeMap::new(),
            keys: 0,
            rendezvous,
        })
    }

    /// Places one more key; `None` if no target has a weight. The bound counts this key as well.
    pub fn place(&mut self, key: KeyHash) -> Option<BoundedPlacement> {
        let ranked = self.rendezvous.ranked(key);
        let keys = self.keys + 1;
        let has_room = |ranked: &RankedTarget| self.load(ranked.id) < self.most(ranked.id, keys);
        let skipped = ranked.iter().position(has_room)?;
        let target = ranked[skipped].id;
        *self.loads.entry(target).or_default() += 1;
        self.keys = keys;
        Some(BoundedPlacement { target, skipped })
    }

    /// Takes a key of a target away; `false` if the target has none. Keys of other targets stay, so
    /// these may have more than the bound until as many keys have come again.
    pub fn remove(&mut self, target: TargetId) -> bool {
        match self.loads.get_mut(&target).filter(|load| **load > 0) {
            Some(load) => {
                *load -= 1;
                self.keys -= 1;
                true
            }
            None => false,
        }
    }

    /// The number of keys that a target has.
    pub fn load(&self, target: TargetId) -> u64 {
        self.loads.get(&target).copied().unwrap_or(0)
    }

    /// The most keys that a target may have now.
    pub fn load_max(&self, target: TargetId) -> u64 {
        self.most(target, self.keys)
    }

    fn most(&self, target: TargetId, keys: u64) -> u64 {
        let targets = self.rendezvous.targets();
        match targets.binary_search_by_key(&target, |it| it.id) {
            Ok(index) => bound(self.factor, keys, self.shares.share(targets[index].weight)),
            Err(_) => 0,
        }
    }
}

/// Places all keys at once, each as near to its first choice as it can be: keys ask targets in the
/// order of their scores, and a target that has too many passes on the one with the lowest score
/// (Gale, Shapley, "College admissions and the stability of marriage", 1962). The result is in
/// the order of the keys, and empty if no target has a weight.
///
/// # Errors
///
/// If the factor is not a finite number of at least 1.
pub fn bounded_assignment(
    rendezvous: &Rendezvous,
    factor: f64,
    keys: &[KeyHash],
) -> Result<Vec<BoundedPlacement>, PlacementError> {
    check(factor)?;
    let shares = Shares::of(rendezvous);
    let mut rooms: BTreeMap<TargetId, Room> = BTreeMap::new();
    for target in rendezvous.targets().iter().filter(|it| it.weight > 0.0) {
        let share = shares.share(target.weight);
        let room = Room {
            most: bound(factor, keys.len() as u64, share) as usize,
            admitted: BinaryHeap::new(),
        };
        rooms.insert(target.id, room);
    }
    for index in 0..keys.len() {
        admit(rendezvous, keys, &mut rooms, index);
    }
    let mut placed = Vec::new();
    for (target, room) in rooms {
        placed.extend(room.admitted.into_iter().map(|Reverse(key)| {
            let skipped = key.skipped;
            (key.index, BoundedPlacement { target, skipped })
        }));
    }
    placed.sort_by_key(|(index, _)| *index);
    Ok(placed.into_iter().map(|(_, placement)| placement).collect())
}

/// The keys that a target has admitted so far, the one with the lowest score first.
struct Room {
    most: usize,
    admitted: BinaryHeap<Reverse<AdmittedKey>>,
}

/// A key at a target. Keys are ordered by their scores there, and equal ones by their hashes.
#[derive(Clone, Copy)]
struct AdmittedKey {
    score: f64,
    key: KeyHash,
    index: usize,
    skipped: usize,
}

impl AdmittedKey {
    fn compare(&self, other: &Self) -> Ordering {
        let scores = self.score.total_cmp(&other.score);
        scores
            .then(self.key.cmp(&other.key))
            .then(self.index.cmp(&other.index))
    }
}

impl PartialEq for AdmittedKey {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other).is_eq()
    }
}

impl Eq for AdmittedKey {}

impl PartialOrd for AdmittedKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AdmittedKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(other)
    }
}

/// Lets a key ask its targets in order. A key that another one displaces asks its next target.
fn admit(
    rendezvous: &Rendezvous,
    keys: &[KeyHash],
    rooms: &mut BTreeMap<TargetId, Room>,
    index: usize,
) {
    let mut asking = Some((index, 0));
    while let Some((index, skipped)) = asking {
        let key = keys[index];
        // All targets together have room for all keys, so no key is left at the end of its order.
        let Some(ranked) = rendezvous.ranked(key).get(skipped).copied() else {
            return;
        };
        let Some(room) = rooms.get_mut(&ranked.id) else {
            return;
        };
        room.admitted.push(Reverse(AdmittedKey {
            score: ranked.score,
            key,
            index,
            skipped,
        }));
        let is_full = room.admitted.len() > room.most;
        let displaced = is_full.then(|| room.admitted.pop()).flatten();
        asking = displaced.map(|Reverse(key)| (key.index, key.skipped + 1));
    }
}

/// The shares of targets, from their weights.
#[derive(Clone, Copy, Debug)]
struct Shares {
    largest: f64,
    /// The sum of all weights by the largest, so that it is finite.
    sum: f64,
}

impl Shares {
    fn of(rendezvous: &Rendezvous) -> Self {
        let weights = || rendezvous.targets().iter().map(|target| target.weight);
        let largest = weights().fold(0.0, f64::max);
        let sum = weights().map(|weight| weight / largest).sum();
        Self { largest, sum }
    }

    fn share(self, weight: f64) -> f64 {
        match weight > 0.0 {
            true => weight / self.largest / self.sum,
            false => 0.0,
        }
    }
}

/// The most keys of a target with a share, of so many keys in all.
fn bound(factor: f64, keys: u64, share: f64) -> u64 {
    // A conversion of floats saturates.
    (keys as f64 * share * factor).ceil() as u64
}

fn check(factor: f64) -> Result<(), PlacementError> {
    match factor.is_finite() && factor >= 1.0 {
        true => Ok(()),
        false => Err(PlacementError::Factor { factor }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::{DomainId, RendezvousTarget};

    fn map(weights: &[f64]) -> Rendezvous {
        let targets = (0_u64..).zip(weights).map(|(id, weight)| RendezvousTarget {
            id: TargetId(id),
            domain: DomainId(id),
            weight: *weight,
        });
        Rendezvous::new(&targets.collect::<Vec<_>>()).unwrap()
    }

    fn keys(count: u64) -> Vec<KeyHash> {
        (0..count)
            .map(|key| KeyHash::of(&key.to_le_bytes()))
            .collect()
    }

    #[test]
    fn with_a_factor_of_1_all_targets_have_the_same_number() {
        let placed = bounded_assignment(&map(&[1.0; 8]), 1.0, &keys(800)).unwrap();
        for target in 0..8 {
            let of_target = placed.iter().filter(|it| it.target == TargetId(target));
            assert_eq!(of_target.count(), 100);
        }
        let mut arriving = BoundedLoad::new(map(&[1.0; 8]), 1.0).unwrap();
        for key in keys(800) {
            arriving.place(key).unwrap();
        }
        assert!((0..8).all(|target| arriving.load(TargetId(target)) == 100));
    }

    #[test]
    fn spills_are_told_and_room_comes_back() {
        let mut load = BoundedLoad::new(map(&[1.0, 1.0]), 1.0).unwrap();
        let placed: Vec<_> = keys(100)
            .into_iter()
            .filter_map(|key| load.place(key))
            .collect();
        assert!(placed.iter().any(|it| !it.is_first_choice()));
        assert!(placed.iter().any(BoundedPlacement::is_first_choice));
        assert!(load.remove(TargetId(0)));
        assert!(!load.remove(TargetId(7)));
        assert_eq!(
            (load.load(TargetId(0)), load.load_max(TargetId(0))),
            (49, 50)
        );
    }

    #[test]
    fn no_weight_no_place() {
        for weights in [&[][..], &[0.0]] {
            let placed = bounded_assignment(&map(weights), 1.5, &keys(3)).unwrap();
            assert!(placed.is_empty());
            let mut load = BoundedLoad::new(map(weights), 1.5).unwrap();
            assert_eq!(load.place(KeyHash::of(b"a")), None);
        }
        for factor in [0.9, f64::NAN, f64::INFINITY] {
            assert!(BoundedLoad::new(map(&[1.0]), factor).is_err(), "{factor}");
        }
    }
}
