//! Weighted rendezvous hashing: each key draws a score for each target, and goes to the target with
//! the highest (Thaler, Ravishankar, "Using name-based mappings to increase hit rates", 1998).
//!
//! The score is `weight / -ln(u)`, where `u` is the hash of key and target as a number between 0
//! and 1. So a target gets its share of all weights, and a key moves only if it goes to a target
//! whose weight has risen, or leaves one whose weight has fallen (the logarithm method: Resch,
//! "New hashing algorithms for data storage", SNIA SDC 2015; straw2 of Ceph's CRUSH is the same).
//! The order of all scores is the order in which further replicas and spills are placed.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::error::PlacementError;
use crate::hash::{self, KeyHash};

/// Most targets of one map.
pub const TARGETS_MAX: usize = 16_384;

/// The number of a target, which its data depends on: it stays as long as the target has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u64);

impl TargetId {
    /// The number of a target that has a name: the XXH64 of it.
    pub fn of_name(name: &str) -> Self {
        Self(KeyHash::of(name.as_bytes()).number())
    }
}

/// The number of a failure domain: what fails together, such as a node or a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(pub u64);

/// A target as hashing sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RendezvousTarget {
    /// The number of the target.
    pub id: TargetId,
    /// Its failure domain.
    pub domain: DomainId,
    /// Its share of keys beside the weights of others; a target of weight 0 gets none.
    pub weight: f64,
}

/// A target with its score for one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedTarget {
    /// The number of the target.
    pub id: TargetId,
    /// Its failure domain.
    pub domain: DomainId,
    /// Its score for the key, above 0; the highest is the first choice.
    pub score: f64,
}

/// The targets of a key's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaTargets {
    /// Distinct targets, the first choice first.
    pub targets: Vec<TargetId>,
    /// How many of them are in the failure domain of one before: there are too few domains.
    pub domains_shared: usize,
    /// How many replicas have no target: there are too few targets.
    pub missing: usize,
}

/// A map of keys to targets. The order in which targets are listed does not matter.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendezvous {
    /// The targets, by number.
    targets: Vec<RendezvousTarget>,
    /// The seeds of their hashes.
    seeds: Vec<u64>,
}

impl Rendezvous {
    /// A map over the targets.
    ///
    /// # Errors
    ///
    /// If a target is listed twice, if there are more than [`TARGETS_MAX`], or if a weight is not
    /// a finite number of at least 0.
    pub fn new(targets: &[RendezvousTarget]) -> Result<Self, PlacementError> {
        if targets.len() > TARGETS_MAX {
            return Err(PlacementError::TooManyTargets {
                targets: targets.len(),
                most: TARGETS_MAX,
            });
        }
        let mut targets = targets.to_vec();
        targets.sort_by_key(|target| target.id);
        if let Some(twice) = targets.windows(2).find(|pair| pair[0].id == pair[1].id) {
            let target = twice[0].id.0;
            return Err(PlacementError::TargetTwice { target });
        }
        let is_sound = |weight: f64| weight.is_finite() && weight >= 0.0;
        if let Some(fault) = targets.iter().find(|target| !is_sound(target.weight)) {
            let (target, weight) = (fault.id.0, fault.weight);
            return Err(PlacementError::Weight { target, weight });
        }
        let seeds = targets.iter().map(|it| hash::target_seed(it.id.0));
        Ok(Self {
            seeds: seeds.collect(),
            targets,
        })
    }

    /// The targets, by number.
    pub fn targets(&self) -> &[RendezvousTarget] {
        &self.targets
    }

    /// The first choice of a key; `None` if no target has a weight. Nothing is allocated.
    pub fn first(&self, key: KeyHash) -> Option<TargetId> {
        let mut best = (0.0, None);
        for (target, seed) in self.targets.iter().zip(&self.seeds) {
            let score = score(target.weight, key, *seed);
            // Of equal scores the target with the lower number has the key.
            if score > best.0 {
                best = (score, Some(target.id));
            }
        }
        best.1
    }

    /// All targets that have a weight, the first choice of a key first.
    pub fn ranked(&self, key: KeyHash) -> Vec<RankedTarget> {
        let scored = self.targets.iter().zip(&self.seeds);
        let mut ranked: Vec<RankedTarget> = scored
            .map(|(target, seed)| RankedTarget {
                id: target.id,
                domain: target.domain,
                score: score(target.weight, key, *seed),
            })
            .filter(|ranked| ranked.score > 0.0)
            .collect();
        ranked.sort_by(by_score);
        ranked
    }

