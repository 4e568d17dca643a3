//! A follower of the segments of the node and of its applications, for the rules: the streams that
//! exist, and the new samples of those that a rule reads. While a rule reads streams of all nodes
//! of the cluster, it follows the mirrors of other nodes as well.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use barograph_model::{Sample, StreamKey};
use barograph_rule::{ClusterSelector, Rules};
use barograph_stream::{
    DirectoryEntry, LOOK_NS, RunDir, ScopeChoice, SegmentFollower, SegmentPart, SegmentTicks,
    StreamReader,
};
use tracing::debug;

use super::backfill::{FoundPast, FoundPasts, PastStream};
use crate::cluster_inputs::{InputRoom, of_node};

/// All segments, and the streams in them.
pub(super) struct StreamFollower {
    run_dir: RunDir,
    /// `None` until the node's own segment could be opened.
    follower: Option<SegmentFollower<DirectoryEntry>>,
    /// The number of the follower's changes that the rules have seen.
    changes: Option<u64>,
    parts: Vec<Part>,
    free: Vec<u32>,
    next_key: u32,
    /// Whether this node is in a cluster.
    is_clustered: bool,
    /// The selectors of streams of all nodes that the parts have been searched for.
    cluster_reads: Arc<[ClusterSelector]>,
    /// The room for streams of all nodes.
    room: InputRoom,
    /// The version of the rules for which `is_read` of each stream holds.
    version: Option<u64>,
    samples: Vec<Sample>,
    /// Streams whose past is wanted, each with how far back, in ns.
    wanted: HashMap<StreamKey, i64>,
}

/// One segment.
struct Part {
    followed: Arc<SegmentPart<DirectoryEntry>>,
    /// By slot and generation, so that streams get their keys, and are read, in a given order.
    streams: StreamsBySlot,
    /// The streams that rules read under their names in the cluster.
    of_cluster: StreamsBySlot,
}

type StreamsBySlot = BTreeMap<(usize, u16), Followed>;

/// One stream.
struct Followed {
    key: StreamKey,
    entry: Arc<DirectoryEntry>,
    handle: StreamReader,
    /// Whether it is of a mirror.
    is_mirrored: bool,
    is_read: bool,
    cursor: u64,
    looked_ns: i64,
}

impl StreamFollower {
    pub(super) fn new(run_dir: &RunDir, is_clustered: bool) -> Self {
        Self {
            run_dir: run_dir.clone(),
            follower: None,
            changes: None,
            parts: Vec::new(),
            free: Vec::new(),
            next_key: 0,
            is_clustered,
            cluster_reads: Arc::default(),
            room: InputRoom::new("rules"),
            version: None,
            samples: Vec::new(),
            wanted: HashMap::new(),
        }
    }

    /// The present ticks of all segments, to sleep on after a look.
    pub(super) fn ticks(&self) -> SegmentTicks {
        let follower = self.follower.as_ref();
        follower.map_or_else(SegmentTicks::default, SegmentFollower::ticks)
    }

    /// Tells the rules all that is new at `now_ns`, in ns since the epoch.
    pub(super) fn feed(&mut self, rules: &mut Rules, now_ns: i64) {
        self.follow(rules, now_ns);
        if self.version != Some(rules.version()) {
            self.version = Some(rules.version());
            self.choose(rules);
        }
        for part in &mut self.parts {
            for stream in part.all_mut().filter(|s| s.is_read) {
                stream.feed(rules, &mut self.samples);
            }
        }
    }

