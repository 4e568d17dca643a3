//! A follower of the segments of the node and of its applications, for the rules: which streams there
//! are, and what is new in those that a rule reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use barograph_model::{Clock, NS_PER_S, Sample, StreamKey};
use barograph_rule::Rules;
use barograph_stream::{RunDir, SegmentReader, StreamReader};
use tracing::debug;

use super::backfill::{Ask, Found, Told};

/// Scopes that have come or gone are looked for so often, in ns.
const LOOK_NS: i64 = NS_PER_S;

/// All segments.
pub(super) struct Follow {
    run_dir: RunDir,
    parts: Vec<Part>,
    next_look_ns: i64,
    /// Scope of each key.
    scopes: HashMap<StreamKey, Arc<str>>,
    free: Vec<u32>,
    next_key: u32,
    /// What the rules' version was when `is_read` was asked for each stream.
    version: Option<u64>,
    samples: Vec<Sample>,
    /// Streams whose past is wanted, each with how far back, in ns.
    wanted: HashMap<StreamKey, i64>,
}

/// One segment.
struct Part {
    scope: Arc<str>,
    run_dir: RunDir,
    node: Arc<str>,
    segment: SegmentReader,
    /// The directory's version when it was read; `None` before.
    version: Option<u64>,
    streams: HashMap<(usize, u16), Followed>,
}

/// One stream.
struct Followed {
    key: StreamKey,
    handle: StreamReader,
    is_read: bool,
    cursor: u64,
    looked_ns: i64,
}

impl Follow {
    pub fn new(run_dir: &RunDir) -> Self {
        Self {
            run_dir: run_dir.clone(),
            parts: Vec::new(),
            next_look_ns: i64::MIN,
            scopes: HashMap::new(),
            free: Vec::new(),
            next_key: 0,
            version: None,
            samples: Vec::new(),
            wanted: HashMap::new(),
        }
    }

    /// Segments with what their ticks are now, to sleep on after a look.
    pub fn ticks(&self) -> Vec<(SegmentReader, u32)> {
        let parts = self.parts.iter();
        parts
            .map(|p| (p.segment.clone(), p.segment.tick()))
            .collect()
    }

    /// Sleeps until one of the ticks is another, at most so long.
    pub fn wait(ticks: &[(SegmentReader, u32)], at_most: Duration) {
        let seen: Vec<(&SegmentReader, u32)> = ticks.iter().map(|(s, t)| (s, *t)).collect();
        SegmentReader::wait_ticks(&seen, at_most);
    }

    /// The scope that a stream is of; empty for the node's own.
    pub fn scope_of(&self, key: StreamKey) -> &str {
        self.scopes.get(&key).map_or("", |scope| scope)
    }

    /// Tells the rules all that is new.
    pub fn feed(&mut self, rules: &mut Rules, monotonic_ns: i64) {
        if monotonic_ns >= self.next_look_ns {
            self.next_look_ns = monotonic_ns.saturating_add(LOOK_NS);
            self.look(rules);
        }
        for at in 0..self.parts.len() {
            if self.parts[at].version != Some(self.parts[at].segment.directory_version()) {
                self.read_directory(at, rules);
            }
        }
        if self.version != Some(rules.version()) {
            self.version = Some(rules.version());
            self.choose(rules);
        }
        for part in &mut self.parts {
            for stream in part.streams.values_mut().filter(|s| s.is_read) {
                stream.feed(rules, &mut self.samples);
            }
        }
    }

    /// Opens the segments that have come, and forgets those that have gone.
    fn look(&mut self, rules: &mut Rules) {
        let own = (String::new(), self.run_dir.clone());
        let there: Vec<(String, RunDir)> =
            std::iter::once(own).chain(self.run_dir.scopes()).collect();
        let mut at = 0;
        while at < self.parts.len() {
            let part = &mut self.parts[at];
            let is_there = there.iter().any(|(scope, _)| **scope == *part.scope);
            let replaced = part.segment.reopen_if_replaced();
            if is_there && matches!(replaced, Ok(false)) {
                at += 1;
                continue;
            }
            // What it is now is opened below.
            let part = self.parts.swap_remove(at);
            for stream in part.streams.into_values() {
                self.forget(stream.key, rules);
            }
        }
        for (scope, run_dir) in there {
            if self.parts.iter().any(|part| *part.scope == *scope) {
                continue;
            }
            match SegmentReader::of(&run_dir) {
                Ok(segment) => self.parts.push(Part {
                    scope: scope.into(),
                    run_dir,
                    node: segment.node().into(),
                    segment,
                    version: None,
                    streams: HashMap::new(),
                }),
                Err(error) => debug!(%error, scope, "rules do not see this segment"),
            }
        }
    }

    fn forget(&mut self, key: StreamKey, rules: &mut Rules) {
        rules.stream_removed(key);
        self.scopes.remove(&key);
        self.wanted.remove(&key);
        self.free.push(key.0);
    }

