//! The replication adviser (HDRE of apollo.md 4.4.2): how many replicas a block gets, and where.
//!
//! A block gets the replicas that its safety needs. Beyond them, one more replica is worth the
//! seconds that its reads wait less: with `r` replicas each serves `1 / r` of the reads, so that a
//! target that is busy for a share `b` of the time by reads of one replica is busy for `b / r`, and
//! the wait of a read is that of a queue with one server and any order of arrival (M/M/1:
//! service time times `b / (1 - b)`). It costs the seconds of its write, once.

use crate::decision::{PlacementAction, PlacementAlternative, PlacementDecision, PredictedEffect};
use crate::hash::KeyHash;
use crate::rendezvous::{Rendezvous, RendezvousTarget, TargetId};
use crate::target::{
    BlockRequest, IoDirection, TargetState, TargetWeight, WeightConfig, service_times,
    target_weights,
};

/// The name of the adviser in its records.
const ADVISER: &str = "replicate";
/// The share of the time up to which a target is a queue in balance; one that is asked for more
/// has waits that grow in proportion, so that a further replica is still worth something.
const BUSY_MAX: f64 = 0.95;

/// A block that may get replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaRequest<'a> {
    /// The hash of its key.
    pub key: KeyHash,
    /// Its bytes.
    pub bytes: u64,
    /// The targets that have it already.
    pub have: &'a [TargetId],
    /// Reads per second that are expected of it.
    pub reads_per_s: f64,
    /// Seconds for which these reads go on.
    pub for_s: f64,
    /// The time, in ns on the caller's clock.
    pub now_ns: i64,
}

/// How blocks are replicated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaConfig {
    /// How state becomes weights.
    pub weights: WeightConfig,
    /// Least replicas, those that are there included: what safety needs.
    pub replicas_min: usize,
    /// Most replicas, those that are there included.
    pub replicas_max: usize,
}

impl Default for ReplicaConfig {
    fn default() -> Self {
        Self {
            weights: WeightConfig::default(),
            replicas_min: 1,
            replicas_max: 3,
        }
    }
}

/// Proposes targets for further replicas of a block, or nothing.
pub fn advise_replicas(
    request: &ReplicaRequest,
    targets: &[TargetState],
    config: &ReplicaConfig,
) -> PlacementDecision {
    let key = request.key.number();
    let mut decision = PlacementDecision::nothing(request.now_ns, ADVISER, key, "");
    let block = |direction| BlockRequest {
        bytes: request.bytes,
        direction,
    };
    let tau_s = config.weights.tau_s;
    let read_s = mean(&service_times(targets, &block(IoDirection::Read), tau_s));
    let write_s = mean(&service_times(targets, &block(IoDirection::Write), tau_s));
    let have = request.have.len().max(1);
    let wanted = wanted(request, config, have, read_s.zip(write_s));
    if wanted.replicas <= request.have.len() {
        decision.reason = format!("{} replicas are enough for its reads", request.have.len());
        return decision;
    }
    let weights = target_weights(targets, &block(IoDirection::Write), &config.weights);
    let more = wanted.replicas - request.have.len();
    let (chosen, shared) = further(request, targets, &weights, more);
    for weight in &weights {
        let is_chosen = chosen.contains(&weight.id);
        let why_not = match (is_chosen, weight.exclusion) {
            (true, _) => "",
            (false, Some(_)) => "it cannot have the block",
            (false, None) => "others are before it, or it has the block or shares its domain",
        };
        decision.alternative(PlacementAlternative {
            of: weight.id.0,
            score: weight.weight,
            why_not,
        });
    }
    for target in targets.iter().filter(|it| chosen.contains(&it.id)) {
        decision.inputs_of(target);
    }
    decision.reason = format!(
        "{} replicas are worth it{}; {} of the further ones have a target, {shared} of them in a domain that has one",
        wanted.replicas,
        if wanted.saved_s > 0.0 {
            " for its reads"
        } else {
            " for safety"
        },
        chosen.len(),
    );
    if !chosen.is_empty() {
        decision.effect = match wanted.saved_s > 0.0 {
            true => PredictedEffect::SecondsSaved(wanted.saved_s),
            false => PredictedEffect::Bytes(request.bytes as f64 * chosen.len() as f64),
        };
        decision.action = PlacementAction::Replicate { targets: chosen };
    }
    decision
}

/// How many replicas there should be, and what those beyond safety save.
struct WantedReplicas {
    replicas: usize,
    saved_s: f64,
}