    /// Takes over the segments and streams that have come, and forgets those that have gone.
    fn follow(&mut self, rules: &mut Rules, now_ns: i64) {
        let reads = match self.is_clustered {
            true => Arc::clone(rules.cluster_reads()),
            false => Arc::default(),
        };
        let followed = match &mut self.follower {
            Some(follower) => {
                follower.set_mirrors(!reads.is_empty());
                follower.follow(now_ns)
            }
            none => {
                let opened =
                    SegmentFollower::open(&self.run_dir, ScopeChoice::Readable, LOOK_NS, now_ns);
                let opened = opened.and_then(|follower| match reads.is_empty() {
                    true => Ok(follower),
                    false => follower.with_mirrors(now_ns),
                });
                opened.map(|follower| *none = Some(follower))
            }
        };
        if let Err(error) = followed {
            debug!(%error, "rules do not see the node's segment");
        }
        let Some(follower) = &self.follower else {
            return;
        };
        let is_known = Arc::ptr_eq(&reads, &self.cluster_reads);
        let has_new_reads = !is_known && *reads != *self.cluster_reads;
        if self.changes == Some(follower.changes()) && !has_new_reads {
            return;
        }
        self.changes = Some(follower.changes());
        self.cluster_reads = reads;
        let mut changed = Vec::new();
        let mut before = std::mem::take(&mut self.parts);
        for (place, followed) in follower.parts().iter().enumerate() {
            let is_it = |p: &Part| Arc::ptr_eq(&p.followed.segment, &followed.segment);
            let known = before.iter().position(is_it);
            let mut part = known.map_or_else(|| Part::of(followed), |at| before.swap_remove(at));
            if known.is_none() || !Arc::ptr_eq(&part.followed, followed) {
                part.followed = Arc::clone(followed);
                changed.push(place);
            }
            self.parts.push(part);
        }
        for part in before {
            for stream in part.streams.into_values() {
                self.forget(stream.key, rules);
            }
            for stream in part.of_cluster.into_values() {
                self.room.give_back(is_publication(&part.followed));
                self.forget(stream.key, rules);
            }
        }
        for place in &changed {
            self.read_directory(*place, rules);
        }
        // Streams that were left out may have room now.
        let all_anew = has_new_reads || self.room.is_full();
        for place in (0..self.parts.len()).filter(|at| all_anew || changed.contains(at)) {
            self.read_cluster(place, rules);
        }
    }

    /// Streams of one segment that rules read, or read no more, under their names in the cluster.
    fn read_cluster(&mut self, at: usize, rules: &mut Rules) {
        let part = &mut self.parts[at];
        let followed = Arc::clone(&part.followed);
        let id = &followed.id;
        let reads = &self.cluster_reads;
        let is_wanted = |entry: &&Arc<DirectoryEntry>| {
            let mut reads = reads.iter();
            reads.any(|read| read.matches(&entry.descriptor, &id.node))
        };
        let wanted = followed.streams.iter().filter(is_wanted);
        let wanted: BTreeMap<(usize, u16), _> =
            wanted.map(|e| ((e.slot, e.generation), e)).collect();
        let gone = part
            .of_cluster
            .extract_if(.., |slot, _| !wanted.contains_key(slot));
        let mut gone: Vec<Followed> = gone.map(|(_, stream)| stream).collect();
        let new = wanted
            .into_iter()
            .filter(|(slot, _)| !part.of_cluster.contains_key(slot));
        let mut new: Vec<_> = new.collect();
        // After a hole in its samples, a mirror registers a stream anew.
        new.retain(|(slot, entry)| {
            let Some(at) = gone.iter().position(|old| old.is_same_life(entry)) else {
                return true;
            };
            let mut stream = gone.swap_remove(at);
            stream.entry = Arc::clone(entry);
            stream.handle = followed.segment.stream(entry);
            part.of_cluster.insert(*slot, stream);
            false
        });
        let is_publication = is_publication(&followed);
        for stream in gone {
            self.room.give_back(is_publication);
            self.forget(stream.key, rules);
        }
        let scope: Arc<str> = id.scope_name().into();
        for (slot, entry) in new {
            let Some(descriptor) = of_node(&entry.descriptor, &id.node) else {
                continue;
            };
            if !self.room.take(is_publication) {
                return;
            }
            let key = self.key();
            rules.cluster_stream_added(key, &descriptor, &scope);
            let stream = Followed::of(key, &followed, entry);
            self.parts[at].of_cluster.insert(slot, stream);
        }
    }