    /// The targets of so many replicas of a key: in the order of scores, and no two in one failure
    /// domain as long as there are others. Further ones go where the fewest are.
    pub fn replicas(&self, key: KeyHash, count: usize) -> ReplicaTargets {
        let mut left = self.ranked(key);
        let mut replicas = ReplicaTargets {
            targets: Vec::new(),
            domains_shared: 0,
            missing: count.saturating_sub(left.len()),
        };
        let mut used: BTreeMap<DomainId, usize> = BTreeMap::new();
        let mut most_in_domain = 0;
        while replicas.targets.len() < count && !left.is_empty() {
            left.retain(|ranked| {
                let in_domain = used.entry(ranked.domain).or_default();
                let is_taken = replicas.targets.len() < count && *in_domain <= most_in_domain;
                if is_taken {
                    replicas.domains_shared += usize::from(*in_domain > 0);
                    *in_domain += 1;
                    replicas.targets.push(ranked.id);
                }
                !is_taken
            });
            most_in_domain += 1;
        }
        replicas
    }
}

/// The score of a target for a key; 0 of one without a weight.
fn score(weight: f64, key: KeyHash, seed: u64) -> f64 {
    // At most the largest number, so that scores of huge weights are ordered by the number of the
    // target and not left to comparisons of infinities.
    (weight / hash::exponential(hash::pair(key, seed))).min(f64::MAX)
}

fn by_score(a: &RankedTarget, b: &RankedTarget) -> Ordering {
    b.score.total_cmp(&a.score).then(a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(rows: &[(u64, u64, f64)]) -> Rendezvous {
        let rows = rows.iter().map(|(id, domain, weight)| RendezvousTarget {
            id: TargetId(*id),
            domain: DomainId(*domain),
            weight: *weight,
        });
        Rendezvous::new(&rows.collect::<Vec<_>>()).unwrap()
    }

    /// Stored data depends on these: they never change.
    #[test]
    fn keys_stay_where_they_are() {
        let equal: Vec<_> = (0..16).map(|id| (id, id, 1.0)).collect();
        let weighted: Vec<_> = (0..16).map(|id| (id, id, 1.0 + (id % 4) as f64)).collect();
        for (key, of_equal, of_weighted) in KNOWN {
            let key_hash = KeyHash::of(key.as_bytes());
            for (rows, expect) in [(&equal, of_equal), (&weighted, of_weighted)] {
                let chosen = targets(rows).replicas(key_hash, 3).targets;
                let chosen: Vec<u64> = chosen.iter().map(|id| id.0).collect();
                assert_eq!(chosen, expect, "{key:?}");
            }
        }
    }

    /// Keys, and the targets of three replicas among equal and among weighted targets.
    const KNOWN: &[(&str, [u64; 3], [u64; 3])] = &[
        ("", [15, 6, 14], [15, 6, 14]),
        ("a", [14, 10, 3], [14, 10, 3]),
        ("vpic/step-0/block-17", [13, 14, 9], [14, 13, 11]),
        ("/scratch/run 7/field.bp", [14, 11, 13], [11, 14, 7]),
    ];

    #[test]
    fn replicas_share_a_domain_only_when_there_are_too_few() {
        // Targets as (number, domain, weight), replicas, and expected: targets, shared, missing.
        let rows: &[(u64, u64, f64)] = &[(1, 1, 1.0), (2, 1, 1.0), (3, 2, 1.0), (4, 2, 0.0)];
        let table = [
            (0, 0, 0, 0),
            (1, 1, 0, 0),
            (2, 2, 0, 0),
            (3, 3, 1, 0),
            (5, 3, 1, 2),
        ];
        for (count, placed, shared, missing) in table {
            for key in 0..100_u64 {
                let replicas = targets(rows).replicas(KeyHash::of(&key.to_le_bytes()), count);
                assert_eq!(replicas.targets.len(), placed, "{count}");
                assert_eq!(replicas.domains_shared, shared, "{count}");
                assert_eq!(replicas.missing, missing, "{count}");
            }
        }
    }

    #[test]
    fn faults_of_a_map_are_told() {
        let target = |id, weight| RendezvousTarget {
            id: TargetId(id),
            domain: DomainId(0),
            weight,
        };
        let twice = Rendezvous::new(&[target(1, 1.0), target(2, 1.0), target(1, 2.0)]);
        assert_eq!(twice, Err(PlacementError::TargetTwice { target: 1 }));
        for weight in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(Rendezvous::new(&[target(1, weight)]).is_err(), "{weight}");
        }
        assert_eq!(targets(&[]).first(KeyHash::of(b"a")), None);
        let huge = targets(&[(1, 1, f64::MAX), (2, 2, f64::MAX)]);
        assert_eq!(huge.ranked(KeyHash::of(b"a")).len(), 2);
    }
}
