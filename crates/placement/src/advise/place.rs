//! The data-placement adviser (HDPE of apollo.md 4.4.2): which target a block is written to.
//!
//! The score of a target is the expected seconds until the block is there: latency, and what waits
//! and the block itself by the bandwidth, divided by health. What is not trusted in full is drawn
//! to the mean of all targets, as far as it is not trusted. Targets whose scores are nearly
//! that of the best are equal: among them, weighted hashing decides, so that advisers that decide
//! by the same readings do not all go to the same target. When all that is known is stale, all
//! scores are equal, and what is left is hashing by static weights.

use std::cmp::Ordering;

use crate::decision::{
    PlacedPiece, PlacementAction, PlacementAlternative, PlacementDecision, PredictedEffect,
};
use crate::hash::KeyHash;
use crate::reading::{Estimate, known};
use crate::rendezvous::{Rendezvous, RendezvousTarget};
use crate::target::{
    BlockRequest, TargetState, TargetWeight, WeightConfig, service_times, target_weights,
};

/// The name of the adviser in its records.
const ADVISER: &str = "place";
/// Targets whose inputs are recorded: the best ones.
const INPUT_TARGETS: usize = 3;

/// Whether a block may be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitRule {
    /// It goes to one target whole, or nowhere.
    Whole,
    /// It is divided if no target can hold it whole, into pieces of so many bytes at least.
    Pieces {
        /// The least bytes of a piece, of at least 1.
        bytes_min: u64,
    },
}

/// A block that is to be written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaceRequest {
    /// The hash of its key.
    pub key: KeyHash,
    /// Its bytes, and which way is to be fast.
    pub block: BlockRequest,
    /// Whether it may be divided.
    pub split: SplitRule,
    /// The time, in ns on the caller's clock.
    pub now_ns: i64,
}

/// How blocks are placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaceConfig {
    /// How state becomes weights.
    pub weights: WeightConfig,
    /// Targets count as equal up to the best score times one more than this.
    pub tolerance: f64,
}

impl Default for PlaceConfig {
    fn default() -> Self {
        Self {
            weights: WeightConfig::default(),
            tolerance: 0.1,
        }
    }
}

/// A target that may have the block.
struct Candidate<'a> {
    target: &'a TargetState,
    weight: TargetWeight,
    /// Expected seconds, by health.
    score: f64,
}

/// Proposes a target for a block, or pieces if that is asked for and needed.
pub fn advise_place(
    request: &PlaceRequest,
    targets: &[TargetState],
    config: &PlaceConfig,
) -> PlacementDecision {
    let (key, now_ns) = (request.key.number(), request.now_ns);
    let scored = scored(request, targets, config);
    let (mut able, unable): (Vec<_>, Vec<_>) = scored
        .into_iter()
        .partition(|it| it.weight.exclusion.is_none());
    able.sort_by(by_score);
    let chosen = choose(request.key, &able, config.tolerance);
    let mut decision = PlacementDecision::nothing(now_ns, ADVISER, key, "");
    match chosen {
        Some(index) => {
            take_whole(&mut decision, &able[index], request.block.bytes);
            for candidate in able.iter().take(INPUT_TARGETS) {
                decision.inputs_of(candidate.target);
            }
        }
        None => take_pieces(&mut decision, request, targets, config.weights.tau_s),
    }
    for (index, candidate) in able.iter().enumerate() {
        let why_not = match Some(index) == chosen {
            true => "",
            false => "it is slower, or hashing chose an equal one",
        };
        decision.alternative(alternative(candidate, why_not));
    }
    for candidate in &unable {
        decision.alternative(alternative(candidate, "it cannot have the block whole"));
    }
    decision
}

fn alternative(candidate: &Candidate, why_not: &'static str) -> PlacementAlternative {
    PlacementAlternative {
        of: candidate.target.id.0,
        score: candidate.score,
        why_not,
    }
}

