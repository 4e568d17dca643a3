//! The segments as they stood at one version of their directories: the streams, their handles, and
//! what matches a selector. Immutable, so that any thread can go on with the one it holds; the
//! [`Observer`](crate::Observer) replaces it when a directory or a segment is replaced.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use barograph_model::{Descriptor, Labels, NS_PER_S, Name, Sample, Selector, SeriesId};
use barograph_stream::{Entry, Latest, RunDir, SegmentReader, StreamError, StreamReader};

use crate::{LatestValue, StreamInfo};

/// A value whose resource was not looked at for so many of its intervals is stale…
pub const STALE_INTERVALS: i64 = 3;
/// …but none is before it has this age: a busy machine may be late.
pub const STALE_AGE_NS_MIN: i64 = NS_PER_S;

/// A stream of a view.
#[derive(Debug)]
pub(crate) struct Known {
    pub segment: Arc<SegmentReader>,
    pub descriptor: Arc<Descriptor>,
    pub handle: StreamReader,
    entry: Entry,
}

impl Known {
    pub fn series(&self) -> SeriesId {
        self.entry.series
    }

    pub fn interval_ns(&self) -> i64 {
        self.segment.interval_ns(&self.entry)
    }

    /// The newest sample and how old it is, with the number of samples so far; `None` when the
    /// stream has ended.
    pub fn latest(&self, now_ns: i64, alive: bool) -> Option<(LatestValue, u64)> {
        let (sample, looked_ns, count) = match self.handle.latest() {
            Latest::Sample {
                sample,
                looked_ns,
                count,
            } => (Some(sample), looked_ns, count),
            Latest::Empty => (None, 0, 0),
            Latest::Gone => return None,
        };
        let interval_ns = self.interval_ns();
        let age_ns = if sample.is_some() {
            now_ns.saturating_sub(looked_ns).max(0)
        } else {
            0
        };
        let late_ns = interval_ns.saturating_mul(STALE_INTERVALS);
        // A look that is as far in the future proves as little: the clock was set back since.
        let away_ns = now_ns.saturating_sub(looked_ns).saturating_abs();
        let overdue =
            sample.is_some() && interval_ns > 0 && away_ns > late_ns.max(STALE_AGE_NS_MIN);
        let value = LatestValue {
            descriptor: Arc::clone(&self.descriptor),
            sample,
            age_ns,
            looked_ns,
            interval_ns,
            stale: !alive || overdue,
        };
        Some((value, count))
    }

    /// The newest sample, and when its resource was last looked at.
    pub fn newest(&self) -> Option<(Sample, i64)> {
        match self.handle.latest() {
            Latest::Sample {
                sample, looked_ns, ..
            } => Some((sample, looked_ns)),
            Latest::Empty | Latest::Gone => None,
        }
    }

    /// What the stream is and how far it has come; `None` when it has ended.
    pub fn info(&self) -> Option<StreamInfo> {
        Some(StreamInfo {
            descriptor: Arc::clone(&self.descriptor),
            series: self.entry.series,
            depth: self.entry.depth,
            samples: self.handle.count()?,
            interval_ns: self.interval_ns(),
            created_ns: self.entry.created_ns,
            looked_ns: self.handle.looked_ns(),
        })
    }
}

/// Whether an agent still writes this segment.
pub(crate) fn alive(segment: &SegmentReader, now_ns: i64) -> bool {
    segment.is_alive(now_ns)
}

/// The streams of a segment at one version of its directory.
#[derive(Debug)]
pub(crate) struct Part {
    pub segment: Arc<SegmentReader>,
    /// Sorted by name, then labels.
    streams: Vec<Arc<Known>>,
    version: u64,
}

impl Part {
    /// Reads the directory. Streams of the same segment that `before` knew already are taken over
    /// as they are, so that the identity of the [`Known`] tells whether a stream is still the same
    /// one.
    pub fn read(segment: Arc<SegmentReader>, before: Option<&Self>) -> Self {
        let directory = segment.directory();
        let mut known: HashMap<(usize, u16), &Arc<Known>> = before
            .filter(|b| Arc::ptr_eq(&b.segment, &segment))
            .into_iter()
            .flat_map(|b| {
                b.streams
                    .iter()
                    .map(|k| ((k.entry.slot, k.entry.generation), k))
            })
            .collect();
        let make = |entry: Entry| {
            Arc::new(Known {
                descriptor: Arc::new(entry.descriptor.clone()),
                handle: segment.stream(&entry),
                segment: Arc::clone(&segment),
                entry,
            })
        };
        let mut streams: Vec<Arc<Known>> = directory
            .entries
            .into_iter()
            .map(
                |entry| match known.remove(&(entry.slot, entry.generation)) {
                    // A generation comes round after 65,535 others: the identity must agree as well.
                    Some(same) if same.entry.series == entry.series => Arc::clone(same),
                    _ => make(entry),
                },
            )
            .collect();
        streams.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        Self {
            version: directory.version,
            streams,
            segment,
        }
    }

