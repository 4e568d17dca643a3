//! The policies that the advisers are compared with: the parallel file system alone, round robin
//! that does not look at capacity, round robin that does, and plain hashing.

use crate::hash::KeyHash;
use crate::rendezvous::{Rendezvous, RendezvousTarget, TargetId};
use crate::target::{BlockRequest, TargetState, TargetTier, exclusion};

/// A policy that knows little or nothing of the state of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaselinePolicy {
    /// The parallel file system, whatever else there is.
    PfsOnly,
    /// All buffers in turn, full or not: the round robin that Apollo is compared with.
    RoundRobinBlind,
    /// All buffers in turn, except those that cannot hold the block whole: the round robin of
    /// Hermes (HDFGroup/hermes, `round_robin`). The file system if there is none.
    RoundRobinAware,
    /// Rendezvous hashing by static weights among all buffers, full or not.
    Hashing,
}

impl BaselinePolicy {
    /// The name, for tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::PfsOnly => "pfs only",
            Self::RoundRobinBlind => "round robin, blind",
            Self::RoundRobinAware => "round robin, capacity-aware",
            Self::Hashing => "hashing",
        }
    }

    /// The target of a block. `turn` is the caller's, and moves on by one where turns are
    /// taken. `None` if there is no target of the kind.
    pub fn choose(
        self,
        turn: &mut usize,
        key: KeyHash,
        block: &BlockRequest,
        targets: &[TargetState],
    ) -> Option<TargetId> {
        let of_pfs = targets.iter().filter(|it| it.tier == TargetTier::Pfs);
        let of_pfs: Vec<TargetState> = of_pfs.copied().collect();
        let buffers = targets.iter().filter(|it| it.tier != TargetTier::Pfs);
        let buffers: Vec<TargetState> = buffers.copied().collect();
        match self {
            Self::PfsOnly => hashed(key, &of_pfs),
            Self::Hashing => hashed(key, &buffers),
            Self::RoundRobinBlind => in_turn(turn, &buffers, |_| true),
            Self::RoundRobinAware => {
                // What it reads is local and fresh, as in Hermes: no trust falls with its age.
                let is_room =
                    |it: &TargetState| exclusion(it, block.bytes, f64::INFINITY).is_none();
                in_turn(turn, &buffers, is_room).or_else(|| hashed(key, &of_pfs))
            }
        }
    }
}

fn hashed(key: KeyHash, targets: &[TargetState]) -> Option<TargetId> {
    let targets = targets.iter().map(|target| RendezvousTarget {
        id: target.id,
        domain: target.domain,
        weight: target.static_weight,
    });
    Rendezvous::new(&targets.collect::<Vec<_>>())
        .ok()?
        .first(key)
}

fn in_turn(
    turn: &mut usize,
    targets: &[TargetState],
    may: impl Fn(&TargetState) -> bool,
) -> Option<TargetId> {
    let len = targets.len();
    let offset = (0..len).find(|offset| may(&targets[(*turn % len + offset) % len]))?;
    let index = (*turn % len + offset) % len;
    *turn = (index + 1) % len;
    Some(targets[index].id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;
    use crate::target::IoDirection;

    #[test]
    fn round_robin_skips_full_targets_only_if_it_looks() {
        let target = |id, tier, free| TargetState {
            free_bytes: Some(Reading::measured(free, 0.0)),
            ..TargetState::unknown(TargetId(id), tier, 1.0)
        };
        let targets = [
            target(1, TargetTier::Nvme, 1e9),
            target(2, TargetTier::Nvme, 0.0),
            target(3, TargetTier::BurstBuffer, 1e9),
            target(9, TargetTier::Pfs, 1e15),
        ];
        let block = BlockRequest {
            bytes: 1_000_000,
            direction: IoDirection::Write,
        };
        let table = [
            (BaselinePolicy::PfsOnly, [9, 9, 9, 9]),
            (BaselinePolicy::RoundRobinBlind, [1, 2, 3, 1]),
            (BaselinePolicy::RoundRobinAware, [1, 3, 1, 3]),
        ];
        let choose = |policy: BaselinePolicy, turn: &mut usize, targets: &[TargetState]| {
            policy.choose(turn, KeyHash::of(b"a"), &block, targets)
        };
        for (policy, expect) in table {
            let mut turn = 0;
            for id in expect {
                let chosen = choose(policy, &mut turn, &targets);
                assert_eq!(chosen, Some(TargetId(id)), "{}", policy.name());
            }
        }
        let aware = BaselinePolicy::RoundRobinAware;
        assert_eq!(choose(aware, &mut 0, &targets[1..2]), None);
        assert_eq!(choose(aware, &mut 7, &targets[3..]), Some(TargetId(9)));
        assert_eq!(choose(BaselinePolicy::Hashing, &mut 0, &targets[3..]), None);
    }
}
