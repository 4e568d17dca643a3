//! Views of the segments that the server serves: mapped once, with directories and handles kept
//! until they change. Of applications' segments there is only the scope that everyone may read,
//! since over TCP all clients are one reader.

use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Labels, Name, Selector, SeriesId, projections_among};
use barograph_stream::{
    DirectoryEntry, FollowedStream, Incarnation, PartId, RunDir, ScopeChoice, SegmentFollower,
    SegmentReader, StreamError, StreamReader,
};

/// Time between two looks at the run directory, in ns: each request looks, since a client may ask
/// for what it has just published.
const LOOK_NS: i64 = 0;

/// A stream of a segment with its open handle.
#[derive(Debug)]
pub(crate) struct ServedStream {
    pub entry: DirectoryEntry,
    pub handle: StreamReader,
    segment: Arc<SegmentReader>,
}

impl FollowedStream for ServedStream {
    fn of(_: &PartId, segment: &Arc<SegmentReader>, entry: DirectoryEntry) -> Self {
        Self {
            handle: segment.stream(&entry),
            segment: Arc::clone(segment),
            entry,
        }
    }

    fn entry(&self) -> &DirectoryEntry {
        &self.entry
    }
}

/// Identity of a stream's life: incarnation of the segment, slot and generation. It is never
/// reused.
pub(crate) type StreamId = (Incarnation, usize, u16);

impl ServedStream {
    /// The stream's identity, which stays the same while the stream lives.
    pub(crate) fn id(&self) -> StreamId {
        let DirectoryEntry {
            slot, generation, ..
        } = self.entry;
        (self.segment.incarnation(), slot, generation)
    }

    /// Whether a value that was looked at then is out of date at `now_ns`: the next look is
    /// overdue, or nobody writes the segment.
    pub(crate) fn is_stale(&self, looked_ns: i64, now_ns: i64) -> bool {
        let is_overdue = || (self.segment).is_overdue(now_ns, looked_ns, self.interval_ns());
        !self.segment.is_alive(now_ns) || is_overdue()
    }

    /// The present interval between looks at its resource, in ns; 0 if unknown.
    pub(crate) fn interval_ns(&self) -> i64 {
        self.segment.interval_ns(&self.entry)
    }
}

/// All streams at one version of their segments' directories.
#[derive(Debug)]
pub(crate) struct ServedView {
    /// The node's own segment first.
    segments: Vec<Arc<SegmentReader>>,
    /// Sorted by name, then labels; each series occurs once.
    pub streams: Vec<Arc<ServedStream>>,
    /// The number of the follower's changes until this view.
    changes: u64,
}

impl ServedView {
    fn of(follower: &SegmentFollower<ServedStream>) -> Self {
        let parts = follower.parts();
        let streams = parts.iter().flat_map(|part| part.streams.iter().cloned());
        let mut streams: Vec<Arc<ServedStream>> = streams.collect();
        // The node's own streams come first, and the sort is stable.
        streams.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        streams.dedup_by(|a, b| a.entry.series == b.entry.series);
        Self {
            segments: parts.iter().map(|p| Arc::clone(&p.segment)).collect(),
            streams,
            changes: follower.changes(),
        }
    }

    /// The node's own segment.
    pub(crate) fn segment(&self) -> &SegmentReader {
        &self.segments[0]
    }

    /// Most streams that fit into the segments.
    pub(crate) fn streams_max(&self) -> usize {
        self.segments.iter().map(|s| s.streams_max()).sum()
    }

    /// The indices of the streams that match any of the selectors, in order.
    pub(crate) fn select(&self, selectors: &[Selector]) -> Vec<usize> {
        let meant = |stream: &ServedStream| {
            let d = &stream.entry.descriptor;
            selectors
                .iter()
                .any(|s| s.matches(d.name.as_str(), &d.labels))
        };
        (0..self.streams.len())
            .filter(|&at| meant(&self.streams[at]))
            .collect()
    }

    /// The stream that holds the projections of `stream`.
    pub(crate) fn projections_of(&self, stream: &ServedStream) -> Option<&ServedStream> {
        let of = &stream.entry.descriptor;
        let found = projections_among(&self.streams, |s| &s.entry.descriptor, of);
        found.first().map(|stream| &**stream)
    }

    /// Whether the agent's heartbeat is recent at `now_ns`.
    pub(crate) fn is_alive(&self, now_ns: i64) -> bool {
        self.segment().is_alive(now_ns)
    }
}

fn sort_key(stream: &ServedStream) -> (&Name, &Labels, SeriesId) {
    let DirectoryEntry {
        descriptor, series, ..
    } = &stream.entry;
    (&descriptor.name, &descriptor.labels, *series)
}

/// The holder of the current view.
#[derive(Debug)]
pub(crate) struct ServedViews {
    run_dir: RunDir,
    seen: Mutex<Option<Seen>>,
}

/// The followed segments, once there is one, and their view as of the last change.
#[derive(Debug)]
struct Seen {
    follower: SegmentFollower<ServedStream>,
    view: Arc<ServedView>,
}

impl Seen {
    fn open(run_dir: &RunDir, now_ns: i64) -> Result<Self, StreamError> {
        let follower = SegmentFollower::open(run_dir, ScopeChoice::Public, LOOK_NS, now_ns)?;
        let view = Arc::new(ServedView::of(&follower));
        Ok(Self { follower, view })
    }
}

impl ServedViews {
    /// Makes views of the segments in a run directory.
    pub(crate) fn new(run_dir: RunDir) -> Self {
        Self {
            run_dir,
            seen: Mutex::new(None),
        }
    }

    /// The run directory that holds the segments.
    pub(crate) fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// The views of the mirror of another node; whether there is one, the first view tells. Each
    /// request makes its own: a mirror is read seldom, and what nobody reads is not held.
    pub(crate) fn of_mirror(&self, node: &str) -> Self {
        Self::new(self.run_dir.mirror(node))
    }

    /// The view at `now_ns`; if nothing has changed this costs a `stat` and a load for each
    /// segment.
    pub(crate) fn current(&self, now_ns: i64) -> Result<Arc<ServedView>, StreamError> {
        // A view is replaced as a whole, so a poisoned lock holds a valid one.
        let mut held = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = match &mut *held {
            Some(seen) => seen,
            none => none.insert(Seen::open(&self.run_dir, now_ns)?),
        };
        seen.follower.follow(now_ns)?;
        if seen.follower.changes() != seen.view.changes {
            seen.view = Arc::new(ServedView::of(&seen.follower));
        }
        Ok(Arc::clone(&seen.view))
    }
}
