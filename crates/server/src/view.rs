//! The segments as the server sees them: mapped once, their directories and handles kept until they
//! change. Of applications these are only what everyone may read: over TCP everyone is one reader.

use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Labels, NS_PER_S, Name, Selector, SeriesId, projections_among};
use barograph_stream::{Entry, Incarnation, RunDir, SegmentReader, StreamError, StreamReader};

/// The scope of publications that everyone may read.
const SCOPE: &str = "all";

/// A loop that has not ticked for so long counts as stopped.
pub const HEARTBEAT_AGE_NS_MAX: i64 = 5 * NS_PER_S;

/// One stream, resolved.
#[derive(Clone, Debug)]
pub struct Stream {
    pub entry: Arc<Entry>,
    pub handle: StreamReader,
    segment: Arc<SegmentReader>,
}

/// Which stream of which life: never another's.
pub type StreamId = (Incarnation, usize, u16);

impl Stream {
    /// Stays while the stream lives, whatever comes or goes around it.
    pub fn id(&self) -> StreamId {
        let Entry {
            slot, generation, ..
        } = *self.entry;
        (self.segment.incarnation(), slot, generation)
    }

    /// How often its resource is looked at now, in ns; 0 when nobody has said.
    pub fn interval_ns(&self) -> i64 {
        self.segment.interval_ns(&self.entry)
    }
}

/// The streams of one segment at one version of its directory.
#[derive(Debug)]
struct Part {
    segment: Arc<SegmentReader>,
    version: u64,
    streams: Vec<Stream>,
}

impl Part {
    fn open(run_dir: &RunDir) -> Result<Arc<Self>, StreamError> {
        let segment = SegmentReader::of(run_dir)?;
        Ok(Self::read(Arc::new(segment)))
    }

    fn read(segment: Arc<SegmentReader>) -> Arc<Self> {
        let directory = segment.directory();
        let resolve = |entry: Entry| Stream {
            handle: segment.stream(&entry),
            segment: Arc::clone(&segment),
            entry: Arc::new(entry),
        };
        Arc::new(Self {
            version: directory.version,
            streams: directory.entries.into_iter().map(resolve).collect(),
            segment,
        })
    }

    /// This part as it is now: itself when nothing has changed.
    fn now(self: &Arc<Self>) -> Result<Arc<Self>, StreamError> {
        let mut segment = SegmentReader::clone(&self.segment);
        if segment.reopen_if_replaced()? {
            return Ok(Self::read(Arc::new(segment)));
        }
        if self.segment.directory_version() != self.version {
            return Ok(Self::read(Arc::clone(&self.segment)));
        }
        Ok(Arc::clone(self))
    }
}

/// All streams at one version of the directories of their segments.
#[derive(Debug)]
pub struct View {
    node: Arc<Part>,
    applications: Option<Arc<Part>>,
    /// By name, then labels; each series once.
    pub streams: Vec<Stream>,
}

impl View {
    fn of(node: Arc<Part>, applications: Option<Arc<Part>>) -> Self {
        let parts = std::iter::once(&node).chain(&applications);
        let mut streams: Vec<Stream> = parts.flat_map(|p| p.streams.iter().cloned()).collect();
        // The node's own come first, and the order of what is equal stays.
        streams.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        streams.dedup_by(|a, b| a.entry.series == b.entry.series);
        Self {
            node,
            applications,
            streams,
        }
    }

    /// The node's own segment.
    pub fn segment(&self) -> &SegmentReader {
        &self.node.segment
    }

    /// Most streams that fit into the segments.
    pub fn streams_max(&self) -> usize {
        let parts = std::iter::once(&self.node).chain(&self.applications);
        parts.map(|part| part.segment.streams_max()).sum()
    }

    /// The indices of the streams that any of the selectors means, in order.
    pub fn select(&self, selectors: &[Selector]) -> Vec<usize> {
        let meant = |stream: &Stream| {
            let d = &stream.entry.descriptor;
            selectors
                .iter()
                .any(|s| s.matches(d.name.as_str(), &d.labels))
        };
        (0..self.streams.len())
            .filter(|&at| meant(&self.streams[at]))
            .collect()
    }

    /// The stream that has the projections of this one.
    pub fn projections_of(&self, stream: &Stream) -> Option<&Stream> {
        let of = &stream.entry.descriptor;
        projections_among(&self.streams, |s| &s.entry.descriptor, of).first()
    }

    /// Whether the agent still writes.
    pub fn is_alive(&self, now_ns: i64) -> bool {
        self.segment().is_alive(now_ns, HEARTBEAT_AGE_NS_MAX)
    }
}

fn sort_key(stream: &Stream) -> (&Name, &Labels, SeriesId) {
    let Entry {
        descriptor, series, ..
    } = &*stream.entry;
    (&descriptor.name, &descriptor.labels, *series)
}

/// Keeps the current view.
#[derive(Debug)]
pub struct Views {
    run_dir: RunDir,
    applications: RunDir,
    current: Mutex<Option<Arc<View>>>,
}

impl Views {
    /// Views of the segments in this run directory.
    pub fn new(run_dir: RunDir) -> Self {
        Self {
            applications: run_dir.scope(SCOPE),
            run_dir,
            current: Mutex::new(None),
        }
    }

    /// The run directory.
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// The view as of now: a `stat` and a load a segment when nothing has changed.
    pub fn current(&self) -> Result<Arc<View>, StreamError> {
        // Nothing below leaves half a value behind, so a poisoned lock holds a good one.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current.as_ref();
        let node = before.map_or_else(|| Part::open(&self.run_dir), |view| view.node.now())?;
        // Without applications, or with a segment of theirs that cannot be read, the node's own are all.
        let applications = match before.and_then(|view| view.applications.as_ref()) {
            Some(part) => part.now().ok(),
            None => Part::open(&self.applications).ok(),
        };
        let is_same = |a: &Arc<Part>, b: &Arc<Part>| Arc::ptr_eq(a, b);
        if let Some(view) = before
            && is_same(&view.node, &node)
            && match (&view.applications, &applications) {
                (Some(a), Some(b)) => is_same(a, b),
                (a, b) => a.is_none() && b.is_none(),
            }
        {
            return Ok(Arc::clone(view));
        }
        let view = Arc::new(View::of(node, applications));
        *current = Some(Arc::clone(&view));
        Ok(view)
    }
}