fn scored<'a>(
    request: &PlaceRequest,
    targets: &'a [TargetState],
    config: &PlaceConfig,
) -> Vec<Candidate<'a>> {
    let weights = target_weights(targets, &request.block, &config.weights);
    let times = service_times(targets, &request.block, config.weights.tau_s);
    let usual_s = usual(&times);
    let rows = targets.iter().zip(weights).zip(times);
    let rows = rows.map(|((target, weight), time)| {
        let seconds = match time {
            Some(time) => time.trust * time.value + (1.0 - time.trust) * usual_s,
            None => usual_s,
        };
        Candidate {
            target,
            weight,
            score: (seconds / weight.health_factor.max(f64::MIN_POSITIVE)).min(f64::MAX),
        }
    });
    rows.collect()
}

/// The mean time of the targets, which is expected of one of which nothing is known.
fn usual(times: &[Option<Estimate>]) -> f64 {
    let known = times.iter().flatten().count().max(1) as f64;
    let sum: f64 = times.iter().flatten().map(|it| it.value / known).sum();
    sum.min(f64::MAX)
}

fn by_score(a: &Candidate, b: &Candidate) -> Ordering {
    a.score
        .total_cmp(&b.score)
        .then(a.target.id.cmp(&b.target.id))
}

/// The index of the target that hashing chooses among the best; `None` if there is no target.
fn choose(key: KeyHash, able: &[Candidate], tolerance: f64) -> Option<usize> {
    let most = able.first()?.score * (1.0 + tolerance.max(0.0));
    let best = able.iter().filter(|it| it.score <= most);
    let mut best: Vec<RendezvousTarget> = best
        .map(|it| RendezvousTarget {
            id: it.target.id,
            domain: it.target.domain,
            weight: it.weight.weight,
        })
        .collect();
    // A target that is listed twice is one target.
    best.sort_by_key(|it| it.id);
    best.dedup_by_key(|it| it.id);
    let first = Rendezvous::new(&best).ok()?.first(key)?;
    able.iter().position(|it| it.target.id == first)
}

fn take_whole(decision: &mut PlacementDecision, chosen: &Candidate, bytes: u64) {
    let (target, tier) = (chosen.target.id, chosen.target.tier.name());
    decision.action = PlacementAction::Place {
        pieces: vec![PlacedPiece { target, bytes }],
    };
    decision.effect = match chosen.score > 0.0 {
        true => PredictedEffect::Seconds(chosen.score),
        false => PredictedEffect::Unknown,
    };
    decision.reason = format!(
        "target {} ({tier}) is expected to have the block after {:.3} s, or is one of several that are as fast",
        target.0, chosen.score
    );
}

