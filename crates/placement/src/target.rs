//! Targets with their live state, and the weights that hashing gets from it.
//!
//! A weight is the static weight of the target times one factor for each quantity: free bytes by
//! the mean of all targets, mean time to serve the block by that of this target, health, and mean
//! energy by that of this target. Each factor has its trust as an exponent (see `reading`):
//! so it goes to 1 as the value gets older, and the weights go continuously to the static ones,
//! which is plain hashing. What is unknown has the factor 1: it is taken for average.
//!
//! A target that is known not to hold a block whole has weight 0. A quantity that is 0 or equal at
//! all targets has the factor 1, so that equal targets have equal weights (a score of
//! `(x - min) / (max - min)` divides 0 by 0 there).

use crate::reading::{Estimate, Reading, STALENESS_S_DEFAULT, known};
use crate::rendezvous::{DomainId, TargetId};

/// Least trust with which a target is excluded for its free bytes: those of two time constants ago.
const EXCLUSION_TRUST_MIN: f64 = 0.135;
/// Most by which one quantity changes a weight, up or down.
const FACTOR_MAX: f64 = 1e3;

/// A class of storage, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetTier {
    /// Memory of a node.
    Memory,
    /// NVMe devices of a node.
    Nvme,
    /// Burst buffers that many nodes share.
    BurstBuffer,
    /// The parallel file system.
    Pfs,
}

impl TargetTier {
    /// The name of the tier.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Nvme => "nvme",
            Self::BurstBuffer => "burst buffer",
            Self::Pfs => "pfs",
        }
    }
}

/// What is known of a target. A field of `None` is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetState {
    /// The number of the target.
    pub id: TargetId,
    /// Its failure domain.
    pub domain: DomainId,
    /// Its class of storage.
    pub tier: TargetTier,
    /// Its weight when nothing is known of its state, for example its capacity.
    pub static_weight: f64,
    /// All bytes that it can hold.
    pub capacity_bytes: Option<Reading>,
    /// Bytes that are free.
    pub free_bytes: Option<Reading>,
    /// Bytes that wait to be read or written.
    pub queue_bytes: Option<Reading>,
    /// Bytes/s that it reads.
    pub read_bytes_per_s: Option<Reading>,
    /// Bytes/s that it writes.
    pub write_bytes_per_s: Option<Reading>,
    /// Seconds until the first byte.
    pub latency_s: Option<Reading>,
    /// 0 for one that is about to fail, up to 1 for a sound one.
    pub health: Option<Reading>,
    /// Joule for each byte.
    pub energy_j_per_byte: Option<Reading>,
}

impl TargetState {
    /// A target of which nothing is known but its static weight.
    pub fn unknown(id: TargetId, tier: TargetTier, static_weight: f64) -> Self {
        Self {
            id,
            domain: DomainId(id.0),
            tier,
            static_weight,
            capacity_bytes: None,
            free_bytes: None,
            queue_bytes: None,
            read_bytes_per_s: None,
            write_bytes_per_s: None,
            latency_s: None,
            health: None,
            energy_j_per_byte: None,
        }
    }

    fn bandwidth(&self, direction: IoDirection) -> Option<Reading> {
        match direction {
            IoDirection::Read => self.read_bytes_per_s,
            IoDirection::Write => self.write_bytes_per_s,
        }
    }
}

/// Whether a block is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoDirection {
    /// Bytes come from the target.
    Read,
    /// Bytes go to the target.
    Write,
}

/// The block that is to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRequest {
    /// Its bytes.
    pub bytes: u64,
    /// What is to be fast: its way there, or the way back.
    pub direction: IoDirection,
}

/// How live state becomes weights. An exponent of 0 leaves a quantity out, 1 follows it in
/// proportion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightConfig {
    /// The time constant of staleness, in seconds.
    pub tau_s: f64,
    /// The exponent of free bytes.
    pub capacity: f64,
    /// The exponent of the time to serve the block.
    pub load: f64,
    /// The exponent of energy.
    pub energy: f64,
}

impl Default for WeightConfig {
    fn default() -> Self {
        Self {
            tau_s: STALENESS_S_DEFAULT,
            capacity: 1.0,
            load: 1.0,
            energy: 0.25,
        }
    }
}

/// The reason why a target cannot have a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetExclusion {
    /// It surely has so few free bytes.
    TooFull {
        /// The least that is free.
        free_bytes: f64,
    },
    /// All of it is smaller than the block.
    TooSmall {
        /// The capacity.
        capacity_bytes: f64,
    },
    /// It has a weight of 0: it is drained or about to fail.
    NoWeight,
}

/// The weight of a target for a block, and what made it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TargetWeight {
    /// The number of the target.
    pub id: TargetId,
    /// Its failure domain.
    pub domain: DomainId,
    /// The weight; 0 if it is excluded.
    pub weight: f64,
    /// The factor of free bytes.
    pub capacity_factor: f64,
    /// The factor of the time to serve the block.
    pub load_factor: f64,
    /// The factor of health, 0 to 1.
    pub health_factor: f64,
    /// The factor of energy.
    pub energy_factor: f64,
    /// Why it has no weight, if it has none.
    pub exclusion: Option<TargetExclusion>,
}

