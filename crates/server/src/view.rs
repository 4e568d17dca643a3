//! The segment as the server sees it: mapped once, its directory and handles kept until it changes.

use std::sync::{Arc, Mutex, PoisonError};

use barograph_model::{Labels, NS_PER_S, Name, Selector, SeriesId};
use barograph_stream::{Entry, RunDir, SegmentReader, SegmentState, StreamError, StreamReader};

/// A loop that has not ticked for so long counts as stopped.
pub const HEARTBEAT_AGE_NS_MAX: i64 = 5 * NS_PER_S;

/// One stream, resolved.
#[derive(Debug)]
pub struct Stream {
    pub entry: Entry,
    pub handle: StreamReader,
}

/// All streams of one writer's life at one version of its directory.
#[derive(Debug)]
pub struct View {
    reader: SegmentReader,
    version: u64,
    /// By name, then labels.
    pub streams: Vec<Stream>,
}

impl View {
    fn of(reader: &SegmentReader) -> Self {
        let directory = reader.directory();
        let resolve = |entry: Entry| Stream {
            handle: reader.stream(&entry),
            entry,
        };
        let mut streams: Vec<Stream> = directory.entries.into_iter().map(resolve).collect();
        streams.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        Self {
            reader: reader.clone(),
            version: directory.version,
            streams,
        }
    }

    /// The segment.
    pub fn segment(&self) -> &SegmentReader {
        &self.reader
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

    /// How often the stream's resource is looked at now, in ns; 0 when nobody has said.
    pub fn interval_ns(&self, stream: &Stream) -> i64 {
        self.reader.interval_ns(&stream.entry)
    }

    /// Whether the agent still writes.
    pub fn is_alive(&self, now_ns: i64) -> bool {
        let age_ns = now_ns.saturating_sub(self.reader.heartbeat_ns());
        self.reader.state() == SegmentState::Live && age_ns <= HEARTBEAT_AGE_NS_MAX
    }
}

fn sort_key(stream: &Stream) -> (&Name, &Labels, SeriesId) {
    let Entry {
        descriptor, series, ..
    } = &stream.entry;
    (&descriptor.name, &descriptor.labels, *series)
}

/// Keeps the current view.
#[derive(Debug)]
pub struct Views {
    run_dir: RunDir,
    current: Mutex<Option<(SegmentReader, Arc<View>)>>,
}

impl Views {
    /// Views of the segment in this run directory.
    pub fn new(run_dir: RunDir) -> Self {
        Self {
            run_dir,
            current: Mutex::new(None),
        }
    }

    /// The run directory.
    pub fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// The view as of now: one `stat` and one load when nothing has changed.
    pub fn current(&self) -> Result<Arc<View>, StreamError> {
        // Nothing below leaves half a value behind, so a poisoned lock holds a good one.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((reader, view)) = current.as_mut() {
            let replaced = reader.reopen_if_replaced()?;
            if replaced || reader.directory_version() != view.version {
                *view = Arc::new(View::of(reader));
            }
            return Ok(Arc::clone(view));
        }
        let reader = SegmentReader::open(&self.run_dir.segment())?;
        let view = Arc::new(View::of(&reader));
        *current = Some((reader, Arc::clone(&view)));
        Ok(view)
    }
}