/// Divides a block over targets, those with the most free bytes first, so that there are few
/// pieces.
fn take_pieces(
    decision: &mut PlacementDecision,
    request: &PlaceRequest,
    targets: &[TargetState],
    tau_s: f64,
) {
    let bytes = request.block.bytes;
    let SplitRule::Pieces { bytes_min } = request.split else {
        decision.reason = format!("no target holds {bytes} bytes whole");
        return;
    };
    let bytes_min = bytes_min.max(1);
    let rooms = targets.iter().filter_map(|target| {
        let may = target.static_weight > 0.0;
        let free = known(target.free_bytes, tau_s).filter(|_| may)?.low();
        // A conversion of floats saturates.
        Some((free as u64, target.id))
    });
    let mut rooms: Vec<_> = rooms.filter(|(free, _)| *free >= bytes_min).collect();
    rooms.sort_by(|a, b| b.cmp(a));
    let mut left = bytes;
    let mut pieces = Vec::new();
    for (free, target) in rooms {
        // The last piece is not smaller than allowed: the one before leaves enough for it.
        let most = match left > free && left - free < bytes_min {
            true => left.saturating_sub(bytes_min),
            false => left.min(free),
        };
        if left > 0 && most >= bytes_min.min(left) {
            pieces.push(PlacedPiece {
                target,
                bytes: most,
            });
            left -= most;
        }
    }
    if left > 0 {
        decision.reason = format!("no target holds {bytes} bytes whole, nor do all in pieces");
        return;
    }
    decision.reason = format!("no target holds {bytes} bytes whole, so it is divided as allowed");
    decision.effect = PredictedEffect::Bytes(bytes as f64);
    decision.action = PlacementAction::Place { pieces };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use crate::rendezvous::TargetId;
    use crate::target::{IoDirection, TargetTier};

    fn target(id: u64, free: f64, queue: f64, bandwidth: f64, age_s: f64) -> TargetState {
        TargetState {
            free_bytes: Some(Reading::measured(free, age_s)),
            queue_bytes: Some(Reading::measured(queue, age_s)),
            write_bytes_per_s: Some(Reading::measured(bandwidth, age_s)),
            ..TargetState::unknown(TargetId(id), TargetTier::Nvme, 1.0)
        }
    }

    fn request(key: u64, bytes: u64, split: SplitRule) -> PlaceRequest {
        PlaceRequest {
            key: KeyHash::of(&key.to_le_bytes()),
            block: BlockRequest {
                bytes,
                direction: IoDirection::Write,
            },
            split,
            now_ns: 7,
        }
    }

    fn chosen(targets: &[TargetState], key: u64) -> Option<u64> {
        let request = request(key, 100, SplitRule::Whole);
        let decision = advise_place(&request, targets, &PlaceConfig::default());
        decision.target().map(|id| id.0)
    }

    #[test]
    fn the_fastest_that_has_room_gets_the_block() {
        let fast = target(1, 1e3, 0.0, 1e3, 0.0);
        let slow = target(2, 1e6, 0.0, 1e2, 0.0);
        let busy = target(1, 1e3, 1e4, 1e3, 0.0);
        let full = target(1, 99.0, 0.0, 1e3, 0.0);
        for (targets, expect) in [
            ([fast, slow], Some(1)),
            ([busy, slow], Some(2)),
            ([full, slow], Some(2)),
            ([full, target(2, 1.0, 0.0, 1.0, 0.0)], None),
        ] {
            assert!((0..50).all(|key| chosen(&targets, key) == expect));
        }
        assert_eq!(chosen(&[], 0), None);
    }

    #[test]
    fn stale_and_equal_targets_are_hashed() {
        for age_s in [0.0, 3_600.0] {
            let bandwidths = if age_s > 0.0 { [1e3, 1e2] } else { [1e3, 1e3] };
            let targets = [1, 2].map(|id| target(id, 1e6, 0.0, bandwidths[id as usize - 1], age_s));
            let of_first = (0..1_000).filter(|key| chosen(&targets, *key) == Some(1));
            let of_first = of_first.count();
            assert!((430..570).contains(&of_first), "{age_s}: {of_first}");
        }
    }

    #[test]
    fn a_block_is_divided_only_if_that_is_asked() {
        let targets = [1, 2, 3].map(|id| target(id, 60.0, 0.0, 1e3, 0.0));
        // Least bytes of a piece, and the expected pieces; 0: not to be divided.
        let table: &[(u64, &[u64])] = &[(0, &[]), (1, &[60, 40]), (50, &[50, 50]), (61, &[])];
        for (bytes_min, expect) in table {
            let split = match bytes_min {
                0 => SplitRule::Whole,
                bytes_min => SplitRule::Pieces {
                    bytes_min: *bytes_min,
                },
            };
            let request = request(1, 100, split);
            let decision = advise_place(&request, &targets, &PlaceConfig::default());
            let pieces = match decision.action {
                PlacementAction::Place { pieces } => pieces,
                _ => Vec::new(),
            };
            let bytes: Vec<u64> = pieces.iter().map(|piece| piece.bytes).collect();
            assert_eq!(bytes, *expect, "{bytes_min}: {}", decision.reason);
        }
    }

    #[test]
    fn the_record_says_what_was_known_and_considered() {
        let targets = [
            target(1, 1e3, 0.0, 1e3, 2.5),
            target(2, 1e6, 0.0, 1e2, 0.0),
            target(3, 1.0, 0.0, 1e2, 0.0),
        ];
        let request = request(1, 100, SplitRule::Whole);
        let decision = advise_place(&request, &targets, &PlaceConfig::default());
        assert_eq!(decision.alternatives.len(), 3);
        let ages: Vec<f64> = decision.inputs.iter().map(|it| it.reading.age_s).collect();
        assert_eq!(ages, [2.5, 2.5, 2.5, 0.0, 0.0, 0.0]);
        assert_eq!(decision.alternatives[0].why_not, "");
        assert!(matches!(decision.effect, PredictedEffect::Seconds(s) if s > 0.1));
        assert_eq!(decision.made_ns, 7);
    }
}
