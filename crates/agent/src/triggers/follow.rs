//! The segments of the node and of its applications, followed for the triggers: which streams there are,
//! and what is new in those that a trigger reads.

use std::collections::HashMap;
use std::time::Duration;

use barograph_insight::Triggers;
use barograph_model::{NS_PER_S, Sample, StreamKey};
use barograph_stream::{RunDir, SegmentReader, StreamReader};
use tracing::debug;

/// Scopes that have come or gone are looked for so often, in ns.
const LOOK_NS: i64 = NS_PER_S;

/// All segments.
pub(super) struct Follow {
    run_dir: RunDir,
    parts: Vec<Part>,
    next_look_ns: i64,
    /// Scope of each key.
    scopes: HashMap<StreamKey, std::sync::Arc<str>>,
    free: Vec<u32>,
    next_key: u32,
    /// What the triggers' version was when `is_read` was asked for each stream.
    version: Option<u64>,
    samples: Vec<Sample>,
}

/// One segment.
struct Part {
    scope: std::sync::Arc<str>,
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

    /// Tells the triggers all that is new.
    pub fn feed(&mut self, triggers: &mut Triggers, monotonic_ns: i64) {
        if monotonic_ns >= self.next_look_ns {
            self.next_look_ns = monotonic_ns.saturating_add(LOOK_NS);
            self.look(triggers);
        }
        for at in 0..self.parts.len() {
            if self.parts[at].version != Some(self.parts[at].segment.directory_version()) {
                self.read_directory(at, triggers);
            }
        }
        if self.version != Some(triggers.version()) {
            self.version = Some(triggers.version());
            self.choose(triggers);
        }
        for part in &mut self.parts {
            for stream in part.streams.values_mut().filter(|s| s.is_read) {
                stream.feed(triggers, &mut self.samples);
            }
        }
    }

    /// Opens the segments that have come, and forgets those that have gone.
    fn look(&mut self, triggers: &mut Triggers) {
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
                self.forget(stream.key, triggers);
            }
        }
        for (scope, run_dir) in there {
            if self.parts.iter().any(|part| *part.scope == *scope) {
                continue;
            }
            match SegmentReader::open(&run_dir.segment()) {
                Ok(segment) => self.parts.push(Part {
                    scope: scope.into(),
                    segment,
                    version: None,
                    streams: HashMap::new(),
                }),
                Err(error) => debug!(%error, scope, "triggers do not see this segment"),
            }
        }
    }

    fn forget(&mut self, key: StreamKey, triggers: &mut Triggers) {
        triggers.stream_removed(key);
        self.scopes.remove(&key);
        self.free.push(key.0);
    }

    /// Streams of one segment that have come or gone.
    fn read_directory(&mut self, at: usize, triggers: &mut Triggers) {
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
            self.forget(stream.key, triggers);
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
            triggers.stream_added(key, &entry.descriptor);
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

    /// Finds out which streams are read, and gives windows what the rings hold of their past.
    fn choose(&mut self, triggers: &mut Triggers) {
        let wanted: HashMap<StreamKey, i64> = triggers.take_wanted().into_iter().collect();
        for part in &mut self.parts {
            for stream in part.streams.values_mut() {
                let was_read = std::mem::replace(&mut stream.is_read, triggers.is_read(stream.key));
                let is_wanted = wanted.contains_key(&stream.key);
                if stream.is_read && (!was_read || is_wanted) {
                    stream.begin(triggers, is_wanted, &mut self.samples);
                }
            }
        }
    }
}

impl Followed {
    /// What is known of a stream that a trigger begins to read.
    fn begin(&mut self, triggers: &mut Triggers, with_past: bool, samples: &mut Vec<Sample>) {
        samples.clear();
        let is_new = !triggers.has_sample(self.key);
        let scan = match with_past {
            true => self.handle.scan(0, samples),
            false => self.handle.tail(1, samples),
        };
        let Some(scan) = scan else {
            return;
        };
        if is_new {
            self.cursor = scan.cursor;
            for sample in samples.iter() {
                triggers.sample(self.key, sample);
            }
        } else if with_past {
            // Those that the cursor has not passed yet come by themselves.
            triggers.seed(self.key, samples);
        }
        self.look(triggers);
    }

    /// What is new.
    fn feed(&mut self, triggers: &mut Triggers, samples: &mut Vec<Sample>) {
        if self
            .handle
            .count()
            .is_some_and(|count| count != self.cursor)
        {
            samples.clear();
            if let Some(scan) = self.handle.scan(self.cursor, samples) {
                self.cursor = scan.cursor;
                if scan.lost > 0 {
                    triggers.missed(self.key, scan.lost);
                }
                for sample in samples.iter() {
                    triggers.sample(self.key, sample);
                }
            }
        }
        self.look(triggers);
    }

    fn look(&mut self, triggers: &mut Triggers) {
        let looked_ns = self.handle.looked_ns();
        if looked_ns != self.looked_ns {
            self.looked_ns = looked_ns;
            triggers.looked(self.key, looked_ns);
        }
    }
}