/// The weights of all targets for a block, in the order of the targets. They are finite and at
/// least 0, whatever the state is.
pub fn target_weights(
    targets: &[TargetState],
    block: &BlockRequest,
    config: &WeightConfig,
) -> Vec<TargetWeight> {
    let tau_s = config.tau_s;
    let free: Vec<_> = targets.iter().map(|it| free_low(it, tau_s)).collect();
    let times: Vec<_> = service_times(targets, block, tau_s);
    let energies: Vec<_> = targets
        .iter()
        .map(|it| known(it.energy_j_per_byte, tau_s))
        .collect();
    let means = (mean(&free), mean(&times), mean(&energies));
    let rows = targets.iter().enumerate().map(|(index, target)| {
        // More time and more energy are worse, more free bytes are better.
        let capacity_factor = factor(free[index], means.0, config.capacity);
        let load_factor = factor(times[index], means.1, -config.load);
        let energy_factor = factor(energies[index], means.2, -config.energy);
        let health_factor = health(target, tau_s);
        let live = capacity_factor * load_factor * energy_factor * health_factor;
        let fixed = match target.static_weight.is_finite() {
            true => target.static_weight.max(0.0),
            false => 0.0,
        };
        let weight = (fixed * live).min(f64::MAX);
        let no_weight = (weight <= 0.0).then_some(TargetExclusion::NoWeight);
        let exclusion = exclusion(target, block.bytes, tau_s).or(no_weight);
        TargetWeight {
            id: target.id,
            domain: target.domain,
            weight: exclusion.map_or(weight, |_| 0.0),
            capacity_factor,
            load_factor,
            health_factor,
            energy_factor,
            exclusion,
        }
    });
    rows.collect()
}

/// The reason why a target cannot hold so many bytes, if it surely cannot. Free bytes that are
/// older than two time constants do not exclude a target.
pub fn exclusion(target: &TargetState, bytes: u64, tau_s: f64) -> Option<TargetExclusion> {
    let bytes = bytes as f64;
    // A capacity does not change with time: its age does not matter.
    let capacity = target.capacity_bytes.filter(|it| it.value >= 0.0);
    if let Some(capacity) = capacity.filter(|it| it.value < bytes) {
        let capacity_bytes = capacity.value;
        return Some(TargetExclusion::TooSmall { capacity_bytes });
    }
    let free = known(target.free_bytes, tau_s).filter(|it| it.trust >= EXCLUSION_TRUST_MIN)?;
    let free_bytes = free.low();
    (free_bytes < bytes).then_some(TargetExclusion::TooFull { free_bytes })
}

/// The expected seconds of each target until a block is there: latency, and what waits and the
/// block by the bandwidth. A target whose queue is unknown has the mean queue of the others,
/// with little trust. `None` where the bandwidth is unknown or 0.
pub fn service_times(
    targets: &[TargetState],
    block: &BlockRequest,
    tau_s: f64,
) -> Vec<Option<Estimate>> {
    let queues: Vec<_> = targets
        .iter()
        .map(|it| known(it.queue_bytes, tau_s))
        .collect();
    let queue_mean = mean(&queues).unwrap_or(0.0);
    let rows = targets.iter().zip(queues).map(|(target, queue)| {
        let bandwidth = known(target.bandwidth(block.direction), tau_s)?;
        if bandwidth.value <= 0.0 {
            return None;
        }
        let queue = queue.unwrap_or(Estimate {
            value: queue_mean,
            error: queue_mean,
            trust: 0.5,
        });
        let latency_s = known(target.latency_s, tau_s).map_or(0.0, |it| it.value);
        let value = latency_s + (queue.value + block.bytes as f64) / bandwidth.value;
        value.is_finite().then_some(Estimate {
            value,
            error: (queue.error + queue.value * bandwidth.error / bandwidth.value)
                / bandwidth.value,
            trust: bandwidth.trust.min(queue.trust),
        })
    });
    rows.collect()
}

/// The least free bytes; the trust of an exact value, since the error is taken off already.
fn free_low(target: &TargetState, tau_s: f64) -> Option<Estimate> {
    let free = known(target.free_bytes, tau_s)?;
    Some(Estimate {
        value: free.low(),
        ..free
    })
}

/// From 0 to 1, and 1 if it is unknown. It is not an exponent of trust: of a target that fails, an
/// old word counts a share and not nothing.
fn health(target: &TargetState, tau_s: f64) -> f64 {
    match known(target.health, tau_s) {
        Some(health) => 1.0 - health.trust * (1.0 - health.value.min(1.0)),
        None => 1.0,
    }
}

