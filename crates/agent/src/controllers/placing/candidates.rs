//! The directories to which blocks may go, with what the streams say of their file systems.

use barograph_client::{StorageTarget, TargetValue};
use barograph_model::NS_PER_S;
use barograph_placement::{
    BlockRequest, DomainId, KeyHash, Reading, ReadingForecast, TargetExclusion, TargetId,
    TargetState, TargetTier, WeightConfig, target_weights,
};

use super::request::{AdviceRequest, AskedTarget};

/// A directory, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub asked: AskedTarget,
    /// What the streams say of its file system; `None` if they say nothing.
    pub known: Option<StorageTarget>,
    /// The same, as the adviser decides by it.
    pub state: TargetState,
}

impl Candidate {
    /// A directory on a file system.
    pub(super) fn new(asked: &AskedTarget, known: Option<StorageTarget>, now_ns: i64) -> Self {
        let tier = known.as_ref().map_or("", |it| &it.tier);
        let mut state = TargetState::unknown(asked.id, tier_of(tier), asked.weight);
        if let Some(known) = &known {
            let reading = |value| reading(value, now_ns);
            state.domain = DomainId(KeyHash::of(known.device.as_bytes()).number());
            state.capacity_bytes = reading(known.capacity_bytes);
            state.free_bytes = reading(known.free_bytes);
            state.queue_bytes = reading(known.queue_bytes);
            state.read_bytes_per_s = reading(known.read_bytes_s);
            state.write_bytes_per_s = reading(known.write_bytes_s);
            state.health = reading(known.health);
            // One that cannot be written, or hangs, gets nothing whatever else is known.
            if !known.is_writable || !known.is_responding {
                state.static_weight = 0.0;
            }
        }
        Self {
            asked: asked.clone(),
            known,
            state,
        }
    }

    /// The number of its file system, which other directories may share.
    pub(super) fn storage(&self) -> TargetId {
        match self.mount() {
            "" => self.asked.id,
            mount => TargetId(KeyHash::of(mount.as_bytes()).number()),
        }
    }

    /// Where its file system is mounted; empty if that is not known.
    pub(super) fn mount(&self) -> &str {
        self.known.as_ref().map_or("", |it| &it.mount)
    }

    /// The device of its file system; empty if that is not known.
    pub(super) fn device(&self) -> &str {
        self.known.as_ref().map_or("", |it| &it.device)
    }

    /// What is known of it, as a sentence.
    pub(super) fn sentence(&self) -> String {
        let Some(known) = &self.known else {
            return "no stream says anything of its file system".into();
        };
        let mut parts = Vec::new();
        if !known.is_writable {
            parts.push("it cannot be written".to_owned());
        }
        if !known.is_responding {
            parts.push("it does not answer".to_owned());
        }
        let mut say = |what: &str, of: Option<Reading>, unit: &str, scale: f64| match of {
            None => parts.push(format!("{what} unknown")),
            Some(it) => {
                let forecast = it.forecast.map_or_else(String::new, |forecast| {
                    format!(", {:.3} expected for now", forecast.value / scale)
                });
                parts.push(format!(
                    "{what} {:.3} {unit} ({:.1} s ago{forecast})",
                    it.value / scale,
                    it.age_s
                ));
            }
        };
        say("free", self.state.free_bytes, "GB", 1e9);
        say("queue", self.state.queue_bytes, "MB", 1e6);
        say("reads", self.state.read_bytes_per_s, "MB/s", 1e6);
        say("writes", self.state.write_bytes_per_s, "MB/s", 1e6);
        if let Some(health) = self.state.health {
            parts.push(format!(
                "health {:.2} ({:.0} s ago)",
                health.value, health.age_s
            ));
        }
        format!("{} on {}: {}", known.tier, known.mount, parts.join(", "))
    }

    /// Counts a block that goes there: it waits, and takes room, whichever way is to be fast.
    pub(super) fn take(&mut self, bytes: u64) {
        let bytes = bytes as f64;
        if let Some(free) = &mut self.state.free_bytes {
            free.value = (free.value - bytes).max(0.0);
            if let Some(forecast) = &mut free.forecast {
                forecast.value = (forecast.value - bytes).max(0.0);
            }
        }
        if let Some(queue) = &mut self.state.queue_bytes {
            queue.value += bytes;
        }
    }
}

/// The same candidates with nothing known but their weights: what is left is hashing.
pub(super) fn static_states(candidates: &[Candidate]) -> Vec<TargetState> {
    let states = candidates.iter().map(|it| TargetState {
        domain: it.state.domain,
        ..TargetState::unknown(it.state.id, it.state.tier, it.state.static_weight)
    });
    states.collect()
}

/// Why each candidate has no weight, if it has none.
pub(super) fn exclusions(candidates: &[Candidate], request: &AdviceRequest) -> Vec<Option<String>> {
    let states: Vec<TargetState> = candidates.iter().map(|it| it.state).collect();
    let block = BlockRequest {
        bytes: request.bytes,
        direction: request.direction,
    };
    let weights = target_weights(&states, &block, &WeightConfig::default());
    let why = weights.iter().map(|it| it.exclusion.map(why_excluded));
    why.collect()
}

fn why_excluded(exclusion: TargetExclusion) -> String {
    match exclusion {
        TargetExclusion::TooFull { free_bytes } => format!("it has {free_bytes:.0} bytes free"),
        TargetExclusion::TooSmall { capacity_bytes } => {
            format!("all of it has {capacity_bytes:.0} bytes")
        }
        TargetExclusion::NoWeight => {
            "it has no weight, cannot be written, or does not answer".into()
        }
    }
}

fn reading(value: Option<TargetValue>, now_ns: i64) -> Option<Reading> {
    let value = value?;
    let age_ns = now_ns.saturating_sub(value.looked_ns).max(0);
    Some(Reading {
        value: value.value,
        error: value.error,
        age_s: age_ns as f64 / NS_PER_S as f64,
        forecast: value
            .predicted
            .map(|(value, error)| ReadingForecast { value, error }),
    })
}

/// The class of a tier's name. Disks of a node that are no NVMe are between it and what is shared.
fn tier_of(tier: &str) -> TargetTier {
    match tier {
        "memory" => TargetTier::Memory,
        "nvme" => TargetTier::Nvme,
        "pfs" => TargetTier::Pfs,
        _ => TargetTier::BurstBuffer,
    }
}
