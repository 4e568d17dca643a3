//! The view: all streams, their handles, and selector matching, at one version of each segment's
//! directory. A view is immutable, so any thread can go on with the one it holds; the
//! `ViewFollower` replaces it when a directory or a segment changes.

use std::cmp::Reverse;
use std::sync::Arc;

use barograph_model::{Descriptor, Labels, Name, Sample, Selector, SeriesId};
use barograph_stream::{
    DirectoryEntry, FollowedStream, LatestSample, PartId, SegmentFollower, SegmentReader,
    StreamReader,
};

use crate::values::{LatestValue, StreamInfo};

#[derive(Debug)]
pub(crate) struct ViewStream {
    /// The node that the stream is of.
    pub node: Arc<str>,
    pub segment: Arc<SegmentReader>,
    pub descriptor: Arc<Descriptor>,
    pub handle: StreamReader,
    entry: DirectoryEntry,
}

impl ViewStream {
    pub(crate) fn series(&self) -> SeriesId {
        self.entry.series
    }

    pub(crate) fn interval_ns(&self) -> i64 {
        self.segment.interval_ns(&self.entry)
    }

    /// Whether an agent still writes the stream's segment.
    #[inline]
    pub(crate) fn is_alive(&self, now_ns: i64) -> bool {
        self.segment.is_alive(now_ns)
    }

    /// The newest sample and how old it is, with the number of samples so far; `None` when the
    /// stream has ended.
    pub(crate) fn latest(&self, now_ns: i64, alive: bool) -> Option<(LatestValue, u64)> {
        let (sample, looked_ns, count) = match self.handle.latest() {
            LatestSample::Sample {
                sample,
                looked_ns,
                count,
            } => (Some(sample), looked_ns, count),
            LatestSample::Empty => (None, 0, 0),
            LatestSample::Gone => return None,
        };
        let interval_ns = self.interval_ns();
        let age_ns = if sample.is_some() {
            now_ns.saturating_sub(looked_ns).max(0)
        } else {
            0
        };
        let overdue = sample.is_some() && self.segment.is_overdue(now_ns, looked_ns, interval_ns);
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

    /// The newest sample, and the time of the last look at its resource.
    pub(crate) fn newest(&self) -> Option<(Sample, i64)> {
        match self.handle.latest() {
            LatestSample::Sample {
                sample, looked_ns, ..
            } => Some((sample, looked_ns)),
            LatestSample::Empty | LatestSample::Gone => None,
        }
    }

    /// Descriptor and state of the stream; `None` if it has ended.
    pub(crate) fn info(&self) -> Option<StreamInfo> {
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

impl FollowedStream for ViewStream {
    fn of(part: &PartId, segment: &Arc<SegmentReader>, entry: DirectoryEntry) -> Self {
        Self {
            node: Arc::clone(&part.node),
            descriptor: Arc::new(entry.descriptor.clone()),
            handle: segment.stream(&entry),
            segment: Arc::clone(segment),
            entry,
        }
    }

    fn entry(&self) -> &DirectoryEntry {
        &self.entry
    }
}

/// All streams that this process may read: the node's own, and those of applications.
#[derive(Debug)]
pub(crate) struct NodeView {
    /// The node's own segment first.
    segments: Vec<Arc<SegmentReader>>,
    /// Sorted by name, then labels; each series once.
    pub streams: Vec<Arc<ViewStream>>,
    /// The number of changes until this view.
    pub serial: u64,
}

impl NodeView {
    /// The streams of the segments that are followed. A series that several of a node have is that
    /// of the node, else that which was registered last: a publication that is given other readers
    /// leaves its old scope behind.
    pub(crate) fn of(follower: &SegmentFollower<ViewStream>) -> Self {
        let parts = follower.parts();
        let mut streams = follower.own().streams.clone();
        if let [own, scopes @ ..] = parts
            && !scopes.is_empty()
        {
            streams.extend(scopes.iter().flat_map(|part| part.streams.iter().cloned()));
            let rank = |k: &ViewStream| {
                let is_of_node = Arc::ptr_eq(&k.segment, &own.segment);
                Reverse((is_of_node, k.entry.created_ns))
            };
            streams.sort_by(|a, b| {
                let same = sort_key(a).cmp(&sort_key(b));
                let same = same.then_with(|| a.node.cmp(&b.node));
                same.then_with(|| rank(a).cmp(&rank(b)))
            });
            streams.dedup_by(|a, b| a.series() == b.series() && a.node == b.node);
        }
        Self {
            segments: parts.iter().map(|p| Arc::clone(&p.segment)).collect(),
            streams,
            serial: follower.changes(),
        }
    }

    /// The node's own segment.
    pub(crate) fn segment(&self) -> &Arc<SegmentReader> {
        &self.segments[0]
    }

    /// All segments, the node's own first.
    pub(crate) fn segments(&self) -> &[Arc<SegmentReader>] {
        &self.segments
    }

    /// The streams that a selector matches; a literal name is found by binary search.
    pub(crate) fn matching<'a>(
        &'a self,
        selector: &'a Selector,
    ) -> impl Iterator<Item = &'a Arc<ViewStream>> {
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

    /// The stream of this series.
    pub(crate) fn find(&self, series: SeriesId) -> Option<&Arc<ViewStream>> {
        self.streams.iter().find(|k| k.series() == series)
    }
}

fn sort_key(known: &ViewStream) -> (&Name, &Labels, SeriesId) {
    let Descriptor { name, labels, .. } = &*known.descriptor;
    (name, labels, known.series())
}