/// The mean of what is known, each weighted by its trust; `None` of nothing, and of zeros alone.
fn mean(estimates: &[Option<Estimate>]) -> Option<f64> {
    let trusts: f64 = estimates.iter().flatten().map(|it| it.trust).sum();
    // Each is multiplied by its share, so that the sum of huge values is finite.
    let parts = estimates.iter().flatten();
    let mean: f64 = parts.map(|it| it.value * (it.trust / trusts)).sum();
    (mean.is_finite() && mean > 0.0).then_some(mean)
}

/// A quantity by its mean, to the power of its exponent and its trust.
fn factor(estimate: Option<Estimate>, mean: Option<f64>, exponent: f64) -> f64 {
    let (Some(estimate), Some(mean)) = (estimate, mean) else {
        return 1.0;
    };
    let ratio = (estimate.value / mean).clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
    let factor = ratio.powf(exponent * estimate.trust);
    match factor.is_finite() {
        true => factor,
        false => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: f64 = 1e9;
    const BLOCK: BlockRequest = BlockRequest {
        bytes: 32_000_000,
        direction: IoDirection::Write,
    };

    fn target(id: u64, free: f64, queue: f64, bandwidth: f64, age_s: f64) -> TargetState {
        TargetState {
            free_bytes: Some(Reading::measured(free, age_s)),
            queue_bytes: Some(Reading::measured(queue, age_s)),
            write_bytes_per_s: Some(Reading::measured(bandwidth, age_s)),
            ..TargetState::unknown(TargetId(id), TargetTier::Nvme, 1.0)
        }
    }

    fn weights(targets: &[TargetState]) -> Vec<f64> {
        let weights = target_weights(targets, &BLOCK, &WeightConfig::default());
        weights.iter().map(|it| it.weight).collect()
    }

    #[test]
    fn equal_targets_have_equal_weights() {
        for (free, queue, bandwidth) in [(GB, 0.0, GB), (GB, GB, GB), (GB, 0.0, 0.0)] {
            let equal = [1, 2, 3].map(|id| target(id, free, queue, bandwidth, 0.0));
            assert_eq!(weights(&equal), [1.0; 3], "{free} {queue} {bandwidth}");
        }
        assert_eq!(weights(&[target(1, GB, 0.0, GB, 0.0)]), [1.0]);
    }

    #[test]
    fn free_bytes_and_short_queues_are_better() {
        let weights = weights(&[
            target(1, 9.0 * GB, 0.0, GB, 0.0),
            target(2, 3.0 * GB, 0.0, GB, 0.0),
            target(3, 3.0 * GB, GB, GB, 0.0),
            target(4, 0.01 * GB, 0.0, GB, 0.0),
        ]);
        assert!(
            weights[0] > weights[1] && weights[1] > weights[2],
            "{weights:?}"
        );
        assert!(weights[2] > 0.0 && weights[3] == 0.0, "{weights:?}");
    }

    #[test]
    fn stale_state_goes_to_static_weights() {
        let mut last = f64::INFINITY;
        for age_s in [0.0, 10.0, 30.0, 60.0, 120.0, 600.0] {
            let weights = weights(&[
                target(1, 9.0 * GB, 0.0, GB, age_s),
                target(2, GB, GB, GB, age_s),
            ]);
            let ratio = weights[0] / weights[1];
            assert!(ratio < last && ratio >= 1.0, "{age_s} s: {ratio}");
            last = ratio;
        }
        assert!(last < 1.000_001, "{last}");
    }

    #[test]
    fn unknown_is_average_and_not_zero() {
        let unknown = TargetState::unknown(TargetId(3), TargetTier::Nvme, 1.0);
        let weights = weights(&[
            target(1, 9.0 * GB, 0.0, GB, 0.0),
            target(2, GB, 0.0, GB, 0.0),
            unknown,
        ]);
        assert!(
            weights[0] > weights[2] && weights[2] > weights[1],
            "{weights:?}"
        );
    }

    #[test]
    fn errors_of_free_bytes_are_taken_off_before_a_block_is_promised_room() {
        let mut near = target(1, 40e6, 0.0, GB, 0.0);
        assert_eq!(exclusion(&near, BLOCK.bytes, 30.0), None);
        near.free_bytes = Some(Reading {
            error: 10e6,
            ..Reading::measured(40e6, 0.0)
        });
        let full = TargetExclusion::TooFull { free_bytes: 30e6 };
        assert_eq!(exclusion(&near, BLOCK.bytes, 30.0), Some(full));
        near.free_bytes = Some(Reading::measured(0.0, 61.0));
        assert_eq!(exclusion(&near, BLOCK.bytes, 30.0), None);
        near.capacity_bytes = Some(Reading::measured(1e6, 1e9));
        let small = TargetExclusion::TooSmall {
            capacity_bytes: 1e6,
        };
        assert_eq!(exclusion(&near, BLOCK.bytes, 30.0), Some(small));
    }

    #[test]
    fn a_failing_target_has_no_weight() {
        let mut failing = target(1, GB, 0.0, GB, 0.0);
        failing.health = Some(Reading::measured(0.0, 0.0));
        let sound = target(2, GB, 0.0, GB, 0.0);
        assert_eq!(weights(&[failing, sound]), [0.0, 1.0]);
    }
}
