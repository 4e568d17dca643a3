//! The streams and the archive as the tables see them: a snapshot that follows both.
//!
//! One `Live` belongs to one connection. Every scan asks it for the current snapshot, which costs a
//! lock that nobody contends and two loads from the segment; only when streams have come or gone is
//! the directory read again. The archive is looked at only by who reads from it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barograph_archive::View;
use barograph_model::{Clock, NS_PER_S};
use barograph_stream::{RunDir, SegmentReader, SegmentState};

use crate::QueryError;
use crate::asof::Held;
use crate::memory::Memory;
use crate::snapshot::{Horizon, Snapshot, TableId};
use crate::source::{self, Views};
use crate::stream::Stream;
use crate::watch::Watch;

/// The streams of a table.
type Streams = Arc<[Arc<Stream>]>;

/// A heartbeat older than this makes us ask the file system whether the agent was replaced.
const HEARTBEAT_STALE_NS: i64 = 3 * NS_PER_S;
/// An agent that did not say where its archive is is asked again after this time.
const ASK_AGAIN_NS: i64 = NS_PER_S;
/// Threads that one scan over much history may use, in a process that asks for itself.
pub(crate) const THREADS_DEFAULT: usize = 2;

/// The streams of one run directory, followed as they come and go, and their archive.
pub(crate) struct Live {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
    threads: AtomicUsize,
    /// Bytes that scans of this connection hold outside of SQLite's heap.
    pub(crate) memory: Arc<Memory>,
    /// The watch over the statement that runs.
    pub(crate) watch: Watch,
    /// What `asof` read last.
    pub(crate) held: Mutex<Option<Held>>,
}

struct Inner {
    run_dir: Option<RunDir>,
    /// The archive's directory, when it is known by the run directory.
    root: Option<PathBuf>,
    views: Option<Views>,
    /// When the run directory was last asked for its archive.
    asked_ns: Option<i64>,
    /// Why the archive may not be read by this user.
    denied: Option<String>,
    snapshot: Arc<Snapshot>,
}

impl Inner {
    /// Whether the run directory is to be asked for its archive.
    fn is_archive_due(&self, now_ns: i64) -> bool {
        let is_due = |asked_ns: i64| now_ns.abs_diff(asked_ns) >= ASK_AGAIN_NS as u64;
        self.views.is_none() && self.run_dir.is_some() && self.asked_ns.is_none_or(is_due)
    }
}

impl Live {
    /// The streams of a run directory, and the archive that its agent keeps.
    pub(crate) fn open(run_dir: &RunDir, clock: Arc<dyn Clock>) -> Result<Self, QueryError> {
        Self::over(Some(run_dir), None, clock)
    }

