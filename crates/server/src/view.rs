//! Views of the segments that the server serves: mapped once, with directories and handles kept
//! until they change. Of applications' segments there is only the scope that everyone may read,
//! since over TCP all clients are one reader.

use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Labels, Name, Selector, SeriesId, projections_among};
use barograph_stream::{Entry, Incarnation, RunDir, SegmentReader, StreamError, StreamReader};

/// The scope of publications that everyone may read.
const SCOPE: &str = "all";

/// A stream of a segment with its open handle.
#[derive(Clone, Debug)]
pub struct Stream {
    pub entry: Arc<Entry>,
    pub handle: StreamReader,
    segment: Arc<SegmentReader>,
}

/// Identity of a stream's life: incarnation of the segment, slot and generation. It is never
/// reused.
pub type StreamId = (Incarnation, usize, u16);

impl Stream {
    /// The stream's identity, which stays the same while the stream lives.
    pub fn id(&self) -> StreamId {
        let Entry {
            slot, generation, ..
        } = *self.entry;
        (self.segment.incarnation(), slot, generation)
    }

    /// The present interval between looks at its resource, in ns; 0 if unknown.
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

    /// The present version of this part; the part itself if nothing has changed.
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

/// All streams at one version of their segments' directories.
#[derive(Debug)]
pub struct View {
    node: Arc<Part>,
    applications: Option<Arc<Part>>,
    /// Sorted by name, then labels; each series occurs once.
    pub streams: Vec<Stream>,
}

impl View {
    fn of(node: Arc<Part>, applications: Option<Arc<Part>>) -> Self {
        let parts = std::iter::once(&node).chain(&applications);
        let mut streams: Vec<Stream> = parts.flat_map(|p| p.streams.iter().cloned()).collect();
        // The node's own streams come first, and the sort is stable.
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

    /// The indices of the streams that match any of the selectors, in order.
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

    /// The stream that holds the projections of `stream`.
    pub fn projections_of(&self, stream: &Stream) -> Option<&Stream> {
        let of = &stream.entry.descriptor;
        projections_among(&self.streams, |s| &s.entry.descriptor, of).first()
    }

    /// Whether the agent's heartbeat is recent at `now_ns`.
    pub fn is_alive(&self, now_ns: i64) -> bool {
        self.segment().is_alive(now_ns)
    }
}

fn sort_key(stream: &Stream) -> (&Name, &Labels, SeriesId) {
    let Entry {
        descriptor, series, ..
    } = &*stream.entry;
    (&descriptor.name, &descriptor.labels, *series)
}

/// The holder of the current view.
#[derive(Debug)]
pub struct Views {
    run_dir: RunDir,
    applications: RunDir,
    current: Mutex<Option<Arc<View>>>,
}

impl Views {
    /// Makes views of the segments in a run directory.
    pub fn new(run_dir: RunDir) -> Self {
        Self {
            applications: run_dir.scope(SCOPE),
            run_dir,
            current: Mutex::new(None),
        }
    }

    /// The run directory that holds the segments.
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// The current view; if nothing has changed this costs a `stat` and a load for each segment.
    pub fn current(&self) -> Result<Arc<View>, StreamError> {
        // No code below leaves a value half written, so a poisoned lock holds a valid one.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let before = current.as_ref();
        let node = before.map_or_else(|| Part::open(&self.run_dir), |view| view.node.now())?;
        // If there are no applications, or their segment cannot be read, only the node's streams
        // count.
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
