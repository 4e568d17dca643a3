//! Simulated storage: targets that serve one request after the other, with the load of others that
//! comes and goes, and the state of targets as an observer reads it from time to time.

use barograph_placement::{
    BaselinePolicy, BlockRequest, DomainId, IoDirection, KeyHash, PlaceConfig, PlaceRequest,
    PlacementLedger, Reading, SplitRule, TargetId, TargetState, TargetTier, advise_place,
};

use crate::random::Random;

const GB: f64 = 1e9;

/// Kinds of targets: tier, number, capacity, bytes/s of reads and of writes, latency, and whether
/// others use them as well. In sum the buffers are those of apollo.md 4.4.2: 96 GB and 1 TB.
const KINDS: &[(TargetTier, usize, f64, f64, f64, f64, bool)] = &[
    (
        TargetTier::Nvme,
        16,
        6.0 * GB,
        2.5 * GB,
        1.2 * GB,
        2e-5,
        false,
    ),
    (
        TargetTier::BurstBuffer,
        4,
        250.0 * GB,
        2.0 * GB,
        1.5 * GB,
        2e-4,
        true,
    ),
    (TargetTier::Pfs, 8, 1e6 * GB, 0.6 * GB, 0.5 * GB, 2e-3, true),
];

/// Seconds for which the load of others is drawn.
const HORIZON_S: f64 = 4_000.0;

pub(crate) struct Target {
    pub(crate) tier: TargetTier,
    pub(crate) capacity: f64,
    pub(crate) used: f64,
    read: f64,
    write: f64,
    latency_s: f64,
    busy_until_s: f64,
    /// Times from which a share of the bandwidth is there.
    shares: Vec<(f64, f64)>,
}

impl Target {
    fn share(&self, at_s: f64) -> f64 {
        let index = self.shares.partition_point(|(from_s, _)| *from_s <= at_s);
        self.shares[index - 1].1
    }

    /// Serves a request that comes now; the time of its end.
    pub(crate) fn serve(&mut self, now_s: f64, bytes: f64, direction: IoDirection) -> f64 {
        let start_s = self.busy_until_s.max(now_s);
        let rate = match direction {
            IoDirection::Read => self.read,
            IoDirection::Write => self.write,
        };
        self.busy_until_s = start_s + self.latency_s + bytes / (rate * self.share(start_s));
        self.busy_until_s
    }

    fn state(&self, index: usize, now_s: f64) -> TargetState {
        let share = self.share(now_s);
        let reading = |value| Some(Reading::measured(value, 0.0));
        let queue_s = (self.busy_until_s - now_s).max(0.0);
        TargetState {
            domain: DomainId(index as u64),
            capacity_bytes: reading(self.capacity),
            free_bytes: reading((self.capacity - self.used).max(0.0)),
            queue_bytes: reading(queue_s * self.write * share),
            read_bytes_per_s: reading(self.read * share),
            write_bytes_per_s: reading(self.write * share),
            latency_s: reading(self.latency_s),
            ..TargetState::unknown(TargetId(index as u64), self.tier, self.write)
        }
    }
}

pub(crate) struct Storage {
    pub(crate) targets: Vec<Target>,
}

impl Storage {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed * 104_729 + 11);
        let mut targets = Vec::new();
        for (tier, count, capacity, read, write, latency_s, is_shared) in KINDS {
            for _ in 0..*count {
                targets.push(Target {
                    tier: *tier,
                    capacity: *capacity,
                    used: 0.0,
                    read: *read,
                    write: *write,
                    latency_s: *latency_s,
                    busy_until_s: 0.0,
                    shares: shares(*is_shared, &mut random),
                });
            }
        }
        Self { targets }
    }

    pub(crate) fn of_tier(&self, is_pfs: bool) -> Vec<usize> {
        let indices = 0..self.targets.len();
        let is_asked = |index: &usize| (self.targets[*index].tier == TargetTier::Pfs) == is_pfs;
        indices.filter(is_asked).collect()
    }

    pub(crate) fn states(&self, now_s: f64) -> Vec<TargetState> {
        let targets = self.targets.iter().enumerate();
        targets.map(|(index, it)| it.state(index, now_s)).collect()
    }
}

/// Others leave all of the bandwidth for 40 s, and 20 to 70 % for 20 s, in the mean.
fn shares(is_shared: bool, random: &mut Random) -> Vec<(f64, f64)> {
    let mut shares = vec![(f64::NEG_INFINITY, 1.0)];
    let mut at_s = random.between(0.0, 40.0);
    while is_shared && at_s < HORIZON_S {
        shares.push((at_s, random.between(0.2, 0.7)));
        at_s += random.exponential(20.0);
        shares.push((at_s, 1.0));
        at_s += random.exponential(40.0);
    }
    shares
}