    /// A run directory, an archive, or both.
    pub(crate) fn over(
        run_dir: Option<&RunDir>,
        views: Option<Views>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, QueryError> {
        let segment = run_dir.map(|run_dir| SegmentReader::open(&run_dir.segment()));
        let now_ns = clock.now_ns();
        let snapshot = Arc::new(Snapshot::take(segment.transpose()?, None, now_ns));
        let inner = Mutex::new(Inner {
            run_dir: run_dir.cloned(),
            root: None,
            views,
            asked_ns: None,
            denied: None,
            snapshot,
        });
        let live = Self {
            clock,
            inner,
            threads: AtomicUsize::new(THREADS_DEFAULT),
            memory: Arc::default(),
            watch: Watch::default(),
            held: Mutex::default(),
        };
        match live.past() {
            // An archive that cannot be read is told to whoever asks for the past.
            Err(error) if run_dir.is_none() => Err(error),
            _ => Ok(live),
        }
    }

    pub(crate) fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    pub(crate) fn monotonic_ns(&self) -> i64 {
        self.clock.monotonic_ns()
    }

    /// Most threads that one scan may use beside its own.
    pub(crate) fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    #[cfg(feature = "bundled")]
    pub(crate) fn set_threads(&self, threads: usize) {
        self.threads.store(threads.max(1), Ordering::Relaxed);
    }

    /// Whether the statement that runs must stop. To be called only on the thread that steps it.
    pub(crate) fn must_stop(&self) -> bool {
        self.watch.must_stop(self.monotonic_ns())
    }

    pub(crate) fn run_dir(&self) -> Option<RunDir> {
        self.lock().run_dir.clone()
    }

    /// Where the archive is, when the agent says so.
    #[cfg(feature = "bundled")]
    pub(crate) fn archive_dir(&self) -> Option<PathBuf> {
        self.find_archive();
        self.lock().root.clone()
    }

    /// Looks at another run directory from now on.
    #[cfg(feature = "loadable")]
    pub(crate) fn move_to(&self, run_dir: RunDir) -> Result<(), QueryError> {
        let segment = SegmentReader::open(&run_dir.segment())?;
        let mut inner = self.lock();
        let before = inner.snapshot.without_view();
        inner.snapshot = Arc::new(Snapshot::take(Some(segment), Some(&before), self.now_ns()));
        inner.run_dir = Some(run_dir);
        inner.denied = None;
        (inner.root, inner.views, inner.asked_ns) = (None, None, None);
        Ok(())
    }

    /// Reads an archive by itself from now on.
    #[cfg(feature = "loadable")]
    pub(crate) fn move_to_archive(&self, root: PathBuf) -> Result<(), QueryError> {
        {
            let mut inner = self.lock();
            let before = inner.snapshot.without_view();
            inner.snapshot = Arc::new(Snapshot::take(None, Some(&before), self.now_ns()));
            inner.views = Some(source::views_of(root.clone()));
            (inner.run_dir, inner.root) = (None, Some(root));
        }
        self.past().map(drop)
    }

    /// The streams as they are now. An agent that said goodbye, or was replaced by another, is
    /// noticed here.
    pub(crate) fn current(&self) -> Result<Arc<Snapshot>, QueryError> {
        let inner = self.follow(|segment| segment.state() == SegmentState::Closed)?;
        Ok(Arc::clone(&inner.snapshot))
    }

    /// The streams of a table as they are now, none when all have ended, and up to when the archive
    /// may know more.
    pub(crate) fn streams_of(&self, table: TableId) -> Result<(Streams, Horizon), QueryError> {
        let inner = self.follow(|segment| segment.state() == SegmentState::Closed)?;
        let members = inner.snapshot.members(table);
        let streams = members.map(|m| (Arc::clone(&m.streams), m.horizon));
        Ok(streams.unwrap_or((Arc::default(), Horizon::NEVER)))
    }

    /// How many streams a table has, how many samples their rings hold, and how many series of it are
    /// archived.
    pub(crate) fn size_of(&self, table: TableId) -> Result<(usize, u64, usize), QueryError> {
        let inner = self.follow(|segment| segment.state() == SegmentState::Closed)?;
        let Some(members) = inner.snapshot.members(table) else {
            return Ok((0, 0, 0));
        };
        let held = members.streams.iter().map(|s| u64::from(s.entry.depth));
        Ok((members.streams.len(), held.sum(), members.archived.len()))
    }

    /// As [`Self::current`], and notices as well that the run directory was laid out anew after an
    /// agent that could not say goodbye, and that an agent has said where its archive is.
    pub(crate) fn attend(&self) -> Result<Arc<Snapshot>, QueryError> {
        let now_ns = self.now_ns();
        let inner = self.follow(|segment| {
            segment.state() == SegmentState::Closed
                || now_ns.saturating_sub(segment.heartbeat_ns()) > HEARTBEAT_STALE_NS
        })?;
        if !inner.is_archive_due(now_ns) {
            return Ok(Arc::clone(&inner.snapshot));
        }
        drop(inner);
        // Whoever asks for the past is told what is wrong with it.
        let _ = self.past();
        Ok(Arc::clone(&self.lock().snapshot))
    }

    /// The archive as it is now, if there is one; the snapshot knows it afterwards. Where this user may not
    /// read it beside the rings, those are all there is, and [`Self::denied`] says so.
    pub(crate) fn past(&self) -> Result<Option<Arc<View>>, QueryError> {
        let Some(views) = self.find_archive() else {
            return Ok(None);
        };
        let view = match views() {
            Err(error) if error.is_denied() && !self.is_archive_alone() => {
                self.lock().denied = Some(error.to_string());
                return Ok(None);
            }
            view => view?,
        };
        let mut inner = self.follow(|_| false)?;
        inner.denied = None;
        let known = inner.snapshot.view.as_ref();
        if !known.is_some_and(|known| Arc::ptr_eq(known, &view)) {
            inner.snapshot = Arc::new(inner.snapshot.with_view(Arc::clone(&view)));
        }
        Ok(Some(view))
    }

    /// Why the archive could not be read by this user when it was last looked at, and its directory.
    pub(crate) fn denied(&self) -> Option<(String, Option<PathBuf>)> {
        let inner = self.lock();
        let reason = inner.denied.clone()?;
        Some((reason, inner.root.clone()))
    }

    /// Whether there is an archive, as far as is known.
    pub(crate) fn has_archive(&self) -> bool {
        self.lock().views.is_some()
    }

    /// Whether an archive is read by itself, without an agent's run directory.
    pub(crate) fn is_archive_alone(&self) -> bool {
        self.lock().run_dir.is_none()
    }

    fn find_archive(&self) -> Option<Views> {
        let now_ns = self.now_ns();
        let mut inner = self.lock();
        if inner.is_archive_due(now_ns) {
            inner.asked_ns = Some(now_ns);
            inner.root = inner.run_dir.as_ref().and_then(source::directory_of);
            inner.views = inner.root.clone().map(source::views_of);
        }
        inner.views.clone()
    }

    fn follow(
        &self,
        doubtful: impl FnOnce(&SegmentReader) -> bool,
    ) -> Result<MutexGuard<'_, Inner>, QueryError> {
        let mut inner = self.lock();
        let snapshot = &inner.snapshot;
        let Some(segment) = &snapshot.segment else {
            return Ok(inner);
        };
        let mut next = None;
        if doubtful(segment) {
            let mut other = segment.clone();
            if other.reopen_if_replaced()? {
                next = Some(other);
            }
        }
        let is_replaced = next.is_some();
        if next.is_none() && !snapshot.is_current() {
            next = Some(segment.clone());
        }
        if next.is_some() {
            let now_ns = self.now_ns();
            inner.snapshot = Arc::new(Snapshot::take(next, Some(&inner.snapshot), now_ns));
        }
        if is_replaced && inner.root.is_some() {
            inner.denied = None;
            // Another agent may keep its archive elsewhere, or none.
            (inner.root, inner.views, inner.asked_ns) = (None, None, None);
        }
        Ok(inner)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds the lock, and a snapshot is replaced whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