    /// A free key.
    fn key(&mut self) -> StreamKey {
        // Whether it is read is asked again.
        self.version = None;
        StreamKey(self.free.pop().unwrap_or_else(|| {
            self.next_key += 1;
            self.next_key - 1
        }))
    }

    fn forget(&mut self, key: StreamKey, rules: &mut Rules) {
        rules.stream_removed(key);
        self.wanted.remove(&key);
        self.free.push(key.0);
    }

    /// Streams of one segment that have come or gone.
    fn read_directory(&mut self, at: usize, rules: &mut Rules) {
        let part = &mut self.parts[at];
        let followed = Arc::clone(&part.followed);
        if followed.id.is_mirror {
            return;
        }
        let entries = followed.streams.iter();
        let there: BTreeMap<(usize, u16), _> =
            entries.map(|e| ((e.slot, e.generation), e)).collect();
        let gone = part.streams.keys().filter(|id| !there.contains_key(id));
        let gone: Vec<(usize, u16)> = gone.copied().collect();
        let ended = gone.iter().filter_map(|id| part.streams.remove(id));
        for stream in ended.collect::<Vec<Followed>>() {
            self.forget(stream.key, rules);
        }
        for (id, entry) in there {
            if self.parts[at].streams.contains_key(&id) {
                continue;
            }
            let key = self.key();
            rules.stream_added(key, &entry.descriptor, &followed.id.scope);
            let stream = Followed::of(key, &followed, entry);
            self.parts[at].streams.insert(id, stream);
        }
    }

    /// Finds out which streams are read, and which need their past.
    fn choose(&mut self, rules: &mut Rules) {
        self.wanted.extend(rules.take_wanted());
        for part in &mut self.parts {
            for stream in part.all_mut() {
                let was_read = std::mem::replace(&mut stream.is_read, rules.is_read(stream.key));
                if stream.is_read && !was_read {
                    stream.begin(rules, &mut self.samples);
                }
            }
        }
    }

    /// The streams whose past is wanted since this was asked last.
    pub(super) fn take_wanted(&mut self, rules: &Rules) -> Vec<PastStream> {
        if self.wanted.is_empty() {
            return Vec::new();
        }
        let wanted = std::mem::take(&mut self.wanted);
        let mut streams = Vec::with_capacity(wanted.len());
        for part in &self.parts {
            for stream in part.all().filter(|s| s.is_read) {
                let length_ns = wanted.get(&stream.key);
                let descriptor = rules.descriptor(stream.key);
                if let (Some(length_ns), Some(descriptor)) = (length_ns, descriptor) {
                    streams.push(PastStream {
                        key: stream.key,
                        run_dir: part.followed.run_dir.clone(),
                        node: part.followed.id.node.clone(),
                        of_owner: Arc::clone(&stream.entry),
                        descriptor: descriptor.clone(),
                        length_ns: *length_ns,
                    });
                }
            }
        }
        streams
    }

    /// Fills windows with the past that was found. New samples were fed before ([`Self::feed`]), so
    /// that no sample is fed twice.
    pub(super) fn seed(
        &mut self,
        rules: &mut Rules,
        asked: &[PastStream],
        found: FoundPasts,
        now_ns: i64,
    ) {
        let asked: HashMap<StreamKey, &PastStream> = asked.iter().map(|s| (s.key, s)).collect();
        let found: HashMap<StreamKey, FoundPast> = found.into_iter().collect();
        for stream in self.parts.iter_mut().flat_map(Part::all_mut) {
            let (Some(found), Some(asked)) = (found.get(&stream.key), asked.get(&stream.key))
            else {
                continue;
            };
            // Its key may be another stream's by now.
            let is_it = |known| Arc::ptr_eq(known, &asked.descriptor);
            if stream.is_read && rules.descriptor(stream.key).is_some_and(is_it) {
                let start_ns = now_ns.saturating_sub(asked.length_ns);
                stream.seed(rules, found, start_ns, &mut self.samples);
            }
        }
    }
}