/// Who chooses targets.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Policy {
    Baseline(BaselinePolicy),
    /// The advisers, with state that is read every so many seconds.
    Ours {
        poll_s: f64,
    },
}

pub(crate) const POLICIES: &[Policy] = &[
    Policy::Baseline(BaselinePolicy::PfsOnly),
    Policy::Baseline(BaselinePolicy::RoundRobinBlind),
    Policy::Baseline(BaselinePolicy::RoundRobinAware),
    Policy::Baseline(BaselinePolicy::Hashing),
    Policy::Ours { poll_s: 1.0 },
    Policy::Ours { poll_s: 10.0 },
];

impl Policy {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Baseline(policy) => policy.name().to_owned(),
            Self::Ours { poll_s } => format!("ours, state up to {poll_s} s old"),
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Ours { .. })
    }
}

/// The choices of one policy in one run.
pub(crate) struct Chooser {
    pub(crate) policy: Policy,
    turn: usize,
    ledger: PlacementLedger,
    seen: Vec<TargetState>,
    seen_s: f64,
}

impl Chooser {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            turn: 0,
            ledger: PlacementLedger::new(20_000_000_000, 1),
            seen: Vec::new(),
            seen_s: f64::NEG_INFINITY,
        }
    }

    /// Reads the state as of the last time at which it was due. Called before anything changes, so
    /// that the state of that time is still there.
    pub(crate) fn observe(&mut self, storage: &Storage, now_s: f64) {
        if let Policy::Ours { poll_s } = self.policy {
            let due_s = (now_s / poll_s).floor() * poll_s;
            if due_s > self.seen_s {
                (self.seen, self.seen_s) = (storage.states(due_s), due_s);
            }
        }
    }

    /// The state as the policy knows it: the baselines look themselves, ours reads an observer and
    /// adds what it has placed since.
    pub(crate) fn states(&mut self, storage: &Storage, now_s: f64) -> Vec<TargetState> {
        if !self.policy.is_ours() {
            return storage.states(now_s);
        }
        self.observe(storage, now_s);
        let age_s = now_s - self.seen_s;
        let aged = self.seen.iter().map(|state| {
            let mut state = *state;
            let readings = [
                &mut state.free_bytes,
                &mut state.queue_bytes,
                &mut state.read_bytes_per_s,
                &mut state.write_bytes_per_s,
            ];
            for reading in readings.into_iter().flatten() {
                reading.age_s = age_s;
            }
            state
        });
        let aged: Vec<TargetState> = aged.collect();
        self.ledger.applied(&aged, ns(now_s), 30.0)
    }

    pub(crate) fn placed(&mut self, now_s: f64, target: usize, bytes: f64) {
        let target = TargetId(target as u64);
        self.ledger.placed(ns(now_s), target, bytes as u64);
    }

    /// The target of a block that is written.
    pub(crate) fn choose(&mut self, storage: &Storage, now_s: f64, key: u64, bytes: f64) -> usize {
        let block = BlockRequest {
            bytes: bytes as u64,
            direction: IoDirection::Write,
        };
        let key = KeyHash::of(&key.to_le_bytes());
        let states = self.states(storage, now_s);
        let chosen = match self.policy {
            Policy::Baseline(policy) => policy.choose(&mut self.turn, key, &block, &states),
            Policy::Ours { .. } => {
                let request = PlaceRequest {
                    key,
                    block,
                    split: SplitRule::Whole,
                    now_ns: ns(now_s),
                };
                advise_place(&request, &states, &PlaceConfig::default()).target()
            }
        };
        let chosen = chosen.expect("the file system has room").0 as usize;
        self.placed(now_s, chosen, bytes);
        chosen
    }

    /// The cache of a segment by a baseline, among all buffers.
    pub(crate) fn baseline_cache(
        &mut self,
        policy: BaselinePolicy,
        states: &[TargetState],
        key: u64,
        bytes: f64,
    ) -> Option<usize> {
        let block = BlockRequest {
            bytes: bytes as u64,
            direction: IoDirection::Write,
        };
        let key = KeyHash::of(&key.to_le_bytes());
        let chosen = policy.choose(&mut self.turn, key, &block, states)?.0 as usize;
        (states[chosen].tier != TargetTier::Pfs).then_some(chosen)
    }
}

pub(crate) fn ns(seconds: f64) -> i64 {
    (seconds * 1e9) as i64
}