fn wanted(
    request: &ReplicaRequest,
    config: &ReplicaConfig,
    have: usize,
    times: Option<(f64, f64)>,
) -> WantedReplicas {
    let most = config.replicas_max.max(config.replicas_min);
    let mut wanted = WantedReplicas {
        replicas: have.max(config.replicas_min),
        saved_s: 0.0,
    };
    let Some((read_s, write_s)) = times else {
        return wanted;
    };
    let reads = request.reads_per_s * request.for_s;
    if !reads.is_finite() || reads <= 0.0 {
        return wanted;
    }
    while wanted.replicas < most {
        let wait = |replicas: usize| wait_s(request.reads_per_s * read_s, replicas, read_s);
        let saved_s = reads * (wait(wanted.replicas) - wait(wanted.replicas + 1)) - write_s;
        if saved_s <= 0.0 {
            break;
        }
        wanted.replicas += 1;
        wanted.saved_s += saved_s;
    }
    wanted
}

/// The wait of a read when so many replicas share reads that keep one target busy for a share of
/// the time.
fn wait_s(busy: f64, replicas: usize, read_s: f64) -> f64 {
    let asked = busy / replicas as f64;
    let busy = asked.min(BUSY_MAX);
    read_s * busy / (1.0 - busy) * (asked / BUSY_MAX).max(1.0)
}

/// Targets of further replicas, in the order of weighted hashing: first those in domains that have
/// no replica, then others. The second value is the number of the latter.
fn further(
    request: &ReplicaRequest,
    targets: &[TargetState],
    weights: &[TargetWeight],
    count: usize,
) -> (Vec<TargetId>, usize) {
    let has = |id: &TargetId| request.have.contains(id);
    let taken = targets.iter().filter(|it| has(&it.id));
    let taken: Vec<_> = taken.map(|it| it.domain).collect();
    let able = weights.iter().filter(|it| !has(&it.id));
    let able = able.map(|it| RendezvousTarget {
        id: it.id,
        domain: it.domain,
        weight: it.weight,
    });
    let (shared, free): (Vec<_>, Vec<_>) = able.partition(|it| taken.contains(&it.domain));
    let replicas = |of: &[RendezvousTarget], count| {
        let map = Rendezvous::new(of).ok();
        map.map(|map| map.replicas(request.key, count))
    };
    let (mut chosen, mut in_shared) = (Vec::new(), 0);
    if let Some(first) = replicas(&free, count) {
        in_shared += first.domains_shared;
        chosen.extend(first.targets);
    }
    if let Some(second) = replicas(&shared, count.saturating_sub(chosen.len())) {
        in_shared += second.targets.len();
        chosen.extend(second.targets);
    }
    (chosen, in_shared)
}

fn mean(times: &[Option<crate::reading::Estimate>]) -> Option<f64> {
    let known = times.iter().flatten().count();
    let sum: f64 = times.iter().flatten().map(|it| it.value).sum();
    (known > 0 && sum.is_finite()).then(|| sum / known as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use crate::rendezvous::DomainId;
    use crate::target::TargetTier;

    fn target(id: u64, domain: u64, free: f64) -> TargetState {
        TargetState {
            domain: DomainId(domain),
            free_bytes: Some(Reading::measured(free, 0.0)),
            queue_bytes: Some(Reading::measured(0.0, 0.0)),
            read_bytes_per_s: Some(Reading::measured(100.0, 0.0)),
            write_bytes_per_s: Some(Reading::measured(100.0, 0.0)),
            ..TargetState::unknown(TargetId(id), TargetTier::BurstBuffer, 1.0)
        }
    }

    fn replicas(reads_per_s: f64, replicas_min: usize, targets: &[TargetState]) -> Vec<u64> {
        let request = ReplicaRequest {
            key: KeyHash::of(b"block"),
            bytes: 100,
            have: &[TargetId(1)],
            reads_per_s,
            for_s: 100.0,
            now_ns: 0,
        };
        let config = ReplicaConfig {
            replicas_min,
            ..ReplicaConfig::default()
        };
        match advise_replicas(&request, targets, &config).action {
            PlacementAction::Replicate { targets } => targets.iter().map(|id| id.0).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn hot_blocks_get_replicas_elsewhere() {
        let targets = [
            target(1, 1, 1e4),
            target(2, 1, 1e4),
            target(3, 2, 1e4),
            target(4, 3, 50.0),
            target(5, 4, 1e4),
        ];
        // Reads per second, least replicas, and the number of further ones.
        let table = [
            (0.0, 1, 0),
            (0.001, 1, 0),
            (0.0, 2, 1),
            (2.0, 1, 2),
            (f64::NAN, 1, 0),
        ];
        for (reads_per_s, replicas_min, expect) in table {
            let chosen = replicas(reads_per_s, replicas_min, &targets);
            assert_eq!(chosen.len(), expect, "{reads_per_s} {replicas_min}");
            // Target 4 is full, 2 shares the domain of the first replica.
            assert!(chosen.iter().all(|id| [3, 5].contains(id)), "{chosen:?}");
        }
        assert_eq!(replicas(2.0, 1, &targets[..2]), [2]);
        assert_eq!(replicas(2.0, 3, &targets[..1]), [0; 0]);
    }
}
