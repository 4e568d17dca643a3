//! BD-CATS and Montage: all processes read at each step, from caches if the segment was fetched in
//! time, and from the file system otherwise.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use barograph_placement::{
    BaselinePolicy, CachedSegment, IoDirection, KeyHash, PlacementAction, PredictedSegment,
    PrefetchConfig, PrefetchRequest, ReplicaConfig, ReplicaRequest, SegmentHeat, SegmentSequences,
    TargetId, TargetState, TargetTier, advise_prefetch, advise_replicas, exclusion,
};

use super::{PROCESSES, STEPS};
use crate::random::{Random, Zipf};
use crate::storage::{Chooser, Policy, Storage, ns};

/// Reads ahead of a process that are predicted.
const AHEAD: u32 = 2;
/// Hot segments that may get replicas at each step.
const HOT: usize = 32;

/// What an application reads: a segment for each step and process.
struct Pattern {
    bytes: f64,
    compute_s: f64,
    is_replicated: bool,
    reads: Vec<Vec<u64>>,
}

/// Each process reads its part of each file one after the other.
pub(super) fn bd_cats(policy: Policy, seed: u64) -> f64 {
    let segment = |step: usize, process: usize| (process * STEPS + step) as u64;
    let step = |step| {
        (0..PROCESSES)
            .map(|process| segment(step, process))
            .collect()
    };
    let pattern = Pattern {
        bytes: 32e6,
        compute_s: 20.0,
        is_replicated: false,
        reads: (0..STEPS).map(step).collect(),
    };
    run(policy, seed, &pattern)
}

/// Each process reads images in an odd order, and in the second half another process reads the same
/// ones in the same order. A third of the reads are of 64 images that all use, some of them much.
pub(super) fn montage(policy: Policy, seed: u64) -> f64 {
    let mut random = Random(seed + 5);
    let mut images: Vec<usize> = (64..64 + PROCESSES * STEPS / 2).collect();
    random.shuffle(&mut images);
    let zipf = Zipf::new(64, 1.0);
    let reads = (0..STEPS).map(|step| {
        let row = (0..PROCESSES).map(|process| {
            if random.unit() < 1.0 / 3.0 {
                return zipf.draw(&mut random) as u64;
            }
            let shifted = (process + step / (STEPS / 2)) % PROCESSES;
            images[shifted * (STEPS / 2) + step % (STEPS / 2)] as u64
        });
        row.collect()
    });
    let pattern = Pattern {
        bytes: 10e6,
        compute_s: 8.0,
        is_replicated: true,
        reads: reads.collect(),
    };
    run(policy, seed, &pattern)
}

/// A copy of a segment in a cache.
#[derive(Clone, Copy)]
struct Copy {
    target: usize,
    /// When it is there.
    ready_s: f64,
    /// Whether it was read since it came.
    is_read: bool,
}

struct Run<'a> {
    storage: Storage,
    chooser: Chooser,
    pattern: &'a Pattern,
    pfs: Vec<usize>,
    copies: BTreeMap<u64, Vec<Copy>>,
    /// Segments of each cache, oldest first, and how many of them were read.
    order: Vec<VecDeque<u64>>,
    read: Vec<usize>,
    sequences: SegmentSequences,
    heat: SegmentHeat,
}

fn run(policy: Policy, seed: u64, pattern: &Pattern) -> f64 {
    let storage = Storage::new(seed);
    let len = storage.targets.len();
    let mut run = Run {
        pfs: storage.of_tier(true),
        storage,
        chooser: Chooser::new(policy),
        pattern,
        copies: BTreeMap::new(),
        order: vec![VecDeque::new(); len],
        read: vec![0; len],
        sequences: SegmentSequences::default(),
        heat: SegmentHeat::new(60.0, 65_536),
    };
    let mut random = Random(seed + 2);
    let (mut start_s, mut io_s) = (0.0, 0.0);
    for step in 0..STEPS {
        let end_s = run.read_step(step, start_s, &mut random);
        io_s += end_s - start_s;
        start_s = end_s + random.between(0.9, 1.1) * pattern.compute_s;
        if policy != Policy::Baseline(BaselinePolicy::PfsOnly) && step + 1 < STEPS {
            run.prefetch_step(end_s, start_s - end_s);
        }
    }
    io_s
}

