//! BD-CATS and Montage: all processes read at each step, from caches if the segment was fetched in
//! time, and from the file system otherwise.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use barograph_placement::{
    BaselinePolicy, CachedSegment, IoDirection, KeyHash, PlacementAction, PredictedSegment,
    PrefetchConfig, PrefetchRequest, ReplicaConfig, ReplicaRequest, SegmentHeat, SegmentSequences,
    TargetId, TargetState, TargetTier, advise_prefetch, advise_replicas, exclusion,
};

use super::{CaseRun, LastRequest, PROCESSES, STEPS};
use crate::random::{Random, Zipf};
use crate::storage::{Chooser, Policy, Storage, ns};

/// Reads ahead of a process that are predicted.
const AHEAD: u32 = 2;
/// Hot segments that may get replicas at each step.
const HOT: usize = 32;
/// Segments of a cache that may be dropped at one step.
const DEAD_MAX: usize = 256;

/// What an application reads: a segment for each step and process.
struct Pattern {
    bytes: f64,
    compute_s: f64,
    is_replicated: bool,
    reads: Vec<Vec<u64>>,
}

/// Each process reads its part of each file one after the other.
pub(super) fn bd_cats(policy: Policy, seed: u64) -> CaseRun {
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
pub(super) fn montage(policy: Policy, seed: u64) -> CaseRun {
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

/// Whether a segment is in a cache.
enum Ready {
    /// It is or will be, from a time in ns.
    At(i64),
    /// It is on its way.
    Coming,
    /// It is in none.
    Nowhere,
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
    /// What was read for caches, by the time in ns at which it comes there.
    coming: BinaryHeap<Reverse<(i64, usize, u64)>>,
    sequences: SegmentSequences,
    heat: SegmentHeat,
    /// The last read of this step.
    last: LastRequest,
    outcome: CaseRun,
}

fn run(policy: Policy, seed: u64, pattern: &Pattern) -> CaseRun {
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
        coming: BinaryHeap::new(),
        sequences: SegmentSequences::default(),
        heat: SegmentHeat::new(60.0, 65_536),
        last: LastRequest::default(),
        outcome: CaseRun::default(),
    };
    let mut random = Random(seed + 2);
    let mut start_s = 0.0;
    for step in 0..STEPS {
        run.last = LastRequest::default();
        run.read_step(step, start_s, &mut random);
        run.outcome.step(start_s, run.last);
        let end_s = run.last.end_s;
        start_s = end_s + random.between(0.9, 1.1) * pattern.compute_s;
        if policy != Policy::Baseline(BaselinePolicy::PfsOnly) && step + 1 < STEPS {
            run.prefetch_step(end_s, start_s - end_s);
        }
    }
    run.outcome
}

impl Run<'_> {
    fn server(&self, segment: u64) -> usize {
        let hash = KeyHash::of(&segment.to_le_bytes()).number();
        self.pfs[(hash % self.pfs.len() as u64) as usize]
    }

    /// All processes read, until the last one has its segment. Who waits for a fetch reads when it
    /// is there.
    fn read_step(&mut self, step: usize, start_s: f64, random: &mut Random) {
        let begins = (0..PROCESSES).map(|process| {
            let at_s = start_s + random.between(0.0, 0.5);
            Reverse((ns(at_s), process))
        });
        let mut reads: BinaryHeap<Reverse<(i64, usize)>> = begins.collect();
        let mut waiting: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        loop {
            let next_ns = reads.peek().map(|it| it.0.0);
            let come_ns = self.coming.peek().map(|it| it.0.0);
            if come_ns.is_some_and(|come| next_ns.is_none_or(|next| come <= next)) {
                // Fetches of later steps may still be on their way when all have read.
                if next_ns.is_none() && waiting.is_empty() {
                    return;
                }
                let Some((segment, ready_s)) = self.arrive() else {
                    return;
                };
                let woken = waiting.remove(&segment).into_iter().flatten();
                reads.extend(woken.map(|process| Reverse((ns(ready_s), process))));
                continue;
            }
            let Some(Reverse((at_ns, process))) = reads.pop() else {
                return;
            };
            let at_s = at_ns as f64 / 1e9;
            let segment = self.pattern.reads[step][process];
            match self.ready(segment, at_ns) {
                Ready::At(ready_ns) if ready_ns > at_ns => reads.push(Reverse((ready_ns, process))),
                Ready::Coming => waiting.entry(segment).or_default().push(process),
                Ready::At(_) | Ready::Nowhere => {
                    self.read(segment, process, at_s, random);
                }
            }
        }
    }

    /// When the first copy of a segment is there.
    fn ready(&self, segment: u64, at_ns: i64) -> Ready {
        let Some(copies) = self.copies.get(&segment) else {
            return Ready::Nowhere;
        };
        let first_s = copies
            .iter()
            .map(|it| it.ready_s)
            .fold(f64::INFINITY, f64::min);
        match first_s.is_finite() {
            true => Ready::At(ns(first_s).max(at_ns)),
            false => Ready::Coming,
        }
    }

    /// A process reads a segment that is there, or the file system's.
    fn read(&mut self, segment: u64, process: usize, at_s: f64, random: &mut Random) {
        self.chooser.observe(&self.storage, at_s);
        let source = self.source(segment, at_s, random);
        let target = &mut self.storage.targets[source];
        let end_s = target.serve(at_s, self.pattern.bytes, IoDirection::Read);
        for copy in self.copies.get_mut(&segment).into_iter().flatten() {
            self.read[copy.target] += usize::from(!copy.is_read);
            copy.is_read = true;
        }
        self.sequences.read(process as u64, segment);
        self.heat.read(segment, ns(at_s));
        let is_pfs = self.pfs.contains(&source);
        self.outcome.requests += 1;
        self.outcome.at_pfs += usize::from(is_pfs);
        self.last.served(end_s, is_pfs);
    }

    /// Writes what comes next to its cache; the segment, and when it is there.
    fn arrive(&mut self) -> Option<(u64, f64)> {
        let Reverse((come_ns, cache, segment)) = self.coming.pop()?;
        let come_s = come_ns as f64 / 1e9;
        self.chooser.observe(&self.storage, come_s);
        let copies = self.copies.get_mut(&segment).into_iter().flatten();
        let copy = copies.into_iter().find(|it| it.target == cache);
        // What was dropped on its way is not written.
        let Some(copy) = copy else {
            return Some((segment, come_s));
        };
        let target = &mut self.storage.targets[cache];
        copy.ready_s = target.serve(come_s, self.pattern.bytes, IoDirection::Write);
        Some((segment, copy.ready_s))
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
        while self.coming.peek().is_some_and(|it| it.0.0 <= ns(now_s)) {
            self.arrive();
        }
        let mut dead = match self.chooser.policy.is_ours() {
            true => self.dead(&expected, now_s),
            false => Vec::new(),
        };
        for predicted in wanted {
            let origin = self.server(predicted.segment);
            let cache = match self.chooser.policy {
                Policy::Baseline(policy) => self.baseline_cache(policy, predicted.segment, now_s),
                Policy::Ours { .. } => {
                    self.our_cache(&predicted, origin, (now_s, until_s), &expected, &mut dead)
                }
            };
            if let Some(cache) = cache {
                self.begin(predicted.segment, cache, now_s);
            }
        }
        if self.pattern.is_replicated {
            for segment in self.heat.hottest(HOT) {
                for cache in self.replicas(segment, now_s, until_s) {
                    self.begin(segment, cache, now_s);
                }
            }
        }
    }

    /// Begins to read a segment for a cache.
    fn begin(&mut self, segment: u64, cache: usize, now_s: f64) {
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
        self.coming.push(Reverse((ns(come_s), cache, segment)));
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
        (now_s, until_s): (f64, f64),
        expected: &BTreeSet<u64>,
        dead: &mut Vec<CachedSegment>,
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
        // What is expected to be read matters only where nothing else makes room.
        let others = match dead.is_empty() && !caches.iter().any(is_room) {
            true => self.cached(expected),
            false => Vec::new(),
        };
        let cached = if others.is_empty() { &*dead } else { &others };
        let decision = advise_prefetch(&request, &origin, &caches, cached, &config);
        let PlacementAction::Prefetch { target, evict, .. } = decision.action else {
            return None;
        };
        let cache = target.0 as usize;
        for segment in evict {
            dead.retain(|it| it.segment != segment || it.target != target);
            self.drop_copy(segment, cache);
        }
        (self.free(cache) >= bytes).then_some(cache)
    }

    /// The oldest segments of each cache that were read and are not expected again: they are not
    /// hot, and nobody is predicted to ask for them.
    fn dead(&self, expected: &BTreeSet<u64>, now_s: f64) -> Vec<CachedSegment> {
        let is_dead = |segment: &u64, cache| {
            let is_expected =
                expected.contains(segment) || self.heat.heat(*segment, ns(now_s)) > 1.0;
            self.is_read(*segment, cache) && !is_expected
        };
        let mut dead = Vec::new();
        for (cache, order) in self.order.iter().enumerate() {
            let of_cache = order.iter().filter(|segment| is_dead(segment, cache));
            let of_cache = of_cache.take(DEAD_MAX);
            dead.extend(of_cache.map(|segment| self.cached_segment(*segment, cache, 0.0)));
        }
        dead
    }

    /// The oldest segments of each cache, where nothing else makes room.
    fn cached(&self, expected: &BTreeSet<u64>) -> Vec<CachedSegment> {
        let mut cached = Vec::new();
        for (cache, order) in self.order.iter().enumerate() {
            for segment in order.iter().take(64) {
                let is_over = self.is_read(*segment, cache) && !expected.contains(segment);
                let probability = if is_over { 0.3 } else { 0.9 };
                cached.push(self.cached_segment(*segment, cache, probability));
            }
        }
        cached
    }

    fn cached_segment(&self, segment: u64, cache: usize, probability: f64) -> CachedSegment {
        CachedSegment {
            segment,
            target: TargetId(cache as u64),
            bytes: self.pattern.bytes as u64,
            probability,
        }
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
        let is_read = self.is_read(segment, cache);
        self.read[cache] -= usize::from(is_read);
        self.outcome.stalls += usize::from(!is_read);
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