    /// Streams of one segment that have come or gone.
    fn read_directory(&mut self, at: usize, rules: &mut Rules) {
        let part = &mut self.parts[at];
        let directory = part.segment.directory();
        part.version = Some(directory.version);
        let entries = directory.entries.iter();
        let there: HashMap<(usize, u16), _> =
            entries.map(|e| ((e.slot, e.generation), e)).collect();
        let gone = part.streams.keys().filter(|id| !there.contains_key(id));
        let gone: Vec<(usize, u16)> = gone.copied().collect();
        let gone = gone.iter().filter_map(|id| part.streams.remove(id));
        for stream in gone.collect::<Vec<Followed>>() {
            self.forget(stream.key, rules);
        }
        let part = &mut self.parts[at];
        for (id, entry) in there {
            if part.streams.contains_key(&id) {
                continue;
            }
            let key = StreamKey(self.free.pop().unwrap_or_else(|| {
                self.next_key += 1;
                self.next_key - 1
            }));
            rules.stream_added(key, &entry.descriptor);
            self.scopes.insert(key, part.scope.clone());
            let stream = Followed {
                key,
                handle: part.segment.stream(entry),
                is_read: false,
                cursor: 0,
                looked_ns: 0,
            };
            part.streams.insert(id, stream);
            // Whether it is read is asked again.
            self.version = None;
        }
    }

    /// Finds out which streams are read, and which need their past.
    fn choose(&mut self, rules: &mut Rules) {
        self.wanted.extend(rules.take_wanted());
        for part in &mut self.parts {
            for stream in part.streams.values_mut() {
                let was_read = std::mem::replace(&mut stream.is_read, rules.is_read(stream.key));
                if stream.is_read && !was_read {
                    stream.begin(rules, &mut self.samples);
                }
            }
        }
    }

    /// The streams whose past is wanted since this was asked last.
    pub fn take_asks(&mut self, rules: &Rules) -> Vec<Ask> {
        if self.wanted.is_empty() {
            return Vec::new();
        }
        let wanted = std::mem::take(&mut self.wanted);
        let mut asks = Vec::with_capacity(wanted.len());
        for part in &self.parts {
            for stream in part.streams.values().filter(|s| s.is_read) {
                let length_ns = wanted.get(&stream.key);
                let descriptor = rules.descriptor(stream.key);
                if let (Some(length_ns), Some(descriptor)) = (length_ns, descriptor) {
                    asks.push(Ask {
                        key: stream.key,
                        scope: part.scope.clone(),
                        run_dir: part.run_dir.clone(),
                        node: part.node.clone(),
                        descriptor: descriptor.clone(),
                        length_ns: *length_ns,
                    });
                }
            }
        }
        asks
    }

    /// Gives windows what was found of their past. What is new was told before ([`Self::feed`]): so
    /// nothing that was found comes by itself later, and nothing is there twice.
    pub fn seed(&mut self, rules: &mut Rules, asks: &[Ask], told: Told, clock: &dyn Clock) {
        let now_ns = clock.now_ns();
        let asked: HashMap<StreamKey, &Ask> = asks.iter().map(|a| (a.key, a)).collect();
        let told: HashMap<StreamKey, Found> = told.into_iter().collect();
        for stream in self.parts.iter_mut().flat_map(|p| p.streams.values_mut()) {
            let (Some(found), Some(ask)) = (told.get(&stream.key), asked.get(&stream.key)) else {
                continue;
            };
            // Its key may be another stream's by now.
            let is_it = |known| Arc::ptr_eq(known, &ask.descriptor);
            if stream.is_read && rules.descriptor(stream.key).is_some_and(is_it) {
                let start_ns = now_ns.saturating_sub(ask.length_ns);
                stream.seed(rules, found, start_ns, &mut self.samples);
            }
        }
    }
}

impl Followed {
    /// What a stream is that a rule begins to read.
    fn begin(&mut self, rules: &mut Rules, samples: &mut Vec<Sample>) {
        samples.clear();
        if rules.has_sample(self.key) {
            // It was read before: what came since then comes by itself.
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

    /// Its past, as far as it was found, else as far as the ring reaches.
    fn seed(&mut self, rules: &mut Rules, found: &Found, start_ns: i64, samples: &mut Vec<Sample>) {
        let mut oldest_ns = found.oldest_ns();
        if found.samples.is_empty() {
            samples.clear();
            // What the cursor has not passed yet comes by itself.
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

    /// What is new.
    fn feed(&mut self, rules: &mut Rules, samples: &mut Vec<Sample>) {
        if self
            .handle
            .count()
            .is_some_and(|count| count != self.cursor)
        {
            samples.clear();
            if let Some(scan) = self.handle.scan(self.cursor, samples) {
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