impl Part {
    fn of(followed: &Arc<SegmentPart<DirectoryEntry>>) -> Self {
        Self {
            followed: Arc::clone(followed),
            streams: BTreeMap::new(),
            of_cluster: BTreeMap::new(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Followed> {
        self.streams.values().chain(self.of_cluster.values())
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.streams
            .values_mut()
            .chain(self.of_cluster.values_mut())
    }
}

/// Whether it has what applications publish, on any node.
fn is_publication(part: &SegmentPart<DirectoryEntry>) -> bool {
    !part.id.scope_name().is_empty()
}

impl Followed {
    fn of(key: StreamKey, part: &SegmentPart<DirectoryEntry>, entry: &Arc<DirectoryEntry>) -> Self {
        Self {
            key,
            entry: Arc::clone(entry),
            handle: part.segment.stream(entry),
            is_mirrored: part.id.is_mirror,
            is_read: false,
            cursor: 0,
            looked_ns: 0,
        }
    }

    /// Whether the entry is of the same life of a stream: then numbers of samples go on.
    fn is_same_life(&self, entry: &DirectoryEntry) -> bool {
        self.is_mirrored
            && self.entry.series == entry.series
            && self.entry.created_ns == entry.created_ns
    }

    /// Begins a stream that a rule begins to read.
    fn begin(&mut self, rules: &mut Rules, samples: &mut Vec<Sample>) {
        samples.clear();
        if rules.has_sample(self.key) {
            // The stream was read before: its later samples are fed in turn.
            return;
        }
        let Some(scan) = self.handle.tail(1, samples) else {
            return;
        };
        self.cursor = scan.cursor;
        for sample in samples.iter() {
            rules.sample(self.key, sample);
        }
        self.look(rules);
    }

    /// Gives the rules the stream's past: as far as it was found, else as far as the ring reaches.
    fn seed(
        &mut self,
        rules: &mut Rules,
        found: &FoundPast,
        start_ns: i64,
        samples: &mut Vec<Sample>,
    ) {
        let mut oldest_ns = found.oldest_ns();
        if found.samples.is_empty() {
            samples.clear();
            // Samples beyond the cursor are fed in turn.
            let scan = self.handle.scan(0, samples);
            let beyond = scan.map_or(0, |scan| scan.cursor.saturating_sub(self.cursor));
            let beyond = usize::try_from(beyond).unwrap_or(usize::MAX);
            samples.truncate(samples.len().saturating_sub(beyond));
            let last_ns = found.older.last().map_or(i64::MIN, |s| s.ts);
            samples.retain(|sample| sample.ts > last_ns);
            oldest_ns = oldest_ns.or_else(|| samples.first().map(|s| s.ts));
            rules.seed_summaries(self.key, &found.older, samples);
        } else {
            rules.seed_summaries(self.key, &found.older, &found.samples);
        }
        if let Some(lack) = found
            .lack
            .filter(|_| oldest_ns.is_none_or(|ns| ns > start_ns))
        {
            rules.unfilled(self.key, lack);
        }
    }

    /// Feeds the new samples to the rules.
    fn feed(&mut self, rules: &mut Rules, samples: &mut Vec<Sample>) {
        if self.handle.count().is_some_and(|count| count > self.cursor) {
            samples.clear();
            let cursor = self.handle.cursor_from(self.cursor);
            if let Some(scan) = self.handle.scan(cursor, samples) {
                self.cursor = scan.cursor;
                if scan.lost > 0 {
                    rules.missed(self.key, scan.lost);
                }
                for sample in samples.iter() {
                    rules.sample(self.key, sample);
                }
            }
        }
        self.look(rules);
    }

    fn look(&mut self, rules: &mut Rules) {
        let looked_ns = self.handle.looked_ns();
        if looked_ns != self.looked_ns {
            self.looked_ns = looked_ns;
            rules.looked(self.key, looked_ns);
        }
    }
}

#[cfg(test)]
mod tests;