impl Run<'_> {
    fn server(&self, segment: u64) -> usize {
        let hash = KeyHash::of(&segment.to_le_bytes()).number();
        self.pfs[(hash % self.pfs.len() as u64) as usize]
    }

    /// All processes read; the time at which the last one has its segment.
    fn read_step(&mut self, step: usize, start_s: f64, random: &mut Random) -> f64 {
        let mut reads: Vec<(f64, usize)> = (0..PROCESSES)
            .map(|process| (start_s + random.between(0.0, 0.5), process))
            .collect();
        // Who waits for a fetch begins when it is there.
        for (at_s, process) in &mut reads {
            let segment = self.pattern.reads[step][*process];
            let copies = self.copies.get(&segment).map_or(&[][..], Vec::as_slice);
            let ready_s = copies
                .iter()
                .map(|it| it.ready_s)
                .fold(f64::INFINITY, f64::min);
            if ready_s.is_finite() {
                *at_s = at_s.max(ready_s);
            }
        }
        reads.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut end_s = start_s;
        for (at_s, process) in reads {
            let segment = self.pattern.reads[step][process];
            self.chooser.observe(&self.storage, at_s);
            let source = self.source(segment, at_s, random);
            let target = &mut self.storage.targets[source];
            end_s = target
                .serve(at_s, self.pattern.bytes, IoDirection::Read)
                .max(end_s);
            for copy in self.copies.get_mut(&segment).into_iter().flatten() {
                self.read[copy.target] += usize::from(!copy.is_read);
                copy.is_read = true;
            }
            self.sequences.read(process as u64, segment);
            self.heat.read(segment, ns(at_s));
        }
        end_s
    }

    /// The target that a segment is read from: ours is the one with the shortest queue as far as
    /// is known, another policy takes any copy.
    fn source(&mut self, segment: u64, at_s: f64, random: &mut Random) -> usize {
        let copies = self.copies.get(&segment).into_iter().flatten();
        let ready: Vec<usize> = copies
            .filter(|it| it.ready_s <= at_s)
            .map(|it| it.target)
            .collect();
        if ready.is_empty() {
            return self.server(segment);
        }
        // Each reader sees how busy a copy is only by what it is told: any copy is taken.
        ready[random.below(ready.len())]
    }

    fn prefetch_step(&mut self, now_s: f64, until_s: f64) {
        let mut wanted: BTreeMap<u64, PredictedSegment> = BTreeMap::new();
        for process in 0..PROCESSES as u64 {
            for predicted in self.sequences.predict(process, AHEAD) {
                let best = wanted.entry(predicted.segment).or_insert(predicted);
                if predicted.probability > best.probability {
                    *best = predicted;
                }
            }
        }
        let mut wanted: Vec<PredictedSegment> = wanted.into_values().collect();
        wanted.retain(|it| it.probability >= 0.25 && !self.copies.contains_key(&it.segment));
        wanted.sort_by_key(|it| (it.ahead, it.segment));
        let expected: BTreeSet<u64> = wanted.iter().map(|it| it.segment).collect();
        let mut fetches = Vec::new();
        for predicted in wanted {
            let origin = self.server(predicted.segment);
            let cache = match self.chooser.policy {
                Policy::Baseline(policy) => self.baseline_cache(policy, predicted.segment, now_s),
                Policy::Ours { .. } => {
                    self.our_cache(&predicted, origin, now_s, until_s, &expected)
                }
            };
            if let Some(cache) = cache {
                fetches.push(self.begin(predicted.segment, cache, now_s));
            }
        }
        if self.pattern.is_replicated {
            for segment in self.heat.hottest(HOT) {
                for cache in self.replicas(segment, now_s, until_s) {
                    fetches.push(self.begin(segment, cache, now_s));
                }
            }
        }
        self.arrive(fetches);
    }

    /// Reads a segment for a cache; the time at which it comes there.
    fn begin(&mut self, segment: u64, cache: usize, now_s: f64) -> (f64, usize, u64) {
        let bytes = self.pattern.bytes;
        let origin = self.server(segment);
        let come_s = self.storage.targets[origin].serve(now_s, bytes, IoDirection::Read);
        self.storage.targets[cache].used += bytes;
        self.chooser.placed(now_s, cache, bytes);
        self.chooser.placed(now_s, origin, bytes);
        let copy = Copy {
            target: cache,
            ready_s: f64::INFINITY,
            is_read: false,
        };
        self.copies.entry(segment).or_default().push(copy);
        self.order[cache].push_back(segment);
        (come_s, cache, segment)
    }

    /// Writes what has come to caches, in the order of time.
    fn arrive(&mut self, mut fetches: Vec<(f64, usize, u64)>) {
        fetches.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (come_s, cache, segment) in fetches {
            let bytes = self.pattern.bytes;
            let ready_s = self.storage.targets[cache].serve(come_s, bytes, IoDirection::Write);
            let copies = self.copies.get_mut(&segment).into_iter().flatten();
            for copy in copies.filter(|it| it.target == cache) {
                copy.ready_s = ready_s;
            }
        }
    }

    fn baseline_cache(
        &mut self,
        policy: BaselinePolicy,
        segment: u64,
        now_s: f64,
    ) -> Option<usize> {
        let bytes = self.pattern.bytes;
        let is_aware = policy == BaselinePolicy::RoundRobinAware;
        let mut states = self.chooser.states(&self.storage, now_s);
        if is_aware {
            // What was read counts as room, as it is dropped first.
            for (cache, state) in states.iter_mut().enumerate() {
                let droppable = self.read[cache] as f64 * bytes;
                if let Some(free) = &mut state.free_bytes {
                    free.value += droppable;
                }
            }
        }
        let cache = self
            .chooser
            .baseline_cache(policy, &states, segment, bytes)?;
        while self.free(cache) < bytes {
            let mut order = self.order[cache].iter();
            let oldest = match is_aware {
                true => order.find(|it| self.is_read(**it, cache)),
                false => order.next(),
            };
            let oldest = *oldest?;
            self.drop_copy(oldest, cache);
        }
        Some(cache)
    }

    fn our_cache(
        &mut self,
        predicted: &PredictedSegment,
        origin: usize,
        now_s: f64,
        until_s: f64,
        expected: &BTreeSet<u64>,
    ) -> Option<usize> {
        let bytes = self.pattern.bytes;
        let states = self.chooser.states(&self.storage, now_s);
        let origin = states[origin];
        let is_cache = |it: &&TargetState| it.tier != TargetTier::Pfs;
        let caches: Vec<_> = states.iter().filter(is_cache).copied().collect();
        let request = PrefetchRequest {
            predicted: *predicted,
            bytes: bytes as u64,
            until_s: Some(until_s * f64::from(predicted.ahead)),
            now_ns: ns(now_s),
        };
        let config = PrefetchConfig::default();
        let is_room =
            |it: &TargetState| exclusion(it, bytes as u64, config.place.weights.tau_s).is_none();
        // Segments in caches matter only where no cache has room.
        let cached = match caches.iter().any(is_room) {
            true => Vec::new(),
            false => self.cached(expected, now_s),
        };
        let decision = advise_prefetch(&request, &origin, &caches, &cached, &config);
        let PlacementAction::Prefetch { target, evict, .. } = decision.action else {
            return None;
        };
        let cache = target.0 as usize;
        for segment in evict {
            self.drop_copy(segment, cache);
        }
        (self.free(cache) >= bytes).then_some(cache)
    }

    /// What may be dropped: the oldest segments of each cache that are there.
    fn cached(&self, expected: &BTreeSet<u64>, now_s: f64) -> Vec<CachedSegment> {
        let mut cached = Vec::new();
        for (cache, order) in self.order.iter().enumerate() {
            for segment in order.iter().take(64) {
                let probability = match (self.is_read(*segment, cache), expected.contains(segment))
                {
                    (true, false) => (self.heat.heat(*segment, ns(now_s)) - 1.0).clamp(0.0, 1.0),
                    _ => 0.9,
                };
                cached.push(CachedSegment {
                    segment: *segment,
                    target: TargetId(cache as u64),
                    bytes: self.pattern.bytes as u64,
                    probability,
                });
            }
        }
        cached
    }

    /// Caches for further copies of a hot segment.
    fn replicas(&mut self, segment: u64, now_s: f64, until_s: f64) -> Vec<usize> {
        let copies = self.copies.get(&segment).into_iter().flatten();
        let have: Vec<TargetId> = copies.map(|it| TargetId(it.target as u64)).collect();
        if have.is_empty() {
            return Vec::new();
        }
        match self.chooser.policy {
            // One further copy of each, where it is their turn.
            Policy::Baseline(policy) if have.len() < 2 => {
                let cache = self.baseline_cache(policy, segment, now_s);
                cache
                    .filter(|it| TargetId(*it as u64) != have[0])
                    .into_iter()
                    .collect()
            }
            Policy::Baseline(_) => Vec::new(),
            Policy::Ours { .. } => {
                let mut states = self.chooser.states(&self.storage, now_s);
                states.retain(|it| it.tier != TargetTier::Pfs);
                // Reads come all at once when a step begins, not over the time of a step.
                let reads = self.heat.reads_per_s(segment, ns(now_s)) * until_s;
                let request = ReplicaRequest {
                    key: KeyHash::of(&segment.to_le_bytes()),
                    bytes: self.pattern.bytes as u64,
                    have: &have,
                    reads_per_s: reads,
                    for_s: 1.0,
                    now_ns: ns(now_s),
                };
                let decision = advise_replicas(&request, &states, &ReplicaConfig::default());
                let PlacementAction::Replicate { targets } = decision.action else {
                    return Vec::new();
                };
                let caches = targets.iter().map(|it| it.0 as usize);
                caches
                    .filter(|it| self.free(*it) >= self.pattern.bytes)
                    .collect()
            }
        }
    }

    fn free(&self, cache: usize) -> f64 {
        self.storage.targets[cache].capacity - self.storage.targets[cache].used
    }

    fn is_read(&self, segment: u64, cache: usize) -> bool {
        let mut copies = self.copies.get(&segment).into_iter().flatten();
        copies.any(|it| it.target == cache && it.is_read)
    }

    fn drop_copy(&mut self, segment: u64, cache: usize) {
        self.read[cache] -= usize::from(self.is_read(segment, cache));
        if let Some(copies) = self.copies.get_mut(&segment) {
            copies.retain(|it| it.target != cache);
            if copies.is_empty() {
                self.copies.remove(&segment);
            }
        }
        self.order[cache].retain(|it| *it != segment);
        self.storage.targets[cache].used -= self.pattern.bytes;
    }
}