    /// This part as it is now: itself when nothing has changed, of the new segment when the agent has
    /// gone or been replaced.
    pub fn now(self: &Arc<Self>, now_ns: i64) -> Result<Arc<Self>, StreamError> {
        if !alive(&self.segment, now_ns) {
            let mut segment = SegmentReader::clone(&self.segment);
            if segment.reopen_if_replaced()? {
                return Ok(Arc::new(Self::read(Arc::new(segment), None)));
            }
        }
        if self.segment.directory_version() != self.version {
            let segment = Arc::clone(&self.segment);
            return Ok(Arc::new(Self::read(segment, Some(self))));
        }
        Ok(Arc::clone(self))
    }
}

/// A scope of applications that this process may read.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    name: Arc<str>,
    part: Arc<Part>,
}

impl Scope {
    /// The scopes of a run directory that can be opened now; those that were so before go on.
    pub fn find(run_dir: &RunDir, before: &[Self], now_ns: i64) -> Vec<Self> {
        let open = |(name, run_dir): (String, RunDir)| {
            if let Some(held) = before.iter().find(|scope| *scope.name == *name) {
                return held.now(now_ns);
            }
            let segment = SegmentReader::of(&run_dir).ok()?;
            Some(Self {
                name: name.into(),
                part: Arc::new(Part::read(Arc::new(segment), None)),
            })
        };
        run_dir.scopes().into_iter().filter_map(open).collect()
    }

    /// This scope as it is now; `None` when its new segment cannot be opened.
    pub fn now(&self, now_ns: i64) -> Option<Self> {
        Some(Self {
            name: Arc::clone(&self.name),
            part: self.part.now(now_ns).ok()?,
        })
    }
}

/// The streams that can be read: the node's own, and those of applications.
#[derive(Debug)]
pub(crate) struct View {
    /// The node's own segment.
    pub node: Arc<Part>,
    /// By name.
    pub scopes: Vec<Scope>,
    /// Sorted by name, then labels; each series once.
    pub streams: Vec<Arc<Known>>,
    /// How many views its observer had before.
    pub serial: u64,
}

impl View {
    /// The streams of these segments. A series that several have is that of the node, else that which was
    /// registered last: a publication that is given other readers leaves its old scope behind.
    pub fn of(node: Arc<Part>, scopes: Vec<Scope>, serial: u64) -> Self {
        let mut streams = node.streams.clone();
        if !scopes.is_empty() {
            for scope in &scopes {
                streams.extend(scope.part.streams.iter().cloned());
            }
            let rank = |k: &Known| {
                let is_of_node = Arc::ptr_eq(&k.segment, &node.segment);
                Reverse((is_of_node, k.entry.created_ns))
            };
            streams.sort_by(|a, b| {
                let same = sort_key(a).cmp(&sort_key(b));
                same.then_with(|| rank(a).cmp(&rank(b)))
            });
            streams.dedup_by(|a, b| a.series() == b.series());
        }
        Self {
            node,
            scopes,
            streams,
            serial,
        }
    }

    /// Whether these are the segments of this view, at the same versions.
    pub fn is_of(&self, node: &Arc<Part>, scopes: &[Scope]) -> bool {
        Arc::ptr_eq(&self.node, node)
            && self.scopes.len() == scopes.len()
            && (self.scopes.iter().zip(scopes)).all(|(a, b)| Arc::ptr_eq(&a.part, &b.part))
    }

    /// The node's own segment.
    pub fn segment(&self) -> &Arc<SegmentReader> {
        &self.node.segment
    }

    /// All segments, the node's own first.
    pub fn segments(&self) -> impl Iterator<Item = &Arc<SegmentReader>> {
        let scopes = self.scopes.iter().map(|scope| &scope.part.segment);
        std::iter::once(&self.node.segment).chain(scopes)
    }

    /// The streams that a selector means; one that names its stream is found without a walk.
    pub fn matching<'a>(&'a self, selector: &'a Selector) -> impl Iterator<Item = &'a Arc<Known>> {
        let of_name = if selector.name.is_literal() {
            let name = selector.name.as_str();
            let from = self
                .streams
                .partition_point(|k| k.descriptor.name.as_str() < name);
            let rest = &self.streams[from..];
            &rest[..rest.partition_point(|k| k.descriptor.name.as_str() == name)]
        } else {
            &self.streams[..]
        };
        of_name
            .iter()
            .filter(|k| selector.matches(k.descriptor.name.as_str(), &k.descriptor.labels))
    }

    /// The stream of this identity.
    pub fn find(&self, series: SeriesId) -> Option<&Arc<Known>> {
        self.streams.iter().find(|k| k.series() == series)
    }
}

fn sort_key(known: &Known) -> (&Name, &Labels, SeriesId) {
    let Descriptor { name, labels, .. } = &*known.descriptor;
    (name, labels, known.series())
}
