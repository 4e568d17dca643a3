//! The streams as the tables see them: a snapshot of the segment's directory that follows it.
//!
//! One `Live` belongs to one connection. Every scan asks it for the current snapshot, which costs a
//! lock that nobody contends and two loads from the segment; only when streams have come or gone is
//! the directory read again.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_model::{Clock, NS_PER_S};
use barograph_stream::{Incarnation, RunDir, SegmentReader, SegmentState};

use crate::QueryError;
use crate::shape::Shape;
use crate::stream::Stream;

/// A heartbeat older than this makes us ask the file system whether the agent was replaced.
const HEARTBEAT_STALE_NS: i64 = 3 * NS_PER_S;

/// The streams of one run directory, followed as they come and go.
pub(crate) struct Live {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    /// Bytes that scans of this connection hold outside of SQLite's heap.
    pub(crate) memory: Arc<Memory>,
}

struct Inner {
    run_dir: RunDir,
    snapshot: Arc<Snapshot>,
}

/// The number of a metric's table, the same as long as the connection lives: a scan finds its
/// streams by it without hashing a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableId(usize);

/// The streams at one moment.
pub(crate) struct Snapshot {
    pub(crate) segment: SegmentReader,
    pub(crate) node: Arc<str>,
    pub(crate) streams: Vec<Arc<Stream>>,
    /// The streams of each table, by its number.
    by_table: Vec<Arc<[Arc<Stream>]>>,
    /// Numbers of the tables by name; a number is never given to another table.
    numbers: HashMap<String, TableId>,
    /// The shape of every table that this connection has ever known: a table outlives its streams.
    pub(crate) shapes: BTreeMap<String, Arc<Shape>>,
    version: u64,
    incarnation: Incarnation,
}

impl Live {
    pub(crate) fn open(run_dir: &RunDir, clock: Arc<dyn Clock>) -> Result<Self, QueryError> {
        let segment = SegmentReader::open(&run_dir.segment())?;
        let snapshot = Arc::new(Snapshot::take(segment, None));
        let inner = Mutex::new(Inner {
            run_dir: run_dir.clone(),
            snapshot,
        });
        Ok(Self {
            clock,
            inner,
            memory: Arc::default(),
        })
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    #[cfg(feature = "bundled")]
    pub(crate) fn monotonic_ns(&self) -> i64 {
        self.clock.monotonic_ns()
    }

    pub(crate) fn run_dir(&self) -> RunDir {
        self.lock().run_dir.clone()
    }

    /// Looks at another run directory from now on.
    #[cfg(feature = "loadable")]
    pub(crate) fn move_to(&self, run_dir: RunDir) -> Result<(), QueryError> {
        let segment = SegmentReader::open(&run_dir.segment())?;
        let mut inner = self.lock();
        inner.snapshot = Arc::new(Snapshot::take(segment, Some(&inner.snapshot)));
        inner.run_dir = run_dir;
        Ok(())
    }

    /// The streams as they are now. An agent that said goodbye, or was replaced by another, is
    /// noticed here.
    pub(crate) fn current(&self) -> Result<Arc<Snapshot>, QueryError> {
        let inner = self.follow(|segment| segment.state() == SegmentState::Closed)?;
        Ok(Arc::clone(&inner.snapshot))
    }

    /// The streams of a table as they are now; none when all have ended.
    pub(crate) fn streams_of(&self, table: TableId) -> Result<Arc<[Arc<Stream>]>, QueryError> {
        let inner = self.follow(|segment| segment.state() == SegmentState::Closed)?;
        let streams = inner.snapshot.by_table.get(table.0);
        Ok(streams.cloned().unwrap_or_default())
    }

    /// As [`Self::current`], and notices as well that the run directory was laid out anew after an
    /// agent that could not say goodbye.
    pub(crate) fn attend(&self) -> Result<Arc<Snapshot>, QueryError> {
        let now_ns = self.now_ns();
        let inner = self.follow(|segment| {
            segment.state() == SegmentState::Closed
                || now_ns.saturating_sub(segment.heartbeat_ns()) > HEARTBEAT_STALE_NS
        })?;
        Ok(Arc::clone(&inner.snapshot))
    }

    fn follow(
        &self,
        doubtful: impl FnOnce(&SegmentReader) -> bool,
    ) -> Result<MutexGuard<'_, Inner>, QueryError> {
        let mut inner = self.lock();
        let snapshot = &inner.snapshot;
        let mut segment = None;
        if doubtful(&snapshot.segment) {
            let mut other = snapshot.segment.clone();
            if other.reopen_if_replaced()? {
                segment = Some(other);
            }
        }
        if segment.is_none() && snapshot.segment.directory_version() != snapshot.version {
            segment = Some(snapshot.segment.clone());
        }
        if let Some(segment) = segment {
            inner.snapshot = Arc::new(Snapshot::take(segment, Some(&inner.snapshot)));
        }
        Ok(inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock, and a snapshot is replaced whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Snapshot {
    fn take(segment: SegmentReader, before: Option<&Self>) -> Self {
        let directory = segment.directory();
        let incarnation = segment.incarnation();
        let node: Arc<str> = segment.node().into();
        // A stream that lives on keeps what is known of the order of its ring.
        let known: HashMap<(usize, u16), &Arc<Stream>> = before
            .filter(|b| b.incarnation == incarnation)
            .map(|b| {
                b.streams
                    .iter()
                    .map(|s| ((s.entry.slot, s.entry.generation), s))
                    .collect()
            })
            .unwrap_or_default();
        let mut streams: Vec<Arc<Stream>> = directory
            .entries
            .into_iter()
            .map(|entry| match known.get(&(entry.slot, entry.generation)) {
                Some(stream) => Arc::clone(stream),
                None => Arc::new(Stream::new(
                    segment.stream(&entry),
                    entry,
                    Arc::clone(&node),
                )),
            })
            .collect();
        streams.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));

        let mut grouped: HashMap<String, Vec<Arc<Stream>>> = HashMap::new();
        for stream in &streams {
            grouped
                .entry(stream.table.clone())
                .or_default()
                .push(Arc::clone(stream));
        }
        let mut shapes = before.map(|b| b.shapes.clone()).unwrap_or_default();
        for (table, members) in &grouped {
            let old = shapes.get(table);
            if let Some(grown) = Shape::grown(old.map(AsRef::as_ref), members) {
                shapes.insert(table.clone(), Arc::new(grown));
            }
        }
        let mut numbers = before.map(|b| b.numbers.clone()).unwrap_or_default();
        let mut by_table: Vec<Arc<[Arc<Stream>]>> = vec![Arc::default(); numbers.len()];
        for (table, members) in grouped {
            let next = TableId(by_table.len());
            let TableId(number) = *numbers.entry(table).or_insert(next);
            if number == by_table.len() {
                by_table.push(Arc::default());
            }
            by_table[number] = members.into();
        }
        let version = directory.version;
        Self {
            segment,
            node,
            streams,
            by_table,
            numbers,
            shapes,
            version,
            incarnation,
        }
    }

    /// The number of a table of [`Self::shapes`].
    pub(crate) fn table_id(&self, table: &str) -> TableId {
        *self
            .numbers
            .get(table)
            .expect("a table has its shape and its number from the same streams")
    }
}

/// Counts what scans hold in memory of our own, beside SQLite's heap.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicUsize,
    max: AtomicUsize,
}

impl Default for Memory {
    fn default() -> Self {
        let max = barograph_model::SqlLimits::default().memory_bytes_max;
        Self {
            used: AtomicUsize::new(0),
            max: AtomicUsize::new(max),
        }
    }
}

impl Memory {
    /// Sets the bound for the scans to come.
    #[cfg(feature = "bundled")]
    pub(crate) fn set_max(&self, bytes: usize) {
        self.max.store(bytes, Ordering::Relaxed);
    }

    /// A claim of nothing yet.
    pub(crate) fn claim(self: &Arc<Self>) -> Claim {
        Claim {
            memory: Arc::clone(self),
            bytes: 0,
        }
    }
}

/// Bytes that one scan holds; given back when it ends.
#[derive(Debug)]
pub(crate) struct Claim {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Claim {
    /// Holds `bytes` instead of what it held before.
    pub(crate) fn set(&mut self, bytes: usize) -> rusqlite::Result<()> {
        if bytes == self.bytes {
            return Ok(()); // As most rows of a scan find it.
        }
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
        let used = self.memory.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let max = self.memory.max.load(Ordering::Relaxed);
        if used > max {
            return Err(crate::error::too_large(format!(
                "the scans hold {used} bytes of {max}"
            )));
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
